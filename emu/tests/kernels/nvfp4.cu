// SPDX-License-Identifier: Apache-2.0
// nvfp4.cu - a small NVFP4 multiplication for a B200, made to try the software
// one: D[m][n] = A[m][k] B[n][k]^T in fp32, scales in cuBLAS's blocks of 512
// bytes.  K in multiples of 64; M and N as they come.
//
// Persistent tiles of 128 rows a CTA, alone or in pairs (M = 256).  A warp for
// the copies, one for the tensor core, four for the results:
//
//   copies -full-> tensor core -done-> results
//          <-empty-            <-free-
//
// Each stage has its own columns for scales, so that nothing is overwritten that an
// unfinished multiplication may read.  With kStaged false all stages share the same
// columns, as in production kernels, which relies on more than PTX promises.
#include <cuda.h>
#include <stdint.h>

struct Maps {
	CUtensorMap a, b, sfa, sfb;
};

struct Sizes {
	int m, n, k;
};

namespace
{

constexpr int kTileK = 256; // elements: 128 bytes a row
constexpr int kMmaK = 64;
constexpr int kSteps = kTileK / kMmaK;
constexpr int kAtom = 512; // bytes of scales: 128 rows, 64 elements
constexpr int kStages = 3;
constexpr int kResultWarps = 4;
constexpr int kThreads = (kResultWarps + 2) * 32;
constexpr int kColumns = 512;

// ---- one instruction each ---------------------------------------------------

__device__ uint32_t shared_address(const void *p)
{
	return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ bool elect()
{
	uint32_t is;
	asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff;"
		     " selp.b32 %0, 1, 0, p;}"
		     : "=r"(is));
	return is;
}

__device__ uint32_t cluster_rank()
{
	uint32_t r;
	asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
	return r;
}

__device__ void barrier_init(uint32_t bar, int count)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count)
		     : "memory");
}

__device__ void barrier_wait(uint32_t bar, uint32_t parity)
{
	asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.acquire.cluster"
		     ".shared::cta.b64 p, [%0], %1; @!p bra W;}" ::"r"(bar),
		     "r"(parity)
		     : "memory");
}

__device__ void barrier_arrive(uint32_t bar)
{
	asm volatile(
	    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar)
	    : "memory");
}

__device__ void barrier_expect(uint32_t bar, int bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64"
		     " _, [%0], %1;" ::"r"(bar),
		     "r"(bytes)
		     : "memory");
}

template <int kCtas>
__device__ void load_2d(uint32_t to, const CUtensorMap *map, int x, int y, uint32_t bar)
{
	asm volatile(
	    "cp.async.bulk.tensor.2d.cta_group::%5.shared::cluster.global"
	    ".tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
	    "l"(map), "r"(x), "r"(y), "r"(bar), "n"(kCtas)
	    : "memory");
}

template <int kCtas>
__device__ void load_1d(uint32_t to, const CUtensorMap *map, int x, uint32_t bar)
{
	asm volatile(
	    "cp.async.bulk.tensor.1d.cta_group::%4.shared::cluster.global"
	    ".tile.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];" ::"r"(to),
	    "l"(map), "r"(x), "r"(bar), "n"(kCtas)
	    : "memory");
}

__device__ void load_1d_to_pair(uint32_t to, const CUtensorMap *map, int x,
				uint32_t bar)
{
	asm volatile("cp.async.bulk.tensor.1d.cta_group::2.shared::cluster.global"
		     ".tile.mbarrier::complete_tx::bytes.multicast::cluster"
		     " [%0], [%1, {%2}], [%3], %4;" ::"r"(to),
		     "l"(map), "r"(x), "r"(bar), "h"(static_cast<uint16_t>(3))
		     : "memory");
}

template <int kCtas>
__device__ void tmem_alloc(uint32_t to)
{
	asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32"
		     " [%0], %1;" ::"r"(to),
		     "n"(kColumns), "n"(kCtas)
		     : "memory");
	asm volatile(
	    "tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(kCtas));
}

template <int kCtas>
__device__ void tmem_dealloc(uint32_t base)
{
	asm volatile(
	    "tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(base),
	    "n"(kColumns), "n"(kCtas));
}

