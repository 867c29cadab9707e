/* SPDX-License-Identifier: Apache-2.0 */
/* gemv.c - products of few rows on a GPU; see gemv.h. */
#include "gemv.h"

#include <stdio.h>
#include <string.h>

#include "backend/cuda/common/operand.h"
#include "backend/cuda/common/pack.h"
#include "backend/cuda/common/tiled.h"
#include "format/view.h"

/* Shared memory that the system reserves for each CTA. */
#define CTA_SHARED_BYTES 1024
/*
 * The M of the variant for any alignment; a product of one NVFP4 row has a
 * variant of its own.
 */
#define ANY_M 4
/* The limit of gridDim.y: a larger batch is several launches. */
#define MAX_BATCH 65535
/*
 * From about so many weights on the fewer instructions of the skinny kernels pay for
 * three or four rows of A, and the tensor cores' tiles for nine or more
 * (docs/performance-hopper.md).
 */
#define LARGE_WEIGHTS ((int64_t)1 << 25)
/* CTAs of a wide kernel that cut k. */
#define WIDE_MAX_SLICES 2
/*
 * The wide kernels take what gives no CTA of a GPU of so many multiprocessors
 * more units and steps than these, as 4096 x 4096 does: tiles of tensor cores
 * are faster beyond (docs/performance-hopper.md).
 */
#define WIDE_MULTIPROCESSORS 132
#define WIDE_MOST_WORK	     8
/* From this k on experts of one row in the average go to the skinny kernel. */
#define MOE_LARGE_K 2048
/*
 * So many rows of all experts go to the vector kernels, if there are as many
 * experts, or with a dense A, whose rows cost more instructions, twice as many:
 * then few have more than one row (docs/performance-hopper.md).
 */
#define MOE_VECTOR_ROWS	      128
#define MOE_VECTOR_DENSE_ROWS 64

/* Dense A of one row is the first of two. */
static int variant_m(int64_t m, bool is_dense)
{
	return m == 1 && !is_dense ? 1 : m <= 2 ? 2 : 4;
}

static int variant_any_m(int64_t m, bool is_dense)
{
	return m == 1 && !is_dense ? 1 : ANY_M;
}

/* Shared memory of the variant of so many rows. */
static int64_t shared_bytes_of(int64_t m, int64_t k, bool is_dense, int variant,
			       int tiles_per_cta)
{
	return is_dense ? nib_gemv_dense_shared_bytes(k, (int)m, variant, tiles_per_cta)
			: nib_gemv_shared_bytes(k, variant, tiles_per_cta);
}

/* CTAs that an SM has at once. */
static int64_t resident(const struct gemv_cut *cut, int64_t shared_bytes)
{
	const int64_t by_shared =
	    (shared_bytes + CTA_SHARED_BYTES) / (cut->shared_bytes + CTA_SHARED_BYTES);
	const int64_t by_registers = NIB_GEMV_CTAS;

	return by_shared < by_registers ? by_shared : by_registers;
}

/* matrices: of weights that a CTA multiplies, of each its tiles. */
static struct gemv_cut cut_of(int64_t m, int64_t n, int64_t k, int64_t batch,
			      int matrices, bool a_is_dense, bool b_is_tiled,
			      int multiprocessors, int64_t shared_bytes)
{
	const int any_m = variant_any_m(m, a_is_dense);
	struct gemv_cut cut = {.m = variant_m(m, a_is_dense)};

	cut.tiles = (int32_t)nib_gemv_tiles(n, b_is_tiled);
	for (int tiles = 1; tiles <= NIB_GEMV_MAX_TILES; tiles++) {
		cut.tiles_per_cta = tiles;
		cut.ctas = divide_up(cut.tiles, tiles);
		cut.shared_bytes =
		    shared_bytes_of(m, k, a_is_dense, cut.m, tiles * matrices);
		if (cut.ctas * batch <= resident(&cut, shared_bytes) * multiprocessors)
			break;
	}
	/* Their numbers differ by one at most. */
	cut.tiles_per_cta = (int32_t)divide_up(cut.tiles, cut.ctas);
	cut.shared_bytes =
	    shared_bytes_of(m, k, a_is_dense, cut.m, cut.tiles_per_cta * matrices);
	cut.any_shared_bytes =
	    shared_bytes_of(m, k, a_is_dense, any_m, cut.tiles_per_cta * matrices);
	return cut;
}

