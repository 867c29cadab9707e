/* SPDX-License-Identifier: Apache-2.0 */
/*
 * skinny_wide.cuh - C[m, n] = alpha * A[m, k] * B[n, k]^T for 17 to 64 rows of A in
 * fp16, bf16 or NVFP4, which becomes fp16, and weights so small that starting and
 * ending the kernel costs more than reading them.  One launch: no kernel converts A
 * first, and no split-k slice goes through global memory.
 *
 *   16 consumer warps                            the consumers, then 4 producer warps
 *   B --cp.async--> ring of the warp             A --ld.global--> registers
 *     --lds--> codes * scales in A's type          --permute, stmatrix--> chunk
 *     --wgmma--> sums  <------- chunk of A <--full--|
 *                           |-------------empty---->|
 *   sums --sts--> shared --all consumers, in order of k--> sums of the CTA
 *     --st.shared::cluster--> the CTA that finishes a row --> C
 *
 *   warp      role                                registers  waits for
 *   0 .. 15   load A, then B; multiply, store     96         full, own cp.async,
 *                                                            SUMS_BAR, the cluster
 *   16 .. 19  load the later chunks of A          96         empty
 *
 * A unit is four tiles of 16 rows of B, the 64 rows of a wgmma, and has four warps.  A
 * cluster has up to tiles_at_once / 4 neighbouring units, and its one or two CTAs have
 * a slice of k each, cut at steps of k256.  In a CTA a unit is multiplied by k_groups
 * warpgroups: group j multiplies the slice's steps j, j + k_groups, ...  All of them
 * read the same chunks of A, k256 of all rows each.
 *
 * Start: half of the ring of B is requested or nothing (EARLY_STAGES), then A, then the
 * rest.  With all of B first A would arrive too late: 7 % of the time.
 *
 * A chunk of A consists of atoms, 8 rows of k64 in the 128-byte swizzle of wgmma.  Atom
 * (k64 j, n8 tile i) is at 1024 (j N_TILES + i), so that a k64 of all rows is
 * contiguous:
 *
 *   slot of 16 bytes    0  1  2  3  4  5  6  7     piece w: word w of the four blocks
 *   row 0               0  1  2  3  4  5  6  7     of the k64 (decode.cuh); so wgmma
 *   row 1               1  0  3  2  5  4  7  6     number i reads pieces 2i and 2i + 1
 *   row r               slot s has piece s ^ r
 *
 * The consumers fill the first CHUNKS chunks and meet.  Often these are all, and no
 * warp waits for another before its sums are ready.  The producers load the others.
 *
 *   barrier      arrivals of a phase                      first wait
 *   full         128: the lanes of the producer warps     consumers, from a slot's
 *                                                         second chunk on
 *   empty        tiles_at_once: the warps of a k group    producers, phase 0
 *   SUMS_BAR     bar.sync of the consumer warps, when chunks or sums may be overwritten
 *   the cluster  twice: all CTAs have begun; the sums of the other CTA have arrived
 *
 * k_groups divides CHUNKS, so that all chunks of a slot are read by one k group.
 *
 *   dynamic shared memory   bytes
 *   rings of B              16 * 2 * 2304 = 73728
 *   chunks of A             128 KiB; later the sums of the warps
 *   exchange                16384: the sums that the other CTA sends
 *   full, empty             16 a chunk
 *
 * Arithmetic: as in skinny.cuh; a wgmma step adds 4 k from each of four neighbouring
 * blocks.  Order of the sum of an element: the steps of a k group in order of k, then
 * the k groups, then the slices.  It depends on n, k and the number of SMs.
 *
 * Roofline: the rate of memory, of which 4.65 TB/s leave 32 issue slots for 8 weights
 * of a lane; in the measured range latency dominates (docs/performance-hopper.md).  One
 * CTA is resident on an SM, with at most 96 registers a thread.
 */
#ifndef NIB_SKINNY_WIDE_CUH
#define NIB_SKINNY_WIDE_CUH

#include "skinny.cuh"

