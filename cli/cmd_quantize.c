/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_quantize.c - nib quantize: converts a float checkpoint to NVFP4, a file to a
 * file and a folder to a folder with the same shards.
 *
 * The input is mapped and read twice, in order and in pieces: once for the
 * largest absolute values, once to quantise (quantize_layer.c) and write.  Pages
 * that have been read are released, so that files may be larger than memory.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "config.h"
#include "device.h"
#include "leftovers.h"
#include "out_folder.h"
#include "progress.h"
#include "quantize.h"

#define COPY_BYTES ((size_t)8 << 20)

struct quantize_args {
	struct cli_shared shared;
	struct select_options select;
	int zero_scale; /* -1: that of the checkpoint's format */
	enum nib_checkpoint checkpoint;
	enum nib_scales scales;
	int method;
	const char *calibration, *budget;
	int saturate, no_share, force, dry_run;
};

static const struct table_column columns[] = {
    {.key = "tensor", .title = "tensor"},
    {.key = "shape", .title = "shape"},
    {.key = "from", .title = "from"},
    {.key = "to", .title = "to"},
    {.key = "global", .title = "global", .print = "%.4g"},
    {.key = "sqnr_db", .title = "SQNR", .print = "%.2f dB"},
    {.key = "cosine"},
    {.key = "max_error", .title = "max error", .print = "%.3g"},
    {.key = "not_finite"},
    {.key = "max_error_row"},
    {.key = "max_error_col"},
    {.key = "reason", .title = "why copied"},
    {.key = "bytes_in"},
    {.key = "bytes_out"},
    {0},
};

struct job {
	const struct quantize_args *args;
	const char *in_path, *out_path;
	const char *writing;  /* the file that writer makes */
	struct config config; /* its folder is NULL where IN is a file */
	struct model_types types;
	struct out_folder out; /* used where it is not */
	struct nib_file *file;
	struct nib_device *device;
	struct selection selection;
	struct quantizer_options how;
	struct quantizer *quantizer;
	struct nib_writer *writer;
	struct table *table;
	struct budget budget; /* bits 0: none */
	/* for the summary */
	double bytes_in, bytes_out, worst_db, sum_db;
	const char *worst_name;
	int64_t inexact, not_finite;
};

/* ---- rows ---------------------------------------------------------------- */

/* Bytes of a layer or tensor of the output. */
static double output_bytes(const struct selected *item)
{
	const double rows = (double)item->rows, elems = rows * (double)item->k;

	if (!item->layer)
		return (double)item->tensor->bytes;
	return item->format == SELECT_FP8 ? elems + 4 * rows
					  : tensor_layer_bytes(elems);
}

static double item_bytes(const struct selected *item)
{
	return item->layer ? (double)item->rows * (double)item->k *
				 (double)nib_dtype_bytes(item->dtype)
			   : (double)item->tensor->bytes;
}

static const char *format_name(const struct selected *item)
{
	if (!item->layer)
		return item->tensor->dtype;
	return item->format == SELECT_FP8 ? "FP8" : "NVFP4";
}

static void put_shape(struct table *table, const struct selected *item)
{
	const int64_t shape[] = {item->rows / item->rows_each, item->rows_each,
				 item->k};
	const int skipped = item->is_stack ? 0 : 1;

	table_shape(table, "shape", shape + skipped, 3 - skipped);
}

