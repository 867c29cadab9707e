/* SPDX-License-Identifier: Apache-2.0 */
/*
 * skinny_wide.cuh - C[m, n] = alpha * A[m, k] * B[n, k]^T for 17 to 64 rows of A
 * in fp16, bf16 or NVFP4, which becomes fp16, and weights so few that starting
 * and ending costs more than reading them.  One launch: no kernel converts A
 * first, and no slice of k goes through global memory.
 *
 *   16 warps that multiply                        they, then 4 others
 *   B --cp.async--> ring of the warp              A --ld.global--> registers
 *     --lds--> codes * scales in A's type           --permute, sts--> chunk
 *     --wgmma--> sums  <------- chunk of A <--full--  |
 *                           |----------------empty--->|
 *   sums --sts--> shared --all warps, in order of k--> sums of the CTA
 *     --st.shared::cluster--> the CTA that finishes a row --> C
 *
 * A unit is four tiles of 16 rows of B, the 64 rows of a wgmma, and has as many
 * warps.  A cluster owns up to tiles_at_once / 4 neighbouring units; its CTAs cut
 * k into slices of steps of 256.  In a CTA a unit is multiplied by k_groups
 * warpgroups: group j takes the slice's steps number j, j + k_groups, ...  All
 * of them read the same chunks of A, 256 k of all rows each.
 *
 * Start: half of the ring of B is asked for, or nothing (EARLY_STAGES), then A, then
 * the rest.  All of B before A would keep A waiting: 7 % of the time.
 *
 * Chunks: atoms of eight rows of 64 k in the 128-byte swizzle of wgmma, 64 k
 * after the other.  The warps that multiply fill the first NIB_WIDE_CHUNKS of them
 * and meet; often these are all, and no warp waits for another until its sums are
 * ready.  Four warps bring the ones behind them.
 *
 * Barriers: full[chunk], one arrival of each lane that brings, from a space's
 * second chunk on; empty[chunk], one of each warp of the group that read it.
 * k_groups divides the number of chunks, so that all chunks of a space belong to
 * one group.  The cluster's barrier: all CTAs have begun; all sums are there.
 *
 * Arithmetic: as skinny.cuh; a wgmma step adds 4 k of four neighbouring blocks.
 * Order of the sum of a row: a group's steps one after the other, then the
 * groups, then the slices.  It depends on n, k and the GPU's multiprocessors.
 *
 * Shared memory (skinny_params.h): rings of B, chunks of 16 or 32 KiB, in which
 * the sums lie later, the sums of the other CTAs, barriers.  One CTA on an SM,
 * at most 96 registers.
 */
#ifndef NIB_SKINNY_WIDE_CUH
#define NIB_SKINNY_WIDE_CUH

#include "skinny.cuh"

/* What the variants differ in. */
template <int EIGHTS_, enum b_kind B_, enum a_type TYPE_>
struct wide {
	static const int EIGHTS = EIGHTS_, M = 8 * EIGHTS_;
	static const bool ALIGNED = B_ != B_ANY, IS_MOE = false;
	static const bool IS_NVFP4 = TYPE_ == A_NVFP4, IS_BF16 = TYPE_ == A_BF16;
	static const int STAGES = NIB_WIDE_STAGES;
	/*
	 * Stages of B that are asked for before A, which comes behind them: 64 rows
	 * of 16-bit values are more than B, and come first.
	 */
	static const int EARLY_STAGES =
	    ALIGNED && EIGHTS_ == 8 && TYPE_ != A_NVFP4 ? 0 : 1;
	static const int CHUNKS = NIB_WIDE_CHUNKS(EIGHTS_);
	static const int CHUNK_BYTES = NIB_SKINNY_CHUNK_BYTES(EIGHTS_);
	/* Offsets in shared memory. */
	static const int CHUNKS_AT = NIB_SKINNY_WARPS * STAGES * NIB_GEMV_STAGE_BYTES;
	static const int SUMS_AT = CHUNKS_AT;
	static const int EXCHANGE_AT = CHUNKS_AT + CHUNKS * CHUNK_BYTES;
	static const int BARRIERS_AT = EXCHANGE_AT + NIB_WIDE_EXCHANGE_BYTES;
	/* Sums of a warp: rows of A, a little apart for the banks. */
	static const int SUMS_PITCH = NIB_GEMV_TILE_ROWS + 4;
	static const int SUMS = M * SUMS_PITCH + 16;
	static_assert(NIB_SKINNY_WARPS * SUMS * 4 <= CHUNKS * CHUNK_BYTES,
		      "space for the sums");
	static_assert(CHUNKS_AT % 1024 == 0, "atoms are swizzled");
};

