/* SPDX-License-Identifier: Apache-2.0 */
/*
 * binds.h - the functions that bind a statement to an instruction, one for each
 * family of opcodes in the table of opcodes.c.
 */
#ifndef EMU_BINDS_H
#define EMU_BINDS_H

#include "hardware/reduction.h"
#include "ptx/bind.h"

/* ---- plain arithmetic ---------------------------------------------------- */

/*
 * signature: one letter for each argument, the destination first.  t: the type; w:
 * the type of twice its size; p: a predicate; u: 32 bits; z: a number from 0 to 255,
 * which is stored in option.
 */
struct emu_alu {
	const char *name;
	enum emu_type type;
	const char *signature;
	emu_run *run;
};

extern const struct emu_alu emu_integer_alu[], emu_bits_alu[], emu_float_alu[],
    emu_pair_alu[], emu_approximate_alu[], emu_carry_alu[];

/* Wraps instr->run if the words have .rz, .rm or .rp. */
bool emu_round_by_words(struct emu_bind *b);
/* Wraps instr->run if the words have .ftz; call it last. */
bool emu_flush_by_words(struct emu_bind *b);
/* The same for a conversion, which flushes only values of .f32. */
bool emu_flush_f32_by_words(struct emu_bind *b);
/* Wraps instr->run if sources are .f16 or .bf16 and the result is .f32. */
bool emu_widen_by_types(struct emu_bind *b);
bool emu_bind_alu(struct emu_bind *b);
bool emu_bind_mixed(struct emu_bind *b);
bool emu_bind_set(struct emu_bind *b);
bool emu_bind_slct(struct emu_bind *b);
bool emu_bind_extreme(struct emu_bind *b);
bool emu_bind_dot(struct emu_bind *b);
bool emu_bind_vabsdiff4(struct emu_bind *b);
bool emu_bind_mov(struct emu_bind *b);
bool emu_bind_setp(struct emu_bind *b);
bool emu_bind_shf(struct emu_bind *b);
bool emu_bind_cvt(struct emu_bind *b);
bool emu_bind_cvta(struct emu_bind *b);
bool emu_bind_mapa(struct emu_bind *b);
bool emu_bind_isspacep(struct emu_bind *b);
/* memory */
bool emu_bind_ld(struct emu_bind *b);
bool emu_bind_st(struct emu_bind *b);
bool emu_bind_st_bulk(struct emu_bind *b);
bool emu_bind_atom(struct emu_bind *b);
bool emu_bind_red(struct emu_bind *b);
/* An atom.exch, and the bit of its option if nothing reads the old value. */
bool emu_is_exchange(const struct emu_instr *i);
#define EMU_IGNORES_OLD 32
bool emu_bind_prefetch(struct emu_bind *b);
bool emu_bind_policy_fractional(struct emu_bind *b);
bool emu_bind_policy_range(struct emu_bind *b);
bool emu_bind_policy_cvt(struct emu_bind *b);
bool emu_bind_stmatrix(struct emu_bind *b);
bool emu_bind_ldmatrix(struct emu_bind *b);
/* flow */
bool emu_bind_bra(struct emu_bind *b);
bool emu_bind_brx(struct emu_bind *b);
bool emu_bind_exit(struct emu_bind *b);
bool emu_bind_ret(struct emu_bind *b);
bool emu_bind_printf(struct emu_bind *b);
bool emu_bind_assertfail(struct emu_bind *b);
bool emu_bind_malloc(struct emu_bind *b);
bool emu_bind_free(struct emu_bind *b);
bool emu_bind_call_check(struct emu_bind *b);
bool emu_bind_call_unless(struct emu_bind *b);
bool emu_bind_setconditional(struct emu_bind *b);
bool emu_bind_trap(struct emu_bind *b);
bool emu_bind_nothing(struct emu_bind *b);
/* warps and blocks */
bool emu_bind_shfl(struct emu_bind *b);
bool emu_bind_vote(struct emu_bind *b);
bool emu_bind_match(struct emu_bind *b);
bool emu_bind_movmatrix(struct emu_bind *b);
bool emu_bind_redux(struct emu_bind *b);
bool emu_bind_elect(struct emu_bind *b);
bool emu_bind_activemask(struct emu_bind *b);
bool emu_bind_bar_warp(struct emu_bind *b);
bool emu_bind_bar(struct emu_bind *b);
bool emu_bind_bar_red(struct emu_bind *b);
bool emu_bind_barrier_cluster(struct emu_bind *b);
bool emu_bind_setmaxnreg(struct emu_bind *b);
bool emu_bind_griddepcontrol(struct emu_bind *b);
bool emu_bind_mma(struct emu_bind *b);
bool emu_bind_wmma_load_a(struct emu_bind *b);
bool emu_bind_wmma_load_b(struct emu_bind *b);
bool emu_bind_wmma_load_c(struct emu_bind *b);
bool emu_bind_wmma_store(struct emu_bind *b);
bool emu_bind_wmma_mma(struct emu_bind *b);
/* textures and surfaces */
bool emu_bind_tex(struct emu_bind *b);
bool emu_bind_tld4(struct emu_bind *b);
bool emu_bind_suld(struct emu_bind *b);
bool emu_bind_sust(struct emu_bind *b);
/* engines */
bool emu_bind_mbarrier_init(struct emu_bind *b);
bool emu_bind_mbarrier_inval(struct emu_bind *b);
bool emu_bind_mbarrier_arrive(struct emu_bind *b);
bool emu_bind_mbarrier_expect(struct emu_bind *b);
bool emu_bind_mbarrier_complete(struct emu_bind *b);
bool emu_bind_mbarrier_try_wait(struct emu_bind *b);
bool emu_bind_mbarrier_test_wait(struct emu_bind *b);
bool emu_bind_cp_async(struct emu_bind *b);
bool emu_bind_cp_async_commit(struct emu_bind *b);
bool emu_bind_cp_async_wait(struct emu_bind *b);
bool emu_bind_cp_async_wait_all(struct emu_bind *b);
bool emu_bind_cp_async_arrive(struct emu_bind *b);
bool emu_bind_bulk(struct emu_bind *b);
bool emu_bind_bulk_tensor(struct emu_bind *b);
bool emu_bind_bulk_commit(struct emu_bind *b);
bool emu_bind_bulk_wait(struct emu_bind *b);
bool emu_bind_bulk_reduce(struct emu_bind *b);
bool emu_bind_bulk_tensor_reduce(struct emu_bind *b);
/* The operation of cp.reduce.async.bulk, plus one, in option. */
#define EMU_OPERATION_AT 8
bool emu_bind_reduction(struct emu_bind *b);
/* The same with the statement's type. */
bool emu_bind_reduction_type(struct emu_bind *b, struct emu_reduction *r);
bool emu_bind_st_async(struct emu_bind *b);
bool emu_bind_red_async(struct emu_bind *b);
bool emu_bind_fence(struct emu_bind *b);
bool emu_bind_fence_init(struct emu_bind *b);
bool emu_bind_fence_proxy(struct emu_bind *b);
bool emu_bind_tensormap_replace(struct emu_bind *b);
bool emu_bind_tensormap_copy(struct emu_bind *b);
bool emu_bind_tensormap_fence(struct emu_bind *b);
bool emu_bind_wgmma(struct emu_bind *b);
bool emu_bind_wgmma_fence(struct emu_bind *b);
bool emu_bind_wgmma_commit(struct emu_bind *b);
bool emu_bind_wgmma_wait(struct emu_bind *b);
/* launch control, and what it needs */
bool emu_bind_try_cancel(struct emu_bind *b);
bool emu_bind_query_cancel(struct emu_bind *b);
bool emu_bind_ld_128(struct emu_bind *b);
bool emu_bind_mov_128(struct emu_bind *b);
/* tcgen05 */
bool emu_bind_tmem_alloc(struct emu_bind *b);
bool emu_bind_tmem_dealloc(struct emu_bind *b);
bool emu_bind_tmem_relinquish(struct emu_bind *b);
bool emu_bind_tmem_ld(struct emu_bind *b);
bool emu_bind_tmem_st(struct emu_bind *b);
bool emu_bind_tmem_wait_ld(struct emu_bind *b);
bool emu_bind_tmem_wait_st(struct emu_bind *b);
bool emu_bind_tmem_fence_before(struct emu_bind *b);
bool emu_bind_tmem_fence_after(struct emu_bind *b);
bool emu_bind_tmem_copy(struct emu_bind *b);
bool emu_bind_tmem_commit(struct emu_bind *b);
bool emu_bind_umma(struct emu_bind *b);

#endif
