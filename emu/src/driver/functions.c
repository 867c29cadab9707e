/* SPDX-License-Identifier: Apache-2.0 */
/* functions.c - finds every function of the interface by its name. */
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

/*
 * "cuMemAlloc" finds cuMemAlloc_v2: the newest function, whichever version was
 * requested.
 */
CUresult cuGetProcAddress_v2(const char *symbol, void **to, int version, uint64_t flags,
			     int *status)
{
	(void)flags;
	(void)version;
	if (!symbol || !to)
		return CUDA_ERROR_INVALID_VALUE;
	*to = NULL;
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		const char *name = functions[i].name;
		const size_t length = strlen(symbol);

		if (strncmp(name, symbol, length) != 0 ||
		    (name[length] && strcmp(name + length, "_v2") != 0))
			continue;
		memcpy(to, &functions[i].call, sizeof(*to));
	}
	if (!*to && strcmp(symbol, "cuGetExportTable") == 0)
		emu_record_event("foreign", symbol);
	if (status)
		*status = *to ? 0 : 1;
	return *to ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
