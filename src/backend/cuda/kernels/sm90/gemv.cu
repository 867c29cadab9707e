/* SPDX-License-Identifier: Apache-2.0 */
/* gemv.cu - gemv.cuh on Hopper. */
#define NIB_ARCH sm90
#include "backend/cuda/kernels/common/gemv.cuh"

GEMV(1, true, 1, NIB_GEMV_CTAS)
GEMV(2, true, 2, NIB_GEMV_CTAS)
GEMV(4, true, 4, NIB_GEMV_CTAS)
GEMV(1, false, 1_any, NIB_GEMV_CTAS)
GEMV(4, false, 4_any, 3)
NIB_GEMV_EXPERTS_KERNEL(experts_1, 1, nvfp4_side<1, true, false, true>)
NIB_GEMV_EXPERTS_KERNEL(experts_dual_1, 2, nvfp4_side<1, true, false>)
