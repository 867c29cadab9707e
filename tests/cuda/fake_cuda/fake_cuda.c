/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_cuda.c - a libcuda with host memory and without arithmetic.  It opens,
 * allocates, copies, refuses and records launches, so that all of the host side is
 * tested without a GPU.  With FAKE_CUDA_OLD it lacks a function, as drivers before CUDA
 * 12 do.
 */
#include "fake_cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/kernels/common/probe_params.h"
#include "backend/cuda/kernels/common/quantize_params.h"
#include "backend/cuda/kernels/sm90/gemm_params.h"

#define EXPORT	   __attribute__((visibility("default")))
#define MAX_BLOCKS 4096
#define MAX_DEPTH  16

struct CUctx_st {
	int ordinal;
};
struct CUmod_st {
	char only[64]; /* the one kernel that it has; "" for all others */
	struct CUmod_st *next;
};
struct CUfunc_st {
	char name[64];
};

static struct block {
	uintptr_t begin, end;
	int type, ordinal, is_managed;
} blocks[MAX_BLOCKS];

static struct CUctx_st contexts[FAKE_MAX_GPUS] = {{0}, {1}, {2}, {3}};
static _Thread_local CUcontext stack[MAX_DEPTH];
static _Thread_local int depth;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

extern struct fake_cuda fake_cuda;
EXPORT struct fake_cuda fake_cuda = {
    .version = 13000,
    .devices = 1,
    .capability = {90, 90, 90, 90},
    .memory_bytes = (size_t)1 << 30,
};

/* Declares the functions below, which the library finds by name. */
#define F(name, arguments) EXPORT CUresult name arguments;
#include "backend/cuda/common/driver.def"
#undef F
EXPORT fake_cuda_register fake_register;

static int current(void)
{
	return depth > 0 ? stack[depth - 1]->ordinal : -1;
}

/* Counts a call that comes without a context; returns the context's result. */
static CUresult inside(void)
{
	pthread_mutex_lock(&lock);
	fake_cuda.outside += current() < 0;
	pthread_mutex_unlock(&lock);
	return current() < 0 ? CUDA_ERROR_INVALID_CONTEXT : fake_cuda.context_result;
}

static void count(int *counter, int step)
{
	pthread_mutex_lock(&lock);
	*counter += step;
	pthread_mutex_unlock(&lock);
}

static _Thread_local int capture_mode;

CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
	const int before = capture_mode;

	capture_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

