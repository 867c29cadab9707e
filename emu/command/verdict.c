/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.c - see verdict.h. */
#include "verdict.h"

#include <string.h>

#include "machine/rules.h"
#include "machine/watch.h"

/* True if all reports of a rule are waived: it is in the list without a kernel. */
static bool is_waived(const char *list, const char *rule)
{
	const size_t length = strlen(rule);

	while (list && *list) {
		const size_t word = strcspn(list, ",");

		if (word == length && strncmp(list, rule, length) == 0)
			return true;
		list += word + (list[word] == ',');
	}
	return false;
}

/*
 * The kernel's own messages and the end of a launch are no rules of PTX, and one rule
 * is only checked with --strict.
 */
static bool is_checked(const struct options *o, const char *rule)
{
	return strcmp(rule, "assert") != 0 && strcmp(rule, "trap") != 0 &&
	       strcmp(rule, "budget") != 0 &&
	       (o->is_strict || strcmp(rule, "refill-fence") != 0);
}

/* True if a run has not checked the order of accesses: --time, NIBEMU_UNCHECKED. */
static bool is_unchecked(const struct runs *r)
{
	for (size_t i = 0; i < r->count; i++)
		for (size_t k = 0; k < r->list[i].records.count; k++) {
			const struct record *one = &r->list[i].records.list[k];

			if (strcmp(one->kind, "unwatched") == 0 &&
			    strcmp(one->text, EMU_UNWATCHED_ORDER) == 0)
				return true;
		}
	return false;
}

unsigned verdict_rules(const struct runs *r, const struct options *o)
{
	const bool has_order = !is_unchecked(r);
	const struct emu_rule *rule;
	unsigned count = 0;

	for (size_t i = 0; (rule = emu_rule_at(i)); i++)
		count += is_checked(o, rule->name) &&
			 !is_waived(o->waive, rule->name) &&
			 (has_order || !emu_rule_is_order(rule));
	return count;
}

/* True if a record before this one has the same text. */
static bool is_repeated(const struct runs *r, size_t run, size_t record,
			const char *text)
{
	for (size_t i = 0; i <= run; i++)
		for (size_t k = 0; k < (i == run ? record : r->list[i].records.count);
		     k++) {
			const struct record *one = &r->list[i].records.list[k];

			if (strcmp(one->kind, "unwatched") == 0 &&
			    strcmp(one->text, text) == 0)
				return true;
		}
	return false;
}

const char *verdict_unwatched(const struct runs *r, const struct job *job, size_t k)
{
	if (!job->options->is_strict && k-- == 0)
		return "the additional checks of --strict";
	for (size_t i = 0; i < r->count; i++)
		for (size_t n = 0; n < r->list[i].records.count; n++) {
			const struct record *one = &r->list[i].records.list[n];

			if (strcmp(one->kind, "unwatched") == 0 &&
			    !is_repeated(r, i, n, one->text) && k-- == 0)
				return one->text;
		}
	return NULL;
}

void verdict_print(FILE *to, const struct runs *r, const struct job *job)
{
	const char *text;

	fprintf(to, "%u rules checked on %zu schedule%s",
		verdict_rules(r, job->options), r->count, r->count == 1 ? "" : "s");
	for (size_t k = 0; (text = verdict_unwatched(r, job, k)); k++)
		fprintf(to, "%s%s", k ? ", " : "; not checked: ", text);
	fputc('\n', to);
}
