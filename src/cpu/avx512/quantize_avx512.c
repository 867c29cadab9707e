/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_avx512.c - quantise and dequantise with avx512. */
#include "cpu/quantize_ops.h"

void cpu_quantize_ops_avx512(struct cpu_quantize_ops *ops)
{
	(void)ops;
}
