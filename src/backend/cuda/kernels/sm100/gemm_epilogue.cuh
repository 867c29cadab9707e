/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_epilogue.cuh - from accumulators in tensor memory to c: the split-k
 * reduction, alpha, SiLU, one rounding.
 *
 * A lane of tensor memory is a row of B, which is a column of c, and a column of tensor
 * memory is a row of A:
 *
 *                     tensor memory column = row of A
 *   lane 0 .. 31      warp 0   | stored as 32 neighbouring elements of each row of c:
 *   lane 32 .. 63     warp 1   | 64 bytes of 16-bit results, 128 bytes of fp32; no
 *   lane 64 .. 95     warp 2   | transposition
 *   lane 96 .. 127    warp 3   |
 */
#ifndef NIB_SM100_EPILOGUE_CUH
#define NIB_SM100_EPILOGUE_CUH

#include "backend/cuda/kernels/common/silu.cuh"
#include "gemm_shared.cuh"

/* Rows of A that a warp stores at a time; with split-k. */
#define CHUNK	    32
#define SPLIT_CHUNK 16

/* What an epilogue thread needs of a tile. */
struct output {
	char *c; /* the thread's column of c, in the tile's first row */
	int64_t stride_bytes;
	int32_t valid; /* rows of A; 0: the column is outside c */
	int32_t dtype;
	float alpha, alpha2;
	/* Tensor memory: the thread's lane, first accumulator; and B2's. */
	uint32_t d, d2;
	bool is_zero; /* k is 0 */
	bool is_last; /* no tile follows */
};

DEVICE uint32_t lane_of_thread(void)
{
	return threadIdx.x % 32;
}

/* The thread's row of B of a tile, which is its lane of tensor memory. */
DEVICE uint32_t b_row_of_thread(void)
{
	return threadIdx.x % NIB_TILE_N;
}

/* The set of epilogue warps of this one: sets take chunks of rows of A in turn. */
DEVICE int32_t set_of_warp(void)
{
	return (int32_t)threadIdx.x / NIB_TILE_N;
}

DEVICE struct output output_of(const struct nib_sm100_args *args,
			       const struct tile_desc *tile, uint32_t accumulators)
{
	const int32_t row = (int32_t)b_row_of_thread();
	const int32_t bytes = args->dtype == 0 ? 4 : 2;
	struct output o;

	o.c = tile->c + row * bytes;
	o.stride_bytes = tile->c_stride_elems * bytes;
	o.valid = row < tile->rows_left ? tile->valid : 0;
	o.dtype = args->dtype;
	o.alpha = tile->is_nan ? NAN : tile->alpha ? __ldg(tile->alpha) : 1.0f;
	o.alpha2 = tile->alpha2 ? __ldg(tile->alpha2) : 1.0f;
	o.d = accumulators + (b_row_of_thread() / 32 << 21);
	o.d2 = o.d + tile->n;
	o.is_zero = tile->stages == 0;
	return o;
}

/* ---- results ------------------------------------------------------------- */

/* Accumulators of rows of A to results, in place. */
template <bool DUAL, int ROWS>
DEVICE void finish(const struct output *o, uint32_t *d, const uint32_t *d2)
{
#pragma unroll
	for (int i = 0; i < ROWS; i++) {
		float x = __uint_as_float(d[i]) * o->alpha;

		if (DUAL)
			x = silu(x) * (__uint_as_float(d2[i]) * o->alpha2);
		d[i] = __float_as_uint(x);
	}
}

/* x, rounded to the type of c, in the low bits. */
template <int DTYPE>
DEVICE uint32_t round_to(uint32_t x)
{
	if (DTYPE == 1)
		return cvt_f16x2_f32(__uint_as_float(x), 0);
	return cvt_bf16x2_f32(__uint_as_float(x), 0);
}

template <int DTYPE>
DEVICE void store_one(char *to, uint32_t x)
{
	if (DTYPE == 0)
		st_global_u32(to, x);
	else
		st_global_u16(to, round_to<DTYPE>(x));
}

