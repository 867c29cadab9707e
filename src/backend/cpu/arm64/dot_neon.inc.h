/* SPDX-License-Identifier: Apache-2.0 */
/* dot_neon.inc.h - dot_block() of codes_neon.inc.h by sdot. */
static inline __attribute__((always_inline)) float32x4_t
dot_block(float32x4_t d, const int8x16_t b[4], int8x16_t a)
{
	int32x4_t dot = vreinterpretq_s32_f32(d);

	dot = vdotq_laneq_s32(dot, b[0], a, 0);
	dot = vdotq_laneq_s32(dot, b[1], a, 1);
	dot = vdotq_laneq_s32(dot, b[2], a, 2);
	dot = vdotq_laneq_s32(dot, b[3], a, 3);
	return vreinterpretq_f32_s32(dot);
}
