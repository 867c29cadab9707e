/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_memory.c - the software GPU's device memory: guard bands, the state of bytes,
 * the description of addresses in reports, and random histories.
 */
#include <stdio.h>
#include <string.h>

#include "common/alloc.h"
#include "common/data.h"
#include "common/unit.h"
#include "hardware/memory.h"
#include "hardware/pages.h"

#define MIB   (1 << 20)
#define GUARD 256

static struct emu_error err;

static struct emu_memory *open_memory(uint64_t bytes)
{
	struct emu_memory *memory = emu_memory_open(bytes, &err);

	if (!memory)
		fail_msg("%s", err.text);
	return memory;
}

static uint64_t take(struct emu_memory *memory, uint64_t bytes)
{
	const uint64_t address = emu_memory_alloc(memory, bytes, &err);

	if (!address)
		fail_msg("%s", err.text);
	return address;
}

static void give(struct emu_memory *memory, uint64_t address)
{
	if (!emu_memory_free(memory, address, &err))
		fail_msg("%s", err.text);
}

/* True if every byte has just that state. */
static bool all_are(const struct emu_space *s, uint64_t address, uint64_t bytes,
		    uint8_t shadow)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (s->shadow[address - s->base + i] != shadow)
			return false;
	return true;
}

static void fresh_memory(void **state)
{
	struct emu_memory *memory = open_memory(MIB);
	const struct emu_space *s = emu_memory_space(memory);
	static const uint64_t sizes[] = {1, 255, 256, 257, 5000, 100000};

	assert_ptr_equal(s->data, (void *)(uintptr_t)s->base);
	for (size_t i = 0; i < 6; i++) {
		const uint64_t bytes = sizes[i], at = take(memory, bytes);
		uint64_t begin, length;

		assert_int_equal(at % 256, 0);
		assert_true(all_are(s, at, bytes, EMU_MAPPED));
		assert_true(all_are(s, at - GUARD, GUARD, 0));
		assert_true(all_are(s, at + bytes, GUARD, 0));
		assert_true(emu_space_has(s, at, bytes, EMU_MAPPED));
		assert_false(emu_space_has(s, at, bytes + 1, EMU_MAPPED));
		assert_false(emu_space_has(s, at, bytes, EMU_WRITTEN));
		for (uint64_t k = 0; k < bytes; k++)
			assert_int_equal(s->data[at - s->base + k], 0xFF);
		assert_true(emu_memory_find(memory, at + bytes - 1, &begin, &length));
		assert_int_equal(begin, at);
		assert_int_equal(length, bytes);
		assert_false(emu_memory_find(memory, at + bytes, &begin, &length));
		assert_false(emu_memory_find(memory, at - 1, &begin, &length));
	}
	emu_memory_close(memory);
}

static void freed_memory(void **state)
{
	struct emu_memory *memory = open_memory(MIB);
	const struct emu_space *s = emu_memory_space(memory);
	const uint64_t a = take(memory, 100000), b = take(memory, 300);
	uint64_t begin, bytes;

	memset(s->shadow + (a - s->base), EMU_MAPPED | EMU_WRITTEN, 100000);
	give(memory, a);
	assert_true(all_are(s, a, 100000, 0));
	assert_false(emu_memory_find(memory, a, &begin, &bytes));
	assert_true(all_are(s, b, 300, EMU_MAPPED));
	/* The next allocation does not get its addresses. */
	assert_true(take(memory, 1000) > b);
	assert_false(emu_memory_free(memory, a, &err));
	assert_non_null(strstr(err.text, "of the freed allocation of 100000 bytes"));
	assert_false(emu_memory_free(memory, b + 1, &err));
	assert_non_null(strstr(err.text, "byte 1 of the allocation of 300 bytes at"));
	assert_false(emu_memory_free(memory, 0, &err));
	assert_non_null(strstr(err.text, "in no allocation"));
	give(memory, b);
	emu_memory_close(memory);
}