/* As inside(), for calls that are refused while a stream is captured. */
static CUresult inside_unsafe(void)
{
	if (fake_cuda.captures && capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
		count(&fake_cuda.broken_captures, 1);
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return inside();
}

/* ---- memory -------------------------------------------------------------- */

static struct block *find_block(uintptr_t pointer)
{
	for (int i = 0; i < MAX_BLOCKS; i++)
		if (pointer >= blocks[i].begin && pointer < blocks[i].end)
			return &blocks[i];
	return NULL;
}

EXPORT void fake_register(const void *pointer, size_t bytes, int type, int ordinal,
			  int is_managed)
{
	const uintptr_t begin = (uintptr_t)pointer;
	struct block *block;

	pthread_mutex_lock(&lock);
	block = find_block(begin);
	for (int i = 0; !block && i < MAX_BLOCKS; i++)
		if (blocks[i].begin == blocks[i].end)
			block = &blocks[i];
	if (!block)
		abort();
	*block = (struct block){begin, begin + (type ? bytes : 0), type, ordinal,
				is_managed};
	pthread_mutex_unlock(&lock);
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
	CUresult result = inside_unsafe();
	void *memory;

	if (result)
		return result;
	if (bytes > fake_cuda.memory_bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* No kernel writes the scales, but nib_pack() looks at their signs. */
	memset(memory, 0, bytes);
	fake_register(memory, bytes, CU_MEMORYTYPE_DEVICE, current(), 0);
	count(&fake_cuda.allocations, 1);
	*pointer = (uintptr_t)memory;
	return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
	CUresult result = inside_unsafe();

	if (result)
		return result;
	if (!find_block(pointer))
		return CUDA_ERROR_INVALID_VALUE;
	fake_register((void *)(uintptr_t)pointer, 0, 0, 0, 0);
	count(&fake_cuda.allocations, -1);
	free((void *)(uintptr_t)pointer);
	return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
	if (stream && stream == fake_cuda.dead_stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (fake_cuda.no_pools)
		return CUDA_ERROR_NOT_SUPPORTED;
	return cuMemAlloc_v2(pointer, bytes);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
	if (stream && stream == fake_cuda.dead_stream)
		return CUDA_ERROR_INVALID_HANDLE;
	return cuMemFree_v2(pointer);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	CUresult result = inside();

	if (!result)
		memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
	return result;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	if (stream && stream == fake_cuda.dead_stream)
		return CUDA_ERROR_INVALID_HANDLE;
	return cuMemcpy(to, from, bytes);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes,
			 CUstream stream)
{
	CUresult result = inside();

	if (stream && stream == fake_cuda.dead_stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		memset((void *)(uintptr_t)to, value, bytes);
	return result;
}

/* Gives zeros and no error for an address that it does not know, as the driver
 * does; or the error that is asked for. */
CUresult cuPointerGetAttributes(unsigned attributes_count, int *attributes,
				void **values, CUdeviceptr pointer)
{
	const struct block *block;
	CUresult result = inside();

	if (result)
		return result;
	count(&fake_cuda.pointer_queries, 1);
	pthread_mutex_lock(&lock);
	block = find_block(pointer);
	if (!block)
		result = fake_cuda.unknown_pointer_result;
	for (unsigned i = 0; i < attributes_count; i++)
		switch (attributes[i]) {
		case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
			*(int *)values[i] = block ? block->type : 0;
			break;
		case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
			*(int *)values[i] = block ? block->ordinal : -2;
			break;
		case CU_POINTER_ATTRIBUTE_IS_MANAGED:
			*(int *)values[i] = block && block->is_managed;
			break;
		case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
			*(CUdeviceptr *)values[i] = block ? pointer : 0;
			break;
		case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
			*(CUdeviceptr *)values[i] = block ? block->begin : 0;
			break;
		case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
			*(size_t *)values[i] = block ? block->end - block->begin : 0;
			break;
		default:
			result = CUDA_ERROR_INVALID_VALUE;
		}
	pthread_mutex_unlock(&lock);
	return result;
}

/* ---- the driver and its GPUs --------------------------------------------- */

CUresult cuInit(unsigned flags)
{
	(void)flags;
	return fake_cuda.init_result;
}

CUresult cuDriverGetVersion(int *version)
{
	*version = fake_cuda.version;
	return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult result, const char **text)
{
	*text = result == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
						     : "CUDA_ERROR_FAKE";
	return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult result, const char **text)
{
	static _Thread_local char number[32];

	snprintf(number, sizeof(number), "fake error %d", result);
	*text = number;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *devices)
{
	*devices = fake_cuda.devices;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	*device = ordinal;
	return ordinal < fake_cuda.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device)
{
	snprintf(name, (size_t)bytes, "NVIDIA Fake %d", device);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
		*value = 1980000;
		break;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = 132;
		break;
	case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
		*value = 3201000;
		break;
	case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
		*value = 6144;
		break;
	case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
		*value = 60 << 20;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = fake_cuda.capability[device] / 10;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
		*value = fake_cuda.capability[device] % 10;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
		*value = 227 << 10;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	(void)device;
	*bytes = fake_cuda.memory_bytes;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	count(&fake_cuda.retained, 1);
	*context = &contexts[device];
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	(void)device;
	count(&fake_cuda.retained, -1);
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	if (fake_cuda.enter_result)
		return fake_cuda.enter_result;
	if (depth == MAX_DEPTH)
		abort();
	stack[depth++] = context;
	count(&fake_cuda.depth, 1);
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	if (depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	*context = stack[--depth];
	count(&fake_cuda.depth, -1);
	return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
	CUresult result = inside();

	count(&fake_cuda.waits, 1);
	if (stream && stream == fake_cuda.dead_stream)
		return CUDA_ERROR_INVALID_HANDLE;
	return result;
}

/* ---- kernels ------------------------------------------------------------- */

/* All loaded modules, so that those which a lost context frees are no leak. */
static CUmodule modules;

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned option_count,
			    int *options, void **values)
{
	const bool is_cubin = strncmp(image, "cubin", 5) == 0;
	const char *only = strstr(image, "only ");
	CUresult result = inside();

	if (!result)
		result = is_cubin ? fake_cuda.cubin_result : fake_cuda.ptx_result;
	if (result) {
		for (unsigned i = 0; i < option_count; i++)
			if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
				snprintf(values[i], 32, "ptxas fatal\t: no\n");
		return result;
	}
	*module = malloc(sizeof(**module));
	if (!*module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	(*module)->next = modules;
	modules = *module;
	pthread_mutex_unlock(&lock);
	snprintf((*module)->only, sizeof((*module)->only), "%s",
		 only ? only + strlen("only ") : "");
	count(&fake_cuda.modules, 1);
	count(is_cubin ? &fake_cuda.cubins : &fake_cuda.ptxs, 1);
	return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
	pthread_mutex_lock(&lock);
	for (CUmodule *at = &modules; *at; at = &(*at)->next)
		if (*at == module) {
			*at = module->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	free(module);
	count(&fake_cuda.modules, -1);
	return CUDA_SUCCESS;
}

/* A module has every kernel but those that tests call missing_..., or one alone:
 * "only <name>" ends its image's text. */
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	static struct CUfunc_st functions[64];
	static int used;
	CUresult result = inside();
	int at = 0;

	if (result)
		return result;
	if (strncmp(name, "missing_", 8) == 0 ||
	    (module->only[0] && strcmp(module->only, name) != 0)) {
		count(&fake_cuda.misses, 1);
		return CUDA_ERROR_NOT_FOUND;
	}
	pthread_mutex_lock(&lock);
	fake_cuda.lookups++;
	while (at < used && strcmp(functions[at].name, name) != 0)
		at++;
	if (at == 64)
		abort();
	if (at == used)
		snprintf(functions[used++].name, sizeof(functions[0].name), "%s", name);
	*function = &functions[at];
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
	(void)function;
	if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
		if (value > 227 << 10)
			return CUDA_ERROR_INVALID_VALUE;
		fake_cuda.shared_bytes = value;
	}
	return CUDA_SUCCESS;
}

#ifndef FAKE_CUDA_OLD
CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function,
				      const CUlaunchConfig *config)
{
	(void)function;
	*clusters = 132 / (int)config->attrs[0].value.clusterDim.x;
	return CUDA_SUCCESS;
}
#endif

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, int type, uint32_t rank,
				void *address, const uint64_t *sizes,
				const uint64_t *strides_bytes, const uint32_t *box,
				const uint32_t *element_strides, int interleave,
				int swizzle, int l2_promotion, int fill)
{
	(void)type;
	(void)swizzle;
	(void)l2_promotion;
	if (fake_cuda.map_result)
		return fake_cuda.map_result;
	if (rank != 3 || !address || (uintptr_t)address % 16 || interleave || fill)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < 3; i++)
		if (sizes[i] < 1 || sizes[i] > (uint64_t)1 << 32 || box[i] < 1 ||
		    box[i] > 256 || element_strides[i] != 1)
			return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < 2; i++)
		if (strides_bytes[i] < 16 || strides_bytes[i] % 16 ||
		    strides_bytes[i] >= (uint64_t)1 << 40)
			return CUDA_ERROR_INVALID_VALUE;
	memset(map, 0, sizeof(*map));
	count(&fake_cuda.maps, 1);
	return CUDA_SUCCESS;
}