/* What all warps of a CTA know. */
struct wide_cta {
	uint32_t shared;
	int tile, tiles; /* its cluster's */
	int begin, end;	 /* its steps of k */
	int rank;
	int tile_bits; /* tiles_at_once is this power of two */
};

DEVICE struct wide_cta begin_wide(const struct nib_skinny_params &q,
				  const uint8_t *bytes)
{
	const int steps = all_steps(q.p), rank = (int)cluster_ctarank();
	const int tile = (int)clusterid_x() * q.tiles_at_once;
	/* The second of two slices may have a step more. */
	const int half = q.k_slices == 1 ? steps : steps / 2;

	return {smem_addr(bytes),
		tile,
		min(q.tiles_at_once, (q.p.tiles - tile + 3) / 4 * 4),
		rank ? half : 0,
		rank ? steps : half,
		rank,
		31 - __clz(q.tiles_at_once)};
}

/* The warp's tile among its cluster's, and its group of the CTA's steps. */
DEVICE int own_tile(const struct nib_skinny_params &q)
{
	return threadIdx.x / 32 & (q.tiles_at_once - 1);
}

DEVICE int own_group(const struct wide_cta &c)
{
	return threadIdx.x / 32 >> c.tile_bits;
}

/* ---- rings of B ---------------------------------------------------------- */

/* Loads a warp's step into a stage of its ring. */
template <class V>
DEVICE void load_wide(const struct nib_skinny_params &q,
		      const struct nib_gemv_operand &b, const struct wide_cta &c,
		      const struct source &from, int step, int stage)
{
	const int warp = threadIdx.x / 32;
	const uint32_t to =
	    c.shared + (warp * V::STAGES + stage) * NIB_GEMV_STAGE_BYTES;
	const uint32_t scales = to + CODES_BYTES + threadIdx.x % 32 * 16;

	if (step < c.end && V::ALIGNED)
		load_aligned_step(b, from, to + piece_target(), scales, step);
	else if (step < c.end)
		load_any_step(b, from, to + piece_target(), scales, step);
	cp_async_commit_group();
}

/* A warp's first steps, number first to end - 1 of its own. */
template <class V>
DEVICE void load_first(const struct nib_skinny_params &q,
		       const struct nib_gemv_operand &b, const struct wide_cta &c,
		       int first, int end)
{
	const struct source from = source_of(q.p, b, c.tile + own_tile(q));

#pragma unroll
	for (int i = first; i < end; i++)
		load_wide<V>(q, b, c, from, c.begin + own_group(c) + i * q.k_groups, i);
}

/* ---- chunks of A --------------------------------------------------------- */

/*
 * A lane's 16 values, a block of a row: its elements; or of NVFP4 eight bytes of
 * codes and the scale.
 */
template <class V>
struct block_of_a {
	uint32_t word[V::IS_NVFP4 ? 3 : 8];
};

/*
 * A lane's blocks of a row, each 64 k behind the one before: the place of the
 * first, and how many there are.  Rows that are not there have none.
 */
struct row_of_a {
	const uint8_t *values, *scales;
	int scale_step, count;
};

template <class V>
DEVICE struct row_of_a row_of(const struct nib_gemv_params &p,
			      const struct nib_gemv_operand &a, int row, int first)
{
	const int block = first * 4 + threadIdx.x % 4;
	struct row_of_a r;

	/* k is a multiple of 16. */
	r.count = row < p.m ? (p.k / 16 - block + 3) / 4 : 0;
	r.values =
	    a.codes + row * a.row_stride + (int64_t)block * (V::IS_NVFP4 ? 8 : 32);
	/* A has less than 128 rows. */
	r.scales = a.scales + (a.is_tiled ? (int64_t)first * 512 + row % 32 * 16 +
						row / 32 * 4 + threadIdx.x % 4
					  : row * a.scale_row_stride + block);
	r.scale_step = a.is_tiled ? 512 : 4;
	return r;
}

