/* SPDX-License-Identifier: Apache-2.0 */
/* findings.c - see findings.h. */
#include "machine/findings.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct waiver {
	const struct emu_rule *rule;
	const char *kernel; /* "": any */
};

struct emu_findings {
	pthread_mutex_t lock;
	bool continues;
	char *text; /* of the waivers */
	struct waiver *waivers;
	size_t n_waivers;
	struct emu_finding *list;
	size_t count, capacity;
};

/* ---- waivers ------------------------------------------------------------- */

static bool add_names(struct emu_error *err)
{
	const struct emu_rule *r;
	const char *between = "";

	emu_add_text(err, " (");
	for (size_t i = 0; (r = emu_rule_at(i)); i++) {
		if (!r->can_go_on)
			continue;
		emu_add_text(err, "%s%s", between, r->name);
		between = ", ";
	}
	emu_add_text(err, ")");
	return false;
}

static bool read_waiver(struct emu_findings *f, char *text, struct emu_error *err)
{
	char *colon = strchr(text, ':');
	const size_t length = colon ? (size_t)(colon - text) : strlen(text);
	const struct emu_rule *rule = emu_rule_named(text, length);

	if (!rule || !rule->can_go_on) {
		(void)emu_fail(err, "NIBEMU_WAIVE: %.*s: %s", (int)length, text,
			       rule ? "a launch cannot go on after it; these "
				      "rules can be waived"
				    : "no rule has this name; these can be "
				      "waived");
		return add_names(err);
	}
	f->waivers[f->n_waivers++] = (struct waiver){rule, colon ? colon + 1 : ""};
	return true;
}

static bool read_waivers(struct emu_findings *f, const char *waive,
			 struct emu_error *err)
{
	char *rest = NULL;
	size_t most = 1;

	for (const char *at = waive; *at; at++)
		most += *at == ',';
	f->text = strdup(waive);
	f->waivers = calloc(most, sizeof(*f->waivers));
	if (!f->text || !f->waivers)
		return emu_fail(err, "no memory for NIBEMU_WAIVE");
	for (char *one = strtok_r(f->text, ",", &rest); one;
	     one = strtok_r(NULL, ",", &rest))
		if (!read_waiver(f, one, err))
			return false;
	return true;
}

static bool is_waived(const struct emu_findings *f, const struct emu_finding *one)
{
	for (size_t i = 0; i < f->n_waivers; i++)
		if (f->waivers[i].rule == one->rule &&
		    strstr(one->kernel, f->waivers[i].kernel))
			return true;
	return false;
}

/* ---- opening, closing ---------------------------------------------------- */

struct emu_findings *emu_findings_open(const char *waive, bool continues,
				       struct emu_error *err)
{
	struct emu_findings *f = calloc(1, sizeof(*f));

	if (!f) {
		(void)emu_fail(err, "no memory for reports");
		return NULL;
	}
	pthread_mutex_init(&f->lock, NULL);
	f->continues = continues;
	if (waive && !read_waivers(f, waive, err)) {
		emu_findings_close(f);
		return NULL;
	}
	return f;
}

void emu_findings_clear(struct emu_findings *f)
{
	for (size_t i = 0; i < f->count; i++) {
		free(f->list[i].kernel);
		free(f->list[i].report);
	}
	f->count = 0;
}

void emu_findings_close(struct emu_findings *f)
{
	if (!f)
		return;
	emu_findings_clear(f);
	pthread_mutex_destroy(&f->lock);
	free(f->list);
	free(f->waivers);
	free(f->text);
	free(f);
}

/* ---- findings ------------------------------------------------------------ */

static int compare(const void *a_, const void *b_)
{
	const struct emu_finding *a = a_, *b = b_;
	const int kernels = strcmp(a->kernel, b->kernel);

	if (kernels)
		return kernels;
	if (a->line != b->line)
		return a->line < b->line ? -1 : 1;
	return strcmp(a->rule->name, b->rule->name);
}

static bool grow(struct emu_findings *f)
{
	const size_t capacity = f->capacity ? 2 * f->capacity : 16;
	struct emu_finding *list;

	if (f->count < f->capacity)
		return true;
	list = realloc(f->list, capacity * sizeof(*list));
	if (!list)
		return false;
	f->list = list;
	f->capacity = capacity;
	return true;
}

/* False: no memory; the launch then fails with the report. */
static bool add_new(struct emu_findings *f, const struct emu_finding *one)
{
	struct emu_finding copy = *one;

	copy.kernel = strdup(one->kernel);
	copy.report = strdup(one->report);
	copy.count = 1;
	if (!copy.kernel || !copy.report || !grow(f)) {
		free(copy.kernel);
		free(copy.report);
		return false;
	}
	f->list[f->count++] = copy;
	return true;
}

/* Adds a report of the same place.  The report of the first cluster is kept. */
static void add_again(struct emu_finding *to, const struct emu_finding *one)
{
	char *report;

	to->count++;
	if (one->cluster >= to->cluster)
		return;
	report = strdup(one->report);
	if (!report)
		return;
	free(to->report);
	to->report = report;
	to->cluster = one->cluster;
}

bool emu_findings_add(struct emu_findings *f, const struct emu_finding *one)
{
	struct emu_finding copy = *one;
	bool is_kept = false;
	size_t i = 0;

	if (!f || !one->rule || !one->rule->can_go_on)
		return false;
	copy.is_waived = is_waived(f, one);
	if (!copy.is_waived && !f->continues)
		return false;
	pthread_mutex_lock(&f->lock);
	while (i < f->count && compare(&f->list[i], one) != 0)
		i++;
	if (i < f->count)
		add_again(&f->list[i], one);
	is_kept = i < f->count || add_new(f, &copy);
	pthread_mutex_unlock(&f->lock);
	return is_kept;
}

size_t emu_findings_list(struct emu_findings *f, const struct emu_finding **list)
{
	if (!f) {
		*list = NULL;
		return 0;
	}
	if (f->count)
		qsort(f->list, f->count, sizeof(*f->list), compare);
	*list = f->list;
	return f->count;
}
