/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_epilogue.cuh - from accumulators to c: the split-k reduction, alpha, SiLU, one
 * rounding.  16-bit results are transposed through shared memory, so that stores are
 * whole 32-byte sectors.
 *
 *   accumulators d[N / 2] of lane 4g + t, for the warp's first row of B
 *   d[4 i], d[4 i + 1]          rows of A 8 i + 2 t, 8 i + 2 t + 1; row g of B
 *   d[4 i + 2], d[4 i + 3]      the same rows of A; row g + 8 of B, or dual row g of B2
 *
 * In this file a chunk is 16 rows of A, 8 accumulators of a thread, and a block is two
 * chunks (not the 16 values that share a scale).
 */
#ifndef NIB_GEMM_EPILOGUE_CUH
#define NIB_GEMM_EPILOGUE_CUH

#include "backend/cuda/kernels/common/silu.cuh"
#include "gemm_mainloop.cuh"

/* ---- epilogue ------------------------------------------------------------ */

/* What the epilogue has to know about a tile. */
struct output {
	char *c; /* at the tile's first row of A, this warp's first row of B */
	int64_t stride_elems;
	int32_t rows_left; /* rows of B from c on that exist */
	int32_t valid;	   /* rows of A that exist */
	float alpha, alpha2;
	float unscale; /* of accumulators: UNSCALE() */
	int32_t dtype;
	bool by_16; /* 16-byte stores to c are aligned */
};

/* Rounds eight values to four 16-bit pairs. */
DEVICE void round_halves(const struct output *o, const float *v, uint32_t *h)
{
	if (o->dtype == 1) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			h[i] = cvt_f16x2_f32(v[2 * i], v[2 * i + 1]);
	} else {
#pragma unroll
		for (int i = 0; i < 4; i++)
			h[i] = cvt_bf16x2_f32(v[2 * i], v[2 * i + 1]);
	}
}

/* Scales eight accumulators and rounds them to four 16-bit pairs. */
DEVICE void round_chunk(const struct output *o, const float *d, uint32_t *h)
{
	float v[8];

#pragma unroll
	for (int i = 0; i < 8; i++)
		v[i] = d[i] * o->unscale * o->alpha;
	round_halves(o, v, h);
}

/* Stores 8 rows of B of one row of A, in 16 bytes if alignment allows. */
DEVICE void store_rows8(const struct output *o, int32_t m, int32_t row, uint4 x)
{
	const uint32_t word[4] = {x.x, x.y, x.z, x.w};
	uint16_t *to = (uint16_t *)o->c + m * o->stride_elems + row;

	if (m >= o->valid)
		return;
	if (o->by_16 && row + 8 <= o->rows_left) {
		*(uint4 *)to = x;
		return;
	}
#pragma unroll
	for (int i = 0; i < 8; i++)
		if (row + i < o->rows_left)
			to[i] = (uint16_t)(word[i / 2] >> i % 2 * 16);
}

DEVICE uint32_t staging_of_warp(const struct consumer *c)
{
	return smem_addr(c->shared->staging) + (threadIdx.x / 32 - 4) * STAGING_WARP;
}

/* Stores 16 rows of A from m0 on as 16-bit values, through shared memory. */
DEVICE void store_halves(const struct consumer *c, const struct output *o, int32_t m0,
			 const float *v)
{
	const uint32_t staging = staging_of_warp(c);
	const uint32_t lane = lane_of_thread(), matrix = lane / 8;
	uint32_t h[4];
	uint4 x;

	round_halves(o, v, h);
	stmatrix_x4_trans(staging + (matrix / 2 * 8 + lane % 8) * STAGING_STRIDE +
			      matrix % 2 * 16,
			  h[0], h[1], h[2], h[3]);
	__syncwarp();
	x = lds_128(staging + lane / 2 * STAGING_STRIDE + lane % 2 * 16);
	__syncwarp();
	store_rows8(o, m0 + (int32_t)(lane / 2), (int32_t)(lane % 2) * 8, x);
}

