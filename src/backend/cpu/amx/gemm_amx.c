/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_amx.c - W4A4, and W4A16 for bf16, with AMX: tdpbf16ps multiplies a tile of 16
 * rows of A by one of 16 columns of B.  Both are exact in bf16: e2m1 * e4m3 has at most
 * six significant bits.
 *
 *   A or x --pack_rows-> [row of two k-blocks, 64 bytes] ---+
 *                                                           tdpbf16ps -> sums -> C
 *   panels --expand_pair-> [32 k x 16 columns] -------------+
 *
 * Order.  Word 2r of a row of A, and of dword n of row r of B, is k = r of a block,
 * and word 2r + 1 is k = r of the next block.  tdpbf16ps sums even and odd words apart,
 * from zero, adds the two, and adds the result to the accumulator.  In W4A4 the sum of
 * a block has at most 20 bits, so it is exact, and only the last two additions round
 * (docs/numerics.md, sections 3 and 9).
 *
 * Loops.  Four accumulators are 32 rows by 32 columns, so that each tile loaded is used
 * twice.  The first 32 rows of a unit expand a chunk of the weights, two blocks ahead;
 * all others use it from the cache (unit.inc.h).  Few rows use the functions of the
 * narrower set, which read weights as fast as memory does.
 *
 * Tiles are configured when a unit needs them.  At its end the thread's own
 * configuration is loaded again, because other libraries (ggml) set theirs once a
 * thread and would fault; a thread that had none has no tile state after a run.
 */
#define TILE_ROWS      32
#define HAS_WIDE_UNITS 1

#include "backend/cpu/gemm_ops.h"
#include "backend/cpu/vector512.inc.h"

#include "backend/cpu/pack.inc.h"

#include "backend/cpu/pack_panels_vector.inc.h"

#include "backend/cpu/epilogue.inc.h"

#include "backend/cpu/tile.inc.h"

/* Rows of a tile register, and bytes of one of them, and of a whole one. */
#define HALF_ROWS  16
#define STEP_BYTES 64
#define TMM_BYTES  (HALF_ROWS * STEP_BYTES)
/* Two k-blocks of a tile's columns. */
#define EXPANDED_PAIR (TILE_PANELS * TMM_BYTES)
#define EXPANDED_TILE (CHUNK_BLOCKS / 2 * EXPANDED_PAIR)

/* Up to these m the functions for few rows are faster (docs/performance-cpu.md). */
#define FEW_NVFP4 8
#define FEW_BF16  2

#include "backend/cpu/unit.inc.h"

/* ---- values: codes times scales ------------------------------------------ */

/*
 * Two scales s of each column as bf16, those of a pair's first block in the even words,
 * for weigh(): the bits of 4 s and of 6 s, the latter plus HALF, with the sign set.
 */
struct scale_bits {
	__m512i one, half;
};

/* A flag in the table of weigh(), in a bit that s and 1.5 s do not use. */
#define HALF 1

/* The upper half of each dword of even, and of odd 16 bits above it. */
TILE_INLINE __m512i upper_halves(__m512 even, __m512 odd)
{
	return _mm512_mask_blend_epi16(
	    0xaaaaaaaau, _mm512_srli_epi32(to_bits(even), 16), to_bits(odd));
}

TILE_INLINE struct scale_bits scale_bits(__m512 even, __m512 odd)
{
	const __m512 x = set_float(1.5f);
	const __m512i up = _mm512_set1_epi16((short)0x8100);
	struct scale_bits s;

	s.one = _mm512_add_epi16(upper_halves(even, odd), up);
	s.half = _mm512_add_epi16(upper_halves(mul_float(even, x), mul_float(odd, x)),
				  _mm512_add_epi16(up, _mm512_set1_epi16(HALF)));
	return s;
}

/*
 * The code in the low four bits of each word times its scale, as bf16.  A code other
 * than 0 is a power of two or 1.5 times one, so that its product with s has the bits of
 * 4 s or 6 s less a number: of the exponent, and of the sign, which is set before.  0
 * takes away more than there is, and the difference saturates.
 */
