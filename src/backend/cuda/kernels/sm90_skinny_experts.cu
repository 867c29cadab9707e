/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sm90_skinny_experts.cu - the kernels of skinny.cuh for a mixture of experts.
 * Units of eight rows: with 16 all sizes that go here were slower.
 */
#define NIB_ARCH sm90
#include "skinny.cuh"

SKINNY_TYPES(experts_8, 1, B_EXPERTS)
