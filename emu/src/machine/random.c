/* SPDX-License-Identifier: Apache-2.0 */
/* random.c - see random.h. */
#include "machine/random.h"

void emu_random_begin(struct emu_machine *m, uint64_t stream)
{
	uint64_t x = (m->options.seed + 1) * UINT64_C(0x9E3779B97F4A7C15) +
		     stream * UINT64_C(0xD1B54A32D192ED03);

	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	m->random = (x ^ x >> 31) | 1;
}

uint32_t emu_random(struct emu_machine *m)
{
	m->random ^= m->random << 13;
	m->random ^= m->random >> 7;
	m->random ^= m->random << 17;
	return (uint32_t)(m->random >> 24);
}

uint32_t emu_random_below(struct emu_machine *m, uint32_t n)
{
	return n ? emu_random(m) % n : 0;
}
