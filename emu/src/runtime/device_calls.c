/* SPDX-License-Identifier: Apache-2.0 */
/* device_calls.c - the device, errors, streams and events. */
#include <pthread.h>
#include <string.h>

#include "runtime/cudart.h"

/* ---- begin, errors ------------------------------------------------------- */

static _Thread_local cudaError_t last;

cudaError_t emu_runtime_keep(CUresult result)
{
	if (result)
		last = result;
	return result;
}

static CUresult begun;

static void begin(void)
{
	CUcontext context;

	begun = cuInit(0);
	if (!begun)
		begun = cuDevicePrimaryCtxRetain(&context, 0);
}

CUresult emu_runtime_begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static _Thread_local int has_context;
	CUcontext context;

	pthread_once(&once, begin);
	if (begun || has_context)
		return begun;
	has_context = 1;
	/* As on a GPU, the primary context becomes current if none is. */
	if (cuCtxGetCurrent(&context) || context)
		return CUDA_SUCCESS;
	(void)cuDevicePrimaryCtxRetain(&context, 0);
	return cuCtxSetCurrent(context);
}

cudaError_t cudaGetLastError(void)
{
	const cudaError_t error = last;

	last = CUDA_SUCCESS;
	return error;
}

cudaError_t cudaPeekAtLastError(void)
{
	return last;
}

const char *cudaGetErrorString(cudaError_t error)
{
	const char *text = NULL;

	if (error == cudaErrorInvalidDeviceFunction)
		return "invalid device function";
	return cuGetErrorString(error, &text) ? "unrecognized error code" : text;
}

const char *cudaGetErrorName(cudaError_t error)
{
	const char *text = NULL;

	if (error == cudaErrorInvalidDeviceFunction)
		return "cudaErrorInvalidDeviceFunction";
	return cuGetErrorName(error, &text) ? "unrecognized error code" : text;
}

/* ---- the device ---------------------------------------------------------- */

cudaError_t cudaDriverGetVersion(int *version)
{
	return cuDriverGetVersion(version);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	return cuDriverGetVersion(version);
}

cudaError_t cudaGetDeviceCount(int *count)
{
	EMU_CALL(cuDeviceGetCount(count));
}

cudaError_t cudaGetDevice(int *device)
{
	*device = 0;
	EMU_CALL(CUDA_SUCCESS);
}

cudaError_t cudaSetDevice(int device)
{
	CUdevice unused;

	EMU_CALL(cuDeviceGet(&unused, device));
}

/* There is one device. */
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	EMU_CALL(cuDeviceCanAccessPeer(can, device, peer));
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, int attribute, int device, int peer)
{
	(void)value;
	(void)attribute;
	(void)device;
	(void)peer;
	return emu_runtime_keep(CUDA_ERROR_INVALID_DEVICE);
}

cudaError_t cudaCtxResetPersistingL2Cache(void)
{
	EMU_CALL(cuCtxResetPersistingL2Cache());
}

cudaError_t cudaStreamSetAttribute(CUstream stream, int attribute, const void *value)
{
	EMU_CALL(cuStreamSetAttribute(stream, attribute, value));
}

cudaError_t cudaSetDeviceFlags(unsigned flags)
{
	(void)flags;
	return CUDA_SUCCESS;
}

cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device)
{
	EMU_CALL(cuDeviceGetAttribute(value, attribute, device));
}

/* Sets fields that have a number for cuDeviceGetAttribute. */
static void put_numbers(struct cudaDeviceProp *p, int device)
{
	const struct {
		int attribute, *to;
	} numbers[] = {
	    {1, &p->maxThreadsPerBlock},
	    {2, &p->maxThreadsDim[0]},
	    {3, &p->maxThreadsDim[1]},
	    {4, &p->maxThreadsDim[2]},
	    {5, &p->maxGridSize[0]},
	    {6, &p->maxGridSize[1]},
	    {7, &p->maxGridSize[2]},
	    {10, &p->warpSize},
	    {12, &p->regsPerBlock},
	    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &p->multiProcessorCount},
	    {19, &p->canMapHostMemory},
	    {31, &p->concurrentKernels},
	    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &p->memoryBusWidth},
	    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &p->l2CacheSize},
	    {39, &p->maxThreadsPerMultiProcessor},
	    {40, &p->asyncEngineCount},
	    {41, &p->unifiedAddressing},
	    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &p->major},
	    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &p->minor},
	    {82, &p->regsPerMultiprocessor},
	    {83, &p->managedMemory},
	    {89, &p->concurrentManagedAccess},
	    {95, &p->cooperativeLaunch},
	    {106, &p->maxBlocksPerMultiProcessor},
	    {108, &p->persistingL2CacheMaxSize},
	    {109, &p->accessPolicyMaxWindowSize},
	    {120, &p->clusterLaunch},
	};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		(void)cuDeviceGetAttribute(numbers[i].to, numbers[i].attribute, device);
}

