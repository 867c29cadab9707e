/* SPDX-License-Identifier: Apache-2.0 */
/* findings.c - the rules of nib inspect: see inspect.h. */
#include "inspect.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const struct finding_rule finding_rules[FIND_KINDS] = {
    [FIND_HALF_LAYER] = {"half-layer", 1, "layers that cannot be read",
			 "Export the layer again; nib and engines skip or "
			 "refuse it as it is."},
    [FIND_SCALE_SIGN] =
	{"scale-sign", 1, "block scales with their sign bit set",
	 "Scales are positive: hardware ignores the bit, emulators negate the "
	 "block.  Clear bit 7, or look for what wrote over the tensor."},
    [FIND_SCALE_NAN] = {"scale-nan", 1, "block scales that are NaN (0x7F)",
			"Every result that uses these rows is NaN.  Quantise "
			"again, clamping scales to 448 before the cast."},
    [FIND_ALL_ZERO] = {"all-zero", 1, "layers in which every value is zero",
		       "The layer does nothing: it was never loaded or never "
		       "written.  Export it again."},
    [FIND_RECIPROCAL] =
	{"reciprocal-global", 1, "global scales that look like their reciprocals",
	 "ModelOpt stores amax/2688 (weight_scale_2), compressed-tensors "
	 "2688/amax (weight_global_scale).  Store 1/x, or use the other "
	 "format's names."},
    [FIND_TILED] =
	{"tiled-scales", 1,
	 "weight_scale that is in the 128x4 tiled order, not row by row",
	 "Checkpoints hold linear scales; convert with nib_convert_scales() "
	 "from NIB_SCALE_LAYOUT_TILED_128X4 to NIB_SCALE_LAYOUT_LINEAR before saving."},
    [FIND_INT4] = {"int4-codes", 1, "codes that look like signed integers, not e2m1",
		   "The layer is INT4 under NVFP4's names; use a reader for "
		   "that format."},
    [FIND_NOT_FINITE] = {"not-finite", 1, "float tensors with inf or NaN",
			 "Quantising makes neither: look at what the file was "
			 "made from."},
    [FIND_UNKNOWN] =
	{"unknown-layout", 1, "quantised tensors in a layout that nib cannot read",
	 "Not looked at, and no command of nib reads them: MXFP4 and others, "
	 "or one shard of several, whose folder is to be given.  Export the "
	 "layers as ModelOpt's or compressed-tensors' NVFP4."},
    [FIND_CONFIG] =
	{"config", 1, "a config.json that does not fit the tensors",
	 "Engines choose their kernels by quantization_config: write the one "
	 "of the exporter."},
    [FIND_CONFIG_FIELD] =
	{"config-field", 1, "a quantization_config that lacks a key",
	 "Engines refuse the model or load it as unquantised; nib repair writes the "
	 "key where the tensors determine it."},
    [FIND_CONFIG_INPUT] =
	{"config-input", 1, "quantised activations in config.json, without scales",
	 "Engines compute with scales that were never loaded.  Calibrate, or let nib "
	 "repair say W4A16, which needs none."},
    [FIND_NOT_IGNORED] =
	{"not-ignored", 0,
	 "linear layers of floats that config.json does not leave out",
	 "Engines expect NVFP4 there.  nib repair adds them to the list of modules "
	 "left out."},
    [FIND_INPUT_NOT_SHARED] =
	{"input-not-shared", 0, "layers that engines fuse, with different input scales",
	 "They read the same input, and engines use the scale of one.  nib repair "
	 "gives them the largest."},
    [FIND_NIBBLES] = {"nibble-order", 0,
		      "layers that may have the two nibbles of each byte exchanged",
		      "A hint only: the file cannot prove it.  nib verify against "
		      "the original decides; the even k belongs in the low nibble."},
    [FIND_WEAK_BLOCKS] =
	{"weak-blocks", 0, "blocks that do not use the range of their codes",
	 "A block scaled by its largest value has a code of 4 or 6.  Either "
	 "the scales were made otherwise, which costs precision, or codes and "
	 "scales do not belong together."},
    [FIND_SMALL_SCALES] =
	{"small-scales", 0, "layers whose block scales stay far below 448",
	 "The global scale is larger than amax/2688: small blocks lose "
	 "precision.  Harmless if the layer shares its global scale."},
    [FIND_NOT_SHARED] =
	{"not-shared", 0, "layers that engines fuse, with different global scales",
	 "Engines that fuse them use the scale of one for all of them.  nib repair "
	 "rewrites them to one scale; nib quantize gives them one."},
    [FIND_INPUT_SCALE] =
	{"input-scale", 0, "input scales that look like their reciprocals",
	 "The same rule as for the weights: ModelOpt stores amax/2688, "
	 "compressed-tensors 2688/amax."},
    [FIND_AWQ] = {"awq", 0, "layers of AWQ, with a pre_quant_scale",
		  "x is to be multiplied by it: nib run and "
		  "nibblas.transformers do, vLLM 0.32 refuses such models."},
    [FIND_ACROSS] =
	{"packed-across", 0, "stacks of experts packed along k, their second last size",
	 "ModelOpt's layout of Llama 4 and gpt-oss.  nibblas.transformers runs "
	 "it and nib verify reads it; nib run and the library do not.  The "
	 "values were not looked at."},
    [FIND_NO_INPUT] =
	{"no-input-scale", 0, "layers that were not calibrated, among layers that were",
	 "W4A16 (--activations bf16) reads no input scale.  Where activations "
	 "are quantised, nibblas.transformers gives an expert the largest scale "
	 "of the others; nib run takes the largest value of x."},
    [FIND_CERTIFICATE] = {"certificate", 1,
			  "the certificate is not of these layers, or broken",
			  "Write it again: nib verify ORIGINAL THIS --certify.  "
			  "from_pretrained(activations=\"certified\") refuses it as it "
			  "is."},
    [FIND_TARGETS] = {"no-target", 0,
		      "layers that no group of quantization_config targets",
		      "Engines find the scheme of a layer by the targets of "
		      "config_groups, and take one without for unquantised, "
		      "unless they know it by another name."},
    [FIND_RULE] = {"config-rule", 0,
		   "patterns of config.json that nib does not understand",
		   "Which layers they leave out was not compared with the "
		   "tensors.  Regular expressions (re:) may have classes, "
		   "groups, |, quantifiers, anchors, \\d, \\s and \\w."},
};

