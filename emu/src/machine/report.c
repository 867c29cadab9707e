/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - see report.h. */
#include "machine/report.h"

#include <stdarg.h>
#include <stdio.h>

#include "ptx/bind.h"

void emu_describe_warp(const struct emu_warp *w, char *text, size_t size)
{
	const struct emu_cta *c = w->cta;

	/*
	 * Cut, because a template's name may be longer than the rest of the
	 * report.
	 */
	snprintf(text, size, "%.150s, cluster %u, CTA (%u,%u,%u), warp %u",
		 c->cluster->grid->kernel->name, c->cluster->index, c->id[0],
		 c->id[1], c->id[2], w->index);
}

void emu_describe_place(const struct emu_warp *w, const struct emu_instr *i,
			char *text, size_t size)
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

void emu_fault(struct emu_warp *w, const struct emu_instr *i, int lane,
	       const char *format, ...)
{
	struct emu_machine *m = emu_machine_of(w);
	char who[300], where[300], why[500];
	va_list arguments;

	w->must_yield = true;
	if (m->has_failed)
		return;
	m->has_failed = true;
	va_start(arguments, format);
	vsnprintf(why, sizeof(why), format, arguments);
	va_end(arguments);
	emu_describe_warp(w, who, sizeof(who));
	emu_describe_place(w, i, where, sizeof(where));
	emu_fail(&m->report, "%s", who);
	if (lane >= 0)
		emu_add_text(&m->report, ", lane %d", lane);
	emu_add_text(&m->report, ", %s: %s: %s", where, i->opcode->name, why);
}