TILE_INLINE __m512i weigh(__m512i codes, struct scale_bits s)
{
	/* vpermw reads five bits. */
	const __m512i table = _mm512_broadcast_i64x4(_mm256_setr_epi16(
	    -1, (short)0x8180, (short)0x8100, (short)0x8101, (short)0x8080,
	    (short)0x8081, (short)0x8000, (short)0x8001, -1, 0x0180, 0x0100, 0x0101,
	    0x0080, 0x0081, 0x0000, 0x0001));
	const __m512i less = _mm512_permutexvar_epi16(codes, table);
	const __mmask32 is_half = _mm512_test_epi16_mask(less, _mm512_set1_epi16(HALF));

	return _mm512_subs_epu16(_mm512_mask_blend_epi16(is_half, s.one, s.half), less);
}

/* ---- A ------------------------------------------------------------------- */

/* The pairs of blocks of a row, and those of a chunk. */
static int64_t pairs_of(int64_t blocks)
{
	return (blocks + 1) / 2;
}

/*
 * A pair of a row in packed A: chunks of k, in a chunk tiles of 32 rows (the last has
 * as many as are left), in a tile pairs, in a pair rows.
 */
static char *step_at(const struct cpu_item *item, int64_t row, int64_t pair)
{
	const int64_t most = cpu_chunk_blocks(item->blocks) / 2;
	const int64_t chunk = pair / most * most;
	const int64_t left = pairs_of(item->blocks) - chunk;
	const int64_t in_chunk = left < most ? left : most;
	const int64_t tile = row / TILE_ROWS * TILE_ROWS;
	const int64_t in_tile = item->m - tile < TILE_ROWS ? item->m - tile : TILE_ROWS;

	return (char *)item->packed_a +
	       STEP_BYTES * (chunk * item->m + tile * in_chunk +
			     (pair - chunk) * in_tile + row - tile);
}

/* Two blocks of bf16, the second of which may be missing: zeros. */
static inline __m512i step_bf16(const uint8_t *x, bool has_second)
{
	/* Elements 0, 16, 1, 17, ... */
	const __m512i order =
	    _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
			     8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);

	return _mm512_permutexvar_epi16(
	    order, _mm512_maskz_loadu_epi16(has_second ? 0xffffffffu : 0xffffu, x));
}

/* Two blocks of NVFP4.  A scale of 0 must come with codes of 0, and gives zeros. */
static inline __m512i step_nvfp4(const uint64_t codes[2], const float scales[2])
{
	const __m128i bytes =
	    _mm_unpacklo_epi8(_mm_loadl_epi64((const void *)codes),
			      _mm_loadl_epi64((const void *)(codes + 1)));
	/* Qword b: byte b of the first block, and of the second 16 bits above. */
	const __m512i pair = _mm512_cvtepu32_epi64(_mm256_cvtepu8_epi16(bytes));
	/* Their high nibbles are the next dword. */
	const __m512i both = _mm512_or_si512(pair, _mm512_slli_epi64(pair, 28));

	return weigh(both, scale_bits(set_float(scales[0]), set_float(scales[1])));
}

static void pack_nvfp4(const struct cpu_item *item, int64_t row)
{
	const uint8_t *codes = codes_of(&item->a, row);
	const struct scale_row scales = scale_row_of(&item->a, row);
	uint8_t has_nan = 0;

	for (int64_t k = 0; k < item->blocks; k += 2) {
		uint64_t block[2] = {0};
		float scale[2] = {0};

		for (int i = 0; i < 2 && k + i < item->blocks; i++) {
			const uint8_t s = scale_at(scales, k + i);

			has_nan |= s == NIB_E4M3_NAN;
			if (s == 0 || s == NIB_E4M3_NAN)
				continue;
			scale[i] = nib_e4m3_to_float(s);
			memcpy(&block[i], codes + 8 * (k + i), sizeof(block[i]));
		}
		_mm512_storeu_si512(step_at(item, row, k / 2),
				    step_nvfp4(block, scale));
	}
	item->row_flags[row] = has_nan ? CPU_ROW_NAN : 0;
}

