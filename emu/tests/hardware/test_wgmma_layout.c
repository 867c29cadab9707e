/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_wgmma_layout.c - the places of operands of wgmma and mma.sync: each element is
 * in one register, and shared memory is as a plain loop fills it.
 */
#include <string.h>

#include "common/unit.h"
#include "hardware/wgmma.h"

#define ROWS  16
#define MAX_N EMU_WGMMA_MAX_N
#define MAX_K EMU_MMA_MAX_K

static struct emu_wgmma_shape shape_of(enum emu_mma_type type, int n)
{
	return (struct emu_wgmma_shape){
	    .n = n, .k = 32 / emu_mma_type_bytes(type), .a_type = type, .b_type = type};
}

/* ---- registers ----------------------------------------------------------- */

static void each_register_has_its_element(void **state)
{
	static const enum emu_mma_type types[] = {EMU_TF32, EMU_F16, EMU_E4M3, EMU_S8};
	int row, at;

	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
		const struct emu_wgmma_shape s = shape_of(types[t], 8);
		const int share = s.k / 8; /* elements of a register */
		bool a[ROWS][MAX_K] = {0}, b[8][MAX_K] = {0};

		for (int i = 0; i < 32 * 4; i++) {
			emu_wgmma_a_place(&s, i / 4, i % 4, &row, &at);
			assert_int_equal(at % share, 0);
			assert_false(a[row][at]);
			a[row][at] = true;
			/* PTX: row is lane / 4, eight more in odd registers. */
			assert_int_equal(row, i / 16 + i % 2 * 8);
			assert_int_equal(at, (i / 4 % 4 + i / 2 % 2 * 4) * share);
		}
		for (int i = 0; i < 32 * 2; i++) {
			emu_mma_b_place(&s, i / 2, i % 2, &row, &at);
			assert_false(b[row][at]);
			b[row][at] = true;
			assert_int_equal(row, i / 8);
			assert_int_equal(at, (i / 2 % 4 + i % 2 * 4) * share);
		}
	}
}

static void each_result_has_its_register(void **state)
{
	bool seen[ROWS][MAX_N] = {0};
	int row, column;

	for (int lane = 0; lane < 32; lane++)
		for (int i = 0; i < MAX_N / 2; i++) {
			emu_wgmma_d_place(lane, i, &row, &column);
			assert_false(seen[row][column]);
			seen[row][column] = true;
			/* PTX figure: d0, d1 are adjacent, d2, d3 8 below. */
			assert_int_equal(row, lane / 4 + (i % 4 >= 2 ? 8 : 0));
			assert_int_equal(column, i / 4 * 8 + lane % 4 * 2 + (i & 1));
		}
}

/* ---- shared memory ------------------------------------------------------- */

static uint64_t descriptor(uint32_t start, uint32_t lead, uint32_t stride, int swizzle)
{
	const uint64_t kind = swizzle == 128  ? 1
			      : swizzle == 64 ? 2
			      : swizzle == 32 ? 3
					      : 0;

	return start >> 4 | (uint64_t)(lead >> 4) << 16 |
	       (uint64_t)(stride >> 4) << 32 | kind << 62;
}

/* Where a tensor copy puts 16 bytes of a box `width` bytes wide. */
static uint32_t swizzle_of_copy(uint32_t address, int width)
{
	const uint32_t row = address / 128;

	if (width == 16)
		return address;
	return address ^ row % ((uint32_t)width / 16) * 16;
}

static uint32_t offset(uint64_t desc, bool is_transposed, int row, int piece)
{
	const struct emu_wgmma_shape s = shape_of(EMU_F16, 64);
	struct emu_error err = {""};
	uint32_t at = 0;

	if (!emu_wgmma_offset(desc, &s, is_transposed, row, piece, &at, &err))
		fail_msg("%s", err.text);
	return at;
}

/* Rows of `width` bytes of k, one after the other, as a tensor copy writes them. */
static void k_major_with_swizzle(void **state)
{
	static const int widths[] = {32, 64, 128};

	for (int w = 0; w < 3; w++)
		for (int step = 0; step < widths[w]; step += 32)
			for (int i = 0; i < 256 * 2; i++) {
				const uint32_t width = (uint32_t)widths[w];
				const uint32_t begin = 4096;
				const uint32_t row = (uint32_t)i / 2;
				const uint32_t at = begin + row * width +
						    (uint32_t)step +
						    (uint32_t)i % 2 * 16;
				/* The leading offset is not read. */
				const uint64_t desc = descriptor(
				    begin + (uint32_t)step, 16, 8 * width, widths[w]);

				assert_int_equal(offset(desc, false, i / 2, i % 2),
						 swizzle_of_copy(at, widths[w]));
			}
}

