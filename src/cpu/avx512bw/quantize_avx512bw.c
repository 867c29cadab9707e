/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_avx512bw.c - quantise and dequantise with avx512bw. */
#include "cpu/quantize_ops.h"

void cpu_quantize_ops_avx512bw(struct cpu_quantize_ops *ops)
{
	(void)ops;
}