static void pack_bf16(const struct cpu_item *item, int64_t row)
{
	const uint8_t *x =
	    nib_offset_bytes(item->x.data, row * item->x.row_stride_bytes);

	for (int64_t k = 0; k < item->blocks; k += 2)
		_mm512_storeu_si512(step_at(item, row, k / 2),
				    step_bf16(x + 32 * k, k + 1 < item->blocks));
	item->row_flags[row] = 0;
}

static void pack_rows(const struct cpu_item *item, int64_t m0, int64_t rows)
{
	for (int64_t i = m0; i < m0 + rows; i++) {
		if (item->activations == NIB_ACTIVATIONS_NVFP4)
			pack_nvfp4(item, i);
		else
			pack_bf16(item, i);
	}
}

/* ---- B ------------------------------------------------------------------- */

/*
 * Expands k-blocks k and k + 1 of one panel, which are zeros if there is no second one.
 * up: what is added to the exponents of scales that were multiplied by 1/256.
 */
TILE_INLINE void expand_panel(const uint8_t *panel, int64_t left, int64_t k,
			      bool has_second, __m512i up, char *out)
{
	const uint8_t *codes = panel + cpu_codes_at(k);
	const uint8_t *bytes = panel + cpu_scales_at(left, k);
	const __m512 first = load_scales(bytes);
	const __m512 second = has_second ? load_scales(bytes + PANEL_COLS) : first;
	const struct scale_bits s = scale_bits(to_float(add_int(to_bits(first), up)),
					       to_float(add_int(to_bits(second), up)));

	UNROLLED (z, 2) {
		const __m512i a = load_int(codes + 64 * z);
		const __m512i b = has_second ? load_int(codes + BLOCK_CODES + 64 * z)
					     : _mm512_setzero_si512();
		/* k = 8z .. 8z + 3 of both blocks, and k = 8z + 4 .. 8z + 7. */
		const __m512i low =
		    _mm512_mask_blend_epi16(0xaaaaaaaau, a, _mm512_slli_epi32(b, 16));
		const __m512i high =
		    _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(a, 16), b);

		UNROLLED (i, 8) {
			const __m512i c = i < 4 ? low : high;

			store_int(
			    out,
			    weigh(_mm512_srli_epi32(c, 4 * ((unsigned int)i & 3)), s));
			out += STEP_BYTES;
		}
	}
}

TILE_INLINE void expand_pair(const struct source *source, int64_t k, bool has_second,
			     __m512i up, char *out)
{
	UNROLLED (p, TILE_PANELS)
		expand_panel(source->panels[p], source->left, k, has_second, up,
			     out + p * TMM_BYTES);
}

/* ---- tiles --------------------------------------------------------------- */

struct tile_config {
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
};

/* The registers' numbers: accumulators of the upper and lower rows, A, B. */
#define UPPER_A 4
#define LOWER_A 5

/* gcc's intrinsics do not say what memory they read or write. */
#define MEMORY_BARRIER() __asm__ volatile("" ::: "memory")

/* Sets the registers for `rows` rows of A, if they are not already. */
static void configure(struct scratch *scratch, int64_t rows)
{
	struct tile_config config = {.palette = 1};
	const uint8_t upper = (uint8_t)(rows < HALF_ROWS ? rows : HALF_ROWS);
	const uint8_t lower = (uint8_t)(rows > HALF_ROWS ? rows - HALF_ROWS : 1);

	if (scratch->tile_rows == rows)
		return;
	for (int t = 0; t < 8; t++) {
		config.row_bytes[t] = STEP_BYTES;
		config.rows[t] = HALF_ROWS;
	}
	config.rows[0] = config.rows[1] = config.rows[UPPER_A] = upper;
	config.rows[2] = config.rows[3] = config.rows[LOWER_A] = lower;
	__asm__ volatile("" ::"r"(&config) : "memory");
	_tile_loadconfig(&config);
	scratch->tile_rows = rows;
}

/*
 * Adds a pair of blocks: a is rows of A, b a tile of each panel.  Rows past HALF_ROWS
 * only if `two`.
 */
