/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply.c - plans and runs of the CPU backend.
 *
 *   A or x --pack_rows-> records ---+
 *                                   multiply --> units of C
 *   weights: packed panels or rows -+
 *
 * A run has two phases on the device's threads:
 *   1. Each thread converts an equal part of the rows of A into records.
 *   2. Each thread multiplies the units (rectangles of C) of its own queue in
 *      order, so that it reads its weights as one stream, then units of queues
 *      that are not finished.  A unit reads its weights once and writes
 *      its output once.
 * A unit's bits do not depend on the thread that multiplies it, so results do
 * not depend on the number of threads.
 *
 * Workspace: [items][records][row_flags][queues][scratch], the last two once a
 * thread.
 */
#include "multiply.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "float_mode.h"
#include "schedule.h"

struct cpu_plan {
	struct nib_plan base;
	const struct cpu_gemm_ops *ops; /* of the device, for this kind of A */
	int64_t items;
	/* Offsets into the workspace. */
	size_t items_at, records_at, flags_at, queues_at, scratch_at;
	size_t scratch_bytes;
};

/* Records below which one thread packs faster than two can be woken. */
#define PACK_ALONE_BYTES (96 << 10)

/* Units that a thread times in a run. */
#define TIMED_UNITS 4

struct multiply_run {
	bool dual;
	struct cpu_item *items;
	int64_t count, rows;
	int64_t units;
	struct unit_queue *queues; /* multiply_tasks */
	int multiply_tasks;
	char *scratch;
	size_t scratch_bytes;
	int pack_tasks;
};

