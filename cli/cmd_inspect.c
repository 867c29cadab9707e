/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_inspect.c - nib inspect: what is in a checkpoint, and what looks wrong
 * with it.  scan.c counts, layouts.c names, findings.c judges.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "inspect.h"
#include "progress.h"

struct inspect_args {
	struct cli_shared shared;
	int brief, strict;
};

static const struct table_column columns[] = {
    {.key = "kind"},
    {.key = "name", .title = "layer"},
    {.key = "format", .title = "format"},
    {.key = "shape", .title = "shape"},
    {.key = "bytes", .title = "size", .print = TABLE_BYTES},
    {.key = "global", .title = "global", .print = "%.4g"},
    {.key = "input_global", .title = "input", .print = "%.4g"},
    {.key = "scale_min", .title = "scale min", .print = "%.4g"},
    {.key = "scale_median", .title = "median", .print = "%.4g"},
    {.key = "scale_max", .title = "max", .print = "%.4g"},
    {.key = "zero_scales"},
    {.key = "nan_scales"},
    {.key = "sign_scales"},
    {.key = "zeros", .title = "zeros", .print = "%.1f %%", .scale = 100},
    {.key = "amax", .title = "amax", .print = "%.4g"},
    {.key = "certificate"},
    {.key = "relative_error"},
    {.key = "worst_row_error"},
    {.key = "activations"},
    {.key = "value"},
    {.key = "shard"},
    {.key = "weak_blocks"},
    {.key = "linear_structure"},
    {.key = "tiled_structure"},
    {.key = "finding"},
    {.key = "severity"},
    {.key = "text"},
    {.key = "advice"},
    {0},
};

/* For people: the tensors that are no layers. */
static const struct table_column tensor_columns[] = {
    {.key = "name", .title = "other tensor"},
    {.key = "format", .title = "type"},
    {.key = "shape", .title = "shape"},
    {.key = "bytes", .title = "size", .print = TABLE_BYTES},
    {.key = "zeros", .title = "zeros", .print = "%.1f %%", .scale = 100},
    {.key = "amax", .title = "amax", .print = "%.4g"},
    {.key = "value", .title = "value", .print = "%.6g"},
    {0},
};

struct inspector {
	const struct inspect_args *args;
	struct nib_file *file;
	struct config config;
	struct layouts layouts;
	/* In the order of names, their numbers by value. */
	struct tensor_source *sources;
	int64_t n_sources;
	struct table *table;
	struct scan_layer *scans;
	int64_t n_scans;
	struct findings findings;
	struct certified certified;
};

/* ---- rows ---------------------------------------------------------------- */

static void put_header(struct inspector *in, const char *path, double bytes)
{
	const int64_t tensors = nib_file_tensor_count(in->file);
	const int64_t layers = nib_file_layer_count(in->file);
	const int64_t shards = nib_file_shard_count(in->file);
	const int64_t *count = in->layouts.count;
	char size[CLI_SIZE_TEXT], files[32] = "";
	const char *key, *value;

	if (shards)
		snprintf(files, sizeof(files), " in %lld file%s", (long long)shards,
			 cli_s(shards));
	table_note(in->table, "%s: %s%s, %lld tensor%s, %lld NVFP4 layer%s", path,
		   cli_size_text(bytes, size), files, (long long)tensors,
		   cli_s(tensors), (long long)layers, cli_s(layers));
	config_put(&in->config, in->table);
	if (count[ROLE_FP8])
		table_note(in->table, "  FP8 linears: %lld, which nib lists",
			   (long long)count[ROLE_FP8]);
	if (count[ROLE_KV_SCALE])
		table_note(in->table, "  scales of the kv cache: %lld",
			   (long long)count[ROLE_KV_SCALE]);
	for (int64_t i = 0; i < nib_file_metadata_count(in->file); i++) {
		nib_file_metadata_at(in->file, i, &key, &value);
		table_note(in->table, "  %s: %.200s", key, value);
	}
}