/* error NULL: item is copied, or nothing is written. */
static void put_row(struct job *job, const struct selected *item,
		    const struct tensor_error *error)
{
	const struct nib_file_tensor *t = item->tensor;
	const double in = item_bytes(item), out = output_bytes(item);
	double db = error ? tensor_sqnr_db(error) : INFINITY;
	struct table *table = job->table;

	job->bytes_in += in;
	job->bytes_out += out;
	job->not_finite += error ? error->not_finite : 0;
	/* The mean leaves out exact layers, such as those of zeros. */
	if (isfinite(db)) {
		job->sum_db += db;
		if (!job->inexact++ || db < job->worst_db) {
			job->worst_db = db;
			job->worst_name = item->layer;
		}
	}
	/* People get the number of norms and biases: see put_summary(). */
	if (!item->layer && t->rank < 2 && table_is_for_people(table))
		return;
	table_text(table, "tensor", item->layer ? item->layer : t->name);
	if (item->layer)
		put_shape(table, item);
	else
		table_shape(table, "shape", t->shape, t->rank);
	table_text(table, "from", t->dtype);
	table_text(table, "to", format_name(item));
	table_int(table, "bytes_in", (int64_t)in);
	table_int(table, "bytes_out", (int64_t)out);
	table_text(table, "reason", item->reason);
	if (error) {
		if (item->format == SELECT_NVFP4)
			table_number(table, "global", (double)item->global);
		table_number(table, "sqnr_db", db);
		table_number(table, "cosine", tensor_cosine(error));
		table_number(table, "max_error", error->worst);
		table_int(table, "not_finite", error->not_finite);
		table_int(table, "max_error_row", error->worst_row);
		table_int(table, "max_error_col", error->worst_col);
	}
	table_end_row(table);
}

/* What --budget has chosen. */
static void put_budget(struct job *job)
{
	const struct selection *s = &job->selection;
	const struct budget *b = &job->budget;
	int64_t fp8 = 0, kept = 0;

	for (int64_t i = 0; i < s->count; i++) {
		fp8 += s->items[i].format == SELECT_FP8;
		kept += s->items[i].format == SELECT_KEPT;
	}
	table_note(job->table,
		   "budget: %.4f of %g bits a weight; %lld layer%s FP8, %lld tensor%s "
		   "kept",
		   b->mean_bits, b->bits, (long long)fp8, cli_s(fp8), (long long)kept,
		   cli_s(kept));
	table_note(job->table,
		   "sum of relative squared errors: %.6g; no choice has less than %.6g",
		   b->error, b->bound);
}

static void put_summary(struct job *job)
{
	const struct selection *s = &job->selection;
	const char *formats = job->budget.bits > 0 ? "NVFP4 or FP8" : "NVFP4";
	int64_t small = 0, exact = s->quantised - job->inexact;
	char in[CLI_SIZE_TEXT], out[CLI_SIZE_TEXT];

	for (int64_t i = 0; i < s->count; i++)
		small += !s->items[i].layer && s->items[i].tensor->rank < 2;
	if (small)
		table_note(job->table, "and %lld tensor%s that %s no matrix: copied",
			   (long long)small, cli_s(small), small == 1 ? "is" : "are");
	if (job->budget.bits > 0)
		put_budget(job);
	if (job->args->dry_run) {
		table_note(job->table, "%lld of %lld tensors would be %s",
			   (long long)s->quantised, (long long)s->count, formats);
		return;
	}
	table_note(job->table,
		   "%lld of %lld tensors are %s now; %s -> %s (%.2f times "
		   "smaller)",
		   (long long)s->quantised, (long long)s->count, formats,
		   cli_size_text(job->bytes_in, in), cli_size_text(job->bytes_out, out),
		   job->bytes_out > 0 ? job->bytes_in / job->bytes_out : 1);
	if (job->inexact)
		table_note(job->table, "SQNR: mean %.2f dB, worst %.2f dB (%s)",
			   job->sum_db / (double)job->inexact, job->worst_db,
			   job->worst_name);
	if (exact)
		table_note(job->table, "exact: %lld layer%s", (long long)exact,
			   cli_s(exact));
	if (job->not_finite)
		cli_warn("%lld value%s inf or NaN, and finite in %s now",
			 (long long)job->not_finite,
			 job->not_finite == 1 ? " was" : "s were", job->out_path);
}

#define LEFT_SHOWN 6
#define LEFT_BYTES 96

