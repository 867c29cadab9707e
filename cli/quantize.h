/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantize.h - the parts of nib quantize: which tensors of a checkpoint become
 * NVFP4, which are copied and why, and which layers share one global scale
 * (select.c); one layer after the other through fixed buffers
 * (quantize_layer.c).
 */
#ifndef NIB_QUANTIZE_H
#define NIB_QUANTIZE_H

#include "cli.h"
#include "models.h"
#include "tensor.h"

/* ---- select.c ------------------------------------------------------------ */

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

/* Excluded unless --all or --exclude is given, for --help. */
#define SELECT_DEFAULT_EXCLUDE                                                         \
	"*embed*, *_emb.*, *emb.weight, *wte*, *wpe*, shared.weight, "                 \
	"*.shared.weight, *relative_attention_bias*, *codebook*, "                     \
	"head.weight, *.head.weight, *_head.weight, *lm_head*, "                       \
	"output.weight, *classifier*, score.weight, *router*, "                        \
	"*.gate.weight, *_gate.weight, *vision*, *visual*"

/* ---- quantize_layer.c ---------------------------------------------------- */

struct quantizer_options {
	const char *path; /* of the input, for messages */
	enum nib_zero_scale zero_scale;
	enum nib_scales scales;
	enum nib_checkpoint checkpoint;
	int saturate;
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
 * quantizer_amax() sets item->amax to the largest |value|.  quantizer_write()
 * quantises item with item->global and writes its codes, scales and global
 * scale, which must be what writer expects next; *error compares the result
 * with the input.
 */
int quantizer_amax(struct quantizer *quantizer, struct selected *item);
int quantizer_write(struct quantizer *quantizer, const struct selected *item,
		    struct nib_writer *writer, const char *out_path,
		    struct tensor_error *error);

/*
 * The global scale for amax, as reading the file will give it back:
 * compressed-tensors stores 1 / global in fp32.
 */
float quantizer_global(float amax, const struct quantizer_options *options);

#endif
