/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.h - the functions that differ between instruction sets.  scalar fills every
 * entry; each wider set overwrites those that it has faster functions for.  No entry is
 * NULL.  Every set gives the same bits, except that vdpbf16ps and amx sum in other
 * orders.
 */
#ifndef NIB_CPU_OPS_H
#define NIB_CPU_OPS_H

#include "features.h"
#include "gemm_ops.h"
#include "quantize_ops.h"

struct cpu_ops {
	struct cpu_gemm_ops gemm; /* W4A4 */
	struct cpu_gemm_ops int8; /* W4A8 */
	/* W4A16 and W4A32, by the type of x. */
	struct cpu_gemm_ops dense[CPU_DTYPES];
	/* For few rows, where gemm and dense[NIB_DTYPE_BF16] refer to them. */
	struct cpu_gemm_ops few_gemm, few_dense;
	struct cpu_quantize_ops quantize;
};

/* Fills ops, which must not be moved, for isa, which the machine must have. */
void cpu_ops_init(struct cpu_ops *ops, enum cpu_isa isa);
/* CPU_AVX512VNNI with vdpbf16ps for x of bf16, if the machine has it. */
void cpu_ops_use_bf16(struct cpu_ops *ops);

#endif
