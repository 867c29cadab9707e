/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time_start.cuh - costs of a first use: instructions that are in no cache, the first
 * access to parameters, pages and barriers in a kernel, and the gaps between two
 * kernels that alternate.
 */
#ifndef EMU_TIME_START_CUH
#define EMU_TIME_START_CUH

#include "time_launch.cuh"
#include "time_memory.cuh"

/* The clock, read after x is available. */
static __device__ __forceinline__ unsigned long long cycle_after(uint32_t x)
{
	unsigned long long now;

	asm volatile("{\n\t.reg .pred p;\n\tsetp.eq.u32 p, %1, 0x7654321;\n\t"
		     "@p trap;\n\tmov.u64 %0, %%clock64;\n\t}"
		     : "=l"(now)
		     : "r"(x)
		     : "memory");
	return now;
}

/* ---- instructions --------------------------------------------------------- */

#define CODE_PASSES 2

#define ADD8                                                                           \
	"add.f32 %0, %0, %8;\n\tadd.f32 %1, %1, %8;\n\t"                               \
	"add.f32 %2, %2, %8;\n\tadd.f32 %3, %3, %8;\n\t"                               \
	"add.f32 %4, %4, %8;\n\tadd.f32 %5, %5, %8;\n\t"                               \
	"add.f32 %6, %6, %8;\n\tadd.f32 %7, %7, %8;\n\t"
#define ADD64_OF_8 ADD8 ADD8 ADD8 ADD8 ADD8 ADD8 ADD8 ADD8

/* KB of adds in eight independent chains, so that one issues in each cycle. */
struct straight {
	static const char *name(void)
	{
		return "straight";
	}
	static __device__ __forceinline__ void kb(float *v, float x, int)
	{
		asm volatile(ADD64_OF_8
			     : "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3]),
			       "+f"(v[4]), "+f"(v[5]), "+f"(v[6]), "+f"(v[7])
			     : "f"(x));
	}
};

/* A branch over each KB. */
struct jumps {
	static const char *name(void)
	{
		return "jumps";
	}
	static __device__ __forceinline__ void kb(float *v, float x, int skip)
	{
		asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %9, 0;\n\t"
			     "@p bra skip%=;\n\t" ADD64_OF_8 "skip%=:\n\t}"
			     : "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3]),
			       "+f"(v[4]), "+f"(v[5]), "+f"(v[6]), "+f"(v[7])
			     : "f"(x), "r"(skip));
	}
};

template <class Kind, int KB>
static __global__ void cold_kernel(unsigned long long *cycles, float x, int skip)
{
	float v[8] = {x, x, x, x, x, x, x, x}, sum = 0;

#pragma unroll 1
	for (int pass = 0; pass < CODE_PASSES; pass++) {
		const unsigned long long begin = cycle_now();

#pragma unroll
		for (int i = 0; i < KB; i++)
			Kind::kb(v, x, skip);
		for (int i = 0; i < 8; i++)
			sum += v[i];
		asm volatile("" ::"f"(sum) : "memory");
		if (threadIdx.x == 0)
			cycles[blockIdx.x * CODE_PASSES + pass] =
			    cycle_now() - begin + (sum == 1 ? 1 : 0);
	}
}

/* Evicts other code from the caches of the SMs. */
static void empty_code(const gpu &g)
{
	results<unsigned long long> r((size_t)g.n_sms * CODE_PASSES);

	cold_kernel<straight, 200><<<g.n_sms, 32>>>(r.device, 0, 0);
	r.read("other code");
}

static void cold_code_pass(const std::vector<unsigned long long> &v, int ctas, int kb,
			   const char *name)
{
	std::vector<double> pass[CODE_PASSES];

	for (int c = 0; c < ctas; c++)
		for (int p = 0; p < CODE_PASSES; p++)
			pass[p].push_back((double)v[c * CODE_PASSES + p] / kb);
	for (int p = 0; p < CODE_PASSES; p++)
		row(median(pass[p]), "cycles/KB", "%s.pass_%d", name, p + 1);
}

