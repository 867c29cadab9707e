/* SPDX-License-Identifier: Apache-2.0 */
/* common/float_mode.c - MXCSR, FPCR, or the rounding of <fenv.h>. */
#include "float_mode.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define FLUSH 0x8040u /* FTZ and DAZ */
#define MASKS 0x1f80u
#define DOWN  0x2000u
#define UP    0x4000u
#define ZERO  0x6000u

void test_mode_set(int mode)
{
	_mm_setcsr((mode & MODE_FLUSH ? FLUSH : 0) | (mode & MODE_TRAPS ? 0 : MASKS) |
		   (mode & MODE_DOWN   ? DOWN
		    : mode & MODE_UP   ? UP
		    : mode & MODE_ZERO ? ZERO
				       : 0));
}

int test_mode_get(void)
{
	const unsigned int csr = _mm_getcsr(), rounding = csr & ZERO;

	return (csr & FLUSH ? MODE_FLUSH : 0) |
	       ((csr & MASKS) == MASKS ? 0 : MODE_TRAPS) |
	       (rounding == DOWN   ? MODE_DOWN
		: rounding == UP   ? MODE_UP
		: rounding == ZERO ? MODE_ZERO
				   : 0);
}
#else
#include <fenv.h>
#include <stdint.h>

#if defined(__aarch64__)
/* FPCR.FZ, and FZ16 for fp16; traps are optional on Arm and not set. */
#define FLUSH (UINT64_C(1) << 24 | UINT64_C(1) << 19)

static uint64_t get_fpcr(void)
{
	uint64_t fpcr;

	__asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
	return fpcr;
}

static void set_flush(int mode)
{
	const uint64_t fpcr = get_fpcr() & ~FLUSH;

	__asm__ volatile("msr fpcr, %0"
			 :
			 : "r"(fpcr | (mode & MODE_FLUSH ? FLUSH : 0)));
}

static int get_flush(void)
{
	return get_fpcr() & FLUSH ? MODE_FLUSH : 0;
}
#else
static void set_flush(int mode)
{
	(void)mode;
}

static int get_flush(void)
{
	return 0;
}
#endif

void test_mode_set(int mode)
{
	fesetround(mode & MODE_DOWN   ? FE_DOWNWARD
		   : mode & MODE_UP   ? FE_UPWARD
		   : mode & MODE_ZERO ? FE_TOWARDZERO
				      : FE_TONEAREST);
	set_flush(mode);
}

int test_mode_get(void)
{
	const int rounding = fegetround();

	return (rounding == FE_DOWNWARD	    ? MODE_DOWN
		: rounding == FE_UPWARD	    ? MODE_UP
		: rounding == FE_TOWARDZERO ? MODE_ZERO
					    : 0) |
	       get_flush();
}
#endif
