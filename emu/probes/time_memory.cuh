/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time_memory.cuh - loads and stores of global memory: latency, and rate of an
 * SM and of the GPU against bytes in flight, from the L2 and from HBM.
 */
#ifndef EMU_TIME_MEMORY_CUH
#define EMU_TIME_MEMORY_CUH

#include "time_probe.cuh"

#define MOST_STAGES 32
#define L2_REGION   (64 << 10) /* bytes of each SM that stay in the L2 */

/* The address of load i, of `bytes` bytes, of CTA `cta`. */
struct region {
	const char *from;
	size_t step, cta_step, wrap; /* bytes; wrap: a power of two */
};

static __device__ __forceinline__ const char *address(region r, int i)
{
	return r.from + blockIdx.x * r.cta_step + (i * r.step & (r.wrap - 1));
}

/* Each thread loads 16 bytes, UNROLL times before it needs one of them. */
template <int UNROLL>
static __global__ void load_rate(span *spans, region r, int n)
{
	uint32_t sum = 0;
	span s;

	s.begin_ns = ns_now();
	s.cycles = cycle_now();
	for (int i = 0; i < n; i += UNROLL) {
		uint4 v[UNROLL];

#pragma unroll
		for (int k = 0; k < UNROLL; k++)
			asm volatile("ld.global.L1::no_allocate.v4.b32 "
				     "{%0, %1, %2, %3}, [%4];"
				     : "=r"(v[k].x), "=r"(v[k].y), "=r"(v[k].z),
				       "=r"(v[k].w)
				     : "l"(address(r, i + k) + threadIdx.x * 16));
#pragma unroll
		for (int k = 0; k < UNROLL; k++)
			sum += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
	}
	asm volatile("" ::"r"(sum) : "memory");
	__syncthreads();
	s.cycles = cycle_now() - s.cycles + (sum == 1 ? 1 : 0);
	s.end_ns = ns_now();
	if (threadIdx.x == 0)
		spans[blockIdx.x] = s;
}

/* ---- latency -------------------------------------------------------------- */

/* A chain of loads of zeros, `step` bytes apart; a time for each. */
static __global__ void chase(unsigned long long *cycles, const char *from, size_t step,
			     int n, int warm)
{
	for (int pass = warm ? 0 : 1; pass < 2; pass++) {
		const char *at = from;

		for (int i = 0; i < n; i++) {
			const unsigned long long begin = cycle_now();
			unsigned long long x;

			asm volatile("ld.global.cg.b64 %0, [%1];"
				     : "=l"(x)
				     : "l"(at)
				     : "memory");
			at += step + x;
			/* The next clock is read after the load. */
			asm volatile("" ::"l"(at) : "memory");
			cycles[blockIdx.x * n + i] = cycle_now() - begin + x;
		}
	}
}

/* One load at a time with the TMA, from its issue to the end of the wait. */
static __global__ void bulk_latency(unsigned long long *cycles, const char *from,
				    size_t step, uint32_t n, uint32_t bytes, int warm)
{
	extern __shared__ __align__(1024) uint8_t stage[];
	__shared__ __align__(8) uint64_t barrier;
	const uint32_t bar = shared_address(&barrier);
	uint32_t phase = 0;

	barrier_init(bar, 1);
	for (int pass = warm ? 0 : 1; pass < 2; pass++)
		for (uint32_t i = 0; i < n; i++) {
			const unsigned long long begin = cycle_now();

			barrier_expect(bar, bytes);
			bulk_load(shared_address(stage), from + i * step, bytes, bar);
			barrier_wait(bar, phase);
			phase ^= 1;
			cycles[i] = cycle_now() - begin;
		}
}

/* cp.async of 16 bytes by one lane. */
static __global__ void async_latency(unsigned long long *cycles, const char *from,
				     size_t step, int n)
{
	__shared__ __align__(16) uint8_t stage[16];

	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < n; i++) {
			const unsigned long long begin = cycle_now();

			asm volatile(
			    "cp.async.cg.shared.global [%0], [%1], "
			    "16;\n\tcp.async.wait_all;" ::"r"(shared_address(stage)),
			    "l"(from + i * step)
			    : "memory");
			cycles[i] = cycle_now() - begin;
		}
}