/* Code in no cache, in the SM's cache, in the L2, and in HBM. */
template <class Kind, int KB>
static void cold_code_rows(const gpu &g, int ctas)
{
	static const char *const states[] = {"new", "again", "l2", "hbm"};
	results<unsigned long long> r((size_t)ctas * CODE_PASSES);
	char name[64];

	for (int k = 0; k < 4; k++) {
		if (k > 1)
			empty_code(g);
		if (k > 2)
			empty_l2(g);
		cold_kernel<Kind, KB><<<ctas, 32>>>(r.device, 0, 1);
		snprintf(name, sizeof(name), "cold.%s.%dKB.%d_ctas.%s", Kind::name(),
			 KB, ctas, states[k]);
		cold_code_pass(r.read(name), ctas, KB, name);
	}
}

static void time_cold(const gpu &g)
{
	cold_code_rows<straight, 8>(g, 1);
	cold_code_rows<straight, 8>(g, g.n_sms);
	cold_code_rows<straight, 32>(g, g.n_sms);
	cold_code_rows<straight, 96>(g, g.n_sms);
	cold_code_rows<jumps, 16>(g, 1);
	cold_code_rows<jumps, 16>(g, g.n_sms);
	cold_code_rows<jumps, 64>(g, g.n_sms);
	cold_code_rows<jumps, 192>(g, g.n_sms);
}

/* ---- a kernel's first accesses -------------------------------------------- */

#define START_STEPS 12

static const char *const start_names[START_STEPS] = {
    "parameter",      "parameter_far", "parameter_again",  "ld_known_page",
    "ld_known_again", "ld_new_page",   "ld_new_page_next", "cp_async_new_page",
    "barriers",	      "tma_new_page",  "tma_again",	   "store_and_fence"};

struct start_parameters {
	unsigned long long *cycles;
	char *known, *fresh; /* fresh: no kernel has read its pages */
	size_t step;	     /* from CTA to CTA, in fresh */
	uint32_t words[900];
};

/* The TMA's first load of 1 KB, or another. */
static __device__ __forceinline__ void load_1_kb(uint32_t to, const char *from,
						 uint32_t bar, uint32_t phase)
{
	barrier_expect(bar, 1024);
	bulk_load(to, from, 1024, bar);
	barrier_wait(bar, phase);
}

static __device__ __forceinline__ uint32_t load_word(const char *from)
{
	uint32_t x;

	asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
	return x;
}

static __device__ __forceinline__ void async_16(uint32_t to, const char *from)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n\t"
		     "cp.async.wait_all;" ::"r"(to),
		     "l"(from)
		     : "memory");
}

static __global__ void start_kernel(const __grid_constant__ start_parameters p)
{
	__shared__ __align__(1024) uint8_t stage[2048];
	__shared__ __align__(8) uint64_t barriers[8];
	const uint32_t i = threadIdx.x, bar = shared_address(barriers);
	const uint32_t to = shared_address(stage);
	unsigned long long at[START_STEPS + 1];
	const char *fresh;
	char *known;

	at[0] = cycle_now();
	at[1] = cycle_after(p.words[i]);
	at[2] = cycle_after(p.words[i + 800]);
	at[3] = cycle_after(p.words[i + 801]);
	known = p.known + blockIdx.x * 4096;
	fresh = p.fresh + blockIdx.x * p.step;
	at[4] = cycle_after(load_word(known));
	at[5] = cycle_after(load_word(known + 128));
	at[6] = cycle_after(load_word(fresh));
	at[7] = cycle_after(load_word(fresh + 4096));
	async_16(to, fresh + 8192);
	at[8] = cycle_now();
	for (int k = 0; k < 8; k++)
		barrier_init(bar + k * 8, 1);
	__syncthreads();
	at[9] = cycle_now();
	load_1_kb(to, fresh + 16384, bar, 0);
	at[10] = cycle_now();
	load_1_kb(to + 1024, fresh + 32768, bar, 1);
	at[11] = cycle_now();
	asm volatile("st.global.u32 [%0], %1;\n\tfence.acq_rel.gpu;" ::"l"(known),
		     "r"(0)
		     : "memory");
	at[12] = cycle_now();
	for (int k = 0; k < START_STEPS; k++)
		p.cycles[blockIdx.x * START_STEPS + k] = at[k + 1] - at[k];
}

