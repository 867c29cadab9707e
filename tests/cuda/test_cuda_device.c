/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_device.c - the CUDA backend on the fake driver: opening a device and every
 * failure of it, loading kernels, memory, and errors of the GPU.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cuda/common/cuda.h"
#include "common/file.h"
#include "common/unit.h"
#include "fake_bed.h"

/* Opening fails with status and part of the message, and the backend is closed
 * with the same part as its reason. */
static void check_closed(enum nib_status status, const char *part)
{
	struct nib_backend_info info = {.struct_bytes = sizeof(info)};
	struct nib_device *device = (struct nib_device *)&info;
	struct nib_error err;

	assert_int_equal(nib_device_open("cuda", NULL, &device, &err), status);
	assert_int_equal(err.status, status);
	assert_null(device);
	assert_contains(err.message, part);
	assert_ok(nib_backend_get_info(0, &info, NULL));
	assert_string_equal(info.backend, "cuda-sm90");
	assert_false(info.is_open);
	assert_contains(info.reason, part);
}

static struct nib_device *open_device(const char *name)
{
	struct nib_device *device;
	struct nib_error err;

	if (nib_device_open(name, NULL, &device, &err) != NIB_STATUS_OK)
		fail_msg("%s: %s", name, err.message);
	return device;
}

/* ---- opening ------------------------------------------------------------- */

static void no_library(void)
{
	setenv("NIB_CUDA_LIBRARY", "/nonexistent/libcuda.so", 1);
	check_closed(NIB_STATUS_NO_DEVICE, "no NVIDIA driver: /nonexistent/libcuda");
}

static void function_missing(void)
{
	fake_open(FAKE_CUDA_OLD);
	check_closed(NIB_STATUS_NO_DEVICE, "it has no cuOccupancyMaxActiveClusters; "
					   "CUDA 12.1 is needed");
}

static void old_version(void)
{
	fake_open(FAKE_CUDA)->version = 12000;
	check_closed(NIB_STATUS_NO_DEVICE, "is for CUDA 12.0; 12.1 is needed");
}

static void start_fails(void)
{
	fake_open(FAKE_CUDA)->init_result = 999;
	check_closed(NIB_STATUS_NO_DEVICE,
		     "does not start: CUDA_ERROR_FAKE (fake error 999)");
}

static void no_gpu_at_start(void)
{
	fake_open(FAKE_CUDA)->init_result = CUDA_ERROR_NO_DEVICE;
	check_closed(NIB_STATUS_NO_DEVICE, "finds no GPU");
}

static void no_gpu_counted(void)
{
	fake_open(FAKE_CUDA)->devices = 0;
	check_closed(NIB_STATUS_NO_DEVICE, "finds no GPU");
}

static void wrong_architecture(void)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);

	fake->capability[0] = 86;
	check_closed(NIB_STATUS_UNSUPPORTED, "cuda:0, NVIDIA Fake 0, has compute "
					     "capability 8.6");
	fake_check_clean(fake);
}

static void second_gpu_is_right(void)
{
	struct nib_backend_info info = {.struct_bytes = sizeof(info)};
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_device *device;
	struct nib_error err;

	fake->devices = 2;
	fake->capability[0] = 120;
	assert_int_equal(nib_device_open("cuda:0", NULL, &device, &err),
			 NIB_STATUS_UNSUPPORTED);
	assert_contains(err.message,
			"compute capability 12.0: the kernels are for 9.0 (H100, "
			"H200) and 10.0, 10.3 (B200, B300)");
	assert_ok(nib_backend_get_info(0, &info, NULL));
	assert_true(info.is_open);
	assert_string_equal(info.reason, "");
	assert_int_equal(nib_device_open("cuda:2", NULL, &device, &err),
			 NIB_STATUS_NO_DEVICE);
	assert_contains(err.message, "name = 'cuda:2': this machine has 2 GPUs");
	device = open_device("cuda:1");
	nib_device_close(device);
	fake_check_clean(fake);
}

