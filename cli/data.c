/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.c - makes the operands of a shape: see data.h.  One block of memory
 * holds them all.  The code that lays it out runs without memory, to measure,
 * then on the host's block, which is filled, and on the device's copy of it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli.h"
#include "data.h"

#define ALIGN	   64
#define HUGE_BYTES ((size_t)2 << 20)
/* More than any machine has; keeps the sums below 2^63. */
#define MAX_BYTES 70368744177664.0 /* 2^46 */

struct arena {
	char *base; /* NULL: only measure */
	size_t used;
};

/* The arguments of the calls, in one block of memory. */
struct operands {
	struct nib_problem *problems;
	struct nib_moe_problem moe;
	struct nib_dense x;
	struct nib_nvfp4 q, to;
	void *c;
	size_t c_bytes;
};

static void *take(struct arena *arena, size_t bytes)
{
	void *p = arena->base ? arena->base + arena->used : NULL;

	arena->used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
	return p;
}

static struct nib_nvfp4 take_nvfp4(struct arena *arena,
				   enum nib_scale_layout layout, int64_t rows,
				   int64_t k, int64_t batch)
{
	size_t scales = (size_t)batch * nib_scales_bytes(layout, rows, k);

	return (struct nib_nvfp4){
	    .rows = rows,
	    .k = k,
	    .batch = batch,
	    .scale_layout = layout,
	    .codes = take(arena, (size_t)(batch * rows * (k / 2))),
	    .scales = take(arena, scales),
	};
}

static struct nib_dense take_dense(struct arena *arena, enum nib_dtype dtype,
				   int64_t rows, int64_t cols, int64_t batch)
{
	size_t elems = (size_t)(batch * rows * cols);

	return (struct nib_dense){
	    .dtype = dtype,
	    .rows = rows,
	    .cols = cols,
	    .batch = batch,
	    .data = take(arena, elems * nib_dtype_bytes(dtype)),
	};
}

static int64_t pad128(int64_t rows)
{
	return (rows + 127) / 128 * 128;
}

/*
 * Counts the rows of A of all experts; padded: each expert's to whole tiles.
 * Writes where each expert's begin to offsets, and their number behind them.
 */
static int64_t count_rows(const struct shape *shape, int padded,
			  const int32_t *offsets_)
{
	int32_t *offsets = (int32_t *)(uintptr_t)offsets_;
	int64_t rows = 0;

	for (int64_t e = 0; e < shape->count; e++) {
		if (offsets)
			offsets[e] = (int32_t)rows;
		rows += padded ? pad128(shape->sizes[e].m) : shape->sizes[e].m;
	}
	if (offsets)
		offsets[shape->count] = (int32_t)rows;
	return rows;
}

static void place_moe(struct arena *arena, const struct shape *shape,
		      const struct data_options *o, int dual,
		      struct operands *ops)
{
	struct nib_moe_problem *moe = &ops->moe;
	int64_t experts = shape->count, rows = count_rows(shape, 0, NULL);
	int64_t padded = count_rows(shape, 1, NULL);
	int64_t n = shape->sizes[0].n, k = shape->sizes[0].k;
	/* As torch does it: in tiles every expert starts a new one. */
	int tiled = o->layout == NIB_TILED_128X4;
	size_t each = (size_t)experts * 4, c_begin;
	const int32_t *scale_rows;

	moe->row_offsets = take(arena, each + 4);
	scale_rows = take(arena, each + 4);
	moe->alpha = take(arena, each);
	moe->alpha2 = take(arena, each);
	moe->a = take_nvfp4(arena, o->layout, tiled ? padded : rows, k, 1);
	if (tiled) {
		moe->scale_rows = scale_rows;
		moe->scale_rows_total = padded;
		moe->a.rows = rows;
	}
	moe->b = take_nvfp4(arena, o->layout, n, k, experts);
	if (dual)
		moe->b2 = take_nvfp4(arena, o->layout, n, k, experts);
	c_begin = arena->used;
	moe->c = take_dense(arena, o->out, rows, n, 1);
	ops->c = moe->c.data;
	ops->c_bytes = arena->used - c_begin;
}

static void place_problems(struct arena *arena, const struct shape *shape,
			   const struct data_options *o, int dual,
			   struct operands *ops)
{
	const int64_t batch = shape->batch;
	size_t c_begin;