template <int DTYPE, int ROWS>
DEVICE void store_as(const struct output *o, int32_t row, const uint32_t *v)
{
	char *to = o->c + row * o->stride_bytes;

	if (row + ROWS <= o->valid) {
#pragma unroll
		for (int i = 0; i < ROWS; i++, to += o->stride_bytes)
			store_one<DTYPE>(to, v[i]);
		return;
	}
#pragma unroll
	for (int i = 0; i < ROWS; i++, to += o->stride_bytes)
		if (row + i < o->valid)
			store_one<DTYPE>(to, v[i]);
}

template <int ROWS>
DEVICE void store(const struct output *o, int32_t row, const uint32_t *v)
{
	if (o->dtype == 0)
		store_as<0, ROWS>(o, row, v);
	else if (o->dtype == 1)
		store_as<1, ROWS>(o, row, v);
	else
		store_as<2, ROWS>(o, row, v);
}

/* ---- whole tiles --------------------------------------------------------- */

template <int ROWS>
DEVICE void load_columns(uint32_t *d, uint32_t from)
{
	if (ROWS == 32)
		tcgen05_ld_32(d, from);
	else
		tcgen05_ld_16(d, from);
}

/* Reads the accumulators from row `row` of A on; zeros if k is 0, when nothing has
 * written them. */
template <bool DUAL, int ROWS>
DEVICE void read(const struct output *o, int32_t row, uint32_t *d, uint32_t *d2)
{
	if (o->is_zero) {
#pragma unroll
		for (int i = 0; i < ROWS; i++)
			d[i] = d2[DUAL ? i : 0] = 0;
		return;
	}
	load_columns<ROWS>(d, o->d + row);
	if (DUAL)
		load_columns<ROWS>(d2, o->d2 + row);
	tcgen05_wait_ld();
}

/* Releases accumulators to the next tile's multiplications. */
DEVICE void arrive_drained(uint32_t bar)
{
	tcgen05_fence_before();
	__syncwarp();
	if (lane_of_thread() == 0)
		mbarrier_arrive(bar);
}

/*
 * The warp has read all accumulators of its last tile, so the cluster may end.  The
 * release waits for the warp's earlier stores, but not for those that follow.
 */
DEVICE void leave_cluster(void)
{
	tcgen05_fence_before();
	__syncwarp();
	cluster_arrive_release();
}

/* True if `last` is one of from .. next - 1. */
DEVICE bool has_passed(int32_t last, int32_t from, int32_t next)
{
	return from <= last && last < next;
}

/*
 * The multiply warp of a pair's second CTA, one thread: forwards drained to the leader.
 * The epilogue warps do not, because their release to the cluster would wait for the
 * stores to c.
 */
DEVICE void forward_drained(const struct shared100 *shared)
{
	struct ring tiles = {0, 0};

	for (uint32_t t = 0;; t++, advance(&tiles, TILE_SLOTS)) {
		const uint32_t bar = smem_addr(shared->drained + t % 2);
		const int32_t n = await_tile(shared, &tiles)->n;

		release_tile(shared, &tiles);
		if (!n)
			return;
		wait(bar, t / 2 % 2);
		tcgen05_fence_after();
		tcgen05_fence_before();
		mbarrier_arrive_release_cluster(leader_addr<2>(bar));
	}
}

template <bool DUAL, int ROWS>
DEVICE void finish_rows(const struct output *o, int32_t row, uint32_t *d,
			const uint32_t *d2)
{
	finish<DUAL, ROWS>(o, d, d2);
	store<ROWS>(o, row, d);
}

/*
 * Stores a tile in chunks of rows of A, which the sets of warps take in turn.  The
 * chunks that the next tile's accumulators overlap come first: the last ones of even
 * tiles, the first ones of odd tiles.
 */
