/* SPDX-License-Identifier: Apache-2.0 */
/* check_state.c - look-ups in the state that the parts of the checker share. */
#include <stdio.h>

#include "check/check_state.h"

uint16_t *emu_check_id_at(const struct emu_check *c, uint64_t address)
{
	const uint64_t cta = address >> EMU_RANK_SHIFT;
	const uint64_t at = address & ((1u << EMU_RANK_SHIFT) - 1);

	return cta < c->ctas && at < c->bytes ? &c->barrier_ids[cta][at / 8] : NULL;
}

struct barrier *emu_check_barrier(struct emu_check *c, uint64_t address)
{
	const uint16_t *id = emu_check_id_at(c, address);

	return id && *id ? &c->barriers[*id - 1] : NULL;
}

bool emu_check_is_ready(const struct emu_check *c, uint32_t warp,
			const struct barrier *b, struct emu_error *err)
{
	const uint32_t first = agent_of(b->init) / AGENTS_PER_WARP;

	if (c->is_blind || knows(c->warp[warp].knows.seen, b->init))
		return true;
	return emu_fail(err,
			"the mbarrier.init of warp %u of CTA rank %u does not happen "
			"before this use: between them there must be a barrier of the "
			"block, or of the cluster for another CTA's mbarrier",
			(unsigned)(first % (c->warps / c->ctas)),
			(unsigned)c->warp[first].cta);
}

void emu_check_describe(const struct emu_check *c, uint32_t agent, char *text,
			size_t size)
{
	const char *const whose[AGENTS_PER_WARP] = {
	    "",
	    c->options.has_tensor_memory ? "tcgen05.mma or .cp of " : "a wgmma of ",
	    "a cp.async of ",
	    "a bulk store of ",
	    "tcgen05.ld of ",
	    "tcgen05.st of "};
	const uint32_t warps = c->warps * AGENTS_PER_WARP;
	const uint32_t warp = agent / AGENTS_PER_WARP;
	uint64_t at;

	if (!is_barrier(c, agent)) {
		snprintf(text, size, "%swarp %u of CTA rank %u",
			 whose[agent % AGENTS_PER_WARP],
			 (unsigned)(warp % (c->warps / c->ctas)),
			 (unsigned)c->warp[warp].cta);
		return;
	}
	at = c->barriers[agent - warps].address;
	snprintf(text, size,
		 "a bulk copy counted at the mbarrier at offset %u of CTA rank %u",
		 (unsigned)(at & ((1u << EMU_RANK_SHIFT) - 1)),
		 (unsigned)(at >> EMU_RANK_SHIFT));
}