/*
 * TRAITS: what the variants of the kernel differ in.  N_TILES: n8 tiles, rows of A / 8.
 */
template <int N_TILES_, enum b_kind B_, enum a_type TYPE_>
struct wide {
	static const int N_TILES = N_TILES_, M = 8 * N_TILES_;
	static const bool ALIGNED = B_ != B_ANY, IS_MOE = false;
	static const bool IS_NVFP4 = TYPE_ == A_NVFP4, IS_BF16 = TYPE_ == A_BF16;
	static const int STAGES = NIB_WIDE_STAGES;
	/*
	 * Stages of B that are requested before A.  64 rows of 16-bit values have more
	 * bytes than B and are requested first.
	 */
	static const int EARLY_STAGES =
	    ALIGNED && N_TILES_ == 8 && TYPE_ != A_NVFP4 ? 0 : 1;
	static const int CHUNKS = NIB_WIDE_CHUNKS(N_TILES_);
	static const int CHUNK_BYTES = NIB_SKINNY_CHUNK_BYTES(N_TILES_);
	/* Offsets in shared memory. */
	static const int CHUNKS_AT = NIB_SKINNY_WARPS * STAGES * NIB_GEMV_STAGE_BYTES;
	static const int SUMS_AT = CHUNKS_AT;
	static const int EXCHANGE_AT = CHUNKS_AT + CHUNKS * CHUNK_BYTES;
	static const int BARRIERS_AT = EXCHANGE_AT + NIB_WIDE_EXCHANGE_BYTES;
	/* Sums of a warp: [row of A][16 rows of B], padded for the banks. */
	static const int SUMS_PITCH = NIB_GEMV_TILE_ROWS + 4;
	static const int SUMS = M * SUMS_PITCH + 16;
	static_assert(NIB_SKINNY_WARPS * SUMS * 4 <= CHUNKS * CHUNK_BYTES,
		      "space for the sums");
	static_assert(CHUNKS_AT % 1024 == 0, "atoms are swizzled");
};

/* What all warps of a CTA have in common. */
struct wide_cta {
	uint32_t shared;
	int tile, tiles; /* of its cluster */
	int begin, end;	 /* its slice: steps of k256 */
	int rank;
	int tile_bits; /* log2 of tiles_at_once */
};

DEVICE struct wide_cta begin_wide(const struct nib_wide_params &params,
				  const uint8_t *bytes)
{
	const int steps = all_steps(params.p), rank = (int)cluster_ctarank();
	const int tile = (int)clusterid_x() * params.tiles_at_once;
	/* The second of two slices may have one more step. */
	const int half = params.k_slices == 1 ? steps : steps / 2;

	return {smem_addr(bytes),
		tile,
		min(params.tiles_at_once, (params.p.tiles - tile + 3) / 4 * 4),
		rank ? half : 0,
		rank ? steps : half,
		rank,
		31 - __clz(params.tiles_at_once)};
}

/* The warp's tile, counted from the cluster's first, and its k group. */
DEVICE int tile_of_warp(const struct nib_wide_params &params)
{
	return threadIdx.x / 32 & (params.tiles_at_once - 1);
}

DEVICE int k_group_of_warp(const struct wide_cta &cta)
{
	return threadIdx.x / 32 >> cta.tile_bits;
}

/* ---- rings of B ---------------------------------------------------------- */

/* Loads a step of k256 into a stage of the warp's ring. */
template <class TRAITS>
DEVICE void load_wide(const struct nib_wide_params &params,
		      const struct nib_gemv_operand &b, const struct wide_cta &cta,
		      const struct source &from, int step, int stage)
{
	const int warp = threadIdx.x / 32;
	const uint32_t to =
	    cta.shared + (warp * TRAITS::STAGES + stage) * NIB_GEMV_STAGE_BYTES;
	const uint32_t scales = to + CODES_BYTES + threadIdx.x % 32 * 16;

	if (step < cta.end && TRAITS::ALIGNED)
		load_aligned_step(b, from, to + piece_target(), scales, step);
	else if (step < cta.end)
		load_any_step(b, from, to + piece_target(), scales, step);
	cp_async_commit_group();
}

