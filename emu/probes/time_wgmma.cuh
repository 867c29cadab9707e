/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time_wgmma.cuh - wgmma m64, by n, by type, and with A in registers and in shared
 * memory: the interval between operations of one and of two warpgroups, the time of a
 * group of one operation, how long a warp stalls to issue four, and the cost of other
 * instructions at the same time.
 */
#ifndef EMU_TIME_WGMMA_CUH
#define EMU_TIME_WGMMA_CUH

#include "time_issue.cuh"

/* Names of accumulators: four for each eight columns of D. */
#define D4(i) "d" #i "a,d" #i "b,d" #i "c,d" #i "e"
#define D8(i) D4(i) "," D4(i##0)
#define N8    D4(1)
#define N16   N8 "," D4(2)
#define N32   N16 "," D4(3) "," D4(4)
#define N64   N32 "," D8(5) "," D8(6)
#define N96   N64 "," D8(7) "," D8(8)
#define N128  N96 "," D8(9) "," D8(11)
#define N192  N128 "," D8(12) "," D8(13) "," D8(14) "," D8(15)
#define N256  N192 "," D8(16) "," D8(17) "," D8(18) "," D8(19)

#define MMA(shape, list, a, tail)                                                      \
	"wgmma.mma_async.sync.aligned." shape " {" list "}, " a ", %3, p, 1, 1" tail   \
	";\n\t"
#define MMA4(shape, list, a, tail)                                                     \
	MMA(shape, list, a, tail)                                                      \
	MMA(shape, list, a, tail)                                                      \
	MMA(shape, list, a, tail)                                                      \
	MMA(shape, list, a, tail)

/* rounds groups, each waited for; the first operation does not read D. */
#define WGMMA_LOOP(list, group)                                                        \
	asm volatile("{\n\t.reg .pred p, q;\n\t.reg .b32 n;\n\t.reg .f32 " list        \
		     ";\n\tmov.b32 n, %1;\n\tsetp.ne.b32 p, 1, 1;\n"                   \
		     "loop%=:\n\twgmma.fence.sync.aligned;\n\t" group                  \
		     "wgmma.commit_group.sync.aligned;\n\t"                            \
		     "wgmma.wait_group.sync.aligned 0;\n\t"                            \
		     "setp.eq.b32 p, 1, 1;\n\tadd.s32 n, n, -1;\n\t"                   \
		     "setp.ne.b32 q, n, 0;\n\t@q bra loop%=;\n\t"                      \
		     "mov.b32 %0, d1a;\n\t}"                                           \
		     : "=r"(sum)                                                       \
		     : "r"(rounds), "l"(a_desc), "l"(b_desc), "r"(0)                   \
		     : "memory")

/* One group of four: cycles until the warp has issued it. */
#define WGMMA_ISSUE(list, group)                                                       \
	asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 c;\n\t.reg .f32 " list           \
		     ";\n\tsetp.ne.b32 p, 1, 1;\n\t"                                   \
		     "wgmma.fence.sync.aligned;\n\tmov.u64 c, %%clock64;\n\t" group    \
		     "wgmma.commit_group.sync.aligned;\n\t"                            \
		     "mov.u64 %1, %%clock64;\n\tsub.s64 %1, %1, c;\n\t"                \
		     "wgmma.wait_group.sync.aligned 0;\n\t"                            \
		     "mov.b32 %0, d1a;\n\t}"                                           \
		     : "=r"(sum), "=l"(issued)                                         \
		     : "l"(a_desc), "l"(b_desc), "r"(0)                                \
		     : "memory")

/* mode 0: groups of four operations; 1: of one. */
#define WGMMA_KERNEL(name, shape, list, a, tail)                                       \
	struct name {                                                                  \
		static __device__ __forceinline__ uint32_t run(int mode, int rounds,   \
							       uint64_t a_desc,        \
							       uint64_t b_desc)        \
		{                                                                      \
			uint32_t sum;                                                  \
                                                                                       \
			if (mode == 0)                                                 \
				WGMMA_LOOP(list, MMA4(shape, list, a, tail));          \
			else                                                           \
				WGMMA_LOOP(list, MMA(shape, list, a, tail));           \
			return sum;                                                    \
		}                                                                      \
		static __device__ __forceinline__ unsigned long long                   \
		issue(uint64_t a_desc, uint64_t b_desc)                                \
		{                                                                      \
			unsigned long long issued;                                     \
			uint32_t sum;                                                  \
                                                                                       \
			WGMMA_ISSUE(list, MMA4(shape, list, a, tail));                 \
			return issued + (sum == 1 ? 1 : 0);                            \
		}                                                                      \
	};

