/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_steps.cuh - the steps of a layer of experts between its products: the rows of
 * slots, A by expert, h, and the sum of a token's slots.  The same bits as
 * src/backend/cpu/moe_steps.c.
 *
 *   begin     ids --> shared memory --> rows of one token's slots;
 *             x --ldg--> 8 values, or 16 --quantise once--> each of these rows
 *   route     ids --twice--> slots of one expert, in order, by a prefix sum
 *   gather    as begin, with the rows that route wrote
 *   activate  gate, up --ldg--> h[16], or h[4] by four lanes where blocks are few,
 *             --quantise or round--> h
 *   combine   rows of slots --16 bytes of 8 slots at once--> sums of 8 columns (4 of
 *             fp32), in order --stg--> y
 *
 *   quantize  x --ldg--> 4 values of each lane of a quad --quantise--> codes, scales
 *
 * begin replaces route and gather where the slots are few: each CTA counts for itself
 * which rows its token gets.  The warps have no roles.  All kernels wait for the
 * previous one and let the next one begin meanwhile.
 *
 * Barriers: __syncthreads() of begin and route, around their tables.  Shared memory:
 * 9.4 KiB of begin, 384 bytes of route.  Registers: 28 to 94 (docs/kernels.md).
 * Roofline: the rate of memory; route reads ids twice for every expert, from the L2.
 */
#ifndef NIB_MOE_STEPS_CUH
#define NIB_MOE_STEPS_CUH

#include "moe_steps_params.h"
#include "moe_values.cuh"
#include "ptx_async.cuh"
#include "quantize.cuh"

/* ---- rows of slots ------------------------------------------------------- */

/* The sum of x over all threads; *before: over the threads before this one.  sums: a
 * word of shared memory for each warp. */
DEVICE uint32_t block_sum(uint32_t x, uint32_t *sums, uint32_t *before)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	uint32_t sum = x, all;

#pragma unroll
	for (int i = 1; i < 32; i *= 2) {
		const uint32_t other = __shfl_up_sync(~0u, sum, i);

		sum += lane >= i ? other : 0;
	}
	if (lane == 31)
		sums[warp] = sum;
	__syncthreads();
	all = sums[lane];
	*before = sum - x + __reduce_add_sync(~0u, lane < warp ? all : 0);
	return __reduce_add_sync(~0u, all);
}

/* The number of slots of experts before this one. */
DEVICE uint32_t slots_before(const struct nib_moe_route_params &p, uint32_t expert,
			     uint32_t *sums)
{
	uint32_t count = 0, unused;

	for (int64_t s = threadIdx.x; s < p.slots; s += NIB_MOE_ROUTE_THREADS)
		count += (uint32_t)expert_of(p, s) < expert;
	return block_sum(count, sums, &unused);
}

/* Writes the rows of an expert's slots, `row` and up; a thread has four slots at a
 * time. */
DEVICE void place_slots(const struct nib_moe_route_params &p, int expert, uint32_t row,
			uint32_t (*sums)[32])
{
	int turn = 0;

	for (int64_t first = 0; first < p.slots;
	     first += 4 * NIB_MOE_ROUTE_THREADS, turn ^= 1) {
		const int64_t slot = first + 4 * threadIdx.x;
		uint32_t mine = 0, before, all;

#pragma unroll
		for (int i = 0; i < 4; i++)
			if (slot + i < p.slots && expert_of(p, slot + i) == expert)
				mine |= 1u << i;
		/* Two sets of words alternate, so that one barrier is enough. */
		all = block_sum(__popc(mine), sums[turn], &before);
		before += row;
#pragma unroll
		for (int i = 0; i < 4; i++)
			if (mine >> i & 1)
				p.slot_rows[slot + i] = (int32_t)before++;
		row += all;
	}
}

/*
 * CTA e: expert e.  The last CTA: slots of other devices, and the number of slots here.
 */
