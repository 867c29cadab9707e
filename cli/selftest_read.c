/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest_read.c - what a report of nib selftest says: whether each step ran, whether
 * its results are right and have the bits that were recorded, and how its times
 * compare with those that the project claims.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "rows.h"
#include "selftest.h"

#define MESSAGE_BYTES 400

static const struct table_column columns[] = {
    {.key = "step", .title = "step"},
    {.key = "result", .title = "result"},
    {.key = "right", .title = "rows right"},
    {.key = "rows"},
    {.key = "bits", .title = "bits"},
    {.key = "digest"},
    {.key = "seconds", .title = "time", .print = TABLE_SECONDS},
    {.key = "message"},
    {0},
};

static const struct table_column claim_columns[] = {
    {.key = "op", .title = "op"},
    {.key = "shape", .title = "shape"},
    {.key = "activations", .title = "A"},
    {.key = "claimed_s", .title = "claimed", .print = TABLE_SECONDS},
    {.key = "kind", .title = "claim is"},
    {.key = "measured_s", .title = "measured here", .print = TABLE_SECONDS},
    {.key = "ratio", .title = "measured/claimed", .print = "%.2f"},
    {0},
};

int selftest_load(const char *path, json_t **report)
{
	json_error_t error;

	*report = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
	if (!*report)
		return cli_error(CLI_INPUT, "%s: %s", path, error.text);
	if (json_is_object(*report) &&
	    !strcmp(row_get_text(*report, "format"), SELFTEST_FORMAT) &&
	    json_is_array(json_object_get(*report, "steps")))
		return CLI_OK;
	json_decref(*report);
	*report = NULL;
	return cli_error(CLI_INPUT,
			 "%s: not a report of nib selftest (\"format\" must "
			 "be \"" SELFTEST_FORMAT "\")",
			 path);
}

/* ---- steps --------------------------------------------------------------- */

/* The array of rows that a step printed; NULL if it printed none. */
static const json_t *rows_of(const json_t *step)
{
	const json_t *output = json_object_get(step, "output");

	return json_is_array(output) ? output : NULL;
}

/* FNV-1a of the digests of its rows; false without one in each row. */
static bool digest_of(const json_t *step, char text[17])
{
	const json_t *rows = rows_of(step), *row;
	uint64_t digest = UINT64_C(0xCBF29CE484222325);
	size_t i;

	json_array_foreach(rows, i, row)
	{
		const char *c = row_get_text(row, "digest");

		if (!*c)
			return false;
		for (; *c; c++)
			digest = (digest ^ (unsigned char)*c) * UINT64_C(0x100000001B3);
	}
	snprintf(text, 17, "%016" PRIx64, digest);
	return json_array_size(rows) > 0;
}

static const char *result_of(const json_t *step)
{
	const double code = row_get_number(step, "exit_code");

	if (json_is_true(json_object_get(step, "timed_out")))
		return "TIMED OUT";
	if (row_get_number(step, "signal") > 0)
		return "CRASHED";
	if (code == CLI_OK)
		return "ok";
	if (code == CLI_FOUND)
		return "WRONG";
	return strstr(row_get_text(step, "messages"), "(unsupported)") ? "unsupported"
								       : "NOT RUN";
}

/* A backend need not have all activations, nor a machine nvidia-smi. */
static bool is_failure(const json_t *step)
{
	const char *result = result_of(step);

	return strcmp(result, "ok") && strcmp(result, "unsupported") &&
	       strcmp(row_get_text(step, "name"), "clocks");
}

/* What the machine's results are recorded under: the backend of the rows, or "cpu" for
 * the CPU sets that share their bits. */
static const char *machine_of(const json_t *step)
{
	const char *backend = row_get_text(json_array_get(rows_of(step), 0), "backend");

	if (!strncmp(backend, "cpu-", 4) && strcmp(backend, "cpu-amx"))
		return "cpu";
	return backend;
}

