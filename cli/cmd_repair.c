/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_repair.c - nib repair: copies a checkpoint and mends what nib inspect finds,
 * where the file proves what was meant.
 *
 * Everything is decided before the first byte is written: the findings of nib inspect
 * are collected, then each is mended or refused (repair_plan.c), then the copy is made
 * (repair_write.c).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "out_folder.h"
#include "progress.h"
#include "repair.h"

struct repair_args {
	struct cli_shared shared;
	struct cli_texts mend;
	double max_error;
	int partial, force, dry_run;
};

static const struct table_column columns[] = {
    {.key = "name", .title = "name"},
    {.key = "finding", .title = "finding"},
    {.key = "action", .title = "action"},
    {.key = "error", .title = "error", .print = "%.2f %%", .scale = 100},
    {.key = "max_error", .title = "max error", .print = "%.3g"},
    {.key = "text", .title = "what and why"},
    {0},
};

struct repairer {
	const struct repair_args *args;
	struct nib_file *file;
	struct config config;
	struct layouts layouts;
	struct tensor_source *sources;
	int64_t n_sources;
	struct scan_layer *scans;
	int64_t n_scans;
	struct findings findings;
};

/* ---- findings ------------------------------------------------------------ */

static int scan_source(struct repairer *r, const struct tensor_source *source)
{
	struct scan_float scan;
	int code;

	progress_advance(0, source->name);
	if (!source->layer) {
		code = scan_float(source, &scan);
		if (!code)
			findings_of_float(&r->findings, source->name, &scan);
		return code;
	}
	code = scan_layer(source->layer, &r->scans[r->n_scans++]);
	if (!code)
		findings_of_layer(&r->findings, &r->scans[r->n_scans - 1]);
	tensor_drop(source->layer->weight.codes,
		    (size_t)(source->rows * source->k / 2));
	progress_advance(tensor_layer_bytes((double)source->rows * (double)source->k),
			 NULL);
	return code ? code : cli_stopped();
}

/* What nib inspect finds. */
static int find_all(struct repairer *r)
{
	double bytes = 0;
	int code = CLI_OK;

	for (int64_t i = 0; i < nib_file_tensor_count(r->file); i++)
		bytes += (double)nib_file_tensor_at(r->file, i)->bytes;
	layouts_count(&r->layouts);
	progress_begin("reading", bytes, 1);
	for (int64_t i = 0; i < r->n_sources && !code; i++)
		code = scan_source(r, &r->sources[i]);
	progress_end();
	if (code)
		return code;
	findings_of_defects(&r->findings, r->file);
	findings_of_layouts(&r->findings, &r->layouts);
	findings_of_config(&r->findings, &r->config, r->file);
	findings_of_layers(&r->findings, r->file, r->scans, r->n_scans);
	findings_of_inputs(&r->findings, r->scans, r->n_scans);
	return r->findings.failed ? cli_no_memory("findings") : cli_stopped();
}

/* ---- the report ---------------------------------------------------------- */

static void put_row(struct table *table, const struct repair_row *row)
{
	table_text(table, "name", row->name);
	table_text(table, "finding", finding_rules[row->kind].code);
	table_text(table, "action", row->is_mended ? "mended" : "REFUSED");
	if (!isnan(row->error)) {
		table_number(table, "error", row->error);
		table_number(table, "max_error", row->worst);
	}
	table_text(table, "text", row->text);
	table_end_row(table);
}

static void put_summary(struct table *table, const struct repair_plan *plan,
			const struct repair_args *args)
{
	const long long mended = plan->n_rows - plan->n_refused;
	const long long refused = plan->n_refused;

	if (!plan->n_rows)
		table_note(table, "nothing to mend: %s",
			   args->dry_run ? "it would be a copy"
					 : "a copy, byte for byte");
	else if (refused && !args->partial)
		table_note(table,
			   "%lld can be mended, %lld cannot: nothing was written "
			   "(--partial mends the rest)",
			   mended, refused);
	else
		table_note(table, "%lld %s, %lld refused", mended,
			   args->dry_run ? "would be mended" : "mended", refused);
}

static int report(const struct repair_plan *plan, const struct repair_args *args)
{
	struct table *table = table_new(columns, args->shared.format, 0);

	for (int64_t i = 0; i < plan->n_rows; i++)
		put_row(table, &plan->rows[i]);
	put_summary(table, plan, args);
	return table_end(table);
}

/* ---- the command --------------------------------------------------------- */

static int repair(struct repairer *r)
{
	const struct repair_args *args = r->args;
	char *const *files = args->shared.files;
	struct repair_plan plan = {.file = r->file,
				   .config = &r->config,
				   .findings = &r->findings,
				   .max_error = args->max_error};
	int code = repair_read_choices(&args->mend, &plan.choices), end;

	if (!code)
		code = find_all(r);
	plan.scans = r->scans;
	plan.n_scans = r->n_scans;
	if (!code)
		code = repair_plan_make(&plan);
	if (!code && !args->dry_run && (args->partial || !plan.n_refused))
		code = repair_write(&plan, files[0], files[1]);
	if (!code) {
		end = report(&plan, args);
		code = end ? end : plan.n_refused ? CLI_FOUND : CLI_OK;
	}
	repair_plan_free(&plan);
	return code;
}

