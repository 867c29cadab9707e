/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair_group.c - one global scale for the layers that engines fuse: see repair.h.
 *
 * Engines take the global scale of one of the layers, or the largest, for all of them,
 * so that the values of the others are wrong by the ratio.  The candidates here are the
 * layers' own scales, which leave one layer as it is, and each of them times the power
 * of two with which the largest block scale of the group is in 224 .. 448: then small
 * scales lose the least.  The candidate with the least squared error wins.
 */
#include "repair.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_SCALE 448.0

/* ---- groups -------------------------------------------------------------- */

static int compare_fused(const void *a, const void *b)
{
	const struct nib_layer *const *x = a, *const *y = b;
	const int order = tensor_compare_siblings((*x)->name, (*y)->name);

	return order ? order : strcmp((*x)->name, (*y)->name);
}

int repair_list_groups(struct repair_plan *plan)
{
	const int64_t n = nib_file_layer_count(plan->file);
	size_t stem;

	plan->fused = calloc((size_t)n + 1, sizeof(*plan->fused));
	if (!plan->fused)
		return cli_no_memory("list of layers");
	for (int64_t i = 0; i < n; i++) {
		const struct nib_layer *layer = nib_file_layer_at(plan->file, i);
		const int set = tensor_sibling_set(layer->name, &stem);

		if (set >= 0 && set < TENSOR_FUSED_SETS && tensor_is_plain(layer))
			plan->fused[plan->n_fused++] = layer;
	}
	qsort(plan->fused, (size_t)plan->n_fused, sizeof(*plan->fused), compare_fused);
	return CLI_OK;
}

/* The end of the group that begins at first. */
static int64_t group_end(const struct repair_plan *plan, int64_t first)
{
	int64_t end = first + 1;

	while (end < plan->n_fused &&
	       findings_are_fused(plan->fused[first], plan->fused[end]))
		end++;
	return end;
}

static int compare_name(const void *layer, const void *fused)
{
	return compare_fused(&layer, fused);
}

const struct nib_layer *const *repair_group_of(const struct repair_plan *plan,
					       const struct nib_layer *layer,
					       int64_t *count)
{
	const struct nib_layer **found =
	    bsearch(layer, plan->fused, (size_t)plan->n_fused, sizeof(*plan->fused),
		    compare_name);
	int64_t first;

	*count = 0;
	if (!found)
		return NULL;
	first = found - plan->fused;
	while (first && findings_are_fused(plan->fused[first - 1], layer))
		first--;
	*count = group_end(plan, first) - first;
	return plan->fused + first;
}

/* ---- input scales -------------------------------------------------------- */

/* The numbers of a layer as it will be stored; a mend holds them or the file does. */
static const float *stored(const struct repair_plan *plan,
			   const struct nib_layer *layer, int is_input, int64_t *n)
{
	const struct layer_mend *mend = repair_find(plan, layer->tensors);
	const struct nib_file_tensor *t =
	    is_input ? layer->tensors->input_global : layer->tensors->global;

	*n = t ? (int64_t)(t->bytes / sizeof(float)) : 0;
	if (mend)
		return is_input ? mend->input : mend->global;
	return t ? t->data : NULL;
}

/* Whether the layers of a group have as many numbers each, but not the same ones. */
static int are_different(const struct repair_plan *plan, int64_t first, int64_t end,
			 int is_input)
{
	int64_t n, m;
	const float *numbers = stored(plan, plan->fused[first], is_input, &n);

	for (int64_t i = first + 1; i < end; i++) {
		const float *others = stored(plan, plan->fused[i], is_input, &m);

		/* The finding no-input-scale reports a layer without one. */
		if (!numbers || !others)
			return 0;
		if (n != m ||
		    memcmp(numbers, others, (size_t)n * sizeof(*numbers)) != 0)
			return 1;
	}
	return 0;
}

static int are_as_many(const struct repair_plan *plan, int64_t first, int64_t end,
		       int is_input)
{
	const struct nib_layer *layer = plan->fused[first];
	int64_t n, m;

	stored(plan, layer, is_input, &n);
	for (int64_t i = first + 1; i < end; i++) {
		stored(plan, plan->fused[i], is_input, &m);
		if (n != m || plan->fused[i]->weight.batch != layer->weight.batch)
			return 0;
	}
	return 1;
}

static int refuse_group(struct repair_plan *plan, enum finding_kind kind, int64_t first,
			int64_t end, const char *why)
{
	for (int64_t i = first; i < end; i++)
		repair_say(plan, kind, plan->fused[i]->name, 0, "%s", why);
	return CLI_OK;
}

/* Why a group cannot share its global or its input scales, or NULL. */
static const char *why_not_shared(struct repair_plan *plan, int64_t first, int64_t end,
				  int is_input)
{
	for (int64_t i = first; i < end; i++) {
		const struct layer_mend *mend =
		    repair_mend(plan, plan->fused[i]->tensors);

		if (!mend || mend->is_refused)
			return "a layer of the group has a problem that is not mended";
		if (plan->fused[i]->pre_quant_scale)
			return "a layer of the group is of AWQ";
	}
	return are_as_many(plan, first, end, is_input)
		   ? NULL
		   : "the layers of the group have different numbers of scales";
}

