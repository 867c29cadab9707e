/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_math.c - see tensor_math.h. */
#include "machine/tensor_math.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hardware/block_sums.h"
#include "hardware/integer_sums.h"
#include "machine/access.h"
#include "machine/report.h"
#include "machine/watch.h"

#define UNDEFINED_CODE	0xFFFFFFFFu /* a NaN, also of fp16 and bf16 */
#define UNDEFINED_SCALE 0xFF	    /* a NaN of both types */
#define SCALE_OF_1	127	    /* UE8M0 */

/* The data of one CTA's share. */
struct workspace {
	uint32_t d[128 * EMU_UMMA_MAX_ROWS];
	/* Kinds f16 and tf32: codes, 16 and 8 a row. */
	uint32_t a_codes[128 * 16], b_codes[EMU_UMMA_MAX_ROWS * 16];
	struct emu_mma_operand a_fused, b_fused;
	/* Scaled kinds and f8f6f4; a: 32 rows, in scaled kinds those of a
	 * quarter of the lanes. */
	struct emu_block_operand a, b;
	uint8_t a_bytes[128][EMU_UMMA_K_BYTES];
	uint8_t b_bytes[EMU_UMMA_MAX_ROWS][EMU_UMMA_K_BYTES];
	bool a_undefined[128], b_undefined[EMU_UMMA_MAX_ROWS];
};

/* One execution, and where it was issued. */
struct run {
	struct emu_warp *w;
	const struct emu_instr *i;
	const struct emu_umma_work *work;
	struct workspace *space;
};

static uint32_t rank_of(const struct emu_warp *w, const struct emu_umma *u, int k)
{
	return u->form.ctas == 2 ? (w->cta->rank & ~1u) + (uint32_t)k : w->cta->rank;
}

/* ---- operands in shared memory ------------------------------------------- */

static bool is_wide(enum emu_umma_type type)
{
	return type <= EMU_UMMA_TYPE_BF16;
}

/* How the rows of an operand are laid out, in pieces of 16 bytes. */
struct walk {
	uint32_t rows, pieces;
};

static struct walk walk_of(const struct emu_umma *u, enum emu_umma_type type,
			   bool is_transposed, int rows)
{
	const uint32_t in_piece = is_wide(type) ? 8 : 16;

	if (is_transposed)
		return (struct walk){(uint32_t)u->k, (uint32_t)rows / in_piece};
	return (struct walk){(uint32_t)rows, 2};
}

/* 16 bytes, and whether all are defined. */
static bool read_piece(const struct run *r, uint32_t rank,
		       const struct emu_umma_matrix *m, bool is_transposed,
		       uint32_t row, uint32_t piece, uint8_t *to, bool *is_defined)
{
	const uint32_t at = emu_umma_offset(m, is_transposed, (int)row, (int)piece);
	uint8_t *shadow;
	const uint8_t *from =
	    emu_access(r->w, r->i, -1, EMU_SHARED_CLUSTER,
		       at | (uint64_t)rank << EMU_RANK_SHIFT, 16, EMU_COPY, &shadow);

	if (!from)
		return false;
	memcpy(to, from, 16);
	*is_defined = true;
	for (int k = 0; k < 16; k++)
		*is_defined = *is_defined && shadow[k] & EMU_WRITTEN;
	return true;
}

/*
 * Reads rows of 32 bytes of one CTA.  A row with an undefined byte is undefined
 * as a whole, and its results are NaN.
 */
static bool read_rows(const struct run *r, uint32_t rank,
		      const struct emu_umma_matrix *m, enum emu_umma_type type,
		      bool is_transposed, int rows, uint8_t (*to)[EMU_UMMA_K_BYTES],
		      bool *undefined)
{
	const struct walk walk = walk_of(&r->work->umma, type, is_transposed, rows);
	const uint32_t bytes = is_wide(type) ? 2 : 1;

	memset(undefined, 0, sizeof(*undefined) * (size_t)rows);
	for (uint32_t row = 0; row < walk.rows; row++)
		for (uint32_t p = 0; p < walk.pieces; p++) {
			uint8_t piece[16];
			bool is_defined;

			if (!read_piece(r, rank, m, is_transposed, row, p, piece,
					&is_defined))
				return false;
			if (!is_transposed) {
				memcpy(to[row] + 16 * p, piece, 16);
				undefined[row] |= !is_defined;
				continue;
			}
			for (uint32_t k = 0; k < 16 / bytes; k++) {
				const uint32_t at = p * (16 / bytes) + k;

				memcpy(to[at] + bytes * row, piece + bytes * k, bytes);
				undefined[at] |= !is_defined;
			}
		}
	return true;
}

