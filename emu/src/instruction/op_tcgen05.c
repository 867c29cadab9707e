/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_tcgen05.c - binds tcgen05.*, which tensor_alloc.c, tensor_move.c and
 * tensor_queue.c run.
 */
#include "instruction/binds.h"
#include "machine/tensor_alloc.h"
#include "machine/tensor_move.h"
#include "machine/tensor_queue.h"
#include "machine/warp.h"

/* ---- what all have in common --------------------------------------------- */

/* A kernel may use only one cta_group. */
static bool bind_group(struct emu_bind *b)
{
	struct emu_kernel *k = b->parser->build.kernel;
	const bool is_pair = emu_has(b, "cta_group::2");

	if (is_pair == emu_has(b, "cta_group::1"))
		return emu_bind_fail(b, "it needs .cta_group::1 or "
					".cta_group::2");
	if (k->cta_group && k->cta_group != 1u + is_pair)
		return emu_bind_fail(b, "other instructions of the kernel "
					"have the other .cta_group");
	k->cta_group = 1u + is_pair;
	b->i->option |= is_pair ? EMU_TCGEN05_PAIR : 0;
	return true;
}

static bool bind_warp(struct emu_bind *b)
{
	b->i->is_converged = true;
	return emu_bind_aligned(b);
}

/* [address] of tensor memory: 32 bits. */
static bool bind_tmem_address(struct emu_bind *b, const struct emu_argument *a)
{
	const struct emu_value *v = &b->operands[b->n_operands];

	return emu_address(b, a) &&
	       (v->bytes == 4 || v->bank == EMU_CONSTANTS ||
		emu_bind_fail(b, "an address of tensor memory has 32 bits"));
}

/* ---- alloc, dealloc, relinquish ------------------------------------------ */

/* The common part of the three. */
static bool bind_alloc(struct emu_bind *b, emu_run *run)
{
	b->i->run = run;
	return bind_group(b) && bind_warp(b);
}

bool emu_bind_tmem_alloc(struct emu_bind *b)
{
	b->i->space = (uint8_t)emu_space_of(b);
	return bind_alloc(b, emu_run_tmem_alloc) && emu_arguments(b, 2, 2) &&
	       emu_address(b, emu_argument(b, 0)) &&
	       emu_src(b, emu_argument(b, 1), EMU_U32);
}

bool emu_bind_tmem_dealloc(struct emu_bind *b)
{
	return bind_alloc(b, emu_run_tmem_dealloc) && emu_arguments(b, 2, 2) &&
	       emu_src(b, emu_argument(b, 0), EMU_B32) &&
	       emu_src(b, emu_argument(b, 1), EMU_U32);
}

bool emu_bind_tmem_relinquish(struct emu_bind *b)
{
	return bind_alloc(b, emu_run_tmem_relinquish) && emu_arguments(b, 0, 0);
}

/* ---- ld, st, wait, fence ------------------------------------------------- */

static bool bind_shape(struct emu_bind *b)
{
	static const char *const shapes[EMU_TMEM_SHAPES] = {
	    "32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"};
	static const char *const counts[] = {"x1",  "x2",  "x4",  "x8",
					     "x16", "x32", "x64", "x128"};
	uint32_t shape = 0, count = 0, registers;

	if (!emu_has_one(b, shapes, EMU_TMEM_SHAPES, &shape) ||
	    !emu_has_one(b, counts, 8, &count))
		return emu_bind_fail(b, "it needs one shape and one of .x1 to "
					".x128");
	registers = emu_tmem_shape_registers((enum emu_tmem_shape)shape) << count;
	if (registers > 128)
		return emu_bind_fail(b, "%u registers, at most 128", registers);
	b->i->vector = (uint8_t)registers;
	b->i->option = shape;
	if (emu_has(b, "pack::16b") || emu_has(b, "unpack::16b"))
		b->i->option |= EMU_TMEM_PACK;
	return true;
}

static bool bind_registers(struct emu_bind *b, const struct emu_argument *a,
			   bool is_written)
{
	uint32_t count;
	const struct emu_argument *e = emu_elements(b, a, &count);

	if (count != b->i->vector)
		return emu_bind_fail(b, "%u registers, not %u", count, b->i->vector);
	for (uint32_t k = 0; k < count; k++) {
		if (is_written ? !emu_dst(b, &e[k], 4) : !emu_src(b, &e[k], EMU_B32))
			return false;
		b->operands[b->n_operands - 1].is_async = is_written;
	}
	return true;
}

static bool bind_move(struct emu_bind *b, bool is_store)
{
	uint32_t has_split;
	int64_t split = 0;

	if (!bind_warp(b) || !bind_shape(b))
		return false;
	has_split = (b->i->option & 7) == EMU_TMEM_16X32BX2;
	b->i->run = is_store ? emu_run_tmem_st : emu_run_tmem_ld;
	if (!emu_arguments(b, 2 + has_split, 2 + has_split))
		return false;
	if (has_split &&
	    !emu_number(b, emu_argument(b, is_store ? 1 : 2), 1, 511, &split))
		return false;
	b->i->offset[0] = split;
	if (is_store)
		return bind_tmem_address(b, emu_argument(b, 0)) &&
		       bind_registers(b, emu_argument(b, 1 + has_split), false);
	return bind_registers(b, emu_argument(b, 0), true) &&
	       bind_tmem_address(b, emu_argument(b, 1));
}