#define ADD_PAIR(two, a, b)                                                            \
	do {                                                                           \
		MEMORY_BARRIER();                                                      \
		_tile_loadd(UPPER_A, a, STEP_BYTES);                                   \
		_tile_loadd(6, b, STEP_BYTES);                                         \
		_tile_dpbf16ps(0, UPPER_A, 6);                                         \
		_tile_loadd(7, (b) + TMM_BYTES, STEP_BYTES);                           \
		_tile_dpbf16ps(1, UPPER_A, 7);                                         \
		if (two) {                                                             \
			_tile_loadd(LOWER_A, (a) + TMM_BYTES, STEP_BYTES);             \
			_tile_dpbf16ps(2, LOWER_A, 6);                                 \
			_tile_dpbf16ps(3, LOWER_A, 7);                                 \
		}                                                                      \
	} while (0)

#define SUM_STRIDE  (TILE_COLS * sizeof(float))
#define RIGHT(sums) ((sums) + HALF_ROWS)
#define BELOW(sums) ((sums) + HALF_ROWS * TILE_COLS)

TILE_INLINE void begin_sums(const bool two, bool first, const float *sums)
{
	if (first) {
		_tile_zero(0);
		_tile_zero(1);
		_tile_zero(2);
		_tile_zero(3);
		return;
	}
	MEMORY_BARRIER();
	_tile_loadd(0, sums, SUM_STRIDE);
	_tile_loadd(1, RIGHT(sums), SUM_STRIDE);
	if (two) {
		_tile_loadd(2, BELOW(sums), SUM_STRIDE);
		_tile_loadd(3, RIGHT(BELOW(sums)), SUM_STRIDE);
	}
}

TILE_INLINE void end_sums(const bool two, float *sums)
{
	_tile_stored(0, sums, SUM_STRIDE);
	_tile_stored(1, RIGHT(sums), SUM_STRIDE);
	if (two) {
		_tile_stored(2, BELOW(sums), SUM_STRIDE);
		_tile_stored(3, RIGHT(BELOW(sums)), SUM_STRIDE);
	}
	MEMORY_BARRIER();
}

/* The operands of a tile of rows in one chunk of k. */
struct tile_job {
	const struct source *source; /* NULL: the weights are expanded already */
	const struct fetch *fetch;
	const char *a;
	char *expanded;
	int64_t rows, blocks;
	/* Where pairs of blocks begin again in `expanded`; a power of two. */
	int64_t pairs;
	__m512i up;
};

/* Pairs kept if no other tile of rows uses them: 8 KiB, which stay in L1. */
#define RING_PAIRS 4

TILE_INLINE char *expanded_at(const struct tile_job *job, int64_t k)
{
	return job->expanded + (k / 2 & (job->pairs - 1)) * EXPANDED_PAIR;
}

/* Prefetches this tile's part of the next chunk for one pair of blocks. */
TILE_INLINE void fetch_pair(const struct fetch *fetch, int64_t pair)
{
	UNROLLED (p, TILE_PANELS) {
		const uint8_t *from = fetch->panels[p] + pair * fetch->step;

		for (int64_t at = 0; at < fetch->step; at += 64)
			__builtin_prefetch(from + at, 0, 2);
	}
}

/* How a tile is summed, known when compiled. */
struct tile_kind {
	bool two;     /* more than HALF_ROWS rows */
	bool expands; /* the weights, for all tiles */
};

/* Adds a chunk to the sums of a tile, or sets them to it if `first`. */
TILE_INLINE void sum_tile(const struct tile_kind kind, const struct tile_job *job,
			  float *sums, bool first)
{
	const int64_t blocks = job->blocks, step = job->rows * STEP_BYTES;
	const char *a = job->a;

	begin_sums(kind.two, first, sums);
	if (kind.expands && blocks > 0)
		expand_pair(job->source, 0, blocks > 1, job->up, job->expanded);
	for (int64_t k = 0; k < blocks; k += 2) {
		fetch_pair(job->fetch, k / 2);
		if (kind.expands && k + 2 < blocks)
			expand_pair(job->source, k + 2, k + 3 < blocks, job->up,
				    expanded_at(job, k + 2));
		ADD_PAIR(kind.two, a, expanded_at(job, k));
		a += step;
	}
	end_sums(kind.two, sums);
}

