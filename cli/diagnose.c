/* SPDX-License-Identifier: Apache-2.0 */
/* diagnose.c - undoes one usual mistake after the other: see tensor.h. */
#include "cli.h"
#include "tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 128 /* one row of tiles */
/* An explanation gives at least so much SQNR, and so much more. */
#define GOOD_DB 10.0
#define GAIN_DB 6.0

enum mistake { NIBBLES = 1, TILED = 2 };

/* Writes the scales, row by row, that bytes hold if they are tiles. */
static void untile(const uint8_t *bytes, int64_t groups, uint8_t *out)
{
	for (int64_t r = 0; r < ROWS; r++)
		for (int64_t g = 0; g < groups; g++)
			out[r * groups + g] =
			    bytes[g / 4 * 512 + r % 32 * 16 + r / 32 * 4 + g % 4];
}

/* The first rows of an NVFP4 source with mistakes undone. */
static enum nib_status read_undone(struct nib_device *device,
				   const struct tensor_source *source, int64_t rows,
				   int mistakes, float *out)
{
	int64_t groups = source->k / NIB_NVFP4_BLOCK, n = rows * (source->k / 2);
	float global;
	struct nib_fp4 view;
	struct nib_error err;
	void *copy;
	const struct nib_dense y = {
	    .data = out, .dtype = NIB_DTYPE_FP32, .rows = rows, .cols = source->k};
	uint8_t *codes = malloc((size_t)n);
	uint8_t *scales = malloc((size_t)(rows * groups));
	enum nib_status status =
	    tensor_view(source, 0, rows, &view, &global, &copy, &err);

	if (!status && !(codes && scales))
		status = NIB_STATUS_OUT_OF_MEMORY;
	if (!status) {
		memcpy(codes, view.codes, (size_t)n);
		for (int64_t i = 0; i < n && mistakes & NIBBLES; i++)
			codes[i] = (uint8_t)(codes[i] << 4 | codes[i] >> 4);
		if (mistakes & TILED)
			untile(view.scales, groups, scales);
		else
			memcpy(scales, view.scales, (size_t)(rows * groups));
		view.codes = codes;
		view.scales = scales;
		status = nib_dequantize(device, &view, global, &y, NULL, NULL);
	}
	free(copy);
	free(codes);
	free(scales);
	return status;
}

/* The SQNR that b has after multiplication by the best factor. */
static double scaled_db(const struct tensor_error *error, double *factor)
{
	double noise;

	*factor = 1;
	if (error->other <= 0 || error->signal <= 0)
		return -INFINITY;
	*factor = error->dot / error->other;
	noise = error->signal - *factor * error->dot;
	/* Rounding of the sums leaves this much of an exact match. */
	noise = fmax(noise, 1e-14 * error->signal);
	return 10 * log10(error->signal / noise);
}

/* Whether factor turns 1 / global into global. */
static int is_reciprocal(const struct tensor_source *source, double factor)
{
	double global = source->layer ? (double)tensor_global(source->layer) : 1;

	return source->layer && fabs(factor * global * global - 1) < 0.1;
}

static void say(char *text, size_t bytes, const char *side,
		const struct tensor_source *source, int mistakes, double factor,
		double db)
{
	const char *and = mistakes ? " and " : "";
	char multiplied[80] = "";

	if (fabs(factor - 1) <= 0.05)
		*multiplied = '\0';
	else if (is_reciprocal(source, factor))
		snprintf(multiplied, sizeof(multiplied), "%s%s", and,
			 "with 1/x for its global scale");
	else
		snprintf(multiplied, sizeof(multiplied), "%smultiplied by %.4g", and,
			 factor);
	snprintf(text, bytes, "%s fits at %.1f dB %s%s%s%s", side, db,
		 mistakes & NIBBLES ? "with nibbles exchanged" : "",
		 mistakes == (NIBBLES | TILED) ? " and " : "",
		 mistakes & TILED ? "with its scales read as 128x4 tiles" : "",
		 multiplied);
}

static void try_side(struct nib_device *device, const struct tensor_source *fixed,
		     const struct tensor_source *other, const char *side, float *x,
		     float *y, char *text, size_t bytes)
{
	int64_t rows = other->rows_each < ROWS ? other->rows_each : ROWS;
	double best = -INFINITY;

	rows = fixed->rows_each < rows ? fixed->rows_each : rows;
	if (!other->layer || tensor_read(device, fixed, 0, rows, x, NULL))
		return;
	for (int mistakes = 1; mistakes < 4; mistakes++) {
		struct tensor_error error = {0};
		double factor, db;

		if (mistakes & TILED && (rows < ROWS || other->k / NIB_NVFP4_BLOCK % 4))
			continue;
		if (read_undone(device, other, rows, mistakes, y))
			return;
		tensor_error_add(&error, x, y, rows, other->k, 0);
		db = scaled_db(&error, &factor);
		if (db > GOOD_DB && db > best + 1) {
			best = db;
			say(text, bytes, side, other, mistakes, factor, db);
		}
	}
}

void diagnose(struct nib_device *device, const struct tensor_source *a,
	      const struct tensor_source *b, const struct tensor_error *error,
	      char *text, size_t bytes)
{
	size_t elems = (size_t)(ROWS * a->k);
	float *x = malloc(elems * sizeof(*x)), *y = malloc(elems * sizeof(*y));
	double factor, db = scaled_db(error, &factor);

	*text = '\0';
	if (!x || !y)
		cli_out_of_memory();
	if (db > GOOD_DB && db > tensor_sqnr_db(error) + GAIN_DB)
		say(text, bytes, "B", b, 0, factor, db);
	if (x && y && !*text)
		try_side(device, a, b, "B", x, y, text, bytes);
	if (x && y && !*text)
		try_side(device, b, a, "A", x, y, text, bytes);
	free(x);
	free(y);
}