/* The columns that every layer and tensor has. */
static void put_what(struct inspector *in, const struct tensor_source *source,
		     double bytes)
{
	table_text(in->table, "kind", source->layer ? "layer" : "tensor");
	table_text(in->table, "name", source->name);
	table_text(in->table, "format",
		   source->tensor &&
			   layouts_role(&in->layouts, source->tensor) == ROLE_FP8
		       ? "FP8 linear"
		       : tensor_format(source));
	table_shape(in->table, "shape", source->shape, source->rank);
	table_int(in->table, "bytes", (int64_t)bytes);
}

/* The shard that holds a tensor; nothing if the checkpoint is one file. */
static void put_shard(struct inspector *in, const struct nib_file_tensor *t)
{
	const char *shard = nib_file_shard_at(in->file, t ? t->shard : -1);

	if (shard)
		table_text(in->table, "shard", shard);
}

static void put_layer(struct inspector *in, const struct scan_layer *scan,
		      const struct certificate_layer *certified)
{
	const struct nib_layer *layer = scan->layer;
	struct tensor_source source;
	struct table *t = in->table;
	double elems, zeros = (double)(scan->codes[0] + scan->codes[8]);
	double weak = (double)scan->weak_blocks;

	if (in->args->brief)
		return;
	tensor_from_layer(layer, &source);
	elems = (double)source.rows * (double)source.k;
	put_what(in, &source, tensor_layer_bytes(elems));
	table_number(t, "global", (double)tensor_global(layer));
	if (layer->input_globals)
		table_number(t, "input_global", (double)tensor_input_global(layer));
	table_number(t, "scale_min", scan->scale_min);
	table_number(t, "scale_median", scan->scale_median);
	table_number(t, "scale_max", scan->scale_max);
	table_int(t, "zero_scales", scan->zeros);
	table_int(t, "nan_scales", scan->nans);
	table_int(t, "sign_scales", scan->signs);
	table_number(t, "zeros", elems > 0 ? zeros / elems : 0);
	table_number(t, "amax", scan->amax);
	table_number(t, "weak_blocks", scan->blocks ? weak / (double)scan->blocks : 0);
	table_number(t, "linear_structure", scan->linear_structure);
	table_number(t, "tiled_structure", scan->tiled_structure);
	certified_put_layer(&in->certified, certified, t);
	table_end_row(t);
}

static void put_tensor(struct inspector *in, const struct tensor_source *source,
		       const struct scan_float *scan)
{
	if (in->args->brief)
		return;
	put_what(in, source, (double)source->tensor->bytes);
	put_shard(in, source->tensor);
	if (scan->elems == 1)
		table_number(in->table, "value", scan->value);
	if (scan->elems) {
		table_number(in->table, "zeros",
			     (double)scan->zeros / (double)scan->elems);
		table_number(in->table, "amax", scan->amax);
	}
	table_end_row(in->table);
}

static void put_finding(struct table *t, const struct finding *finding)
{
	const struct finding_rule *rule = &finding_rules[finding->kind];

	table_text(t, "kind", "finding");
	table_text(t, "name", finding->name);
	table_text(t, "finding", rule->code);
	table_text(t, "severity", rule->is_problem ? "problem" : "note");
	table_text(t, "text", finding->text);
	table_text(t, "advice", rule->advice);
	table_end_row(t);
}

/* For people: one paragraph a kind, with the first few layers. */
#define SHOWN 4

static void put_paragraph(struct table *t, const struct findings *all, int kind)
{
	const struct finding_rule *rule = &finding_rules[kind];
	int64_t count = all->of_kind[kind], shown = 0;

	if (!count)
		return;
	table_note(t, "\n%s: %s (%s): %lld", rule->is_problem ? "PROBLEM" : "note",
		   rule->title, rule->code, (long long)count);
	for (int64_t i = 0; i < all->count && shown < SHOWN; i++)
		if (all->items[i].kind == (enum finding_kind)kind) {
			table_note(t, "  %s: %s", all->items[i].name,
				   all->items[i].text);
			shown++;
		}
	if (count > shown)
		table_note(t, "  ... and %lld more", (long long)(count - shown));
	table_note(t, "  -> %s", rule->advice);
}

