/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_store.cuh - from sums to C: alpha, SiLU, one rounding, or the partial sums of a
 * split-k slice, which reduce() adds in the order of slices.
 */
#ifndef NIB_SM80_GEMM_STORE_CUH
#define NIB_SM80_GEMM_STORE_CUH

#include "backend/cuda/kernels/common/silu.cuh"
#include "gemm_load.cuh"

#define SUM_SCALE(is_bf16) ((is_bf16) ? NIB_SUM_SCALE_BF16 : NIB_SUM_SCALE_F16)

/* The factors of a sum, multiplied in an order in which nothing overflows unless the
 * result does. */
struct factors {
	float first, second;
};

DEVICE struct factors factors_of(const float *alpha, int32_t i, float up)
{
	const float x = alpha ? __ldg(alpha + i) : 1;

	return fabsf(x) < 1 ? (struct factors){up * x, 1} : (struct factors){up, x};
}

DEVICE float scale_sum(float sum, const struct factors &f)
{
	return sum * f.first * f.second;
}

/* Rounds two results to the type of C of 16 bits. */
DEVICE uint32_t round_pair(int32_t dtype, float low, float high)
{
	return dtype == 1 ? cvt_f16x2_f32(low, high) : cvt_bf16x2_f32(low, high);
}

/* Stores COUNT results, 4 or 8, of a row of C; `inside` of them exist. */
template <int COUNT>
DEVICE void store_results(void *c, int64_t at, int32_t dtype, int32_t inside,
			  bool by_16, const float (&x)[COUNT])
{
	const bool is_whole = by_16 && inside >= COUNT;

	if (dtype == 0) {
		float *to = (float *)c + at;

#pragma unroll
		for (int i = 0; i < COUNT; i += 4)
			if (is_whole)
				st_global_f32x4(to + i, x + i);
#pragma unroll
		for (int i = 0; i < COUNT; i++)
			if (!is_whole && i < inside)
				to[i] = x[i];
	} else {
		uint16_t *to = (uint16_t *)c + at;
		uint32_t pair[COUNT / 2];

#pragma unroll
		for (int i = 0; i < COUNT / 2; i++)
			pair[i] = round_pair(dtype, x[2 * i], x[2 * i + 1]);
		if (is_whole) {
			if constexpr (COUNT == 8)
				*(uint4 *)to =
				    make_uint4(pair[0], pair[1], pair[2], pair[3]);
			else
				*(uint2 *)to = make_uint2(pair[0], pair[1]);
			return;
		}
#pragma unroll
		for (int i = 0; i < COUNT; i++)
			if (i < inside)
				to[i] = (uint16_t)(pair[i / 2] >> i % 2 * 16);
	}
}

/* Stores a lane's results of row g or g + 8 (half = 0, 1) of an m16 tile. */
template <class TRAITS>
DEVICE void store_row(const struct nib_gemm_args &p, const struct nib_gemm_matrix &x,
		      void *c, int64_t row, int32_t column,
		      const struct factors (&f)[2], const float (&sums)[N8_TILES][4],
		      int half)
{
	float v[TRAITS::C_ELEMS];

#pragma unroll
	for (int i = 0; i < TRAITS::C_ELEMS; i++) {
		v[i] = scale_sum(sums[i / 2][half * 2 + i % 2], f[0]);
		if (TRAITS::IS_DUAL)
			v[i] = silu(v[i]) *
			       scale_sum(sums[2 + i / 2][half * 2 + i % 2], f[1]);
	}
	store_results(c, row * x.c_stride + column, p.dtype, x.n - column,
		      x.flags & NIB_C_BY_16, v);
}

/* Stores a lane's sums of a row, of B and then of B2, for reduce(). */
template <class TRAITS>
DEVICE void store_partials(const struct nib_gemm_args &p, int32_t m, float *to,
			   const float (&sums)[N8_TILES][4], int half)
{
	const int64_t plane = (int64_t)m * p.partial_stride;

#pragma unroll
	for (int i = 0; i < N8_TILES; i += 2) {
		const float x[4] = {sums[i][half * 2], sums[i][half * 2 + 1],
				    sums[i + 1][half * 2], sums[i + 1][half * 2 + 1]};

		st_global_f32x4(to + (TRAITS::IS_DUAL ? i / 2 * plane : i * 2), x);
	}
}

template <class TRAITS>
DEVICE void store_tile(const struct nib_gemm_args &p, const struct tile &tile,
		       const float (&sums)[M16_TILES][N8_TILES][4])
{
	const struct nib_gemm_matrix &x = p.matrices[tile.problem];
	const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int32_t column = tile.unit * TRAITS::UNIT + warp * TRAITS::WARP_ROWS +
			       lane % 4 * TRAITS::C_ELEMS;
	const int32_t expert = p.experts ? tile.matrix : 0;
	const float up = SUM_SCALE(TRAITS::IS_BF16);
	const struct factors f[2] = {
	    factors_of(x.alpha, expert, up),
	    factors_of(TRAITS::IS_DUAL ? x.alpha2 : NULL, expert, up)};
	char *c = (char *)x.c + (p.is_batch ? tile.matrix * p.batch.c : 0);
	float *partials = p.partials + (int64_t)tile.k_slice *
					   (TRAITS::IS_DUAL ? 2 : 1) * x.m *
					   p.partial_stride;

	if (column >= x.n)
		return;
#pragma unroll
	for (int i = 0; i < M16_TILES * 2; i++) {
		const int32_t row = i / 2 * 16 + i % 2 * 8 + lane / 4;

		if (row >= tile.valid)
			continue;
		if (p.k_slices > 1)
			store_partials<TRAITS>(
			    p, x.m,
			    partials + (int64_t)(tile.row + row) * p.partial_stride +
				column,
			    sums[i / 2], i % 2);
		else
			store_row<TRAITS>(p, x, c, tile.first_row + tile.row + row,
					  column, f, sums[i / 2], i % 2);
	}
}

/* ---- sums of split-k slices ----------------------------------------------------- */

/* A thread adds eight sums of a row.  up: SUM_SCALE. */
DEVICE void reduce(const struct nib_gemm_args &p, int is_dual, float up)
{
	const struct nib_gemm_matrix &x = p.matrices[0];
	const int32_t each = p.partial_stride / 8;
	const int64_t i = (int64_t)blockIdx.x * NIB_REDUCE_THREADS + threadIdx.x;
	const int64_t row = i / each, plane = (int64_t)x.m * p.partial_stride;
	const int32_t column = (int32_t)(i % each) * 8, matrices = is_dual ? 2 : 1;
	const float *from = p.partials + row * p.partial_stride + column;
	float sums[2][8] = {};

	if (row >= x.m)
		return;
	for (int32_t slice = 0; slice < p.k_slices; slice++) {
#pragma unroll
		for (int j = 0; j < 2; j++) {
			if (j < matrices) {
				add_global_f32x4(sums[j], from);
				add_global_f32x4(sums[j] + 4, from + 4);
				from += plane;
			}
		}
	}
	const struct factors f = factors_of(x.alpha, 0, up);
	const struct factors f2 = factors_of(is_dual ? x.alpha2 : NULL, 0, up);

#pragma unroll
	for (int j = 0; j < 8; j++) {
		sums[0][j] = scale_sum(sums[0][j], f);
		if (is_dual)
			sums[0][j] = silu(sums[0][j]) * scale_sum(sums[1][j], f2);
	}
	store_results(x.c, row * x.c_stride + column, p.dtype, x.n - column,
		      x.flags & NIB_C_BY_16, sums[0]);
}

#endif
