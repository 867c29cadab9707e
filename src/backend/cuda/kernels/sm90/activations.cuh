/* SPDX-License-Identifier: Apache-2.0 */
/*
 * activations.cuh - the activation conversion kernels: A from NVFP4 to fp16, once for
 * all tiles, in the order that the GEMM's wgmma reads.  A value is e2m1 * scale, exact
 * in fp16.  Values of fp16 and bf16 are only permuted into that order.
 *
 *   codes, scales, or values (global) --16 or 64 bytes a thread--> registers:
 *     dequantise, or permute --> shared memory, 16 atoms of 8 rows x 128 bytes,
 *     swizzled
 *     --whole lines--> converted activations (workspace, stays in L2)
 *
 * Grid: x = atoms of 8 rows of A, y = 16 steps of k64; 256 threads, no roles.  A warp
 * has the 8 rows of two steps, two threads a row, so that its 8-byte stores fall into
 * different banks.  __syncthreads() separates dequantising and storing.  Rows beyond a
 * problem's last become zeros.
 *
 *   converted activations    step of k64 | atom of 8 rows | row: 128 bytes
 *   a row of an atom         piece c of 16 bytes (0 .. 7) is at slot c ^ row
 *   piece c                  word t (0 .. 3): two values of scale group t of the k64,
 *                            of its first half for c = 0 .. 3, of its second half for
 *                            c = 4 .. 7: pair c % 4 of (0,2) (4,6) (1,3) (5,7), or
 *                            with bf16 of (0,4) (2,6) (1,5) (3,7)
 *
 * so that each k16 of a wgmma (two pieces) has four values of each of the four groups,
 * as the weights in registers have.
 *
 * Shared memory: 16384 bytes, static, and for small grids dynamic memory that keeps a
 * third CTA off the SM (gemm_launch.c).  32 to 40 registers (docs/kernels.md).
 * Roofline: the writes, 3.6 bytes for each byte of NVFP4 read, one for each byte of
 * fp16 or bf16.
 */
#ifndef NIB_SM90_ACTIVATIONS_CUH
#define NIB_SM90_ACTIVATIONS_CUH

#include "gemm.cuh"

#define ATOM_BYTES (NIB_ATOM_ROWS * 128)
/* A tile of 128 x 4 scales. */
#define SCALE_TILE 512
#define E4M3_NAN   0x7F

/* The source of an atom's eight rows. */
struct atom_rows {
	const struct nib_gemm_shape *shape;
	const uint8_t *codes;	/* of the matrix's or expert's row 0 */
	const uint8_t *scales;	/* the same; NULL: all are NaN */
	int32_t row, scale_row; /* the atom's first row, counted from row 0 */
	int32_t rows;		/* rows from there on that are inside the problem */
};

/* Bytes from the scales of row 0 to those of row r and group g. */
DEVICE int64_t scale_offset(const struct nib_gemm_shape *s, int32_t r, int32_t g)
{
	if (s->flags & NIB_A_TILED)
		return ((int64_t)(r / 128) * ((s->k / 16 + 3) / 4) + g / 4) *
			   SCALE_TILE +
		       r % 32 * 16 + r % 128 / 32 * 4 + g % 4;
	return r * s->a_scale_stride_bytes + g;
}

/* The last expert whose converted rows begin at `row` or before. */
DEVICE int32_t find_padded(const struct nib_gemm_args *args, int32_t row)
{
	int32_t low = 0, high = args->experts;

	while (high - low > 1) {
		const int32_t mid = (low + high) / 2;

		if (padded_row(mid, expert_row(args, mid)) <= row)
			low = mid;
		else
			high = mid;
	}
	return low;
}

/* An atom of a large batch.  In a branch of its own, so that small products do not wait
 * for its instructions and parameters. */
DEVICE void find_matrix_rows(const struct nib_gemm_args *args, int32_t padded,
			     struct atom_rows *out)
{
	const int32_t matrix = padded / args->batch_rows;

	out->row = out->scale_row = padded - matrix * args->batch_rows;
	out->rows = out->shape->m - out->row;
	out->codes += matrix * args->a_batch_bytes;
	out->scales += matrix * args->a_scale_batch_bytes;
}

