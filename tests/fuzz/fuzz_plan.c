/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_plan.c - packs, plans and runs problems of any sizes and strides.  Nothing may
 * crash or allocate by a size that was not checked.  Problems that are accepted and
 * small are run, and their results are compared with the oracle's bound.
 */
#include "input.h"

#define MAX_PROBLEMS 3
#define MAX_EXPERTS  4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static enum nib_op take_op(struct input *in)
{
	uint8_t byte = take_u8(in);

	return byte < 250 ? (enum nib_op)(byte % 3) : (enum nib_op)byte;
}

/* k of all matrices, mostly one and a multiple of 16. */
static int64_t take_k(struct input *in)
{
	uint8_t byte = take_u8(in);

	return byte < 240 ? byte % 8 * NIB_NVFP4_BLOCK : take_size(in);
}

/* Another matrix's size, which one input in sixteen gets wrong. */
static int64_t take_same(struct input *in, int64_t size)
{
	return take_u8(in) < 240 ? size : take_size(in);
}

static int64_t take_batch(struct input *in)
{
	uint8_t byte = take_u8(in);

	return byte < 240 ? byte % 4 : take_size(in);
}

/* MAX_EXPERTS global scales, or NULL. */
static const float *take_alpha(struct input *in)
{
	static const float alphas[2][MAX_EXPERTS] = {
	    {0.75f, -2.5f, 0x1p-30f, 0},
	    {0x1p20f, 1, -0.0f, 3},
	};
	uint8_t byte = take_u8(in) % 4;

	return byte < 2 ? alphas[byte] : NULL;
}

static void take_weights(struct input *in, struct nib_fp4 *b, int64_t n, int64_t k,
			 int64_t batch)
{
	b->rows = take_same(in, n);
	b->k = take_same(in, k);
	b->batch = take_same(in, batch);
	take_nvfp4_strides(in, b);
}

/* ---- A ------------------------------------------------------------------- */

/* What A of a problem or of a group is. */
struct kind {
	enum nib_activations activations;
	enum nib_dtype dtype; /* of x */
	bool is_x;
};

/*
 * selector: the byte that chose the call.  From 192 A is x; the seeds that are
 * older than x have lower ones, and mean what they meant.
 */
static struct kind take_kind(struct input *in, uint8_t selector)
{
	struct kind kind = {.is_x = selector >= 192};

	if (!kind.is_x)
		return kind;
	kind.activations = selector < 250 ? (enum nib_activations)(1 + selector / 4 % 2)
					  : (enum nib_activations)selector;
	kind.dtype = take_dtype(in);
	return kind;
}

/* The sizes and strides of A; every byte of the other view is garbage. */
static void take_a(struct input *in, const struct kind *kind, int64_t rows,
		   struct nib_problem *p)
{
	const int64_t k = take_k(in), batch = take_batch(in);

	memset(&p->a, 0xa5, sizeof(p->a));
	memset(&p->x, 0xa5, sizeof(p->x));
	p->activations = kind->activations;
	if (!kind->is_x) {
		p->a = (struct nib_fp4){.rows = rows, .k = k, .batch = batch};
		take_nvfp4_strides(in, &p->a);
		return;
	}
	p->x = (struct nib_dense){.rows = rows, .cols = k, .batch = batch};
	take_dense_strides(in, &p->x);
	/* One problem in sixteen is not like the others of its group. */
	if (take_u8(in) < 240)
		p->x.dtype = kind->dtype;
	else
		p->activations = (enum nib_activations)(take_u8(in) % 4);
}

/* What the sizes of the other operands must fit. */
static int64_t rows_of(const struct kind *kind, const struct nib_problem *p)
{
	return kind->is_x ? p->x.rows : p->a.rows;
}

static int64_t k_of(const struct kind *kind, const struct nib_problem *p)
{
	return kind->is_x ? p->x.cols : p->a.k;
}

static int64_t batch_of(const struct kind *kind, const struct nib_problem *p)
{
	return kind->is_x ? p->x.batch : p->a.batch;
}

/* ---- problems -------------------------------------------------------------- */

static void take_problem(struct input *in, enum nib_op op, const struct kind *kind,
			 struct nib_problem *p)
{
	int64_t n = take_size(in);
	int64_t k, batch;

