/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_producers.cuh - the producer warps.  Two warps load weights with cp.async, whole
 * 128-byte lines, and zeros outside the matrix.  One thread loads converted activations
 * with bulk copies: each CTA of the pair loads half of the tile's rows and multicasts
 * them to both.
 */
#ifndef NIB_GEMM_PRODUCERS_CUH
#define NIB_GEMM_PRODUCERS_CUH

#include "gemm_schedule.cuh"

/* ---- weights: global -> ring --------------------------------------------- */

/*
 * What one of the 64 producer threads loads of 64 rows of weights.  Codes: piece number
 * thread % 8 of every eighth row from thread / 8 on.  Scales: one row, or half of two
 * 16-byte lines of 128 x 4 tiles.
 */
struct weight_source {
	const uint8_t *codes, *scales;
	int64_t stride8;   /* from one of its rows of codes to the next */
	int32_t rows_left; /* of the matrix, from its first row of codes on */
	bool all_rows;	   /* all 64 rows are inside the matrix */
	bool has_scales, is_tiled;
};

DEVICE void open_weights(const struct nib_gemm_args *args,
			 const struct nib_gemm_pointers *p,
			 const struct tile_desc *tile, int32_t row0, bool second,
			 uint32_t thread, struct weight_source *b)
{
	const struct nib_gemm_shape *s = args->shapes + tile->problem;
	const int64_t stride = second ? s->b2_stride_bytes : s->b_stride_bytes;
	const int64_t scale_stride =
	    second ? s->b2_scale_stride_bytes : s->b_scale_stride_bytes;
	const int32_t n = s->n, k = s->k;
	const int32_t row = row0 + (int32_t)(thread / 8);

	b->codes = (second ? p->b2 + tile->matrix * args->b2_batch_bytes
			   : p->b + tile->matrix * args->b_batch_bytes) +
		   row * stride + thread % 8 * 16;
	b->scales = second ? p->b2_scales + tile->matrix * args->b2_scale_batch_bytes
			   : p->b_scales + tile->matrix * args->b_scale_batch_bytes;
	b->stride8 = 8 * stride;
	b->rows_left = n - row;
	b->all_rows = row0 + 64 <= n;
	b->is_tiled = s->flags & (second ? NIB_B2_TILED : NIB_B_TILED);
	if (b->is_tiled) {
		b->scales += (int64_t)(row0 / 128) * ((k / 16 + 3) / 4) * 512 +
			     row0 % 128 / 64 * 8 + thread * 16;
		b->has_scales = row0 < n;
	} else {
		b->scales += (row0 + (int32_t)thread) * scale_stride;
		b->has_scales = row0 + (int32_t)thread < n;
	}
}

/* Loads bytes byte0 to byte0 + 127 of 64 rows that are all inside the matrix. */
DEVICE void fetch_codes_inside(uint32_t to, const struct weight_source *b,
			       int32_t byte0, uint64_t policy)
{
	const uint8_t *from = b->codes + byte0;

#pragma unroll
	for (uint32_t i = 0; i < 8; i++) {
		cp_async_16_l2_256_hint(to + i * 1024, from, policy);
		from += b->stride8;
	}
}

/* The same at the edges: bytes outside the matrix become zero. */
DEVICE void fetch_codes_edge(uint32_t to, const struct weight_source *b, int32_t byte0,
			     int32_t left, bool by_8)
{
	const uint8_t *from = b->codes + byte0;

#pragma unroll 1
	for (int32_t r = 0; r < 64; r += 8) {
		const uint32_t bytes =
		    r < b->rows_left && left > 0 ? (uint32_t)left : 0;
		/* With bytes = 0 nothing is read, but the address must be valid. */
		const uint8_t *source = bytes ? from : b->codes;

		if (!by_8) {
			cp_async_16_zfill(to, source, bytes);
		} else {
			cp_async_8_zfill(to, source, min(bytes, 8u));
			cp_async_8_zfill(to + 8, bytes > 8 ? source + 8 : source,
					 bytes > 8 ? bytes - 8 : 0);
		}
		to += 1024;
		from += b->stride8;
	}
}

