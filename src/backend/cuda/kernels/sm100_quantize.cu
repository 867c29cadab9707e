/* SPDX-License-Identifier: Apache-2.0 */
/* sm100_quantize.cu - quantize.cuh on Blackwell, which converts e2m1 itself. */
#define NIB_ARCH sm100
#define NIB_HAS_E2M1
#include "quantize.cuh"
