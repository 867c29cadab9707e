/* SPDX-License-Identifier: Apache-2.0 */
/* gemv_dense.cu - gemv_dense.cuh on Hopper. */
#define NIB_ARCH sm90
#include "backend/cuda/kernels/common/gemv_dense.cuh"

GEMV_DENSE(2, true, 2, NIB_GEMV_CTAS)
GEMV_DENSE(4, true, 4, NIB_GEMV_CTAS)
GEMV_DENSE(4, false, 4_any, 3)
GEMV_DENSE_EXPERTS(experts_2, 1)
GEMV_DENSE_EXPERTS(experts_dual_2, 2)