/* Nanoseconds that a launch takes by the rule of fake_cuda.h. */
static double launch_ns(const char *name, void *const *arguments)
{
	const struct nib_gemm_launch *gemm = arguments[0];
	const struct nib_probe_args *probe = arguments[0];
	const struct nib_gemm_args *a = &gemm->args;
	int32_t steps;

	if (strncmp(name, "nib_probe_cycles_", 17) == 0)
		return (double)probe->count * FAKE_CYCLE_NS;
	if (strncmp(name, "nib_gemm_", 9) != 0 || !strstr(name, "_sm90"))
		return 0;
	steps = a->shapes[0].k / 64 / a->k_slices;
	return FAKE_CYCLE_NS * (a->tile_rounds * (FAKE_TILE_CYCLES +
						  steps * FAKE_STEP_CYCLES(a->tile_m)) +
				(a->k_slices > 1 ? FAKE_SPLIT_CYCLES : 0));
}

/* The time of all launches so far, and of looking at the clock. */
static atomic_uint_fast64_t clock_ns;

/* Only programs that LD_PRELOAD this library have this clock. */
EXPORT int clock_gettime(clockid_t id, struct timespec *now)
{
	const uint64_t ns = atomic_fetch_add(&clock_ns, FAKE_LOOK_NS);

	(void)id;
	now->tv_sec = (time_t)(ns / 1000000000);
	now->tv_nsec = (long)(ns % 1000000000);
	return 0;
}

