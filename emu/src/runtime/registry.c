/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry.c - what a program registers before main(): fat binaries, the stubs of
 * their kernels, and their variables.  A binary is loaded when it is first used, so
 * that the call that uses it returns the error.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/title.h"
#include "runtime/cudart.h"

struct binary {
	const void *image;
	CUmodule module;  /* NULL: not loaded */
	CUresult failure; /* of the load */
	struct binary *next;
};

/* A stub or a variable of the host program, and its name on the device. */
struct symbol {
	const void *host;
	const char *name;
	struct binary *binary;
	void **managed; /* the host's pointer to it; NULL: it has none */
	int is_told;	/* the reason why it cannot run was printed */
	struct symbol *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct binary *binaries;
static struct symbol *symbols;

/* ---- registering --------------------------------------------------------- */

void **__cudaRegisterFatBinary(const void *image)
{
	struct binary *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->image = image;
	pthread_mutex_lock(&lock);
	b->next = binaries;
	binaries = b;
	pthread_mutex_unlock(&lock);
	return (void **)(void *)b;
}

void __cudaRegisterFatBinaryEnd(void **binary)
{
	(void)binary;
}

char __cudaInitModule(void **binary)
{
	(void)binary;
	return 1;
}

static void forget_symbols(const struct binary *b)
{
	for (struct symbol **at = &symbols, *s = *at; s; s = *at) {
		if (s->binary != b) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		free(s);
	}
}

void __cudaUnregisterFatBinary(void **binary)
{
	struct binary *b = (struct binary *)(void *)binary;

	if (!b)
		return;
	pthread_mutex_lock(&lock);
	for (struct binary **at = &binaries; *at; at = &(*at)->next)
		if (*at == b) {
			*at = b->next;
			break;
		}
	forget_symbols(b);
	pthread_mutex_unlock(&lock);
	if (b->module)
		(void)cuModuleUnload(b->module);
	free(b);
}

static void add_symbol(void **binary, const void *host, const char *name,
		       void **managed)
{
	struct symbol *s = calloc(1, sizeof(*s));

	/* Without memory the symbol is unknown, which its first use reports. */
	if (!s)
		return;
	*s = (struct symbol){.host = host,
			     .name = name,
			     .binary = (struct binary *)(void *)binary,
			     .managed = managed};
	pthread_mutex_lock(&lock);
	s->next = symbols;
	symbols = s;
	pthread_mutex_unlock(&lock);
}

void __cudaRegisterFunction(void **binary, const void *stub, char *device_stub,
			    const char *name, int threads, void *thread, void *block,
			    void *block_size, void *grid_size, int *warp)
{
	(void)device_stub;
	(void)threads;
	(void)thread;
	(void)block;
	(void)block_size;
	(void)grid_size;
	(void)warp;
	add_symbol(binary, stub, name, NULL);
}

void __cudaRegisterVar(void **binary, void *host, char *device, const char *name,
		       int is_extern, size_t bytes, int is_constant, int is_global)
{
	(void)device;
	(void)is_extern;
	(void)bytes;
	(void)is_constant;
	(void)is_global;
	add_symbol(binary, host, name, NULL);
}

void __cudaRegisterManagedVar(void **binary, void **host, char *device,
			      const char *name, int is_extern, size_t bytes,
			      int is_constant, int is_global)
{
	(void)device;
	(void)is_extern;
	(void)bytes;
	(void)is_constant;
	(void)is_global;
	add_symbol(binary, host, name, host);
}

/* ---- finding ------------------------------------------------------------- */

/* Loads a binary, and sets the host pointers of managed variables.  The lock must be
 * held. */
static CUresult load(struct binary *b)
{
	if (b->module || b->failure)
		return b->failure;
	b->failure = cuModuleLoadData(&b->module, b->image);
	for (struct symbol *s = symbols; s && !b->failure; s = s->next) {
		CUdeviceptr at = 0;

		if (s->binary != b || !s->managed)
			continue;
		b->failure = cuModuleGetGlobal_v2(&at, NULL, b->module, s->name);
		*s->managed = (void *)(uintptr_t)at;
	}
	return b->failure;
}

/* Finds a symbol, and loads its binary.  The lock must be held. */
static CUresult find(const void *host, struct symbol **found)
{
	struct symbol *s = symbols;
	CUresult result = emu_runtime_begin();

	while (s && s->host != host)
		s = s->next;
	if (!result && !s)
		result = cudaErrorInvalidDeviceFunction;
	if (!result)
		result = load(s->binary);
	*found = s;
	return result;
}

/*
 * Programs rarely show more than the number of an error.  So the reason why a kernel
 * cannot run is printed to stderr, like reports, once for each kernel.
 */
static void tell(struct symbol *s, CUresult result)
{
	const char *text = NULL;

	if (s->is_told || cuGetErrorString(result, &text) || !text)
		return;
	s->is_told = 1;
	fprintf(stderr, "nibemu: %s: %s\n", emu_title_of(s->name), text);
}

CUresult emu_runtime_function(const void *stub, CUfunction *function)
{
	struct symbol *s;
	CUresult result;

	/* CUDA also takes the kernel of a library where it takes a stub. */
	if (!emu_runtime_begin() &&
	    !cuKernelGetFunction(function, (CUkernel)(uintptr_t)stub))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	result = find(stub, &s);
	if (!result)
		result = cuModuleGetFunction(function, s->binary->module, s->name);
	if (result && s)
		tell(s, result);
	pthread_mutex_unlock(&lock);
	return result;
}

const void *emu_runtime_stub(CUfunction function)
{
	const struct symbol *s;
	const char *name = NULL;

	(void)cuFuncGetName(&name, function);
	pthread_mutex_lock(&lock);
	for (s = symbols; s && name; s = s->next) {
		CUfunction found = NULL;

		if (s->binary->module && strcmp(s->name, name) == 0 &&
		    !cuModuleGetFunction(&found, s->binary->module, name) &&
		    found == function)
			break;
	}
	pthread_mutex_unlock(&lock);
	return s && name ? s->host : (const void *)function;
}

CUresult emu_runtime_variable(const void *host, CUdeviceptr *to, size_t *bytes)
{
	struct symbol *s;
	CUresult result;

	pthread_mutex_lock(&lock);
	result = find(host, &s);
	if (!result)
		result = cuModuleGetGlobal_v2(to, bytes, s->binary->module, s->name);
	pthread_mutex_unlock(&lock);
	return (int)result == cudaErrorInvalidDeviceFunction
		   ? (CUresult)cudaErrorInvalidSymbol
		   : result;
}

cudaError_t __cudaGetKernel(CUkernel *kernel, const void *stub)
{
	CUfunction function = NULL;
	const CUresult result = emu_runtime_function(stub, &function);

	*kernel = (CUkernel)(void *)function;
	return emu_runtime_keep(result);
}

cudaError_t cudaGetFuncBySymbol(CUfunction *function, const void *stub)
{
	return emu_runtime_keep(emu_runtime_function(stub, function));
}

cudaError_t cudaGetSymbolAddress(void **address, const void *symbol)
{
	CUdeviceptr at = 0;
	const CUresult result = emu_runtime_variable(symbol, &at, NULL);

	*address = (void *)(uintptr_t)at;
	return emu_runtime_keep(result);
}

cudaError_t cudaGetSymbolSize(size_t *bytes, const void *symbol)
{
	CUdeviceptr at;

	return emu_runtime_keep(emu_runtime_variable(symbol, &at, bytes));
}
