/* SPDX-License-Identifier: Apache-2.0 */
/*
 * features_arm64.c - what an aarch64 processor can do, as the operating system reports
 * it: HWCAP bits on Linux, sysctl on macOS.  Both count a feature only if its registers
 * are saved.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/features.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#else
#include <sys/auxv.h>
#include <sys/utsname.h>

/* Bits of Linux, which older headers lack. */
#define HWCAP_BIT_ASIMD	  1
#define HWCAP_BIT_ASIMDDP 20
#define HWCAP2_BIT_I8MM	  13
#define HWCAP2_BIT_BF16	  14
#endif

struct feature {
	const char *name; /* as in /proc/cpuinfo */
	enum cpu_isa isa; /* the level that needs it; CPU_ISA_COUNT: none */
#if defined(__APPLE__)
	const char *key;
#else
	unsigned long type;
	int bit;
#endif
};

#if defined(__APPLE__)
static const struct feature features[] = {
    {"asimd", CPU_NEON, "hw.optional.AdvSIMD"},
    {"asimddp", CPU_NEONDOT, "hw.optional.arm.FEAT_DotProd"},
    {"i8mm", CPU_NEONI8MM, "hw.optional.arm.FEAT_I8MM"},
    {"bf16", CPU_NEONBF16, "hw.optional.arm.FEAT_BF16"},
};

static bool has_feature(const struct feature *f)
{
	int value = 0;
	size_t bytes = sizeof(value);

	return sysctlbyname(f->key, &value, &bytes, NULL, 0) == 0 && value != 0;
}
#else
static const struct feature features[] = {
    {"asimd", CPU_NEON, AT_HWCAP, HWCAP_BIT_ASIMD},
    {"asimddp", CPU_NEONDOT, AT_HWCAP, HWCAP_BIT_ASIMDDP},
    {"i8mm", CPU_NEONI8MM, AT_HWCAP2, HWCAP2_BIT_I8MM},
    {"bf16", CPU_NEONBF16, AT_HWCAP2, HWCAP2_BIT_BF16},
};

static bool has_feature(const struct feature *f)
{
	return getauxval(f->type) >> f->bit & 1;
}
#endif
#define FEATURE_COUNT (sizeof(features) / sizeof(features[0]))

bool cpu_isa_available(enum cpu_isa isa, char *reason, size_t reason_bytes)
{
	const bool is_foreign = isa != CPU_SCALAR && isa < CPU_NEON;

	if (reason_bytes)
		snprintf(reason, reason_bytes, "%s",
			 is_foreign ? "needs an x86-64 processor" : "");
	if (is_foreign)
		return false;
	for (size_t i = 0; i < FEATURE_COUNT; i++) {
		if (features[i].isa > isa || has_feature(&features[i]))
			continue;
		if (reason_bytes)
			snprintf(reason, reason_bytes, "this processor has no %s",
				 features[i].name);
		return false;
	}
	return true;
}

/* vdpbf16ps is an instruction of x86. */
bool cpu_has_bf16(void)
{
	return false;
}

bool cpu_prefers_bf16(void)
{
	return false;
}

/* Linux has no names of Arm processors, only numbers: the architecture's name is used
 * instead. */
static void describe_hardware(char *text, size_t bytes)
{
#if defined(__APPLE__)
	char name[64] = "";
	size_t name_bytes = sizeof(name) - 1;

	if (sysctlbyname("machdep.cpu.brand_string", name, &name_bytes, NULL, 0) != 0)
		name[0] = '\0';
	snprintf(text, bytes, "%s", name[0] ? name : "arm64");
#else
	struct utsname names;

	snprintf(text, bytes, "%s", uname(&names) == 0 ? names.machine : "unknown");
#endif
}

void cpu_describe(char *hardware, size_t hardware_bytes, char *text, size_t text_bytes)
{
	describe_hardware(hardware, hardware_bytes);
	if (text_bytes)
		text[0] = '\0';
	for (size_t i = 0; text_bytes && i < FEATURE_COUNT; i++) {
		const size_t used = strlen(text);

		if (has_feature(&features[i]))
			snprintf(text + used, text_bytes - used, "%s%s",
				 used ? " " : "", features[i].name);
	}
}
