/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time_issue.cuh - the cost of issuing instructions: the latency of a chain in one
 * warp, and the interval between warp instructions in a quarter of an SM with 4 and
 * with 16 warps of independent chains.
 */
#ifndef EMU_TIME_ISSUE_CUH
#define EMU_TIME_ISSUE_CUH

#include "time_probe.cuh"

#define ISSUE_COUNT 64 /* instructions a round */
#define ISSUE_WORDS 4096

/* x is the chain's value, y a constant of the launch, at an address in bytes. */
#define OP(title, text)                                                                \
	struct op_##title {                                                            \
		static const char *name(void)                                          \
		{                                                                      \
			return #title;                                                 \
		}                                                                      \
		static __device__ __forceinline__ void step(uint32_t &x, uint32_t y,   \
							    uint32_t at)               \
		{                                                                      \
			asm volatile(text : "+r"(x) : "r"(y), "r"(at));                \
		}                                                                      \
	};

OP(fma_f32, "fma.rn.f32 %0, %0, %1, %1;")
OP(add_f32, "add.rn.f32 %0, %0, %1;")
OP(fma_f16x2, "fma.rn.f16x2 %0, %0, %1, %1;")
OP(mul_f16x2, "mul.rn.f16x2 %0, %0, %1;")
OP(imad, "mad.lo.u32 %0, %0, %1, %1;")
OP(iadd3, "{.reg .b32 t; add.u32 t, %0, %1; add.u32 %0, t, %2;}")
OP(lop3, "lop3.b32 %0, %0, %1, %2, 0x96;")
OP(prmt, "prmt.b32 %0, %0, %1, 0x6240;")
OP(shf, "shf.l.wrap.b32 %0, %0, %1, 3;")
OP(shr, "{.reg .b32 t; shr.u32 t, %0, 1; xor.b32 %0, t, %1;}")
OP(setp_selp, "{.reg .pred p; setp.lt.u32 p, %0, %1; selp.b32 %0, %2, %0, p;}")
OP(fma_lop3_pair, "{.reg .b32 t; lop3.b32 t, %0, %1, %2, 0x96; "
		  "fma.rn.f32 %0, t, %1, %1;}")
OP(imad_wide, "{.reg .b64 t; mad.wide.u32 t, %0, %1, 7; cvt.u32.u64 %0, t;}")
OP(popc, "popc.b32 %0, %0;")
OP(cvt_f32_f16, "{.reg .b16 l, h; mov.b32 {l, h}, %0; cvt.f32.f16 %0, l;}")
OP(cvt_f16x2_f32, "cvt.rn.f16x2.f32 %0, %0, %1;")
OP(cvt_f16x2_e4m3x2, "{.reg .b16 l, h; mov.b32 {l, h}, %0; "
		     "cvt.rn.f16x2.e4m3x2 %0, l;}")
OP(cvt_f32_u32, "cvt.rn.f32.u32 %0, %0;")
OP(ex2, "ex2.approx.ftz.f32 %0, %0;")
OP(shfl, "shfl.sync.idx.b32 %0, %0, %1, 31, -1;")
OP(redux, "redux.sync.add.u32 %0, %0, -1;")
OP(vote, "{.reg .pred p; setp.ne.u32 p, %0, %1; vote.sync.ballot.b32 %0, p, "
	 "-1;}")
/* Shared memory holds zeros, so that x, once loaded, is an offset of 0. */
OP(lds_32, "{.reg .b32 t; add.u32 t, %0, %2; ld.shared.b32 %0, [t];}")
OP(lds_64, "{.reg .b32 t, u; add.u32 t, %0, %2; ld.shared.v2.b32 {%0, u}, "
	   "[t];}")
OP(lds_128, "{.reg .b32 t, u, v, w; add.u32 t, %0, %2; "
	    "ld.shared.v4.b32 {%0, u, v, w}, [t];}")
OP(ldmatrix_x4, "{.reg .b32 t, u, v, w; add.u32 t, %0, %2; "
		"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, u, v, w}, [t];}")
OP(sts_32, "st.volatile.shared.b32 [%2], %0;")
OP(sts_64, "st.volatile.shared.v2.b32 [%2], {%0, %1};")
OP(sts_128, "st.volatile.shared.v4.b32 [%2], {%0, %1, %0, %1};")
OP(atom_shared_add, "{.reg .b32 t; add.u32 t, %0, %2; "
		    "atom.shared.add.u32 %0, [t], 1; shr.u32 %0, %0, 31;}")
OP(mma_m16n8k16, "{.reg .f32 u, v, w; mov.b32 u, %1; mov.b32 v, %1; "
		 "mov.b32 w, %1; "
		 "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
		 "{%0, u, v, w}, {%1, %1, %1, %1}, {%1, %1}, {%0, u, v, w};}")
