/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ptx.cuh - instructions of all GPUs from sm_80 on that CUDA C has no name for: one
 * wrapper for each, named after it.  Where an older GPU lacks the instruction, the
 * wrapper computes the same bits.  Shared memory addresses are 32-bit
 * (smem_addr()).  Instructions that access or order memory have the clobber "memory".
 * ptx_async.cuh has what Hopper and Blackwell add, sm90/ptx_wgmma.cuh and
 * sm100/ptx_tcgen05.cuh what only one of them has.
 */
#ifndef NIB_PTX_CUH
#define NIB_PTX_CUH

#include <stdint.h>

#include "device.cuh"
#include "e4m3_bits.cuh"

/* The instructions of sm_89 and of sm_90, for the machine code that is compiled now. */
#define HAS_CVT_E4M3 (__CUDA_ARCH__ >= 890)
#define HAS_MUL_BF16 (__CUDA_ARCH__ >= 900)

DEVICE uint32_t smem_addr(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* Hides the value of x from the compiler, so that it keeps x in a register and
 * evaluates expressions in x after this point. */
DEVICE uint32_t opaque(uint32_t x)
{
	asm volatile("" : "+r"(x));
	return x;
}

/* x, the same in all lanes of the warp, in a register that they share. */
DEVICE int uniform(int x)
{
	return __reduce_max_sync(~0u, x);
}

/* ---- asynchronous copies (PTX ISA 7.0, sm_80+) --------------------------- */

/* 16 bytes, bypassing the L1; the L2 fetches the 256 bytes around them. */
DEVICE void cp_async_16_l2_256(uint32_t to, const void *from)
{
	asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to),
		     "l"(from)
		     : "memory");
}

/* The same with 128 bytes. */
DEVICE void cp_async_16_l2_128(uint32_t to, const void *from)
{
	asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to),
		     "l"(from)
		     : "memory");
}

/* 16 bytes, bypassing the L1; src_bytes of them are read, the rest becomes zero. */
DEVICE void cp_async_16(uint32_t to, const void *from, uint32_t src_bytes)
{
	asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to),
		     "l"(from), "r"(src_bytes)
		     : "memory");
}

/* The same through the L1. */
DEVICE void cp_async_16_l1(uint32_t to, const void *from)
{
	asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to),
		     "l"(from)
		     : "memory");
}

DEVICE void cp_async_4(uint32_t to, const void *from, uint32_t src_bytes)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to),
		     "l"(from), "r"(src_bytes)
		     : "memory");
}

DEVICE void cp_async_commit_group(void)
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most GROUPS of this thread's groups are incomplete. */
template <int GROUPS>
DEVICE void cp_async_wait_group(void)
{
	asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

/* ---- global memory between CTAs ------------------------------------------ */

/* Releases what this CTA wrote before its last barrier to a thread that acquires it. */
DEVICE void red_add_release(uint32_t *to, uint32_t x)
{
	asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(x)
		     : "memory");
}

/*
 * Adds x and returns the previous value.  Releases what this CTA wrote before its last
 * barrier, and acquires what the threads that added earlier released.
 */
DEVICE uint32_t atom_add_acq_rel(uint32_t *to, uint32_t x)
{
	uint32_t before;
	asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
		     : "=r"(before)
		     : "l"(to), "r"(x)
		     : "memory");
	return before;
}

DEVICE uint32_t ld_acquire(const uint32_t *from)
{
	uint32_t x;

	asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
		     : "=r"(x)
		     : "l"(from)
		     : "memory");
	return x;
}

/* Bypasses the L1; another grid may be storing by st_relaxed(). */
DEVICE int32_t ld_relaxed(const int32_t *from)
{
	int32_t x;

	asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];"
		     : "=r"(x)
		     : "l"(from)
		     : "memory");
	return x;
}

DEVICE void st_relaxed(int32_t *to, int32_t x)
{
	asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(to), "r"(x)
		     : "memory");
}

/* The L2 fetches the bytes around an address. */
DEVICE void prefetch_l2(const void *from)
{
	asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}

DEVICE void st_global_f32x4(float *to, const float *x)
{
	asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]),
		     "f"(x[1]), "f"(x[2]), "f"(x[3])
		     : "memory");
}

/* to += from; the load bypasses the L1. */
DEVICE void add_global_f32x4(float *to, const float *from)
{
	float x[4];

	asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
		     : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
		     : "l"(from)
		     : "memory");
	for (int i = 0; i < 4; i++)
		to[i] += x[i];
}

/*
 * Loads that give zeros if !is_inside.  They are predicated, so that a sequence of them
 * requests all values before it waits for the first.
 */
DEVICE uint32_t ldg_u8_if(const uint8_t *from, bool is_inside)
{
	uint32_t x;
	asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t"
		     "mov.u32 %0, 0;\n\t@p ld.global.u8 %0, [%1];\n\t}"
		     : "=&r"(x)
		     : "l"(from), "r"((uint32_t)is_inside));
	return x;
}