/* The module of a matrix that stays as it is, with * for numbers; "" for others. */
static void left_name(const struct selected *item, char *to, size_t bytes)
{
	const struct nib_file_tensor *t = item->tensor;
	const char *at = t->name;
	size_t n = 0;

	if (!item->layer && t->rank >= 2 && tensor_name_ends(at, ".weight"))
		while (*at && strcmp(at, ".weight") && n + 2 < bytes) {
			const size_t digits = strspn(at, "0123456789");

			to[n++] = digits ? '*' : *at;
			at += digits ? digits : 1;
		}
	to[n] = '\0';
}

/* The matrices that are not NVFP4 when transformers loads the model. */
static void put_loading(struct job *job)
{
	const struct selection *s = &job->selection;
	char left[LEFT_SHOWN][LEFT_BYTES], name[LEFT_BYTES];
	char text[LEFT_SHOWN * (LEFT_BYTES + 2)] = "none";
	int count = 0, used = 0;

	for (int64_t i = 0; i < s->count && count <= LEFT_SHOWN; i++) {
		int at = 0;

		left_name(&s->items[i], name, sizeof(name));
		while (at < count && at < LEFT_SHOWN && strcmp(left[at], name))
			at++;
		if (!*name || at < count)
			continue;
		if (count++ == LEFT_SHOWN)
			continue;
		memcpy(left[at], name, sizeof(name));
		used += snprintf(text + used, sizeof(text) - (size_t)used, "%s%s",
				 at ? ", " : "", name);
	}
	table_note(job->table, "not quantised; transformers keeps their type: %s%s",
		   text, count > LEFT_SHOWN ? ", ..." : "");
	if (!job->types.is_known)
		table_note(job->table,
			   "the model_type is not one of transformers %s: "
			   "layers were chosen by their names",
			   model_table_version);
}

/* ---- the two passes ------------------------------------------------------ */

typedef int visit_layer(struct quantizer *quantizer, struct selected *item);

/* Visits the layers until one has another result than CLI_OK, which is returned. */
static int visit_layers(struct job *job, visit_layer *visit)
{
	struct selection *s = &job->selection;
	int code = CLI_OK;

	for (int64_t i = 0; i < s->count && !code; i++)
		if (s->items[i].layer)
			code = visit(job->quantizer, &s->items[i]);
	return code;
}

static int find_globals(struct job *job)
{
	struct selection *s = &job->selection;
	int code = visit_layers(job, quantizer_amax);

	if (code)
		return code;
	if (!job->args->no_share)
		select_share_amax(s);
	for (int64_t i = 0; i < s->count; i++)
		s->items[i].global = quantizer_global(s->items[i].amax, &job->how);
	return CLI_OK;
}

/* Chooses the formats of layers for --budget. */
static int choose_formats(struct job *job)
{
	int code = visit_layers(job, quantizer_errors);

	return code ? code : budget_choose(&job->selection, &job->budget);
}

static enum nib_status declare_metadata(struct job *job, struct nib_error *err)
{
	static const char *const zero_scales[] = {"modelopt", "compressed-tensors",
						  "ggml"};
	const char *key, *value;
	char by[64];

	for (int64_t i = 0; i < nib_file_metadata_count(job->file); i++) {
		nib_file_metadata_at(job->file, i, &key, &value);
		if (strcmp(key, "quantized_by") && strcmp(key, "nvfp4_recipe") &&
		    nib_writer_metadata(job->writer, key, value, err))
			return err->status;
	}
	snprintf(by, sizeof(by), "nibblas %s", nib_version());
	if (nib_writer_metadata(job->writer, "quantized_by", by, err))
		return err->status;
	return nib_writer_metadata(job->writer, "nvfp4_recipe",
				   zero_scales[job->how.zero_scale], err);
}

