/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_races.c - accesses by clusters that nothing can order: which are conflicts, in
 * any order of the clusters, and which are not.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check/races.h"
#include "common/unit.h"
#include "common/verdict.h"

#define BASE  UINT64_C(0x100000)
#define BYTES (UINT64_C(1) << 40) /* costs nothing before it is used */
#define DATA  (BASE + 4096)

static struct emu_races *races;
static struct emu_error err;
static int lane;

static int setup(void **state)
{
	races = emu_races_open(BASE, BYTES, false);
	assert_non_null(races);
	return 0;
}

static int teardown(void **state)
{
	emu_races_close(races);
	return 0;
}

/* By lane 3. */
static bool access_of(uint32_t cluster, bool is_write, uint64_t at, uint32_t bytes,
		      const void *value)
{
	uint64_t address[4] = {0, 0, 0, at};
	uint8_t bytes_of[4][32] = {{0}};
	struct emu_race a = {.cluster = cluster,
			     .is_write = is_write,
			     .lanes = 8,
			     .address = address,
			     .bytes = bytes,
			     .value = value ? bytes_of : NULL};

	if (value)
		memcpy(bytes_of[3], value, bytes);
	return emu_races_access(races, &a, &lane, &err);
}

static bool load(uint32_t cluster, uint64_t at, uint32_t bytes)
{
	return access_of(cluster, false, at, bytes, NULL);
}

static bool store(uint32_t cluster, uint64_t at, uint32_t bytes)
{
	return access_of(cluster, true, at, bytes, NULL);
}

static bool store_value(uint32_t cluster, uint64_t at, uint32_t value)
{
	return access_of(cluster, true, at, sizeof(value), &value);
}

static void conflicts(void **state)
{
	GOOD(store(5, DATA, 16));
	BAD(load(4, DATA + 8, 4),
	    "load of global memory 0x101008: cluster 5 writes it");
	assert_int_equal(lane, 3);
	GOOD(load(4, DATA + 16, 16));
	BAD(store(5, DATA + 12, 8), "cluster 4 reads it");
	GOOD(store(1, DATA + 64, 4));
	BAD(store(2, DATA + 64, 4), "cluster 1 writes it");
	/* It is reported once, and the last writer stays. */
	GOOD(store(2, DATA + 64, 4));
	BAD(load(1, DATA + 64, 4), "cluster 2 writes it");
}

static void several_readers(void **state)
{
	for (uint32_t c = 0; c < 5; c++)
		GOOD(load(c, DATA, 4));
	BAD(store(2, DATA, 4), "other clusters read it");
	/* Halves that are read one after the other. */
	for (uint32_t c = 0; c < 5; c++) {
		GOOD(load(c, DATA + 8, 2));
		GOOD(load(c, DATA + 10, 2));
	}
	BAD(store(0, DATA + 8, 2), "other clusters read it");
}

static void own_words(void **state)
{
	for (uint32_t c = 0; c < 3; c++) {
		const uint64_t at = DATA + 32 * c;

		GOOD(load(c, at, 32));
		GOOD(store(c, at, 32));
		GOOD(load(c, at + 4, 2));
		GOOD(store_value(c, at + 8, 7));
		GOOD(store(c, at + 8, 1));
	}
}

/* Bytes of one word that belong to several clusters. */
static void bytes_of_a_word(void **state)
{
	for (uint32_t round = 0; round < 3; round++)
		for (uint32_t c = 0; c < 4; c++) {
			GOOD(load(c, DATA + c, 1));
			GOOD(store(c, DATA + c, 1));
		}
	BAD(load(2, DATA + 3, 1), "cluster 3 writes it");
	BAD(store(1, DATA, 4), "other clusters read it");
	/* Read by one, then by another; each writes what it has read. */
	GOOD(load(0, DATA + 4, 2));
	GOOD(load(1, DATA + 6, 2));
	GOOD(store(0, DATA + 4, 2));
	GOOD(store(1, DATA + 6, 2));
	BAD(load(2, DATA + 4, 2), "cluster 0 writes it");
}

