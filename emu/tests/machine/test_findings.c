/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_findings.c - reports after which a launch continues: which do, that they are
 * the same with any number of threads, and the values that NIBEMU_WAIVE may have.
 */
#include <stdlib.h>
#include <string.h>

#include "common/run.h"
#include "common/unit.h"
#include "machine/findings.h"

#define CTAS 6

/* A lane reads what its neighbour stores, and a word that was never written.  CTA 0
 * stores the result. */
static const char *const body = "mov.u32 %r1, dynamic; mad.lo.u32 %r2, %lane, 4, %r1;\n"
				"xor.b32 %r5, %lane, 1; mad.lo.u32 %r5, %r5, 4, %r1;\n"
				"st.shared.u32 [%r2], %lane;\n"
				"ld.shared.u32 %r3, [%r5];\n"
				"ld.shared.u32 %r4, [%r2+256];\n"
				"mul.wide.u32 %d1, %lane, 4; add.s64 %d1, %d1, %out;\n"
				"mov.u32 %r6, %ctaid.x; setp.eq.u32 %p2, %r6, 0;\n"
				"@%p2 st.global.u32 [%d1], %r3;\n";
static uint32_t out[32];

static struct emu_job job_of(struct emu_findings *f, uint32_t threads)
{
	return (struct emu_job){.ptx = emu_module_text(body),
				.out = out,
				.out_bytes = sizeof(out),
				.grid = CTAS,
				.block = 32,
				.shared_bytes = 512,
				.threads = threads,
				.findings = f};
}

static struct emu_findings *open_for(const char *waive, bool continues)
{
	struct emu_error err = {{0}};
	struct emu_findings *f = emu_findings_open(waive, continues, &err);

	if (!f)
		fail_msg("%s", err.text);
	return f;
}

static void test_all_are_collected(void **state)
{
	char first[2][1024];

	for (uint32_t threads = 1; threads <= 4; threads++) {
		struct emu_findings *f = open_for(NULL, true);
		struct emu_job job = job_of(f, threads);
		const struct emu_finding *list;
		struct emu_error err = {{0}};

		if (!emu_run_job(&job, &err))
			fail_msg("%s", err.text);
		for (uint32_t i = 0; i < 32; i++)
			assert_int_equal(out[i], i ^ 1);
		assert_int_equal(emu_findings_list(f, &list), 2);
		assert_string_equal(list[0].rule->name, "lane-order");
		assert_string_equal(list[1].rule->name, "never-written");
		for (size_t i = 0; i < 2; i++) {
			assert_string_equal(list[i].kernel, "k");
			assert_int_equal(list[i].count, 32 * CTAS);
			assert_int_equal(list[i].cluster, 0);
			assert_false(list[i].is_waived);
			assert_non_null(strstr(list[i].report, "cluster 0"));
			if (threads == 1)
				strcpy(first[i], list[i].report);
			assert_string_equal(list[i].report, first[i]);
		}
		emu_findings_clear(f);
		assert_int_equal(emu_findings_list(f, &list), 0);
		emu_findings_close(f);
	}
}

static void test_waivers(void **state)
{
	static const struct {
		const char *waive, *says; /* NULL: the launch goes on */
	} cases[] = {
	    {"lane-order,never-written", NULL},
	    {"lane-order:k,never-written:k", NULL},
	    {"lane-order", "never written"},
	    {"never-written", "of the same warp"},
	    {"lane-order,never-written:other", "never written"},
	    {"proxy-fence", "of the same warp"},
	    {"", "of the same warp"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct emu_findings *f = open_for(cases[i].waive, false);
		struct emu_job job = job_of(f, 1);
		const struct emu_finding *list;
		struct emu_error err = {{0}};
		const bool is_good = emu_run_job(&job, &err);
		const size_t n = emu_findings_list(f, &list);

		assert_int_equal(is_good, !cases[i].says);
		if (!is_good && !strstr(err.text, cases[i].says))
			fail_msg("%s: %s", cases[i].waive, err.text);
		for (size_t k = 0; k < n; k++)
			assert_true(list[k].is_waived);
		emu_findings_close(f);
	}
}

static void test_wrong_waivers(void **state)
{
	static const char *const cases[][2] = {
	    {"bogus",
	     "bogus: no rule has this name; these can be waived (refill-fence, "},
	    {"lane-order,orde", "orde: no rule has this name"},
	    {":k", "no rule has this name"},
	    {"deadlock", "deadlock: a launch cannot go on after it"},
	    {"address:k", "address: a launch cannot go on"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct emu_error err = {{0}};

		assert_null(emu_findings_open(cases[i][0], false, &err));
		if (!strstr(err.text, cases[i][1]) || !strstr(err.text, "proxy-fence"))
			fail_msg("%s: %s", cases[i][0], err.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_all_are_collected),
	    cmocka_unit_test(test_waivers),
	    cmocka_unit_test(test_wrong_waivers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
