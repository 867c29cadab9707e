/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demo.h - the first half of nib demo: a Llama of one decoder block with random
 * weights.  demo_model.c writes it to disk, demo_block.c quantises it, runs a
 * layer and adds up the times of the block.  cmd_demo.c is the command.
 */
#ifndef NIB_DEMO_H
#define NIB_DEMO_H

#include "rows.h"
#include "shapes.h"

/* In the order of DEMO_SIZE_WORDS. */
#define DEMO_SIZE_WORDS "1b|tiny"

struct demo_model {
	const char *name;	/* "of the sizes of Llama 3.2 1B" */
	int64_t hidden, middle; /* hidden_size, intermediate_size */
	int64_t heads, kv_heads;
};
extern const struct demo_model demo_models[];

/* The linear layers of a block: weights [n, k]. */
#define DEMO_LAYERS 7
struct demo_layer {
	const char *name; /* "self_attn.q_proj" */
	int64_t n, k;
};
void demo_layers(const struct demo_model *model, struct demo_layer layers[DEMO_LAYERS]);

/* ---- demo_model.c: functions return CLI_OK, or a code after a message ---- */

/* Writes config.json and model.safetensors to the new folder path, bf16. */
int demo_write_model(const struct demo_model *model, const char *path);
/* Writes rows of hidden values, bf16, as the tensor x of the file path. */
int demo_write_input(const struct demo_model *model, const char *path, int64_t rows);

/* ---- demo_block.c -------------------------------------------------------- */

/* The products of the block for one row and for many, each once. */
int demo_add_shapes(const struct demo_model *model, struct shape_list *list);
/*
 * Makes the new folder path, writes the model into it, and runs nib quantize,
 * inspect, verify and run on it.  for_people: whether their tables may go to
 * the standard output, else they go to the standard error.
 */
int demo_show_model(const struct demo_model *model, const char *path, int for_people,
		    int quiet);
/*
 * Adds a row with op ROW_BLOCK for every backend that has a row for all
 * layers of the block, with the sum of their times; prints a line for each
 * number of rows.
 */
void demo_add_blocks(const struct demo_model *model, const struct shape_list *list,
		     struct rows *rows);

#endif