DEVICE uint2 ldg_64_if(const uint8_t *from, bool is_inside)
{
	uint2 x;
	asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %3, 0;\n\t"
		     "mov.u32 %0, 0;\n\tmov.u32 %1, 0;\n\t"
		     "@p ld.global.v2.u32 {%0, %1}, [%2];\n\t}"
		     : "=&r"(x.x), "=&r"(x.y)
		     : "l"(from), "r"((uint32_t)is_inside));
	return x;
}

DEVICE uint4 ldg_128_if(const uint8_t *from, bool is_inside)
{
	uint4 x;
	asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %5, 0;\n\t"
		     "mov.u32 %0, 0;\n\tmov.u32 %1, 0;\n\t"
		     "mov.u32 %2, 0;\n\tmov.u32 %3, 0;\n\t"
		     "@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
		     : "=&r"(x.x), "=&r"(x.y), "=&r"(x.z), "=&r"(x.w)
		     : "l"(from), "r"((uint32_t)is_inside));
	return x;
}

/* ---- shared memory ------------------------------------------------------- */

DEVICE uint4 lds_128(uint32_t addr)
{
	uint4 x;
	asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
		     : "r"(addr)
		     : "memory");
	return x;
}

DEVICE void lds_64(uint32_t addr, uint32_t *lo, uint32_t *hi)
{
	asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
		     : "=r"(*lo), "=r"(*hi)
		     : "r"(addr)
		     : "memory");
}

DEVICE uint64_t pack_64(uint32_t low, uint32_t high)
{
	uint64_t x;

	asm("mov.b64 %0, {%1, %2};" : "=l"(x) : "r"(low), "r"(high));
	return x;
}

DEVICE uint32_t lds_u8(uint32_t addr)
{
	uint32_t x;
	asm volatile("ld.shared.u8 %0, [%1];" : "=r"(x) : "r"(addr) : "memory");
	return x;
}

DEVICE void sts_u8(uint32_t addr, uint32_t x)
{
	asm volatile("st.shared.u8 [%0], %1;" ::"r"(addr), "r"(x) : "memory");
}

DEVICE float lds_f32(uint32_t addr)
{
	float x;
	asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(addr) : "memory");
	return x;
}

DEVICE uint32_t lds_32(uint32_t addr)
{
	uint32_t x;
	asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(addr) : "memory");
	return x;
}

DEVICE uint32_t lds_u16(uint32_t addr)
{
	uint32_t x;
	asm volatile("ld.shared.u16 %0, [%1];" : "=r"(x) : "r"(addr) : "memory");
	return x;
}

DEVICE void sts_32(uint32_t addr, uint32_t x)
{
	asm volatile("st.shared.u32 [%0], %1;" ::"r"(addr), "r"(x) : "memory");
}

DEVICE void sts_128(uint32_t addr, uint4 x)
{
	asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(x.x),
		     "r"(x.y), "r"(x.z), "r"(x.w)
		     : "memory");
}

DEVICE void sts_f32(uint32_t addr, float x)
{
	asm volatile("st.shared.f32 [%0], %1;" ::"r"(addr), "f"(x) : "memory");
}

/* ---- barriers ------------------------------------------------------------ */