static const json_t *find_step(const json_t *steps, const char *name)
{
	const json_t *step;
	size_t i;

	json_array_foreach(steps, i, step)
	{
		if (!strcmp(row_get_text(step, "name"), name))
			return step;
	}
	return NULL;
}

/* "check nvfp4" for "check nvfp4 again"; false for other names. */
static bool is_again(const char *name, char first[64])
{
	const size_t bytes = strlen(name), tail = strlen(" again");

	if (bytes <= tail || bytes >= 64 || strcmp(name + bytes - tail, " again"))
		return false;
	snprintf(first, 64, "%.*s", (int)(bytes - tail), name);
	return true;
}

/* What the bits of a step are; digest is its own. */
static const char *bits_of(const json_t *steps, const json_t *step, const char *digest)
{
	const char *name = row_get_text(step, "name");
	char first[64], before[17];

	if (is_again(name, first)) {
		if (!digest_of(find_step(steps, first), before))
			return "-";
		return strcmp(before, digest) ? "CHANGED" : "the same";
	}
	switch (selftest_match(machine_of(step), name, digest)) {
	case SELFTEST_UNRECORDED:
		break;
	case SELFTEST_SAME:
		return "as recorded";
	case SELFTEST_OTHER:
		return "DIFFERENT";
	}
	return "not recorded";
}

/* The first line of what a step that failed wrote to standard error. */
static void message_of(const json_t *step, char line[MESSAGE_BYTES])
{
	const char *messages = row_get_text(step, "messages");

	snprintf(line, MESSAGE_BYTES, "%s",
		 strcmp(result_of(step), "ok") ? messages : "");
	line[strcspn(line, "\n")] = '\0';
	cli_clean(line);
}

/* Once for steps in a row that say the same. */
static void note_messages(struct table *table, const json_t *steps)
{
	char line[MESSAGE_BYTES], last[MESSAGE_BYTES] = "";
	const json_t *step;
	size_t i;

	json_array_foreach(steps, i, step)
	{
		message_of(step, line);
		if (*line && strcmp(line, last))
			table_note(table, *last ? "%s: %s" : "\n%s: %s",
				   row_get_text(step, "name"), line);
		memcpy(last, line, sizeof(last));
	}
}

/* True if the step is as it should be. */
static bool put_step(struct table *table, const json_t *steps, const json_t *step)
{
	const json_t *rows = rows_of(step), *row;
	const char *bits = "";
	char text[64], digest[17], line[MESSAGE_BYTES];
	int64_t right = 0, judged = 0;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		judged += json_is_boolean(json_object_get(row, "ok"));
		right += json_is_true(json_object_get(row, "ok"));
	}
	table_text(table, "step", row_get_text(step, "name"));
	table_text(table, "result", result_of(step));
	if (judged) {
		snprintf(text, sizeof(text), "%lld of %lld", (long long)right,
			 (long long)judged);
		table_text(table, "right", text);
		table_int(table, "rows", judged);
	}
	if (digest_of(step, digest)) {
		bits = bits_of(steps, step, digest);
		table_text(table, "bits", bits);
		table_text(table, "digest", digest);
	}
	table_number(table, "seconds", row_get_number(step, "seconds"));
	message_of(step, line);
	table_text(table, "message", line);
	table_end_row(table);
	return !is_failure(step) && right == judged && strcmp(bits, "CHANGED") &&
	       strcmp(bits, "DIFFERENT");
}

/* ---- claims -------------------------------------------------------------- */

/* The claim's activations; older rows do not say NVFP4. */
static bool is_about(const json_t *claim, const json_t *row)
{
	const char *a = row_get_text(claim, "activations");

	return !row_is_peak(row) && !row_is_baseline(claim) &&
	       !strcmp(row_get_text(claim, "op"), row_get_text(row, "op")) &&
	       !strcmp(row_get_text(claim, "shape"), row_get_text(row, "shape")) &&
	       !strcmp(*a ? a : "nvfp4", row_get_text(row, "activations"));
}

