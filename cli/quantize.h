/* SPDX-License-Identifier: Apache-2.0 */
/* quantize.h - quantises one layer after the other through fixed buffers. */
#ifndef NIB_QUANTIZE_H
#define NIB_QUANTIZE_H

#include "cli.h"
#include "select.h"
#include "tensor.h"

struct quantizer_options {
	const char *path; /* of the input, for messages */
	enum nib_recipe recipe;
	enum nib_checkpoint checkpoint;
	int saturate;
};

struct quantizer;

/*
 * Buffers for the largest layer of selection: two pieces of fp32, the codes of
 * a piece and all scales of a layer (1/16 byte a value); on a GPU the same and
 * a piece of input there.  On failure *quantizer is NULL.
 */
enum nib_status quantizer_new(struct nib_device *device,
			      const struct selection *selection,
			      const struct quantizer_options *options,
			      struct quantizer **quantizer,
			      struct nib_error *err);
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
float quantizer_global(float amax, enum nib_checkpoint checkpoint);

#endif
