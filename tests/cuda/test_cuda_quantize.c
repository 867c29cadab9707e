/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_quantize.c - conversions on a GPU, on the fake driver, whose kernels do
 * nothing: the launches, when they wait, and that they keep no memory.
 */
#include <stdalign.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/unit.h"
#include "fake_bed.h"
#include "nibblas.h"

#define ROWS 130
#define K    80

struct bed {
	struct fake_cuda *fake;
	struct nib_device *device;
	struct nib_dense x;
	struct nib_fp4 linear, tiled;
	float *global;
	void *blocks[8];
	int used;
	struct nib_error err;
};

static void *fresh(struct bed *bed, size_t bytes)
{
	void *memory = NULL;

	assert_ok(nib_device_alloc(bed->device, bytes, &memory, NULL));
	assert_true(bed->used < 8);
	bed->blocks[bed->used++] = memory;
	memset(memory, 0, bytes);
	return memory;
}

static struct nib_fp4 nvfp4(struct bed *bed, enum nib_scale_layout layout)
{
	return (struct nib_fp4){
	    .codes = fresh(bed, ROWS * K / 2),
	    .scales = fresh(bed, nib_scales_bytes(layout, ROWS, K)),
	    .rows = ROWS,
	    .k = K,
	    .scale_layout = layout,
	};
}

static void make_bed(struct bed *bed)
{
	memset(bed, 0, sizeof(*bed));
	bed->fake = fake_open(FAKE_CUDA);
	assert_ok(nib_device_open("cuda", NULL, &bed->device, NULL));
	bed->x = (struct nib_dense){.data = fresh(bed, ROWS * K * 2),
				    .dtype = NIB_DTYPE_FP16,
				    .rows = ROWS,
				    .cols = K};
	bed->linear = nvfp4(bed, NIB_SCALE_LAYOUT_LINEAR);
	bed->tiled = nvfp4(bed, NIB_SCALE_LAYOUT_TILED_128X4);
	bed->global = fresh(bed, sizeof(float));
}

/* Checks that a call leaves nothing: no memory, no context. */
static void free_bed(struct bed *bed)
{
	assert_int_equal(bed->fake->allocations, bed->used);
	for (int i = 0; i < bed->used; i++)
		nib_device_free(bed->device, bed->blocks[i]);
	nib_device_close(bed->device);
	fake_check_clean(bed->fake);
}

static void check_did(struct bed *bed, int launches, int waits, const char *kernel)
{
	assert_int_equal(bed->fake->launches, launches);
	assert_int_equal(bed->fake->waits, waits);
	if (launches)
		assert_string_equal(bed->fake->last_kernel, kernel);
	bed->fake->launches = bed->fake->waits = 0;
}

static enum nib_status quantize(struct bed *bed, float global, bool by_pointer,
				int saturate, float *used)
{
	const struct nib_quantize_options options = {
	    .struct_bytes = sizeof(options),
	    .global = global,
	    .saturate = saturate,
	    .stream = bed->fake->dead_stream ? (void *)bed->fake->dead_stream : NULL,
	    .global_pointer = by_pointer ? bed->global : NULL,
	};

	return nib_quantize(bed->device, &bed->x, &bed->tiled, &options, used,
			    &bed->err);
}

static void searches_scales(void)
{
	struct nib_quantize_options options = {
	    .struct_bytes = sizeof(options), .global = 0.5f, .saturate = 1};
	struct bed bed;
	float weights[K] = {0};

	make_bed(&bed);
	bed.fake->launches = bed.fake->waits = 0;
	for (int i = 1; i <= 2; i++) {
		options.scales = (enum nib_scales)i;
		options.column_weights = NULL;
		assert_ok(nib_quantize(bed.device, &bed.x, &bed.tiled, &options, NULL,
				       &bed.err));
		check_did(&bed, 1, 0, "nib_quantize_search_sm90");
		options.column_weights = weights;
		assert_int_equal(nib_quantize(bed.device, &bed.x, &bed.tiled, &options,
					      NULL, &bed.err),
				 NIB_STATUS_BAD_ARGUMENT);
		if (!strstr(bed.err.message, "options.column_weights = "))
			fail_msg("%s", bed.err.message);
		check_did(&bed, 0, 0, "");
	}
	free_bed(&bed);
}

