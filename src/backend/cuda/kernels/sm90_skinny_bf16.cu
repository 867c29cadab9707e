/* SPDX-License-Identifier: Apache-2.0 */
/* sm90_skinny_bf16.cu - skinny.cuh on Hopper, A of bf16. */
#define NIB_ARCH sm90
#include "skinny.cuh"

SKINNY_KERNELS(A_BF16, _bf16)