/* A block of rows that are not in pieces of 16 bytes. */
template <class V>
DEVICE struct block_of_a<V> load_any_block(const struct row_of_a &r, int i) {
	const uint8_t *from = r.values + i * (V::IS_NVFP4 ? 32 : 128);
	struct block_of_a<V> x;

	if constexpr (V::IS_NVFP4) {
		x.word[0] = load_bytes(from);
		x.word[1] = load_bytes(from + 4);
		x.word[2] = r.scales[i * r.scale_step];
	} else {
#pragma unroll
		for (int j = 0; j < 2; j++) {
			const uint4 y = load_elements(from + j * 16);

			x.word[4 * j] = y.x, x.word[4 * j + 1] = y.y;
			x.word[4 * j + 2] = y.z, x.word[4 * j + 3] = y.w;
		}
	}
	return x;
}

/* Block number i, if it is there; else zeros. */
template <class V>
DEVICE struct block_of_a<V> load_block(const struct row_of_a &r, int i, bool is_there) {
	const uint8_t *from = r.values + i * (V::IS_NVFP4 ? 32 : 128);
	struct block_of_a<V> x = {
	};

	if constexpr (!V::ALIGNED) {
		if (is_there)
			x = load_any_block<V>(r, i);
	} else if constexpr (V::IS_NVFP4) {
		const uint2 codes = ldg_64_if(from, is_there);

		x.word[0] = codes.x, x.word[1] = codes.y;
		x.word[2] = ldg_u8_if(r.scales + i * r.scale_step, is_there);
	} else {
#pragma unroll
		for (int j = 0; j < 2; j++) {
			const uint4 y = ldg_128_if(from + j * 16, is_there);

			x.word[4 * j] = y.x, x.word[4 * j + 1] = y.y;
			x.word[4 * j + 2] = y.z, x.word[4 * j + 3] = y.w;
		}
	}
	return x;
}

/* A block in the order in which decode() gives codes: word i is of wgmma i / 2. */
template <class V>
DEVICE void order_block(const struct block_of_a<V> &x, uint32_t (&w)[8])
{
	if constexpr (V::IS_NVFP4) {
		uint32_t s[2];

		widen_scales<false>(x.word[2], s);
		s[0] = mul_f16x2(s[0], F16_64);
		decode<false>(x.word[0], s[0], w);
		decode<false>(x.word[1], s[0], w + 4);
	} else {
#pragma unroll
		for (int i = 0; i < 8; i += 4) {
			const uint4 y = in_order_of_codes<V::IS_BF16>(make_uint4(
			    x.word[i], x.word[i + 1], x.word[i + 2], x.word[i + 3]));

			w[i] = y.x, w[i + 1] = y.y;
			w[i + 2] = y.z, w[i + 3] = y.w;
		}
	}
}

/*
 * COUNT atoms of the same rows, each BY * 64 k behind the one before, into the
 * chunks at `to`, of which they are from number `first` on; up to number `end`.
 * Piece i of 16 bytes of a row has word i of the four blocks, at the place of
 * piece i ^ row % 8.
 */
template <class V, int COUNT, int BY>
DEVICE void load_atoms(const struct row_of_a &r, int first, int end,
		       struct block_of_a<V> *x)
{
	const int count = min(r.count, end - first);

#pragma unroll
	for (int i = 0; i < COUNT; i++)
		x[i] = load_block<V>(r, i * BY, i * BY < count);
}

template <class V, int COUNT, int BY>
DEVICE void store_atoms(uint32_t to, int eight, int first, int end,
			const struct block_of_a<V> *x)
{
	const int row = threadIdx.x % 8, piece = threadIdx.x % 32 / 8;
	/* Pieces 4 to 7 are 64 bytes from pieces 0 to 3. */
	const uint32_t low =
	    to + (first * V::EIGHTS + eight) * 1024 + row * 128 + (piece ^ row) * 16;
	const uint32_t high = low ^ 64;

#pragma unroll
	for (int i = 0; i < COUNT; i++) {
		const uint32_t at = i * BY * V::EIGHTS * 1024;
		uint32_t w[8];

		if (first + i * BY >= end)
			break;
		order_block<V>(x[i], w);
		stmatrix_x4(low + at, w[0], w[1], w[2], w[3]);
		stmatrix_x4(high + at, w[4], w[5], w[6], w[7]);
	}
}