static void waits_only_to_tell(void)
{
	struct bed bed;
	float used = -1;

	make_bed(&bed);
	bed.fake->launches = bed.fake->waits = 0;
	assert_ok(quantize(&bed, 0.5f, false, 1, NULL));
	check_did(&bed, 1, 0, "nib_quantize_sm90");
	/* A byte of scales, padding too, is a thread: 256 x 8 of them. */
	assert_int_equal(bed.fake->last.gridDimX, 256 * 8 / 256);
	assert_ok(quantize(&bed, 0, true, 1, NULL));
	check_did(&bed, 1, 0, "nib_quantize_sm90");
	assert_ok(quantize(&bed, 0, false, 1, NULL));
	check_did(&bed, 2, 0, "nib_quantize_sm90");
	assert_ok(quantize(&bed, 0.5f, false, 0, NULL));
	check_did(&bed, 1, 1, "nib_quantize_sm90");
	assert_ok(quantize(&bed, 0, false, 1, &used));
	check_did(&bed, 2, 1, "nib_quantize_sm90");
	assert_true(used == 1.0f); /* these kernels find only zeros */
	assert_ok(quantize(&bed, 0.5f, false, 1, &used));
	check_did(&bed, 1, 1, "nib_quantize_sm90");
	assert_true(used == 0.5f);
	free_bed(&bed);
}

static void other_conversions(void)
{
	struct nib_dequantize_options options = {sizeof(options), NULL, NULL};
	struct bed bed;
	int32_t *words, host[4];
	float amax = -1;

	make_bed(&bed);
	bed.fake->launches = bed.fake->waits = 0;
	assert_ok(nib_amax(bed.device, &bed.x, 0, NULL, &amax, &bed.err));
	check_did(&bed, 1, 1, "nib_amax_sm90");
	assert_true(amax == 0);
	assert_ok(nib_dequantize(bed.device, &bed.linear, 1, &bed.x, NULL, &bed.err));
	check_did(&bed, 1, 0, "nib_dequantize_sm90");
	options.global_pointer = bed.global;
	assert_ok(
	    nib_dequantize(bed.device, &bed.linear, 0, &bed.x, &options, &bed.err));
	check_did(&bed, 1, 0, "nib_dequantize_sm90");
	options.global_pointer = &amax;
	assert_refused(
	    nib_dequantize(bed.device, &bed.linear, 0, &bed.x, &options, &bed.err),
	    NIB_STATUS_BAD_ARGUMENT, &bed.err, "options.global_pointer");
	check_did(&bed, 0, 0, NULL);
	assert_ok(
	    nib_convert_scales(bed.device, &bed.tiled, &bed.linear, NULL, &bed.err));
	check_did(&bed, 1, 0, "nib_convert_scales_sm90");
	words = fresh(&bed, 64);
	assert_ok(nib_moe_expert_rows(bed.device, words, 3, words + 4, words + 8, NULL,
				      &bed.err));
	check_did(&bed, 1, 0, "nib_expert_rows_sm90");
	assert_int_equal(bed.fake->last.gridDimX, 1);
	assert_refused(
	    nib_moe_expert_rows(bed.device, words, 3, host, words + 8, NULL, &bed.err),
	    NIB_STATUS_BAD_ARGUMENT, &bed.err, "row_offsets");
	check_did(&bed, 0, 0, NULL);
	free_bed(&bed);
}

