/* SPDX-License-Identifier: Apache-2.0 */
/* silu.cuh - SiLU for all GPU kernels, so that they give the same bits. */
#ifndef NIB_SILU_CUH
#define NIB_SILU_CUH

#include "ptx.cuh"

/*
 * x / (1 + e^-x), within 8 units of 2^-24 (numerics.md); -0 at -inf, NaN only
 * from NaN.
 */
DEVICE float silu(float x)
{
	const float e = expf(-fabsf(x));

	return x < -104.0f ? -0.0f : x * (x > 0 ? 1.0f : e) * rcp_approx(1.0f + e);
}

#endif
