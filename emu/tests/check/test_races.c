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

/* A cluster writes words of its own, bytes of shared ones, and reads common ones. */
static void *run_cluster(void *number)
{
	const uint32_t c = (uint32_t)(uintptr_t)number;
	uintptr_t failed = 0;

	for (uint32_t k = 0; k < WORDS; k++) {
		uint64_t address[3] = {DATA + 4 * (THREADS * k + c),
				       DATA + (1 << 24) + 4 * k + c,
				       DATA + (2 << 24) + 4 * k};
		struct emu_race a = {
		    .cluster = c, .is_write = true, .address = address};
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
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(conflicts),	       TEST(several_readers), TEST(own_words),
	    TEST(bytes_of_a_word),     TEST(equal_values),    TEST(many_words),
	    TEST(clusters_on_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