void findings_add(struct findings *findings, enum finding_kind kind, const char *name,
		  const char *format, ...)
{
	struct finding *items =
	    realloc(findings->items, sizeof(*items) * ((size_t)findings->count + 1));
	struct finding *finding;
	va_list list;

	if (!items) {
		findings->failed = 1;
		return;
	}
	findings->items = items;
	findings->of_kind[kind]++;
	finding = &items[findings->count++];
	finding->kind = kind;
	finding->name = name;
	va_start(list, format);
	vsnprintf(finding->text, sizeof(finding->text), format, list);
	va_end(list);
}

void findings_free(struct findings *findings)
{
	free(findings->items);
	*findings = (struct findings){0};
}

static void find_bad_scales(struct findings *f, const struct scan_layer *scan)
{
	const char *name = scan->layer->name;

	if (scan->signs)
		findings_add(f, FIND_SCALE_SIGN, name,
			     "%lld of %lld scales have bit 7 set",
			     (long long)scan->signs, (long long)scan->n_scales);
	if (scan->nans)
		findings_add(f, FIND_SCALE_NAN, name, "%lld of %lld scales are NaN",
			     (long long)scan->nans, (long long)scan->n_scales);
}

static int is_all_zero(const struct scan_layer *scan)
{
	int64_t nonzero = 0;

	for (int i = 0; i < 16; i++)
		nonzero += i & 7 ? scan->codes[i] : 0;
	return scan->n_scales && (!nonzero || scan->zeros == scan->n_scales);
}

/* Weights of real layers stay well inside these. */
#define LARGEST_AMAX  1e3
#define SMALLEST_AMAX 1e-5

