/* SPDX-License-Identifier: Apache-2.0 */
/* moe_values.cuh - values of a layer of experts that several kernels compute: the
 * expert of a slot, h of gate and up.  The same bits as src/backend/cpu/moe_steps.c. */
#ifndef NIB_MOE_VALUES_CUH
#define NIB_MOE_VALUES_CUH

#include <stdint.h>

#include "device.cuh"

/* The expert of a slot, counted from this device's first one; -1 if it is on another
 * device.  P: any parameters that have ids. */
template <class P>
DEVICE int expert_of(const P &p, int64_t slot)
{
	const int64_t id = p.ids_bytes == 8 ? ((const int64_t *)p.ids)[slot]
					    : ((const int32_t *)p.ids)[slot];
	const uint64_t local = (uint64_t)id - (uint64_t)p.first_expert;

	return local < (uint64_t)p.experts ? (int)local : -1;
}

/*
 * e^x for x <= 0, relative error below 2^-22: the operations of exp_negative() in
 * src/backend/cpu/float_out.inc.h, in the same order and without contraction to fma.
 */
DEVICE float exp_negative(float x)
{
	const float magic = 12582912.0f;
	const float clamped = x > -104.0f ? x : -104.0f;
	const float shifted = __fadd_rn(__fmul_rn(clamped, 1.44269504f), magic);
	const float n = __fsub_rn(shifted, magic);
	const float r = __fsub_rn(__fsub_rn(clamped, __fmul_rn(n, 0.693359375f)),
				  __fmul_rn(n, -2.12194440e-4f));
	const int e = (int)(__float_as_uint(shifted) - __float_as_uint(magic));
	const int half = e >> 1;
	const float taylor[] = {1.38888889e-3f,
				8.33333333e-3f,
				4.16666667e-2f,
				1.66666667e-1f,
				0.5f,
				1.0f,
				1.0f};
	float p = 1.98412698e-4f;

#pragma unroll
	for (int i = 0; i < 7; i++)
		p = __fadd_rn(__fmul_rn(p, r), taylor[i]);
	p = __fmul_rn(p, __uint_as_float((uint32_t)(half + 127) << 23));
	return __fmul_rn(p, __uint_as_float((uint32_t)(e - half + 127) << 23));
}

/* 1 / (1 + e^-z); 0 where e^z underflows. */
DEVICE float sigmoid(float z)
{
	const float e = exp_negative(z > 0.0f ? -z : z);

	return __fdiv_rn(z > 0.0f ? 1.0f : e, __fadd_rn(1.0f, e));
}

DEVICE float at_most(float x, float limit)
{
	return x > limit ? limit : x;
}

/* h of one g and u, by the operations of activate_one() on a CPU.  P: any parameters
 * that have an activation. */
template <class P>
DEVICE float activate_one(const P &p, float g, float u)
{
	float z;

	if (p.activation == 1) {
		g = at_most(g, p.limit);
		u = -at_most(-at_most(u, p.limit), p.limit);
		g = __fmul_rn(g, sigmoid(__fmul_rn(p.swish, g)));
		return __fmul_rn(g, __fadd_rn(u, p.up_bias));
	}
	if (p.activation == 2) {
		z = __fmul_rn(__fmul_rn(__fmul_rn(0.044715f, g), g), g);
		z = __fmul_rn(1.59576912f, __fadd_rn(g, z));
		return __fmul_rn(__fmul_rn(g, sigmoid(z)), u);
	}
	if (p.activation == 3)
		return g < 0.0f ? 0.0f : __fmul_rn(g, g);
	return g;
}

#endif