/*
 * The offset of one half (16 bytes: 8 rows of B) of row m of A in the buffer of the
 * accumulators.  Each warp owns 128 bytes of every ACC_STRIDE, so warps do not wait for
 * each other.  There are no bank conflicts: the 8 rows of a stmatrix are in different
 * slots, and so are the two halves of the four rows that eight lanes read:
 *
 *   16-byte slot     0     1     2     3     4     5     6     7
 *   row m = 0       half0                   half1
 *   row m = 1             half0                   half1
 *   row m           half h is at slot (m + 4 h) % 8
 */
DEVICE uint32_t odd_address(uint32_t m, uint32_t half)
{
	return m * ACC_STRIDE + (m + 4 * half) % 8 * 16;
}

/*
 * Stores the tile as 16-bit values without spill_accumulators().  All rows of B of the
 * warp must exist, and 16-byte stores must be aligned.  Even and odd chunks have a
 * transpose buffer each, so that a chunk does not wait for the reads of the one before.
 */
template <int N>
DEVICE void store_whole_rows(const struct consumer *c, const struct output *o,
			     uint32_t chunks, const float *d)
{
	/* opaque() keeps the compiler from computing the addresses below before the
	 * loop over tiles, where they would occupy registers. */
	const uint32_t thread = opaque(threadIdx.x);
	const uint32_t warp = thread / 32 - 4, lane = thread % 32;
	const uint32_t even = smem_addr(c->shared->staging) + warp * STAGING_WARP;
	const uint32_t odd = smem_addr(c->shared->accumulators) + warp * 32 * 4;
	/* Row of A and half of the rows of B that the lane addresses in stmatrix. */
	const uint32_t t = lane / 16 * 8 + lane % 8, r = lane / 8 % 2;
	const uint32_t write[2] = {even + t * STAGING_STRIDE + r * 16,
				   odd + odd_address(t, r)};
	const uint32_t read[2] = {even + lane / 2 * STAGING_STRIDE + lane % 2 * 16,
				  odd + odd_address(lane / 2, lane % 2)};
	const int64_t step = 16 * o->stride_elems;
	const int32_t valid = o->valid - (int32_t)(lane / 2);
	uint16_t *to = (uint16_t *)o->c + lane / 2 * o->stride_elems + lane % 2 * 8;

#pragma unroll
	for (int i = 0; i < N / 16; i++) {
		uint32_t h[4];

		if (chunks >> i & 1) {
			round_chunk(o, d + 8 * i, h);
			/* With split-k, consecutive chunks may use the same buffer. */
			__syncwarp();
			stmatrix_x4_trans(write[i % 2], h[0], h[1], h[2], h[3]);
			__syncwarp();
			if (i * 16 < valid)
				*(uint4 *)to = lds_128(read[i % 2]);
		}
		to += step;
	}
}

DEVICE void store_floats(const struct output *o, int32_t m0, const float *v)
{
	const int32_t row = (int32_t)(lane_of_thread() / 4);

#pragma unroll
	for (int i = 0; i < 8; i++) {
		const int32_t m =
		    m0 + i / 4 * 8 + (int32_t)(lane_of_thread() % 4) * 2 + i % 2;
		const int32_t r = row + i / 2 % 2 * 8;

		if (m < o->valid && r < o->rows_left)
			((float *)o->c)[m * o->stride_elems + r] = v[i];
	}
}

/* Copies the accumulators of a block to shared memory, where a loop can index them. */
template <int N>
DEVICE void spill_accumulators(uint32_t to, int block, const float *d)
{
#pragma unroll
	for (int b = 0; b * BLOCK_M < N; b++) {
		if (b != block)
			continue;
#pragma unroll
		for (int i = b * 16; i < min(b * 16 + 16, N / 2); i++)
			sts_f32(to + (uint32_t)(i - b * 16) * ACC_STRIDE, d[i]);
	}
}

/*
 * Stores the tile through shared memory, block by block, because a loop unrolled over
 * all accumulators would be thousands of instructions, more than the instruction cache
 * holds.  Only the chunks of the mask are stored.
 */