static void find_reciprocal(struct findings *f, const struct scan_layer *scan)
{
	double global = (double)tensor_global(scan->layer);
	double other = 6 * scan->scale_max / global;

	if (!(scan->amax > LARGEST_AMAX || scan->amax < SMALLEST_AMAX) ||
	    !(other < LARGEST_AMAX && other > SMALLEST_AMAX))
		return;
	findings_add(f, FIND_RECIPROCAL, scan->layer->name,
		     "global scale %.4g lets values reach %.3g; with 1/x it "
		     "would be %.3g",
		     global, scan->amax, other);
}

static void find_input_reciprocal(struct findings *f, const struct scan_layer *scan)
{
	double input = (double)tensor_input_global(scan->layer);

	/* Activations reach 0.1 to 1e5: amax/2688 is 4e-5 to 40. */
	if (input > 60)
		findings_add(f, FIND_INPUT_SCALE, scan->layer->name,
			     "input scale %.4g would mean inputs up to %.3g; "
			     "1/x means %.3g",
			     input, input * 2688, 2688 / input);
}

static void find_tiled(struct findings *f, const struct scan_layer *scan)
{
	double gain = scan->tiled_structure - scan->linear_structure;

	/* NaN compares false. */
	if (gain > 0.01 && gain > 8 * scan->structure_sd &&
	    gain > 0.2 * scan->linear_structure)
		findings_add(f, FIND_TILED, scan->layer->name,
			     "rows and columns explain %.1f %% of the scales "
			     "read as tiles, %.1f %% read as rows",
			     100 * scan->tiled_structure, 100 * scan->linear_structure);
}

/*
 * Codes c and c + 8 are equally common in e2m1, which has a sign bit; c and
 * 16 - c are in two's complement.
 */
static void find_int4(struct findings *f, const struct scan_layer *scan)
{
	double as_e2m1 = 0, as_int4 = 0, total = 0;

	for (int c = 1; c < 8; c++) {
		as_e2m1 += fabs((double)(scan->codes[c] - scan->codes[c + 8]));
		as_int4 += fabs((double)(scan->codes[c] - scan->codes[16 - c]));
		total += (double)(scan->codes[c] + scan->codes[c + 8]);
	}
	if (total >= 1024 && as_e2m1 > 0.2 * total && as_int4 < as_e2m1 / 4)
		findings_add(f, FIND_INT4, scan->layer->name,
			     "codes c and 16-c are equally common, c and c+8 "
			     "are not");
}

static void find_range(struct findings *f, const struct scan_layer *scan)
{
	const char *name = scan->layer->name;

	if (scan->blocks >= 64 &&
	    (double)scan->weak_blocks > 0.05 * (double)scan->blocks)
		findings_add(f, FIND_WEAK_BLOCKS, name,
			     "%.1f %% of blocks have no code of 4 or 6",
			     100 * (double)scan->weak_blocks / (double)scan->blocks);
	if (scan->scale_max > 0 && scan->scale_max < 56)
		findings_add(f, FIND_SMALL_SCALES, name,
			     "the largest block scale is %.4g", scan->scale_max);
}

void findings_of_layer(struct findings *findings, const struct scan_layer *scan)
{
	const struct nib_file_tensor *awq = scan->layer->pre_quant_scale;

	if (awq)
		findings_add(findings, FIND_AWQ, scan->layer->name,
			     "pre_quant_scale is %s [%lld]", awq->dtype,
			     (long long)awq->shape[0]);
	find_bad_scales(findings, scan);
	if (is_all_zero(scan)) {
		findings_add(findings, FIND_ALL_ZERO, scan->layer->name, "%s",
			     scan->zeros == scan->n_scales ? "every block scale is 0"
							   : "every code is 0");
		return;
	}
	find_reciprocal(findings, scan);
	find_input_reciprocal(findings, scan);
	find_tiled(findings, scan);
	find_int4(findings, scan);
	find_range(findings, scan);
}

