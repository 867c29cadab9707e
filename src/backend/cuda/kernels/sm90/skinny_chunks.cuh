/* SPDX-License-Identifier: Apache-2.0 */
/*
 * skinny_chunks.cuh - codes to values of A's type, and the chunks of A of
 * skinny.cuh: loaded, put into the order of the codes, stored in shared memory.
 */
#ifndef NIB_SKINNY_CHUNKS_CUH
#define NIB_SKINNY_CHUNKS_CUH

#include "backend/cuda/kernels/common/ptx_mma16.cuh"
#include "gemv_load.cuh"
#include "ptx_wgmma.cuh"
#include "skinny_rounds.cuh"

/*
 * Codes in place in bf16 are 2^-126 times their values: scales get most of the
 * inverse, of which 448 times as much still is a number.
 */
#define BF16_CODES 0x1p119f
/* A sum is 1 / WEIGHT_SCALE of its value. */
#define WEIGHT_SCALE(is_bf16) ((is_bf16) ? 128 : 64)
/* 64 twice in fp16. */
#define F16_64 0x54005400u
/* ---- codes --------------------------------------------------------------- */

/* Codes i and i + 4 as bf16 in place: sign, and exponent and fraction. */
DEVICE uint32_t bf16_pair(uint32_t sign, uint32_t magnitude)
{
	return (sign & 0x80008000u) | (magnitude & 0x01C001C0u);
}

/* Eight codes times their scale in A's type, 1 / WEIGHT_SCALE of the values. */
template <bool IS_BF16>
DEVICE void decode(uint32_t q, uint32_t scale, uint32_t w[4])
{
	if constexpr (IS_BF16) {
		w[0] = mul_bf16x2(bf16_pair(q << 12, q << 6), scale);
		w[1] = mul_bf16x2(bf16_pair(q << 8, q << 2), scale);
		w[2] = mul_bf16x2(bf16_pair(q << 4, q >> 2), scale);
		w[3] = mul_bf16x2(bf16_pair(q, q >> 6), scale);
	} else {
		/* As e4m3, whose exponent has another bias. */
		const uint32_t even = (q << 4 & 0x80808080u) | (q << 2 & 0x1C1C1C1Cu);
		const uint32_t odd = (q & 0x80808080u) | (q >> 2 & 0x1C1C1C1Cu);

		w[0] = mul_f16x2(cvt_f16x2_e4m3x2(even), scale);
		w[1] = mul_f16x2(cvt_f16x2_e4m3x2_high(even), scale);
		w[2] = mul_f16x2(cvt_f16x2_e4m3x2(odd), scale);
		w[3] = mul_f16x2(cvt_f16x2_e4m3x2_high(odd), scale);
	}
}

/* Scales of rows g and g + 8, the two low bytes of x, each twice in A's type. */
template <bool IS_BF16>
DEVICE void widen_scales(uint32_t x, uint32_t s[2])
{
	const uint32_t both = cvt_f16x2_e4m3x2(x);

	if constexpr (IS_BF16) {
		const float a = low_f32_f16x2(both), b = high_f32_f16x2(both);

		s[0] = cvt_bf16x2_f32(a * BF16_CODES, a * BF16_CODES);
		s[1] = cvt_bf16x2_f32(b * BF16_CODES, b * BF16_CODES);
	} else {
		s[0] = low_halves(both);
		s[1] = high_halves(both);
	}
}

/* ---- chunks of A --------------------------------------------------------- */

/*
 * Eight elements in the order in which decode() gives codes: fp16 (0, 2), (4,
 * 6), (1, 3), (5, 7), bf16 (0, 4), (1, 5), (2, 6), (3, 7).
 */
template <bool IS_BF16>
DEVICE uint4 in_order_of_codes(uint4 x)
{
	const uint32_t low = 0x5410, high = 0x7632;

	if (IS_BF16)
		return make_uint4(prmt(x.x, x.z, low), prmt(x.x, x.z, high),
				  prmt(x.y, x.w, low), prmt(x.y, x.w, high));
	return make_uint4(prmt(x.x, x.y, low), prmt(x.z, x.w, low),
			  prmt(x.x, x.y, high), prmt(x.z, x.w, high));
}