/* Loads the warp's steps number first to end - 1, into the stages of these numbers. */
template <class TRAITS>
DEVICE void load_first_steps(const struct nib_wide_params &params,
			     const struct nib_gemv_operand &b,
			     const struct wide_cta &cta, int first, int end)
{
	const struct source from =
	    source_of(params.p, b, cta.tile + tile_of_warp(params));

#pragma unroll
	for (int i = first; i < end; i++)
		load_wide<TRAITS>(
		    params, b, cta, from,
		    cta.begin + k_group_of_warp(cta) + i * params.k_groups, i);
}

/* ---- chunks of A --------------------------------------------------------- */

/* A block of a row: 16 elements, or 8 bytes of codes and the scale. */
template <class TRAITS>
struct block_of_a {
	uint32_t word[TRAITS::IS_NVFP4 ? 3 : 8];
};

/*
 * The blocks of a row that a lane loads, one in each k64: the address of the first, and
 * how many exist, which is 0 for rows beyond m.
 */
struct row_of_a {
	const uint8_t *values, *scales;
	int scale_step, count;
};

template <class TRAITS>
DEVICE struct row_of_a row_of(const struct nib_gemv_params &p,
			      const struct nib_gemv_operand &a, int row, int first)
{
	const int block = first * 4 + threadIdx.x % 4;
	struct row_of_a blocks;

	/* k is a multiple of 16. */
	blocks.count = row < p.m ? (p.k / 16 - block + 3) / 4 : 0;
	blocks.values =
	    a.codes + row * a.row_stride + (int64_t)block * (TRAITS::IS_NVFP4 ? 8 : 32);
	/* Tiled scales: A has fewer than 128 rows, one row of scale tiles. */
	blocks.scales = a.scales + (a.is_tiled ? (int64_t)first * 512 + row % 32 * 16 +
						     row / 32 * 4 + threadIdx.x % 4
					       : row * a.scale_row_stride + block);
	blocks.scale_step = a.is_tiled ? 512 : 4;
	return blocks;
}