void findings_of_float(struct findings *findings, const char *name,
		       const struct scan_float *scan)
{
	if (scan->nans || scan->infs)
		findings_add(findings, FIND_NOT_FINITE, name,
			     "%lld NaN and %lld inf among %lld values",
			     (long long)scan->nans, (long long)scan->infs,
			     (long long)scan->elems);
}

/* ---- layers compared ----------------------------------------------------- */

/*
 * Exchanged nibbles leave every block's values and scale as they are, so one
 * layer cannot show them.  But the columns of a layer belong to channels
 * of its input, and its columns are about as large as those of other layers and
 * norms of the same channels.  Columns that match better after an exchange are
 * therefore a hint.
 */

/* Standard errors by which exchanged columns must match better. */
#define SIGMAS 6

static int matches_exchanged(double plain, double exchanged, int64_t k)
{
	return fabs(exchanged) > fabs(plain) + SIGMAS / sqrt((double)k);
}

int findings_are_fused(const struct nib_layer *a, const struct nib_layer *b)
{
	size_t stem;
	const int set = tensor_sibling_set(a->name, &stem);

	return set >= 0 && set < TENSOR_FUSED_SETS &&
	       !tensor_compare_siblings(a->name, b->name) &&
	       a->weight.k == b->weight.k && a->weight.batch == b->weight.batch;
}

/* The first matrix of two stacks whose scales differ; -1: there is none. */
static int64_t first_difference(const float *a, const float *b, int64_t count)
{
	for (int64_t i = 0; i < count && a && b; i++)
		if (fabsf(a[i] - b[i]) > 0)
			return i;
	return -1;
}

static void compare_scales(struct findings *f, const struct nib_layer *a,
			   const struct nib_layer *b)
{
	const int64_t n = a->weight.batch;
	const int64_t w = first_difference(a->globals, b->globals, n);
	const int64_t x = first_difference(a->input_globals, b->input_globals, n);

	if (w >= 0)
		findings_add(f, FIND_NOT_SHARED, b->name,
			     "global scale %.6g, and %.6g in %s", (double)b->globals[w],
			     (double)a->globals[w], a->name);
	/* One that was not calibrated is no-input-scale. */
	if (x >= 0 && a->input_globals[x] > 0 && b->input_globals[x] > 0)
		findings_add(f, FIND_INPUT_NOT_SHARED, b->name,
			     "input scale %.6g, and %.6g in %s",
			     (double)b->input_globals[x], (double)a->input_globals[x],
			     a->name);
}

static void compare_pair(struct findings *f, const struct scan_layer *a,
			 const struct scan_layer *b)
{
	const char *name = a->layer->name;
	double plain, exchanged;
	size_t stem;

	if (tensor_sibling_set(name, &stem) < 0 ||
	    tensor_compare_siblings(name, b->layer->name) ||
	    a->layer->weight.k != b->layer->weight.k)
		return;
	if (findings_are_fused(a->layer, b->layer))
		compare_scales(f, a->layer, b->layer);
	scan_correlate(a->columns, b->columns, a->layer->weight.k, &plain, &exchanged);
	if (matches_exchanged(plain, exchanged, a->layer->weight.k))
		findings_add(f, FIND_NIBBLES, b->layer->name,
			     "its columns match those of %s better with one of "
			     "the two exchanged (correlation %.2f, else %.2f)",
			     name, exchanged, plain);
}

static int is_norm(const struct nib_file_tensor *t)
{
	enum nib_dtype dtype;
	char lower[256];
	size_t i;

	if (t->rank != 1 || tensor_dtype(t->dtype, &dtype))
		return 0;
	for (i = 0; i < sizeof(lower) - 1 && t->name[i]; i++)
		lower[i] = (char)tolower((unsigned char)t->name[i]);
	lower[i] = '\0';
	return strstr(lower, "norm") && strstr(lower, ".weight");
}

static size_t common_prefix(const char *a, const char *b)
{
	size_t n = 0;

	while (a[n] && a[n] == b[n])
		n++;
	return n;
}