	take_a(in, kind, op == NIB_OP_GEMV ? take_same(in, 1) : take_size(in), p);
	k = k_of(kind, p);
	batch = batch_of(kind, p);
	take_weights(in, &p->b, n, k, batch);
	take_weights(in, &p->b2, n, k, batch);
	p->c.rows = take_same(in, rows_of(kind, p));
	p->c.cols = take_same(in, n);
	p->c.batch = take_same(in, batch);
	take_dense_strides(in, &p->c);
	p->alpha = take_alpha(in);
	p->alpha2 = take_alpha(in);
}

/* True if the problem has all its buffers. */
static bool fill_problem(struct input *in, const struct kind *kind,
			 struct nib_problem *p)
{
	bool a = kind->is_x ? fill_dense(in, &p->x) : fill_nvfp4(in, &p->a, p->a.rows);
	bool b = fill_nvfp4(in, &p->b, p->b.rows);
	bool b2 = fill_nvfp4(in, &p->b2, p->b2.rows);
	bool c = fill_dense(in, &p->c);

	return a && b && b2 && c;
}

static void free_a(const struct kind *kind, struct nib_fp4 *a, struct nib_dense *x)
{
	if (kind->is_x)
		free(x->data);
	else
		free_nvfp4(a);
}

static void free_problem(const struct kind *kind, struct nib_problem *p)
{
	free_a(kind, &p->a, &p->x);
	free_nvfp4(&p->b);
	free_nvfp4(&p->b2);
	free(p->c.data);
}

/*
 * Packs b, which may be too large for a buffer: then packing must fail, not
 * read.  Returns what was packed, or NULL.  What was packed is written back over
 * b, which the oracle reads then: wrong bytes would differ from the product.
 * Packing keeps a word for sixteen rows even of k = 0, so very many of those are
 * rightly slow and left out.
 */
static struct nib_packed *pack(struct nib_device *device, const struct nib_fp4 *b)
{
	struct nib_packed *packed = NULL;
	struct nib_error err = {0};
	enum nib_status status;

	if (b->k == 0 && (wide)b->rows * (b->batch ? b->batch : 1) > 1 << 20)
		return NULL;
	status = nib_pack(device, b, NULL, &packed, &err);
	expect_message(status, &err);
	if (!status && nib_unpack(packed, b, NULL, &err))
		abort();
	return packed;
}

static struct nib_plan *make_plan(struct nib_device *device, enum nib_op op,
				  const struct nib_problem *problems, int64_t count,
				  bool caller_workspace)
{
	struct nib_plan_options options = {
	    .struct_bytes = sizeof(options),
	    .caller_workspace = caller_workspace,
	};
	struct nib_plan *plan = NULL;
	struct nib_error err = {0};
	enum nib_status status =
	    nib_plan_create(device, op, problems, count, &options, &plan, &err);

	expect_message(status, &err);
	if (status == NIB_STATUS_OK && !plan)
		broken("a plan that is NULL", &err);
	return plan;
}

/* A workspace of the size that the plan needs, NULL if it needs none. */
static void *make_workspace(const struct nib_plan *plan, size_t *bytes)
{
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	struct nib_error err = {0};
	void *workspace = NULL;

	if (nib_plan_get_info(plan, &info, &err))
		broken("a plan without information", &err);
	if (!info.explanation || info.explanation[0] == '\0')
		broken("a plan without explanation", &err);
	*bytes = info.workspace_bytes;
	if (*bytes > 0 && posix_memalign(&workspace, 64, *bytes))
		abort();
	return workspace;
}

static void check_result(enum nib_op op, const struct nib_problem *problems,
			 int64_t count)
{
	struct nib_check_result result = {.struct_bytes = sizeof(result)};
	struct nib_error err = {0};

	if (nib_check(op, problems, count, NULL, &result, &err))
		broken("the oracle refused what a plan took", &err);
	if (result.failed > 0) {
		fprintf(stderr, "problem %lld (%lld, %lld): %g, exact %g\n",
			(long long)result.problem, (long long)result.row,
			(long long)result.col, result.got, result.want);
		broken("outside the bound", &err);
	}
}

