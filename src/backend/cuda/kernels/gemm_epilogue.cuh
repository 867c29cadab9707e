/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_epilogue.cuh - from accumulators to c: parts of k added up, alpha, SiLU,
 * one rounding, rows of tokens through shared memory so that stores are whole
 * 32-byte sectors.
 */
#ifndef NIB_GEMM_EPILOGUE_CUH
#define NIB_GEMM_EPILOGUE_CUH

#include "gemm_sums.cuh"

/* ---- epilogue ------------------------------------------------------------ */

/* x / (1 + e^-x), within 8 units of 2^-24 (numerics.md); -0 at -inf, NaN only from
 * NaN. */
DEVICE float silu(float x)
{
	const float e = expf(-fabsf(x));

	return x < -104.0f ? -0.0f
			   : x * (x > 0 ? 1.0f : e) * rcp_approx(1.0f + e);
}

/* What the epilogue needs of a tile. */
struct output {
	char *c; /* the tile's first token, this warp's first row of B */
	int64_t stride_elems;
	int32_t rows_left; /* rows of B that this warp may store, from there */
	int32_t valid;	   /* tokens */
	float alpha, alpha2;
	int32_t dtype;
	bool by_16;
};

/* Eight values to 16-bit pairs. */
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

/* Eight sums, from the accumulators' scale, 2^-6, to 16-bit pairs. */
DEVICE void round_chunk(const struct output *o, const float *d, uint32_t *h)
{
	float v[8];

#pragma unroll
	for (int i = 0; i < 8; i++)
		v[i] = d[i] * 64.0f * o->alpha;
	round_halves(o, v, h);
}

/* Eight rows of a token to c: 16 bytes at once where that is allowed. */
DEVICE void store_rows8(const struct output *o, int32_t token, int32_t row,
			uint4 x)
{
	const uint32_t word[4] = {x.x, x.y, x.z, x.w};
	uint16_t *to = (uint16_t *)o->c + token * o->stride_elems + row;

	if (token >= o->valid)
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
	return smem_addr(c->shared->staging) +
	       (threadIdx.x / 32 - 4) * STAGING_WARP;
}

/* Sixteen tokens from token0 on, as 16-bit values: through shared memory. */
DEVICE void store_halves(const struct consumer *c, const struct output *o,
			 int32_t token0, const float *v)
{
	const uint32_t staging = staging_of_warp(c);
	const uint32_t lane = lane_of_thread(), matrix = lane / 8;
	uint32_t h[4];
	uint4 x;

	round_halves(o, v, h);
	stmatrix_x4_trans(staging +
				  (matrix / 2 * 8 + lane % 8) * STAGING_STRIDE +
				  matrix % 2 * 16,
			  h[0], h[1], h[2], h[3]);
	__syncwarp();
	x = lds_128(staging + lane / 2 * STAGING_STRIDE + lane % 2 * 16);
	__syncwarp();
	store_rows8(o, token0 + (int32_t)(lane / 2), (int32_t)(lane % 2) * 8,
		    x);
}

/*
 * In the sums' place, of which a warp has 128 bytes in every SUMS_STRIDE (its
 * neighbours may be using theirs): 16 bytes of a token, so that neither the
 * eight tokens of a stmatrix nor four tokens' pairs share a bank.
 */
DEVICE uint32_t odd_place(uint32_t token, uint32_t half)
{
	return token * SUMS_STRIDE + (token + 4 * half) % 8 * 16;
}

/*
 * The tile's 16-bit values where all rows of the warp are inside and stores are
 * of 16 bytes: straight from the accumulators.  Two places to transpose in, so
 * that the next sixteen tokens need not wait for the reads of these.
 */
template <int N>
DEVICE void store_whole_rows(const struct consumer *c, const struct output *o,
			     uint32_t chunks, const float *d)
{
	/* Worked out here, not before the loop over tiles: registers are few. */
	const uint32_t thread = opaque(threadIdx.x);
	const uint32_t warp = thread / 32 - 4, lane = thread % 32;
	const uint32_t even =
	    smem_addr(c->shared->staging) + warp * STAGING_WARP;
	const uint32_t odd = smem_addr(c->shared->sums) + warp * 32 * 4;
	/* A token and eight of its rows: of stmatrix, and of the store. */
	const uint32_t t = lane / 16 * 8 + lane % 8, r = lane / 8 % 2;
	const uint32_t write[2] = {even + t * STAGING_STRIDE + r * 16,
				   odd + odd_place(t, r)};
	const uint32_t read[2] = {
	    even + lane / 2 * STAGING_STRIDE + lane % 2 * 16,
	    odd + odd_place(lane / 2, lane % 2)};
	const int64_t step = 16 * o->stride_elems;
	const int32_t valid = o->valid - (int32_t)(lane / 2);
	uint16_t *to = (uint16_t *)o->c + lane / 2 * o->stride_elems +
		       lane % 2 * 8;

#pragma unroll
	for (int i = 0; i < N / 16; i++) {
		uint32_t h[4];

		if (chunks >> i & 1) {
			round_chunk(o, d + 8 * i, h);
			/* A part's sixteens may all have one of the places. */
			__syncwarp();
			stmatrix_x4_trans(write[i % 2], h[0], h[1], h[2],
					  h[3]);
			__syncwarp();
			if (i * 16 < valid)
				*(uint4 *)to = lds_128(read[i % 2]);
		}
		to += step;
	}
}

