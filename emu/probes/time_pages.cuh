/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time_pages.cuh - memory that is in no cache: address translation by the number of
 * pages, the bytes of a line that HBM returns together, the arrival times of a
 * kernel's first loads, and the costs of fences and of an exchange of results between
 * CTAs.
 */
#ifndef EMU_TIME_PAGES_CUH
#define EMU_TIME_PAGES_CUH

#include "time_start.cuh"

#define PAGE ((size_t)2 << 20)

/* ---- address translation -------------------------------------------------- */

/* A word of each of n pages, three times; cycles a word. */
static __global__ void page_kernel(unsigned long long *cycles, const char *from, int n,
				   uint32_t zero)
{
	const char *at = from + blockIdx.x * n * PAGE;
	uint32_t x = 0;

	for (int pass = 0; pass < 3; pass++) {
		const unsigned long long begin = cycle_now();

		for (int i = 0; i < n; i++)
			x = load_word(at + i * PAGE + i % 1024 * 128 + (x & zero)) &
			    zero;
		cycles[blockIdx.x * 3 + pass] = (cycle_after(x) - begin) / n;
	}
}

static void page_rows(const gpu &g, int n, int ctas)
{
	results<unsigned long long> r((size_t)ctas * 3);
	std::vector<double> pass[3];

	if (n * ctas * PAGE > (size_t)(g.fresh_end - g.fresh)) {
		printf("# pages.%d.%d_ctas: too little memory\n", n, ctas);
		return;
	}
	page_kernel<<<ctas, 1>>>(r.device, take_fresh(g, n * ctas * PAGE), n, 0);
	r.read("pages");
	for (int c = 0; c < ctas; c++)
		for (int p = 0; p < 3; p++)
			pass[p].push_back((double)r.host[c * 3 + p]);
	row(median(pass[0]), "cycles", "pages.%d.%d_ctas.first", n, ctas);
	row(median(pass[2]), "cycles", "pages.%d.%d_ctas.again", n, ctas);
}

/* ---- what a miss brings ---------------------------------------------------- */

#define SECTOR_SAMPLES 64
#define SECTOR_STEPS   12
static const int sector_offsets[SECTOR_STEPS] = {0,   32,  64,	96,   128,  160,
						 192, 256, 512, 1024, 2048, 4096};

struct offsets {
	int at[SECTOR_STEPS];
};

/* Words at these offsets of fresh 64 KB, each after the one before has arrived. */
static __global__ void sector_kernel(unsigned long long *cycles, const char *from,
				     offsets o, uint32_t zero)
{
	uint32_t x = 0;

	for (int i = 0; i < SECTOR_SAMPLES; i++)
		for (int k = 0; k < SECTOR_STEPS; k++) {
			const unsigned long long begin = cycle_now();

			x = load_word(from + i * 65536 + o.at[k] + (x & zero)) & zero;
			cycles[k * SECTOR_SAMPLES + i] = cycle_after(x) - begin;
		}
}

static void sector_rows(const gpu &g)
{
	results<unsigned long long> r(SECTOR_STEPS * SECTOR_SAMPLES);
	std::vector<double> v;
	offsets o;

	memcpy(o.at, sector_offsets, sizeof(o.at));
	sector_kernel<<<1, 1>>>(r.device, take_fresh(g, SECTOR_SAMPLES * 65536), o, 0);
	r.read("sectors");
	for (int k = 0; k < SECTOR_STEPS; k++) {
		const unsigned long long *at = &r.host[k * SECTOR_SAMPLES];

		v.assign(at, at + SECTOR_SAMPLES);
		row(median(v), "cycles", "fresh.offset_%d", sector_offsets[k]);
	}
}

/* ---- the first loads of a kernel ------------------------------------------- */

#define RAMP_STAGES 28
#define RAMP_BYTES  16384

/* Loads of 16 KB by the TMA, `depth` in flight: when each has completed. */
static __global__ void ramp_bulk(uint32_t *when, const char *from, int depth)
{
	extern __shared__ __align__(1024) uint8_t stage[];
	__shared__ __align__(8) uint64_t barriers[MOST_STAGES];
	const unsigned long long begin = cycle_now();
	const uint32_t bar = shared_address(barriers);
	const char *at = from + (size_t)blockIdx.x * RAMP_STAGES * RAMP_BYTES;

	for (int i = 0; i < depth; i++)
		barrier_init(bar + i * 8, 1);
	for (int i = 0; i < RAMP_STAGES + depth; i++) {
		const uint32_t slot = i % depth;

		if (i >= depth) {
			barrier_wait(bar + slot * 8, (i / depth & 1) ^ 1);
			when[blockIdx.x * RAMP_STAGES + i - depth] =
			    (uint32_t)(cycle_now() - begin);
		}
		if (i < RAMP_STAGES) {
			barrier_expect(bar + slot * 8, RAMP_BYTES);
			bulk_load(shared_address(stage) + slot * RAMP_BYTES,
				  at + i * RAMP_BYTES, RAMP_BYTES, bar + slot * 8);
		}
	}
}