template <int N>
DEVICE void finish_blocks(const struct consumer *c, const struct output *o,
			  uint32_t chunks, const float *d)
{
	const uint32_t mine =
	    smem_addr(c->shared->accumulators) + (threadIdx.x - 128) * 4;

#pragma unroll 1
	for (int block = 0; block * BLOCK_M < N; block++) {
		const int m0 = block * BLOCK_M;

		spill_accumulators<N>(mine, block, d);
#pragma unroll 1
		for (int t = 0; t < min(BLOCK_M, N - m0); t += 16) {
			float v[8];

			if (!(chunks >> (m0 + t) / 16 & 1))
				continue;
#pragma unroll
			for (uint32_t i = 0; i < 8; i++)
				v[i] =
				    lds_f32(mine + ((uint32_t)t / 2 + i) * ACC_STRIDE) *
				    o->unscale * o->alpha;
			if (o->dtype == 0)
				store_floats(o, m0 + t, v);
			else
				store_halves(c, o, m0 + t, v);
		}
	}
}

/* The lane's four dual results of a chunk, whose accumulators are at `from`.  Lane t of
 * a quad has rows of A 2 t, 2 t + 1, 2 t + 8 and 2 t + 9. */
DEVICE void finish_pairs(const struct output *o, uint32_t from, float *v)
{
#pragma unroll
	for (uint32_t i = 0; i < 4; i++) {
		const uint32_t at = from + (i / 2 * 4 + i % 2) * ACC_STRIDE;
		const float x = lds_f32(at) * o->unscale * o->alpha;
		const float y = lds_f32(at + 2 * ACC_STRIDE) * o->unscale * o->alpha2;

		v[i] = silu(x) * y;
	}
}

/* Stores 8 rows of B of 32 rows of A from m0 on; chunks: bits of the two chunks to
 * store. */
DEVICE void store_dual(const struct consumer *c, const struct output *o, int32_t m0,
		       uint32_t chunks, const float *v)
{
	const uint32_t slot = staging_of_warp(c) + lane_of_thread() * 16;
	uint32_t h[4];
	uint4 x;

	if (o->dtype == 0) {
		const int32_t row = (int32_t)(lane_of_thread() / 4);

#pragma unroll
		for (int i = 0; i < 8; i++) {
			const int32_t m = m0 + i / 2 * 8 +
					  (int32_t)(lane_of_thread() % 4) * 2 + i % 2;

			if (chunks >> i / 4 & 1 && m < o->valid && row < o->rows_left)
				((float *)o->c)[m * o->stride_elems + row] = v[i];
		}
		return;
	}
	round_halves(o, v, h);
	stmatrix_x4_trans(slot, h[0], h[1], h[2], h[3]);
	__syncwarp();
	x = lds_128(slot);
	__syncwarp();
	if (chunks >> lane_of_thread() / 16 & 1)
		store_rows8(o, m0 + (int32_t)lane_of_thread(), 0, x);
}

/* finish_blocks() for dual products, in which a thread has both accumulators of its
 * results. */
template <int N>
DEVICE void finish_dual(const struct consumer *c, const struct output *o,
			uint32_t chunks, const float *d)
{
	const uint32_t mine =
	    smem_addr(c->shared->accumulators) + (threadIdx.x - 128) * 4;

	chunks &= (1u << N / 16) - 1;
#pragma unroll 1
	for (int block = 0; block * BLOCK_M < N; block++) {
		const uint32_t both = chunks >> block * 2 & 3;
		float v[8] = {0};

		if (!both)
			continue;
		spill_accumulators<N>(mine, block, d);
#pragma unroll
		for (int i = 0; i < 2; i++)
			if (both >> i & 1)
				finish_pairs(o, mine + i * 8 * ACC_STRIDE, v + 4 * i);
		store_dual(c, o, block * BLOCK_M, both, v);
	}
}

