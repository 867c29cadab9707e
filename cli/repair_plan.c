/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair_plan.c - decides what nib repair does about each finding of one layer: see
 * repair.h.  A finding is mended where the file itself proves what was meant, or where
 * --mend says it, and else refused.
 */
#include "repair.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (NIB_NVFP4_BLOCK / 2)
#define SCALE_NAN   0x7F
#define SCALE_ONE   0x38

/* ---- choices ------------------------------------------------------------- */

static int *choice_of(struct repair_choices *c, const char *word, size_t n)
{
	const struct {
		const char *word;
		int *choice;
	} all[] = {{"input-scale=inverse", &c->inverse_input},
		   {"reciprocal-global=inverse", &c->inverse_global},
		   {"tiled-scales=untile", &c->untile},
		   {"scale-sign=clear", &c->clear_signs},
		   {"scale-nan=448", &c->nan_is_largest},
		   {"no-input-scale=largest", &c->inputs_from_rest}};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strlen(all[i].word) == n && !strncmp(all[i].word, word, n))
			return all[i].choice;
	return NULL;
}

int repair_read_choices(const struct cli_texts *texts, struct repair_choices *choices)
{
	for (int i = 0; i < texts->count; i++)
		for (const char *at = texts->items[i]; *at;) {
			const size_t n = strcspn(at, ",");
			int *choice = choice_of(choices, at, n);

			if (!choice)
				return cli_error(
				    CLI_USAGE,
				    "--mend %.*s: must be of " REPAIR_CHOICES, (int)n,
				    at);
			*choice = 1;
			at += n + (at[n] == ',');
		}
	return CLI_OK;
}

/* ---- rows and mends ------------------------------------------------------ */

static struct repair_row *add_row(struct repair_plan *plan, enum finding_kind kind,
				  const char *name)
{
	const size_t n = (size_t)plan->n_rows;
	struct repair_row *rows = plan->rows;

	/* A power of two is the capacity. */
	if (!(n & (n - 1)))
		rows = realloc(rows, sizeof(*rows) * (n ? 2 * n : 1));
	if (!rows) {
		cli_out_of_memory();
		return NULL;
	}
	plan->rows = rows;
	rows[n] =
	    (struct repair_row){.kind = kind, .name = name, .error = NAN, .worst = NAN};
	plan->n_rows++;
	return &rows[n];
}

struct repair_row *repair_say(struct repair_plan *plan, enum finding_kind kind,
			      const char *name, int is_mended, const char *format, ...)
{
	struct repair_row *row = add_row(plan, kind, name);
	va_list list;

	if (!row)
		return NULL;
	row->is_mended = is_mended;
	plan->n_refused += !is_mended;
	va_start(list, format);
	vsnprintf(row->text, sizeof(row->text), format, list);
	va_end(list);
	return row;
}

static int compare_keys(const void *a, const void *b)
{
	const uintptr_t x = (uintptr_t) * (const void *const *)a;
	const uintptr_t y = (uintptr_t) * (const void *const *)b;

	return (x > y) - (x < y);
}

static struct layer_mend **slot_of(const struct repair_plan *plan,
				   const struct nib_layer_tensors *tensors)
{
	const struct nib_layer_tensors **found =
	    bsearch(&tensors, plan->layers, (size_t)plan->n_layers,
		    sizeof(*plan->layers), compare_keys);

	return found ? &plan->mends[found - plan->layers] : NULL;
}

struct layer_mend *repair_find(const struct repair_plan *plan,
			       const struct nib_layer_tensors *tensors)
{
	struct layer_mend **slot = tensors ? slot_of(plan, tensors) : NULL;

	return slot ? *slot : NULL;
}

/* Copies the numbers of a tensor of F32, if it is one; 0 without memory. */
static int copy_floats(const struct nib_file_tensor *t, float **copy, int64_t *count)
{
	if (!t || strcmp(t->dtype, "F32"))
		return 1;
	*count = (int64_t)(t->bytes / sizeof(**copy));
	*copy = malloc((size_t)t->bytes + 1);
	if (*copy)
		memcpy(*copy, t->data, (size_t)t->bytes);
	return *copy != NULL;
}

static void free_mend(struct layer_mend *mend)
{
	if (!mend)
		return;
	free(mend->global);
	free(mend->input);
	free(mend->unshared);
	free(mend);
}

