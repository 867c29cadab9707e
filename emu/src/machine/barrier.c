/* SPDX-License-Identifier: Apache-2.0 */
/* barrier.c - see barrier.h. */
#include "machine/barrier.h"

#include "machine/time.h"
#include "machine/watch.h"

static void wake(struct emu_warp *w)
{
	emu_time_wake(w);
	w->wait = EMU_RUNNABLE;
	emu_machine_of(w)->effects++;
}

void emu_wake(struct emu_cluster *c, enum emu_wait wait)
{
	for (uint32_t k = 0; k < c->n_ctas; k++)
		for (uint32_t i = 0; i < c->ctas[k].n_warps; i++)
			if (c->ctas[k].warps[i].wait == wait)
				wake(&c->ctas[k].warps[i]);
}

void emu_wake_at(struct emu_cluster *c, uint64_t barrier)
{
	const uint64_t rank = barrier >> EMU_RANK_SHIFT;

	emu_machine_of(c->ctas[0].warps)->effects++;
	if (rank >= c->n_ctas)
		return;
	for (uint32_t i = 0; i < c->ctas[rank].n_warps; i++) {
		struct emu_warp *w = &c->ctas[rank].warps[i];

		if (w->wait == EMU_AT_MBARRIER && w->wait_address == barrier)
			wake(w);
	}
}

/* ---- barriers ------------------------------------------------------------ */

bool emu_barrier_is_full(const struct emu_cta *c, const struct emu_named_barrier *b)
{
	return b->arrived >=
	       (b->expected == EMU_ALL_LIVE ? c->n_live * EMU_LANES : b->expected);
}

void emu_barrier_complete(struct emu_cta *c, struct emu_named_barrier *b)
{
	emu_watch_all_joined(c, (uint32_t)(b - c->barriers));
	for (uint32_t i = 0; i < c->n_warps; i++)
		if (b->waiting >> i & 1) {
			c->warps[i].has_waited = true;
			c->warps[i].yes = b->yes;
			c->warps[i].no = b->no;
			wake(&c->warps[i]);
		}
	*b = (struct emu_named_barrier){0};
}

void emu_cluster_advance(struct emu_cluster *c)
{
	if (c->n_live == 0 || c->barrier_arrived < c->n_live)
		return;
	c->barrier_phase++;
	c->barrier_arrived = 0;
	emu_watch_all_joined(&c->ctas[0], EMU_CLUSTER_BARRIER);
	emu_wake(c, EMU_AT_CLUSTER);
}

/* ---- ends ---------------------------------------------------------------- */

void emu_warp_has_ended(struct emu_warp *w)
{
	struct emu_cta *c = w->cta;
	struct emu_cluster *cluster = c->cluster;

	emu_machine_of(w)->effects++;
	c->n_live--;
	cluster->n_live--;
	c->register_pool += w->registers_each * EMU_LANES;
	emu_wake(cluster, EMU_AT_REGISTERS);
	if (w->has_arrived && w->cluster_phase == cluster->barrier_phase)
		cluster->barrier_arrived--;
	emu_cluster_advance(cluster);
	for (int i = 0; i < EMU_BARRIERS; i++)
		if (c->barriers[i].expected == EMU_ALL_LIVE && c->n_live &&
		    emu_barrier_is_full(c, &c->barriers[i]))
			emu_barrier_complete(c, &c->barriers[i]);
	if (c->n_live == 0 && !c->has_triggered) {
		c->has_triggered = true;
		emu_time_trigger(w);
		cluster->grid->triggered++;
	}
}