/* The driver's errors as ours, and what the caller can do about them. */
static void errors_of_the_driver(void)
{
	static const char sticky[] = "every CUDA call of this process fails";
	static const char captured[] = "a stream that is captured";
	static const struct {
		CUresult result;
		enum nib_status status;
		const char *advice; /* NULL: none */
	} cases[] = {
	    {CUDA_ERROR_INVALID_VALUE, NIB_STATUS_DEVICE_FAILED, NULL},
	    {CUDA_ERROR_OUT_OF_MEMORY, NIB_STATUS_OUT_OF_MEMORY, NULL},
	    {CUDA_ERROR_DEVICE_UNAVAILABLE, NIB_STATUS_NO_DEVICE, NULL},
	    {CUDA_ERROR_NO_DEVICE, NIB_STATUS_NO_DEVICE, NULL},
	    {CUDA_ERROR_INVALID_DEVICE, NIB_STATUS_NO_DEVICE, NULL},
	    {CUDA_ERROR_INVALID_IMAGE, NIB_STATUS_UNSUPPORTED, NULL},
	    {CUDA_ERROR_INVALID_CONTEXT, NIB_STATUS_DEVICE_FAILED, NULL},
	    {CUDA_ERROR_NO_BINARY_FOR_GPU, NIB_STATUS_UNSUPPORTED, NULL},
	    {CUDA_ERROR_ECC_UNCORRECTABLE, NIB_STATUS_DEVICE_FAILED, sticky},
	    {CUDA_ERROR_INVALID_PTX, NIB_STATUS_UNSUPPORTED, NULL},
	    {CUDA_ERROR_NVLINK_UNCORRECTABLE, NIB_STATUS_DEVICE_FAILED, sticky},
	    {CUDA_ERROR_JIT_COMPILER_NOT_FOUND, NIB_STATUS_UNSUPPORTED, NULL},
	    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, NIB_STATUS_UNSUPPORTED, NULL},
	    {CUDA_ERROR_JIT_COMPILATION_DISABLED, NIB_STATUS_UNSUPPORTED, NULL},
	    {CUDA_ERROR_INVALID_SOURCE, NIB_STATUS_UNSUPPORTED, NULL},
	    {CUDA_ERROR_INVALID_HANDLE, NIB_STATUS_BAD_ARGUMENT,
	     "is the stream destroyed"},
	    {CUDA_ERROR_ILLEGAL_ADDRESS, NIB_STATUS_DEVICE_FAILED, sticky},
	    {CUDA_ERROR_LAUNCH_TIMEOUT, NIB_STATUS_DEVICE_FAILED, sticky},
	    {CUDA_ERROR_CONTEXT_IS_DESTROYED, NIB_STATUS_DEVICE_FAILED,
	     "somebody reset the GPU"},
	    {CUDA_ERROR_ASSERT, NIB_STATUS_DEVICE_FAILED, sticky},
	    {713, NIB_STATUS_DEVICE_FAILED, NULL},
	    {CUDA_ERROR_HARDWARE_STACK_ERROR, NIB_STATUS_DEVICE_FAILED, sticky},
	    {716, NIB_STATUS_DEVICE_FAILED, sticky},
	    {CUDA_ERROR_LAUNCH_FAILED, NIB_STATUS_DEVICE_FAILED, sticky},
	    {CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, NIB_STATUS_UNSUPPORTED,
	     "too few multiprocessors"},
	    {CUDA_ERROR_NOT_SUPPORTED, NIB_STATUS_UNSUPPORTED, NULL},
	    {899, NIB_STATUS_DEVICE_FAILED, NULL},
	    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, NIB_STATUS_BAD_ARGUMENT, captured},
	    {906, NIB_STATUS_BAD_ARGUMENT, captured},
	    {CUDA_ERROR_CAPTURED_EVENT, NIB_STATUS_BAD_ARGUMENT, captured},
	    {908, NIB_STATUS_DEVICE_FAILED, NULL},
	};
	const struct cuda_driver *driver;
	const char *reason;

	fake_open(FAKE_CUDA);
	driver = cuda_driver(&reason);
	assert_non_null(driver);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char text[64];
		struct nib_error err;

		assert_int_equal(cuda_fail(driver, cases[i].result, "cuda:0", &err),
				 cases[i].status);
		snprintf(text, sizeof(text), "cuda:0: CUDA_ERROR_%s (fake error",
			 cases[i].result == CUDA_ERROR_ILLEGAL_ADDRESS
			     ? "ILLEGAL_ADDRESS"
			     : "FAKE");
		assert_contains(err.message, text);
		snprintf(text, sizeof(text), "(fake error %d)%s", cases[i].result,
			 cases[i].advice ? "; " : "");
		assert_contains(err.message, text);
		if (cases[i].advice)
			assert_contains(err.message, cases[i].advice);
		else
			assert_null(strchr(err.message, ';'));
	}
}