static void latency_row(results<unsigned long long> &r, const char *name)
{
	std::vector<unsigned long long> v = r.read(name);

	std::sort(v.begin(), v.end());
	row((double)v[v.size() / 20], "cycles", "%s.p5", name);
	row((double)v[v.size() / 2], "cycles", "%s.median", name);
	row((double)v[v.size() * 19 / 20], "cycles", "%s.p95", name);
}

/* Fills the L2 with clean lines that no row of these tables reads. */
static void empty_l2(const gpu &g)
{
	const region last = {g.bytes + g.n_bytes / 2, (size_t)16384 * g.n_sms, 16384,
			     g.n_bytes / 2};
	results<span> r(g.n_sms);

	load_rate<4><<<g.n_sms, 1024>>>(r.device, last,
					(int)(g.n_bytes / 4 / 16384 / g.n_sms) / 4 * 4);
	r.read("empty L2");
}

static void time_latency(const gpu &g)
{
	results<unsigned long long> one(64), all(64 * g.n_sms);
	char name[64];

	chase<<<g.n_sms, 1>>>(all.device, g.bytes, 4096 + 128, 64, 1);
	latency_row(all, "latency.ld_l2");
	empty_l2(g);
	chase<<<1, 1>>>(one.device, g.bytes, (2 << 20) + 128, 64, 0);
	latency_row(one, "latency.ld_hbm_2MB_apart");
	empty_l2(g);
	chase<<<1, 1>>>(one.device, g.bytes, 4096 + 128, 64, 0);
	latency_row(one, "latency.ld_hbm_4KB_apart");
	async_latency<<<1, 1>>>(one.device, g.bytes, 4096 + 128, 64);
	latency_row(one, "latency.cp_async_l2");
	allow_shared(bulk_latency, 65536);
	for (uint32_t bytes = 128; bytes <= 32768; bytes *= 4) {
		bulk_latency<<<1, 1, 65536>>>(one.device, g.bytes, 32768, 64, bytes, 1);
		snprintf(name, sizeof(name), "latency.tma_l2_%u", bytes);
		latency_row(one, name);
		empty_l2(g);
		bulk_latency<<<1, 1, 65536>>>(one.device, g.bytes, 32768, 64, bytes, 0);
		snprintf(name, sizeof(name), "latency.tma_hbm_%u", bytes);
		latency_row(one, name);
	}
}

/* ---- rates ---------------------------------------------------------------- */

/* phase: how often the ring has been passed, mod 2. */
static __device__ __forceinline__ void next_stage(int *k, uint32_t *phase, int stages)
{
	if (++*k < stages)
		return;
	*k = 0;
	*phase ^= 1;
}

/* n loads of `bytes`, `stages` of them in flight. */
static __global__ void bulk_rate(span *spans, region r, int n, uint32_t bytes,
				 int stages)
{
	extern __shared__ __align__(1024) uint8_t stage[];
	__shared__ __align__(8) uint64_t barriers[MOST_STAGES];
	const uint32_t bar = shared_address(barriers);
	const uint32_t base = shared_address(stage);
	uint32_t phase = 0;
	span s;

	for (int i = 0; i < stages; i++)
		barrier_init(bar + i * 8, 1);
	s.begin_ns = ns_now();
	s.cycles = cycle_now();
	for (int i = 0, k = 0; i < n + stages; i++) {
		if (i >= stages)
			barrier_wait(bar + k * 8, phase ^ 1);
		if (i < n) {
			barrier_expect(bar + k * 8, bytes);
			bulk_load(base + k * bytes, address(r, i), bytes, bar + k * 8);
		}
		next_stage(&k, &phase, stages);
	}
	s.cycles = cycle_now() - s.cycles;
	s.end_ns = ns_now();
	spans[blockIdx.x] = s;
}

/* Each thread has DEPTH groups of one cp.async of 16 bytes in flight. */
template <int DEPTH>
static __global__ void async_rate(span *spans, region r, int n)
{
	extern __shared__ __align__(1024) uint8_t stage[];
	const uint32_t to = shared_address(stage) + threadIdx.x * 16;
	span s;

	s.begin_ns = ns_now();
	s.cycles = cycle_now();
	for (int i = 0; i < n; i++)
		asm volatile(
		    "cp.async.cg.shared.global [%0], [%1], 16;\n\t"
		    "cp.async.commit_group;\n\t"
		    "cp.async.wait_group %2;" ::"r"(to + i % DEPTH * blockDim.x * 16),
		    "l"(address(r, i) + threadIdx.x * 16), "n"(DEPTH - 1)
		    : "memory");
	asm volatile("cp.async.wait_all;" ::: "memory");
	__syncthreads();
	s.cycles = cycle_now() - s.cycles;
	s.end_ns = ns_now();
	if (threadIdx.x == 0)
		spans[blockIdx.x] = s;
}