/* 128 bytes of each of 128 rows a stage, by cp.async of 64 threads. */
template <int DEPTH>
static __global__ void ramp_rows(uint32_t *when, const char *from, uint32_t pitch)
{
	extern __shared__ __align__(1024) uint8_t stage[];
	const unsigned long long begin = cycle_now();
	const char *at = from + ((size_t)blockIdx.x * 128 + threadIdx.x / 8) * pitch +
			 threadIdx.x % 8 * 16;
	const uint32_t to = shared_address(stage) + threadIdx.x * 16;

#pragma unroll 1
	for (int i = 0; i < RAMP_STAGES + DEPTH; i++) {
		if (i >= DEPTH) {
			asm volatile("cp.async.wait_group %0;" ::"n"(DEPTH - 1)
				     : "memory");
			if (threadIdx.x == 0)
				when[blockIdx.x * RAMP_STAGES + i - DEPTH] =
				    (uint32_t)(cycle_now() - begin);
		}
#pragma unroll
		for (int j = 0; i < RAMP_STAGES && j < 16; j++)
			asm volatile(
			    "cp.async.cg.shared.global.L2::256B [%0], [%1], "
			    "16;" ::"r"(to + i % DEPTH * RAMP_BYTES + j * 1024),
			    "l"(at + (size_t)j * 8 * pitch + i * 128)
			    : "memory");
		asm volatile("cp.async.commit_group;" ::: "memory");
	}
}

/* When stage k is loaded: the median CTA, and one of the last. */
static void ramp_report(results<uint32_t> &r, int ctas, const char *name)
{
	static const int shown[] = {0, 1, 2, 3, 5, 7, 11, 15, 21, 27};

	r.read(name);
	for (int k : shown) {
		std::vector<double> v;

		for (int c = 0; c < ctas; c++)
			v.push_back((double)r.host[c * RAMP_STAGES + k]);
		std::sort(v.begin(), v.end());
		row(median(v), "cycles", "ramp.%s.stage_%d", name, k + 1);
		row(v[v.size() * 19 / 20], "cycles", "ramp.%s.stage_%d.p95", name,
		    k + 1);
	}
}

template <int DEPTH>
static void ramp_of(const gpu &g, int ctas, bool is_bulk, uint32_t pitch)
{
	const size_t bytes =
	    (size_t)ctas * (is_bulk ? RAMP_STAGES * RAMP_BYTES : 128 * pitch);
	results<uint32_t> r((size_t)ctas * RAMP_STAGES);
	char name[64];

	allow_shared(ramp_bulk, 200 << 10);
	allow_shared(ramp_rows<DEPTH>, 200 << 10);
	snprintf(name, sizeof(name), "%s_x_%d.%d_ctas", is_bulk ? "bulk" : "rows",
		 DEPTH, ctas);
	/* The second time the code is cached, and the memory is not. */
	for (int i = 0; i < 2; i++) {
		const char *from = take_fresh(g, bytes);

		if (is_bulk)
			ramp_bulk<<<ctas, 1, RAMP_BYTES * DEPTH>>>(r.device, from,
								   DEPTH);
		else
			ramp_rows<DEPTH>
			    <<<ctas, 64, RAMP_BYTES * DEPTH>>>(r.device, from, pitch);
		must(cudaDeviceSynchronize(), name);
	}
	ramp_report(r, ctas, name);
}

static void time_pages(const gpu &g)
{
	for (int n = 4; n <= 1024; n *= 2)
		page_rows(g, n, 1);
	page_rows(g, 8, g.n_sms);
	page_rows(g, 32, g.n_sms);
	sector_rows(g);
}

static void time_ramp(const gpu &g)
{
	ramp_of<8>(g, 1, true, 0);
	ramp_of<4>(g, g.n_sms, true, 0);
	ramp_of<8>(g, g.n_sms, true, 0);
	ramp_of<4>(g, 1, false, 3584);
	ramp_of<4>(g, g.n_sms, false, 3584);
	ramp_of<8>(g, g.n_sms, false, 3584);
}

/* ---- fences and exchanges -------------------------------------------------- */

#define FENCE_ROUNDS 32

#define FENCE(title, text)                                                             \
	struct fence_##title {                                                         \
		static const char *name(void)                                          \
		{                                                                      \
			return #title;                                                 \
		}                                                                      \
		static __device__ __forceinline__ void step(char *at)                  \
		{                                                                      \
			asm volatile(text ::"l"(at), "r"(0) : "memory");               \
		}                                                                      \
	};