template <int kCtas>
__device__ void copy_scales(uint32_t to, uint64_t from)
{
	asm volatile("tcgen05.cp.cta_group::%2.32x128b.warpx4 [%0], %1;" ::"r"(to),
		     "l"(from), "n"(kCtas)
		     : "memory");
}

template <int kCtas>
__device__ void multiply(uint32_t d, uint64_t a, uint64_t b, uint32_t idesc,
			 uint32_t sfa, uint32_t sfb, uint32_t accumulates)
{
	asm volatile("{.reg .pred p; setp.ne.u32 p, %6, 0;"
		     " tcgen05.mma.cta_group::%7.kind::mxf4nvf4.block_scale.block16"
		     " [%0], %1, %2, %3, [%4], [%5], p;}" ::"r"(d),
		     "l"(a), "l"(b), "r"(idesc), "r"(sfa), "r"(sfb), "r"(accumulates),
		     "n"(kCtas)
		     : "memory");
}

template <int kCtas>
__device__ void commit(uint32_t bar)
{
	if (kCtas == 2)
		asm volatile(
		    "tcgen05.commit.cta_group::2.mbarrier::arrive::one"
		    ".shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(bar),
		    "h"(static_cast<uint16_t>(3))
		    : "memory");
	else
		asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one"
			     ".shared::cluster.b64 [%0];" ::"r"(bar)
			     : "memory");
}

__device__ void fence_before()
{
	asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

__device__ void fence_after()
{
	asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

__device__ void load_columns(uint32_t from, uint32_t *r)
{
	asm volatile(
	    "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,"
	    "%10,%11,%12,%13,%14,%15}, [%16];"
	    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]),
	      "=r"(r[6]), "=r"(r[7]), "=r"(r[8]), "=r"(r[9]), "=r"(r[10]), "=r"(r[11]),
	      "=r"(r[12]), "=r"(r[13]), "=r"(r[14]), "=r"(r[15])
	    : "r"(from));
}