	for (int64_t i = 0; i < shape->count; i++) {
		const struct shape_size *s = &shape->sizes[i];
		struct nib_problem *p = &ops->problems[i];

		p->a = take_nvfp4(arena, o->layout, s->m, s->k, batch);
		p->b = take_nvfp4(arena, o->layout, s->n, s->k, batch);
		if (dual)
			p->b2 = take_nvfp4(arena, o->layout, s->n, s->k, batch);
		p->alpha = take(arena, sizeof(float));
		p->alpha2 = take(arena, sizeof(float));
	}
	c_begin = arena->used;
	for (int64_t i = 0; i < shape->count; i++)
		ops->problems[i].c = take_dense(
		    arena, o->out, shape->sizes[i].m, shape->sizes[i].n, batch);
	ops->c = arena->base ? arena->base + c_begin : NULL;
	ops->c_bytes = arena->used - c_begin;
}

/* Lays out the operands at base, which may be NULL; returns their bytes. */
static size_t place(void *base, const struct shape *shape,
		    const struct data_options *o, struct operands *ops)
{
	const struct shape_size *s = &shape->sizes[0];
	struct arena arena = {.base = base};
	int dual = shape_ops[shape->op].op == NIB_DUAL_GEMM;

	if (shape_ops[shape->op].is_moe) {
		place_moe(&arena, shape, o, dual, ops);
	} else if (shape_is_multiply(shape)) {
		place_problems(&arena, shape, o, dual, ops);
	} else {
		ops->q =
		    take_nvfp4(&arena, o->layout, s->m, s->k, shape->batch);
		if (shape->op == OP_CONVERT)
			ops->to =
			    take_nvfp4(&arena,
				       o->layout == NIB_LINEAR ? NIB_TILED_128X4
							       : NIB_LINEAR,
				       s->m, s->k, shape->batch);
		else
			ops->x = take_dense(&arena, o->dtype, s->m, s->k,
					    shape->batch);
	}
	return arena.used;
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
		err->status = status;
		snprintf(err->message, sizeof(err->message), "%s%lld", text,
			 (long long)n);
	}
	return status;
}

static enum nib_status no_memory(struct nib_error *err, double bytes)
{
	char size[CLI_SIZE_TEXT], most[CLI_SIZE_TEXT];

	if (err) {
		err->status = NIB_OUT_OF_MEMORY;
		snprintf(err->message, sizeof(err->message),
			 "no memory for %s of operands, this machine has %s",
			 cli_size_text(bytes, size),
			 cli_size_text((double)machine_bytes(), most));
	}
	return NIB_OUT_OF_MEMORY;
}

/* The sizes that the layout code divides by or adds up. */
static enum nib_status check_sizes(const struct shape *shape,
				   struct nib_error *err)
{
	double bytes = 0, rows = 0;

