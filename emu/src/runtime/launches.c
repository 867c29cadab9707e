/* SPDX-License-Identifier: Apache-2.0 */
/* launches.c - launches of the runtime interface, functions, occupancy. */
#include <string.h>

#include "runtime/cudart.h"

/* ---- kernel<<<...>>>() --------------------------------------------------- */

/* The configuration of <<<...>>> until the stub is called; stubs may nest. */
#define MOST_CALLS 8
static _Thread_local struct call {
	emu_dim3 grid, block;
	size_t shared_bytes;
	CUstream stream;
} calls[MOST_CALLS];
static _Thread_local unsigned n_calls;

unsigned __cudaPushCallConfiguration(emu_dim3 grid, emu_dim3 block, size_t shared_bytes,
				     CUstream stream)
{
	if (n_calls == MOST_CALLS)
		return 1;
	calls[n_calls++] = (struct call){grid, block, shared_bytes, stream};
	return 0;
}

cudaError_t __cudaPopCallConfiguration(emu_dim3 *grid, emu_dim3 *block,
				       size_t *shared_bytes, void *stream)
{
	const struct call *c;

	if (n_calls == 0)
		return emu_runtime_keep(CUDA_ERROR_INVALID_VALUE);
	c = &calls[--n_calls];
	*grid = c->grid;
	*block = c->block;
	*shared_bytes = c->shared_bytes;
	memcpy(stream, &c->stream, sizeof(c->stream));
	return CUDA_SUCCESS;
}

static CUlaunchConfig config_of(const cudaLaunchConfig_t *c)
{
	return (CUlaunchConfig){c->gridDim.x,
				c->gridDim.y,
				c->gridDim.z,
				c->blockDim.x,
				c->blockDim.y,
				c->blockDim.z,
				(unsigned)c->dynamicSmemBytes,
				c->stream,
				c->attrs,
				c->numAttrs};
}

static cudaError_t launch(CUresult found, CUfunction function,
			  const cudaLaunchConfig_t *config, void **arguments)
{
	const CUlaunchConfig c = config_of(config);

	return emu_runtime_keep(
	    found ? found : cuLaunchKernelEx(&c, function, arguments, NULL));
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *stub,
				void **arguments)
{
	CUfunction function = NULL;
	const CUresult found = emu_runtime_function(stub, &function);

	return launch(found, function, config, arguments);
}

cudaError_t __cudaLaunchKernel(CUkernel kernel, emu_dim3 grid, emu_dim3 block,
			       void **arguments, size_t shared_bytes, CUstream stream)
{
	const cudaLaunchConfig_t config = {grid, block, shared_bytes, stream, NULL, 0};

	return launch(kernel ? CUDA_SUCCESS : cudaErrorInvalidDeviceFunction,
		      (CUfunction)(void *)kernel, &config, arguments);
}

cudaError_t cudaLaunchKernel(const void *stub, emu_dim3 grid, emu_dim3 block,
			     void **arguments, size_t shared_bytes, CUstream stream)
{
	const cudaLaunchConfig_t config = {grid, block, shared_bytes, stream, NULL, 0};

	return cudaLaunchKernelExC(&config, stub, arguments);
}

cudaError_t cudaLaunchCooperativeKernel(const void *stub, emu_dim3 grid, emu_dim3 block,
					void **arguments, size_t shared_bytes,
					CUstream stream)
{
	CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
					 .value = {.cooperative = 1}};
	const cudaLaunchConfig_t config = {grid,   block,	 shared_bytes,
					   stream, &cooperative, 1};

	return cudaLaunchKernelExC(&config, stub, arguments);
}

/* ---- functions ----------------------------------------------------------- */

/* The runtime's attributes that can be set have the driver's numbers. */
cudaError_t cudaFuncSetAttribute(const void *stub, int attribute, int value)
{
	CUfunction function = NULL;
	CUresult result = emu_runtime_function(stub, &function);

	if (!result)
		result = cuFuncSetAttribute(function, attribute, value);
	return emu_runtime_keep(result);
}