DEVICE void store_floats(const struct output *o, int32_t token0,
			 const float *v)
{
	const int32_t row = (int32_t)(lane_of_thread() / 4);

#pragma unroll
	for (int i = 0; i < 8; i++) {
		const int32_t token = token0 + i / 4 * 8 +
				      (int32_t)(lane_of_thread() % 4) * 2 + i % 2;
		const int32_t r = row + i / 2 % 2 * 8;

		if (token < o->valid && r < o->rows_left)
			((float *)o->c)[token * o->stride_elems + r] = v[i];
	}
}

/* Accumulators of block `block` to a place that a loop can index. */
template <int N>
DEVICE void store_sums(uint32_t to, int block, const float *d)
{
#pragma unroll
	for (int b = 0; b * BLOCK_TOKENS < N; b++) {
		if (b != block)
			continue;
#pragma unroll
		for (int i = b * 16; i < min(b * 16 + 16, N / 2); i++)
			sts_f32(to + (uint32_t)(i - b * 16) * SUMS_STRIDE,
				d[i]);
	}
}

/*
 * The tile to c, through shared memory block by block: unrolled over all
 * accumulators, this would be thousands of instructions that no cache holds.
 * Only the sixteens of tokens in chunks.
 */
template <int N>
DEVICE void finish_blocks(const struct consumer *c, const struct output *o,
			  uint32_t chunks, const float *d)
{
	const uint32_t mine =
		smem_addr(c->shared->sums) + (threadIdx.x - 128) * 4;

#pragma unroll 1
	for (int block = 0; block * BLOCK_TOKENS < N; block++) {
		const int token0 = block * BLOCK_TOKENS;

		store_sums<N>(mine, block, d);
#pragma unroll 1
		for (int t = 0; t < min(BLOCK_TOKENS, N - token0); t += 16) {
			float v[8];

			if (!(chunks >> (token0 + t) / 16 & 1))
				continue;
#pragma unroll
			for (uint32_t i = 0; i < 8; i++)
				v[i] = lds_f32(mine + ((uint32_t)t / 2 + i) *
							      SUMS_STRIDE) *
				       64.0f * o->alpha;
			if (o->dtype == 0)
				store_floats(o, token0 + t, v);
			else
				store_halves(c, o, token0 + t, v);
		}
	}
}

/* Of sixteen tokens, whose sums are at from: this lane's four results, tokens
 * 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of lane t of a quad. */
DEVICE void finish_pairs(const struct output *o, uint32_t from, float *v)
{
#pragma unroll
	for (uint32_t i = 0; i < 4; i++) {
		const uint32_t at = from + (i / 2 * 4 + i % 2) * SUMS_STRIDE;
		const float x = lds_f32(at) * 64.0f * o->alpha;
		const float y = lds_f32(at + 2 * SUMS_STRIDE) * 64.0f *
				o->alpha2;

		v[i] = silu(x) * y;
	}
}

/* Eight rows of 32 tokens from token0 on; chunks: which of the two sixteens. */
DEVICE void store_dual(const struct consumer *c, const struct output *o,
		       int32_t token0, uint32_t chunks, const float *v)
{
	const uint32_t place = staging_of_warp(c) + lane_of_thread() * 16;
	uint32_t h[4];
	uint4 x;

	if (o->dtype == 0) {
		const int32_t row = (int32_t)(lane_of_thread() / 4);

#pragma unroll
		for (int i = 0; i < 8; i++) {
			const int32_t token =
				token0 + i / 2 * 8 +
				(int32_t)(lane_of_thread() % 4) * 2 + i % 2;

			if (chunks >> i / 4 & 1 && token < o->valid &&
			    row < o->rows_left)
				((float *)o->c)[token * o->stride_elems +
						row] = v[i];
		}
		return;
	}
	round_halves(o, v, h);
	stmatrix_x4_trans(place, h[0], h[1], h[2], h[3]);
	__syncwarp();
	x = lds_128(place);
	__syncwarp();
	if (chunks >> lane_of_thread() / 16 & 1)
		store_rows8(o, token0 + (int32_t)lane_of_thread(), 0, x);
}

