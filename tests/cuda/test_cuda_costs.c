/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_costs.c - the costs of a GPU on the fake driver: built in, set,
 * saved, read when a device is opened; files that are wrong, and why.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/cuda/costs.h"
#include "fake_bed.h"
#include "nibblas.h"

/* Between them is the version. */
#define NAME_BEGIN "tune-NVIDIA-Fake-0-132-"
#define NAME_END   ".json"

struct bed {
	struct fake_cuda *fake;
	char folder[64];
	char path[256]; /* of the file that the environment leads to */
	struct nib_device *device;
	struct nib_costs costs;
	struct nib_error err;
};

static void begin(struct bed *bed)
{
	memset(bed, 0, sizeof(*bed));
	bed->fake = fake_open(FAKE_CUDA);
	snprintf(bed->folder, sizeof(bed->folder), "/tmp/nib-costs-XXXXXX");
	assert_non_null(mkdtemp(bed->folder));
	snprintf(bed->path, sizeof(bed->path),
		 "%s/nibblas/" NAME_BEGIN "%s" NAME_END, bed->folder,
		 nib_version());
	assert_int_equal(setenv("XDG_CACHE_HOME", bed->folder, 1), 0);
	assert_int_equal(unsetenv("NIB_TUNING"), 0);
}

static void close_device(struct bed *bed)
{
	nib_device_close(bed->device);
	bed->device = NULL;
}

static void end(struct bed *bed)
{
	char path[256];

	close_device(bed);
	unlink(bed->path);
	snprintf(path, sizeof(path), "%s/nibblas", bed->folder);
	rmdir(path);
	/* Nothing else was left there. */
	assert_int_equal(rmdir(bed->folder), 0);
	assert_int_equal(bed->fake->outside, 0);
	assert_int_equal(bed->fake->depth, 0);
}

static void open_device(struct bed *bed)
{
	close_device(bed);
	bed->costs.struct_bytes = sizeof(bed->costs);
	if (nib_device_open("cuda", NULL, &bed->device, &bed->err) ||
	    nib_device_get_costs(bed->device, &bed->costs, &bed->err))
		fail_msg("%s", bed->err.message);
}

static void check_built_in(const struct bed *bed, const char *reason)
{
	const struct nib_costs *c = &bed->costs;

	assert_false(c->is_from_file);
	if (!strstr(c->reason, reason))
		fail_msg("'%s' lacks '%s'", c->reason, reason);
	assert_int_equal(c->sizes, NIB_TILE_SIZES);
	for (int i = 0; i < c->sizes; i++) {
		assert_int_equal(c->tile_rows[i], nib_tile_size(i));
		assert_int_equal(c->step_cycles[i], nib_cuda_costs.step[i]);
	}
	assert_int_equal(c->tile_cycles, nib_cuda_costs.tile);
	assert_int_equal(c->split_cycles, nib_cuda_costs.split);
}

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* ---- tests --------------------------------------------------------------- */

static void built_in(void)
{
	struct bed bed;

	begin(&bed);
	open_device(&bed);
	check_built_in(&bed, "there is no such file");
	assert_string_equal(bed.costs.path, bed.path);
	assert_int_equal(bed.costs.tile_cols, 256);
	assert_int_equal(bed.costs.tiles_at_once, 66);
	end(&bed);
}

static void saved_and_read_again(void)
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
	assert_int_equal(nib_device_set_costs(bed.device, &costs, &bed.err),
			 NIB_OK);
	assert_int_equal(access(bed.path, F_OK), -1);
	if (nib_device_save_costs(bed.device, &bed.err))
		fail_msg("%s", bed.err.message);
	for (int i = 0; i < 2; i++) {
		open_device(&bed);
		assert_true(bed.costs.is_from_file);
		assert_string_equal(bed.costs.reason, "");
		assert_memory_equal(bed.costs.step_cycles, costs.step_cycles,
				    sizeof(costs.step_cycles));
		assert_int_equal(bed.costs.tile_cycles, 1);
		assert_int_equal(bed.costs.split_cycles, NIB_COSTS_MAX);
		/* Over what is there. */
		assert_int_equal(nib_device_save_costs(bed.device, NULL),
				 NIB_OK);
	}
	assert_int_equal(nib_device_set_costs(bed.device, NULL, NULL), NIB_OK);
	nib_device_get_costs(bed.device, &bed.costs, NULL);
	check_built_in(&bed, "they were set");
	end(&bed);
}