struct gemv_cut gemv_cut(int64_t m, int64_t n, int64_t k, int64_t batch,
			 bool a_is_dense, bool b_is_tiled, int multiprocessors,
			 int64_t shared_bytes)
{
	return cut_of(m, n, k, batch, 1, a_is_dense, b_is_tiled, multiprocessors,
		      shared_bytes);
}

struct gemv_cut gemv_cut_moe(int64_t rows, int matrices, int64_t n, int64_t k,
			     bool a_is_dense, bool b_is_tiled, int multiprocessors,
			     int64_t shared_bytes)
{
	return cut_of(1, n, k, rows, matrices, a_is_dense, b_is_tiled, multiprocessors,
		      shared_bytes);
}

/*
 * Warps that share the k of a tile, if a CTA has so many tiles: as many as there
 * are.  They divide the chunks (skinny.cuh), and each has a step.
 */
static int64_t skinny_groups(int64_t tiles, int64_t k, int eights)
{
	const int64_t steps = divide_up(k, NIB_GEMV_STEP);
	const int64_t chunks = NIB_SKINNY_CHUNKS(eights);
	int64_t groups = chunks;

	while (groups > 1 &&
	       (chunks % groups || groups > steps || groups * tiles > NIB_SKINNY_WARPS))
		groups--;
	return groups;
}

/*
 * Equal rounds of a CTA that has so many tiles.  If two of the four schedulers
 * would have a warp more than the others, two warps' work becomes that of four.
 * Only up to eight rows of A have two sums to share.  Half of the warps or fewer
 * are busy only where k is so short that a warp has a step or two.
 */
static void cut_rounds(int64_t tiles, struct skinny_cut *cut)
{
	const int64_t most = NIB_SKINNY_WARPS / cut->k_groups;
	int32_t busy;

	cut->tiles_at_once = (int32_t)divide_up(tiles, divide_up(tiles, most));
	busy = cut->tiles_at_once * cut->k_groups;
	if (cut->eights == 1 && busy > NIB_SKINNY_WARPS / 2 && busy % 4 == 2)
		cut->halved_tiles = 2 / cut->k_groups;
}

/*
 * The groups of k decide the order of sums, so neither a batch nor the layout of
 * scales changes them.
 */
struct skinny_cut skinny_cut(int64_t m, int64_t n, int64_t k, int64_t batch,
			     bool b_is_tiled, int multiprocessors)
{
	const int64_t tiles = nib_gemv_tiles(n, b_is_tiled);
	const int64_t share = multiprocessors / batch;
	struct skinny_cut cut = {.eights = m <= 8 ? 1 : 2, .tiles = (int32_t)tiles};

	cut.k_groups = (int32_t)skinny_groups(
	    divide_up(nib_gemv_tiles(n, false), multiprocessors), k, cut.eights);
	cut.ctas = tiles < share ? tiles : share > 1 ? share : 1;
	cut_rounds(divide_up(tiles, cut.ctas), &cut);
	return cut;
}

/*
 * Units of 64 rows of B that a CTA has, and CTAs that cut their k: the least work
 * for a CTA, as many as are on the GPU at once, and then the least of A.  The
 * layout of scales changes no sum.
 */
