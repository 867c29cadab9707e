/* SPDX-License-Identifier: Apache-2.0 */
/* time_costs.c - see time_costs.h. */
#include "machine/time_costs.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hardware/arena.h"
#include "ptx/bind.h"
#include "ptx/names.h"

/* Slots of the pipes, then the cycles to the warp's next instruction. */
#define COSTS (EMU_PIPES + 1)

/* The costs of one line, in parts of EMU_SLOT. */
struct line_costs {
	uint32_t line;
	uint16_t parts[COSTS];
};

struct module_costs {
	uint64_t hash;
	size_t first, count; /* of the lines */
};

/* A kernel of the module, and the registers that ptxas gives each thread. */
struct kernel_costs {
	size_t module;
	uint64_t name; /* its hash: names may be thousands of letters */
	uint32_t registers;
};

struct emu_time_costs {
	struct module_costs *modules;
	size_t n_modules, modules_capacity;
	struct line_costs *lines;
	size_t n_lines, lines_capacity;
	struct kernel_costs *kernels;
	size_t n_kernels, kernels_capacity;
};

/* ---- the table ----------------------------------------------------------- */

static bool add_module(struct emu_time_costs *c, uint64_t hash)
{
	struct module_costs *grown =
	    emu_grow(c->modules, &c->modules_capacity, c->n_modules, sizeof(*grown));

	if (!grown)
		return false;
	c->modules = grown;
	grown[c->n_modules++] =
	    (struct module_costs){.hash = hash, .first = c->n_lines};
	return true;
}

static bool add_line(struct emu_time_costs *c, uint32_t line, const double costs[COSTS])
{
	struct line_costs *grown =
	    emu_grow(c->lines, &c->lines_capacity, c->n_lines, sizeof(*grown));

	if (!grown)
		return false;
	c->lines = grown;
	grown[c->n_lines].line = line;
	for (int k = 0; k < COSTS; k++) {
		const double parts = costs[k] * EMU_SLOT;

		grown[c->n_lines].parts[k] =
		    parts < UINT16_MAX ? (uint16_t)lround(parts) : UINT16_MAX;
	}
	c->n_lines++;
	c->modules[c->n_modules - 1].count++;
	return true;
}

/* Parses what follows "kernel ", two numbers; NULL: accepted. */
static const char *take_kernel(struct emu_time_costs *c, const char *text)
{
	struct kernel_costs *grown, k = {.module = c->n_modules - 1};
	char *name_end, *end;
	unsigned long registers;

	k.name = strtoull(text, &name_end, 16);
	registers = strtoul(name_end, &end, 10);
	if (!c->n_modules || name_end == text || end == name_end || *end != '\n' ||
	    registers > UINT32_MAX)
		return "not \"kernel HASH REGISTERS\" after a module";
	k.registers = (uint32_t)registers;
	grown =
	    emu_grow(c->kernels, &c->kernels_capacity, c->n_kernels, sizeof(*grown));
	if (!grown)
		return "no memory";
	c->kernels = grown;
	grown[c->n_kernels++] = k;
	return NULL;
}

/* Parses "module HASH", a kernel, or a line's costs (in order); NULL: accepted. */
static const char *take_row(struct emu_time_costs *c, const char *text)
{
	static const char module[] = "module ", kernel[] = "kernel ";
	static const char rule[] = "not \"module HASH\", nor, after one, "
				   "\"LINE ISSUE ALU FMA XU STALL\"";
	const struct module_costs *m;
	double costs[COSTS];
	unsigned long long line;
	char *end;

	if (!strncmp(text, module, sizeof(module) - 1)) {
		line = strtoull(text + sizeof(module) - 1, &end, 16);
		return *end != '\n' ? rule : add_module(c, line) ? NULL : "no memory";
	}
	if (!strncmp(text, kernel, sizeof(kernel) - 1))
		return take_kernel(c, text + sizeof(kernel) - 1);
	line = strtoull(text, &end, 10);
	if (!c->n_modules || end == text || line > UINT32_MAX)
		return rule;
	for (int k = 0; k < COSTS; k++) {
		const char *from = end;

		costs[k] = strtod(from, &end);
		if (end == from || !(costs[k] >= 0))
			return rule;
	}
	m = &c->modules[c->n_modules - 1];
	if (m->count && c->lines[m->first + m->count - 1].line >= line)
		return "the lines of a module are not in order";
	return add_line(c, (uint32_t)line, costs) ? NULL : "no memory";
}

