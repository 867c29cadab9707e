/* SPDX-License-Identifier: Apache-2.0 */
/* shapes.c - reads --op, --shape, --m and so on into a list: see shapes.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "random.h"
#include "shapes.h"
#include "text.h"

#define MAX_SHAPES 65536	      /* of one list or one group */
#define MAX_SIZE   (INT64_C(1) << 40) /* of one dimension */

#define ARG(member) offsetof(struct shape_args, member)
#define OP_OPTION(words)                                                               \
	{                                                                              \
		"op", OPT_CHOICE, ARG(op), words,                                      \
		    .help = "the operation (gemm if a shape is given without it)"      \
	}

const struct cli_option shape_op_options[] = {OP_OPTION(SHAPE_OP_WORDS), {0}};
const struct cli_option shape_product_options[] = {OP_OPTION(SHAPE_PRODUCT_WORDS), {0}};

const struct cli_option shape_options[] = {
    {"shape", OPT_TEXTS, ARG(shapes), "MxNxK[xL],...",
     .help = "shapes; a group is MxNxK+MxNxK; gemv and the conversions take "
	     "MxK[xL], a matrix of M rows"},
    {"m", OPT_TEXT, ARG(m), "LIST",
     .help = "rows of A: numbers and ranges (16, 1:16+1, 1:256*2); a list is a "
	     "sweep, for a group or MoE it is one group"},
    {"n", OPT_TEXT, ARG(n), "LIST", .help = "columns of C; a list is a sweep"},
    {"k", OPT_TEXT, ARG(k), "LIST",
     .help = "length of the sums, a multiple of 16; a list is a sweep"},
    {"experts", OPT_INT, ARG(experts), "E", "0", .max = MAX_SHAPES,
     .help = "moe: experts in all, which take their rows from --m over and "
	     "over (0 = as many as --m has)"},
    {"batch", OPT_INT, ARG(batch), "L", "1", .min = 1, .max = MAX_SHAPES,
     .help = "batch of the shapes that --m --n --k make"},
    {"preset", OPT_TEXTS, ARG(presets), SHAPE_PRESET_WORDS,
     .help = "a named set of shapes, with --op those of that operation: seeds are "
	     "the GPU MODE problems, cpu a model's layers, small odd sizes, decode "
	     "dense layers of up to 128 rows, prefill of up to 8192, experts those of "
	     "up to 256 tokens, balanced experts of equally many rows, ampere layers "
	     "and experts for the kernels of sm_80, amx the same for a CPU with AMX"},
    {0},
};

/* ---- building ------------------------------------------------------------ */

static struct shape *add_shape(struct shape_list *list, enum shape_op op, int64_t count,
			       int64_t batch)
{
	struct shape *shapes, *shape;

	if (list->count >= MAX_SHAPES) {
		cli_error(CLI_USAGE, "more than %d shapes", MAX_SHAPES);
		return NULL;
	}
	shapes = realloc(list->shapes, sizeof(*shapes) * ((size_t)list->count + 1));
	if (!shapes) {
		cli_no_memory("shapes");
		return NULL;
	}
	list->shapes = shapes;
	shape = &shapes[list->count];
	*shape = (struct shape){.op = op, .count = count, .batch = batch};
	shape->sizes = calloc((size_t)(count ? count : 1), sizeof(*shape->sizes));
	if (!shape->sizes) {
		cli_no_memory("shapes");
		return NULL;
	}
	list->count++;
	return shape;
}

#define TOO_LARGE 9 /* more than there are sizes */

/*
 * "AxBxC" at *text, up to a + or a comma or the end, into sizes; how many,
 * TOO_LARGE or -1.
 */
static int read_sizes(const char **text, int64_t sizes[4])
{
	const char *at = *text;
	int count = 0;

	for (;; at++) {
		char *end;

		if (*at < '0' || *at > '9' || count == 4)
			return -1;
		sizes[count] = strtoll(at, &end, 10);
		if (sizes[count++] > MAX_SIZE)
			return TOO_LARGE;
		at = end;
		if (*at != 'x')
			break;
	}
	*text = at;
	return strchr("+,", *at) ? count : -1;
}

