/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_avx2.h - the parts of the AVX2 quantise functions. */
#ifndef NIB_CPU_QUANTIZE_AVX2_H
#define NIB_CPU_QUANTIZE_AVX2_H

#include "backend/cpu/quantize_ops.h"

/* dequantize_avx2.c: dequantise, stream */
void cpu_dequantize_ops_avx2(struct cpu_quantize_ops *ops);
/* scales_avx2.c: tile, untile */
void cpu_scale_ops_avx2(struct cpu_quantize_ops *ops);

#endif