/* Returns how many count as problems. */
static int64_t put_findings(struct inspector *in)
{
	const struct findings *all = &in->findings;
	int64_t problems = 0, notes;

	if (table_is_for_people(in->table))
		for (int kind = 0; kind < FIND_KINDS; kind++)
			put_paragraph(in->table, all, kind);
	else
		for (int64_t i = 0; i < all->count; i++)
			put_finding(in->table, &all->items[i]);
	for (int i = 0; i < FIND_KINDS; i++)
		if (finding_rules[i].is_problem || in->args->strict)
			problems += all->of_kind[i];
	notes = all->count - problems;
	if (all->count)
		table_note(in->table, "\n%lld problem%s, %lld note%s",
			   (long long)problems, cli_s(problems), (long long)notes,
			   cli_s(notes));
	else
		table_note(in->table, "\nnothing looks wrong");
	return problems;
}

/* ---- scanning ------------------------------------------------------------ */

static int scan_layers(struct inspector *in)
{
	for (int64_t i = 0; i < in->n_sources && in->sources[i].layer; i++) {
		const struct nib_layer *layer = in->sources[i].layer;
		const struct nib_fp4 *w = &layer->weight;
		size_t elems = (size_t)(w->batch * w->rows * w->k);
		struct certificate_layer certified;
		int code;

		progress_advance(0, layer->name);
		code = scan_layer(layer, &in->scans[i]);
		if (!code)
			code = cli_stopped();
		in->n_scans++;
		if (code)
			return code;
		findings_of_layer(&in->findings, &in->scans[i]);
		certified = certified_layer(&in->certified, layer, &in->findings);
		put_layer(in, &in->scans[i], &certified);
		tensor_drop(w->codes, elems / 2);
		tensor_drop(w->scales, elems / NIB_NVFP4_BLOCK);
		progress_advance(tensor_layer_bytes((double)elems), NULL);
	}
	return CLI_OK;
}

/* People get a second table, with fewer columns. */
static int begin_tensors(struct inspector *in)
{
	int code;

	if (!table_is_for_people(in->table))
		return CLI_OK;
	if (in->n_scans && !in->args->brief)
		table_note(in->table, "%s", "");
	code = table_end(in->table);
	in->table = table_new(tensor_columns, in->args->shared.format, 0);
	return code;
}

static int scan_tensors(struct inspector *in)
{
	for (int64_t i = in->n_scans; i < in->n_sources; i++) {
		const struct tensor_source *source = &in->sources[i];
		struct scan_float scan;
		int code;

		progress_advance(0, source->name);
		code = scan_float(source, &scan);
		if (code)
			return code;
		findings_of_float(&in->findings, source->name, &scan);
		put_tensor(in, source, &scan);
	}
	return CLI_OK;
}

static int find_all(struct inspector *in)
{
	findings_of_defects(&in->findings, in->file);
	findings_of_layouts(&in->findings, &in->layouts);
	findings_of_config(&in->findings, &in->config, in->file);
	findings_of_layers(&in->findings, in->file, in->scans, in->n_scans);
	findings_of_inputs(&in->findings, in->scans, in->n_scans);
	if (in->findings.failed)
		return cli_no_memory("findings");
	if (cli_must_stop())
		return cli_stopped();
	certified_put(&in->certified, in->table);
	return put_findings(in) ? CLI_FOUND : CLI_OK;
}

/* ---- the command --------------------------------------------------------- */

static int inspect(struct inspector *in, const char *path)
{
	double bytes = 0;
	int code;

	for (int64_t i = 0; i < nib_file_tensor_count(in->file); i++)
		bytes += (double)nib_file_tensor_at(in->file, i)->bytes;
	layouts_count(&in->layouts);
	put_header(in, path, bytes);
	progress_begin("reading", bytes, 1);
	code = scan_layers(in);
	if (!code)
		code = begin_tensors(in);
	if (!code)
		code = scan_tensors(in);
	progress_end();
	return code ? code : find_all(in);
}