static bool all_data_is(const struct emu_space *s, uint64_t address, uint64_t bytes,
			uint8_t value)
{
	const uint8_t *data = s->data + (address - s->base);

	return data[0] == value && memcmp(data, data + 1, bytes - 1) == 0;
}

/* Ranges whose pages come when they are used, of sizes around the least one. */
static void large_memory(void **state)
{
	struct emu_memory *memory = open_memory(200 * MIB);
	const struct emu_space *s = emu_memory_space(memory);
	static const uint64_t sizes[] = {EMU_PAGES_LEAST - 1, EMU_PAGES_LEAST,
					 EMU_PAGES_LEAST + 1, 13 * MIB + 77,
					 66 * MIB + 4095};

	for (size_t i = 0; i < 5; i++) {
		const uint64_t bytes = sizes[i], at = take(memory, bytes);
		const uint64_t part = at + bytes / 3, length = bytes / 2;

		assert_true(all_data_is(s, at, bytes, 0xFF));
		assert_true(all_are(s, at, bytes, EMU_MAPPED));
		assert_true(all_are(s, at - GUARD, GUARD, 0));
		assert_true(all_are(s, at + bytes, GUARD, 0));
		emu_memory_set(memory, part, length, 7);
		emu_memory_set_state(memory, part, length, EMU_MAPPED | EMU_WRITTEN);
		assert_true(all_data_is(s, part, length, 7));
		assert_true(all_are(s, part, length, EMU_MAPPED | EMU_WRITTEN));
		assert_true(all_data_is(s, at, part - at, 0xFF));
		assert_true(all_are(s, at, part - at, EMU_MAPPED));
		assert_true(
		    all_are(s, part + length, at + bytes - part - length, EMU_MAPPED));
		s->data[part + 5 - s->base] = 1;
		assert_int_equal(s->data[part + 4 - s->base], 7);
		emu_memory_set(memory, at, bytes, 0);
		assert_true(all_data_is(s, at, bytes, 0));
		assert_true(all_are(s, at - GUARD, GUARD, 0));
		assert_true(all_are(s, at + bytes, GUARD, 0));
		give(memory, at);
		assert_true(all_are(s, at, bytes, 0));
	}
	emu_memory_close(memory);
}

static void described(const struct emu_memory *memory, uint64_t address,
		      const char *format, uint64_t block)
{
	char text[200], want[200];

	snprintf(want, sizeof(want), format, (unsigned long long)block);
	emu_memory_describe(memory, address, text, sizeof(text));
	assert_string_equal(text, want);
}

static void descriptions(void **state)
{
	struct emu_memory *memory = open_memory(4 * MIB);
	const uint64_t a = take(memory, 4096), b = take(memory, 512);

	described(memory, a + 5, "byte 5 of the allocation of 4096 bytes at 0x%llx", a);
	described(memory, a + 4096,
		  "0 bytes past the end of the allocation of 4096 bytes at 0x%llx", a);
	described(memory, a + 4112,
		  "16 bytes past the end of the allocation of 4096 bytes at 0x%llx", a);
	described(memory, b - 16,
		  "16 bytes before the allocation of 512 bytes at 0x%llx", b);
	described(memory, a - 1, "1 byte before the allocation of 4096 bytes at 0x%llx",
		  a);
	/* What the program did not allocate is no neighbour. */
	emu_memory_hide(memory, b);
	described(memory, b - 16,
		  "240 bytes past the end of the allocation of 4096 bytes at 0x%llx",
		  a);
	give(memory, b);
	described(memory, b + 8,
		  "byte 8 of the freed allocation of 512 bytes at 0x%llx", b);
	described(memory, b + 2 * MIB, "in no allocation", 0);
	described(memory, 0, "in no allocation", 0);
	described(memory, UINT64_MAX, "in no allocation", 0);
	emu_memory_close(memory);
}

