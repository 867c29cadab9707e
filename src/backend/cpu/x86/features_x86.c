/* SPDX-License-Identifier: Apache-2.0 */
/*
 * features_x86.c - cpuid and xgetbv, and the request for tile registers.  A feature
 * counts only if the operating system saves the registers it uses.
 */
#include <cpuid.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/cpu/features.h"

/* XCR0: SSE and AVX state; and opmask, upper zmm halves, zmm16-31. */
#define XCR0_AVX    0x06u
#define XCR0_AVX512 0xe6u
/* Those of AVX-512, tile configuration and tile data. */
#define XCR0_AMX 0x600e6u

/* Linux 5.16; older headers lack them. */
#define REQUEST_STATE 0x1023 /* ARCH_REQ_XCOMP_PERM */
#define TILE_DATA     18     /* XFEATURE_XTILEDATA */

/* In a test build that has a model of the instructions: tests/common/model_amx.h. */
#ifdef NIB_AMX_MODEL
#define HAS_TILES_ANYWHERE true
#else
#define HAS_TILES_ANYWHERE false
#endif

struct feature {
	const char *name;
	enum cpu_isa isa; /* the level that needs it */
	int leaf;	  /* 1, or 7 and below it a subleaf */
	int subleaf;
	char reg; /* 'a', 'b', 'c', 'd' */
	int bit;
};

/* Intel SDM volume 2A, CPUID. */
static const struct feature features[] = {
    {"avx2", CPU_AVX2, 7, 0, 'b', 5},
    {"fma", CPU_AVX2, 1, 0, 'c', 12},
    {"f16c", CPU_AVX2, 1, 0, 'c', 29},
/* In a test build the set has the instruction of AVX-512: avxvnni/gemm_avxvnni.c. */
#ifdef NIB_AVXVNNI_AS_EVEX
    {"avxvnni", CPU_AVXVNNI, 7, 0, 'c', 11},
#else
    {"avxvnni", CPU_AVXVNNI, 7, 1, 'a', 4},
#endif
    {"avx512f", CPU_AVX512BW, 7, 0, 'b', 16},
    {"avx512dq", CPU_AVX512BW, 7, 0, 'b', 17},
    {"avx512bw", CPU_AVX512BW, 7, 0, 'b', 30},
    {"avx512vl", CPU_AVX512BW, 7, 0, 'b', 31},
    {"avx512vbmi", CPU_AVX512VNNI, 7, 0, 'c', 1},
    {"avx512vnni", CPU_AVX512VNNI, 7, 0, 'c', 11},
    {"amx_tile", CPU_AMX, 7, 0, 'd', 24},
    {"amx_bf16", CPU_AMX, 7, 0, 'd', 22},
    /* No level needs it: see cpu_prefers_bf16(). */
    {"avx512bf16", CPU_ISA_COUNT, 7, 1, 'a', 5},
};
#define FEATURE_COUNT (sizeof(features) / sizeof(features[0]))

static uint32_t xcr0(void)
{
	uint32_t a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1))
		return 0; /* no OSXSAVE: xgetbv would fault */
	__asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
	return a;
}

/* Whether a level needs a feature. */
static bool is_needed(const struct feature *f, enum cpu_isa isa)
{
	return f->isa == CPU_AVXVNNI ? isa == CPU_AVXVNNI
	       : f->isa == CPU_AMX   ? isa == CPU_AMX && !HAS_TILES_ANYWHERE
				     : f->isa <= isa;
}

static bool has_feature(const struct feature *f)
{
	uint32_t a = 0, b = 0, c = 0, d = 0;

	if (f->leaf == 1)
		__get_cpuid(1, &a, &b, &c, &d);
	else
		__get_cpuid_count(7, (unsigned int)f->subleaf, &a, &b, &c, &d);
	return (f->reg == 'a'	? a
		: f->reg == 'b' ? b
		: f->reg == 'c' ? c
				: d) >>
		   f->bit &
	       1;
}

