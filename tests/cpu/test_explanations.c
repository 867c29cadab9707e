/* SPDX-License-Identifier: Apache-2.0 */
/* test_explanations.c - what plans of the CPU backend say of themselves. */
#include <stdio.h>
#include <string.h>

#include "common/problem.h"
#include "common/unit.h"

#define FEW "few rows: weights are decoded in registers, memory is the limit"
#define SOME                                                                           \
	"weights of products with few rows are decoded in registers, others "          \
	"expanded once into the cache"
#define MANY "weights are expanded once into the cache and used for all rows"
#define ONE  "the definition, one product at a time"
#define MOE                                                                            \
	"experts with few rows decode weights in registers, others expand "            \
	"them once into the cache"
#define UNPACKED "unpacked weights, reordered in every run (nib_pack() saves that)"

/* Rows of A up to which weights are decoded in registers. */
static const int64_t few[TEST_ISAS] = {0, 4, 4, 24, 24, 8, 4, 4, 4, 4};

static struct rng rng = {5};

/* A group of products with m[0], m[1], ... rows of A, until 0. */
static struct job *group(enum nib_op op, const int64_t *m)
{
	struct job *job = job_new(op);

	for (; *m; m++) {
		const struct job_spec spec = {.op = op, .m = *m, .n = 20, .k = 32};

		job_add(job, &rng, &spec);
	}
	return job;
}

static void expect(struct job *job, const char *isa, int threads,
		   enum job_packing packing, const char *want)
{
	const struct job_how how = {.device = test_device(isa, threads),
				    .packing = packing};
	struct nib_plan *plan;

	if (how.device) {
		job_pack(job, &how);
		plan = job_plan(job, how.device, false);
		assert_string_equal(test_plan_info(plan).explanation, want);
		nib_plan_free(plan);
		job_unpack(job);
		nib_device_close(how.device);
	}
	job_free(job);
}

static const char *text(const char *begin, const char *isa, const char *end)
{
	static char all[512];

	snprintf(all, sizeof(all), "%s on cpu-%s, %s", begin, isa, end);
	return all;
}

/* A sentence about unpacked weights and more than a few rows. */
static const char *of_many(const char *isa, const char *begin)
{
	static char all[400];

	snprintf(all, sizeof(all), "%s; " UNPACKED "%s", begin,
		 test_has_own_order(isa) ? "; by tdpbf16ps" : "");
	return all;
}

static void rows_of_a(void **state)
{
	for (int i = 1; i < TEST_ISAS; i++) {
		const char *isa = test_isas[i];
		const int64_t f = few[i];

		expect(group(NIB_OP_GEMM, (int64_t[]){f, 0}), isa, 1, JOB_VIEWS,
		       text("gemm", isa, "1 thread: " FEW "; " UNPACKED));
		expect(group(NIB_OP_GEMM, (int64_t[]){f + 1, 0}), isa, 2, JOB_VIEWS,
		       text("gemm", isa, of_many(isa, "2 threads: " MANY)));
		expect(group(NIB_OP_GEMM, (int64_t[]){f, 1, 0}), isa, 2, JOB_VIEWS,
		       text("group gemm", isa, "2 threads: " FEW "; " UNPACKED));
		expect(group(NIB_OP_GEMM, (int64_t[]){f + 1, f, 0}), isa, 2, JOB_VIEWS,
		       text("group gemm", isa, of_many(isa, "2 threads: " SOME)));
		expect(group(NIB_OP_GEMM, (int64_t[]){f + 9, f + 1, 0}), isa, 2,
		       JOB_VIEWS,
		       text("group gemm", isa, of_many(isa, "2 threads: " MANY)));
	}
	expect(group(NIB_OP_GEMM, (int64_t[]){9, 0}), "scalar", 3, JOB_VIEWS,
	       text("gemm", "scalar", "3 threads: " ONE "; " UNPACKED));
}

static void packings(void **state)
{
	static const struct {
		enum job_packing packing;
		const char *says;
	} cases[] = {
	    {JOB_VIEWS, "1 thread: " ONE "; " UNPACKED},
	    {JOB_PACKED, "1 thread: " ONE "; packed weights"},
	    {JOB_MIXED, "1 thread: " ONE "; some weights packed"},
	};

	for (size_t i = 0; i < 3; i++) {
		expect(group(NIB_OP_DUAL_GEMM, (int64_t[]){9, 0}), "scalar", 1,
		       cases[i].packing, text("dual gemm", "scalar", cases[i].says));
		expect(group(NIB_OP_GEMM, (int64_t[]){9, 8, 0}), "scalar", 1,
		       cases[i].packing, text("group gemm", "scalar", cases[i].says));
	}
}

static void experts(void **state)
{
	static const int64_t rows[] = {3, 0, 40};
	const struct job_spec spec = {.op = NIB_OP_GEMM, .n = 20, .k = 32};

	for (int i = 0; i < TEST_ISAS; i++)
		expect(job_of_moe(&rng, &spec, rows, 3, 0, false), test_isas[i], 1,
		       JOB_PACKED,
		       text("expert gemm", test_isas[i],
			    test_has_own_order(test_isas[i])
				? "1 thread: " MOE "; packed weights; by tdpbf16ps"
			    : i ? "1 thread: " MOE "; packed weights"
				: "1 thread: " ONE "; packed weights"));
}

/* The longest sentence is not cut. */
static void activations_of_8_bits(void **state)
{
	static const int64_t rows[] = {3, 0, 40};
	const struct job_spec spec = {.op = NIB_OP_DUAL_GEMM,
				      .n = 20,
				      .k = 32,
				      .activations = NIB_ACTIVATIONS_INT8,
				      .x_dtype = NIB_DTYPE_BF16};

	expect(job_of_moe(&rng, &spec, rows, 3, 0, false), "avx512bw", 128, JOB_VIEWS,
	       text("expert dual gemm", "avx512bw",
		    "128 threads: " MOE "; " UNPACKED
		    "; activations rounded to 8 bits"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(rows_of_a),
	    cmocka_unit_test(packings),
	    cmocka_unit_test(experts),
	    cmocka_unit_test(activations_of_8_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
