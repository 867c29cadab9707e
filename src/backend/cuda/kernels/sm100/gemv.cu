/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv.cu - C[m, n] = alpha * A[m, k] * B[n, k]^T for at most 8 rows of A on Blackwell,
 * and for experts with few rows: reads B once, at the rate of memory.
 *
 *   B   global --ld 32 bytes--> registers --cvt e2m1--> fp16 --mma--> block sums
 *   A   global --> code * scale as fp16 --> shared memory -----^
 *   block sums --fma by the scale of B--> fp32 of a lane --> quad: sum of a range
 *   sums of ranges --> C, or (several warps a unit) --> shared memory --> a warp --> C
 *
 *   threads           role                                registers        waits for
 *   M = 2: 0 .. 511   all warps alike, in groups of 1,    128              own loads,
 *   M = 4: 0 .. 255   2, 4 .. that share a unit: load B,  226              bar.sync of
 *   M = 8: 0 .. 255   multiply, add; together: load A     255              the group
 *
 * One persistent CTA an SM.  An item is up to M rows of A and the weights that they
 * share: a matrix, or some rows of an expert.  A unit is 16 rows of B of an item.  Each
 * CTA has a run of units, and each of its groups of warps every nth one.  A warp
 * multiplies consecutive steps of k256 of a unit, and loads DEPTH steps ahead, across
 * units and items, into registers.  How many warps share a unit follows from the units
 * of a CTA, so that all warps end together.  A of several items, and of a window of k,
 * is in shared memory at a time; __syncthreads() surrounds its load.
 *
 *   dynamic shared memory         bytes
 *   alphas of items               64
 *   table of items (MoE)          8192
 *   zeros                         256
 *   A                             at most 128 KiB: fp16, rows padded by 16 bytes; up to
 *                                 4 items; k in windows of NIB_GEMV100_WINDOW(M) steps
 *   sums of ranges, twice         warps * ranges of a window * 16 rows of B * M * 4
 *
 * Start.  Memory is idle until the first weights are requested, so nothing before that
 * waits for a load, and parameters are in the order of their use.  A is requested
 * before B: its first request after those of all SMs would be answered 2 us later.
 *
 * A lane holds whole blocks of 16 k of two rows of B: 64 k a step.  The columns of the
 * mma keep the blocks of the four lanes of a quad apart, and two rows of A, because A
 * is zero wherever lane and column do not belong together:
 *
 *   k of lane   column 0  1  2  3  4  5  6  7
 *   t = 0              a0 a1 0  0  0  0  0  0      ar: row r of A, the block of lane t
 *   t = 1              0  0  a0 a1 0  0  0  0
 *   t = 2              0  0  0  0  a0 a1 0  0
 *   t = 3              0  0  0  0  0  0  a0 a1
 *
 * Arithmetic.  code * scale of A has 6 significant bits and is exact in fp16 (2^-10 to
 * 2688).  B has its codes only, which are exact too.  A block's products are multiples
 * of a quarter of the unit of A's scale, and at most 144 * 15 of these; their sum is at
 * most 16 times that, 16 bits, so that any order and any tensor core gives it exactly.
 * Times the scale of B (4 bits) it is the block partial P of docs/numerics.md, exact in
 * fp32, which an fma adds with one rounding.  No product of two scales is formed, so
 * that none overflows.
 *
 * Order of the sum of an element, by k only.  A lane t of the quad has 64 k of each
 * step.  It adds the blocks of a range (two steps) in order of k; then (0 + 1) +
 * (2 + 3) of the quad; then the ranges in order, whichever warp has them.  It is the
 * same for every M, so that rows, batches, experts and schedules do not change a bit.
 *
 * Roofline: the rate of memory.  7.2 TB/s are 26.3 bytes a clock and SM (148, 1.85
 * GHz), so that 4,096 weights and their 256 scales, a warp's step, take 88 clocks, 351
 * issue slots:
 *
 *   M   warps x steps  in flight  mma of a step  LDS wavefronts
 *   2   16 x 3         108 KiB    16             32
 *   4    8 x 5          90 KiB    32             64
 *   8    8 x 4          72 KiB    64             128
 *
 * docs/kernels.md has the instructions of the loops.  mma of two (M = 2) or four
 * sums alternate, because each waits for the one before it.  64 mma in 88
 * clocks are 1,490 multiply-adds of fp16 a clock, and 128 wavefronts of LDS are more
 * than the port's one a clock: M = 8 is bound by both.  HBM needs 96 to 128 KB in
 * flight for 7.2 TB/s; 64 KB give 6.3.  docs/performance-blackwell.md has the
 * predicted times; nothing here was measured on a B200.
 *
 * Variants: M = 2, 4, 8 where rows of B are pieces of 32 bytes (k a multiple of 64);
 * 2_any and 8_any, equally correct and slower, for all others.
 */
