/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_common.h - helpers of the programs that need a GPU (gpu_check_*.c).  These
 * include only nibblas.h, print a line for each case, and exit with 77 without a GPU.
 * A helper that fails ends the program.
 */
#ifndef NIB_TESTS_GPU_COMMON_H
#define NIB_TESTS_GPU_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nibblas.h"

#define NAN_SCALE 0x7F

extern struct gpu_test {
	struct nib_device *cpu, *gpu;
	struct nib_error err;
	int passed, failed;
	enum nib_arithmetic arithmetic; /* of the GPU */
} gpu_test;

/* Opens both devices; false: exit with *exit_code. */
bool gpu_begin(int *exit_code);
/* True for the software GPU, which reports what others leave undefined. */
bool gpu_in_software(void);
/* Prints the counts; the exit code. */
int gpu_end(void);
void gpu_must(enum nib_status status, const char *what);
/* why: printed if not ok. */
void gpu_verdict(bool ok, const char *name, const char *why);
/* Counts a case.  why: NULL if it passed; then nothing is printed. */
void gpu_tell(const char *name, const char *why);
/*
 * Options to check `matrices` results of n columns, k long: so few sampled rows that
 * the oracle, which is slow, adds about `products` products.
 */
struct nib_check_options gpu_check_options(int64_t n, int64_t k, int64_t matrices,
					   int64_t products);
/* NULL if none failed, else the worst in words. */
const char *gpu_result(const struct nib_check_result *r);

/*
 * NIB_TEST_SIZE=medium: all cases except the large ones, at most two repetitions.
 * small: a fifteenth of the cases of medium.  gpu_is_small(): medium or small.
 */
bool gpu_is_small(void);
int gpu_cases(int all);
int gpu_repeats(int all);

/* Seeds the random numbers. */
void gpu_seed(uint64_t number);
uint32_t gpu_rnd(void);
int64_t gpu_rnd_below(int64_t n);
/* Allocates zeroed memory of the host. */
void *gpu_take(size_t bytes);
uint32_t gpu_float_bits(float x);

/*
 * A buffer on the host and one on the GPU (gpu_test.gpu at that time), each with a
 * guard band of GUARD bytes before and after.
 */
struct gpu_twin {
	uint8_t *host, *device;
	size_t bytes;
	struct nib_device *gpu;
};

struct gpu_twin gpu_twin_new(size_t bytes);
void gpu_twin_free(struct gpu_twin *t);
void *gpu_host_of(const struct gpu_twin *t);
void *gpu_device_of(const struct gpu_twin *t);
void gpu_upload(const struct gpu_twin *t);
/* Copies the device's bytes into to; false if a guard band has changed. */
bool gpu_download(const struct gpu_twin *t, void *to);
bool gpu_guards_hold(const struct gpu_twin *t);

/*
 * A stack of matrices whose rows have a gap of `gap` bytes (codes, scales) or
 * elements after them.  is_between: memory is [rows, batch, k], as for attention heads;
 * tiled scales are not.
 */
struct gpu_sizes {
	int64_t rows, k, batch, gap;
	enum nib_scale_layout layout;
	enum nib_dtype dtype;
	bool is_between;
};

size_t gpu_codes_bytes(const struct gpu_sizes *s);
size_t gpu_scale_bytes(const struct gpu_sizes *s);
size_t gpu_dense_bytes(const struct gpu_sizes *s);
struct nib_fp4 gpu_nvfp4(const struct gpu_sizes *s, void *codes, void *scales);
struct nib_dense gpu_dense(const struct gpu_sizes *s, void *data);
/* The byte of a scale, as nibblas.h defines it. */
size_t gpu_scale_at(const struct gpu_sizes *s, int64_t batch, int64_t row,
		    int64_t group);
const char *gpu_layout_name(enum nib_scale_layout layout);
const char *gpu_dtype_name(enum nib_dtype dtype);
/* Any codes; scales 0 to 448, padding and gaps NaN. */
void gpu_fill_nvfp4(const struct gpu_sizes *s, uint8_t *codes, uint8_t *scales);
/*
 * Finite values, a quarter of the blocks zeros, gaps NaN; ties: multiples of
 * 1/4 up to 6.
 */
void gpu_fill_dense(const struct gpu_sizes *s, void *data, bool ties);
/* Sets an element's bits. */
void gpu_put(const struct gpu_sizes *s, void *data, int64_t index, uint32_t bits);

#endif
