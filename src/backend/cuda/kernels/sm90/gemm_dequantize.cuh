/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_dequantize.cuh - weights from codes to the A operand of wgmma, in
 * registers (decode.cuh).  A value is e2m1 * scale * 2^-6, or in bf16 * 2^-7, exact;
 * the epilogue multiplies by the inverse (UNSCALE).
 */
#ifndef NIB_GEMM_DEQUANTIZE_CUH
#define NIB_GEMM_DEQUANTIZE_CUH

#include "backend/cuda/kernels/common/decode.cuh"
#include "gemm_shared.cuh"

/* What accumulators are multiplied by. */
#define UNSCALE(a) ((a) == NIB_A_BF16 ? 128.0f : 64.0f)

/*
 * Codes as bf16 times 2^-7 times scale; the parameter scale is 2^119 times that.  As
 * many logic instructions as fp16 needs conversions.  out: codes (0,4), (2,6), (1,5),
 * (3,7).  Not by bf16_pair(), which gives the compiler another order of operations.
 */
DEVICE void dequantize8_bf16(uint32_t codes, uint32_t scale, uint32_t *out)
{
	const uint32_t sign = 0x80008000u, magnitude = 0x01C001C0u;

	out[0] = mul_bf16x2((codes << 12 & sign) | (codes << 6 & magnitude), scale);
	out[1] = mul_bf16x2((codes << 4 & sign) | (codes >> 2 & magnitude), scale);
	out[2] = mul_bf16x2((codes << 8 & sign) | (codes << 2 & magnitude), scale);
	out[3] = mul_bf16x2((codes & sign) | (codes >> 6 & magnitude), scale);
}

/* out as fp16: codes (0,2), (4,6), (1,3), (5,7). */
template <int A>
DEVICE void dequantize(uint32_t codes, uint32_t scale, uint32_t *out)
{
	if constexpr (A == NIB_A_BF16)
		dequantize8_bf16(codes, scale, out);
	else
		decode<false>(codes, scale, out);
}

/*
 * Two e4m3 scales as a pair of factors: fp16; or bf16 times 2^119, which the largest
 * scale, 448, does not overflow.
 */
template <int A>
DEVICE uint32_t scale_pair(uint32_t bytes)
{
	const uint32_t halves = cvt_f16x2_e4m3x2(bytes);

	if constexpr (A == NIB_A_BF16)
		return cvt_bf16x2_f32(low_f32_f16x2(halves) * 0x1p119f,
				      high_f32_f16x2(halves) * 0x1p119f);
	return halves;
}

#endif