#define NIB_ARCH sm100

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "backend/cuda/kernels/common/kernel_name.h"
#include "backend/cuda/kernels/common/ptx_async.cuh"
#include "backend/cuda/kernels/common/ptx_mma16.cuh"

#include "gemv_activations.cuh"
#include "gemv_run.cuh"

/* A lane's codes of rows g and g + 8 of a step, and their scales. */
struct stage {
	uint32_t codes[2][8];
	uint32_t scales[2];
};

template <bool ALIGNED>
using offset = typename std::conditional<ALIGNED, uint32_t, int64_t>::type;

/* The warp's group, and which of the group's warps it is. */
struct place {
	int groups, group, in_group, warps_log2;
};

template <int M>
DEVICE struct place place_in(const struct run &run)
{
	const int warp = threadIdx.x / 32, log2 = run.unit_warps_log2;

	return {NIB_GEMV100_WARPS(M) >> log2, warp >> log2, warp & ((1 << log2) - 1),
		log2};
}

/* Steps of k, of one window of it. */
struct steps {
	int begin, end;
};

/* The warp's steps of a unit in a window: whole ranges. */
template <int M>
DEVICE struct steps steps_of(const struct nib_gemv100_params &p,
			     const struct place &place, int window)
{
	const int begin = window * NIB_GEMV100_WINDOW(M);
	const int left = p.steps - begin;
	const int all = min(left, NIB_GEMV100_WINDOW(M));
	const int ranges = (all + NIB_GEMV100_RANGE - 1) / NIB_GEMV100_RANGE;
	const int first = ranges * place.in_group >> place.warps_log2;
	const int end = ranges * (place.in_group + 1) >> place.warps_log2;

	return {begin + first * NIB_GEMV100_RANGE,
		begin + min(end * NIB_GEMV100_RANGE, all)};
}

/*
 * What a warp loads next: the step of a tile of an item whose codes begin `at` bytes
 * after the row's first, and `left` steps of the window in all; 0: nothing is left.
 * codes, scales: offsets of rows g and g + 8 at step 0 from the operand's first byte;
 * if ALIGNED in units of 32 and 4 bytes.
 */
template <bool ALIGNED>
struct cursor {
	int unit, window, at, left;
	offset<ALIGNED> codes[2], scales[2];
};

/* An offset of bytes as one of the cursor, whose units have `unit_bytes` if ALIGNED. */
template <bool ALIGNED>
DEVICE offset<ALIGNED> units(int64_t bytes, int unit_bytes)
{
	return ALIGNED ? (uint64_t)bytes / unit_bytes : bytes;
}

/* Sets the offsets of cursor->unit.  The last row is loaded in place of rows beyond it,
 * whose results are not stored. */
template <bool ALIGNED>
DEVICE void enter_unit(const struct nib_gemv100_params &p, const struct run &run,
		       cursor<ALIGNED> *cursor)
{
	const int g = threadIdx.x % 32 / 4;
	offset<ALIGNED> matrix;
	int item, tile;

	split_unit(p, cursor->unit, &item, &tile);
	matrix = item_of(p, run, item).matrix;
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const offset<ALIGNED> row =
		    min((int)nib_gemv_row(tile, g + 8 * r, p.b.is_tiled), (int)p.n - 1);

		cursor->codes[r] = matrix * units<ALIGNED>(p.b.batch_stride, 32) +
				   row * units<ALIGNED>(p.b.row_stride, 32);
		cursor->scales[r] = matrix * units<ALIGNED>(p.b.scale_batch_stride, 4);
		if (p.b.is_tiled)
			cursor->scales[r] += offset<ALIGNED>(row / 128) *
						 ((p.k + 63) / 64) *
						 units<ALIGNED>(512, 4) +
					     row % 32 * units<ALIGNED>(16, 4) +
					     row % 128 / 32 * units<ALIGNED>(4, 4);
		else
			cursor->scales[r] +=
			    row * units<ALIGNED>(p.b.scale_row_stride, 4);
	}
}

