/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sm100_bed.h - plans of products in tiles on a B200 of the fake driver: their
 * operands, which are addresses alone, and checks of what a run launches.
 */
#ifndef NIB_TESTS_SM100_BED_H
#define NIB_TESTS_SM100_BED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/kernels/sm100/stage_params.h"
#include "fake_bed.h"
#include "nibblas.h"

#define BED_PROBLEMS 40

struct bed {
	struct fake_cuda *fake;
	struct nib_device *device;
	uintptr_t space, next;
	struct nib_problem problems[BED_PROBLEMS];
	int count;
	enum nib_op op;
	struct nib_plan *plan;
	size_t workspace_bytes;
	uintptr_t workspace;
	struct nib_error err;
};

/* The operands of one problem. */
struct size {
	int64_t m, n, k, batch;
	bool shares_b;
	enum nib_scale_layout layout;
	int64_t more; /* of each stride */
	enum nib_dtype dtype;
};

int64_t bed_round_to(int64_t a, int64_t step);

void bed_make(struct bed *bed);
void bed_free(struct bed *bed);

/* Addresses of the GPU for so many bytes; nothing is behind them. */
void *bed_reserve(struct bed *bed, int64_t bytes);
/* more: of each stride beyond a dense one. */
struct nib_fp4 bed_nvfp4(struct bed *bed, int64_t rows, int64_t k, int64_t batch,
			 enum nib_scale_layout layout, int64_t more);
/* One more problem. */
void bed_add(struct bed *bed, const struct size *s);

/* All problems; finish: a workspace for a plan that was made elsewhere. */
void bed_plan(struct bed *bed, enum nib_op op);
void bed_finish_plan(struct bed *bed);
struct nib_run_options bed_run_options(const struct bed *bed);
/* Returns how many kernels were launched. */
int bed_run(struct bed *bed);

/* ---- checks of the last launch -------------------------------------------- */

int bed_ctas_of(const struct bed *bed);
/* Sizes, attributes and how memory is divided. */
void bed_check_launch(const struct bed *bed, const struct nib_sm100_args *args);

struct fake_map bed_map_of(const struct nib_tensor_map *map);
/* The copy that was made there, within the workspace; NULL: none. */
const struct nib_stage_copy *bed_copy_at(const struct bed *bed, uintptr_t address);
/* An operand's map: direct if TMA can, else of a copy of that operand. */
void bed_check_codes(const struct bed *bed, const struct nib_fp4 *v, int64_t matrices,
		     int32_t box, const struct nib_tensor_map *encoded);
void bed_check_scales(const struct bed *bed, const struct nib_fp4 *v, int64_t matrices,
		      int32_t blocks, const struct nib_tensor_map *encoded);
/* Copies lie apart, one behind the other. */
void bed_check_copies(const struct bed *bed);

/* All of it, where one launch has all problems that have elements. */
void bed_check_last(const struct bed *bed);

#endif
