/* SPDX-License-Identifier: Apache-2.0 */
/* declare.c - the names, types and shapes of what nib quantize writes. */
#include <stdio.h>
#include <stdlib.h>

#include "quantize.h"

static enum nib_status declare_part(struct nib_writer *writer, const char *layer,
				    const char *suffix, const char *dtype, int rank,
				    const int64_t *shape, struct nib_error *err)
{
	enum nib_status status;
	char *name;

	if (asprintf(&name, "%s%s", layer, suffix) < 0) {
		*err = (struct nib_error){NIB_STATUS_OUT_OF_MEMORY,
					  .message = "no memory for names"};
		return err->status;
	}
	status = nib_writer_declare(writer, name, dtype, rank, shape, err);
	free(name);
	return status;
}

/* A stack across, in ModelOpt's format. */
static enum nib_status declare_across(struct nib_writer *writer,
				      const struct selected *item,
				      struct nib_error *err)
{
	const struct nib_layer_suffixes *names =
	    nib_naming_suffixes(NIB_NAMING_MODELOPT_STACK);
	const struct {
		const char *suffix, *dtype;
		int rank;
		int64_t k; /* how many values of k an element stands for */
	} parts[] = {{names->codes, "U8", 3, 2},
		     {names->scales, "F8_E4M3", 3, NIB_NVFP4_BLOCK},
		     {names->global, "F32", 0, 1}};
	enum nib_status status = NIB_STATUS_OK;

	for (int i = 0; i < 3 && !status; i++) {
		const int64_t shape[] = {item->rows / item->rows_each,
					 item->rows_each / parts[i].k, item->k};

		status = declare_part(writer, item->layer, parts[i].suffix,
				      parts[i].dtype, parts[i].rank, shape, err);
	}
	return status;
}

/* vLLM reads the scales of rows as [n] in ModelOpt's format, and as [n, 1]. */
static enum nib_status declare_fp8(struct nib_writer *writer,
				   enum nib_checkpoint format,
				   const struct selected *item, struct nib_error *err)
{
	const struct nib_layer_suffixes *names = nib_naming_suffixes(NIB_NAMING_FP8);
	const int64_t codes[] = {item->rows, item->k}, scales[] = {item->rows, 1};
	const int rank = format == NIB_CHECKPOINT_MODELOPT ? 1 : 2;
	enum nib_status status =
	    declare_part(writer, item->layer, names->codes, "F8_E4M3", 2, codes, err);

	return status ? status
		      : declare_part(writer, item->layer, names->scales, "F32", rank,
				     scales, err);
}

enum nib_status declare_item(struct nib_writer *writer, enum nib_checkpoint format,
			     const struct selected *item, struct nib_error *err)
{
	const struct nib_file_tensor *t = item->tensor;

	if (item->is_across)
		return declare_across(writer, item, err);
	if (item->layer && item->format == SELECT_FP8)
		return declare_fp8(writer, format, item, err);
	if (item->is_stack)
		return nib_writer_declare_stack(writer, format, item->layer,
						item->rows / item->rows_each,
						item->rows_each, item->k, 0, err);
	if (item->layer)
		return nib_writer_declare_layer(writer, format, item->layer, item->rows,
						item->k, 0, err);
	return nib_writer_declare(writer, t->name, t->dtype, t->rank, t->shape, err);
}