static int copy_tensor(struct job *job, const struct nib_file_tensor *t)
{
	struct nib_error err;

	for (uint64_t at = 0; at < t->bytes; at += COPY_BYTES) {
		const char *data = (const char *)t->data + at;
		size_t n =
		    t->bytes - at < COPY_BYTES ? (size_t)(t->bytes - at) : COPY_BYTES;

		if (nib_writer_write(job->writer, data, n, &err))
			return cli_fail(job->writing, &err);
		tensor_drop(data, n);
		progress_advance((double)n, t->name);
		if (cli_must_stop())
			return cli_stopped();
	}
	return CLI_OK;
}

/* Opens the writer and declares the tensors of a shard. */
static int begin_file(struct job *job, const char *path, int64_t shard)
{
	static const struct cli_name names[] = {{"name", "the tensor", NULL}, {0}};
	const struct selection *s = &job->selection;
	struct nib_error err;
	enum nib_status status = nib_writer_open(path, &job->writer, &err);

	job->writing = path;
	if (!status)
		status = declare_metadata(job, &err);
	for (int64_t i = 0; i < s->count && !status; i++)
		if (s->items[i].tensor->shard == shard)
			status = declare_item(job->writer, job->how.checkpoint,
					      &s->items[i], &err);
	/* The header, also of a file without tensors. */
	if (!status)
		status = nib_writer_write(job->writer, "", 0, &err);
	return status ? cli_fail_named(path, &err, names) : CLI_OK;
}

static int commit_file(struct job *job)
{
	struct nib_writer *writer = job->writer;
	struct nib_error err;

	if (cli_must_stop())
		return cli_stopped();
	progress_advance(0, "writing to disk");
	job->writer = NULL;
	return nib_writer_commit(writer, &err) ? cli_fail(job->writing, &err) : CLI_OK;
}

static int write_file(struct job *job, const char *path, int64_t shard)
{
	const struct selection *s = &job->selection;
	int code = begin_file(job, path, shard);

	for (int64_t i = 0; i < s->count && !code; i++) {
		const struct selected *item = &s->items[i];
		struct tensor_error error = {0};

		if (item->tensor->shard != shard)
			continue;
		code = item->layer ? quantizer_write(job->quantizer, item, job->writer,
						     path, &error)
				   : copy_tensor(job, item->tensor);
		if (!code)
			put_row(job, item, item->layer ? &error : NULL);
	}
	return code ? code : commit_file(job);
}

/* Shards of the same names, or the only file. */
static int write_shards(struct job *job)
{
	const int64_t shards = nib_file_shard_count(job->file);
	int code = CLI_OK;

	for (int64_t i = 0; i < (shards ? shards : 1) && !code; i++) {
		char *path = out_folder_path(job->out.work,
					     shards ? nib_file_shard_at(job->file, i)
						    : "model.safetensors");

		code = path ? write_file(job, path, i) : CLI_FAILED;
		nib_writer_discard(job->writer);
		job->writer = NULL;
		free(path);
	}
	return code;
}

static int write_folder(struct job *job)
{
	int code = write_shards(job);

	if (!code && nib_file_shard_count(job->file))
		code = config_write_index(job->out.work, job->file);
	if (!code)
		code = config_write(&job->config, job->out.work, job->how.checkpoint,
				    &job->selection);
	if (!code)
		code = out_folder_copy_rest(&job->out, job->config.folder);
	if (!code && cli_must_stop())
		code = cli_stopped();
	return code ? code : out_folder_commit(&job->out);
}

/* Before the work, so that a place that cannot be written costs none. */
static int begin_output(struct job *job)
{
	if (job->config.folder)
		return out_folder_begin(&job->out, job->out_path);
	leftovers_name(job->out_path, strlen(job->out_path));
	return CLI_OK;
}

