/* SPDX-License-Identifier: Apache-2.0 */
/* peak_kernels.h - the inner loops of peaks.c. */
#ifndef NIB_BENCH_PEAK_KERNELS_H
#define NIB_BENCH_PEAK_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* The instructions are those of x86-64; elsewhere only memory is measured. */
#if defined(__x86_64__)
#define PEAK_HAS_LOOPS 1
#else
#define PEAK_HAS_LOOPS 0
#endif

/* Instructions of the kind in question in the body of a loop. */
#define PEAK_UNROLL 24

/* Runs the body loops times; operand: 64 bytes that the instruction reads. */
typedef void (*peak_loop)(int64_t loops, const void *operand);

void peak_loop_clock(int64_t loops, const void *operand);
void peak_loop_fma_avx512(int64_t loops, const void *operand);
void peak_loop_fma_avx2(int64_t loops, const void *operand);
void peak_loop_mul_add_sse(int64_t loops, const void *operand);
void peak_loop_dot_bf16(int64_t loops, const void *operand);
void peak_loop_pmaddwd(int64_t loops, const void *operand);
void peak_loop_madd8_avx2(int64_t loops, const void *operand);
void peak_loop_madd8_avx512(int64_t loops, const void *operand);
void peak_loop_dot8_avxvnni(int64_t loops, const void *operand);
void peak_loop_dot8_avx512(int64_t loops, const void *operand);
void peak_loop_tile_bf16(int64_t loops, const void *operand);

/*
 * Each moves n_bytes (a multiple of 256) through memory at p, 64-aligned.  peak_read()
 * reads the streams, equal parts of it (multiples of 256 as well), in turn, and
 * prefetches as many bytes ahead of each; 0: not at all.
 */
uint64_t peak_read(const void *p, size_t n_bytes, int streams, size_t ahead_bytes);
void peak_write(void *p, size_t n_bytes);
/* Copies the first half onto the second. */
void peak_copy(void *p, size_t n_bytes);

#endif
