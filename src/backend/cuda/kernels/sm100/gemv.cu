/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemv.cu - C[m, n] = alpha * A[m, k] * B[n, k]^T for at most 8 rows of A on Blackwell,
 * and for experts with few rows: reads B once, at the rate of memory.
 *
 *   B   global --ld 32 bytes--> registers --cvt e2m1--> fp16 --mma--> block sums
 *   A   global --> code * scale as fp16 --> shared memory -----^
 *   block sums --fma by the scale of B--> fp32 of a lane --> quad --> warps --> C
 *
 *   threads           role                                registers        waits for
 *   M = 2: 0 .. 511   all warps alike, in groups of 4     122              own loads,
 *   M = 4: 0 .. 255   or 8: load B, multiply, add, store  207              bar.sync of
 *   M = 8: 0 .. 255   together: load A                    249              the group
 *
 * One persistent CTA an SM.  An item is up to M rows of A and the weights that they
 * share: a matrix, or some rows of an expert.  A unit is 16 rows of B of an item, and a
 * group of warps shares its k.  Each warp multiplies every 4th (8th) step of k256, and
 * loads DEPTH steps ahead, across units and items, into registers.  bar.sync 1 + group
 * joins the warps of a group before one of them adds their sums; __syncthreads()
 * surrounds the load of A.
 *
 *   dynamic shared memory         bytes
 *   common words (gemv_run.cuh)   64
 *   table of items (MoE)          8192
 *   zeros                         256
 *   partial sums, twice           2 * warps * 16 rows of B * M * 4
 *   A                             at most 128 KiB: fp16, rows padded by 16 bytes; a
 *                                 longer k takes several phases (NIB_GEMV100_PHASE(M))
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
 * Order of the sum of an element, by k and the number of warps of a unit only (which
 * follows from n and k): step s belongs to warp s % warps, and 64 k of it to each lane
 * t of the quad.  A lane adds its blocks in order of k; then (0 + 1) + (2 + 3) of the
 * quad; then the warps in order.  It is the same for every M, so that rows, batches,
 * experts and schedules do not change a bit.
 *
 * Roofline: the rate of memory.  7.2 TB/s are 26.3 bytes a clock and SM (148, 1.85
 * GHz), so that 4,096 weights and their 256 scales, a warp's step, take 88 clocks, 351
 * issue slots:
 *
 *   M   warps x steps  in flight  instructions  of them  LDS          slots
 *                                 of a step     mma      wavefronts   taken
 *   2   16 x 3         108 KiB    160           16       32           46 %
 *   4    8 x 5          90 KiB    193           32       64           55 %
 *   8    8 x 5          90 KiB    276           64       128          79 %
 *
 * (SASS of nvcc 13.0; 40, 48 and 69 instructions for each 16 bytes of codes and lane.)
 * 64 mma in 88 clocks are 1,490 multiply-adds of fp16 a clock, and 128 wavefronts of
 * LDS are more than the port's one a clock: M = 8 may take 1.5 times as long as memory
 * if mma.sync has the rate of an A100.  No spills.  HBM needs 96 to 128 KB in flight
 * for 7.2 TB/s; 64 KB give 6.3.  docs/performance-blackwell.md has the predicted times;
 * nothing here was measured on a B200.
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

/*
 * What a warp loads next: the step of a tile of an item whose codes begin `at` bytes
 * after the row's first; at < 0: nothing is left.  codes, scales: offsets of rows g and
 * g + 8 at step 0 from the operand's first byte; if ALIGNED in units of 32 and 4 bytes.
 */
template <bool ALIGNED>
struct cursor {
	int item, tile, at;
	offset<ALIGNED> codes[2], scales[2];
};

/* Sets the offsets of cursor->tile.  The last row is loaded in place of rows beyond it,
 * whose results are not stored. */
template <bool ALIGNED>
DEVICE void enter_tile(const struct nib_gemv100_params &p, cursor<ALIGNED> *cursor)
{
	const int64_t matrix = item_of(p, cursor->item).matrix;
	const int g = threadIdx.x % 32 / 4;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int row =
		    min((int)nib_gemv_row(cursor->tile, g + 8 * r, p.b.is_tiled),
			(int)p.n - 1);

		cursor->codes[r] = (matrix * p.b.batch_stride + row * p.b.row_stride) >>
				   (ALIGNED ? 5 : 0);
		cursor->scales[r] =
		    (matrix * p.b.scale_batch_stride +
		     (p.b.is_tiled ? (int64_t)(row / 128) * ((p.k + 63) / 64) * 512 +
					 row % 32 * 16 + row % 128 / 32 * 4
				   : row * p.b.scale_row_stride)) >>
		    (ALIGNED ? 2 : 0);
	}
}

