/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_quantize.c - nib quantize: a float checkpoint becomes NVFP4.
 *
 * The input is mapped and read twice, in order and in pieces: once for the
 * largest absolute values, once to quantise (quantize_layer.c) and write. Pages
 * that have been read are given back, so files larger than memory work.
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "progress.h"
#include "quantize.h"
#include "select.h"
#include "table.h"
#include "tensor.h"

#define COPY_BYTES ((size_t)8 << 20)

struct quantize_args {
	struct select_options select;
	struct device_args device;
	struct format_args format;
	struct common_args common;
	int recipe, checkpoint;
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
	struct nib_file *file;
	struct nib_device *device;
	struct selection selection;
	struct nib_writer *writer;
	struct quantizer *quantizer;
	struct table *table;
	enum nib_checkpoint checkpoint;
	double done_bytes; /* for the bar */
	/* for the summary */
	double bytes_in, bytes_out, worst_db, sum_db;
	const char *worst_name;
	int64_t inexact, not_finite;
};

/* The format's own unless --recipe says. */
static enum nib_recipe recipe(const struct job *job)
{
	return job->args->recipe < 0 ? (enum nib_recipe)job->checkpoint
				     : (enum nib_recipe)job->args->recipe;
}

static int interrupted(void)
{
	int number = cli_interrupted();

	return number ? cli_error((enum cli_exit)(CLI_SIGNAL + number),
				  "interrupted; nothing was written")
		      : CLI_OK;
}

static void advance(struct job *job, double bytes, const char *name)
{
	job->done_bytes += bytes;
	progress_update(job->done_bytes, name);
}

/* ---- first pass ---------------------------------------------------------- */

static int find_amax(struct job *job, struct selected *item)
{
	const struct nib_file_tensor *t = item->tensor;
	int64_t k = t->shape[1], piece = tensor_piece_rows(k);
	size_t row_bytes = (size_t)k * nib_dtype_bytes(item->dtype);
	struct nib_error err;

	for (int64_t r = 0; r < t->shape[0]; r += piece) {
		int64_t rows =
		    t->shape[0] - r < piece ? t->shape[0] - r : piece;
		char *data = (char *)(uintptr_t)t->data + (size_t)r * row_bytes;
		const struct nib_dense x = {
		    .data = data,
		    .dtype = item->dtype,
		    .rows = rows,
		    .cols = k,
		};
		float amax;
		char what[512];

		if (quantizer_amax(job->quantizer, &x, &amax, &err)) {
			snprintf(what, sizeof(what),
				 "%s: %s, rows %lld to %lld", job->in_path,
				 t->name, (long long)r,
				 (long long)(r + rows - 1));
			return cli_fail_input(what, &err);
		}
		if (amax > item->amax)
			item->amax = amax;
		tensor_drop(data, (size_t)rows * row_bytes);
		advance(job, (double)rows * (double)row_bytes, item->layer);
		if (cli_interrupted())
			return interrupted();
	}
	return CLI_OK;
}

static int find_globals(struct job *job)
{
	struct selection *s = &job->selection;
	int code = CLI_OK;

	for (int64_t i = 0; i < s->count && !code; i++)
		if (s->items[i].layer)
			code = find_amax(job, &s->items[i]);
	if (code)
		return code;
	if (!job->args->no_share)
		select_share_amax(s);
	for (int64_t i = 0; i < s->count; i++)
		s->items[i].global =
		    quantizer_global(s->items[i].amax, job->checkpoint);
	return CLI_OK;
}

/* ---- second pass --------------------------------------------------------- */

static int writer_failed(struct job *job, const struct nib_error *err)
{
	return cli_fail(job->out_path, err);
}

static int declare_all(struct job *job)
{
	const struct selection *s = &job->selection;
	struct nib_error err;
	enum nib_status status = NIB_OK;
	const char *key, *value;
	char by[64];

	snprintf(by, sizeof(by), "nibblas %s", nib_version());
	for (int64_t i = 0; i < nib_file_metadata_count(job->file) && !status;
	     i++) {
		nib_file_metadata_at(job->file, i, &key, &value);
		if (strcmp(key, "quantized_by") && strcmp(key, "nvfp4_recipe"))
			status =
			    nib_writer_metadata(job->writer, key, value, &err);
	}
	if (!status)
		status =
		    nib_writer_metadata(job->writer, "quantized_by", by, &err);
	if (!status)
		status = nib_writer_metadata(job->writer, "nvfp4_recipe",
					     quantize_recipe_names[recipe(job)],
					     &err);
	for (int64_t i = 0; i < s->count && !status; i++) {
		const struct nib_file_tensor *t = s->items[i].tensor;

		if (s->items[i].layer)
			status = nib_writer_declare_layer(
			    job->writer, job->checkpoint, s->items[i].layer,
			    t->shape[0], t->shape[1], 0, &err);
		else
			status =
			    nib_writer_declare(job->writer, t->name, t->dtype,
					       t->rank, t->shape, &err);
	}
	return status ? writer_failed(job, &err) : CLI_OK;
}

