/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c - which function runs on which instruction set. */
#include "ops.h"

#include "features.h"

/* One set of functions for x of every type. */
static void set_dense(struct cpu_ops *ops, void (*fill)(struct cpu_gemm_ops *ops))
{
	for (int dtype = 0; dtype < CPU_DTYPES; dtype++)
		fill(&ops->dense[dtype]);
}

/* Everything but tiles, which differ by the kind of A. */
static void init_vectors(struct cpu_ops *ops, enum cpu_isa isa)
{
	cpu_gemm_ops_scalar(&ops->gemm);
	set_dense(ops, cpu_dense_ops_scalar);
	cpu_quantize_ops_scalar(&ops->quantize);
#if defined(__x86_64__)
	if (isa < CPU_AVX2)
		return;
	cpu_gemm_ops_avx2(&ops->gemm);
	set_dense(ops, cpu_dense_ops_avx2);
	cpu_quantize_ops_avx2(&ops->quantize);
	if (isa == CPU_AVXVNNI)
		cpu_gemm_ops_avxvnni(&ops->gemm);
	if (isa < CPU_AVX512BW)
		return;
	cpu_gemm_ops_avx512bw(&ops->gemm);
	set_dense(ops, cpu_dense_ops_avx512bw);
	cpu_quantize_ops_avx512bw(&ops->quantize);
	if (isa < CPU_AVX512VNNI)
		return;
	if (cpu_prefers_scale_table())
		cpu_gemm_ops_avx512vnni(&ops->gemm);
	else
		cpu_gemm_ops_avx512vnni_products(&ops->gemm);
	cpu_quantize_ops_avx512vnni(&ops->quantize);
#elif defined(__aarch64__)
	if (isa < CPU_NEON)
		return;
	cpu_gemm_ops_neon(&ops->gemm);
	set_dense(ops, cpu_dense_ops_neon);
	cpu_quantize_ops_neon(&ops->quantize);
	if (isa < CPU_NEONDOT)
		return;
	cpu_gemm_ops_neondot(&ops->gemm);
	if (isa < CPU_NEONI8MM)
		return;
	cpu_gemm_ops_neoni8mm(&ops->gemm);
	if (isa < CPU_NEONBF16)
		return;
	cpu_dense_ops_neonbf16(&ops->dense[NIB_DTYPE_BF16]);
#else
	(void)isa;
#endif
}

void cpu_ops_init(struct cpu_ops *ops, enum cpu_isa isa)
{
	init_vectors(ops, isa);
	/* A that is rounded to 8 bits has the records of NVFP4. */
	ops->int8 = ops->gemm;
#if defined(__x86_64__)
	if (isa < CPU_AMX)
		return;
	ops->few_gemm = ops->gemm;
	ops->few_dense = ops->dense[NIB_DTYPE_BF16];
	cpu_gemm_ops_amx(&ops->gemm, &ops->few_gemm);
	cpu_dense_ops_amx(&ops->dense[NIB_DTYPE_BF16], &ops->few_dense);
#endif
}

void cpu_ops_use_bf16(struct cpu_ops *ops)
{
#if defined(__x86_64__)
	cpu_dense_ops_avx512bf16(&ops->dense[NIB_DTYPE_BF16]);
#else
	(void)ops;
#endif
}