/* Returns false if the atom has no row of A. */
DEVICE bool find_rows(const struct nib_gemm_args *args,
		      const struct nib_gemm_pointers *problems, int32_t atom,
		      struct atom_rows *out)
{
	const int32_t padded = atom * NIB_ATOM_ROWS;
	const struct nib_gemm_shape *s = args->shapes;
	const struct nib_gemm_pointers *p = problems;
	bool has_scales = true;

	if (args->experts) {
		const int32_t e = find_padded(args, padded);
		const int32_t first = expert_row(args, e);
		const int32_t end = expert_row(args, e + 1);
		const int32_t local = padded - padded_row(e, first);

		if (local < 0)
			return false;
		out->row = first + local;
		out->scale_row = out->row;
		if (args->scale_rows) {
			const int32_t begin = __ldg(args->scale_rows + e);
			const int32_t m = end - first;

			/* An expert whose scales leave the tensor gets NaN. */
			has_scales = begin >= 0 && begin <= args->scale_rows_total - m;
			out->scale_row = has_scales ? begin + local : 0;
		}
		out->rows = end - out->row;
	} else {
		const int32_t i =
		    find_last(&s->first_row, sizeof(struct nib_gemm_shape) / 4,
			      args->count, padded);

		s += i;
		p += i;
		out->row = out->scale_row = padded - s->first_row;
		out->rows = s->m - out->row;
	}
	out->shape = s;
	out->codes = p->a;
	out->scales = has_scales ? p->a_scales : NULL;
	if (args->batch)
		find_matrix_rows(args, padded, out);
	return out->rows > 0;
}

/* 16 codes of one group and its scale. */
struct code_group {
	uint2 codes;
	uint32_t scale;
};

DEVICE struct code_group load_group(const struct atom_rows *r, int32_t row,
				    int32_t group)
{
	struct code_group x = {make_uint2(0, 0), 0};

	if (row >= r->rows || group >= r->shape->k / 16)
		return x;
	x.scale = E4M3_NAN;
	x.codes = __ldg(
	    (const uint2 *)(r->codes + (r->row + row) * r->shape->a_stride_bytes) +
	    group);
	if (r->scales)
		x.scale = __ldg(r->scales +
				scale_offset(r->shape, r->scale_row + row, group));
	return x;
}

/* Two codes of a group as fp16, for piece number `piece` of the row of an atom. */
DEVICE uint32_t half_pair(const struct code_group *x, uint32_t piece)
{
	const uint32_t word = piece / 4 ? x->codes.y : x->codes.x;
	const uint32_t bytes = odd_as_e4m3(piece / 2 % 2 ? word : word << 4);
	const uint32_t pair =
	    piece % 2 ? cvt_f16x2_e4m3x2_high(bytes) : cvt_f16x2_e4m3x2(bytes);

	/*
	 * Times 2^6 first: a product below 2^-14 would still be exact, but
	 * full-size values keep the scale of the accumulators simple.
	 */
	return mul_f16x2(mul_f16x2(pair, 0x54005400u),
			 low_halves(cvt_f16x2_e4m3x2(x->scale * 0x0101u)));
}

/* A row of a step from NVFP4: groups 2 half and 2 half + 1. */
DEVICE void convert_row(const struct atom_rows *r, int32_t row, int32_t step,
			uint32_t half, uint8_t *to)
{
	const int32_t group = step * 4 + (int32_t)half * 2;
	struct code_group x[2];

	x[0] = load_group(r, row, group);
	x[1] = load_group(r, row, group + 1);
#pragma unroll
	for (uint32_t piece = 0; piece < 8; piece++)
		*(uint2 *)(to + (piece ^ (uint32_t)row) * 16 + half * 8) =
		    make_uint2(half_pair(x, piece), half_pair(x + 1, piece));
}

/* Eight values of 16 bits of a group: elements 0 to 7 or 8 to 15. */
DEVICE uint4 load_values(const struct atom_rows *r, int32_t row, int32_t group,
			 uint32_t half)
{
	if (row >= r->rows || group >= r->shape->k / 16)
		return make_uint4(0, 0, 0, 0);
	return __ldg(
	    (const uint4 *)(r->codes + (r->row + row) * r->shape->a_stride_bytes) +
	    group * 2 + (int32_t)half);
}