/* B: rows from each CTA of the group, one after the other. */
static bool read_b(const struct run *r)
{
	const struct emu_umma *u = &r->work->umma;
	const int rows = emu_umma_b_rows(u);

	for (int k = 0; k < u->form.ctas; k++)
		if (!read_rows(r, rank_of(r->w, u, k), &r->work->b_matrix, u->b_type,
			       u->b_transposed, rows, r->space->b_bytes + k * rows,
			       r->space->b_undefined + k * rows))
			return false;
	return true;
}

/* ---- operands in tensor memory ------------------------------------------- */

static void a_from_tmem(const struct run *r, const struct emu_tmem *t)
{
	const struct emu_umma *u = &r->work->umma;
	const uint32_t base = emu_tmem_lane(r->work->a);
	const uint32_t column = emu_tmem_column(r->work->a);

	for (int row = 0; row < emu_umma_a_rows(u); row++) {
		const uint32_t lane = base + (uint32_t)emu_umma_a_lane(u, row);

		memcpy(r->space->a_bytes[row], &t->cell[lane][column],
		       EMU_UMMA_K_BYTES);
		r->space->a_undefined[row] = false;
		for (uint32_t c = 0; c < EMU_UMMA_K_BYTES / 4; c++)
			if (t->written[lane][column + c] != 0xF)
				r->space->a_undefined[row] = true;
	}
}

static bool read_a(const struct run *r, uint32_t rank, const struct emu_tmem *t)
{
	const struct emu_umma *u = &r->work->umma;

	if (u->form.a_in_tensor_memory) {
		a_from_tmem(r, t);
		return true;
	}
	return read_rows(r, rank, &r->work->a_matrix, u->a_type, u->a_transposed,
			 emu_umma_a_rows(u), r->space->a_bytes, r->space->a_undefined);
}

/* The scales of a row, from the copy of a quarter of the lanes. */
static void read_scales(const struct emu_umma *u, const struct emu_tmem *t,
			uint32_t address, int id, int row, uint32_t quarter,
			uint8_t *scales)
{
	for (int s = 0; s < u->form.scales; s++) {
		int column, byte;
		uint32_t lane, at;

		emu_umma_scale_place(row, id, s, &column, &byte);
		lane = 32 * quarter + (uint32_t)row % 32;
		at = emu_tmem_column(address) + (uint32_t)column;
		scales[s] = UNDEFINED_SCALE;
		if (t->written[lane][at] >> byte & 1)
			scales[s] = (uint8_t)(t->cell[lane][at] >> 8 * byte);
	}
}

/* ---- D ------------------------------------------------------------------- */

/*
 * The cell of D in CTA number `cta` of the group.  The columns of a row are
 * adjacent, as many as tensor memory has of D.
 */
static void d_cell(const struct run *r, int cta, int row, int column, uint32_t *lane,
		   uint32_t *at)
{
	const struct emu_umma *u = &r->work->umma;
	int which, place, tmem_column;

	emu_umma_d_place(u, cta * emu_umma_a_rows(u) + row, column, &which, &place,
			 &tmem_column);
	*lane = emu_tmem_lane(r->work->d) + (uint32_t)place;
	*at = emu_tmem_column(r->work->d) + (uint32_t)tmem_column;
}

static bool is_kept(const struct run *r, int cta, uint32_t lane)
{
	return r->work->kept_lanes[4 * cta + (int)lane / 32] >> lane % 32 & 1;
}

/* scale-input-d.  PTX does not define how bits below the smallest are rounded; here
 * they are truncated. */
