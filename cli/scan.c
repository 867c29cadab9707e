/* SPDX-License-Identifier: Apache-2.0 */
/* scan.c - statistics of layers and tensors: see inspect.h. */
#include "cli.h"
#include "inspect.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "parallel.h"
#include "progress.h"

/* Rows that the costlier statistics look at; a multiple of 128. */
#define SAMPLE_ROWS 1024

static const float e2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

float scan_scale_value(uint8_t code)
{
	int exponent = code >> 3 & 15, mantissa = code & 7;
	float x = exponent ? ldexpf((float)(8 + mantissa), exponent - 10)
			   : ldexpf((float)mantissa, -9);

	if ((code & 0x7F) == 0x7F)
		return NAN;
	return code & 0x80 ? -x : x;
}

float scan_code_value(int code)
{
	return code & 8 ? -e2m1[code & 7] : e2m1[code & 7];
}

/* ---- histograms ---------------------------------------------------------- */

/* How often each byte occurs. */
struct pairs {
	const uint8_t *bytes;
	pthread_mutex_t mutex;
	int64_t counts[256];
};

static void count_pairs(void *arg, int64_t begin, int64_t end)
{
	struct pairs *pairs = arg;
	int64_t counts[256] = {0};

	for (int64_t i = begin; i < end; i++)
		counts[pairs->bytes[i]]++;
	pthread_mutex_lock(&pairs->mutex);
	for (int i = 0; i < 256; i++)
		pairs->counts[i] += counts[i];
	pthread_mutex_unlock(&pairs->mutex);
}

static void count_codes(const struct nib_layer *layer, int64_t codes[16])
{
	const struct nib_fp4 *w = &layer->weight;
	struct pairs pairs = {.bytes = w->codes, .mutex = PTHREAD_MUTEX_INITIALIZER};

	cli_parallel(w->batch * w->rows * (w->k / 2), CLI_LOOP_ELEMS, count_pairs,
		     &pairs);
	for (int i = 0; i < 256; i++) {
		codes[i & 15] += pairs.counts[i];
		codes[i >> 4] += pairs.counts[i];
	}
}

static void count_scales(struct scan_layer *scan)
{
	const struct nib_fp4 *w = &scan->layer->weight;
	const uint8_t *p = w->scales;
	int64_t seen = 0, finite;

	scan->n_scales = w->batch * w->rows * (w->k / NIB_NVFP4_BLOCK);
	for (int64_t i = 0; i < scan->n_scales; i++)
		scan->scales[p[i]]++;
	for (int i = 128; i < 256; i++)
		scan->signs += scan->scales[i];
	scan->nans = scan->scales[0x7F] + scan->scales[0xFF];
	scan->zeros = scan->scales[0] + scan->scales[0x80];
	scan->scale_min = INFINITY;
	finite = scan->n_scales - scan->signs - scan->scales[0x7F];
	for (int i = 0; i < 0x7F; i++) {
		double value = (double)scan_scale_value((uint8_t)i);

		if (!scan->scales[i])
			continue;
		scan->scale_min = fmin(scan->scale_min, value);
		scan->scale_max = value;
		if (2 * seen < finite)
			scan->scale_median = value;
		seen += scan->scales[i];
	}
	if (!seen)
		scan->scale_min = 0;
}

static double largest_code(const uint8_t *codes)
{
	int largest = 0;

	for (int i = 0; i < NIB_NVFP4_BLOCK / 2; i++) {
		int low = codes[i] & 7, high = codes[i] >> 4 & 7;

		largest = low > largest ? low : largest;
		largest = high > largest ? high : largest;
	}
	return (double)e2m1[largest];
}

/* Reads codes only where the scale allows more than the most so far. */
static double largest_value(const struct nib_fp4 *w)
{
	int64_t blocks = w->batch * w->rows * (w->k / NIB_NVFP4_BLOCK);
	const uint8_t *codes = w->codes, *scales = w->scales;
	double value[256], most = 0;

	for (int i = 0; i < 256; i++)
		value[i] = fabs((double)scan_scale_value((uint8_t)i));
	for (int64_t i = 0; i < blocks; i++)
		if (6 * value[scales[i]] > most)
			most =
			    fmax(most, value[scales[i]] * largest_code(codes + 8 * i));
	return most;
}

/* ---- blocks and columns -------------------------------------------------- */

static void scan_block(struct scan_layer *scan, const uint8_t *codes,
		       uint8_t scale_code, int64_t first)
{
	float scale = scan_scale_value(scale_code & 0x7F);
	int largest = 0;

	for (int i = 0; i < NIB_NVFP4_BLOCK; i++) {
		int code = codes[i / 2] >> (i & 1 ? 4 : 0) & 7;
		double value = (double)(e2m1[code] * scale);

		largest = code > largest ? code : largest;
		if (isfinite(value))
			scan->columns[first + i] += value * value;
	}
	/* Subnormal scales are too coarse to say anything. */
	if (largest && scale_code >= 0x08 && scale_code < 0x7F) {
		scan->blocks++;
		scan->weak_blocks += largest < 6;
	}
}

