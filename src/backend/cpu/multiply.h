/* SPDX-License-Identifier: Apache-2.0 */
/* multiply.h - declarations shared by weights.c, schedule.c and multiply.c. */
#ifndef NIB_CPU_MULTIPLY_H
#define NIB_CPU_MULTIPLY_H

#include "cpu.h"
#include "format/view.h"

/* The codes of a block whose scale is 0; panels have zeros instead. */
struct cpu_dropped {
	int64_t batch, row, block;
	uint8_t codes[NIB_NVFP4_BLOCK / 2];
};

struct cpu_packed {
	struct nib_packed base;
	int64_t panels;	    /* of one matrix */
	int64_t all_panels; /* of all; 0 if there are no values */
	int64_t panel_stride_bytes;
	/* Both NULL if there are no values. */
	uint8_t *data;
	uint16_t *nan_columns; /* one word for each panel */
	/* The codes that are not 0, for cpu_unpack(); NULL if there are none. */
	struct cpu_dropped *dropped;
	int64_t n_dropped;
};

/* Matrix `batch` of a resolved view. */
static inline struct cpu_rows cpu_rows_of(const struct nib_fp4 *v, int64_t batch)
{
	return (struct cpu_rows){
	    .codes = nib_fp4_row(v, batch, 0),
	    .row_stride_bytes = v->row_stride_bytes,
	    .scales = nib_fp4_scales(v, batch),
	    .scale_layout = v->scale_layout,
	    .scale_row_stride_bytes = v->scale_row_stride_bytes,
	    .rows = v->rows,
	    .blocks = v->k / NIB_NVFP4_BLOCK,
	};
}

#endif
