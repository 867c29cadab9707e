/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demo_block.c - the commands that nib demo runs on its model, and the sum of
 * the times of the model's layers: see demo.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "demo.h"
#include "out_folder.h"
#include "progress.h"

/* ---- commands ------------------------------------------------------------ */

#define MAX_WORDS 16

/*
 * Runs "nib WORDS" in this process.  Unless for people, its output goes to the
 * standard error, as the standard output has rows only.
 */
static int run_words(const char *const *words, int for_people, int quiet)
{
	const char *const own_name = cli_command_name;
	char *argv[MAX_WORDS];
	int argc = 0, out = -1, code;

	fflush(stdout);
	if (!for_people) {
		out = dup(STDOUT_FILENO);
		if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
			return cli_error(CLI_FAILED, "standard output: %s",
					 strerror(errno));
	}
	printf("\n$ nib");
	for (; words[argc]; argc++) {
		printf(" %s", words[argc]);
		argv[argc] = (char *)words[argc];
	}
	puts("");
	if (quiet)
		argv[argc++] = (char *)"--quiet";
	code = cli_run(cli_find_command(words[0]), argc - 1, argv + 1);
	cli_command_name = own_name;
	progress_set_quiet(quiet);
	fflush(stdout);
	if (out >= 0) {
		(void)dup2(out, STDOUT_FILENO);
		close(out);
	}
	return code ? code : cli_stopped();
}

/* The paths below the folder of the demo. */
struct paths {
	char *bf16, *nvfp4, *x, *y;
};

static int make_paths(const char *path, struct paths *p)
{
	p->bf16 = out_folder_path(path, "bf16");
	p->nvfp4 = out_folder_path(path, "nvfp4");
	p->x = out_folder_path(path, "x.safetensors");
	p->y = out_folder_path(path, "y.safetensors");
	return p->bf16 && p->nvfp4 && p->x && p->y ? CLI_OK : CLI_FAILED;
}

#define INPUT_ROWS 16

static int run_commands(const struct paths *p, int for_people, int quiet)
{
	const char *const quantize[] = {"quantize", p->bf16, p->nvfp4, NULL};
	const char *const inspect[] = {"inspect", p->nvfp4, NULL};
	const char *const verify[] = {"verify", p->bf16, p->nvfp4, NULL};
	const char *const run[] = {"run",
				   "--weights",
				   p->nvfp4,
				   "--tensor",
				   "model.layers.0.mlp.up_proj",
				   "--input",
				   p->x,
				   "--activations",
				   "bf16",
				   "--output",
				   p->y,
				   NULL};
	const char *const *const all[] = {quantize, inspect, verify, run};
	int code = CLI_OK;

	for (size_t i = 0; i < sizeof all / sizeof *all && !code; i++)
		code = run_words(all[i], for_people, quiet);
	return code;
}

int demo_show_model(const struct demo_model *model, const char *path, int for_people,
		    int quiet)
{
	struct paths p = {0};
	int code = out_folder_check(path);

	if (!code)
		code = make_paths(path, &p);
	if (!code && mkdir(path, 0777) && errno != EEXIST)
		code = cli_error(CLI_FAILED, "%s: %s", path, strerror(errno));
	if (!code && for_people)
		printf("A Llama of one decoder block %s, random weights, "
		       "bf16: %s\n",
		       model->name, p.bf16);
	if (!code)
		code = demo_write_model(model, p.bf16);
	if (!code)
		code = demo_write_input(model, p.x, INPUT_ROWS);
	if (!code)
		code = run_commands(&p, for_people, quiet);
	/* Removes the folder if it is still empty. */
	if (code)
		(void)rmdir(path);
	free(p.bf16);
	free(p.nvfp4);
	free(p.x);
	free(p.y);
	return code;
}

/* ---- the time of the block ----------------------------------------------- */

/* One token, and a prompt. */
static const int64_t block_rows[] = {1, 128};
#define BLOCK_ROWS ((int)(sizeof block_rows / sizeof *block_rows))

static void layer_shape(const struct demo_layer *layer, int64_t rows,
			char text[SHAPE_TEXT])
{
	snprintf(text, SHAPE_TEXT, "%lldx%lldx%lld", (long long)rows,
		 (long long)layer->n, (long long)layer->k);
}

int demo_add_shapes(const struct demo_model *model, struct shape_list *list)
{
	struct demo_layer layers[DEMO_LAYERS];
	char texts[BLOCK_ROWS * DEMO_LAYERS][SHAPE_TEXT];
	const char *items[BLOCK_ROWS * DEMO_LAYERS];
	struct shape_args args = {.op = OP_GEMM, .shapes.items = items};
	int n = 0;

	demo_layers(model, layers);
	for (int i = 0; i < BLOCK_ROWS * DEMO_LAYERS; i++) {
		int is_new = 1;

		layer_shape(&layers[i % DEMO_LAYERS], block_rows[i / DEMO_LAYERS],
			    texts[n]);
		for (int j = 0; j < n; j++)
			is_new &= strcmp(texts[j], texts[n]) != 0;
		items[n] = texts[n];
		n += is_new;
	}
	args.shapes.count = n;
	args.batch = 1;
	return shapes_parse(&args, list);
}