struct skinny_cut wide_cut(int64_t m, int64_t n, int64_t k, bool b_is_tiled,
			   int multiprocessors)
{
	const int64_t tiles = nib_gemv_tiles(n, b_is_tiled);
	const int64_t units = divide_up(n, 4 * NIB_GEMV_TILE_ROWS);
	const int64_t steps = k > 0 ? divide_up(k, NIB_GEMV_STEP) : 1;
	int64_t least = INT64_MAX;
	int units_at_once = 4;
	struct skinny_cut cut = {
	    .eights = m <= 32 ? 4 : 8, .tiles = (int32_t)tiles, .k_slices = 1};

	for (int slices = 1; slices <= WIDE_MAX_SLICES && slices <= steps; slices *= 2)
		for (int u = 1; u <= 4; u *= 2) {
			const int64_t work = u * divide_up(steps, slices);

			if (divide_up(units, u) > multiprocessors / slices ||
			    work > least || u * (slices - 1) > 2)
				continue;
			least = work;
			units_at_once = u;
			cut.k_slices = slices;
		}
	cut.tiles_at_once = 4 * units_at_once;
	cut.k_groups = 4 / units_at_once;
	cut.ctas = divide_up(divide_up(tiles, 4), units_at_once) * cut.k_slices;
	return cut;
}

struct skinny_cut skinny_cut_moe(int64_t rows, int64_t experts, int64_t n, int64_t k,
				 int multiprocessors)
{
	const int64_t tiles = nib_gemv_tiles(n, true);
	const int64_t all = tiles * (rows < experts ? rows : experts);
	struct skinny_cut cut = {.eights = 1, .tiles = (int32_t)tiles};
	int64_t most;

	cut.ctas = all < multiprocessors ? all : multiprocessors;
	most = divide_up(all, cut.ctas);
	cut.k_groups = (int32_t)skinny_groups(most, k, cut.eights);
	cut_rounds(most, &cut);
	return cut;
}

static bool is_wide_work(int64_t m, int64_t n, int64_t k)
{
	const struct skinny_cut cut = wide_cut(m, n, k, false, WIDE_MULTIPROCESSORS);
	const int64_t units = cut.tiles_at_once / 4;

	return cut.ctas <= WIDE_MULTIPROCESSORS &&
	       units * divide_up(divide_up(k, NIB_GEMV_STEP), cut.k_slices) <=
		   WIDE_MOST_WORK;
}

enum gemv_way gemv_way(int64_t m, int64_t n, int64_t k)
{
	const bool is_large = k > 0 && n >= LARGE_WEIGHTS / k;

	if (m <= 2 || (m <= NIB_GEMV_MAX_ROWS && !is_large))
		return GEMV_VECTOR;
	if (m <= 8 || (m <= NIB_SKINNY_MAX_ROWS && !is_large))
		return GEMV_SKINNY;
	return m <= NIB_WIDE_MAX_ROWS && !is_large && is_wide_work(m, n, k)
		   ? GEMV_WIDE
		   : GEMV_TILES;
}

bool gemv_takes(enum nib_op op, const struct nib_problem *p)
{
	const enum gemv_way way = p->a.rows >= 1 && p->b.rows >= 1
				      ? gemv_way(p->a.rows, p->b.rows, p->b.k)
				      : GEMV_TILES;

	return op != NIB_OP_DUAL_GEMM && way != GEMV_TILES &&
	       (way != GEMV_WIDE || nib_fp4_batches(&p->a) == 1) &&
	       nib_gemv_tiles(p->b.rows, true) <= INT32_MAX &&
	       nib_fp4_batches(&p->a) <= INT32_MAX;
}

static bool takes_vector(int64_t rows, int64_t experts, bool is_dense)
{
	return is_dense ? rows <= MOE_VECTOR_DENSE_ROWS && 2 * rows <= experts
			: rows <= MOE_VECTOR_ROWS && rows <= experts;
}

enum gemv_way gemv_way_moe(enum nib_op op, const struct nib_moe_problem *moe)
{
	const int64_t rows = moe->problem.a.rows,
		      experts = nib_fp4_batches(&moe->problem.b);
	const bool is_dense = moe->problem.activations == NIB_ACTIVATIONS_DENSE;

