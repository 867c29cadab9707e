/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_pack.c - packed weights on a GPU, on the fake driver: whether they share
 * the caller's codes, as nib_pack_shares() predicts, and on which stream they are read.
 */
#include <stdbool.h>

#include "common/unit.h"
#include "fake_bed.h"
#include "nibblas.h"

#define ROWS  24
#define BYTES 8192

static const struct sharing {
	int64_t k, batch, row_more, batch_more, offset; /* bytes */
	bool shares;
} cases[] = {
    {64, 1, 0, 0, 0, true},   {96, 1, 0, 0, 128, true},
    {64, 3, 0, 0, 0, true},   {64, 3, 0, 128, 0, true},
    {48, 1, 0, 0, 0, false},  {64, 1, 0, 0, 64, false},
    {64, 1, 16, 0, 0, false}, {64, 3, 0, 64, 0, false},
    {64, 1, 0, 64, 0, true}, /* of one matrix nothing follows */
};

/* Bytes that are copied of codes and scales when they are packed. */
static size_t packed_bytes(struct nib_device *device, const struct nib_fp4 *b)
{
	struct nib_packed *packed;
	size_t bytes;

	assert_ok(nib_pack_shared(device, b, NULL, &packed, NULL));
	bytes = nib_packed_bytes(packed);
	nib_packed_free(packed);
	return bytes;
}

static void check(struct nib_device *device, const struct sharing *s, uint8_t *codes,
		  uint8_t *scales)
{
	const int64_t row = s->k / 2 + s->row_more;
	const struct nib_fp4 b = {
	    .codes = codes + s->offset,
	    .scales = scales,
	    .rows = ROWS,
	    .k = s->k,
	    .batch = s->batch,
	    .row_stride_bytes = row,
	    .batch_stride_bytes = ROWS * row + s->batch_more,
	};
	const size_t tiled = (size_t)s->batch *
			     nib_scales_bytes(NIB_SCALE_LAYOUT_TILED_128X4, ROWS, s->k);

	assert_int_equal(nib_pack_shares(device, &b) != 0, s->shares);
	assert_int_equal(packed_bytes(device, &b) == tiled, s->shares);
}

static void check_all(int capability)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_fp4 none = {.rows = ROWS, .k = 64};
	struct nib_device *device;
	void *codes, *scales;

	fake->capability[0] = capability;
	assert_ok(nib_device_open("cuda", NULL, &device, NULL));
	assert_ok(nib_device_alloc(device, BYTES, &codes, NULL));
	assert_ok(nib_device_alloc(device, BYTES, &scales, NULL));
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		check(device, &cases[i], codes, scales);
	/* Refused by nib_pack_shared(). */
	assert_int_equal(nib_pack_shares(device, &none), 0);
	nib_device_free(device, codes);
	nib_device_free(device, scales);
	nib_device_close(device);
	assert_int_equal(fake->allocations, 0);
	assert_int_equal(fake->depth, 0);
}

static void hopper(void)
{
	check_all(90);
}

static void blackwell(void)
{
	check_all(100);
}

/* The work goes to the stream of the options: a destroyed one makes it fail. */
static void streams(void)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	const struct nib_call_options options = {sizeof(options), fake};
	struct nib_fp4 b = {.rows = ROWS, .k = 64};
	struct nib_packed *packed, *other;
	struct nib_device *device;

	assert_ok(nib_device_open("cuda", NULL, &device, NULL));
	assert_ok(nib_device_alloc(device, BYTES, &b.codes, NULL));
	assert_ok(nib_device_alloc(device, BYTES, &b.scales, NULL));
	assert_ok(nib_pack(device, &b, &options, &packed, NULL));
	assert_ok(nib_packed_update(packed, &b, &options, NULL));
	assert_ok(nib_unpack(packed, &b, &options, NULL));
	assert_ok(nib_device_copy(device, b.codes, b.scales, 64, &options, NULL));
	fake->dead_stream = options.stream;
	assert_true(nib_pack(device, &b, &options, &other, NULL) != NIB_STATUS_OK);
	assert_true(nib_packed_update(packed, &b, &options, NULL) != NIB_STATUS_OK);
	assert_true(nib_unpack(packed, &b, &options, NULL) != NIB_STATUS_OK);
	assert_true(nib_device_copy(device, b.codes, b.scales, 64, &options, NULL) !=
		    NIB_STATUS_OK);
	assert_ok(nib_packed_update(packed, &b, NULL, NULL));
	nib_packed_free(packed);
	nib_device_free(device, b.codes);
	nib_device_free(device, b.scales);
	nib_device_close(device);
	assert_int_equal(fake->allocations, 0);
	assert_int_equal(fake->depth, 0);
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"hopper", hopper},
	    {"blackwell", blackwell},
	    {"streams", streams},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
