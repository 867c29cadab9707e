/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_verify.c - nib verify: how far the layers of two files are apart. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "diagnose.h"
#include "progress.h"
#include "table.h"
#include "tensor.h"

struct verify_args {
	struct device_args device;
	struct format_args format;
	struct common_args common;
	const char *layer;
	double min_sqnr;
};

static const char weight_suffix[] = ".weight";

static const struct table_column columns[] = {
    {.key = "name", .title = "name"},
    {.key = "shape", .title = "shape"},
    {.key = "a", .title = "A"},
    {.key = "b", .title = "B"},
    {.key = "sqnr_db", .title = "SQNR", .print = "%.2f dB"},
    {.key = "cosine", .title = "cosine", .print = "%.6f"},
    {.key = "max_error", .title = "max error", .print = "%.4g"},
    {.key = "row", .title = "row"},
    {.key = "col", .title = "col"},
    {.key = "worst_a", .title = "there A", .print = "%.5g"},
    {.key = "worst_b", .title = "there B", .print = "%.5g"},
    {.key = "not_finite"},
    {.key = "identical"},
    {.key = "ok", .title = "ok"},
    {.key = "text", .title = "remark"},
    {0},
};

struct verifier {
	const struct verify_args *args;
	struct nib_file *a, *b;
	struct nib_device *device;
	struct table *table;
	float *x, *y;	  /* a piece of each */
	int64_t capacity; /* elements of x and of y */
	int64_t compared, failed, identical;
	double done_bytes, worst_db;
	const char *worst_name;
	int64_t only_b;
	const char *only_b_name; /* of the first */
};

/* The layer whose weight would be the tensor name, or NULL. */
static const struct nib_layer *layer_of_weight(const struct nib_file *file,
					       const char *name)
{
	const size_t n = strlen(name), s = sizeof(weight_suffix) - 1;
	const struct nib_layer *found;
	char *layer;

	if (n <= s || strcmp(name + n - s, weight_suffix))
		return NULL;
	layer = strndup(name, n - s);
	found = layer ? nib_file_find_layer(file, layer) : NULL;
	free(layer);
	return found;
}

/* The tensor of the weight of a layer, or NULL. */
static const struct nib_file_tensor *find_weight(const struct nib_file *file,
						 const char *layer)
{
	const struct nib_file_tensor *found;
	char *name;

	if (asprintf(&name, "%s%s", layer, weight_suffix) < 0)
		return NULL;
	found = nib_file_find(file, name);
	free(name);
	return found;
}

/*
 * The weight of file that like, of another file, is to be compared with: of
 * the same name, and only a layer, which has several tensors, goes without
 * ".weight".
 */
static int find_source(const struct nib_file *file,
		       const struct tensor_source *like,
		       struct tensor_source *source)
{
	const struct nib_file_tensor *tensor;
	const struct nib_layer *layer;

	layer = like->is_nvfp4 ? nib_file_find_layer(file, like->name) : NULL;
	tensor = like->is_nvfp4 ? find_weight(file, like->name)
				: nib_file_find(file, like->name);
	if (!layer && tensor && !tensor_from_float(tensor, source))
		return 0;
	if (!layer && !like->is_nvfp4)
		layer = layer_of_weight(file, like->name);
	if (!layer)
		return -1;
	tensor_from_layer(layer, source);
	return 0;
}

static int grow(struct verifier *v, int64_t elems)
{
	float *x, *y;

	if (elems <= v->capacity)
		return CLI_OK;
	x = realloc(v->x, (size_t)elems * sizeof(*x));
	if (x)
		v->x = x;
	y = realloc(v->y, (size_t)elems * sizeof(*y));
	if (y)
		v->y = y;
	if (!x || !y)
		return cli_no_memory("rows");
	v->capacity = elems;
	return CLI_OK;
}

static int compare_rows(struct verifier *v, const struct tensor_source *a,
			const struct tensor_source *b,
			struct tensor_error *error)
{
	struct nib_error err;
	int64_t rows;

