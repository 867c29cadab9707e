/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_verify.c - nib verify: compares the layers of two checkpoints. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "certificate.h"
#include "cli.h"
#include "experts.h"
#include "progress.h"
#include "tensor.h"

struct verify_args {
	struct cli_shared shared;
	const char *layer;
	double min_sqnr;
	int certify;
};

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
    {.key = "worst_a", .title = "worst A", .print = "%.5g"},
    {.key = "worst_b", .title = "worst B", .print = "%.5g"},
    {.key = "relative_error"},
    {.key = "row_relative_error"},
    {.key = "relative_row"},
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
	int64_t compared, failed, identical, only_b;
	double worst_db;
	json_t *layers; /* of the certificate; NULL: none is asked for */
	const char *worst_name, *only_b_name; /* the first that only B has */
};

/* ---- pairs --------------------------------------------------------------- */

/* The layer of a weight tensor; names of fused experts have no ".weight". */
static const struct nib_layer *find_layer(const struct nib_file *file, const char *name)
{
	const struct nib_layer *layer = tensor_find_layer(file, name, ".weight");

	return layer ? layer : tensor_find_layer(file, name, "");
}

/* A tensor whose bytes are not floats, and stand for some. */
static int from_packed(const struct nib_file *file,
		       const struct nib_file_tensor *tensor,
		       struct tensor_source *source)
{
	return tensor_from_across(file, tensor, source)
		   ? tensor_from_fp8(file, tensor, source)
		   : 0;
}

/* Whether a tensor is a scale of one. */
static int in_packed(const struct nib_file *file, const struct nib_file_tensor *tensor)
{
	const struct nib_layer_tensors *layer = nib_file_layer_tensors_of(file, tensor);
	struct tensor_source source;

	return layer && layer->codes != tensor &&
	       !from_packed(file, layer->codes, &source);
}

/*
 * Finds the weight of file that has the name of like, a weight of the other file.
 * The name of a layer, which has several tensors, has no ".weight".
 */
static int find_source(const struct nib_file *file, const struct tensor_source *like,
		       struct tensor_source *source)
{
	const struct nib_file_tensor *tensor;
	const struct nib_layer *layer;
	char *weight;

	if (!like->layer) {
		tensor = nib_file_find(file, like->name);
		layer = find_layer(file, like->name);
	} else {
		layer = nib_file_find_layer(file, like->name);
		if (asprintf(&weight, "%s.weight", like->name) < 0) {
			cli_out_of_memory();
			return -1;
		}
		tensor = layer ? NULL : nib_file_find(file, weight);
		free(weight);
		if (!layer && !tensor) /* fused experts */
			tensor = nib_file_find(file, like->name);
	}
	if (tensor && !tensor_from_float(tensor, source))
		return 0;
	if (!layer)
		return tensor ? from_packed(file, tensor, source) : -1;
	tensor_from_layer(layer, source);
	return 0;
}

/* --layer names a layer with or without ".weight". */
static int is_asked_for(const struct verifier *v, const char *name)
{
	const char *layer = v->args->layer;
	size_t n = layer ? strlen(layer) : 0, m = strlen(name);
	const char *rest = n < m ? name + n : layer ? layer + m : "";

	return !layer || (!strncmp(layer, name, n < m ? n : m) &&
			  (!*rest || !strcmp(rest, ".weight")));
}

/* ---- rows ---------------------------------------------------------------- */

/* a or b NULL: that file has no tensor of this name. */
static void put_row(struct verifier *v, const struct tensor_source *a,
		    const struct tensor_source *b, int identical, int ok,
		    const char *text)
{
	const struct tensor_source *either = a ? a : b;
	const char *name = b && b->layer ? b->name : either->name;

	table_text(v->table, "name", name);
	table_shape(v->table, "shape", either->shape, either->rank);
	table_text(v->table, "a", a ? tensor_format(a) : "-");
	table_text(v->table, "b", b ? tensor_format(b) : "-");
	table_bool(v->table, "identical", identical);
	table_bool(v->table, "ok", ok);
	table_text(v->table, "text", text);
	table_end_row(v->table);
}

