/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dense_neonbf16.c - W4A16 for bf16 with FEAT_BF16: tiles by bfmmla, few rows by bfdot.
 * A value of a weight has at most six significant bits, so it is exact in bf16.
 *
 * Both instructions add the two products of a pair, then the pair to the sum.  Each
 * addition rounds to odd, takes subnormal inputs as zero and flushes subnormal results
 * (FPCR.EBF is 0 in a run: float_mode_arm64.h), so that all processors give the same
 * bits.  docs/numerics.md, section 9, has the bound.
 *
 * A block of a tile of 4 rows and 16 columns takes 64 bfmmla, 16 cycles of four pipes;
 * fp32 takes 272 fused multiply-adds, 68 cycles.
 */
#include "backend/cpu/gemm_ops.h"

#include "backend/cpu/vector128.inc.h"

#define CPU_GEMM_OPS		  cpu_dense_ops_neonbf16
#define DENSE_A			  1
#define ROW_STEP		  4
#define DIRECT_STEP(rows)	  ((rows) <= 2 ? 2 : 1)
#define WORDS			  8
#define PACK_BLOCK(x, dtype, out) pack_quads(x, out)
#define DENSE_TILES		  "backend/cpu/arm64/bf16_tiles_neon.inc.h"

typedef struct cpu_bf16_record record;
typedef bfloat16x8_t vword;

#include "backend/cpu/arm64/bf16_codes_neon.inc.h"

// clang-format off
/* load_e4m3() gives 1/256 of them, load_pairs() 1/128 of the values. */
#define block_scales(bytes) mul_float(load_e4m3(bytes), set_float(32768.0f))
#define dot_step(dot, w, a) dot_pairs(dot, w, &(a))
// clang-format on

/* dot + the products of a pair of k of each column with the pair at a. */
static inline __attribute__((always_inline)) float32x4_t
dot_pairs(float32x4_t dot, bfloat16x8_t w, const int32_t *a)
{
	return vbfdotq_f32(dot, w, vreinterpretq_bf16_s32(vld1q_dup_s32(a)));
}

/* Pair i of four of the 8 k. */
static inline __attribute__((always_inline)) bfloat16x8_t decode(vcodes codes, int i)
{
	return vreinterpretq_bf16_u32(codes.nibble[i / 2].half[i % 2]);
}

/*
 * Whether a magnitude (bits without the sign) is below 2^-110 or at least 2^121.
 * Products with 1/128 of a value, and sums of them, may be flushed to zero before a
 * large scale is applied; the sum of a block of large ones may overflow before a small
 * scale is.
 */
static inline uint16x8_t leaves_range(uint16x8_t x)
{
	const uint16x8_t size = vandq_u16(x, vdupq_n_u16(0x7fff));
	/* Differences of zeros and of smaller numbers wrap around. */
	const uint16x8_t is_small =
	    vcltq_u16(vsubq_u16(size, vdupq_n_u16(1)), vdupq_n_u16(0x0880 - 1));
	const uint16x8_t is_large = vcltq_u16(vsubq_u16(size, vdupq_n_u16(0x7c00)),
					      vdupq_n_u16(0x7f80 - 0x7c00));

	return vorrq_u16(is_small, is_large);
}

/* The quads k = 0 2 4 6, 1 3 5 7, and those of the last 8 k. */
static inline uint8_t pack_quads(const uint8_t *x, struct cpu_bf16_record *out)
{
	const uint16x8_t v[2] = {vreinterpretq_u16_u8(vld1q_u8(x)),
				 vreinterpretq_u16_u8(vld1q_u8(x + 16))};
	const uint16x8_t wide = vorrq_u16(leaves_range(v[0]), leaves_range(v[1]));

	for (int z = 0; z < 2; z++)
		vst1q_s32(out->word + 4 * z,
			  vreinterpretq_s32_u16(
			      vcombine_u16(vget_low_u16(vuzp1q_u16(v[z], v[z])),
					   vget_low_u16(vuzp2q_u16(v[z], v[z])))));
	return vmaxvq_u16(wide) ? CPU_ROW_WIDE : 0;
}

#include "backend/cpu/multiply.inc.h"