static void shift_d(const struct run *r, int count)
{
	const int shift = r->work->d_shift;

	for (int k = 0; k < count && shift; k++) {
		uint32_t *d = &r->space->d[k];
		float x;

		if (r->work->umma.d_is_f16) {
			*d = emu_narrow(
			    &emu_format_f16,
			    ldexp(emu_widen(&emu_format_f16, *d & 0xFFFF), -shift),
			    EMU_RZ, false);
			continue;
		}
		memcpy(&x, d, sizeof(x));
		*d = emu_narrow_f32(ldexp(x, -shift), EMU_RZ);
	}
}

static bool load_d(const struct run *r, const struct emu_tmem *t, int cta, int first,
		   int rows)
{
	const int n = r->work->umma.n, part = emu_umma_d_columns(&r->work->umma);

	for (int k = 0; k < rows * n; k += part) {
		uint32_t lane, column;

		d_cell(r, cta, first + k / n, k % n, &lane, &column);
		for (int c = 0; c < part; c++) {
			if (t->written[lane][column + (uint32_t)c] == 0xF ||
			    is_kept(r, cta, lane))
				continue;
			emu_fault(r->w, r->i, -1,
				  "it adds to tensor memory lane %u, column "
				  "%u, which was never written",
				  lane, column + (uint32_t)c);
			return false;
		}
		memcpy(r->space->d + k, &t->cell[lane][column],
		       sizeof(uint32_t) * (size_t)part);
	}
	shift_d(r, rows * n);
	return true;
}

static void store_d(const struct run *r, struct emu_tmem *t, int cta, int first,
		    int rows)
{
	const int n = r->work->umma.n, part = emu_umma_d_columns(&r->work->umma);

	for (int k = 0; k < rows * n; k += part) {
		uint32_t lane, column;

		d_cell(r, cta, first + k / n, k % n, &lane, &column);
		if (is_kept(r, cta, lane))
			continue;
		memcpy(&t->cell[lane][column], r->space->d + k,
		       sizeof(uint32_t) * (size_t)part);
		memset(&t->written[lane][column], 0xF, (size_t)part);
	}
}

/* ---- sums ---------------------------------------------------------------- */

/* Elements of 2 or 4 bytes; an undefined row's are NaN. */
static void codes_of(const struct emu_umma *u, uint8_t (*bytes)[EMU_UMMA_K_BYTES],
		     const bool *undefined, int rows, uint32_t *codes)
{
	const int size = EMU_UMMA_K_BYTES / u->k;

	for (int row = 0; row < rows; row++)
		for (int k = 0; k < u->k; k++) {
			uint32_t code = 0;

			memcpy(&code, bytes[row] + size * k, (size_t)size);
			codes[row * u->k + k] = undefined[row] ? UNDEFINED_CODE : code;
		}
}

static void fill_fused(struct emu_mma_operand *o, enum emu_umma_type type, int rows,
		       const uint32_t *codes, bool negate)
{
	emu_mma_operand_fill(o,
			     type == EMU_UMMA_TYPE_TF32	  ? EMU_TF32
			     : type == EMU_UMMA_TYPE_BF16 ? EMU_BF16
							  : EMU_F16,
			     rows, codes, negate);
}

/* Kinds f16 and tf32. */
static bool run_fused(const struct run *r, struct emu_tmem *t, int cta)
{
	const struct emu_umma *u = &r->work->umma;
	struct workspace *s = r->space;
	const int rows = emu_umma_a_rows(u);

	codes_of(u, s->a_bytes, s->a_undefined, rows, s->a_codes);
	codes_of(u, s->b_bytes, s->b_undefined, u->n, s->b_codes);
	fill_fused(&s->a_fused, u->a_type, rows, s->a_codes, u->a_negated);
	fill_fused(&s->b_fused, u->b_type, u->n, s->b_codes, u->b_negated);
	if (r->work->accumulates && !load_d(r, t, cta, 0, rows))
		return false;
	emu_fused_sums(&s->a_fused, &s->b_fused, u->d_is_f16,
		       r->work->accumulates ? s->d : NULL, s->d);
	store_d(r, t, cta, 0, rows);
	return true;
}