/* Linear scales of 64 rows, one row a thread, stored as [row][16 groups]. */
DEVICE void fetch_linear_scales(uint32_t to, const struct weight_source *b,
				int32_t group0, int32_t groups, int32_t flags)
{
	const int32_t left = b->has_scales ? max(0, min(16, groups - group0)) : 0;
	const uint8_t *from = b->scales + (left ? group0 : 0);

	if (flags & NIB_B_SCALES_BY_1) {
#pragma unroll 1
		for (int32_t i = 0; i < 16; i++)
			sts_u8(to + (uint32_t)i, i < left ? __ldg(from + i) : 0);
	} else if (flags & NIB_B_SCALES_BY_4) {
#pragma unroll 1
		for (int32_t i = 0; i < 16; i += 4) {
			const int32_t rest = max(0, min(4, left - i));

			cp_async_4(to + (uint32_t)i, rest ? from + i : b->scales,
				   (uint32_t)rest);
		}
	} else {
		cp_async_16_zfill(to, from, (uint32_t)left);
	}
}

/* Tiled scales of 64 rows, half a tile of 128: 8 of the 16 bytes of a line, for the
 * four tiles of this k256. */
DEVICE void fetch_tiled_scales(uint32_t to, const struct weight_source *b,
			       int32_t group0, int32_t groups, uint32_t thread)
{
	const int32_t tile = group0 / 4 + (int32_t)(thread / 32);

#pragma unroll
	for (int32_t i = 0; i < 2; i++) {
		const bool inside = b->has_scales && tile + 2 * i < (groups + 3) / 4;

		cp_async_8_zfill(to + thread * 8 + (uint32_t)i * 512,
				 inside ? b->scales + group0 * 128 + i * 1024
					: b->scales,
				 inside ? 8 : 0);
	}
}

/*
 * Zeroes the scales beyond k in the last tile of scales, whose padding may have any
 * value; `groups` of the stage are inside k.  Each thread does this in the pieces that
 * it has loaded.
 */
DEVICE void clear_padding(uint32_t to, const struct weight_source *b, int32_t groups,
			  uint32_t thread)
{
	const int32_t tile = groups / 4;
	const uint32_t keep = (1u << groups % 4 * 8) - 1;

	if ((int32_t)(thread / 32) != tile % 2)
		return;
#pragma unroll
	for (uint32_t half = 0; half < GROUPS; half++) {
		const uint32_t words = to + GROUPS * HALF_CODES + half * HALF_SCALES +
				       thread % 32 * 8 + (uint32_t)tile * 256;

		if (b[half].is_tiled) {
			sts_32(words, lds_32(words) & keep);
			sts_32(words + 4, lds_32(words + 4) & keep);
		}
	}
}

/* Loads one stage: codes and scales of 64 rows, k256, for each consumer warpgroup. */
DEVICE void fetch_weights(uint32_t to, int32_t k, int32_t flags,
			  const struct weight_source *b, int32_t k0, uint32_t thread,
			  uint64_t policy)
{
	const int32_t piece = (int32_t)(thread % 8);
	/* Rows eight apart have the same swizzle. */
	const uint32_t offset =
	    thread / 8 * 128 + swizzled(thread / 8, (uint32_t)piece) * 16;
	const bool whole = k0 + NIB_WEIGHT_STAGE_K <= k && !(flags & NIB_B_CODES_BY_8);

#pragma unroll
	for (uint32_t half = 0; half < GROUPS; half++) {
		const uint32_t codes = to + half * HALF_CODES + offset;
		const uint32_t scales = to + GROUPS * HALF_CODES + half * HALF_SCALES;

		if (whole && b[half].all_rows)
			fetch_codes_inside(codes, b + half, k0 / 2, policy);
		else
			fetch_codes_edge(codes, b + half, k0 / 2,
					 min(16, k / 2 - k0 / 2 - piece * 16),
					 flags & NIB_B_CODES_BY_8);
		if (b[half].is_tiled)
			fetch_tiled_scales(scales, b + half, k0 / 16, k / 16, thread);
		else
			fetch_linear_scales(scales + thread * 16, b + half, k0 / 16,
					    k / 16, flags);
	}
}

template <bool DUAL, int PAIRS>
DEVICE void produce_weights(const struct nib_gemm_args *args,
			    const struct nib_gemm_pointers *problems,
			    struct gemm_shared *shared, uint32_t rings)
{
	const uint32_t thread = threadIdx.x;
	/*
	 * Evict-first weights leave the activations, which all CTAs read, in the L2.
	 * For MoE, whose activations are few, this policy costs 3 %
	 * (docs/performance-hopper.md).
	 */
	const uint64_t policy =
	    args->experts ? createpolicy_evict_normal() : createpolicy_evict_first();
	struct ring ring = {0, 0}, tiles = {0, 0};
	const struct tile_desc *tile;

