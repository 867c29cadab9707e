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

/* x / (1 + e^-x); -0 at -inf, NaN only from NaN. */
DEVICE float silu(float x)
{
	const float e = expf(-fabsf(x));

	return x < -104.0f ? -0.0f : x * (x > 0 ? 1.0f : e) / (1.0f + e);
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

/* Sixteen tokens from token0 on, as 16-bit values: through shared memory. */
DEVICE void store_halves(const struct consumer *c, const struct output *o,
			 int32_t token0, const float *v)
{
	const uint32_t warp = threadIdx.x / 32 - 4;
	const uint32_t staging =
		smem_addr(c->shared->staging) + warp * STAGING_WARP;
	const uint32_t matrix = lane_of_thread() / 8;
	const uint32_t token = lane_of_thread() / 2;
	const int32_t row = (int32_t)(lane_of_thread() % 2) * 8;
	uint32_t h[4];
	uint16_t *to;
	uint4 x;

#pragma unroll
	for (int i = 0; i < 4; i++)
		h[i] = o->dtype == 1 ? cvt_f16x2_f32(v[2 * i], v[2 * i + 1])
				     : cvt_bf16x2_f32(v[2 * i], v[2 * i + 1]);
	stmatrix_x4_trans(staging +
				  (matrix / 2 * 8 + lane_of_thread() % 8) *
					  STAGING_STRIDE +
				  matrix % 2 * 16,
			  h[0], h[1], h[2], h[3]);
	__syncwarp();
	x = lds_128(staging + token * STAGING_STRIDE + (uint32_t)row * 2);
	__syncwarp();
	if (token0 + (int32_t)token >= o->valid)
		return;
	to = (uint16_t *)o->c + (token0 + (int32_t)token) * o->stride_elems +
	     row;
	if (o->by_16 && row + 8 <= o->rows_left) {
		*(uint4 *)to = x;
	} else {
		const uint32_t word[4] = {x.x, x.y, x.z, x.w};

#pragma unroll
		for (int i = 0; i < 8; i++)
			if (row + i < o->rows_left)
				to[i] = (uint16_t)(word[i / 2] >> i % 2 * 16);
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

/*
 * Sixteen tokens' sums v of this thread (dual: u of the same rows of B2), from
 * the accumulators' scale, 2^-6, to c.
 */
template <bool DUAL>
DEVICE void finish_chunk(const struct consumer *c, const struct output *o,
			 int32_t token0, float *v, const float *u)
{
#pragma unroll
	for (int i = 0; i < 8; i++) {
		v[i] = v[i] * 64.0f * o->alpha;
		if (DUAL)
			v[i] = silu(v[i]) * (u[i] * 64.0f * o->alpha2);
	}
	if (o->dtype == 0)
		store_floats(o, token0, v);
	else
		store_halves(c, o, token0, v);
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
 * accumulators, the epilogue of every tile size would be thousands of
 * instructions that no cache holds.  Dual: group 1 hands its sums to group 0.
 */
template <int N, bool DUAL>
DEVICE void finish_tile(const struct consumer *c, const struct output *o,
			const float *d)
{
	const uint32_t mine = smem_addr(c->shared->sums) +
			      (threadIdx.x - 128) * 4;

#pragma unroll 1
	for (int block = 0; block * BLOCK_TOKENS < N; block++) {
		const int token0 = block * BLOCK_TOKENS;

		store_sums<N>(mine, block, d);
		if (DUAL)
			bar_sync(1, WARPS * 32);
#pragma unroll 1
		for (int t = 0; t < min(BLOCK_TOKENS, N - token0); t += 16) {
			float v[8], u[8];

			if (DUAL && group_of_thread())
				break;
#pragma unroll
			for (uint32_t i = 0; i < 8; i++) {
				const uint32_t from =
					mine + ((uint32_t)t / 2 + i) *
						       SUMS_STRIDE;

				v[i] = lds_f32(from);
				if (DUAL)
					u[i] = lds_f32(from + 128 * 4);
			}
			finish_chunk<DUAL>(c, o, token0 + t, v, u);
		}
		if (DUAL)
			bar_sync(1, WARPS * 32);
	}
}

/* A chunk's sums over the parts of k, in order. */
DEVICE void add_parts(uint32_t from, uint32_t splits, float *v)
{
#pragma unroll
	for (uint32_t i = 0; i < 8; i++)
		v[i] = 0;
#pragma unroll 1
	for (uint32_t p = 0; p < splits; p++) {
		const uint32_t part = mapa(from, 2 * p + cluster_ctarank() % 2);

#pragma unroll
		for (uint32_t i = 0; i < 8; i++)
			v[i] += ld_cluster_f32(part + i * SUMS_STRIDE);
	}
}

/* Every CTA of the cluster adds up its share of the chunks. */
template <int N, bool DUAL>
DEVICE void finish_split(const struct consumer *c, const struct output *o,
			 const float *d)
{
	const uint32_t mine = c->token_ring + (threadIdx.x - 128) * 4;
	const uint32_t splits = (uint32_t)c->args->splits;

	/* Both groups have read the last tokens and weights. */
	bar_sync(1, WARPS * 32);
#pragma unroll
	for (uint32_t i = 0; i < N / 2; i++)
		sts_f32(mine + i * SUMS_STRIDE, d[i]);
	cluster_arrive();
	cluster_wait();
	if (DUAL && group_of_thread())
		return;
#pragma unroll 1
	for (uint32_t chunk = cluster_ctarank() / 2; chunk < N / 16;
	     chunk += splits) {
		const uint32_t from = mine + chunk * 8 * SUMS_STRIDE;
		float v[8], u[8];

		add_parts(from, splits, v);
		if (DUAL)
			add_parts(from + 128 * 4, splits, u);
		finish_chunk<DUAL>(c, o, (int32_t)chunk * 16, v, u);
	}
}

template <bool DUAL>
DEVICE struct output output_of(const struct consumer *c,
			       const struct nib_gemm_pointers *p,
			       const struct work *w)
{
	const struct nib_gemm_shape *s = w->shape;
	const int32_t row = w->row0 + (int32_t)(row_of_thread() % CTA_ROWS(DUAL)) -
			    (int32_t)(lane_of_thread() / 4);
	struct output o;

	o.stride_elems = s->c_stride_elems;
	o.dtype = c->args->dtype;
	o.c = (char *)p->c +
	      ((int64_t)(w->row_base + w->token) * o.stride_elems + row) *
		      (o.dtype == 0 ? 4 : 2);
	o.rows_left = s->n - row;
	o.valid = w->valid;
	o.alpha = p->alpha ? __ldg(p->alpha + w->expert) : 1.0f;
	o.alpha2 = p->alpha2 ? __ldg(p->alpha2 + w->expert) : 1.0f;
	o.by_16 = s->flags & NIB_C_BY_16;
	return o;
}

#endif
