/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_policy.c - createpolicy, which makes the argument of .L2::cache_hint.  Caches
 * are not modelled, so a policy is 64 bits without an effect.
 */
#include "instruction/binds.h"
#include "machine/warp.h"

/* The encoding of the hardware is not documented; this one is ours. */
#define POLICY UINT64_C(0x706F6C6963790000)

static const char *const priorities[] = {"L2::evict_last", "L2::evict_normal",
					 "L2::evict_first", "L2::evict_unchanged"};

static void run_createpolicy(struct emu_warp *w, const struct emu_instr *i,
			     uint32_t lanes)
{
	uint64_t r[EMU_LANES];

	EMU_EACH_LANE(l) r[l] = POLICY | i->option;
	emu_put_64(w, &i->operand[0], r, lanes);
}

/* The first word is the primary priority; at most one other follows. */
static bool bind_priorities(struct emu_bind *b)
{
	uint32_t count = 0;

	for (uint32_t k = 0; k < 4; k++)
		if (emu_has(b, priorities[k])) {
			b->i->option |= 1u << k;
			count++;
		}
	if (count < 1 || count > 2)
		return emu_bind_fail(b, "it needs a priority, and at most a "
					"second one");
	return true;
}

/* d {, fraction} */
bool emu_bind_policy_fractional(struct emu_bind *b)
{
	b->i->run = run_createpolicy;
	return bind_priorities(b) && emu_arguments(b, 1, 2) &&
	       emu_dst(b, emu_argument(b, 0), 8) &&
	       (b->s->n_arguments == 1 || emu_src(b, emu_argument(b, 1), EMU_F32));
}

/* d, [address], primary size, total size */
bool emu_bind_policy_range(struct emu_bind *b)
{
	b->i->run = run_createpolicy;
	return bind_priorities(b) && emu_arguments(b, 4, 4) &&
	       emu_dst(b, emu_argument(b, 0), 8) &&
	       emu_address(b, emu_argument(b, 1)) &&
	       emu_src(b, emu_argument(b, 2), EMU_U32) &&
	       emu_src(b, emu_argument(b, 3), EMU_U32);
}

/* d, property */
bool emu_bind_policy_cvt(struct emu_bind *b)
{
	if (!emu_has(b, "L2"))
		return emu_bind_fail(b, ".L2 is missing");
	b->i->run = run_createpolicy;
	return emu_arguments(b, 2, 2) && emu_dst(b, emu_argument(b, 0), 8) &&
	       emu_src(b, emu_argument(b, 1), EMU_B64);
}
