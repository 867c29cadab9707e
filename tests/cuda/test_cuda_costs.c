/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_costs.c - the costs of a GPU on the fake driver: the built-in ones, and
 * those that are set, read and refused.  tests/cli/test_tune.py tests the file of
 * costs.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/common/arch.h"
#include "backend/cuda/common/costs.h"
#include "common/unit.h"
#include "fake_bed.h"
#include "nibblas_tune.h"

struct bed {
	struct fake_cuda *fake;
	struct nib_device *device;
	struct nib_costs costs;
	struct nib_error err;
};

static void begin(struct bed *bed)
{
	memset(bed, 0, sizeof(*bed));
	bed->fake = fake_open(FAKE_CUDA);
}

static void close_device(struct bed *bed)
{
	nib_device_close(bed->device);
	bed->device = NULL;
}

static void end(struct bed *bed)
{
	close_device(bed);
	fake_check_clean(bed->fake);
}

static void open_device(struct bed *bed)
{
	close_device(bed);
	bed->costs.struct_bytes = sizeof(bed->costs);
	if (nib_device_open("cuda", NULL, &bed->device, &bed->err) ||
	    nib_device_get_costs(bed->device, &bed->costs, &bed->err))
		fail_msg("%s", bed->err.message);
}

static void check_built_in(const struct bed *bed)
{
	const struct nib_costs *c = &bed->costs;

	assert_int_equal(c->revision, NIB_COSTS_REVISION);
	assert_int_equal(c->sizes, NIB_TILE_SIZES);
	for (int i = 0; i < c->sizes; i++) {
		assert_int_equal(c->tile_rows[i], nib_tile_size(i));
		assert_int_equal(c->step_cycles[i], cuda_sm90.costs->step[i]);
	}
	assert_int_equal(c->tile_cycles, cuda_sm90.costs->tile);
	assert_int_equal(c->split_cycles, cuda_sm90.costs->split);
}

/* ---- tests --------------------------------------------------------------- */

static void built_in(void)
{
	struct bed bed;

	begin(&bed);
	open_device(&bed);
	check_built_in(&bed);
	assert_int_equal(bed.costs.tile_cols, 256);
	assert_int_equal(bed.costs.tiles_at_once, 66);
	end(&bed);
}

static void set_and_read_again(void)
{
	struct nib_costs costs;
	struct bed bed;

	begin(&bed);
	open_device(&bed);
	costs = bed.costs;
	for (int i = 0; i < costs.sizes; i++)
		costs.step_cycles[i] = 1000 + i;
	costs.tile_cycles = 1;
	costs.split_cycles = NIB_COSTS_MAX;
	assert_ok(nib_device_set_costs(bed.device, &costs, &bed.err));
	nib_device_get_costs(bed.device, &bed.costs, NULL);
	assert_memory_equal(&bed.costs, &costs, sizeof(costs));
	assert_ok(nib_device_set_costs(bed.device, NULL, NULL));
	nib_device_get_costs(bed.device, &bed.costs, NULL);
	check_built_in(&bed);
	end(&bed);
}

static void put_numbers(FILE *file, const char *key, bool are_rows)
{
	fprintf(file, "\"%s\": [", key);
	for (int i = 0; i < NIB_TILE_SIZES; i++)
		fprintf(file, "%s%d", i ? ", " : "",
			are_rows ? nib_tile_size(i) : 1000 + i);
	fputs("], ", file);
}

/* The file of nib tune, whole and of this GPU, is nothing to the library. */
static void no_file_is_read(void)
{
	char path[] = "/tmp/nib-costs-XXXXXX";
	const int descriptor = mkstemp(path);
	struct bed bed;
	FILE *file;

	assert_true(descriptor >= 0);
	file = fdopen(descriptor, "w");
	fprintf(file,
		"{\"device\": \"NVIDIA Fake 0\", \"multiprocessors\": 132, "
		"\"version\": \"%s\", \"revision\": %d, ",
		nib_version(), NIB_COSTS_REVISION);
	put_numbers(file, "tile_rows", true);
	put_numbers(file, "step_cycles", false);
	fputs("\"tile_cycles\": 7, \"split_cycles\": 7}", file);
	fclose(file);
	begin(&bed);
	assert_int_equal(setenv("NIB_TUNING", path, 1), 0);
	open_device(&bed);
	check_built_in(&bed);
	end(&bed);
	remove(path);
}

/*
 * A plan's cut follows the costs: one tile of 256 rows of A, or sixteen of 16.
 */
static void plans_follow(void)
{
	struct nib_problem p = {
	    .a = {.rows = 256, .k = 4096},
	    .b = {.rows = 66 * 256, .k = 4096},
	    .c = {.dtype = NIB_DTYPE_BF16, .rows = 256, .cols = 66 * 256},
	};
	struct nib_plan *plan;
	struct bed bed;

	begin(&bed);
	open_device(&bed);
	for (int i = 0; i < bed.costs.sizes; i += bed.costs.sizes - 1) {
		for (int j = 0; j < bed.costs.sizes; j++)
			bed.costs.step_cycles[j] = i == j ? 1 : NIB_COSTS_MAX;
		assert_ok(nib_device_set_costs(bed.device, &bed.costs, NULL));
		assert_ok_err(nib_plan_create(bed.device, NIB_OP_GEMM, &p, 1, NULL,
					      &plan, &bed.err),
			      &bed.err);
		assert_int_equal(test_plan_info(plan).tasks, i ? 66 : 16 * 66);
		nib_plan_free(plan);
	}
	end(&bed);
}

static void refuse(struct bed *bed, const struct nib_costs *costs, const char *says)
{
	assert_refused(nib_device_set_costs(bed->device, costs, &bed->err),
		       NIB_STATUS_BAD_ARGUMENT, &bed->err, says);
	nib_device_get_costs(bed->device, &bed->costs, NULL);
	check_built_in(bed);
}

static void refused(void)
{
	struct nib_costs costs;
	struct nib_device *cpu;
	struct bed bed;

	begin(&bed);
	open_device(&bed);
	costs = bed.costs;
	costs.step_cycles[3] = 0;
	refuse(&bed, &costs, "costs.step_cycles[3] = 0");
	costs = bed.costs;
	costs.tile_cycles = NIB_COSTS_MAX + 1;
	refuse(&bed, &costs, "costs.tile_cycles = 1000001");
	costs = bed.costs;
	costs.split_cycles = -1;
	refuse(&bed, &costs, "costs.split_cycles = -1");
	costs = bed.costs;
	costs.sizes--;
	refuse(&bed, &costs, "costs.sizes = 11");
	costs = bed.costs;
	costs.tile_rows[0] = 8;
	refuse(&bed, &costs, "costs.tile_rows[0] = 8");
	costs = bed.costs;
	costs.revision = 0;
	refuse(&bed, &costs, "costs.revision = 0");
	assert_ok(nib_device_open("cpu", NULL, &cpu, NULL));
	assert_int_equal(nib_device_get_costs(cpu, &costs, NULL),
			 NIB_STATUS_UNSUPPORTED);
	assert_int_equal(nib_device_set_costs(cpu, NULL, NULL), NIB_STATUS_UNSUPPORTED);
	nib_device_close(cpu);
	end(&bed);
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"built_in", built_in},
	    {"set_and_read_again", set_and_read_again},
	    {"no_file_is_read", no_file_is_read},
	    {"plans_follow", plans_follow},
	    {"refused", refused},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
