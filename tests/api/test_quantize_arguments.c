/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_quantize_arguments.c - what nib_quantize and nib_amax refuse, and that
 * the message begins with the argument.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "common/data.h"
#include "common/unit.h"
#include "format/e4m3.h"

static struct nib_quantize_options options_of(enum nib_zero_scale zero_scale,
					      float global)
{
	return (struct nib_quantize_options){.struct_bytes =
						 sizeof(struct nib_quantize_options),
					     .zero_scale = zero_scale,
					     .global = global};
}

static void refuse(struct nib_device *device, const struct nib_dense *x,
		   const struct nib_fp4 *q, const struct nib_quantize_options *options,
		   const char *what)
{
	struct nib_error err = {0};

	assert_int_equal(nib_quantize(device, x, q, options, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_int_equal(err.status, NIB_STATUS_BAD_ARGUMENT);
	if (strncmp(err.message, what, strlen(what)) != 0)
		fail_msg("'%s' does not begin with '%s'", err.message, what);
}

static void refused_weights(void **state)
{
	static const float bad[] = {-1, -0x1p-149f, NAN, INFINITY, 0x1.000002p100f};
	struct nib_device *device = test_device("scalar", 1);
	struct rng rng = rng_new(test_seed());
	struct nib_quantize_options options = options_of(0, 1.0f);
	struct test_nvfp4 q = test_nvfp4_new(&rng, 4, 64, 1, NIB_SCALE_LAYOUT_LINEAR,
					     TEST_SCALES_ONE, 0, 0);
	struct test_dense x = test_dense_new(NIB_DTYPE_FP32, 4, 64, 1, 0);
	float *weights = guard_new(64 * sizeof(float));

	memset(x.view.data, 0, x.bytes);
	for (int i = 0; i < 64; i++)
		weights[i] = i ? 0x1p100f : 0;
	options.column_weights = weights;
	refuse(device, &x.view, &q.view, &options, "options.column_weights = 0x");
	options.scales = NIB_SCALES_MSE;
	assert_ok(nib_quantize(device, &x.view, &q.view, &options, NULL, NULL));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		weights[63] = bad[i];
		refuse(device, &x.view, &q.view, &options,
		       "options.column_weights[63]");
	}
	options.column_weights = q.view.codes;
	refuse(device, &x.view, &q.view, &options, "q.codes");
	options.column_weights = q.view.scales;
	refuse(device, &x.view, &q.view, &options, "q.scales");
	guard_free(weights, 64 * sizeof(float));
	test_nvfp4_free(&q);
	test_dense_free(&x);
	nib_device_close(device);
}

static void refusals(void **state)
{
	struct nib_device *device = test_device("scalar", 1);
	struct rng rng = rng_new(test_seed());
	struct nib_quantize_options good = options_of(0, 1.0f), options;
	struct test_nvfp4 q = test_nvfp4_new(&rng, 4, 64, 1, NIB_SCALE_LAYOUT_LINEAR,
					     TEST_SCALES_ONE, 0, 0);
	struct test_dense x = test_dense_new(NIB_DTYPE_FP32, 4, 64, 1, 0);
	struct nib_dense xv;
	struct nib_fp4 qv;
	float amax;

	refuse(NULL, &x.view, &q.view, &good, "device = NULL");
	refuse(device, NULL, &q.view, &good, "x = NULL");
	refuse(device, &x.view, NULL, &good, "q = NULL");
	for (int i = 0; i < 4; i++) {
		const float bad[4] = {-1, NAN, INFINITY, FLT_MAX};

		options = options_of(0, bad[i]);
		refuse(device, &x.view, &q.view, &options, "options.global");
	}
	options = options_of((enum nib_zero_scale)3, 1);
	refuse(device, &x.view, &q.view, &options, "options.zero_scale = 3");
	for (int i = -1; i <= 3; i += 4) {
		options = options_of(0, 1);
		options.scales = (enum nib_scales)i;
		refuse(device, &x.view, &q.view, &options,
		       i < 0 ? "options.scales = -1" : "options.scales = 3");
	}
	xv = x.view;
	xv.data = NULL;
	refuse(device, &xv, &q.view, &good, "x.data = NULL");
	xv = x.view;
	xv.cols = 48;
	refuse(device, &xv, &q.view, &good, "q.k = 64: must equal x.cols");
	xv = x.view;
	xv.rows = 3;
	refuse(device, &xv, &q.view, &good, "q.rows = 4: must equal x.rows");
	qv = q.view;
	qv.batch = 2;
	refuse(device, &x.view, &qv, &good, "q.batch = 2: must equal x.batch");
	qv = q.view;
	qv.codes = (uint8_t *)x.view.data + 4 * 64 * 4 - 1;
	refuse(device, &x.view, &qv, &good, "q.codes");
	qv = q.view;
	qv.scales = x.view.data;
	refuse(device, &x.view, &qv, &good, "q.scales");
	qv = q.view;
	qv.scales = (uint8_t *)q.view.codes + 1;
	refuse(device, &x.view, &qv, &good, "q.scales");
	assert_int_equal(nib_amax(NULL, &x.view, 0, NULL, &amax, NULL),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_int_equal(nib_amax(device, NULL, 0, NULL, &amax, NULL),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_int_equal(nib_amax(device, &x.view, 0, NULL, NULL, NULL),
			 NIB_STATUS_BAD_ARGUMENT);
	test_nvfp4_free(&q);
	test_dense_free(&x);
	nib_device_close(device);
}

/* Codes and scales side by side in each row overlap in span, not in bytes. */
static void interleaved(void **state)
{
	struct nib_device *device = test_device("scalar", 1);
	const struct nib_quantize_options good = options_of(0, 1.0f);
	struct test_dense x = test_dense_new(NIB_DTYPE_FP32, 4, 64, 1, 0);
	uint8_t *rows = guard_new(4 * 36);
	struct nib_fp4 q = {.codes = rows,
			    .scales = rows + 32,
			    .rows = 4,
			    .k = 64,
			    .row_stride_bytes = 36,
			    .scale_row_stride_bytes = 36};

	memset(x.view.data, 0, x.bytes);
	assert_ok(nib_quantize(device, &x.view, &q, &good, NULL, NULL));
	for (int i = 0; i < 4 * 36; i++)
		assert_int_equal(rows[i], i % 36 < 32 ? 0 : NIB_E4M3_ONE);
	q.scales = rows + 31;
	refuse(device, &x.view, &q, &good, "q.scales");
	guard_free(rows, 4 * 36);
	test_dense_free(&x);
	nib_device_close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(refusals),
	    cmocka_unit_test(refused_weights),
	    cmocka_unit_test(interleaved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