static void put_failure(struct verifier *v, const struct tensor_source *a,
			const struct tensor_source *b, const char *text)
{
	v->compared++;
	v->failed++;
	put_row(v, a, b, 0, 0, text);
}

static void put_result(struct verifier *v, const struct tensor_source *a,
		       const struct tensor_source *b, const struct tensor_error *error)
{
	/* A name that lives as long as its file: those of parts of A do not. */
	const char *name = a->layer ? a->name : b->name;
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
		v->worst_name = name;
	}
	/* Tables for people leave out tensors that are equal. */
	if (identical && !a->layer && !b->layer && table_is_for_people(t))
		return;
	if (error->not_finite)
		snprintf(text, sizeof(text), "%lld elements are inf or NaN",
			 (long long)error->not_finite);
	else if (!ok)
		diagnose(v->device, a, b, error, text, sizeof(text));
	table_number(t, "sqnr_db", db);
	table_number(t, "cosine", tensor_cosine(error));
	table_number(t, "max_error", error->worst);
	table_int(t, "row", error->worst_row);
	table_int(t, "col", error->worst_col);
	table_number(t, "worst_a", error->worst_a);
	table_number(t, "worst_b", error->worst_b);
	table_number(t, "relative_error", tensor_relative(error));
	table_number(t, "row_relative_error", error->worst_relative);
	table_int(t, "relative_row", error->worst_relative_row);
	table_int(t, "not_finite", error->not_finite);
	put_row(v, a, b, identical, ok, ok && identical ? "identical" : text);
}

/* ---- comparing ----------------------------------------------------------- */

static int grow(struct verifier *v, int64_t elems)
{
	if (elems <= v->capacity)
		return CLI_OK;
	free(v->x);
	free(v->y);
	v->x = malloc((size_t)elems * sizeof(*v->x));
	v->y = malloc((size_t)elems * sizeof(*v->y));
	v->capacity = v->x && v->y ? elems : 0;
	return v->capacity ? CLI_OK : cli_no_memory("rows");
}

static int compare_rows(struct verifier *v, const struct tensor_source *a,
			const struct tensor_source *b, struct tensor_error *error)
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
		progress_advance((double)(rows * a->k), a->name);
		if (cli_must_stop())
			return cli_stopped();
	}
	return CLI_OK;
}

/* Compares the bytes of a tensor that has no floats. */
static void verify_bytes(struct verifier *v, const struct tensor_source *a)
{
	const struct nib_file_tensor *t = a->tensor;
	const struct nib_file_tensor *other = nib_file_find(v->b, a->name);
	struct tensor_source b;

	if (!other) {
		put_failure(v, a, NULL, "B has none of this name");
		return;
	}
	tensor_from_float(other, &b);
	if (strcmp(other->dtype, t->dtype) || other->bytes != t->bytes ||
	    memcmp(other->data, t->data, t->bytes)) {
		put_failure(v, a, &b, "the bytes differ");
		return;
	}
	v->compared++;
	v->identical++;
	if (!table_is_for_people(v->table))
		put_row(v, a, &b, 1, 1, "identical");
}

/* Adds a layer of B to the certificate. */
static int certify(struct verifier *v, const struct tensor_source *a,
		   const struct tensor_source *b, const struct tensor_error *error)
{
	if (!v->layers || !certificate_layer_of(b))
		return CLI_OK;
	if (!a->is_float)
		return cli_error(CLI_INPUT,
				 "--certify: %s: is %s in A: the original must be "
				 "floats",
				 b->name, tensor_format(a));
	return certificate_add(v->layers, b, error);
}

static int verify_rows(struct verifier *v, const struct tensor_source *a)
{
	char text[TENSOR_SHAPE_TEXT + 32], shape[TENSOR_SHAPE_TEXT];
	struct tensor_error error = {0};
	struct tensor_source b;
	int code;

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
	return code ? code : certify(v, a, &b, &error);
}