	for (; (tile = await_tile(shared, &tiles))->rows; advance(&tiles, TILE_SLOTS)) {
		const struct nib_gemm_pointers *p = problems + tile->problem;
		const int32_t k = args->shapes[tile->problem].k;
		const int32_t flags = tile->flags | (int32_t)p->flags;
		const int32_t stage0 = tile->stage0, stages = tile->stages;
		struct weight_source b[GROUPS];

#pragma unroll
		for (int half = 0; half < GROUPS; half++)
			open_weights(args, p, tile,
				     tile->row0 + half * 64 % CTA_ROWS(DUAL),
				     half * 64 >= CTA_ROWS(DUAL), thread, b + half);
		__syncwarp();
		if (thread % 32 == 0)
			release_tile(shared, &tiles);
		for (int32_t s = 0; s < stages; s++) {
			const uint32_t pair = PAIRS == 2 ? s & 1 : 0;
			const uint32_t full =
			    smem_addr(shared->weights_full + pair * (STAGES_MAX / 2) +
				      ring.stage);
			const uint32_t to = rings + ring.stage * WEIGHT_STAGE;
			const int32_t k0 = (stage0 + s) * NIB_WEIGHT_STAGE_K;
			const bool has_padding = k % 64 && k0 + NIB_WEIGHT_STAGE_K > k;

			wait(smem_addr(shared->weights_empty + ring.stage),
			     ring.parity ^ 1);
			fetch_weights(to, k, flags, b, k0, thread, policy);
			if (has_padding || flags & NIB_B_SCALES_BY_1) {
				cp_async_wait_all();
				if (has_padding)
					clear_padding(to, b, (k - k0) / 16, thread);
				mbarrier_arrive(full);
			} else {
				cp_async_mbarrier_arrive(full);
			}
			advance(&ring, (uint32_t)args->weight_stages);
		}
	}
	/* A CTA must not end with cp.async in flight. */
	cp_async_wait_all();
}

/* ---- activations: converted, global (L2) -> ring ------------------------- */

/* Loads half of the tile's rows of A into both CTAs of the pair. */
template <int A_STEPS>
DEVICE void produce_activations(const struct nib_gemm_args *args,
				struct gemm_shared *shared, uint32_t a_ring)
{
	const uint32_t half = cluster_ctarank();
	struct ring ring = {0, 0}, tiles = {0, 0};
	const struct tile_desc *tile;

	/* The activation conversion kernel runs before this one. */
	griddepcontrol_wait();
	fence_proxy_async();
	for (; (tile = await_tile(shared, &tiles))->rows; advance(&tiles, TILE_SLOTS)) {
		const uint32_t bytes = (uint32_t)tile->rows * 64;
		const int32_t stages = tile->stages * (STEPS / A_STEPS);
		const uint8_t *from =
		    args->activations +
		    (tile->stage0 * STEPS * args->a_atoms + tile->atom) * 1024 +
		    half * bytes;

		release_tile(shared, &tiles);
		for (int32_t s = 0; s < stages; s++) {
			const uint32_t full = smem_addr(shared->a_full + ring.stage);
			uint32_t to = a_ring + half * bytes +
				      ring.stage * (uint32_t)args->a_stage_bytes;

			wait(smem_addr(shared->a_empty + ring.stage), ring.parity ^ 1);
			mbarrier_arrive_expect_tx(full, 2 * bytes * A_STEPS);
			for (int32_t i = 0; i < A_STEPS; i++) {
				bulk_copy_multicast(to, from, bytes, full, 3);
				to += 2 * bytes;
				from += args->a_atoms * 1024;
			}
			advance(&ring, (uint32_t)args->a_stages);
		}
	}
	/*
	 * Waits until both CTAs have released every stage.  The other CTA's consumers
	 * arrive at barriers in this CTA's shared memory, so that it must not end
	 * earlier.
	 */
	for (int32_t s = 0; s < args->a_stages; s++) {
		wait(smem_addr(shared->a_empty + ring.stage), ring.parity ^ 1);
		advance(&ring, (uint32_t)args->a_stages);
	}
}

#endif