static void scan_blocks(struct scan_layer *scan)
{
	const struct nib_fp4 *w = &scan->layer->weight;
	int64_t rows = w->rows * w->batch, groups = w->k / NIB_NVFP4_BLOCK;
	int64_t step = rows / SAMPLE_ROWS + 1;

	for (int64_t r = 0; r < rows; r += step) {
		const uint8_t *codes = (const uint8_t *)w->codes + r * (w->k / 2);
		const uint8_t *scales = (const uint8_t *)w->scales + r * groups;

		for (int64_t g = 0; g < groups; g++)
			scan_block(scan, codes + g * 8, scales[g], g * NIB_NVFP4_BLOCK);
	}
}

/* ---- linear or tiled? ---------------------------------------------------- */

/*
 * The share of variance that rows and columns explain, less what they would by
 * chance (adjusted R^2 of a two-way table).  Scales of a real layer follow
 * their rows and columns; in the wrong order they look shuffled.
 */
static double structure(const double *x, int64_t rows, int64_t groups, double *row_sums,
			double *col_sums)
{
	double n = (double)(rows * groups), mean = 0, total = 0, left = 0;

	memset(row_sums, 0, (size_t)rows * sizeof(*row_sums));
	memset(col_sums, 0, (size_t)groups * sizeof(*col_sums));
	for (int64_t r = 0; r < rows; r++)
		for (int64_t g = 0; g < groups; g++) {
			row_sums[r] += x[r * groups + g];
			col_sums[g] += x[r * groups + g];
			mean += x[r * groups + g];
		}
	mean /= n;
	for (int64_t r = 0; r < rows; r++)
		for (int64_t g = 0; g < groups; g++) {
			double value = x[r * groups + g] - mean;
			double rest = x[r * groups + g] - row_sums[r] / (double)groups -
				      col_sums[g] / (double)rows + mean;

			total += value * value;
			left += rest * rest;
		}
	if (total <= 0)
		return 0;
	return 1 -
	       left / ((double)(rows - 1) * (double)(groups - 1)) / (total / (n - 1));
}

static int scan_structure(struct scan_layer *scan)
{
	const struct nib_fp4 *w = &scan->layer->weight;
	int64_t groups = w->k / NIB_NVFP4_BLOCK;
	int64_t rows = w->rows < SAMPLE_ROWS ? w->rows : SAMPLE_ROWS;
	const uint8_t *bytes = w->scales;
	double value[256], *x, *sums;

	scan->linear_structure = scan->tiled_structure = NAN;
	/* With other sizes a tiled tensor has padding, so another shape. */
	if (w->rows % 128 || groups % 4 || !w->rows)
		return CLI_OK;
	x = malloc((size_t)(rows * groups) * sizeof(*x));
	sums = malloc((size_t)(rows + groups) * sizeof(*sums));
	if (!x || !sums) {
		free(x);
		free(sums);
		return cli_no_memory("statistics");
	}
	for (int i = 0; i < 256; i++) {
		float s = scan_scale_value((uint8_t)(i & 0x7F));

		value[i] = s > 0 ? (double)log2f(s) : -10;
	}
	for (int64_t i = 0; i < rows * groups; i++)
		x[i] = value[bytes[i]];
	scan->linear_structure = structure(x, rows, groups, sums, sums + rows);
	for (int64_t r = 0; r < rows; r++)
		for (int64_t g = 0; g < groups; g++) {
			int64_t tile = r / 128 * (groups / 4) + g / 4;

			x[r * groups + g] = value[bytes[tile * 512 + r % 32 * 16 +
							r % 128 / 32 * 4 + g % 4]];
		}
	scan->tiled_structure = structure(x, rows, groups, sums, sums + rows);
	/* Random data: the difference is a chi square of rows + groups. */
	scan->structure_sd =
	    sqrt(4.0 * (double)(rows + groups)) / (double)(rows * groups);
	free(x);
	free(sums);
	return CLI_OK;
}

static int scan_plain(struct scan_layer *scan)
{
	const struct nib_layer *layer = scan->layer;

	count_codes(layer, scan->codes);
	count_scales(scan);
	scan->amax = largest_value(&layer->weight) * (double)tensor_global(layer);
	scan_blocks(scan);
	return scan_structure(scan);
}