/* How a tensor of A divides into the layers of B; NULL: it is compared whole. */
static const struct experts *find_experts(const struct verifier *v,
					  const struct tensor_source *a)
{
	const struct experts *experts =
	    a->is_float && a->rank == 3 ? experts_find(a->name) : NULL;

	return !experts || experts_problem(v->a, a->tensor, experts) ||
		       nib_file_find(v->b, a->name) || find_layer(v->b, a->name)
		   ? NULL
		   : experts;
}

static int verify_experts(struct verifier *v, const struct tensor_source *a,
			  const struct experts *experts)
{
	const int64_t n = a->shape[0] * experts->n_parts;
	int code = CLI_OK;

	for (int64_t i = 0; i < n && !code; i++) {
		struct nib_file_tensor tensor;
		struct tensor_source part;
		char *name;

		if (!experts_part(a->tensor, experts, i, ".weight", &tensor, &name))
			return cli_no_memory("names of layers");
		if (is_asked_for(v, a->name) || is_asked_for(v, name)) {
			tensor_from_float(&tensor, &part);
			code = verify_rows(v, &part);
		}
		free(name);
	}
	return code;
}

static int verify_all(struct verifier *v)
{
	struct tensor_source a;
	double total = 0;
	int64_t at = 0;
	int code = CLI_OK;

	for (int64_t i = 0; i < nib_file_tensor_count(v->a); i++) {
		const struct nib_file_tensor *t = nib_file_tensor_at(v->a, i);
		double elems = 1;

		for (int j = 0; j < t->rank; j++)
			elems *= (double)t->shape[j];
		total += strcmp(t->dtype, "U8") ? elems : 2 * elems;
	}
	progress_begin("comparing", total, 1);
	while (!code && tensor_next(v->a, &at, &a)) {
		const struct experts *experts = find_experts(v, &a);

		if (experts)
			code = verify_experts(v, &a, experts);
		else if (!is_asked_for(v, a.name) ||
			 (a.tensor && in_packed(v->a, a.tensor)))
			continue;
		else if (a.layer || a.is_float || !from_packed(v->a, a.tensor, &a))
			code = verify_rows(v, &a);
		else
			verify_bytes(v, &a);
	}
	progress_end();
	return code ? code : cli_stopped();
}

/* Whether A has a weight of b's name, however it is stored. */
static int is_in_a(const struct verifier *v, const struct tensor_source *b)
{
	struct tensor_source a;

	if (experts_holder(v->a, b->name))
		return 1;
	if (b->layer)
		return !find_source(v->a, b, &a);
	return nib_file_find(v->a, b->name) || find_layer(v->a, b->name);
}

/* Counts the tensors that only B has.  JSON and CSV have rows for them. */
static void find_only_b(struct verifier *v)
{
	struct tensor_source b;
	int64_t at = 0;

	while (tensor_next(v->b, &at, &b)) {
		if (!is_asked_for(v, b.name) || is_in_a(v, &b) ||
		    (b.tensor && in_packed(v->b, b.tensor)))
			continue;
		if (!v->only_b++)
			v->only_b_name = b.name;
		if (!table_is_for_people(v->table))
			put_row(v, NULL, &b, 0, 1, "A has none of this name");
	}
}

/* ---- the command --------------------------------------------------------- */

static void put_summary(struct verifier *v)
{
	table_note(v->table, "%lld of %lld are within %.1f dB (%lld identical)",
		   (long long)(v->compared - v->failed), (long long)v->compared,
		   v->args->min_sqnr, (long long)v->identical);
	if (isfinite(v->worst_db))
		table_note(v->table, "worst: %.2f dB (%s)", v->worst_db, v->worst_name);
	if (v->only_b)
		table_note(v->table, "only in B: %lld tensor%s (%s%s)",
			   (long long)v->only_b, cli_s(v->only_b), v->only_b_name,
			   v->only_b > 1 ? ", ..." : "");
}

