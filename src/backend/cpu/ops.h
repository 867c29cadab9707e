/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.h - the functions that differ between instruction sets.  scalar fills
 * every entry; each wider set overwrites what it does better.  No entry is NULL
 * and every set gives the same bits, except that vdpbf16ps sums in an order of
 * its own.
 */
#ifndef NIB_CPU_OPS_H
#define NIB_CPU_OPS_H

#include <stdbool.h>

#include "gemm_ops.h"
#include "quantize_ops.h"

/* Narrowest first: a level implies those before it. */
enum cpu_isa {
	CPU_SCALAR,
	CPU_AVX2,     /* avx2 fma f16c */
	CPU_AVX512BW, /* avx512 f bw dq vl */
	CPU_AVX512,   /* avx512bw + vnni vbmi */
	CPU_ISA_COUNT,
};

struct cpu_ops {
	struct cpu_gemm_ops gemm;
	/* W4A16 and W4A32, by the type of x. */
	struct cpu_gemm_ops dense[CPU_DTYPES];
	struct cpu_quantize_ops quantize;
};

/* Fills ops for isa, which the machine must have. */
void cpu_ops_init(struct cpu_ops *ops, enum cpu_isa isa);
/* CPU_AVX512 with vdpbf16ps for x of bf16, if the machine has it. */
void cpu_ops_use_bf16(struct cpu_ops *ops);

#endif