	if (rows < 1 || moe->problem.b.rows < 1 || moe->problem.b.k < 1 ||
	    nib_gemv_tiles(moe->problem.b.rows, true) > INT32_MAX / NIB_SKINNY_UNITS)
		return GEMV_TILES;
	if (takes_vector(rows, experts, is_dense))
		return GEMV_VECTOR;
	return op != NIB_OP_DUAL_GEMM && rows <= NIB_SKINNY_ROWS &&
		       (rows <= 8 ||
			(rows <= experts && moe->problem.b.k >= MOE_LARGE_K)) &&
		       experts <= NIB_SKINNY_EXPERTS
		   ? GEMV_SKINNY
		   : GEMV_TILES;
}

static bool is_aligned(const struct nib_gemv_params *p)
{
	return p->a.codes_align == 16 && p->a.scales_align >= 4 &&
	       p->b.codes_align == 16 && p->b.scales_align == 16 && p->k % 32 == 0;
}

/* moe: NULL, or p is of its stacks. */
static void set_pointers(struct nib_skinny_params *q, const struct nib_problem *p,
			 const struct nib_moe_problem *moe)
{
	const int64_t batches = nib_fp4_batches(&p->a);
	struct nib_gemv_params *params = &q->p;

	params->a = p->activations == NIB_ACTIVATIONS_DENSE
			? cuda_dense_operand(&p->x, batches)
			: cuda_operand(&p->a, batches);
	params->b = cuda_operand(&p->b, moe ? nib_fp4_batches(&p->b) : batches);
	params->alpha = p->alpha;
	params->c = p->c.data;
	if (!moe)
		return;
	q->row_offsets = moe->row_offsets;
	q->scale_rows = moe->scale_rows;
	q->b2 = cuda_operand(&p->b2, nib_fp4_batches(&p->b2));
	q->alpha2 = p->alpha2;
}

static void skip_operand(struct nib_gemv_operand *o, int64_t count)
{
	o->codes = nib_offset_bytes(o->codes, count * o->batch_stride);
	o->scales = nib_offset_bytes(o->scales, count * o->scale_batch_stride);
}

/* To the matrices behind so many. */
static void skip_matrices(struct nib_gemv_params *params, int64_t count)
{
	const int64_t size = (int64_t)nib_dtype_bytes((enum nib_dtype)params->c_dtype);

	skip_operand(&params->a, count);
	skip_operand(&params->b, count);
	params->c = nib_offset_bytes(params->c, count * params->c_batch_stride * size);
}

/* All of an SM's memory as shared memory. */
static enum nib_status find_kernel(struct cuda_device *device, const char *name,
				   int64_t shared_bytes, CUfunction *function,
				   struct nib_error *err)
{
	CUresult result;
	enum nib_status status =
	    cuda_kernel(device, name, (int)shared_bytes, function, err);

	if (status)
		return status;
	result = device->driver->cuFuncSetAttribute(
	    *function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100);
	return result ? cuda_fail(device->driver, result, name, err) : NIB_STATUS_OK;
}

/* All of the parameters but pointers. */
static void set_sizes(struct nib_skinny_params *q, const struct nib_problem *p,
		      const struct nib_moe_problem *moe)
{
	static const struct nib_moe_problem no_pointers;
	struct nib_gemv_params *params = &q->p;
	struct nib_problem shape = *p;

	shape.a.codes = shape.a.scales = shape.b.codes = shape.b.scales = NULL;
	shape.b2.codes = shape.b2.scales = NULL;
	shape.x.data = shape.c.data = NULL;
	shape.alpha = shape.alpha2 = NULL;
	set_pointers(q, &shape, moe ? &no_pointers : NULL);
	params->c_row_stride = nib_dense_row_stride_elems(&p->c);
	params->c_batch_stride = nib_dense_batch_stride_elems(&p->c);
	params->n = p->b.rows;
	params->k = (int32_t)p->b.k;
	params->c_dtype = (int32_t)p->c.dtype;
	if (moe) {
		q->experts = (int32_t)nib_fp4_batches(&p->b);
		q->rows = (int32_t)p->a.rows;
		q->scale_rows_total = (int32_t)moe->scale_rows_total;
	} else {
		params->m = (int32_t)p->a.rows;
	}
}

