/* SPDX-License-Identifier: Apache-2.0 */
/*
 * float_mode_arm64.h - float_mode.h for aarch64.  fesetenv() of glibc leaves the bits
 * of FPCR that it does not know: FZ16, which flushes the scales that kernels read as
 * subnormal fp16, DN, AHP and EBF.  So FPCR is set to 0 as a whole.
 */
#ifndef NIB_CPU_FLOAT_MODE_ARM64_H
#define NIB_CPU_FLOAT_MODE_ARM64_H

#include <stdint.h>

typedef uint64_t cpu_float_mode;

static inline void cpu_restore_float_mode(const cpu_float_mode *saved)
{
	__asm__ volatile("msr fpcr, %0" : : "r"(*saved) : "memory");
}

static inline cpu_float_mode cpu_default_float_mode(void)
{
	const cpu_float_mode none = 0;
	cpu_float_mode saved;

	__asm__ volatile("mrs %0, fpcr" : "=r"(saved) : : "memory");
	if (saved != none)
		cpu_restore_float_mode(&none);
	return saved;
}

#endif