struct layer_mend *repair_mend(struct repair_plan *plan,
			       const struct nib_layer_tensors *tensors)
{
	struct layer_mend **slot = tensors ? slot_of(plan, tensors) : NULL;
	struct layer_mend *mend;

	if (!slot || *slot)
		return slot ? *slot : NULL;
	mend = calloc(1, sizeof(*mend));
	if (!mend || !copy_floats(tensors->global, &mend->global, &mend->n_global) ||
	    !copy_floats(tensors->input_global, &mend->input, &mend->n_input)) {
		free_mend(mend);
		cli_out_of_memory();
		return NULL;
	}
	mend->tensors = tensors;
	mend->is_reciprocal = nib_naming_suffixes(tensors->naming)->is_reciprocal;
	*slot = mend;
	return mend;
}

int64_t layer_mend_blocks(const struct layer_mend *mend)
{
	const struct nib_layer_tensors *t = mend->tensors;

	return t->batch * t->rows * (t->k / NIB_NVFP4_BLOCK);
}

float layer_mend_value(const struct layer_mend *mend, float x)
{
	return mend->is_reciprocal ? (float)(1 / (double)x) : x;
}

/* ---- block scales -------------------------------------------------------- */

static int is_block_of_zeros(const uint8_t *codes)
{
	for (int i = 0; i < BLOCK_BYTES; i++)
		if (codes[i] & 0x77)
			return 0;
	return 1;
}

/* How many blocks with a bad scale have values that depend on what was meant. */
static int64_t count_lost(const struct nib_fp4 *w, int nans)
{
	const int64_t blocks = w->batch * w->rows * (w->k / NIB_NVFP4_BLOCK);
	const uint8_t *codes = w->codes, *scales = w->scales;
	int64_t lost = 0;

	for (int64_t i = 0; i < blocks; i++) {
		const int is_nan = (scales[i] & 0x7F) == SCALE_NAN;
		const int is_signed = scales[i] > 0x80;

		if (nans ? is_nan : is_signed && !is_nan)
			lost += !is_block_of_zeros(codes + i * BLOCK_BYTES);
	}
	return lost;
}

static void plan_signs(struct repair_plan *plan, const struct nib_layer *layer,
		       struct layer_mend *mend)
{
	const int64_t lost = count_lost(&layer->weight, 0);

	mend->clears_signs = !lost || plan->choices.clear_signs;
	if (!lost) {
		repair_say(plan, FIND_SCALE_SIGN, layer->name, 1,
			   "signs cleared: every block with one is zero");
	} else if (plan->choices.clear_signs) {
		repair_say(plan, FIND_SCALE_SIGN, layer->name, 1,
			   "signs cleared, as --mend says and GPUs read %lld block%s",
			   (long long)lost, cli_s(lost));
	} else {
		mend->is_refused = 1;
		repair_say(plan, FIND_SCALE_SIGN, layer->name, 0,
			   "%lld block%s may be positive or negative: export again, or "
			   "--mend scale-sign=clear",
			   (long long)lost, cli_s(lost));
	}
}

static void plan_nans(struct repair_plan *plan, const struct nib_layer *layer,
		      struct layer_mend *mend)
{
	const int64_t lost = count_lost(&layer->weight, 1);

	mend->replaces_nans = !lost || plan->choices.nan_is_largest;
	if (!lost) {
		repair_say(plan, FIND_SCALE_NAN, layer->name, 1,
			   "NaN replaced by 1: every block with one is zero");
	} else if (plan->choices.nan_is_largest) {
		repair_say(plan, FIND_SCALE_NAN, layer->name, 1,
			   "NaN replaced by 448 in %lld block%s, as --mend says",
			   (long long)lost, cli_s(lost));
	} else {
		mend->is_refused = 1;
		repair_say(plan, FIND_SCALE_NAN, layer->name, 0,
			   "the scale of %lld block%s is lost: export again, or --mend "
			   "scale-nan=448 where a cast without a clamp made them",
			   (long long)lost, cli_s(lost));
	}
}

/* How far tiles must explain the scales better than rows do, to prove them: in
 * standard deviations of chance, and in times. */
#define TILES_SIGMAS 20
#define TILES_TIMES  3