#define IN_REGISTERS "{%4,%4,%4,%4}"
#define WGMMA_OF(n)                                                                    \
	WGMMA_KERNEL(f16_ss_##n, "m64n" #n "k16.f32.f16.f16", N##n, "%2", ", 0, 0")    \
	WGMMA_KERNEL(f16_rs_##n, "m64n" #n "k16.f32.f16.f16", N##n, IN_REGISTERS,      \
		     ", 0")                                                            \
	WGMMA_KERNEL(e4m3_ss_##n, "m64n" #n "k32.f32.e4m3.e4m3", N##n, "%2", "")       \
	WGMMA_KERNEL(e4m3_rs_##n, "m64n" #n "k32.f32.e4m3.e4m3", N##n, IN_REGISTERS, "")
WGMMA_OF(8)
WGMMA_OF(16)
WGMMA_OF(32)
WGMMA_OF(64)
WGMMA_OF(96)
WGMMA_OF(128)
WGMMA_OF(192)
WGMMA_OF(256)

/* Tiles of 128-byte swizzle, rows of 128 bytes; the descriptors of two. */
static __device__ __forceinline__ void fill_tiles(uint32_t base, uint32_t mask,
						  uint64_t *a, uint64_t *b)
{
	const uint64_t fixed =
	    UINT64_C(1) << 62 | UINT64_C(64) << 32 | UINT64_C(1) << 16;

	for (uint32_t i = threadIdx.x * 4; i < 49152; i += blockDim.x * 4)
		asm volatile("st.shared.b32 [%0], %1;" ::"r"(base + i),
			     "r"((i * 2654435761u ^ i << 7) & mask)
			     : "memory");
	asm volatile("fence.proxy.async;" ::: "memory");
	__syncthreads();
	*a = fixed | (base & 0x3FFFF) >> 4;
	*b = fixed | (base + 16384 & 0x3FFFF) >> 4;
}

template <class Op>
static __global__ void __launch_bounds__(256, 1)
    wgmma_kernel(unsigned long long *cycles, int mode, int rounds)
{
	extern __shared__ __align__(1024) uint8_t tiles[];
	const uint32_t base = (shared_address(tiles) + 1023) & ~1023u;
	unsigned long long begin;
	uint64_t a, b;
	uint32_t sum;

	fill_tiles(base, 0, &a, &b);
	begin = cycle_now();
	sum = Op::run(mode, rounds, a, b);
	begin = cycle_now() - begin;
	if (threadIdx.x % 128 == 0)
		cycles[threadIdx.x / 128] = begin + (sum == 1 ? 1 : 0);
}

template <class Op>
static __global__ void __launch_bounds__(256, 1)
    wgmma_issue_kernel(unsigned long long *cycles)
{
	extern __shared__ __align__(1024) uint8_t tiles[];
	const uint32_t base = (shared_address(tiles) + 1023) & ~1023u;
	uint64_t a, b;

	fill_tiles(base, 0, &a, &b);
	cycles[0] = Op::issue(a, b);
}

/* Warps 4 to 7 alternate two instructions, four chains of each, while warps 0 to 3
 * multiply; with rounds = 0 no warp multiplies. */
template <class Op, class One, class Other>
static __global__ void __launch_bounds__(256, 1)
    wgmma_beside_kernel(unsigned long long *cycles, int rounds, uint32_t zero)
{
	extern __shared__ __align__(1024) uint8_t tiles[];
	const uint32_t base = (shared_address(tiles) + 1023) & ~1023u;
	const uint32_t y = 1 + (threadIdx.x & zero);
	unsigned long long begin;
	uint64_t a, b;
	uint32_t x[8], sum = 0;

	fill_tiles(base, 0, &a, &b);
	if (threadIdx.x < 128) {
		if (rounds && Op::run(0, rounds, a, b) == 1)
			cycles[1] = 1;
		return;
	}
	for (int c = 0; c < 8; c++)
		x[c] = (threadIdx.x + c) & zero;
	begin = cycle_now();
#pragma unroll 1
	for (int r = 0; r < 64; r++) {
#pragma unroll
		for (int i = 0; i < 64; i += 2) {
			One::step(x[i % 8], y, base);
			Other::step(x[i % 8 + 1], y, base);
		}
	}
	for (int c = 0; c < 8; c++)
		sum += x[c];
	asm volatile("" ::"r"(sum) : "memory");
	begin = cycle_now() - begin;
	if (threadIdx.x == 128)
		cycles[0] = begin + (sum == 0x12345 ? 1 : 0);
}

template <class Op, class One, class Other>
static void wgmma_beside_row(const char *name, int n)
{
	results<unsigned long long> r(2);

	allow_shared(wgmma_beside_kernel<Op, One, Other>, 65536);
	for (int rounds = 0; rounds <= 1000; rounds += 1000) {
		wgmma_beside_kernel<Op, One, Other>
		    <<<1, 256, 65536>>>(r.device, rounds, 0);
		r.read("wgmma beside");
		row((double)r.host[0] / 4096, "cycles/warp/quarter",
		    "wgmma.%s.n%d.%s_%s_%s", name, n, rounds ? "beside" : "without",
		    One::name(), Other::name());
	}
}

template <class Op>
static void wgmma_issue_row(const char *name, int n)
{
	results<unsigned long long> r(1);

	allow_shared(wgmma_issue_kernel<Op>, 65536);
	for (int repeat = 0; repeat < 2; repeat++) {
		wgmma_issue_kernel<Op><<<1, 128, 65536>>>(r.device);
		r.read("wgmma issue");
	}
	row((double)r.host[0], "cycles/4 ops", "wgmma.%s.n%d.issue_of_4", name, n);
}

template <class Op>
static double wgmma_cycles(int warpgroups, int mode, int rounds)
{
	results<unsigned long long> r(2);

	allow_shared(wgmma_kernel<Op>, 65536);
	for (int repeat = 0; repeat < 2; repeat++) {
		wgmma_kernel<Op>
		    <<<1, warpgroups * 128, 65536>>>(r.device, mode, rounds);
		r.read("wgmma");
	}
	return (double)std::max(r.host[0], r.host[warpgroups - 1]);
}

/*
 * The difference of two lengths, which excludes the first and the last operations.
 */
template <class Op>
static void wgmma_row(const char *name, int n)
{
	const int more = 96, less = 32;
	double by_groups[2];

	for (int g = 1; g <= 2; g++)
		by_groups[g - 1] =
		    (wgmma_cycles<Op>(g, 0, more) - wgmma_cycles<Op>(g, 0, less)) /
		    (more - less);
	row(by_groups[0], "cycles/4 ops and wait", "wgmma.%s.n%d.group_of_4", name, n);
	row(by_groups[1] / 8, "cycles/op", "wgmma.%s.n%d.interval_2_groups", name, n);
	row((wgmma_cycles<Op>(1, 1, more) - wgmma_cycles<Op>(1, 1, less)) /
		(more - less),
	    "cycles/op and wait", "wgmma.%s.n%d.group_of_1", name, n);
}

static void time_wgmma(const gpu &)
{
#define ROWS(n)                                                                        \
	wgmma_row<f16_ss_##n>("f16_ss", n);                                            \
	wgmma_row<f16_rs_##n>("f16_rs", n);                                            \
	wgmma_row<e4m3_ss_##n>("e4m3_ss", n);                                          \
	wgmma_row<e4m3_rs_##n>("e4m3_rs", n);
	ROWS(8)
	ROWS(16)
	ROWS(32)
	ROWS(64)
	ROWS(96)
	ROWS(128)
	ROWS(192)
	ROWS(256)
#undef ROWS
#define ROWS(kind, n)                                                                  \
	wgmma_issue_row<kind##_##n>(#kind, n);                                         \
	wgmma_beside_row<kind##_##n, op_lop3, op_lop3>(#kind, n);                      \
	wgmma_beside_row<kind##_##n, op_lop3, op_mul_f16x2>(#kind, n);                 \
	wgmma_beside_row<kind##_##n, op_lop3, op_imad>(#kind, n);                      \
	wgmma_beside_row<kind##_##n, op_mul_f16x2, op_cvt_f16x2_e4m3x2>(#kind, n);
	ROWS(f16_rs, 64)
	ROWS(f16_rs, 128)
	ROWS(f16_rs, 256)
	ROWS(f16_ss, 64)
	ROWS(f16_ss, 128)
#undef ROWS
}

#endif