/* A block at any address. */
template <class TRAITS>
DEVICE block_of_a<TRAITS> load_any_block(const struct row_of_a &blocks, int i)
{
	const uint8_t *from = blocks.values + i * (TRAITS::IS_NVFP4 ? 32 : 128);
	block_of_a<TRAITS> x;

	if constexpr (TRAITS::IS_NVFP4) {
		x.word[0] = load_bytes(from);
		x.word[1] = load_bytes(from + 4);
		x.word[2] = blocks.scales[i * blocks.scale_step];
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

/* Block number i if is_inside, otherwise zeros. */
template <class TRAITS>
DEVICE block_of_a<TRAITS> load_block(const struct row_of_a &blocks, int i,
				     bool is_inside)
{
	const uint8_t *from = blocks.values + i * (TRAITS::IS_NVFP4 ? 32 : 128);
	block_of_a<TRAITS> x = {};

	if constexpr (!TRAITS::ALIGNED) {
		if (is_inside)
			x = load_any_block<TRAITS>(blocks, i);
	} else if constexpr (TRAITS::IS_NVFP4) {
		const uint2 codes = ldg_64_if(from, is_inside);

		x.word[0] = codes.x, x.word[1] = codes.y;
		x.word[2] = ldg_u8_if(blocks.scales + i * blocks.scale_step, is_inside);
	} else {
#pragma unroll
		for (int j = 0; j < 2; j++) {
			const uint4 y = ldg_128_if(from + j * 16, is_inside);

			x.word[4 * j] = y.x, x.word[4 * j + 1] = y.y;
			x.word[4 * j + 2] = y.z, x.word[4 * j + 3] = y.w;
		}
	}
	return x;
}

/* A block permuted as decoded codes are: word i is for wgmma i / 2. */
template <class TRAITS>
DEVICE void order_block(const block_of_a<TRAITS> &x, uint32_t (&w)[8])
{
	if constexpr (TRAITS::IS_NVFP4) {
		uint32_t s[2];

		widen_scales<false>(x.word[2], s);
		s[0] = mul_f16x2(s[0], F16_64);
		decode<false>(x.word[0], s[0], w);
		decode<false>(x.word[1], s[0], w + 4);
	} else {
#pragma unroll
		for (int i = 0; i < 8; i += 4) {
			const uint4 y = permute_as_decoded<TRAITS::IS_BF16>(make_uint4(
			    x.word[i], x.word[i + 1], x.word[i + 2], x.word[i + 3]));

			w[i] = y.x, w[i + 1] = y.y;
			w[i + 2] = y.z, w[i + 3] = y.w;
		}
	}
}

/*
 * Loads the blocks of COUNT atoms of the same rows: those of k64 number first,
 * first + BY, ... of the chunks, up to end - 1.
 */
template <class TRAITS, int COUNT, int BY>
DEVICE void load_atoms(const struct row_of_a &blocks, int first, int end,
		       block_of_a<TRAITS> *x)
{
	const int count = min(blocks.count, end - first);

#pragma unroll
	for (int i = 0; i < COUNT; i++)
		x[i] = load_block<TRAITS>(blocks, i * BY, i * BY < count);
}

/* Stores them into the chunks at `to`, as the atoms of n8 tile `n_tile`. */
template <class TRAITS, int COUNT, int BY>
DEVICE void store_atoms(uint32_t to, int n_tile, int first, int end,
			const block_of_a<TRAITS> *x)
{
	const int row = threadIdx.x % 8, piece = threadIdx.x % 32 / 8;
	/* Slots of pieces w and w + 4 differ in bit 2: 64 bytes. */
	const uint32_t low = to + (first * TRAITS::N_TILES + n_tile) * 1024 +
			     row * 128 + (piece ^ row) * 16;
	const uint32_t high = low ^ 64;

#pragma unroll
	for (int i = 0; i < COUNT; i++) {
		const uint32_t at = i * BY * TRAITS::N_TILES * 1024;
		uint32_t w[8];

		if (first + i * BY >= end)
			break;
		order_block<TRAITS>(x[i], w);
		stmatrix_x4(low + at, w[0], w[1], w[2], w[3]);
		stmatrix_x4(high + at, w[4], w[5], w[6], w[7]);
	}
}

/*
 * The consumers, before they meet: load the first chunks of A, a warp 8 rows of every
 * (16 / N_TILES)-th k64, and request the rest of their first stages of B.
 */
template <class TRAITS>
DEVICE void fill_chunks(const struct nib_wide_params &params,
			const struct nib_gemv_operand &a,
			const struct nib_gemv_operand &b, const struct wide_cta &cta)
{
	const int by = NIB_SKINNY_WARPS / TRAITS::N_TILES;
	const int warp = threadIdx.x / 32, n_tile = warp % TRAITS::N_TILES;
	const int first = warp / TRAITS::N_TILES;
	const int end = min(cta.end - cta.begin, TRAITS::CHUNKS) * 4;
	const struct row_of_a blocks = row_of<TRAITS>(
	    params.p, a, n_tile * 8 + threadIdx.x % 32 / 4, cta.begin * 4 + first);
	block_of_a<TRAITS> x[TRAITS::CHUNKS * 4 / by];

	load_atoms<TRAITS, TRAITS::CHUNKS * 4 / by, by>(blocks, first, end, x);
	if (tile_of_warp(params) < cta.tiles)
		load_first_steps<TRAITS>(params, b, cta, TRAITS::EARLY_STAGES,
					 TRAITS::STAGES);
	store_atoms<TRAITS, TRAITS::CHUNKS * 4 / by, by>(cta.shared + TRAITS::CHUNKS_AT,
							 n_tile, first, end, x);
	fence_proxy_async_shared();
}

/*
 * The producers: load the later chunks, as many at a time as a lane has registers for.
 */
template <class TRAITS>
DEVICE void produce_wide_chunks(const struct nib_wide_params &params,
				const struct nib_gemv_operand &a,
				const struct wide_cta &cta)
{
	const int by = NIB_SKINNY_PRODUCERS, count = TRAITS::N_TILES / by;
	const int ahead = TRAITS::IS_NVFP4 && TRAITS::ALIGNED ? 2 : 1;
	const int end = cta.end - cta.begin;
	const int warp = threadIdx.x / 32 - NIB_SKINNY_WARPS;

#pragma unroll 1
	for (int i = TRAITS::CHUNKS; i < end; i += ahead) {
		block_of_a<TRAITS> x[count][4 * ahead];

#pragma unroll
		for (int j = 0; j < count; j++)
			load_atoms<TRAITS, 4 * ahead, 1>(
			    row_of<TRAITS>(params.p, a,
					   (warp + j * by) * 8 + threadIdx.x % 32 / 4,
					   (cta.begin + i) * 4),
			    0, (end - i) * 4, x[j]);
#pragma unroll
		for (int h = 0; h < ahead; h++) {
			const int chunk = (i + h) % TRAITS::CHUNKS;

			if (i + h >= end)
				return;
			wait(empty<TRAITS>(cta.shared, chunk),
			     (i + h) / TRAITS::CHUNKS % 2 ^ 1);
#pragma unroll
			for (int j = 0; j < count; j++)
				store_atoms<TRAITS, 4, 1>(
				    cta.shared + TRAITS::CHUNKS_AT +
					chunk * TRAITS::CHUNK_BYTES,
				    warp + j * by, 0, 4, x[j] + 4 * h);
			fence_proxy_async_shared();
			mbarrier_arrive(full<TRAITS>(cta.shared, chunk));
		}
	}
}

/* ---- the multiplication -------------------------------------------------- */

/* The wgmma descriptor of atoms: 128-byte swizzle, k contiguous, 1024 bytes from 8 rows
 * to the next 8. */
DEVICE uint64_t atom_descriptor(uint32_t at)
{
	return pack_64(1u << 16 | at >> 4, 1u << 30 | 1024 >> 4);
}

template <class TRAITS>
DEVICE void wgmma(float (&d)[TRAITS::M / 2], const uint32_t (&a)[4], uint32_t at)
{
	if constexpr (TRAITS::IS_BF16)
		wgmma_bf16<TRAITS::M>(d, a, atom_descriptor(at), 1);
	else
		wgmma_f16<TRAITS::M>(d, a, atom_descriptor(at), 1);
}

/* What a lane reads of a stage; constant for the whole kernel. */
struct wide_view {
	uint32_t codes;		     /* offset of block t of the first k64, row g */
	uint32_t scales;	     /* offset of row g's scales of the first k64 */
	uint32_t scale_stride, pick; /* as in struct lane_view */
};

DEVICE struct wide_view wide_view_of(const struct nib_gemv_operand &b)
{
	const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
	struct wide_view view;

	view.codes = g * ROW_BYTES + g % 4 * 32 + t * 8;
	view.scales = CODES_BYTES + (b.is_tiled ? g / 4 * 64 + g % 4 * 4 : g * 16);
	view.scale_stride = b.is_tiled ? 16 : 4;
	view.pick = t | (t + 4) << 4;
	return view;
}

/* s: the lane's scales of k64 number j for rows g and g + 8, as pairs of equal values
 * in A's type; 0 beyond the last block.  left: the blocks from this step on. */
template <class TRAITS>
DEVICE void wide_scales(const struct wide_view &view, uint32_t stage, int left, int j,
			uint32_t (&s)[2])
{
	const uint32_t at = stage + view.scales + j * view.scale_stride;
	const uint32_t both = prmt(lds_32(at), lds_32(at + 8 * STEP_BLOCKS), view.pick);

	widen_scales<TRAITS::IS_BF16>(4 * j + (int)(threadIdx.x % 4) < left ? both : 0,
				      s);
}

/* k64 number j of the warp's 16 rows: the A operands of four wgmma. */
template <class TRAITS>
DEVICE void decode_rows(const struct wide_view &view, uint32_t stage, int left, int j,
			uint32_t (&a)[4][4])
{
	/* The swizzle of stages (skinny.cuh) is an exclusive or. */
	const uint32_t codes = (stage + view.codes) ^ j * 32;
	uint32_t scale[2];

	wide_scales<TRAITS>(view, stage, left, j, scale);
#pragma unroll
	for (int r = 0; r < 2; r++) {
		uint32_t word[2], values[8];

		lds_64(codes + r * 8 * ROW_BYTES, &word[0], &word[1]);
		decode<TRAITS::IS_BF16>(word[0], scale[r], values);
		decode<TRAITS::IS_BF16>(word[1], scale[r], values + 4);
#pragma unroll
		for (int i = 0; i < 8; i++)
			a[i / 2][r + i % 2 * 2] = values[i];
	}
}

/* Adds a stage of B times a chunk of A in four groups of wgmma: one is multiplied while
 * the next one is decoded. */
template <class TRAITS>
DEVICE void multiply_wide(float (&acc)[TRAITS::M / 2], const struct wide_view &view,
			  uint32_t stage, uint32_t chunk, int left)
{
	uint32_t a[2][4][4];

	decode_rows<TRAITS>(view, stage, left, 0, a[0]);
#pragma unroll
	for (int j = 0; j < 4; j++) {
		wgmma_fence();
#pragma unroll
		for (int i = 0; i < 4; i++)
			wgmma<TRAITS>(acc, a[j % 2][i],
				      chunk + j * TRAITS::M * 128 + i * 32);
		wgmma_commit();
		if (j == 3)
			break;
		wgmma_wait<1>();
		decode_rows<TRAITS>(view, stage, left, j + 1, a[(j + 1) % 2]);
	}
	wgmma_wait<0>();
}

/* A warp's steps.  A warp without a unit only arrives at the empty barriers. */
template <class TRAITS>
DEVICE void run_steps(const struct nib_wide_params &params,
		      const struct nib_gemv_operand &b, const struct wide_cta &cta,
		      bool multiplies, float (&acc)[TRAITS::M / 2])
{
	const struct wide_view view = wide_view_of(b);
	const uint32_t ring =
	    cta.shared + threadIdx.x / 32 * TRAITS::STAGES * NIB_GEMV_STAGE_BYTES;
	const uint32_t chunks = opaque(cta.shared + TRAITS::CHUNKS_AT);
	const uint32_t bars = opaque(full<TRAITS>(cta.shared, 0));
	int stage = 0;

#pragma unroll 1
	for (int i = k_group_of_warp(cta); i < cta.end - cta.begin;
	     i += params.k_groups) {
		const int chunk = i % TRAITS::CHUNKS;

		if (multiplies)
			cp_async_wait_group<TRAITS::STAGES - 1>();
		__syncwarp();
		if (i >= TRAITS::CHUNKS)
			wait(bars + chunk * 16, i / TRAITS::CHUNKS % 2 ^ 1);
		if (multiplies)
			multiply_wide<TRAITS>(
			    acc, view, ring + stage * NIB_GEMV_STAGE_BYTES,
			    chunks + chunk * TRAITS::CHUNK_BYTES,
			    params.p.k / 16 - (cta.begin + i) * STEP_BLOCKS);
		__syncwarp();
		if (threadIdx.x % 32 == 0)
			mbarrier_arrive(bars + chunk * 16 + 8);
		/*
		 * The source is computed again, because registers are scarce and most
		 * warps have requested their last step before they multiply the first.
		 */
		if (multiplies) {
			load_wide<TRAITS>(
			    params, b, cta,
			    source_of(params.p, b, cta.tile + tile_of_warp(params)),
			    cta.begin + i + TRAITS::STAGES * params.k_groups, stage);
			stage = stage + 1 == TRAITS::STAGES ? 0 : stage + 1;
		}
	}
}

/* ---- sums ---------------------------------------------------------------- */

template <class TRAITS>
DEVICE void store_wide_sums(float *sums, const float (&acc)[TRAITS::M / 2])
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int i = 0; i < TRAITS::M / 2; i++)
		sums[(i / 4 * 8 + 2 * t + i % 2) * TRAITS::SUMS_PITCH + g +
		     i / 2 % 2 * 8] = acc[i];
}