static void free_all(struct inspector *in)
{
	for (int64_t i = 0; i < in->n_scans; i++)
		scan_layer_free(&in->scans[i]);
	free(in->scans);
	free(in->sources);
	certified_free(&in->certified);
	findings_free(&in->findings);
	layouts_free(&in->layouts);
	config_free(&in->config);
	nib_file_close(in->file);
}

static int run_inspect(const void *args_)
{
	const struct inspect_args *args = args_;
	const char *path = args->shared.files[0];
	struct inspector in = {.args = args};
	struct nib_error err;
	int code, end;

	if (nib_file_open(path, &in.file, &err))
		return cli_fail_input(NULL, &err);
	config_read(&in.config, path);
	in.table = table_new(columns, args->shared.format, 0);
	in.scans = calloc((size_t)nib_file_layer_count(in.file) + 1, sizeof(*in.scans));
	code =
	    in.scans ? layouts_read(&in.layouts, in.file) : cli_no_memory("statistics");
	if (!code)
		code = tensor_list(in.file, &in.sources, &in.n_sources);
	if (!code)
		code = certified_read(&in.certified, path, &in.findings);
	if (!code)
		code = inspect(&in, path);
	end = table_end(in.table);
	free_all(&in);
	return end ? end : code;
}

#define ARG(member) offsetof(struct inspect_args, member)
static const struct cli_option options[] = {
    {"brief", OPT_FLAG, ARG(brief), .help = "only the findings, not the tensors"},
    {"strict", OPT_FLAG, ARG(strict),
     .help = "notes count as problems for the exit code"},
    {0},
};

const struct cli_command command_inspect = {
    .name = "inspect",
    .summary = "list a checkpoint's tensors and say what looks wrong",
    .positional = "PATH",
    .min_positional = 1,
    .max_positional = 1,
    .description =
	"Finds the mistakes that exporters of NVFP4 make, and says what to do\n"
	"about each.  PATH is a safetensors file, a folder of them with its\n"
	"config.json, or an index.  Lists the NVFP4 layers with the statistics\n"
	"of their block scales, the other tensors, and the findings.  A problem\n"
	"is certain or nearly so, and makes nib exit with 1:\n"
	"\n"
	"  half-layer         a tensor of a layer is missing or misshapen, or it\n"
	"                     needs what nib does not do (SVDQuant)\n"
	"  scale-sign         block scales with their sign bit set\n"
	"  scale-nan          block scales that are NaN\n"
	"  all-zero           a layer of zeros\n"
	"  reciprocal-global  1/x stored where x belongs\n"
	"  tiled-scales       block scales in 128x4 tiles: rows and columns\n"
	"                     explain the scales far better read that way\n"
	"  int4-codes         two's complement integers, not e2m1\n"
	"  not-finite         inf or NaN in a float tensor\n"
	"  unknown-layout     quantised tensors that nib does not understand\n"
	"  config             config.json says something else than the tensors\n"
	"  config-field       quantization_config lacks a key\n"
	"  config-input       activations are quantised, and no scales are there\n"
	"  certificate        the certificate is stale, incomplete or broken\n"
	"\n"
	"A note is a hint or a loss of precision: nibble-order, weak-blocks,\n"
	"small-scales, not-shared, input-scale, input-not-shared, awq,\n"
	"packed-across, config-rule, no-target, not-ignored, no-input-scale.\n"
	"The certificate of nib verify --certify is compared with the layers.\n"
	"nib repair mends what it can.  Exchanged nibbles leave every block's\n"
	"values as they are, so one file cannot prove them: nib verify against\n"
	"the original can.  Random weights have no pattern by which tiled scales\n"
	"or exchanged nibbles could be seen.\n",
    .examples = "nib inspect model.safetensors\n"
		"nib inspect model-dir\n"
		"nib inspect model.safetensors --brief --strict\n"
		"nib inspect model.safetensors --format json |\n"
		"    jq -r '.[] | select(.kind == \"finding\") | .text'\n",
    .groups = (const struct cli_group[]){{"Inspecting", options, 0}, CLI_LAST_GROUPS},
    .args_bytes = sizeof(struct inspect_args),
    .run = run_inspect,
};
