/* SPDX-License-Identifier: Apache-2.0 */
/*
 * time_launch.cuh - grids that follow each other in a graph (the time of an empty
 * one, the gap between two, dependent launches, a CTA that takes the slot of
 * another), instructions that are in no cache, and the clock under load.
 */
#ifndef EMU_TIME_LAUNCH_CUH
#define EMU_TIME_LAUNCH_CUH

#include "time_wgmma.cuh"

/* The times of a CTA's first instruction, of the end of griddepcontrol.wait, and of
 * its last instruction. */
struct stamp {
	unsigned long long begin, waited, end, begin_cycle, end_cycle;
	uint32_t sm;
};

/* How the grids of a graph are launched. */
struct launch_kind {
	const char *name;
	int ctas, threads, shared;
	int cluster; /* CTAs, 0: none */
	bool is_cooperative, is_dependent;
};

/* A grid that lasts `cycles` and may let the next one begin at once. count is its
 * number in the graph. */
static __global__ void stamp_kernel(stamp *stamps, long long cycles, int early,
				    uint32_t grid)
{
	stamp s;
	const unsigned long long begin = cycle_now();

	s.begin = ns_now();
	s.begin_cycle = begin;
	if (early)
		asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
	asm volatile("griddepcontrol.wait;" ::: "memory");
	s.waited = ns_now();
	while ((long long)(cycle_now() - begin) < cycles)
		;
	asm volatile("mov.u32 %0, %%smid;" : "=r"(s.sm));
	s.end_cycle = cycle_now();
	s.end = ns_now();
	if (threadIdx.x == 0)
		stamps[grid * gridDim.x + blockIdx.x] = s;
}

/* Fills a list of up to three attributes; returns how many it has. */
static unsigned launch_attributes(const launch_kind &kind, cudaLaunchAttribute *list)
{
	unsigned n = 0;

	if (kind.cluster) {
		list[n].id = cudaLaunchAttributeClusterDimension;
		list[n].val.clusterDim.x = kind.cluster;
		list[n].val.clusterDim.y = 1;
		list[n++].val.clusterDim.z = 1;
	}
	if (kind.is_cooperative) {
		list[n].id = cudaLaunchAttributeCooperative;
		list[n++].val.cooperative = 1;
	}
	if (kind.is_dependent) {
		list[n].id = cudaLaunchAttributeProgrammaticStreamSerialization;
		list[n++].val.programmaticStreamSerializationAllowed = 1;
	}
	return n;
}

static void launch_stamp(const launch_kind &kind, cudaStream_t stream, stamp *stamps,
			 long long cycles, uint32_t grid)
{
	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute list[3];

	config.gridDim = dim3(kind.ctas);
	config.blockDim = dim3(kind.threads);
	config.dynamicSmemBytes = kind.shared;
	config.stream = stream;
	config.attrs = list;
	config.numAttrs = launch_attributes(kind, list);
	must(cudaLaunchKernelEx(&config, stamp_kernel, stamps, cycles,
				(int)kind.is_dependent, grid),
	     kind.name);
}

/* ns of a replay of a graph of n grids, the median of several. */
static double graph_ns(const launch_kind &kind, stamp *stamps, long long cycles, int n)
{
	std::vector<double> times;
	cudaGraphExec_t run;
	cudaEvent_t from, to;
	cudaStream_t stream;
	cudaGraph_t graph;
	float ms;

	must(cudaStreamCreate(&stream), "stream");
	must(cudaEventCreate(&from), "event");
	must(cudaEventCreate(&to), "event");
	must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
	for (int i = 0; i < n; i++)
		launch_stamp(kind, stream, stamps, cycles, (uint32_t)i);
	must(cudaStreamEndCapture(stream, &graph), "capture");
	must(cudaGraphInstantiate(&run, graph, 0), "graph");
	for (int i = 0; i < 9; i++) {
		must(cudaEventRecord(from, stream), "event");
		must(cudaGraphLaunch(run, stream), "graph");
		must(cudaEventRecord(to, stream), "event");
		must(cudaStreamSynchronize(stream), kind.name);
		must(cudaEventElapsedTime(&ms, from, to), "event");
		times.push_back(ms * 1e6);
	}
	must(cudaGraphExecDestroy(run), "graph");
	must(cudaGraphDestroy(graph), "graph");
	must(cudaStreamDestroy(stream), "stream");
	return median(times);
}