extern "C" __global__ void __launch_bounds__(NIB_MOE_ROUTE_THREADS)
    NIB_KERNEL(moe_route)(const __grid_constant__ struct nib_moe_route_params p)
{
	__shared__ uint32_t sums[3][32];
	const int expert = (int)blockIdx.x;
	uint32_t row;

	griddepcontrol_launch_dependents();
	griddepcontrol_wait();
	row = slots_before(p, expert, sums[2]);
	if (threadIdx.x == 0)
		st_relaxed(p.row_offsets + expert, (int32_t)row);
	if (expert < p.experts) {
		place_slots(p, expert, row, sums);
		return;
	}
	for (int64_t s = threadIdx.x; s < p.slots; s += NIB_MOE_ROUTE_THREADS)
		if (expert_of(p, s) < 0)
			p.slot_rows[s] = -1;
}

/* ---- A by expert --------------------------------------------------------- */

/* Slots of a token whose loads are requested together: their latencies overlap. */
#define SLOTS_AT_ONCE 8

/* Piece i of a token.  words: 8 values of 16 bits in four words; or the bits of the 16
 * floats of a block; or, for NVFP4 and once encoded, two words of codes. */
struct piece {
	uint32_t words[16], scale;
};

/* Four words of halves. */
DEVICE void load_halves(const uint16_t *from, bool is_aligned, uint32_t words[4])
{
	if (is_aligned) {
		*(uint4 *)words = *(const uint4 *)from;
		return;
	}
#pragma unroll
	for (int i = 0; i < 4; i++)
		words[i] = from[2 * i] | (uint32_t)from[2 * i + 1] << 16;
}

DEVICE struct piece load_piece(const struct nib_moe_gather_params &p, int64_t token,
			       int64_t i)
{
	struct piece x = {};

	if (!p.to.codes) {
		load_halves((const uint16_t *)p.x.data + token * p.x.row_stride + i * 8,
			    p.x.is_aligned, x.words);
	} else if (p.a.codes) {
		load_codes(p.a.codes + token * p.a.row_stride + i * 8, p.a.is_aligned,
			   x.words);
		x.scale = p.a.scales[token * p.a.scale_row_stride + i];
	} else {
		load_16(p.x, token * p.x.row_stride + i * 16, 16, x.words);
	}
	return x;
}

DEVICE void encode_piece(const struct nib_moe_gather_params &p, struct piece *x)
{
	uint32_t codes[2] = {0, 0}, amax, worst;

	if (!p.to.codes || p.a.codes)
		return;
	worst = worst_of(x->words, &amax);
	x->scale = encode_block(x->words, amax, worst, *p.global, p.zero_scale, codes);
	x->words[0] = codes[0];
	x->words[1] = codes[1];
}

/* Stores the piece in a row; -1: nowhere. */
DEVICE void store_piece(const struct nib_moe_gather_params &p, int64_t row, int64_t i,
			const struct piece &x)
{
	const uint32_t *w = x.words;

	if (row < 0)
		return;
	if (p.to.codes) {
		store_codes(p.to, {0, row, i, NULL, false}, w[0], w[1]);
		p.to.scales[row * p.to.scale_row_stride + i] = (uint8_t)x.scale;
	} else {
		((uint4 *)p.to_dense)[row * p.pieces + i] =
		    make_uint4(w[0], w[1], w[2], w[3]);
	}
}

/* Stores the piece in the row of each of the token's slots.  Requests AT_ONCE rows
 * before it needs the first. */
template <int AT_ONCE>
DEVICE void spread_piece(const struct nib_moe_gather_params &p, const int32_t *rows,
			 int64_t i, const struct piece &x)
{
	for (int64_t first = 0; first < p.top_k; first += AT_ONCE) {
		int32_t row[AT_ONCE];

#pragma unroll
		for (int j = 0; j < AT_ONCE; j++)
			row[j] = first + j < p.top_k ? rows[first + j] : -1;
#pragma unroll
		for (int j = 0; j < AT_ONCE; j++)
			store_piece(p, row[j], i, x);
	}
}

extern "C" __global__ void __launch_bounds__(NIB_MOE_THREADS)
    NIB_KERNEL(moe_gather)(const __grid_constant__ struct nib_moe_gather_params p)
{
	const uint64_t all = (uint64_t)p.tokens * p.pieces;
	const uint64_t stride = (uint64_t)gridDim.x * NIB_MOE_THREADS;
	uint64_t i = (uint64_t)blockIdx.x * NIB_MOE_THREADS + threadIdx.x;

	griddepcontrol_launch_dependents();
	griddepcontrol_wait();
	for (; i < all; i += stride) {
		const uint64_t token = divide(i, p.pieces);
		const uint64_t piece = i - token * p.pieces;
		struct piece x = load_piece(p, token, piece);

		encode_piece(p, &x);
		spread_piece<SLOTS_AT_ONCE>(p, p.slot_rows + token * p.top_k, piece, x);
	}
}

