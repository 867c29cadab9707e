/* SPDX-License-Identifier: Apache-2.0 */
/* time_probe.cuh - clocks, rows and medians for the parts of time.cu. */
#ifndef EMU_TIME_PROBE_CUH
#define EMU_TIME_PROBE_CUH

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <vector>

/* The measurements of a block: cycles of its SM, and the GPU's clock in ns. */
struct span {
	unsigned long long cycles, begin_ns, end_ns;
};

static __device__ __forceinline__ unsigned long long cycle_now(void)
{
	unsigned long long now;

	asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
	return now;
}

static __device__ __forceinline__ unsigned long long ns_now(void)
{
	unsigned long long now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
	return now;
}

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void barrier_init(uint32_t bar, uint32_t n)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n\t"
		     "fence.mbarrier_init.release.cluster;" ::"r"(bar),
		     "r"(n)
		     : "memory");
}

static __device__ __forceinline__ void barrier_expect(uint32_t bar, uint32_t n)
{
	asm volatile(
	    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(n)
	    : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint32_t bar)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint32_t bar, uint32_t phase)
{
	uint32_t done;

	do {
		asm volatile("{\n\t.reg .pred p;\n\t"
			     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], "
			     "%2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
			     : "=r"(done)
			     : "r"(bar), "r"(phase)
			     : "memory");
	} while (!done);
}

static __device__ __forceinline__ void bulk_load(uint32_t to, const void *from,
						 uint32_t bytes, uint32_t bar)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::"
		     "complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
		     "l"(from), "r"(bytes), "r"(bar)
		     : "memory");
}

/* ---- the host's side ------------------------------------------------------ */

static inline void must(cudaError_t status, const char *what)
{
	if (status == cudaSuccess)
		return;
	fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
	exit(2);
}

/* A line of the table: name, value, unit. */
static inline void row(double value, const char *unit, const char *format, ...)
{
	char name[80];
	va_list list;

	va_start(list, format);
	vsnprintf(name, sizeof(name), format, list);
	va_end(list);
	printf("%-44s %12.3f %s\n", name, value, unit);
	fflush(stdout);
}

static inline double median(std::vector<double> v)
{
	std::sort(v.begin(), v.end());
	return v.empty() ? 0 : v[v.size() / 2];
}

/* n values of type T on the device, which the host reads after a launch. */
template <class T>
struct results {
	T *device;
	std::vector<T> host;

	explicit results(size_t n) : host(n)
	{
		must(cudaMalloc(&device, n * sizeof(T)), "results");
		must(cudaMemset(device, 0, n * sizeof(T)), "results");
	}
	~results()
	{
		(void)cudaFree(device);
	}
	results(const results &) = delete;
	results &operator=(const results &) = delete;
	const std::vector<T> &read(const char *what)
	{
		must(cudaGetLastError(), what);
		must(cudaMemcpy(host.data(), device, host.size() * sizeof(T),
				cudaMemcpyDeviceToHost),
		     what);
		return host;
	}
};

/* Lets a kernel use all of the shared memory that a CTA may have. */
template <class K>
static inline void allow_shared(K *kernel, int bytes)
{
	must(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
				  bytes),
	     "shared memory");
}

/* The measured GPU, 1 GiB of its memory filled with zeros, and memory that no kernel
 * has read.  A part that reads such memory removes it from here. */
struct gpu {
	int n_sms;
	char *bytes;
	size_t n_bytes;
	mutable char *fresh;
	char *fresh_end;
};

/* Takes bytes that no kernel has read, in whole pages of 2 MiB. */
static inline char *take_fresh(const gpu &g, size_t bytes)
{
	char *at = g.fresh;

	g.fresh += (bytes + (2 << 20) - 1) & ~(((size_t)2 << 20) - 1);
	if (g.fresh <= g.fresh_end)
		return at;
	fprintf(stderr, "no fresh memory is left\n");
	exit(2);
}

#endif
