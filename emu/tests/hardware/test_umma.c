/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_umma.c - the descriptors of tcgen05.mma: values that public kernels use on
 * a B200, every field that is refused, the places of operands in shared and tensor
 * memory, and the columns of each operand.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "hardware/tensor_memory.h"
#include "hardware/umma.h"

static const struct emu_umma_form fp4 = {EMU_UMMA_MXF4NVF4, 1, 4, false};
static const struct emu_umma_form fp4_pair = {EMU_UMMA_MXF4NVF4, 2, 4, false};
static const struct emu_umma_form mx = {EMU_UMMA_MXF8F6F4, 1, 1, false};
static const struct emu_umma_form f16 = {EMU_UMMA_F16, 1, 0, false};
static const struct emu_umma_form f16_pair = {EMU_UMMA_F16, 2, 0, false};
static const struct emu_umma_form f8 = {EMU_UMMA_F8F6F4, 1, 0, false};
static const struct emu_umma_form tf32 = {EMU_UMMA_TF32, 1, 0, false};
static const struct emu_umma_form i8 = {EMU_UMMA_I8, 1, 0, false};
static const struct emu_umma_form i8_pair = {EMU_UMMA_I8, 2, 0, false};
static const struct emu_umma_form f8_tmem = {EMU_UMMA_F8F6F4, 1, 0, true};
static const struct emu_umma_form f16_tmem = {EMU_UMMA_F16, 1, 0, true};

static struct emu_umma decoded(uint32_t descriptor, const struct emu_umma_form *form)
{
	struct emu_umma u;
	struct emu_error err = {{0}};

	if (!emu_umma_decode(descriptor, form, &u, &err))
		fail_msg("%s", err.text);
	return u;
}

/* ---- values of kernels that run on a B200 -------------------------------- */

