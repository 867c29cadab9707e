/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c - the CPU backend's table, and opening its device. */
#include "cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"

/* The sets of this architecture, best first: the rows of nib_backend_get_info(). */
static const enum cpu_isa own_sets[] = {
#if defined(__x86_64__)
    CPU_AMX,	CPU_AVX512VNNI, CPU_AVX512BW, CPU_AVXVNNI, CPU_AVX2,
#elif defined(__aarch64__)
    CPU_NEONBF16, CPU_NEONI8MM, CPU_NEONDOT, CPU_NEON,
#endif
    CPU_SCALAR,
};

static void level_info(int level, struct nib_backend_info *info)
{
	enum cpu_isa isa = own_sets[level];

	info->backend = cpu_isa_backend(isa);
	info->is_open = cpu_isa_available(isa, info->reason, sizeof(info->reason));
}

/* Chooses the instruction set that the options or NIB_CPU name, or the best one. */
static enum nib_status choose_isa(const char *wanted, enum cpu_isa *isa,
				  struct nib_error *err)
{
	const char *argument = "options.isa", *variable = "";
	char reason[128];

	if (!wanted) {
		wanted = getenv("NIB_CPU");
		argument = "";
		variable = "NIB_CPU";
	}
	*isa = CPU_SCALAR;
	/* A set that is forced must not request the tile registers of a wider one. */
	if (!wanted || !*wanted) {
		*isa = cpu_isa_best();
		return NIB_STATUS_OK;
	}
	/* The name until 0.1. */
	if (strcmp(wanted, "avx512") == 0)
		wanted = cpu_isa_name(CPU_AVX512VNNI);
	for (int i = 0; i < CPU_ISA_COUNT; i++) {
		if (strcmp(wanted, cpu_isa_name((enum cpu_isa)i)) != 0)
			continue;
		*isa = (enum cpu_isa)i;
		if (cpu_isa_available(*isa, reason, sizeof(reason)))
			return NIB_STATUS_OK;
		return nib_fail_argument(err, NIB_STATUS_NO_DEVICE, argument,
					 "%s = %s: %s", variable, wanted, reason);
	}
	return nib_fail_argument(
	    err, NIB_STATUS_BAD_ARGUMENT, argument,
	    "%s = '%.32s': must be scalar, avx2, avxvnni, "
	    "avx512bw, avx512vnni, amx, neon, neondot, neoni8mm or "
	    "neonbf16",
	    variable, wanted);
}

static enum nib_status open_cpu(const char *name,
				const struct nib_device_options *options,
				struct nib_device **device, struct nib_error *err)
{
	struct cpu_device *cpu;
	enum cpu_isa isa;
	enum nib_status status;

	if (strcmp(name, "cpu") != 0)
		return nib_fail_argument(err, NIB_STATUS_NO_DEVICE, "name",
					 " = '%.32s': the CPU is one device, 'cpu'",
					 name);
	status = choose_isa(options->isa, &isa, err);
	if (status)
		return status;
	cpu = calloc(1, sizeof(*cpu));
	if (!cpu)
		return nib_fail(err, NIB_STATUS_OUT_OF_MEMORY,
				"no memory for a device");
	cpu->base.backend = &nib_backend_cpu;
	cpu->isa = isa;
	cpu_ops_init(&cpu->ops, isa);
	if (isa == CPU_AVX512VNNI && cpu_prefers_bf16())
		cpu_ops_use_bf16(&cpu->ops);
	status = cpu_threads_open(cpu, options, err);
	if (status) {
		free(cpu);
		return status;
	}
	cpu_caches(&cpu->l1_bytes, &cpu->l2_bytes);
	cpu_describe(cpu->hardware, sizeof(cpu->hardware), cpu->features,
		     sizeof(cpu->features));
	*device = &cpu->base;
	return NIB_STATUS_OK;
}

static void close_cpu(struct nib_device *device)
{
	struct cpu_device *cpu = (struct cpu_device *)device;

	cpu_threads_close(cpu);
	free(cpu);
}

static void device_info(const struct nib_device *device, struct nib_device_info *info)
{
	const struct cpu_device *cpu = cpu_device(device);

	info->name = "cpu";
	info->backend = cpu_isa_backend(cpu->isa);
	memcpy(info->hardware, cpu->hardware, sizeof(info->hardware));
	memcpy(info->features, cpu->features, sizeof(info->features));
	info->threads = cpu->threads;
	info->l1_bytes = cpu->l1_bytes;
	info->l2_bytes = cpu->l2_bytes;
	info->arithmetic = NIB_ARITHMETIC_BLOCKS;
}

const struct nib_backend nib_backend_cpu = {
    .name = "cpu",
    .is_host = true,
    .levels = sizeof(own_sets) / sizeof(*own_sets),
    .level_info = level_info,
    .open = open_cpu,
    .close = close_cpu,
    .device_info = device_info,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy = cpu_copy,
    .wait = cpu_wait,
    .probe = nib_no_probe,
    .costs_get = nib_no_costs_get,
    .costs_set = nib_no_costs_set,
    .pack = cpu_pack,
    .pack_shares = nib_shares_no_codes,
    .packed_update = cpu_packed_update,
    .unpack = cpu_unpack,
    .packed_free = cpu_packed_free,
    .plan_new = cpu_plan_new,
    .plan = cpu_plan,
    .plan_free = cpu_plan_free,
    .workspace_new = cpu_workspace_new,
    .workspace_free = cpu_free,
    .run = cpu_run,
    .quantize = cpu_quantize,
    .amax = cpu_amax,
    .dequantize = cpu_dequantize,
    .convert_scales = cpu_convert_scales,
    .expert_rows = cpu_expert_rows,
    .moe_steps = &cpu_moe_steps,
};