int scan_layer(const struct nib_layer *layer, struct scan_layer *scan)
{
	struct nib_layer plain = *layer;
	struct tensor_source source;
	struct nib_error err;
	void *copy = NULL;
	float global;
	int code;

	*scan = (struct scan_layer){.layer = layer};
	scan->columns = calloc((size_t)layer->weight.k, sizeof(*scan->columns));
	if (!scan->columns)
		return cli_no_memory("statistics");
	tensor_from_layer(layer, &source);
	if (!tensor_is_plain(layer) &&
	    tensor_view(&source, 0, source.rows, &plain.weight, &global, &copy, &err))
		return cli_fail(layer->name, &err);
	scan->layer = &plain;
	code = scan_plain(scan);
	scan->layer = layer;
	free(copy);
	return code;
}

void scan_layer_free(struct scan_layer *scan)
{
	free(scan->columns);
	scan->columns = NULL;
}

/* ---- columns of two layers ----------------------------------------------- */

static double correlation(const double *a, const double *b, int64_t k, int64_t exchange)
{
	double sa = 0, sb = 0, saa = 0, sbb = 0, sab = 0, n = (double)k;

	for (int64_t i = 0; i < k; i++) {
		double x = log(a[i] + 1e-30), y = log(b[i ^ exchange] + 1e-30);

		sa += x;
		sb += y;
		saa += x * x;
		sbb += y * y;
		sab += x * y;
	}
	saa -= sa * sa / n;
	sbb -= sb * sb / n;
	sab -= sa * sb / n;
	return saa > 0 && sbb > 0 ? sab / sqrt(saa * sbb) : 0;
}

void scan_correlate(const double *a, const double *b, int64_t k, double *plain,
		    double *exchanged)
{
	*plain = correlation(a, b, k, 0);
	*exchanged = correlation(a, b, k, 1);
}

/* ---- float tensors ------------------------------------------------------- */

struct floats {
	const float *x;
	pthread_mutex_t mutex;
	struct scan_float *scan;
};

static void scan_range(void *arg, int64_t begin, int64_t end)
{
	struct floats *floats = arg;
	struct scan_float *scan = floats->scan;
	int64_t nans = 0, infs = 0, zeros = 0;
	double amax = 0;

	for (int64_t i = begin; i < end; i++) {
		double m = fabs((double)floats->x[i]);

		if (m < INFINITY) {
			amax = m > amax ? m : amax;
			zeros += m <= 0;
		} else if (m > 0) {
			infs++;
		} else {
			nans++;
		}
	}
	pthread_mutex_lock(&floats->mutex);
	scan->nans += nans;
	scan->infs += infs;
	scan->zeros += zeros;
	scan->amax = fmax(scan->amax, amax);
	pthread_mutex_unlock(&floats->mutex);
}

static void scan_floats(const float *x, int64_t count, struct scan_float *scan)
{
	struct floats floats = {x, PTHREAD_MUTEX_INITIALIZER, scan};

	cli_parallel(count, CLI_LOOP_ELEMS, scan_range, &floats);
}

/* A float without dimensions, which has no rows; whether it is one. */
static int scan_scalar(const struct nib_file_tensor *tensor, struct scan_float *scan)
{
	enum nib_dtype dtype;
	float value;

	if (tensor->rank != 0 || tensor_dtype(tensor->dtype, &dtype))
		return 0;
	tensor_read_floats(tensor->data, dtype, 1, &value);
	scan_floats(&value, 1, scan);
	scan->elems = 1;
	scan->value = (double)value;
	return 1;
}

#define PIECE_ELEMS ((int64_t)1 << 20)

int scan_float(const struct tensor_source *source, struct scan_float *scan)
{
	const size_t bytes = nib_dtype_bytes(source->dtype);
	float *piece;

	*scan = (struct scan_float){0};
	if (scan_scalar(source->tensor, scan) || !source->is_float) {
		progress_advance((double)source->tensor->bytes, NULL);
		return CLI_OK;
	}
	piece = malloc((size_t)PIECE_ELEMS * sizeof(*piece));
	if (!piece)
		return cli_no_memory("statistics");
	scan->elems = source->rows * source->k;
	for (int64_t at = 0; at < scan->elems && !cli_must_stop(); at += PIECE_ELEMS) {
		int64_t n =
		    scan->elems - at < PIECE_ELEMS ? scan->elems - at : PIECE_ELEMS;
		const char *data =
		    (const char *)source->tensor->data + (size_t)at * bytes;

		tensor_read_floats(data, source->dtype, n, piece);
		if (at == 0)
			scan->value = (double)piece[0];
		scan_floats(piece, n, scan);
		tensor_drop(data, (size_t)n * bytes);
		progress_advance((double)n * (double)bytes, NULL);
	}
	free(piece);
	return cli_stopped();
}