static int check_paths(const struct repairer *r)
{
	const struct repair_args *args = r->args;
	const char *in = args->shared.files[0], *out = args->shared.files[1];
	int code;

	if (!r->config.folder)
		return cli_check_output(out, &in, 1, args->force || args->dry_run);
	if (r->config.failed)
		return cli_error(CLI_INPUT,
				 "%s: a configuration cannot be read, and so cannot "
				 "be mended",
				 in);
	code = out_folder_check_rest(r->config.folder);
	return code || args->dry_run ? code : out_folder_check(out);
}

static void free_all(struct repairer *r)
{
	for (int64_t i = 0; i < r->n_scans; i++)
		scan_layer_free(&r->scans[i]);
	free(r->scans);
	free(r->sources);
	findings_free(&r->findings);
	layouts_free(&r->layouts);
	config_free(&r->config);
	nib_file_close(r->file);
}

static int run_repair(const void *args_)
{
	const struct repair_args *args = args_;
	const char *path = args->shared.files[0];
	struct repairer r = {.args = args};
	struct nib_error err;
	int code;

	if (nib_file_open(path, &r.file, &err))
		return cli_fail_input(NULL, &err);
	config_read(&r.config, path);
	code = check_paths(&r);
	r.scans = calloc((size_t)nib_file_layer_count(r.file) + 1, sizeof(*r.scans));
	if (!code)
		code = r.scans ? layouts_read(&r.layouts, r.file)
			       : cli_no_memory("statistics");
	if (!code)
		code = tensor_list(r.file, &r.sources, &r.n_sources);
	if (!code)
		code = repair(&r);
	free_all(&r);
	return code;
}

#define ARG(member) offsetof(struct repair_args, member)
static const struct cli_option options[] = {
    {"max-error", OPT_DOUBLE, ARG(max_error), "X", "0.05",
     .help = "largest error of a layer that gets another global scale: the Frobenius "
	     "norm of its change over that of its weights"},
    {"mend", OPT_TEXTS, ARG(mend), "FINDING=HOW,...",
     .help = "mend also where the file proves nothing: " REPAIR_CHOICES},
    {"partial", OPT_FLAG, ARG(partial),
     .help = "write OUT although something cannot be mended; nib exits with 1"},
    {"force", OPT_FLAG, ARG(force), .help = "replace OUT if it is a file that exists"},
    {"dry-run", OPT_FLAG, ARG(dry_run),
     .help = "say what would be mended; write nothing"},
    {0},
};

const struct cli_command command_repair = {
    .name = "repair",
    .summary = "copy a checkpoint and mend what engines get wrong in it",
    .positional = "IN OUT",
    .min_positional = 2,
    .max_positional = 2,
    .description =
	"Mends findings of nib inspect where the file proves what was meant, and\n"
	"refuses the others.  IN is a safetensors file, a folder or an index; OUT\n"
	"is a new file or folder, which appears whole or not at all.  IN is never\n"
	"changed.  A file in which nothing is mended is copied byte for byte.\n"
	"\n"
	"  not-shared         layers that engines fuse (q k v, gate up, w1 w3) get\n"
	"                     one global scale and new block scales; blocks that\n"
	"                     the ratio does not suit get the codes of the least\n"
	"                     squared error, which the column error sums up\n"
	"  input-not-shared   they get the largest input scale\n"
	"  tiled-scales       128x4 tiles become rows; so does padding (half-layer)\n"
	"  reciprocal-global, input-scale   1/x is stored\n"
	"  scale-sign, scale-nan   of blocks of zeros, whose values are known\n"
	"  no-input-scale     that of a layer with the same input\n"
	"  config, config-field, config-input, not-ignored   quantization_config\n"
	"                     says what the tensors are\n"
	"\n"
	"Anything else that is a problem is refused, and so is a finding that has\n"
	"two explanations, unless --mend chooses one.  If something is refused, nib\n"
	"exits with 1 and writes nothing, or with --partial the rest.\n",
    .examples = "nib repair nvfp4-dir mended-dir --dry-run\n"
		"nib repair nvfp4-dir mended-dir\n"
		"nib repair nvfp4-dir mended-dir --mend input-scale=inverse\n"
		"nib repair a.safetensors b.safetensors --max-error 0.02\n",
    .groups = (const struct cli_group[]){{"Repairing", options, 0}, CLI_LAST_GROUPS},
    .args_bytes = sizeof(struct repair_args),
    .defers_signals = 1,
    .run = run_repair,
};
