/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize.h - the parts of nib quantize: which tensors of a checkpoint become
 * NVFP4, which are copied and why, and which layers share one global scale
 * (select.c); the names of their tensors (declare.c); which of them become FP8 or
 * stay, for a number of bits (budget.c); one layer after the other through fixed
 * buffers (quantize_layer.c).
 */
#ifndef NIB_QUANTIZE_H
#define NIB_QUANTIZE_H

#include "cli.h"
#include "models.h"
#include "tensor.h"

/* ---- select.c ------------------------------------------------------------ */

enum select_format { SELECT_NVFP4, SELECT_FP8, SELECT_KEPT, SELECT_FORMATS };

/* A tensor that is copied, or a layer: a tensor or some of its rows. */
struct selected {
	const struct nib_file_tensor *tensor;
	char *layer; /* quantised: its name, without ".weight"; else NULL */
	/* Copied: why. */
	char reason[96];
	enum nib_dtype dtype;
	/* A layer: rows of tensor as one matrix, from first on; a stack has
	 * several matrices of rows_each rows. */
	int is_stack;
	/* A stack of fused experts [experts, k, n] (experts.h): blocks go down
	 * the columns, rows_each is k, and k is n. */
	int is_across;
	int64_t first, rows, rows_each, k;
	float amax, global;
	/* NVFP4 or FP8 for a layer; SELECT_KEPT: a copy because of --budget. */
	enum select_format format;
	double errors[SELECT_FORMATS]; /* quantizer_errors() */
};

struct selection {
	struct selected *items; /* in the order of the file */
	int64_t count, capacity, quantised;
};

struct select_options {
	struct cli_texts include, exclude; /* globs, commas allowed */
	int all;			   /* nothing is excluded unless asked for */
	enum nib_checkpoint checkpoint;	   /* the format to write */
	/* The model of a folder, which transformers must be able to load; NULL for a
	 * single file, where only names decide. */
	const struct model_types *model;
	int ties_head; /* the head is the embedding */
};

/*
 * Fused experts, X.experts.gate_up_proj [experts, 2 i, k] and X.experts.down_proj,
 * become a layer for each expert and projection (X.experts.7.up_proj), which is
 * what engines load; other stacks stay whole, and so do those of [experts, k, n],
 * which only ModelOpt's format has.  CLI_OK, or prints and returns.
 * select_free() in every case.
 */
int select_tensors(const struct nib_file *file, const struct select_options *options,
		   struct selection *selection);
void select_free(struct selection *selection);

/*
 * Gives siblings (tensor_sibling_set()), which engines may fuse into one matrix
 * (q k v, gate up), the largest amax among them.
 */
void select_share_amax(struct selection *selection);

/* The bytes of X.experts (X of GraniteMoE) in the name of a weight of experts, or
 * 0. */
size_t select_experts_stem(const char *name);

/* Excluded unless --all or --exclude is given, for --help. */
#define SELECT_DEFAULT_EXCLUDE                                                         \
	"*embed*, *_emb.*, *emb.weight, *wte*, *wpe*, shared.weight, "                 \
	"*.shared.weight, *relative_attention_bias*, *codebook*, "                     \
	"head.weight, *.head.weight, *_head.weight, *lm_head*, "                       \
	"output.weight, *classifier*, score.weight, *router*, "                        \
	"*.gate.weight, *_gate.weight, *vision*, *visual*"

/* ---- budget.c ------------------------------------------------------------ */

/* Bits of a weight.  The global scale of a layer, 32 bits, is not counted; the scales
 * of the rows of FP8 are. */
#define BUDGET_LEAST 4.5
#define BUDGET_MOST  16.0

struct budget {
	double bits; /* at most this many a weight, BUDGET_LEAST .. BUDGET_MOST */
	/* What budget_choose() has reached, and an error that no choice is below. */
	double mean_bits, error, bound;
};

/* The number of bits in text.  CLI_OK, or CLI_USAGE after a message. */
int budget_read(const char *text, double *bits);
/* Whether a layer may become FP8. */
int budget_allows_fp8(const struct selected *item);
/*
 * Chooses the format of each layer by its errors, one for all layers that engines fuse
 * or stack.  Those that are kept become copies.  CLI_OK or CLI_FAILED.
 */
int budget_choose(struct selection *selection, struct budget *budget);

/* ---- declare.c ----------------------------------------------------------- */

/* Declares the tensors of an item, in the order in which they are written. */
enum nib_status declare_item(struct nib_writer *writer, enum nib_checkpoint checkpoint,
			     const struct selected *item, struct nib_error *err);

/* ---- quantize_layer.c ---------------------------------------------------- */

struct quantizer_options {
	const char *path; /* of the input, for messages */
	enum nib_zero_scale zero_scale;
	enum nib_scales scales;
	enum nib_checkpoint checkpoint;
	int saturate;
	int has_fp8; /* layers may become FP8 */
};

struct quantizer;

/*
 * Buffers for the largest layer of selection: two pieces of fp32 (three for
 * stacks across), the codes of a piece and all scales of a layer (1/16 byte a
 * value); on a GPU the same and a piece of input there.  On failure *quantizer is NULL.
 */
enum nib_status quantizer_new(struct nib_device *device,
			      const struct selection *selection,
			      const struct quantizer_options *options,
			      struct quantizer **quantizer, struct nib_error *err);
void quantizer_free(struct quantizer *quantizer); /* NULL is fine */

/*
 * Both move the progress on and end early when nib must stop: then and on
 * failure they return an exit code after a message.
 *
 * quantizer_amax() sets item->amax to the largest |value|.  quantizer_errors() sets
 * item->errors to the squared errors of NVFP4 with item->global and of FP8 over the
 * squares of the values.  quantizer_write() quantises item with item->global and
 * writes its codes, scales and global scale, or those of FP8, which must be what
 * writer expects next; *error compares the result with the input.
 */
int quantizer_amax(struct quantizer *quantizer, struct selected *item);
int quantizer_errors(struct quantizer *quantizer, struct selected *item);
int quantizer_write(struct quantizer *quantizer, const struct selected *item,
		    struct nib_writer *writer, const char *out_path,
		    struct tensor_error *error);

/*
 * The global scale for amax, as reading the file will give it back:
 * compressed-tensors stores 1 / global in fp32.
 */
float quantizer_global(float amax, const struct quantizer_options *options);

#endif