/* The kernels nib_NAME_VARIANT, if rows are of 16-byte pieces, and
 * nib_NAME_ANY_any, of a type of A. */
static enum nib_status find_kernels(struct cuda_device *device, const char *kernel,
				    int variant, int any, const char *type,
				    struct cuda_gemv *gemv, struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;
	char name[32];

	if (is_aligned(&gemv->params.p)) {
		snprintf(name, sizeof(name), "nib_%s_%d%s", kernel, variant, type);
		status =
		    find_kernel(device, name, gemv->shared_bytes, &gemv->aligned, err);
	}
	if (status)
		return status;
	snprintf(name, sizeof(name), "nib_%s_%d_any%s", kernel, any, type);
	return find_kernel(device, name, gemv->any_shared_bytes, &gemv->any, err);
}

static enum nib_status plan_vector(struct cuda_device *device, bool is_dense,
				   const char *type, struct cuda_gemv *gemv,
				   struct nib_error *err)
{
	struct nib_gemv_params *params = &gemv->params.p;
	const struct gemv_cut cut =
	    gemv_cut(params->m, params->n, params->k, gemv->batch, is_dense,
		     params->b.is_tiled, device->multiprocessors, device->shared_bytes);

	params->tiles = cut.tiles;
	params->tiles_per_cta = cut.tiles_per_cta;
	gemv->ctas = cut.ctas;
	gemv->threads = NIB_GEMV_THREADS;
	gemv->shared_bytes = cut.shared_bytes;
	gemv->any_shared_bytes = cut.any_shared_bytes;
	return find_kernels(device, "gemv", cut.m, variant_any_m(params->m, is_dense),
			    type, gemv, err);
}

enum nib_status cuda_gemv_find_experts(struct cuda_device *device, int matrices,
				       const char *type, const struct gemv_cut *cut,
				       CUfunction *function, struct nib_error *err)
{
	char name[40];

	snprintf(name, sizeof(name), "nib_gemv_experts_%s%d%s",
		 matrices == 2 ? "dual_" : "", cut->m, type);
	return find_kernel(device, name, cut->shared_bytes, function, err);
}

/* Experts: a row of A at a time, by one matrix or two. */
static enum nib_status plan_vector_moe(struct cuda_device *device, int matrices,
				       bool is_dense, const char *type,
				       struct cuda_gemv *gemv, struct nib_error *err)
{
	struct nib_gemv_params *params = &gemv->params.p;
	const struct gemv_cut cut = gemv_cut_moe(
	    gemv->params.rows, matrices, params->n, params->k, is_dense,
	    params->b.is_tiled, device->multiprocessors, device->shared_bytes);

	params->m = 1;
	params->tiles = cut.tiles;
	params->tiles_per_cta = cut.tiles_per_cta;
	gemv->batch = gemv->params.rows;
	gemv->ctas = cut.ctas;
	gemv->threads = NIB_GEMV_THREADS;
	gemv->shared_bytes = cut.shared_bytes;
	return cuda_gemv_find_experts(device, matrices, type, &cut, &gemv->aligned,
				      err);
}

_Static_assert(NIB_SKINNY_WARPS <= 16, "NIB_SKINNY_SHARE() has four bits");

/*
 * What each warp has: whole tiles first, then first halves, then second ones.
 * Whole tiles have 8 or 12 warps if some are halved, and the halves four, so each
 * scheduler (warp number modulo 4) has as many.
 */
static void fill_shares(struct nib_skinny_params *q)
{
	const int32_t whole = q->tiles_at_once - q->halved_tiles;
	int warp = 0;

	for (int32_t group = 0; group < q->k_groups; group++)
		for (int32_t tile = 0; tile < whole; tile++)
			q->shares[warp++] =
			    (uint16_t)NIB_SKINNY_SHARE(tile, group, NIB_SKINNY_WHOLE);
	for (int32_t half = 0; half < 2; half++)
		for (int32_t group = 0; group < q->k_groups; group++)
			for (int32_t i = 0; i < q->halved_tiles; i++)
				q->shares[warp++] =
				    (uint16_t)NIB_SKINNY_SHARE(whole + i, group, half);
}

