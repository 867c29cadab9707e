/* SPDX-License-Identifier: Apache-2.0 */
/*
 * products.c - MUL_MAT and MUL_MAT_ID of NVFP4 weights by activations of fp32, by
 * nibblas's W4A8: activations are rounded to 8 bits in blocks of 16, as ggml's own
 * product rounds them in blocks of 32 (numerics.md, section 8), so that the error
 * is not above ggml's.
 *
 *   MUL_MAT     src1 (a view) --plan of [m, n, k]--> dst (a view), for each matrix
 *   MUL_MAT_ID  ids --count, prefix sum--> rows of each expert; src1 --gather-->
 *               rows --plan of MoE--> results --scatter--> dst
 *
 * Plans are kept by their sizes, so that a token allocates nothing once its sizes
 * were seen; they share one workspace.
 */
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

/* Plans of a stream: a model has few sizes, and prompts are of any length. */
#define PLANS 64

/* All that a plan depends on. */
struct sizes {
	int64_t m, n, k, experts;   /* experts: 0 for MUL_MAT */
	int64_t x_stride, c_stride; /* elements */
	int64_t is_packed;
};

struct kept {
	struct sizes sizes;
	struct nib_plan *plan;
	size_t workspace_bytes;
	uint64_t used; /* number of the last call that used it; 0: no plan */
};

struct scratch {
	void *data;
	size_t bytes;
};

struct nib_ggml_products {
	struct nib_device *device;
	struct kept kept[PLANS];
	uint64_t clock;
	/* Workspace of all plans; gathered rows; results; offsets and rows of slots. */
	struct scratch workspace, rows, results, places;
};

static enum nib_status no_memory(size_t bytes, struct nib_error *err)
{
	snprintf(err->message, sizeof(err->message), "no memory (%zu bytes)", bytes);
	return NIB_STATUS_OUT_OF_MEMORY;
}

/* ---- threads -------------------------------------------------------------- */

/* Copies the path of ggml's loaded CPU backend, whose threads are OpenMP's. */
static int find_cpu_backend(struct dl_phdr_info *info, size_t size, void *path)
{
	const char *file = strrchr(info->dlpi_name, '/');

	(void)size;
	if (!file || strncmp(file, "/libggml-cpu", 12) != 0 ||
	    strlen(info->dlpi_name) >= PATH_MAX)
		return 0;
	strcpy(path, info->dlpi_name);
	return 1;
}

/*
 * Opens the CPU on the OpenMP threads that ggml's CPU backend has, so that not two
 * sets of threads compete for the cores; on threads of its own where ggml was built
 * without OpenMP.
 */
static enum nib_status open_device(int threads, struct nib_device **device,
				   struct nib_error *err)
{
	struct nib_device_options options = {.struct_bytes = sizeof(options),
					     .threads = threads};
	char path[PATH_MAX];

	if (dl_iterate_phdr(find_cpu_backend, path)) {
		options.openmp = path;
		if (nib_device_open("cpu", &options, device, err) == NIB_STATUS_OK)
			return NIB_STATUS_OK;
		options.openmp = NULL;
	}
	return nib_device_open("cpu", &options, device, err);
}

enum nib_status nib_ggml_products_new(int threads, struct nib_ggml_products **products,
				      struct nib_error *err)
{
	struct nib_ggml_products *p = calloc(1, sizeof(*p));
	enum nib_status status;

	*products = NULL;
	if (!p)
		return no_memory(sizeof(*p), err);
	status = open_device(threads, &p->device, err);
	if (status)
		free(p);
	else
		*products = p;
	return status;
}

void nib_ggml_products_free(struct nib_ggml_products *p)
{
	if (!p)
		return;
	for (int i = 0; i < PLANS; i++)
		nib_plan_free(p->kept[i].plan);
	nib_device_close(p->device);
	free(p->workspace.data);
	free(p->rows.data);
	free(p->results.data);
	free(p->places.data);
	free(p);
}

/* Makes s at least `bytes` long, aligned to 64; its contents are lost. */
static enum nib_status grow(struct scratch *s, size_t bytes, struct nib_error *err)
{
	const size_t whole = (bytes + 63) / 64 * 64;

	if (whole <= s->bytes)
		return NIB_STATUS_OK;
	free(s->data);
	s->data = whole >= bytes ? aligned_alloc(64, whole) : NULL;
	s->bytes = s->data ? whole : 0;
	return s->data ? NIB_STATUS_OK : no_memory(bytes, err);
}

