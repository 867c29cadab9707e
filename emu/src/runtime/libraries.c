/* SPDX-License-Identifier: Apache-2.0 */
/* libraries.c - code that the program loads at run time; kernels are the driver's. */
#include "runtime/cudart.h"

cudaError_t cudaLibraryLoadData(CUlibrary *library, const void *code, int *jit_options,
				void **jit_values, unsigned jit_count, int *options,
				void **values, unsigned count)
{
	CUresult result = emu_runtime_begin();

	if (!result && (!library || !code))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = cuLibraryLoadData(library, code, jit_options, jit_values,
					   jit_count, options, values, count);
	return emu_runtime_keep(result);
}

cudaError_t cudaLibraryUnload(CUlibrary library)
{
	return emu_runtime_keep(cuLibraryUnload(library));
}

cudaError_t cudaLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	return emu_runtime_keep(cuLibraryGetKernel(kernel, library, name));
}

cudaError_t cudaLibraryGetKernelCount(unsigned *count, CUlibrary library)
{
	return emu_runtime_keep(cuLibraryGetKernelCount(count, library));
}

cudaError_t cudaLibraryEnumerateKernels(CUkernel *kernels, unsigned count,
					CUlibrary library)
{
	return emu_runtime_keep(cuLibraryEnumerateKernels(kernels, count, library));
}

cudaError_t cudaLibraryGetGlobal(void **pointer, size_t *bytes, CUlibrary library,
				 const char *name)
{
	CUdeviceptr at = 0;
	const CUresult result = cuLibraryGetGlobal(&at, bytes, library, name);

	if (!result && pointer)
		*pointer = (void *)(uintptr_t)at;
	return emu_runtime_keep(result);
}

cudaError_t cudaLibraryGetManaged(void **pointer, size_t *bytes, CUlibrary library,
				  const char *name)
{
	return cudaLibraryGetGlobal(pointer, bytes, library, name);
}
