/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_header.c - see cuda_header.h. */
#include "cuda_header.h"

#include <stddef.h>

#ifdef NIBEMU_HAVE_CUDA_H
#include <cuda.h>

#include "declared.h"

int cuda_header_count(void)
{
	return (int)(sizeof(declared) / sizeof(*declared));
}

long long cuda_header_value(int i)
{
	return declared[i].value;
}

#define STRING(x) #x
#define NAME(x)	  STRING(x)
const char *const cuda_header_names[] = {
    NAME(cuMemAlloc),
    NAME(cuMemFree),
    NAME(cuMemcpyHtoD),
    NAME(cuMemcpyDtoH),
    NAME(cuMemcpyDtoDAsync),
    NAME(cuMemsetD8),
    NAME(cuModuleLoadData),
    NAME(cuCtxGetDevice),
    NAME(cuCtxCreate),
    NAME(cuCtxDestroy),
    NAME(cuMemAdvise),
    NAME(cuMemHostGetDevicePointer),
    NAME(cuMemHostRegister),
    NAME(cuMemcpy2D),
    NAME(cuMemcpy3D),
    NAME(cuMemcpy3DAsync),
    NAME(cuMemPrefetchAsync),
    NAME(cuCtxPushCurrent),
    NAME(cuCtxPopCurrent),
    NAME(cuDeviceTotalMem),
    NAME(cuDevicePrimaryCtxRelease),
    NAME(cuGetProcAddress),
    NAME(cuStreamDestroy),
    NAME(cuStreamBeginCapture),
    NAME(cuGraphAddHostNode),
    NAME(cuGraphAddKernelNode),
    NAME(cuGraphAddMemcpyNode),
    NAME(cuGraphAddMemsetNode),
    NAME(cuGraphClone),
    NAME(cuGraphCreate),
    NAME(cuGraphLaunch),
    NAME(cuEventDestroy),
    NAME(cuGraphAddChildGraphNode),
    NAME(cuGraphAddDependencies),
    NAME(cuGraphAddNode),
    NAME(cuGraphExecKernelNodeSetParams),
    NAME(cuGraphExecUpdate),
    NAME(cuGraphGetEdges),
    NAME(cuGraphInstantiate),
    NAME(cuGraphInstantiateWithParams),
    NAME(cuGraphKernelNodeGetParams),
    NAME(cuGraphKernelNodeSetParams),
    NAME(cuGraphNodeGetDependencies),
    NAME(cuGraphNodeGetDependentNodes),
    NAME(cuGraphRemoveDependencies),
    NAME(cuGraphUpload),
    NAME(cuStreamBeginCaptureToGraph),
    NAME(cuStreamGetCaptureInfo),
    NAME(cuStreamUpdateCaptureDependencies),
    NAME(cuEventElapsedTime),
    NAME(cuIpcOpenMemHandle),
    NAME(cuLinkAddData),
    NAME(cuLinkAddFile),
    NAME(cuLinkComplete),
    NAME(cuLinkCreate),
    NAME(cuMemAllocFromPoolAsync),
    NAME(cuMemsetD2D16),
    NAME(cuMemsetD2D32),
    NAME(cuMemRangeGetAttribute),
    NAME(cuStreamAttachMemAsync),
    NAME(cuLaunchKernelEx),
    NAME(cuTensorMapEncodeTiled),
    NULL,
};
#else
const char *const cuda_header_names[] = {NULL};

int cuda_header_count(void)
{
	return 0;
}

long long cuda_header_value(int i)
{
	return i;
}
#endif