/*
 * kind::i8: sums of undefined rows are marked undefined, because no integer value
 * can show it.
 */
static bool run_integer(const struct run *r, struct emu_tmem *t, int cta)
{
	const struct emu_umma *u = &r->work->umma;
	struct workspace *s = r->space;
	const struct emu_integer_operand a = {
	    emu_umma_a_rows(u), u->a_type == EMU_UMMA_TYPE_S8,
	    (const uint8_t(*)[EMU_INTEGER_K])s->a_bytes};
	const struct emu_integer_operand b = {
	    u->n, u->b_type == EMU_UMMA_TYPE_S8,
	    (const uint8_t(*)[EMU_INTEGER_K])s->b_bytes};

	if (r->work->accumulates && !load_d(r, t, cta, 0, a.rows))
		return false;
	emu_integer_sums(&a, &b, u->saturates, r->work->accumulates ? s->d : NULL,
			 s->d);
	store_d(r, t, cta, 0, a.rows);
	for (int k = 0; k < a.rows * u->n; k++) {
		uint32_t lane, column;

		if (!s->a_undefined[k / u->n] && !s->b_undefined[k % u->n])
			continue;
		d_cell(r, cta, k / u->n, k % u->n, &lane, &column);
		if (is_kept(r, cta, lane))
			continue;
		t->written[lane][column] = 0;
	}
	return true;
}

static void set_rows(const struct emu_umma *u, struct emu_block_operand *o, int rows,
		     uint8_t (*bytes)[EMU_UMMA_K_BYTES], bool negate)
{
	uint8_t codes[EMU_UMMA_MAX_K];

	for (int row = 0; row < rows; row++) {
		emu_umma_unpack(u, o->type, bytes[row], codes);
		emu_block_operand_set(o, row, u->form.kind, codes, negate);
	}
}

/* Scales of rows from `first` on, 1 in kind::f8f6f4; of an undefined row NaN.
 */
static void set_scales(const struct emu_umma *u, struct emu_block_operand *o,
		       const struct emu_tmem *t, uint32_t address, int id, int first,
		       int rows, uint32_t quarter, const bool *undefined)
{
	uint8_t scales[EMU_UMMA_MAX_SCALES];

	for (int row = 0; row < rows; row++) {
		if (u->form.scales)
			read_scales(u, t, address, id, first + row, quarter, scales);
		else
			scales[0] = SCALE_OF_1;
		if (undefined[first + row])
			scales[0] = UNDEFINED_SCALE;
		emu_block_operand_scale(o, row, scales);
	}
}

/* 32 rows of D; in scaled kinds their lanes have scales of their own. */
static bool run_quarter(const struct run *r, struct emu_tmem *t, int cta,
			uint32_t quarter)
{
	const struct emu_umma *u = &r->work->umma;
	struct workspace *s = r->space;
	const int first = 32 * (int)quarter;
	const uint32_t *c = r->work->accumulates ? s->d : NULL;

	set_rows(u, &s->a, 32, s->a_bytes + first, u->a_negated);
	set_scales(u, &s->a, t, r->work->sfa, u->sfa_id, first, 32, quarter,
		   s->a_undefined);
	set_scales(u, &s->b, t, r->work->sfb, u->sfb_id, 0, u->n, quarter,
		   s->b_undefined);
	if (c && !load_d(r, t, cta, first, 32))
		return false;
	if (u->form.kind == EMU_UMMA_MXF4NVF4)
		emu_fp4_sums(&s->a, &s->b, c, s->d);
	else
		emu_mx_sums(&s->a, &s->b, u->d_is_f16, c, s->d);
	store_d(r, t, cta, first, 32);
	return true;
}

static bool run_scaled(const struct run *r, struct emu_tmem *t, int cta)
{
	const struct emu_umma *u = &r->work->umma;

	r->space->a.rows = 32;
	r->space->b.rows = u->n;
	r->space->a.type = u->a_type;
	r->space->b.type = u->b_type;
	r->space->a.scales = r->space->b.scales = u->form.scales ? u->form.scales : 1;
	r->space->a.scale_is_ue8m0 = r->space->b.scale_is_ue8m0 =
	    u->scale_is_ue8m0 || !u->form.scales;
	set_rows(u, &r->space->b, u->n, r->space->b_bytes, u->b_negated);
	for (int first = 0; first < emu_umma_a_rows(u); first += 32)
		if (!run_quarter(r, t, cta, (uint32_t)first / 32))
			return false;
	return true;
}

