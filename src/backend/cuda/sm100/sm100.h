/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sm100.h - products in tiles by Blackwell's kernel (kernels/sm100/gemm.cuh):
 * what a plan keeps.
 *
 *   gemm_cut.c     which tiles, on which clusters
 *   gemm_plan.c    which launches, how their memory is divided
 *   gemm_maps.c    tensor maps: their sizes at the plan, addresses at a run
 *   gemm_stage.c   copies of what tensor maps cannot take
 *   gemm_launch.c  a run
 */
#ifndef NIB_CUDA_SM100_H
#define NIB_CUDA_SM100_H

#include "backend/cuda/common/arch.h"
#include "backend/cuda/common/cuda.h"
#include "backend/cuda/common/tile_plan.h"
#include "backend/cuda/kernels/sm100/stage_params.h"

enum sm100_operand {
	SM100_A,
	SM100_A_SCALES,
	SM100_B,
	SM100_B_SCALES,
	SM100_B2,
	SM100_B2_SCALES,
	SM100_OPERANDS,
};

/* What a map is encoded from, without the address. */
struct sm100_map {
	uint64_t sizes[3], strides_bytes[2];
	uint32_t box[3];
	bool is_scales;
	bool is_used;
	int32_t copy; /* of the launch's staging; -1: no copy */
	size_t at;    /* of the copy in the workspace */
};

/* What the map in a launch's parameters was encoded from; zeros: nothing. */
struct sm100_encoded {
	uintptr_t address;
	uint64_t rows; /* sizes[1] */
};

/* An entry of a launch: the matrices of one problem, or a stack of a batch. */
struct sm100_entry {
	int32_t problem;
	int64_t batch, batches; /* the first, and how many */
	struct sm100_map maps[SM100_OPERANDS];
	struct sm100_encoded encoded[SM100_OPERANDS];
};

/* One launch, of at most NIB_SM100_MANY_PROBLEMS entries or an MoE problem. */
struct sm100_chunk {
	int64_t first; /* of the plan's entries */
	int32_t count;
	int32_t ctas; /* 2: pairs; 1: single CTAs */
	int32_t clusters, shared_bytes;
	int32_t boxes; /* MoE: maps of A, with boxes of 8 << i rows; else 0 */
	/*
	 * MoE: the scales of A where they are, for runs that give the place of each
	 * expert's scales.  is_used: such a run makes no copy, which is the last one of
	 * the staging.
	 */
	struct sm100_map placed;
	size_t first_tile;
	CUfunction multiply, copy;
	/* A run changes only pointers and maps.  For few problems the allocation is
	 * only as large as struct nib_sm100_few, the beginning of struct
	 * nib_sm100_many. */
	struct nib_sm100_many *params;
	struct nib_stage_params *stage; /* NULL: nothing is staged */
};

struct sm100_gemm {
	enum nib_op op;
	bool is_moe;
	struct sm100_entry *entries;
	int64_t n_entries;
	struct sm100_chunk *chunks;
	int64_t n_chunks;
	CUdeviceptr tiles_data; /* of all chunks */
};

/* ---- gemm_plan.c, gemm_cut.c, gemm_launch.c ------------------------------- */

extern const struct cuda_product sm100_tiles;

enum nib_status sm100_clusters(struct cuda_device *device,
			       struct nib_tile_device *clusters, struct nib_error *err);
/* Runs problems or a mixture of experts. */
enum nib_status sm100_gemm_launch(const struct cuda_device *device,
				  const struct cuda_product_plan *product,
				  const struct nib_run *run, struct nib_error *err);

/* ---- gemm_cut.c --------------------------------------------------------- */

/* The alignment of tiles if a problem has several, so that tensor memory can address
 * their scales. */
#define SM100_ALIGN_M 64
/* Rows of B of a unit of the planner (nib_tile_units()). */
#define SM100_UNIT_ROWS (2 * NIB_TILE_N)

/*
 * Cycles of k64 of a tile of `rows` rows of A, for a single CTA (1) or a pair (2).  The
 * costs of cuda_sm100 are those of pairs without a dual product.
 */
double sm100_step_cycles(int32_t ctas, bool dual, int32_t rows);

enum nib_status sm100_find_kernel(struct cuda_device *device, enum nib_op op,
				  int32_t ctas, bool is_few, CUfunction *function,
				  struct nib_error *err);
/* The number of clusters, of `slices` pairs or single CTAs each, that can be resident
 * at once. */
enum nib_status sm100_count(struct cuda_device *device, enum nib_op op, int32_t ctas,
			    int32_t slices, int32_t *clusters, struct nib_error *err);

/* How a chunk is divided: the best of several ways. */
struct sm100_cut {
	int32_t ctas, slices;
	struct nib_tile_plan plan;
	struct nib_gemm_tile *tiles;
	double cycles;
};

/* cut: zeroed by the caller, who frees its tiles, also after a failure. */
enum nib_status sm100_choose_cut(struct cuda_device *device,
				 const struct nib_plan *plan,
				 const struct sm100_gemm *gemm,
				 const struct sm100_chunk *chunk,
				 struct sm100_cut *best, struct nib_error *err);

/* ---- gemm_maps.c -------------------------------------------------------- */

/* The weights or rows of A of a problem: a stack of `matrices`. */
struct sm100_source {
	const struct nib_fp4 *view;
	int64_t matrices;
	/* The padding of packed weights' tiled scales is zero. */
	bool is_packed;
};

/*
 * Sets sizes and strides of the maps of codes and scales.  box_rows: rows of a load of
 * codes; blocks: blocks of a load of scales.  map->copy is 0 if the caller must stage a
 * copy, and the strides are then those of the copy; otherwise it is -1.
 */
void sm100_codes_map(const struct sm100_source *source, int32_t box_rows,
		     struct sm100_map *map);
void sm100_scales_map(const struct sm100_source *source, int32_t blocks,
		      struct sm100_map *map);
/* Whether codes or scales must be copied. */
bool sm100_is_copied(const struct sm100_source *source);
/* The bytes of a staged copy. */
size_t sm100_copy_bytes(const struct sm100_map *map);

/* With the context entered. */
enum nib_status sm100_encode(const struct cuda_device *device,
			     const struct sm100_map *map, uintptr_t address,
			     struct nib_tensor_map *out, struct nib_error *err);

/* ---- gemm_stage.c ------------------------------------------------------- */

/*
 * Adds a copy to the launch's staging, at offset *workspace_bytes of the workspace,
 * which grows by it.  False: no memory.
 */
bool sm100_stage_add(struct sm100_chunk *chunk, const struct sm100_source *source,
		     struct sm100_map *map, size_t *workspace_bytes);
enum nib_status sm100_stage_launch(const struct cuda_device *device,
				   const struct sm100_chunk *chunk, CUstream stream,
				   struct nib_error *err);

#endif
