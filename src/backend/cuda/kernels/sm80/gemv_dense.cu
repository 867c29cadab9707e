/* SPDX-License-Identifier: Apache-2.0 */
/* gemv_dense.cu - gemv_dense.cuh on Ampere and Ada, without experts. */
#define NIB_ARCH sm80
#include "backend/cuda/kernels/common/gemv_dense.cuh"

GEMV_DENSE(2, true, 2, NIB_GEMV_CTAS)
GEMV_DENSE(4, true, 4, NIB_GEMV_CTAS)
GEMV_DENSE(4, false, 4_any, 3)