	for (int64_t i = 0; i < shape->count; i++) {
		const struct shape_size *s = &shape->sizes[i];
		double mk, nk, mn, batch = (double)shape->batch;

		if (s->k < NIB_BLOCK || s->k % NIB_BLOCK || s->k > NIB_MAX_K)
			return refuse(err, NIB_BAD_ARGUMENT,
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
		return refuse(err, NIB_BAD_ARGUMENT,
			      "moe needs 1 or more experts and fewer than 2^31 "
			      "rows, not ",
			      (int64_t)rows);
	return NIB_OK;
}

/* ---- filling ------------------------------------------------------------- */

/*
 * Keeps results of full-range data inside fp16: a product of two values has an
 * rms near 1.4e5, their sum over k sqrt(k) times that.
 */
static float full_alpha(int64_t k, uint64_t *seed)
{
	double wobble = 1 + (double)(data_random(seed) % 1024) / 1024;

	return (float)(wobble * 4 / (1.4e5 * sqrt((double)k)));
}

static void fill_nvfp4(const struct nib_nvfp4 *q, size_t scale_bytes,
		       enum data_fill fill, uint64_t *seed)
{
	if (!q->codes)
		return;
	data_fill_codes(q->codes, (size_t)(q->batch * q->rows * (q->k / 2)),
			fill, seed);
	data_fill_scales(q->scales, scale_bytes, fill, seed);
}

static size_t scale_bytes(const struct nib_nvfp4 *q)
{
	return (size_t)q->batch *
	       nib_scales_bytes(q->scale_layout, q->rows, q->k);
}

static void fill_alphas(const float *alpha_, const float *alpha2_, int64_t k,
			enum data_fill fill, uint64_t *seed)
{
	float *alpha = (float *)(uintptr_t)alpha_;
	float *alpha2 = (float *)(uintptr_t)alpha2_;

	*alpha = fill == DATA_FULL ? full_alpha(k, seed) : 1;
	*alpha2 = fill == DATA_FULL ? full_alpha(k, seed) : 1;
}

static void fill_problems(const struct operands *ops, int64_t count,
			  enum data_fill fill, uint64_t *seed)
{
	for (int64_t i = 0; i < count; i++) {
		const struct nib_problem *p = &ops->problems[i];

		fill_nvfp4(&p->a, scale_bytes(&p->a), fill, seed);
		fill_nvfp4(&p->b, scale_bytes(&p->b), fill, seed);
		fill_nvfp4(&p->b2, scale_bytes(&p->b2), fill, seed);
		fill_alphas(p->alpha, p->alpha2, p->a.k, fill, seed);
	}
}

static void fill_moe(const struct operands *ops, int64_t count,
		     enum data_fill fill, uint64_t *seed)
{
	const struct nib_moe_problem *moe = &ops->moe;
	struct nib_nvfp4 all = moe->a;

	if (moe->scale_rows)
		all.rows = moe->scale_rows_total;
	fill_nvfp4(&moe->a, scale_bytes(&all), fill, seed);
	fill_nvfp4(&moe->b, scale_bytes(&moe->b), fill, seed);
	fill_nvfp4(&moe->b2, scale_bytes(&moe->b2), fill, seed);
	for (int64_t e = 0; e < count; e++)
		fill_alphas(moe->alpha + e, moe->alpha2 + e, moe->a.k, fill,
			    seed);
}

static void fill(const struct operands *ops, const struct shape *shape,
		 const struct data_options *o)
{
	const struct nib_dense *x = &ops->x;
	uint64_t seed = o->seed;

	/* Also of an empty fill: the rows of each expert are the shape's. */
	if (ops->moe.row_offsets)
		count_rows(shape, 0, ops->moe.row_offsets);
	if (ops->moe.scale_rows)
		count_rows(shape, 1, ops->moe.scale_rows);
	if (o->empty)
		return; /* zeros as they are */
	if (ops->moe.row_offsets) {
		fill_moe(ops, shape->count, o->fill, &seed);
	} else if (shape_is_multiply(shape)) {
		fill_problems(ops, shape->count, o->fill, &seed);
	} else {
		fill_nvfp4(&ops->q, scale_bytes(&ops->q), o->fill, &seed);
		if (x->data)
			data_fill_floats(x->data, x->dtype,
					 x->batch * x->rows * x->cols, &seed);
	}
}

/* ---- the whole ----------------------------------------------------------- */

static enum nib_status pack_one(struct data *data, struct nib_device *device,
				const struct nib_nvfp4 *b,
				const struct nib_packed **slot,
				struct nib_error *err)
{
	enum nib_status status =
	    nib_pack(device, b, &data->packed[data->n_packed], err);

	if (!status)
		*slot = data->packed[data->n_packed++];
	return status;
}

static enum nib_status pack(struct data *data, struct nib_device *device,
			    struct nib_error *err)
{
	struct nib_moe_problem *moe = &data->moe;
	int dual = data->op == NIB_DUAL_GEMM;
	enum nib_status status = NIB_OK;

	data->packed =
	    calloc(2 * (size_t)data->count + 1, sizeof(*data->packed));
	if (!data->packed)
		return refuse(err, NIB_OUT_OF_MEMORY,
			      "packed weights: ", data->count);
	if (data->is_moe)
		status = pack_one(data, device, &moe->b, &moe->b_packed, err);
	if (data->is_moe && dual && !status)
		status = pack_one(data, device, &moe->b2, &moe->b2_packed, err);
	for (int64_t i = 0; i < data->count && !data->is_moe && !status; i++) {
		struct nib_problem *p = &data->problems[i];

		status = pack_one(data, device, &p->b, &p->b_packed, err);
		if (!status && dual)
			status =
			    pack_one(data, device, &p->b2, &p->b2_packed, err);
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

	/* The system would promise more, and end the process later. */
	if (bytes > machine_bytes())
		return NULL;
	if (posix_memalign(&p, bytes >= HUGE_BYTES ? HUGE_BYTES : ALIGN,
			   bytes ? bytes : 1))
		return NULL;
	if (bytes >= HUGE_BYTES)
		(void)madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

/* All operands on the host, and where the device has them. */
static enum nib_status make_operands(struct data *data,
				     const struct shape *shape,
				     const struct data_options *options,
				     struct nib_device *device,
				     struct nib_error *err)
{
	struct operands host = {.problems = data->views};
	struct operands there = {.problems = data->problems};
	void *base = data->memory;

	place(base, shape, options, &host);
	fill(&host, shape, options);
	if (device && (!options->empty || options->packed)) {
		if (staging_new_loaded(device, base, data->memory_bytes,
				       &data->staging, err))
			return err->status;
		base = data->staging.data;
	}
	place(base, shape, options, &there);
	data->moe_views = host.moe;
	data->c = host.c;
	data->c_bytes = host.c_bytes;
	data->moe = there.moe;
	data->x = there.x;
	data->q = there.q;
	data->to = there.to;
	data->global = 1.0f / 2688;
	if (options->packed && shape_is_multiply(shape))
		return pack(data, device, err);
	return NIB_OK;
}

static void allocate_memory(struct data *data,
			    const struct data_options *options)
{
	size_t bytes = data->memory_bytes;

	data->is_reserved = options->empty && bytes > 0;
	if (!data->is_reserved)
		data->memory = allocate(bytes);
	else if (!options->packed || bytes <= machine_bytes())
		data->memory = reserve(bytes);
}

enum nib_status data_new(const struct shape *shape,
			 const struct data_options *options,
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
	if (data->problems && data->views) {
		struct operands ops = {.problems = data->views};

		data->memory_bytes = place(NULL, shape, options, &ops);
		allocate_memory(data, options);
	}
	if (data->memory)
		status = make_operands(data, shape, options, device, err);
	else
		status = no_memory(err, (double)data->memory_bytes);
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

/* The bytes of c, a part of memory; there must be some. */
static struct staging staged_c(const struct data *data)
{
	const size_t at = (size_t)((char *)data->c - (char *)data->memory);

	return (struct staging){
	    .device = data->staging.device,
	    .host = data->c,
	    .data =
		data->staging.data ? (char *)data->staging.data + at : data->c,
	};
}

enum nib_status data_poison(struct data *data, struct nib_error *err)
{
	struct staging c;

	if (!data->c_bytes)
		return NIB_OK;
	c = staged_c(data);
	memset(data->c, 0xFF, data->c_bytes);
	return staging_load(&c, data->c_bytes, err);
}

enum nib_status data_fetch(struct data *data, struct nib_error *err)
{
	enum nib_status status = NIB_OK;
	struct staging c;

	if (data->staging.device)
		status = nib_device_wait(data->staging.device, NULL, err);
	if (status || !data->c_bytes)
		return status;
	c = staged_c(data);
	return staging_fetch(&c, data->c_bytes, err);
}

enum nib_status data_plan(struct nib_device *device, const struct data *data,
			  const struct nib_plan_options *options,
			  struct nib_plan **plan, struct nib_error *err)
{
	if (data->is_moe)
		return nib_plan_create_moe(device, data->op, &data->moe,
					   options, plan, err);
	return nib_plan_create(device, data->op, data->problems, data->count,
			       options, plan, err);
}

enum nib_status data_run(struct nib_plan *plan, const struct data *data,
			 const struct nib_run_options *options,
			 struct nib_error *err)
{
	if (data->is_moe)
		return nib_run_moe(plan, &data->moe, options, err);
	return nib_run(plan, data->problems, data->count, options, err);
}

enum nib_status data_check(const struct data *data,
			   const struct nib_check_options *options,
			   struct nib_check_result *result,
			   struct nib_error *err)
{
	if (data->is_moe)
		return nib_check_moe(data->op, &data->moe_views, options,
				     result, err);
	return nib_check(data->op, data->views, data->count, options, result,
			 err);
}
