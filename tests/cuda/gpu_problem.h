/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_problem.h - products with random operands on the CPU and the GPU, for the
 * programs that need a GPU.  Padding and gaps have NaN scales, outputs are NaN, and
 * guard bands surround every buffer.
 */
#ifndef NIB_TESTS_GPU_PROBLEM_H
#define NIB_TESTS_GPU_PROBLEM_H

#include "gpu_common.h"

struct gpu_item {
	enum nib_op op;
	struct gpu_sizes a, b, b2, c; /* c: rows m, k holds n */
	/* A is x of these sizes unless it is NVFP4. */
	enum nib_activations activations;
	struct gpu_sizes x;
	bool packed, no_alpha;
	int64_t nan_row, nan_col; /* of the first matrix; -1: none */
};

/* The same problem on both sides. */
struct gpu_memory {
	struct gpu_twin a[2], b[2], b2[2]; /* codes, scales */
	struct gpu_twin c, alpha, x;
	struct nib_packed *packed, *packed2;
};

enum nib_scale_layout gpu_any_layout(void);
/* Weights of any layout, with a gap after the rows now and then. */
struct gpu_sizes gpu_any_weights(int64_t n, int64_t k, int64_t batch);
/* All but the sizes is random. */
struct gpu_item gpu_any_item(enum nib_op op, int64_t m, int64_t n, int64_t k,
			     int64_t batch, int64_t b_batch);
/* The same item with A as dense values of that type, and gaps that tensor maps
 * take. */
void gpu_make_dense(struct gpu_item *x, enum nib_dtype dtype);
void gpu_name_item(const struct gpu_item *x, const char *what, char *name,
		   size_t bytes);

struct gpu_memory gpu_memory_new(const struct gpu_item *x);
/* Gives every input other contents; packed weights keep theirs but for codes
 * that they share. */
void gpu_memory_fill(const struct gpu_item *x, const struct gpu_memory *m);
void gpu_memory_free(struct gpu_memory *m);
/* side: gpu_host_of or gpu_device_of. */
struct nib_problem gpu_problem(const struct gpu_item *x, const struct gpu_memory *m,
			       void *(*side)(const struct gpu_twin *));

/* Codes and scales, not filled; their matrices as packed weights. */
void gpu_operand_new(const struct gpu_sizes *s, struct gpu_twin *t);
struct nib_packed *gpu_pack(const struct gpu_sizes *s, const struct gpu_twin *t);
/* Fills the device's side with this byte. */
void gpu_poison(const struct gpu_twin *t, int byte);
/* True if inputs and what is around them have not changed. */
bool gpu_is_unchanged(const struct gpu_twin *t);
bool gpu_inputs_unchanged(const struct gpu_memory *m);
/* alpha and alpha2 of count problems. */
void gpu_fill_alpha(const struct gpu_twin *t);

#endif
