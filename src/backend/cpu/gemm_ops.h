/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_ops.h - the multiplication functions of an instruction set.  An item is one
 * matrix product (of a group, a batch or an expert).  A unit is a rectangle of its
 * output, multiplied by one thread.
 */
#ifndef NIB_CPU_GEMM_OPS_H
#define NIB_CPU_GEMM_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"
#include "nibblas.h"

/* Panels in a unit: 64 columns. */
#define UNIT_PANELS 4
#define UNIT_COLS   (UNIT_PANELS * PANEL_COLS)
/* Columns of a wide unit, whose chunks of A are read from L2 twice as often. */
#define WIDE_COLS (2 * UNIT_COLS)

/* Rows of NVFP4 in the caller's order. */
struct cpu_rows {
	const uint8_t *codes;
	int64_t row_stride_bytes;
	const uint8_t *scales;
	enum nib_scale_layout scale_layout;
	int64_t scale_row_stride_bytes; /* NIB_SCALE_LAYOUT_LINEAR */
	int64_t scale_row;		/* row 0's row of the scale tensor */
	int64_t rows;
	int64_t blocks; /* k / 16 */
};

/* Rows of floats in the caller's order. */
struct cpu_dense_rows {
	const uint8_t *data;
	int64_t row_stride_bytes;
	enum nib_dtype dtype;
};

/* One weight matrix: panels, or rows that each unit packs for itself. */
struct cpu_weights {
	const uint8_t *panels; /* NULL: use rows */
	int64_t panel_stride_bytes;
	/* Bit n of word p: column 16p + n has a NaN scale. */
	const uint16_t *nan_columns;
	struct cpu_rows rows;
};

/* The whole row is NaN. */
#define CPU_ROW_NAN 1
/* Values whose products with codes, without scales, may leave the range of fp32. */
#define CPU_ROW_WIDE 2

struct cpu_item {
	int64_t m, n, blocks;
	/* A is a, or x where the activations are not NVFP4. */
	enum nib_activations activations;
	struct cpu_rows a;
	struct cpu_dense_rows x;
	struct cpu_weights b[2];
	/* A power of two: kernels compute sum * sum_factor. */
	float sum_factor;
	float alpha[2];
	char *c;
	int64_t c_row_stride_bytes;
	enum nib_dtype dtype;
	/* A in the backend's order (pack_rows), and the CPU_ROW_ flags of each row. */
	union {
		struct cpu_record *records;
		void *packed_a;
	};
	uint8_t *row_flags;
	/* The functions that multiply it: the plan's, or those for few rows. */
	const struct cpu_gemm_ops *ops;
	/* The division into units of unit_rows rows and unit_cols columns. */
	int64_t unit_rows, unit_cols, row_units, col_units, first_unit;
};

struct cpu_gemm_ops {
	/* Items of at most few_rows rows are multiplied by these functions; else NULL
	 * and -1. */
	const struct cpu_gemm_ops *few;
	int64_t few_rows;
	/* Bytes of k16 of a row of A in the backend's order, where the k-blocks of a
	 * row are rounded up to a multiple of record_blocks; the rows of a tile. */
	size_t record_bytes;
	int64_t record_blocks;
	int64_t tile_rows;
	/* Up to this m, weights are decoded in registers (by the functions for few
	 * rows, if there are any).  0: the set has no such pass. */
	int64_t direct_rows;
	/* Whether multiply() accepts units of WIDE_COLS columns. */
	bool has_wide_units;
	/* Scratch of one thread for units of at most unit_rows rows. */
	size_t (*scratch_bytes)(int64_t unit_rows, bool dual);
	/* Converts rows m0 .. m0+rows-1 of A into item->packed_a and row_flags. */
	void (*pack_rows)(const struct cpu_item *item, int64_t m0, int64_t rows);
	/*
	 * Packs columns n0 .. n0+15 (those that exist) and `blocks` k-blocks from
	 * block0 on into a panel of as many blocks.  Returns which columns have a NaN
	 * scale.
	 */
	uint16_t (*pack_panel)(const struct cpu_rows *b, int64_t n0, int64_t block0,
			       int64_t blocks, uint8_t *panel);
	/* Multiplies the unit at row m0, column n0: sums, epilogue, output.  n0 is a
	 * multiple of item->unit_cols. */
	void (*multiply)(const struct cpu_item *item, bool dual, int64_t m0, int64_t n0,
			 void *scratch);
};

void cpu_gemm_ops_scalar(struct cpu_gemm_ops *ops);
void cpu_gemm_ops_neon(struct cpu_gemm_ops *ops);
void cpu_gemm_ops_neondot(struct cpu_gemm_ops *ops);
void cpu_gemm_ops_neoni8mm(struct cpu_gemm_ops *ops);
void cpu_gemm_ops_avx2(struct cpu_gemm_ops *ops);
void cpu_gemm_ops_avxvnni(struct cpu_gemm_ops *ops);
void cpu_gemm_ops_avx512bw(struct cpu_gemm_ops *ops);
void cpu_gemm_ops_avx512vnni(struct cpu_gemm_ops *ops);
void cpu_gemm_ops_avx512vnni_products(struct cpu_gemm_ops *ops);
/* Replaces functions of ops; few: those for few rows. */
void cpu_gemm_ops_amx(struct cpu_gemm_ops *ops, const struct cpu_gemm_ops *few);
void cpu_dense_ops_amx(struct cpu_gemm_ops *ops, const struct cpu_gemm_ops *few);

/* W4A16 and W4A32: for x of any type; by vdpbf16ps or bfmmla for bf16 only. */
void cpu_dense_ops_scalar(struct cpu_gemm_ops *ops);
void cpu_dense_ops_neon(struct cpu_gemm_ops *ops);
void cpu_dense_ops_neonbf16(struct cpu_gemm_ops *ops);
void cpu_dense_ops_avx2(struct cpu_gemm_ops *ops);
void cpu_dense_ops_avx512bw(struct cpu_gemm_ops *ops);
void cpu_dense_ops_avx512bf16(struct cpu_gemm_ops *ops);

#endif