static int write_certificate(struct verifier *v)
{
	char *path;
	int code;

	if (!v->layers)
		return CLI_OK;
	if (v->failed) {
		table_note(v->table, "no certificate: %lld layer%s not within %.1f dB",
			   (long long)v->failed, v->failed == 1 ? " is" : "s are",
			   v->args->min_sqnr);
		return CLI_OK;
	}
	path = certificate_path(v->args->shared.files[1]);
	if (!path)
		return CLI_FAILED;
	code = certificate_write(v->layers, v->b, path);
	if (!code)
		table_note(v->table, "certificate of %lld layers: %s",
			   (long long)json_object_size(v->layers), path);
	free(path);
	return code;
}

static int verify(struct verifier *v)
{
	char near[CLI_NEAREST_TEXT];
	int code, end;

	v->table = table_new(columns, v->args->shared.format, 0);
	code = verify_all(v);
	if (!code && !v->compared)
		code = v->args->layer
			   ? cli_error(CLI_USAGE, "--layer %s: A has none%s",
				       v->args->layer,
				       tensor_nearest(v->a, v->args->layer, near))
			   : cli_error(CLI_INPUT, "A has no tensors");
	if (!code) {
		find_only_b(v);
		put_summary(v);
		code = write_certificate(v);
	}
	end = table_end(v->table);
	if (code || end)
		return code ? code : end;
	return v->failed ? CLI_FOUND : CLI_OK;
}

static int run_verify(const void *args_)
{
	const struct verify_args *args = args_;
	char *const *files = args->shared.files;
	struct verifier v = {.args = args, .worst_db = INFINITY};
	struct nib_error err;
	int code = CLI_OK;

	if (args->certify && args->layer)
		return cli_error(CLI_USAGE, "--layer: a certificate has all layers: "
					    "give --certify or --layer");
	if (args->certify && !(v.layers = json_object()))
		return cli_no_memory("the certificate");
	if (nib_file_open(files[0], &v.a, &err) || nib_file_open(files[1], &v.b, &err))
		code = cli_fail_input(NULL, &err);
	if (!code)
		code = cli_open_device(&args->shared.device, &v.device);
	if (!code)
		code = verify(&v);
	nib_device_close(v.device);
	nib_file_close(v.a);
	nib_file_close(v.b);
	json_decref(v.layers);
	free(v.x);
	free(v.y);
	return code;
}

#define ARG(member) offsetof(struct verify_args, member)
static const struct cli_option options[] = {
    {"min-sqnr", OPT_DOUBLE, ARG(min_sqnr), "DB", "10",
     .help = "least SQNR of a layer in dB; below it the layer fails"},
    {"layer", OPT_TEXT, ARG(layer), "NAME", .help = "compare only this layer"},
    {"certify", OPT_FLAG, ARG(certify),
     .help = "write the errors of B's layers next to B (docs/certificates.md)"},
    {0},
};

const struct cli_command command_verify = {
    .name = "verify",
    .summary = "compare the layers of two checkpoints, float or NVFP4",
    .positional = "A B",
    .min_positional = 2,
    .max_positional = 2,
    .description =
	"Measures the error of a quantised checkpoint, and its cause.  A and B are\n"
	"files, folders of shards, or indices.  Every layer and tensor of A,\n"
	"the original, is compared with that of the same name in B; SQNR is\n"
	"the energy of A over that of A - B, in dB.  Fused experts of A are\n"
	"compared with the layers of each expert that nib quantize makes of\n"
	"them.  Tensors that only B has are counted and fail nothing.  For a layer\n"
	"below --min-sqnr the usual mistakes are undone one by one (nibbles\n"
	"exchanged, scales in 128x4 tiles, a wrong global scale), and the\n"
	"remark names the one that explains the difference.\n",
    .examples = "nib verify model.safetensors nvfp4.safetensors\n"
		"nib verify model-dir nvfp4-dir\n"
		"nib verify model-dir nvfp4-dir --certify\n"
		"nib verify a.safetensors b.safetensors --min-sqnr 18\n"
		"nib verify a.safetensors b.safetensors --layer lm_head\n",
    .groups = (const struct cli_group[]){{"Verifying", options, 0},
					 CLI_CPU_GROUP,
					 CLI_LAST_GROUPS},
    .args_bytes = sizeof(struct verify_args),
    .run = run_verify,
};
