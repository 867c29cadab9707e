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

/* The assembler repeats text for each accumulator, whose number is \\i there. */
#define TWELVE(text) ".irp i,0,1,2,3,4,5,6,7,8,9,10,11\n\t" text "\n\t.endr\n\t"

/* clang-format off */
/* A loop of TWELVE(insn) twice = PEAK_UNROLL instructions. */
#define LOOP(name, load, reg, clear, insn, leave)                              \
	void peak_loop_##name(int64_t loops, const void *operand)              \
	{                                                                      \
		__asm__ volatile(load " (%1),%%" reg "14\n\t"                  \
				 load " (%1),%%" reg "15\n\t"                  \
				 TWELVE(clear) ".p2align 6\n1:\n\t"            \
				 TWELVE(insn) TWELVE(insn)                     \
				 "dec %0\n\tjnz 1b\n\t" leave                  \
				 : "+r"(loops)                                 \
				 : "r"(operand)                                \
				 : "cc", "memory", "xmm0", "xmm1", "xmm2",     \
				   "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",     \
				   "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",  \
				   "xmm14", "xmm15");                          \
	}
#define LOOP_VEX(name, reg, insn)                                              \
	LOOP(name, "vmovups", reg, "vpxor %%xmm\\i,%%xmm\\i,%%xmm\\i",         \
	     insn " %%" reg "14,%%" reg "15,%%" reg "\\i", "vzeroupper")
#define LOOP_SSE(name, insn)                                                   \
	LOOP(name, "movups", "xmm", "pxor %%xmm\\i,%%xmm\\i", insn, "")
/* clang-format on */

LOOP_VEX(fma_avx512, "zmm", "vfmadd231ps")
LOOP_VEX(fma_avx2, "ymm", "vfmadd231ps")
LOOP_VEX(dot_bf16, "zmm", "vdpbf16ps")
LOOP_VEX(dot8_avx512, "zmm", "vpdpbusd")
LOOP_VEX(dot8_avxvnni, "ymm", "%{vex%} vpdpbusd")
LOOP_VEX(madd8_avx512, "zmm", "vpmaddubsw")
LOOP_VEX(madd8_avx2, "ymm", "vpmaddubsw")
LOOP_SSE(pmaddwd, "pmaddwd %%xmm14,%%xmm\\i")
/* Without FMA a multiply-add is a copy, a product and a sum. */
LOOP_SSE(mul_add_sse, "movaps %%xmm15,%%xmm12\n\tmulps %%xmm14,%%xmm12\n\t"
		      "addps %%xmm12,%%xmm\\i")

/* AMX, palette 1: eight tiles of 16 rows of 64 bytes. */
static const struct {
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
} tile_config = {.palette = 1,
		 .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
		 .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

/* Four accumulators, two tiles of A, two of B: PEAK_UNROLL tdpbf16ps a loop. */
void peak_loop_tile_bf16(int64_t loops, const void *operand)
{
	/* All rows of a tile are the operand. */
	__asm__ volatile("ldtilecfg %2\n\t"
			 ".irp i,0,1,2,3\n\ttilezero %%tmm\\i\n\t.endr\n\t"
			 ".irp i,4,5,6,7\n\ttileloadd (%1,%3,1),%%tmm\\i\n\t.endr\n\t"
			 ".p2align 6\n1:\n\t.rept 6\n\t"
			 "tdpbf16ps %%tmm6,%%tmm4,%%tmm0\n\t"
			 "tdpbf16ps %%tmm7,%%tmm4,%%tmm1\n\t"
			 "tdpbf16ps %%tmm6,%%tmm5,%%tmm2\n\t"
			 "tdpbf16ps %%tmm7,%%tmm5,%%tmm3\n\t.endr\n\t"
			 "dec %0\n\tjnz 1b\n\ttilerelease"
			 : "+r"(loops)
			 : "r"(operand), "m"(tile_config), "r"(0L)
			 : "cc", "memory");
}

/*
 * PEAK_UNROLL dependent additions of a register: one cycle each on every x86-64.
 * Golden Cove adds small constants when it renames registers, several a cycle.
 */
void peak_loop_clock(int64_t loops, const void *operand)
{
	(void)operand;
	__asm__ volatile("1:\n\t.rept 24\n\tadd %%rdx,%%rax\n\t.endr\n\t"
			 "dec %0\n\tjnz 1b\n\t"
			 : "+r"(loops)
			 :
			 : "rax", "cc");
}

/* 256 bytes; wider loads gain nothing. */
static inline __m128i read_piece(const __m128i *v, __m128i x)
{
	__m128i x0 = _mm_load_si128(v), x1 = _mm_load_si128(v + 1);

	for (int i = 2; i < 16; i += 2) {
		x0 = _mm_or_si128(x0, _mm_load_si128(v + i));
		x1 = _mm_or_si128(x1, _mm_load_si128(v + i + 1));
	}
	return _mm_or_si128(x, _mm_or_si128(x0, x1));
}

uint64_t peak_read(const void *p, size_t n_bytes, int streams, size_t ahead_bytes)
{
	const size_t part = n_bytes / (size_t)streams;
	__m128i x = _mm_setzero_si128();

	for (size_t at = 0; at < part; at += 256) {
		for (int s = 0; s < streams; s++) {
			const char *from = (const char *)p + (size_t)s * part + at;

			/* Past the end of memory a prefetch does nothing. */
			for (int i = 0; ahead_bytes && i < 256; i += 64)
				_mm_prefetch(from + ahead_bytes + i, _MM_HINT_T0);
			x = read_piece((const __m128i *)from, x);
		}
	}
	return (uint64_t)_mm_cvtsi128_si64(x);
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
/* Another processor: only its memory is measured. */
#include <string.h>

/* A compiler's loop has one stream, and the processor prefetches it. */
uint64_t peak_read(const void *p, size_t n_bytes, int streams, size_t ahead_bytes)
{
	const uint64_t *v = p;
	uint64_t x = 0;

	(void)streams;
	(void)ahead_bytes;
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