#undef OP

/*
 * stride: bytes between the shared words of neighbouring lanes. zero is 0, but ptxas
 * cannot know that.  So no value is the same for all lanes, and none goes to the
 * uniform pipe.
 */
template <class Op, int CHAINS>
static __global__ void issue_kernel(unsigned long long *cycles, uint32_t zero,
				    uint32_t stride, int rounds)
{
	__shared__ __align__(128) uint32_t words[ISSUE_WORDS];
	const uint32_t at =
	    shared_address(words) + threadIdx.x * stride % sizeof(words);
	const uint32_t y = 1 + (threadIdx.x & zero);
	unsigned long long begin;
	uint32_t x[CHAINS], sum = 0;

	for (int i = threadIdx.x; i < ISSUE_WORDS; i += blockDim.x)
		words[i] = 0;
	for (int c = 0; c < CHAINS; c++)
		x[c] = (threadIdx.x + c) & zero;
	__syncthreads();
	begin = cycle_now();
#pragma unroll 1
	for (int r = 0; r < rounds; r++) {
#pragma unroll
		for (int i = 0; i < ISSUE_COUNT; i++)
			Op::step(x[i % CHAINS], y, at);
	}
	for (int c = 0; c < CHAINS; c++)
		sum += x[c];
	/* The sum is needed before the clock is read again. */
	asm volatile("" ::"r"(sum) : "memory");
	begin = cycle_now() - begin;
	__syncthreads();
	for (int i = threadIdx.x; i < ISSUE_WORDS; i += blockDim.x)
		sum += words[i];
	if (threadIdx.x % 32 == 0)
		cycles[threadIdx.x / 32] = begin + (sum == 0x12345 ? 1 : 0);
}

template <class Op, int CHAINS>
static double issue_cycles(int warps, uint32_t stride)
{
	results<unsigned long long> r(32);
	const int rounds = 64;
	double most = 0;

	for (int repeat = 0; repeat < 2; repeat++) {
		issue_kernel<Op, CHAINS>
		    <<<1, warps * 32>>>(r.device, 0, stride, rounds);
		r.read(Op::name());
	}
	for (int w = 0; w < warps; w++)
		most = std::max(most, (double)r.host[w]);
	return most / rounds / ISSUE_COUNT;
}

template <class Op>
static void issue_row(uint32_t stride = 16, const char *kind = "")
{
	row(issue_cycles<Op, 1>(1, stride), "cycles", "issue.%s%s.latency", Op::name(),
	    kind);
	row(issue_cycles<Op, 8>(4, stride), "cycles/warp/quarter",
	    "issue.%s%s.interval_4_warps", Op::name(), kind);
	row(issue_cycles<Op, 8>(16, stride) / 4, "cycles/warp/quarter",
	    "issue.%s%s.interval_16_warps", Op::name(), kind);
}

static void time_issue(const gpu &)
{
	issue_row<op_fma_f32>();
	issue_row<op_add_f32>();
	issue_row<op_fma_f16x2>();
	issue_row<op_mul_f16x2>();
	issue_row<op_imad>();
	issue_row<op_iadd3>();
	issue_row<op_lop3>();
	issue_row<op_prmt>();
	issue_row<op_shf>();
	issue_row<op_shr>();
	issue_row<op_setp_selp>();
	issue_row<op_fma_lop3_pair>();
	issue_row<op_imad_wide>();
	issue_row<op_popc>();
	issue_row<op_cvt_f32_f16>();
	issue_row<op_cvt_f16x2_f32>();
	issue_row<op_cvt_f16x2_e4m3x2>();
	issue_row<op_cvt_f32_u32>();
	issue_row<op_ex2>();
	issue_row<op_shfl>();
	issue_row<op_redux>();
	issue_row<op_vote>();
	issue_row<op_mma_m16n8k16>();
}

static void time_shared(const gpu &)
{
	issue_row<op_lds_32>(4);
	issue_row<op_lds_32>(0, "_broadcast");
	issue_row<op_lds_32>(8, "_2_way");
	issue_row<op_lds_32>(32, "_8_way");
	issue_row<op_lds_64>(8);
	issue_row<op_lds_128>(16);
	issue_row<op_ldmatrix_x4>(16);
	issue_row<op_ldmatrix_x4>(128, "_8_way");
	issue_row<op_sts_32>(4);
	issue_row<op_sts_64>(8);
	issue_row<op_sts_128>(16);
	issue_row<op_sts_32>(32, "_8_way");
	issue_row<op_atom_shared_add>(4);
	issue_row<op_atom_shared_add>(0, "_same");
}

#endif