/* spread: each CTA has a page of its own; otherwise all have the same. */
static void start_rows(const gpu &g, int ctas, bool is_spread)
{
	results<unsigned long long> r((size_t)ctas * START_STEPS);
	std::vector<double> steps[START_STEPS];
	start_parameters p = {};

	p.cycles = r.device;
	p.known = g.bytes;
	p.step = is_spread ? (size_t)2 << 20 : 65536;
	for (int launch = 0; launch < 5; launch++) {
		p.fresh = take_fresh(g, ctas * p.step);
		start_kernel<<<ctas, 1>>>(p);
		r.read("start");
		for (int c = 0; launch > 0 && c < ctas; c++)
			for (int k = 0; k < START_STEPS; k++)
				steps[k].push_back((double)r.host[c * START_STEPS + k]);
	}
	for (int k = 0; k < START_STEPS; k++) {
		std::sort(steps[k].begin(), steps[k].end());
		row(median(steps[k]), "cycles", "start.%d_ctas%s.%s", ctas,
		    is_spread ? "_spread" : "", start_names[k]);
		row(steps[k][steps[k].size() * 19 / 20], "cycles",
		    "start.%d_ctas%s.%s.p95", ctas, is_spread ? "_spread" : "",
		    start_names[k]);
	}
}

static void time_start(const gpu &g)
{
	start_rows(g, 1, true);
	start_rows(g, g.n_sms, false);
	start_rows(g, g.n_sms, true);
}

/* ---- two kernels that alternate ------------------------------------------- */

template <int WORDS>
struct pair_parameters {
	stamp *stamps;
	long long cycles;
	char *to; /* where each thread stores 16 bytes at its end, or NULL */
	uint32_t index, early;
	uint32_t words[WORDS];
};

/* WHICH makes it two kernels. */
template <int WHICH, int WORDS>
static __global__ void pair_kernel(const __grid_constant__ pair_parameters<WORDS> p)
{
	stamp s;
	const unsigned long long begin = cycle_now();

	s.begin = ns_now();
	if (p.early)
		asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
	asm volatile("griddepcontrol.wait;" ::: "memory");
	s.waited = ns_now();
	while ((long long)(cycle_now() - begin) < p.cycles)
		;
	for (int i = 0; p.to && i < 8; i++)
		asm volatile(
		    "st.global.v4.b32 [%0], {%1, %1, %1, %1};" ::"l"(
			p.to + ((size_t)(i * gridDim.x + blockIdx.x) * blockDim.x +
				threadIdx.x) *
				   16),
		    "r"(0)
		    : "memory");
	s.end = ns_now();
	if (threadIdx.x == 0)
		p.stamps[p.index * gridDim.x + blockIdx.x] = s;
}

struct pair_kind {
	const char *name;
	int ctas_a, threads_a;
	int cluster_b;
	bool is_cooperative_b, is_dependent_b, is_dependent_a, stores;
};

template <int WHICH, int WORDS>
static void launch_pair(const launch_kind &kind, cudaStream_t stream,
			const pair_parameters<WORDS> &p)
{
	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute list[3];

	config.gridDim = dim3(kind.ctas);
	config.blockDim = dim3(kind.threads);
	config.dynamicSmemBytes = kind.shared;
	config.stream = stream;
	config.attrs = list;
	config.numAttrs = launch_attributes(kind, list);
	allow_shared(pair_kernel<WHICH, WORDS>, 200 << 10);
	must(cudaLaunchKernelEx(&config, pair_kernel<WHICH, WORDS>, p), kind.name);
}

#define PAIRS 12

/* The time from the last end in one grid to the first start, or end of the wait, in
 * the next. */