static void put_row(struct job *job, const struct selected *item,
		    const struct tensor_error *error, double bytes_out)
{
	const struct nib_file_tensor *t = item->tensor;
	struct table *table = job->table;

	/* People are not told of each norm and bias; see put_summary(). */
	if (!item->layer && t->rank < 2 && table_is_for_people(table))
		return;
	table_text(table, "tensor", item->layer ? item->layer : t->name);
	table_shape(table, "shape", t->shape, t->rank);
	table_text(table, "from", t->dtype);
	table_text(table, "to", item->layer ? "NVFP4" : t->dtype);
	table_int(table, "bytes_in", (int64_t)t->bytes);
	table_int(table, "bytes_out", (int64_t)bytes_out);
	table_text(table, "reason", item->reason);
	if (error) {
		table_number(table, "global", (double)item->global);
		table_number(table, "sqnr_db", tensor_sqnr_db(error));
		table_number(table, "cosine", tensor_cosine(error));
		table_number(table, "max_error", error->worst);
		table_int(table, "not_finite", error->not_finite);
		table_int(table, "max_error_row", error->worst_row);
		table_int(table, "max_error_col", error->worst_col);
	}
	table_end_row(table);
}

static double layer_bytes(const struct nib_file_tensor *t)
{
	return (double)t->shape[0] * (double)t->shape[1] * 0.5625 + 4;
}

static void count_row(struct job *job, const struct selected *item,
		      const struct tensor_error *error)
{
	double bytes = item->layer ? layer_bytes(item->tensor)
				   : (double)item->tensor->bytes;

	job->bytes_in += (double)item->tensor->bytes;
	job->bytes_out += bytes;
	if (error) {
		double db = tensor_sqnr_db(error);

		job->not_finite += error->not_finite;
		/* An exact layer, as of zeros, says nothing about others. */
		if (isfinite(db)) {
			job->inexact++;
			job->sum_db += db;
		}
		if (isfinite(db) && (!job->worst_name || db < job->worst_db)) {
			job->worst_db = db;
			job->worst_name = item->layer;
		}
	}
	put_row(job, item, error, bytes);
}

static int copy_tensor(struct job *job, const struct selected *item)
{
	const struct nib_file_tensor *t = item->tensor;
	struct nib_error err;

	for (uint64_t at = 0; at < t->bytes; at += COPY_BYTES) {
		const char *data = (const char *)t->data + at;
		size_t n = t->bytes - at < COPY_BYTES ? (size_t)(t->bytes - at)
						      : COPY_BYTES;

		if (nib_writer_write(job->writer, data, n, &err))
			return writer_failed(job, &err);
		tensor_drop(data, n);
		advance(job, (double)n, t->name);
		if (cli_interrupted())
			return interrupted();
	}
	count_row(job, item, NULL);
	return CLI_OK;
}

/* quantizer_run() calls this after each piece. */
static int on_piece(void *job, double bytes, const char *name)
{
	advance(job, bytes, name);
	return cli_interrupted();
}

static int quantize_tensor(struct job *job, const struct selected *item)
{
	struct tensor_error error = {0};
	struct nib_error err;
	enum nib_status status = quantizer_run(
	    job->quantizer, item, job->writer, on_piece, job, &error, &err);

	if (cli_interrupted())
		return interrupted();
	if (status == NIB_BAD_DATA)
		return cli_fail_input(item->tensor->name, &err);
	if (status)
		return writer_failed(job, &err);
	count_row(job, item, &error);
	return CLI_OK;
}

