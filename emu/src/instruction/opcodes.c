/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opcodes.c - the table of opcodes.  An opcode without a row is refused.  If a
 * name has several rows, the first one that accepts all words of the statement
 * is used.  docs/opcodes.md is generated from the first three columns and the
 * targets; struct emu_opcode (ptx/bind.h) explains the others.
 *
 * slots are means of 17 modules of GEMM kernels, in which 239,000 instructions
 * of PTX became 217,500 of SASS (ptxas 13.0).
 */
#include "instruction/opcodes.h"

#include "instruction/binds.h"
#include "machine/time_state.h"

/* Rows name only the columns after bind that differ from 0. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#define INTEGERS     "u16 s16 u32 s32 u64 s64"
#define FLOATS	     "f32 f64 f16 bf16 f16x2 bf16x2"
#define SMALL_FLOATS "f32 f16 bf16 f16x2 bf16x2"
#define BITS	     "b16 b32 b64"
#define ANY	     "b8 u8 s8 b16 u16 s16 f16 bf16 b32 u32 s32 f32 b64 u64 s64 f64"
#define ROUNDING     "rn rz rm rp"
#define SPACES                                                                         \
	"global shared shared::cta shared::cluster local param param::entry "          \
	"param::func const"
#define COMPARISONS "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan"
#define CACHES                                                                         \
	"ca cg cs lu cv wb wt L1::evict_normal L1::evict_unchanged "                   \
	"L1::evict_first L1::evict_last L1::no_allocate L2::cache_hint "               \
	"L2::64B L2::128B L2::256B"
#define ATOMIC_FORMS "noftz L2::cache_hint v2 v4 v8"
#define ATOMIC_TYPES "u32 s32 u64 s64 f32 f64 f16 bf16 f16x2 bf16x2 b16 b32 b64"
#define GROUPS	     "cta_group::1 cta_group::2"
#define TMEM_SHAPES                                                                    \
	"sync aligned 32x32b 16x64b 16x128b 16x256b 16x32bx2 x1 x2 x4 x8 x16 "         \
	"x32 x64 x128"
#define L2_PRIORITIES "L2::evict_last L2::evict_normal L2::evict_first"
#define PRIORITIES    L2_PRIORITIES " L2::evict_unchanged"
#define WMMA_MEMORY   "sync aligned shape row col global shared shared::cta"
#define WMMA_TYPES    "f16 bf16 tf32 f64 s8 u8 s4 u4 b1"
#define WMMA_SUMS     "f16 f32 f64 s32"
#define WMMA_TARGETS  .word_targets = "bf16:80 tf32:80 f64:80"
#define SURFACES      "1d 2d 3d a1d a2d v2 v4 trap clamp zero"
#define ORDERS                                                                         \
	"weak relaxed acquire release acq_rel volatile sc "                            \
	"cta cluster gpu sys"

/* Words that need a newer .target than the row, by ptxas 13.0. */
#define CLUSTERS_90 "cluster:90 shared::cluster:90"
#define BF16_80	    "bf16:80 bf16x2:80"
#define BF16_90	    "bf16:90 bf16x2:90"

/* Columns that several rows share. */
#define PINNED	      .is_pinned = true
#define MEAN_ADD_64   .slots_64 = {1.75f, 0.61f, 0.63f}
#define MEAN_MOV      .slots = {0.22f, 0.05f}
#define MEAN_BITFIELD .slots = {2, 1}
#define MEAN_SET      .slots = {0.65f, 0.48f}
#define MEAN_MIN      .slots = {1.36f, 1.18f}
#define MEAN_MAX      .slots = {1.49f, 1.47f}
#define MEAN_MAD      .slots = {1.62f, 0.33f, 0.53f}
#define MEAN_DIV      .slots = {19.5f, 8.44f, 3.13f, 2.32f}
#define MEAN_XU	      .slots = {1, 0, 0, 1}