/*
 * Four sums: rows at .. at + 3 of a tile, row m of A.  four_number(i) enumerates them
 * for `rows` rows of A from `row` on, so that neighbouring threads store neighbouring
 * elements of C.
 */
struct four_sums {
	int tile, at, m;
};

DEVICE struct four_sums four_number(int i, int row, int rows)
{
	return {i / (16 * rows) * 4 + i / 4 % 4, i % 4 * 4, row + i / 16 % rows};
}

/* The four sums of all k groups of the CTA. */
template <class TRAITS>
DEVICE float4 add_groups(const struct nib_wide_params &params, const float *sums,
			 const struct four_sums &four)
{
	const float *from =
	    sums + four.tile * TRAITS::SUMS + four.m * TRAITS::SUMS_PITCH + four.at;
	float4 x = *(const float4 *)from;

	for (int j = 1; j < params.k_groups; j++) {
		const float4 y = ((const float4 *)(from + j * params.tiles_at_once *
							      TRAITS::SUMS))[0];

		x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
	}
	return x;
}

template <class TRAITS>
DEVICE void store_four(const struct nib_wide_params &params, const struct wide_cta &cta,
		       const struct four_sums &four, const float4 &x, float alpha)
{
	const float value[4] = {x.x, x.y, x.z, x.w};

#pragma unroll
	for (int i = 0; i < 4; i++) {
		const int64_t row = nib_gemv_row(cta.tile + four.tile, four.at + i,
						 params.p.b.is_tiled);

		if (row < params.p.n)
			store(params.p, four.m * params.p.c_row_stride + row,
			      result<TRAITS::IS_BF16>(value[i], alpha));
	}
}