static void run_problems(struct nib_plan *plan, enum nib_op op,
			 struct nib_problem *problems, int64_t count,
			 bool caller_workspace, bool is_small)
{
	struct nib_run_options options = {.struct_bytes = sizeof(options),
					  .check_data = 1};
	struct nib_problem with_view[MAX_PROBLEMS];
	struct nib_error err = {0};
	enum nib_status status;

	/* A plan of a huge problem must refuse NULL, before any workspace. */
	if (caller_workspace && is_small)
		options.workspace = make_workspace(plan, &options.workspace_bytes);
	status = nib_run(plan, problems, count, &options, &err);
	expect_message(status, &err);
	if (status == NIB_STATUS_OK && is_small && count > 0) {
		memcpy(with_view, problems, sizeof(with_view));
		for (int i = 0; i < MAX_PROBLEMS; i++)
			with_view[i].b_packed = with_view[i].b2_packed = NULL;
		check_result(op, with_view, count);
	}
	free(options.workspace);
}

static void fuzz_problems(struct input *in, uint8_t selector, struct nib_device *device)
{
	struct nib_problem problems[MAX_PROBLEMS] = {0};
	struct nib_packed *packed[2 * MAX_PROBLEMS] = {0};
	enum nib_op op = take_op(in);
	int64_t count = take_u8(in) % (MAX_PROBLEMS + 1);
	bool is_small = true, is_packed = take_u8(in) % 2;
	bool caller_workspace = take_u8(in) % 2;
	const struct kind kind = take_kind(in, selector);
	struct nib_plan *plan;

	for (int64_t i = 0; i < count; i++)
		take_problem(in, op, &kind, &problems[i]);
	for (int64_t i = 0; i < count; i++)
		is_small = fill_problem(in, &kind, &problems[i]) && is_small;
	for (int64_t i = 0; is_packed && i < count; i++) {
		packed[2 * i] = pack(device, &problems[i].b);
		packed[2 * i + 1] = pack(device, &problems[i].b2);
		problems[i].b_packed = packed[2 * i];
		problems[i].b2_packed = packed[2 * i + 1];
	}
	/* A huge plan's own workspace may rightly be huge: not asked for. */
	caller_workspace = caller_workspace || !is_small;
	plan = make_plan(device, op, problems, count, caller_workspace);
	if (plan)
		run_problems(plan, op, problems, count, caller_workspace, is_small);
	nib_plan_free(plan);
	for (int64_t i = 0; i < count; i++)
		free_problem(&kind, &problems[i]);
	for (int i = 0; i < 2 * MAX_PROBLEMS; i++)
		nib_packed_free(packed[i]);
}

/* ---- a mixture of experts ----------------------------------------------- */

/* Offsets that mostly ascend to at most rows. */
static void take_offsets(struct input *in, int32_t *offsets, int64_t rows)
{
	int32_t at = 0;

	for (int e = 0; e <= MAX_EXPERTS; e++) {
		uint8_t byte = take_u8(in);

		if (byte >= 250)
			offsets[e] = (int32_t)take_u64(in);
		else
			offsets[e] = at;
		if (at + byte % 13 <= rows)
			at += byte % 13;
	}
}

/* Places of the experts' scales: one after the other, or anything. */
static void take_scale_rows(struct input *in, int32_t *scale_rows, int64_t step)
{
	for (int e = 0; e < MAX_EXPERTS; e++) {
		uint8_t byte = take_u8(in);

		scale_rows[e] = byte < 250 ? e * (int32_t)step : (int32_t)take_u64(in);
	}
}

static void run_moe(struct nib_plan *plan, enum nib_op op, struct nib_moe_problem *moe,
		    bool is_small)
{
	struct nib_run_options options = {.struct_bytes = sizeof(options),
					  .check_data = 1};
	struct nib_check_result result = {.struct_bytes = sizeof(result)};
	struct nib_error err = {0};
	enum nib_status status;

	if (is_small)
		options.workspace = make_workspace(plan, &options.workspace_bytes);
	status = nib_moe_run(plan, moe, &options, &err);
	expect_message(status, &err);
	free(options.workspace);
	if (status != NIB_STATUS_OK || !is_small)
		return;
	moe->problem.b_packed = moe->problem.b2_packed = NULL;
	if (nib_moe_check(op, moe, NULL, &result, &err))
		broken("the oracle refused what a plan took", &err);
	if (result.failed > 0)
		broken("outside the bound", &err);
}