static double claimed_s(const json_t *claim)
{
	const double predicted_us = row_get_number(claim, "predicted_us");

	return predicted_us > 0 ? predicted_us * 1e-6 : row_get_number(claim, "time_s");
}

static const json_t *find_measured(const json_t *steps, const json_t *claim)
{
	const json_t *step, *row;
	size_t i, k;

	json_array_foreach(steps, i, step)
	{
		json_array_foreach(rows_of(step), k, row)
		{
			if (is_about(claim, row) && row_get_number(row, "time_s") > 0)
				return row;
		}
	}
	return NULL;
}

static void put_claim(struct table *table, const json_t *claim, const json_t *row)
{
	const double measured = row_get_number(row, "time_s");
	const bool is_predicted = row_get_number(claim, "predicted_us") > 0;

	table_text(table, "op", row_get_text(row, "op"));
	table_text(table, "shape", row_get_text(row, "shape"));
	table_text(table, "activations", row_get_text(row, "activations"));
	table_number(table, "claimed_s", claimed_s(claim));
	table_text(table, "kind", is_predicted ? "predicted" : "measured");
	table_number(table, "measured_s", measured);
	table_number(table, "ratio", measured / claimed_s(claim));
	table_end_row(table);
}

/* A claim is confirmed when the measured time is at most 15 % longer. */
#define CLAIM_MARGIN 1.15

static int print_claims(const json_t *steps, const json_t *claims,
			enum table_format format)
{
	struct table *table = table_new(claim_columns, format, 0);
	const json_t *claim;
	int64_t confirmed = 0, refuted = 0;
	size_t i;

	json_array_foreach(claims, i, claim)
	{
		const json_t *row = find_measured(steps, claim);

		if (!row || claimed_s(claim) <= 0)
			continue;
		put_claim(table, claim, row);
		if (row_get_number(row, "time_s") <= claimed_s(claim) * CLAIM_MARGIN)
			confirmed++;
		else
			refuted++;
	}
	table_note(table,
		   "%lld of %zu claims were measured: %lld confirmed (at most %.0f %% "
		   "slower), %lld refuted",
		   (long long)confirmed + (long long)refuted, json_array_size(claims),
		   (long long)confirmed, (CLAIM_MARGIN - 1) * 100, (long long)refuted);
	return table_end(table);
}

/* ---- all of it ----------------------------------------------------------- */

/* The name of what was tested, as the rows have it. */
static const char *hardware_of(const json_t *steps)
{
	const json_t *step;
	size_t i;

	json_array_foreach(steps, i, step)
	{
		const char *machine =
		    row_get_text(json_array_get(rows_of(step), 0), "machine");

		if (*machine)
			return machine;
	}
	return "unknown";
}

int selftest_print(const json_t *report, const json_t *claims, enum table_format format)
{
	const json_t *steps = json_object_get(report, "steps"), *step;
	const size_t count = json_array_size(steps);
	struct table *table;
	size_t right = 0, i;
	int code;

	if (json_array_size(claims) && format > TABLE_FORMAT_MD)
		return print_claims(steps, claims, format);
	if (format <= TABLE_FORMAT_MD)
		printf("nibblas %s, %s: %s\n\n", row_get_text(report, "version"),
		       row_get_text(report, "device"), hardware_of(steps));
	table = table_new(columns, format, 0);
	json_array_foreach(steps, i, step)
	{
		right += put_step(table, steps, step);
	}
	note_messages(table, steps);
	table_note(table, "%zu of %zu steps are as they should be", right, count);
	code = table_end(table);
	if (!code && json_array_size(claims)) {
		printf("\n");
		code = print_claims(steps, claims, format);
	}
	return code ? code : right < count ? CLI_FOUND : CLI_OK;
}
