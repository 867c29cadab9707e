/* SPDX-License-Identifier: Apache-2.0 */
/* power.h - powers of two, without libm. */
#ifndef EMU_POWER_H
#define EMU_POWER_H

#include <stdint.h>
#include <string.h>

/* 2^e, -1022 <= e <= 1023. */
static inline double emu_power_of_2(int e)
{
	const uint64_t bits = (uint64_t)(e + 1023) << 52;
	double x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

#endif