/* The row of nib_backend_get_info() of this name. */
static struct nib_backend_info backend_named(const char *name)
{
	struct nib_backend_info info = {.struct_bytes = sizeof(info)};

	for (int i = 0; i < nib_backend_count(); i++) {
		assert_ok(nib_backend_get_info(i, &info, NULL));
		if (strcmp(info.backend, name) == 0)
			return info;
	}
	fail_msg("no backend %s", name);
	return info;
}

/* Each GPU gets the images and the kernels of its own architecture. */
static void architectures(void)
{
	static const int capabilities[] = {90, 100, 103};
	struct fake_cuda *fake = fake_open(FAKE_CUDA);

	for (int i = 0; i < 3; i++) {
		const bool old = capabilities[i] == 90;
		struct nib_device_info info = {.struct_bytes = sizeof(info)};
		struct nib_backend_info row;
		struct nib_device *device;
		CUfunction function, other;
		struct nib_error err;

		fake->capability[0] = capabilities[i];
		fake->cubins = 0;
		device = open_device("cuda");
		assert_int_equal(fake->cubins, 2);
		assert_ok(nib_device_get_info(device, &info, NULL));
		assert_string_equal(info.backend, old ? "cuda-sm90" : "cuda-sm100");
		assert_int_equal(info.compute_capability, capabilities[i]);
		assert_int_equal(info.arithmetic, old ? NIB_ARITHMETIC_FP16_TENSOR
						      : NIB_ARITHMETIC_FP4_TENSOR);
		row = backend_named(info.backend);
		assert_true(row.is_open);
		assert_string_equal(row.reason, "");
		row = backend_named(old ? "cuda-sm100" : "cuda-sm90");
		assert_false(row.is_open);
		assert_contains(row.reason, "cuda:0, NVIDIA Fake 0, has compute "
					    "capability ");
		assert_contains(row.reason, old ? "for 10.0, 10.3 (B200, B300)"
						: "for 9.0 (H100, H200)");
		assert_ok(cuda_enter(cuda_device(device), NULL));
		assert_ok(
		    cuda_kernel(cuda_device(device), "nib_amax", 0, &function, NULL));
		assert_int_equal(cuda_kernel(cuda_device(device), "nib_activations", 0,
					     &other, &err),
				 old ? NIB_STATUS_OK : NIB_STATUS_DEVICE_FAILED);
		if (!old)
			assert_contains(err.message, "nib_activations_sm100: "
						     "no such kernel");
		assert_int_equal(fake->misses, 0);
		cuda_leave(cuda_device(device));
		nib_device_close(device);
		fake_check_clean(fake);
	}
}

/* Only the kernels of one architecture, as a bundle may have them. */
static void no_images_of_the_gpu(void)
{
	static const struct cuda_image only[] = {
	    {"sm90_first 1-2 kernel_of_first_sm90", "cubin"}, {NULL, NULL}};
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_device *device;
	struct nib_error err;

	cuda_images = only;
	fake->capability[0] = 100;
	assert_refused(nib_device_open("cuda", NULL, &device, &err),
		       NIB_STATUS_UNSUPPORTED, &err,
		       "cuda:0, NVIDIA Fake 0, has compute "
		       "capability 10.0: the kernels are for 9.0 "
		       "(H100, H200)");
	assert_contains(backend_named("cuda-sm100").reason,
			"this build has no kernels for 10.0, 10.3 (B200, B300)");
	fake->capability[0] = 90;
	nib_device_close(open_device("cuda"));
	assert_int_equal(fake->cubins, 1);
	fake_check_clean(fake);
}