/* One slice: the CTA's sums are the results. */
template <class TRAITS>
DEVICE void store_sums_of_cta(const struct nib_wide_params &params,
			      const struct wide_cta &cta, const float *sums,
			      float alpha)
{
#pragma unroll 1
	for (int i = threadIdx.x; i < cta.tiles * TRAITS::M * 4;
	     i += NIB_SKINNY_WARPS * 32) {
		const struct four_sums four = four_number(i, 0, TRAITS::M);

		if (four.m < params.p.m)
			store_four<TRAITS>(params, cta, four,
					   add_groups<TRAITS>(params, sums, four),
					   alpha);
	}
}

/*
 * Two slices: each CTA finishes half of the rows of A and sends its sums of the other
 * half to the other CTA.
 */
template <class TRAITS>
DEVICE void store_sums_of_both(const struct nib_wide_params &params,
			       const struct wide_cta &cta, const float *sums,
			       float alpha)
{
	const int rows = TRAITS::M / 2, most = rows / 16;
	const int count = cta.tiles * rows * 4, step = NIB_SKINNY_WARPS * 32;
	const uint32_t exchange = cta.shared + TRAITS::EXCHANGE_AT;
	const uint32_t other = mapa(exchange, cta.rank ^ 1);
	float4 sum[most];

#pragma unroll
	for (int j = 0; j < most; j++) {
		const int i = threadIdx.x + j * step;
		const struct four_sums four =
		    four_number(i, (cta.rank ^ 1) * rows, rows);

		if (i < count && four.m < params.p.m) {
			const uint32_t to = other + i * 16;
			const float4 x = add_groups<TRAITS>(params, sums, four);

			st_cluster_f32x4(to, &x.x);
		}
	}
	cluster_arrive_release();
#pragma unroll
	for (int j = 0; j < most; j++) {
		const int i = threadIdx.x + j * step;
		const struct four_sums four = four_number(i, cta.rank * rows, rows);

		if (i < count && four.m < params.p.m)
			sum[j] = add_groups<TRAITS>(params, sums, four);
	}
	cluster_wait();
#pragma unroll
	for (int j = 0; j < most; j++) {
		const int i = threadIdx.x + j * step;
		const struct four_sums four = four_number(i, cta.rank * rows, rows);

		if (i < count && four.m < params.p.m) {
			const uint4 y = lds_128(exchange + i * 16);

			sum[j].x += __uint_as_float(y.x);
			sum[j].y += __uint_as_float(y.y);
			sum[j].z += __uint_as_float(y.z);
			sum[j].w += __uint_as_float(y.w);
			store_four<TRAITS>(params, cta, four, sum[j], alpha);
		}
	}
}