static size_t round_up(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

/* ---- plans -------------------------------------------------------------- */

struct nib_plan *cpu_plan_new(void)
{
	struct cpu_plan *plan = calloc(1, sizeof(*plan));

	return plan ? &plan->base : NULL;
}

void cpu_plan_free(struct nib_plan *plan)
{
	free(plan);
}

/* The functions for an item of m rows of a plan. */
static const struct cpu_gemm_ops *ops_for(const struct cpu_gemm_ops *ops, int64_t m)
{
	return m <= ops->few_rows ? ops->few : ops;
}

/* The k-blocks of a row of A in the backend's order. */
static int64_t record_blocks(const struct cpu_gemm_ops *ops, int64_t blocks)
{
	return (blocks + ops->record_blocks - 1) / ops->record_blocks *
	       ops->record_blocks;
}

/* The needs of all items together. */
struct needs {
	const struct cpu_gemm_ops *ops;	     /* of the plan */
	int64_t items, rows, records, units; /* records: of k16 */
	int64_t least_rows, most_rows;
	int packed, unpacked; /* weight operands of each kind */
	bool fits;	      /* no sum has overflowed */
};

static void add(struct needs *needs, int64_t *sum, int64_t x, int64_t y)
{
	int64_t product;

	if (__builtin_mul_overflow(x, y, &product) ||
	    __builtin_add_overflow(*sum, product, sum))
		needs->fits = false;
}

/* A problem whose output has no elements becomes no item. */
static bool is_empty(const struct nib_problem *p)
{
	return p->c.rows == 0 || p->c.cols == 0;
}

static void add_weights(struct needs *needs, const struct nib_packed *packed)
{
	if (packed)
		needs->packed = 1;
	else
		needs->unpacked = 1;
}

/* `batch` products of m rows each. */
static void add_items(struct needs *needs, int64_t batch, int64_t m,
		      const struct nib_fp4 *a, const struct nib_dense *c)
{
	const int64_t col_units = (c->cols + UNIT_COLS - 1) / UNIT_COLS;
	const int64_t row_units = (m + MAX_UNIT_ROWS - 1) / MAX_UNIT_ROWS;
	int64_t rows = 0, cuts = 0;

	add(needs, &rows, batch, m);
	add(needs, &needs->items, batch, 1);
	add(needs, &needs->rows, batch, m);
	add(needs, &needs->records, rows,
	    record_blocks(needs->ops, a->k / NIB_NVFP4_BLOCK));
	add(needs, &cuts, batch, row_units);
	add(needs, &needs->units, cuts, col_units);
	if (needs->most_rows == 0 || m < needs->least_rows)
		needs->least_rows = m;
	if (m > needs->most_rows)
		needs->most_rows = m;
}

static const struct cpu_gemm_ops *ops_of(const struct nib_plan *plan)
{
	const struct cpu_device *cpu = cpu_device(plan->device);

	switch (nib_plan_activations(plan)) {
	case NIB_ACTIVATIONS_DENSE:
		return &cpu->ops.dense[nib_plan_x_dtype(plan)];
	case NIB_ACTIVATIONS_INT8:
		return &cpu->ops.int8;
	case NIB_ACTIVATIONS_NVFP4:
		break;
	}
	return &cpu->ops.gemm;
}

static const char *explain_rows(const struct nib_plan *plan, const struct needs *needs)
{
	const int64_t direct = ops_of(plan)->direct_rows;

	if (direct == 0)
		return "the definition, one product at a time";
	if (plan->is_moe)
		return "experts with few rows decode weights in registers, "
		       "others expand them once into the cache";
	if (needs->most_rows <= direct)
		return "few rows: weights are decoded in registers, memory is "
		       "the limit";
	if (needs->least_rows <= direct)
		return "weights of products with few rows are decoded in "
		       "registers, others expanded once into the cache";
	return "weights are expanded once into the cache and used for all rows";
}

/* The kind of A for the explanation, unless it is NVFP4. */
static const char *explain_activations(const struct nib_plan *plan,
				       const struct needs *needs)
{
	const bool has_tiles =
	    needs->ops->few && ops_for(needs->ops, needs->most_rows) == needs->ops;
	static const char *const widened[CPU_DTYPES] = {
	    "; fp32 activations", "; 16-bit activations: fp16, summed in fp32",
	    "; 16-bit activations: bf16, summed in fp32"};

	if (nib_plan_activations(plan) == NIB_ACTIVATIONS_NVFP4)
		return has_tiles ? "; by tdpbf16ps" : "";
	if (nib_plan_activations(plan) == NIB_ACTIVATIONS_INT8)
		return "; activations rounded to 8 bits";
	if (has_tiles)
		return "; 16-bit activations: bf16, by tdpbf16ps";
	if (ops_for(needs->ops, needs->most_rows)->record_bytes ==
	    sizeof(struct cpu_bf16_record))
#if defined(__aarch64__)
		return "; 16-bit activations: bf16, by bfmmla";
#else
		return "; 16-bit activations: bf16, by vdpbf16ps";
#endif
	return widened[nib_plan_x_dtype(plan)];
}

static void explain(struct nib_plan *plan, const struct needs *needs)
{
	static const char *const ops[] = {"gemm", "dual gemm", "gemv"};

	snprintf(plan->explanation, sizeof(plan->explanation),
		 "%s%s on %s, %d thread%s: %s; %s%s",
		 plan->is_moe	   ? "expert "
		 : plan->count > 1 ? "group "
				   : "",
		 ops[plan->op], plan->backend_name, plan->threads,
		 plan->threads == 1 ? "" : "s", explain_rows(plan, needs),
		 !needs->packed && !needs->unpacked ? "no weights are read"
		 : !needs->unpacked		    ? "packed weights"
		 : needs->packed		    ? "some weights packed"
				 : "unpacked weights, reordered in every run "
				   "(nib_pack() saves that)",
		 explain_activations(plan, needs));
}

/* a * b + c in size_t; false if it does not fit. */
static bool grow(size_t *total, int64_t count, size_t each)
{
	size_t bytes;

	if (__builtin_mul_overflow((size_t)count, each, &bytes) ||
	    __builtin_add_overflow(*total, bytes + 63, total))
		return false;
	*total = *total / 64 * 64;
	return *total < SIZE_MAX / 4;
}

static void sum_needs(const struct nib_plan *plan, struct needs *needs)
{
	const struct nib_problem *moe = &plan->moe.problem;
	const bool dual = plan->op == NIB_OP_DUAL_GEMM;

	needs->fits = true;
	for (int64_t i = 0; i < (plan->is_moe ? 0 : plan->count); i++) {
		const struct nib_problem *p = &plan->problems[i];

		if (is_empty(p))
			continue;
		add_items(needs, p->a.batch, p->a.rows, &p->a, &p->c);
		add_weights(needs, p->b_packed);
		if (dual)
			add_weights(needs, p->b2_packed);
	}
	if (!plan->is_moe)
		return;
	/* The rows of each expert are known when the plan runs. */
	add_items(needs, 1, moe->a.rows, &moe->a, &moe->c);
	needs->least_rows = 0;
	add(needs, &needs->items, moe->b.batch, 1);
	add_weights(needs, moe->b_packed);
	if (dual)
		add_weights(needs, moe->b2_packed);
}

/* The most bytes of a record, and of a thread's scratch, of all items. */
static void most_bytes(const struct cpu_gemm_ops *ops, const struct needs *needs,
		       int64_t unit_rows, bool dual, size_t *record,
		       size_t *scratch_bytes)
{
	const struct cpu_gemm_ops *used[] = {ops_for(ops, needs->least_rows),
					     ops_for(ops, needs->most_rows)};

	*record = *scratch_bytes = 0;
	for (int i = 0; i < 2; i++) {
		const size_t scratch =
		    round_up(used[i]->scratch_bytes(unit_rows, dual));

		if (used[i]->record_bytes > *record)
			*record = used[i]->record_bytes;
		if (scratch > *scratch_bytes)
			*scratch_bytes = scratch;
	}
}

enum nib_status cpu_plan(struct nib_plan *base, struct nib_error *err)
{
	struct cpu_plan *plan = (struct cpu_plan *)base;
	const struct cpu_device *cpu = cpu_device(base->device);
	const struct cpu_gemm_ops *ops = ops_of(base);
	struct needs needs = {.ops = ops};
	int64_t unit_rows;
	size_t at = 0, record_bytes;
	bool fits;

	plan->ops = ops;
	sum_needs(base, &needs);
	unit_rows = needs.most_rows < MAX_UNIT_ROWS ? needs.most_rows : MAX_UNIT_ROWS;
	unit_rows = (unit_rows + ops->tile_rows - 1) / ops->tile_rows * ops->tile_rows;
	most_bytes(ops, &needs, unit_rows, base->op == NIB_OP_DUAL_GEMM, &record_bytes,
		   &plan->scratch_bytes);

	plan->items_at = at;
	fits = needs.fits && grow(&at, needs.items, sizeof(struct cpu_item));
	plan->records_at = at;
	fits = fits && grow(&at, needs.records, record_bytes);
	/* An item's records begin on a line. */
	fits = fits && grow(&at, needs.items, 64);
	plan->flags_at = at;
	fits = fits && grow(&at, needs.rows, 1);
	plan->queues_at = at;
	fits = fits && grow(&at, cpu->threads, sizeof(struct unit_queue));
	plan->scratch_at = at;
	fits = fits && grow(&at, cpu->threads, plan->scratch_bytes);
	if (!fits)
		return nib_fail_argument(err, NIB_STATUS_UNSUPPORTED, "problems",
					 ": %lld rows of A need a "
					 "workspace beyond this machine's addresses",
					 (long long)needs.rows);
	plan->items = needs.items;
	base->workspace_bytes = at;
	base->tasks = needs.units;
	base->threads = cpu->threads;
	base->backend_name = cpu_isa_backend(cpu->isa);
	explain(base, &needs);
	return NIB_STATUS_OK;
}

/* ---- runs --------------------------------------------------------------- */

static struct cpu_weights weights_of(const struct nib_fp4 *view,
				     const struct nib_packed *base, int64_t batch)
{
	const struct cpu_packed *packed = (const struct cpu_packed *)base;
	struct cpu_weights w = {0};

	if (view->batch == 1)
		batch = 0;
	if (!packed || !packed->data) {
		w.rows = cpu_rows_of(view, batch);
		return w;
	}
	w.panel_stride_bytes = packed->panel_stride_bytes;
	w.panels = packed->data + batch * packed->panels * packed->panel_stride_bytes;
	w.nan_columns = packed->nan_columns + batch * packed->panels;
	return w;
}

/* x from this row on. */
static struct cpu_dense_rows dense_rows_of(const struct nib_dense *x, int64_t batch,
					   int64_t row)
{
	return (struct cpu_dense_rows){
	    .data = nib_dense_at(x, batch, row, 0),
	    .row_stride_bytes =
		x->row_stride_elems * (int64_t)nib_dtype_bytes(x->dtype),
	    .dtype = x->dtype,
	};
}

/* Item `batch` of a problem. */
static struct cpu_item item_of(enum nib_op op, const struct nib_problem *p,
			       int64_t batch)
{
	static const float sum_factors[] = {
	    [NIB_ACTIVATIONS_NVFP4] = NVFP4_SUM_FACTOR,
	    [NIB_ACTIVATIONS_DENSE] = 1.0f,
	    [NIB_ACTIVATIONS_INT8] = INT8_SUM_FACTOR,
	};
	struct cpu_item item = {
	    .m = p->a.rows,
	    .n = p->c.cols,
	    .blocks = p->a.k / NIB_NVFP4_BLOCK,
	    .activations = p->activations,
	    .sum_factor = sum_factors[p->activations],
	    .alpha = {p->alpha ? *p->alpha : 1.0f, p->alpha2 ? *p->alpha2 : 1.0f},
	    .c = nib_dense_at(&p->c, batch, 0, 0),
	    .c_row_stride_bytes =
		p->c.row_stride_elems * (int64_t)nib_dtype_bytes(p->c.dtype),
	    .dtype = p->c.dtype,
	};

	if (p->activations == NIB_ACTIVATIONS_NVFP4)
		item.a = cpu_rows_of(&p->a, batch);
	else
		item.x = dense_rows_of(&p->x, batch, 0);
	item.b[0] = weights_of(&p->b, p->b_packed, batch);
	if (op == NIB_OP_DUAL_GEMM)
		item.b[1] = weights_of(&p->b2, p->b2_packed, batch);
	return item;
}

/* Item `expert` of an MoE: its rows of a and c, its matrix of the stack. */
static struct cpu_item expert_of(enum nib_op op, const struct nib_moe_problem *moe,
				 int64_t expert)
{
	const int64_t row = moe->row_offsets[expert];
	struct nib_problem p = moe->problem;
	struct cpu_item item;

	if (p.alpha)
		p.alpha += expert;
	if (p.alpha2)
		p.alpha2 += expert;
	item = item_of(op, &p, 0);
	item.m = moe->row_offsets[expert + 1] - row;
	if (p.activations == NIB_ACTIVATIONS_NVFP4) {
		item.a.codes = nib_fp4_row(&p.a, 0, row);
		item.a.rows = item.m;
		item.a.scale_row = moe->scale_rows ? moe->scale_rows[expert] : row;
	} else {
		item.x = dense_rows_of(&p.x, 0, row);
	}
	item.b[0] = weights_of(&p.b, p.b_packed, expert);
	if (op == NIB_OP_DUAL_GEMM)
		item.b[1] = weights_of(&p.b2, p.b2_packed, expert);
	item.c = nib_dense_at(&p.c, 0, row, 0);
	return item;
}

/* Phase 1, one task: an equal part of all rows. */
static void pack_some(void *arg, int task)
{
	const struct multiply_run *run = arg;
	const int64_t begin = run->rows * task / run->pack_tasks;
	const int64_t end = run->rows * (task + 1) / run->pack_tasks;
	int64_t row = 0;

	for (int64_t i = 0; i < run->count && row < end; i++) {
		const struct cpu_item *item = &run->items[i];
		int64_t from = begin > row ? begin - row : 0;
		int64_t to = end - row < item->m ? end - row : item->m;

		if (from < to)
			item->ops->pack_rows(item, from, to - from);
		row += item->m;
	}
}

/* The state of a thread: its memory, and its speed. */
struct worker {
	const struct multiply_run *run;
	void *scratch;
	int timed;	 /* units */
	double least_ns; /* as in struct unit_queue */
};

static void multiply_timed(struct worker *w, const struct cpu_item *item, int64_t m0,
			   int64_t n0)
{
	const int64_t begin = cpu_now_ns();
	double ns;

	item->ops->multiply(item, w->run->dual, m0, n0, w->scratch);
	ns = (double)(cpu_now_ns() - begin) / (double)cpu_unit_cost(item);
	if (w->timed++ == 0 || ns < w->least_ns)
		w->least_ns = ns;
}

/* Multiplies the units of one queue until there are none left. */
static void drain_queue(struct worker *w, struct unit_queue *queue)
{
	const struct multiply_run *run = w->run;
	struct cpu_cursor cursor = {run->items, 0};
	int64_t unit, m0, n0;

	while ((unit = atomic_fetch_add_explicit(&queue->next, 1,
						 memory_order_relaxed)) < queue->end) {
		const struct cpu_item *item = cpu_find_unit(&cursor, unit, &m0, &n0);

		if (w->timed < TIMED_UNITS && run->multiply_tasks > 1)
			multiply_timed(w, item, m0, n0);
		else
			item->ops->multiply(item, run->dual, m0, n0, w->scratch);
	}
}

/* Phase 2, one task: its own queue, then the units left in the others. */
static void multiply_some(void *arg, int task)
{
	const struct multiply_run *run = arg;
	struct worker worker = {
	    .run = run,
	    .scratch = run->scratch + (size_t)task * run->scratch_bytes,
	};

	for (int i = 0; i < run->multiply_tasks; i++)
		drain_queue(&worker, &run->queues[(task + i) % run->multiply_tasks]);
	run->queues[task].least_ns = worker.least_ns;
}

/*
 * Phase 2 on the device's threads.  The time that the caller would have taken without
 * them is estimated from the fastest unit, which was not interrupted.
 */
static void multiply_all(const struct cpu_device *cpu, struct multiply_run *run)
{
	const int64_t begin = cpu_now_ns();
	cpu_float_mode saved;
	double least_ns = 0;
	int64_t end;

	cpu_fill_queues(run->items, run->count, run->queues, run->multiply_tasks);
	if (!cpu_parallel(cpu, run->multiply_tasks, multiply_some, run) || !cpu->pace)
		return;
	end = cpu_now_ns();
	/* The caller's mode may turn an inexact product into a trap. */
	saved = cpu_default_float_mode();
	for (int i = 0; i < run->multiply_tasks; i++) {
		const double ns = run->queues[i].least_ns;

		if (ns > 0 && (least_ns == 0 || ns < least_ns))
			least_ns = ns;
	}
	cpu_pace_report(
	    cpu->pace, end, end - begin,
	    (int64_t)(least_ns * (double)cpu_total_cost(run->items, run->count)));
	cpu_restore_float_mode(&saved);
}

/* Places the items' records, then runs both phases. */
static void run_items(const struct cpu_plan *plan, struct cpu_item *items,
		      int64_t count, char *workspace)
{
	const struct cpu_device *cpu = cpu_device(plan->base.device);
	char *records = workspace + plan->records_at;
	uint8_t *row_flags = (uint8_t *)workspace + plan->flags_at;
	struct multiply_run run = {
	    .dual = plan->base.op == NIB_OP_DUAL_GEMM,
	    .items = items,
	    .count = count,
	    .queues = (struct unit_queue *)(workspace + plan->queues_at),
	    .scratch = workspace + plan->scratch_at,
	    .scratch_bytes = plan->scratch_bytes,
	};

	for (int64_t i = 0; i < count; i++) {
		const struct cpu_gemm_ops *ops = ops_for(plan->ops, items[i].m);

		items[i].ops = ops;
		items[i].packed_a = records;
		items[i].row_flags = row_flags;
		records += round_up(
		    (size_t)(items[i].m * record_blocks(ops, items[i].blocks)) *
		    ops->record_bytes);
		row_flags += items[i].m;
		run.rows += items[i].m;
	}
	run.units = cpu_schedule(items, count, cpu->threads, plan->ops->tile_rows,
				 plan->ops->has_wide_units);
	if (run.units == 0)
		return;
	run.pack_tasks =
	    records - workspace - (ptrdiff_t)plan->records_at < PACK_ALONE_BYTES
		? 1
		: cpu->threads;
	cpu_parallel(cpu, run.pack_tasks, pack_some, &run);
	run.multiply_tasks = run.units < cpu->threads ? (int)run.units : cpu->threads;
	multiply_all(cpu, &run);
}

/* Puts the items of all problems into items; returns their number. */
static int64_t make_items(const struct nib_plan *plan, const struct nib_run *run,
			  struct cpu_item *items)
{
	int64_t count = 0;

	if (run->moe) {
		for (int64_t e = 0; e < plan->count; e++)
			items[e] = expert_of(plan->op, run->moe, e);
		return plan->count;
	}
	for (int64_t i = 0; i < plan->count; i++) {
		const struct nib_problem *p = &run->problems[i];

		for (int64_t b = 0; b < p->a.batch && !is_empty(p); b++)
			items[count++] = item_of(plan->op, p, b);
	}
	return count;
}

enum nib_status cpu_run(struct nib_plan *base, const struct nib_run *run,
			struct nib_error *err)
{
	const struct cpu_plan *plan = (const struct cpu_plan *)base;
	char *workspace = run->workspace;
	struct cpu_item *items = (struct cpu_item *)(workspace + plan->items_at);

	(void)err;
	run_items(plan, items, make_items(base, run, items), workspace);
	return NIB_STATUS_OK;
}
