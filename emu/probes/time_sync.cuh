/* SPDX-License-Identifier: Apache-2.0 */
/* time_sync.cuh - the cost of synchronisation: mbarriers, named barriers, clusters,
 * flags in global memory, atomics. */
#ifndef EMU_TIME_SYNC_CUH
#define EMU_TIME_SYNC_CUH

#include "time_probe.cuh"

#define SYNC_ROUNDS 256

/* Two warps pass a phase back and forth; cycles of a round trip. */
static __global__ void ping_pong(unsigned long long *cycles)
{
	__shared__ __align__(8) uint64_t barriers[2];
	const uint32_t mine = shared_address(barriers + threadIdx.x / 32);
	const uint32_t other = shared_address(barriers + 1 - threadIdx.x / 32);
	unsigned long long begin;

	if (threadIdx.x % 32)
		return;
	barrier_init(mine, 1);
	asm volatile("bar.sync 1, 64;" ::: "memory");
	begin = cycle_now();
	for (int i = 0; i < SYNC_ROUNDS; i++) {
		if (threadIdx.x == 0)
			barrier_arrive(other);
		barrier_wait(mine, i & 1);
		if (threadIdx.x != 0)
			barrier_arrive(other);
	}
	cycles[threadIdx.x / 32] = cycle_now() - begin;
}

/* The same between the CTAs of a cluster of two. */
static __global__ void __cluster_dims__(2, 1, 1)
    ping_pong_cluster(unsigned long long *cycles)
{
	__shared__ __align__(8) uint64_t barrier;
	const uint32_t mine = shared_address(&barrier);
	const uint32_t rank = blockIdx.x & 1;
	unsigned long long begin;
	uint32_t other;

	barrier_init(mine, 1);
	asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
		     : "=r"(other)
		     : "r"(mine), "r"(1 - rank));
	asm volatile("barrier.cluster.arrive.aligned;\n\t"
		     "barrier.cluster.wait.aligned;" ::
			 : "memory");
	begin = cycle_now();
	for (int i = 0; i < SYNC_ROUNDS; i++) {
		if (rank == 0)
			asm volatile("mbarrier.arrive.release.cluster.shared::"
				     "cluster.b64 _, [%0];" ::"r"(other)
				     : "memory");
		barrier_wait(mine, i & 1);
		if (rank != 0)
			asm volatile("mbarrier.arrive.release.cluster.shared::"
				     "cluster.b64 _, [%0];" ::"r"(other)
				     : "memory");
	}
	cycles[rank] = cycle_now() - begin;
	asm volatile("barrier.cluster.arrive.aligned;\n\t"
		     "barrier.cluster.wait.aligned;" ::
			 : "memory");
}

/* One thread: an arrival that ends a phase and the wait for it. */
static __global__ void arrive_and_wait(unsigned long long *cycles)
{
	__shared__ __align__(8) uint64_t barrier;
	const uint32_t bar = shared_address(&barrier);
	unsigned long long begin;

	barrier_init(bar, 1);
	begin = cycle_now();
	for (int i = 0; i < SYNC_ROUNDS; i++) {
		barrier_arrive(bar);
		barrier_wait(bar, i & 1);
	}
	cycles[0] = cycle_now() - begin;
	begin = cycle_now();
	for (int i = 0; i < SYNC_ROUNDS; i++)
		barrier_wait(bar, 1);
	cycles[1] = cycle_now() - begin;
}

static __global__ void bar_sync(unsigned long long *cycles)
{
	unsigned long long begin;

	__syncthreads();
	begin = cycle_now();
	for (int i = 0; i < SYNC_ROUNDS; i++)
		asm volatile("bar.sync 1, %0;" ::"r"(blockDim.x) : "memory");
	begin = cycle_now() - begin;
	if (threadIdx.x == 0)
		cycles[0] = begin;
}

static __global__ void sync_warp(unsigned long long *cycles)
{
	const unsigned long long begin = cycle_now();

	for (int i = 0; i < SYNC_ROUNDS; i++)
		__syncwarp();
	cycles[0] = cycle_now() - begin;
}