/* Named barrier id, for `threads` threads. */
DEVICE void bar_sync(uint32_t id, uint32_t threads)
{
	asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- arithmetic ---------------------------------------------------------- */

/* Two e4m3 values (low byte first) as two halves; 0x7F gives NaN.  PTX ISA 7.8,
 * sm_89+; before, by bits. */
DEVICE uint32_t cvt_f16x2_e4m3x2(uint32_t bytes)
{
	uint32_t h;
#if HAS_CVT_E4M3
	asm("{\n\t.reg .b16 lo, hi;\n\tmov.b32 {lo, hi}, %1;\n\t"
	    "cvt.rn.f16x2.e4m3x2 %0, lo;\n\t}"
	    : "=r"(h)
	    : "r"(bytes));
#else
	h = halves_of_e4m3(__byte_perm(bytes, 0, 0x4140));
#endif
	return h;
}

/* The same for the high two bytes. */
DEVICE uint32_t cvt_f16x2_e4m3x2_high(uint32_t bytes)
{
	uint32_t h;
#if HAS_CVT_E4M3
	asm("{\n\t.reg .b16 lo, hi;\n\tmov.b32 {lo, hi}, %1;\n\t"
	    "cvt.rn.f16x2.e4m3x2 %0, hi;\n\t}"
	    : "=r"(h)
	    : "r"(bytes));
#else
	h = halves_of_e4m3(__byte_perm(bytes, 0, 0x4342));
#endif
	return h;
}

/* One e4m3 byte, exact. */
DEVICE float e4m3_to_f32(uint32_t byte)
{
	float x;
#if HAS_CVT_E4M3
	asm("{\n\t.reg .b16 lo, hi;\n\t.reg .b32 h;\n\t"
	    "mov.b32 {lo, hi}, %1;\n\tcvt.rn.f16x2.e4m3x2 h, lo;\n\t"
	    "mov.b32 {lo, hi}, h;\n\tcvt.f32.f16 %0, lo;\n\t}"
	    : "=f"(x)
	    : "r"(byte));
#else
	asm("{\n\t.reg .b16 lo, hi;\n\tmov.b32 {lo, hi}, %1;\n\t"
	    "cvt.f32.f16 %0, lo;\n\t}"
	    : "=f"(x)
	    : "r"(halves_of_e4m3(byte)));
#endif
	return x;
}

/* To nearest even, beyond 448 to 448; NaN gives 0x7F. */
DEVICE uint32_t cvt_satfinite_e4m3_f32(float x)
{
	uint32_t bytes;
#if HAS_CVT_E4M3
	asm("{\n\t.reg .b16 pair;\n\t"
	    "cvt.rn.satfinite.e4m3x2.f32 pair, 0f00000000, %1;\n\t"
	    "cvt.u32.u16 %0, pair;\n\t}"
	    : "=r"(bytes)
	    : "f"(x));
#else
	bytes = e4m3_of_f32(x);
#endif
	return bytes;
}

/* 1 / x with an error of at most one unit in the last place. */
DEVICE float rcp_approx(float x)
{
	float y;
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* Rounds to nearest even; overflow gives inf. */
DEVICE uint32_t cvt_f16x2_f32(float lo, float hi)
{
	uint32_t r;
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
	return r;
}

DEVICE uint32_t cvt_bf16x2_f32(float lo, float hi)
{
	uint32_t r;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
	return r;
}

DEVICE uint32_t mul_f16x2(uint32_t a, uint32_t b)
{
	uint32_t r;
	asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
	return r;
}

DEVICE uint32_t low_halves(uint32_t x)
{
	uint32_t r;
	asm("{\n\t.reg .b16 lo, hi;\n\tmov.b32 {lo, hi}, %1;\n\t"
	    "mov.b32 %0, {lo, lo};\n\t}"
	    : "=r"(r)
	    : "r"(x));
	return r;
}

DEVICE uint32_t high_halves(uint32_t x)
{
	uint32_t r;
	asm("{\n\t.reg .b16 lo, hi;\n\tmov.b32 {lo, hi}, %1;\n\t"
	    "mov.b32 %0, {hi, hi};\n\t}"
	    : "=r"(r)
	    : "r"(x));
	return r;
}

DEVICE uint32_t mul_bf16x2(uint32_t a, uint32_t b)
{
	uint32_t r;
#if HAS_MUL_BF16
	asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
#else
	/* Adding -0 keeps the sign of a product that is zero. */
	asm("fma.rn.bf16x2 %0, %1, %2, %3;"
	    : "=r"(r)
	    : "r"(a), "r"(b), "r"(0x80008000u));
#endif
	return r;
}

/* The low and the high half of a pair of fp16. */
DEVICE float low_f32_f16x2(uint32_t x)
{
	float r;
	asm("{\n\t.reg .b16 lo, hi;\n\tmov.b32 {lo, hi}, %1;\n\t"
	    "cvt.f32.f16 %0, lo;\n\t}"
	    : "=f"(r)
	    : "r"(x));
	return r;
}

DEVICE float high_f32_f16x2(uint32_t x)
{
	float r;
	asm("{\n\t.reg .b16 lo, hi;\n\tmov.b32 {lo, hi}, %1;\n\t"
	    "cvt.f32.f16 %0, hi;\n\t}"
	    : "=f"(r)
	    : "r"(x));
	return r;
}

/*
 * Byte i of the result is byte c[4i+2:4i] of the eight bytes b:a; where bit
 * 4i+3 of c is set, it is that byte's sign bit eight times.
 */
DEVICE uint32_t prmt(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t d;
	asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
	return d;
}

/* c + the four products of signed bytes.  PTX ISA 5.0, sm_61+. */
DEVICE uint32_t dp4a(uint32_t a, uint32_t b, uint32_t c)
{
	uint32_t d;
	asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
	return d;
}

/*
 * d[m16, n8] = a[m16, k32] * b[k32, n8] + c of 8-bit integers, exact.  With
 * g = lane / 4 and t = lane % 4: a = (row g, k 4t), (g+8, 4t), (g, 4t+16),
 * (g+8, 4t+16), four k to a register; b = (k 4t, column g), (4t+16, g);
 * c, d = (row g, columns 2t, 2t+1), (g+8, ...).  PTX ISA 7.0, sm_80+.
 */
DEVICE void mma_m16n8k32_s8(uint32_t d[4], const uint32_t a[4], const uint32_t b[2])
{
	asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
	    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
	    "{%0, %1, %2, %3};"
	    : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
	    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif
