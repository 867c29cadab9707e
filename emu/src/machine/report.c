/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - see report.h. */
#include "machine/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/findings.h"
#include "machine/rules.h"
#include "ptx/bind.h"

/* The other access in what the checker says: "wrote it (PTX line 104)". */
#define OTHER_LINE "(PTX line "

void emu_describe_warp(const struct emu_warp *w, char *text, size_t size)
{
	const struct emu_cta *c = w->cta;

	/*
	 * Truncated, because a template's name may be longer than the rest of
	 * the report.
	 */
	snprintf(text, size, "%.150s, cluster %u, CTA (%u,%u,%u), warp %u",
		 c->cluster->grid->kernel->name, c->cluster->index, c->id[0], c->id[1],
		 c->id[2], w->index);
}

void emu_describe_place(const struct emu_warp *w, const struct emu_instr *i, char *text,
			size_t size)
{
	const struct emu_module *m = w->cta->cluster->grid->kernel->module;
	const char *file =
	    i->source_file < m->n_files ? m->files[i->source_file] : NULL;

	if (file && i->source_line)
		snprintf(text, size, "PTX line %u, %s:%u", i->line, file,
			 i->source_line);
	else
		snprintf(text, size, "PTX line %u", i->line);
}

const char *emu_place_in(const char *report, size_t *length)
{
	const char *place = strstr(report, "PTX line "), *end;

	if (!place) {
		*length = 0;
		return "";
	}
	end = place + strlen("PTX line ");
	end += strspn(end, "0123456789");
	if (strncmp(end, ", ", 2) == 0) {
		/* A file's name and its line, or another part of the report. */
		const char *line = end + 2 + strcspn(end + 2, " ,:\n");
		const size_t digits = *line == ':' ? strspn(line + 1, "0123456789") : 0;

		if (digits)
			end = line + 1 + digits;
	}
	*length = (size_t)(end - place);
	return place;
}

/* The source line of a PTX line; 0: unknown. */
static uint32_t source_of(const struct emu_kernel *k, uint32_t line, const char **file)
{
	for (uint32_t n = 0; n < k->count; n++) {
		const struct emu_instr *i = &k->code[n];
		const char *slash;

		if (i->line != line || i->source_file >= k->module->n_files)
			continue;
		*file = k->module->files[i->source_file];
		slash = *file ? strrchr(*file, '/') : NULL;
		*file = slash ? slash + 1 : *file;
		return *file ? i->source_line : 0;
	}
	return 0;
}

/* Adds why, and the source line of the other access that it names. */
static void add_reason(const struct emu_warp *w, const char *why,
		       struct emu_error *report)
{
	const char *line = strstr(why, OTHER_LINE), *end, *file = NULL;
	/* The lines of another grid may be those of another module. */
	const bool is_ours = line && !strstr(why, "another grid");
	uint32_t source = 0;

	if (is_ours)
		source = source_of(
		    w->cta->cluster->grid->kernel,
		    (uint32_t)strtoul(line + strlen(OTHER_LINE), NULL, 10), &file);
	end = source ? strchr(line, ')') : NULL;
	if (end)
		emu_add_text(report, "%.*s, %s:%u%s", (int)(end - why), why, file,
			     source, end);
	else
		emu_add_text(report, "%s", why);
}

static void write_report(const struct emu_warp *w, const struct emu_instr *i, int lane,
			 const char *why, struct emu_error *report)
{
	char who[300], where[300];

	emu_describe_warp(w, who, sizeof(who));
	emu_describe_place(w, i, where, sizeof(where));
	emu_fail(report, "%s", who);
	if (lane >= 0)
		emu_add_text(report, ", lane %d", lane);
	emu_add_text(report, ", %s: %s: ", where, i->opcode->name);
	add_reason(w, why, report);
}

static void fail_launch(struct emu_warp *w, const struct emu_error *report,
			const struct emu_rule *rule)
{
	struct emu_machine *m = emu_machine_of(w);

	m->has_failed = true;
	m->report = *report;
	m->report_rule = rule;
	m->report_kernel = w->cta->cluster->grid->kernel->name;
}

