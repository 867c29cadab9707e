/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_avx512vnni.c - AVX-512 with VNNI and VBMI, where additions have ports of their
 * own (Zen 4, Zen 5).
 *
 * Per 16 columns, 16 k and a row: four vpdpbusd and one fused multiply-add on the
 * multiplication ports; conversion and the addition of the scale use other ports, so
 * the bound is 4/5 of the vpdpbusd peak.
 */
#define CPU_GEMM_OPS cpu_gemm_ops_avx512vnni
#define SCALE_TABLE  1
#include "backend/cpu/avx512vnni/vnni512.inc.h"