static size_t size_of(int attribute, int device)
{
	int value = 0;

	(void)cuDeviceGetAttribute(&value, attribute, device);
	return (size_t)value;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *to, int device)
{
	CUresult result = emu_runtime_begin();

	memset(to, 0, sizeof(*to));
	if (!result)
		result = cuDeviceGetName(to->name, sizeof(to->name), device);
	if (!result)
		result = cuDeviceTotalMem_v2(&to->totalGlobalMem, device);
	if (result)
		return emu_runtime_keep(result);
	(void)cuDeviceGetUuid_v2(&to->uuid, device);
	put_numbers(to, device);
	to->sharedMemPerBlock = size_of(8, device);
	to->totalConstMem = size_of(9, device);
	to->memPitch = size_of(11, device);
	to->textureAlignment = size_of(14, device);
	to->texturePitchAlignment = size_of(23, device);
	to->surfaceAlignment = size_of(30, device);
	to->sharedMemPerMultiprocessor = size_of(81, device);
	to->sharedMemPerBlockOptin =
	    size_of(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device);
	to->reservedSharedMemPerBlock = size_of(111, device);
	return CUDA_SUCCESS;
}

cudaError_t cudaDeviceSynchronize(void)
{
	EMU_CALL(cuCtxSynchronize());
}

cudaError_t cudaDeviceReset(void)
{
	EMU_CALL(cuCtxSynchronize());
}

cudaError_t cudaDeviceSetLimit(int limit, size_t value)
{
	EMU_CALL(cuCtxSetLimit(limit, value));
}

cudaError_t cudaDeviceGetLimit(size_t *value, int limit)
{
	EMU_CALL(cuCtxGetLimit(value, limit));
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **to,
					     unsigned version, unsigned long long flags,
					     int *status)
{
	EMU_CALL(cuGetProcAddress_v2(symbol, to, (int)version, flags, status));
}

cudaError_t cudaProfilerStart(void)
{
	return CUDA_SUCCESS;
}

cudaError_t cudaProfilerStop(void)
{
	return CUDA_SUCCESS;
}

/* ---- streams -------------------------------------------------- */

cudaError_t cudaStreamCreate(CUstream *stream)
{
	EMU_CALL(cuStreamCreate(stream, 0));
}

cudaError_t cudaStreamCreateWithFlags(CUstream *stream, unsigned flags)
{
	EMU_CALL(cuStreamCreate(stream, flags));
}

cudaError_t cudaStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
	EMU_CALL(cuStreamCreateWithPriority(stream, flags, priority));
}

cudaError_t cudaStreamDestroy(CUstream stream)
{
	EMU_CALL(cuStreamDestroy_v2(stream));
}

cudaError_t cudaStreamSynchronize(CUstream stream)
{
	EMU_CALL(cuStreamSynchronize(stream));
}

cudaError_t cudaStreamQuery(CUstream stream)
{
	EMU_CALL(cuStreamQuery(stream));
}

cudaError_t cudaStreamGetFlags(CUstream stream, unsigned *flags)
{
	EMU_CALL(cuStreamGetFlags(stream, flags));
}

cudaError_t cudaStreamGetId(CUstream stream, unsigned long long *id)
{
	EMU_CALL(cuStreamGetId(stream, id));
}

cudaError_t cudaStreamGetDevice(CUstream stream, int *device)
{
	EMU_CALL(cuStreamGetDevice(stream, device));
}