void emu_fault(struct emu_warp *w, const struct emu_instr *i, int lane,
	       const char *format, ...)
{
	struct emu_error report;
	char why[700];
	va_list arguments;

	w->must_yield = true;
	if (emu_machine_of(w)->has_failed)
		return;
	va_start(arguments, format);
	vsnprintf(why, sizeof(why), format, arguments);
	va_end(arguments);
	write_report(w, i, lane, why, &report);
	fail_launch(w, &report, emu_rule_for(why));
}

/* ---- updates ------------------------------------------------------------- */

/* The address operand of a plain load or store; NULL: it is neither. */
static const struct emu_value *address_of(const struct emu_instr *i)
{
	if (i->traits & EMU_STRONG)
		return NULL;
	return strcmp(i->opcode->name, "ld") == 0   ? &i->operand[i->vector]
	       : strcmp(i->opcode->name, "st") == 0 ? &i->operand[0]
						    : NULL;
}

static bool is_store(const struct emu_instr *i)
{
	return strcmp(i->opcode->name, "st") == 0;
}

/* True if one loads and the other stores, by the same register and offset. */
static bool is_pair(const struct emu_instr *a, const struct emu_instr *b)
{
	const struct emu_value *x = address_of(a), *y = address_of(b);

	return x && y && is_store(a) != is_store(b) && x->bank == y->bank &&
	       x->reg == y->reg && x->row == y->row && a->immediate == b->immediate &&
	       a->space == b->space;
}

/* The other half of an update in the same basic block; NULL: there is none. */
static const struct emu_instr *other_half(const struct emu_warp *w,
					  const struct emu_instr *i)
{
	const struct emu_kernel *k = w->cta->cluster->grid->kernel;
	const struct emu_instr *x;

	if (!address_of(i))
		return NULL;
	for (x = i + 1; x < k->code + k->count && !x->is_leader; x++)
		if (is_pair(i, x))
			return is_store(i) ? NULL : x;
	for (x = i; x > k->code && !x->is_leader; x--)
		if (is_pair(i, x - 1))
			return is_store(i) ? x - 1 : NULL;
	return NULL;
}

/*
 * True if the two accesses of a report belong to an update by several threads: this
 * one is a half of it, and the other is by its store, or by its load.  A report that
 * does not name the other's line is of global memory.
 */
static bool is_update(const struct emu_warp *w, const struct emu_instr *i,
		      const char *why)
{
	const struct emu_instr *other = other_half(w, i);
	const char *line = strstr(why, OTHER_LINE);
	uint32_t number;

	if (!other)
		return false;
	if (!line)
		return strstr(why, "global memory");
	number = (uint32_t)strtoul(line + strlen(OTHER_LINE), NULL, 10);
	return number == other->line || (is_store(i) && number == i->line);
}

bool emu_object(struct emu_warp *w, const struct emu_instr *i, int lane,
		const char *format, ...)
{
	const struct emu_grid *g = w->cta->cluster->grid;
	struct emu_error report;
	const struct emu_rule *rule;
	struct emu_finding one;
	char why[700];
	va_list arguments;

	if (g->machine->has_failed)
		return false;
	va_start(arguments, format);
	vsnprintf(why, sizeof(why), format, arguments);
	va_end(arguments);
	rule = emu_rule_for(why);
	write_report(w, i, lane, why, &report);
	if (rule && emu_rule_update(rule) && is_update(w, i, why))
		emu_add_text(&report, " " EMU_UPDATE);
	one = (struct emu_finding){.rule = rule,
				   .kernel = g->kernel->name,
				   .line = i->line,
				   .cluster = w->cta->cluster->index,
				   .report = report.text};
	if (emu_findings_add(g->machine->options.findings, &one))
		return true;
	w->must_yield = true;
	fail_launch(w, &report, one.rule);
	return false;
}