/* Blocks of 8 rows of 16 bytes, 128 bytes each. */
static void without_swizzle(void **state)
{
	for (int row = 0; row < 64; row++)
		for (int piece = 0; piece < 2; piece++)
			assert_int_equal(
			    offset(descriptor(1024, 2048, 128, 0), false, row, piece),
			    1024 + row / 8 * 128 + row % 8 * 16 + piece * 2048);
	/* Transposed: 8 k of 16 bytes (8 of m or n) are a block. */
	for (int k = 0; k < 16; k++)
		for (int piece = 0; piece < 8; piece++)
			assert_int_equal(
			    offset(descriptor(1024, 128, 256, 0), true, k, piece),
			    1024 + k / 8 * 128 + k % 8 * 16 + piece * 256);
}

/* Rows of `width` bytes of m or n, one a k; wider matrices are boxes. */
static void transposed_with_swizzle(void **state)
{
	static const int widths[] = {32, 64, 128};

	for (int w = 0; w < 3; w++) {
		const uint32_t width = (uint32_t)widths[w], box = 64 * width;
		const uint64_t desc = descriptor(8192, box, 8 * width, widths[w]);

		for (int k = 0; k < 16; k++)
			for (int piece = 0; piece < 32; piece++) {
				const uint32_t p = (uint32_t)piece;
				const uint32_t at = 8192 + p / (width / 16) * box +
						    (uint32_t)k * width +
						    p % (width / 16) * 16;

				assert_int_equal(offset(desc, true, k, piece),
						 swizzle_of_copy(at, widths[w]));
			}
	}
}

/* A pattern that begins at row b of 128 bytes: as if it began at row 0. */
static void base_offsets_move_the_pattern(void **state)
{
	for (uint32_t base = 0; base < 8; base++) {
		const uint64_t moved = (uint64_t)base << 49;
		const uint64_t plain = descriptor(2048, 16, 1024, 128);
		const uint64_t desc =
		    descriptor(2048 + base * 128, 16, 1024, 128) | moved;

		for (int row = 0; row < 64; row++)
			assert_int_equal(offset(desc, false, row, 1),
					 offset(plain, false, row, 1) + base * 128);
	}
}

static void refused(uint64_t desc, const struct emu_wgmma_shape *s, bool is_transposed,
		    const char *rule)
{
	struct emu_error err = {""};
	uint32_t at = 0;

	assert_false(emu_wgmma_offset(desc, s, is_transposed, 0, 0, &at, &err));
	assert_non_null(strstr(err.text, rule));
}

static void bad_descriptors_are_refused(void **state)
{
	const struct emu_wgmma_shape half = shape_of(EMU_F16, 8);
	const struct emu_wgmma_shape byte = shape_of(EMU_E4M3, 8);
	const uint64_t good = descriptor(1024, 16, 1024, 128);

	for (int bit = 0; bit < 64; bit++)
		if (bit == 14 || bit == 15 || bit == 30 || bit == 31 ||
		    (bit >= 46 && bit <= 48) || (bit >= 52 && bit <= 61))
			refused(good | UINT64_C(1) << bit, &half, false, "must be 0");
	refused(descriptor(1024, 16, 128, 0) | UINT64_C(1) << 49, &half, false,
		"base offset 1");
	refused(descriptor(1024, 16, 256, 32) | UINT64_C(2) << 49, &half, false,
		"base offset 2, must be below 2");
	refused(good, &byte, true, "16-bit");
	offset(good | UINT64_C(7) << 49, false, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_register_has_its_element),
	    cmocka_unit_test(each_result_has_its_register),
	    cmocka_unit_test(k_major_with_swizzle),
	    cmocka_unit_test(without_swizzle),
	    cmocka_unit_test(transposed_with_swizzle),
	    cmocka_unit_test(base_offsets_move_the_pattern),
	    cmocka_unit_test(bad_descriptors_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