static void test_golden_instructions(void **state)
{
	static const struct {
		uint32_t descriptor;
		int ctas, m, n;
		bool is_ue8m0;
	} cases[] = {
	    {0x08020480, 1, 128, 8, false},   {0x08040480, 1, 128, 16, false},
	    {0x08080480, 1, 128, 32, false},  {0x08100480, 1, 128, 64, false},
	    {0x08200480, 1, 128, 128, false}, {0x08300480, 1, 128, 192, false},
	    {0x08400480, 1, 128, 256, false}, {0x10040480, 2, 256, 16, false},
	    {0x10100480, 2, 256, 64, false},  {0x10200480, 2, 256, 128, false},
	    {0x10300480, 2, 256, 192, false}, {0x10400480, 2, 256, 256, false},
	    {0x08A00480, 1, 128, 128, true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct emu_umma u =
		    decoded(cases[i].descriptor, cases[i].ctas == 2 ? &fp4_pair : &fp4);

		assert_int_equal(u.m, cases[i].m);
		assert_int_equal(u.n, cases[i].n);
		assert_int_equal(u.k, 64);
		assert_int_equal(u.a_type, EMU_UMMA_TYPE_E2M1);
		assert_int_equal(u.b_type, EMU_UMMA_TYPE_E2M1);
		assert_int_equal(u.scale_is_ue8m0, cases[i].is_ue8m0);
		assert_false(u.a_negated || u.b_negated || u.a_transposed ||
			     u.b_transposed || u.sfa_id || u.sfb_id);
	}
}

static void test_other_kinds(void **state)
{
	/* E4M3 times E2M1, ids 3 and 2, 128 x 256. */
	const uint32_t x =
	    2u << 4 | 0u << 7 | 5u << 10 | 32u << 17 | 1u << 23 | 1u << 27 | 3u << 29;
	/* BF16 times F16 to F32, both transposed, A negated, 64 x 72. */
	const uint32_t y =
	    1u << 4 | 1u << 7 | 1u << 13 | 1u << 15 | 1u << 16 | 9u << 17 | 4u << 24;
	struct emu_umma u = decoded(x, &mx);

	assert_int_equal(u.a_type, EMU_UMMA_TYPE_E4M3);
	assert_int_equal(u.b_type, EMU_UMMA_TYPE_E2M1);
	assert_int_equal(u.sfa_id, 3);
	assert_int_equal(u.sfb_id, 2);
	assert_int_equal(u.n, 256);
	assert_int_equal(u.k, 32);
	u = decoded((4u << 24 | 4u << 17 | 1u << 10 | 2u << 4 | 8u), &i8);
	assert_int_equal(u.a_type, EMU_UMMA_TYPE_U8);
	assert_int_equal(u.b_type, EMU_UMMA_TYPE_S8);
	assert_true(u.saturates);
	assert_int_equal(u.k, 32);
	u = decoded(8u << 24 | 8u << 17 | 2u << 10 | 2u << 7 | 1u << 4, &tf32);
	assert_int_equal(u.a_type, EMU_UMMA_TYPE_TF32);
	assert_int_equal(u.k, 8);
	u = decoded(4u << 24 | 9u << 17 | 5u << 10 | 3u << 7 | 1u << 4, &f8);
	assert_int_equal(u.a_type, EMU_UMMA_TYPE_E2M3);
	assert_int_equal(u.b_type, EMU_UMMA_TYPE_E2M1);
	assert_int_equal(u.m, 64);
	assert_int_equal(u.n, 72);
	u = decoded(y, &f16);
	assert_int_equal(u.a_type, EMU_UMMA_TYPE_BF16);
	assert_int_equal(u.b_type, EMU_UMMA_TYPE_F16);
	assert_true(u.a_negated && !u.b_negated && u.a_transposed && u.b_transposed &&
		    !u.d_is_f16);
	assert_int_equal(u.m, 64);
	assert_int_equal(u.n, 72);
	assert_int_equal(u.k, 16);
}

static const struct {
	const struct emu_umma_form *form;
	uint32_t descriptor;
	const char *field, *rule;
} refused_instructions[] = {
    {&fp4, 0x08100481, "reserved bits", "bits 0, 1, 3, 6 and 12"},
    {&fp4, 0x08100482, "reserved bits", "bits 0, 1"},
    {&fp4, 0x08100484, "sparsity 1", "not modelled"},
    {&fp4, 0x08100488, "reserved bits", "bits 0, 1"},
    {&fp4, 0x081004C0, "reserved bits", "bits 0, 1"},
    {&fp4, 0x08101480, "reserved bits", "12"},
    {&fp4, 0x08100400, "A type 0", "E2M1 = 1"},
    {&fp4, 0x08100680, "A type 5", "E2M1 = 1"},
    {&fp4, 0x08100080, "B type 0", "E2M1 = 1"},
    {&fp4, 0x08108480, "transposition", "K-major"},
    {&fp4, 0x08110480, "transposition", "K-major"},
    {&fp4, 0x08000480, "N 0", "8 to 256 by 8"},
    {&fp4, 0x08420480, "N 264", "8 to 256"},
    {&fp4, 0x00100480, "M 0", "128"},
    {&fp4, 0x10100480, "M 256", "128"},
    {&fp4, 0x09100480, "reserved bits 1", "bits 24 to 26"},
    {&fp4, 0x0C100480, "reserved bits 4", "bits 24 to 26"},
    {&fp4, 0x28100480, "scale id 1", "scale_vec::4X has only 0"},
    {&fp4, 0x081004A0, "scale id 2", "scale_vec::4X has only 0"},
    {&fp4, 0x88100480, "bit 31", "96"},
    {&fp4_pair, 0x08100480, "M 128", "not modelled"},
    {&fp4_pair, 0x10020480, "N 8", "16 to 256 by 16"},
    {&fp4_pair, 0x18100480, "M 384", "128 or 256"},
    {&mx, 0x08900100, "A type 2", "E4M3 = 0"},
    {&mx, 0x08901800, "B type 6", "E4M3 = 0"},
    {&mx, 0x08100000, "scale type 0", "UE8M0 = 1"},
    {&mx, 0x88900000, "bit 31", "reserved"},
    {&f16, 0x08100110, "A type 2", "F16 = 0"},
    {&f16, 0x08100810, "B type 2", "F16 = 0"},
    {&f16, 0x08100020, "D type 2", "F32 = 1"},
    {&f16, 0x08100080, "D type 0", "BF16 operands are in F32"},
    {&f16, 0x08900010, "reserved bits", "bits 23 and 29"},
    {&f16, 0x28100010, "reserved bits", "bits 23 and 29"},
    {&f16, 0x0A100010, "M 160", "64 or 128"},
    {&f16, 0x08120010, "N 72", "16 to 256 by 16"},
    {&f16_pair, 0x04100010, "M 64", "128 or 256"},
    {&f8, 0x08100110, "A type 2", "E4M3 = 0"},
    {&f8, 0x08100020, "D type 2", "F16 = 0, F32 = 1"},
    {&f8, 0x08108190, "transposition", "K-major"},
    {&f8_tmem, 0x08100190, "A type 3", "not modelled"},
    {&tf32, 0x08100810, "A type 0", "TF32 = 2"},
    {&tf32, 0x08100900, "D type 0", "F32 = 1"},
    {&tf32, 0x08108910, "transposition", "TF32"},
    {&i8, 0x08100120, "A type 2", "S8 = 1"},
    {&i8, 0x08100010, "D type 1", "S32 = 2"},
    {&i8, 0x08102020, "negation 1", "has none"},
    {&i8, 0x081000A1, "reserved bits", "bits 0, 1 and 6"},
    {&i8, 0x040A0020, "N 40", "16 to 256 by 16"},
    {&i8, 0x08020020, "N 8", "16 to 256 by 16"},
    {&i8_pair, 0x10060020, "N 24", "32 to 256 by 32"},
    {&f16_tmem, 0x08108010, "transposition", "in tensor memory"},
};

static void test_refused_instructions(void **state)
{
	for (size_t i = 0;
	     i < sizeof(refused_instructions) / sizeof(*refused_instructions); i++) {
		struct emu_error err = {{0}};
		char shown[20];
		struct emu_umma u;

		snprintf(shown, sizeof(shown), "0x%08x",
			 refused_instructions[i].descriptor);
		if (emu_umma_decode(refused_instructions[i].descriptor,
				    refused_instructions[i].form, &u, &err))
			fail_msg("%s is taken", shown);
		if (!strstr(err.text, shown) ||
		    !strstr(err.text, refused_instructions[i].field) ||
		    !strstr(err.text, refused_instructions[i].rule))
			fail_msg("%s: not \"%s ... %s\"", err.text,
				 refused_instructions[i].field,
				 refused_instructions[i].rule);
	}
}

/* ---- shared memory ------------------------------------------------------- */

static struct emu_umma_matrix matrix(uint64_t descriptor)
{
	struct emu_umma_matrix m;
	struct emu_error err = {{0}};

	if (!emu_umma_matrix_decode(descriptor, &m, &err))
		fail_msg("%s", err.text);
	return m;
}

static void test_golden_matrices(void **state)
{
	static const struct {
		uint64_t descriptor;
		uint32_t start, lead, stride, swizzle;
	} cases[] = {
	    {UINT64_C(0x4000404000000000), 0, 0, 1024, 128},
	    {UINT64_C(0x4000404000000040), 0x400, 0, 1024, 128},
	    {UINT64_C(0x4000404000000042), 0x420, 0, 1024, 128},
	    {UINT64_C(0x4000404000010040), 0x400, 16, 1024, 128},
	    {UINT64_C(0x0000400800000000), 0, 0, 128, 16},
	    {UINT64_C(0x0000400800000840), 0x8400, 0, 128, 16},
	    {UINT64_C(0x0000400800000860), 0x8600, 0, 128, 16},
	};
	/* (row, byte) of a tile of 128 bytes a row. */
	static const uint32_t places[][3] = {
	    {1, 0, 0x90}, {3, 32, 0x190}, {9, 127, 0x4EF}, {127, 64, 0x3FB0}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct emu_umma_matrix m = matrix(cases[i].descriptor);

		assert_int_equal(m.start, cases[i].start);
		assert_int_equal(m.lead, cases[i].lead);
		assert_int_equal(m.stride, cases[i].stride);
		assert_int_equal(m.swizzle, cases[i].swizzle);
		assert_int_equal(m.base, 0);
	}
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		const uint32_t byte = places[i][1];
		const struct emu_umma_matrix m =
		    matrix(UINT64_C(0x4000404000000000) + 2 * (byte / 32));

		assert_int_equal(emu_umma_offset(&m, false, (int)places[i][0],
						 (int)(byte % 32 / 16)) +
				     byte % 16,
				 places[i][2]);
	}
}

