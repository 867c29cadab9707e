/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_avx2.c - quantise and dequantise with avx2. */
#include "cpu/quantize_ops.h"

void cpu_quantize_ops_avx2(struct cpu_quantize_ops *ops)
{
	(void)ops;
}