static void pair_gaps(const stamp *a, int ctas_a, const stamp *b, int ctas_b,
		      std::vector<double> *gaps)
{
	unsigned long long end = 0, first = ~0ull, waited = ~0ull, last = 0;

	for (int c = 0; c < ctas_a; c++)
		end = std::max(end, a[c].end);
	for (int c = 0; c < ctas_b; c++) {
		first = std::min(first, b[c].begin);
		last = std::max(last, b[c].begin);
		waited = std::min(waited, b[c].waited);
	}
	gaps[0].push_back((double)first - (double)end);
	gaps[1].push_back((double)waited - (double)end);
	gaps[2].push_back((double)(last - first));
}

static void pair_report(const char *name, const char *which,
			const std::vector<double> *gaps)
{
	row(median(gaps[0]), "ns", "pair.%s.%s_begins", name, which);
	row(median(gaps[1]), "ns", "pair.%s.%s_waited", name, which);
	row(median(gaps[2]), "ns", "pair.%s.%s_skew", name, which);
}

template <int WORDS>
static void pair_rows(const gpu &g, const pair_kind &k)
{
	const launch_kind a = {k.name, k.ctas_a, k.threads_a,	  0,
			       0,      false,	 k.is_dependent_a};
	const launch_kind b = {k.name,		g.n_sms,     384,
			       200 << 10,	k.cluster_b, k.is_cooperative_b,
			       k.is_dependent_b};
	results<stamp> ra((size_t)PAIRS * a.ctas), rb((size_t)PAIRS * b.ctas);
	pair_parameters<WORDS> pa = {}, pb = {};
	std::vector<double> to_a[3], to_b[3];
	cudaGraphExec_t run;
	cudaStream_t stream;
	cudaGraph_t graph;

	pa.stamps = ra.device;
	pb.stamps = rb.device;
	pa.cycles = pb.cycles = 5000;
	pa.early = k.is_dependent_b;
	pb.early = k.is_dependent_a;
	pa.to = pb.to = k.stores ? g.bytes : nullptr;
	must(cudaStreamCreate(&stream), "stream");
	must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
	for (int i = 0; i < PAIRS; i++) {
		pa.index = pb.index = (uint32_t)i;
		launch_pair<0, WORDS>(a, stream, pa);
		launch_pair<1, WORDS>(b, stream, pb);
	}
	must(cudaStreamEndCapture(stream, &graph), "capture");
	must(cudaGraphInstantiate(&run, graph, 0), "graph");
	for (int i = 0; i < 3; i++)
		must(cudaGraphLaunch(run, stream), "graph");
	must(cudaStreamSynchronize(stream), k.name);
	must(cudaGraphExecDestroy(run), "graph");
	must(cudaGraphDestroy(graph), "graph");
	must(cudaStreamDestroy(stream), "stream");
	ra.read(k.name);
	rb.read(k.name);
	for (int i = 1; i < PAIRS; i++) {
		const stamp *sa = ra.host.data() + (size_t)i * a.ctas;
		const stamp *sb = rb.host.data() + (size_t)i * b.ctas;

		pair_gaps(sa, a.ctas, sb, b.ctas, to_b);
		pair_gaps(sb - b.ctas, b.ctas, sa, a.ctas, to_a);
	}
	pair_report(k.name, "a", to_a);
	pair_report(k.name, "b", to_b);
}

static void time_pair(const gpu &g)
{
	const pair_kind kinds[] = {
	    {"plain", 264, 256, 0, false, false, false, false},
	    {"cluster", 264, 256, 2, false, false, false, false},
	    {"cooperative", 264, 256, 2, true, false, false, false},
	    {"dependent_b", 264, 256, 2, false, true, false, false},
	    {"dependent_both", 264, 256, 2, false, true, true, false},
	    {"stores", 264, 256, 2, false, false, false, true},
	};

	for (const pair_kind &k : kinds)
		pair_rows<4>(g, k);
	pair_rows<960>(g, {"4KB", 264, 256, 2, false, false, false, false});
	pair_rows<960>(g, {"4KB_dependent_b", 264, 256, 2, false, true, false, false});
	pair_rows<4>(g, {"dependent_b_coop", 264, 256, 2, true, true, false, false});
}

#endif