struct emu_time_costs *emu_time_costs_read(const char *path, struct emu_error *err)
{
	struct emu_time_costs *c = calloc(1, sizeof(*c));
	FILE *file = fopen(path, "r");
	const char *wrong = NULL;
	uint32_t number = 0;
	char text[256];

	if (!c || !file) {
		(void)emu_fail(err, "NIBEMU_SASS=%s: %s", path, strerror(errno));
		emu_time_costs_free(c);
		if (file)
			(void)fclose(file);
		return NULL;
	}
	while (!wrong && fgets(text, sizeof(text), file)) {
		number++;
		wrong = take_row(c, text);
	}
	(void)fclose(file);
	if (!wrong)
		return c;
	(void)emu_fail(err, "NIBEMU_SASS=%s, line %u: %s", path, number, wrong);
	emu_time_costs_free(c);
	return NULL;
}

void emu_time_costs_free(struct emu_time_costs *costs)
{
	if (!costs)
		return;
	free(costs->modules);
	free(costs->lines);
	free(costs->kernels);
	free(costs);
}

/* ---- means --------------------------------------------------------------- */

/* Cycles from an instruction of a warp to its next, in the modules of opcodes.c. */
#define MEAN_STALL 2.5

/* Without a table, the row of the opcode has the costs. */
static void set_mean(struct emu_instr *i)
{
	static const float one[EMU_PIPES] = {1};
	const struct emu_opcode *row = i->opcode;
	const float *slots = row->slots[EMU_PIPE_ISSUE] > 0 ? row->slots : one;

	if (row->slots_64[EMU_PIPE_ISSUE] > 0 && i->operands &&
	    i->operand[0].bytes == 8)
		slots = row->slots_64;
	for (int k = 0; k < EMU_PIPES; k++)
		i->slots[k] = (uint16_t)(slots[k] * EMU_SLOT);
	i->stall = (uint16_t)(slots[EMU_PIPE_ISSUE] * MEAN_STALL * EMU_SLOT);
}

/* ---- a kernel ------------------------------------------------------------ */

static void set_parts(struct emu_instr *i, const uint16_t parts[COSTS], uint32_t many)
{
	for (int k = 0; k < EMU_PIPES; k++)
		i->slots[k] = (uint16_t)(parts[k] / many);
	i->stall = (uint16_t)(parts[EMU_PIPES] / many);
}

/* Instructions of one line share its counts. */
static void set_counts(const struct emu_time_costs *c, const struct module_costs *m,
		       const struct emu_kernel *kernel)
{
	static const uint16_t none[COSTS];
	const struct line_costs *at = c->lines + m->first;
	const struct line_costs *end = at + m->count;

	for (uint32_t n = 0, many; n < kernel->count; n += many) {
		const uint32_t line = kernel->code[n].line;

		many = 1;
		while (n + many < kernel->count && kernel->code[n + many].line == line)
			many++;
		while (at < end && at->line < line)
			at++;
		for (uint32_t i = 0; i < many; i++)
			set_parts(&kernel->code[n + i],
				  at < end && at->line == line ? at->parts : none,
				  many);
	}
}

bool emu_time_costs_set(const struct emu_time_costs *costs,
			const struct emu_kernel *kernel)
{
	for (size_t k = 0; costs && k < costs->n_modules; k++)
		if (costs->modules[k].hash == kernel->module->hash) {
			set_counts(costs, &costs->modules[k], kernel);
			return true;
		}
	for (uint32_t n = 0; n < kernel->count; n++)
		set_mean(&kernel->code[n]);
	return false;
}

uint32_t emu_time_costs_registers(const struct emu_time_costs *costs,
				  const struct emu_kernel *kernel)
{
	const uint64_t name = emu_text_hash(kernel->name);

	for (size_t k = 0; costs && k < costs->n_kernels; k++) {
		const struct kernel_costs *c = &costs->kernels[k];

		if (costs->modules[c->module].hash == kernel->module->hash &&
		    c->name == name)
			return c->registers;
	}
	return 0;
}
