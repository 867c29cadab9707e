/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize_avx512vnni.c - what VNNI and VBMI add to quantise and dequantise: no
 * loop here is bound by byte permutes, so all stay those of avx512bw.
 */
#include "backend/cpu/quantize_ops.h"

void cpu_quantize_ops_avx512vnni(struct cpu_quantize_ops *ops)
{
	(void)ops;
}