/* ---- rows of slots and A by expert at once -------------------------------- */

/* Called by one warp.  The row of a slot: the number of slots of earlier experts, and
 * of earlier slots of the same expert; -1 for a slot of another device. */
DEVICE int rank_of(const int32_t *experts, int slots, int slot)
{
	const uint32_t mine = experts[slot];
	uint32_t count = 0;

	for (int s = threadIdx.x % 32; s < slots; s += 32) {
		const uint32_t other = experts[s];

		count += other < mine || (other == mine && s < slot);
	}
	count = __reduce_add_sync(~0u, count);
	return (int32_t)mine < 0 ? -1 : (int)count;
}

/* Called by a CTA.  Writes the first rows of its NIB_MOE_THREADS experts: counts the
 * slots of each, counts[0] being those of all earlier experts, and adds them up. */
DEVICE void write_offsets(const struct nib_moe_route_params &p, const int32_t *experts)
{
	__shared__ uint32_t counts[NIB_MOE_THREADS], sums[32];
	const uint32_t first = blockIdx.x * NIB_MOE_THREADS;
	const uint32_t expert = first + threadIdx.x;
	uint32_t before;

	counts[threadIdx.x] = 0;
	if (threadIdx.x < 32)
		sums[threadIdx.x] = 0;
	__syncthreads();
	/* Unrolled, it takes ptxas to spill on Blackwell. */
#pragma unroll 1
	for (int s = threadIdx.x; s < (int)p.slots; s += NIB_MOE_THREADS) {
		const uint32_t other = experts[s];

		if (other < first + NIB_MOE_THREADS - 1)
			atomicAdd(counts + (other < first ? 0 : other - first + 1), 1u);
	}
	__syncthreads();
	block_sum(counts[threadIdx.x], sums, &before);
	if (expert <= (uint32_t)p.experts)
		st_relaxed(p.row_offsets + expert,
			   (int32_t)(before + counts[threadIdx.x]));
}

/* Called by a CTA: the expert of every slot. */
DEVICE void read_experts(const struct nib_moe_route_params &p, int32_t *experts)
{
	for (int s = threadIdx.x; s < (int)p.slots; s += NIB_MOE_THREADS)
		experts[s] = expert_of(p, s);
	__syncthreads();
}

extern "C" __global__ void __launch_bounds__(NIB_MOE_THREADS)
    NIB_KERNEL(moe_begin)(const __grid_constant__ struct nib_moe_begin_params p)
{
	__shared__ int32_t experts[NIB_MOE_BEGIN_SLOTS];
	__shared__ int32_t rows[NIB_MOE_BEGIN_TOP_K];
	const int cta = (int)blockIdx.x - p.offset_ctas;
	const int token = cta / p.token_ctas, part = cta % p.token_ctas;
	const int top_k = (int)p.gather.top_k, slots = (int)p.route.slots;
	const int64_t piece = part * NIB_MOE_THREADS + threadIdx.x;
	const bool has_piece = piece < p.gather.pieces;
	struct piece x;

	griddepcontrol_launch_dependents();
	griddepcontrol_wait();
	if (cta < 0) {
		read_experts(p.route, experts);
		write_offsets(p.route, experts);
		return;
	}
	/* Requests x before ids, to overlap their latencies. */
	if (has_piece)
		x = load_piece(p.gather, token, piece);
	read_experts(p.route, experts);
	for (int j = threadIdx.x / 32; j < top_k; j += NIB_MOE_THREADS / 32) {
		const int slot = token * top_k + j;
		const int row = rank_of(experts, slots, slot);

		if (threadIdx.x % 32 == 0) {
			rows[j] = row;
			if (part == 0)
				p.route.slot_rows[slot] = row;
		}
	}
	if (has_piece)
		encode_piece(p.gather, &x);
	__syncthreads();
	if (has_piece)
		spread_piece<1>(p.gather, rows, piece, x);
}

