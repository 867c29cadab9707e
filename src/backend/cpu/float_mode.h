/* SPDX-License-Identifier: Apache-2.0 */
/*
 * float_mode.h - the floating-point mode of a thread.
 *
 *	cpu_float_mode saved = cpu_default_float_mode();
 *	... round to nearest, subnormals kept, no exception traps ...
 *	cpu_restore_float_mode(&saved);
 */
#ifndef NIB_CPU_FLOAT_MODE_H
#define NIB_CPU_FLOAT_MODE_H

#if defined(__x86_64__)
#include "backend/cpu/x86/float_mode_x86.h"
#elif defined(__aarch64__)
#include "backend/cpu/arm64/float_mode_arm64.h"
#else
#include <fenv.h>

typedef fenv_t cpu_float_mode;

static inline cpu_float_mode cpu_default_float_mode(void)
{
	fenv_t saved;

	fegetenv(&saved);
	fesetenv(FE_DFL_ENV);
	return saved;
}

static inline void cpu_restore_float_mode(const cpu_float_mode *saved)
{
	fesetenv(saved);
}
#endif

#endif
