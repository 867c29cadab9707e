/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_mainloop.cuh - the producer and the multiply warp of Blackwell's GEMM: one loads
 * stages by tensor map, the other copies their scales to tensor memory and multiplies.
 *
 * Scales in shared memory (NIB_SCALE_LAYOUT_TILED_128X4): a tile of 512 bytes has the
 * scales of 128 rows for a k64.  tcgen05.cp copies it to four columns of tensor memory:
 *
 *   tile, bytes            0 .. 3          4 .. 7          8 .. 11         12 .. 15
 *   16-byte line r < 32    row r           row r + 32      row r + 64      row r + 96
 *   tensor memory, lane r  column 0        column 1        column 2        column 3
 *
 * with four scales of 16 k each in a word.  Lanes r + 32, r + 64 and r + 96 get the
 * same.
 *
 *   slot of a stage        columns                         contents
 *   B                      4 i .. 4 i + 3                  k64 number i
 *   B2 (dual)              16 + 4 i ..                     k64 number i
 *   A                      16 (dual 32) + 8 i ..           k64 number i: a block of
 *                                                          128 rows, then the next
 *
 * A tile whose first row of A is row 32 s of a block reads its scales from column s on
 * (a_scale_shift).
 */
#ifndef NIB_SM100_MAINLOOP_CUH
#define NIB_SM100_MAINLOOP_CUH

#include "gemm_shared.cuh"

/* k of one tcgen05.mma; bytes of its codes in a row, of 128 rows' scales. */
#define MMA_K		64
#define MMA_STEPS	(NIB_SM100_STAGE_K / MMA_K)
#define MMA_CODES_BYTES (MMA_K / 2)
#define MMA_SCALE_BYTES 512

/* ---- loads --------------------------------------------------------------- */

/* Where a stage is loaded to, and from what. */
struct load {
	const struct nib_sm100_args *args;
	const struct nib_sm100_problem *problems;
	uint32_t at;   /* of the stage in shared memory */
	uint32_t full; /* the leader's barrier */
};

/* Loads stage i of k; coordinates of codes count bytes, of scales words of 8 bytes. */
template <bool DUAL, int CTAS>
DEVICE void load_stage(const struct load *l, const struct tile_desc *tile, int32_t i)
{
	using layout = stage_layout<DUAL>;
	const struct nib_sm100_maps *b = &l->problems[tile->problem].maps;
	const struct nib_sm100_maps *a = &l->problems[tile->a_map].maps;
	const uint64_t a_policy = l->args->a_policy;
	const uint64_t b_policy = l->args->b_policy;
	const uint32_t scales = l->at + layout::A + a_stage_bytes<CTAS>(l->args);
	const int32_t codes_x = i * (NIB_SM100_STAGE_K / 2);
	const int32_t scales_x = i * (NIB_SM100_SCALES_BYTES / 8);

	tensor_load<CTAS>(l->at + layout::B, &b->b, codes_x, tile->b_row,
			  tile->b_matrix, l->full, b_policy);
	tensor_load<CTAS>(scales + layout::B_SCALES, &b->b_scales, scales_x,
			  tile->b_block, tile->b_matrix, l->full, b_policy);
	if (DUAL) {
		tensor_load<CTAS>(l->at + layout::B2, &b->b2, codes_x, tile->b_row,
				  tile->b_matrix, l->full, b_policy);
		tensor_load<CTAS>(scales + layout::B2_SCALES, &b->b2_scales, scales_x,
				  tile->b_block, tile->b_matrix, l->full, b_policy);
	}
	tensor_load<CTAS>(l->at + layout::A, &a->a, codes_x, tile->a_row,
			  tile->a_matrix, l->full, a_policy);
	tensor_load<CTAS>(scales + layout::A_SCALES, &b->a_scales, scales_x,
			  tile->a_block, tile->a_matrix, l->full, a_policy);
}

/* Prefetches the maps of the first tile, which are kernel parameters in memory. */
template <bool DUAL>
DEVICE void prefetch_maps(const struct nib_sm100_args *args,
			  const struct nib_sm100_problem *problems)
{
	const int32_t first = args->experts ? 0 : args->first[clusterid_x()].problem;
	const struct nib_sm100_maps *maps = &problems[first].maps;

	prefetch_tensormap(&maps->b);
	prefetch_tensormap(&maps->b_scales);
	if (DUAL) {
		prefetch_tensormap(&maps->b2);
		prefetch_tensormap(&maps->b2_scales);
	}
	prefetch_tensormap(&maps->a);
	prefetch_tensormap(&maps->a_scales);
}