/* Begins with the first of the windows and units at the cursor that has steps. */
template <int M, bool ALIGNED>
DEVICE void enter_window(const struct nib_gemv100_params &p, const struct run &run,
			 const struct place &place, cursor<ALIGNED> *cursor)
{
	while (cursor->unit < run.end) {
		const struct steps steps = steps_of<M>(p, place, cursor->window);

		if (cursor->window == 0)
			enter_unit(p, run, cursor);
		cursor->at = steps.begin * (NIB_GEMV_STEP / 2);
		cursor->left = steps.end - steps.begin;
		if (++cursor->window * NIB_GEMV100_WINDOW(M) >= p.steps) {
			cursor->window = 0;
			cursor->unit += place.groups;
		}
		if (cursor->left > 0)
			return;
	}
	cursor->left = 0;
}

/* k is a multiple of 64, so that a lane's 64 k are all inside or all outside.  If they
 * are outside, the last ones are loaded and multiplied by zeros of A. */
DEVICE void load_aligned(const struct nib_gemv100_params &p, const cursor<true> &cursor,
			 struct stage *to)
{
	const uint32_t codes = min(cursor.at / 32 + (int)threadIdx.x % 4, p.k / 64 - 1);
	/* The scales of 64 k: four bytes, or a tile of 512. */
	const uint32_t scales = p.b.is_tiled ? codes * 128 : codes;

#pragma unroll
	for (int r = 0; r < 2; r++)
		ld_once_32(to->codes[r],
			   p.b.codes + (uint64_t)(cursor.codes[r] + codes) * 32);
#pragma unroll
	for (int r = 0; r < 2; r++)
		to->scales[r] =
		    ld_once_4(p.b.scales + (uint64_t)(cursor.scales[r] + scales) * 4);
}

/* The first `bytes` bytes of a word, the others 0. */
DEVICE uint32_t load_word(const uint8_t *from, int bytes, int align)
{
	uint32_t x = 0;

	if (bytes >= 4 && align >= 4)
		return __ldg((const uint32_t *)from);
	for (int i = 0; i < 4; i++)
		if (i < bytes)
			x |= (uint32_t)__ldg(from + i) << 8 * i;
	return x;
}

DEVICE void load_any(const struct nib_gemv100_params &p, const cursor<false> &cursor,
		     struct stage *to)
{
	const int codes = cursor.at + (int)threadIdx.x % 4 * 32;
	const int scales = p.b.is_tiled ? codes * 16 : codes / 8;
	const int bytes = p.k / 2 - codes;

#pragma unroll
	for (int r = 0; r < 2; r++) {
#pragma unroll
		for (int i = 0; i < 8; i++)
			to->codes[r][i] =
			    load_word(p.b.codes + cursor.codes[r] + codes + i * 4,
				      bytes - i * 4, p.b.codes_align);
		to->scales[r] = load_word(p.b.scales + cursor.scales[r] + scales,
					  bytes / 8, p.b.scales_align);
	}
}

template <int M, bool ALIGNED>
DEVICE void load(const struct nib_gemv100_params &p, const struct run &run,
		 const struct place &place, cursor<ALIGNED> *cursor, struct stage *to)
{
	if (cursor->left == 0)
		return;
	if constexpr (ALIGNED)
		load_aligned(p, *cursor, to);
	else
		load_any(p, *cursor, to);
	cursor->at += NIB_GEMV_STEP / 2;
	if (--cursor->left == 0)
		enter_window<M>(p, run, place, cursor);
}

