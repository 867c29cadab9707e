/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library.c - libraries, which are modules here, and their kernels, which are
 * functions.
 */
#include <stdlib.h>
#include <string.h>

#include "driver/state.h"

static CUmodule module_of(CUlibrary library)
{
	return (CUmodule)(void *)library;
}

static CUfunction function_of(CUkernel kernel)
{
	return (CUfunction)(void *)kernel;
}

/* ---- modules ------------------------------------------------------------- */

/* All of a module is loaded at once: CU_MODULE_EAGER_LOADING. */
CUresult cuModuleGetLoadingMode(int *mode)
{
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = 1;
	return CUDA_SUCCESS;
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *pointer, size_t *bytes, CUmodule module,
			      const char *name)
{
	CUresult result = emu_driver_enter();
	const struct emu_variable *v;

	if (!result && !emu_is_module(module))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result && !name)
		result = CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; !result && i < module->module->n_variables; i++) {
		v = &module->module->variables[i];
		if (strcmp(v->name, name) != 0)
			continue;
		if (pointer)
			*pointer = v->address;
		if (bytes)
			*bytes = v->bytes;
		return emu_driver_leave(CUDA_SUCCESS);
	}
	return emu_driver_leave(result ? result : CUDA_ERROR_NOT_FOUND);
}

/* ---- libraries ----------------------------------------------------------- */

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, int *jit_options,
			   void **jit_values, unsigned jit_count, int *options,
			   void **values, unsigned count)
{
	CUmodule module = NULL;
	const CUresult result =
	    cuModuleLoadDataEx(&module, code, jit_count, jit_options, jit_values);

	(void)options;
	(void)values;
	(void)count;
	if (!result)
		*library = (CUlibrary)(void *)module;
	return result;
}

CUresult cuLibraryUnload(CUlibrary library)
{
	return cuModuleUnload(module_of(library));
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
	CUresult result = emu_driver_enter();

	if (!result && !module)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && !emu_is_module(module_of(library)))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		*module = module_of(library);
	return emu_driver_leave(result);
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	CUfunction function = NULL;
	const CUresult result =
	    kernel ? cuModuleGetFunction(&function, module_of(library), name)
		   : CUDA_ERROR_INVALID_VALUE;

	if (!result)
		*kernel = (CUkernel)(void *)function;
	return result;
}

CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library)
{
	CUresult result = emu_driver_enter();

	if (!result && !emu_is_module(module_of(library)))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		*count = module_of(library)->module->n_kernels;
	return emu_driver_leave(result);
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned count, CUlibrary library)
{
	const CUmodule m = module_of(library);
	CUresult result = emu_driver_enter();

	if (!result && !emu_is_module(m))
		result = CUDA_ERROR_INVALID_HANDLE;
	for (unsigned i = 0; !result && i < count && i < m->module->n_kernels; i++)
		kernels[i] = (CUkernel)(void *)&m->functions[i];
	return emu_driver_leave(result);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library,
			    const char *name)
{
	return cuModuleGetGlobal_v2(pointer, bytes, module_of(library), name);
}

/* Managed variables are those of a module: the host may touch all of them. */
CUresult cuLibraryGetManaged(CUdeviceptr *pointer, size_t *bytes, CUlibrary library,
			     const char *name)
{
	return cuModuleGetGlobal_v2(pointer, bytes, module_of(library), name);
}

/* ---- kernels ------------------------------------------------------------- */

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	CUresult result = emu_driver_enter();

	if (!result && !function)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && !emu_is_function(function_of(kernel)))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		*function = function_of(kernel);
	return emu_driver_leave(result);
}

CUresult cuFuncGetName(const char **name, CUfunction function)
{
	CUresult result = emu_driver_enter();

	if (!result && !name)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && !emu_is_function(function))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		*name = function->kernel->name;
	return emu_driver_leave(result);
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset,
			    size_t *bytes)
{
	CUresult result = emu_driver_enter();

	if (!result && !emu_is_function(function))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result && (!offset || index >= function->kernel->n_parameters))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result)
		*offset = function->kernel->parameters[index].offset;
	if (!result && bytes)
		*bytes = function->kernel->parameters[index].bytes;
	return emu_driver_leave(result);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset,
			      size_t *bytes)
{
	return cuFuncGetParamInfo(function_of(kernel), index, offset, bytes);
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
	return cuFuncGetName(name, function_of(kernel));
}

CUresult cuKernelGetAttribute(int *value, int attribute, CUkernel kernel,
			      CUdevice device)
{
	(void)device;
	return cuFuncGetAttribute(value, attribute, function_of(kernel));
}

CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel,
			      CUdevice device)
{
	(void)device;
	return cuFuncSetAttribute(function_of(kernel), attribute, value);
}

/* Caches are not modelled, so their configuration changes nothing. */
CUresult cuFuncSetCacheConfig(CUfunction function, int config)
{
	CUresult result = emu_driver_enter();

	(void)config;
	if (!result && !emu_is_function(function))
		result = CUDA_ERROR_INVALID_HANDLE;
	return emu_driver_leave(result);
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, int config)
{
	return cuFuncSetCacheConfig(function, config);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, int config, CUdevice device)
{
	(void)device;
	return cuFuncSetCacheConfig(function_of(kernel), config);
}