static int bad_shape(enum shape_op op, const char *text, int length)
{
	return cli_error(CLI_USAGE, "--shape %.*s: %s takes %s", length, text,
			 shape_op_names[op], shape_ops[op].form);
}

/* One --shape, length characters of text. */
static int add_shape_text(struct shape_list *list, enum shape_op op, const char *text,
			  int length)
{
	const struct shape_op_info *info = &shape_ops[op];
	const int plain = info->has_n ? 3 : 2; /* sizes without the batch */
	int64_t count = 1, s[4];
	const char *at = text;
	struct shape *shape;

	for (int i = 0; i < length; i++)
		count += text[i] == '+';
	if (info->is_moe || (!info->is_group && count > 1) || count > MAX_SHAPES)
		return bad_shape(op, text, length);
	shape = add_shape(list, op, count, 1);
	if (!shape)
		return CLI_FAILED;
	for (int64_t i = 0; i < count; i++, at++) {
		struct shape_size *size = &shape->sizes[i];
		int dims = read_sizes(&at, s);

		if (dims == TOO_LARGE)
			return cli_error(CLI_USAGE,
					 "--shape %.*s: a size is at most 2^40", length,
					 text);
		if (dims != plain && (dims != plain + 1 || info->is_group))
			return bad_shape(op, text, length);
		*size = (struct shape_size){s[0], info->has_n ? s[1] : 0, s[plain - 1]};
		if (op == OP_GEMV)
			*size = (struct shape_size){1, s[0], s[1]};
		shape->batch = dims > plain ? s[plain] : 1;
	}
	if (shape->batch < 1)
		return cli_error(CLI_USAGE, "--shape %.*s: xL must be 1 or more",
				 length, text);
	return CLI_OK;
}

static int add_shape_list(struct shape_list *list, enum shape_op op, const char *text)
{
	int code = CLI_OK, length;

	if (!*text)
		return cli_error(CLI_USAGE, "--shape is empty");
	do {
		length = (int)strcspn(text, ",");
		code = add_shape_text(list, op, text, length);
		text += length;
	} while (!code && *text++);
	return code;
}

/* ---- lists and ranges ---------------------------------------------------- */

struct numbers {
	int64_t *items;
	int64_t count;
};

static int add_number(struct numbers *numbers, int64_t n)
{
	int64_t *items;

	if (numbers->count >= MAX_SHAPES)
		return cli_error(CLI_USAGE, "a list of more than %d sizes", MAX_SHAPES);
	items = realloc(numbers->items, sizeof(*items) * ((size_t)numbers->count + 1));
	if (!items)
		return cli_no_memory("sizes");
	numbers->items = items;
	items[numbers->count++] = n;
	return CLI_OK;
}

/* A number at *text, which moves to its end; -1 if there is none. */
static int64_t take_number(const char **text)
{
	char *end;
	int64_t n = -1;

	if (**text >= '0' && **text <= '9') {
		n = strtoll(*text, &end, 10);
		*text = end;
	}
	return n;
}

/* "16", "1:16+1" or "1:256*2": length characters of text. */
static int add_range(struct numbers *numbers, const char *name, const char *text,
		     int length)
{
	const char *at = text;
	int64_t first = take_number(&at), last = first, step = 1;
	int code = CLI_OK;
	char how = '+';

	if (*at == ':') {
		at++;
		last = take_number(&at);
		how = *at == '*' ? '*' : '+';
		at += *at == '+' || *at == '*';
		step = take_number(&at);
	}
	if (at != text + length || first < 0 || last < 0 || step < 0)
		return cli_error(CLI_USAGE,
				 "--%s %.*s: not a number, 1:16+1 or 1:256*2", name,
				 length, text);
	if (last < first || last > MAX_SIZE || step < (how == '*' ? 2 : 1) ||
	    step > MAX_SIZE || (how == '*' && first < 1))
		return cli_error(CLI_USAGE,
				 "--%s %.*s: a range goes up from 0 or more "
				 "(from 1 with *)",
				 name, length, text);
	for (int64_t n = first; n <= last && !code;
	     n = how == '+' ? n + step : n * step)
		code = add_number(numbers, n);
	return code;
}

