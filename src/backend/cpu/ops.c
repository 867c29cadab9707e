/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c - which function runs on which instruction set. */
#include "ops.h"

void cpu_ops_init(struct cpu_ops *ops, enum cpu_isa isa)
{
	cpu_gemm_ops_scalar(&ops->gemm);
	cpu_quantize_ops_scalar(&ops->quantize);
#if defined(__x86_64__)
	if (isa < CPU_AVX2)
		return;
	cpu_gemm_ops_avx2(&ops->gemm);
	cpu_quantize_ops_avx2(&ops->quantize);
	if (isa < CPU_AVX512BW)
		return;
	cpu_gemm_ops_avx512bw(&ops->gemm);
	cpu_quantize_ops_avx512bw(&ops->quantize);
	if (isa < CPU_AVX512)
		return;
	cpu_gemm_ops_avx512(&ops->gemm);
	cpu_quantize_ops_avx512(&ops->quantize);
#else
	(void)isa;
#endif
}