static int run_passes(struct job *job)
{
	const struct selection *s = &job->selection;
	const int has_budget = job->budget.bits > 0, writes = !job->args->dry_run;
	const int passes = 1 + has_budget + writes;
	struct nib_error err;
	double total = 0;
	int code;

	for (int64_t i = 0; i < s->count; i++)
		total +=
		    item_bytes(&s->items[i]) * (s->items[i].layer ? passes : writes);
	if (quantizer_new(job->device, s, &job->how, &job->quantizer, &err))
		return cli_fail(NULL, &err);
	code = writes ? begin_output(job) : CLI_OK;
	progress_begin("quantising", total, 1);
	if (!code)
		code = find_globals(job);
	if (!code && has_budget)
		code = choose_formats(job);
	if (!code && writes)
		code = job->config.folder ? write_folder(job)
					  : write_file(job, job->out_path, 0);
	nib_writer_discard(job->writer);
	out_folder_discard(&job->out);
	progress_end();
	quantizer_free(job->quantizer);
	return code;
}

/* ---- the command --------------------------------------------------------- */

static const char see_why[] = " (--dry-run lists the tensors and why)";

/* Whether --all would quantise something. */
static int has_default_exclusions(const struct job *job)
{
	const struct selection *s = &job->selection;
	char unused[96];

	for (int64_t i = 0; i < s->count; i++)
		if (!strncmp(s->items[i].reason, "default exclude", 15) &&
		    !models_refuse(&job->types, s->items[i].tensor->name, unused,
				   sizeof(unused)))
			return 1;
	return 0;
}

static int choose_tensors(struct job *job)
{
	struct select_options o = job->args->select;
	int code;

	o.checkpoint = job->how.checkpoint;
	models_read(job->config.model, &job->types);
	o.model = job->config.folder ? &job->types : NULL;
	o.ties_head = job->config.ties_embeddings;
	code = select_tensors(job->file, &o, &job->selection);
	if (code || job->selection.quantised)
		return code;
	if (o.include.count)
		return cli_error(CLI_USAGE,
				 "--include %s: %s has no tensor to quantise "
				 "of such a name; nothing was written%s",
				 o.include.items[0], job->in_path, see_why);
	if (job->types.is_known && !o.exclude.count && !job->args->dry_run)
		return cli_error(CLI_INPUT,
				 "%s has no layer that can be loaded in NVFP4%s; "
				 "nothing was written%s",
				 job->in_path,
				 has_default_exclusions(job)
				     ? ", except those that --all takes"
				     : "",
				 see_why);
	cli_warn("%s has no tensor to quantise: everything is copied", job->in_path);
	return CLI_OK;
}

static int quantize(struct job *job)
{
	const struct selection *s = &job->selection;
	int code = choose_tensors(job), end;

	if (code)
		return code;
	job->table = table_new(columns, job->args->shared.format, 0);
	if (!job->args->dry_run || job->budget.bits > 0)
		code = run_passes(job);
	for (int64_t i = 0; i < s->count && job->args->dry_run && !code; i++)
		put_row(job, &s->items[i], NULL);
	if (!code)
		put_summary(job);
	if (!code && job->config.model)
		put_loading(job);
	end = table_end(job->table);
	return code ? code : end;
}

/* Layers that only the header marks as ComfyUI's need the header of their shard,
 * and shards are written with that of the first. */
static int check_marks(const struct job *job)
{
	const int64_t n =
	    nib_file_shard_count(job->file) > 1 ? nib_file_layer_count(job->file) : 0;

	for (int64_t i = 0; i < n; i++) {
		const struct nib_layer *layer = nib_file_layer_at(job->file, i);

		if (layer->format == NIB_CHECKPOINT_COMFY &&
		    !layer->tensors->comfy_quant)
			return cli_error(
			    CLI_INPUT,
			    "%s: '%s' is marked as ComfyUI's by the header of "
			    "one of several shards: join them to one file",
			    job->in_path, layer->name);
	}
	return CLI_OK;
}

