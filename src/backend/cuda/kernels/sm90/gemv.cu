/* SPDX-License-Identifier: Apache-2.0 */
/* gemv.cu - gemv.cuh on Hopper. */
#define NIB_ARCH sm90
#include "gemv.cuh"