/* Reads attributes that are int in both interfaces. */
static CUresult read_attributes(struct cudaFuncAttributes *to, CUfunction function)
{
	const struct {
		int attribute, *to;
	} reads[] = {
	    {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &to->maxThreadsPerBlock},
	    {CU_FUNC_ATTRIBUTE_NUM_REGS, &to->numRegs},
	    {CU_FUNC_ATTRIBUTE_PTX_VERSION, &to->ptxVersion},
	    {CU_FUNC_ATTRIBUTE_BINARY_VERSION, &to->binaryVersion},
	    {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
	     &to->maxDynamicSharedSizeBytes},
	    {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
	     &to->preferredShmemCarveout},
	    {CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, &to->clusterDimMustBeSet},
	    {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, &to->requiredClusterWidth},
	    {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, &to->requiredClusterHeight},
	    {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, &to->requiredClusterDepth},
	    {CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
	     &to->nonPortableClusterSizeAllowed},
	};
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < sizeof(reads) / sizeof(*reads) && !result; i++)
		result = cuFuncGetAttribute(reads[i].to, reads[i].attribute, function);
	return result;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *to, const void *stub)
{
	CUfunction function = NULL;
	CUresult result = emu_runtime_function(stub, &function);
	int shared = 0, local = 0, constant = 0;

	memset(to, 0, sizeof(*to));
	if (!result)
		result = read_attributes(to, function);
	if (!result)
		result = cuFuncGetAttribute(
		    &shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function);
	if (!result)
		result = cuFuncGetAttribute(&local, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
					    function);
	if (!result)
		result = cuFuncGetAttribute(
		    &constant, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, function);
	to->sharedSizeBytes = (size_t)shared;
	to->localSizeBytes = (size_t)local;
	to->constSizeBytes = (size_t)constant;
	return emu_runtime_keep(result);
}

cudaError_t cudaFuncGetName(const char **name, const void *stub)
{
	CUfunction function = NULL;
	const CUresult result = emu_runtime_function(stub, &function);

	return emu_runtime_keep(result ? result : cuFuncGetName(name, function));
}

cudaError_t cudaFuncGetParamInfo(const void *stub, size_t index, size_t *offset,
				 size_t *bytes)
{
	CUfunction function = NULL;
	const CUresult result = emu_runtime_function(stub, &function);

	return emu_runtime_keep(
	    result ? result : cuFuncGetParamInfo(function, index, offset, bytes));
}

cudaError_t cudaFuncSetSharedMemConfig(const void *stub, int config)
{
	(void)stub;
	(void)config;
	return CUDA_SUCCESS;
}

cudaError_t cudaGetKernel(CUkernel *kernel, const void *stub)
{
	return __cudaGetKernel(kernel, stub);
}

cudaError_t cudaKernelSetAttributeForDevice(CUkernel kernel, int attribute, int value,
					    int device)
{
	EMU_CALL(cuKernelSetAttribute(attribute, value, kernel, device));
}

cudaError_t cudaFuncSetCacheConfig(const void *stub, int config)
{
	(void)stub;
	(void)config;
	return CUDA_SUCCESS;
}

/* ---- occupancy ----------------------------------------------------------- */

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *stub,
							  int threads,
							  size_t shared_bytes)
{
	CUfunction function = NULL;
	CUresult result = emu_runtime_function(stub, &function);

	if (!result)
		result = cuOccupancyMaxActiveBlocksPerMultiprocessor(
		    blocks, function, threads, shared_bytes);
	return emu_runtime_keep(result);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *stub, int threads, size_t shared_bytes, unsigned flags)
{
	(void)flags;
	return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, stub, threads,
							     shared_bytes);
}

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *stub,
					   const cudaLaunchConfig_t *config)
{
	const CUlaunchConfig c = config_of(config);
	CUfunction function = NULL;
	CUresult result = emu_runtime_function(stub, &function);

	if (!result)
		result = cuOccupancyMaxActiveClusters(clusters, function, &c);
	return emu_runtime_keep(result);
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int *ctas, const void *stub,
						 const cudaLaunchConfig_t *config)
{
	const CUlaunchConfig c = config_of(config);
	CUfunction function = NULL;
	CUresult result = emu_runtime_function(stub, &function);

	if (!result)
		result = cuOccupancyMaxPotentialClusterSize(ctas, function, &c);
	return emu_runtime_keep(result);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *stub,
						      int blocks, int threads)
{
	CUfunction function = NULL;
	CUresult result = emu_runtime_function(stub, &function);

	if (!result)
		result = cuOccupancyAvailableDynamicSMemPerBlock(bytes, function,
								 blocks, threads);
	return emu_runtime_keep(result);
}