/* ---- plans ---------------------------------------------------------------- */

static enum nib_status make_plan(struct nib_ggml_products *p,
				 const struct nib_problem *problem,
				 const struct nib_moe_problem *moe, struct kept *kept,
				 struct nib_error *err)
{
	const struct nib_plan_options options = {.struct_bytes = sizeof(options),
						 .caller_workspace = 1};
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	enum nib_status status = moe ? nib_moe_plan_create(p->device, NIB_OP_GEMM, moe,
							   &options, &kept->plan, err)
				     : nib_plan_create(p->device, NIB_OP_GEMM, problem,
						       1, &options, &kept->plan, err);

	if (!status)
		status = nib_plan_get_info(kept->plan, &info, err);
	kept->workspace_bytes = info.workspace_bytes;
	return status;
}

/* The plan of these sizes; the one that has not been used for longest gives way
 * to a new one. */
static enum nib_status find_plan(struct nib_ggml_products *p, const struct sizes *sizes,
				 const struct nib_problem *problem,
				 const struct nib_moe_problem *moe, struct kept **found,
				 struct nib_error *err)
{
	struct kept *oldest = &p->kept[0];
	enum nib_status status;

	for (int i = 0; i < PLANS; i++) {
		struct kept *one = &p->kept[i];

		if (one->used && memcmp(&one->sizes, sizes, sizeof(*sizes)) == 0) {
			one->used = ++p->clock;
			*found = one;
			return NIB_STATUS_OK;
		}
		if (one->used < oldest->used)
			oldest = one;
	}
	nib_plan_free(oldest->plan);
	*oldest = (struct kept){.sizes = *sizes};
	status = make_plan(p, problem, moe, oldest, err);
	if (status) {
		nib_plan_free(oldest->plan);
		*oldest = (struct kept){0};
		return status;
	}
	oldest->used = ++p->clock;
	*found = oldest;
	return NIB_STATUS_OK;
}

static enum nib_status run(struct nib_ggml_products *p, const struct sizes *sizes,
			   const struct nib_problem *problem,
			   const struct nib_moe_problem *moe, struct nib_error *err)
{
	struct nib_run_options options = {.struct_bytes = sizeof(options)};
	struct kept *kept;
	enum nib_status status = find_plan(p, sizes, problem, moe, &kept, err);

	if (!status)
		status = grow(&p->workspace, kept->workspace_bytes, err);
	if (status)
		return status;
	options.workspace = p->workspace.data;
	options.workspace_bytes = p->workspace.bytes;
	return moe ? nib_moe_run(kept->plan, moe, &options, err)
		   : nib_run(kept->plan, problem, 1, &options, err);
}

static struct nib_dense floats(void *data, int64_t rows, int64_t cols, int64_t stride)
{
	return (struct nib_dense){.data = data,
				  .dtype = NIB_DTYPE_FP32,
				  .rows = rows,
				  .cols = cols,
				  .row_stride_elems = stride};
}

/* ---- MUL_MAT -------------------------------------------------------------- */

/* Byte offset of matrix (i2, i3) of a tensor. */
static size_t matrix_at(const struct ggml_tensor *t, int64_t i2, int64_t i3)
{
	return (size_t)i2 * t->nb[2] + (size_t)i3 * t->nb[3];
}

/* Whether one matrix multiplies all rows of src1, and these have one stride. */
static bool is_one_matrix(const struct ggml_tensor *w, const struct ggml_tensor *x)
{
	return w->ne[2] * w->ne[3] == 1 && x->nb[2] == x->nb[1] * (size_t)x->ne[1] &&
	       x->nb[3] == x->nb[2] * (size_t)x->ne[2];
}

/* One matrix of weights, packed or as a view. */
struct matrix {
	struct nib_fp4 view; /* only its sizes count if packed */
	const struct nib_packed *packed;
};

static enum nib_status multiply_rows(struct nib_ggml_products *p,
				     const struct matrix *w,
				     const struct ggml_tensor *x, char *from, char *to,
				     int64_t m, struct nib_error *err)
{
	const struct nib_fp4 b = w->view;
	struct sizes sizes;
	struct nib_problem problem = {
	    .b = b,
	    .b_packed = w->packed,
	    .x = floats(from, m, b.k, (int64_t)(x->nb[1] / sizeof(float))),
	    .activations = NIB_ACTIVATIONS_INT8,
	    .c = floats(to, m, b.rows, b.rows),
	};

	/* Clears the padding too, because sizes are compared as bytes. */
	memset(&sizes, 0, sizeof(sizes));
	sizes.m = m, sizes.n = b.rows, sizes.k = b.k;
	sizes.x_stride = problem.x.row_stride_elems;
	sizes.c_stride = b.rows;
	sizes.is_packed = w->packed != NULL;
	return run(p, &sizes, &problem, NULL, err);
}

