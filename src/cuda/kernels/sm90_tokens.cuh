/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sm90_tokens.cuh - tokens from NVFP4 to fp16 in the order that the GEMM's
 * wgmma reads, once for all tiles.  Values are e2m1 * scale, exact in fp16.
 *
 * A block takes one row of tokens and up to 128 k64 steps of it; eight threads
 * make the 128 bytes of one step, one 16-byte chunk each, so that both the read
 * (32 bytes of codes) and the write are whole lines.  Bound by latency: a few
 * megabytes that stay in the L2.
 */
#ifndef NIB_SM90_TOKENS_CUH
#define NIB_SM90_TOKENS_CUH

#include "sm90_gemm.cuh"

/* k64 steps in flight of one thread. */
#define TOKEN_STEPS (NIB_TOKENS_STEPS / (NIB_TOKENS_THREADS / 8))

/* One row of tokens: where from, where to. */
struct token_row {
	const uint8_t *codes, *scales;
	int64_t scale_step; /* from one k64's four scales to the next */
	int32_t k;
	int32_t padded; /* row among the prepared ones */
};

/* Bytes to row r's scales of group 0. */
DEVICE int64_t scale_row_offset(const struct nib_gemm_shape *s, int32_t r)
{
	if (s->flags & NIB_A_TILED)
		return (int64_t)(r / 128) * ((s->k / 16 + 3) / 4) *
			       512 +
		       r % 32 * 16 + r % 128 / 32 * 4;
	return r * s->a_scale_stride_bytes;
}

/* false: row belongs to no expert. */
DEVICE bool find_token_row(const struct nib_gemm_args *args,
			   const struct nib_gemm_pointers *problems,
			   int32_t row, struct token_row *out)
{
	const struct nib_gemm_shape *s = args->shapes;
	const struct nib_gemm_pointers *p = problems;
	int32_t scale_row = row, local = row;

	if (args->experts) {
		const int32_t *offsets = args->row_offsets;
		const int32_t e =
			find_last(offsets, 1, args->experts, row);
		const int32_t first = __ldg(offsets + e);

		if (row < first || row >= __ldg(offsets + e + 1))
			return false;
		out->padded = padded_row(e, first) + row - first;
		if (args->scale_rows)
			scale_row = __ldg(args->scale_rows + e) + row - first;
	} else {
		const int32_t i =
			find_last(&s->first_row,
				  sizeof(struct nib_gemm_shape) / 4,
				  args->count, row);

		s += i;
		p += i;
		local = scale_row = row - s->first_row;
		out->padded = s->first_token + local;
	}
	out->k = s->k;
	out->codes = p->a + local * s->a_stride_bytes;
	out->scales = p->a_scales + scale_row_offset(s, scale_row);
	out->scale_step = s->flags & NIB_A_TILED ? 512 : 4;
	return true;
}

/* Codes and scales of one k64 step, zero past k. */
struct token_codes {
	uint32_t word[4];  /* word h of each of the four groups */
	uint32_t scale[4]; /* bytes */
};

DEVICE void load_token_codes(const struct token_row *r, int32_t step,
			     uint32_t word, struct token_codes *c)
{
	const uint32_t *codes = (const uint32_t *)r->codes + step * 8;
	const uint8_t *scales = r->scales + step * r->scale_step;
	const int32_t groups = r->k / 16 - step * 4;

#pragma unroll
	for (int t = 0; t < 4; t++) {
		c->word[t] = t < groups ? __ldg(codes + t * 2 + word) : 0;
		c->scale[t] = t < groups ? __ldg(scales + t) : 0;
	}
}

/* Chunk `chunk` of the step's 128 bytes: positions 8 * chunk on. */
DEVICE uint4 token_chunk(const struct token_codes *c, uint32_t chunk)
{
	const bool odd = chunk / 2 % 2, high = chunk % 2;
	uint32_t out[4];

#pragma unroll
	for (int t = 0; t < 4; t++) {
		const uint32_t bytes =
			odd_as_e4m3(odd ? c->word[t] : c->word[t] << 4);
		const uint32_t pair = cvt_f16x2_e4m3x2(high ? bytes >> 16
							    : bytes);
		/* Times 2^6 first: a product below 2^-14 would still be exact,
		 * but full-size values keep the sums' scale simple. */
		const uint32_t value = mul_f16x2(pair, 0x54005400u);

		out[t] = mul_f16x2(
			value,
			cvt_f16x2_e4m3x2(c->scale[t] * 0x0101u));
	}
	return make_uint4(out[0], out[1], out[2], out[3]);
}

DEVICE void prepare_tokens(const struct nib_gemm_args *args,
			   const struct nib_gemm_pointers *problems)
{
	const uint32_t chunk = threadIdx.x % 8;
	const int32_t first =
		(int32_t)(blockIdx.y * 32 * TOKEN_STEPS + threadIdx.x / 8);
	struct token_codes codes[TOKEN_STEPS];
	struct token_row r;
	int32_t steps;

	/* The GEMM may start: it waits for this grid before it reads tokens. */
	griddepcontrol_launch_dependents();
	if (!find_token_row(args, problems, (int32_t)blockIdx.x, &r))
		return;
	/* The GEMM works in whole weight stages, one at least: zeros behind k. */
	steps = max(1, (r.k + NIB_WEIGHT_STAGE_K - 1) / NIB_WEIGHT_STAGE_K) *
		STEPS;
#pragma unroll
	for (int i = 0; i < TOKEN_STEPS; i++)
		if (first + 32 * i < steps)
			load_token_codes(&r, first + 32 * i, chunk / 4,
					 codes + i);
#pragma unroll
	for (int i = 0; i < TOKEN_STEPS; i++) {
		const int64_t step = first + 32 * i;
		const uint32_t in_atom = (uint32_t)r.padded % 8;

		if (step < steps)
			*(uint4 *)(args->tokens +
				   (step * args->token_atoms + r.padded / 8) *
					   1024 +
				   in_atom * 128 + (chunk ^ in_atom) * 16) =
				token_chunk(codes + i, chunk);
	}
}

#endif
