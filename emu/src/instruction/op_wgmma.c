/* SPDX-License-Identifier: Apache-2.0 */
/* op_wgmma.c - binds wgmma, which wgmma_queue.c runs. */
#include "hardware/tensor_core.h"
#include "instruction/binds.h"
#include "machine/warp.h"
#include "machine/wgmma_queue.h"

static bool bind_group(struct emu_bind *b, uint32_t option)
{
	b->i->run = emu_run_wgmma_group;
	b->i->is_converged = true;
	b->i->option = option;
	return emu_bind_aligned(b);
}

bool emu_bind_wgmma_fence(struct emu_bind *b)
{
	return bind_group(b, EMU_WGMMA_FENCE) && emu_arguments(b, 0, 0);
}

bool emu_bind_wgmma_commit(struct emu_bind *b)
{
	return bind_group(b, EMU_WGMMA_COMMIT) && emu_arguments(b, 0, 0);
}

bool emu_bind_wgmma_wait(struct emu_bind *b)
{
	return bind_group(b, EMU_WGMMA_WAIT) && emu_arguments(b, 1, 1) &&
	       emu_number(b, emu_argument(b, 0), 0, 7, &b->i->immediate);
}

/* The types that a type of A or B may be combined with. */
static const struct operand_type {
	enum emu_type type;
	enum emu_mma_type mma;
	int k;
	char family; /* A and B are of one */
	bool has_f16_sums;
} operand_types[] = {
    {EMU_T_F16, EMU_F16, 16, 'h', true},   {EMU_T_BF16, EMU_BF16, 16, 'b', false},
    {EMU_T_TF32, EMU_TF32, 8, 't', false}, {EMU_T_E4M3, EMU_E4M3, 32, '8', true},
    {EMU_T_E5M2, EMU_E5M2, 32, '8', true}, {EMU_S8T, EMU_S8, 32, 'i', false},
    {EMU_U8, EMU_MMA_U8, 32, 'i', false},
};

static const struct operand_type *find_type(enum emu_type type)
{
	for (size_t k = 0; k < sizeof(operand_types) / sizeof(*operand_types); k++)
		if (operand_types[k].type == type)
			return &operand_types[k];
	return NULL;
}

/* n is a multiple of 8 up to 256; with integers 8, 24 or a multiple of 16. */
static bool is_n(int n, bool is_integer)
{
	return n >= 8 && n <= 256 && n % 8 == 0 &&
	       (!is_integer || n == 8 || n == 24 || n % 16 == 0);
}

static bool bind_shape(struct emu_bind *b, const struct operand_type **a)
{
	const struct operand_type *t[2] = {NULL, NULL};
	enum emu_type sum = EMU_NO_TYPE;
	bool is_integer;

	if (b->n_types == 3) {
		sum = b->types[0];
		t[0] = find_type(b->types[1]);
		t[1] = find_type(b->types[2]);
	}
	if (!t[0] || !t[1] || t[0]->family != t[1]->family)
		return emu_bind_fail(b, "its types must be those of D, A and "
					"B, A and B of one family: .f16, "
					".bf16, .tf32, .e4m3 and .e5m2, .s8 "
					"and .u8");
	is_integer = t[0]->family == 'i';
	if (is_integer ? sum != EMU_S32
		       : sum != EMU_F32 && !(sum == EMU_T_F16 && t[0]->has_f16_sums))
		return emu_bind_fail(b, "D must be .f32, or .f16 with A of "
					".f16, .e4m3 and .e5m2, or .s32 with "
					".s8 and .u8");
	if (b->shape_m != 64 || !is_n(b->shape_n, is_integer) || b->shape_k != t[0]->k)
		return emu_bind_fail(b,
				     "m%dn%dk%d: must be m64nNk%d with N 8 to "
				     "256 by %d",
				     b->shape_m, b->shape_n, b->shape_k, t[0]->k,
				     is_integer ? 16 : 8);
	if (emu_has(b, "satfinite") && !is_integer)
		return emu_bind_fail(b, ".satfinite is for .s8 and .u8");
	b->i->option = (uint32_t)b->shape_n << 8 | (uint32_t)t[0]->mma << 24 |
		       (uint32_t)t[1]->mma << 27 |
		       (sum == EMU_T_F16 ? EMU_D_IS_F16 : 0) |
		       (emu_has(b, "satfinite") ? EMU_SATURATES : 0);
	*a = t[0];
	return true;
}

/* Numbers after scale-d: the signs, except for integers, and for 16-bit types which
 * operands in shared memory are transposed. */
static bool bind_scales(struct emu_bind *b, const struct operand_type *t, bool shared)
{
	int64_t scale_a = 1, scale_b = 1, trans_a = 0, trans_b = 0;
	const uint32_t signs = t->family == 'i' ? 0 : 2;
	const uint32_t transposes = t->k == 16 ? 1 + shared : 0;

	if (!emu_arguments(b, 4 + signs + transposes, 4 + signs + transposes))
		return false;
	if (signs && (!emu_number(b, emu_argument(b, 4), -1, 1, &scale_a) ||
		      !emu_number(b, emu_argument(b, 5), -1, 1, &scale_b)))
		return false;
	if (transposes == 2 && !emu_number(b, emu_argument(b, 6), 0, 1, &trans_a))
		return false;
	if (transposes &&
	    !emu_number(b, emu_argument(b, 5 + transposes), 0, 1, &trans_b))
		return false;
	if (scale_a == 0 || scale_b == 0)
		return emu_bind_fail(b, "scale-a and scale-b must be 1 or -1");
	b->i->option |= (uint32_t)trans_a << 20 | (uint32_t)trans_b << 21 |
			(uint32_t)(scale_a < 0) << 22 | (uint32_t)(scale_b < 0) << 23;
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
		if (is_written ? !emu_dst(b, &e[k], 4) : !emu_src(b, &e[k], EMU_B32))
			return false;
		b->operands[b->n_operands - 1].is_async = true;
	}
	return true;
}

bool emu_bind_wgmma(struct emu_bind *b)
{
	const struct emu_argument *a = emu_argument(b, 1);
	const bool shared = a->kind != EMU_ARG_VECTOR;
	const struct operand_type *type = NULL;
	uint32_t sums;

	if (!emu_bind_aligned(b))
		return false;
	if (!bind_shape(b, &type) || !type || !bind_scales(b, type, shared))
		return false;
	b->i->option |= shared ? EMU_A_IN_SHARED : 0;
	b->i->is_converged = true;
	b->i->run = emu_run_wgmma;
	sums = (uint32_t)b->shape_n / (b->i->option & EMU_D_IS_F16 ? 4 : 2);
	if (!bind_registers(b, emu_argument(b, 0), sums, true) ||
	    (shared ? !emu_src(b, a, EMU_B64) : !bind_registers(b, a, 4, false)) ||
	    !emu_src(b, emu_argument(b, 2), EMU_B64))
		return false;
	if (emu_argument(b, 3)->kind != EMU_ARG_REGISTER &&
	    emu_argument(b, 3)->kind != EMU_ARG_INTEGER)
		return emu_bind_fail(b, "scale-d must be a predicate, 0 or 1");
	return emu_src(b, emu_argument(b, 3), EMU_PRED);
}
