/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tile.inc.h - what the arithmetic of a tile (gemm.inc.h, dense.inc.h) and the
 * loops around it (units.inc.h) share: sizes, and where a tile finds its
 * weights.  Parameters: multiply.inc.h.
 */
#include <stdint.h>
#include <string.h>

#include "backend/cpu/chunk.h"
#include "backend/cpu/gemm_ops.h"

#define V_BYTES	    (4 * V_COLS)
#define PANEL_VECS  (PANEL_COLS / V_COLS)
#define TILE_COLS   (TILE_VECS * V_COLS)
#define TILE_PANELS (TILE_COLS / PANEL_COLS)
#define TILE_SUMS   (TILE_ROWS * TILE_COLS)
#define TILE_INLINE static inline __attribute__((always_inline))
/* Loops over registers, which must be unrolled completely. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define UNROLLED(i, n) UNROLL for (int i = 0; i < (n); i++)

/* Weights are prefetched into L2 this far ahead of the arithmetic. */
#define FETCH_BLOCKS (16 * GROUP_BLOCKS)

/* Prefetches one k-block of a panel; returns the address of the next one. */
TILE_INLINE const uint8_t *fetch_block(const uint8_t *fetch)
{
	__builtin_prefetch(fetch, 0, 2);
	__builtin_prefetch(fetch + 64, 0, 2);
	__builtin_prefetch(fetch + 128, 0, 2);
	return fetch + BLOCK_CODES + PANEL_COLS;
}

/*
 * Records of A are prefetched into L1 this many k-blocks ahead.  They are one
 * stream, but those of a chunk of many rows do not fit in L2, and without help
 * the main loop waits for L3.
 */
#define A_BLOCKS_AHEAD 16

/* Prefetches the k-block A_BLOCKS_AHEAD after a, of `bytes` bytes of records. */
TILE_INLINE void fetch_records(const void *a, const int bytes)
{
	/* An integer, because the last ones are past the end of A. */
	const uintptr_t ahead = (uintptr_t)a + A_BLOCKS_AHEAD * (size_t)bytes;

	UNROLLED (line, bytes / 64)
		__builtin_prefetch((const void *)(ahead + 64 * (size_t)line), 0, 3);
}

/* The packed weights that the first row tile of a chunk expands. */
struct source {
	const uint8_t *panels[TILE_PANELS];
	int64_t left; /* blocks to the end of the panels */
};

/*
 * A tile's prefetches for the next chunk: `step` bytes of each panel a k-block.
 * Every row tile fetches a part.  If the first of many tiles fetched all, the
 * weights would have left L2 again by the time they are needed.
 */
struct fetch {
	const uint8_t *panels[TILE_PANELS];
	int64_t step;
};
