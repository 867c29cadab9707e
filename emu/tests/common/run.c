/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - see run.h. */
#include "common/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"

#define MEMORY_BYTES (UINT64_C(64) << 20)

uint32_t emu_test_random(void)
{
	return (uint32_t)(emu_test_random_64() >> 24);
}

uint64_t emu_test_random_64(void)
{
	static uint64_t state = UINT64_C(88172645463325252);

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * UINT64_C(0x9E3779B97F4A7C15);
}

const char *emu_module_text(const char *body)
{
	return emu_module_text_for(NULL, body);
}

const char *emu_module_text_for(const char *target, const char *body)
{
	static char text[EMU_TEXT_BYTES];

	snprintf(text, sizeof(text),
		 ".version 9.0\n.target %s\n.address_size 64\n"
		 ".extern .shared .align 1024 .b8 dynamic[];\n"
		 ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
		 "\t.reg .b64 %%in, %%out;\n\t.reg .b32 %%lane, %%warp, %%tid;\n"
		 "\t.reg .pred %%p<32>;\n\t.reg .b16 %%h<32>;\n"
		 "\t.reg .b32 %%r<64>;\n\t.reg .b64 %%d<64>;\n"
		 "\t.reg .f32 %%f<32>;\n\t.reg .f64 %%g<32>;\n"
		 "\tld.param.u64 %%in, [in];\n\tld.param.u64 %%out, [out];\n"
		 "\tmov.u32 %%tid, %%tid.x;\n\tand.b32 %%lane, %%tid, 31;\n"
		 "\tshr.u32 %%warp, %%tid, 5;\n%s\tret;\n}\n",
		 target ? target : "sm_90a", body);
	return text;
}

static uint64_t place(void *context, const struct emu_variable *v,
		      struct emu_error *err)
{
	struct emu_machine *m = context;
	const uint64_t at = emu_memory_alloc(m->memory, v->bytes + 1, err);

	if (!at)
		return 0;
	memset((void *)(uintptr_t)at, 0, v->bytes);
	if (v->initial)
		memcpy((void *)(uintptr_t)at, v->initial, v->bytes);
	memset(m->global.shadow + (at - m->global.base), EMU_MAPPED | EMU_WRITTEN,
	       v->bytes);
	return at;
}

/* Device memory with a copy of bytes. */
static uint64_t put(struct emu_machine *m, const void *bytes, size_t size)
{
	const uint64_t at = emu_memory_alloc(m->memory, size ? size : 1, NULL);

	assert_true(at != 0);
	if (bytes && size) {
		memcpy((void *)(uintptr_t)at, bytes, size);
		memset(m->global.shadow + (at - m->global.base),
		       EMU_MAPPED | EMU_WRITTEN, size);
	}
	return at;
}

static struct emu_grid grid_of(const struct emu_job *job, struct emu_machine *m,
			       const struct emu_kernel *kernel,
			       const uint64_t *parameters)
{
	return (struct emu_grid){
	    .machine = m,
	    .kernel = kernel,
	    .grid = {job->grid ? job->grid : 1, 1, 1},
	    .block = {job->block ? job->block : 32, 1, 1},
	    .cluster = {job->cluster ? job->cluster : 1, 1, 1},
	    .dynamic_bytes = job->shared_bytes,
	    .is_cooperative = job->is_cooperative,
	    .resident = job->resident,
	    .parameters = put(m, parameters, 2 * sizeof(*parameters)),
	    .traffic = job->traffic,
	};
}

static bool run_module(struct emu_job *job, struct emu_machine *m,
		       const struct emu_module *module, struct emu_error *err)
{
	const uint32_t count = job->is_chain ? 2 : 1;
	struct emu_grid g[2], *all[] = {&g[0], &g[1]};
	uint64_t parameters[2];
	bool ok;

	assert_true(module->n_kernels >= count);
	parameters[0] = put(m, job->in, job->in_bytes);
	parameters[1] = put(m, job->keeps_out ? job->out : NULL, job->out_bytes);
	if (job->prepare)
		job->prepare(parameters[0], (void *)(uintptr_t)parameters[0]);
	for (uint32_t i = 0; i < count; i++) {
		g[i] = grid_of(job, m, module->kernels[i], parameters);
		g[i].id = i + 1;
		g[i].before = i ? &g[i - 1] : NULL;
		if (!emu_grid_check(&g[i], err))
			return false;
	}
	ok = emu_grids_run(m, all, count);
	if (!ok)
		*err = m->report;
	if (job->out_bytes)
		memcpy(job->out, (void *)(uintptr_t)parameters[1], job->out_bytes);
	job->instructions = m->instructions;
	return ok;
}

bool emu_run_job(struct emu_job *job, struct emu_error *err)
{
	struct emu_machine m = {
	    .time = job->time,
	    .options = {.seed = job->seed,
			.threads = job->threads,
			.is_strict = job->is_strict,
			.is_anywhere = job->is_strict,
			.findings = job->findings,
			.budget = job->budget ? job->budget : 100000000}};
	struct emu_module *module;
	bool ok = false;

	m.memory = emu_memory_open(MEMORY_BYTES, err);
	assert_non_null(m.memory);
	m.global = *emu_memory_space(m.memory);
	module = emu_module_read(job->ptx, place, &m, err);
	if (module)
		ok = run_module(job, &m, module, err);
	emu_module_free(module);
	emu_memory_close(m.memory);
	return ok;
}

void emu_must_run(const char *body, struct emu_job *job)
{
	struct emu_error err = {{0}};

	job->ptx = emu_module_text_for(job->target, body);
	if (!emu_run_job(job, &err))
		fail_msg("%s\n%s", err.text, body);
}

void emu_must_fail(const char *body, struct emu_job *job, ...)
{
	struct emu_error err = {{0}};
	const char *word;
	va_list words;

	job->ptx = emu_module_text_for(job->target, body);
	if (emu_run_job(job, &err))
		fail_msg("it ran:\n%s", body);
	va_start(words, job);
	while ((word = va_arg(words, const char *)))
		if (!strstr(err.text, word))
			fail_msg("'%s' is not in: %s", word, err.text);
	va_end(words);
}
