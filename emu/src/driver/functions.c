/* SPDX-License-Identifier: Apache-2.0 */
/* functions.c - finds every function of the interface by its name. */
#include <stdbool.h>
#include <string.h>

#include "driver/cuda_api.h"
#include "driver/record.h"

typedef void function(void);

static const struct {
	const char *name;
	function *call;
} functions[] = {
#define F(name, arguments) {#name, (function *)name},
#include "driver/cuda_api.def"
#undef F
};

/* Functions whose arguments changed, and the first version of CUDA that has them. */
static const struct {
	const char *name;
	int version;
} changed[] = {
    {"cuCtxCreate_v3", 11040},
    {"cuCtxCreate_v4", 12050},
    {"cuGetProcAddress_v2", 12000},
    {"cuGraphAddDependencies_v2", 13000},
    {"cuGraphAddKernelNode_v2", 12000},
    {"cuGraphAddNode_v2", 13000},
    {"cuGraphExecKernelNodeSetParams_v2", 12000},
    {"cuGraphExecUpdate_v2", 12000},
    {"cuGraphGetEdges_v2", 13000},
    {"cuGraphKernelNodeGetParams_v2", 12000},
    {"cuGraphKernelNodeSetParams_v2", 12000},
    {"cuGraphNodeGetDependencies_v2", 13000},
    {"cuGraphNodeGetDependentNodes_v2", 13000},
    {"cuGraphRemoveDependencies_v2", 13000},
    {"cuMemAdvise_v2", 12020},
    {"cuMemPrefetchAsync_v2", 12020},
    {"cuStreamGetCaptureInfo_v3", 13000},
    {"cuStreamUpdateCaptureDependencies_v2", 13000},
};

/* True if `name` is `symbol`, also with _v2 to _v9, and the version of CUDA has it. */
static bool is_named(const char *name, const char *symbol, int version)
{
	const size_t length = strlen(symbol);
	const char *end = name + length;

	if (strncmp(name, symbol, length) != 0 ||
	    (*end && (strncmp(end, "_v", 2) != 0 || !end[2] || end[3])))
		return false;
	for (size_t i = 0; *end && i < sizeof(changed) / sizeof(*changed); i++)
		if (strcmp(changed[i].name, name) == 0)
			return version >= changed[i].version;
	return true;
}

/* "cuMemAlloc" finds cuMemAlloc_v2: the newest function of the version. */
CUresult cuGetProcAddress_v2(const char *symbol, void **to, int version, uint64_t flags,
			     int *status)
{
	(void)flags;
	if (!symbol || !to)
		return CUDA_ERROR_INVALID_VALUE;
	*to = NULL;
	if (strcmp(symbol, "cuGetExportTable") == 0) {
		/* A static runtime library, which cannot run without the tables. */
		emu_record_event("foreign", symbol);
		if (status)
			*status = 1;
		return CUDA_ERROR_NOT_FOUND;
	}
	/* As cuda.h has it: the function of CUDA 10 has other arguments. */
	if (version >= 12000 && strcmp(symbol, "cuGraphInstantiate") == 0)
		symbol = "cuGraphInstantiateWithFlags";
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		if (is_named(functions[i].name, symbol, version))
			memcpy(to, &functions[i].call, sizeof(*to));
	}
	if (status)
		*status = *to ? 0 : 1;
	return *to ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* The function of CUDA 11.3: what dlsym() finds by this name. */
CUresult cuGetProcAddress(const char *symbol, void **to, int version, uint64_t flags)
{
	return cuGetProcAddress_v2(symbol, to, version, flags, NULL);
}

/* There are no private tables.  NVRTC calls this where cuInit() succeeds,
 * found by dlsym(), and do without a table that they are refused. */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	(void)id;
	if (!table)
		return CUDA_ERROR_INVALID_VALUE;
	*table = NULL;
	return CUDA_ERROR_NOT_FOUND;
}
