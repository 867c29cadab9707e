/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_halves.c - compares fp16 arithmetic on rows with double, rounded once: every
 * number with many others, at every position of a row.
 */
#include "common/data.h"
#include "common/unit.h"
#include "hardware/floats.h"
#include "hardware/halves.h"

#define PARTNERS 100

static uint32_t plainly(int which, uint16_t a, uint16_t b)
{
	const struct emu_format *f = &emu_format_f16;
	const double x = emu_widen(f, a), y = emu_widen(f, b);

	return emu_narrow(f,
			  which == 0   ? x + y
			  : which == 1 ? x - y
				       : x * y,
			  EMU_RN, false);
}

static void check(int which, const uint16_t *a, const uint16_t *b, int n)
{
	static void (*const functions[])(const uint16_t *, const uint16_t *, uint16_t *,
					 int) = {emu_halves_add, emu_halves_subtract,
						 emu_halves_multiply};
	uint16_t r[EMU_HALVES_MOST];

	functions[which](a, b, r, n);
	for (int i = 0; i < n; i++)
		if (r[i] != plainly(which, a[i], b[i]))
			fail_msg("operation %d of %04x and %04x: %04x, not "
				 "%04x",
				 which, a[i], b[i], r[i], plainly(which, a[i], b[i]));
}

static void test_operations(void **state)
{
	static const uint16_t special[] = {
	    0,	    0x8000, 1,	    0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC01,
	    0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7C01, 0x7FFF, 0x5801, 0x0801};
	struct rng rng = rng_new(test_seed());
	uint16_t a[EMU_HALVES_MOST], b[EMU_HALVES_MOST];

	for (int partner = 0; partner < PARTNERS; partner++)
		for (int code = 0; code < 65536; code += EMU_HALVES_MOST) {
			for (int i = 0; i < EMU_HALVES_MOST; i++) {
				a[i] = (uint16_t)(code + i);
				b[i] = partner < 16 ? special[partner]
						    : (uint16_t)rng_next(&rng);
			}
			for (int which = 0; which < 3; which++)
				check(which, a, b, EMU_HALVES_MOST);
		}
	for (int n = 0; n < EMU_HALVES_MOST; n++)
		check(n % 3, a, b, n);
}

static void test_e4m3(void **state)
{
	uint8_t codes[EMU_HALVES_MOST];
	uint16_t r[EMU_HALVES_MOST];

	for (int code = 0; code < 256; code += EMU_HALVES_MOST) {
		for (int i = 0; i < EMU_HALVES_MOST; i++)
			codes[i] = (uint8_t)(code + i);
		emu_halves_from_e4m3(codes, r, EMU_HALVES_MOST);
		for (int i = 0; i < EMU_HALVES_MOST; i++)
			assert_int_equal(
			    r[i], emu_narrow(&emu_format_f16,
					     emu_widen(&emu_format_e4m3, codes[i]),
					     EMU_RN, false));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_operations),
					   cmocka_unit_test(test_e4m3)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