static int read_numbers(struct numbers *numbers, const char *name, const char *text)
{
	int code = CLI_OK, length;

	if (!text)
		return cli_error(CLI_USAGE, "--%s is missing", name);
	do {
		length = (int)strcspn(text, ",");
		code = add_range(numbers, name, text, length);
		text += length;
	} while (!code && *text++);
	return code;
}

/* Every combination, or for a group every n and k with all of m. */
static int add_combinations(struct shape_list *list, const struct shape_args *args,
			    enum shape_op op, const struct numbers *m,
			    const struct numbers *n, const struct numbers *k)
{
	int group = shape_ops[op].is_group;
	int64_t calls = group ? 1 : m->count, each = group ? m->count : 1;

	if (shape_ops[op].is_moe && args->experts)
		each = args->experts;
	if (!m->count)
		return cli_error(CLI_USAGE, "--m is empty");
	for (int64_t i = 0; i < calls; i++)
		for (int64_t j = 0; j < n->count; j++)
			for (int64_t h = 0; h < k->count; h++) {
				struct shape *shape =
				    add_shape(list, op, each, args->batch);

				if (!shape)
					return CLI_FAILED;
				for (int64_t e = 0; e < each; e++)
					shape->sizes[e] = (struct shape_size){
					    m->items[(i + e) % m->count], n->items[j],
					    k->items[h]};
				if (op == OP_GEMV)
					shape->sizes[0] = (struct shape_size){
					    1, m->items[i], k->items[h]};
			}
	return CLI_OK;
}

static int add_mnk(struct shape_list *list, const struct shape_args *args,
		   enum shape_op op)
{
	struct numbers m = {0}, n = {0}, k = {0};
	int code;

	if (shape_ops[op].is_group && args->batch > 1)
		return cli_error(CLI_USAGE, "--batch %lld: %s has no batch",
				 (long long)args->batch, shape_op_names[op]);
	code = read_numbers(&m, "m", args->m);
	if (!code && !shape_ops[op].has_n)
		code = add_number(&n, 0);
	else if (!code)
		code = read_numbers(&n, "n", args->n);
	if (!code)
		code = read_numbers(&k, "k", args->k);
	if (!code)
		code = add_combinations(list, args, op, &m, &n, &k);
	free(m.items);
	free(n.items);
	free(k.items);
	return code;
}

/* ---- presets ------------------------------------------------------------- */