static int check_folder(const struct job *job)
{
	const struct config *c = &job->config;
	int code;

	if (c->failed)
		return cli_error(CLI_INPUT,
				 "%s: a configuration cannot be read, and so "
				 "none can be written",
				 job->in_path);
	if (c->is_quantised)
		return cli_error(CLI_INPUT,
				 "%s: the model is quantised already (%s%s%s): "
				 "quantise the one that it was made from",
				 job->in_path, c->method, *c->algorithm ? ", " : "",
				 c->algorithm);
	if (json_object_get(c->model, "quantization_config"))
		return cli_error(CLI_INPUT,
				 "%s/" CONFIG_MODEL ": the quantization_config "
				 "is no object: remove it",
				 c->folder);
	if (!c->model)
		cli_warn("%s has no " CONFIG_MODEL ": none is written, by which "
			 "engines know the format",
			 job->in_path);
	code = check_marks(job);
	if (!code)
		code = out_folder_check_rest(c->folder);
	return code || job->args->dry_run ? code : out_folder_check(job->out_path);
}

/* GPTQ runs the model, which transformers does. */
static int name_gptq(const struct quantize_args *args)
{
	return cli_error(CLI_USAGE,
			 "--method gptq is a command of the Python package: "
			 "python3 -m nibblas.gptq %s %s --calibration %s",
			 args->shared.files[0], args->shared.files[1],
			 args->calibration ? args->calibration : "TEXT.jsonl");
}

static int run_quantize(const void *args_)
{
	const struct quantize_args *args = args_;
	char *const *files = args->shared.files;
	struct job job = {
	    .args = args,
	    .in_path = files[0],
	    .out_path = files[1],
	    .how = {.path = files[0],
		    .checkpoint = args->checkpoint,
		    .zero_scale = args->zero_scale < 0
				      ? (enum nib_zero_scale)args->checkpoint
				      : (enum nib_zero_scale)args->zero_scale,
		    .scales = args->scales,
		    .saturate = args->saturate,
		    .has_fp8 = args->budget != NULL},
	};
	struct nib_error err;
	int code;

	if (args->method)
		return name_gptq(args);
	if (args->budget && budget_read(args->budget, &job.budget.bits))
		return CLI_USAGE;
	if (nib_file_open(job.in_path, &job.file, &err))
		return cli_fail_input(NULL, &err);
	config_read(&job.config, job.in_path);
	code = job.config.folder ? check_folder(&job)
				 : cli_check_output(job.out_path, &job.in_path, 1,
						    args->force || args->dry_run);
	if (!code)
		code = cli_open_device(&args->shared.device, &job.device);
	if (!code)
		code = quantize(&job);
	nib_device_close(job.device);
	select_free(&job.selection);
	config_free(&job.config);
	nib_file_close(job.file);
	return code;
}

#define ARG(member) offsetof(struct quantize_args, member)
static const struct cli_option options[] = {
    {"format-out", OPT_CHOICE, ARG(checkpoint), "modelopt|compressed-tensors",
     "modelopt", .help = "how the layers are named and stored"},
    {"zero-scale", OPT_CHOICE, ARG(zero_scale), "modelopt|compressed-tensors|ggml",
     .help = "the scale of a block of zeros: 1, 0.125 or 0 (default: the one "
	     "of --format-out)"},
    {"scales", OPT_CHOICE, ARG(scales), "amax|four-six|mse", "four-six",
     .help = "the scale of a block: its largest value becomes 6; or 6 or 4, "
	     "whichever has the least squared error; or the best of nine by that "
	     "error"},
    {"method", OPT_CHOICE, ARG(method), "round|gptq", "round",
     .help = "round each value to the nearest; gptq, with a calibration text, is "
	     "python3 -m nibblas.gptq"},
    {"calibration", OPT_FILE, ARG(calibration), "FILE", .help = "the text of gptq"},
    {"budget", OPT_TEXT, ARG(budget), "BITS",
     .help = "at most this many bits a weight in the mean, 4.5 to 16: layers that "
	     "NVFP4 changes most become FP8 or are copied"},
    {"include", OPT_TEXTS, ARG(select.include), "GLOB,...",
     .help = "quantise only tensors whose names match"},
    {"exclude", OPT_TEXTS, ARG(select.exclude), "GLOB,...",
     .help =
	 "copy tensors whose names match (default without --include: " SELECT_DEFAULT_EXCLUDE
	 ")"},
    {"all", OPT_FLAG, ARG(select.all),
     .help = "quantise every matrix *.weight, with no default exclusions; a "
	     "folder keeps what its model cannot load in NVFP4"},
    {"no-share", OPT_FLAG, ARG(no_share),
     .help = "give q/k/v_proj, gate/up_proj, w1/w3 and what else engines fuse a "
	     "global scale each; they expect to share one"},
    {"saturate", OPT_FLAG, ARG(saturate),
     .help = "take inf as the largest value and NaN as zero, rather than stop"},
    {"force", OPT_FLAG, ARG(force), .help = "replace OUT if it is a file that exists"},
    {"dry-run", OPT_FLAG, ARG(dry_run),
     .help = "say what would be quantised and what copied; write nothing"},
    {0},
};

