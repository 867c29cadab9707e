/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.c - makes the operands of a shape: see data.h.  One block of memory
 * holds them all, and the device has a copy of it.  The code that lays it out
 * runs three times: without memory, to measure it; to fill it; and for the
 * addresses of the copy.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data.h"
#include "text.h"

#define ALIGN	   64
#define HUGE_BYTES ((size_t)2 << 20)
/* More than any machine has; keeps the sums below 2^63. */
#define MAX_BYTES 70368744177664.0 /* 2^46 */

struct arena {
	char *base; /* of the block; NULL: only measure */
	size_t used;
	const struct data_options *how;
	int writes; /* base is the host's: what it holds is written too */
	uint64_t seed;
};

static void *take(struct arena *arena, size_t bytes)
{
	const size_t at = arena->used;

	arena->used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
	return arena->base ? arena->base + at : NULL;
}

static int fills(const struct arena *arena)
{
	return arena->writes && !arena->how->empty;
}

static int64_t pad128(int64_t rows)
{
	return (rows + 127) / 128 * 128;
}

/* scale_rows: rows that there are scales of, which may be more. */
static struct nib_fp4 take_nvfp4(struct arena *arena, enum nib_scale_layout layout,
				 int64_t rows, int64_t scale_rows, int64_t k,
				 int64_t batch)
{
	const enum data_fill fill = arena->how->fill;
	size_t codes = (size_t)(batch * rows * (k / 2));
	size_t scales = (size_t)batch * nib_scales_bytes(layout, scale_rows, k);
	struct nib_fp4 q = {
	    .rows = rows, .k = k, .batch = batch, .scale_layout = layout};

	q.codes = take(arena, codes);
	q.scales = take(arena, scales);
	if (fills(arena)) {
		data_fill_codes(q.codes, codes, fill, &arena->seed);
		data_fill_scales(q.scales, scales, fill, &arena->seed);
	}
	return q;
}

static struct nib_dense take_dense(struct arena *arena, enum nib_dtype dtype,
				   int64_t rows, int64_t cols, int64_t batch)
{
	const size_t elems = (size_t)(batch * rows * cols);

	return (struct nib_dense){
	    .data = take(arena, elems * nib_dtype_bytes(dtype)),
	    .dtype = dtype,
	    .rows = rows,
	    .cols = cols,
	    .batch = batch,
	};
}

/* A of a problem: a, or x. */
static void take_a(struct arena *arena, int64_t rows, int64_t scale_rows, int64_t k,
		   int64_t batch, struct nib_fp4 *a, struct nib_dense *x)
{
	const struct data_options *how = arena->how;

	if (how->activations == ACT_NVFP4) {
		*a = take_nvfp4(arena, how->layout, rows, scale_rows, k, batch);
		return;
	}
	*x = take_dense(arena, cli_activations_dtype(how->activations), rows, k, batch);
	if (fills(arena))
		data_fill_x(x, how->fill, how->values, &arena->seed);
}

/* The size of a product of two full-range values: its rms, or more. */
static double product_size(const struct data_options *how)
{
	const double weight_rms = 374;

	if (how->activations == ACT_NVFP4)
		return 1.4e5;
	if (how->values == DATA_NORMAL)
		return weight_rms;
	return ldexp(weight_rms,
		     data_top_exponent(cli_activations_dtype(how->activations)));
}

/*
 * Keeps results of full-range data inside fp16: a sum over k has sqrt(k) times
 * the size of a product.
 */
static float full_alpha(struct arena *arena, int64_t k)
{
	double wobble = 1 + (double)(data_random(&arena->seed) % 1024) / 1024;

	return (float)(wobble * 4 / (product_size(arena->how) * sqrt((double)k)));
}

/* alpha and alpha2 of count products. */
static void take_alphas(struct arena *arena, int64_t count, int64_t k,
			const float **alpha, const float **alpha2)
{
	int full = arena->how->fill == DATA_FULL;
	float *a = take(arena, (size_t)count * 4);
	float *a2 = take(arena, (size_t)count * 4);

	for (int64_t e = 0; e < count && fills(arena); e++) {
		a[e] = full ? full_alpha(arena, k) : 1;
		a2[e] = full ? full_alpha(arena, k) : 1;
	}
	*alpha = a;
	*alpha2 = a2;
}

/* The first row of each expert, and the end of the last expert's rows. */
static const int32_t *take_offsets(struct arena *arena, const struct shape *shape,
				   int padded, int64_t *rows)
{
	int32_t *offsets = take(arena, (size_t)shape->count * 4 + 4);

	*rows = 0;
	for (int64_t e = 0; e <= shape->count; e++) {
		if (arena->writes)
			offsets[e] = (int32_t)*rows;
		if (e < shape->count)
			*rows += padded ? pad128(shape->sizes[e].m) : shape->sizes[e].m;
	}
	return offsets;
}