template <bool DUAL>
DEVICE void store_tile(const struct output *o, int32_t n, bool is_odd, int32_t early,
		       uint32_t drained)
{
	const int32_t chunks = (n + CHUNK - 1) / CHUNK;
	const int32_t last_early = min(chunks, (early + CHUNK - 1) / CHUNK) - 1;
	constexpr int32_t sets = roles<DUAL>::EPILOGUE_SETS;
	const int32_t set = set_of_warp();

	/* A set may have no chunk. */
	if (sets > 1 && has_passed(last_early, -1, set))
		arrive_drained(drained);
	if (sets > 1 && o->is_last && has_passed(chunks - 1, -1, set))
		leave_cluster();
#pragma unroll 1
	for (int32_t c = set; c < chunks; c += sets) {
		const int32_t row = (is_odd ? c : chunks - 1 - c) * CHUNK;
		const bool is_half = n - row < CHUNK;
		uint32_t d[CHUNK], d2[DUAL ? CHUNK : 1];

		if (is_half)
			read<DUAL, CHUNK / 2>(o, row, d, d2);
		else
			read<DUAL, CHUNK>(o, row, d, d2);
		if (has_passed(last_early, c, c + sets))
			arrive_drained(drained);
		if (o->is_last && has_passed(chunks - 1, c, c + sets))
			leave_cluster();
		if (is_half)
			finish_rows<DUAL, CHUNK / 2>(o, row, d, d2);
		else
			finish_rows<DUAL, CHUNK>(o, row, d, d2);
	}
}

/* ---- split-k ------------------------------------------------------------- */

/*
 * The slices of a tile are the CTAs (or pairs) of a cluster, and a cluster has one
 * tile.  Slice p finishes the p-th part of the rows of A.  Each CTA writes the
 * accumulators of the other parts into the ring of stages of the CTAs that finish them.
 * That memory is free when those CTAs have multiplied, so each slice commits its last
 * multiplication to the barriers of the whole cluster:
 *
 *   commit of all slices -> ready -> st.shared::cluster -> received
 *
 * Accumulators are added in the order of slices.
 */
struct exchange {
	uint32_t ring; /* of stages */
	uint32_t received;
	int32_t slices, slice, part; /* part: rows of A of a part */
};

template <int CTAS>
DEVICE uint32_t in_slice(uint32_t addr, int32_t slice)
{
	return mapa(addr, (uint32_t)slice * CTAS + rank_in_pair<CTAS>());
}

/* The address of four rows of A from `row` of the part on, sent by slice `from`, for
 * the thread's row of B; matrix: 0 for B, 1 for B2. */
template <bool DUAL>
DEVICE uint32_t slot_of(const struct exchange *x, int32_t from, int32_t matrix,
			int32_t row)
{
	const int32_t sender = from - (from > x->slice);
	const int32_t block = ((sender * (DUAL ? 2 : 1) + matrix) * x->part + row) / 4;

	return x->ring + (block * NIB_TILE_N + b_row_of_thread()) * 16;
}

template <int CTAS>
DEVICE void arrive_at_others(const struct exchange *x, uint32_t bar)
{
	__syncwarp();
	if (lane_of_thread() == 0)
#pragma unroll 1
		for (int32_t s = 0; s < x->slices; s++)
			if (s != x->slice)
				mbarrier_arrive_release_cluster(in_slice<CTAS>(bar, s));
}

/* Sends a chunk of rows of A, from `row` of part `to` on, to the slice that finishes
 * it. */
template <bool DUAL, int CTAS>
DEVICE void send(const struct exchange *x, const struct output *o, int32_t to,
		 int32_t row)
{
	struct exchange theirs = *x;
	uint32_t d[2][SPLIT_CHUNK];

	theirs.slice = to;
	theirs.ring = in_slice<CTAS>(x->ring, to);
	read<DUAL, SPLIT_CHUNK>(o, to * x->part + row, d[0], d[1]);
#pragma unroll
	for (int matrix = 0; matrix < (DUAL ? 2 : 1); matrix++)
#pragma unroll
		for (int i = 0; i < SPLIT_CHUNK; i += 4)
			st_cluster_f32x4(
			    slot_of<DUAL>(&theirs, x->slice, matrix, row + i),
			    (const float *)d[matrix] + i);
}

/* d = the sum over all slices, in their order, for a chunk of rows of A of B or B2. */
template <bool DUAL>
DEVICE void add_slices(const struct exchange *x, int32_t matrix, int32_t row,
		       uint32_t *d)
{
	float sum[SPLIT_CHUNK];

#pragma unroll
	for (int i = 0; i < SPLIT_CHUNK; i++)
		sum[i] = -0.0f; /* adds nothing, not even a sign */
#pragma unroll 1
	for (int32_t s = 0; s < x->slices; s++) {
		float other[SPLIT_CHUNK];

#pragma unroll
		for (int i = 0; i < SPLIT_CHUNK; i++)
			other[i] = __uint_as_float(d[i]);
#pragma unroll
		for (int i = 0; i < SPLIT_CHUNK && s != x->slice; i += 4)
			lds_f32x4(slot_of<DUAL>(x, s, matrix, row + i), other + i);
#pragma unroll
		for (int i = 0; i < SPLIT_CHUNK; i++)
			sum[i] += other[i];
	}
#pragma unroll
	for (int i = 0; i < SPLIT_CHUNK; i++)
		d[i] = __float_as_uint(sum[i]);
}