/*
 * The warps that multiply, and then meet: as many chunks as there is space for.
 * A warp has eight rows of A.  The rest of its first stages of B follows.
 */
template <class V>
DEVICE void fill_chunks(const struct nib_skinny_params &q,
			const struct nib_gemv_operand &a,
			const struct nib_gemv_operand &b, const struct wide_cta &c)
{
	const int by = NIB_SKINNY_WARPS / V::EIGHTS;
	const int warp = threadIdx.x / 32, eight = warp % V::EIGHTS;
	const int first = warp / V::EIGHTS;
	const int end = min(c.end - c.begin, V::CHUNKS) * 4;
	const struct row_of_a r =
	    row_of<V>(q.p, a, eight * 8 + threadIdx.x % 32 / 4, c.begin * 4 + first);
	struct block_of_a<V> x[V::CHUNKS * 4 / by];

	load_atoms<V, V::CHUNKS * 4 / by, by>(r, first, end, x);
	if (own_tile(q) < c.tiles)
		load_first<V>(q, b, c, V::EARLY_STAGES, V::STAGES);
	store_atoms<V, V::CHUNKS * 4 / by, by>(c.shared + V::CHUNKS_AT, eight, first,
					       end, x);
	fence_proxy_async_shared();
}

/* The warps that bring: the chunks behind those, as many at a time as a lane has
 * registers for. */
template <class V>
DEVICE void bring_wide(const struct nib_skinny_params &q,
		       const struct nib_gemv_operand &a, const struct wide_cta &c)
{
	const int by = NIB_SKINNY_BRINGERS, count = V::EIGHTS / by;
	const int ahead = V::IS_NVFP4 && V::ALIGNED ? 2 : 1;
	const int end = c.end - c.begin;
	const int warp = threadIdx.x / 32 - NIB_SKINNY_WARPS;

#pragma unroll 1
	for (int i = V::CHUNKS; i < end; i += ahead) {
		struct block_of_a<V> x[count][4 * ahead];

#pragma unroll
		for (int j = 0; j < count; j++)
			load_atoms<V, 4 * ahead, 1>(
			    row_of<V>(q.p, a,
				      (warp + j * by) * 8 + threadIdx.x % 32 / 4,
				      (c.begin + i) * 4),
			    0, (end - i) * 4, x[j]);
#pragma unroll
		for (int h = 0; h < ahead; h++) {
			const int chunk = (i + h) % V::CHUNKS;

			if (i + h >= end)
				return;
			wait(empty<V>(c.shared, chunk), (i + h) / V::CHUNKS % 2 ^ 1);
#pragma unroll
			for (int j = 0; j < count; j++)
				store_atoms<V, 4, 1>(c.shared + V::CHUNKS_AT +
							 chunk * V::CHUNK_BYTES,
						     warp + j * by, 0, 4, x[j] + 4 * h);
			fence_proxy_async_shared();
			mbarrier_arrive(full<V>(c.shared, chunk));
		}
	}
}

/* ---- the multiplication -------------------------------------------------- */

/* k contiguous, 128-byte swizzle, 1024 bytes from eight rows to the next. */
DEVICE uint64_t atom_descriptor(uint32_t at)
{
	return pack_64(1u << 16 | at >> 4, 1u << 30 | 1024 >> 4);
}

template <class V>
DEVICE void wgmma(float (&d)[V::M / 2], const uint32_t (&a)[4], uint32_t at)
{
	if constexpr (V::IS_BF16)
		wgmma_bf16<V::M>(d, a, atom_descriptor(at), 1);
	else
		wgmma_f16<V::M>(d, a, atom_descriptor(at), 1);
}

/* What a lane knows all along about a stage. */
struct wide_view {
	uint32_t codes;	 /* of row g, the first 64 k */
	uint32_t scales; /* of row g, the first four blocks */
	uint32_t scale_stride, pick;
};