static enum nib_status plan_skinny(struct cuda_device *device, const char *type,
				   struct cuda_gemv *gemv, struct nib_error *err)
{
	struct nib_skinny_params *q = &gemv->params;
	const bool is_moe = q->experts > 0;
	const bool is_wide = !is_moe && gemv_way(q->p.m, q->p.n, q->p.k) == GEMV_WIDE;
	const struct skinny_cut cut =
	    is_moe    ? skinny_cut_moe(q->rows, q->experts, q->p.n, q->p.k,
				       device->multiprocessors)
	    : is_wide ? wide_cut(q->p.m, q->p.n, q->p.k, q->p.b.is_tiled,
				 device->multiprocessors)
		      : skinny_cut(q->p.m, q->p.n, q->p.k, gemv->batch, q->p.b.is_tiled,
				   device->multiprocessors);
	char name[40];

	q->p.tiles = cut.tiles;
	q->tiles_at_once = cut.tiles_at_once;
	q->k_groups = cut.k_groups;
	q->halved_tiles = cut.halved_tiles;
	fill_shares(q);
	q->k_slices = cut.k_slices;
	gemv->ctas = cut.ctas;
	gemv->threads = NIB_SKINNY_THREADS;
	gemv->shared_bytes = gemv->any_shared_bytes =
	    is_wide ? nib_wide_shared_bytes(cut.eights)
		    : nib_skinny_shared_bytes(cut.eights, is_moe);
	if (!is_moe)
		return find_kernels(device, "skinny", 8 * cut.eights, 8 * cut.eights,
				    type, gemv, err);
	snprintf(name, sizeof(name), "nib_skinny_experts_%d%s", 8 * cut.eights, type);
	return find_kernel(device, name, gemv->shared_bytes, &gemv->aligned, err);
}

/* With the weights as views. */
static struct nib_problem problem_of_moe(const struct nib_moe_problem *moe)
{
	struct nib_problem p = cuda_unpacked(&moe->problem);

	p.b2 = *cuda_weights(&p.b2, p.b2_packed);
	return p;
}

static struct nib_problem problem_of(const struct nib_problem *problems,
				     const struct nib_moe_problem *moe)
{
	return moe ? problem_of_moe(moe) : cuda_unpacked(problems);
}

/* p: of moe; packed weights know their own sizes. */
static enum gemv_way way_moe(enum nib_op op, const struct nib_moe_problem *moe,
			     const struct nib_problem *p)
{
	struct nib_moe_problem view = *moe;

	view.problem.b = p->b;
	return gemv_way_moe(op, &view);
}

const char *cuda_gemv_type(bool is_dense, enum nib_dtype dtype)
{
	return !is_dense ? "" : dtype == NIB_DTYPE_FP16 ? "_f16" : "_bf16";
}

enum nib_status cuda_gemv_plan(struct cuda_device *device, const struct nib_plan *plan,
			       struct cuda_gemv *gemv, struct nib_error *err)
{
	const struct nib_moe_problem *moe = plan->is_moe ? &plan->moe : NULL;
	const struct nib_problem p = problem_of(plan->problems, moe);
	const bool is_dense = p.activations == NIB_ACTIVATIONS_DENSE;
	const char *type = cuda_gemv_type(is_dense, p.x.dtype);

	memset(gemv, 0, sizeof(*gemv));
	set_sizes(&gemv->params, &p, moe);
	gemv->batch = nib_fp4_batches(&p.a);
	if (moe && way_moe(plan->op, moe, &p) == GEMV_VECTOR)
		return plan_vector_moe(device, plan->op == NIB_OP_DUAL_GEMM ? 2 : 1,
				       is_dense, type, gemv, err);
	return !moe && gemv_way(p.a.rows, p.b.rows, p.b.k) == GEMV_VECTOR
		   ? plan_vector(device, is_dense, type, gemv, err)
		   : plan_skinny(device, type, gemv, err);
}