cudaError_t cudaStreamGetPriority(CUstream stream, int *priority)
{
	EMU_CALL(cuStreamGetPriority(stream, priority));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	EMU_CALL(cuCtxGetStreamPriorityRange(least, greatest));
}

cudaError_t cudaLaunchHostFunc(CUstream stream, void (*function)(void *),
			       void *argument)
{
	EMU_CALL(cuLaunchHostFunc(stream, function, argument));
}

/* A callback and its arguments, for cuLaunchHostFunc. */
struct callback {
	void (*function)(CUstream stream, cudaError_t status, void *argument);
	CUstream stream;
	void *argument;
};

static void call_back(void *argument)
{
	const struct callback *c = argument;

	c->function(c->stream, CUDA_SUCCESS, c->argument);
}

/* Host functions run before cuLaunchHostFunc returns, so the arguments still exist. */
cudaError_t cudaStreamAddCallback(CUstream stream,
				  void (*function)(CUstream, cudaError_t, void *),
				  void *argument, unsigned flags)
{
	struct callback c = {function, stream, argument};
	int captures = 0;

	if (!function || flags)
		return emu_runtime_keep(CUDA_ERROR_INVALID_VALUE);
	if (!emu_runtime_begin() && !cuStreamIsCapturing(stream, &captures) && captures)
		return emu_runtime_keep(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	EMU_CALL(cuLaunchHostFunc(stream, call_back, &c));
}

cudaError_t cudaStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
	EMU_CALL(cuStreamWaitEvent(stream, event, flags));
}

cudaError_t cudaStreamBeginCapture(CUstream stream, int mode)
{
	EMU_CALL(cuStreamBeginCapture_v2(stream, mode));
}

cudaError_t cudaStreamEndCapture(CUstream stream, CUgraph *graph)
{
	EMU_CALL(cuStreamEndCapture(stream, graph));
}

cudaError_t cudaStreamIsCapturing(CUstream stream, int *state)
{
	EMU_CALL(cuStreamIsCapturing(stream, state));
}

/* ---- captures ----------------------------------------------------------------- */

cudaError_t cudaStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
					  const CUgraphNode *before,
					  const CUgraphEdgeData *data, size_t count,
					  int mode)
{
	EMU_CALL(cuStreamBeginCaptureToGraph(stream, graph, before, data, count, mode));
}

cudaError_t cudaStreamGetCaptureInfo(CUstream stream, int *status, uint64_t *id,
				     CUgraph *graph, const CUgraphNode **before,
				     const CUgraphEdgeData **data, size_t *count)
{
	EMU_CALL(
	    cuStreamGetCaptureInfo_v3(stream, status, id, graph, before, data, count));
}

cudaError_t cudaStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes,
						const CUgraphEdgeData *data,
						size_t count, unsigned flags)
{
	EMU_CALL(
	    cuStreamUpdateCaptureDependencies_v2(stream, nodes, data, count, flags));
}

cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode)
{
	EMU_CALL(cuThreadExchangeStreamCaptureMode(mode));
}

cudaError_t cudaEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
	EMU_CALL(cuEventRecordWithFlags(event, stream, flags));
}

/* ---- events -------------------------------------------------------------- */

cudaError_t cudaEventCreate(CUevent *event)
{
	EMU_CALL(cuEventCreate(event, 0));
}

cudaError_t cudaEventCreateWithFlags(CUevent *event, unsigned flags)
{
	EMU_CALL(cuEventCreate(event, flags));
}

cudaError_t cudaEventDestroy(CUevent event)
{
	EMU_CALL(cuEventDestroy_v2(event));
}

cudaError_t cudaEventRecord(CUevent event, CUstream stream)
{
	EMU_CALL(cuEventRecord(event, stream));
}

cudaError_t cudaEventSynchronize(CUevent event)
{
	EMU_CALL(cuEventSynchronize(event));
}

cudaError_t cudaEventQuery(CUevent event)
{
	EMU_CALL(cuEventQuery(event));
}

cudaError_t cudaEventElapsedTime(float *milliseconds, CUevent begin, CUevent end)
{
	EMU_CALL(cuEventElapsedTime(milliseconds, begin, end));
}