static int write_all(struct job *job)
{
	const struct selection *s = &job->selection;
	struct nib_error err;
	int code = CLI_OK;

	if (nib_writer_open(job->out_path, &job->writer, &err))
		return writer_failed(job, &err);
	code = declare_all(job);
	for (int64_t i = 0; i < s->count && !code; i++)
		code = s->items[i].layer ? quantize_tensor(job, &s->items[i])
					 : copy_tensor(job, &s->items[i]);
	/* With no tensors the header is still to be written. */
	if (!code && !s->count && nib_writer_write(job->writer, "", 0, &err))
		code = writer_failed(job, &err);
	if (!code && cli_interrupted())
		code = interrupted();
	if (code) {
		nib_writer_discard(job->writer);
		return code;
	}
	progress_update(job->done_bytes, "writing to disk");
	if (nib_writer_commit(job->writer, &err))
		return writer_failed(job, &err);
	return CLI_OK;
}

/* ---- the command --------------------------------------------------------- */

static void put_summary(struct job *job)
{
	const struct selection *s = &job->selection;
	int64_t small = 0, n = s->quantised;
	char in[CLI_SIZE_TEXT], out[CLI_SIZE_TEXT];

	for (int64_t i = 0; i < s->count; i++)
		small += !s->items[i].layer && s->items[i].tensor->rank < 2;
	if (small)
		table_note(job->table,
			   "and %lld tensor%s that %s no matrix: copied",
			   (long long)small, small == 1 ? "" : "s",
			   small == 1 ? "is" : "are");
	if (job->args->dry_run) {
		table_note(job->table, "%lld of %lld tensors would be NVFP4",
			   (long long)n, (long long)s->count);
		return;
	}
	table_note(job->table,
		   "%lld of %lld tensors are NVFP4 now; %s -> %s (%.2f times "
		   "smaller)",
		   (long long)n, (long long)s->count,
		   cli_size_text(job->bytes_in, in),
		   cli_size_text(job->bytes_out, out),
		   job->bytes_out > 0 ? job->bytes_in / job->bytes_out : 1);
	if (job->inexact)
		table_note(job->table, "SQNR: mean %.2f dB, worst %.2f dB (%s)",
			   job->sum_db / (double)job->inexact, job->worst_db,
			   job->worst_name);
	if (n > job->inexact)
		table_note(job->table, "exact: %lld layer%s",
			   (long long)(n - job->inexact),
			   n - job->inexact == 1 ? "" : "s");
	if (job->not_finite)
		cli_warn("%lld value%s inf or NaN, and finite in %s now",
			 (long long)job->not_finite,
			 job->not_finite == 1 ? " was" : "s were",
			 job->out_path);
}

static int run_passes(struct job *job)
{
	const struct selection *s = &job->selection;
	struct nib_error err;
	double total = 0;
	int code;

	if (job->args->dry_run) {
		for (int64_t i = 0; i < s->count; i++)
			put_row(job, &s->items[i], NULL,
				s->items[i].layer
				    ? layer_bytes(s->items[i].tensor)
				    : (double)s->items[i].tensor->bytes);
		return CLI_OK;
	}
	for (int64_t i = 0; i < s->count; i++)
		total += (double)s->items[i].tensor->bytes *
			 (s->items[i].layer ? 2 : 1);
	if (quantizer_new(job->device, s, recipe(job), job->checkpoint,
			  job->args->saturate, &job->quantizer, &err))
		return cli_fail(NULL, &err);
	cli_catch_signals();
	progress_begin("quantising", total, 1);
	code = find_globals(job);
	if (!code)
		code = write_all(job);
	progress_end();
	quantizer_free(job->quantizer);
	return code;
}

static int run_job(struct job *job)
{
	int code, end;

	code = select_tensors(job->file, &job->args->select, &job->selection);
	if (code)
		return code;
	if (!job->selection.quantised && job->args->select.include.count)
		return cli_error(
		    CLI_USAGE,
		    "--include %s: %s has no tensor to quantise of "
		    "such a name; nothing was written",
		    job->args->select.include.items[0], job->in_path);
	if (!job->selection.quantised)
		cli_warn("%s has no tensor to quantise: everything is copied",
			 job->in_path);
	job->table =
	    table_new(columns, (enum table_format)job->args->format.format, 0);
	code = run_passes(job);
	if (!code)
		put_summary(job);
	end = table_end(job->table);
	return code ? code : end;
}