FENCE(fence_cta, "fence.acq_rel.cta;")
FENCE(fence_cluster, "fence.acq_rel.cluster;")
FENCE(fence_gpu, "fence.acq_rel.gpu;")
FENCE(fence_proxy_async, "fence.proxy.async;")
FENCE(st_release, "st.release.gpu.global.u32 [%0], %1;")
FENCE(red_release, "red.release.gpu.global.add.u32 [%0], %1;")
FENCE(ld_acquire, "{.reg .b32 x; ld.acquire.gpu.global.u32 x, [%0];}")
FENCE(store_fence, "st.global.v4.b32 [%0], {%1, %1, %1, %1};\n\t"
		   "fence.acq_rel.gpu;")
FENCE(store_shared_proxy, "fence.proxy.async.shared::cta;")
#undef FENCE

template <class Op>
static __global__ void fence_kernel(unsigned long long *cycles, char *to)
{
	char *at = to + (size_t)blockIdx.x * 65536 + threadIdx.x * 16;
	unsigned long long begin = cycle_now();

#pragma unroll 1
	for (int i = 0; i < FENCE_ROUNDS; i++)
		Op::step(at);
	begin = cycle_now() - begin;
	if (threadIdx.x == 0)
		cycles[blockIdx.x] = begin;
}

template <class Op>
static void fence_row(const gpu &g)
{
	results<unsigned long long> r(g.n_sms);
	std::vector<double> v;

	for (int ctas = 1; ctas <= g.n_sms; ctas += g.n_sms - 1) {
		const int threads = ctas > 1 ? 256 : 32;

		for (int i = 0; i < 2; i++) {
			fence_kernel<Op><<<ctas, threads>>>(r.device, g.bytes);
			r.read(Op::name());
		}
		v.assign(r.host.begin(), r.host.begin() + ctas);
		row(median(v) / FENCE_ROUNDS, "cycles", "fence.%s.%d_ctas", Op::name(),
		    ctas);
	}
}

#define EXCHANGE_STEPS 4

/* Groups of four CTAs: each stores a part for the others, signals it with a release,
 * waits for their parts, and reads them.  Cycles of the four steps. */
static __global__ void __launch_bounds__(256)
    exchange_kernel(unsigned long long *cycles, char *parts, uint32_t *arrivals, int n,
		    uint32_t target)
{
	const uint32_t group = blockIdx.x / 4;
	char *at = parts + (size_t)group * 4 * n * 4096 + threadIdx.x * 16;
	unsigned long long t[EXCHANGE_STEPS + 1];
	uint32_t seen, sum = 0;

	__syncthreads();
	t[0] = cycle_now();
	for (int i = 0; i < n; i++)
		asm volatile("st.global.v4.b32 [%0], {%1, %1, %1, %1};" ::"l"(
				 at + ((blockIdx.x % 4) * n + i) * 4096),
			     "r"(0)
			     : "memory");
	__syncthreads();
	t[1] = cycle_now();
	if (threadIdx.x == 0) {
		asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrivals +
									     group * 32)
			     : "memory");
		t[2] = cycle_now();
		do
			asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
				     : "=r"(seen)
				     : "l"(arrivals + group * 32)
				     : "memory");
		while (seen < target);
	}
	__syncthreads();
	t[3] = cycle_now();
	for (int i = 0; i < n * 3 / 4; i++) {
		uint4 v;

		asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
			     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
			     : "l"(at + (((blockIdx.x + 1) % 4) * n + i) * 4096));
		sum += v.x + v.y + v.z + v.w;
	}
	t[4] = cycle_after(sum);
	for (int k = 0; threadIdx.x == 0 && k < EXCHANGE_STEPS; k++)
		cycles[blockIdx.x * EXCHANGE_STEPS + k] = t[k + 1] - t[k];
}

static void exchange_rows(const gpu &g, int n)
{
	static const char *const names[] = {"stores", "release", "wait", "loads"};
	const int ctas = g.n_sms / 4 * 4;
	results<unsigned long long> r((size_t)ctas * EXCHANGE_STEPS);
	results<uint32_t> arrivals((size_t)ctas / 4 * 32);

	for (uint32_t i = 1; i <= 3; i++)
		exchange_kernel<<<ctas, 256>>>(r.device, g.bytes, arrivals.device, n,
					       4 * i);
	r.read("exchange");
	for (int k = 0; k < EXCHANGE_STEPS; k++) {
		std::vector<double> v;

		for (int c = 0; c < ctas; c++)
			v.push_back((double)r.host[c * EXCHANGE_STEPS + k]);
		row(median(v), "cycles", "exchange.%dKB.%s", n * 4, names[k]);
	}
}

static void time_fence(const gpu &g)
{
	fence_row<fence_fence_cta>(g);
	fence_row<fence_fence_cluster>(g);
	fence_row<fence_fence_gpu>(g);
	fence_row<fence_fence_proxy_async>(g);
	fence_row<fence_store_shared_proxy>(g);
	fence_row<fence_st_release>(g);
	fence_row<fence_red_release>(g);
	fence_row<fence_ld_acquire>(g);
	fence_row<fence_store_fence>(g);
	for (int n = 1; n <= 16; n *= 4)
		exchange_rows(g, n);
}

#endif