/*
 * The producer, one thread of each CTA.  The leader's barrier counts the bytes of both.
 */
template <bool DUAL, int CTAS>
DEVICE void load_tiles(const struct nib_sm100_args *args,
		       const struct nib_sm100_problem *problems,
		       const struct shared100 *shared, uint32_t stages_at)
{
	const uint32_t fixed =
	    (DUAL ? 2 : 1) * (NIB_SM100_B_BYTES + NIB_SM100_SCALES_BYTES) +
	    args->a_scale_blocks * NIB_SM100_SCALES_BYTES;
	struct ring ring = {0, 0}, tiles = {0, 0};

	for (;; advance(&tiles, TILE_SLOTS)) {
		const struct tile_desc tile = *await_tile(shared, &tiles);

		release_tile(shared, &tiles);
		if (!tile.n)
			return;
#pragma unroll 1
		for (int32_t i = 0; i < tile.stages; i++) {
			const uint32_t full = smem_addr(shared->full + ring.stage);
			const struct load l = {
			    args, problems, stages_at + ring.stage * args->stage_bytes,
			    leader_addr<CTAS>(full)};

			wait(smem_addr(shared->empty + ring.stage), ring.parity ^ 1);
			if (rank_in_pair<CTAS>() == 0)
				mbarrier_arrive_expect_tx(
				    full, CTAS * (fixed + tile.a_bytes));
			load_stage<DUAL, CTAS>(&l, &tile, tile.stage0 + i);
			advance(&ring, args->stages);
		}
	}
}

/* ---- multiplication ------------------------------------------------------ */

/*
 * Shared memory descriptors (PTX ISA, "tcgen05 matrix descriptor"): rows of 128
 * bytes swizzled, groups of eight rows 1024 bytes apart; and rows of 16 bytes,
 * groups 128 bytes apart.  Only the low half depends on the address.
 */
#define CODES_DESC  0x4000404000000000ull
#define SCALES_DESC 0x0000400800000000ull
/* The difference of two descriptors whose addresses are this many bytes apart. */
#define DESC_BYTES(bytes) ((bytes) / 16)

DEVICE uint64_t descriptor(uint64_t kind, uint32_t addr)
{
	return kind | DESC_BYTES(addr);
}

/* Instruction descriptor: e2m1 by e2m1, e4m3 scales, M 128 a CTA, and N. */
template <int CTAS>
DEVICE uint32_t mma_shape(int32_t n)
{
	return 1u << 7 | 1u << 10 | (uint32_t)(n / 8) << 17 | (uint32_t)CTAS << 27;
}

/* What the multiplication of a stage needs. */
struct stage_of_mma {
	/*
	 * Descriptors of the codes of B (and B2, which follows), of A, and of scales.
	 */
	uint64_t b, a, scales;
	uint32_t d;	/* accumulators */
	uint32_t d2;	/* dual: of B2 */
	uint32_t slot;	/* of scales, in tensor memory */
	uint32_t shift; /* columns to the first row of A */
	uint32_t shape;
	bool has_two_blocks;
	bool is_first;
};