static void place_moe(struct arena *arena, const struct shape *shape, struct data *data,
		      struct nib_moe_problem *p)
{
	const enum nib_scale_layout layout = arena->how->layout;
	int64_t n = shape->sizes[0].n, k = shape->sizes[0].k, rows, padded;

	p->row_offsets = take_offsets(arena, shape, 0, &rows);
	p->scale_rows = take_offsets(arena, shape, 1, &padded);
	p->scale_rows_total = padded;
	p->problem.activations = cli_activations_kind(arena->how->activations);
	/* As torch does it: only in tiles every expert starts a new one. */
	if (layout != NIB_SCALE_LAYOUT_TILED_128X4 || p->problem.activations) {
		p->scale_rows = NULL;
		p->scale_rows_total = 0;
		padded = rows;
	}
	take_a(arena, rows, padded, k, 1, &p->problem.a, &p->problem.x);
	p->problem.b = take_nvfp4(arena, layout, n, n, k, shape->count);
	if (data->op == NIB_OP_DUAL_GEMM)
		p->problem.b2 = take_nvfp4(arena, layout, n, n, k, shape->count);
	take_alphas(arena, shape->count, k, &p->problem.alpha, &p->problem.alpha2);
	data->c_at = arena->used;
	p->problem.c = take_dense(arena, arena->how->out, rows, n, 1);
}

static void place_problems(struct arena *arena, const struct shape *shape,
			   struct data *data, struct nib_problem *problems)
{
	const enum nib_scale_layout layout = arena->how->layout;
	const int64_t batch = shape->batch;

	for (int64_t i = 0; i < shape->count; i++) {
		const struct shape_size *s = &shape->sizes[i];
		struct nib_problem *p = &problems[i];

		p->activations = cli_activations_kind(arena->how->activations);
		take_a(arena, s->m, s->m, s->k, batch, &p->a, &p->x);
		p->b = take_nvfp4(arena, layout, s->n, s->n, s->k, batch);
		if (data->op == NIB_OP_DUAL_GEMM)
			p->b2 = take_nvfp4(arena, layout, s->n, s->n, s->k, batch);
		take_alphas(arena, 1, s->k, &p->alpha, &p->alpha2);
	}
	data->c_at = arena->used;
	for (int64_t i = 0; i < shape->count; i++)
		problems[i].c = take_dense(arena, arena->how->out, shape->sizes[i].m,
					   shape->sizes[i].n, batch);
}

static void place_conversion(struct arena *arena, const struct shape *shape,
			     struct data *data)
{
	const enum nib_scale_layout layout = arena->how->layout;
	const enum nib_scale_layout other = layout == NIB_SCALE_LAYOUT_LINEAR
						? NIB_SCALE_LAYOUT_TILED_128X4
						: NIB_SCALE_LAYOUT_LINEAR;
	const struct shape_size *s = &shape->sizes[0];
	struct nib_dense *x = &data->x;

	data->q = take_nvfp4(arena, layout, s->m, s->m, s->k, shape->batch);
	data->global = 1.0f / 2688;
	if (shape->op == OP_CONVERT) {
		data->to = take_nvfp4(arena, other, s->m, s->m, s->k, shape->batch);
		return;
	}
	*x = take_dense(arena, arena->how->dtype, s->m, s->k, shape->batch);
	if (fills(arena))
		data_fill_floats(x->data, x->dtype, x->batch * x->rows * x->cols,
				 &arena->seed);
}

/* What a pass over the operands does. */
enum pass {
	MEASURE,   /* only sets memory_bytes, c_at and c_bytes */
	ON_HOST,   /* views: in memory, which is filled */
	ON_DEVICE, /* problems, moe, x, q, to: in the device's copy */
};

static void place(struct data *data, const struct shape *shape,
		  const struct data_options *options, enum pass pass)
{
	struct arena arena = {
	    .base = pass == ON_HOST	? data->memory
		    : pass == ON_DEVICE ? data->staging.data
					: NULL,
	    .how = options,
	    .writes = pass == ON_HOST,
	    .seed = options->seed,
	};
	const int on_device = pass == ON_DEVICE;

	if (data->is_moe) {
		place_moe(&arena, shape, data,
			  on_device ? &data->moe : &data->moe_views);
	} else if (shape_is_multiply(shape)) {
		place_problems(&arena, shape, data,
			       on_device ? data->problems : data->views);
	} else {
		place_conversion(&arena, shape, data);
		data->c_at = arena.used;
	}
	data->c_bytes = arena.used - data->c_at;
	data->memory_bytes = arena.used;
}