/* The layers read the same x, so the largest range covers all of them. */
static void share_inputs(struct repair_plan *plan, int64_t first, int64_t end)
{
	const char *why = why_not_shared(plan, first, end, 1);
	int64_t n;

	if (why) {
		refuse_group(plan, FIND_INPUT_NOT_SHARED, first, end, why);
		return;
	}
	stored(plan, plan->fused[first], 1, &n);
	for (int64_t k = 0; k < n; k++) {
		float best = 0, most = 0;

		for (int64_t i = first; i < end; i++) {
			const struct layer_mend *mend =
			    repair_find(plan, plan->fused[i]->tensors);
			const float x = mend->input[k];
			const float value = layer_mend_value(mend, x);

			if (value > most && value < INFINITY) {
				most = value;
				best = x;
			}
		}
		for (int64_t i = first; i < end && most > 0; i++) {
			struct layer_mend *mend =
			    repair_find(plan, plan->fused[i]->tensors);

			mend->input[k] = best;
			mend->changes_input = 1;
		}
	}
	for (int64_t i = first; i < end; i++)
		repair_say(plan, FIND_INPUT_NOT_SHARED, plan->fused[i]->name, 1,
			   "the largest of its group");
}

/* ---- global scales ------------------------------------------------------- */

/* Part k of a group: one matrix of each layer, or the whole of each. */
struct part {
	struct repair_plan *plan;
	int64_t first, count;	/* of plan->fused */
	int64_t k, n;		/* which of how many */
	uint8_t *const *scales; /* of each layer, all parts */
};

static struct layer_mend *mend_at(const struct part *p, int64_t i)
{
	return repair_find(p->plan, p->plan->fused[p->first + i]->tensors);
}

/* Adds the error that layer i has with another global scale. */
static int add_error(const struct part *p, int64_t i, float to,
		     struct share_error *error)
{
	const struct layer_mend *mend = mend_at(p, i);
	const int64_t blocks = layer_mend_blocks(mend) / p->n;
	const float from = layer_mend_value(mend, mend->global[p->k]);
	struct share_table *table = share_table_new(from, to);
	const uint8_t *codes = mend->tensors->codes->data;
	const int64_t at = p->k * blocks;
	const int failed =
	    !table || share_blocks(table, codes + at * (NIB_NVFP4_BLOCK / 2),
				   p->scales[i] + at, blocks, NULL, NULL, error);

	share_table_free(table);
	tensor_drop(codes + at * (NIB_NVFP4_BLOCK / 2),
		    (size_t)blocks * (NIB_NVFP4_BLOCK / 2));
	return failed ? cli_no_memory("shared scales") : CLI_OK;
}

/* The largest scale * global of a part of a group. */
static double largest_unit(const struct part *p)
{
	double most = 0;

	for (int64_t i = 0; i < p->count; i++) {
		const struct layer_mend *mend = mend_at(p, i);
		const int64_t blocks = layer_mend_blocks(mend) / p->n;
		const uint8_t *scales = p->scales[i] + p->k * blocks;
		uint8_t largest = 0;

		for (int64_t b = 0; b < blocks; b++)
			largest = scales[b] > largest ? scales[b] : largest;
		most =
		    fmax(most, (double)scan_scale_value(largest) *
				   (double)layer_mend_value(mend, mend->global[p->k]));
	}
	return most;
}

/* x times the power of two with which a global scale has the largest block scale in
 * 224 .. 448; x is stored. */
static float scaled(const struct layer_mend *mend, float x, double unit)
{
	const double ratio = unit / LARGEST_SCALE / (double)layer_mend_value(mend, x);
	const int power = ratio > 0 ? (int)ceil(log2(ratio)) : 0;

	return ldexpf(x, mend->is_reciprocal ? -power : power);
}

/* Tries candidate x, a number as stored, and keeps it if its error is the least. */
static int try_one(const struct part *p, float x, double unit, float *best,
		   struct share_error *least)
{
	const float to = layer_mend_value(mend_at(p, 0), x);
	struct share_error sum = {0};
	int code = CLI_OK;

	/* A larger block scale than 448 would be needed, or the number is none. */
	if (!(x >= 0x1p-126f && x < INFINITY && to >= 0x1p-126f && to < INFINITY) ||
	    unit > LARGEST_SCALE * (double)to)
		return CLI_OK;
	for (int64_t i = 0; i < p->count && !code; i++)
		code = add_error(p, i, to, &sum);
	if (!code && !(sum.noise >= least->noise)) {
		*least = sum;
		*best = x;
	}
	return code;
}