static __device__ __forceinline__ void bulk_multicast(uint32_t to, const void *from,
						      uint32_t bytes, uint32_t bar)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::"
		     "complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
		     "[%3], %4;" ::"r"(to),
		     "l"(from), "r"(bytes), "r"(bar), "h"((uint16_t)3)
		     : "memory");
}

static __device__ __forceinline__ void arrive_at_both(uint32_t bar)
{
	for (uint32_t c = 0; c < 2; c++)
		asm volatile("{.reg .b32 t;\n\tmapa.shared::cluster.u32 t, %0, "
			     "%1;\n\tmbarrier.arrive.release.cluster.shared::"
			     "cluster.b64 _, [t];}" ::"r"(bar),
			     "r"(c)
			     : "memory");
}

/* The same as bulk_rate, but each CTA of a pair loads half of what both get: n loads
 * of `bytes`, of which it issues `bytes` / 2. */
static __global__ void __cluster_dims__(2, 1, 1)
    multicast_rate(span *spans, region r, int n, uint32_t bytes, int stages)
{
	extern __shared__ __align__(1024) uint8_t stage[];
	__shared__ __align__(8) uint64_t full[MOST_STAGES], empty[MOST_STAGES];
	const uint32_t rank = blockIdx.x & 1, half = bytes / 2;
	uint32_t phase = 0;
	span s;

	for (int i = 0; i < stages; i++) {
		barrier_init(shared_address(full + i), 1);
		barrier_init(shared_address(empty + i), 2);
	}
	asm volatile("barrier.cluster.arrive.aligned;\n\t"
		     "barrier.cluster.wait.aligned;" ::
			 : "memory");
	s.begin_ns = ns_now();
	s.cycles = cycle_now();
	for (int i = 0, k = 0; i < n + stages; i++) {
		const uint32_t bar = shared_address(full + k);
		const uint32_t done = shared_address(empty + k);

		if (i >= stages) {
			barrier_wait(bar, phase ^ 1);
			arrive_at_both(done);
			barrier_wait(done, phase ^ 1);
		}
		if (i < n) {
			barrier_expect(bar, bytes);
			bulk_multicast(shared_address(stage) + k * bytes + rank * half,
				       address(r, i), half, bar);
		}
		next_stage(&k, &phase, stages);
	}
	s.cycles = cycle_now() - s.cycles;
	s.end_ns = ns_now();
	spans[blockIdx.x] = s;
	asm volatile("barrier.cluster.arrive.aligned;\n\t"
		     "barrier.cluster.wait.aligned;" ::
			 : "memory");
}

/* Each thread stores 16 bytes n times; the clock stops after the last. */
static __global__ void store_rate(span *spans, region r, int n)
{
	span s;

	s.begin_ns = ns_now();
	s.cycles = cycle_now();
	for (int i = 0; i < n; i++)
		asm volatile("st.global.v4.b32 [%0], {%1, %1, %1, %1};" ::"l"(
				 address(r, i) + threadIdx.x * 16),
			     "r"(0)
			     : "memory");
	__threadfence();
	__syncthreads();
	s.cycles = cycle_now() - s.cycles;
	s.end_ns = ns_now();
	if (threadIdx.x == 0)
		spans[blockIdx.x] = s;
}

/* Stores of `bytes` by the TMA, each waited for: read, then written. */
static __global__ void bulk_store_latency(unsigned long long *cycles, char *to,
					  uint32_t bytes, int n)
{
	extern __shared__ __align__(1024) uint8_t stage[];

	for (uint32_t i = 0; i < bytes; i += 16)
		asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(
				 shared_address(stage) + i),
			     "r"(0)
			     : "memory");
	asm volatile("fence.proxy.async;" ::: "memory");
	for (int i = 0; i < n; i++) {
		const unsigned long long begin = cycle_now();

		asm volatile(
		    "cp.async.bulk.global.shared::cta.bulk_group "
		    "[%0], [%1], %2;\n\tcp.async.bulk.commit_group;\n\t"
		    "cp.async.bulk.wait_group.read 0;" ::"l"(to + (size_t)i * bytes),
		    "r"(shared_address(stage)), "r"(bytes)
		    : "memory");
		cycles[i] = cycle_now() - begin;
		asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
		cycles[n + i] = cycle_now() - begin;
	}
}