	for (int64_t r = 0; r < a->rows; r += rows) {
		int64_t other = tensor_next_rows(b, r);

		rows = tensor_next_rows(a, r);
		rows = rows < other ? rows : other;
		if (grow(v, rows * a->k))
			return CLI_FAILED;
		if (tensor_read(v->device, a, r, rows, v->x, &err) ||
		    tensor_read(v->device, b, r, rows, v->y, &err))
			return cli_fail_input(a->name, &err);
		tensor_error_add(error, v->x, v->y, rows, a->k, r);
		v->done_bytes += (double)(rows * a->k);
		progress_update(v->done_bytes, a->name);
	}
	return CLI_OK;
}

/* b NULL: there is none. */
static void put_names(struct verifier *v, const struct tensor_source *a,
		      const struct tensor_source *b)
{
	table_text(v->table, "name", b && b->is_nvfp4 ? b->name : a->name);
	table_shape(v->table, "shape", a->shape, a->rank);
	table_text(v->table, "a", tensor_format(a));
	table_text(v->table, "b", b ? tensor_format(b) : "-");
}

static void put_failure(struct verifier *v, const struct tensor_source *a,
			const struct tensor_source *b, const char *text)
{
	put_names(v, a, b);
	table_bool(v->table, "ok", 0);
	table_text(v->table, "text", text);
	table_end_row(v->table);
	v->compared++;
	v->failed++;
}

static void put_result(struct verifier *v, const struct tensor_source *a,
		       const struct tensor_source *b,
		       const struct tensor_error *error)
{
	double db = tensor_sqnr_db(error);
	int identical = error->noise <= 0 && !error->not_finite;
	int ok = db >= v->args->min_sqnr && !error->not_finite;
	struct table *t = v->table;
	char text[256] = "";

	v->compared++;
	v->failed += !ok;
	v->identical += identical;
	if (db < v->worst_db) {
		v->worst_db = db;
		v->worst_name = b->is_nvfp4 ? b->name : a->name;
	}
	/* People need not read every equal norm. */
	if (identical && !a->is_nvfp4 && !b->is_nvfp4 && table_is_for_people(t))
		return;
	put_names(v, a, b);
	table_number(t, "sqnr_db", db);
	table_number(t, "cosine", tensor_cosine(error));
	table_number(t, "max_error", error->worst);
	table_int(t, "row", error->worst_row);
	table_int(t, "col", error->worst_col);
	table_number(t, "worst_a", error->worst_a);
	table_number(t, "worst_b", error->worst_b);
	table_int(t, "not_finite", error->not_finite);
	table_bool(t, "identical", identical);
	table_bool(t, "ok", ok);
	if (error->not_finite)
		snprintf(text, sizeof(text), "%lld elements are inf or NaN",
			 (long long)error->not_finite);
	else if (!ok)
		diagnose(v->device, a, b, error, text, sizeof(text));
	else if (identical)
		snprintf(text, sizeof(text), "identical");
	table_text(t, "text", text);
	table_end_row(t);
}

/* --layer names a layer with or without ".weight". */
static int is_asked_for(const struct verifier *v, const char *name)
{
	const char *layer = v->args->layer;
	size_t n = layer ? strlen(layer) : 0, m = strlen(name);

	if (!layer || !strcmp(layer, name))
		return 1;
	return n < m ? !strncmp(layer, name, n) &&
			   !strcmp(name + n, weight_suffix)
		     : !strncmp(layer, name, m) &&
			   !strcmp(layer + m, weight_suffix);
}