template <bool DUAL, int CTAS>
DEVICE void multiply_stage(const struct stage_of_mma *s)
{
	using layout = stage_layout<DUAL>;
	constexpr uint32_t b2_slot = NIB_SM100_SCALE_COLUMNS;
	constexpr uint32_t a_slot = (DUAL ? 2 : 1) * NIB_SM100_SCALE_COLUMNS;

#pragma unroll
	for (int i = 0; i < MMA_STEPS; i++) {
		const uint64_t scales = s->scales + i * DESC_BYTES(MMA_SCALE_BYTES);
		const uint64_t b = s->b + i * DESC_BYTES(MMA_CODES_BYTES);
		const uint64_t a = s->a + i * DESC_BYTES(MMA_CODES_BYTES);
		const uint32_t b_at = s->slot + 4 * i;
		const uint32_t a_at = s->slot + a_slot + 8 * i;
		const bool accumulate = !s->is_first || i > 0;

		tcgen05_cp_scales<CTAS>(b_at, scales);
		if (DUAL)
			tcgen05_cp_scales<CTAS>(b_at + b2_slot,
						scales + DESC_BYTES(layout::B2_SCALES));
		tcgen05_cp_scales<CTAS>(a_at, scales + DESC_BYTES(layout::A_SCALES));
		if (s->has_two_blocks)
			tcgen05_cp_scales<CTAS>(
			    a_at + 4, scales + DESC_BYTES(layout::A_SCALES +
							  NIB_SM100_SCALES_BYTES));
		tcgen05_mma<CTAS>(s->d, b, a, s->shape, b_at, a_at + s->shift,
				  accumulate);
		if (DUAL)
			tcgen05_mma<CTAS>(s->d2, b + DESC_BYTES(layout::B2), a,
					  s->shape, b_at + b2_slot, a_at + s->shift,
					  accumulate);
	}
}

/*
 * The multiply warp, one thread of the leader.  A slot of scales is written again only
 * when the multiplications that read it have completed, because PTX does not order a
 * tcgen05.cp after an earlier tcgen05.mma.
 */
template <bool DUAL, int CTAS>
DEVICE void multiply_tiles(const struct nib_sm100_args *args,
			   const struct shared100 *shared, uint32_t stages_at,
			   uint32_t tensor_memory)
{
	constexpr uint32_t slot_columns = NIB_SM100_SLOT_COLUMNS(DUAL);
	const uint32_t mask = pair_mask<CTAS>();
	const uint32_t stage_step = DESC_BYTES(args->stage_bytes);
	const uint64_t b = descriptor(CODES_DESC, stages_at);
	const uint64_t scales = descriptor(
	    SCALES_DESC, stages_at + stage_layout<DUAL>::A + a_stage_bytes<CTAS>(args));
	struct ring ring = {0, 0}, tiles = {0, 0}, slots = {0, 0};
	struct ring done = {0, 0}; /* the stage that frees the next slot */
	/* With a slot for each stage, that of a full stage is free. */
	int32_t free_slots =
	    args->scale_slots < args->stages ? args->scale_slots : INT32_MAX;

	for (uint32_t t = 0;; t++, advance(&tiles, TILE_SLOTS)) {
		const struct tile_desc tile = *await_tile(shared, &tiles);
		const int32_t before = (int32_t)t - args->lag;
		struct stage_of_mma s;

		release_tile(shared, &tiles);
		if (!tile.n)
			return;
		s.d = tensor_memory + (t % 2 ? args->odd_column : 0);
		s.shape = mma_shape<CTAS>(tile.n);
		s.d2 = s.d + tile.n;
		s.has_two_blocks = args->a_scale_blocks == 2;
		s.shift = tile.a_scale_shift;
		if (before >= 0)
			wait_cluster(smem_addr(shared->drained + before % 2),
				     before / 2 % 2);
		tcgen05_fence_after();
#pragma unroll 1
		for (int32_t i = 0; i < tile.stages; i++) {
			s.b = b + ring.stage * stage_step;
			s.a = s.b + DESC_BYTES(stage_layout<DUAL>::A);
			s.scales = scales + ring.stage * stage_step;
			s.slot = tensor_memory + args->scale_column +
				 slots.stage * slot_columns;
			s.is_first = i == 0;
			if (free_slots == 0) {
				wait(smem_addr(shared->empty + done.stage),
				     done.parity);
				advance(&done, args->stages);
				free_slots++;
			}
			free_slots--;
			wait(smem_addr(shared->full + ring.stage), ring.parity);
			tcgen05_fence_after();
			multiply_stage<DUAL, CTAS>(&s);
			tcgen05_commit<CTAS>(smem_addr(shared->empty + ring.stage),
					     mask);
			advance(&ring, args->stages);
			advance(&slots, args->scale_slots);
		}
		if (args->k_slices > 1)
			tcgen05_commit_to<CTAS>(smem_addr(&shared->ready),
						(1u << CTAS * args->k_slices) - 1);
		else
			tcgen05_commit<CTAS>(smem_addr(shared->summed + t % 2), mask);
	}
}

#endif