enum nib_status cuda_gemv_launch(const struct cuda_device *device,
				 const struct cuda_gemv *gemv,
				 const struct nib_run *run, struct nib_error *err)
{
	const struct nib_problem p = problem_of(run->problems, run->moe);
	/* The other kernels take its first member, or that one's. */
	struct nib_gemv_experts_params params = {.moe = gemv->params};
	void *arguments[] = {&params};
	CUlaunchAttribute attributes[2] = {{0}};
	CUlaunchConfig config = {.attrs = attributes};
	CUfunction function = gemv->aligned;
	int64_t shared_bytes = gemv->shared_bytes;
	enum nib_status status = NIB_STATUS_OK;

	set_pointers(&params.moe, &p, run->moe);
	if (gemv->any && (!function || !is_aligned(&params.moe.p))) {
		function = gemv->any;
		shared_bytes = gemv->any_shared_bytes;
	}
	config.gridDimX = (unsigned)gemv->ctas;
	config.blockDimX = (unsigned)gemv->threads;
	config.sharedMemBytes = (unsigned)shared_bytes;
	config.hStream = run->stream;
	cuda_may_overlap(&config);
	if (params.moe.k_slices > 1)
		cuda_set_cluster(&config, params.moe.k_slices);
	/* Experts' weights wait for the offsets all the same. */
	params.moe.p.b_is_constant = !run->moe && run->problems->b_packed;
	for (int64_t done = 0; done < gemv->batch && !status;) {
		const int64_t left = gemv->batch - done;
		const int64_t count = left < MAX_BATCH ? left : MAX_BATCH;

		config.gridDimY = (unsigned)count;
		status = cuda_launch(device, function, config, arguments, err);
		skip_matrices(&params.moe.p, count);
		done += count;
	}
	return status;
}

/* Do weights lie in pieces of 16 bytes? */
static bool in_pieces(const struct nib_gemv_operand *b)
{
	return b->codes_align == 16 && b->scales_align == 16;
}

/* The vector kernels load both matrices with the strides of the first. */
static bool have_same_strides(const struct nib_gemv_operand *b,
			      const struct nib_gemv_operand *b2)
{
	return b->row_stride == b2->row_stride &&
	       b->scale_row_stride == b2->scale_row_stride &&
	       b->is_tiled == b2->is_tiled;
}

/* GEMV_TILES: neither, as far as alignment tells. */
static enum gemv_way way_aligned(enum nib_op op, const struct nib_moe_problem *moe)
{
	const struct nib_problem p = problem_of_moe(moe);
	const enum gemv_way way = way_moe(op, moe, &p);
	struct nib_skinny_params q = {0};

	set_sizes(&q, &p, moe);
	if (!in_pieces(&q.p.b) || q.p.a.codes_align != 16 || q.p.k % 32 != 0)
		return GEMV_TILES;
	if (way == GEMV_SKINNY)
		return q.p.b.is_tiled ? way : GEMV_TILES;
	if (op == NIB_OP_DUAL_GEMM &&
	    (!in_pieces(&q.b2) || !have_same_strides(&q.p.b, &q.b2)))
		return GEMV_TILES;
	return way;
}

bool cuda_gemv_takes_rows(enum nib_op op, const struct nib_moe_problem *moe)
{
	return way_aligned(op, moe) == GEMV_VECTOR;
}

struct nib_skinny_params cuda_gemv_experts_params(const struct nib_moe_problem *moe)
{
	const struct nib_problem p = problem_of_moe(moe);
	struct nib_skinny_params q = {0};

	set_sizes(&q, &p, moe);
	set_pointers(&q, &p, moe);
	q.p.m = 1;
	return q;
}

bool cuda_gemv_takes(const struct nib_plan *plan)
{
	struct nib_problem p;

	if (plan->is_moe)
		return way_aligned(plan->op, &plan->moe) != GEMV_TILES;
	if (plan->count != 1)
		return false;
	p = problem_of(plan->problems, NULL);
	return gemv_takes(plan->op, &p);
}