/* Every swizzle: all pieces of an operand are at different places, and inside. */
static void test_swizzles(void **state)
{
	static const uint64_t codes[] = {0, 6, 4, 2};

	for (uint32_t s = 0; s < 4; s++) {
		const uint32_t wide = 16u << s; /* bytes of a row */
		const struct emu_umma_matrix m =
		    matrix(codes[s] << 61 | UINT64_C(1) << 46 |
			   (uint64_t)(8 * wide / 16) << 32 |
			   (uint64_t)(128 * wide / 16) << 16);
		uint8_t seen[128 * 32] = {0};

		for (int row = 0; row < 128; row++)
			for (int p = 0; p < 2; p++) {
				const uint32_t at = emu_umma_offset(&m, false, row, p);

				assert_int_equal(at % 16, 0);
				if (s <= 1) {
					assert_in_range(at, 0, 128 * 32 - 1);
					assert_int_equal(seen[at], 0);
					seen[at] = 1;
				}
				assert_int_equal(at / (8 * wide) % 16, row / 8);
			}
	}
}

static void test_refused_matrices(void **state)
{
	static const struct {
		uint64_t descriptor;
		const char *why;
	} cases[] = {
	    {UINT64_C(0x4000004000000000), "bits 46 to 48 are 0"},
	    {UINT64_C(0x4000804000000000), "bits 46 to 48 are 2"},
	    {UINT64_C(0x4000404000004000), "bits 14, 15"},
	    {UINT64_C(0x4000404080000000), "bits 14, 15, 30"},
	    {UINT64_C(0x4010404000000000), "absolute leading offset"},
	    {UINT64_C(0x4020404000000000), "bits 53 to 60"},
	    {UINT64_C(0x5000404000000000), "bits 53 to 60"},
	    {UINT64_C(0x2000404000000000), "atoms of 32"},
	    {UINT64_C(0x6000404000000000), "swizzle 3"},
	    {UINT64_C(0xE000404000000000), "swizzle 7"},
	    {UINT64_C(0xC004404000000000), "base offset 2"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct emu_umma_matrix m;
		struct emu_error err = {{0}};

		if (emu_umma_matrix_decode(cases[i].descriptor, &m, &err))
			fail_msg("%s: taken", cases[i].why);
		if (!strstr(err.text, cases[i].why))
			fail_msg("%s: not \"%s\"", err.text, cases[i].why);
	}
}

static void test_unpack(void **state)
{
	struct emu_umma u = {.form = fp4, .k = 64};
	uint8_t bytes[32], codes[64];

	for (int i = 0; i < 32; i++)
		bytes[i] = (uint8_t)(i * 37 + 11);
	emu_umma_unpack(&u, EMU_UMMA_TYPE_E2M1, bytes, codes);
	for (int k = 0; k < 64; k++)
		assert_int_equal(codes[k], bytes[k / 2] >> 4 * (k % 2) & 15);
	u.form = mx;
	u.k = 32;
	emu_umma_unpack(&u, EMU_UMMA_TYPE_E5M2, bytes, codes);
	assert_memory_equal(codes, bytes, 32);
	/* 16 elements, then bytes that are not read. */
	emu_umma_unpack(&u, EMU_UMMA_TYPE_E2M1, bytes, codes);
	for (int k = 0; k < 32; k++)
		assert_int_equal(codes[k],
				 bytes[k / 16 * 16 + k % 16 / 2] >> 4 * (k % 2) & 15);
	emu_umma_unpack(&u, EMU_UMMA_TYPE_E3M2, bytes, codes);
	for (int k = 0; k < 32; k++) {
		uint32_t code = 0;

		for (int b = 0; b < 6; b++) {
			const int bit = k % 16 * 6 + b;

			code |= (uint32_t)(bytes[k / 16 * 16 + bit / 8] >> bit % 8 & 1)
				<< b;
		}
		assert_int_equal(codes[k], code);
	}
}

/* ---- tensor memory ------------------------------------------------------- */

static void check_d(uint32_t descriptor, const struct emu_umma_form *form, int row,
		    int column, int cta, int lane, int at)
{
	const struct emu_umma u = decoded(descriptor, form);
	int c, l, t;

	emu_umma_d_place(&u, row, column, &c, &l, &t);
	assert_int_equal(c, cta);
	assert_int_equal(l, lane);
	assert_int_equal(t, at);
}

/* PTX ISA, "Data Path Layout Organization": layouts A, B, D and F. */
static void test_d_places(void **state)
{
	const uint32_t f16_64 = 0x04100010, f16_128 = 0x08100010, f16_256 = 0x10100010;

	check_d(0x08100480, &fp4, 77, 63, 0, 77, 63);
	check_d(0x10100480, &fp4_pair, 77, 63, 0, 77, 63);
	check_d(0x10100480, &fp4_pair, 200, 5, 1, 72, 5);
	check_d(f16_256, &f16_pair, 255, 0, 1, 127, 0);
	check_d(f16_128, &f16_pair, 10, 31, 0, 10, 31);
	check_d(f16_128, &f16_pair, 10, 32, 0, 74, 0);
	check_d(f16_128, &f16_pair, 127, 63, 1, 127, 31);
	check_d(f16_64, &f16, 15, 3, 0, 15, 3);
	check_d(f16_64, &f16, 16, 3, 0, 32, 3);
	check_d(f16_64, &f16, 63, 3, 0, 111, 3);
}

static void test_scale_places(void **state)
{
	int column, byte;

	/* In the blocks of 512 bytes that cuBLAS has, row 77 and k-block 2 are
	 * byte 218: lane 13, column 2, byte 2 once copied. */
	emu_umma_scale_place(77, 0, 2, &column, &byte);
	assert_int_equal(column, 2);
	assert_int_equal(byte, 2);
	assert_int_equal(77 % 32 * 16 + column * 4 + byte, 218);
	emu_umma_scale_place(200, 3, 0, &column, &byte);
	assert_int_equal(column, 6);
	assert_int_equal(byte, 3);
}

static void test_allocation(void **state)
{
	struct emu_tmem *t = calloc(1, sizeof(*t));
	struct emu_error err;
	uint32_t first = 99;

	assert_non_null(t);
	assert_int_equal(emu_tmem_places(t, 128, 3, &first), 4);
	assert_int_equal(first, 384);
	emu_tmem_take(t, 128, 128);
	assert_int_equal(emu_tmem_places(t, 256, 0, &first), 1);
	assert_int_equal(first, 256);
	assert_int_equal(emu_tmem_places(t, 512, 0, &first), 0);
	assert_int_equal(emu_tmem_in_use(t), 128);
	assert_true(emu_tmem_has(t, 96u << 16 | 255, 1, &err));
	assert_false(emu_tmem_has(t, 255, 2, &err));
	assert_false(emu_tmem_has(t, 128u << 16 | 128, 1, &err));
	assert_non_null(strstr(err.text, "lane 128"));
	assert_false(emu_tmem_may_alloc(t, 256, &err));
	assert_true(emu_tmem_may_alloc(t, 128, &err));
	assert_false(emu_tmem_dealloc(t, 128, 64, &err));
	assert_false(emu_tmem_dealloc(t, 1u << 16 | 128, 128, &err));
	assert_true(emu_tmem_dealloc(t, 128, 128, &err));
	assert_int_equal(emu_tmem_in_use(t), 0);
	assert_false(emu_tmem_dealloc(t, 128, 128, &err));
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_golden_instructions),
	    cmocka_unit_test(test_other_kinds),
	    cmocka_unit_test(test_refused_instructions),
	    cmocka_unit_test(test_golden_matrices),
	    cmocka_unit_test(test_swizzles),
	    cmocka_unit_test(test_refused_matrices),
	    cmocka_unit_test(test_unpack),
	    cmocka_unit_test(test_d_places),
	    cmocka_unit_test(test_scale_places),
	    cmocka_unit_test(test_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
