/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply.inc.h - the template of the vector instruction sets' multiplication.  A
 * file of an instruction set (avx2/gemm_avx2.c, ...) defines the parameters below
 * and includes this file once, at its end.  The parts are included here in the order
 * in which they use each other, and include no other part:
 *
 *   pack_records_vector.inc.h   a k-block of A to a record, by vectors (DENSE_A 0)
 *   pack.inc.h                  NVFP4 rows and panels in plain C
 *   pack_int8.inc.h             rows of A rounded to int8     (DENSE_A 0)
 *   pack_dense.inc.h            rows of floats                (DENSE_A 1)
 *   pack_panels_vector.inc.h    panels of B by vectors; both of x86 only
 *   epilogue.inc.h              from sums to the output
 *   tile.inc.h                  sizes, and where a tile finds its weights
 *   gemm.inc.h | dense.inc.h    arithmetic of a k-block, DENSE_A 0 | 1
 *   units.inc.h                 loops over k-blocks, tiles and panels; the table
 *
 * Parameters.  "both" is for either value of DENSE_A.
 *
 *   name                 for   meaning; allowed values
 *   CPU_GEMM_OPS         both  name of the function that fills struct cpu_gemm_ops
 *   DENSE_A              both  0: A is records of integers (NVFP4 or int8);
 *                              1: A is floats
 *   V_COLS               both  columns of a vector, 32-bit lanes: 4, 8, 16
 *   TILE_ROWS            both  rows of a tile of accumulators: 4, 6, 8
 *   TILE_VECS            both  vectors of a row of a tile: 2, 4 (TILE_VECS * V_COLS is
 *                              16 or 32)
 *   ROW_STEP             both  rows of a tile whose dot products are interleaved:
 *                              1 .. TILE_ROWS
 *   DIRECT_ROWS          both  up to this m, decoding again for every tile of rows is
 *                              cheaper than expanding; 0: never
 *   DIRECT_STEP(rows)    both  k-blocks that a direct pass interleaves: 1, 2
 *   DIRECT_VECS          1     optional: vectors of columns that it interleaves, 1
 *                              unless defined, or 2 where V_COLS is 8
 *   HAVE_F16C            both  defined if the set has F16C; else undefined
 *   SCALE_TABLE          0     1: scales are expanded to a table of products, see
 *                              gemm.inc.h; 0: they are multiplied
 *   FINISH_RECORD(record)  0   turns the bias and scale of a packed record into what
 *                              dot_first(), dot_float() and row_scale() require
 *   DOT_OFFSET           0     optional: 1.5 * 2^23 if dot_float() is the sum plus
 *                              this, see gemm.inc.h; SCALE_TABLE must be 0
 *   IN_PAIR(item, row, rows)  0  optional: whether a row of a tile of `rows` rows is
 *                              half of a pair, with row ^ 1 (store_in_pair())
 *   record               1     type of a k-block of a row of A, with the member
 *                              word[WORDS] (for 0 it is struct cpu_record)
 *   WORDS                1     steps of a k-block: 16, or 8 for pairs of bf16
 *   FOLDED               1     1: expanded weights include their scale; 0: the scale
 *                              multiplies the sum of a k-block
 *   PACK_BLOCK(x, dtype, out)  1  16 elements at x to record *out; returns CPU_ROW_
 *                              flags
 *   DENSE_TILES          1     optional: a file with expand_block() and add_rows(), in
 *                              place of those of dense.inc.h, FOLDED and fold()
 *   WIDEN_FP16(from, to) 1     optional: 16 fp16 to 16 floats
 *
 * Types, and functions or macros on them:
 *
 *   vfloat               both  V_COLS floats
 *   load_float(p) store_float(p, v) set_float(x) mul_float(x, y)
 *   fma_float(x, y, z)   both  x * y + z, rounded once
 *   add_float(x, y) max_float(x, y)         0
 *   vint                 0     V_COLS 32-bit integers
 *   load_int(p) store_int(p, v) set_int(x) add_int(x, y) sub_int(x, y)   0
 *   to_bits(v) to_float(v)     0  the same bits as vint, as vfloat
 *   decode_low(v) decode_high(v)  0  nibbles of v to bytes 2 * e2m1 + CODE_OFFSET, or
 *                              2 * e2m1 where dot_first() does without the bias
 *   load_scales(p)       0     V_COLS e4m3 bytes to floats / 256 (or other multiples,
 *                              for which FINISH_RECORD() makes up)
 *   vdot                 0     a running dot product of each column
 *   dot_first(a, b)      0     its first step: of word 0, for the record *a
 *   dot_add(dot, b, a, g)  0   dot + four bytes of b times the four of word g of
 *                              the record *a
 *   dot_float(dot, a)    0     its value as vfloat, for the record *a
 *   row_scale(a, b_scale)  0   the factor of that value: B's scales times the record's,
 *                              unless dot_float() has multiplied by the latter
 *   vcodes               1     V_COLS dwords of codes, 8 k each
 *   load_codes(p)        1
 *   vword                1     weights of one step
 *   load_word(p) store_word(p, v)           1
 *   decode(codes, i)     1     the weights of step i of the 8 k
 *   fold(codes, i, scale)  1   the same times scale (used if FOLDED)
 *   dot_step(dot, w, a)  1     dot + w * a, a one word of A
 *   block_scales(p)      1     V_COLS e4m3 bytes as factors of the values of decode();
 *                              for a scale of 0 any finite number: its codes are 0
 */
#ifndef DIRECT_VECS
#define DIRECT_VECS 1
#endif

#if DENSE_A
#include "backend/cpu/pack.inc.h"

#include "backend/cpu/pack_dense.inc.h"
#define PACK_ROW(item, i) pack_dense_row(item, i, TILE_ROWS)
#else
#if defined(__x86_64__)
#include "backend/cpu/pack_records_vector.inc.h"
#else
#include "backend/cpu/arm64/pack_records_neon.inc.h"
#endif

#include "backend/cpu/pack.inc.h"

#include "backend/cpu/pack_int8.inc.h"
#define PACK_ROW(item, i) pack_row(item, i, TILE_ROWS)

typedef struct cpu_record record;
#endif

#include "backend/cpu/pack_panels_vector.inc.h"

#include "backend/cpu/epilogue.inc.h"

#include "backend/cpu/tile.inc.h"

#if DENSE_A
#include "backend/cpu/dense.inc.h"
#elif defined(GEMM_ARITHMETIC)
#include GEMM_ARITHMETIC
#else
#include "backend/cpu/gemm.inc.h"
#endif

#include "backend/cpu/units.inc.h"