static int verify_source(struct verifier *v, const struct tensor_source *a)
{
	struct tensor_error error = {0};
	struct tensor_source b;
	char text[TENSOR_SHAPE_TEXT + 32], shape[TENSOR_SHAPE_TEXT];
	int code;

	if (!is_asked_for(v, a->name))
		return CLI_OK;
	if (find_source(v->b, a, &b)) {
		put_failure(v, a, NULL, "B has none of this name");
		return CLI_OK;
	}
	if (a->rows != b.rows || a->k != b.k) {
		snprintf(text, sizeof(text), "B has the shape %s",
			 tensor_shape_text(b.shape, b.rank, shape));
		put_failure(v, a, &b, text);
		return CLI_OK;
	}
	code = compare_rows(v, a, &b, &error);
	if (!code)
		put_result(v, a, &b, &error);
	return code;
}

/* Tensors that are no floats: equal or not. */
static void verify_bytes(struct verifier *v,
			 const struct nib_file_tensor *tensor)
{
	const struct nib_file_tensor *other = nib_file_find(v->b, tensor->name);
	struct table *t = v->table;
	int equal = other && other->bytes == tensor->bytes &&
		    !strcmp(other->dtype, tensor->dtype) &&
		    !memcmp(other->data, tensor->data, tensor->bytes);

	if (!is_asked_for(v, tensor->name))
		return;
	v->compared++;
	v->identical += equal;
	v->failed += !equal;
	if (equal && table_is_for_people(t))
		return;
	table_text(t, "name", tensor->name);
	table_shape(t, "shape", tensor->shape, tensor->rank);
	table_text(t, "a", tensor->dtype);
	table_text(t, "b", other ? other->dtype : "-");
	table_bool(t, "identical", equal);
	table_bool(t, "ok", equal);
	table_text(t, "text",
		   equal   ? "identical"
		   : other ? "the bytes differ"
			   : "B has none of this name");
	table_end_row(t);
}

/* What only B has fails nothing; people get the count. */
static void put_only_b(struct verifier *v, const char *name,
		       const int64_t *shape, int rank, const char *format)
{
	if (!is_asked_for(v, name))
		return;
	if (!v->only_b++)
		v->only_b_name = name;
	if (table_is_for_people(v->table))
		return;
	table_text(v->table, "name", name);
	table_shape(v->table, "shape", shape, rank);
	table_text(v->table, "a", "-");
	table_text(v->table, "b", format);
	table_bool(v->table, "identical", 0);
	table_bool(v->table, "ok", 1);
	table_text(v->table, "text", "A has none of this name");
	table_end_row(v->table);
}

static void find_only_b(struct verifier *v)
{
	struct tensor_source a, b;

	for (int64_t i = 0; i < nib_file_layer_count(v->b); i++) {
		tensor_from_layer(nib_file_layer_at(v->b, i), &b);
		if (find_source(v->a, &b, &a))
			put_only_b(v, b.name, b.shape, b.rank,
				   tensor_format(&b));
	}
	for (int64_t i = 0; i < nib_file_tensor_count(v->b); i++) {
		const struct nib_file_tensor *t = nib_file_tensor_at(v->b, i);

		if (!tensor_in_layer(v->b, t) &&
		    !nib_file_find(v->a, t->name) &&
		    !layer_of_weight(v->a, t->name))
			put_only_b(v, t->name, t->shape, t->rank, t->dtype);
	}
}

static int verify_all(struct verifier *v)
{
	double total = 0;
	int code = CLI_OK;

	for (int64_t i = 0; i < nib_file_tensor_count(v->a); i++) {
		const struct nib_file_tensor *t = nib_file_tensor_at(v->a, i);
		double elems = 1;

		for (int j = 0; j < t->rank; j++)
			elems *= (double)t->shape[j];
		total += strcmp(t->dtype, "U8") ? elems : 2 * elems;
	}
	progress_begin("comparing", total, 1);
	for (int64_t i = 0; i < nib_file_layer_count(v->a) && !code; i++) {
		struct tensor_source a;

		tensor_from_layer(nib_file_layer_at(v->a, i), &a);
		code = verify_source(v, &a);
	}
	for (int64_t i = 0; i < nib_file_tensor_count(v->a) && !code; i++) {
		const struct nib_file_tensor *t = nib_file_tensor_at(v->a, i);
		struct tensor_source a;

		if (tensor_in_layer(v->a, t))
			continue;
		if (tensor_from_float(t, &a))
			verify_bytes(v, t);
		else
			code = verify_source(v, &a);
	}
	progress_end();
	return code;
}

