/* SPDX-License-Identifier: Apache-2.0 */
/* skinny_bf16.cu - skinny.cuh and skinny_wide.cuh on Hopper, A of bf16. */
#define NIB_ARCH sm90
#include "skinny_wide.cuh"

SKINNY_KERNELS(A_BF16, _bf16)
WIDE_KERNELS(A_BF16, _bf16)
