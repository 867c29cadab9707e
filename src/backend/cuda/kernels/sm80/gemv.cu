/* SPDX-License-Identifier: Apache-2.0 */
/* gemv.cu - gemv.cuh on Ampere and Ada, without experts. */
#define NIB_ARCH sm80
#include "backend/cuda/kernels/common/gemv.cuh"

GEMV(1, true, 1, NIB_GEMV_CTAS)
GEMV(2, true, 2, NIB_GEMV_CTAS)
GEMV(4, true, 4, NIB_GEMV_CTAS)
GEMV(1, false, 1_any, NIB_GEMV_CTAS)
GEMV(4, false, 4_any, 3)
