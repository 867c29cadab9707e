/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shapes.h - what to multiply, from the command line: --op, --shape, --m --n
 * --k, --experts and --preset, with lists and ranges.
 */
#ifndef NIB_SHAPES_H
#define NIB_SHAPES_H

#include "nibblas.h"
#include "option.h"

/* In the order of SHAPE_OP_WORDS. */
enum shape_op {
	OP_GEMM,
	OP_DUAL_GEMM,
	OP_GROUP_GEMM,
	OP_GROUP_DUAL,
	OP_GEMV,
	OP_MOE,
	OP_MOE_DUAL,
	OP_QUANTIZE,
	OP_DEQUANTIZE,
	OP_CONVERT,
};
#define SHAPE_PRODUCT_WORDS "gemm|dual_gemm|group_gemm|group_dual|gemv|moe|moe_dual"
#define SHAPE_OP_WORDS	    SHAPE_PRODUCT_WORDS "|quantize|dequantize|convert"
extern const char *const shape_op_names[];
#define SHAPE_PRESET_WORDS "seeds|cpu|small|decode|prefill|experts|balanced|ampere|amx"

/* Properties of the operations, in the order of enum shape_op. */
struct shape_op_info {
	enum nib_op op; /* of the library */
	int is_moe;	/* uses the nib_moe_*() calls */
	int is_group;	/* a list of sizes */
	int has_n;
	const char *form; /* the syntax of --shape, for messages */
};
extern const struct shape_op_info shape_ops[];

/*
 * One size of a shape: C[m, n] over k.  gemv: m = 1 and n = the rows of the
 * matrix.  quantize, dequantize, convert: m rows of k, n = 0.
 */
struct shape_size {
	int64_t m, n, k;
};

/* One row of a table: a call, which may be a group of multiplications. */
struct shape {
	enum shape_op op;
	int64_t batch; /* L: matrices of each size; 1 for groups and MoE */
	int64_t count; /* sizes: 1, the problems of a group, the experts */
	struct shape_size *sizes;
	const char *preset; /* static, or NULL */
	char name[8];	    /* "M1": of a preset's shape, else "" */
};

struct shape_list {
	struct shape *shapes;
	int64_t count;
};

/* A command's args contain this struct.  Its option lists include shape_options, and
 * for --op shape_op_options (all operations) or shape_product_options
 * (multiplications). */
struct shape_args {
	int op; /* enum shape_op, or -1 */
	struct cli_texts shapes, presets;
	const char *m, *n, *k;
	int64_t experts, batch;
};
extern const struct cli_option shape_op_options[], shape_product_options[];
extern const struct cli_option shape_options[];

/*
 * Makes the list of args.  Without shapes in args it returns CLI_OK with an empty list.
 * After an error it prints a message and returns CLI_USAGE or CLI_FAILED.  Call
 * shapes_free() in every case.
 */
int shapes_parse(const struct shape_args *args, struct shape_list *list);
/* The same, but an empty list is CLI_USAGE, with a message that suggests preset. */
int shapes_parse_some(const struct shape_args *args, const char *preset,
		      struct shape_list *list);
/* Adds one preset ("seeds") of one op (-1 = all of it) to list. */
int shapes_add_preset(struct shape_list *list, const char *name, int op);
void shapes_free(struct shape_list *list);

/* 0 for quantize, dequantize and convert. */
int shape_is_multiply(const struct shape *shape);
/* 2*m*n*k summed, twice that for the dual operations; 0 if none. */
double shape_flop(const struct shape *shape);

/* Bytes of a value of A, of B and of C. */
struct shape_widths {
	double a, b, c;
};
/* Bytes of the operands and of the results, each once; problems without rows
 * move nothing. */
void shape_bytes(const struct shape *shape, struct shape_widths widths, double *read,
		 double *written);
/*
 * The number of rows of each matrix of C that the oracle can check with about `terms`
 * products in all; at least 1; 0 = all rows.
 */
int64_t shape_sample_rows(const struct shape *shape, double terms);

/* "128x7168x16384" or "m=80,176,... n=4096 k=7168"; cut to fit.  A list that is cut
 * ends with its length, and for MoE also with its sum. */
#define SHAPE_TEXT 64
const char *shape_text(const struct shape *shape, char text[SHAPE_TEXT]);
/* Characters of the longest such text of the list, at least least. */
int shapes_width(const struct shape_list *list, int least);
/* The options that select this shape: "--op gemm --shape 128x7168x16384"; cut to
 * fit. */
const char *shape_arguments(const struct shape *shape, char *text, size_t bytes);

#endif