#define SUM(two, expands) sum_tile((struct tile_kind){two, expands}, job, sums, first)

static void sum_rows(const struct tile_job *job, float *sums, bool first)
{
	if (job->rows > HALF_ROWS && job->source)
		SUM(true, true);
	else if (job->rows > HALF_ROWS)
		SUM(true, false);
	else if (job->source)
		SUM(false, true);
	else
		SUM(false, false);
}

/* ---- units --------------------------------------------------------------- */

static void run_chunk(const struct cpu_item *item, bool dual, int64_t m0, int64_t rows,
		      const struct cpu_chunk *chunk, const struct cpu_chunk *next,
		      struct scratch *scratch)
{
	const bool is_nvfp4 = item->activations == NIB_ACTIVATIONS_NVFP4;
	const int64_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
	const bool last = chunk->b == dual && chunk->k0 + chunk->blocks == item->blocks;
	struct source source;
	struct fetch fetch;
	/* The sum_factor of W4A4 makes up for scales times 1/256. */
	struct tile_job job = {.fetch = &fetch,
			       .expanded = scratch->expanded,
			       .blocks = chunk->blocks,
			       .pairs =
				   rows <= TILE_ROWS ? RING_PAIRS : CHUNK_BLOCKS / 2,
			       .up = set_int(is_nvfp4 ? 0 : 8 << 23)};

	find_source(item, chunk, scratch, &source);
	/* A step is of a pair of blocks. */
	find_fetch(item, next, &source, 2 * (BLOCK_CODES + PANEL_COLS) / tiles + 1,
		   &fetch);
	for (int64_t i = 0; i < rows; i += TILE_ROWS) {
		const int64_t left = item->m - m0 - i;
		float *to = blocked_sums(item, scratch->sums[chunk->b], i, chunk->col);

		job.rows = left < TILE_ROWS ? left : TILE_ROWS;
		job.a = step_at(item, m0 + i, chunk->k0 / 2);
		job.source = i == 0 ? &source : NULL;
		configure(scratch, job.rows);
		if (last)
			fetch_output(item, m0 + i, job.rows, chunk->n0 + chunk->col);
		sum_rows(&job, to, chunk->k0 == 0);
		for (int p = 0; p < TILE_PANELS; p++)
			fetch.panels[p] += pairs_of(chunk->blocks) * fetch.step;
		if (last)
			finish_tile(item, dual, m0, i, job.rows, chunk, scratch);
	}
}

static void multiply(const struct cpu_item *item, bool dual, int64_t m0, int64_t n0,
		     void *memory)
{
	const int64_t left = item->m - m0;
	/* Analysers do not know what the intrinsic writes.  The barrier keeps these
	 * zeros before it. */
	struct tile_config before = {0};
	struct scratch scratch;

	__asm__ volatile("" ::"r"(&before) : "memory");
	_tile_storeconfig(&before);
	__asm__ volatile("" ::"r"(&before) : "memory");
	cut_scratch(item, dual, memory, &scratch);
	multiply_blocked(item, dual, m0,
			 left < item->unit_rows ? left : item->unit_rows, n0, &scratch);
	if (before.palette)
		_tile_loadconfig(&before);
	else
		_tile_release();
}

static void replace(struct cpu_gemm_ops *ops, const struct cpu_gemm_ops *few,
		    int64_t few_rows)
{
	ops->few = few;
	ops->few_rows = few_rows;
	ops->record_bytes = STEP_BYTES / 2;
	ops->record_blocks = 2;
	ops->tile_rows = TILE_ROWS;
	ops->direct_rows = few_rows;
	ops->has_wide_units = HAS_WIDE_UNITS;
	ops->scratch_bytes = scratch_bytes;
	ops->pack_rows = pack_rows;
	ops->multiply = multiply;
}

void cpu_gemm_ops_amx(struct cpu_gemm_ops *ops, const struct cpu_gemm_ops *few)
{
	replace(ops, few, FEW_NVFP4);
}

void cpu_dense_ops_amx(struct cpu_gemm_ops *ops, const struct cpu_gemm_ops *few)
{
	replace(ops, few, FEW_BF16);
}
