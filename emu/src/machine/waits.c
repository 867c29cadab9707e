/* SPDX-License-Identifier: Apache-2.0 */
/* waits.c - see waits.h. */
#include "machine/waits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hardware/mbarrier.h"
#include "machine/device.h"
#include "machine/report.h"
#include "ptx/bind.h"

struct wait {
	char text[500];
};

/* What a warp waits for, after "wait" or "waits". */
static void describe(const struct emu_warp *w, struct wait *to)
{
	static const char *const names[] = {
	    [EMU_RUNNABLE] = " for memory that it polls",
	    [EMU_AT_BARRIER] = " at barrier",
	    [EMU_AT_CLUSTER] = " at the cluster's barrier",
	    [EMU_AT_MBARRIER] = " at the mbarrier",
	    [EMU_AT_GRID] = " for the grid before",
	    [EMU_AT_REGISTERS] = " for registers",
	    [EMU_AT_TENSOR_MEMORY] = " for tensor memory",
	    [EMU_AT_SERIAL_PHASE] = " for its turn",
	};
	const uint32_t pc = w->pc ? w->pc - (w->wait == EMU_AT_MBARRIER) : 0;
	const struct emu_cta *c = w->cta;
	char place[200], state[100], more[200] = "";
	uint64_t bits;

	if (w->wait == EMU_AT_BARRIER) {
		const uint32_t expected =
		    c->barriers[w->wait_address % 16].expected == UINT32_MAX
			? c->threads
			: c->barriers[w->wait_address % 16].expected;

		snprintf(more, sizeof(more), " %u (%u of %u threads)",
			 (uint32_t)w->wait_address,
			 c->barriers[w->wait_address % 16].arrived, expected);
	}
	if (w->wait == EMU_AT_MBARRIER) {
		const uint64_t at = w->wait_address & ((1u << EMU_RANK_SHIFT) - 1);

		memcpy(&bits, c->shared.data + at, sizeof(bits));
		emu_mbarrier_describe(bits, state, sizeof(state));
		snprintf(more, sizeof(more),
			 " at offset %" PRIu64 " for parity %u (%s)", at,
			 w->wait_parity, state);
	}
	emu_describe_place(w, &w->code[pc], place, sizeof(place));
	snprintf(to->text, sizeof(to->text), "%s%s, %s", names[w->wait], more, place);
}

static void add_cta(const struct emu_cta *c, struct emu_error *to)
{
	emu_add_text(to, "\n  cluster %u, CTA (%u,%u,%u), ", c->cluster->index,
		     c->id[0], c->id[1], c->id[2]);
}

/* Adds "warp 3" or "warps 0-2, 4" of the warps in a set; returns their number. */
static uint32_t add_warps(const bool *is_in, uint32_t n_warps, struct emu_error *to)
{
	const char *before = " ";
	uint32_t count = 0;

	for (uint32_t i = 0; i < n_warps; i++)
		count += is_in[i];
	emu_add_text(to, "warp%s", count == 1 ? "" : "s");
	for (uint32_t i = 0; i < n_warps; i++) {
		uint32_t last = i;

		if (!is_in[i])
			continue;
		while (last + 1 < n_warps && is_in[last + 1])
			last++;
		emu_add_text(to, "%s%u", before, i);
		if (last > i)
			emu_add_text(to, "-%u", last);
		before = ", ";
		i = last;
	}
	return count;
}

/* Adds a line for the warps that have the same text as warp `first`. */
static void add_line(const struct emu_cta *c, uint32_t first, bool *is_told,
		     struct emu_error *to)
{
	bool is_in[EMU_MAX_THREADS / EMU_LANES] = {false};
	struct wait wait, other;
	uint32_t count;

	describe(&c->warps[first], &wait);
	for (uint32_t i = first; i < c->n_warps; i++) {
		if (c->warps[i].wait == EMU_EXITED)
			continue;
		describe(&c->warps[i], &other);
		is_in[i] = strcmp(wait.text, other.text) == 0;
		is_told[i] = is_told[i] || is_in[i];
	}
	add_cta(c, to);
	count = add_warps(is_in, c->n_warps, to);
	emu_add_text(to, " wait%s%s", count == 1 ? "s" : "", wait.text);
}

static void add_ended(const struct emu_cta *c, struct emu_error *to)
{
	bool is_in[EMU_MAX_THREADS / EMU_LANES] = {false};
	bool any = false;

	for (uint32_t i = 0; i < c->n_warps; i++) {
		is_in[i] = c->warps[i].wait == EMU_EXITED;
		any = any || is_in[i];
	}
	if (!any)
		return;
	add_cta(c, to);
	emu_add_text(to, "%s ended",
		     add_warps(is_in, c->n_warps, to) == 1 ? " has" : " have");
}

void emu_describe_waits(const struct emu_cluster *c, struct emu_error *to)
{
	for (uint32_t k = 0; k < c->n_ctas; k++) {
		const struct emu_cta *cta = &c->ctas[k];
		bool is_told[EMU_MAX_THREADS / EMU_LANES] = {false};
		bool any = false;

		for (uint32_t i = 0; i < cta->n_warps; i++) {
			if (is_told[i] || cta->warps[i].wait == EMU_EXITED)
				continue;
			add_line(cta, i, is_told, to);
			any = true;
		}
		if (any)
			add_ended(cta, to);
	}
}

void emu_describe_poll(const struct emu_warp *w, struct emu_error *to)
{
	struct wait wait;

	describe(w, &wait);
	add_cta(w->cta, to);
	emu_add_text(to, "warp %u waits%s", w->index, wait.text);
}

void emu_describe_running(const struct emu_cluster *c, struct emu_error *to)
{
	char place[200];

	for (uint32_t k = 0; k < c->n_ctas; k++)
		for (uint32_t i = 0; i < c->ctas[k].n_warps; i++) {
			const struct emu_warp *w = &c->ctas[k].warps[i];

			if (w->wait == EMU_EXITED)
				continue;
			emu_describe_place(w, &w->code[w->pc], place, sizeof(place));
			add_cta(w->cta, to);
			emu_add_text(to, "warp %u is at %s", w->index, place);
			return;
		}
}