static void plan_tiles(struct repair_plan *plan, const struct scan_layer *scan,
		       struct layer_mend *mend)
{
	const char *name = scan->layer->name;
	const double gain = scan->tiled_structure - scan->linear_structure;
	const int is_certain =
	    gain > TILES_SIGMAS * scan->structure_sd && gain > 0.1 &&
	    scan->tiled_structure > TILES_TIMES * scan->linear_structure;

	if (is_certain || plan->choices.untile) {
		mend->stored = STORED_TILED;
		repair_say(plan, FIND_TILED, name, 1,
			   "scales put in rows%s: rows and columns explain %.1f %% of "
			   "them as tiles, %.1f %% as they are",
			   is_certain ? "" : ", as --mend says",
			   100 * scan->tiled_structure, 100 * scan->linear_structure);
		return;
	}
	mend->is_refused = 1;
	repair_say(plan, FIND_TILED, name, 0,
		   "tiles are likely and not proved (%.1f %%, and %.1f %% in rows): "
		   "--mend tiled-scales=untile",
		   100 * scan->tiled_structure, 100 * scan->linear_structure);
}

/* ---- scales with padding -------------------------------------------------- */

/* Whether every byte that is no scale under this reading is 0. */
static int has_zero_padding(const struct nib_layer_tensors *t, enum stored_scales how)
{
	const int64_t rows = t->scales->shape[0], cols = t->scales->shape[1];
	const uint8_t *bytes = t->scales->data;

	for (int64_t r = 0; r < rows; r++)
		for (int64_t g = r < t->rows ? t->k / NIB_NVFP4_BLOCK : 0; g < cols;
		     g++)
			if (bytes[repair_scale_at(how, cols, r, g)])
				return 0;
	return 1;
}

static int is_padded(const struct nib_layer_tensors *t)
{
	const int64_t groups = t->k / NIB_NVFP4_BLOCK;

	return t->scales && t->global && !strcmp(t->scales->dtype, "F8_E4M3") &&
	       !strcmp(t->global->dtype, "F32") && t->global->bytes == sizeof(float) &&
	       t->batch == 1 && t->codes->rank == 2 && t->scales->rank == 2 &&
	       !t->comfy_quant && t->rows > 0 && t->k % NIB_NVFP4_BLOCK == 0 &&
	       t->scales->shape[0] == (t->rows + 127) / 128 * 128 &&
	       t->scales->shape[1] == (groups + 3) / 4 * 4 &&
	       (t->scales->shape[0] != t->rows || t->scales->shape[1] != groups);
}

/* Whether the reason of a defect is the padding and nothing else. */
static void plan_half_layer(struct repair_plan *plan,
			    const struct nib_layer_defect *defect)
{
	const struct nib_layer_tensors *t = defect->tensors;
	struct layer_mend *mend;
	int tiled, padded;

	if (!t || !is_padded(t) || !strstr(defect->reason, "padded as 128x4 tiles")) {
		repair_say(plan, FIND_HALF_LAYER, defect->name, 0,
			   "%.160s: export again", defect->reason);
		return;
	}
	tiled = has_zero_padding(t, STORED_TILED);
	padded = has_zero_padding(t, STORED_PADDED);
	if (tiled == padded || !(mend = repair_mend(plan, t)) || !mend->global ||
	    !(mend->global[0] > 0 && mend->global[0] < INFINITY)) {
		repair_say(plan, FIND_HALF_LAYER, defect->name, 0,
			   "%.160s, and %s: export again", defect->reason,
			   tiled == padded
			       ? "the padding does not show whether they are tiles"
			       : "the global scale is none");
		return;
	}
	mend->stored = tiled ? STORED_TILED : STORED_PADDED;
	repair_say(plan, FIND_HALF_LAYER, defect->name, 1,
		   "scales put in rows without padding: only as %s is all padding zero",
		   tiled ? "128x4 tiles" : "rows");
}

/* ---- global scales ------------------------------------------------------- */

/* Weights of a trained layer never reach this. */
#define IMPOSSIBLE_AMAX 1e5

static void invert(float *x, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		x[i] = (float)(1 / (double)x[i]);
}