static void names(void)
{
	static const char *const refused[] = {"cuda:",	 "cuda:x",
					      "cuda:1x", "cuda:-1",
					      "cuda: 1", "cuda:99999999999999999999"};
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_device *device;
	struct nib_error err;

	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		assert_refused(nib_device_open(refused[i], NULL, &device, &err),
			       NIB_STATUS_NO_DEVICE, &err,
			       "a GPU is 'cuda' or 'cuda:N'");
	}
	assert_refused(nib_device_open("cudax", NULL, &device, &err),
		       NIB_STATUS_NO_DEVICE, &err, "no such backend");
	assert_refused(nib_device_open("cuda:1", NULL, &device, &err),
		       NIB_STATUS_NO_DEVICE, &err,
		       "name = 'cuda:1': this machine has 1 GPU");
	fake_check_clean(fake);
}

static void what_it_says_of_itself(void)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_device *device, *same;
	struct nib_device_info info;

	fake->devices = 2;
	device = open_device("cuda:1");
	same = open_device("cuda:1");
	assert_int_equal(fake->retained, 2);
	info = test_device_info(device);
	assert_string_equal(info.name, "cuda:1");
	assert_string_equal(info.backend, "cuda-sm90");
	assert_string_equal(info.hardware, "NVIDIA Fake 1");
	assert_contains(info.features, "compute capability 9.0, CUDA 13.0");
	assert_int_equal(info.threads, 1);
	assert_int_equal(info.multiprocessors, 132);
	assert_int_equal(info.driver_version, 13000);
	assert_int_equal(info.compute_capability, 90);
	assert_int_equal(info.clock_khz, 1980000);
	assert_int_equal(info.memory_clock_khz, 3201000);
	assert_int_equal(info.memory_bus_bits, 6144);
	assert_int_equal(info.arithmetic, NIB_ARITHMETIC_FP16_TENSOR);
	assert_int_equal(info.memory_bytes, 1 << 30);
	assert_int_equal(info.l2_bytes, 60 << 20);
	nib_device_close(same);
	nib_device_close(device);
	fake_check_clean(fake);
}

/* ---- kernels ------------------------------------------------------------- */

/* A driver in a folder of its own, with PTX next to it; "" is no file. */
struct beside {
	struct test_folder folder;
	struct fake_cuda *fake;
};

static void write_beside(const struct beside *b, const char *name, const char *text)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/nibblas/%s", b->folder.path, name);
	if (*text)
		test_write_file(path, text, strlen(text));
	else
		(void)unlink(path);
}

static struct beside beside_new(void)
{
	struct beside b = {.folder = test_folder_new()};
	const char *path = test_path(&b.folder, "libfake.so");
	size_t bytes;
	unsigned char *library = test_read_file(FAKE_CUDA, &bytes);
	char folder[512];

	assert_non_null(library);
	test_write_file(path, library, bytes);
	free(library);
	snprintf(folder, sizeof(folder), "%s/nibblas", b.folder.path);
	assert_int_equal(mkdir(folder, 0777), 0);
	b.fake = fake_open(path);
	b.fake->cubin_result = CUDA_ERROR_NO_BINARY_FOR_GPU;
	write_beside(&b, "sm90_first.ptx",
		     "// nibblas sm90_first 1-2\nptx only kernel_of_first_sm90");
	write_beside(&b, "sm90_second.ptx", "// nibblas sm90_second 3-4\nptx");
	return b;
}

static void beside_remove(struct beside *b)
{
	char folder[512];

	write_beside(b, "sm90_first.ptx", "");
	write_beside(b, "sm90_second.ptx", "");
	snprintf(folder, sizeof(folder), "%s/nibblas", b->folder.path);
	assert_int_equal(rmdir(folder), 0);
	test_folder_remove(&b->folder);
}

