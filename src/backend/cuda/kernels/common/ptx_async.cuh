/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ptx_async.cuh - instructions of Hopper and Blackwell for kernels with warp roles, one
 * wrapper for each: mbarrier, asynchronous copies, clusters, dependent launch.
 */
#ifndef NIB_PTX_ASYNC_CUH
#define NIB_PTX_ASYNC_CUH

#include "ptx.cuh"

struct nib_tensor_map;

/* ---- mbarrier (PTX ISA 7.0 and 8.0) -------------------------------------- */

DEVICE void mbarrier_init(uint32_t bar, uint32_t arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals)
		     : "memory");
}

/* Makes initialised barriers visible to the copy engine and the cluster. */
DEVICE void fence_mbarrier_init(void)
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* May return false early, after a time limit: call it in a loop. */
DEVICE bool mbarrier_try_wait_parity(uint32_t bar, uint32_t parity)
{
	uint32_t done;
	asm volatile("{\n\t.reg .pred p;\n\t"
		     "mbarrier.try_wait.parity.shared::cta.b64 "
		     "p, [%1], %2;\n\t"
		     "selp.u32 %0, 1, 0, p;\n\t}"
		     : "=r"(done)
		     : "r"(bar), "r"(parity)
		     : "memory");
	return done;
}

DEVICE void mbarrier_arrive(uint32_t bar)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

/*
 * bar: a shared::cluster address, of this CTA or another (mapa()).  Without .sem this
 * is a release of scope .cta.  That is enough, because it reports only that this
 * thread's wgmma reads have finished; .cluster would flush to the L2 each time.
 */
DEVICE void mbarrier_arrive_cluster(uint32_t bar)
{
	asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar)
		     : "memory");
}

DEVICE void mbarrier_arrive_expect_tx(uint32_t bar, uint32_t bytes)
{
	asm volatile(
	    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar),
	    "r"(bytes)
	    : "memory");
}

/* ---- asynchronous copies ------------------------------------------------- */

/* L2 eviction policies of loads: first, or normal.  PTX ISA 7.4. */
DEVICE uint64_t createpolicy_evict_first(void)
{
	uint64_t policy;
	asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;"
		     : "=l"(policy));
	return policy;
}

DEVICE uint64_t createpolicy_evict_normal(void)
{
	uint64_t policy;
	asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;"
		     : "=l"(policy));
	return policy;
}

/* 16 bytes, bypassing the L1; the L2 fetches the 256 bytes around them. */
DEVICE void cp_async_16_l2_256_hint(uint32_t to, const void *from, uint64_t policy)
{
	asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::256B [%0], "
		     "[%1], 16, %2;" ::"r"(to),
		     "l"(from), "l"(policy)
		     : "memory");
}

/* Reads src_bytes of the source; the rest becomes zero. */
DEVICE void cp_async_16_zfill(uint32_t to, const void *from, uint32_t src_bytes)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
		     "l"(from), "r"(src_bytes)
		     : "memory");
}

DEVICE void cp_async_8_zfill(uint32_t to, const void *from, uint32_t src_bytes)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to),
		     "l"(from), "r"(src_bytes)
		     : "memory");
}

/* Arrives at bar when all earlier cp.async of this thread have completed; counts as one
 * of the arrivals that bar was initialised with. */
DEVICE void cp_async_mbarrier_arrive(uint32_t bar)
{
	asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar)
		     : "memory");
}

DEVICE void cp_async_wait_all(void)
{
	asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Copies to the same offset in every CTA of mask; each of them counts the bytes at its
 * bar.  PTX ISA 8.0. */
DEVICE void bulk_copy_multicast(uint32_t to, const void *from, uint32_t bytes,
				uint32_t bar, uint32_t mask)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_"
		     "tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
		     "%4;" ::"r"(to),
		     "l"(from), "r"(bytes), "r"(bar), "h"((uint16_t)mask)
		     : "memory");
}

DEVICE void prefetch_tensormap(const struct nib_tensor_map *map)
{
	asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Orders earlier ordinary stores before later accesses of the copy engine and wgmma. */
DEVICE void fence_proxy_async(void)
{
	asm volatile("fence.proxy.async;" ::: "memory");
}

/* fence_proxy_async() for shared memory only: does not wait for other stores. */
DEVICE void fence_proxy_async_shared(void)
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- clusters ------------------------------------------------------------ */

DEVICE uint32_t cluster_ctarank(void)
{
	uint32_t rank;
	asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	return rank;
}

DEVICE uint32_t clusterid_x(void)
{
	uint32_t id;
	asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(id));
	return id;
}

DEVICE uint32_t nclusterid_x(void)
{
	uint32_t count;
	asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
	return count;
}

/* The shared::cluster address of offset addr in the shared memory of CTA rank. */
DEVICE uint32_t mapa(uint32_t addr, uint32_t rank)
{
	uint32_t mapped;
	asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
		     : "=r"(mapped)
		     : "r"(addr), "r"(rank));
	return mapped;
}

/* Orders memory only if a fence precedes it.  A release would wait until all stores
 * have reached the L2 (docs/performance-hopper.md). */
DEVICE void cluster_arrive_relaxed(void)
{
	asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

/* Releases what the thread stored before, to the threads of the cluster. */
DEVICE void cluster_arrive_release(void)
{
	asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

DEVICE void cluster_wait(void)
{
	asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* addr: a shared::cluster address (mapa()). */
DEVICE void st_cluster_f32x4(uint32_t addr, const float *x)
{
	asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(addr),
		     "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
		     : "memory");
}

/* ---- dependent launch (PTX ISA 7.8) -------------------------------------- */

/* Before 9.0 a kernel begins after the previous one has ended: both do nothing. */
DEVICE void griddepcontrol_launch_dependents(void)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

DEVICE void griddepcontrol_wait(void)
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#endif
