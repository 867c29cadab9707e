/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_neoni8mm.c - NEON with SMMLA, which does twice the products of SDOT.
 *
 * Per 2 columns, 16 k and two rows: two smmla and two fused multiply-adds, so where
 * all vector pipes execute both, the bound is half the rate of smmla, which is that of
 * sdot.
 */
#include <arm_neon.h>
#include <stddef.h>
#include <string.h>

#include "backend/cpu/gemm_ops.h"

#include "backend/cpu/vector128.inc.h"

#define CPU_GEMM_OPS	  cpu_gemm_ops_neoni8mm
#define DENSE_A		  0
#define ROW_STEP	  4
#define DIRECT_STEP(rows) ((rows) <= 2 ? 2 : 1)
#define GEMM_ARITHMETIC	  "backend/cpu/arm64/pairs_neon.inc.h"
/* Rows of tiles that add_rows() multiplies in pairs. */
#define IN_PAIR(item, row, rows) ((item)->m > DIRECT_ROWS && ((row) | 1) < (rows))

#include "backend/cpu/arm64/dot_neon.inc.h"

#include "backend/cpu/multiply.inc.h"
