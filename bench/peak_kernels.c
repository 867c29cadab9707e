/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peak_kernels.c - the inner loops of peaks.c.
 *
 * Assembly, because a compiler would fold or reorder loops whose results nobody
 * needs, and because one file can then hold instructions of every processor:
 * the caller asks cpuid first.  Twelve independent accumulators (registers 0..11)
 * cover 4 to 6 cycles of latency at two instructions a cycle; registers 14 and
 * 15 hold the operands.
 */
#include "peak_kernels.h"

#if PEAK_HAS_LOOPS
#include <emmintrin.h>

#define CLOBBERS                                                               \
	"cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",        \
	    "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm14", "xmm15"

#define TWELVE(X)                                                              \
	X("0")                                                                 \
	X("1")                                                                 \
	X("2") X("3") X("4") X("5") X("6") X("7") X("8") X("9") X("10") X("11")

/* A loop of TWELVE(insn) twice = PEAK_UNROLL instructions. */
#define LOOP(name, load14, load15, clear, insn, leave)                         \
	void name(int64_t loops, const void *operand)                          \
	{                                                                      \
		__asm__ volatile(                                              \
		    load14 load15 TWELVE(                                      \
			clear) ".p2align 6\n"                                  \
			       "1:\n\t" TWELVE(insn)                           \
				   TWELVE(insn) "dec %0\n\tjnz 1b\n\t" leave   \
		    : "+r"(loops)                                              \
		    : "r"(operand)                                             \
		    : CLOBBERS);                                               \
	}

#define CLEAR_VEX(i) "vpxor %%xmm" i ",%%xmm" i ",%%xmm" i "\n\t"
#define CLEAR_SSE(i) "pxor %%xmm" i ",%%xmm" i "\n\t"
#define LOAD_ZMM(i)  "vmovups (%1),%%zmm" i "\n\t"
#define LOAD_YMM(i)  "vmovups (%1),%%ymm" i "\n\t"
#define LOAD_XMM(i)  "movups (%1),%%xmm" i "\n\t"

#define LOOP_ZMM(name, insn)                                                   \
	LOOP(name, LOAD_ZMM("14"), LOAD_ZMM("15"), CLEAR_VEX, insn,            \
	     "vzeroupper\n\t")
#define LOOP_YMM(name, insn)                                                   \
	LOOP(name, LOAD_YMM("14"), LOAD_YMM("15"), CLEAR_VEX, insn,            \
	     "vzeroupper\n\t")
#define LOOP_XMM(name, insn)                                                   \
	LOOP(name, LOAD_XMM("14"), LOAD_XMM("15"), CLEAR_SSE, insn, "")

#define FMA_ZMM(i)   "vfmadd231ps %%zmm14,%%zmm15,%%zmm" i "\n\t"
#define FMA_YMM(i)   "vfmadd231ps %%ymm14,%%ymm15,%%ymm" i "\n\t"
#define DOTBF_ZMM(i) "vdpbf16ps %%zmm14,%%zmm15,%%zmm" i "\n\t"
#define DOT8_ZMM(i)  "vpdpbusd %%zmm14,%%zmm15,%%zmm" i "\n\t"
#define MADD8_ZMM(i) "vpmaddubsw %%zmm14,%%zmm15,%%zmm" i "\n\t"
#define MADD8_YMM(i) "vpmaddubsw %%ymm14,%%ymm15,%%ymm" i "\n\t"
#define MADD16(i)    "pmaddwd %%xmm14,%%xmm" i "\n\t"

LOOP_ZMM(peak_loop_fma_avx512, FMA_ZMM)
LOOP_YMM(peak_loop_fma_avx2, FMA_YMM)
LOOP_ZMM(peak_loop_dot_bf16, DOTBF_ZMM)
LOOP_ZMM(peak_loop_dot8_avx512, DOT8_ZMM)
LOOP_ZMM(peak_loop_madd8_avx512, MADD8_ZMM)
LOOP_YMM(peak_loop_madd8_avx2, MADD8_YMM)
LOOP_XMM(peak_loop_pmaddwd, MADD16)

/* Without FMA a multiply-add is a copy, a product and a sum. */
#define PAIR(i)                                                                \
	"movaps %%xmm15,%%xmm12\n\tmulps %%xmm14,%%xmm12\n\t"                  \
	"addps %%xmm12,%%xmm" i "\n\t"

void peak_loop_mul_add_sse(int64_t loops, const void *operand)
{
	__asm__ volatile(LOAD_XMM("14") LOAD_XMM("15")
			     TWELVE(CLEAR_SSE) "1:\n\t" TWELVE(PAIR)
				 TWELVE(PAIR) "dec %0\n\tjnz 1b\n\t"
			 : "+r"(loops)
			 : "r"(operand)
			 : CLOBBERS, "xmm12");
}

/* PEAK_UNROLL dependent additions: one cycle each on every x86-64. */
void peak_loop_clock(int64_t loops, const void *operand)
{
	(void)operand;
	__asm__ volatile("1:\n\t.rept 24\n\tadd $1,%%rax\n\t.endr\n\t"
			 "dec %0\n\tjnz 1b\n\t"
			 : "+r"(loops)
			 :
			 : "rax", "cc");
}

/*
 * One forward stream per thread and no prefetch instructions: of the plain
 * loops (1 to 8 streams, prefetch 512 to 4096 bytes ahead, 16- to 64-byte
 * loads) this one was the fastest, and wider loads gained nothing.
 */
uint64_t peak_read(const void *p, size_t n_bytes)
{
	const __m128i *v = p;
	const __m128i *end = v + n_bytes / sizeof *v;
	__m128i x0 = _mm_setzero_si128(), x1 = x0, x2 = x0, x3 = x0;

	for (; v < end; v += 16) {
		for (int i = 0; i < 16; i += 4) {
			x0 = _mm_or_si128(x0, _mm_load_si128(v + i));
			x1 = _mm_or_si128(x1, _mm_load_si128(v + i + 1));
			x2 = _mm_or_si128(x2, _mm_load_si128(v + i + 2));
			x3 = _mm_or_si128(x3, _mm_load_si128(v + i + 3));
		}
	}
	x0 = _mm_or_si128(_mm_or_si128(x0, x1), _mm_or_si128(x2, x3));
	return (uint64_t)_mm_cvtsi128_si64(x0);
}

void peak_write(void *p, size_t n_bytes)
{
	__m128i *v = p;
	__m128i *end = v + n_bytes / sizeof *v;
	const __m128i one = _mm_set1_epi8(1);

	for (; v < end; v += 16) {
		for (int i = 0; i < 16; i++)
			_mm_stream_si128(v + i, one);
	}
	_mm_sfence();
}

void peak_copy(void *p, size_t n_bytes)
{
	const __m128i *from = p;
	__m128i *to = (__m128i *)p + n_bytes / 2 / sizeof *to;
	const __m128i *end = to;

	for (; from < end; from += 8, to += 8) {
		for (int i = 0; i < 8; i++)
			_mm_stream_si128(to + i, _mm_load_si128(from + i));
	}
	_mm_sfence();
}

#else
/* Another processor: its memory alone is measured. */
#include <string.h>

uint64_t peak_read(const void *p, size_t n_bytes)
{
	const uint64_t *v = p;
	uint64_t x = 0;

	for (size_t i = 0; i < n_bytes / sizeof *v; i++)
		x |= v[i];
	return x;
}

void peak_write(void *p, size_t n_bytes)
{
	memset(p, 1, n_bytes);
}

void peak_copy(void *p, size_t n_bytes)
{
	memcpy((char *)p + n_bytes / 2, p, n_bytes / 2);
}
#endif