/* ---- h ------------------------------------------------------------------- */

/* The maximum over the lanes of a quad. */
DEVICE uint32_t quad_max(uint32_t x)
{
	const uint32_t quad = 0xFu << (threadIdx.x % 32 & ~3u);

	x = max(x, __shfl_xor_sync(quad, x, 1));
	return max(x, __shfl_xor_sync(quad, x, 2));
}

/* Quantises a block; lane t of a quad has its values 4t to 4t + 3. */
DEVICE void store_quarter(const struct nib_quantize_nvfp4 &q, int64_t row,
			  int64_t group, const uint32_t bits[4], float global,
			  uint32_t zero_scale)
{
	const int t = threadIdx.x % 4;
	uint32_t amax = 0, codes = 0, scale, bound[8];

#pragma unroll
	for (int i = 0; i < 4; i++) {
		const uint32_t size = bits[i] & 0x7FFFFFFF;

		amax = max(amax, size > INFINITY_BITS ? 0 : size);
	}
	scale = scale_of_block(quad_max(amax), global, zero_scale);
	set_bounds((double)e4m3_to_f32(scale) * (double)global, bound);
#pragma unroll
	for (int i = 0; i < 4; i++)
		codes |= encode(bits[i], bound) << 4 * i;
	*(uint16_t *)(q.codes + row * q.row_stride + group * 8 + 2 * t) =
	    (uint16_t)codes;
	if (t == 0)
		q.scales[row * q.scale_row_stride + group] = (uint8_t)scale;
}

/* Quantises a block that one lane has. */
DEVICE void store_block(const struct nib_quantize_nvfp4 &q, int64_t row, int64_t group,
			const uint32_t bits[16], float global, uint32_t zero_scale)
{
	uint32_t codes[2] = {0, 0}, amax;
	const uint32_t worst = worst_of(bits, &amax);
	const uint32_t scale =
	    encode_block(bits, amax, worst, global, zero_scale, codes);

	store_codes(q, {0, row, group, NULL, false}, codes[0], codes[1]);
	q.scales[row * q.scale_row_stride + group] = (uint8_t)scale;
}

/* Loads N values. */
template <int N>
DEVICE void load_floats(const float *from, float (&x)[N])
{
#pragma unroll
	for (int i = 0; i < N / 4; i++) {
		const float4 v = ((const float4 *)from)[i];

		x[4 * i] = v.x, x[4 * i + 1] = v.y;
		x[4 * i + 2] = v.z, x[4 * i + 3] = v.w;
	}
}

