/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wgmma_cases.h - instructions of a tensor core.  wgmma.cu records what a GPU
 * answers, and test_wgmma_recorded.c compares the software GPU with it.  A case
 * depends only on its numbers.
 */
#ifndef EMU_PROBES_WGMMA_CASES_H
#define EMU_PROBES_WGMMA_CASES_H

#include "hardware/wgmma.h"

#define WGMMA_M	       64
#define WGMMA_N	       8
#define WGMMA_SUMS     (WGMMA_M * WGMMA_N)
#define WGMMA_REPEATS  64 /* cases of a variant and a kind of data */
#define WGMMA_VARIANTS 11
#define WGMMA_DATA     7

/* ---- sums: m64n8 of 32 bytes of k ---------------------------------------- */

struct wgmma_case {
	struct emu_wgmma_shape shape;
	uint32_t a[WGMMA_M * EMU_MMA_MAX_K]; /* [m][k], bits */
	uint32_t b[WGMMA_N * EMU_MMA_MAX_K]; /* [n][k] */
	uint32_t c[WGMMA_SUMS];		     /* [m][n], fp32 or fp16 bits */
};

const char *wgmma_variant_name(int variant);
const char *wgmma_data_name(int data);
void wgmma_case_make(struct wgmma_case *made, int variant, int data, int index);
/* The software GPU's results. */
void wgmma_case_model(const struct wgmma_case *asked, uint32_t *d);
uint64_t wgmma_hash(const uint32_t *words, int count);

/* ---- places: where a descriptor finds b of m64n128k16 f16 ---------------- */

#define WGMMA_PLACE_N	  128
#define WGMMA_PLACE_BYTES (48 * 1024)
/* Pieces of 16 bytes: k-major (n, k / 8), transposed (k, n / 8). */
#define WGMMA_PIECES (WGMMA_PLACE_N * 2)

struct wgmma_place {
	uint64_t descriptor; /* of shared memory that begins at 0 */
	bool is_transposed;
};

int wgmma_places(void);
struct wgmma_place wgmma_place_make(int index);
/* The pieces' offsets; false with err if the descriptor is refused. */
bool wgmma_place_model(struct wgmma_place place, uint32_t *offsets,
		       struct emu_error *err);

#endif