static const struct preset {
	const char *name;
	enum shape_op op;
	const char *m, *n, *k; /* as --m --n --k --experts, or */
	int64_t experts;
	const char *shape; /* as --shape */
	/* Experts of a token: m are numbers of tokens, routed at random. */
	int64_t routed;
	const char *names; /* of its shapes in order, "M1,M2", or NULL */
} presets[] = {
    /* The shapes of the GPU MODE NVFP4 problems. */
    {"seeds", OP_GEMM,
     .shape = "128x7168x16384,128x4096x7168,128x7168x2048,2304x4608x7168",
     .names = "M1,M2,M3,M4"},
    {"seeds", OP_DUAL_GEMM,
     .shape = "256x4096x7168,512x4096x7168,256x3072x4096,512x3072x7168",
     .names = "D1,D2,D3,D4"},
    {"seeds", OP_GEMV, .shape = "7168x16384x1,4096x7168x8,7168x2048x4",
     .names = "V1,V2,V3"},
    {"seeds", OP_GROUP_GEMM, "80,176,128,72,64,248,96,160", "4096", "7168",
     .names = "G1"},
    {"seeds", OP_GROUP_GEMM, "40,76,168,72,164,148,196,160", "7168", "2048",
     .names = "G2"},
    {"seeds", OP_GROUP_GEMM, "192,320", "3072", "4096", .names = "G3"},
    {"seeds", OP_GROUP_GEMM, "128,384", "4096", "1536", .names = "G4"},
    /* What a CPU is asked to do: prefill, decode, many experts. */
    {"cpu", OP_GEMM, .shape = "128x4096x7168,156x7168x2048,256x3072x4096,512x4096x1536",
     .names = "H1,H2,H3,H4"},
    {"cpu", OP_GEMV, .shape = "7168x16384x1,4096x7168x1,7168x2048x1",
     .names = "Y1,Y2,Y3"},
    {"cpu", OP_MOE, "1:8+1", "1408", "2048", .experts = 64, .names = "Z1"},
    {"cpu", OP_MOE, "4", "7168", "2048", .experts = 8, .names = "Z2"},
    /* Every operation at odd sizes, checked in full in a moment. */
    {"small", OP_GEMM, .shape = "1x1x16,7x33x240,17x130x48,64x64x256,5x40x512x3"},
    {"small", OP_DUAL_GEMM, .shape = "3x5x32,33x65x240"},
    {"small", OP_GROUP_GEMM, .shape = "0x8x32+1x8x32+9x8x48+130x17x16"},
    {"small", OP_GROUP_DUAL, .shape = "2x8x32+0x8x32+9x24x48"},
    {"small", OP_GEMV, .shape = "1x16,67x240,129x1024x3"},
    {"small", OP_MOE, "0:5+1", "40", "96", .experts = 12},
    {"small", OP_MOE_DUAL, "3,0,7", "24", "48", .experts = 3},
    /* Dense layers of 4096 to 28672 columns, decoding for up to 128 users. */
    {"decode", OP_GEMM, "1,8,32,64,128", "4096", "4096", .names = "A1,A8,A32,A64,A128"},
    {"decode", OP_GEMM, "1,8,32,64,128", "7168", "2048", .names = "B1,B8,B32,B64,B128"},
    {"decode", OP_GEMM, "1,4,8,16,32,64,128", "28672", "8192",
     .names = "C1,C4,C8,C16,C32,C64,C128"},
    {"decode", OP_GEMM, "1,16,64", "8192", "8192", .names = "S1,S16,S64"},
    /* Both layers of 128 small experts; few large ones; many large ones. */
    {"experts", OP_MOE, "1,4,16,64,256", "1536", "2048", 128, .routed = 8,
     .names = "P1,P4,P16,P64,P256"},
    {"experts", OP_MOE, "1,4,16,64,256", "2048", "768", 128, .routed = 8,
     .names = "Q1,Q4,Q16,Q64,Q256"},
    {"experts", OP_MOE, "1,4,16,64,256", "28672", "4096", 8, .routed = 2,
     .names = "R1,R4,R16,R64,R256"},
    {"experts", OP_MOE, "1,16,64", "4096", "7168", 256, .routed = 8,
     .names = "T1,T16,T64"},
    /* Experts that all have the same number of rows. */
    {"balanced", OP_MOE, "1", "4096", "7168", .experts = 32, .names = "E1"},
    {"balanced", OP_MOE, "8", "4096", "7168", .experts = 32, .names = "E8"},
    {"balanced", OP_MOE, "16", "4096", "7168", .experts = 32, .names = "E16"},
    {"balanced", OP_MOE, "32", "4096", "7168", .experts = 32, .names = "E32"},
    {"balanced", OP_MOE, "64", "4096", "7168", .experts = 32, .names = "E64"},
    /* Dense layers that read a prompt. */
    {"prefill", OP_GEMM, "512,2048,8192", "4096", "7168", .names = "K512,K2048,K8192"},
    {"prefill", OP_GEMM, "512,2048,8192", "28672", "8192", .names = "L512,L2048,L8192"},
    /* To compare the kernels of sm_80 with others: dense layers and experts. */
    {"ampere", OP_GEMM, "1,8,16,64,256,1024", "8192", "8192",
     .names = "I1,I8,I16,I64,I256,I1024"},
    {"ampere", OP_GEMM, "1,8,16,64,256,1024", "4096", "7168",
     .names = "J1,J8,J16,J64,J256,J1024"},
    {"ampere", OP_MOE, "1,16,256", "1536", "2048", 128, .routed = 8,
     .names = "P1,P16,P256"},
    {"ampere", OP_MOE, "1,16,256", "2048", "768", 128, .routed = 8,
     .names = "Q1,Q16,Q256"},
    /* Every operation from few to many rows, for a processor with AMX. */
    {"amx", OP_GEMM, "1,8,16,64,512,2048", "4096", "7168", .names = NULL},
    {"amx", OP_GEMM, "1,8,16,64,512,2048", "14336", "4096", .names = NULL},
    {"amx", OP_DUAL_GEMM, .shape = "64x4096x7168,512x4096x7168"},
    {"amx", OP_GROUP_GEMM, "40,76,168,72,164,148,196,160", "7168", "2048",
     .names = NULL},
    {"amx", OP_MOE, "16,256", "1536", "2048", 128, .routed = 8},
};

