/* SPDX-License-Identifier: Apache-2.0 */
/*
 * race.c - a program that uses the CUDA driver, with a kernel that has a bug: threads
 * read what other threads have written to shared memory, without a barrier between
 * the accesses.  On a GPU it works nearly always.  docs/running.md describes how to
 * run it here.
 *
 * race LIBRARY [fixed]
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 256

/* out[i] = in[THREADS - 1 - i], through shared memory. */
static const char *const kernel =
    ".version 8.0\n.target sm_90a\n.address_size 64\n"
    ".visible .entry reverse(.param .u64 in, .param .u64 out)\n"
    "{\n"
    "	.reg .b32 %%r<8>;\n"
    "	.reg .b64 %%d<8>;\n"
    "	.shared .align 4 .b8 tile[1024];\n"
    "	ld.param.u64 %%d1, [in];\n"
    "	ld.param.u64 %%d2, [out];\n"
    "	mov.u32 %%r1, %%tid.x;\n"
    "	mul.wide.u32 %%d3, %%r1, 4;\n"
    "	add.s64 %%d4, %%d1, %%d3;\n"
    "	ld.global.u32 %%r2, [%%d4];\n"
    "	mov.u32 %%r3, tile;\n"
    "	mad.lo.u32 %%r4, %%r1, 4, %%r3;\n"
    "	st.shared.u32 [%%r4], %%r2;\n"
    "	%s // the barrier\n"
    "	sub.u32 %%r5, 255, %%r1;\n"
    "	mad.lo.u32 %%r6, %%r5, 4, %%r3;\n"
    "	ld.shared.u32 %%r7, [%%r6];\n"
    "	add.s64 %%d5, %%d2, %%d3;\n"
    "	st.global.u32 [%%d5], %%r7;\n"
    "	ret;\n"
    "}\n";

static void *library;

static void *find(const char *name)
{
	void *function = dlsym(library, name);

	if (!function) {
		fprintf(stderr, "the library has no %s\n", name);
		exit(2);
	}
	return function;
}

static void must(int result, const char *what)
{
	int (*text_of)(int, const char **);
	void *function = find("cuGetErrorString");
	const char *text = NULL;

	if (result == 0)
		return;
	memcpy(&text_of, &function, sizeof(function));
	text_of(result, &text);
	fprintf(stderr, "%s: %s\n", what, text ? text : "?");
	exit(1);
}

/* Declares a driver function under its own name. */
#define USE(name, ...)                                                                 \
	int (*name)(__VA_ARGS__);                                                      \
	do {                                                                           \
		void *name##_found = find(#name);                                      \
		memcpy(&name, &name##_found, sizeof(name));                            \
	} while (0)

static void run(const char *ptx)
{
	uint32_t numbers[THREADS], result[THREADS];
	unsigned long long in, out;
	void *arguments[] = {&in, &out}, *context, *module, *function;

	USE(cuInit, unsigned);
	USE(cuDevicePrimaryCtxRetain, void **, int);
	USE(cuCtxPushCurrent_v2, void *);
	USE(cuModuleLoadDataEx, void **, const void *, unsigned, int *, void **);
	USE(cuModuleGetFunction, void **, void *, const char *);
	USE(cuMemAlloc_v2, unsigned long long *, size_t);
	USE(cuMemcpy, unsigned long long, unsigned long long, size_t);
	USE(cuLaunchKernel, void *, unsigned, unsigned, unsigned, unsigned, unsigned,
	    unsigned, unsigned, void *, void **, void **);

	must(cuInit(0), "cuInit");
	must(cuDevicePrimaryCtxRetain(&context, 0), "context");
	must(cuCtxPushCurrent_v2(context), "context");
	must(cuModuleLoadDataEx(&module, ptx, 0, NULL, NULL), "module");
	must(cuModuleGetFunction(&function, module, "reverse"), "function");
	must(cuMemAlloc_v2(&in, sizeof(numbers)), "memory");
	must(cuMemAlloc_v2(&out, sizeof(result)), "memory");
	for (uint32_t i = 0; i < THREADS; i++)
		numbers[i] = i;
	must(cuMemcpy(in, (uintptr_t)numbers, sizeof(numbers)), "copy");
	must(cuLaunchKernel(function, 1, 1, 1, THREADS, 1, 1, 0, NULL, arguments, NULL),
	     "launch");
	must(cuMemcpy((uintptr_t)result, out, sizeof(result)), "result");
	for (uint32_t i = 0; i < THREADS; i++)
		if (result[i] != THREADS - 1 - i) {
			printf("wrong: result[%u] = %u\n", i, result[i]);
			exit(1);
		}
	puts("right");
}

int main(int argc, char **argv)
{
	char ptx[4096];

	if (argc < 2) {
		fprintf(stderr, "usage: %s LIBRARY [fixed]\n", argv[0]);
		return 2;
	}
	library = dlopen(argv[1], RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	snprintf(ptx, sizeof(ptx), kernel, argc > 2 ? "bar.sync 0;" : "");
	run(ptx);
	return 0;
}
