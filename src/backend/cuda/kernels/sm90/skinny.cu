/* SPDX-License-Identifier: Apache-2.0 */
/* skinny.cu - skinny.cuh and skinny_wide.cuh on Hopper, A of NVFP4. */
#define NIB_ARCH sm90
#include "skinny_wide.cuh"

SKINNY_KERNELS(A_NVFP4, )
WIDE_KERNELS(A_NVFP4, )
