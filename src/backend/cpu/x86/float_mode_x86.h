/* SPDX-License-Identifier: Apache-2.0 */
/* float_mode_x86.h - float_mode.h for x86.  It sets MXCSR only, because no code here
 * uses the x87. */
#ifndef NIB_CPU_FLOAT_MODE_X86_H
#define NIB_CPU_FLOAT_MODE_X86_H

#include <immintrin.h>

typedef unsigned int cpu_float_mode;

static inline cpu_float_mode cpu_default_float_mode(void)
{
	const unsigned int saved = _mm_getcsr();

	_mm_setcsr(0x1f80u);
	return saved;
}

static inline void cpu_restore_float_mode(const cpu_float_mode *saved)
{
	_mm_setcsr(*saved);
}

#endif
