/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share_scale.h - gives the blocks of a matrix another global scale: what nib repair
 * does with layers that engines fuse.
 *
 * A value is code * scale * global.  Where scale * from / to is an e4m3 number, the
 * block keeps its codes and its values exactly.  Any other block gets the scale, of
 * all positive ones, and the codes that have the least squared error.
 */
#ifndef NIB_SHARE_SCALE_H
#define NIB_SHARE_SCALE_H

#include <stdint.h>

/* Sums over values v that become w: v * v, and (v - w) * (v - w). */
struct share_error {
	double signal, noise;
	double worst;	  /* the largest |v - w| */
	int64_t inexact;  /* blocks whose values change */
	int64_t n_blocks; /* all */
};
void share_error_add(struct share_error *sum, const struct share_error *part);
/* sqrt(noise / signal); 0 where nothing changes. */
double share_error_relative(const struct share_error *error);

struct share_table;
/* For blocks whose global scale from becomes to; NULL without memory. */
struct share_table *share_table_new(float from, float to);
void share_table_free(struct share_table *table);

/*
 * Rewrites count blocks of 16 codes and their scales, which are neither NaN nor
 * negative.  new_codes or new_scales may be NULL: not wanted.  Adds to *error.  The
 * sums do not depend on the number of threads.  0, or -1 without memory.
 */
int share_blocks(const struct share_table *table, const uint8_t *codes,
		 const uint8_t *scales, int64_t count, uint8_t *new_codes,
		 uint8_t *new_scales, struct share_error *error);

#endif