static void equal_values(void **state)
{
	GOOD(store_value(0, DATA, 1));
	BAD(store_value(1, DATA, 1), "cluster 0 writes the same value to it");
	BAD(store_value(2, DATA, 2), "cluster 1 writes it");
	/* A part, or bytes that are not known. */
	GOOD(store_value(0, DATA + 4, 0));
	BAD(store(1, DATA + 4, 4), "cluster 0 writes it");
	/* A reader matters more. */
	GOOD(store_value(0, DATA + 8, 3));
	GOOD(load(0, DATA + 8, 4));
	BAD(store_value(1, DATA + 8, 3), "cluster 0 reads it");
}

/* All lanes, each the word after that of the lane before; value: by lane, or NULL. */
static bool row_of(struct emu_races *r, uint32_t cluster, bool is_write, uint64_t at,
		   uint8_t (*value)[32], int *first, struct emu_error *e)
{
	uint64_t address[EMU_LANES];
	const struct emu_race a = {.cluster = cluster,
				   .is_write = is_write,
				   .lanes = UINT32_MAX,
				   .address = address,
				   .bytes = 4,
				   .value = value};

	for (uint32_t l = 0; l < EMU_LANES; l++)
		address[l] = at + (uint64_t)l * 4;
	return emu_races_access(r, &a, first, e);
}

static bool row(uint32_t cluster, bool is_write, uint64_t at)
{
	return row_of(races, cluster, is_write, at, NULL, &lane, &err);
}

#define ROW 128

/* Conflicts of rows with rows, and with a word of a row, either of which is first. */
static void rows(void **state)
{
	GOOD(row(1, true, DATA));
	GOOD(row(1, false, DATA));
	GOOD(row(1, true, DATA));
	BAD(row(2, false, DATA), "load of global memory 0x101000: cluster 1 writes it");
	assert_int_equal(lane, 0);
	GOOD(row(1, true, DATA + ROW));
	BAD(load(2, DATA + ROW + 76, 4),
	    "load of global memory 0x1010cc: cluster 1 writes it");
	GOOD(store(2, DATA + 2 * ROW + 124, 1));
	BAD(row(1, true, DATA + 2 * ROW),
	    "store to global memory 0x10117c: cluster 2 writes it");
	assert_int_equal(lane, 31);
	/* Not at the beginning of a row. */
	GOOD(row(3, true, DATA + 3 * ROW));
	BAD(row(4, true, DATA + 4 * ROW - 4),
	    "store to global memory 0x1011fc: cluster 3 writes it");
	assert_int_equal(lane, 0);
	for (uint32_t c = 0; c < 4; c++)
		GOOD(row(c, false, DATA + 6 * ROW));
	BAD(store(3, DATA + 6 * ROW + 4, 4),
	    "store to global memory 0x101304: other clusters read it");
	/* A bulk copy of many rows. */
	GOOD(store(1, DATA + 8 * ROW, 8 * ROW));
	GOOD(load(1, DATA + 8 * ROW - 4, 8 * ROW));
	GOOD(row(1, true, DATA + 9 * ROW));
	BAD(load(2, DATA + 12 * ROW + 64, 4 * ROW),
	    "load of global memory 0x101640: cluster 1 writes it");
}

/* The values of a row that is split are known. */
static void equal_rows(void **state)
{
	uint8_t value[EMU_LANES][32];

	for (uint32_t l = 0; l < EMU_LANES; l++)
		memset(value[l], (int)l, sizeof(value[l]));
	GOOD(row_of(races, 0, true, DATA, value, &lane, &err));
	BAD(store_value(1, DATA + 4, 0x01010101), "cluster 0 writes the same value");
	BAD(store_value(1, DATA + 8, 0x01010101), "cluster 0 writes it");
	GOOD(row_of(races, 0, true, DATA + ROW, value, &lane, &err));
	BAD(row_of(races, 1, true, DATA + ROW, value, &lane, &err),
	    "cluster 0 writes the same value");
	/* The last write counts, also of a value that is not known. */
	GOOD(row_of(races, 0, true, DATA + 2 * ROW, value, &lane, &err));
	GOOD(row(0, true, DATA + 2 * ROW));
	BAD(row_of(races, 1, true, DATA + 2 * ROW, value, &lane, &err),
	    "cluster 0 writes it");
}

