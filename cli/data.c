/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data.c - makes the operands of a shape: see data.h.  One block of memory
 * holds them all; the code that lays it out runs twice, first to measure.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli.h"
#include "data.h"
#include "data_fill.h"

#define ALIGN	   64
#define HUGE_BYTES ((size_t)2 << 20)
/* More than any machine has; keeps the sums below 2^63. */
#define MAX_BYTES 70368744177664.0 /* 2^46 */

struct arena {
	char *base; /* NULL: only measure */
	size_t used;
};

static void *take(struct arena *arena, size_t bytes)
{
	void *p = arena->base ? arena->base + arena->used : NULL;

	arena->used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
	return p;
}

static void place_nvfp4(struct arena *arena, enum nib_scale_layout layout,
			int64_t rows, int64_t k, int64_t batch,
			struct nib_nvfp4 *q)
{
	*q = (struct nib_nvfp4){
	    .rows = rows,
	    .k = k,
	    .batch = batch,
	    .scale_layout = layout,
	};
	q->codes = take(arena, (size_t)(batch * rows * (k / 2)));
	q->scales =
	    take(arena, (size_t)batch * nib_scales_bytes(layout, rows, k));
}

static void place_dense(struct arena *arena, enum nib_dtype dtype, int64_t rows,
			int64_t cols, int64_t batch, struct nib_dense *x)
{
	*x = (struct nib_dense){
	    .dtype = dtype,
	    .rows = rows,
	    .cols = cols,
	    .batch = batch,
	};
	x->data =
	    take(arena, (size_t)(batch * rows * cols) * nib_dtype_bytes(dtype));
}

static int64_t pad128(int64_t rows)
{
	return (rows + 127) / 128 * 128;
}

static void place_moe(struct arena *arena, const struct shape *shape,
		      const struct data_options *o, struct data *data)
{
	struct nib_moe_problem *moe = &data->moe;
	int64_t experts = shape->count, rows = 0, padded = 0;
	int64_t n = shape->sizes[0].n, k = shape->sizes[0].k;
	size_t per_expert = (size_t)experts;
	int32_t *offsets = take(arena, (per_expert + 1) * sizeof(*offsets));
	int32_t *scale_rows = take(arena, per_expert * sizeof(*scale_rows));
	size_t c_begin;

	for (int64_t e = 0; e < experts; e++) {
		if (arena->base) {
			offsets[e] = (int32_t)rows;
			scale_rows[e] = (int32_t)padded;
		}
		rows += shape->sizes[e].m;
		padded += pad128(shape->sizes[e].m);
	}
	if (arena->base)
		offsets[experts] = (int32_t)rows;
	*moe = (struct nib_moe_problem){.row_offsets = offsets};
	moe->alpha = take(arena, per_expert * sizeof(float));
	moe->alpha2 = take(arena, per_expert * sizeof(float));
	/* As torch does it: in tiles every expert starts a new one. */
	if (o->layout == NIB_TILED_128X4) {
		moe->scale_rows = scale_rows;
		moe->scale_rows_total = padded;
		place_nvfp4(arena, o->layout, padded, k, 1, &moe->a);
		moe->a.rows = rows;
	} else {
		place_nvfp4(arena, o->layout, rows, k, 1, &moe->a);
	}
	place_nvfp4(arena, o->layout, n, k, experts, &moe->b);
	if (data->op == NIB_DUAL_GEMM)
		place_nvfp4(arena, o->layout, n, k, experts, &moe->b2);
	c_begin = arena->used;
	place_dense(arena, o->out, rows, n, 1, &moe->c);
	data->c = moe->c.data;
	data->c_bytes = arena->used - c_begin;
}

static void place_problems(struct arena *arena, const struct shape *shape,
			   const struct data_options *o, struct data *data)
{
	size_t c_begin;

	for (int64_t i = 0; i < shape->count; i++) {
		const struct shape_size *s = &shape->sizes[i];
		struct nib_problem *p = &data->problems[i];

		place_nvfp4(arena, o->layout, s->m, s->k, shape->batch, &p->a);
		place_nvfp4(arena, o->layout, s->n, s->k, shape->batch, &p->b);
		if (data->op == NIB_DUAL_GEMM)
			place_nvfp4(arena, o->layout, s->n, s->k, shape->batch,
				    &p->b2);
		p->alpha = take(arena, sizeof(float));
		p->alpha2 = take(arena, sizeof(float));
	}
	c_begin = arena->used;
	for (int64_t i = 0; i < shape->count; i++)
		place_dense(arena, o->out, shape->sizes[i].m, shape->sizes[i].n,
			    shape->batch, &data->problems[i].c);
	data->c = arena->base ? arena->base + c_begin : NULL;
	data->c_bytes = arena->used - c_begin;
}

