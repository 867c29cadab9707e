/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_params.h - the parameters of the vector kernels (gemv.cuh, gemv_dense.cuh)
 * of Ampere to Hopper, and the sizes that host and kernels share.
 */
#ifndef NIB_GEMV_PARAMS_H
#define NIB_GEMV_PARAMS_H

#include "gemv_operand.h"

/* Threads of a CTA; its warps share the k of a tile of rows. */
#define NIB_GEMV_WARPS	 4
#define NIB_GEMV_THREADS (32 * NIB_GEMV_WARPS)
/* The most rows of A of the vector kernels. */
#define NIB_GEMV_MAX_ROWS 4
#ifndef NIB_GEMV_STAGES
#define NIB_GEMV_STAGES 3
#endif
/* Codes and scales of a stage. */
#define NIB_GEMV_STAGE_BYTES (NIB_GEMV_TILE_ROWS * (NIB_GEMV_STEP / 16) * 9)
#define NIB_GEMV_RING_BYTES  (NIB_GEMV_WARPS * NIB_GEMV_STAGES * NIB_GEMV_STAGE_BYTES)
/* The most tiles of one CTA. */
#define NIB_GEMV_MAX_TILES 16
/* CTAs for which an SM has registers. */
#define NIB_GEMV_CTAS 4
/* k of A in shared memory at a time. */
#define NIB_GEMV_PHASE(m) ((m) <= 2 ? 16384 : 32768 / (m))

/* The same for dense rows of A, which have 32 KiB. */
#define NIB_GEMV_DENSE_PHASE(rows) (16384 / (rows))
/* Bytes of zeros in shared memory, for lanes whose column is not theirs. */
#define NIB_GEMV_DENSE_ZEROS 160

/*
 * A product.  The vector kernels have only these parameters; those of the other kernels
 * begin with them.  Grid: x = CTAs of one matrix, y = batches.
 */
struct nib_gemv_params {
	struct nib_gemv_operand a, b;
	const float *alpha; /* NULL = 1 */
	void *c;
	int64_t c_row_stride, c_batch_stride; /* elements */
	int64_t n;
	int32_t m, k; /* m is at most the M of the variant */
	int32_t c_dtype;
	/* Tiles of b, and the most of them that a CTA of the vector kernels has. */
	int32_t tiles, tiles_per_cta;
	/* No kernel writes b, so it may be loaded before the previous kernel has
	 * ended. */
	int32_t b_is_constant;
};

/* A mixture of experts; b is the stack of their weights. */
struct nib_gemv_experts {
	int32_t experts, rows, scale_rows_total;
	const int32_t *row_offsets, *scale_rows;
};

/* k of a row of A in shared memory: that of a phase, rounded up to the step. */
NIB_GEMV_FN int64_t nib_gemv_kept(int64_t k, int m)
{
	const int64_t phase = NIB_GEMV_PHASE(m);
	const int64_t whole = (k + NIB_GEMV_STEP - 1) / NIB_GEMV_STEP * NIB_GEMV_STEP;

	return whole < phase ? whole : phase;
}

/* Rows of a dense A that a CTA keeps in shared memory. */
NIB_GEMV_FN int nib_gemv_dense_rows(int m)
{
	return m <= 2 ? m : 4;
}

/* nib_gemv_kept() for dense rows. */
NIB_GEMV_FN int64_t nib_gemv_dense_kept(int64_t k, int rows)
{
	const int64_t phase = NIB_GEMV_DENSE_PHASE(rows);
	const int64_t whole = (k + NIB_GEMV_STEP - 1) / NIB_GEMV_STEP * NIB_GEMV_STEP;

	return whole < phase ? whole : phase;
}

/* Bytes from a dense row in shared memory to the next, offset by half of the banks. */
NIB_GEMV_FN uint32_t nib_gemv_dense_pitch(int64_t kept)
{
	return (uint32_t)kept * 2 + 64;
}

/* Dynamic shared memory: ring, zeros, partial sums, codes and scales of a. */
NIB_GEMV_FN int64_t nib_gemv_shared_bytes(int64_t k, int m, int tiles_per_cta)
{
	return NIB_GEMV_RING_BYTES + 128 +
	       (int64_t)tiles_per_cta * NIB_GEMV_WARPS * NIB_GEMV_TILE_ROWS * m * 4 +
	       nib_gemv_kept(k, m) * m * 5 / 4;
}

/* The same with dense rows; variant_m: the M of the kernel. */
NIB_GEMV_FN int64_t nib_gemv_dense_shared_bytes(int64_t k, int m, int variant_m,
						int tiles_per_cta)
{
	const int rows = nib_gemv_dense_rows(m);

	return NIB_GEMV_RING_BYTES + NIB_GEMV_DENSE_ZEROS + 32 +
	       (int64_t)tiles_per_cta * NIB_GEMV_WARPS * NIB_GEMV_TILE_ROWS *
		   variant_m * 4 +
	       (int64_t)nib_gemv_dense_pitch(nib_gemv_dense_kept(k, rows)) * rows;
}

#endif
