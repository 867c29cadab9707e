/* SPDX-License-Identifier: Apache-2.0 */
/* images.c - the kernels of tests that run on the fake driver: only names. */
#include "backend/cuda/common/cuda.h"

/* kernel_d0_sm90 to kernel_d9_sm90 */
#define ONE(number) "kernel_" number "_sm90 "
#define FIVE(a, b)  ONE(a "0") ONE(a "1") ONE(a "2") ONE(a "3") ONE(a "4") b
#define OTHERS(a)   ONE(a "5") ONE(a "6") ONE(a "7") ONE(a "8") ONE(a "9")
#define TEN(a)	    FIVE(a, OTHERS(a))
#define FORTY	    TEN("1") TEN("2") TEN("3") TEN("4")

/* What both architectures have. */
#define SHARED(arch)                                                                   \
	"nib_amax_" arch " nib_quantize_" arch " nib_quantize_search_" arch            \
	" nib_dequantize_" arch " nib_convert_scales_" arch " nib_expert_rows_" arch   \
	" nib_moe_begin_" arch " nib_moe_route_" arch " nib_moe_gather_" arch          \
	" nib_moe_quantize_" arch " nib_moe_activate_" arch                            \
	" nib_moe_activate_few_" arch " nib_moe_combine_" arch " nib_probe_read_" arch \
	" nib_probe_cycles_" arch " nib_probe_multiply_" arch " nib_gemv_2_" arch      \
	" nib_gemv_4_" arch

#define HOPPER                                                                         \
	"missing_one_sm90 nib_gemv_1_sm90 nib_gemv_1_any_sm90 "                        \
	"nib_gemv_4_any_sm90 nib_gemm_sm90 nib_dual_sm90 nib_gemm_small_m_sm90 "       \
	"nib_dual_small_m_sm90 nib_gemm_medium_m_sm90 "                                \
	"nib_dual_medium_m_sm90 nib_activations_sm90 "                                 \
	"nib_gemv_2_f16_sm90 nib_gemv_4_f16_sm90 nib_gemv_4_any_f16_sm90 "             \
	"nib_gemv_2_bf16_sm90 nib_gemv_4_bf16_sm90 "                                   \
	"nib_gemv_4_any_bf16_sm90 nib_skinny_8_sm90 nib_skinny_8_any_sm90 "            \
	"nib_skinny_16_sm90 nib_skinny_16_any_sm90 "                                   \
	"nib_skinny_32_sm90 nib_skinny_32_any_sm90 "                                   \
	"nib_skinny_64_sm90 nib_skinny_64_any_sm90 "                                   \
	"nib_gemv_experts_1_sm90 nib_gemv_experts_dual_1_sm90 "

/* A of fp16 and bf16. */
#define HOPPER_DENSE                                                                   \
	"nib_activations_f16_sm90 nib_activations_bf16_sm90 "                          \
	"nib_gemm_bf16_sm90 nib_dual_bf16_sm90 nib_gemm_small_m_bf16_sm90 "            \
	"nib_dual_small_m_bf16_sm90 nib_gemm_medium_m_bf16_sm90 "                      \
	"nib_dual_medium_m_bf16_sm90 "                                                 \
	"nib_skinny_8_f16_sm90 nib_skinny_16_f16_sm90 "                                \
	"nib_skinny_8_any_f16_sm90 nib_skinny_16_any_f16_sm90 "                        \
	"nib_skinny_32_f16_sm90 nib_skinny_64_f16_sm90 "                               \
	"nib_skinny_32_any_f16_sm90 nib_skinny_64_any_f16_sm90 "                       \
	"nib_skinny_32_bf16_sm90 nib_skinny_64_bf16_sm90 "                             \
	"nib_skinny_32_any_bf16_sm90 nib_skinny_64_any_bf16_sm90 "                     \
	"nib_skinny_8_bf16_sm90 nib_skinny_16_bf16_sm90 "                              \
	"nib_skinny_8_any_bf16_sm90 nib_skinny_16_any_bf16_sm90 "                      \
	"nib_skinny_experts_8_sm90 nib_skinny_experts_8_f16_sm90 "                     \
	"nib_skinny_experts_8_bf16_sm90 "                                              \
	"nib_gemv_experts_2_f16_sm90 nib_gemv_experts_2_bf16_sm90 "                    \
	"nib_gemv_experts_dual_2_f16_sm90 nib_gemv_experts_dual_2_bf16_sm90 "

/* The mma kernels of a type of A. */
#define MMA(type)                                                                      \
	"nib_mma_experts_8_3" type "_sm90 nib_mma_experts_8_4" type                    \
	"_sm90 nib_mma_experts_16_3" type "_sm90 nib_mma_experts_32_3" type            \
	"_sm90 nib_mma_dual_8_4" type "_sm90 nib_mma_dual_16_3" type                   \
	"_sm90 nib_mma_dual_32_3" type "_sm90 "

#define BLACKWELL                                                                      \
	"nib_gemm_pair_few_sm100 nib_gemm_pair_many_sm100 "                            \
	"nib_gemm_single_few_sm100 nib_gemm_single_many_sm100 "                        \
	"nib_dual_pair_few_sm100 nib_dual_pair_many_sm100 "                            \
	"nib_dual_single_few_sm100 nib_dual_single_many_sm100 "                        \
	"nib_stage_sm100 nib_gemv_8_sm100 nib_gemv_2_any_sm100 "                       \
	"nib_gemv_8_any_sm100 "

static const struct cuda_image images[] = {
    {"sm90_first 1-2 kernel_of_first_sm90", "cubin only kernel_of_first_sm90"},
    {"sm100_first 5-6 kernel_of_first_sm100", "cubin only kernel_of_first_sm100"},
    {"sm90_second 3-4 " FORTY HOPPER HOPPER_DENSE MMA("") MMA("_f16") MMA("_bf16")
	 SHARED("sm90"),
     "cubin"},
    {"sm100_second 7-8 " BLACKWELL SHARED("sm100"), "cubin"},
    {NULL, NULL},
};
const struct cuda_image *cuda_images = images;
