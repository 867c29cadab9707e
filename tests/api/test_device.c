/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_device.c - a device's memory, synchronisation, streams and the global scale by
 * pointer, on the CPU.
 */
#include <stdlib.h>
#include <string.h>

#include "common/data.h"
#include "common/unit.h"
#include "emu/tests/common/alloc.h"

static void memory_is_aligned_and_copied(void **state)
{
	/* Below, at and above the size from which huge pages are asked for. */
	static const size_t sizes[] = {1, 63, 64, 4097, 2 << 20, (2 << 20) + 1};
	struct nib_device *device = test_device(NULL, 1);

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		const size_t bytes = sizes[i];
		unsigned char *host = malloc(bytes);
		unsigned char *back = calloc(1, bytes);
		void *data;

		assert_non_null(host);
		assert_non_null(back);
		for (size_t j = 0; j < bytes; j++)
			host[j] = (unsigned char)(j * 31 + i);
		assert_ok(nib_device_alloc(device, bytes, &data, NULL));
		assert_int_equal((uintptr_t)data % 64, 0);
		assert_ok(nib_device_copy(device, data, host, bytes, NULL, NULL));
		assert_ok(nib_device_copy(device, back, data, bytes, NULL, NULL));
		assert_memory_equal(back, host, bytes);
		nib_device_free(device, data);
		free(host);
		free(back);
	}
	assert_ok(nib_device_wait(device, NULL, NULL));
	nib_device_close(device);
}