bool emu_bind_tmem_ld(struct emu_bind *b)
{
	return bind_move(b, false);
}

bool emu_bind_tmem_st(struct emu_bind *b)
{
	return bind_move(b, true);
}

static bool bind_wait(struct emu_bind *b, uint32_t option)
{
	b->i->option = option;
	b->i->run = emu_run_tmem_wait;
	return bind_warp(b) && emu_arguments(b, 0, 0);
}

bool emu_bind_tmem_wait_ld(struct emu_bind *b)
{
	return bind_wait(b, 0);
}

bool emu_bind_tmem_wait_st(struct emu_bind *b)
{
	return bind_wait(b, EMU_TMEM_STORES);
}

static bool bind_fence(struct emu_bind *b, emu_run *run)
{
	b->i->run = run;
	return emu_arguments(b, 0, 0);
}

bool emu_bind_tmem_fence_before(struct emu_bind *b)
{
	return bind_fence(b, emu_run_tmem_before);
}

bool emu_bind_tmem_fence_after(struct emu_bind *b)
{
	return bind_fence(b, emu_run_tmem_after);
}

/* ---- mma ----------------------------------------------------------------- */

/* By the index of their words; kind::mxf4 is mxf4nvf4 with blocks of 32. */
enum { WORD_MXF4 = EMU_UMMA_I8 + 1 };

static const char *const kind_words[] = {[EMU_UMMA_F16] = "kind::f16",
					 [EMU_UMMA_MXF8F6F4] = "kind::mxf8f6f4",
					 [EMU_UMMA_MXF4NVF4] = "kind::mxf4nvf4",
					 [EMU_UMMA_F8F6F4] = "kind::f8f6f4",
					 [EMU_UMMA_TF32] = "kind::tf32",
					 [EMU_UMMA_I8] = "kind::i8",
					 [WORD_MXF4] = "kind::mxf4"};

static bool has_scales(uint32_t word)
{
	return word == EMU_UMMA_MXF8F6F4 || word == EMU_UMMA_MXF4NVF4 ||
	       word == WORD_MXF4;
}

/* The number of scales in a row, from the opcode's words, which must fit the kind. */
static bool bind_scales(struct emu_bind *b, uint32_t word)
{
	const bool is_1 = emu_has(b, "scale_vec::1X");
	const bool is_2 = emu_has(b, "scale_vec::2X");
	const bool is_4 = emu_has(b, "scale_vec::4X") || emu_has(b, "block16");
	const bool is_32 = emu_has(b, "block32");
	uint32_t scales = 0;

	if (!has_scales(word))
		return !(emu_has(b, "block_scale") || is_1 || is_2 || is_4 || is_32) ||
		       emu_bind_fail(b, "%s has no scales", kind_words[word]);
	if (!emu_has(b, "block_scale"))
		return emu_bind_fail(b, ".block_scale is missing");
	if (is_1 + is_2 + is_4 + is_32 > 1)
		return emu_bind_fail(b, "it needs one size of blocks");
	if (word == EMU_UMMA_MXF8F6F4 && !is_2 && !is_4)
		scales = 1;
	if (word == EMU_UMMA_MXF4NVF4 && (is_4 || is_2 || is_32))
		scales = is_4 ? 4 : 2;
	if (word == WORD_MXF4 && !is_4 && !is_1)
		scales = 2;
	if (!scales)
		return emu_bind_fail(b, "%s",
				     word == EMU_UMMA_MXF8F6F4 ? "kind::mxf8f6f4 has "
								 "scale_vec::1X"
				     : word == WORD_MXF4
					 ? "kind::mxf4 has scale_vec::2X "
					   "(block32)"
					 : "kind::mxf4nvf4 has scale_vec::4X "
					   "(block16) or 2X (block32), and must "
					   "say which");
	b->i->option |= scales << EMU_UMMA_SCALES_SHIFT;
	return true;
}

static bool bind_a(struct emu_bind *b, const struct emu_argument *a)
{
	if (a->kind != EMU_ARG_ADDRESS)
		return emu_src(b, a, EMU_B64);
	b->i->option |= EMU_UMMA_A_IN_TMEM;
	return bind_tmem_address(b, a);
}

/* [address] without an offset: only two addresses of an instruction have space for
 * one. */
static bool bind_plain_address(struct emu_bind *b, const struct emu_argument *a)
{
	if (a->kind != EMU_ARG_ADDRESS)
		return emu_bind_fail(b, "[address] is missing");
	if (a->value)
		return emu_bind_fail(b, "offsets of scales' addresses are not "
					"known here");
	return emu_src(b, &b->s->elements[a->first], EMU_B32);
}

