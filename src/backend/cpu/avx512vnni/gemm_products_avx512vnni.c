/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_products_avx512vnni.c - AVX-512 with VNNI and VBMI on two 512-bit ports (Intel),
 * where adding the bits of a scale takes as long as multiplying by it: without the
 * table of products an expanded k-block is 768 bytes instead of 1.5 KiB.
 *
 * Per 16 columns, 16 k and a row: four vpdpbusd and two fused multiply-adds (DOT_OFFSET
 * in gemm.inc.h), so the bound is 2/3 of the vpdpbusd peak.
 */
#define CPU_GEMM_OPS cpu_gemm_ops_avx512vnni_products
#define SCALE_TABLE  0
#include "backend/cpu/avx512vnni/vnni512.inc.h"