static void remember(const CUlaunchConfig *config, const char *kernel)
{
	struct fake_launch *launch =
	    &fake_cuda.history[fake_cuda.launches % FAKE_HISTORY];

	memcpy(launch->kernel, kernel, sizeof(launch->kernel));
	launch->stream = config->hStream;
}

static void find_bad(const char *kernel, const void *parameters)
{
	const struct nib_quantize_params *quantize = parameters;
	const struct nib_amax_params *amax = parameters;
	struct nib_quantize_found *found = NULL;

	if (strncmp(kernel, "nib_quantize_", 13) == 0)
		found = quantize->found;
	else if (strncmp(kernel, "nib_amax_", 9) == 0)
		found = amax->found;
	if (found)
		found->first_bad = fake_cuda.found_bad;
}

/* With the lock. */
static void record(const CUlaunchConfig *config, CUfunction function)
{
	if (config->numAttrs > FAKE_MAX_ATTRIBUTES)
		abort();
	remember(config, function->name);
	fake_cuda.launches++;
	fake_cuda.before = fake_cuda.last;
	fake_cuda.before.attrs = NULL;
	fake_cuda.last = *config;
	fake_cuda.last.attrs = fake_cuda.last_attributes;
	for (unsigned i = 0; i < config->numAttrs; i++)
		fake_cuda.last_attributes[i] = config->attrs[i];
	memcpy(fake_cuda.last_kernel, function->name, sizeof(function->name));
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
			  void **arguments, void **extra)
{
	CUresult result = inside();

	(void)extra;
	if (!result && fake_cuda.launch_result) {
		if (fake_cuda.launches_left > 0)
			fake_cuda.launches_left--;
		else
			result = fake_cuda.launch_result;
	}
	if (!result && config->hStream && config->hStream == fake_cuda.dead_stream)
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result)
		return result;
	pthread_mutex_lock(&lock);
	record(config, function);
	find_bad(function->name, arguments[0]);
	pthread_mutex_unlock(&lock);
	atomic_fetch_add(&clock_ns, (uint64_t)launch_ns(function->name, arguments));
	return CUDA_SUCCESS;
}
