/* SPDX-License-Identifier: Apache-2.0 */
/* op_wgmma.c - binds wgmma, which wgmma_queue.c runs. */
#include <string.h>

#include "instruction/binds.h"
#include "machine/warp.h"
#include "machine/wgmma_queue.h"

static bool has_target(struct emu_bind *b)
{
	const char *target = b->parser->module->target;

	return (target && strcmp(target, "sm_90a") == 0) ||
	       emu_bind_fail(b, ".target sm_90a has it, not %s",
			     target ? target : "none");
}

bool emu_bind_wgmma_group(struct emu_bind *b)
{
	const char *name = b->i->opcode->name;
	int64_t number;

	b->i->run = emu_run_wgmma_group;
	b->i->is_converged = true;
	b->i->option = strcmp(name, "wgmma.fence") == 0 ? EMU_WGMMA_FENCE
		       : strcmp(name, "wgmma.commit_group") == 0
			   ? EMU_WGMMA_COMMIT
			   : EMU_WGMMA_WAIT;
	if (!has_target(b))
		return false;
	if (!emu_has(b, "sync") || !emu_has(b, "aligned"))
		return emu_bind_fail(b, ".sync.aligned is missing");
	if (b->i->option != EMU_WGMMA_WAIT)
		return emu_arguments(b, 0, 0);
	if (!emu_arguments(b, 1, 1) ||
	    !emu_number(b, emu_argument(b, 0), 0, 7, &number))
		return false;
	b->i->immediate = number;
	return true;
}

static bool bind_scales(struct emu_bind *b, uint32_t first, bool shared)
{
	int64_t scale_a, scale_b, trans_a = 0, trans_b;

	if (!emu_number(b, emu_argument(b, first), -1, 1, &scale_a) ||
	    !emu_number(b, emu_argument(b, first + 1), -1, 1, &scale_b) ||
	    (shared &&
	     !emu_number(b, emu_argument(b, first + 2), 0, 1, &trans_a)) ||
	    !emu_number(b, emu_argument(b, first + 2 + shared), 0, 1, &trans_b))
		return false;
	if (scale_a == 0 || scale_b == 0)
		return emu_bind_fail(b, "scale-a and scale-b must be 1 or -1");
	b->i->option |= (uint32_t)trans_a << 20 | (uint32_t)trans_b << 21 |
			(uint32_t)(scale_a < 0) << 22 |
			(uint32_t)(scale_b < 0) << 23;
	return true;
}

static bool bind_registers(struct emu_bind *b, const struct emu_argument *a,
			   uint32_t wanted, bool is_written)
{
	uint32_t count;
	const struct emu_argument *e = emu_elements(b, a, &count);

	if (count != wanted)
		return emu_bind_fail(b, "%u registers, not %u", count, wanted);
	for (uint32_t k = 0; k < count; k++) {
		if (e[k].kind != EMU_ARG_REGISTER)
			return emu_bind_fail(b, "its operands must be "
						"registers");
		if (is_written ? !emu_dst(b, &e[k], 4)
			       : !emu_src(b, &e[k], EMU_B32))
			return false;
		b->operands[b->n_operands - 1].is_async = true;
	}
	return true;
}

bool emu_bind_wgmma(struct emu_bind *b)
{
	const struct emu_argument *a = emu_argument(b, 1);
	const bool shared = a->kind != EMU_ARG_VECTOR;
	const int n = b->shape_n;

	if (b->shape_m != 64 || n < 8 || n > 256 || n % 8 || b->shape_k != 16 ||
	    b->n_types != 3 || b->types[0] != EMU_F32 ||
	    b->types[1] != b->types[2] || b->types[1] == EMU_F32)
		return emu_bind_fail(b, "only m64nNk16.f32 of .f16 or .bf16 "
					"is known here");
	if (!has_target(b))
		return false;
	if (!emu_has(b, "sync") || !emu_has(b, "aligned"))
		return emu_bind_fail(b, ".sync.aligned is missing");
	if (!emu_arguments(b, shared ? 8 : 7, shared ? 8 : 7))
		return false;
	b->i->option = (uint32_t)n << 8 | (shared ? EMU_A_IN_SHARED : 0);
	b->i->is_converged = true;
	b->i->run = emu_run_wgmma;
	if (!bind_registers(b, emu_argument(b, 0), (uint32_t)n / 2, true) ||
	    (shared ? !emu_src(b, a, EMU_B64)
		    : !bind_registers(b, a, 4, false)) ||
	    !emu_src(b, emu_argument(b, 2), EMU_B64))
		return false;
	if (emu_argument(b, 3)->kind != EMU_ARG_REGISTER)
		return emu_bind_fail(b, "scale-d must be a predicate");
	return emu_predicate(b, emu_argument(b, 3)) &&
	       bind_scales(b, 4, shared);
}