static int verify(struct verifier *v)
{
	int code, end;

	v->worst_db = INFINITY;
	v->table =
	    table_new(columns, (enum table_format)v->args->format.format, 0);
	code = verify_all(v);
	if (!code && !v->compared)
		code = v->args->layer
			   ? cli_error(CLI_USAGE, "--layer %s: A has none",
				       v->args->layer)
			   : cli_error(CLI_INPUT, "A has no tensors");
	if (!code)
		find_only_b(v);
	if (!code) {
		table_note(v->table,
			   "%lld of %lld are within %.1f dB (%lld identical)",
			   (long long)(v->compared - v->failed),
			   (long long)v->compared, v->args->min_sqnr,
			   (long long)v->identical);
		if (isfinite(v->worst_db))
			table_note(v->table, "worst: %.2f dB (%s)", v->worst_db,
				   v->worst_name);
		if (v->only_b)
			table_note(v->table, "only in B: %lld tensor%s (%s%s)",
				   (long long)v->only_b,
				   v->only_b > 1 ? "s" : "", v->only_b_name,
				   v->only_b > 1 ? ", ..." : "");
	}
	end = table_end(v->table);
	if (code || end)
		return code ? code : end;
	return v->failed ? CLI_FOUND : CLI_OK;
}

static int run_verify(const void *args_, char *const *files, int n_files)
{
	const struct verify_args *args = args_;
	struct verifier v = {.args = args};
	struct nib_error err;
	int code = CLI_OK;

	(void)n_files;
	progress_set_quiet(args->common.quiet);
	if (nib_file_open(files[0], &v.a, &err) ||
	    nib_file_open(files[1], &v.b, &err))
		code = cli_fail_input(NULL, &err);
	if (!code)
		code = cli_open_device(&args->device, &v.device);
	if (!code)
		code = verify(&v);
	nib_device_close(v.device);
	nib_file_close(v.a);
	nib_file_close(v.b);
	free(v.x);
	free(v.y);
	return code;
}

static const struct cli_option options[] = {
    {.name = "min-sqnr",
     .kind = OPT_DOUBLE,
     .offset = offsetof(struct verify_args, min_sqnr),
     .value = "DB",
     .fallback = "10",
     .help = "least SQNR of a layer in dB; below it the layer fails"},
    {.name = "layer",
     .kind = OPT_TEXT,
     .offset = offsetof(struct verify_args, layer),
     .value = "NAME",
     .help = "compare only this layer"},
    {0},
};

static const struct cli_group groups[] = {
    {"Verifying", options, 0},
    {"Device", device_options, offsetof(struct verify_args, device)},
    {"Output", format_options, offsetof(struct verify_args, format)},
    {"Messages", common_options, offsetof(struct verify_args, common)},
    {0},
};

const struct cli_command command_verify = {
    .name = "verify",
    .summary = "compare the layers of two files, float or NVFP4",
    .positional = "A B",
    .min_positional = 2,
    .max_positional = 2,
    .description =
	"Compares every layer and tensor of A with that of the same name in\n"
	"B, and counts what only B has, which fails nothing.  A is the\n"
	"original: SQNR is its energy over that of A - B, in dB.\n"
	"Where a layer is below --min-sqnr the usual mistakes are undone one\n"
	"by one (nibbles exchanged, scales in 128x4 tiles, a wrong global\n"
	"scale) and the remark says which of them explains the difference.\n",
    .examples = "nib verify model.safetensors nvfp4.safetensors\n"
		"nib verify a.safetensors b.safetensors --min-sqnr 18\n"
		"nib verify a.safetensors b.safetensors --layer lm_head\n",
    .groups = groups,
    .args_bytes = sizeof(struct verify_args),
    .run = run_verify,
};
