/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_ptx.c - parses any text as PTX for the software GPU, which must give an error
 * or a module.  The kernels of a module run, with any instructions, addresses and
 * loops, until they end, are reported or exhaust the budget.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hardware/memory.h"
#include "instruction/decode.h"
#include "machine/grid.h"

#define MEMORY_BYTES (UINT64_C(16) << 20)
#define MOST_BYTES   65536
#define BUDGET	     20000
#define MOST_SHARED  4096
#define MOST_KERNELS 2
#define BUFFER_BYTES 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static uint64_t put(struct emu_machine *m, uint64_t bytes)
{
	const uint64_t at =
	    bytes <= MEMORY_BYTES / 4 ? emu_memory_alloc(m->memory, bytes, NULL) : 0;

	if (!at)
		return 0;
	memset((void *)(uintptr_t)at, 1, bytes);
	memset(m->global.shadow + (at - m->global.base), EMU_MAPPED | EMU_WRITTEN,
	       bytes);
	return at;
}

static uint64_t place(void *context, const struct emu_variable *v,
		      struct emu_error *err)
{
	(void)err;
	return put(context, v->bytes + 1);
}

/* Runs a kernel.  Every eight bytes of its parameters are a pointer. */
static void run(struct emu_machine *m, const struct emu_kernel *kernel, uint64_t seed)
{
	struct emu_grid g = {.machine = m,
			     .kernel = kernel,
			     .grid = {2, 1, 1},
			     .block = {64, 1, 1},
			     .cluster = {2, 1, 1},
			     .dynamic_bytes = MOST_SHARED,
			     .id = 1};
	struct emu_grid *all[] = {&g};
	const uint64_t buffer = put(m, BUFFER_BYTES);
	const uint64_t parameters = put(m, kernel->parameter_bytes + 1);

	if (!buffer || !parameters || !emu_grid_check(&g, NULL))
		return;
	for (uint32_t at = 0; at + 8 <= kernel->parameter_bytes; at += 8)
		memcpy((void *)(uintptr_t)(parameters + at), &buffer, 8);
	g.parameters = parameters;
	m->has_failed = false;
	m->options.seed = seed;
	(void)emu_grids_run(m, all, 1);
	(void)emu_memory_free(m->memory, buffer, NULL);
	(void)emu_memory_free(m->memory, parameters, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
	struct emu_machine m = {.options = {.budget = BUDGET}};
	struct emu_error err = {{0}};
	struct emu_module *module;
	char *text;

	if (n_bytes > MOST_BYTES)
		return 0;
	text = malloc(n_bytes + 1);
	m.memory = emu_memory_open(MEMORY_BYTES, &err);
	if (!text || !m.memory)
		abort();
	m.global = *emu_memory_space(m.memory);
	if (n_bytes)
		memcpy(text, data, n_bytes);
	text[n_bytes] = '\0';
	module = emu_module_read(text, place, &m, &err);
	if (!module && !err.text[0])
		abort();
	for (uint32_t k = 0; module && k < module->n_kernels && k < MOST_KERNELS; k++)
		if (module->kernels[k]->register_bytes < 1 << 20)
			run(&m, module->kernels[k], n_bytes % 3);
	emu_module_free(module);
	emu_memory_close(m.memory);
	free(text);
	return 0;
}