/*
 * A plan's cut follows the costs: one tile of 256 rows of A, or sixteen of 16.
 */
static void plans_follow(void)
{
	struct nib_problem p = {
	    .a = {.rows = 256, .k = 4096},
	    .b = {.rows = 66 * 256, .k = 4096},
	    .c = {.dtype = NIB_BF16, .rows = 256, .cols = 66 * 256},
	};
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	struct nib_plan *plan;
	struct bed bed;

	begin(&bed);
	open_device(&bed);
	for (int i = 0; i < bed.costs.sizes; i += bed.costs.sizes - 1) {
		for (int j = 0; j < bed.costs.sizes; j++)
			bed.costs.step_cycles[j] = i == j ? 1 : NIB_COSTS_MAX;
		assert_int_equal(
		    nib_device_set_costs(bed.device, &bed.costs, NULL), NIB_OK);
		if (nib_plan_create(bed.device, NIB_GEMM, &p, 1, NULL, &plan,
				    &bed.err))
			fail_msg("%s", bed.err.message);
		assert_int_equal(nib_plan_get_info(plan, &info, NULL), NIB_OK);
		assert_int_equal(info.tasks, i ? 66 : 16 * 66);
		nib_plan_free(plan);
	}
	end(&bed);
}

/* What nib_device_get_costs() gave, looked at whenever a folder is made. */
static const char *watched;
static int folders, cut;

int mkdir(const char *path, mode_t mode)
{
	if (watched) {
		folders++;
		cut += strlen(watched) < strlen(path) ||
		       strcmp(watched + strlen(watched) - 5, ".json") != 0;
	}
	return mkdirat(AT_FDCWD, path, mode);
}

/* Another thread may read it then. */
static void the_path_stays_whole(void)
{
	struct bed bed;

	begin(&bed);
	open_device(&bed);
	watched = bed.costs.path;
	assert_string_equal(watched, bed.path);
	assert_int_equal(nib_device_save_costs(bed.device, &bed.err), NIB_OK);
	watched = NULL;
	assert_int_equal(folders, 3);
	assert_int_equal(cut, 0);
	end(&bed);
}

static void cannot_save(struct bed *bed, const char *why)
{
	check_built_in(bed, why);
	assert_string_equal(bed->costs.path, "");
	/* It says so whatever was set since. */
	assert_int_equal(nib_device_set_costs(bed->device, NULL, &bed->err),
			 NIB_OK);
	assert_int_equal(nib_device_save_costs(bed->device, &bed->err),
			 NIB_UNSUPPORTED);
	if (!strstr(bed->err.message, why))
		fail_msg("'%s' lacks '%s'", bed->err.message, why);
}

static void where_files_are(void)
{
	struct bed bed;
	char path[256], long_path[2001];

	begin(&bed);
	setenv("NIB_TUNING", "off", 1);
	open_device(&bed);
	cannot_save(&bed, "NIB_TUNING is 'off'");
	memset(long_path, 'x', sizeof(long_path) - 1);
	long_path[sizeof(long_path) - 1] = '\0';
	setenv("NIB_TUNING", long_path, 1);
	open_device(&bed);
	cannot_save(&bed, "NIB_TUNING has 2000 bytes, at most 1023");
	snprintf(path, sizeof(path), "%s/mine.json", bed.folder);
	setenv("NIB_TUNING", path, 1);
	open_device(&bed);
	assert_string_equal(bed.costs.path, path);
	assert_int_equal(nib_device_save_costs(bed.device, &bed.err), NIB_OK);
	open_device(&bed);
	assert_true(bed.costs.is_from_file);
	unlink(path);
	/* An empty one is none; a cache folder must be absolute. */
	setenv("NIB_TUNING", "", 1);
	setenv("XDG_CACHE_HOME", "cache", 1);
	setenv("HOME", bed.folder, 1);
	open_device(&bed);
	snprintf(path, sizeof(path),
		 "%s/.cache/nibblas/" NAME_BEGIN "%s" NAME_END, bed.folder,
		 nib_version());
	assert_string_equal(bed.costs.path, path);
	unsetenv("HOME");
	unsetenv("XDG_CACHE_HOME");
	open_device(&bed);
	cannot_save(&bed, "neither XDG_CACHE_HOME nor HOME is an absolute");
	end(&bed);
}