static bool run_kind(const struct run *r, struct emu_tmem *t, int cta)
{
	switch (r->work->umma.form.kind) {
	case EMU_UMMA_F16:
	case EMU_UMMA_TF32:
		return run_fused(r, t, cta);
	case EMU_UMMA_I8:
		return run_integer(r, t, cta);
	default:
		return run_scaled(r, t, cta);
	}
}

bool emu_umma_run(struct emu_warp *w, const struct emu_instr *i,
		  const struct emu_umma_work *work)
{
	const struct emu_umma *u = &work->umma;
	const struct run r = {w, i, work, calloc(1, sizeof(*r.space))};
	bool ok = r.space;

	if (!r.space)
		emu_fault(w, i, -1, "no memory for a multiplication");
	ok = ok && read_b(&r);
	for (int cta = 0; ok && cta < u->form.ctas; cta++) {
		const uint32_t rank = rank_of(w, u, cta);
		struct emu_tmem *t = emu_tmem_of(w, i, rank);

		ok = t && read_a(&r, rank, t) && run_kind(&r, t, cta);
	}
	free(r.space);
	return ok;
}

/* ---- taking operands ----------------------------------------------------- */

bool emu_umma_has_lane(const struct emu_umma_work *work, int lane)
{
	const int at = lane - (int)emu_tmem_lane(work->d);

	return at >= 0 && (work->umma.m != 64 || at % 32 < 16);
}

static bool watch_matrix(struct emu_warp *w, const struct emu_instr *i, int lane,
			 uint32_t rank, const struct emu_umma *u,
			 const struct emu_umma_matrix *m, enum emu_umma_type type,
			 bool is_transposed, int rows)
{
	const struct walk walk = walk_of(u, type, is_transposed, rows);

	for (uint32_t k = 0; k < walk.rows * walk.pieces; k++)
		if (!emu_watch_async_read(w, i, lane, EMU_ASYNC_WGMMA,
					  (uint64_t)rank << EMU_RANK_SHIFT |
					      emu_umma_offset(m, is_transposed,
							      (int)(k / walk.pieces),
							      (int)(k % walk.pieces)),
					  16))
			return false;
	return true;
}

/* Checks that a range of tensor memory is allocated and its accesses are ordered. */
static bool use_columns(struct emu_warp *w, const struct emu_instr *i, int lane,
			uint32_t rank, enum emu_tmem_use use, uint32_t address,
			uint32_t lanes, uint32_t columns, uint32_t tag)
{
	return emu_tmem_reach(w, i, lane, rank, address, columns) &&
	       emu_watch_tmem(w, i, lane, use, rank, emu_tmem_lane(address), lanes,
			      emu_tmem_column(address), columns, tag);
}

static bool use_cta(struct emu_warp *w, const struct emu_instr *i, int lane,
		    const struct emu_umma_work *x, uint32_t rank)
{
	const struct emu_umma *u = &x->umma;
	const uint32_t tag = x->d ^ (uint32_t)u->m << 20 ^ (uint32_t)u->n << 10 ^
			     (uint32_t)u->form.kind << 29;
	const uint32_t lanes = 128 - emu_tmem_lane(x->d);
	const uint32_t b_columns = ((uint32_t)u->n + 31) / 32;

	if (u->form.scales &&
	    (!use_columns(w, i, lane, rank, EMU_TMEM_MMA_SCALE, x->sfa, 128, 4, 0) ||
	     !use_columns(w, i, lane, rank, EMU_TMEM_MMA_SCALE, x->sfb, 128, b_columns,
			  0)))
		return false;
	if (u->form.a_in_tensor_memory &&
	    !use_columns(w, i, lane, rank, EMU_TMEM_MMA_A, x->a, lanes,
			 EMU_UMMA_K_BYTES / 4, 0))
		return false;
	if (!u->form.a_in_tensor_memory &&
	    !watch_matrix(w, i, lane, rank, u, &x->a_matrix, u->a_type, u->a_transposed,
			  emu_umma_a_rows(u)))
		return false;
	return watch_matrix(w, i, lane, rank, u, &x->b_matrix, u->b_type,
			    u->b_transposed, emu_umma_b_rows(u)) &&
	       use_columns(w, i, lane, rank, EMU_TMEM_MMA, x->d, lanes,
			   (uint32_t)emu_umma_d_columns(u), tag);
}

