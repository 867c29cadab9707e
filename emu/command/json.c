/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - the results of the runs as JSON; see results.h and docs/ci.md. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "results.h"
#include "verdict.h"

static void put_text(FILE *to, const char *text)
{
	fputc('"', to);
	for (; *text; text++) {
		const unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			fprintf(to, "\\%c", c);
		else if (c < ' ')
			fprintf(to, "\\u%04x", c);
		else
			fputc(c, to);
	}
	fputc('"', to);
}

static const char *name_of(enum result result)
{
	switch (result) {
	case RESULT_CLEAN:
		return "clean";
	case RESULT_REPORT:
		return "report";
	case RESULT_TIMEOUT:
		return "timeout";
	case RESULT_REFUSED:
		return "refused";
	case RESULT_UNUSED:
		return "unused";
	case RESULT_FAILED:
		return "failed";
	case RESULT_INTERRUPTED:
		return "interrupted";
	case RESULT_NONE:
		break;
	}
	return "none";
}

static void put_run(FILE *to, const struct run *r, const struct job *job)
{
	bool is_first = true;
	char why[1400];

	fprintf(to, "{\"seed\":%" PRIu64 ",\"result\":\"%s\"", r->seed,
		name_of(r->result));
	if (r->result != RESULT_NONE) {
		if (WIFSIGNALED(r->status))
			fprintf(to, ",\"signal\":%d", WTERMSIG(r->status));
		else
			fprintf(to, ",\"status\":%d", WEXITSTATUS(r->status));
		fprintf(to, ",\"seconds\":%.3f", r->seconds);
	}
	result_explain(r, job, why, sizeof(why));
	if (why[0]) {
		fputs(",\"why\":", to);
		put_text(to, why);
	}
	fputs(",\"reports\":[", to);
	for (size_t i = 0; i < r->records.count; i++) {
		if (!record_is_report(&r->records.list[i]))
			continue;
		fprintf(to, "%s\n  %s", is_first ? "" : ",", r->records.list[i].line);
		is_first = false;
	}
	fputs("]}", to);
}

static bool write_all(FILE *to, const struct runs *r, const struct job *job)
{
	const char *text;
	size_t clean = 0;

	fputs("{\"nibemu\":\"" NIBEMU_VERSION "\",\"device\":", to);
	put_text(to, results_device(r, job));
	fputs(",\"program\":[", to);
	for (char **word = job->options->program; *word; word++) {
		fputs(word == job->options->program ? "" : ",", to);
		put_text(to, *word);
	}
	for (size_t i = 0; i < r->count; i++)
		clean += r->list[i].result == RESULT_CLEAN;
	fprintf(to, "],\"clean\":%zu,\"status\":%d,\"rules\":%u,\"unwatched\":[", clean,
		results_status(r), verdict_rules(r, job->options));
	for (size_t k = 0; (text = verdict_unwatched(r, job, k)); k++) {
		fputs(k ? "," : "", to);
		put_text(to, text);
	}
	fputs("],\"runs\":[", to);
	for (size_t i = 0; i < r->count; i++) {
		fputs(i ? ",\n " : "\n ", to);
		put_run(to, &r->list[i], job);
	}
	fputs("]}\n", to);
	return !ferror(to);
}

bool results_write_json(const struct runs *r, const struct job *job, const char *path)
{
	FILE *to = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
	bool ok;

	if (!to)
		return false;
	ok = write_all(to, r, job);
	if (to == stdout)
		return !fflush(stdout) && ok;
	return !fclose(to) && ok;
}
