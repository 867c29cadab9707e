/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_tables.h - fills the tables that the quantise loops look up. */
#ifndef NIB_CPU_QUANTIZE_TABLES_H
#define NIB_CPU_QUANTIZE_TABLES_H

#include "quantize_ops.h"

/* Both need the default floating-point mode (cpu_parallel() gives it). */
void cpu_quantizer_init(struct cpu_quantizer *quantizer, enum nib_dtype dtype,
			float global, enum nib_zero_scale zero_scale,
			enum nib_scales scales);
void cpu_dequantizer_init(struct cpu_dequantizer *table, enum nib_dtype dtype,
			  float global);

#endif