static int run_quantize(const void *args_, char *const *files, int n_files)
{
	const struct quantize_args *args = args_;
	struct job job = {
	    .args = args,
	    .in_path = files[0],
	    .out_path = files[1],
	    .checkpoint = (enum nib_checkpoint)args->checkpoint,
	};
	struct nib_error err;
	int code;

	(void)n_files;
	progress_set_quiet(args->common.quiet);
	if (nib_file_open(job.in_path, &job.file, &err))
		return cli_fail_input(NULL, &err);
	code = cli_check_output(job.out_path, &job.in_path, 1,
				args->force || args->dry_run);
	if (!code)
		code = cli_open_device(&args->device, &job.device);
	if (!code) {
		code = run_job(&job);
		nib_device_close(job.device);
	}
	select_free(&job.selection);
	nib_file_close(job.file);
	return code;
}

static const struct cli_option options[] = {
    {.name = "format-out",
     .kind = OPT_CHOICE,
     .offset = offsetof(struct quantize_args, checkpoint),
     .value = "modelopt|compressed-tensors",
     .fallback = "modelopt",
     .help = "how the layers are named and stored"},
    {.name = "recipe",
     .kind = OPT_CHOICE,
     .offset = offsetof(struct quantize_args, recipe),
     .value = "modelopt|compressed-tensors|ggml",
     .help = "the scale of a block of zeros: 1, 0.125 or 0 (default: the one "
	     "of --format-out)"},
    {.name = "include",
     .kind = OPT_TEXTS,
     .offset = offsetof(struct quantize_args, select.include),
     .value = "GLOB,...",
     .help = "quantise only tensors whose names match"},
    {.name = "exclude",
     .kind = OPT_TEXTS,
     .offset = offsetof(struct quantize_args, select.exclude),
     .value = "GLOB,...",
     .help =
	 "leave these as they are (default without --include: " SELECT_DEFAULT_EXCLUDE
	 ")"},
    {.name = "all",
     .kind = OPT_FLAG,
     .offset = offsetof(struct quantize_args, select.all),
     .help = "every matrix *.weight, with no default exclusions"},
    {.name = "no-share",
     .kind = OPT_FLAG,
     .offset = offsetof(struct quantize_args, no_share),
     .help = "an own global scale for each of q/k/v_proj, gate/up_proj and "
	     "w1/w3, which engines fuse and expect to share one"},
    {.name = "saturate",
     .kind = OPT_FLAG,
     .offset = offsetof(struct quantize_args, saturate),
     .help = "take inf as the largest value and NaN as zero, rather than stop"},
    {.name = "force",
     .kind = OPT_FLAG,
     .offset = offsetof(struct quantize_args, force),
     .help = "replace OUT if it exists"},
    {.name = "dry-run",
     .kind = OPT_FLAG,
     .offset = offsetof(struct quantize_args, dry_run),
     .help = "say what would be quantised and what copied; write nothing"},
    {0},
};

static const struct cli_group groups[] = {
    {"Quantising", options, 0},
    {"Device", any_device_options, offsetof(struct quantize_args, device)},
    {"Output", format_options, offsetof(struct quantize_args, format)},
    {"Messages", common_options, offsetof(struct quantize_args, common)},
    {0},
};

const struct cli_command command_quantize = {
    .name = "quantize",
    .summary = "turn a float checkpoint into NVFP4",
    .positional = "IN OUT",
    .min_positional = 2,
    .max_positional = 2,
    .description =
	"Reads safetensors with fp32, fp16 or bf16 tensors and writes the\n"
	"matrices named *.weight whose k is a multiple of 16 as NVFP4 layers;\n"
	"every other tensor is copied, and the table says why.  SQNR is the\n"
	"energy of a layer over the energy of its error: about 20 dB is usual.\n"
	"\n"
	"OUT appears whole or not at all; IN may be larger than memory.  Of a\n"
	"model in several files each is quantised by itself, and its index is\n"
	"left to the caller.  Stacks of experts (3-D) are copied.  There is no\n"
	"calibration, so no input_scale, and no config (hf_quant_config.json)\n"
	"is written: engines that want them need them from elsewhere.\n",
    .examples =
	"nib quantize model.safetensors out.safetensors\n"
	"nib quantize in.safetensors out.safetensors --dry-run\n"
	"nib quantize in.safetensors out.safetensors --include '*.mlp.*'\n"
	"nib quantize in.safetensors out.safetensors \\\n"
	"    --format-out compressed-tensors --exclude '*lm_head*'\n",
    .groups = groups,
    .args_bytes = sizeof(struct quantize_args),
    .run = run_quantize,
};