/* ---- the kernel ---------------------------------------------------------- */

template <class TRAITS>
DEVICE void multiply_all(const struct nib_wide_params &params,
			 const struct nib_gemv_operand &b, const struct wide_cta &cta,
			 float *sums)
{
	const int warp = threadIdx.x / 32;
	const bool multiplies = tile_of_warp(params) < cta.tiles;
	float acc[TRAITS::M / 2] = {}, alpha;

	run_steps<TRAITS>(params, b, cta, multiplies, acc);
	/* Loaded here because registers are scarce; it arrives while sums are added. */
	alpha = params.p.alpha ? *params.p.alpha : 1;
	/* The sums overwrite the chunks. */
	bar_sync(SUMS_BAR, NIB_SKINNY_WARPS * 32);
	if (multiplies)
		store_wide_sums<TRAITS>(sums + warp * TRAITS::SUMS, acc);
	bar_sync(SUMS_BAR, NIB_SKINNY_WARPS * 32);
	if (params.k_slices == 1) {
		store_sums_of_cta<TRAITS>(params, cta, sums, alpha);
	} else {
		cluster_wait();
		store_sums_of_both<TRAITS>(params, cta, sums, alpha);
	}
}

template <class TRAITS>
DEVICE void wide_gemm(const struct nib_wide_params &params)
{
	extern __shared__ __align__(1024) uint8_t wide_bytes[];
	const struct wide_cta cta = begin_wide(params, wide_bytes);
	const int warp = threadIdx.x / 32;

	griddepcontrol_launch_dependents();
	if (!params.p.b_is_constant)
		griddepcontrol_wait();
	if (params.k_slices > 1)
		cluster_arrive_relaxed();
	if (threadIdx.x < TRAITS::CHUNKS) {
		mbarrier_init(full<TRAITS>(cta.shared, threadIdx.x),
			      NIB_SKINNY_PRODUCERS * 32);
		mbarrier_init(empty<TRAITS>(cta.shared, threadIdx.x),
			      params.tiles_at_once);
	}
	if (warp < NIB_SKINNY_WARPS && tile_of_warp(params) < cta.tiles)
		load_first_steps<TRAITS>(params, params.p.b, cta, 0,
					 TRAITS::EARLY_STAGES);
	griddepcontrol_wait();
	if (warp < NIB_SKINNY_WARPS)
		fill_chunks<TRAITS>(params, params.p.a, params.p.b, cta);
	__syncthreads();
	if (warp < NIB_SKINNY_WARPS) {
		multiply_all<TRAITS>(params, params.p.b, cta,
				     (float *)(wide_bytes + TRAITS::SUMS_AT));
		return;
	}
	produce_wide_chunks<TRAITS>(params, params.p.a, cta);
	if (params.k_slices > 1) {
		cluster_wait();
		cluster_arrive_relaxed();
	}
}

/* The kernels for a type of A. */
#define WIDE_KERNELS(type, suffix)                                                     \
	SKINNY_KERNEL(32##suffix, wide, wide<4, B_ALIGNED, type>)                      \
	SKINNY_KERNEL(32_any##suffix, wide, wide<4, B_ANY, type>)                      \
	SKINNY_KERNEL(64##suffix, wide, wide<8, B_ALIGNED, type>)                      \
	SKINNY_KERNEL(64_any##suffix, wide, wide<8, B_ANY, type>)

#endif
