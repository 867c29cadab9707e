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

/* Stores COUNT results, 2 or 4, of a row of C; `inside` of them exist. */
template <int COUNT>
DEVICE void store_results(void *c, int32_t dtype, int32_t inside, bool by_16,
			  const float (&x)[COUNT])
{
	const bool is_whole = by_16 && inside >= COUNT;

	if (dtype == 0) {
		float *to = (float *)c;

		if (!is_whole) {
#pragma unroll
			for (int i = 0; i < COUNT; i++)
				if (i < inside)
					to[i] = x[i];
		} else if constexpr (COUNT == 4) {
			st_global_f32x4(to, x);
		} else {
			*(float2 *)to = make_float2(x[0], x[1]);
		}
	} else {
		uint16_t *to = (uint16_t *)c;
		uint32_t pair[COUNT / 2];

#pragma unroll
		for (int i = 0; i < COUNT / 2; i++)
			pair[i] = round_pair(dtype, x[2 * i], x[2 * i + 1]);
		if (!is_whole) {
#pragma unroll
			for (int i = 0; i < COUNT; i++)
				if (i < inside)
					to[i] = (uint16_t)(pair[i / 2] >> i % 2 * 16);
		} else if constexpr (COUNT == 4) {
			*(uint2 *)to = make_uint2(pair[0], pair[1]);
		} else {
			*(uint32_t *)to = pair[0];
		}
	}
}

/* The address of a lane's next store, and the sizes that it needs. */
struct output {
	char *to; /* of the lane's next row */
	int64_t row_bytes, plane_bytes;
	int32_t dtype;	/* -1: partial sums */
	int32_t inside; /* elements of the row from the lane's first on */
	bool by_16;
	struct factors f[2];
};

template <class TRAITS>
DEVICE struct output output_of(const struct nib_gemm_args &p, const struct tile &tile)
{
	const uint32_t thread = opaque(threadIdx.x);
	const struct nib_gemm_matrix &x = p.matrices[tile.problem];
	const int32_t column = tile.unit * TRAITS::UNIT +
			       thread / 32 * TRAITS::WARP_ROWS +
			       thread % 32 / 4 * TRAITS::C_ELEMS;
	const int32_t row = tile.first_row + tile.row + thread % 4 * 2;
	const int32_t expert = p.experts ? tile.matrix : 0;
	const float up = SUM_SCALE(TRAITS::IS_BF16);
	const int32_t bytes = p.dtype == 0 ? 4 : 2;
	struct output o;

	o.inside = x.n - column;
	o.by_16 = x.flags & NIB_C_BY_16;
	o.dtype = p.dtype;
	o.f[0] = factors_of(x.alpha, expert, up);
	if (TRAITS::IS_DUAL)
		o.f[1] = factors_of(x.alpha2, expert, up);
	if (p.k_slices > 1) {
		o.dtype = -1;
		/* reduce() also reads the padding of a row. */
		o.inside = p.partial_stride - column;
		o.row_bytes = p.partial_stride * 4;
		o.plane_bytes = x.m * o.row_bytes;
		o.to = (char *)p.partials +
		       tile.k_slice * (TRAITS::IS_DUAL ? 2 : 1) * o.plane_bytes +
		       row * o.row_bytes + column * 4;
	} else {
		o.row_bytes = x.c_stride * bytes;
		o.to = (char *)x.c + (p.is_batch ? tile.matrix * p.batch.c : 0) +
		       row * o.row_bytes + column * bytes;
	}
	return o;
}

/* Stores a lane's results of row 2 t or 2 t + 1 (odd = 0, 1) of an n8 tile. */
template <class TRAITS>
DEVICE void store_row(const struct output &o, const float (&sums)[M16_TILES][4],
		      int odd)
{
	float v[TRAITS::C_ELEMS];

	if (o.dtype < 0) {
		const float x[4] = {sums[0][odd], sums[0][2 + odd], sums[1][odd],
				    sums[1][2 + odd]};

		if (TRAITS::IS_DUAL) {
			*(float2 *)o.to = make_float2(x[0], x[1]);
			*(float2 *)(o.to + o.plane_bytes) = make_float2(x[2], x[3]);
		} else {
			st_global_f32x4((float *)o.to, x);
		}
		return;
	}
#pragma unroll
	for (int i = 0; i < TRAITS::C_ELEMS; i++) {
		v[i] = scale_sum(sums[i / 2][i % 2 * 2 + odd], o.f[0]);
		if (TRAITS::IS_DUAL)
			v[i] = silu(v[i]) * scale_sum(sums[1][i * 2 + odd], o.f[1]);
	}
	store_results(o.to, o.dtype, o.inside, o.by_16, v);
}

template <class TRAITS>
DEVICE void store_tile(const struct nib_gemm_args &p, const struct tile &tile,
		       const float (&sums)[N8_TILES][M16_TILES][4])
{
	const int32_t left = tile.valid - (int32_t)(opaque(threadIdx.x) % 4 * 2);
	struct output o = output_of<TRAITS>(p, tile);

	if (o.inside <= 0)
		return;
#pragma unroll
	for (int n = 0; n < N8_TILES; n++) {
		if (n * 8 < left)
			store_row<TRAITS>(o, sums[n], 0);
		o.to += o.row_bytes;
		if (n * 8 + 1 < left)
			store_row<TRAITS>(o, sums[n], 1);
		o.to += 7 * o.row_bytes;
	}
}

/* ---- sums of split-k slices ----------------------------------------------------- */

/* A thread adds four sums of a row.  up: SUM_SCALE. */
DEVICE void reduce(const struct nib_gemm_args &p, int is_dual, float up)
{
	const struct nib_gemm_matrix &x = p.matrices[0];
	const int32_t each = p.partial_stride / 4;
	const int64_t i = (int64_t)blockIdx.x * NIB_REDUCE_THREADS + threadIdx.x;
	const int64_t row = i / each, plane = (int64_t)x.m * p.partial_stride;
	const int32_t column = (int32_t)(i % each) * 4;
	const float *from = p.partials + row * p.partial_stride + column;
	float sums[2][4] = {};

	if (row >= x.m)
		return;
	for (int32_t slice = 0; slice < p.k_slices; slice++) {
		add_global_f32x4(sums[0], from);
		from += plane;
		if (is_dual) {
			add_global_f32x4(sums[1], from);
			from += plane;
		}
	}
	const struct factors f = factors_of(x.alpha, 0, up);
	const struct factors f2 = factors_of(is_dual ? x.alpha2 : NULL, 0, up);

#pragma unroll
	for (int j = 0; j < 4; j++) {
		sums[0][j] = scale_sum(sums[0][j], f);
		if (is_dual)
			sums[0][j] = silu(sums[0][j]) * scale_sum(sums[1][j], f2);
	}
	store_results((char *)x.c +
			  (row * x.c_stride + column) * (p.dtype == 0 ? 4 : 2),
		      p.dtype, x.n - column, x.flags & NIB_C_BY_16, sums[0]);
}

#endif