/* What a lane reads of A; constant for the whole kernel. */
struct lane_view {
	uint32_t columns;     /* A for the lane's column, or zeros */
	uint32_t step_stride; /* from a step to the next; 0 for zeros */
	uint32_t pair_stride; /* to the next two rows of A and items; 0 for zeros */
};

/* x[pair][r][c]: row g + 8r of B, row 2 * pair + c of A, the blocks of this lane. */
template <int M>
struct accumulators {
	float x[M / 2][2][2];
};

DEVICE float low_half(uint32_t h)
{
	return __low2float(*(const __half2 *)&h);
}

DEVICE float high_half(uint32_t h)
{
	return __high2float(*(const __half2 *)&h);
}

/* Blocks and pairs of rows of A that are multiplied together, so that their mma do not
 * wait for each other. */
template <int M>
struct together {
	static constexpr int blocks = M < 8 ? 2 : 1, pairs = M / 2;
	static constexpr int all = blocks * pairs;
};

/* Codes of the lane's two rows as fp16: w[block][row]. */
template <int BLOCKS>
DEVICE void decode_blocks(uint32_t w[BLOCKS][2][8], const struct stage &from, int block)
{
#pragma unroll
	for (int b = 0; b < BLOCKS; b++)
#pragma unroll
		for (int r = 0; r < 2; r++) {
			const uint32_t *codes = from.codes[r] + (block + b) * 2;

			cvt_f16x8_e2m1x8(codes[0], w[b][r]);
			cvt_f16x8_e2m1x8(codes[1], w[b][r] + 4);
		}
}

/* Sums of blocks of 16 k for the lane's two rows: d[block, pair of rows of A]. */
template <int M>
DEVICE void multiply_blocks(float (&d)[together<M>::all][4],
			    const struct lane_view &view, uint32_t columns,
			    const uint32_t (&w)[together<M>::blocks][2][8])
{
	uint4 x[together<M>::all][2];

#pragma unroll
	for (int c = 0; c < together<M>::all; c++)
#pragma unroll
		for (int i = 0; i < 2; i++) {
			const int block = c % together<M>::blocks;
			const int pair = c / together<M>::blocks;

			x[c][i] = lds_128(columns + pair * view.pair_stride +
					  block * 32 + i * 16);
		}
#pragma unroll
	for (int i = 0; i < 4; i++)
#pragma unroll
		for (int c = 0; c < together<M>::all; c++) {
			const uint32_t(&v)[2][8] = w[c % together<M>::blocks];
			const uint4 y = x[c][i / 2];

			mma_m16n8k16_f16(d[c], v[0][2 * i], v[1][2 * i],
					 v[0][2 * i + 1], v[1][2 * i + 1],
					 i % 2 ? y.z : y.x, i % 2 ? y.w : y.y);
		}
}

/* Adds blocks of a step; s[row][block] are their scales. */
template <int M>
DEVICE void add_blocks(accumulators<M> *acc, const struct lane_view &view,
		       uint32_t columns, const struct stage &from, int block,
		       const float (&s)[2][4])
{
	constexpr int blocks = together<M>::blocks;
	float d[together<M>::all][4] = {};
	uint32_t w[blocks][2][8];

	decode_blocks<blocks>(w, from, block);
	multiply_blocks<M>(d, view, columns + block * 32, w);
#pragma unroll
	for (int i = 0; i < 4 * together<M>::all; i++) {
		const int c = i / 4, r = i / 2 % 2;
		float *sum = &acc->x[c / blocks][r][i % 2];

		*sum = fmaf(d[c][i % 4], s[r][block + c % blocks], *sum);
	}
}

/* The steps that a warp has loaded or requested, and what it loads next. */
template <bool ALIGNED, int DEPTH>
struct ring {
	struct stage stages[DEPTH];
	cursor<ALIGNED> ahead;
	int next; /* the stage to be multiplied */
};

/*
 * Requests the warp's first steps.  The CTA requests A before them, because loads of an
 * SM return in the order of their requests: A would wait for the weights of the warps
 * that request them first, and all weights for A.
 */