template <int N>
DEVICE void store_rounded(const struct nib_quantize_dense &y, int64_t index,
			  uint32_t (&bits)[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		bits[i] = round_to(__uint_as_float(bits[i]), y.dtype);
	if constexpr (N == 16)
		store_16(y, index, bits);
	else if (y.dtype == 0)
		*(uint4 *)((uint32_t *)y.data + index) =
		    make_uint4(bits[0], bits[1], bits[2], bits[3]);
	else
		*(uint2 *)((uint16_t *)y.data + index) =
		    make_uint2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
}

/* The lane's values of a block of h, which LANES lanes have together. */
template <int LANES>
DEVICE void activate_values(const struct nib_moe_activate_params &p, int64_t row,
			    int64_t group, float global)
{
	const int n = 16 / LANES;
	const int64_t index = (row * p.groups + group) * 16 + threadIdx.x % LANES * n;
	float g[n], u[n] = {};
	uint32_t bits[n];

	load_floats(p.gate + index, g);
	if (p.up)
		load_floats(p.up + index, u);
#pragma unroll
	for (int i = 0; i < n; i++)
		bits[i] = __float_as_uint(activate_one(p, g[i], u[i]));
	if (!p.q.codes)
		store_rounded(p.dense, index, bits);
	else if constexpr (LANES == 1)
		store_block(p.q, row, group, bits, global, p.zero_scale);
	else
		store_quarter(p.q, row, group, bits, global, p.zero_scale);
}

template <int LANES>
DEVICE void activate(const struct nib_moe_activate_params &p)
{
	const uint64_t stride = (uint64_t)gridDim.x * NIB_MOE_THREADS / LANES;
	uint64_t i = ((uint64_t)blockIdx.x * NIB_MOE_THREADS + threadIdx.x) / LANES;
	uint64_t all;
	float global = 1;

	griddepcontrol_launch_dependents();
	griddepcontrol_wait();
	if (p.q.codes)
		global = *p.global;
	all = (uint64_t)min((int64_t)*p.rows, p.most_rows) * p.groups;
	for (; i < all; i += stride) {
		const uint64_t row = divide(i, p.groups);

		activate_values<LANES>(p, row, i - row * p.groups, global);
	}
}

/* Three CTAs an SM: 80 registers, none spilled. */
extern "C" __global__ void __launch_bounds__(NIB_MOE_THREADS, 3)
    NIB_KERNEL(moe_activate)(const __grid_constant__ struct nib_moe_activate_params p)
{
	activate<1>(p);
}

/* For few blocks: four lanes have a block, because the latency of 16 values in one lane
 * would dominate. */
extern "C" __global__ void __launch_bounds__(NIB_MOE_THREADS) NIB_KERNEL(
    moe_activate_few)(const __grid_constant__ struct nib_moe_activate_params p)
{
	activate<4>(p);
}

/* ---- A by token ---------------------------------------------------------- */

/* N (1 or 4) values of a dtype as floats. */
template <int N>
DEVICE void load_row(const void *rows, int64_t index, int dtype, float x[N])
{
	uint32_t bits[N];

	if (dtype == 0 && N == 4) {
		*(uint4 *)bits = *(const uint4 *)((const float *)rows + index);
	} else if (dtype == 0) {
		bits[0] = ((const uint32_t *)rows)[index];
	} else if (N == 4) {
		const uint2 v = *(const uint2 *)((const uint16_t *)rows + index);

		bits[0] = widen(v.x & 0xFFFF, dtype);
		bits[1 % N] = widen(v.x >> 16, dtype);
		bits[2 % N] = widen(v.y & 0xFFFF, dtype);
		bits[3 % N] = widen(v.y >> 16, dtype);
	} else {
		bits[0] = widen(((const uint16_t *)rows)[index], dtype);
	}
#pragma unroll
	for (int i = 0; i < N; i++)
		x[i] = __uint_as_float(bits[i]);
}

/*
 * A quad has a block.  Lets the next kernel begin only when the kernels before this one
 * have ended, because it reads their results before it waits for this one
 * (gemv_experts.cuh).
 */
extern "C" __global__ void __launch_bounds__(NIB_MOE_THREADS)
    NIB_KERNEL(moe_quantize)(const __grid_constant__ struct nib_moe_quantize_params p)
{
	const uint64_t pieces = (uint64_t)p.q.groups * 4;
	const uint64_t i = (uint64_t)blockIdx.x * NIB_MOE_THREADS + threadIdx.x;
	const uint64_t row = divide(i, pieces), piece = i - row * pieces;
	const int64_t at = row * p.x.row_stride + piece * 4;
	uint32_t bits[4];
	float x[4];

	griddepcontrol_wait();
	griddepcontrol_launch_dependents();
	if (row >= (uint64_t)p.x.rows)
		return;
	if (p.x.is_aligned)
		load_row<4>(p.x.data, at, p.x.dtype, x);
	else
		for (int j = 0; j < 4; j++)
			load_row<1>(p.x.data, at + j, p.x.dtype, x + j);
#pragma unroll
	for (int j = 0; j < 4; j++)
		bits[j] = __float_as_uint(x[j]);
	store_quarter(p.q, row, piece / 4, bits, *p.global, p.zero_scale);
}

/* ---- the sum of slots ---------------------------------------------------- */

/* Columns of y as they are stored: 16 bytes, or one of them. */
template <int DTYPE, bool IS_ONE>
struct columns {
	static constexpr int N = IS_ONE ? 1 : DTYPE == 0 ? 4 : 8;
	static constexpr int BYTES = DTYPE == 0 ? 4 : 2;
	uint4 words;

	__device__ __forceinline__ void load(const void *from, int64_t index)
	{
		const char *at = (const char *)from + index * BYTES;

		if constexpr (!IS_ONE)
			words = *(const uint4 *)at;
		else if constexpr (DTYPE == 0)
			words.x = *(const uint32_t *)at;
		else
			words.x = *(const uint16_t *)at;
	}
	__device__ __forceinline__ void store(void *to, int64_t index) const
	{
		char *at = (char *)to + index * BYTES;

		if constexpr (!IS_ONE)
			*(uint4 *)at = words;
		else if constexpr (DTYPE == 0)
			*(uint32_t *)at = words.x;
		else
			*(uint16_t *)at = (uint16_t)words.x;
	}
	__device__ __forceinline__ float value(int i) const
	{
		const uint32_t w[4] = {words.x, words.y, words.z, words.w};

		if constexpr (DTYPE == 0)
			return __uint_as_float(w[i]);
		else
			return __uint_as_float(
			    widen(i % 2 ? w[i / 2] >> 16 : w[i / 2] & 0xFFFF, DTYPE));
	}
	__device__ __forceinline__ void set(const float (&x)[N])
	{
		uint32_t w[4] = {};

#pragma unroll
		for (int i = 0; i < N; i++)
			if constexpr (DTYPE == 0)
				w[i] = __float_as_uint(x[i]);
			else
				w[i / 2] |= round_to(x[i], DTYPE) << i % 2 * 16;
		words = make_uint4(w[0], w[1], w[2], w[3]);
	}
};

/* The columns from col on of a token.  Requests the columns of SLOTS_AT_ONCE slots
 * before it adds the first. */
template <class COLUMNS>
DEVICE void combine_piece(const struct nib_moe_combine_params &p, int64_t token,
			  int64_t col)
{
	float sums[COLUMNS::N] = {};
	COLUMNS y;

	for (int64_t first = 0; first < p.top_k; first += SLOTS_AT_ONCE) {
		const int64_t slot = token * p.top_k + first;
		COLUMNS x[SLOTS_AT_ONCE];
		float weights[SLOTS_AT_ONCE];
		int64_t rows[SLOTS_AT_ONCE];

#pragma unroll
		for (int j = 0; j < SLOTS_AT_ONCE; j++) {
			const bool is_slot = first + j < p.top_k;

			rows[j] = is_slot ? p.slot_rows[slot + j] : -1;
			weights[j] = is_slot ? p.weights[slot + j] : 0;
		}
#pragma unroll
		for (int j = 0; j < SLOTS_AT_ONCE; j++)
			if (rows[j] >= 0)
				x[j].load(p.rows, rows[j] * p.y.cols + col);
#pragma unroll
		for (int j = 0; j < SLOTS_AT_ONCE; j++)
#pragma unroll
			for (int i = 0; i < COLUMNS::N; i++)
				if (rows[j] >= 0)
					sums[i] = __fadd_rn(
					    sums[i],
					    __fmul_rn(weights[j], x[j].value(i)));
	}
	y.set(sums);
	y.store(p.y.data, token * p.y.row_stride + col);
}

template <class COLUMNS>
DEVICE void combine_columns(const struct nib_moe_combine_params &p)
{
	const uint64_t pieces = p.y.cols / COLUMNS::N;
	const uint64_t stride = (uint64_t)gridDim.x * NIB_MOE_THREADS;
	uint64_t i = (uint64_t)blockIdx.x * NIB_MOE_THREADS + threadIdx.x;

	for (; i < pieces * p.y.rows; i += stride) {
		const uint64_t token = divide(i, pieces);

		combine_piece<COLUMNS>(p, token, (i - token * pieces) * COLUMNS::N);
	}
}

template <bool IS_ONE>
DEVICE void combine(const struct nib_moe_combine_params &p)
{
	if (p.y.dtype == 0)
		combine_columns<columns<0, IS_ONE>>(p);
	else if (p.y.dtype == 1)
		combine_columns<columns<1, IS_ONE>>(p);
	else
		combine_columns<columns<2, IS_ONE>>(p);
}

extern "C" __global__ void __launch_bounds__(NIB_MOE_THREADS)
    NIB_KERNEL(moe_combine)(const __grid_constant__ struct nib_moe_combine_params p)
{
	griddepcontrol_launch_dependents();
	griddepcontrol_wait();
	if (p.y.is_aligned)
		combine<false>(p);
	else
		combine<true>(p);
}

#endif