DEVICE struct wide_view wide_view_of(const struct nib_gemv_operand &b)
{
	const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
	struct wide_view v;

	v.codes = g * ROW_BYTES + g % 4 * 32 + t * 8;
	v.scales = CODES_BYTES + (b.is_tiled ? g / 4 * 64 + g % 4 * 4 : g * 16);
	v.scale_stride = b.is_tiled ? 16 : 4;
	v.pick = t | (t + 4) << 4;
	return v;
}

/*
 * Scales of rows g and g + 8 of 64 k number j, each twice in A's type.  left: the
 * row's blocks from there on; 0 behind the last.
 */
template <class V>
DEVICE void wide_scales(const struct wide_view &v, uint32_t stage, int left, int j,
			uint32_t (&s)[2])
{
	const uint32_t at = stage + v.scales + j * v.scale_stride;
	const uint32_t both = prmt(lds_32(at), lds_32(at + 8 * STEP_BLOCKS), v.pick);

	widen_scales<V::IS_BF16>(4 * j + (int)(threadIdx.x % 4) < left ? both : 0, s);
}

/* 64 k number j of the warp's 16 rows: the operands of four wgmma. */
template <class V>
DEVICE void decode_rows(const struct wide_view &v, uint32_t stage, int left, int j,
			uint32_t (&a)[4][4])
{
	/* Pairs of pieces of a row are swapped by the row's number. */
	const uint32_t codes = (stage + v.codes) ^ j * 32;
	uint32_t s[2];

	wide_scales<V>(v, stage, left, j, s);
#pragma unroll
	for (int r = 0; r < 2; r++) {
		uint32_t q[2], w[8];

		lds_64(codes + r * 8 * ROW_BYTES, &q[0], &q[1]);
		decode<V::IS_BF16>(q[0], s[r], w);
		decode<V::IS_BF16>(q[1], s[r], w + 4);
#pragma unroll
		for (int i = 0; i < 8; i++)
			a[i / 2][r + i % 2 * 2] = w[i];
	}
}

/* Adds a stage of B times a chunk of A: four groups of wgmma, of which one is
 * multiplied while the next one is decoded. */
template <class V>
DEVICE void multiply_wide(float (&acc)[V::M / 2], const struct wide_view &v,
			  uint32_t stage, uint32_t chunk, int left)
{
	uint32_t a[2][4][4];

	decode_rows<V>(v, stage, left, 0, a[0]);
#pragma unroll
	for (int j = 0; j < 4; j++) {
		wgmma_fence();
#pragma unroll
		for (int i = 0; i < 4; i++)
			wgmma<V>(acc, a[j % 2][i], chunk + j * V::M * 128 + i * 32);
		wgmma_commit();
		if (j == 3)
			break;
		wgmma_wait<1>();
		decode_rows<V>(v, stage, left, j + 1, a[(j + 1) % 2]);
	}
	wgmma_wait<0>();
}

/* A warp's steps; one without a unit only says that it has read A. */
template <class V>
DEVICE void run_steps(const struct nib_skinny_params &q,
		      const struct nib_gemv_operand &b, const struct wide_cta &c,
		      bool multiplies, float (&acc)[V::M / 2])
{
	const struct wide_view v = wide_view_of(b);
	const uint32_t ring =
	    c.shared + threadIdx.x / 32 * V::STAGES * NIB_GEMV_STAGE_BYTES;
	const uint32_t chunks = opaque(c.shared + V::CHUNKS_AT);
	const uint32_t bars = opaque(full<V>(c.shared, 0));
	int stage = 0;

#pragma unroll 1
	for (int i = own_group(c); i < c.end - c.begin; i += q.k_groups) {
		const int chunk = i % V::CHUNKS;

		if (multiplies)
			cp_async_wait_group<V::STAGES - 1>();
		__syncwarp();
		if (i >= V::CHUNKS)
			wait(bars + chunk * 16, i / V::CHUNKS % 2 ^ 1);
		if (multiplies)
			multiply_wide<V>(acc, v, ring + stage * NIB_GEMV_STAGE_BYTES,
					 chunks + chunk * V::CHUNK_BYTES,
					 q.p.k / 16 - (c.begin + i) * STEP_BLOCKS);
		__syncwarp();
		if (threadIdx.x % 32 == 0)
			mbarrier_arrive(bars + chunk * 16 + 8);
		/*
		 * Worked out again, as most warps have asked for their last step
		 * before they multiply the first, and registers are few.
		 */
		if (multiplies) {
			load_wide<V>(q, b, c, source_of(q.p, b, c.tile + own_tile(q)),
				     c.begin + i + V::STAGES * q.k_groups, stage);
			stage = stage + 1 == V::STAGES ? 0 : stage + 1;
		}
	}
}

