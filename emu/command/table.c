/* SPDX-License-Identifier: Apache-2.0 */
/* table.c - prints the results of many runs as a table; see results.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/device.h"
#include "machine/title.h"
#include "results.h"
#include "verdict.h"

#define MOST_LINES 20 /* of a run's output */
#define MOST_WORD  (1 << 12)

/* Runs with the same result. */
struct group {
	const struct record *report; /* NULL: none, and they ended like this: */
	char what[200];
	const struct run **runs;
	size_t count;
};

struct groups {
	struct group *list;
	size_t count;
};

/* ---- groups -------------------------------------------------------------- */

/* "PTX line 100, k.cu:13": only the source, if it is known. */
static const char *place_of(const struct record *r)
{
	const char *comma = strstr(r->place, ", ");

	return comma ? comma + 2 : r->place;
}

static bool is_same(const struct group *g, const struct record *report,
		    const char *what)
{
	if (!g->report || !report)
		return !g->report && !report && strcmp(g->what, what) == 0;
	return strcmp(g->report->rule, report->rule) == 0 &&
	       strcmp(g->report->kernel, report->kernel) == 0 &&
	       strcmp(place_of(g->report), place_of(report)) == 0;
}

static bool add(struct groups *all, const struct run *run, const struct record *report,
		const char *what)
{
	struct group *g = NULL;
	const struct run **runs;

	for (size_t i = 0; i < all->count && !g; i++)
		if (is_same(&all->list[i], report, what))
			g = &all->list[i];
	if (!g) {
		struct group *list =
		    realloc(all->list, (all->count + 1) * sizeof(*all->list));

		if (!list)
			return false;
		all->list = list;
		g = &list[all->count++];
		*g = (struct group){.report = report};
		snprintf(g->what, sizeof(g->what), "%s", what);
	}
	if (g->count && g->runs[g->count - 1] == run)
		return true;
	runs = realloc(g->runs, (g->count + 1) * sizeof(const struct run *));
	if (!runs)
		return false;
	g->runs = runs;
	g->runs[g->count++] = run;
	return true;
}

static bool collect(struct groups *all, const struct runs *r, const struct job *job)
{
	bool ok = true;

	for (size_t i = 0; i < r->count; i++) {
		const struct run *run = &r->list[i];
		const struct records *records = &run->records;
		char what[200];

		for (size_t k = 0; ok && k < records->count; k++)
			if (record_is_report(&records->list[k]) &&
			    !records->list[k].is_waived)
				ok = add(all, run, &records->list[k], "");
		if (run->result == RESULT_CLEAN || run->result == RESULT_REPORT)
			continue;
		result_describe(run, job, what, sizeof(what));
		ok = ok && add(all, run, NULL, what);
	}
	return ok;
}

/* ---- lines --------------------------------------------------------------- */

/* Prints "0-3, 7", truncated after some seeds. */
static void print_seeds(FILE *to, const struct group *g)
{
	unsigned words = 0;

	for (size_t i = 0; i < g->count; words++) {
		size_t last = i;

		while (last + 1 < g->count &&
		       g->runs[last + 1]->seed == g->runs[last]->seed + 1)
			last++;
		if (words == 12) {
			fprintf(to, ", and %zu more", g->count - i);
			break;
		}
		fprintf(to, "%s%" PRIu64, words ? ", " : "", g->runs[i]->seed);
		if (last > i)
			fprintf(to, "-%" PRIu64, g->runs[last]->seed);
		i = last + 1;
	}
	fputc('\n', to);
}

static void print_group(FILE *to, const struct group *g)
{
	const struct record *r = g->report;
	char title[120];

	fprintf(to, "  %zu schedule%s: ", g->count, g->count == 1 ? "" : "s");
	if (r) {
		emu_kernel_title(r->kernel, title, sizeof(title));
		fprintf(to, "%s, %s", r->rule[0] ? r->rule : "report", title);
		if (r->place[0])
			fprintf(to, ", %s", place_of(r));
	} else {
		fprintf(to, "%s", g->what);
	}
	fprintf(to, "\n      seed%s ", g->count == 1 ? "" : "s");
	print_seeds(to, g);
}

/* Prints a word of a command line, in quotes if a shell needs them. */
static void print_word(FILE *to, const char *word)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789_-./=+:,@%";

	fputc(' ', to);
	if (*word && word[strspn(word, plain)] == '\0') {
		fputs(word, to);
		return;
	}
	fputc('\'', to);
	for (; *word; word++)
		*word == '\'' ? (void)fputs("'\\''", to) : (void)fputc(*word, to);
	fputc('\'', to);
}

static void print_again(FILE *to, const struct run *run, const struct options *o)
{
	fprintf(to, "\nAgain: nibemu run --seed %" PRIu64, run->seed);
	if (o->device)
		fprintf(to, " --device %s", o->device);
	if (o->is_strict)
		fputs(" --strict", to);
	if (o->continues)
		fputs(" --continue", to);
	if (o->waive) {
		fputs(" --waive", to);
		print_word(to, o->waive);
	}
	for (char **word = o->program; *word; word++)
		print_word(to, *word);
	fputc('\n', to);
}

/* Prints the first run that is not clean in full. */
static void print_first(FILE *to, const struct run *run, const struct job *job)
{
	const struct record *report = records_first_report(&run->records);
	char text[1400];

	if (report) {
		fprintf(to, "\nThe first report, of seed %" PRIu64 ":\n%s\n", run->seed,
			report->text);
	} else {
		result_describe(run, job, text, sizeof(text));
		fprintf(to, "\nSeed %" PRIu64 ": %s", run->seed, text);
		result_explain(run, job, text, sizeof(text));
		fprintf(to, "%s%s\n", text[0] ? ": " : "", text);
		output_print(to, &run->output, MOST_LINES);
	}
	print_again(to, run, job->options);
}

static void print_outputs(FILE *to, const struct runs *r, const struct job *job)
{
	for (size_t i = 0; i < r->count; i++) {
		char what[200];

		result_describe(&r->list[i], job, what, sizeof(what));
		fprintf(to, "Seed %" PRIu64 ", %.1f s: %s\n", r->list[i].seed,
			r->list[i].seconds, what);
		output_print(to, &r->list[i].output, UINT32_MAX);
	}
}

void results_print(FILE *to, const struct runs *r, const struct job *job)
{
	const struct emu_device *d = emu_device_find(results_device(r, job));
	const struct run *first = NULL;
	struct groups all = {0};
	size_t clean = 0;

	if (job->options->is_verbose)
		print_outputs(to, r, job);
	for (size_t i = 0; i < r->count; i++) {
		clean += r->list[i].result == RESULT_CLEAN;
		if (!first && r->list[i].result != RESULT_CLEAN &&
		    r->list[i].result != RESULT_NONE)
			first = &r->list[i];
	}
	fprintf(to,
		"nibemu: %zu of %zu schedules clean (seeds %" PRIu64 " to %" PRIu64
		", %s)\n",
		clean, r->count, r->list[0].seed, r->list[r->count - 1].seed,
		d ? d->title : "device");
	if (clean) {
		fputs("  clean: ", to);
		verdict_print(to, r, job);
	}
	if (!collect(&all, r, job))
		fputs("nibemu: no memory for the table\n", stderr);
	for (size_t i = 0; i < all.count; i++) {
		print_group(to, &all.list[i]);
		free(all.list[i].runs);
	}
	free(all.list);
	if (first)
		print_first(to, first, job);
}
