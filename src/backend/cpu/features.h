/* SPDX-License-Identifier: Apache-2.0 */
/* features.h - what this processor and operating system can do. */
#ifndef NIB_CPU_FEATURES_H
#define NIB_CPU_FEATURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Narrowest first: a level implies those of its architecture before it, except
 * CPU_AVXVNNI, which only processors without AVX-512 and some of those with it have. */
enum cpu_isa {
	CPU_SCALAR,
	CPU_AVX2,	/* avx2 fma f16c */
	CPU_AVXVNNI,	/* avx2 + avxvnni */
	CPU_AVX512BW,	/* avx512 f bw dq vl */
	CPU_AVX512VNNI, /* avx512bw + vnni vbmi */
	CPU_AMX,	/* avx512vnni + amx_tile amx_bf16 */
	CPU_NEON,	/* every 64-bit Arm processor */
	CPU_NEONDOT,	/* neon + asimddp (sdot) */
	CPU_NEONI8MM,	/* neondot + i8mm (smmla) */
	CPU_NEONBF16,	/* neoni8mm + bf16 (bfmmla) */
	CPU_ISA_COUNT,
};

/* "scalar", "avx2", "avxvnni", "avx512bw", "avx512vnni", "amx", "neon", "neondot",
 * "neoni8mm", "neonbf16". */
const char *cpu_isa_name(enum cpu_isa isa);
/* "cpu-avx512vnni" and so on: the backend's name in tables. */
const char *cpu_isa_backend(enum cpu_isa isa);
/*
 * True if isa runs here; else reason (may be NULL) says what is missing.  Requests tile
 * registers for this process if isa is CPU_AMX and the processor has them.
 */
bool cpu_isa_available(enum cpu_isa isa, char *reason, size_t reason_bytes);
enum cpu_isa cpu_isa_best(void);
/* True if vdpbf16ps runs here; no level needs it. */
bool cpu_has_bf16(void);
/* True if it is also faster than fused multiply-adds of fp32. */
bool cpu_prefers_bf16(void);
/* x86: true if additions have ports of their own, so that avx512vnni multiplies by
 * scales with a table of products. */
bool cpu_prefers_scale_table(void);

/* The processor's name and the features that matter here, as text. */
void cpu_describe(char *hardware, size_t hardware_bytes, char *features,
		  size_t features_bytes);
/* Data caches of one core in bytes, 0 = unknown. */
void cpu_caches(int64_t *l1_bytes, int64_t *l2_bytes);

#endif