template <int M, bool ALIGNED, int DEPTH>
DEVICE struct first_loads fill_ring(const struct nib_gemv100_params &p,
				    const struct run &run, const struct place &place,
				    const struct stored &stored,
				    ring<ALIGNED, DEPTH> *ring)
{
	const struct first_loads first = load_first<M>(p, run, stored);

	ring->next = 0;
	ring->ahead.unit = run.first + place.group;
	ring->ahead.window = 0;
	enter_window<M>(p, run, place, &ring->ahead);
	__syncthreads();
#pragma unroll
	for (int i = 0; i < DEPTH; i++)
		load<M>(p, run, place, &ring->ahead, &ring->stages[i]);
	return first;
}

/* Adds a step; columns: the lane's A at this step. */
template <int M>
DEVICE void multiply_step(accumulators<M> *acc, const struct lane_view &view,
			  uint32_t columns, const struct stage &w)
{
	float s[2][4];

#pragma unroll
	for (int b = 0; b < 4; b += together<M>::blocks) {
		if (b % 2 == 0)
#pragma unroll
			for (int r = 0; r < 2; r++) {
				const uint32_t h =
				    b ? cvt_f16x2_e4m3x2_high(w.scales[r])
				      : cvt_f16x2_e4m3x2(w.scales[r]);

				s[r][b] = low_half(h);
				s[r][b + 1] = high_half(h);
			}
		add_blocks<M>(acc, view, columns, w, b, s);
	}
}

/* The next `left` steps of a unit in the ring; columns: the lane's A at the first. */
template <int M, bool ALIGNED, int DEPTH>
DEVICE void multiply_steps(const struct nib_gemv100_params &p, const struct run &run,
			   const struct place &place, ring<ALIGNED, DEPTH> *ring,
			   accumulators<M> *acc, const struct lane_view &view,
			   uint32_t columns, int left)
{
#pragma unroll 1
	while (left > 0) {
#pragma unroll
		for (int i = 0; i < DEPTH; i++) {
			/* Registers can only be indexed by constants. */
			if (ring->next != i)
				continue;
			multiply_step<M>(acc, view, columns, ring->stages[i]);
			load<M>(p, run, place, &ring->ahead, &ring->stages[i]);
			columns += view.step_stride;
			ring->next = (i + 1) % DEPTH;
			if (--left == 0)
				break;
		}
	}
}

/* Sums of a unit: x[pair] is that of row g + t / 2 * 8 of B, 2 * pair + t % 2 of A. */
template <int M>
struct unit_sums {
	float x[M / 2];
};

/* Adds the accumulators of the four lanes of each quad: (0 + 1) + (2 + 3). */
template <int M>
DEVICE unit_sums<M> add_quads(const accumulators<M> &acc)
{
	const bool odd = threadIdx.x % 2, high = threadIdx.x % 4 / 2;
	unit_sums<M> sums;

#pragma unroll
	for (int i = 0; i < M / 2; i++) {
		float x[2];

#pragma unroll
		for (int r = 0; r < 2; r++) {
			const float mine = odd ? acc.x[i][r][1] : acc.x[i][r][0];
			const float other = odd ? acc.x[i][r][0] : acc.x[i][r][1];

			x[r] = mine + __shfl_xor_sync(~0u, other, 1);
		}
		sums.x[i] =
		    (high ? x[1] : x[0]) + __shfl_xor_sync(~0u, high ? x[0] : x[1], 2);
	}
	return sums;
}

DEVICE void store(const struct nib_gemv100_params &p, int64_t index, float x)
{
	if (p.c_dtype == 0)
		((float *)p.c)[index] = x;
	else if (p.c_dtype == 1)
		((__half *)p.c)[index] = __float2half_rn(x);
	else
		((__nv_bfloat16 *)p.c)[index] = __float2bfloat16_rn(x);
}

/* Stores alpha times the sums of a unit. */
template <int M>
DEVICE void store_sums(const struct nib_gemv100_params &p, const struct item &item,
		       int tile, float alpha, const unit_sums<M> &sums)
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
	const int64_t row = nib_gemv_row(tile, g + t / 2 * 8, p.b.is_tiled);

	if (row >= p.n)
		return;
