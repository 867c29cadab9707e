/* SPDX-License-Identifier: Apache-2.0 */
/* features_arm64.c - what Linux says of a 64-bit Arm processor. */
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/utsname.h>

#include "backend/cpu/features.h"

/* Linux numbers it so in asm/hwcap.h. */
#define HWCAP_BIT_ASIMDDP 20

static bool has_dot(void)
{
	return getauxval(AT_HWCAP) >> HWCAP_BIT_ASIMDDP & 1;
}

bool cpu_isa_available(enum cpu_isa isa, char *reason, size_t reason_bytes)
{
	const char *missing = "";

	if (isa != CPU_SCALAR && isa < CPU_NEON)
		missing = "needs an x86-64 processor";
	else if (isa == CPU_NEONDOT && !has_dot())
		missing = "this processor has no asimddp";
	if (reason_bytes)
		snprintf(reason, reason_bytes, "%s", missing);
	return !*missing;
}

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
void cpu_describe(char *hardware, size_t hardware_bytes, char *features,
		  size_t features_bytes)
{
	struct utsname names;

	snprintf(hardware, hardware_bytes, "%s",
		 uname(&names) == 0 ? names.machine : "unknown");
	if (features_bytes)
		snprintf(features, features_bytes, "asimd%s",
			 has_dot() ? " asimddp" : "");
}
