/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_plan.c - nib plan: what would run for a shape, why, and how long. */
#include "cli.h"
#include "measure.h"
#include "progress.h"

struct plan_args {
	struct cli_shared shared;
	struct shape_args shapes;
	enum nib_scale_layout layout;
	enum cli_activations activations;
	enum nib_dtype out;
	int packed;
	double gflops, gbps;
};

static const struct table_column columns[] = {
    {.key = "op", .title = "op"},
    {.key = "shape", .title = "shape"},
    {.key = "backend", .title = "backend"},
    {.key = "threads", .title = "thr"},
    {.key = "layout"},
    {.key = "activations", .title = "A"},
    {.key = "weights"},
    {.key = "out"},
    {.key = "tasks", .title = "tasks"},
    {.key = "k_slices"},
    {.key = "workspace_bytes", .title = "workspace", .print = TABLE_BYTES},
    {.key = "flop", .title = "GFLOP", .print = "%.3f", .scale = 1e-9},
    {.key = "bytes", .title = "MB", .print = "%.2f", .scale = 1e-6},
    {.key = "limit_gflops"},
    {.key = "limit_gbps"},
    {.key = "expected_s", .title = "at least", .print = TABLE_SECONDS},
    {.key = "limit_kind", .title = "limit"},
    {.key = "explanation"},
    {.key = "version"},
    {.key = "machine"},
    {.key = "name"},
    {.key = "sizes"},
    {.key = "batch"},
    {0},
};

struct planner {
	const struct plan_args *args;
	struct nib_device *device;
	struct table *table;
	struct limits limits;
	json_t *reasons; /* object: its keys are the different explanations */
};

/* People read a sentence once, not in every row. */
static void put_reasons(const struct planner *p)
{
	const char *text;
	json_t *unused;
	int count = 0;

	json_object_foreach(p->reasons, text, unused)
	    table_note(p->table, count++ ? "- %s" : "\n- %s", text);
}

/* [[m, n, k], ...]: every product of a shape, whose text is cut. */
static json_t *sizes_of(const struct shape *shape)
{
	json_t *sizes = json_array();

	for (int64_t i = 0; i < shape->count; i++) {
		const struct shape_size *size = &shape->sizes[i];

		json_array_append_new(sizes, json_pack("[III]", (json_int_t)size->m,
						       (json_int_t)size->n,
						       (json_int_t)size->k));
	}
	return sizes;
}

static void put_row(struct planner *p, const struct shape *shape,
		    const struct nib_plan_info *info)
{
	const struct plan_args *args = p->args;
	double compute_s = info->flop / (p->limits.gflops * 1e9);
	double memory_s = info->bytes / (p->limits.gbps * 1e9);
	int by_memory = memory_s > compute_s;
	char text[SHAPE_TEXT];
	struct table *t = p->table;

	table_text(t, "op", shape_op_names[shape->op]);
	table_text(t, "shape", shape_text(shape, text));
	table_text(t, "backend", info->backend);
	table_int(t, "threads", info->threads);
	table_text(t, "layout", cli_layout_names[args->layout]);
	table_text(t, "activations", cli_activations_names[args->activations]);
	table_text(t, "weights", args->packed ? "packed" : "view");
	table_text(t, "out", cli_dtype_names[args->out]);
	table_int(t, "tasks", info->tasks);
	table_int(t, "k_slices", info->k_slices);
	table_int(t, "workspace_bytes", (int64_t)info->workspace_bytes);
	table_number(t, "flop", info->flop);
	table_number(t, "bytes", info->bytes);
	table_number(t, "limit_gflops", p->limits.gflops);
	table_number(t, "limit_gbps", p->limits.gbps);
	table_number(t, "expected_s", by_memory ? memory_s : compute_s);
	table_text(t, "limit_kind",
		   by_memory ? p->limits.memory_name : p->limits.compute_name);
	table_text(t, "explanation", info->explanation);
	json_object_set_new(p->reasons, info->explanation, json_true());
	table_text(t, "version", nib_version());
	table_text(t, "machine", cli_machine(p->device));
	table_json(t, "name", *shape->name ? json_string(shape->name) : json_null());
	table_json(t, "sizes", sizes_of(shape));
	table_int(t, "batch", shape->batch);
	table_end_row(t);
}