static void plan_reciprocal(struct repair_plan *plan, const struct scan_layer *scan,
			    struct layer_mend *mend)
{
	const char *name = scan->layer->name;
	const double global = (double)tensor_global(scan->layer);
	const double other = 6 * scan->scale_max / global;
	const int is_certain =
	    scan->amax > IMPOSSIBLE_AMAX && other > 1e-4 && other < 64;

	if (!is_certain && !plan->choices.inverse_global) {
		mend->is_refused = 1;
		repair_say(plan, FIND_RECIPROCAL, name, 0,
			   "values up to %.3g, or up to %.3g with 1/x: --mend "
			   "reciprocal-global=inverse",
			   scan->amax, other);
		return;
	}
	invert(mend->global, mend->n_global);
	mend->changes_global = 1;
	repair_say(plan, FIND_RECIPROCAL, name, 1,
		   "1/x stored%s: values reach %.3g, not %.3g",
		   is_certain ? "" : ", as --mend says", other, scan->amax);
}

/* The sibling whose input scale is 1/x of this layer's; or NULL. */
static const struct nib_layer *inverse_sibling(const struct repair_plan *plan,
					       const struct nib_layer *layer)
{
	const double own = (double)tensor_input_global(layer);
	int64_t count;
	const struct nib_layer *const *group = repair_group_of(plan, layer, &count);

	for (int64_t i = 0; group && i < count; i++)
		if (fabs(own * (double)tensor_input_global(group[i]) - 1) < 1e-6)
			return group[i];
	return NULL;
}

static void plan_input(struct repair_plan *plan, const struct nib_layer *layer,
		       struct layer_mend *mend)
{
	const double input = (double)tensor_input_global(layer);
	const struct nib_layer *sibling = inverse_sibling(plan, layer);

	if (!sibling && !plan->choices.inverse_input) {
		mend->is_refused = 1;
		repair_say(plan, FIND_INPUT_SCALE, layer->name, 0,
			   "suspect: inputs up to %.3g, or up to %.3g with 1/x: --mend "
			   "input-scale=inverse",
			   input * 2688, 2688 / input);
		return;
	}
	invert(mend->input, mend->n_input);
	mend->changes_input = 1;
	repair_say(plan, FIND_INPUT_SCALE, layer->name, 1, "1/x stored%s%s",
		   sibling ? ", which is that of " : ", as --mend says",
		   sibling ? sibling->name : "");
}

static int compare_scan(const void *name, const void *scan_)
{
	const struct scan_layer *scan = scan_;

	return strverscmp(name, scan->layer->name);
}

static const struct scan_layer *find_scan(const struct repair_plan *plan,
					  const char *name)
{
	return bsearch(name, plan->scans, (size_t)plan->n_scans, sizeof(*plan->scans),
		       compare_scan);
}

/* ---- layers without an input scale ---------------------------------------- */

static int is_scale(float x)
{
	return x > 0 && x < INFINITY;
}

/* The largest scale that the group of a layer means, or 0. */
static float input_of_group(const struct repair_plan *plan,
			    const struct nib_layer *layer)
{
	int64_t count;
	const struct nib_layer *const *group = repair_group_of(plan, layer, &count);
	float most = 0;

	for (int64_t i = 0; group && i < count; i++)
		most = fmaxf(most, tensor_input_global(group[i]));
	return most;
}

static void plan_no_input(struct repair_plan *plan, const struct finding *finding)
{
	const struct nib_file_tensor *t = nib_file_find(plan->file, finding->name);
	const struct nib_layer_tensors *tensors =
	    t ? nib_file_layer_tensors_of(plan->file, t) : NULL;
	const struct scan_layer *scan = tensors ? find_scan(plan, tensors->name) : NULL;
	const struct nib_layer *layer = scan ? scan->layer : NULL;
	struct layer_mend *mend = layer ? repair_mend(plan, tensors) : NULL;
	float value = layer ? input_of_group(plan, layer) : 0;
	const char *from = "of the layers that read the same input";

	if (layer && !is_scale(value) && plan->choices.inputs_from_rest) {
		value = (float)findings_largest_of_others(plan->scans, plan->n_scans,
							  scan - plan->scans);
		from = "the largest of the other experts, as --mend says";
	}
	if (!mend || !is_scale(value)) {
		repair_say(plan, FIND_NO_INPUT, finding->name, 0, "%.160s: %s",
			   finding->text,
			   layer ? "calibrate again, or --mend no-input-scale=largest"
				 : "calibrate again");
		return;
	}
	for (int64_t i = 0; i < mend->n_input; i++)
		if (!is_scale(layer_mend_value(mend, mend->input[i])) ||
		    !is_scale(mend->input[i]))
			mend->input[i] = layer_mend_value(mend, value);
	mend->changes_input = 1;
	repair_say(plan, FIND_NO_INPUT, finding->name, 1, "%.4g, %s", (double)value,
		   from);
}

