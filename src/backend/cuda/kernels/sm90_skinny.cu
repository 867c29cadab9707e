/* SPDX-License-Identifier: Apache-2.0 */
/* sm90_skinny.cu - the kernels of skinny.cuh for one matrix, or a batch. */
#define NIB_ARCH sm90
#include "skinny.cuh"

SKINNY_TYPES(8, 1, B_ALIGNED)
SKINNY_TYPES(8_any, 1, B_ANY)
SKINNY_TYPES(16, 2, B_ALIGNED)
SKINNY_TYPES(16_any, 2, B_ANY)
