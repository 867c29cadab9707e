/* SPDX-License-Identifier: Apache-2.0 */
/*
 * validate.h - checks of whole problems and their data, and of arguments that several
 * functions have: devices, streams, options.  core/view.h checks single views.
 */
#ifndef NIB_VALIDATE_H
#define NIB_VALIDATE_H

#include "core/view.h"
#include "nibblas.h"

/* NIB_STATUS_BAD_DATA naming the first scale with its sign bit set. */
enum nib_status nib_valid_scale_signs(const struct nib_fp4 *v, struct nib_label label,
				      struct nib_error *err);

/* The same for rows first .. end-1 of one batch, which may be beyond v->rows.
 */
enum nib_status nib_valid_row_signs(const struct nib_fp4 *v, int64_t batch,
				    int64_t first, int64_t end, struct nib_label label,
				    struct nib_error *err);

/*
 * Problems: sizes that fit each other for op, packed weights of device (NULL:
 * packed weights are refused).  out, count long, receives the resolved copies
 * (b of packed weights holds their sizes and no pointers).
 */
enum nib_status nib_valid_problems(enum nib_op op, const struct nib_device *device,
				   const struct nib_problem *problems, int64_t count,
				   struct nib_problem *out, struct nib_error *err);
enum nib_status nib_valid_problem(enum nib_op op, const struct nib_device *device,
				  const struct nib_problem *problem, int64_t index,
				  struct nib_problem *out, struct nib_error *err);
enum nib_status nib_valid_moe(enum nib_op op, const struct nib_device *device,
			      const struct nib_moe_problem *moe,
			      struct nib_moe_problem *out, struct nib_error *err);

/* Whether plans of the device may use these packed weights. */
bool nib_reads_packed(const struct nib_device *device, const struct nib_packed *packed);

/*
 * Resolves weights that are a view or, if packed is not NULL, packed for device
 * (NULL: packed ones are refused).  out has only the sizes of packed weights.
 * packed_field: the name of packed in messages.
 */
enum nib_status nib_valid_weights(const struct nib_device *device,
				  const struct nib_fp4 *view,
				  const struct nib_packed *packed, struct nib_fp4 *out,
				  struct nib_label label, const char *packed_field,
				  struct nib_error *err);

/* Whether two resolved views have the same sizes, strides and type. */
bool nib_same_fp4(const struct nib_fp4 *x, const struct nib_fp4 *y);
bool nib_same_dense(const struct nib_dense *x, const struct nib_dense *y);

/*
 * Whether a global scale is zero, or positive with 6 * global, the largest value
 * at scale 1, finite.
 */
bool nib_is_global(float global);

/* NIB_STATUS_BAD_ARGUMENT if device is NULL. */
enum nib_status nib_check_device(const struct nib_device *device,
				 struct nib_error *err);

/* Checks device, then copies options (NULL: zeros) and checks their stream. */
enum nib_status nib_read_call_options(const struct nib_device *device,
				      const struct nib_call_options *options,
				      struct nib_call_options *ours,
				      struct nib_error *err);

/* NIB_STATUS_BAD_ARGUMENT if a backend without streams is given one. */
enum nib_status nib_check_stream(const struct nib_device *device, const void *stream,
				 const char *name, struct nib_error *err);

/* Checks and resolves the dense view called name: pointer, sizes and data. */
enum nib_status nib_resolve_dense(const struct nib_dense *in, struct nib_dense *out,
				  const char *name, struct nib_error *err);

/* Pointers and overlaps of one resolved problem; of several: outputs.h. */
enum nib_status nib_valid_problem_data(enum nib_op op,
				       const struct nib_problem *problem, int64_t index,
				       struct nib_error *err);
/* Refuses an output c that overlaps `in`.  lc, li: their names in messages. */
enum nib_status nib_check_disjoint(struct nib_span c, struct nib_label lc,
				   struct nib_span in, struct nib_label li,
				   struct nib_error *err);
/* Reads row_offsets and scale_rows: for backends whose data is host memory. */
enum nib_status nib_valid_moe_offsets(const struct nib_moe_problem *moe,
				      struct nib_error *err);
enum nib_status nib_valid_moe_data(enum nib_op op, const struct nib_moe_problem *moe,
				   struct nib_error *err);

/* Scale signs of the views of one resolved problem whose data is valid. */
enum nib_status nib_valid_problem_signs(enum nib_op op,
					const struct nib_problem *problem,
					int64_t index, struct nib_error *err);
enum nib_status nib_valid_moe_signs(enum nib_op op, const struct nib_moe_problem *moe,
				    struct nib_error *err);

/* 2*m*n*k, and bytes of inputs and outputs once, of a resolved problem. */
double nib_problem_flop(enum nib_op op, const struct nib_problem *problem);
double nib_problem_bytes(enum nib_op op, const struct nib_problem *problem);

#endif
