/* SPDX-License-Identifier: Apache-2.0 */
/* gemv_dense.cu - gemv_dense.cuh on Hopper. */
#define NIB_ARCH sm90
#include "gemv_dense.cuh"