static void ptx_where_cubin_is_refused(void)
{
	struct beside b = beside_new();

	b.fake->cubin_result = CUDA_SUCCESS;
	nib_device_close(open_device("cuda"));
	assert_int_equal(b.fake->cubins, 2);
	assert_int_equal(b.fake->ptxs, 0);
	b.fake->cubin_result = CUDA_ERROR_NO_BINARY_FOR_GPU;
	nib_device_close(open_device("cuda"));
	assert_int_equal(b.fake->cubins, 2);
	assert_int_equal(b.fake->ptxs, 2);
	fake_check_clean(b.fake);
	beside_remove(&b);
}

/* Another build's arguments may lie elsewhere in its structs. */
static void ptx_of_another_build(void)
{
	static const char *const others[] = {
	    "ptx",
	    "// nibblas sm90_first 1-2",
	    "// nibblas sm90_first 1-23\nptx",
	    "// nibblas sm90_first 1-3\nptx",
	    "// nibblas sm90_second 1-2\nptx",
	};
	struct beside b = beside_new();
	struct nib_device *device;
	struct nib_error err;

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		write_beside(&b, "sm90_first.ptx", others[i]);
		assert_refused(nib_device_open("cuda", NULL, &device, &err),
			       NIB_STATUS_UNSUPPORTED, &err,
			       "nibblas/sm90_first.ptx: is of another "
			       "build than this library");
	}
	assert_int_equal(b.fake->ptxs, 0);
	fake_check_clean(b.fake);
	beside_remove(&b);
}

/* A driver older than the compiler, as NVIDIA's own: no PTX next to it. */
static void no_ptx(void)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_device *device;
	struct nib_error err;

	fake->cubin_result = CUDA_ERROR_NO_BINARY_FOR_GPU;
	assert_int_equal(nib_device_open("cuda", NULL, &device, &err),
			 NIB_STATUS_UNSUPPORTED);
	assert_contains(err.message,
			"cuda:0: the driver (CUDA 13.0) does not take the "
			"kernels of sm90_first; one of the CUDA that compiled them, "
			"or later, does");
	assert_int_equal(fake->ptxs, 0);
	fake_check_clean(fake);
}

static void neither_is_taken(void)
{
	struct beside b = beside_new();
	struct nib_device *device;
	struct nib_error err;

	b.fake->cubin_result = CUDA_ERROR_INVALID_IMAGE;
	b.fake->ptx_result = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
	assert_int_equal(nib_device_open("cuda", NULL, &device, &err),
			 NIB_STATUS_UNSUPPORTED);
	assert_contains(err.message,
			"the driver (CUDA 13.0) takes neither machine code "
			"nor PTX of sm90_first: ptxas fatal : no: ");
	fake_check_clean(b.fake);
	/* Not a refusal: the PTX is not tried. */
	b.fake->cubin_result = CUDA_ERROR_OUT_OF_MEMORY;
	b.fake->ptx_result = CUDA_SUCCESS;
	assert_refused(nib_device_open("cuda", NULL, &device, &err),
		       NIB_STATUS_OUT_OF_MEMORY, &err,
		       "loading the kernels of sm90_first");
	assert_int_equal(b.fake->ptxs, 0);
	fake_check_clean(b.fake);
	beside_remove(&b);
}