static void space_ends_and_comes_back(void **state)
{
	struct emu_memory *memory = open_memory(MIB);
	uint64_t at[100];
	int count = 0;

	assert_int_equal(emu_memory_alloc(memory, 0, &err), 0);
	assert_non_null(strstr(err.text, "0 bytes"));
	assert_int_equal(emu_memory_alloc(memory, 2 * MIB, &err), 0);
	assert_non_null(strstr(err.text, "no memory for 2097152 bytes"));
	assert_int_equal(emu_memory_alloc(memory, UINT64_MAX, &err), 0);
	while (count < 100) {
		at[count] = emu_memory_alloc(memory, 50000, &err);
		if (!at[count])
			break;
		count++;
	}
	assert_int_equal(count, 20);
	/* What was freed first is allocated first. */
	give(memory, at[7]);
	give(memory, at[3]);
	give(memory, at[12]);
	assert_int_equal(take(memory, 50000), at[3]);
	assert_int_equal(take(memory, 49000), at[7]);
	assert_int_equal(take(memory, 1000), at[12]);
	/* Free neighbours are merged. */
	give(memory, at[4]);
	give(memory, at[5]);
	assert_int_equal(take(memory, 100000), at[4]);
	assert_int_equal(emu_memory_alloc(memory, 60000, &err), 0);
	emu_memory_close(memory);
}

/* Live blocks never touch, keep their bytes, and are found. */
static void random_histories(void **state)
{
	struct rng rng = rng_new(test_seed());
	struct emu_memory *memory = open_memory(MIB);
	const struct emu_space *s = emu_memory_space(memory);
	struct {
		uint64_t at, bytes;
		uint8_t fill;
	} live[64] = {0};
	int refused = 0;

	for (int step = 0; step < 20000; step++) {
		const int i = (int)rng_below(&rng, 64);
		uint64_t begin, bytes;

		if (live[i].at) {
			const uint8_t *data = s->data + (live[i].at - s->base);

			assert_true(emu_memory_find(
			    memory, live[i].at + live[i].bytes / 2, &begin, &bytes));
			assert_int_equal(begin, live[i].at);
			assert_int_equal(bytes, live[i].bytes);
			assert_int_equal(data[0], live[i].fill);
			assert_memory_equal(data, data + 1, bytes - 1);
			assert_true(all_are(s, begin - GUARD, GUARD, 0));
			assert_true(all_are(s, begin + bytes, GUARD, 0));
			give(memory, live[i].at);
			live[i].at = 0;
			continue;
		}
		live[i].bytes =
		    1 + (uint64_t)rng_below(&rng, rng_below(&rng, 8) ? 3000 : 200000);
		live[i].fill = (uint8_t)step;
		live[i].at = emu_memory_alloc(memory, live[i].bytes, &err);
		refused += !live[i].at;
		if (live[i].at)
			memset(s->data + (live[i].at - s->base), live[i].fill,
			       live[i].bytes);
	}
	/* It ran full, and not only full. */
	assert_in_range(refused, 1, 15000);
	emu_memory_close(memory);
}

static void no_memory_of_the_host(void **state)
{
	struct emu_memory *memory;

	assert_null(emu_memory_open(UINT64_C(1) << 60, &err));
	assert_non_null(strstr(err.text, "cannot be reserved"));
	if (!test_alloc_works())
		skip();
	test_alloc_fail(1, TEST_ALLOC_FROM);
	memory = emu_memory_open(MIB, &err);
	assert_true(test_alloc_stop());
	assert_null(memory);
	memory = open_memory(MIB);
	test_alloc_fail(1, TEST_ALLOC_FROM);
	assert_int_equal(emu_memory_alloc(memory, 16, &err), 0);
	assert_true(test_alloc_stop());
	take(memory, 16);
	emu_memory_close(memory);
	emu_memory_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(fresh_memory),
	    cmocka_unit_test(freed_memory),
	    cmocka_unit_test(large_memory),
	    cmocka_unit_test(descriptions),
	    cmocka_unit_test(space_ends_and_comes_back),
	    cmocka_unit_test(random_histories),
	    cmocka_unit_test(no_memory_of_the_host),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
