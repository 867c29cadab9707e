/* SPDX-License-Identifier: Apache-2.0 */
/* images.c - the kernels of tests that run on the fake driver: names alone. */
#include "backend/cuda/cuda.h"

/* kernel_d0 to kernel_d9 */
#define TEN(d)                                                                 \
	"kernel_" d "0 kernel_" d "1 kernel_" d "2 kernel_" d "3 kernel_" d    \
	"4 kernel_" d "5 kernel_" d "6 kernel_" d "7 kernel_" d "8 kernel_" d  \
	"9 "

static const struct cuda_image images[] = {
    {"first 1-2 kernel_of_first", "cubin only kernel_of_first"},
    {"second 3-4 " TEN("1") TEN("2") TEN("3") TEN(
	 "4") "missing_one nib_gemm_sm90 nib_dual_sm90 nib_gemm_small_m_sm90 "
	      "nib_dual_small_m_sm90 nib_gemm_medium_m_sm90 nib_dual_medium_m_sm90 "
	      "nib_activations_sm90 "
	      "nib_sm90_amax nib_sm90_quantize nib_sm90_dequantize "
	      "nib_sm90_convert_scales nib_sm90_expert_rows nib_sm90_probe_read "
	      "nib_sm90_probe_multiply "
	      "nib_sm90_probe_cycles nib_sm90_gemv_1 nib_sm90_gemv_2 nib_sm90_gemv_4 "
	      "nib_sm90_gemv_1_any nib_sm90_gemv_4_any",
     "cubin"},
    {NULL, NULL},
};
const struct cuda_image *cuda_images = images;