static void kernels_by_name(void)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_device *device = open_device("cuda");
	struct cuda_device *cuda = cuda_device(device);
	CUfunction first, again, other;
	char name[32];
	struct nib_error err;

	assert_ok(cuda_enter(cuda, NULL));
	assert_ok(cuda_kernel(cuda, "kernel_of_first", 0, &first, NULL));
	assert_ok(cuda_kernel(cuda, "kernel_of_first", 0, &again, NULL));
	assert_ptr_equal(first, again);
	assert_int_equal(fake->lookups, 1);
	assert_int_equal(fake->shared_bytes, 0);
	/* More than were there at first. */
	for (int i = 10; i < 50; i++) {
		snprintf(name, sizeof(name), "kernel_%d", i);
		assert_ok(cuda_kernel(cuda, name, 0, &other, NULL));
		assert_ptr_not_equal(other, first);
	}
	assert_int_equal(fake->lookups, 41);
	assert_ok(cuda_kernel(cuda, "kernel_of_first", 200000, &again, NULL));
	assert_ptr_equal(first, again);
	assert_int_equal(fake->shared_bytes, 200000);
	fake->shared_bytes = 0;
	assert_ok(cuda_kernel(cuda, "kernel_of_first", 100000, &again, NULL));
	assert_int_equal(fake->shared_bytes, 0);
	assert_refused(cuda_kernel(cuda, "kernel_of_first", 400000, &again, &err),
		       NIB_STATUS_DEVICE_FAILED, &err,
		       "kernel_of_first_sm90: CUDA_ERROR");
	/* A module is only asked for kernels that it has.  Parts of a kernel's
	 * name are no kernel. */
	static const char *const none[] = {"kernel_1", "ernel_of_first",
					   "kernel_of_first ", ""};
	for (int i = 0; i < 4; i++) {
		assert_refused(cuda_kernel(cuda, none[i], 0, &again, &err),
			       NIB_STATUS_DEVICE_FAILED, &err,
			       "no such kernel in this library");
	}
	assert_int_equal(fake->misses, 0);
	assert_refused(cuda_kernel(cuda, "missing_one", 0, &again, &err),
		       NIB_STATUS_DEVICE_FAILED, &err, "missing_one_sm90: CUDA_ERROR");
	assert_int_equal(fake->misses, 1);
	cuda_leave(cuda);
	nib_device_close(device);
	fake_check_clean(fake);
}

static void *find_many(void *arg)
{
	struct cuda_device *cuda = arg;
	CUfunction function;
	char name[32];
	long failed = 0;

	failed += cuda_enter(cuda, NULL) != NIB_STATUS_OK;
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "kernel_%d", 10 + i % 20);
		failed += cuda_kernel(cuda, name, i, &function, NULL) != NIB_STATUS_OK;
	}
	cuda_leave(cuda);
	return (void *)failed;
}

static void kernels_from_many_threads(void)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_device *device = open_device("cuda");
	pthread_t threads[8];
	void *failed;

	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, find_many, device),
				 0);
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	assert_int_equal(fake->lookups, 20);
	nib_device_close(device);
	fake_check_clean(fake);
}

/* ---- memory, and errors -------------------------------------------------- */

static void memory(void)
{
	static const char text[] = "sixteen bytes 12";
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_device *device = open_device("cuda");
	char back[sizeof(text)] = {0};
	struct nib_error err;
	void *data, *more;
	int waits;

	assert_ok(nib_device_alloc(device, sizeof(text), &data, NULL));
	assert_ok(nib_device_alloc(device, sizeof(text), &more, NULL));
	assert_ok(nib_device_copy(device, data, text, sizeof(text), NULL, NULL));
	assert_ok(nib_device_copy(device, more, data, sizeof(text), NULL, NULL));
	waits = fake->waits;
	assert_ok(nib_device_copy(device, back, more, sizeof(text), NULL, NULL));
	assert_int_equal(fake->waits, waits + 1);
	assert_string_equal(back, text);
	assert_refused(nib_device_alloc(device, (size_t)2 << 30, &data, &err),
		       NIB_STATUS_OUT_OF_MEMORY, &err,
		       "cuda:0: no memory for 2147483648 bytes");
	assert_null(data);
	nib_device_free(device, more);
	assert_int_equal(fake->allocations, 1);
	assert_ok(nib_device_wait(device, NULL, NULL));
	fake->allocations = 0;
	nib_device_close(device);
	fake_check_clean(fake);
}