static void many_words(void **state)
{
	const uint64_t step = (UINT64_C(1) << 30) + 4;

	for (uint64_t k = 0; k < 1000; k++)
		GOOD(store((uint32_t)k, BASE + k * step, 4));
	for (uint64_t k = 0; k < 1000; k++)
		BAD(load((uint32_t)k + 1, BASE + k * step, 4), "writes it");
}

#define THREADS 4
#define WORDS	20000

/* A cluster's own row, and one that all read. */
#define OWN_ROW(k, c) (DATA + (UINT64_C(3) << 24) + ROW * (THREADS * (k) + (c)))
#define COMMON_ROW(k) (DATA + (UINT64_C(4) << 24) + ROW * (k))

/* A cluster writes words of its own, bytes of shared ones, and reads common ones.  It
 * writes a row of its own, and reads one that all others split by other reads. */
static void *run_cluster(void *number)
{
	const uint32_t c = (uint32_t)(uintptr_t)number;
	uintptr_t failed = 0;

	for (uint64_t k = 0; k < WORDS; k++) {
		uint64_t address[3] = {DATA + 4 * (THREADS * k + c),
				       DATA + (1 << 24) + 4 * k + c,
				       DATA + (2 << 24) + 4 * k};
		struct emu_race a = {
		    .cluster = c, .is_write = true, .address = address};
		uint8_t value[EMU_LANES][32] = {{(uint8_t)k}};
		struct emu_error e;
		int l;

		a.lanes = 1;
		a.bytes = 4;
		failed += !emu_races_access(races, &a, &l, &e);
		a.lanes = 2;
		a.bytes = 1;
		failed += !emu_races_access(races, &a, &l, &e);
		a.is_write = false;
		a.lanes = 4;
		a.bytes = 4;
		failed += !emu_races_access(races, &a, &l, &e);
		failed += !row_of(races, c, true, OWN_ROW(k, c), value, &l, &e);
		address[2] = COMMON_ROW(k) + 8 * (uint64_t)c;
		if (c % 2)
			failed += !emu_races_access(races, &a, &l, &e);
		failed += !row_of(races, c, false, COMMON_ROW(k), NULL, &l, &e);
		if (k)
			failed +=
			    !row_of(races, c, false, OWN_ROW(k - 1, c), NULL, &l, &e);
	}
	return (void *)failed;
}

static void clusters_on_threads(void **state)
{
	pthread_t threads[THREADS];
	void *failed;

	emu_races_close(races);
	races = emu_races_open(BASE, BYTES, true);
	assert_non_null(races);
	for (uintptr_t c = 0; c < THREADS; c++)
		assert_int_equal(
		    pthread_create(&threads[c], NULL, run_cluster, (void *)c), 0);
	for (uint32_t c = 0; c < THREADS; c++) {
		assert_int_equal(pthread_join(threads[c], &failed), 0);
		assert_null(failed);
	}
	for (uint32_t k = 0; k < WORDS; k++)
		for (uint32_t c = 0; c < THREADS; c++) {
			BAD(load(THREADS, DATA + 4 * (THREADS * k + c), 4),
			    "writes it");
			BAD(load(THREADS, DATA + (1 << 24) + 4 * k + c, 1),
			    "writes it");
		}
	for (uint32_t k = 0; k < WORDS; k++)
		BAD(store(0, DATA + (2 << 24) + 4 * k, 4), "other clusters read it");
	for (uint64_t k = 0; k < WORDS; k++) {
		for (uint32_t c = 0; c < THREADS; c++)
			BAD(row(THREADS, false, OWN_ROW(k, c)), "writes it");
		BAD(row(0, true, COMMON_ROW(k)), "other clusters read it");
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(conflicts),
	    TEST(several_readers),
	    TEST(own_words),
	    TEST(bytes_of_a_word),
	    TEST(equal_values),
	    TEST(many_words),
	    TEST(rows),
	    TEST(equal_rows),
	    TEST(clusters_on_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
