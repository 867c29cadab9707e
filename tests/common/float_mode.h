/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common/float_mode.h - unusual floating-point modes of a caller, for tests that the
 * library ignores them and leaves them unchanged.
 */
#ifndef NIB_TESTS_COMMON_FLOAT_MODE_H
#define NIB_TESTS_COMMON_FLOAT_MODE_H

/* Bits of a mode; 0 is the default. */
enum {
	MODE_DOWN = 1, /* one rounding at a time */
	MODE_UP = 2,
	MODE_ZERO = 4,
	MODE_FLUSH = 8, /* subnormal operands and results count as 0 */
	MODE_TRAPS = 16,
};

/* Sets the calling thread's mode: what of it the processor has. */
void test_mode_set(int mode);
/* The thread's mode, as far as it can be told. */
int test_mode_get(void);

#endif