/* ---- sums ---------------------------------------------------------------- */

template <class V>
DEVICE void store_wide_sums(float *sums, const float (&acc)[V::M / 2])
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int i = 0; i < V::M / 2; i++)
		sums[(i / 4 * 8 + 2 * t + i % 2) * V::SUMS_PITCH + g + i / 2 % 2 * 8] =
		    acc[i];
}

/*
 * Four sums, of neighbouring rows of a tile: sums number i of `rows` rows of A
 * from `row` on.  Lanes that are neighbours have rows that are neighbours in C.
 */
struct four_sums {
	int tile, at, m;
};

DEVICE struct four_sums four_number(int i, int row, int rows)
{
	return {i / (16 * rows) * 4 + i / 4 % 4, i % 4 * 4, row + i / 16 % rows};
}

/* What the CTA's groups add up to. */
template <class V>
DEVICE float4 add_groups(const struct nib_skinny_params &q, const float *sums,
			 const struct four_sums &s)
{
	const float *from = sums + s.tile * V::SUMS + s.m * V::SUMS_PITCH + s.at;
	float4 x = *(const float4 *)from;

	for (int j = 1; j < q.k_groups; j++) {
		const float4 y =
		    ((const float4 *)(from + j * q.tiles_at_once * V::SUMS))[0];

		x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
	}
	return x;
}

template <class V>
DEVICE void store_four(const struct nib_skinny_params &q, const struct wide_cta &c,
		       const struct four_sums &s, const float4 &x, float alpha)
{
	const float value[4] = {x.x, x.y, x.z, x.w};

#pragma unroll
	for (int i = 0; i < 4; i++) {
		const int64_t row =
		    nib_gemv_row(c.tile + s.tile, s.at + i, q.p.b.is_tiled);

		if (row < q.p.n)
			store(q.p, s.m * q.p.c_row_stride + row,
			      result<V::IS_BF16>(value[i], alpha));
	}
}

/* One slice: the sums are C. */
template <class V>
DEVICE void store_sums_of_cta(const struct nib_skinny_params &q,
			      const struct wide_cta &c, const float *sums, float alpha)
{
#pragma unroll 1
	for (int i = threadIdx.x; i < c.tiles * V::M * 4; i += NIB_SKINNY_WARPS * 32) {
		const struct four_sums s = four_number(i, 0, V::M);

		if (s.m < q.p.m)
			store_four<V>(q, c, s, add_groups<V>(q, sums, s), alpha);
	}
}

/*
 * Two slices: each CTA finishes half of the rows of A, and sends the sums of the
 * other half to the other CTA.
 */
template <class V>
DEVICE void store_sums_of_both(const struct nib_skinny_params &q,
			       const struct wide_cta &c, const float *sums, float alpha)
{
	const int rows = V::M / 2, most = rows / 16;
	const int count = c.tiles * rows * 4, step = NIB_SKINNY_WARPS * 32;
	const uint32_t exchange = c.shared + V::EXCHANGE_AT;
	const uint32_t other = mapa(exchange, c.rank ^ 1);
	float4 own[most];

#pragma unroll
	for (int j = 0; j < most; j++) {
		const int i = threadIdx.x + j * step;
		const struct four_sums s = four_number(i, (c.rank ^ 1) * rows, rows);

		if (i < count && s.m < q.p.m) {
			const uint32_t to = other + i * 16;
			const float4 x = add_groups<V>(q, sums, s);

			st_cluster_f32x4(to, &x.x);
		}
	}
	cluster_arrive_release();
#pragma unroll
	for (int j = 0; j < most; j++) {
		const int i = threadIdx.x + j * step;
		const struct four_sums s = four_number(i, c.rank * rows, rows);

		if (i < count && s.m < q.p.m)
			own[j] = add_groups<V>(q, sums, s);
	}
	cluster_wait();
#pragma unroll
	for (int j = 0; j < most; j++) {
		const int i = threadIdx.x + j * step;
		const struct four_sums s = four_number(i, c.rank * rows, rows);

		if (i < count && s.m < q.p.m) {
			const uint4 y = lds_128(exchange + i * 16);

			own[j].x += __uint_as_float(y.x);
			own[j].y += __uint_as_float(y.y);
			own[j].z += __uint_as_float(y.z);
			own[j].w += __uint_as_float(y.w);
			store_four<V>(q, c, s, own[j], alpha);
		}
	}
}

