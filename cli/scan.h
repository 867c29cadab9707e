/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan.h - statistics of one NVFP4 layer or float tensor, for nib inspect.
 */
#ifndef NIB_SCAN_H
#define NIB_SCAN_H

#include "cli.h"
#include "tensor.h"

/* e4m3 with any sign, as a number; NaN for 0x7F and 0xFF. */
float scan_scale_value(uint8_t code);

struct scan_layer {
	const struct nib_layer *layer;
	int64_t codes[16];   /* how often each code */
	int64_t scales[256]; /* how often each scale byte */
	int64_t n_scales;
	int64_t signs, nans, zeros; /* scales with the sign set; 0x7F; 0 */
	double scale_min, scale_median, scale_max; /* finite ones */
	double amax;				   /* largest |value| */
	/*
	 * Sampled blocks with a normal scale, and those among them whose
	 * largest code is under 4: a block that was scaled by its largest value
	 * has a code of 6 or 4.
	 */
	int64_t blocks, weak_blocks;
	/*
	 * How much of the variance of log2(scale) rows and columns explain,
	 * beyond chance, with the bytes read as linear and as tiled; NaN when
	 * the two cannot be mistaken for each other.
	 */
	double linear_structure, tiled_structure, structure_sd;
	/* Energy of each of the k columns over sampled rows; or NULL. */
	double *columns;
};

/* CLI_OK or CLI_FAILED (memory).  Owns scan->columns. */
int scan_layer(const struct nib_layer *layer, struct scan_layer *scan);
void scan_layer_free(struct scan_layer *scan);

/*
 * Correlation of the logarithms of a[i] and b[i], and of a[i] and b[i ^ 1]: the
 * columns as they would be with the nibbles of each byte exchanged.
 */
void scan_correlate(const double *a, const double *b, int64_t k, double *plain,
		    double *exchanged);

struct scan_float {
	int64_t elems, nans, infs, zeros;
	double amax;
};

/*
 * Moves the progress on by the bytes read.  All zero for a tensor that has no
 * floats.  CLI_OK, or an exit code after a message.
 */
int scan_float(const struct nib_file_tensor *tensor, struct scan_float *scan);

#endif