__device__ void wait_columns()
{
	asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

template <int kCtas>
__device__ void sync_all()
{
	if (kCtas == 2)
		asm volatile("barrier.cluster.arrive.release.aligned;"
			     " barrier.cluster.wait.acquire.aligned;" ::
				 : "memory");
	else
		__syncthreads();
}

// ---- descriptors ------------------------------------------------------------

// K-major rows of 128 bytes, swizzled, 8 rows apart by 1024 bytes.
__device__ uint64_t tile_descriptor(uint32_t at)
{
	return 0x4000404000000000ull | (at & 0x3FFFF) >> 4;
}

// 16 bytes a row, 8 rows apart by 128 bytes.
__device__ uint64_t scale_descriptor(uint32_t at)
{
	return 0x0000400800000000ull | (at & 0x3FFFF) >> 4;
}

__device__ constexpr uint32_t instruction_descriptor(int m, int n)
{
	return 1u << 7 | 1u << 10 | static_cast<uint32_t>(n >> 3) << 17 |
	       static_cast<uint32_t>(m >> 7) << 27;
}

// ---- a CTA's memory ---------------------------------------------------------

template <int kCtas, int kN>
struct Stage {
	static constexpr int kA = 128 * 128;
	static constexpr int kB = kN / kCtas * 128;
	static constexpr int kSfa = kSteps * kAtom;
	static constexpr int kSfb = kSteps * kAtom;
	static constexpr int kBytes = kA + kB + kSfa + kSfb;
	// Bytes of a CTA's own copies; the even CTA also copies B's scales to both.
	static constexpr int kOneCta = kA + kB + kSfa;
	static constexpr int kShared = kCtas * kSfb;
};

struct Barriers {
	uint64_t full[kStages], empty[kStages], done[2], free[2];
	uint32_t base;
};

// Where everything of a CTA lies: window addresses.
template <int kCtas, int kN>
struct Place {
	using S = Stage<kCtas, kN>;
	uint32_t stages, full, empty, done, free, rank;

	__device__ uint32_t a(int s) const
	{
		return stages + s * S::kBytes;
	}
	__device__ uint32_t b(int s) const
	{
		return a(s) + S::kA;
	}
	__device__ uint32_t sfa(int s) const
	{
		return b(s) + S::kB;
	}
	__device__ uint32_t sfb(int s) const
	{
		return sfa(s) + S::kSfa;
	}
	// The same barrier in the even CTA of the pair.
	__device__ uint32_t leader(uint32_t bar) const
	{
		return kCtas == 2 ? bar & 0xFEFFFFFF : bar;
	}
};

struct Ring {
	int at = 0;
	uint32_t phase = 0;

	__device__ void next(int count)
	{
		if (++at == count) {
			at = 0;
			phase ^= 1;
		}
	}
};

struct Tiles {
	int columns, count, first, step;

	__device__ Tiles(const Sizes &s, int rows, int width, int ctas)
	{
		columns = (s.n + width - 1) / width;
		count = columns * ((s.m + rows - 1) / rows);
		first = blockIdx.x / ctas;
		step = gridDim.x / ctas;
	}
};

__device__ int steps_of(const Sizes &s, int k)
{
	const int left = (s.k - k * kTileK) / kMmaK;
	return left < kSteps ? left : kSteps;
}

// ---- the three parts --------------------------------------------------------

template <int kCtas, int kN>
__device__ void copies(const Maps &maps, const Sizes &s, const Place<kCtas, kN> &p)
{
	using S = Stage<kCtas, kN>;
	const Tiles tiles(s, 128 * kCtas, kN, kCtas);
	const int atoms = (s.k + 63) / 64; // of a row of blocks
	Ring ring;

	for (int t = tiles.first; t < tiles.count; t += tiles.step) {
		const int m = t / tiles.columns * kCtas + p.rank; // in 128 rows
		const int n = t % tiles.columns * kN;

#pragma unroll 1
		for (int k = 0; k * kTileK < s.k; k++) {
			const uint32_t full = p.leader(p.full + 8 * ring.at);

			barrier_wait(p.empty + 8 * ring.at, ring.phase ^ 1);
			barrier_expect(full, S::kOneCta + (p.rank ? 0 : S::kShared));
			load_2d<kCtas>(p.a(ring.at), &maps.a, k * 128, m * 128, full);
			load_2d<kCtas>(p.b(ring.at), &maps.b, k * 128,
				       n + p.rank * (kN / kCtas), full);
			load_1d<kCtas>(p.sfa(ring.at), &maps.sfa,
				       (m * atoms + 4 * k) * 64, full);
			if (kCtas == 1)
				load_1d<1>(p.sfb(ring.at), &maps.sfb,
					   (n / 128 * atoms + 4 * k) * 64, full);
			else if (p.rank == 0)
				load_1d_to_pair(p.sfb(ring.at), &maps.sfb,
						(n / 128 * atoms + 4 * k) * 64, full);
			ring.next(kStages);
		}
	}
}

template <int kCtas, int kN, bool kStaged>
__device__ void tensor_core(const Sizes &s, const Place<kCtas, kN> &p, uint32_t base)
{
	const Tiles tiles(s, 128 * kCtas, kN, kCtas);
	Ring ring, result;

	for (int t = tiles.first; t < tiles.count; t += tiles.step) {
		const uint32_t d = base + result.at * kN;
		// Tiles of 64 columns have half of a block of scales.
		const uint32_t half = t % tiles.columns * kN % 128 / 32;

		barrier_wait(p.free + 8 * result.at, result.phase ^ 1);
		fence_after();
		for (int k = 0; k * kTileK < s.k; k++) {
			const uint32_t scales =
			    base + 2 * kN + (kStaged ? ring.at * 8 * kSteps : 0);

			barrier_wait(p.full + 8 * ring.at, ring.phase);
			fence_after();
			for (int i = 0; i < steps_of(s, k); i++) {
				const uint32_t sfa = scales + 4 * i,
					       sfb = scales + 4 * (kSteps + i);

				copy_scales<kCtas>(
				    sfa, scale_descriptor(p.sfa(ring.at) + i * kAtom));
				copy_scales<kCtas>(
				    sfb, scale_descriptor(p.sfb(ring.at) + i * kAtom));
				multiply<kCtas>(d,
						tile_descriptor(p.a(ring.at)) + 2 * i,
						tile_descriptor(p.b(ring.at)) + 2 * i,
						instruction_descriptor(128 * kCtas, kN),
						sfa, sfb + half, k || i);
			}
			commit<kCtas>(p.empty + 8 * ring.at);
			ring.next(kStages);
		}
		commit<kCtas>(p.done + 8 * result.at);
		result.next(2);
	}
}

template <int kCtas, int kN>
__device__ void results(float *out, const Sizes &s, const Place<kCtas, kN> &p,
			uint32_t base)
{
	const Tiles tiles(s, 128 * kCtas, kN, kCtas);
	const int warp = threadIdx.x / 32;
	Ring result;

	for (int t = tiles.first; t < tiles.count; t += tiles.step) {
		const int row =
		    (t / tiles.columns * kCtas + p.rank) * 128 + threadIdx.x;
		const int column = t % tiles.columns * kN;

		barrier_wait(p.done + 8 * result.at, result.phase);
		fence_after();
		for (int c = 0; c < kN; c += 16) {
			uint32_t r[16];

			load_columns(base + (warp << 21) + result.at * kN + c, r);
			wait_columns();
			for (int i = 0; i < 16; i++)
				if (row < s.m && column + c + i < s.n)
					out[static_cast<size_t>(row) * s.n + column +
					    c + i] = __uint_as_float(r[i]);
		}
		fence_before();
		__syncwarp();
		if (elect())
			barrier_arrive(p.leader(p.free + 8 * result.at));
		result.next(2);
	}
}

template <int kCtas, int kN, bool kStaged>
__device__ void run(const Maps &maps, float *out, const Sizes &s)
{
	extern __shared__ __align__(1024) uint8_t memory[];
	__shared__ Barriers bars;
	const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
	Place<kCtas, kN> p;

	p.stages = shared_address(memory);
	p.full = shared_address(bars.full);
	p.empty = shared_address(bars.empty);
	p.done = shared_address(bars.done);
	p.free = shared_address(bars.free);
	p.rank = kCtas == 2 ? cluster_rank() % 2 : 0;
	if (warp == 0 && elect()) {
		for (int i = 0; i < kStages; i++) {
			barrier_init(p.full + 8 * i, kCtas);
			barrier_init(p.empty + 8 * i, 1);
		}
		for (int i = 0; i < 2; i++) {
			barrier_init(p.done + 8 * i, 1);
			barrier_init(p.free + 8 * i, kCtas * kResultWarps);
		}
		asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	}
	sync_all<kCtas>();
	if (warp == kResultWarps)
		tmem_alloc<kCtas>(shared_address(&bars.base));
	fence_before();
	sync_all<kCtas>();
	fence_after();
	if (warp < kResultWarps) {
		results<kCtas, kN>(out, s, p, bars.base);
	} else if (warp == kResultWarps) {
		if (p.rank == 0 && elect())
			tensor_core<kCtas, kN, kStaged>(s, p, bars.base);
	} else if (elect()) {
		copies<kCtas, kN>(maps, s, p);
	}
	__syncwarp();
	sync_all<kCtas>();
	if (warp == kResultWarps)
		tmem_dealloc<kCtas>(bars.base);
}

} // namespace

#define KERNEL(name, ctas, n, staged)                                                  \
	extern "C" __global__ void __cluster_dims__(ctas, 1, 1)                        \
	    __launch_bounds__(kThreads)                                                \
		name(const __grid_constant__ Maps maps, float *out, Sizes s)           \
	{                                                                              \
		run<ctas, n, staged>(maps, out, s);                                    \
	}

KERNEL(nvfp4_1x64, 1, 64, true)
KERNEL(nvfp4_1x128, 1, 128, true)
KERNEL(nvfp4_2x64, 2, 64, true)
KERNEL(nvfp4_2x128, 2, 128, true)
KERNEL(nvfp4_1x128_reused, 1, 128, false)
KERNEL(nvfp4_2x128_reused, 2, 128, false)