const struct emu_opcode emu_opcodes[] = {
    /* arithmetic */
    {"add", ROUNDING " sat ftz", INTEGERS " u16x2 s16x2 " FLOATS " f32x2",
     emu_bind_mixed, MEAN_ADD_64,
     .word_targets = "u16x2:90 s16x2:90 " BF16_90 " f32x2:100"},
    {"sub", ROUNDING " sat ftz", INTEGERS " " FLOATS " f32x2", emu_bind_mixed,
     MEAN_ADD_64, .word_targets = BF16_90 " f32x2:100"},
    {"mul", ROUNDING " sat ftz", FLOATS " f32x2", emu_bind_alu,
     .word_targets = BF16_90 " f32x2:100"},
    {"mul.lo", "", INTEGERS, emu_bind_alu},
    {"mul.hi", "", INTEGERS, emu_bind_alu},
    {"mul.wide", "", "u16 s16 u32 s32", emu_bind_alu},
    {"mad.lo", "", INTEGERS, emu_bind_alu, MEAN_MAD},
    {"mad.hi", "", "u32 s32 u64", emu_bind_alu, MEAN_MAD},
    {"mad.wide", "", "u16 s16 u32 s32", emu_bind_alu, MEAN_MAD},
    {"mul24.lo", "", "u32 s32", emu_bind_alu},
    {"mul24.hi", "", "u32 s32", emu_bind_alu},
    {"mad24.lo", "", "u32 s32", emu_bind_alu, MEAN_MAD},
    {"sad", "", INTEGERS, emu_bind_alu},
    {"add.cc", "", "u32 s32 u64 s64", emu_bind_alu},
    {"addc", "", "u32 s32 u64 s64", emu_bind_alu},
    {"addc.cc", "", "u32 s32 u64 s64", emu_bind_alu},
    {"sub.cc", "", "u32 s32 u64 s64", emu_bind_alu},
    {"subc", "", "u32 s32 u64 s64", emu_bind_alu},
    {"subc.cc", "", "u32 s32 u64 s64", emu_bind_alu},
    {"mad.lo.cc", "", "u32 s32 u64 s64", emu_bind_alu, MEAN_MAD},
    {"mad.hi.cc", "", "u32 s32 u64 s64", emu_bind_alu, MEAN_MAD},
    {"madc.lo", "", "u32 s32 u64 s64", emu_bind_alu, MEAN_MAD},
    {"madc.hi", "", "u32 s32 u64 s64", emu_bind_alu, MEAN_MAD},
    {"madc.lo.cc", "", "u32 s32 u64 s64", emu_bind_alu, MEAN_MAD},
    {"madc.hi.cc", "", "u32 s32 u64 s64", emu_bind_alu, MEAN_MAD},
    {"dp2a", "lo hi", "s32 u32", emu_bind_dot, .slots = {1, 1}},
    {"dp4a", "", "s32 u32", emu_bind_dot, .slots = {1, 1}},
    {"vabsdiff4", "add", "u32", emu_bind_vabsdiff4},
    {"fma", ROUNDING " sat ftz", FLOATS " f32x2", emu_bind_mixed,
     .word_targets = BF16_80 " f32x2:100"},
    {"div", "", INTEGERS, emu_bind_alu, MEAN_DIV},
    {"div", ROUNDING " ftz", "f32 f64", emu_bind_alu, MEAN_DIV},
    {"div.approx", "ftz", "f32", emu_bind_alu, MEAN_DIV},
    {"div.full", "ftz", "f32", emu_bind_alu, MEAN_DIV},
    {"rem", "", INTEGERS, emu_bind_alu, .slots = {18.5f, 6.45f, 3.53f, 2.55f}},
    {"min", "", INTEGERS " u16x2 s16x2 f64", emu_bind_alu, MEAN_MIN,
     .word_targets = "u16x2:90 s16x2:90"},
    {"max", "", INTEGERS " u16x2 s16x2 f64", emu_bind_alu, MEAN_MAX,
     .word_targets = "u16x2:90 s16x2:90"},
    {"min", "ftz NaN xorsign abs", SMALL_FLOATS, emu_bind_extreme, MEAN_MIN,
     .word_targets = "NaN:80 f16:80 f16x2:80 " BF16_80 " xorsign:86"},
    {"max", "ftz NaN xorsign abs", SMALL_FLOATS, emu_bind_extreme, MEAN_MAX,
     .word_targets = "NaN:80 f16:80 f16x2:80 " BF16_80 " xorsign:86"},
    {"abs", "ftz", "s16 s32 s64 " FLOATS, emu_bind_alu, .word_targets = BF16_80},
    {"neg", "ftz", "s16 s32 s64 " FLOATS, emu_bind_alu, .word_targets = BF16_80},
    {"copysign", "", "f32 f64", emu_bind_alu},
    {"sqrt", ROUNDING " ftz", "f32 f64", emu_bind_alu, MEAN_XU},
    {"rcp", ROUNDING " ftz", "f32 f64", emu_bind_alu, MEAN_XU},
    {"rcp.approx", "ftz", "f32", emu_bind_alu, MEAN_XU},
    {"rcp.approx.ftz", "", "f64", emu_bind_alu, MEAN_XU},
    {"rsqrt.approx.ftz", "", "f64", emu_bind_alu, MEAN_XU},
    {"sqrt.approx", "ftz", "f32", emu_bind_alu, MEAN_XU},
    {"rsqrt.approx", "ftz", "f32", emu_bind_alu, MEAN_XU},
    {"sin.approx", "ftz", "f32", emu_bind_alu},
    {"cos.approx", "ftz", "f32", emu_bind_alu},
    {"ex2.approx", "ftz", SMALL_FLOATS, emu_bind_alu, MEAN_XU, .word_targets = BF16_90},
    {"lg2.approx", "ftz", "f32", emu_bind_alu, MEAN_XU},
    {"tanh.approx", "", SMALL_FLOATS, emu_bind_alu, .word_targets = BF16_90},
    /* bits */
    {"and", "", BITS " pred", emu_bind_alu, .slots = {0.53f, 0.51f}},
    {"or", "", BITS " pred", emu_bind_alu, .slots = {0.83f, 0.80f}},
    {"xor", "", BITS " pred", emu_bind_alu, .slots = {0.87f, 0.60f}},
    {"not", "", BITS " pred", emu_bind_alu, .slots = {0.30f, 0.30f}},
    {"cnot", "", BITS, emu_bind_alu},
    {"shl", "", BITS, emu_bind_alu, .slots = {0.85f, 0.17f}},
    {"shr", "", BITS " " INTEGERS, emu_bind_alu, .slots = {0.87f, 0.80f}},
    {"shf", "l r wrap clamp", "b32", emu_bind_shf},
    {"popc", "", "b32 b64", emu_bind_alu, MEAN_XU},
    {"clz", "", "b32 b64", emu_bind_alu},
    {"bfind", "", "u32 s32 u64 s64", emu_bind_alu, MEAN_BITFIELD},
    {"bfind.shiftamt", "", "u32 s32 u64 s64", emu_bind_alu, MEAN_BITFIELD},
    {"bmsk.clamp", "", "b32", emu_bind_alu},
    {"bmsk.wrap", "", "b32", emu_bind_alu},
    {"szext.clamp", "", "u32 s32", emu_bind_alu},
    {"szext.wrap", "", "u32 s32", emu_bind_alu},
    {"fns", "", "b32", emu_bind_alu},
    {"brev", "", "b32 b64", emu_bind_alu},
    {"bfi", "", "b32 b64", emu_bind_alu, MEAN_BITFIELD},
    {"bfe", "", "u32 s32 u64 s64", emu_bind_alu, MEAN_BITFIELD},
    {"prmt", "", "b32", emu_bind_alu, .slots = {0.87f, 0.78f}},
    {"lop3", "", "b32", emu_bind_alu, .slots = {1, 1}},
    {"selp", "", BITS " " INTEGERS " f32 f64", emu_bind_alu, .slots = {0.80f, 0.62f}},
    {"setp", COMPARISONS " and or xor ftz", BITS " " INTEGERS " " FLOATS, emu_bind_setp,
     MEAN_SET, .word_targets = BF16_90},
    {"set", COMPARISONS " and or xor ftz", BITS " " INTEGERS " " FLOATS, emu_bind_set,
     MEAN_SET, .word_targets = BF16_90},
    {"slct", "", BITS " " INTEGERS " f32 f64", emu_bind_slct},
    /* moves and conversions */
    {"mov", "", BITS " " INTEGERS " f32 f64 pred", emu_bind_mov, .is_move = true,
     MEAN_MOV},
    {"mov", "", "b128", emu_bind_mov_128, .is_move = true, MEAN_MOV},
    {"cvt", ROUNDING " rna rni rzi rmi rpi sat satfinite relu ftz",
     ANY " tf32 f16x2 bf16x2 e4m3x2 e5m2x2 e2m1x2 e2m3x2 e3m2x2 ue8m0x2", emu_bind_cvt,
     .slots = {0.9f, 0.8f},
     .word_targets =
	 "f16x2:80 bf16:80 bf16x2:80 tf32:80 relu:80 e4m3x2:89 e5m2x2:89 e2m1x2:100+ "
	 "e2m3x2:100+ e3m2x2:100+ ue8m0x2:100+"},
    {"cvta", "to " SPACES, "u64", emu_bind_cvta, .slots = {0.97f, 0.59f},
     .word_targets = CLUSTERS_90},
    {"mapa", "shared::cluster", "u32 u64", emu_bind_mapa, .target = "90"},
    {"isspacep", SPACES, "", emu_bind_isspacep, PINNED, .word_targets = CLUSTERS_90},
    /* memory */
    {"ld", SPACES " " CACHES " " ORDERS " " L2_PRIORITIES " nc v2 v4 v8", ANY,
     emu_bind_ld, PINNED, .word_targets = CLUSTERS_90 " L2::cache_hint:80 v8:100"},
    {"ld", "global shared shared::cta", "b128", emu_bind_ld_128, PINNED},
    {"ldu", "global v2 v4", ANY, emu_bind_ld, PINNED},
    {"st", SPACES " " CACHES " " ORDERS " v2 v4 v8", ANY, emu_bind_st, PINNED,
     .cross_cluster = EMU_CROSS_IN_GLOBAL,
     .word_targets = CLUSTERS_90 " L2::cache_hint:80 v8:100"},
    {"st.async", "weak shared::cluster mbarrier::complete_tx::bytes v2 v4",
     "b32 b64 u32 u64 s32 s64 f32 f64", emu_bind_st_async, PINNED, .target = "90"},
    {"st.bulk", "weak shared shared::cta", "", emu_bind_st_bulk, PINNED,
     .target = "100"},
    {"atom",
     SPACES " " ORDERS " " ATOMIC_FORMS " add min max and or xor exch cas inc dec",
     ATOMIC_TYPES, emu_bind_atom, PINNED, .unit = EMU_UNIT_ATOMIC,
     .word_targets =
	 CLUSTERS_90 " L2::cache_hint:80 bf16:90 bf16x2:90 v2:90 v4:90 v8:90 b128:90"},
    {"red", SPACES " " ORDERS " " ATOMIC_FORMS " add min max and or xor inc dec",
     ATOMIC_TYPES, emu_bind_red, PINNED,
     .word_targets =
	 CLUSTERS_90 " L2::cache_hint:80 bf16:90 bf16x2:90 v2:90 v4:90 v8:90"},
    {"red.async",
     "relaxed cluster shared::cluster mbarrier::complete_tx::bytes add min max "
     "inc dec and or xor",
     "u32 s32 u64 b32", emu_bind_red_async, PINNED, .target = "90"},
    {"prefetch", "global local L1 L2 L2::evict_last L2::evict_normal", "",
     emu_bind_prefetch, PINNED,
     .word_targets = "L2::evict_last:80 L2::evict_normal:80"},
    {"prefetch.tensormap", "", "", emu_bind_prefetch, PINNED, .target = "90"},
    {"prefetchu", "L1", "", emu_bind_prefetch, PINNED},
    {"applypriority", "global L2::evict_normal", "", emu_bind_prefetch, PINNED,
     .target = "80"},
    {"cp.async.bulk.prefetch", "L2 global L2::cache_hint", "", emu_bind_prefetch,
     PINNED, .target = "90"},
    {"cp.async.bulk.prefetch.tensor", "1d 2d 3d 4d 5d L2 global tile L2::cache_hint",
     "", emu_bind_prefetch, PINNED, .target = "90"},
    {"createpolicy.fractional", PRIORITIES, "b64", emu_bind_policy_fractional,
     .target = "80"},
    {"createpolicy.range", "global " PRIORITIES, "b64", emu_bind_policy_range,
     .target = "80"},
    {"createpolicy.cvt", "L2", "b64", emu_bind_policy_cvt, .target = "80"},
    {"stmatrix", "sync aligned shape x1 x2 x4 trans shared shared::cta", "b16",
     emu_bind_stmatrix, PINNED, .unit = EMU_UNIT_MATRIX, .target = "90"},
    {"ldmatrix",
     "sync aligned shape x1 x2 x4 trans shared shared::cta b8x16 b6x16_p32 "
     "b4x16_p64",
     "b16", emu_bind_ldmatrix, PINNED, .unit = EMU_UNIT_MATRIX},
    {"membar", "cta gl sys", "", emu_bind_fence, PINNED, .unit = EMU_UNIT_FENCE,
     .cross_cluster = EMU_CROSS_BY_SCOPE},
    /* textures and surfaces */
    {"tex", "1d 2d 3d a1d a2d cube acube v4 level grad", "f32 s32 u32", emu_bind_tex,
     PINNED},
    {"tld4", "r g b a 2d v4", "f32 s32 u32", emu_bind_tld4, PINNED},
    {"suld.b", SURFACES, "b8 b16 b32 b64", emu_bind_suld, PINNED},
    {"sust.b", SURFACES, "b8 b16 b32 b64", emu_bind_sust, PINNED,
     .cross_cluster = EMU_CROSS_IN_GLOBAL},
    /* flow */
    {"bra", "uni", "", emu_bind_bra, PINNED, .slots = {0.70f, 0.03f}},
    {"brx.idx", "uni", "", emu_bind_brx, PINNED, .slots = {0.70f, 0.03f}},
    {"call.vprintf", "", "", emu_bind_printf, PINNED,
     .cross_cluster = EMU_CROSS_ALWAYS},
    {"call.assertfail", "", "", emu_bind_assertfail, PINNED,
     .cross_cluster = EMU_CROSS_ALWAYS},
    {"call.malloc", "", "", emu_bind_malloc, PINNED, .cross_cluster = EMU_CROSS_ALWAYS},
    {"call.free", "", "", emu_bind_free, PINNED, .cross_cluster = EMU_CROSS_ALWAYS},
    {"call.check", "", "", emu_bind_call_check, PINNED},
    {"call.unless", "", "", emu_bind_call_unless, PINNED},
    {"call.setconditional", "", "", emu_bind_setconditional, PINNED,
     .cross_cluster = EMU_CROSS_ALWAYS},
    {"ret", "uni", "", emu_bind_ret, PINNED, .ends_block = true},
    {"exit", "", "", emu_bind_exit, PINNED, .ends_block = true},
    {"trap", "", "", emu_bind_trap, PINNED},
    {"brkpt", "", "", emu_bind_nothing},
    {"nanosleep", "", "u32", emu_bind_nothing, PINNED},
    {"pmevent", "mask", "", emu_bind_nothing},
    /* warps, CTAs, clusters, grids */
    {"shfl", "sync up down bfly idx", "b32", emu_bind_shfl, .unit = EMU_UNIT_SHUFFLE},
    {"vote", "sync all any uni ballot", "pred b32", emu_bind_vote, PINNED,
     .unit = EMU_UNIT_SHUFFLE},
    {"match", "sync any all", "b32 b64", emu_bind_match, PINNED},
    {"redux", "sync add min max and or xor abs NaN", "u32 s32 b32 f32", emu_bind_redux,
     .target = "80", .word_targets = "f32:100f"},
    {"movmatrix", "sync aligned shape trans", "b16", emu_bind_movmatrix, MEAN_MOV},
    {"elect", "sync", "", emu_bind_elect, PINNED, .target = "90"},
    {"activemask", "", "b32", emu_bind_activemask, PINNED},
    {"bar.warp", "sync", "", emu_bind_bar_warp, PINNED},
    {"bar", "sync arrive cta", "", emu_bind_bar, PINNED, .ends_block = true},
    {"barrier", "sync arrive aligned cta", "", emu_bind_bar, PINNED,
     .ends_block = true},
    {"bar", "red popc and or cta", "u32 pred", emu_bind_bar_red, PINNED,
     .ends_block = true},
    {"barrier", "red popc and or aligned cta", "u32 pred", emu_bind_bar_red, PINNED,
     .ends_block = true},
    {"barrier.cluster", "arrive wait release acquire relaxed aligned", "",
     emu_bind_barrier_cluster, PINNED, .unit = EMU_UNIT_CLUSTER_RELEASE,
     .target = "90"},
    {"setmaxnreg", "inc dec sync aligned", "u32", emu_bind_setmaxnreg, PINNED, MEAN_SET,
     .target = "90+"},
    {"griddepcontrol", "launch_dependents wait", "", emu_bind_griddepcontrol, PINNED,
     .cross_cluster = EMU_CROSS_ALWAYS, .target = "90"},
    {"clusterlaunchcontrol.try_cancel",
     "async shared::cta mbarrier::complete_tx::bytes "
     "multicast::cluster::all",
     "b128", emu_bind_try_cancel, PINNED, .cross_cluster = EMU_CROSS_ALWAYS,
     .target = "100"},
    {"clusterlaunchcontrol.query_cancel",
     "is_canceled get_first_ctaid get_first_ctaid::x get_first_ctaid::y "
     "get_first_ctaid::z v4",
     "pred b32 b128", emu_bind_query_cancel, PINNED, .target = "100"},
    {"mma",
     "sync aligned shape row col satfinite xor and popc kind::f8f6f4 "
     "kind::mxf8f6f4 kind::mxf4 kind::mxf4nvf4 block_scale scale_vec::1X "
     "scale_vec::2X scale_vec::4X",
     "f16 f32 f64 s32 bf16 tf32 e4m3 e5m2 e2m1 e2m3 e3m2 s8 u8 s4 u4 b1 ue4m3 "
     "ue8m0",
     emu_bind_mma, PINNED, .unit = EMU_UNIT_MMA,
     .word_targets = "bf16:80 tf32:80 e4m3:89 e5m2:89"},
    {"wmma.load.a", WMMA_MEMORY, WMMA_TYPES, emu_bind_wmma_load_a, PINNED,
     .unit = EMU_UNIT_MATRIX, WMMA_TARGETS},
    {"wmma.load.b", WMMA_MEMORY, WMMA_TYPES, emu_bind_wmma_load_b, PINNED,
     .unit = EMU_UNIT_MATRIX, WMMA_TARGETS},
    {"wmma.load.c", WMMA_MEMORY, WMMA_SUMS, emu_bind_wmma_load_c, PINNED,
     .unit = EMU_UNIT_MATRIX},
    {"wmma.store.d", WMMA_MEMORY, WMMA_SUMS, emu_bind_wmma_store, PINNED,
     .cross_cluster = EMU_CROSS_IN_GLOBAL},
    {"wmma.mma", "sync aligned shape row col rn satfinite xor and popc",
     "f32 s32 " WMMA_TYPES, emu_bind_wmma_mma, PINNED, .unit = EMU_UNIT_MMA,
     WMMA_TARGETS},
    /* asynchronous */
    {"mbarrier.init", "shared shared::cta", "b64", emu_bind_mbarrier_init, PINNED,
     .target = "80"},
    {"mbarrier.inval", "shared shared::cta", "b64", emu_bind_mbarrier_inval, PINNED,
     .target = "80"},
    {"mbarrier.arrive",
     "expect_tx release relaxed cta cluster shared shared::cta "
     "shared::cluster",
     "b64", emu_bind_mbarrier_arrive, PINNED, .target = "80",
     .word_targets = "expect_tx:90 relaxed:90 cluster:90 shared::cluster:90"},
    {"mbarrier.expect_tx", "relaxed cta cluster shared shared::cta shared::cluster",
     "b64", emu_bind_mbarrier_expect, PINNED, .target = "90"},
    {"mbarrier.complete_tx", "relaxed cta cluster shared shared::cta shared::cluster",
     "b64", emu_bind_mbarrier_complete, PINNED, .target = "90"},
    {"mbarrier.try_wait", "parity acquire relaxed cta cluster shared shared::cta",
     "b64", emu_bind_mbarrier_try_wait, PINNED, .target = "90"},
    {"mbarrier.test_wait", "parity acquire relaxed cta cluster shared shared::cta",
     "b64", emu_bind_mbarrier_test_wait, PINNED, .target = "80",
     .word_targets = "relaxed:90 cluster:90"},
    {"cp.async",
     "ca cg shared shared::cta global L2::cache_hint L2::64B L2::128B "
     "L2::256B",
     "", emu_bind_cp_async, PINNED, .target = "80"},
    {"cp.async.commit_group", "", "", emu_bind_cp_async_commit, PINNED, .target = "80"},
    {"cp.async.wait_group", "", "", emu_bind_cp_async_wait, PINNED, .target = "80"},
    {"cp.async.wait_all", "", "", emu_bind_cp_async_wait_all, PINNED, .target = "80"},
    {"cp.async.mbarrier.arrive", "noinc shared shared::cta", "b64",
     emu_bind_cp_async_arrive, PINNED, .target = "80"},
    {"cp.async.bulk",
     "shared::cluster shared::cta global mbarrier::complete_tx::bytes "
     "multicast::cluster bulk_group L2::cache_hint",
     "", emu_bind_bulk, PINNED, .target = "90"},
    {"cp.async.bulk.tensor",
     "1d 2d 3d 4d 5d shared::cluster shared::cta global tile "
     "mbarrier::complete_tx::bytes multicast::cluster bulk_group "
     "L2::cache_hint " GROUPS,
     "", emu_bind_bulk_tensor, PINNED, .is_tensor_copy = true, .target = "90"},
    {"cp.async.bulk.commit_group", "", "", emu_bind_bulk_commit, PINNED,
     .target = "90"},
    {"cp.async.bulk.wait_group", "read", "", emu_bind_bulk_wait, PINNED,
     .cross_cluster = EMU_CROSS_ALWAYS, .target = "90"},
    {"cp.reduce.async.bulk",
     "global shared::cta bulk_group L2::cache_hint noftz add min max inc dec "
     "and or xor",
     "u32 s32 u64 s64 b32 b64 f16 bf16 f32 f64", emu_bind_bulk_reduce, PINNED,
     .target = "90"},
    {"cp.reduce.async.bulk.tensor",
     "1d 2d 3d 4d 5d global shared::cta tile bulk_group L2::cache_hint add min "
     "max inc dec and or xor",
     "", emu_bind_bulk_tensor_reduce, PINNED, .is_tensor_copy = true, .target = "90"},
    {"tensormap.replace",
     "tile global_address rank box_dim global_dim global_stride "
     "element_stride elemtype interleave_layout swizzle_mode "
     "swizzle_atomicity fill_mode global shared::cta b1024",
     "b32 b64", emu_bind_tensormap_replace, PINNED, .cross_cluster = EMU_CROSS_ALWAYS,
     .target = "90+"},
    {"tensormap.cp_fenceproxy",
     "global shared::cta tensormap::generic release cta cluster gpu sys sync "
     "aligned",
     "", emu_bind_tensormap_copy, PINNED, .cross_cluster = EMU_CROSS_ALWAYS,
     .target = "90"},
    {"fence.proxy.tensormap::generic", "acquire release cta cluster gpu sys", "",
     emu_bind_tensormap_fence, PINNED, .unit = EMU_UNIT_FENCE_PROXY,
     .cross_cluster = EMU_CROSS_ALWAYS, .target = "90"},
    {"fence", ORDERS " sync_restrict::shared::cta sync_restrict::shared::cluster", "",
     emu_bind_fence, PINNED, .unit = EMU_UNIT_FENCE,
     .cross_cluster = EMU_CROSS_BY_SCOPE,
     .word_targets = CLUSTERS_90
     " sync_restrict::shared::cta:90 sync_restrict::shared::cluster:90"},
    {"fence.mbarrier_init", "release cluster", "", emu_bind_fence_init, PINNED,
     .target = "90"},
    {"fence.proxy", "async async.global async.shared::cta", "", emu_bind_fence_proxy,
     PINNED, .unit = EMU_UNIT_FENCE_PROXY, .target = "90"},
    {"fence.proxy.async", "global shared::cta shared::cluster", "",
     emu_bind_fence_proxy, PINNED, .unit = EMU_UNIT_FENCE_PROXY, .target = "90"},
    {"wgmma.fence", "sync aligned", "", emu_bind_wgmma_fence, PINNED, .target = "90a"},
    {"wgmma.commit_group", "sync aligned", "", emu_bind_wgmma_commit, PINNED,
     .target = "90a"},
    {"wgmma.wait_group", "sync aligned", "", emu_bind_wgmma_wait, PINNED,
     .target = "90a"},
    {"wgmma.mma_async", "sync aligned shape satfinite",
     "f32 f16 bf16 tf32 e4m3 e5m2 s32 s8 u8", emu_bind_wgmma, PINNED, .target = "90a"},
    /* Blackwell's tensor core and its memory */
    {"tcgen05.alloc", GROUPS " sync aligned shared::cta", "b32", emu_bind_tmem_alloc,
     PINNED, .target = "100f"},
    {"tcgen05.dealloc", GROUPS " sync aligned", "b32", emu_bind_tmem_dealloc, PINNED,
     .target = "100f"},
    {"tcgen05.relinquish_alloc_permit", GROUPS " sync aligned", "",
     emu_bind_tmem_relinquish, PINNED, .target = "100f"},
    {"tcgen05.ld", TMEM_SHAPES " pack::16b", "b32", emu_bind_tmem_ld, PINNED,
     .target = "100f"},
    {"tcgen05.st", TMEM_SHAPES " unpack::16b", "b32", emu_bind_tmem_st, PINNED,
     .target = "100f"},
    {"tcgen05.wait::ld", "sync aligned", "", emu_bind_tmem_wait_ld, PINNED,
     .target = "100f"},
    {"tcgen05.wait::st", "sync aligned", "", emu_bind_tmem_wait_st, PINNED,
     .target = "100f"},
    {"tcgen05.fence::before_thread_sync", "", "", emu_bind_tmem_fence_before, PINNED,
     .target = "100f"},
    {"tcgen05.fence::after_thread_sync", "", "", emu_bind_tmem_fence_after, PINNED,
     .target = "100f"},
    {"tcgen05.mma",
     GROUPS " kind::f16 kind::tf32 kind::f8f6f4 kind::i8 kind::mxf8f6f4 "
	    "kind::mxf4 kind::mxf4nvf4 block_scale "
	    "scale_vec::1X scale_vec::2X scale_vec::4X block16 block32 "
	    "collector::a::fill collector::a::use collector::a::lastuse "
	    "collector::a::discard",
     "", emu_bind_umma, PINNED, .target = "100f"},
    {"tcgen05.cp",
     GROUPS " 128x256b 128x128b 4x256b 64x128b 32x128b warpx4 "
	    "warpx2::02_13 warpx2::01_23",
     "", emu_bind_tmem_copy, PINNED, .target = "100f"},
    {"tcgen05.commit",
     GROUPS " mbarrier::arrive::one shared::cluster multicast::cluster", "b64",
     emu_bind_tmem_commit, PINNED, .target = "100f"},
};

const size_t emu_opcode_count = sizeof(emu_opcodes) / sizeof(*emu_opcodes);
