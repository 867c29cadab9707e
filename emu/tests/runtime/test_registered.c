/* SPDX-License-Identifier: Apache-2.0 */
/* test_registered.c - memory of the host that a program registers. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "add_one.h"
#include "common/unit.h"
#include "runtime/cudart.h"

#define BYTES 10000

static cudaError_t add(void *at)
{
	const emu_dim3 one = {1, 1, 1};
	void *arguments[] = {&at};
	static CUlibrary library;
	cudaError_t result = CUDA_SUCCESS;
	CUkernel kernel;

	if (!library)
		result = cudaLibraryLoadData(&library, add_one, NULL, NULL, 0, NULL,
					     NULL, 0);
	if (!result)
		result = cudaLibraryGetKernel(&kernel, library, "add");
	if (!result)
		result = cudaLaunchKernel(kernel, one, one, arguments, 0, NULL);
	return result ? result : cudaDeviceSynchronize();
}

/* What a kernel writes is seen by the host, and the other way. */
static void check_mapped(uint8_t *host)
{
	uint32_t word = 41;
	void *at, *inside;

	memset(host, 3, BYTES);
	memcpy(host + 8, &word, 4);
	assert_int_equal(cudaHostRegister(host, BYTES, 2), CUDA_SUCCESS);
	assert_int_equal(cudaHostGetDevicePointer(&at, host, 0), CUDA_SUCCESS);
	assert_int_equal(cudaHostGetDevicePointer(&inside, host + 8, 0), CUDA_SUCCESS);
	assert_ptr_equal(inside, (char *)at + 8);
	assert_int_equal(add(inside), CUDA_SUCCESS);
	memcpy(&word, host + 8, 4);
	assert_int_equal(word, 42);
	word = 99;
	memcpy(host + 8, &word, 4);
	assert_int_equal(add(inside), CUDA_SUCCESS);
	memcpy(&word, host + 8, 4);
	assert_int_equal(word, 100);
	assert_int_equal(host[0], 3);
	assert_int_equal(host[BYTES - 1], 3);
	assert_int_equal(cudaHostUnregister(host), CUDA_SUCCESS);
	assert_int_equal(cudaHostGetDevicePointer(&at, host, 0),
			 CUDA_ERROR_INVALID_VALUE);
	/* The data stays. */
	memcpy(&word, host + 8, 4);
	assert_int_equal(word, 100);
}

static void test_mapped(void **state)
{
	uint8_t *host = malloc(BYTES + 64), *shared;

	assert_non_null(host);
	check_mapped(host + 16);
	check_mapped(host + 32);
	free(host);
	shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	check_mapped(shared);
	assert_int_equal(munmap(shared, BYTES), 0);
}

/* Two registrations in one page: the second outlives the first. */
static void test_neighbours(void **state)
{
	static _Alignas(4096) uint32_t page[1024];
	void *one, *two;

	assert_int_equal(cudaHostRegister(page, 64, 0), CUDA_SUCCESS);
	assert_int_equal(cudaHostRegister(page + 16, 64, 0), CUDA_SUCCESS);
	assert_int_equal(cudaHostGetDevicePointer(&one, page, 0), CUDA_SUCCESS);
	assert_int_equal(cudaHostGetDevicePointer(&two, page + 16, 0), CUDA_SUCCESS);
	assert_int_equal(add(one), CUDA_SUCCESS);
	assert_int_equal(cudaHostUnregister(page), CUDA_SUCCESS);
	assert_int_equal(add(two), CUDA_SUCCESS);
	assert_int_equal(page[0], 1);
	assert_int_equal(page[16], 1);
	assert_int_equal(cudaHostUnregister(page + 16), CUDA_SUCCESS);
}

static void test_refused(void **state)
{
	uint8_t bytes[BYTES];
	void *pinned, *at, *gone;

	assert_int_equal(cudaHostRegister(NULL, 4, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaHostRegister(bytes, 0, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaHostRegister(bytes, 4, 16), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaHostRegister(bytes, 4, 4), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(cudaHostRegister(bytes, SIZE_MAX - 9, 0),
			 CUDA_ERROR_INVALID_VALUE);
	gone = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(munmap(gone, 8192), 0);
	assert_int_equal(cudaHostRegister(gone, 8192, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaHostRegister(bytes, BYTES, 0), CUDA_SUCCESS);
	assert_int_equal(cudaHostRegister(bytes, BYTES, 0),
			 CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	assert_int_equal(cudaHostRegister(bytes + BYTES - 1, 1, 0),
			 CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	/* Copies accept memory on the stack; a kernel cannot have it. */
	assert_int_equal(cudaHostGetDevicePointer(&at, bytes, 0),
			 CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(cudaHostGetDevicePointer(&at, bytes, 1),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cudaHostUnregister(bytes + 1),
			 CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	assert_int_equal(cudaHostUnregister(bytes), CUDA_SUCCESS);
	assert_int_equal(cudaHostUnregister(bytes),
			 CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	assert_int_equal(cudaMallocHost(&pinned, 64), CUDA_SUCCESS);
	assert_int_equal(cudaHostRegister(pinned, 64, 0),
			 CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	assert_int_equal(cudaHostGetDevicePointer(&at, pinned, 0), CUDA_SUCCESS);
	assert_ptr_equal(at, pinned);
	assert_int_equal(cudaFreeHost(pinned), CUDA_SUCCESS);
}

/* A kernel that writes past registered memory is reported.  The context is lost. */
static void test_past_the_end(void **state)
{
	static uint32_t words[32];
	void *at;

	assert_int_equal(cudaHostRegister(words, sizeof(words), 0), CUDA_SUCCESS);
	assert_int_equal(cudaHostGetDevicePointer(&at, words, 0), CUDA_SUCCESS);
	assert_int_equal(add((char *)at + sizeof(words)), CUDA_ERROR_LAUNCH_FAILED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_mapped),
	    cmocka_unit_test(test_neighbours),
	    cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_past_the_end),
	};

	if (setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