static uint32_t word(const struct emu_warp *w, const struct emu_value *v, int lane)
{
	return ((const uint32_t *)emu_row(w, v))[lane];
}

/* Lanes: D's, and those of A in tensor memory, from 0; with 64 rows also from 16. */
static bool check_lanes(struct emu_warp *w, const struct emu_instr *i, int lane,
			const struct emu_umma_work *x)
{
	const uint32_t d = emu_tmem_lane(x->d);

	if (d != 0 && (x->umma.m != 64 || d != 16)) {
		emu_fault(w, i, lane, "D at lane %u: it begins at 0%s", d,
			  x->umma.m == 64 ? " or 16" : "");
		return false;
	}
	if (x->umma.form.a_in_tensor_memory && emu_tmem_lane(x->a) != d) {
		emu_fault(w, i, lane,
			  "A at lane %u and D at lane %u: both must begin at "
			  "the same",
			  emu_tmem_lane(x->a), d);
		return false;
	}
	if (!x->umma.form.scales)
		return true;
	if (emu_tmem_lane(x->sfa) || emu_tmem_lane(x->sfb)) {
		emu_fault(w, i, lane,
			  "scales at lanes %u and %u, not 0: they must begin "
			  "at 0",
			  emu_tmem_lane(x->sfa), emu_tmem_lane(x->sfb));
		return false;
	}
	/* A rule that PTX does not state; gau-nernst found it on hardware. */
	if (x->sfb % 2) {
		emu_fault(w, i, lane,
			  "scales of B at column %u: a multiple of 2 is needed",
			  emu_tmem_column(x->sfb));
		return false;
	}
	return true;
}

bool emu_umma_take(struct emu_warp *w, const struct emu_instr *i, int lane,
		   struct emu_umma_work *x)
{
	const struct emu_umma_form form = emu_umma_form_of(i);
	const struct emu_value *o = i->operand;
	struct emu_error err;
	const uint64_t *wide;

	x->d = word(w, &o[0], lane) + (uint32_t)i->immediate;
	if (form.a_in_tensor_memory) {
		x->a = word(w, &o[1], lane) + (uint32_t)i->offset[0];
	} else {
		wide = emu_row(w, &o[1]);
		if (!emu_umma_matrix_decode(wide[lane], &x->a_matrix, &err)) {
			emu_fault(w, i, lane, "A: %s", err.text);
			return false;
		}
	}
	wide = emu_row(w, &o[2]);
	if (!emu_umma_matrix_decode(wide[lane], &x->b_matrix, &err)) {
		emu_fault(w, i, lane, "B: %s", err.text);
		return false;
	}
	if (!emu_umma_decode(word(w, &o[3], lane), &form, &x->umma, &err)) {
		emu_fault(w, i, lane, "%s", err.text);
		return false;
	}
	if (form.scales) {
		x->sfa = word(w, &o[4], lane);
		x->sfb = word(w, &o[5], lane);
	}
	o += form.scales ? 6 : 4;
	x->accumulates = emu_lanes_of(w, &o[0]) >> lane & 1;
	x->d_shift = (int)i->offset[1];
	for (int k = 0; k < 4 * form.ctas && i->option & EMU_UMMA_KEEPS; k++)
		x->kept_lanes[k] = word(w, &o[1 + k], lane);
	if (!check_lanes(w, i, lane, x))
		return false;
	for (int k = 0; k < form.ctas; k++)
		if (!use_cta(w, i, lane, x, rank_of(w, &x->umma, k)))
			return false;
	return true;
}