static size_t machine_bytes(void)
{
	return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- checks -------------------------------------------------------------- */

static enum nib_status refuse(struct nib_error *err, enum nib_status status,
			      const char *text, int64_t n)
{
	if (err) {
		*err = (struct nib_error){.status = status};
		snprintf(err->message, sizeof(err->message), "%s%lld", text,
			 (long long)n);
	}
	return status;
}

static enum nib_status no_memory(struct nib_error *err, double bytes)
{
	char size[CLI_SIZE_TEXT], most[CLI_SIZE_TEXT];

	if (err) {
		*err = (struct nib_error){.status = NIB_STATUS_OUT_OF_MEMORY};
		snprintf(err->message, sizeof(err->message),
			 "no memory for %s of operands, this machine has %s",
			 cli_size_text(bytes, size),
			 cli_size_text((double)machine_bytes(), most));
	}
	return NIB_STATUS_OUT_OF_MEMORY;
}

/* Checks the sizes that the layout code divides by or adds up. */
static enum nib_status check_sizes(const struct shape *shape, struct nib_error *err)
{
	double bytes = 0, rows = 0;

	for (int64_t i = 0; i < shape->count; i++) {
		const struct shape_size *s = &shape->sizes[i];
		double mk, nk, mn, batch = (double)shape->batch;

		if (s->k < NIB_NVFP4_BLOCK || s->k % NIB_NVFP4_BLOCK ||
		    s->k > NIB_MAX_K)
			return refuse(err, NIB_STATUS_BAD_ARGUMENT,
				      "k must be a multiple of 16 from 16 to "
				      "1048576, not ",
				      s->k);
		mk = (double)pad128(s->m) * (double)s->k;
		nk = (double)pad128(s->n) * (double)s->k;
		mn = (double)s->m * (double)s->n;
		bytes += batch * (4 * mk + 2 * nk + 4 * mn);
		rows += (double)pad128(s->m);
	}
	if (bytes > MAX_BYTES)
		return no_memory(err, bytes);
	if (shape->op >= OP_MOE && shape->op <= OP_MOE_DUAL &&
	    (rows > INT32_MAX || !shape->count))
		return refuse(err, NIB_STATUS_BAD_ARGUMENT,
			      "moe needs 1 or more experts and fewer than 2^31 "
			      "rows, not ",
			      (int64_t)rows);
	return NIB_STATUS_OK;
}

/* ---- packing ------------------------------------------------------------- */

static enum nib_status pack_one(struct data *data, struct nib_device *device,
				const struct nib_fp4 *b, const struct nib_packed **slot,
				struct nib_error *err)
{
	enum nib_status status =
	    nib_pack(device, b, NULL, &data->packed[data->n_packed], err);

	if (!status)
		*slot = data->packed[data->n_packed++];
	return status;
}

static enum nib_status pack(struct data *data, struct nib_device *device,
			    struct nib_error *err)
{
	struct nib_moe_problem *moe = &data->moe;
	int dual = data->op == NIB_OP_DUAL_GEMM;
	enum nib_status status = NIB_STATUS_OK;

	data->packed = calloc(2 * (size_t)data->count + 1, sizeof(*data->packed));
	if (!data->packed)
		return refuse(err, NIB_STATUS_OUT_OF_MEMORY,
			      "packed weights: ", data->count);
	if (data->is_moe)
		status = pack_one(data, device, &moe->problem.b, &moe->problem.b_packed,
				  err);
	if (data->is_moe && dual && !status)
		status = pack_one(data, device, &moe->problem.b2,
				  &moe->problem.b2_packed, err);
	for (int64_t i = 0; i < data->count && !data->is_moe && !status; i++) {
		struct nib_problem *p = &data->problems[i];

		status = pack_one(data, device, &p->b, &p->b_packed, err);
		if (!status && dual)
			status = pack_one(data, device, &p->b2, &p->b2_packed, err);
	}
	return status;
}

/* ---- the memory ---------------------------------------------------------- */

/* Zero pages, which take no memory until they are written. */
static void *reserve(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void *allocate(size_t bytes)
{
	void *p = NULL;

	/* The system would promise more than it has, and end nib later. */
	if (bytes > machine_bytes())
		return NULL;
	if (posix_memalign(&p, bytes >= HUGE_BYTES ? HUGE_BYTES : ALIGN,
			   bytes ? bytes : 1))
		return NULL;
	if (bytes >= HUGE_BYTES)
		(void)madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

static void allocate_memory(struct data *data, const struct data_options *options)
{
	size_t bytes = data->memory_bytes;

	data->is_reserved = options->empty && bytes > 0;
	if (!data->is_reserved)
		data->memory = allocate(bytes);
	else if (!options->packed || bytes <= machine_bytes())
		data->memory = reserve(bytes);
}

/* Operands in memory of the host, and the device's copy of it. */
static enum nib_status make_operands(struct data *data, const struct shape *shape,
				     const struct data_options *options,
				     struct nib_device *device, struct nib_error *err)
{
	int is_copied = device && (!options->empty || options->packed);
	enum nib_status status = NIB_STATUS_OK;

	place(data, shape, options, MEASURE);
	allocate_memory(data, options);
	if (!data->memory)
		return no_memory(err, (double)data->memory_bytes);
	if (is_copied)
		status = staging_new(device, data->memory, data->memory_bytes,
				     &data->staging, err);
	else
		data->staging = (struct staging){NULL, data->memory, data->memory};
	if (status)
		return status;
	place(data, shape, options, ON_HOST);
	place(data, shape, options, ON_DEVICE);
	if (is_copied)
		status = staging_load(&data->staging, data->memory_bytes, err);
	if (!status && options->packed && shape_is_multiply(shape))
		status = pack(data, device, err);
	return status;
}

enum nib_status data_new(const struct shape *shape, const struct data_options *options,
			 struct nib_device *device, struct data **out,
			 struct nib_error *err)
{
	size_t slots = (size_t)shape->count + 1;
	enum nib_status status = check_sizes(shape, err);
	struct data *data;

	*out = NULL;
	if (status)
		return status;
	data = calloc(1, sizeof(*data));
	if (!data)
		return no_memory(err, sizeof(*data));
	data->count = shape->count;
	data->op = shape_ops[shape->op].op;
	data->is_moe = shape_ops[shape->op].is_moe;
	data->problems = calloc(slots, sizeof(*data->problems));
	data->views = calloc(slots, sizeof(*data->views));
	if (data->problems && data->views)
		status = make_operands(data, shape, options, device, err);
	else
		status = no_memory(err, (double)slots * sizeof(*data->views));
	if (status)
		data_free(data);
	else
		*out = data;
	return status;
}

void data_free(struct data *data)
{
	if (!data)
		return;
	for (int64_t i = 0; i < data->n_packed; i++)
		nib_packed_free(data->packed[i]);
	free(data->packed);
	free(data->problems);
	free(data->views);
	staging_free(&data->staging);
	if (data->is_reserved && data->memory)
		munmap(data->memory, data->memory_bytes);
	else
		free(data->memory);
	free(data);
}

/* The bytes of every c, a part of memory; there must be some. */
static struct staging staged_c(const struct data *data)
{
	struct staging c = data->staging;

	c.host = (char *)c.host + data->c_at;
	c.data = (char *)c.data + data->c_at;
	return c;
}

enum nib_status data_poison(struct data *data, struct nib_error *err)
{
	const struct staging c = staged_c(data);

	if (!data->c_bytes)
		return NIB_STATUS_OK;
	memset(c.host, 0xFF, data->c_bytes);
	return staging_load(&c, data->c_bytes, err);
}

enum nib_status data_fetch(struct data *data, struct nib_error *err)
{
	const struct staging c = staged_c(data);
	enum nib_status status = NIB_STATUS_OK;

	if (c.device)
		status = nib_device_wait(c.device, NULL, err);
	if (status || !data->c_bytes)
		return status;
	return staging_fetch(&c, data->c_bytes, err);
}

uint64_t data_digest(const struct data *data)
{
	const struct staging c = staged_c(data);
	const unsigned char *bytes = c.host;
	uint64_t digest = UINT64_C(0xCBF29CE484222325);

	for (size_t i = 0; i < data->c_bytes; i++)
		digest = (digest ^ bytes[i]) * UINT64_C(0x100000001B3);
	return digest;
}

enum nib_status data_plan(struct nib_device *device, const struct data *data,
			  const struct nib_plan_options *options,
			  struct nib_plan **plan, struct nib_error *err)
{
	if (data->is_moe)
		return nib_moe_plan_create(device, data->op, &data->moe, options, plan,
					   err);
	return nib_plan_create(device, data->op, data->problems, data->count, options,
			       plan, err);
}

enum nib_status data_run(struct nib_plan *plan, const struct data *data,
			 const struct nib_run_options *options, struct nib_error *err)
{
	if (data->is_moe)
		return nib_moe_run(plan, &data->moe, options, err);
	return nib_run(plan, data->problems, data->count, options, err);
}

enum nib_status data_check(const struct data *data,
			   const struct nib_check_options *options,
			   struct nib_check_result *result, struct nib_error *err)
{
	if (data->is_moe)
		return nib_moe_check(data->op, &data->moe_views, options, result, err);
	return nib_check(data->op, data->views, data->count, options, result, err);
}