/* The least XCR0 of a level, and the registers that it is about. */
static uint32_t needed_state(enum cpu_isa isa, const char **registers)
{
	if (isa == CPU_AMX && HAS_TILES_ANYWHERE)
		isa = CPU_AVX512VNNI;
	*registers = isa >= CPU_AMX ? "amx" : isa >= CPU_AVX512BW ? "avx512" : "avx";
	return isa >= CPU_AMX	     ? XCR0_AMX
	       : isa >= CPU_AVX512BW ? XCR0_AVX512
	       : isa >= CPU_AVX2     ? XCR0_AVX
				     : 0;
}

/*
 * Requests tile registers for all threads of this process and its forks.  Linux refuses
 * them if a thread's alternate signal stack is too small for 8 KiB more, and asks no
 * second time once they are granted.
 */
static bool request_tiles(char *reason, size_t reason_bytes)
{
	const int saved = errno;
	const bool granted = syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;

	if (!granted && reason_bytes)
		snprintf(reason, reason_bytes,
			 "the kernel does not grant amx tiles to this process (%s)",
			 errno == ENOSPC ? "an alternate signal stack is too small"
					 : strerror(errno));
	errno = saved;
	return granted;
}

bool cpu_isa_available(enum cpu_isa isa, char *reason, size_t reason_bytes)
{
	const char *registers;
	const uint32_t need = needed_state(isa, &registers);

	if (reason_bytes)
		snprintf(reason, reason_bytes, "%s",
			 isa < CPU_NEON ? "" : "needs a 64-bit Arm processor");
	if (isa >= CPU_NEON)
		return false;
	for (size_t i = 0; i < FEATURE_COUNT; i++) {
		if (!is_needed(&features[i], isa) || has_feature(&features[i]))
			continue;
		if (reason_bytes)
			snprintf(reason, reason_bytes, "this processor has no %s",
				 features[i].name);
		return false;
	}
	if ((xcr0() & need) != need) {
		if (reason_bytes)
			snprintf(reason, reason_bytes,
				 "the operating system does not save %s "
				 "registers (xcr0 = 0x%x)",
				 registers, xcr0());
		return false;
	}
	return isa < CPU_AMX || HAS_TILES_ANYWHERE ||
	       request_tiles(reason, reason_bytes);
}

bool cpu_has_bf16(void)
{
	for (size_t i = 0; i < FEATURE_COUNT; i++)
		if (strcmp(features[i].name, "avx512bf16") == 0)
			return has_feature(&features[i]);
	return false;
}

static bool is_intel(void)
{
	uint32_t a, b = 0, c = 0, d = 0;

	__get_cpuid(0, &a, &b, &c, &d);
	return b == signature_INTEL_ebx;
}

/*
 * AMD's processors execute as many vdpbf16ps as fused multiply-adds, which gives twice
 * the products.  Intel's execute a quarter as many (Sapphire Rapids: one in two
 * cycles), which gives half the products.
 */
bool cpu_prefers_bf16(void)
{
	return cpu_has_bf16() && !is_intel();
}

/* Intel's two 512-bit ports do all arithmetic. */
bool cpu_prefers_scale_table(void)
{
	return !HAS_TILES_ANYWHERE && !is_intel();
}

static void append(char *text, size_t text_bytes, const char *word)
{
	size_t used = strlen(text);

	snprintf(text + used, text_bytes - used, "%s%s", used ? " " : "", word);
}

void cpu_describe(char *hardware, size_t hardware_bytes, char *text, size_t text_bytes)
{
	uint32_t brand[13] = {0};

	/* Leaves 0x80000002..4 hold the name, 16 bytes each. */
	for (uint32_t i = 0; i < 3; i++)
		__get_cpuid(0x80000002u + i, &brand[4 * i], &brand[4 * i + 1],
			    &brand[4 * i + 2], &brand[4 * i + 3]);
	const char *name = (const char *)brand;

	while (*name == ' ')
		name++;
	snprintf(hardware, hardware_bytes, "%s", *name ? name : "unknown");
	for (size_t n = strlen(hardware); n && hardware[n - 1] == ' '; n--)
		hardware[n - 1] = '\0';

	text[0] = '\0';
	for (size_t i = 0; i < FEATURE_COUNT; i++)
		if (has_feature(&features[i]))
			append(text, text_bytes, features[i].name);
}