static int plan_shape(struct planner *p, const struct shape *shape)
{
	const struct data_options options = {
	    .layout = p->args->layout,
	    .out = p->args->out,
	    .activations = p->args->activations,
	    .packed = p->args->packed,
	    .empty = 1,
	};
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	struct nib_plan *plan = NULL;
	char text[SHAPE_TEXT];
	struct nib_error err;
	enum nib_status status;
	struct data *data;

	shape_text(shape, text);
	if (data_new(shape, &options, p->device, &data, &err))
		return cli_fail(text, &err);
	status = data_plan(p->device, data, NULL, &plan, &err);
	if (!status)
		status = nib_plan_get_info(plan, &info, &err);
	if (!status)
		put_row(p, shape, &info);
	nib_plan_free(plan);
	data_free(data);
	return status ? cli_fail_activations(text, &err, p->args->activations,
					     !cli_is_host(p->device))
		      : CLI_OK;
}

static int plan_all(struct planner *p, const struct shape_list *list)
{
	int code = CLI_OK, end;

	if (p->args->gflops <= 0 || p->args->gbps <= 0) {
		progress_begin("measuring this machine", 0, 1);
		limits_measure(p->device, p->args->activations, &p->limits);
		progress_end();
	}
	if (p->args->gflops > 0) {
		p->limits.gflops = p->args->gflops;
		p->limits.compute_name = "--gflops";
	}
	if (p->args->gbps > 0) {
		p->limits.gbps = p->args->gbps;
		p->limits.memory_name = "--gbps";
	}
	p->table = table_new(columns, p->args->shared.format, 0);
	progress_begin("planning", (double)list->count, 1);
	for (int64_t i = 0; i < list->count && !code; i++) {
		progress_update((double)i, NULL);
		code = plan_shape(p, &list->shapes[i]);
	}
	progress_end();
	put_reasons(p);
	end = table_end(p->table);
	return code ? code : end;
}

static int run_plan(const void *args_)
{
	const struct plan_args *args = args_;
	struct planner planner = {.args = args, .reasons = json_object()};
	struct shape_list list;
	int code = shapes_parse_some(&args->shapes, "seeds", &list);

	if (!code)
		code = cli_open_device(&args->shared.device, &planner.device);
	if (!code) {
		code = plan_all(&planner, &list);
		nib_device_close(planner.device);
	}
	json_decref(planner.reasons);
	shapes_free(&list);
	return code;
}

#define ARG(member) offsetof(struct plan_args, member)
static const struct cli_option options[] = {
    {"layout", OPT_CHOICE, ARG(layout), CLI_LAYOUT_WORDS, "linear",
     .help = "layout of the block scales"},
    {"activations", OPT_CHOICE, ARG(activations), CLI_ACTIVATIONS_WORDS, "nvfp4",
     .help = "what A is: " CLI_ACTIVATIONS_HELP},
    {"out", OPT_CHOICE, ARG(out), CLI_DTYPE_WORDS, CLI_OUT_DEFAULT,
     .help = "type of C"},
    {"packed", OPT_FLAG, ARG(packed), .help = "plan for packed weights"},
    {"gflops", OPT_DOUBLE, ARG(gflops), "X", "0",
     .help = "arithmetic limit in GFLOP/s (0: measured now)"},
    {"gbps", OPT_DOUBLE, ARG(gbps), "X", "0",
     .help = "memory limit in GB/s (0: measured now)"},
    {0},
};

static const struct cli_group groups[] = {
    {"What to multiply", shape_product_options, ARG(shapes)},
    {"", shape_options, ARG(shapes)},
    {"How", options, 0},
    CLI_DEVICE_GROUPS,
    CLI_LAST_GROUPS,
};

const struct cli_command command_plan = {
    .name = "plan",
    .summary = "what would run for a shape, why, and the least time",
    .positional = "",
    .description =
	"Prints what would run for each shape, and runs nothing.  \"at least\" is the\n"
	"least time that any program could need on this machine: the longer of the\n"
	"multiply-adds at the arithmetic limit and the bytes at the memory limit,\n"
	"both measured now unless they are given.  nib bench says how close a run\n"
	"comes to it.\n",
    .examples = "nib plan --op gemm --shape 128x4096x7168\n"
		"nib plan --preset seeds --packed --threads 1\n"
		"nib plan --preset decode --packed --activations bf16\n"
		"nib plan --preset cpu --gflops 500 --gbps 40 --format md\n",
    .groups = groups,
    .args_bytes = sizeof(struct plan_args),
    .run = run_plan,
};