static void memory_arguments_are_refused(void **state)
{
	struct nib_device *device = test_device(NULL, 1);
	struct nib_error err;
	char bytes[16] = {0};
	void *data = bytes;

	assert_refused(nib_device_alloc(NULL, 1, &data, &err), NIB_STATUS_BAD_ARGUMENT,
		       &err, "device = NULL");
	assert_null(data);
	assert_refused(nib_device_alloc(device, 1, NULL, &err), NIB_STATUS_BAD_ARGUMENT,
		       &err, "pointer = NULL");
	data = bytes;
	assert_ok(nib_device_alloc(device, 0, &data, &err));
	assert_null(data);
	nib_device_free(device, NULL);
	nib_device_free(NULL, bytes);

	assert_refused(nib_device_copy(NULL, bytes, bytes + 8, 8, NULL, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err, "device = NULL");
	assert_refused(nib_device_copy(device, NULL, bytes, 8, NULL, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err,
		       "to = NULL: must point to 8 bytes");
	assert_refused(nib_device_copy(device, bytes, NULL, 8, NULL, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err,
		       "from = NULL: must point to 8 bytes");
	assert_refused(nib_device_copy(device, bytes + 7, bytes, 8, NULL, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err, "must not overlap");
	assert_int_equal(nib_device_copy(device, bytes, bytes + 7, 8, NULL, &err),
			 NIB_STATUS_BAD_ARGUMENT);
	assert_ok(nib_device_copy(device, bytes, bytes + 8, 8, NULL, &err));
	assert_ok(nib_device_copy(device, NULL, NULL, 0, NULL, &err));

	assert_refused(nib_device_wait(NULL, NULL, &err), NIB_STATUS_BAD_ARGUMENT, &err,
		       "device = NULL");
	nib_device_close(device);
}

static void memory_that_is_not_there(void **state)
{
	struct nib_device *device = test_device(NULL, 1);
	struct nib_error err;
	void *data;

	/* AddressSanitizer ends the program at such a size. */
	if (!test_alloc_works()) {
		nib_device_close(device);
		skip();
	}
	assert_refused(nib_device_alloc(device, SIZE_MAX, &data, &err),
		       NIB_STATUS_OUT_OF_MEMORY, &err, "18446744073709551615 bytes");
	assert_null(data);
	assert_int_equal(nib_device_alloc(device, SIZE_MAX / 4, &data, &err),
			 NIB_STATUS_OUT_OF_MEMORY);
	assert_null(data);
	nib_device_close(device);
}

/* A stream on the CPU is another device's: nobody means it. */
static void streams_are_refused(void **state)
{
	struct nib_device *device = test_device("scalar", 1);
	uint8_t codes[8] = {0}, scales[1] = {0x38};
	float data[16] = {0}, c = 0;
	const struct nib_fp4 q = {codes, scales, .rows = 1, .k = 16};
	const struct nib_dense x = {data, NIB_DTYPE_FP32, .rows = 1, .cols = 16};
	struct nib_problem problem = {
	    .a = q, .b = q, .c = {&c, NIB_DTYPE_FP32, .rows = 1, .cols = 1}};
	const struct nib_call_options call = {sizeof(call), codes};
	const struct nib_dequantize_options dequantize = {sizeof(dequantize), codes,
							  NULL};
	struct nib_quantize_options quantize = {sizeof(quantize), .stream = codes};
	struct nib_run_options run = {sizeof(run), .stream = codes};
	struct nib_packed *packed;
	struct nib_plan *plan;
	struct nib_error err;

	assert_refused(nib_device_wait(device, codes, &err), NIB_STATUS_BAD_ARGUMENT,
		       &err, "must be NULL on 'cpu'");
	assert_refused(nib_dequantize(device, &q, 1, &x, &dequantize, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err, "options.stream = 0x");
	assert_refused(nib_convert_scales(device, &q, &q, &call, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err, "options.stream = 0x");
	assert_refused(nib_quantize(device, &x, &q, &quantize, NULL, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err, "options.stream = 0x");
	assert_refused(nib_amax(device, &x, 0, &call, data, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err, "options.stream = 0x");
	assert_refused(nib_device_copy(device, data, codes, 8, &call, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err, "options.stream = 0x");
	assert_refused(nib_pack(device, &q, &call, &packed, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err, "options.stream = 0x");
	assert_refused(nib_pack_shared(device, &q, &call, &packed, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err, "options.stream = 0x");
	assert_ok(nib_pack(device, &q, NULL, &packed, &err));
	assert_refused(nib_packed_update(packed, &q, &call, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err, "options.stream = 0x");
	assert_refused(nib_unpack(packed, &q, &call, &err), NIB_STATUS_BAD_ARGUMENT,
		       &err, "options.stream = 0x");
	nib_packed_free(packed);
	assert_ok(nib_plan_create(device, NIB_OP_GEMM, &problem, 1, NULL, &plan, NULL));
	assert_refused(nib_run(plan, &problem, 1, &run, &err), NIB_STATUS_BAD_ARGUMENT,
		       &err, "options.stream = 0x");
	run.stream = NULL;
	assert_ok(nib_run(plan, &problem, 1, &run, &err));
	nib_plan_free(plan);
	nib_device_close(device);
}

static void global_by_pointer(void **state)
{
	static const float refused[] = {0.0f, -0.0f, -1.0f, 3e38f};
	struct nib_device *device = test_device("scalar", 1);
	uint8_t codes[2][8], scales[2][1];
	float data[16], global = 0.03125f, used = -1;
	struct nib_fp4 q = {codes[0], scales[0], .rows = 1, .k = 16};
	const struct nib_dense x = {data, NIB_DTYPE_FP32, .rows = 1, .cols = 16};
	struct nib_quantize_options options = {sizeof(options), .global = global};
	struct nib_error err;

	for (int i = 0; i < 16; i++)
		data[i] = (float)(i - 7) * 0.7f;
	assert_ok(nib_quantize(device, &x, &q, &options, &used, NULL));
	assert_true(used == global);

	used = -1;
	q.codes = codes[1];
	q.scales = scales[1];
	options.global_pointer = &global;
	assert_refused(nib_quantize(device, &x, &q, &options, &used, &err),
		       NIB_STATUS_BAD_ARGUMENT, &err,
		       "options.global = 0.03125: must be 0");
	options.global = 0;
	assert_ok(nib_quantize(device, &x, &q, &options, &used, NULL));
	assert_true(used == -1);
	assert_memory_equal(codes[1], codes[0], 8);
	assert_int_equal(scales[1][0], scales[0][0]);
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		global = refused[i];
		assert_refused(nib_quantize(device, &x, &q, &options, NULL, &err),
			       NIB_STATUS_BAD_ARGUMENT, &err,
			       "options.global_pointer = ");
	}
	nib_device_close(device);
}

/* Each kind's instruction sets are listed widest first. */
static void backends_are_listed_best_first(void **state)
{
	static const char *const sets[] = {
#if defined(__x86_64__)
		"cpu-amx",
		"cpu-avx512vnni",
		"cpu-avx512bw",
		"cpu-avxvnni",
		"cpu-avx2",
#elif defined(__aarch64__)
		"cpu-neonbf16",
		"cpu-neoni8mm",
		"cpu-neondot",
		"cpu-neon",
#endif
		"cpu-scalar"
	};
	const int known = (int)(sizeof(sets) / sizeof(*sets));
	const int count = nib_backend_count();
	struct nib_backend_info info = {.struct_bytes = sizeof(info)};

	assert_true(count >= known);
	for (int i = 0; i < known; i++) {
		assert_ok(nib_backend_get_info(count - known + i, &info, NULL));
		assert_string_equal(info.backend, sets[i]);
		/* What runs everywhere has no reason not to. */
		if (i == known - 1)
			assert_true(info.is_open && !info.reason[0]);
		else
			assert_int_equal(info.is_open, !info.reason[0]);
	}
	assert_int_equal(nib_backend_get_info(count, &info, NULL),
			 NIB_STATUS_BAD_ARGUMENT);
}

/* "avx512", the name until 0.1, chooses the same set. */
static void older_names_choose_an_instruction_set(void **state)
{
	struct nib_device_options options = {.struct_bytes = sizeof(options)};
	struct nib_device *device;
	struct nib_error err;
	enum nib_status status;

	options.isa = "avx512vnni";
	status = nib_device_open("cpu", &options, &device, NULL);
	if (!status)
		nib_device_close(device);
	options.isa = "avx512";
	assert_int_equal(nib_device_open("cpu", &options, &device, &err), status);
	if (status) {
		assert_contains(err.message, "options.isa = avx512vnni: ");
		return;
	}
	assert_string_equal(test_device_info(device).backend, "cpu-avx512vnni");
	nib_device_close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(memory_is_aligned_and_copied),
	    cmocka_unit_test(memory_arguments_are_refused),
	    cmocka_unit_test(memory_that_is_not_there),
	    cmocka_unit_test(streams_are_refused),
	    cmocka_unit_test(global_by_pointer),
	    cmocka_unit_test(backends_are_listed_best_first),
	    cmocka_unit_test(older_names_choose_an_instruction_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
