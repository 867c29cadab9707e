/* SPDX-License-Identifier: Apache-2.0 */
/* sm90_quantize.cu - quantize.cuh on Hopper. */
#define NIB_ARCH sm90
#include "quantize.cuh"
