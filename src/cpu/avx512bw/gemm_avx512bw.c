/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/gemm_ops.h"

void cpu_gemm_ops_avx512bw(struct cpu_gemm_ops *ops)
{
	(void)ops;
}