/* Seconds of the layers for rows on backend; 0 if one was not measured. */
static double block_seconds(const struct demo_layer *layers, int64_t rows,
			    const char *backend, const json_t *all, double *flop,
			    double *bytes)
{
	double seconds = 0;

	*flop = *bytes = 0;
	for (int i = 0; i < DEMO_LAYERS; i++) {
		char shape[SHAPE_TEXT];
		const json_t *row;
		double time_s = 0;
		size_t j;

		layer_shape(&layers[i], rows, shape);
		json_array_foreach(all, j, row)
		{
			if (strcmp(row_get_text(row, "shape"), shape) ||
			    strcmp(row_get_text(row, "backend"), backend))
				continue;
			time_s = row_get_number(row, "time_s");
			*flop += row_get_number(row, "flop");
			*bytes += row_get_number(row, "bytes");
		}
		if (time_s <= 0)
			return 0;
		seconds += time_s;
	}
	return seconds;
}

/* A row of the block for the backend of the row like; or NULL. */
static json_t *block_row(const struct demo_layer *layers, int64_t rows,
			 const json_t *like, const json_t *all)
{
	static const char *const same[] = {"backend", "threads", "activations",
					   "version", "machine", "date"};
	double flop, bytes;
	const double time_s = block_seconds(layers, rows, row_get_text(like, "backend"),
					    all, &flop, &bytes);
	char shape[SHAPE_TEXT];
	json_t *row = time_s > 0 ? json_object() : NULL;

	if (!row)
		return NULL;
	for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
		json_t *value = json_object_get(like, same[i]);

		if (value)
			json_object_set(row, same[i], value);
	}
	snprintf(shape, sizeof shape, "%lld row%s, %d layers", (long long)rows,
		 rows == 1 ? "" : "s", DEMO_LAYERS);
	row_text(row, "op", ROW_BLOCK);
	row_text(row, "shape", shape);
	row_text(row, "command", "nib demo --model DIR");
	row_number(row, "time_s", time_s);
	row_number(row, "flop", flop);
	row_number(row, "bytes", bytes);
	row_number(row, "gflops", flop / time_s * 1e-9);
	row_number(row, "gbps", bytes / time_s * 1e-9);
	return row;
}

/* Prints "1 row: 1.2 ms; onednn-bf16 3.4 ms (2.83x)", and sets the speedups. */
static void compare_block(struct rows *rows, int64_t m, json_t *ours,
			  const json_t *others)
{
	char line[512], time[CLI_SECONDS_TEXT];
	const double own = row_get_number(ours, "time_s");
	const json_t *row;
	json_t *speedup = json_object();
	size_t used, i;

	used = (size_t)snprintf(line, sizeof line, "%s", cli_seconds_text(own, time));
	json_array_foreach(others, i, row)
	{
		const double time_s = row_get_number(row, "time_s");
		const char *name = row_get_text(row, "backend") + strlen("baseline:");

		row_number(speedup, name, time_s / own);
		if (used < sizeof line)
			used += (size_t)snprintf(
			    line + used, sizeof line - used, "; %s %s (%.2fx)", name,
			    cli_seconds_text(time_s, time), time_s / own);
	}
	json_object_set_new(ours, "speedup", speedup);
	table_note(rows->table, "the block, %lld row%s: nibblas %s", (long long)m,
		   cli_s(m), line);
}

void demo_add_blocks(const struct demo_model *model, const struct shape_list *list,
		     struct rows *rows)
{
	struct demo_layer layers[DEMO_LAYERS];
	json_t *found = json_array();
	char first[SHAPE_TEXT];
	const json_t *like;
	size_t i;

	demo_layers(model, layers);
	shape_text(&list->shapes[0], first);
	table_note(
	    rows->table,
	    "\nThe %d linear layers of the block, one after the other:", DEMO_LAYERS);
	for (int r = 0; r < BLOCK_ROWS; r++) {
		json_t *ours = NULL, *row;

		json_array_clear(found);
		json_array_foreach(rows->all, i, like)
		{
			if (strcmp(row_get_text(like, "shape"), first))
				continue;
			row = block_row(layers, block_rows[r], like, rows->all);
			if (row && row_is_baseline(row))
				json_array_append_new(found, row);
			else if (row)
				ours = row;
		}
		if (!ours)
			continue;
		compare_block(rows, block_rows[r], ours, found);
		rows_keep(rows, ours);
		json_array_foreach(found, i, row) rows_keep(rows, json_incref(row));
	}
	json_decref(found);
}