/* What is wrong with a file, put in place of a part of a right one. */
static const struct {
	const char *part, *instead, *reason;
} wrongs[] = {
    {"{", "", "byte 2 of the file: expected '{'"},
    {"Fake 0", "Fake 1", "of another GPU"},
    {": 132", ": 131", "of another GPU"},
    {"version\": \"", "version\": \"9", "of another version"},
    {"revision\": 4", "revision\": 999999", "of another version"},
    {"[16, 32", "[32, 16", "of other tiles"},
    {"[16, 32, ", "[16, ", "expected ','"},
    {"256]", "256, 512]", "expected ',' or ']'"},
    {"365", "0", "a number is not in 1 to 1000000"},
    {"365", "1000001", "a number is not in 1 to 1000000"},
    {"365", "365.5", "expected"},
    {"365", "-365", "expected"},
    {"tile_cycles", "hue_cycles", "a key is unknown"},
    {"tile_cycles", "split_cycles", "a number is there twice"},
    {" \"tile_cycles\": 1500,\n", "", "lacks a cost"},
    {"}\n", "} x", "byte"},
    {"}\n", "", "expected ',' or '}'"},
};

static void wrong_files(void)
{
	char right[4096] = "", text[16384];
	struct bed bed;
	FILE *file;

	begin(&bed);
	open_device(&bed);
	assert_int_equal(nib_device_save_costs(bed.device, NULL), NIB_OK);
	file = fopen(bed.path, "r");
	assert_non_null(file);
	assert_true(fread(right, 1, sizeof(right) - 1, file) > 100);
	fclose(file);
	for (size_t i = 0; i < sizeof(wrongs) / sizeof(*wrongs); i++) {
		const char *part = strstr(right, wrongs[i].part);

		assert_non_null(part);
		snprintf(text, sizeof(text), "%.*s%s%s", (int)(part - right),
			 right, wrongs[i].instead,
			 part + strlen(wrongs[i].part));
		write_file(bed.path, text);
		open_device(&bed);
		check_built_in(&bed, wrongs[i].reason);
	}
	memset(text, ' ', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	write_file(bed.path, text);
	open_device(&bed);
	check_built_in(&bed, "over 4096 bytes");
	write_file(bed.path, right);
	open_device(&bed);
	assert_true(bed.costs.is_from_file);
	unlink(bed.path);
	assert_int_equal(mkdir(bed.path, 0700), 0);
	open_device(&bed);
	check_built_in(&bed, "cannot be read");
	assert_int_equal(nib_device_save_costs(bed.device, &bed.err), NIB_IO);
	assert_int_equal(rmdir(bed.path), 0);
	end(&bed);
}

static void refuse(struct bed *bed, const struct nib_costs *costs,
		   const char *says)
{
	assert_int_equal(nib_device_set_costs(bed->device, costs, &bed->err),
			 NIB_BAD_ARGUMENT);
	if (!strstr(bed->err.message, says))
		fail_msg("'%s' lacks '%s'", bed->err.message, says);
	nib_device_get_costs(bed->device, &bed->costs, NULL);
	check_built_in(bed, "no such file");
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
	assert_int_equal(nib_device_open("cpu", NULL, &cpu, NULL), NIB_OK);
	assert_int_equal(nib_device_get_costs(cpu, &costs, NULL),
			 NIB_UNSUPPORTED);
	assert_int_equal(nib_device_set_costs(cpu, NULL, NULL),
			 NIB_UNSUPPORTED);
	assert_int_equal(nib_device_save_costs(cpu, NULL), NIB_UNSUPPORTED);
	nib_device_close(cpu);
	end(&bed);
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"built_in", built_in},
	    {"saved_and_read_again", saved_and_read_again},
	    {"plans_follow", plans_follow},
	    {"where_files_are", where_files_are},
	    {"the_path_stays_whole", the_path_stays_whole},
	    {"wrong_files", wrong_files},
	    {"refused", refused},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