static bool fill_moe(struct input *in, const struct kind *kind,
		     struct nib_moe_problem *moe)
{
	int64_t scale_rows =
	    moe->scale_rows ? moe->scale_rows_total : moe->problem.a.rows;
	bool a = kind->is_x ? fill_dense(in, &moe->problem.x)
			    : fill_nvfp4(in, &moe->problem.a, scale_rows);
	bool b = fill_nvfp4(in, &moe->problem.b, moe->problem.b.rows);
	bool b2 = fill_nvfp4(in, &moe->problem.b2, moe->problem.b2.rows);
	bool c = fill_dense(in, &moe->problem.c);

	return a && b && b2 && c;
}

static void take_moe(struct input *in, const struct kind *kind,
		     struct nib_moe_problem *moe)
{
	struct nib_problem like = {0};

	take_problem(in, NIB_OP_GEMM, kind, &like);
	moe->problem.a = like.a, moe->problem.b = like.b, moe->problem.b2 = like.b2,
	moe->problem.c = like.c;
	moe->problem.x = like.x, moe->problem.activations = like.activations;
	moe->problem.alpha = like.alpha, moe->problem.alpha2 = like.alpha2;
	if (kind->is_x)
		moe->problem.x.batch = take_same(in, 1);
	else
		moe->problem.a.batch = take_same(in, 1);
	moe->problem.c.batch = take_same(in, 1);
}

static void fuzz_moe(struct input *in, uint8_t selector, struct nib_device *device)
{
	struct nib_plan_options options = {.struct_bytes = sizeof(options),
					   .caller_workspace = 1};
	enum nib_op op = take_op(in);
	bool is_packed = take_u8(in) % 2, has_scale_rows = take_u8(in) % 2;
	int32_t offsets[MAX_EXPERTS + 1], scale_rows[MAX_EXPERTS];
	const struct kind kind = take_kind(in, selector);
	struct nib_moe_problem moe = {.row_offsets = offsets};
	struct nib_packed *packed[2] = {0};
	struct nib_plan *plan = NULL;
	struct nib_error err = {0};
	enum nib_status status;
	bool is_small;

	take_moe(in, &kind, &moe);
	/* x has no scales: one input in sixteen gets that wrong. */
	if (kind.is_x)
		has_scale_rows = has_scale_rows && take_u8(in) >= 224;
	take_offsets(in, offsets, kind.is_x ? moe.problem.x.rows : moe.problem.a.rows);
	if (has_scale_rows) {
		int64_t step =
		    moe.problem.a.scale_layout == NIB_SCALE_LAYOUT_LINEAR ? 48 : 128;

		take_scale_rows(in, scale_rows, step);
		moe.scale_rows = scale_rows;
		moe.scale_rows_total = take_same(in, MAX_EXPERTS * step);
	}
	/* Arrays are read to the count of b: it must be theirs. */
	if (moe.problem.b.batch > MAX_EXPERTS)
		moe.row_offsets = NULL;
	is_small = fill_moe(in, &kind, &moe) && moe.row_offsets;
	if (is_packed) {
		moe.problem.b_packed = packed[0] = pack(device, &moe.problem.b);
		moe.problem.b2_packed = packed[1] = pack(device, &moe.problem.b2);
	}
	status = nib_moe_plan_create(device, op, &moe, &options, &plan, &err);
	expect_message(status, &err);
	if (plan)
		run_moe(plan, op, &moe, is_small);
	nib_plan_free(plan);
	nib_packed_free(packed[0]);
	nib_packed_free(packed[1]);
	free_a(&kind, &moe.problem.a, &moe.problem.x);
	free_nvfp4(&moe.problem.b);
	free_nvfp4(&moe.problem.b2);
	free(moe.problem.c.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
	struct input in = {data, n_bytes};
	struct nib_device *device = take_device(&in);
	const uint8_t selector = take_u8(&in);

	if (selector % 4)
		fuzz_problems(&in, selector, device);
	else
		fuzz_moe(&in, selector, device);
	return 0;
}