/* Rows for one SM and for all: bytes a cycle of the median SM, and of the GPU. */
static void rate_rows(results<span> &r, int ctas, double bytes, const char *name)
{
	unsigned long long first = ~0ull, last = 0;
	std::vector<double> cycles;

	r.read(name);
	for (int i = 0; i < ctas; i++) {
		cycles.push_back((double)r.host[i].cycles);
		first = std::min(first, r.host[i].begin_ns);
		last = std::max(last, r.host[i].end_ns);
	}
	row(bytes / median(cycles), "B/cycle/SM", "%s", name);
	if (ctas > 1)
		row(bytes * ctas / (double)(last - first), "GB/s", "%s.gpu", name);
}

/* Loads from the L2, after a launch that loaded the bytes into it, or from HBM. */
static void bulk_rows(const gpu &g, uint32_t bytes, int stages, int ctas)
{
	results<span> r(ctas);
	char name[80];
	const int n = (int)((2 << 20) / bytes);
	const region own = {g.bytes, bytes, L2_REGION, L2_REGION};
	const region same = {g.bytes, bytes, 0, 1 << 20};
	const region hbm = {g.bytes, (size_t)bytes * ctas, bytes, g.n_bytes};

	for (int i = 0; i < 2; i++)
		bulk_rate<<<ctas, 1, bytes * stages>>>(r.device, own, n, bytes, stages);
	snprintf(name, sizeof(name), "rate.tma_l2.%u_x_%d.%d_ctas", bytes, stages,
		 ctas);
	rate_rows(r, ctas, (double)n * bytes, name);
	if (ctas > 1) {
		for (int i = 0; i < 2; i++)
			bulk_rate<<<ctas, 1, bytes * stages>>>(r.device, same, n, bytes,
							       stages);
		snprintf(name, sizeof(name), "rate.tma_l2_same.%u_x_%d.%d_ctas", bytes,
			 stages, ctas);
		rate_rows(r, ctas, (double)n * bytes, name);
	}
	empty_l2(g);
	bulk_rate<<<ctas, 1, bytes * stages>>>(r.device, hbm, n, bytes, stages);
	snprintf(name, sizeof(name), "rate.tma_hbm.%u_x_%d.%d_ctas", bytes, stages,
		 ctas);
	rate_rows(r, ctas, (double)n * bytes, name);
}

template <int UNROLL>
static void load_rows(const gpu &g, int threads, int ctas)
{
	const uint32_t bytes = threads * 16;
	const region own = {g.bytes, bytes, L2_REGION, L2_REGION};
	const region hbm = {g.bytes, (size_t)bytes * ctas, bytes, g.n_bytes};
	const int n = (int)((2 << 20) / bytes);
	results<span> r(ctas);
	char name[80];

	for (int i = 0; i < 2; i++)
		load_rate<UNROLL><<<ctas, threads>>>(r.device, own, n);
	snprintf(name, sizeof(name), "rate.ld_l2.%d_threads_x_%d.%d_ctas", threads,
		 UNROLL, ctas);
	rate_rows(r, ctas, (double)n * bytes, name);
	empty_l2(g);
	load_rate<UNROLL><<<ctas, threads>>>(r.device, hbm, n);
	snprintf(name, sizeof(name), "rate.ld_hbm.%d_threads_x_%d.%d_ctas", threads,
		 UNROLL, ctas);
	rate_rows(r, ctas, (double)n * bytes, name);
}