/* The rows of A of part p that are in the tile. */
DEVICE int32_t part_rows(const struct exchange *x, int32_t p, int32_t n)
{
	return min(x->part, n - p * x->part);
}

template <bool DUAL, int CTAS>
DEVICE void reduce_and_store(const struct exchange *x, const struct output *o,
			     int32_t n)
{
	constexpr int32_t step = SPLIT_CHUNK * roles<DUAL>::EPILOGUE_SETS;
	const int32_t first = SPLIT_CHUNK * set_of_warp();
	const int32_t mine = part_rows(x, x->slice, n);

#pragma unroll 1
	for (int32_t p = 0; p < x->slices; p++)
#pragma unroll 1
		for (int32_t row = first; p != x->slice && row < part_rows(x, p, n);
		     row += step)
			send<DUAL, CTAS>(x, o, p, row);
	arrive_at_others<CTAS>(x, x->received);
	wait_cluster(x->received, 0);
	if (first >= mine)
		leave_cluster();
#pragma unroll 1
	for (int32_t row = first; row < mine; row += step) {
		const int32_t at = x->slice * x->part + row;
		uint32_t d[SPLIT_CHUNK], d2[DUAL ? SPLIT_CHUNK : 1];

		read<DUAL, SPLIT_CHUNK>(o, at, d, d2);
		if (row + step >= mine)
			leave_cluster();
		add_slices<DUAL>(x, 0, row, d);
		if (DUAL)
			add_slices<DUAL>(x, 1, row, d2);
		finish_rows<DUAL, SPLIT_CHUNK>(o, at, d, d2);
	}
}

/* Waits for all slices of a tile of n rows of A, and stores this slice's part. */
template <bool DUAL, int CTAS>
DEVICE void store_part(const struct nib_sm100_args *args,
		       const struct shared100 *shared, uint32_t stages_at,
		       const struct output *o, int32_t n)
{
	const int32_t slices = args->k_slices;
	const struct exchange x = {stages_at, smem_addr(&shared->received), slices,
				   (int32_t)k_slice_of_cta<CTAS>(),
				   (n / 16 + slices - 1) / slices * 16};

	wait_cluster(smem_addr(&shared->ready), 0);
	tcgen05_fence_after();
	reduce_and_store<DUAL, CTAS>(&x, o, n);
}

/* ---- the role ------------------------------------------------------------ */

/*
 * Epilogue warps.  After its last tile a warp joins the barrier with which the cluster
 * ends, as soon as it has read the accumulators.
 */

template <bool DUAL, int CTAS>
DEVICE void store_tiles(const struct nib_sm100_args *args,
			const struct shared100 *shared, uint32_t stages_at,
			uint32_t tensor_memory)
{
	struct ring tiles = {0, 0};

	for (uint32_t t = 0;; t++, advance(&tiles, TILE_SLOTS)) {
		const struct tile_desc *tile = await_tile(shared, &tiles);
		const int32_t n = tile->n;
		const uint32_t d = tensor_memory + (t % 2 ? args->odd_column : 0);
		struct output o;

		if (!n) {
			leave_cluster();
			return;
		}
		o = output_of(args, tile, d);
		o.is_last = (int32_t)t + 1 == args->tile_rounds;
		__syncwarp();
		if (lane_of_thread() == 0)
			release_tile(shared, &tiles);
		if (args->k_slices > 1) {
			store_part<DUAL, CTAS>(args, shared, stages_at, &o, n);
		} else {
			wait(smem_addr(shared->summed + t % 2), t / 2 % 2);
			tcgen05_fence_after();
			store_tile<DUAL>(&o, n, t % 2, args->early,
					 smem_addr(shared->drained + t % 2));
		}
		if (o.is_last)
			return;
	}
}

#endif