/* nib_moe_sum_slots(): one launch, which nothing waits for. */
static void sums_slots(void)
{
	static _Alignas(16) char host[64];
	struct bed bed;
	char *rows, *y;
	int32_t *slots;
	struct nib_dense from, to;

	make_bed(&bed);
	rows = fresh(&bed, 512);
	y = rows + 128;
	slots = (int32_t *)(void *)(rows + 256);
	from = (struct nib_dense){
	    .data = rows, .dtype = NIB_DTYPE_BF16, .rows = 7, .cols = 8};
	to = (struct nib_dense){
	    .data = y, .dtype = NIB_DTYPE_BF16, .rows = 3, .cols = 8};
#define SUM(rows, slots, weights, y)                                                   \
	nib_moe_sum_slots(bed.device, rows, slots, (const float *)(weights), 2, y,     \
			  NULL, &bed.err)
	assert_ok(SUM(&from, slots, slots + 6, &to));
	check_did(&bed, 1, 0, "nib_moe_combine_sm90");
	assert_int_equal(bed.fake->last.gridDimX, 1);
	assert_int_equal(SUM(&from, (int32_t *)(void *)host, slots, &to),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(bed.err.argument, "slot_rows");
	assert_int_equal(SUM(&from, slots, host, &to), NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(bed.err.argument, "weights");
	from.data = host;
	assert_int_equal(SUM(&from, slots, slots + 6, &to), NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(bed.err.argument, "rows.data");
	from.data = rows, to.data = host;
	assert_int_equal(SUM(&from, slots, slots + 6, &to), NIB_STATUS_BAD_ARGUMENT);
	assert_string_equal(bed.err.argument, "y.data");
	to.data = y, to.rows = 0;
	assert_ok(SUM(&from, slots, slots + 6, &to));
	check_did(&bed, 0, 0, NULL);
#undef SUM
	free_bed(&bed);
}

/* The element that the kernel found is named, with its value read back. */
static void says_what_is_not_finite(void)
{
	static const uint16_t fp16[] = {0x7C00, 0xFC00, 0x7E00, 0xFFFF};
	static const char *const names[] = {"inf", "inf", "nan", "nan"};
	struct bed bed;
	float amax;

	make_bed(&bed);
	for (int i = 0; i < 4; i++) {
		const int64_t row = 7 * i, col = 79 - i;
		char text[64];

		((uint16_t *)bed.x.data)[row * K + col] = fp16[i];
		bed.fake->found_bad = ~(unsigned long long)(row * K + col);
		snprintf(text, sizeof(text),
			 "x[batch 0, row %d, col %d] = %s: must be finite", (int)row,
			 (int)col, names[i]);
		assert_int_equal(quantize(&bed, 0.5f, false, 0, NULL),
				 NIB_STATUS_BAD_DATA);
		assert_string_equal(bed.err.message, text);
		assert_int_equal(nib_amax(bed.device, &bed.x, 0, NULL, &amax, &bed.err),
				 NIB_STATUS_BAD_DATA);
		assert_string_equal(bed.err.message, text);
	}
	bed.fake->found_bad = 0;
	free_bed(&bed);
}

/* A virtual GPU has no pools: the memory is a plain allocation, given back. */
static void without_memory_pools(void)
{
	struct bed bed;
	float used = -1;
	int allocations;

	make_bed(&bed);
	bed.fake->no_pools = 1;
	allocations = bed.fake->allocations;
	bed.fake->waits = 0;
	assert_ok(quantize(&bed, 0, false, 1, NULL));
	assert_int_equal(bed.fake->allocations, allocations);
	assert_int_equal(bed.fake->waits, 1);
	assert_ok(quantize(&bed, 0, false, 0, &used));
	assert_int_equal(bed.fake->allocations, allocations);
	free_bed(&bed);
}

static void nothing_is_no_launch(void)
{
	struct bed bed;
	float used = -1;

	make_bed(&bed);
	bed.x.rows = bed.tiled.rows = 0;
	bed.fake->launches = bed.fake->waits = 0;
	assert_ok(quantize(&bed, 0, false, 0, &used));
	assert_int_equal(bed.fake->launches, 0);
	assert_true(used == 1.0f);
	free_bed(&bed);
}

static void failures_keep_nothing(void)
{
	struct bed bed;
	const struct nib_call_options options = {sizeof(options), &bed};
	float amax;

	make_bed(&bed);
	bed.fake->launch_result = CUDA_ERROR_LAUNCH_FAILED;
	assert_int_equal(quantize(&bed, 0, false, 0, NULL), NIB_STATUS_DEVICE_FAILED);
	bed.fake->launch_result = CUDA_SUCCESS;
	bed.fake->dead_stream = options.stream;
	assert_true(nib_amax(bed.device, &bed.x, 0, &options, &amax, NULL) !=
		    NIB_STATUS_OK);
	assert_true(quantize(&bed, 0, false, 0, NULL) != NIB_STATUS_OK);
	assert_true(quantize(&bed, 0.5f, false, 1, NULL) != NIB_STATUS_OK);
	bed.fake->dead_stream = NULL;
	assert_ok(nib_amax(bed.device, &bed.x, 0, &options, &amax, NULL));
	assert_ok(quantize(&bed, 0, false, 0, NULL));
	free_bed(&bed);
}

static void host_memory_is_refused(void)
{
	struct bed bed;
	alignas(16) uint16_t host[ROWS * K];
	float global = 1;

	make_bed(&bed);
	bed.x.data = host;
	assert_int_equal(quantize(&bed, 1, false, 1, NULL), NIB_STATUS_BAD_ARGUMENT);
	assert_contains(bed.err.message, "x.data");
	bed.x.data = bed.blocks[0];
	bed.global = &global;
	assert_int_equal(quantize(&bed, 0, true, 1, NULL), NIB_STATUS_BAD_ARGUMENT);
	assert_contains(bed.err.message, "options.global_pointer");
	free_bed(&bed);
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"waits_only_to_tell", waits_only_to_tell},
	    {"searches_scales", searches_scales},
	    {"other_conversions", other_conversions},
	    {"sums_slots", sums_slots},
	    {"says_what_is_not_finite", says_what_is_not_finite},
	    {"without_memory_pools", without_memory_pools},
	    {"nothing_is_no_launch", nothing_is_no_launch},
	    {"failures_keep_nothing", failures_keep_nothing},
	    {"host_memory_is_refused", host_memory_is_refused},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