#pragma unroll
	for (int i = 0; i < M / 2; i++) {
		const int m = 2 * i + t % 2;

		if (m < item.rows)
			store(p,
			      (p.row_offsets ? 0 : item.matrix * p.c_batch_stride) +
				  (item.row + m) * p.c_row_stride + row,
			      sums.x[i] * alpha);
	}
}

template <int M>
DEVICE struct lane_view view_of_lane(const struct nib_gemv100_params &p)
{
	const uint32_t pitch = nib_gemv100_row_bytes(p.steps, M);
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
	const bool has_column = g / 2 == t;
	struct lane_view view;

	view.columns = shared_at(has_column ? NIB_GEMV100_A_AT + g % 2 * pitch + t * 128
					    : NIB_GEMV100_ZEROS_AT + 32);
	view.step_stride = has_column ? NIB_GEMV_STEP * 2 : 0;
	view.pair_stride = has_column ? 2 * pitch : 0;
	return view;
}

/* The sums of the ranges of a window: [group][range][pair of rows of A][lane]. */
template <int M>
DEVICE uint32_t partials_of(const struct nib_gemv100_params &p,
			    const struct place &place, int half)
{
	return shared_at(p.partial_at) + (half * place.groups + place.group) *
					     nib_gemv100_partial_bytes(p.steps, M);
}

/* Adds the sums of all ranges of a window, in order; 0 is added exactly. */
template <int M>
DEVICE void add_ranges(unit_sums<M> *sums, uint32_t partials, int ranges)
{
	const uint32_t from = partials + threadIdx.x % 32 * 4;

#pragma unroll 1
	for (int range = 0; range < ranges; range += 8) {
		float x[8][M / 2] = {};

#pragma unroll
		for (int i = 0; i < 8 * (M / 2); i++)
			if (range + i / (M / 2) < ranges)
				x[i / (M / 2)][i % (M / 2)] =
				    lds_f32(from + (range * (M / 2) + i) * 128);
#pragma unroll
		for (int i = 0; i < 8 * (M / 2); i++)
			sums->x[i % (M / 2)] += x[i / (M / 2)][i % (M / 2)];
	}
}

/*
 * Adds a window of a unit to `sums`, if one warp computes it, else to those of the
 * first warp of the group.  half: the buffer; two alternate, so that one is written
 * while the other is read.
 */
template <int M, bool ALIGNED, int DEPTH>
DEVICE void multiply_window(const struct nib_gemv100_params &p, const struct run &run,
			    const struct place &place, ring<ALIGNED, DEPTH> *ring,
			    const struct lane_view &view, int slot, int window,
			    int half, unit_sums<M> *sums)
{
	const int begin = window * NIB_GEMV100_WINDOW(M);
	const struct steps steps = steps_of<M>(p, place, window);
	const uint32_t partials = partials_of<M>(p, place, half);
	uint32_t columns = view.columns + slot * (M / 2) * view.pair_stride +
			   (steps.begin - begin) * view.step_stride;

#pragma unroll 1
	for (int step = steps.begin; step < steps.end; step += NIB_GEMV100_RANGE) {
		const int range = (step - begin) / NIB_GEMV100_RANGE;
		accumulators<M> acc = {};
		unit_sums<M> sum;

		multiply_steps<M>(p, run, place, ring, &acc, view, columns,
				  min(steps.end - step, NIB_GEMV100_RANGE));
		columns += NIB_GEMV100_RANGE * view.step_stride;
		sum = add_quads(acc);
#pragma unroll
		for (int i = 0; i < M / 2; i++)
			if (place.warps_log2 == 0)
				sums->x[i] += sum.x[i];
			else
				sts_f32(partials + ((range * (M / 2) + i) * 32 +
						    threadIdx.x % 32) *
						       4,
					sum.x[i]);
	}
	if (place.warps_log2 == 0)
		return;
	bar_sync(1 + place.group, 32 << place.warps_log2);
	if (place.in_group == 0) {
		const int left = p.steps - begin;

		add_ranges(sums, partials,
			   (min(left, NIB_GEMV100_WINDOW(M)) + NIB_GEMV100_RANGE - 1) /
			       NIB_GEMV100_RANGE);
	}
}

/* Units begin to end - 1, whose items are in the slots at the same time: one for each
 * group, if A does not fit into one window. */