/*
 * Eight values in the order of dequantize(): pairs (0,2), (4,6), (1,3), (5,7), or
 * of bf16 (0,4), (2,6), (1,5), (3,7).
 */
DEVICE uint4 permute_halves(uint4 x, bool is_bf16)
{
	const uint32_t second = is_bf16 ? x.z : x.y;
	const uint32_t third = is_bf16 ? x.y : x.z;

	return make_uint4(prmt(x.x, second, 0x5410), prmt(third, x.w, 0x5410),
			  prmt(x.x, second, 0x7632), prmt(third, x.w, 0x7632));
}

DEVICE void store_piece(uint8_t *to, int32_t row, uint32_t piece, uint32_t a,
			uint32_t b, uint32_t c, uint32_t d)
{
	*(uint4 *)(to + (piece ^ (uint32_t)row) * 16) = make_uint4(a, b, c, d);
}

/*
 * A row of a step from 16-bit values: of each of its four groups eight values,
 * whose pairs go to four pieces.
 */
DEVICE void permute_row(const struct atom_rows *r, int32_t row, int32_t step,
			uint32_t half, bool is_bf16, uint8_t *to)
{
	uint4 x[4];

#pragma unroll
	for (int32_t t = 0; t < 4; t++)
		x[t] = permute_halves(load_values(r, row, step * 4 + t, half), is_bf16);
	store_piece(to, row, half * 4, x[0].x, x[1].x, x[2].x, x[3].x);
	store_piece(to, row, half * 4 + 1, x[0].y, x[1].y, x[2].y, x[3].y);
	store_piece(to, row, half * 4 + 2, x[0].z, x[1].z, x[2].z, x[3].z);
	store_piece(to, row, half * 4 + 3, x[0].w, x[1].w, x[2].w, x[3].w);
}

/* A: what the caller has, NIB_A_NVFP4 and so on. */
template <int A>
DEVICE void convert_activations(const struct nib_gemm_args *args,
				const struct nib_gemm_pointers *problems)
{
	__shared__ __align__(128) uint8_t atoms[NIB_CONVERT_STEPS * ATOM_BYTES];
	const uint32_t row = threadIdx.x / 2 % 8, step = threadIdx.x / 16;
	const int32_t step0 = (int32_t)blockIdx.y * NIB_CONVERT_STEPS;
	uint8_t *to = atoms + step * ATOM_BYTES + row * 128;
	struct atom_rows r;
	int32_t steps;

	/* The GEMM may then load weights while the previous kernel ends. */
	if (args->are_weights_ready)
		griddepcontrol_launch_dependents();
	/*
	 * The previous kernel may still write what this one reads, and read what this
	 * one writes.
	 */
	griddepcontrol_wait();
	/*
	 * The GEMM may start: it waits for this grid before it reads
	 * activations.
	 */
	griddepcontrol_launch_dependents();
	if (blockIdx.x == 0 && blockIdx.y == 0)
		for (int32_t i = threadIdx.x; i < args->n_arrivals;
		     i += NIB_CONVERT_THREADS)
			args->arrivals[i] = 0;
	if (!find_rows(args, problems, (int32_t)blockIdx.x, &r))
		return;
	/* The GEMM reads whole weight stages, at least one: zeros beyond k. */
	steps =
	    max(1, (r.shape->k + NIB_WEIGHT_STAGE_K - 1) / NIB_WEIGHT_STAGE_K) * STEPS;
	if (A == NIB_A_NVFP4)
		convert_row(&r, (int32_t)row, step0 + (int32_t)step, threadIdx.x % 2,
			    to);
	else
		permute_row(&r, (int32_t)row, step0 + (int32_t)step, threadIdx.x % 2,
			    A == NIB_A_BF16, to);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < sizeof(atoms) / 16;
	     i += NIB_CONVERT_THREADS) {
		const int32_t at = step0 + (int32_t)(i / (ATOM_BYTES / 16));

		if (at < steps)
			((uint4 *)(args->activations +
				   (at * args->a_atoms + blockIdx.x) *
				       ATOM_BYTES))[i % (ATOM_BYTES / 16)] =
			    ((const uint4 *)atoms)[i];
	}
}

#endif