#define LAUNCHES 40

/* Gaps from the stamps of the last replay. */
static void gap_rows(const launch_kind &kind, const std::vector<stamp> &s)
{
	std::vector<double> gap, waited, skew;

	for (int i = 1; i < LAUNCHES; i++) {
		unsigned long long end = 0, first = ~0ull, last = 0, wait = ~0ull;

		for (int c = 0; c < kind.ctas; c++) {
			const stamp &b = s[i * kind.ctas + c];

			end = std::max(end, s[(i - 1) * kind.ctas + c].end);
			first = std::min(first, b.begin);
			last = std::max(last, b.begin);
			wait = std::min(wait, b.waited);
		}
		gap.push_back((double)first - (double)end);
		waited.push_back((double)wait - (double)end);
		skew.push_back((double)(last - first));
	}
	row(median(gap), "ns", "launch.%s.end_to_begin", kind.name);
	row(median(waited), "ns", "launch.%s.end_to_waited", kind.name);
	row(median(skew), "ns", "launch.%s.first_to_last_cta", kind.name);
}

static void launch_rows(const launch_kind &kind)
{
	results<stamp> r((size_t)LAUNCHES * 2 * kind.ctas);
	const double brief = graph_ns(kind, r.device, 0, LAUNCHES);

	row((graph_ns(kind, r.device, 0, LAUNCHES * 2) - brief) / LAUNCHES, "ns/launch",
	    "launch.%s.empty_in_graph", kind.name);
	(void)graph_ns(kind, r.device, 6000, LAUNCHES);
	gap_rows(kind, r.read(kind.name));
}

/* Cycles from the end of a CTA to the first instruction of the next there. */
static void replace_row(const gpu &g)
{
	const launch_kind kind = {"replace", g.n_sms * 4, 384,	200 << 10,
				  0,	     false,	  false};
	results<stamp> r((size_t)kind.ctas);
	std::vector<double> gaps;

	(void)graph_ns(kind, r.device, 6000, 1);
	r.read("replace");
	for (const stamp &a : r.host) {
		unsigned long long next = ~0ull;

		for (const stamp &b : r.host)
			if (b.sm == a.sm && b.begin_cycle > a.end_cycle)
				next = std::min(next, b.begin_cycle);
		if (next != ~0ull)
			gaps.push_back((double)(next - a.end_cycle));
	}
	row(median(gaps), "cycles", "launch.cta_end_to_next_begin");
}

static void time_launch(const gpu &g)
{
	const launch_kind kinds[] = {
	    {"1_cta", 1, 32, 0, 0, false, false},
	    {"all_sms", g.n_sms, 128, 0, 0, false, false},
	    {"all_sms_200KB", g.n_sms, 384, 200 << 10, 0, false, false},
	    {"cooperative_200KB", g.n_sms, 384, 200 << 10, 0, true, false},
	    {"cluster_200KB", g.n_sms / 2 * 2, 384, 200 << 10, 2, false, false},
	    {"dependent", g.n_sms, 128, 0, 0, false, true},
	    {"dependent_100KB", g.n_sms, 384, 100 << 10, 0, false, true},
	    {"dependent_200KB", g.n_sms, 384, 200 << 10, 0, false, true},
	};

	allow_shared(stamp_kernel, 200 << 10);
	for (const launch_kind &kind : kinds)
		launch_rows(kind);
	replace_row(g);
}

/* ---- instructions -------------------------------------------------------- */

#define ADD4                                                                           \
	"add.f32 %0, %0, %1;\n\tadd.f32 %0, %0, %1;\n\t"                               \
	"add.f32 %0, %0, %1;\n\tadd.f32 %0, %0, %1;\n\t"
#define ADD16 ADD4 ADD4 ADD4 ADD4
#define ADD64 ADD16 ADD16 ADD16 ADD16

