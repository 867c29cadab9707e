/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share_scale.c - blocks under another global scale: see share_scale.h.
 *
 * All blocks of one scale have the same eight magnitudes, so the nearest codes and
 * their squared errors are tabled for each pair of scales: 127 * 127 * 8 of them.  The
 * cost of a candidate for a block is then a sum of 8 products with the block's
 * histogram of magnitudes.
 */
#include "share_scale.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "inspect.h"
#include "parallel.h"

#define SCALES	    127 /* 0x00 .. 0x7E */
#define MAGNITUDES  8
#define BLOCK_BYTES (NIB_NVFP4_BLOCK / 2)
#define NOT_EXACT   0xFF
/* Blocks whose errors are summed in order, whichever thread has them. */
#define CHUNK 4096

struct share_table {
	double magnitude[SCALES][MAGNITUDES]; /* |v| of a scale's codes */
	uint8_t exact[SCALES];		      /* the new scale, or NOT_EXACT */
	uint8_t nearest[SCALES][SCALES][MAGNITUDES];
	double error[SCALES][SCALES][MAGNITUDES]; /* (v - w) * (v - w) */
};

void share_error_add(struct share_error *sum, const struct share_error *part)
{
	sum->signal += part->signal;
	sum->noise += part->noise;
	sum->worst = fmax(sum->worst, part->worst);
	sum->inexact += part->inexact;
	sum->n_blocks += part->n_blocks;
}

double share_error_relative(const struct share_error *error)
{
	return error->signal > 0 ? sqrt(error->noise / error->signal) : 0;
}

/* ---- the tables ---------------------------------------------------------- */

/* Both the magnitudes and the codes rise, so one pass finds the nearest; of two that
 * are as near, the smaller. */
static void fill_pair(struct share_table *t, int from, int to, double unit)
{
	const double *v = t->magnitude[from];

	for (int m = 0, c = 0; m < MAGNITUDES; m++) {
		double error;

		while (c + 1 < MAGNITUDES &&
		       v[m] > (double)(scan_code_value(c) + scan_code_value(c + 1)) *
				  unit / 2)
			c++;
		error = v[m] - (double)scan_code_value(c) * unit;
		t->nearest[from][to][m] = (uint8_t)c;
		t->error[from][to][m] = error * error;
	}
}

/*
 * Products of an e2m1, an e4m3 and a fp32 have at most 30 bits, so all magnitudes are
 * exact, and so is their comparison.
 */
struct share_table *share_table_new(float from, float to)
{
	struct share_table *t = malloc(sizeof(*t));

	if (!t)
		return NULL;
	for (int s = 0; s < SCALES; s++) {
		const double unit = (double)scan_scale_value((uint8_t)s) * (double)from;

		for (int m = 0; m < MAGNITUDES; m++)
			t->magnitude[s][m] = (double)scan_code_value(m) * unit;
		t->exact[s] = NOT_EXACT;
		for (int u = 0; u < SCALES; u++) {
			const double other =
			    (double)scan_scale_value((uint8_t)u) * (double)to;

			if (fabs(other - unit) <= 0)
				t->exact[s] = (uint8_t)u;
			fill_pair(t, s, u, other);
		}
	}
	return t;
}

void share_table_free(struct share_table *table)
{
	free(table);
}

/* ---- blocks -------------------------------------------------------------- */

static void count_magnitudes(const uint8_t *codes, int counts[MAGNITUDES])
{
	for (int i = 0; i < BLOCK_BYTES; i++) {
		counts[codes[i] & 7]++;
		counts[codes[i] >> 4 & 7]++;
	}
}

/* The scale of the least squared error; of several the smallest. */
static int best_scale(const struct share_table *t, int from,
		      const int counts[MAGNITUDES], double *noise)
{
	int largest = MAGNITUDES - 1, best = 1;

	*noise = INFINITY;
	while (largest && !counts[largest])
		largest--;
	for (int to = 1; to < SCALES; to++) {
		const double *error = t->error[from][to];
		double sum = 0;

		if (error[largest] >= *noise)
			continue;
		for (int m = 0; m <= largest; m++)
			sum += counts[m] * error[m];
		if (sum < *noise) {
			*noise = sum;
			best = to;
		}
	}
	return best;
}

static uint8_t rewrite_code(const uint8_t nearest[MAGNITUDES], int code)
{
	return (uint8_t)((code & 8) | nearest[code & 7]);
}

struct blocks {
	const struct share_table *table;
	const uint8_t *codes, *scales;
	int64_t count;
	uint8_t *new_codes, *new_scales;
	struct share_error *errors; /* one for each chunk */
};

static void rewrite_block(const struct blocks *b, int64_t i, struct share_error *error)
{
	const struct share_table *t = b->table;
	const uint8_t *codes = b->codes + i * BLOCK_BYTES;
	const int from = b->scales[i];
	int counts[MAGNITUDES] = {0}, to = t->exact[from];
	const uint8_t *nearest;
	double noise = 0;

	count_magnitudes(codes, counts);
	for (int m = 1; m < MAGNITUDES; m++)
		error->signal +=
		    counts[m] * t->magnitude[from][m] * t->magnitude[from][m];
	error->n_blocks++;
	if (to == NOT_EXACT)
		to = best_scale(t, from, counts, &noise);
	nearest = t->nearest[from][to];
	for (int m = 1; m < MAGNITUDES && noise > 0; m++)
		if (counts[m])
			error->worst = fmax(error->worst, sqrt(t->error[from][to][m]));
	error->noise += noise;
	error->inexact += noise > 0;
	if (b->new_scales)
		b->new_scales[i] = (uint8_t)to;
	/* Not by the table where the block is exact: a scale of 0 keeps its codes. */
	if (b->new_codes && t->exact[from] != NOT_EXACT)
		memcpy(b->new_codes + i * BLOCK_BYTES, codes, BLOCK_BYTES);
	else if (b->new_codes)
		for (int j = 0; j < BLOCK_BYTES; j++)
			b->new_codes[i * BLOCK_BYTES + j] =
			    (uint8_t)(rewrite_code(nearest, codes[j] & 15) |
				      rewrite_code(nearest, codes[j] >> 4) << 4);
}

static void rewrite_chunks(void *arg, int64_t begin, int64_t end)
{
	const struct blocks *b = arg;

	for (int64_t chunk = begin; chunk < end; chunk++) {
		const int64_t first = chunk * CHUNK, past = first + CHUNK;

		for (int64_t i = first; i < past && i < b->count; i++)
			rewrite_block(b, i, &b->errors[chunk]);
	}
}

int share_blocks(const struct share_table *table, const uint8_t *codes,
		 const uint8_t *scales, int64_t count, uint8_t *new_codes,
		 uint8_t *new_scales, struct share_error *error)
{
	const int64_t chunks = (count + CHUNK - 1) / CHUNK;
	struct blocks blocks = {table,	   codes,      scales, count,
				new_codes, new_scales, NULL};

	blocks.errors = calloc((size_t)chunks + 1, sizeof(*blocks.errors));
	if (!blocks.errors)
		return -1;
	cli_parallel(chunks, CLI_LOOP_ELEMS / CHUNK / NIB_NVFP4_BLOCK + 1,
		     rewrite_chunks, &blocks);
	for (int64_t i = 0; i < chunks; i++)
		share_error_add(error, &blocks.errors[i]);
	free(blocks.errors);
	return 0;
}
