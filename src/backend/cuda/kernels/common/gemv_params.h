/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv_params.h - what the host hands to the GEMV kernels, and the numbers that
 * both sides must agree on.
 */
#ifndef NIB_GEMV_PARAMS_H
#define NIB_GEMV_PARAMS_H

#include <stdint.h>

#ifdef __CUDACC__
#define NIB_GEMV_FN static inline __host__ __device__
#else
#define NIB_GEMV_FN static inline
#endif

/* Threads of a CTA; its warps share the k of a tile of rows. */
#define NIB_GEMV_WARPS	 4
#define NIB_GEMV_THREADS (32 * NIB_GEMV_WARPS)
/* Rows of A that the vector kernels take at most. */
#define NIB_GEMV_MAX_ROWS 4
/* Rows of b that a CTA multiplies at a time. */
#define NIB_GEMV_TILE_ROWS 16
/* k of one stage of a warp's ring. */
#define NIB_GEMV_STEP 256
#ifndef NIB_GEMV_STAGES
#define NIB_GEMV_STAGES 3
#endif
/* Codes and scales of a stage. */
#define NIB_GEMV_STAGE_BYTES (NIB_GEMV_TILE_ROWS * (NIB_GEMV_STEP / 16) * 9)
#define NIB_GEMV_RING_BYTES  (NIB_GEMV_WARPS * NIB_GEMV_STAGES * NIB_GEMV_STAGE_BYTES)
/* Most tiles that one CTA may take one after the other. */
#define NIB_GEMV_MAX_TILES 16
/* CTAs that an SM has registers for. */
#define NIB_GEMV_CTAS 4
/* The k of a that a CTA keeps at a time. */
#define NIB_GEMV_PHASE(m) ((m) <= 2 ? 16384 : 32768 / (m))

/* The same of dense rows of A, of which 32 KiB are kept. */
#define NIB_GEMV_DENSE_PHASE(rows) (16384 / (rows))
/* Zeros beside them. */
#define NIB_GEMV_DENSE_ZEROS 160

/*
 * An NVFP4 operand in device memory, strides in bytes.  A dense A has its
 * elements in the place of codes, and no scales.
 */
struct nib_gemv_operand {
	const uint8_t *codes, *scales;
	int64_t row_stride, batch_stride;
	int64_t scale_row_stride, scale_batch_stride;
	int32_t is_tiled;
	/* 16, 4 or 1: what codes, scales and their strides are multiples of. */
	int16_t codes_align, scales_align;
};

/* Grid: x = ctas of one matrix, y = batches. */
struct nib_gemv_params {
	struct nib_gemv_operand a, b;
	const float *alpha; /* NULL = 1 */
	void *c;
	int64_t c_row_stride, c_batch_stride; /* elements */
	int64_t n;
	int32_t m, k; /* m is at most the M of the variant */
	int32_t c_dtype;
	/* 16-row tiles of b, and how many of them a CTA takes. */
	int32_t tiles, tiles_per_cta;
	/* No kernel writes b: it may be read before the one before has ended. */
	int32_t b_is_constant;
};

/*
 * Tiles of n rows: NIB_SCALE_LAYOUT_TILED_128X4 counts whole 128-row blocks, of which a tile
 * takes the 16 rows whose scales are neighbours.
 */
NIB_GEMV_FN int64_t nib_gemv_tiles(int64_t n, int is_tiled)
{
	return is_tiled ? (n + 127) / 128 * 8
			: (n + NIB_GEMV_TILE_ROWS - 1) / NIB_GEMV_TILE_ROWS;
}

/* Row of b that is row r < 16 of a tile; may be n or more. */
NIB_GEMV_FN int64_t nib_gemv_row(int64_t tile, int r, int is_tiled)
{
	if (is_tiled)
		return tile / 8 * 128 + tile % 8 * 4 + r / 4 + r % 4 * 32;
	return tile * NIB_GEMV_TILE_ROWS + r;
}

/* k of a phase, rounded up to the step: what is kept of each row of A. */
NIB_GEMV_FN int64_t nib_gemv_kept(int64_t k, int m)
{
	const int64_t phase = NIB_GEMV_PHASE(m);
	const int64_t whole = (k + NIB_GEMV_STEP - 1) / NIB_GEMV_STEP * NIB_GEMV_STEP;

	return whole < phase ? whole : phase;
}

/* Rows of a dense A of m rows that a CTA keeps. */
NIB_GEMV_FN int nib_gemv_dense_rows(int m)
{
	return m <= 2 ? m : 4;
}

/* As nib_gemv_kept(), of dense rows. */
NIB_GEMV_FN int64_t nib_gemv_dense_kept(int64_t k, int rows)
{
	const int64_t phase = NIB_GEMV_DENSE_PHASE(rows);
	const int64_t whole = (k + NIB_GEMV_STEP - 1) / NIB_GEMV_STEP * NIB_GEMV_STEP;

	return whole < phase ? whole : phase;
}

/* Bytes from a kept dense row to the next: half of the banks further. */
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