template <int M, bool ALIGNED>
DEVICE void advance(const struct nib_gemv100_params &p, cursor<ALIGNED> *cursor)
{
	cursor->at += NIB_GEMV_STEP / 2 << p.tile_warps_log2;
	if (cursor->at < p.k / 2)
		return;
	cursor->tile += (NIB_GEMV100_WARPS(M) >> p.tile_warps_log2);
	while (cursor->tile >= p.tiles) {
		cursor->tile -= p.tiles;
		cursor->item++;
	}
	cursor->at = -1;
	if ((int64_t)cursor->item * p.tiles + cursor->tile >= known(RUN_END))
		return;
	cursor->at =
	    (threadIdx.x / 32 & ((1 << p.tile_warps_log2) - 1)) * (NIB_GEMV_STEP / 2);
	enter_tile(p, cursor);
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
DEVICE void load(const struct nib_gemv100_params &p, cursor<ALIGNED> *cursor,
		 struct stage *to)
{
	if (cursor->at < 0)
		return;
	if constexpr (ALIGNED)
		load_aligned(p, *cursor, to);
	else
		load_any(p, *cursor, to);
	advance<M>(p, cursor);
}

/* What a lane reads of A; constant for the whole kernel. */
struct lane_view {
	uint32_t columns;     /* A for the lane's column, or zeros */
	uint32_t step_stride; /* from a step to the next; 0 for zeros */
	uint32_t pair_stride; /* to the next two rows of A; 0 for zeros */
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

/* Adds a block of 16 k of the lane's two rows. */
template <int M>
DEVICE void multiply_block(accumulators<M> *acc, const struct lane_view &view,
			   uint32_t columns, const uint32_t (&low)[2],
			   const uint32_t (&high)[2], float s0, float s1)
{
	uint32_t w[2][8];

#pragma unroll
	for (int r = 0; r < 2; r++) {
		cvt_f16x8_e2m1x8(low[r], w[r]);
		cvt_f16x8_e2m1x8(high[r], w[r] + 4);
	}
#pragma unroll
	for (int pair = 0; pair < M / 2; pair++) {
		const uint4 x0 = lds_128(columns + pair * view.pair_stride);
		const uint4 x1 = lds_128(columns + pair * view.pair_stride + 16);
		const uint32_t x[8] = {x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w};
		float d[4] = {0, 0, 0, 0};

#pragma unroll
		for (int i = 0; i < 8; i += 2)
			mma_m16n8k16_f16(d, w[0][i], w[1][i], w[0][i + 1], w[1][i + 1],
					 x[i], x[i + 1]);
#pragma unroll
		for (int c = 0; c < 2; c++) {
			acc->x[pair][0][c] = fmaf(d[c], s0, acc->x[pair][0][c]);
			acc->x[pair][1][c] = fmaf(d[2 + c], s1, acc->x[pair][1][c]);
		}
	}
}

/* The steps that a warp has loaded or requested, and what it loads next. */
template <bool ALIGNED, int DEPTH>
struct ring {
	struct stage stages[DEPTH];
	cursor<ALIGNED> ahead;
	int next; /* the stage to be multiplied */
};

/* Requests the warp's first steps. */
template <int M, bool ALIGNED, int DEPTH>
DEVICE void fill_ring(const struct nib_gemv100_params &p, ring<ALIGNED, DEPTH> *ring)
{
	const int warp = threadIdx.x / 32;
	const int in_group = warp & ((1 << p.tile_warps_log2) - 1);

	/* advance() from the end of the unit before the group's first one. */
	ring->ahead.item = known(RUN_ITEM);
	ring->ahead.tile = known(RUN_FIRST) - ring->ahead.item * p.tiles +
			   (warp >> p.tile_warps_log2) -
			   (NIB_GEMV100_WARPS(M) >> p.tile_warps_log2);
	ring->ahead.at = p.k;
	if (in_group * NIB_GEMV_STEP < p.k)
		advance<M>(p, &ring->ahead);
	else
		ring->ahead.at = -1;
#pragma unroll
	for (int i = 0; i < DEPTH; i++)
		load<M>(p, &ring->ahead, &ring->stages[i]);
}

/* Adds a step; columns: the lane's A at this step. */
template <int M>
DEVICE void multiply_step(accumulators<M> *acc, const struct lane_view &view,
			  uint32_t columns, const struct stage &w)
{
#pragma unroll
	for (int b = 0; b < 4; b++) {
		const uint32_t low[2] = {w.codes[0][2 * b], w.codes[1][2 * b]};
		const uint32_t high[2] = {w.codes[0][2 * b + 1], w.codes[1][2 * b + 1]};
		float s[2];

#pragma unroll
		for (int r = 0; r < 2; r++) {
			const uint32_t h = b / 2 ? cvt_f16x2_e4m3x2_high(w.scales[r])
						 : cvt_f16x2_e4m3x2(w.scales[r]);

			s[r] = b % 2 ? high_half(h) : low_half(h);
		}
		multiply_block<M>(acc, view, columns + b * 32, low, high, s[0], s[1]);
	}
}

/* The warp's `left` steps of a unit in a phase. */
template <int M, bool ALIGNED, int DEPTH>
DEVICE void multiply_steps(const struct nib_gemv100_params &p,
			   ring<ALIGNED, DEPTH> *ring, accumulators<M> *acc,
			   const struct lane_view &view, int left)
{
	const int in_group = threadIdx.x / 32 & ((1 << p.tile_warps_log2) - 1);
	uint32_t columns = view.columns + in_group * view.step_stride;

#pragma unroll 1
	while (left > 0) {
#pragma unroll
		for (int i = 0; i < DEPTH; i++) {
			/* Registers can only be indexed by constants. */
			if (ring->next != i)
				continue;
			multiply_step<M>(acc, view, columns, ring->stages[i]);
			load<M>(p, &ring->ahead, &ring->stages[i]);
			columns += view.step_stride << p.tile_warps_log2;
			ring->next = (i + 1) % DEPTH;
			if (--left == 0)
				break;
		}
	}
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

/*
 * Adds the lanes of each quad and stores a warp's sums of a tile: [row of A][16 rows].
 */
template <int M>
DEVICE void put_partial(uint32_t to, const accumulators<M> &acc)
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int i = 0; i < 2 * M; i++) {
		const int pair = i / 4, r = i / 2 % 2, c = i % 2;
		float x = acc.x[pair][r][c];

		x += __shfl_xor_sync(~0u, x, 1);
		x += __shfl_xor_sync(~0u, x, 2);
		if (t == 0)
			sts_f32(to + ((2 * pair + c) * NIB_GEMV_TILE_ROWS + g + 8 * r) *
					 4,
				x);
	}
}

/* One warp of the group adds the warps' sums, in their order, and stores. */
template <int M>
DEVICE void store_tile(const struct nib_gemv100_params &p, uint32_t partial, int tile)
{
	const struct item item = known_item();
	const float alpha = __int_as_float(known(ITEM_ALPHA));
	const int lane = threadIdx.x % 32;

#pragma unroll 1
	for (int i = lane; i < NIB_GEMV_TILE_ROWS * item.rows; i += 32) {
		const int r = i % NIB_GEMV_TILE_ROWS;
		const int m = i / NIB_GEMV_TILE_ROWS;
		const int64_t row = nib_gemv_row(tile, r, p.b.is_tiled);
		float sum = lds_f32(partial + i * 4);

#pragma unroll 1
		for (int w = 1; w < 1 << p.tile_warps_log2; w++)
			sum += lds_f32(partial + (w * M * NIB_GEMV_TILE_ROWS + i) * 4);
		if (row < p.n)
			store(p,
			      item.matrix * p.c_batch_stride +
				  (item.row + m) * p.c_row_stride + row,
			      sum * alpha);
	}
}

template <int M>
DEVICE struct lane_view view_of_lane(const struct nib_gemv100_params &p)
{
	const uint32_t pitch = nib_gemv100_row_bytes(p.k, M);
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
	const bool has_column = g / 2 == t;
	struct lane_view view;

	view.columns =
	    shared_at(has_column ? NIB_GEMV100_A_AT(M) + g % 2 * pitch + t * 128
				 : NIB_GEMV100_ZEROS_AT + 32);
	view.step_stride = has_column ? NIB_GEMV_STEP * 2 : 0;
	view.pair_stride = has_column ? 2 * pitch : 0;
	return view;
}

/* The warps of a group add their sums of a unit and store them. */
template <int M>
DEVICE void finish_unit(const struct nib_gemv100_params &p, const accumulators<M> &acc,
			int round, int tile)
{
	const int warp = threadIdx.x / 32;
	const int groups = NIB_GEMV100_WARPS(M) >> p.tile_warps_log2;
	/* Two buffers alternate, so that one is written while the other is read. */
	const int half = (round - known(RUN_FIRST)) / groups % 2;
	const uint32_t partial =
	    shared_at(NIB_GEMV100_PARTIAL_AT) +
	    (half * NIB_GEMV100_WARPS(M) + warp) * NIB_GEMV_TILE_ROWS * M * 4;

	put_partial<M>(partial, acc);
	bar_sync(1 + (warp >> p.tile_warps_log2), 32 << p.tile_warps_log2);
	if ((warp & ((1 << p.tile_warps_log2) - 1)) == 0)
		store_tile<M>(p, partial, tile);
}

/* A round is one unit for each group; those of item `index` are multiplied.  A is
 * loaded if the item is new, or if A does not fit into one phase. */
template <int M, bool ALIGNED, int DEPTH>
DEVICE void run_round(const struct nib_gemv100_params &p, ring<ALIGNED, DEPTH> *ring,
		      const struct lane_view &view, int index, int round, bool is_new,
		      bool is_first)
{
	const int steps = (p.k + NIB_GEMV_STEP - 1) / NIB_GEMV_STEP;
	const int phase = NIB_GEMV100_PHASE(M) / NIB_GEMV_STEP;
	const int tile_warps = 1 << p.tile_warps_log2;
	const int warp = threadIdx.x / 32;
	const int unit = round + (warp >> p.tile_warps_log2);
	const bool has_unit = unit / p.tiles == index && unit < known(RUN_END);
	accumulators<M> acc = {};

#pragma unroll 1
	for (int begin = 0; begin == 0 || begin < steps; begin += phase) {
		const int end = min(begin + phase, steps);
		const int left =
		    (end - begin - (warp & (tile_warps - 1)) + tile_warps - 1) >>
		    p.tile_warps_log2;

		if (is_new || steps > phase) {
			const struct item item = item_of(p, index);
			struct piece piece;

			__syncthreads();
			/* Before B, whose requests would delay it. */
			piece = load_piece<M>(p, item, threadIdx.x, begin);
			if (is_first && begin == 0)
				fill_ring<M>(p, ring);
			if (threadIdx.x == 0)
				tell_item(p, item);
			store_pieces<M>(p, item, begin, piece);
			__syncthreads();
		}
		if (has_unit)
			multiply_steps<M>(p, ring, &acc, view, left);
	}
	if (has_unit)
		finish_unit<M>(p, acc, round, unit - index * p.tiles);
}

/* Multiplies the CTA's run item by item.  An item may begin and end at any unit of a
 * round, so that a round may belong to two items. */
template <int M, bool ALIGNED, int DEPTH>
DEVICE void gemv(const struct nib_gemv100_params &p)
{
	const int groups = NIB_GEMV100_WARPS(M) >> p.tile_warps_log2;
	const struct lane_view view = view_of_lane<M>(p);
	ring<ALIGNED, DEPTH> ring;
	bool is_first = true;
	int round;

	griddepcontrol_wait();
	griddepcontrol_launch_dependents();
	if (!find_run<M>(p))
		return;
	if (threadIdx.x < NIB_GEMV100_ZEROS / 4)
		sts_32(shared_at(NIB_GEMV100_ZEROS_AT) + threadIdx.x * 4, 0);
	__syncthreads();
	ring.next = 0;
	round = known(RUN_FIRST);
#pragma unroll 1
	for (int index = known(RUN_ITEM); index * p.tiles < known(RUN_END); index++) {
		const int end = (index + 1) * p.tiles;

		for (bool is_new = true;; is_new = false) {
			run_round<M>(p, &ring, view, index, round, is_new, is_first);
			is_first = false;
			if (round + groups > end)
				break;
			round += groups;
			if (round >= min(end, known(RUN_END)))
				break;
		}
	}
}

#define GEMV(m, aligned, depth, name)                                                  \
	extern "C" __global__ void __launch_bounds__(NIB_GEMV100_THREADS(m), 1)        \
	    NIB_KERNEL(name)(const __grid_constant__ struct nib_gemv100_params p)      \
	{                                                                              \
		gemv<m, aligned, depth>(p);                                            \
	}

GEMV(2, true, 3, gemv_2)
GEMV(4, true, 5, gemv_4)
GEMV(8, true, 5, gemv_8)
GEMV(2, false, 1, gemv_2_any)
GEMV(8, false, 1, gemv_8_any)