/* Whether the names agree up to the end of the first number: "layers.1". */
static int same_block(const char *layer, const char *norm)
{
	size_t n = common_prefix(layer, norm);
	const char *digit = strpbrk(layer, "0123456789");

	while (digit && isdigit((unsigned char)*digit))
		digit++;
	return digit && layer + n >= digit && !isdigit((unsigned char)layer[n]);
}

static void read_squares(const struct nib_file_tensor *norm, int64_t k, float *floats,
			 double *squares)
{
	enum nib_dtype dtype;

	if (tensor_dtype(norm->dtype, &dtype))
		return;
	tensor_read_floats(norm->data, dtype, k, floats);
	for (int64_t i = 0; i < k; i++)
		squares[i] = (double)floats[i] * (double)floats[i];
}

/* The norms of a file: few, where tensors may be a hundred thousand. */
struct norms {
	const struct nib_file_tensor **items;
	int64_t count;
};

static int find_norms(struct norms *norms, const struct nib_file *file)
{
	const int64_t n = nib_file_tensor_count(file);

	*norms = (struct norms){.items = calloc((size_t)n + 1, sizeof(*norms->items))};
	for (int64_t i = 0; i < n && norms->items; i++) {
		const struct nib_file_tensor *t = nib_file_tensor_at(file, i);

		if (is_norm(t))
			norms->items[norms->count++] = t;
	}
	return norms->items != NULL;
}

static void compare_norms(struct findings *f, const struct norms *norms,
			  const struct scan_layer *scan)
{
	const struct nib_layer *layer = scan->layer;
	int64_t k = layer->weight.k;
	float *floats = malloc((size_t)k * sizeof(*floats));
	double *squares = malloc((size_t)k * sizeof(*squares));
	int found = 0;

	f->failed |= !floats || !squares;
	for (int64_t i = 0; i < norms->count && !f->failed && !found; i++) {
		const struct nib_file_tensor *t = norms->items[i];
		double plain, exchanged;

		if (t->shape[0] != k || !same_block(layer->name, t->name))
			continue;
		read_squares(t, k, floats, squares);
		scan_correlate(scan->columns, squares, k, &plain, &exchanged);
		found = matches_exchanged(plain, exchanged, k);
		if (found)
			findings_add(f, FIND_NIBBLES, layer->name,
				     "its columns match %s better when "
				     "exchanged (correlation %.2f, else %.2f)",
				     t->name, exchanged, plain);
	}
	free(floats);
	free(squares);
}

void findings_of_layers(struct findings *findings, const struct nib_file *file,
			const struct scan_layer *scans, int64_t count)
{
	struct norms norms;

	if (!find_norms(&norms, file))
		findings->failed = 1;
	for (int64_t i = 0; i < count && norms.items; i++)
		compare_norms(findings, &norms, &scans[i]);
	free(norms.items);
	/* Siblings stand near each other in every writer's order. */
	for (int64_t i = 0; i < count; i++)
		for (int64_t j = i + 1; j < count && j < i + 16; j++)
			compare_pair(findings, &scans[i], &scans[j]);
}

/* ---- layers that cannot be read ------------------------------------------ */

int findings_is_across(const struct nib_file *file,
		       const struct nib_layer_defect *defect)
{
	struct tensor_source source;

	return defect->tensors &&
	       !tensor_from_across(file, defect->tensors->codes, &source);
}

void findings_of_defects(struct findings *findings, const struct nib_file *file)
{
	char shape[TENSOR_SHAPE_TEXT];

	for (int64_t i = 0; i < nib_file_layer_defect_count(file); i++) {
		const struct nib_layer_defect *defect =
		    nib_file_layer_defect_at(file, i);
		const struct nib_layer_tensors *stack = defect->tensors;

		if (!findings_is_across(file, defect))
			findings_add(findings, FIND_HALF_LAYER, defect->name, "%s",
				     defect->reason);
		else
			findings_add(findings, FIND_ACROSS, defect->name,
				     "U8 %s: %lld matrices of k = %lld, n = %lld",
				     tensor_shape_text(stack->codes->shape, 3, shape),
				     (long long)stack->batch, (long long)stack->k,
				     (long long)stack->rows);
	}
}