template <int N, bool DUAL>
DEVICE void finish_tile(const struct consumer *c, const struct output *o,
			uint32_t chunks, const float *d)
{
	/* A vote, so that the compiler knows that the branch is uniform. */
	if (DUAL)
		finish_dual<N>(c, o, chunks, d);
	else if (o->dtype != 0 && __all_sync(~0u, o->by_16 && o->rows_left >= 16))
		store_whole_rows<N>(c, o, chunks, d);
	else
		finish_blocks<N>(c, o, chunks, d);
}

/* The chunks that split-k slice `k_slice` finishes: every k_slices-th. */
DEVICE uint32_t chunks_of_slice(int32_t k_slices, int32_t k_slice)
{
	uint32_t mine = 0;

	for (int32_t i = k_slice; i < NIB_TILE_M_MAX / 16; i += k_slices)
		mine |= 1u << i;
	return mine;
}

/*
 * The split-k reduction. Each CTA stores the accumulators of the chunks that
 * other slices finish, then adds the other slices' accumulators, in the order
 * of slices, to the chunks that it finishes. All CTAs of the launch are
 * resident (cooperative launch), so that no CTA waits for one that cannot run.
 */
template <int N>
DEVICE void reduce_split_k(const struct consumer *c, const struct tile_desc *tile,
			   uint32_t mine, float *d)
{
	const struct nib_gemm_args *args = c->args;
	const int64_t slice_elems = NIB_GEMM_PARTIALS(args->tile_m);
	const uint32_t slot = (uint32_t)tile->tile * 2 + cluster_ctarank();
	float *partials = args->partials +
			  (int64_t)slot * args->k_slices * slice_elems +
			  (threadIdx.x - 128) * 4;

#pragma unroll
	for (int i = 0; i < N / 2; i += 4)
		if (!(mine >> i / 8 & 1))
			st_global_f32x4(partials + tile->k_slice * slice_elems +
					    i * WARPS * 32,
					d + i);
	bar_sync(1, WARPS * 32);
	if (threadIdx.x == 128) {
		red_add_release(args->arrivals + slot, 1);
		while (ld_acquire(args->arrivals + slot) < (uint32_t)args->k_slices)
			;
	}
	bar_sync(1, WARPS * 32);
#pragma unroll 1
	for (int32_t p = 0; p < args->k_slices; p++) {
		if (p != tile->k_slice) {
#pragma unroll
			for (int i = 0; i < N / 2; i += 4)
				if (mine >> i / 8 & 1)
					add_global_f32x4(d + i,
							 partials + i * WARPS * 32);
		}
		partials += slice_elems;
	}
}

template <bool DUAL, int A>
DEVICE struct output output_of(const struct consumer *c, const struct tile_desc *tile,
			       const float *alpha)
{
	/* The warp's first row of B, counted from the CTA's. */
	const int32_t row =
	    (int32_t)row_of_thread<DUAL>() - (int32_t)(lane_of_thread() / 4);
	struct output o;

	o.dtype = c->args->dtype;
	o.stride_elems = tile->c_stride_elems;
	o.c = tile->c + row * (o.dtype == 0 ? 4 : 2);
	o.rows_left = tile->rows_left - row;
	o.valid = tile->valid;
	o.alpha = alpha[0];
	o.alpha2 = alpha[1];
	o.unscale = UNSCALE(A);
	o.by_16 = tile->flags & NIB_C_BY_16;
	return o;
}

/* Computes and stores the results of a thread's accumulators. */
template <int N, bool DUAL, int A>
DEVICE void finish_accumulators(const struct consumer *c, const struct tile_desc *tile,
				const float *alpha, float *d)
{
	uint32_t mine = ~0u;
	struct output o;

	if (c->args->k_slices > 1) {
		mine = chunks_of_slice(c->args->k_slices, tile->k_slice);
		reduce_split_k<N>(c, tile, mine, d);
	}
	o = output_of<DUAL, A>(c, tile, alpha);
	finish_tile<N, DUAL>(c, &o, mine, d);
}

#endif