/* Eight elements at any address. */
DEVICE uint4 load_elements(const uint8_t *from)
{
	const uint16_t *x = (const uint16_t *)from;
	uint32_t word[4];

#pragma unroll
	for (int i = 0; i < 4; i++)
		word[i] = x[2 * i] | (uint32_t)x[2 * i + 1] << 16;
	return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Four bytes at any address. */
DEVICE uint32_t load_bytes(const uint8_t *from)
{
	return from[0] | from[1] << 8 | from[2] << 16 | (uint32_t)from[3] << 24;
}

/* NaN of e4m3. */
#define NO_SCALE 0x7Fu

/* A's scale of a block of a row, which is -1 if there is none. */
template <class V>
DEVICE uint32_t load_scale(const struct nib_gemv_params &p,
			   const struct nib_gemv_operand &a, int row, int block)
{
	const int64_t columns = (p.k / 16 + 3) / 4;

	if (V::IS_MOE && row < 0)
		return NO_SCALE;
	if (!a.is_tiled)
		return a.scales[row * a.scale_row_stride + block];
	return a.scales[(row / 128 * columns + block / 4) * 512 + row % 32 * 16 +
			row % 128 / 32 * 4 + block % 4];
}

/* Eight NVFP4 values of a row, from k on: their codes, and the scale in y. */
template <class V>
DEVICE uint4 load_nvfp4(const struct nib_gemv_params &p,
			const struct nib_gemv_operand &a, const struct cta &c, int row,
			int k)
{
	const uint8_t *from = a.codes + row * a.row_stride + k / 2;
	uint4 x = make_uint4(0, 0, 0, 0);

	x.x = V::ALIGNED ? *(const uint32_t *)from : load_bytes(from);
	x.y = load_scale<V>(p, a, V::IS_MOE ? c.scale_rows[row] : row, k / 16);
	return x;
}

/* A lane's eight values of each row of a step; zeros outside of A. */
template <class V>
DEVICE void load_chunk(const struct nib_gemv_params &p,
		       const struct nib_gemv_operand &a, const struct cta &c,
		       const struct round_step &s, uint4 (&x)[V::M])
{
	const int k = s.step * NIB_GEMV_STEP + threadIdx.x % 32 * 8;

#pragma unroll
	for (int i = 0; i < V::M; i++) {
		const int row = V::IS_MOE ? s.at.row + i : i;
		const uint8_t *from = a.codes + row * a.row_stride + (int64_t)k * 2;

		x[i] = make_uint4(0, 0, 0, 0);
		/* k is a multiple of 16. */
		if (i >= s.at.rows || k >= p.k)
			continue;
		if (V::IS_NVFP4)
			x[i] = load_nvfp4<V>(p, a, c, row, k);
		else
			x[i] = V::ALIGNED ? *(const uint4 *)from : load_elements(from);
	}
}

/* What load_chunk() loaded, as decode() gives codes. */
template <class V>
DEVICE uint4 piece_of(uint4 x)
{
	uint32_t w[4], s[2];

	if constexpr (V::IS_NVFP4) {
		widen_scales<false>(x.y, s);
		decode<false>(x.x, mul_f16x2(s[0], F16_64), w);
		return make_uint4(w[0], w[1], w[2], w[3]);
	}
	return in_order_of_codes<V::IS_BF16>(x);
}

/*
 * A chunk is made of pieces of 16 bytes, eight k of a row, in the order in
 * which lanes read them: eights of rows, 64 k, halves of a block, rows, lanes
 * of a quad.
 */
template <class V>
DEVICE void store_chunk(uint32_t chunk, const uint4 (&x)[V::M])
{
	const int lane = threadIdx.x % 32;
	const uint32_t to =
	    chunk + lane / 8 * 1024 + lane % 2 * 512 + lane / 2 % 4 * 16;

#pragma unroll
	for (int row = 0; row < V::M; row++)
		sts_128(to + row / 8 * 4096 + row % 8 * 64, piece_of<V>(x[row]));
	__syncwarp();
}

/* The chunks behind the first ones, of all rounds. */
template <class V>
DEVICE void bring_chunks(const struct nib_skinny_params &q,
			 const struct nib_gemv_operand &a, const struct cta &c)
{
	const int steps = all_steps(q.p);
	const int bringer = threadIdx.x / 32 - NIB_SKINNY_WARPS;
	struct round_step s = {round_at<V>(q, c, c.tile), V::CHUNKS + bringer};

	find_step<V>(q, c, steps, &s);
#pragma unroll 1
	for (int i = V::CHUNKS + bringer; s.at.count > 0; i += NIB_SKINNY_BRINGERS) {
		const int chunk = i % V::CHUNKS;
		uint4 x[V::M];

		load_chunk<V>(q.p, a, c, s, x);
		wait(empty<V>(c.shared, chunk), i / V::CHUNKS % 2 ^ 1);
		store_chunk<V>(c.shared + V::CHUNKS_AT + chunk * V::CHUNK_BYTES, x);
		mbarrier_arrive(full<V>(c.shared, chunk));
		s.step += NIB_SKINNY_BRINGERS;
		find_step<V>(q, c, steps, &s);
	}
}

#endif
