/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ptx_tcgen05.cuh - the instructions that only Blackwell's GEMM uses, one wrapper for
 * each: the tensor core (PTX ISA 8.7, sm_100a), loads by tensor map, barriers of
 * pairs of CTAs.  CTAS is the cta_group: 1, or 2 for a pair.
 */
#ifndef NIB_PTX_TCGEN05_CUH
#define NIB_PTX_TCGEN05_CUH

#include "backend/cuda/kernels/common/ptx_async.cuh"

/* True in one lane of the warp, whose lanes must all be here. */
DEVICE bool elect_one(void)
{
	uint32_t is;

	asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\t"
		     "selp.b32 %0, 1, 0, p;\n\t}"
		     : "=r"(is));
	return is != 0;
}

/* ---- barriers of a cluster ----------------------------------------------- */

/* Acquires what threads of other CTAs released. */
DEVICE bool mbarrier_try_wait_parity_cluster(uint32_t bar, uint32_t parity)
{
	uint32_t done;

	asm volatile("{\n\t.reg .pred p;\n\t"
		     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 "
		     "p, [%1], %2;\n\t"
		     "selp.u32 %0, 1, 0, p;\n\t}"
		     : "=r"(done)
		     : "r"(bar), "r"(parity)
		     : "memory");
	return done;
}

/* bar: a shared::cluster address; releases to the cluster. */
DEVICE void mbarrier_arrive_release_cluster(uint32_t bar)
{
	asm volatile(
	    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar)
	    : "memory");
}

/*
 * The address of the same byte in the even CTA of the pair.  A shared::cta address is a
 * valid shared::cluster address; its bit 24 is the lowest bit of the CTA's rank.
 */
template <int CTAS>
DEVICE uint32_t leader_addr(uint32_t addr)
{
	return CTAS == 2 ? addr & 0xFEFFFFFF : addr;
}

DEVICE void lds_f32x4(uint32_t addr, float *x)
{
	asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
		     : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
		     : "r"(addr)
		     : "memory");
}

/* ---- loads by tensor map ------------------------------------------------- */

/*
 * A box at element (x, y, z) of the map to shared memory; its bytes, zeros
 * outside the tensor included, are counted at bar, which may be the leader's.
 */
template <int CTAS>
DEVICE void tensor_load(uint32_t to, const struct nib_tensor_map *map, int32_t x,
			int32_t y, int32_t z, uint32_t bar, uint64_t policy)
{
	asm volatile("cp.async.bulk.tensor.3d.cta_group::%7.shared::cluster"
		     ".global.tile.mbarrier::complete_tx::bytes"
		     ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
		     "l"(map), "r"(x), "r"(y), "r"(z), "r"(bar), "l"(policy), "n"(CTAS)
		     : "memory");
}

/* ---- results ------------------------------------------------------------- */

/* Not kept in the L1, because no result is read again.  PTX ISA 7.4. */
DEVICE void st_global_u32(void *to, uint32_t x)
{
	asm volatile("st.global.L1::no_allocate.b32 [%0], %1;" ::"l"(to), "r"(x)
		     : "memory");
}

DEVICE void st_global_u16(void *to, uint32_t x)
{
	asm volatile("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %1;"
		     "\n\tst.global.L1::no_allocate.b16 [%0], low;\n\t}" ::"l"(to),
		     "r"(x)
		     : "memory");
}

/* ---- tensor memory ------------------------------------------------------- */

/* Called by one whole warp of each CTA of a pair; writes the address to [to]. */
template <int CTAS>
DEVICE void tcgen05_alloc(uint32_t to, uint32_t columns)
{
	asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 "
		     "[%0], %1;" ::"r"(to),
		     "r"(columns), "n"(CTAS)
		     : "memory");
	asm volatile(
	    "tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(CTAS));
}

template <int CTAS>
DEVICE void tcgen05_dealloc(uint32_t at, uint32_t columns)
{
	asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(at),
		     "r"(columns), "n"(CTAS));
}

#define COLUMNS_8(i)                                                                   \
	"=r"(r[i]), "=r"(r[i + 1]), "=r"(r[i + 2]), "=r"(r[i + 3]), "=r"(r[i + 4]),    \
	    "=r"(r[i + 5]), "=r"(r[i + 6]), "=r"(r[i + 7])

/* 16 columns of the lane of tensor memory that is the thread's. */
DEVICE void tcgen05_ld_16(uint32_t *r, uint32_t from)
{
	asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 "
		     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
		     "%13, %14, %15}, [%16];"
		     : COLUMNS_8(0), COLUMNS_8(8)
		     : "r"(from));
}

DEVICE void tcgen05_ld_32(uint32_t *r, uint32_t from)
{
	asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 "
		     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, "
		     "%13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
		     "%24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
		     : COLUMNS_8(0), COLUMNS_8(8), COLUMNS_8(16), COLUMNS_8(24)
		     : "r"(from));
}

#undef COLUMNS_8

/* Waits until all loads of this thread have reached its registers. */
DEVICE void tcgen05_wait_ld(void)
{
	asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

DEVICE void tcgen05_fence_before(void)
{
	asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

DEVICE void tcgen05_fence_after(void)
{
	asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

/* ---- the tensor core, by one thread (of the leader of a pair) ------------ */

/* 32 rows of 16 bytes to four columns, the same in each 32 lanes. */
template <int CTAS>
DEVICE void tcgen05_cp_scales(uint32_t to, uint64_t from)
{
	asm volatile("tcgen05.cp.cta_group::%2.32x128b.warpx4 [%0], %1;" ::"r"(to),
		     "l"(from), "n"(CTAS)
		     : "memory");
}

/* d (+)= a * b with a scale for each 16 of k 64; accumulate = 0 clears d. */
template <int CTAS>
DEVICE void tcgen05_mma(uint32_t d, uint64_t a, uint64_t b, uint32_t shape,
			uint32_t a_scales, uint32_t b_scales, uint32_t accumulate)
{
	asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %6, 0;\n\t"
		     "tcgen05.mma.cta_group::%7.kind::mxf4nvf4.block_scale"
		     ".block16 [%0], %1, %2, %3, [%4], [%5], p;\n\t}" ::"r"(d),
		     "l"(a), "l"(b), "r"(shape), "r"(a_scales), "r"(b_scales),
		     "r"(accumulate), "n"(CTAS)
		     : "memory");
}

/* Arrives at bar in each CTA of mask when all earlier tcgen05 operations of this thread
 * have completed. */
template <int CTAS>
DEVICE void tcgen05_commit_to(uint32_t bar, uint32_t mask)
{
	asm volatile("tcgen05.commit.cta_group::%2.mbarrier::arrive::one"
		     ".shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(bar),
		     "h"((uint16_t)mask), "n"(CTAS)
		     : "memory");
}

/* The same, without a pair in this CTA only. */
template <int CTAS>
DEVICE void tcgen05_commit(uint32_t bar, uint32_t mask)
{
	if (CTAS == 2)
		tcgen05_commit_to<CTAS>(bar, mask);
	else
		asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one"
			     ".shared::cluster.b64 [%0];" ::"r"(bar)
			     : "memory");
}

#endif
