/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_probe.c - the launches of the probes of a GPU, on the fake driver, and the
 * arguments that are refused.
 */
#include <string.h>

#include "common/unit.h"
#include "fake_bed.h"
#include "nibblas_tune.h"

/* The fake GPU's SMs; one step of one CTA: two m64n256k64. */
#define SMS	  132
#define STEP_FLOP (2LL * 2 * 64 * 256 * 64)

struct bed {
	struct fake_cuda *fake;
	struct nib_device *device;
	struct nib_error err;
};

static void begin(struct bed *bed)
{
	memset(bed, 0, sizeof(*bed));
	bed->fake = fake_open(FAKE_CUDA);
	assert_ok(nib_device_open("cuda", NULL, &bed->device, &bed->err));
}

static void end(struct bed *bed)
{
	nib_device_close(bed->device);
	fake_check_clean(bed->fake);
}

/* Probes, and says what was launched and done. */
static int64_t probe(struct bed *bed, enum nib_probe what, const void *data,
		     int64_t amount, const char *kernel, unsigned blocks)
{
	const int launches = bed->fake->launches;
	int64_t done = -1;

	assert_ok_err(
	    nib_device_probe(bed->device, what, data, amount, &done, NULL, &bed->err),
	    &bed->err);
	assert_int_equal(bed->fake->launches, launches + 1);
	assert_string_equal(bed->fake->last_kernel, kernel);
	assert_int_equal(bed->fake->last.gridDimX, blocks);
	assert_int_equal(bed->fake->waits, 0);
	return done;
}

static void refuse(struct bed *bed, enum nib_probe what, const void *data,
		   int64_t amount, const char *says)
{
	const int launches = bed->fake->launches;
	int64_t done = -1;

	assert_refused(
	    nib_device_probe(bed->device, what, data, amount, &done, NULL, &bed->err),
	    NIB_STATUS_BAD_ARGUMENT, &bed->err, says);
	assert_int_equal(done, 0);
	assert_int_equal(bed->fake->launches, launches);
}

static void reads(void)
{
	struct bed bed;
	void *data;

	begin(&bed);
	assert_ok(nib_device_alloc(bed.device, 1 << 24, &data, NULL));
	/* 512 threads of 16 bytes each, at most two blocks an SM. */
	assert_int_equal(
	    probe(&bed, NIB_PROBE_READ, data, 16, "nib_probe_read_sm90", 1), 16);
	assert_int_equal(
	    probe(&bed, NIB_PROBE_READ, data, 8192, "nib_probe_read_sm90", 1), 8192);
	assert_int_equal(
	    probe(&bed, NIB_PROBE_READ, data, 8208, "nib_probe_read_sm90", 2), 8208);
	assert_int_equal(
	    probe(&bed, NIB_PROBE_READ, data, 1 << 24, "nib_probe_read_sm90", 2 * SMS),
	    1 << 24);
	assert_int_equal(bed.fake->last.blockDimX, 512);
	nib_device_free(bed.device, data);
	end(&bed);
}

static void multiplies_whole_steps(void)
{
	struct bed bed;

	begin(&bed);
	assert_int_equal(
	    probe(&bed, NIB_PROBE_MULTIPLY, NULL, 1, "nib_probe_multiply_sm90", SMS),
	    SMS * STEP_FLOP);
	assert_int_equal(probe(&bed, NIB_PROBE_MULTIPLY, NULL, 3 * SMS * STEP_FLOP,
			       "nib_probe_multiply_sm90", SMS),
			 3 * SMS * STEP_FLOP);
	assert_true(probe(&bed, NIB_PROBE_MULTIPLY, NULL, INT64_C(1) << 60,
			  "nib_probe_multiply_sm90", SMS) >= INT64_C(1) << 60);
	assert_int_equal(bed.fake->last.blockDimX, 256);
	end(&bed);
}

/* Four products of 128 x 256 x 64 a step. */
static void multiplies_on_blackwell(void)
{
	const int64_t step = 4LL * 2 * 128 * 256 * 64;
	struct bed bed = {.fake = fake_open(FAKE_CUDA)};

	bed.fake->capability[0] = 100;
	assert_ok(nib_device_open("cuda", NULL, &bed.device, &bed.err));
	assert_int_equal(probe(&bed, NIB_PROBE_MULTIPLY, NULL, SMS * step + 1,
			       "nib_probe_multiply_sm100", SMS),
			 2 * SMS * step);
	assert_int_equal(bed.fake->last.blockDimX, 128);
	end(&bed);
}

static void counts_cycles(void)
{
	struct bed bed;

	begin(&bed);
	assert_int_equal(
	    probe(&bed, NIB_PROBE_CYCLES, NULL, 12345, "nib_probe_cycles_sm90", 1),
	    12345);
	end(&bed);
}

static void nothing_to_do(void)
{
	struct bed bed;
	int64_t done = -1;

	begin(&bed);
	assert_ok(nib_device_probe(bed.device, NIB_PROBE_CYCLES, NULL, 0, &done, NULL,
				   &bed.err));
	assert_int_equal(done, 0);
	assert_int_equal(bed.fake->launches, 0);
	end(&bed);
}

static void refused(void)
{
	static _Alignas(16) unsigned char host[64];
	struct bed bed;
	void *data;

	begin(&bed);
	assert_ok(nib_device_alloc(bed.device, 4096, &data, NULL));
	refuse(&bed, (enum nib_probe)3, NULL, 16, "probe = 3");
	refuse(&bed, NIB_PROBE_READ, data, 24, "amount = 24");
	refuse(&bed, NIB_PROBE_READ, data, -16, "amount = -16");
	refuse(&bed, NIB_PROBE_MULTIPLY, NULL, INT64_MAX, "2^60");
	refuse(&bed, NIB_PROBE_READ, NULL, 16, "data = NULL");
	refuse(&bed, NIB_PROBE_READ, (char *)data + 8, 16, "multiple of 16");
	refuse(&bed, NIB_PROBE_READ, host, 16, "is host memory");
	refuse(&bed, NIB_PROBE_CYCLES, data, 16, "must be NULL");
	nib_device_free(bed.device, data);
	end(&bed);
}

static void failed_launch(void)
{
	struct bed bed;
	int64_t done = -1;

	begin(&bed);
	bed.fake->launch_result = CUDA_ERROR_LAUNCH_FAILED;
	assert_int_equal(nib_device_probe(bed.device, NIB_PROBE_CYCLES, NULL, 16, &done,
					  NULL, &bed.err),
			 NIB_STATUS_DEVICE_FAILED);
	assert_int_equal(done, 0);
	end(&bed);
}

static void cpu_has_none(void)
{
	struct nib_device *cpu;
	struct nib_error err;

	assert_ok(nib_device_open("cpu", NULL, &cpu, NULL));
	assert_int_equal(
	    nib_device_probe(cpu, NIB_PROBE_CYCLES, NULL, 16, NULL, NULL, &err),
	    NIB_STATUS_UNSUPPORTED);
	nib_device_close(cpu);
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"reads", reads},
	    {"multiplies_whole_steps", multiplies_whole_steps},
	    {"multiplies_on_blackwell", multiplies_on_blackwell},
	    {"counts_cycles", counts_cycles},
	    {"nothing_to_do", nothing_to_do},
	    {"refused", refused},
	    {"failed_launch", failed_launch},
	    {"cpu_has_none", cpu_has_none},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