static __global__ void __cluster_dims__(2, 1, 1)
    cluster_sync(unsigned long long *cycles)
{
	unsigned long long begin;

	begin = cycle_now();
	for (int i = 0; i < SYNC_ROUNDS; i++)
		asm volatile("barrier.cluster.arrive.aligned;\n\t"
			     "barrier.cluster.wait.aligned;" ::
				 : "memory");
	begin = cycle_now() - begin;
	if (threadIdx.x == 0)
		cycles[blockIdx.x & 1] = begin;
}

/* Two CTAs pass a number back and forth through global memory. */
static __global__ void flags(unsigned long long *cycles, uint32_t *flag)
{
	const unsigned long long begin = cycle_now();
	uint32_t seen;

	for (uint32_t i = 0; i < SYNC_ROUNDS; i++) {
		do {
			asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
				     : "=r"(seen)
				     : "l"(flag)
				     : "memory");
		} while (seen != 2 * i + blockIdx.x);
		asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag),
			     "r"(2 * i + 1 + blockIdx.x)
			     : "memory");
	}
	cycles[blockIdx.x] = cycle_now() - begin;
}

/* Atomics of one thread, each waited for; then without waiting. */
static __global__ void atomics(unsigned long long *cycles, uint32_t *words,
			       uint32_t step)
{
	uint32_t *at = words + blockIdx.x * step;
	unsigned long long begin = cycle_now();
	uint32_t x = 0;

	for (int i = 0; i < SYNC_ROUNDS; i++)
		asm volatile("atom.global.add.u32 %0, [%1], %2;"
			     : "=r"(x)
			     : "l"(at), "r"(x & 0x80000000u)
			     : "memory");
	cycles[blockIdx.x] = cycle_now() - begin;
	begin = cycle_now();
	for (int i = 0; i < SYNC_ROUNDS; i++)
		asm volatile("red.global.add.u32 [%0], 1;" ::"l"(at) : "memory");
	__threadfence();
	cycles[gridDim.x + blockIdx.x] = cycle_now() - begin;
}

static void sync_row(results<unsigned long long> &r, int index, const char *name)
{
	row((double)r.read(name)[index] / SYNC_ROUNDS, "cycles", "sync.%s", name);
}

static void time_atomics(const gpu &g)
{
	results<unsigned long long> r(g.n_sms * 2);
	uint32_t *words = (uint32_t *)g.bytes;

	flags<<<2, 1>>>(r.device, words);
	sync_row(r, 0, "flag_round_trip");
	must(cudaMemset(words, 0, 4), "memset");
	atomics<<<1, 1>>>(r.device, words, 0);
	sync_row(r, 0, "atom_latency");
	sync_row(r, 1, "red_interval");
	atomics<<<g.n_sms, 1>>>(r.device, words, 0);
	sync_row(r, g.n_sms / 2, "atom_same_by_all_sms");
	sync_row(r, g.n_sms + g.n_sms / 2, "red_same_by_all_sms");
	must(cudaMemset(words, 0, g.n_sms * 4096), "memset");
	atomics<<<g.n_sms, 1>>>(r.device, words, 1024);
	sync_row(r, g.n_sms / 2, "atom_apart_by_all_sms");
	must(cudaMemset(words, 0, g.n_sms * 4096), "memset");
}

static void time_sync(const gpu &g)
{
	results<unsigned long long> r(2);
	char name[40];

	ping_pong<<<1, 64>>>(r.device);
	sync_row(r, 0, "mbarrier_round_trip");
	ping_pong_cluster<<<2, 1>>>(r.device);
	sync_row(r, 0, "mbarrier_round_trip_cluster");
	arrive_and_wait<<<1, 1>>>(r.device);
	sync_row(r, 0, "mbarrier_arrive_and_wait");
	sync_row(r, 1, "mbarrier_wait_of_past_phase");
	sync_warp<<<1, 32>>>(r.device);
	sync_row(r, 0, "syncwarp");
	for (int threads = 32; threads <= 512; threads *= 2) {
		bar_sync<<<1, threads>>>(r.device);
		snprintf(name, sizeof(name), "bar_sync_%d", threads);
		sync_row(r, 0, name);
	}
	cluster_sync<<<2, 32>>>(r.device);
	sync_row(r, 0, "cluster_barrier_32");
	cluster_sync<<<2, 384>>>(r.device);
	sync_row(r, 0, "cluster_barrier_384");
	time_atomics(g);
}

#endif