static struct nib_fp4 sizes_of(const struct ggml_tensor *w)
{
	return (struct nib_fp4){
	    .rows = w->ne[1], .k = w->ne[0], .batch = w->ne[2] * w->ne[3]};
}

/* The whole tensor, packed where there is memory for it. */
static struct matrix whole(const struct ggml_tensor *w)
{
	struct matrix matrix = {sizes_of(w), nib_ggml_packed(w)};

	if (!matrix.packed)
		matrix.view = nib_ggml_weights(w);
	return matrix;
}

static enum nib_status mul_mat(struct nib_ggml_products *p,
			       const struct ggml_tensor *op, struct nib_error *err)
{
	const struct ggml_tensor *w = op->src[0], *x = op->src[1];
	const int64_t per2 = op->ne[2] / w->ne[2], per3 = op->ne[3] / w->ne[3];
	struct matrix one = {0};
	struct nib_fp4 all;
	enum nib_status status = NIB_STATUS_OK;

	if (is_one_matrix(w, x)) {
		one = whole(w);
		return multiply_rows(p, &one, x, x->data, op->data,
				     x->ne[1] * x->ne[2] * x->ne[3], err);
	}
	one.view = all = nib_ggml_weights(w);
	one.view.batch = 1;
	for (int64_t i = 0; i < op->ne[2] * op->ne[3] && !status; i++) {
		const int64_t i2 = i % op->ne[2], i3 = i / op->ne[2];
		const int64_t matrix = i3 / per3 * w->ne[2] + i2 / per2;
		const int64_t values = all.rows * all.k;

		one.view.codes = (uint8_t *)all.codes + matrix * values / 2;
		one.view.scales = (uint8_t *)all.scales + matrix * values / 16;
		status = multiply_rows(
		    p, &one, x, (char *)x->data + matrix_at(x, i2, i3),
		    (char *)op->data + matrix_at(op, i2, i3), x->ne[1], err);
	}
	return status;
}

/* ---- MUL_MAT_ID ----------------------------------------------------------- */

/* Slots in the order of ggml: those of a token together. */
struct slots {
	int64_t count, of_token;
	int32_t *offsets; /* [experts + 1]: where the rows of each begin */
	int32_t *rows;	  /* of each slot */
};

static int32_t id_of(const struct ggml_tensor *ids, int64_t slot)
{
	const char *at = (const char *)ids->data +
			 (size_t)(slot % ids->ne[0]) * ids->nb[0] +
			 (size_t)(slot / ids->ne[0]) * ids->nb[1];

	return *(const int32_t *)(const void *)at;
}

/* Sorts the slots by expert, those of one expert in their order; false if an id
 * is out of range. */
static bool place_slots(const struct ggml_tensor *ids, int64_t experts,
			const struct slots *s)
{
	int32_t *ends = s->offsets + 1;

	memset(s->offsets, 0, (size_t)(experts + 1) * sizeof(*s->offsets));
	for (int64_t i = 0; i < s->count; i++) {
		const int32_t id = id_of(ids, i);

		if (id < 0 || id >= experts)
			return false;
		ends[id]++;
	}
	for (int64_t e = 1; e <= experts; e++)
		s->offsets[e] += s->offsets[e - 1];
	/* In reverse, so that slots of an expert keep their order. */
	for (int64_t i = s->count; i-- > 0;)
		s->rows[i] = --ends[id_of(ids, i)];
	/* Each end now is the first row of its expert. */
	memmove(s->offsets, ends, (size_t)experts * sizeof(*ends));
	s->offsets[experts] = (int32_t)s->count;
	return true;
}

/* Bytes from src1 to the row of a slot; src1 has one row for a token, or more. */
static size_t row_at(const struct ggml_tensor *x, const struct slots *s, int64_t slot)
{
	return (size_t)(slot % s->of_token % x->ne[1]) * x->nb[1] +
	       (size_t)(slot / s->of_token) * x->nb[2];
}

