/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.h - quantises one layer after the other through fixed buffers. */
#ifndef NIB_QUANTIZE_H
#define NIB_QUANTIZE_H

#include "cli.h"
#include "select.h"
#include "tensor.h"

extern const char *const quantize_recipe_names[]; /* by enum nib_recipe */

struct quantizer;

/*
 * Buffers for the largest layer of selection: two pieces of fp32, the codes of
 * a piece and all scales of a layer (1/16 byte a value); on a GPU the same and
 * a piece of input there.  On failure *quantizer is NULL.
 */
enum nib_status quantizer_new(struct nib_device *device,
			      const struct selection *selection,
			      enum nib_recipe recipe,
			      enum nib_checkpoint checkpoint, int saturate,
			      struct quantizer **quantizer,
			      struct nib_error *err);
void quantizer_free(struct quantizer *quantizer); /* NULL is fine */

/*
 * As nib_amax(), of a piece of a tensor on the host: at most
 * tensor_piece_rows() rows of one of the selection.
 */
enum nib_status quantizer_amax(struct quantizer *quantizer,
			       const struct nib_dense *x, float *amax,
			       struct nib_error *err);

/*
 * The global scale for amax, as reading the file will give it back:
 * compressed-tensors stores 1 / global in fp32.
 */
float quantizer_global(float amax, enum nib_checkpoint checkpoint);

/*
 * Quantises item and writes its codes, scales and global scale, which must be
 * what writer expects next.  *error compares the result with the input.
 * on_piece hears of the bytes of input done; when it returns nonzero the work
 * stops with NIB_OK and the writer must be discarded.
 */
enum nib_status
quantizer_run(struct quantizer *quantizer, const struct selected *item,
	      struct nib_writer *writer,
	      int (*on_piece)(void *arg, double bytes, const char *name),
	      void *arg, struct tensor_error *error, struct nib_error *err);

#endif
