/* SPDX-License-Identifier: Apache-2.0 */
/* skinny_f16.cu - skinny.cuh and skinny_wide.cuh on Hopper, A of fp16. */
#define NIB_ARCH sm90
#include "skinny_wide.cuh"

SKINNY_KERNELS(A_F16, _f16)
WIDE_KERNELS(A_F16, _f16)