/* Finds the number that part k of all layers will store; 0 if there is none. */
static int find_shared(const struct part *p, float *best)
{
	const double unit = largest_unit(p);
	struct share_error least = {.noise = INFINITY};
	int code = CLI_OK;

	*best = 0;
	for (int power = 0; power < 2; power++)
		for (int64_t i = 0; i < p->count && !code; i++) {
			const struct layer_mend *mend = mend_at(p, i);
			const float own = mend->global[p->k];
			const float x = power ? scaled(mend, own, unit) : own;

			if (power && fabsf(x - own) <= 0)
				continue;
			if (least.noise > 0)
				code = try_one(p, x, unit, best, &least);
			if (!code)
				code = cli_stopped();
		}
	return code;
}

/* Finds the numbers of all parts, and the error of each layer. */
static int share_parts(struct part *p, float *numbers)
{
	int code = CLI_OK;

	for (p->k = 0; p->k < p->n && !code; p->k++) {
		code = find_shared(p, &numbers[p->k]);
		for (int64_t i = 0; i < p->count && !code; i++) {
			struct layer_mend *mend = mend_at(p, i);

			if (numbers[p->k] > 0)
				code = add_error(p, i,
						 layer_mend_value(mend, numbers[p->k]),
						 &mend->error);
		}
	}
	return code;
}

/* Says what sharing the numbers does to layer i. */
static void say_shared(const struct part *p, int64_t i, const float *numbers,
		       int is_good)
{
	const struct layer_mend *mend = mend_at(p, i);
	const double error = share_error_relative(&mend->error);
	const long long kept = mend->error.n_blocks - mend->error.inexact;
	struct repair_row *row;

	row = repair_say(p->plan, FIND_NOT_SHARED, p->plan->fused[p->first + i]->name,
			 is_good,
			 "global scale %.6g -> %.6g; %lld of %lld blocks keep their "
			 "values%s",
			 (double)layer_mend_value(mend, mend->global[0]),
			 (double)layer_mend_value(mend, numbers[0]), kept,
			 (long long)mend->error.n_blocks,
			 is_good		      ? ""
			 : error > p->plan->max_error ? ": above --max-error"
						      : ": its group is refused");
	if (!row)
		return;
	row->error = error;
	row->worst = mend->error.worst;
}

/* Stores the numbers in the mends of a group if its errors are small enough. */
static void set_shared(const struct part *p, const float *numbers)
{
	int is_good = 1;

	for (int64_t i = 0; i < p->count; i++)
		is_good &=
		    share_error_relative(&mend_at(p, i)->error) <= p->plan->max_error;
	for (int64_t i = 0; i < p->count; i++) {
		struct layer_mend *mend = mend_at(p, i);
		float *copy = calloc((size_t)p->n + 1, sizeof(*copy));

		say_shared(p, i, numbers, is_good);
		if (!copy)
			cli_out_of_memory();
		if (!copy || !is_good) {
			free(copy);
			continue;
		}
		memcpy(copy, numbers, (size_t)p->n * sizeof(*copy));
		mend->unshared = mend->global;
		mend->global = copy;
		mend->changes_global = 1;
	}
}

static int share_globals(struct repair_plan *plan, int64_t first, int64_t end)
{
	const int64_t count = end - first;
	const char *why = why_not_shared(plan, first, end, 0);
	struct part p = {.plan = plan, .first = first, .count = count};
	uint8_t **scales;
	float *numbers;
	int code = CLI_OK, has_numbers = 1;
	int64_t n;

	if (why)
		return refuse_group(plan, FIND_NOT_SHARED, first, end, why);
	stored(plan, plan->fused[first], 0, &n);
	p.n = n;
	scales = calloc((size_t)count, sizeof(*scales));
	numbers = calloc((size_t)p.n + 1, sizeof(*numbers));
	p.scales = scales;
	if (!scales || !numbers) {
		free(scales);
		free(numbers);
		return cli_no_memory("shared scales");
	}
	for (int64_t i = 0; i < count && !code; i++) {
		scales[i] = repair_read_scales(mend_at(&p, i));
		if (!scales[i]) {
			cli_no_memory("shared scales");
			code = CLI_FAILED;
		}
	}
	if (!code)
		code = share_parts(&p, numbers);
	for (int64_t k = 0; k < p.n && !code; k++)
		has_numbers &= numbers[k] > 0;
	if (!code && has_numbers)
		set_shared(&p, numbers);
	else if (!code)
		refuse_group(plan, FIND_NOT_SHARED, first, end,
			     "no global scale suits all layers");
	for (int64_t i = 0; i < count; i++)
		free(scales[i]);
	free(scales);
	free(numbers);
	return code;
}

int repair_groups(struct repair_plan *plan)
{
	int code = CLI_OK;

	for (int64_t first = 0, end; first < plan->n_fused && !code; first = end) {
		end = group_end(plan, first);
		if (are_different(plan, first, end, 0))
			code = share_globals(plan, first, end);
		if (!code && are_different(plan, first, end, 1))
			share_inputs(plan, first, end);
	}
	return code;
}