const struct cli_command command_quantize = {
    .name = "quantize",
    .summary = "turn a float checkpoint into NVFP4",
    .positional = "IN OUT",
    .min_positional = 2,
    .max_positional = 2,
    .description =
	"Makes a checkpoint about 3.5 times smaller than bf16: matrices named\n"
	"*.weight whose k is a multiple of 16 become NVFP4 layers; every other\n"
	"tensor is copied, and the table says why.  IN is a safetensors file\n"
	"with fp32, fp16 or bf16 tensors, or a folder of them, and may be larger\n"
	"than memory.  OUT appears whole or not at all.  SQNR is the energy of a\n"
	"layer over the energy of its error, in dB: about 21 dB is usual.\n"
	"\n"
	"A folder becomes a new folder with the same shards and an index.  Its\n"
	"config.json says how the layers are quantised, as transformers and\n"
	"vLLM read it; tokenizers and other files are copied.  There is no\n"
	"calibration, so no input scales: the algorithm is W4A16_NVFP4, or\n"
	"compressed-tensors' nvfp4-pack-quantized without input_activations.\n"
	"\n"
	"What transformers does not load in NVFP4 for the model_type of\n"
	"config.json stays: embeddings, GPT-2's Conv1D, layers whose weight the\n"
	"model reads.  A folder in which nothing can be loaded is refused.\n"
	"\n"
	"--budget keeps more bits where they remove most error: the layers, of\n"
	"NVFP4 (4.5 bits a weight), FP8 (8, and 32 a row) or as they were, have\n"
	"at most BITS a weight in the mean and a small sum of squared errors,\n"
	"each over the squares of its layer.  Layers that engines fuse and the\n"
	"experts of a layer have one format; experts are never FP8.  --dry-run\n"
	"then reads the weights, and says what would be chosen.\n"
	"\n"
	"Fused experts (experts.gate_up_proj, experts.down_proj) become one\n"
	"layer for each expert and projection, as engines load them; other 3-D\n"
	"weights of experts stay stacks.  Experts stored as [experts, k, n]\n"
	"stay so in ModelOpt's format (gate_up_proj_weight_scale, ...), which\n"
	"nibblas.transformers runs; compressed-tensors has none: a copy.\n",
    .examples = "nib quantize model.safetensors out.safetensors\n"
		"nib quantize model-dir nvfp4-dir\n"
		"nib quantize in.safetensors out.safetensors --dry-run\n"
		"nib quantize in.safetensors out.safetensors --include '*.mlp.*'\n"
		"nib quantize in.safetensors out.safetensors \\\n"
		"    --format-out compressed-tensors --exclude '*lm_head*'\n"
		"nib quantize model-dir mixed-dir --budget 5\n",
    .groups = (const struct cli_group[]){{"Quantising", options, 0},
					 CLI_DEVICE_GROUPS,
					 CLI_LAST_GROUPS},
    .args_bytes = sizeof(struct quantize_args),
    .defers_signals = 1,
    .run = run_quantize,
};