static void place(struct arena *arena, const struct shape *shape,
		  const struct data_options *o, struct data *data)
{
	const struct shape_size *s = &shape->sizes[0];

	if (data->is_moe) {
		place_moe(arena, shape, o, data);
	} else if (shape_is_multiply(shape)) {
		place_problems(arena, shape, o, data);
	} else {
		place_nvfp4(arena, o->layout, s->m, s->k, shape->batch,
			    &data->q);
		if (shape->op == OP_CONVERT)
			place_nvfp4(arena,
				    o->layout == NIB_LINEAR ? NIB_TILED_128X4
							    : NIB_LINEAR,
				    s->m, s->k, shape->batch, &data->to);
		else
			place_dense(arena, o->dtype, s->m, s->k, shape->batch,
				    &data->x);
	}
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

static void fill_problems(struct data *data, const struct data_options *o)
{
	uint64_t seed = o->seed;

	for (int64_t i = 0; i < data->count && !data->is_moe; i++) {
		struct nib_problem *p = &data->problems[i];
		float *alpha = (float *)(uintptr_t)p->alpha;
		float *alpha2 = (float *)(uintptr_t)p->alpha2;
		int full = o->fill == DATA_FULL;

		if (!alpha || !alpha2)
			continue;
		fill_nvfp4(&p->a, scale_bytes(&p->a), o->fill, &seed);
		fill_nvfp4(&p->b, scale_bytes(&p->b), o->fill, &seed);
		fill_nvfp4(&p->b2, scale_bytes(&p->b2), o->fill, &seed);
		*alpha = full ? full_alpha(p->a.k, &seed) : 1;
		*alpha2 = full ? full_alpha(p->a.k, &seed) : 1;
	}
}

static void fill_moe(struct data *data, const struct data_options *o)
{
	struct nib_moe_problem *moe = &data->moe;
	float *alpha = (float *)(uintptr_t)moe->alpha;
	float *alpha2 = (float *)(uintptr_t)moe->alpha2;
	struct nib_nvfp4 all = moe->a;
	uint64_t seed = o->seed;

	if (moe->scale_rows)
		all.rows = moe->scale_rows_total;
	if (!alpha || !alpha2)
		return;
	fill_nvfp4(&moe->a, scale_bytes(&all), o->fill, &seed);
	fill_nvfp4(&moe->b, scale_bytes(&moe->b), o->fill, &seed);
	fill_nvfp4(&moe->b2, scale_bytes(&moe->b2), o->fill, &seed);
	for (int64_t e = 0; e < data->count; e++) {
		int full = o->fill == DATA_FULL;

		alpha[e] = full ? full_alpha(moe->a.k, &seed) : 1;
		alpha2[e] = full ? full_alpha(moe->a.k, &seed) : 1;
	}
}

static void fill_conversion(struct data *data, const struct data_options *o)
{
	uint64_t seed = o->seed;

	fill_nvfp4(&data->q, scale_bytes(&data->q), o->fill, &seed);
	data->global = 1.0f / 2688;
	if (data->x.data)
		data_fill_floats(data->x.data, data->x.dtype,
				 data->x.batch * data->x.rows * data->x.cols,
				 &seed);
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
	int dual = data->op == NIB_DUAL_GEMM;
	enum nib_status status = NIB_OK;

	data->packed =
	    calloc(2 * (size_t)data->count + 1, sizeof(*data->packed));
	if (!data->packed)
		return refuse(err, NIB_OUT_OF_MEMORY,
			      "packed weights: ", data->count);
	if (data->is_moe) {
		struct nib_moe_problem *moe = &data->moe;

		status = pack_one(data, device, &moe->b, &moe->b_packed, err);
		if (!status && dual)
			status = pack_one(data, device, &moe->b2,
					  &moe->b2_packed, err);
		return status;
	}
	for (int64_t i = 0; i < data->count && !status; i++) {
		struct nib_problem *p = &data->problems[i];

		status = pack_one(data, device, &p->b, &p->b_packed, err);
		if (!status && dual)
			status =
			    pack_one(data, device, &p->b2, &p->b2_packed, err);
	}
	return status;
}

/* ---- on a GPU ------------------------------------------------------------ */

static void *moved(const struct data *data, const void *pointer)
{
	const char *from = pointer;

	if (!from)
		return NULL;
	return (char *)data->staging.data + (from - (char *)data->memory);
}

static void move_nvfp4(const struct data *data, struct nib_nvfp4 *q)
{
	q->codes = moved(data, q->codes);
	q->scales = moved(data, q->scales);
}

/* All of memory to the device, and what the calls are given with it. */
static enum nib_status move(struct data *data, struct nib_device *device,
			    struct nib_error *err)
{
	struct nib_moe_problem *moe = &data->moe;
	enum nib_status status;

	status = staging_new_loaded(device, data->memory, data->memory_bytes,
				    &data->staging, err);
	if (status || data->staging.data == data->memory)
		return status;
	for (int64_t i = 0; i < data->count; i++) {
		struct nib_problem *p = &data->problems[i];

		move_nvfp4(data, &p->a);
		move_nvfp4(data, &p->b);
		move_nvfp4(data, &p->b2);
		p->alpha = moved(data, p->alpha);
		p->alpha2 = moved(data, p->alpha2);
		p->c.data = moved(data, p->c.data);
	}
	move_nvfp4(data, &moe->a);
	move_nvfp4(data, &moe->b);
	move_nvfp4(data, &moe->b2);
	moe->alpha = moved(data, moe->alpha);
	moe->alpha2 = moved(data, moe->alpha2);
	moe->row_offsets = moved(data, moe->row_offsets);
	moe->scale_rows = moved(data, moe->scale_rows);
	moe->c.data = moved(data, moe->c.data);
	move_nvfp4(data, &data->q);
	move_nvfp4(data, &data->to);
	data->x.data = moved(data, data->x.data);
	return NIB_OK;
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

size_t data_bytes(const struct shape *shape, const struct data_options *options)
{
	struct data data = {.count = shape->count};
	struct arena arena = {0};

	if (check_sizes(shape, NULL))
		return 0;
	data.op = shape_nib_op(shape, &data.is_moe);
	data.problems =
	    calloc((size_t)shape->count + 1, sizeof(*data.problems));
	if (data.problems)
		place(&arena, shape, options, &data);
	free(data.problems);
	return arena.used;
}

static enum nib_status fill(struct data *data, const struct shape *shape,
			    const struct data_options *options,
			    struct nib_device *device, struct nib_error *err)
{
	enum nib_status status = NIB_OK;

	if (options->empty)
		; /* zeros as they are */
	else if (data->is_moe)
		fill_moe(data, options);
	else if (shape_is_multiply(shape))
		fill_problems(data, options);
	else
		fill_conversion(data, options);
	memcpy(data->views, data->problems,
	       sizeof(*data->views) * (size_t)data->count);
	data->moe_views = data->moe;
	if (device && (!options->empty || options->packed))
		status = move(data, device, err);
	if (status)
		return status;
	if (options->packed && shape_is_multiply(shape))
		status = pack(data, device, err);
	return status;
}

enum nib_status data_new(const struct shape *shape,
			 const struct data_options *options,
			 struct nib_device *device, struct data **out,
			 struct nib_error *err)
{
	size_t slots = (size_t)shape->count + 1;
	enum nib_status status = check_sizes(shape, err);
	struct arena arena = {0};
	struct data *data;

	*out = NULL;
	if (status)
		return status;
	data = calloc(1, sizeof(*data));
	if (!data)
		return no_memory(err, sizeof(*data));
	data->count = shape->count;
	data->op = shape_nib_op(shape, &data->is_moe);
	data->problems = calloc(slots, sizeof(*data->problems));
	data->views = calloc(slots, sizeof(*data->views));
	if (data->problems)
		place(&arena, shape, options, data);
	data->memory_bytes = arena.used;
	data->is_reserved = options->empty && arena.used > 0;
	if (data->views && !data->is_reserved)
		data->memory = allocate(arena.used);
	else if (data->views &&
		 (!options->packed || arena.used <= machine_bytes()))
		data->memory = reserve(arena.used);
	if (!data->problems || !data->views || !data->memory) {
		data_free(data);
		return no_memory(err, (double)arena.used);
	}
	arena = (struct arena){.base = data->memory};
	place(&arena, shape, options, data);
	status = fill(data, shape, options, device, err);
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
	    .bytes = data->c_bytes,
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
			  struct nib_plan **plan, struct nib_error *err)
{
	if (data->is_moe)
		return nib_plan_create_moe(device, data->op, &data->moe, NULL,
					   plan, err);
	return nib_plan_create(device, data->op, data->problems, data->count,
			       NULL, plan, err);
}

enum nib_status data_run(struct nib_plan *plan, const struct data *data,
			 const struct nib_run_options *options,
			 struct nib_error *err)
{
	if (data->is_moe)
		return nib_run_moe(plan, &data->moe, options, err);
	return nib_run(plan, data->problems, data->count, options, err);
}