/* KB of dependent adds, three times; one warp. */
template <int KB>
static __global__ void code_kernel(unsigned long long *cycles, float x)
{
	float sum = x;

#pragma unroll 1
	for (int pass = 0; pass < 3; pass++) {
		const unsigned long long begin = cycle_now();

#pragma unroll
		for (int i = 0; i < KB; i++)
			asm volatile(ADD64 : "+f"(sum) : "f"(x));
		asm volatile("" ::"f"(sum) : "memory");
		cycles[pass] = cycle_now() - begin + (sum == 1 ? 1 : 0);
	}
}

/* Launches twice: the second launch finds the caches as the first left them. */
template <int KB>
static void code_row(void)
{
	results<unsigned long long> r(3);

	for (int launch = 1; launch <= 2; launch++) {
		code_kernel<KB><<<1, 32>>>(r.device, 0);
		r.read("code");
		for (int pass = 0; pass < 3; pass++)
			row((double)r.host[pass] / KB / 64, "cycles/instruction",
			    "code.%dKB.launch_%d.pass_%d", KB, launch, pass + 1);
	}
}

static void time_code(const gpu &)
{
	code_row<8>();
	code_row<24>();
	code_row<96>();
	code_row<192>();
}

/* ---- the clock ----------------------------------------------------------- */

#define SAMPLES 64

/* All SMs multiply; the clocks of SM 0 after each sample of `rounds`. */
static __global__ void __launch_bounds__(256, 1) load_clock(span *samples, int rounds)
{
	extern __shared__ __align__(1024) uint8_t tiles[];
	const uint32_t base = (shared_address(tiles) + 1023) & ~1023u;
	uint64_t a, b;

	fill_tiles(base, 0xBBFFBBFF, &a, &b);
#pragma unroll 1
	for (int i = 0; i < SAMPLES; i++) {
		span s;

		s.cycles = cycle_now();
		s.begin_ns = ns_now();
		s.end_ns = f16_ss_256::run(0, rounds, a, b);
		if (blockIdx.x == 0 && threadIdx.x == 0)
			samples[i] = s;
	}
}

static void clock_row(const gpu &g, const char *name, int rounds)
{
	const double flop = 4.0 * 2 * 64 * 256 * 16 * 2 * g.n_sms * rounds;
	results<span> r(SAMPLES);
	double ghz[2], ns[2];

	allow_shared(load_clock, 65536);
	load_clock<<<g.n_sms, 256, 65536>>>(r.device, rounds);
	r.read(name);
	for (int k = 0; k < 2; k++) {
		const span *s = &r.host[k ? SAMPLES - 17 : 0];

		ns[k] = (double)(s[16].begin_ns - s[0].begin_ns);
		ghz[k] = (double)(s[16].cycles - s[0].cycles) / ns[k];
		row(ghz[k], "GHz", "clock.wgmma_%s.%s", name, k ? "end" : "begin");
		row(flop * 16 / ns[k] / 1e3, "TFLOP/s", "clock.wgmma_%s.%s.rate", name,
		    k ? "end" : "begin");
	}
}

static __global__ void idle_clock(span *s)
{
	const unsigned long long begin = cycle_now(), from = ns_now();

	while (ns_now() - from < 200000)
		;
	s->begin_ns = from;
	s->end_ns = ns_now();
	s->cycles = cycle_now() - begin;
}

/* Distances of different readings of the clock in ns. */
static __global__ void timer_steps(unsigned long long *steps)
{
	unsigned long long last = ns_now();

	for (int i = 0; i < 64; i++) {
		unsigned long long now;

		do
			now = ns_now();
		while (now == last);
		steps[i] = now - last;
		last = now;
	}
}

static void time_clock(const gpu &g)
{
	results<unsigned long long> steps(64);
	results<span> r(1);

	timer_steps<<<1, 1>>>(steps.device);
	steps.read("timer");
	row(median(std::vector<double>(steps.host.begin(), steps.host.end())), "ns",
	    "clock.globaltimer_step");
	idle_clock<<<1, 1>>>(r.device);
	r.read("idle clock");
	row((double)r.host[0].cycles / (double)(r.host[0].end_ns - r.host[0].begin_ns),
	    "GHz", "clock.one_thread");
	clock_row(g, "short", 8);
	clock_row(g, "long", 4096);
}

#endif