struct batch {
	int begin, end;
	struct stored stored;
};

template <int M>
DEVICE struct batch next_batch(const struct nib_gemv100_params &p,
			       const struct run &run, const struct place &place,
			       int begin)
{
	struct batch batch = {begin, run.end, {0, 1, 0}};
	int tile;

	split_unit(p, begin, &batch.stored.item, &tile);
	if (p.steps > NIB_GEMV100_WINDOW(M))
		batch.end = min(batch.end, begin + place.groups);
#pragma unroll
	for (int i = 1; i < NIB_GEMV100_SLOTS; i++)
		batch.stored.items +=
		    i < p.slots && begin - tile + i * p.tiles < batch.end;
	batch.end = min(batch.end, begin - tile + batch.stored.items * p.tiles);
	return batch;
}

/* Loads A of a batch's window; the thread has its first loads, if it is_loaded. */
template <int M>
DEVICE void replace_stored(const struct nib_gemv100_params &p, const struct run &run,
			   const struct stored &stored, struct first_loads first,
			   bool is_loaded)
{
	if (!is_loaded) {
		__syncthreads();
		first = load_first<M>(p, run, stored);
	}
	store_pieces<M>(p, run, stored, first);
	__syncthreads();
}

/* Multiplies the CTA's run batch by batch. */
template <int M, bool ALIGNED, int DEPTH>
DEVICE void multiply_run(const struct nib_gemv100_params &p, const struct run &run)
{
	const struct place place = place_in<M>(run);
	struct batch batch = next_batch<M>(p, run, place, run.first);
	ring<ALIGNED, DEPTH> ring;
	const struct first_loads first =
	    fill_ring<M>(p, run, place, batch.stored, &ring);
	const struct lane_view view = view_of_lane<M>(p);
	unit_sums<M> sums;
	int unit = run.first + place.group, half = 0;

	if (threadIdx.x < NIB_GEMV100_ZEROS / 4)
		sts_32(shared_at(NIB_GEMV100_ZEROS_AT) + threadIdx.x * 4, 0);
#pragma unroll 1
	for (;;) {
		const int window = batch.stored.window;
		const bool is_last = (window + 1) * NIB_GEMV100_WINDOW(M) >= p.steps;

		replace_stored<M>(p, run, batch.stored, first,
				  window == 0 && batch.begin == run.first);
#pragma unroll 1
		for (; unit < batch.end; unit += place.groups) {
			int index, tile;

			split_unit(p, unit, &index, &tile);
			if (window == 0)
				sums = {};
			multiply_window<M>(p, run, place, &ring, view,
					   index - batch.stored.item, window, half,
					   &sums);
			half ^= 1;
			if (!is_last)
				break;
			if (place.in_group == 0)
				store_sums<M>(
				    p, item_of(p, run, index), tile,
				    lds_f32(shared_at((index - batch.stored.item) * 4)),
				    sums);
		}
		batch.stored.window++;
		if (!is_last)
			continue;
		if (batch.end >= run.end)
			return;
		batch = next_batch<M>(p, run, place, batch.end);
	}
}

template <int M, bool ALIGNED, int DEPTH>
DEVICE void gemv(const struct nib_gemv100_params &p)
{
	struct run run;

	griddepcontrol_wait();
	griddepcontrol_launch_dependents();
	run = p.row_offsets ? expert_run_of<M>(p) : run_of(p, p.share, p.rest);
	if (run.first < run.end)
		multiply_run<M, ALIGNED, DEPTH>(p, run);
}

#define GEMV(m, aligned, depth, name)                                                  \
	extern "C" __global__ void __launch_bounds__(NIB_GEMV100_THREADS(m), 1)        \
	    NIB_KERNEL(name)(const __grid_constant__ struct nib_gemv100_params p)      \
	{                                                                              \
		gemv<m, aligned, depth>(p);                                            \
	}

GEMV(2, true, 3, gemv_2)
GEMV(4, true, 5, gemv_4)
GEMV(8, true, 4, gemv_8)
GEMV(2, false, 1, gemv_2_any)
GEMV(8, false, 1, gemv_8_any)
