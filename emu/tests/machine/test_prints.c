/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_prints.c - the buffer of what kernels print: its order, its size, and what is
 * dropped after a report.  runtime/prints.cu has the conversions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "machine/prints.h"

/* Checks what the buffer writes. */
static void must_write(struct emu_prints *p, const char *want)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *to = open_memstream(&text, &bytes);

	assert_non_null(to);
	assert_int_equal(emu_prints_write(p, to), want[0] != '\0');
	fclose(to);
	assert_string_equal(text, want);
	free(text);
}

static void test_order(void **state)
{
	struct emu_prints *p = emu_prints_open();

	assert_non_null(p);
	must_write(p, "");
	/* Clusters that run at the same time: in the clusters' order. */
	emu_prints_begin(p, true);
	emu_prints_add(p, 2, "c");
	emu_prints_add(p, 0, "a");
	emu_prints_add(p, 2, "d");
	emu_prints_add(p, 1, "b");
	/* A later grid in one schedule: in the order of time. */
	emu_prints_begin(p, false);
	emu_prints_add(p, 9, "e");
	emu_prints_add(p, 3, "f");
	must_write(p, "abcdef");
	must_write(p, "");
	emu_prints_close(p);
	emu_prints_close(NULL);
	emu_prints_begin(NULL, true);
	emu_prints_add(NULL, 0, "nobody reads");
	assert_false(emu_prints_write(NULL, stdout));
}

static void test_size(void **state)
{
	struct emu_prints *p = emu_prints_open();
	char want[101] = "", one[16];

	assert_non_null(p);
	assert_int_equal(emu_prints_size(p), 1 << 20);
	assert_true(emu_prints_resize(p, 100));
	/* Printed from the last cluster to the first: the last ones stay. */
	emu_prints_begin(p, true);
	for (uint32_t k = 1000; k-- > 0;) {
		snprintf(one, sizeof(one), "%04u\n", k);
		emu_prints_add(p, k, one);
	}
	for (uint32_t k = 980; k < 1000; k++)
		snprintf(want + strlen(want), sizeof(want) - strlen(want), "%04u\n", k);
	must_write(p, want);
	assert_false(emu_prints_resize(p, 200));
	assert_int_equal(emu_prints_size(p), 100);
	/* A text that is longer than all of the buffer. */
	memset(want, 'x', 100);
	emu_prints_add(p, 0, want);
	emu_prints_add(p, 1, "y");
	must_write(p, "y");
	emu_prints_close(p);
}

static void test_cut(void **state)
{
	struct emu_prints *p = emu_prints_open();

	assert_non_null(p);
	emu_prints_begin(p, true);
	emu_prints_add(p, 7, "grid 1; ");
	emu_prints_begin(p, true);
	emu_prints_add(p, 5, "behind");
	emu_prints_add(p, 3, "faulty; ");
	emu_prints_add(p, 0, "before; ");
	emu_prints_cut(p, 3);
	must_write(p, "grid 1; before; faulty; ");
	emu_prints_cut(NULL, 0);
	emu_prints_close(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_order),
	    cmocka_unit_test(test_size),
	    cmocka_unit_test(test_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