/* ---- the kernel ---------------------------------------------------------- */

template <class V>
DEVICE void multiply_all(const struct nib_skinny_params &q,
			 const struct nib_gemv_operand &b, const struct wide_cta &c,
			 float *sums)
{
	const int warp = threadIdx.x / 32;
	const bool multiplies = own_tile(q) < c.tiles;
	float acc[V::M / 2] = {}, alpha;

	run_steps<V>(q, b, c, multiplies, acc);
	/* Not before: registers are few.  It comes while the sums are added. */
	alpha = q.p.alpha ? *q.p.alpha : 1;
	/* The sums lie where the chunks did. */
	bar_sync(SUMS_BAR, NIB_SKINNY_WARPS * 32);
	if (multiplies)
		store_wide_sums<V>(sums + warp * V::SUMS, acc);
	bar_sync(SUMS_BAR, NIB_SKINNY_WARPS * 32);
	if (q.k_slices == 1) {
		store_sums_of_cta<V>(q, c, sums, alpha);
	} else {
		cluster_wait();
		store_sums_of_both<V>(q, c, sums, alpha);
	}
}

template <class V>
DEVICE void wide_gemm(const struct nib_skinny_params &q)
{
	extern __shared__ __align__(1024) uint8_t wide_bytes[];
	const struct wide_cta c = begin_wide(q, wide_bytes);
	const int warp = threadIdx.x / 32;

	griddepcontrol_launch_dependents();
	if (!q.p.b_is_constant)
		griddepcontrol_wait();
	if (q.k_slices > 1)
		cluster_arrive_relaxed();
	if (threadIdx.x < V::CHUNKS) {
		mbarrier_init(full<V>(c.shared, threadIdx.x), NIB_SKINNY_BRINGERS * 32);
		mbarrier_init(empty<V>(c.shared, threadIdx.x), q.tiles_at_once);
	}
	if (warp < NIB_SKINNY_WARPS && own_tile(q) < c.tiles)
		load_first<V>(q, q.p.b, c, 0, V::EARLY_STAGES);
	griddepcontrol_wait();
	if (warp < NIB_SKINNY_WARPS)
		fill_chunks<V>(q, q.p.a, q.p.b, c);
	__syncthreads();
	if (warp < NIB_SKINNY_WARPS) {
		multiply_all<V>(q, q.p.b, c, (float *)(wide_bytes + V::SUMS_AT));
		return;
	}
	bring_wide<V>(q, q.p.a, c);
	if (q.k_slices > 1) {
		cluster_wait();
		cluster_arrive_relaxed();
	}
}

#define WIDE(name, ...)                                                                \
	extern "C" __global__ void __launch_bounds__(NIB_SKINNY_THREADS, 1)            \
	    NIB_KERNEL(skinny_##name)(                                                 \
		const __grid_constant__ struct nib_skinny_params q)                    \
	{                                                                              \
		wide_gemm<wide<__VA_ARGS__>>(q);                                       \
	}

/* The kernels for a type of A. */
#define WIDE_KERNELS(type, suffix)                                                     \
	WIDE(32##suffix, 4, B_ALIGNED, type)                                           \
	WIDE(32_any##suffix, 4, B_ANY, type)                                           \
	WIDE(64##suffix, 8, B_ALIGNED, type)                                           \
	WIDE(64_any##suffix, 8, B_ANY, type)

#endif