/* ---- all findings -------------------------------------------------------- */

/* Findings that are about the name of a layer whose scan is known. */
static void plan_layer(struct repair_plan *plan, const struct scan_layer *scan,
		       enum finding_kind kind)
{
	const struct nib_layer *layer = scan->layer;
	struct layer_mend *mend = repair_mend(plan, layer->tensors);

	if (!mend)
		return;
	if (!tensor_is_plain(layer)) {
		mend->is_refused = 1;
		repair_say(plan, kind, layer->name, 0,
			   "a layer of ComfyUI, which is not rewritten");
		return;
	}
	if (kind == FIND_SCALE_SIGN)
		plan_signs(plan, layer, mend);
	else if (kind == FIND_SCALE_NAN)
		plan_nans(plan, layer, mend);
	else if (kind == FIND_TILED)
		plan_tiles(plan, scan, mend);
	else if (kind == FIND_RECIPROCAL)
		plan_reciprocal(plan, scan, mend);
	else
		plan_input(plan, layer, mend);
}

static void plan_finding(struct repair_plan *plan, const struct finding *finding)
{
	const struct finding_rule *rule = &finding_rules[finding->kind];
	const struct scan_layer *scan = find_scan(plan, finding->name);

	switch (finding->kind) {
	case FIND_HALF_LAYER:
	case FIND_NOT_SHARED:
	case FIND_INPUT_NOT_SHARED:
	case FIND_CONFIG:
	case FIND_CONFIG_FIELD:
	case FIND_CONFIG_INPUT:
	case FIND_NOT_IGNORED:
		return; /* elsewhere */
	case FIND_SCALE_SIGN:
	case FIND_SCALE_NAN:
	case FIND_TILED:
	case FIND_RECIPROCAL:
	case FIND_INPUT_SCALE:
		if (scan)
			plan_layer(plan, scan, finding->kind);
		return;
	case FIND_NO_INPUT:
		plan_no_input(plan, finding);
		return;
	default:
		if (rule->is_problem)
			repair_say(plan, finding->kind, finding->name, 0, "%s",
				   finding->text);
	}
}

static int list_layers(struct repair_plan *plan)
{
	const int64_t n = nib_file_layer_tensors_count(plan->file);

	plan->layers = calloc((size_t)n + 1, sizeof(*plan->layers));
	plan->mends = calloc((size_t)n + 1, sizeof(struct layer_mend *));
	if (!plan->layers || !plan->mends)
		return cli_no_memory("list of layers");
	for (int64_t i = 0; i < n; i++)
		plan->layers[i] = nib_file_layer_tensors_at(plan->file, i);
	qsort(plan->layers, (size_t)n, sizeof(*plan->layers), compare_keys);
	plan->n_layers = n;
	return CLI_OK;
}

int repair_plan_make(struct repair_plan *plan)
{
	int code = list_layers(plan);

	if (!code)
		code = repair_list_groups(plan);
	for (int64_t i = 0; i < nib_file_layer_defect_count(plan->file) && !code; i++) {
		const struct nib_layer_defect *defect =
		    nib_file_layer_defect_at(plan->file, i);

		if (!findings_is_across(plan->file, defect))
			plan_half_layer(plan, defect);
	}
	for (int64_t i = 0; i < plan->findings->count && !code; i++)
		plan_finding(plan, &plan->findings->items[i]);
	if (!code)
		code = repair_groups(plan);
	if (!code)
		code = repair_config(plan);
	return code ? code : cli_check_memory();
}

void repair_plan_free(struct repair_plan *plan)
{
	for (int64_t i = 0; i < plan->n_layers; i++)
		free_mend(plan->mends[i]);
	free(plan->layers);
	free(plan->mends);
	free(plan->fused);
	free(plan->rows);
	json_decref(plan->quant);
	json_decref(plan->quant_file);
}
