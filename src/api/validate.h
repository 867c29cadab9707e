/* SPDX-License-Identifier: Apache-2.0 */
/*
 * validate.h - every check of every argument.  Each function looks at one
 * thing, writes a copy with strides and batch resolved (no zeros mean anything
 * below), and names the argument, its value and the rule when it refuses.
 */
#ifndef NIB_VALIDATE_H
#define NIB_VALIDATE_H

#include <stdbool.h>

#include "core/error.h"
#include "nibblas.h"

/* Where a view's bytes lie: [begin, end); empty if it has no elements. */
struct nib_span {
	uintptr_t begin, end;
};

/* Sizes, strides and layout; no pointer is looked at.  in may be out. */
enum nib_status nib_valid_nvfp4(const struct nib_nvfp4 *in,
				struct nib_nvfp4 *out, struct nib_label label,
				struct nib_error *err);
enum nib_status nib_valid_dense(const struct nib_dense *in,
				struct nib_dense *out, struct nib_label label,
				struct nib_error *err);

/* Resolved views whose elements are about to be touched: pointers, no wrap. */
enum nib_status nib_valid_nvfp4_data(const struct nib_nvfp4 *v,
				     struct nib_label label,
				     struct nib_error *err);
enum nib_status nib_valid_dense_data(const struct nib_dense *v,
				     struct nib_label label,
				     struct nib_error *err);

/* Spans of resolved views. */
struct nib_span nib_codes_span(const struct nib_nvfp4 *v);
struct nib_span nib_scale_span(const struct nib_nvfp4 *v);
struct nib_span nib_dense_span(const struct nib_dense *v);
bool nib_spans_overlap(struct nib_span a, struct nib_span b);
/* The names are those of the arguments. */
enum nib_status nib_check_apart(struct nib_span a, const char *a_name,
				struct nib_span b, const char *b_name,
				struct nib_error *err);

/*
 * Views of valid data whose spans cross may still have no byte in common: side
 * by side in the rows of one wider matrix, or each row of a batch beside the
 * other's.  Anything else counts as overlap.
 */
bool nib_dense_overlap(const struct nib_dense *x, const struct nib_dense *y);
bool nib_scales_overlap_codes(const struct nib_nvfp4 *v);

/* NIB_BAD_DATA naming the first scale with its sign bit set. */
enum nib_status nib_valid_scale_signs(const struct nib_nvfp4 *v,
				      struct nib_label label,
				      struct nib_error *err);

/* The same for rows first .. end-1 of one batch, which may be beyond v->rows.
 */
enum nib_status nib_valid_row_signs(const struct nib_nvfp4 *v, int64_t batch,
				    int64_t first, int64_t end,
				    struct nib_label label,
				    struct nib_error *err);

/*
 * Problems: sizes that fit each other for op, packed weights of device (NULL:
 * packed weights are refused).  out, count long, receives the resolved copies
 * (b of packed weights holds their sizes and no pointers).
 */
enum nib_status nib_valid_problems(enum nib_op op,
				   const struct nib_device *device,
				   const struct nib_problem *problems,
				   int64_t count, struct nib_problem *out,
				   struct nib_error *err);
enum nib_status nib_valid_problem(enum nib_op op,
				  const struct nib_device *device,
				  const struct nib_problem *problem,
				  int64_t index, struct nib_problem *out,
				  struct nib_error *err);
enum nib_status nib_valid_moe(enum nib_op op, const struct nib_device *device,
			      const struct nib_moe_problem *moe,
			      struct nib_moe_problem *out,
			      struct nib_error *err);

/* Pointers and overlaps of one resolved problem, and of all outputs together.
 */
enum nib_status nib_valid_problem_data(enum nib_op op,
				       const struct nib_problem *problem,
				       int64_t index, struct nib_error *err);
enum nib_status nib_valid_outputs(enum nib_op op,
				  const struct nib_problem *problems,
				  int64_t count, struct nib_error *err);
/* Reads row_offsets and scale_rows: for backends whose data is host memory. */
enum nib_status nib_valid_moe_offsets(const struct nib_moe_problem *moe,
				      struct nib_error *err);
enum nib_status nib_valid_moe_data(enum nib_op op,
				   const struct nib_moe_problem *moe,
				   struct nib_error *err);

/* Scale signs of the views of one resolved problem whose data is valid. */
enum nib_status nib_valid_problem_signs(enum nib_op op,
					const struct nib_problem *problem,
					int64_t index, struct nib_error *err);
enum nib_status nib_valid_moe_signs(enum nib_op op,
				    const struct nib_moe_problem *moe,
				    struct nib_error *err);

/* 2*m*n*k, and bytes of inputs and outputs once, of a resolved problem. */
double nib_problem_flop(enum nib_op op, const struct nib_problem *problem);
double nib_problem_bytes(enum nib_op op, const struct nib_problem *problem);

#endif
