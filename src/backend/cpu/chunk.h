/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk.h - the order in which a unit uses its weights: chunks of k of one column tile.
 */
#ifndef NIB_CPU_CHUNK_H
#define NIB_CPU_CHUNK_H

#include "backend/cpu/gemm_ops.h"

struct cpu_chunk {
	int64_t n0; /* of the unit */
	int b;	    /* 0: B, 1: B2 */
	int64_t k0, blocks;
	int64_t col; /* of the tile, in the unit */
};

static inline void cpu_set_chunk_blocks(const struct cpu_item *item,
					struct cpu_chunk *chunk)
{
	const int64_t most = cpu_chunk_blocks(item->blocks);
	const int64_t left = item->blocks - chunk->k0;

	chunk->blocks = left < most ? left : most;
}

static inline struct cpu_chunk cpu_first_chunk(const struct cpu_item *item, int64_t n0)
{
	struct cpu_chunk chunk = {.n0 = n0};

	cpu_set_chunk_blocks(item, &chunk);
	return chunk;
}

/*
 * The next chunk.  After the unit's last chunk it is the first of the unit to the
 * right, which may be past the item.
 */
static inline struct cpu_chunk cpu_next_chunk(const struct cpu_item *item, bool dual,
					      int64_t tile_cols, struct cpu_chunk chunk)
{
	chunk.col += tile_cols;
	if (chunk.col >= item->unit_cols || chunk.n0 + chunk.col >= item->n) {
		chunk.col = 0;
		chunk.k0 += chunk.blocks;
	}
	if (chunk.k0 >= item->blocks && chunk.col == 0) {
		chunk.k0 = 0;
		chunk.b++;
	}
	if (chunk.b > dual)
		return cpu_first_chunk(item, chunk.n0 + item->unit_cols);
	cpu_set_chunk_blocks(item, &chunk);
	return chunk;
}

#endif