/*
 * Gives each token `routed` different experts; all sets of experts are equally likely.
 */
static void route(struct shape *shape, int64_t tokens, int64_t routed)
{
	uint64_t seed = (uint64_t)tokens;

	for (int64_t t = 0; t < tokens; t++) {
		uint64_t wanted = (uint64_t)routed;

		for (int64_t e = 0; e < shape->count; e++) {
			uint64_t left = (uint64_t)(shape->count - e);
			int is_chosen = data_random(&seed) % left < wanted;

			shape->sizes[e].m += is_chosen;
			wanted -= (uint64_t)is_chosen;
		}
	}
}

static int add_routed(struct shape_list *list, const struct preset *p,
		      const struct shape_args *args)
{
	const int64_t first = list->count;
	struct numbers tokens = {0};
	int code = read_numbers(&tokens, "m", p->m);

	for (int64_t i = 0; i < tokens.count && !code; i++) {
		code = add_mnk(list, args, p->op);
		if (code)
			break;
		for (int64_t e = 0; e < p->experts; e++)
			list->shapes[first + i].sizes[e].m = 0;
		route(&list->shapes[first + i], tokens.items[i], p->routed);
	}
	free(tokens.items);
	return code;
}

/* The item at index of a comma-separated list, or "" without a list. */
static void name_shape(struct shape *shape, const char *names, int64_t index)
{
	int length;

	for (; names && index > 0; index--)
		names = strchr(names, ',') + 1;
	length = names ? (int)strcspn(names, ",") : 0;
	snprintf(shape->name, sizeof shape->name, "%.*s", length, names ? names : "");
}

int shapes_add_preset(struct shape_list *list, const char *name, int op)
{
	int known = 0, code = CLI_OK;

	for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
		const struct preset *p = &presets[i];
		const struct shape_args args = {
		    .m = p->m, .n = p->n, .k = p->k, .experts = p->experts, .batch = 1};
		int64_t first = list->count;

		if (strcmp(p->name, name))
			continue;
		known = 1;
		if (op >= 0 && (enum shape_op)op != p->op)
			continue;
		code = p->shape	   ? add_shape_list(list, p->op, p->shape)
		       : p->routed ? add_routed(list, p, &args)
				   : add_mnk(list, &args, p->op);
		if (code)
			return code;
		for (int64_t j = first; j < list->count; j++) {
			list->shapes[j].preset = p->name;
			name_shape(&list->shapes[j], p->names, j - first);
		}
	}
	if (!known)
		return cli_error(CLI_USAGE,
				 "--preset %s: must be seeds, cpu, small, "
				 "decode, prefill, experts, balanced, ampere or amx",
				 name);
	return CLI_OK;
}

int shapes_parse(const struct shape_args *args, struct shape_list *list)
{
	enum shape_op op = args->op < 0 ? OP_GEMM : (enum shape_op)args->op;
	int code = CLI_OK;

	*list = (struct shape_list){0};
	for (int i = 0; i < args->presets.count && !code; i++)
		code = shapes_add_preset(list, args->presets.items[i], args->op);
	for (int i = 0; i < args->shapes.count && !code; i++)
		code = add_shape_list(list, op, args->shapes.items[i]);
	if (!code && (args->m || args->n || args->k))
		code = add_mnk(list, args, op);
	if (!code && !list->count && args->presets.count)
		code = cli_error(CLI_USAGE, "--preset %s has no %s",
				 args->presets.items[0], shape_op_names[op]);
	return code;
}

int shapes_parse_some(const struct shape_args *args, const char *preset,
		      struct shape_list *list)
{
	int code = shapes_parse(args, list);

	if (code || list->count)
		return code;
	return cli_error(CLI_USAGE,
			 "needs shapes, as --preset %s or --op gemm --shape "
			 "128x4096x7168",
			 preset);
}

void shapes_free(struct shape_list *list)
{
	for (int64_t i = 0; i < list->count; i++)
		free(list->shapes[i].sizes);
	free(list->shapes);
	*list = (struct shape_list){0};
}