/* Plans come and go while another thread captures a stream. */
static void beside_a_capture(void)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_device *device = open_device("cuda");
	void *data;

	fake->captures = 1;
	assert_ok(nib_device_alloc(device, 1, &data, NULL));
	nib_device_free(device, data);
	assert_int_equal(fake->broken_captures, 0);
	/* Nothing but these two calls is relaxed. */
	assert_ok(cuda_enter(cuda_device(device), NULL));
	assert_int_equal(cuda_device(device)->driver->cuMemFree_v2((uintptr_t)data),
			 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	cuda_leave(cuda_device(device));
	nib_device_close(device);
	fake_check_clean(fake);
}

/* A lost context takes its modules with it: their handles are not touched. */
static void lost_context(void)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_device *device = open_device("cuda");
	struct nib_error err;
	const int modules = fake->modules;

	fake->enter_result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	assert_refused(nib_device_wait(device, NULL, &err), NIB_STATUS_DEVICE_FAILED,
		       &err, "open it again");
	nib_device_close(device);
	assert_int_equal(fake->modules, modules);
	assert_int_equal(fake->retained, 0);
	fake->enter_result = CUDA_SUCCESS;
	nib_device_close(open_device("cuda"));
	assert_int_equal(fake->modules, modules);
}

static void failures_of_the_gpu(void)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_device *device = open_device("cuda");
	struct nib_error err;
	char byte = 0;
	void *data;

	assert_ok(nib_device_alloc(device, 1, &data, NULL));
	/* A destroyed stream. */
	fake->dead_stream = (CUstream)&byte;
	assert_refused(nib_device_wait(device, &byte, &err), NIB_STATUS_BAD_ARGUMENT,
		       &err, "is the stream destroyed");
	/* Waiting while a graph is captured. */
	fake->context_result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	assert_refused(nib_device_wait(device, NULL, &err), NIB_STATUS_BAD_ARGUMENT,
		       &err, "captured");
	/* Split-k blocks on a part of the GPU. */
	fake->context_result = CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	assert_refused(nib_device_wait(device, NULL, &err), NIB_STATUS_UNSUPPORTED,
		       &err, "too few multiprocessors");
	/* What ends the context, and everything after it. */
	fake->context_result = CUDA_ERROR_ILLEGAL_ADDRESS;
	assert_refused(nib_device_wait(device, NULL, &err), NIB_STATUS_DEVICE_FAILED,
		       &err,
		       "cuda:0: CUDA_ERROR_ILLEGAL_ADDRESS (fake "
		       "error 700); earlier work failed");
	assert_refused(nib_device_copy(device, data, &byte, 1, NULL, &err),
		       NIB_STATUS_DEVICE_FAILED, &err, "until it is started anew");
	assert_int_equal(nib_device_alloc(device, 1, &data, &err),
			 NIB_STATUS_DEVICE_FAILED);
	assert_int_equal(fake->depth, 0);
	/* Where CUDA goes on, so does the device. */
	fake->context_result = CUDA_SUCCESS;
	assert_ok(nib_device_wait(device, NULL, &err));
	fake->allocations = 0;
	nib_device_close(device);
	fake_check_clean(fake);
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"no_library", no_library},
	    {"function_missing", function_missing},
	    {"old_version", old_version},
	    {"start_fails", start_fails},
	    {"no_gpu_at_start", no_gpu_at_start},
	    {"no_gpu_counted", no_gpu_counted},
	    {"wrong_architecture", wrong_architecture},
	    {"second_gpu_is_right", second_gpu_is_right},
	    {"architectures", architectures},
	    {"no_images_of_the_gpu", no_images_of_the_gpu},
	    {"names", names},
	    {"errors_of_the_driver", errors_of_the_driver},
	    {"what_it_says_of_itself", what_it_says_of_itself},
	    {"ptx_where_cubin_is_refused", ptx_where_cubin_is_refused},
	    {"ptx_of_another_build", ptx_of_another_build},
	    {"no_ptx", no_ptx},
	    {"neither_is_taken", neither_is_taken},
	    {"kernels_by_name", kernels_by_name},
	    {"kernels_from_many_threads", kernels_from_many_threads},
	    {"memory", memory},
	    {"beside_a_capture", beside_a_capture},
	    {"lost_context", lost_context},
	    {"failures_of_the_gpu", failures_of_the_gpu},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
