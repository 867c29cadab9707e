/* SPDX-License-Identifier: Apache-2.0 */
/* read_rows.c - copies rows of a file's layer in the order of the library. */
#include <inttypes.h>
#include <string.h>

#include "core/error.h"
#include "core/text.h"
#include "format/scale_layout.h"

static enum nib_status check(const struct nib_layer *layer, int64_t first, int64_t rows,
			     const void *codes, const void *scales,
			     struct nib_error *err)
{
	char shown[NIB_SHOWN_BYTES];
	int64_t all;

	if (!layer)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "layer",
					 " = NULL: must be a file's layer");
	all = layer->weight.batch * layer->weight.rows;
	if (first < 0 || first > all)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, "first",
					 " = %" PRId64 ": %s has %" PRId64 " rows",
					 first, nib_show_name(shown, layer->name), all);
	if (rows < 0 || rows > all - first)
		return nib_fail_argument(
		    err, NIB_STATUS_BAD_ARGUMENT, "rows",
		    " = %" PRId64 ": %s has %" PRId64 " rows from first on", rows,
		    nib_show_name(shown, layer->name), all - first);
	if (rows && (!codes || !scales))
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT,
					 codes ? "scales" : "codes",
					 " = NULL: must point to memory for "
					 "the rows");
	return NIB_STATUS_OK;
}

static void exchange_nibbles(const unsigned char *from, unsigned char *to,
			     int64_t bytes)
{
	for (int64_t i = 0; i < bytes; i++)
		to[i] = (unsigned char)(from[i] << 4 | from[i] >> 4);
}

enum nib_status nib_layer_read_rows(const struct nib_layer *layer, int64_t first,
				    int64_t rows, void *codes, void *scales,
				    struct nib_error *err)
{
	enum nib_status status = check(layer, first, rows, codes, scales, err);
	const struct nib_fp4 *w;
	const unsigned char *from;
	unsigned char *to = scales;
	int64_t half, groups;

	if (status || rows == 0)
		return status;
	w = &layer->weight;
	half = w->k / 2;
	groups = w->k / NIB_NVFP4_BLOCK;
	from = (const unsigned char *)w->codes + first * half;
	if (w->code_order == NIB_CODE_ORDER_HIGH_FIRST)
		exchange_nibbles(from, codes, rows * half);
	else
		memcpy(codes, from, (size_t)(rows * half));
	from = w->scales;
	if (w->scale_layout == NIB_SCALE_LAYOUT_LINEAR)
		memcpy(to, from + first * groups, (size_t)(rows * groups));
	else /* one matrix */
		for (int64_t r = 0; r < rows; r++)
			for (int64_t g = 0; g < groups; g++)
				to[r * groups + g] =
				    from[nib_scale_offset_tiled(groups, first + r, g)];
	return NIB_STATUS_OK;
}
