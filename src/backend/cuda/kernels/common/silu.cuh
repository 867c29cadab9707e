/* SPDX-License-Identifier: Apache-2.0 */
/* silu.cuh - SiLU for all GPU kernels, so that they give the same bits. */
#ifndef NIB_SILU_CUH
#define NIB_SILU_CUH

#include "ptx.cuh"

/* The larger one; NaN if one is NaN. */
DEVICE float max_nan(float x, float y)
{
	float z;

	asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
	return z;
}

/*
 * x / (1 + e^-x), within 8 units of 2^-24 (numerics.md); -0 at -inf, NaN only from NaN.
 * Every x up to -104 gives -0, so x is clamped there: a comparison would compile to a
 * branch, and a warp could not overlap the latencies of several values.
 */
DEVICE float silu(float x)
{
	const float from = max_nan(x, -104.0f);
	const float e = expf(-fabsf(from));

	return from * (from > 0 ? 1.0f : e) * rcp_approx(1.0f + e);
}

#endif