static enum nib_status multiply_slots(struct nib_ggml_products *p,
				      const struct ggml_tensor *op,
				      const struct slots *s, struct nib_error *err)
{
	const struct ggml_tensor *x = op->src[1];
	const struct matrix w = whole(op->src[0]);
	const struct nib_fp4 b = w.view;
	const size_t row = (size_t)b.k * sizeof(float);
	const size_t result = (size_t)b.rows * sizeof(float);
	char *rows = p->rows.data, *results = p->results.data;
	struct sizes sizes;
	struct nib_moe_problem moe = {
	    .problem = {.b = b,
			.b_packed = w.packed,
			.x = floats(rows, s->count, b.k, b.k),
			.activations = NIB_ACTIVATIONS_INT8,
			.c = floats(results, s->count, b.rows, b.rows)},
	    .row_offsets = s->offsets,
	};
	enum nib_status status;

	memset(&sizes, 0, sizeof(sizes));
	sizes.m = s->count, sizes.n = b.rows, sizes.k = b.k;
	sizes.experts = b.batch;
	sizes.is_packed = w.packed != NULL;
	for (int64_t i = 0; i < s->count; i++)
		memcpy(rows + (size_t)s->rows[i] * row,
		       (const char *)x->data + row_at(x, s, i), row);
	status = run(p, &sizes, NULL, &moe, err);
	for (int64_t i = 0; i < s->count && !status; i++)
		memcpy((char *)op->data + (size_t)i * result,
		       results + (size_t)s->rows[i] * result, result);
	return status;
}

static enum nib_status mul_mat_id(struct nib_ggml_products *p,
				  const struct ggml_tensor *op, struct nib_error *err)
{
	const struct ggml_tensor *w = op->src[0], *ids = op->src[2];
	struct slots s = {.count = ids->ne[0] * ids->ne[1], .of_token = ids->ne[0]};
	const size_t count = (size_t)s.count;
	enum nib_status status;

	if ((status = grow(&p->places, (count + (size_t)w->ne[2] + 1) * sizeof(int32_t),
			   err)) ||
	    (status = grow(&p->rows, count * (size_t)w->ne[0] * sizeof(float), err)) ||
	    (status = grow(&p->results, count * (size_t)w->ne[1] * sizeof(float), err)))
		return status;
	s.offsets = p->places.data;
	s.rows = s.offsets + w->ne[2] + 1;
	if (!place_slots(ids, w->ne[2], &s)) {
		snprintf(err->message, sizeof(err->message),
			 "%s: an id is outside of 0 to %lld", ids->name,
			 (long long)w->ne[2] - 1);
		return NIB_STATUS_BAD_DATA;
	}
	return multiply_slots(p, op, &s, err);
}

/* ---- which operations ----------------------------------------------------- */

/* Whether the weights are a whole tensor of this plug-in's buffers, or not
 * allocated yet. */
static bool takes_weights(const struct ggml_tensor *w)
{
	return w->type == GGML_TYPE_NVFP4 && w->ne[0] <= NIB_MAX_K && !w->view_src &&
	       nib_host.is_contiguous(w) &&
	       (!w->buffer ||
		nib_ggml_is_ours(nib_host.backend_buffer_get_type(w->buffer)));
}

static bool takes_floats(const struct ggml_tensor *x)
{
	return x->type == GGML_TYPE_F32 && x->nb[0] == sizeof(float) &&
	       x->nb[1] % sizeof(float) == 0 &&
	       x->nb[1] >= (size_t)x->ne[0] * sizeof(float);
}

bool nib_ggml_takes(const struct ggml_tensor *op)
{
	const struct ggml_tensor *ids = op->src[2];

	if ((op->op != GGML_OP_MUL_MAT && op->op != GGML_OP_MUL_MAT_ID) ||
	    !takes_weights(op->src[0]) || !takes_floats(op->src[1]) ||
	    op->type != GGML_TYPE_F32 || !nib_host.is_contiguous(op))
		return false;
	return op->op == GGML_OP_MUL_MAT ||
	       (ids->type == GGML_TYPE_I32 && op->src[0]->ne[3] == 1 &&
		ids->ne[0] * ids->ne[1] <= INT32_MAX);
}

enum nib_status nib_ggml_multiply(struct nib_ggml_products *products,
				  const struct ggml_tensor *op, struct nib_error *err)
{
	return op->op == GGML_OP_MUL_MAT_ID ? mul_mat_id(products, op, err)
					    : mul_mat(products, op, err);
}