/* The same for dual products: a thread has both sums of each of its results. */
template <int N>
DEVICE void finish_dual(const struct consumer *c, const struct output *o,
			uint32_t chunks, const float *d)
{
	const uint32_t mine =
		smem_addr(c->shared->sums) + (threadIdx.x - 128) * 4;

	chunks &= (1u << N / 16) - 1;
#pragma unroll 1
	for (int block = 0; block * BLOCK_TOKENS < N; block++) {
		const uint32_t both = chunks >> block * 2 & 3;
		float v[8] = {0};

		if (!both)
			continue;
		store_sums<N>(mine, block, d);
#pragma unroll
		for (int i = 0; i < 2; i++)
			if (both >> i & 1)
				finish_pairs(o, mine + i * 8 * SUMS_STRIDE,
					     v + 4 * i);
		store_dual(c, o, block * BLOCK_TOKENS, both, v);
	}
}

template <int N, bool DUAL>
DEVICE void finish_tile(const struct consumer *c, const struct output *o,
			uint32_t chunks, const float *d)
{
	/* A vote: the compiler then knows that the warp stays together. */
	if (DUAL)
		finish_dual<N>(c, o, chunks, d);
	else if (o->dtype != 0 &&
		 __all_sync(~0u, o->by_16 && o->rows_left >= 16))
		store_whole_rows<N>(c, o, chunks, d);
	else
		finish_blocks<N>(c, o, chunks, d);
}

/* Sixteens of tokens that the part `part` of k finishes: every k_parts-th. */
DEVICE uint32_t chunks_of_part(int32_t k_parts, int32_t part)
{
	uint32_t mine = 0;

	for (int32_t i = part; i < NIB_TILE_TOKENS_MAX / 16; i += k_parts)
		mine |= 1u << i;
	return mine;
}

/*
 * A part of k done: its sums of the chunks that other parts finish go to memory,
 * and theirs of mine are added, in order.  Nobody waits in vain: all CTAs of the
 * launch run at once.
 */
template <int N>
DEVICE void join_parts(const struct consumer *c, const struct work *w,
		       uint32_t mine, float *d)
{
	const struct nib_gemm_args *args = c->args;
	const int64_t part_elems = NIB_GEMM_SUMS(args->tile_tokens);
	const uint32_t place = (uint32_t)w->tile * 2 + cluster_ctarank();
	float *sums = args->sums + (int64_t)place * args->k_parts * part_elems +
		      (threadIdx.x - 128) * 4;

#pragma unroll
	for (int i = 0; i < N / 2; i += 4)
		if (!(mine >> i / 8 & 1))
			st_global_f32x4(sums + w->part * part_elems +
						i * WARPS * 32,
					d + i);
	bar_sync(1, WARPS * 32);
	if (threadIdx.x == 128) {
		red_add_release(args->arrivals + place, 1);
		while (ld_acquire(args->arrivals + place) <
		       (uint32_t)args->k_parts)
			;
	}
	bar_sync(1, WARPS * 32);
#pragma unroll 1
	for (int32_t p = 0; p < args->k_parts; p++) {
		if (p != w->part) {
#pragma unroll
			for (int i = 0; i < N / 2; i += 4)
				if (mine >> i / 8 & 1)
					add_global_f32x4(d + i,
							 sums + i * WARPS * 32);
		}
		sums += part_elems;
	}
}

template <bool DUAL>
DEVICE struct output output_of(const struct consumer *c, const struct work *w,
			       const float *alpha)
{
	/* Of this warp's first row, from the CTA's. */
	const int32_t row = (int32_t)row_of_thread<DUAL>() -
			    (int32_t)(lane_of_thread() / 4);
	struct output o;

	o.dtype = c->args->dtype;
	o.stride_elems = w->c_stride_elems;
	o.c = w->c + row * (o.dtype == 0 ? 4 : 2);
	o.rows_left = w->rows_left - row;
	o.valid = w->valid;
	o.alpha = alpha[0];
	o.alpha2 = alpha[1];
	o.by_16 = w->flags & NIB_C_BY_16;
	return o;
}

/* From a tile's sums, of this part of k, to c. */
template <int N, bool DUAL>
DEVICE void finish_sums(const struct consumer *c, const struct work *w,
			const float *alpha, float *d)
{
	uint32_t mine = ~0u;
	struct output o;

	if (c->args->k_parts > 1) {
		mine = chunks_of_part(c->args->k_parts, w->part);
		join_parts<N>(c, w, mine, d);
	}
	o = output_of<DUAL>(c, w, alpha);
	finish_tile<N, DUAL>(c, &o, mine, d);
}

#endif
