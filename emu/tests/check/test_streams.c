/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_streams.c - accesses by the work of streams, and which are reported; and what
 * events, waits of the host and the default stream order.
 */
#include <string.h>

#include "common/unit.h"
#include "common/verdict.h"
#include "driver/stream_order.h"

#define BASE UINT64_C(0x100000)
#define DATA (BASE + 512)

static struct emu_stream_order order;
static struct emu_error err;
static uint32_t one, two, apart;

static int setup(void **state)
{
	memset(&order, 0, sizeof(order));
	order.streams = emu_streams_open(BASE, UINT64_C(1) << 40);
	assert_non_null(order.streams);
	one = emu_stream_order_add(&order, false);
	two = emu_stream_order_add(&order, false);
	apart = emu_stream_order_add(&order, true);
	return 0;
}

static int teardown(void **state)
{
	emu_streams_close(order.streams);
	return 0;
}

/* Work of a stream with one access. */
static bool work(uint32_t stream, enum emu_stream_access access, uint64_t at,
		 uint64_t bytes)
{
	struct emu_stream_work w;

	emu_stream_order_begin(&order, stream, &w);
	return emu_stream_access(&w, access, at, bytes, &err);
}

static bool writes(uint32_t stream)
{
	return work(stream, EMU_STREAM_WRITE, DATA, 64);
}

static bool reads(uint32_t stream)
{
	return work(stream, EMU_STREAM_READ, DATA, 64);
}

static void unordered(void **state)
{
	GOOD(writes(one));
	GOOD(reads(one));
	BAD(reads(two),
	    "global memory 0x100200: operation 1 of created stream 1 writes it");
	BAD(writes(apart), "operation 2 of created stream 1 reads it");
	GOOD(work(one, EMU_STREAM_READ, DATA + 64, 4));
	BAD(work(two, EMU_STREAM_WRITE, DATA + 60, 8), "of created stream 3 writes it");
	BAD(work(apart, EMU_STREAM_WRITE, DATA + 64, 4),
	    "nothing orders the two streams");
}

static void bytes_and_readers(void **state)
{
	GOOD(work(one, EMU_STREAM_WRITE, DATA, 2));
	GOOD(work(two, EMU_STREAM_WRITE, DATA + 2, 2));
	GOOD(work(apart, EMU_STREAM_READ, DATA + 4, 4));
	GOOD(work(one, EMU_STREAM_READ, DATA + 4, 4));
	BAD(work(two, EMU_STREAM_WRITE, DATA + 4, 4), "reads it");
}

static void atomics(void **state)
{
	GOOD(work(one, EMU_STREAM_ATOMIC, DATA, 4));
	GOOD(work(two, EMU_STREAM_ATOMIC, DATA, 4));
	GOOD(work(one, EMU_STREAM_READ, DATA + 4, 4));
	BAD(work(two, EMU_STREAM_ATOMIC, DATA + 4, 4), "reads it");
}

static void events(void **state)
{
	uint32_t early[EMU_STREAMS] = {0}, late[EMU_STREAMS] = {0};

	emu_stream_order_record(&order, one, early);
	GOOD(writes(one));
	emu_stream_order_record(&order, one, late);
	emu_stream_order_wait(&order, two, early);
	BAD(reads(two), "writes it");
	emu_stream_order_wait(&order, apart, late);
	GOOD(reads(apart));
	/* Through a third stream. */
	emu_stream_order_record(&order, apart, late);
	emu_stream_order_wait(&order, two, late);
	GOOD(writes(two));
}

static void waits_of_the_host(void **state)
{
	uint32_t seen[EMU_STREAMS] = {0};

	GOOD(writes(one));
	emu_stream_order_host_stream(&order, two);
	BAD(reads(two), "writes it");
	emu_stream_order_host_stream(&order, one);
	GOOD(writes(two));
	emu_stream_order_record(&order, two, seen);
	emu_stream_order_host(&order, seen);
	GOOD(writes(apart));
	emu_stream_order_host_all(&order);
	GOOD(writes(one));
}

static void the_default_stream(void **state)
{
	GOOD(writes(one));
	GOOD(writes(0));
	GOOD(writes(two));
	BAD(writes(apart), "of created stream 2 writes it");
	BAD(writes(0), "of created stream 3 writes it");
}

/* The number is free again after the graph: another graph takes it. */
static void branches_of_graphs(void **state)
{
	const uint32_t branch = emu_stream_order_take(&order);
	uint32_t seen[EMU_STREAMS] = {0};
	struct emu_stream_work w;
	char title[60];

	GOOD(writes(one));
	emu_stream_order_node(&order, branch, seen, &w);
	BAD(emu_stream_access(&w, EMU_STREAM_WRITE, DATA, 64, &err),
	    "operation 1 of created stream 1 writes it, and nothing orders the two "
	    "streams or branches: no edge of a graph");
	BAD(reads(two), "operation 1 of branch 5 of a graph writes it");
	emu_stream_title(order.streams, branch, title, sizeof(title));
	assert_string_equal(title, "branch 5 of a graph");
	emu_stream_order_return(&order, branch);
	assert_int_equal(emu_stream_order_take(&order), branch);
}

static void memory_that_is_allocated_again(void **state)
{
	GOOD(writes(one));
	emu_streams_forget(order.streams, BASE, UINT64_C(1) << 30);
	GOOD(writes(two));
}

static void too_many(void **state)
{
	struct emu_stream_work w;
	uint32_t last = 0;

	assert_false(order.is_short);
	for (uint32_t k = 0; k < EMU_STREAMS; k++)
		last = emu_stream_order_add(&order, false);
	assert_true(order.is_short);
	emu_stream_order_begin(&order, last, &w);
	assert_null(w.streams);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(unordered),
	    TEST(bytes_and_readers),
	    TEST(atomics),
	    TEST(events),
	    TEST(waits_of_the_host),
	    TEST(the_default_stream),
	    TEST(too_many),
	    TEST(memory_that_is_allocated_again),
	    TEST(branches_of_graphs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