template <int DEPTH>
static void async_rows(const gpu &g, int threads, int ctas)
{
	const uint32_t bytes = threads * 16;
	const region own = {g.bytes, bytes, L2_REGION, L2_REGION};
	const region hbm = {g.bytes, (size_t)bytes * ctas, bytes, g.n_bytes};
	const int n = (int)((2 << 20) / bytes);
	results<span> r(ctas);
	char name[80];

	allow_shared(async_rate<DEPTH>, 200 << 10);
	for (int i = 0; i < 2; i++)
		async_rate<DEPTH><<<ctas, threads, bytes * DEPTH>>>(r.device, own, n);
	snprintf(name, sizeof(name), "rate.cp_async_l2.%d_threads_x_%d.%d_ctas",
		 threads, DEPTH, ctas);
	rate_rows(r, ctas, (double)n * bytes, name);
	empty_l2(g);
	async_rate<DEPTH><<<ctas, threads, bytes * DEPTH>>>(r.device, hbm, n);
	snprintf(name, sizeof(name), "rate.cp_async_hbm.%d_threads_x_%d.%d_ctas",
		 threads, DEPTH, ctas);
	rate_rows(r, ctas, (double)n * bytes, name);
}

static void multicast_rows(const gpu &g, uint32_t bytes, int stages, int ctas)
{
	const region own = {g.bytes, bytes / 2, L2_REGION, L2_REGION};
	const int n = (int)((2 << 20) / bytes);
	results<span> r(ctas);
	char name[80];

	allow_shared(multicast_rate, 200 << 10);
	for (int i = 0; i < 2; i++)
		multicast_rate<<<ctas, 1, bytes * stages>>>(r.device, own, n, bytes,
							    stages);
	snprintf(name, sizeof(name), "rate.tma_multicast_l2.%u_x_%d.%d_ctas", bytes,
		 stages, ctas);
	rate_rows(r, ctas, (double)n * bytes, name);
}

static void store_rows(const gpu &g, int ctas)
{
	const region own = {g.bytes, 4096, L2_REGION, L2_REGION};
	results<unsigned long long> latency(64);
	std::vector<double> read, written;
	results<span> r(ctas);
	char name[80];

	for (int i = 0; i < 2; i++)
		store_rate<<<ctas, 256>>>(r.device, own, 256);
	snprintf(name, sizeof(name), "rate.st_l2.%d_ctas", ctas);
	rate_rows(r, ctas, 256 * 4096.0, name);
	if (ctas > 1)
		return;
	for (uint32_t bytes = 1024; bytes <= 32768; bytes *= 8) {
		bulk_store_latency<<<1, 1, 32768>>>(latency.device, g.bytes, bytes, 32);
		latency.read("bulk store");
		read.assign(latency.host.begin(), latency.host.begin() + 32);
		written.assign(latency.host.begin() + 32, latency.host.end());
		row(median(read), "cycles", "latency.tma_store_read_%u", bytes);
		row(median(written), "cycles", "latency.tma_store_%u", bytes);
	}
}

static void time_rates(const gpu &g)
{
	static const struct {
		uint32_t bytes;
		int stages;
	} flights[] = {{2048, 1},  {2048, 2},  {2048, 4},  {2048, 8},  {2048, 16},
		       {8192, 1},  {8192, 2},  {8192, 4},  {8192, 8},  {8192, 12},
		       {8192, 16}, {8192, 24}, {16384, 4}, {16384, 8}, {16384, 12}};

	allow_shared(bulk_rate, 200 << 10);
	for (int ctas = 1; ctas <= g.n_sms; ctas += g.n_sms - 1)
		for (size_t k = 0; k < sizeof(flights) / sizeof(*flights); k++)
			bulk_rows(g, flights[k].bytes, flights[k].stages, ctas);
	for (int ctas = 1; ctas <= g.n_sms; ctas += g.n_sms - 1) {
		load_rows<1>(g, 256, ctas);
		load_rows<4>(g, 256, ctas);
		load_rows<4>(g, 512, ctas);
		load_rows<8>(g, 512, ctas);
		async_rows<4>(g, 64, ctas);
		async_rows<8>(g, 64, ctas);
		async_rows<16>(g, 64, ctas);
		async_rows<8>(g, 512, ctas);
		async_rows<16>(g, 512, ctas);
		store_rows(g, ctas);
	}
	for (int stages = 2; stages <= 8; stages *= 2) {
		multicast_rows(g, 16384, stages, 2);
		multicast_rows(g, 16384, stages, g.n_sms / 2 * 2);
	}
	load_rows<4>(g, 512, g.n_sms * 4);
}

#endif
