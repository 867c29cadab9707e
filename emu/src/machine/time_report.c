/* SPDX-License-Identifier: Apache-2.0 */
/* time_report.c - reports how the time of a grid was spent, as text and as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hardware/arena.h"
#include "machine/time.h"
#include "machine/time_state.h"
#include "machine/time_trace.h"
#include "machine/title.h"
#include "ptx/bind.h"

static double us_of(const struct emu_time *t, double cycles)
{
	return cycles / t->table.clock_ghz / 1e3;
}

static double part_of(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

void emu_time_mark(struct emu_time *t)
{
	memset(t->lines, 0, (size_t)t->n_sets * EMU_L2_WAYS * sizeof(*t->lines));
	t->mark = t->end;
	t->n_grids = 0;
}

/* Finds the instruction at which all warps together waited longest. */
static void find_wait(const struct emu_time *t, struct emu_time_grid *g)
{
	uint32_t best = 0;

	for (uint32_t k = 0; t->waits && k < t->kernel->count; k++)
		if (t->waits[k] > t->waits[best])
			best = k;
	if (!t->waits || !t->kernel->code[best].opcode)
		return;
	/* The module may be unloaded when the report is written. */
	g->wait = t->kernel->code[best].opcode->name;
	g->wait_line = t->kernel->code[best].line;
	g->wait_source_line = t->kernel->code[best].source_line;
	g->wait_cycles = t->waits[best];
}

/* Without memory for it, the report lacks the grid. */
void emu_time_keep(struct emu_time *t)
{
	struct emu_time_grid *grown =
	    emu_grow(t->grids, &t->capacity, t->n_grids, sizeof(*grown));
	struct emu_time_grid g = {.begin = t->begin,
				  .first = t->first,
				  .end = t->end,
				  .tensor = t->tensor_busy / EMU_QUARTERS,
				  .l2 = t->l2_busy,
				  .hbm = t->hbm_busy,
				  .issue = t->issued / EMU_QUARTERS,
				  .has_counts = t->has_counts};

	if (!grown)
		return;
	t->grids = grown;
	memcpy(g.name, t->name, sizeof(g.name));
	memcpy(g.last, t->last, sizeof(g.last));
	find_wait(t, &g);
	grown[t->n_grids++] = g;
}

void emu_time_describe(const struct emu_time *t, struct emu_error *to)
{
	const struct emu_time_grid *g;
	double cycles;
	int n = 0;

	if (!t->n_grids)
		return;
	g = &t->grids[t->n_grids - 1];
	cycles = g->end - g->begin;
	emu_add_text(
	    to,
	    "%s: %.2f us predicted, including %.2f us for the launch; busy: "
	    "tensor cores %.0f %%, L2 %.0f %%, HBM %.0f %%, issue "
	    "%.0f %% (%s); time of the last warp:",
	    emu_title_of(g->name), us_of(t, cycles), us_of(t, g->first - g->begin),
	    100 * part_of(g->tensor / t->n_sms, cycles), 100 * part_of(g->l2, cycles),
	    100 * part_of(g->hbm, cycles), 100 * part_of(g->issue / t->n_sms, cycles),
	    g->has_counts ? "costs of the machine code" : "mean costs of PTX opcodes");
	for (int k = 0; k < EMU_SPENTS; k++)
		if (part_of(g->last[k], cycles) >= 0.01)
			emu_add_text(to, "%s %s %.0f %%", n++ ? "," : "",
				     emu_spent_names[k],
				     100 * part_of(g->last[k], cycles));
	if (!g->wait)
		return;
	emu_add_text(to, "; longest wait: %s, PTX line %u", g->wait, g->wait_line);
	if (g->wait_source_line)
		emu_add_text(to, ", source line %u", g->wait_source_line);
}

static void write_grid(const struct emu_time *t, const struct emu_time_grid *g,
		       FILE *to)
{
	const double cycles = g->end - g->begin;

	(void)fprintf(to,
		      "{\"kernel\": \"%s\", \"us\": %.3f, \"launch_us\": %.3f, "
		      "\"machine_code\": %s, \"busy\": {\"tensor\": %.4f, "
		      "\"l2\": %.4f, \"hbm\": %.4f, \"issue\": %.4f}, "
		      "\"last_warp\": {",
		      g->name, us_of(t, cycles), us_of(t, g->first - g->begin),
		      g->has_counts ? "true" : "false",
		      part_of(g->tensor / t->n_sms, cycles), part_of(g->l2, cycles),
		      part_of(g->hbm, cycles), part_of(g->issue / t->n_sms, cycles));
	for (int k = 0; k < EMU_SPENTS; k++)
		(void)fprintf(to, "%s\"%s\": %.4f", k ? ", " : "", emu_spent_names[k],
			      part_of(g->last[k], cycles));
	(void)fprintf(to, "}");
	if (g->wait)
		(void)fprintf(to,
			      ", \"longest_wait\": {\"instruction\": \"%s\", "
			      "\"ptx_line\": %u, \"line\": %u, \"warp_us\": "
			      "%.3f}",
			      g->wait, g->wait_line, g->wait_source_line,
			      us_of(t, g->wait_cycles));
	(void)fprintf(to, "}");
}

char *emu_time_report(const struct emu_time *t)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);

	if (!to)
		return NULL;
	(void)fprintf(to, "{\"predicted\": true, \"us\": %.3f, \"grids\": [",
		      us_of(t, t->end - t->mark));
	for (size_t k = 0; k < t->n_grids; k++) {
		(void)fprintf(to, "%s", k ? ", " : "");
		write_grid(t, &t->grids[k], to);
	}
	(void)fprintf(to, "]}");
	if (!fclose(to))
		return text;
	free(text);
	return NULL;
}