/* {4 registers}, or 8 for a pair: one bit for each lane. */
static bool bind_kept_lanes(struct emu_bind *b, const struct emu_argument *a)
{
	const uint32_t wanted = b->i->option & EMU_TCGEN05_PAIR ? 8 : 4;
	uint32_t count;
	const struct emu_argument *e = emu_elements(b, a, &count);

	if (count != wanted)
		return emu_bind_fail(b,
				     "disable-output-lane has %u registers, "
				     "not %u",
				     wanted, count);
	b->i->option |= EMU_UMMA_KEEPS;
	for (uint32_t k = 0; k < count; k++)
		if (!emu_src(b, &e[k], EMU_B32))
			return false;
	return true;
}

/* enable-input-d, and the operands next to it in kinds without scales. */
static bool bind_plain_end(struct emu_bind *b, uint32_t word)
{
	const bool keeps =
	    b->s->n_arguments > 4 && emu_argument(b, 4)->kind == EMU_ARG_VECTOR;
	const uint32_t n = keeps ? 6 : 5;
	const bool shifts = b->s->n_arguments == n + 1;

	if (!emu_arguments(b, n, n + 1) || !emu_predicate(b, emu_argument(b, n - 1)))
		return false;
	if (shifts && word != EMU_UMMA_F16 && word != EMU_UMMA_TF32)
		return emu_bind_fail(b, "%s has no scale-input-d", kind_words[word]);
	return (!shifts ||
		emu_number(b, emu_argument(b, n), 0, 15, &b->i->offset[1])) &&
	       (!keeps || bind_kept_lanes(b, emu_argument(b, 4)));
}

bool emu_bind_umma(struct emu_bind *b)
{
	uint32_t word = 0;

	if (!bind_group(b))
		return false;
	if (!emu_has_one(b, kind_words, WORD_MXF4 + 1, &word))
		return emu_bind_fail(b, "it needs one .kind");
	b->i->option |= word == WORD_MXF4 ? EMU_UMMA_MXF4NVF4 : word;
	b->i->run = emu_run_umma;
	if (!bind_scales(b, word) || !emu_arguments(b, has_scales(word) ? 7 : 5, 7) ||
	    !bind_tmem_address(b, emu_argument(b, 0)) ||
	    !bind_a(b, emu_argument(b, 1)) ||
	    !emu_src(b, emu_argument(b, 2), EMU_B64) ||
	    !emu_src(b, emu_argument(b, 3), EMU_B32))
		return false;
	if (!has_scales(word))
		return bind_plain_end(b, word);
	return bind_plain_address(b, emu_argument(b, 4)) &&
	       bind_plain_address(b, emu_argument(b, 5)) &&
	       emu_predicate(b, emu_argument(b, 6));
}

/* ---- cp and commit ------------------------------------------------------- */

bool emu_bind_tmem_copy(struct emu_bind *b)
{
	static const char *const shapes[] = {"128x256b", "128x128b", "4x256b",
					     "64x128b", "32x128b"};
	static const uint8_t copies[] = {EMU_TMEM_CP_128X256B, EMU_TMEM_CP_128X128B,
					 EMU_TMEM_CP_4X256B, EMU_TMEM_CP_64X128B_02_13,
					 EMU_TMEM_CP_32X128B_X4};
	const bool is_02_13 = emu_has(b, "warpx2::02_13");
	const bool is_01_23 = emu_has(b, "warpx2::01_23");
	uint32_t shape = 0;

	if (!bind_group(b))
		return false;
	if (!emu_has_one(b, shapes, 5, &shape))
		return emu_bind_fail(b, "it needs one shape");
	if (emu_has(b, "warpx4") != (shape == 4) || is_02_13 + is_01_23 != (shape == 3))
		return emu_bind_fail(b, ".32x128b has .warpx4, .64x128b "
					"has .warpx2::02_13 or ::01_23, the "
					"others have neither");
	b->i->vector = is_01_23 ? EMU_TMEM_CP_64X128B_01_23 : copies[shape];
	b->i->run = emu_run_tmem_copy;
	return emu_arguments(b, 2, 2) && bind_tmem_address(b, emu_argument(b, 0)) &&
	       emu_src(b, emu_argument(b, 1), EMU_B64);
}

bool emu_bind_tmem_commit(struct emu_bind *b)
{
	const bool has_mask = emu_has(b, "multicast::cluster");

	if (!bind_group(b))
		return false;
	if (!emu_has(b, "mbarrier::arrive::one"))
		return emu_bind_fail(b, ".mbarrier::arrive::one is missing");
	b->i->option |= has_mask ? EMU_COMMIT_MASK : 0;
	b->i->space = (uint8_t)emu_space_of(b);
	b->i->run = emu_run_tmem_commit;
	return emu_arguments(b, 1 + has_mask, 1 + has_mask) &&
	       emu_address(b, emu_argument(b, 0)) &&
	       (!has_mask || emu_src(b, emu_argument(b, 1), EMU_U16));
}
