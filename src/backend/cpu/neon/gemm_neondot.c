/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_neondot.c - NEON with SDOT, whose second operand is four bytes of a lane: a
 * record's 16 codes are loaded once for all columns.
 *
 * Per 4 columns, 16 k and a row: four sdot and two fused multiply-adds, so where all
 * vector pipes execute both, the bound is 4/6 of the rate of sdot.
 */
#include <arm_neon.h>
#include <stddef.h>
#include <string.h>

#include "backend/cpu/gemm_ops.h"

#include "backend/cpu/vector128.inc.h"

#define CPU_GEMM_OPS	  cpu_gemm_ops_neondot
#define DENSE_A		  0
#define ROW_STEP	  4
#define DIRECT_STEP(rows) ((rows) <= 2 ? 2 : 1)
#define GEMM_ARITHMETIC	  "backend/cpu/arm64/gemm_neon.inc.h"

#include "backend/cpu/arm64/dot_neon.inc.h"

#include "backend/cpu/multiply.inc.h"
