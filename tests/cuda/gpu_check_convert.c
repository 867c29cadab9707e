/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_check_convert.c - quantise, amax, dequantise and scale layouts on the GPU: the
 * same bits and errors as on the CPU, and no writes outside the outputs.
 */
#include "gpu_problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- quantise and amax --------------------------------------------------- */

struct quantize_case {
	struct gpu_sizes s;
	enum nib_zero_scale zero_scale;
	float global;	 /* 0: found */
	bool by_pointer; /* global through the device's memory */
	bool ties, saturate;
	bool edges; /* fill_edges() */
	int bad;    /* values that are inf or NaN */
	enum nib_scales scales;
	bool is_weighted;
};

/* Zeros, ones, and from 2^-20 to 2^20. */
static void fill_weights(float *weights, int64_t k)
{
	for (int64_t i = 0; i < k; i++)
		weights[i] = gpu_rnd_below(8) == 0
				 ? (float)gpu_rnd_below(2)
				 : ldexpf((float)(1 + gpu_rnd_below(1000)) / 1000,
					  (int)gpu_rnd_below(41) - 20);
}

/* Into q's host side by the CPU, and the device's side by the GPU. */
static const char *quantize_both(const struct quantize_case *c,
				 const struct gpu_twin *x, const struct gpu_twin *codes,
				 const struct gpu_twin *scales)
{
	static struct nib_error gpu_err;
	const struct nib_dense from = gpu_dense(&c->s, gpu_host_of(x));
	const struct nib_dense gpu_from = gpu_dense(&c->s, gpu_device_of(x));
	const struct nib_fp4 to =
	    gpu_nvfp4(&c->s, gpu_host_of(codes), gpu_host_of(scales));
	const struct nib_fp4 gpu_to =
	    gpu_nvfp4(&c->s, gpu_device_of(codes), gpu_device_of(scales));
	struct nib_quantize_options options = {
	    .struct_bytes = sizeof(options),
	    .zero_scale = c->zero_scale,
	    .global = c->global,
	    .saturate = c->saturate,
	    .scales = c->scales,
	};
	struct gpu_twin weights = gpu_twin_new((size_t)c->s.k * sizeof(float));
	struct gpu_twin global = gpu_twin_new(sizeof(float));
	float want = 0, got = 0;
	enum nib_status status, gpu_status;

	fill_weights(gpu_host_of(&weights), c->s.k);
	gpu_upload(&weights);
	if (c->is_weighted)
		options.column_weights = gpu_host_of(&weights);
	gpu_test.err.message[0] = gpu_err.message[0] = '\0';
	status = nib_quantize(gpu_test.cpu, &from, &to, &options, &want, &gpu_test.err);
	memcpy(gpu_host_of(&global), &c->global, sizeof(float));
	gpu_upload(&global);
	if (c->is_weighted)
		options.column_weights = gpu_device_of(&weights);
	if (c->by_pointer) {
		options.global = 0;
		options.global_pointer = gpu_device_of(&global);
	}
	gpu_status = nib_quantize(gpu_test.gpu, &gpu_from, &gpu_to, &options,
				  c->by_pointer ? NULL : &got, &gpu_err);
	gpu_twin_free(&global);
	gpu_twin_free(&weights);
	if (status != gpu_status)
		return gpu_err.message[0] ? gpu_err.message : "status";
	if (status)
		return strcmp(gpu_test.err.message, gpu_err.message) ? gpu_err.message
								     : "told";
	return !c->by_pointer && gpu_float_bits(want) != gpu_float_bits(got)
		   ? "another global scale"
		   : NULL;
}

/*
 * fp32 on and next to the quotients at which a code changes, and what no quotient
 * is: zeros, subnormals, inf, NaN, all with both signs.  The first of a block
 * makes its scale.
 */
static void fill_edges(const struct quantize_case *c, uint32_t *x)
{
	static const double edge[] = {0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
	static const uint32_t others[] = {0,	      1,	  0x007FFFFF,
					  0x7F800000, 0x7FC00000, 0x7F7FFFFF};
	double d = 0;

	for (int64_t i = 0; i < c->s.batch * c->s.rows * c->s.k; i++) {
		uint32_t bits;

		if (i % 16 == 0) {
			d = ldexp((double)(8 + gpu_rnd_below(8)),
				  (int)gpu_rnd_below(15) - 9) *
			    (double)c->global;
			bits = gpu_float_bits((float)(6 * d));
		} else {
			bits = gpu_float_bits((float)(edge[gpu_rnd_below(8)] * d));
			bits += bits > 2 && bits < 0x7F000000
				    ? (uint32_t)gpu_rnd_below(5) - 2
				    : 0;
		}
		if (c->saturate && gpu_rnd_below(40) == 0)
			bits = others[gpu_rnd_below(6)];
		x[i] = (bits < 0x7F800000 || c->saturate ? bits : 0x7F7FFFFF) |
		       (gpu_rnd() & UINT32_C(0x80000000));
	}
}

static void check_quantize(const struct quantize_case *c)
{
	struct gpu_twin x = gpu_twin_new(gpu_dense_bytes(&c->s));
	struct gpu_twin codes = gpu_twin_new(gpu_codes_bytes(&c->s));
	struct gpu_twin scales = gpu_twin_new(gpu_scale_bytes(&c->s));
	uint8_t *got_codes = gpu_take(codes.bytes), *got = gpu_take(scales.bytes);
	static const uint32_t bad[3][2] = {
	    {0xFF800000, 0x7FC00000}, {0xFC00, 0x7E00}, {0xFF80, 0x7FC0}};
	char name[160];
	const char *why;

	snprintf(name, sizeof(name),
		 "quantize %s %s %" PRId64 "x%" PRId64 "x%" PRId64 " gap %" PRId64
		 " zero_scale %d global %g scales %d%s%s%s%s bad %d",
		 gpu_dtype_name(c->s.dtype), gpu_layout_name(c->s.layout), c->s.batch,
		 c->s.rows, c->s.k, c->s.gap, (int)c->zero_scale, (double)c->global,
		 (int)c->scales, c->is_weighted ? " weighted" : "",
		 c->by_pointer ? " pointer" : "", c->ties ? " ties" : "",
		 c->saturate ? " saturate" : "", c->bad);
	gpu_fill_dense(&c->s, gpu_host_of(&x), c->ties);
	if (c->edges)
		fill_edges(c, gpu_host_of(&x));
	for (int i = 0; i < c->bad; i++)
		gpu_put(&c->s, gpu_host_of(&x),
			gpu_rnd_below(c->s.batch * c->s.rows) * (c->s.k + c->s.gap) +
			    gpu_rnd_below(c->s.k),
			bad[c->s.dtype][i % 2]);
	gpu_upload(&x);
	gpu_upload(&codes);
	gpu_upload(&scales);
	why = quantize_both(c, &x, &codes, &scales);
	if (why && strcmp(why, "told") == 0) {
		why = NULL; /* q is undefined, but not what is around it */
		if (!gpu_download(&codes, got_codes) || !gpu_download(&scales, got))
			why = "a guard band has changed";
	} else if (!why) {
		if (!gpu_download(&codes, got_codes) || !gpu_download(&scales, got))
			why = "a guard band has changed";
		else if (memcmp(got_codes, gpu_host_of(&codes), codes.bytes) != 0)
			why = "codes differ";
		else if (memcmp(got, gpu_host_of(&scales), scales.bytes) != 0)
			why = "scales differ";
	}
	gpu_verdict(!why, name, why ? why : "");
	free(got_codes);
	free(got);
	gpu_twin_free(&x);
	gpu_twin_free(&codes);
	gpu_twin_free(&scales);
}

static void check_all_quantize(void)
{
	static const int64_t rows[] = {1, 3, 127, 129, 256};
	static const int64_t k[] = {16, 48, 240, 272, 1024};

	for (int i = 0; i < 120; i++) {
		struct quantize_case c = {
		    .s = {rows[gpu_rnd_below(5)], k[gpu_rnd_below(5)],
			  1 + gpu_rnd_below(3),
			  gpu_rnd_below(3) ? gpu_rnd_below(4) * 4 : 3,
			  i % 2 ? NIB_SCALE_LAYOUT_TILED_128X4
				: NIB_SCALE_LAYOUT_LINEAR,
			  (enum nib_dtype)(i / 2 % 3), false},
		    .zero_scale = (enum nib_zero_scale)gpu_rnd_below(3),
		    .ties = i % 5 == 1,
		    .saturate = i % 3 == 0,
		    .bad = i % 4 == 3 ? 1 + (int)gpu_rnd_below(5) : 0,
		    .scales = (enum nib_scales)(i / 3 % 3),
		};

		c.is_weighted = c.scales != NIB_SCALES_AMAX && gpu_rnd_below(2);

		if (i / 6 % 2) {
			c.global = c.ties ? 1.0f / 448
					  : (float)(1 + gpu_rnd_below(1000)) * 1e-4f;
			c.by_pointer = i / 12 % 2;
		}
		check_quantize(&c);
	}
}

/* At ties, of any scale and global scale. */
static void check_edges(void)
{
	static const float globals[] = {
	    1.0f,      1.0f / 448, 0.0123f,    0x1.234568p-9f, 0x1.fffffep-1f,
	    0x1p-149f, 0x1p-126f,  0x1p-101f,  0x1.8p-109f,    0x1.8p91f,
	    0x1p100f,  0x1p120f,   0x1.5p+90f, 0x1.555556p-3f};

	for (size_t i = 0; i < sizeof(globals) / sizeof(*globals); i++)
		for (int rule = 0; rule < 3; rule++) {
			const bool saturate = (i + (size_t)rule) % 2;
			const struct quantize_case c = {
			    .s = {32, 256, 1, 0,
				  i % 2 ? NIB_SCALE_LAYOUT_TILED_128X4
					: NIB_SCALE_LAYOUT_LINEAR,
				  NIB_DTYPE_FP32, false},
			    .global = globals[i],
			    .saturate = saturate,
			    .edges = true,
			    .scales = (enum nib_scales)rule,
			};

			check_quantize(&c);
		}
}

static void check_amax(int64_t rows, int64_t cols, int64_t gap, enum nib_dtype dtype,
		       bool saturate)
{
	const struct gpu_sizes s = {rows,  cols, 2, gap, NIB_SCALE_LAYOUT_LINEAR,
				    dtype, false};
	struct gpu_twin x = gpu_twin_new(gpu_dense_bytes(&s));
	struct nib_dense from, gpu_from;
	float want = -1, got = -1;
	enum nib_status status, gpu_status;
	char name[120], message[sizeof(gpu_test.err.message)];

	gpu_fill_dense(&s, gpu_host_of(&x), false);
	if (saturate || gpu_rnd_below(2))
		gpu_put(&s, gpu_host_of(&x), gpu_rnd_below(cols),
			dtype == NIB_DTYPE_FP32 ? 0x7FC00000 : 0x7FFF);
	gpu_upload(&x);
	from = gpu_dense(&s, gpu_host_of(&x));
	gpu_from = gpu_dense(&s, gpu_device_of(&x));
	gpu_test.err.message[0] = '\0';
	status = nib_amax(gpu_test.cpu, &from, saturate, NULL, &want, &gpu_test.err);
	memcpy(message, gpu_test.err.message, sizeof(message));
	gpu_status =
	    nib_amax(gpu_test.gpu, &gpu_from, saturate, NULL, &got, &gpu_test.err);
	snprintf(name, sizeof(name),
		 "amax %s %" PRId64 "x%" PRId64 " gap %" PRId64 "%s",
		 gpu_dtype_name(dtype), rows, cols, gap, saturate ? " saturate" : "");
	gpu_verdict(status == gpu_status &&
			gpu_float_bits(want) == gpu_float_bits(got) &&
			strcmp(message, gpu_test.err.message) == 0,
		    name, gpu_test.err.message);
	gpu_twin_free(&x);
}

/* ---- dequantise, scale layouts ------------------------------------------- */

/* Dequantises twice: with the global scale's value, and, into got, with its
 * address on the device. */
static bool dequantize_gpu(const struct nib_fp4 *q, float global,
			   const struct gpu_twin *y, const struct nib_dense *to,
			   uint8_t *got)
{
	struct gpu_twin there = gpu_twin_new(sizeof(global));
	const struct nib_dequantize_options options = {
	    .struct_bytes = sizeof(options),
	    .global_pointer = gpu_device_of(&there),
	};
	bool ok;

	memcpy(gpu_host_of(&there), &global, sizeof(global));
	gpu_upload(&there);
	ok = !nib_dequantize(gpu_test.gpu, q, global, to, NULL, &gpu_test.err) &&
	     gpu_download(y, got) && memcmp(got, gpu_host_of(y), y->bytes) == 0;
	/* Changes y, so that it cannot pass for the second result. */
	if (y->bytes >= sizeof(global))
		gpu_must(nib_device_copy(gpu_test.gpu, to->data, gpu_host_of(&there),
					 sizeof(global), NULL, &gpu_test.err),
			 "bits differ");
	ok = ok && !nib_dequantize(gpu_test.gpu, q, 0, to, &options, &gpu_test.err) &&
	     gpu_download(y, got) && memcmp(got, gpu_host_of(y), y->bytes) == 0;
	gpu_twin_free(&there);
	return ok;
}

static void check_dequantize(const struct gpu_sizes *s, float global)
{
	struct gpu_twin codes = gpu_twin_new(gpu_codes_bytes(s));
	struct gpu_twin scales = gpu_twin_new(gpu_scale_bytes(s));
	struct gpu_twin y = gpu_twin_new(gpu_dense_bytes(s));
	uint8_t *got = gpu_take(y.bytes);
	struct nib_fp4 q;
	struct nib_dense to;
	char name[120];
	bool ok;

	gpu_fill_nvfp4(s, gpu_host_of(&codes), gpu_host_of(&scales));
	((uint8_t *)gpu_host_of(&scales))[gpu_scale_at(s, 0, 0, 0)] = NAN_SCALE;
	gpu_upload(&codes);
	gpu_upload(&scales);
	gpu_upload(&y);
	q = gpu_nvfp4(s, gpu_host_of(&codes), gpu_host_of(&scales));
	to = gpu_dense(s, gpu_host_of(&y));
	gpu_must(nib_dequantize(gpu_test.cpu, &q, global, &to, NULL, &gpu_test.err),
		 "dequantize");
	q = gpu_nvfp4(s, gpu_device_of(&codes), gpu_device_of(&scales));
	to = gpu_dense(s, gpu_device_of(&y));
	gpu_test.err.message[0] = '\0';
	ok = dequantize_gpu(&q, global, &y, &to, got);
	snprintf(name, sizeof(name),
		 "dequantize %s %s %" PRId64 "x%" PRId64 "x%" PRId64 " gap %" PRId64
		 " global %g",
		 gpu_dtype_name(s->dtype), gpu_layout_name(s->layout), s->batch,
		 s->rows, s->k, s->gap, (double)global);
	gpu_verdict(ok, name,
		    gpu_test.err.message[0] ? gpu_test.err.message : "bits differ");
	free(got);
	gpu_twin_free(&codes);
	gpu_twin_free(&scales);
	gpu_twin_free(&y);
}

static void check_convert(const struct gpu_sizes *s)
{
	struct gpu_sizes other = *s;
	struct gpu_twin from = gpu_twin_new(gpu_scale_bytes(s)), to;
	uint8_t *codes = gpu_take(gpu_codes_bytes(s)), *got;
	struct nib_fp4 in, out;
	char name[120];
	bool ok;

	other.layout = s->layout == NIB_SCALE_LAYOUT_LINEAR
			   ? NIB_SCALE_LAYOUT_TILED_128X4
			   : NIB_SCALE_LAYOUT_LINEAR;
	to = gpu_twin_new(gpu_scale_bytes(&other));
	got = gpu_take(to.bytes);
	gpu_fill_nvfp4(s, codes, gpu_host_of(&from));
	gpu_upload(&from);
	gpu_upload(&to);
	in = gpu_nvfp4(s, NULL, gpu_host_of(&from));
	out = gpu_nvfp4(&other, NULL, gpu_host_of(&to));
	gpu_must(nib_convert_scales(gpu_test.cpu, &in, &out, NULL, &gpu_test.err),
		 "convert");
	in.scales = gpu_device_of(&from);
	out.scales = gpu_device_of(&to);
	gpu_test.err.message[0] = '\0';
	ok = !nib_convert_scales(gpu_test.gpu, &in, &out, NULL, &gpu_test.err) &&
	     gpu_download(&to, got) && memcmp(got, gpu_host_of(&to), to.bytes) == 0;
	snprintf(name, sizeof(name), "convert from %s %" PRId64 "x%" PRId64 "x%" PRId64,
		 gpu_layout_name(s->layout), s->batch, s->rows, s->k);
	gpu_verdict(ok, name,
		    gpu_test.err.message[0] ? gpu_test.err.message : "bytes differ");
	free(codes);
	free(got);
	gpu_twin_free(&from);
	gpu_twin_free(&to);
}

/*
 * A global scale of which m times (m / 8 is a scale) is a little above a tie of
 * fp16 or bf16: by less than an fp32 tells apart, which is where rounding twice
 * goes wrong.
 */
static float global_of_tie(enum nib_dtype dtype, int64_t m)
{
	const int bits = dtype == NIB_DTYPE_FP16 ? 11 : 8;
	const int64_t even = (INT64_C(1) << (bits - 1)) + 2 * gpu_rnd_below(40);
	const int64_t tie = (2 * even + 1) << (27 - bits);

	return ldexpf((float)((tie + m - 1) / m), -30);
}

static void check_all_conversions(void)
{
	static const float globals[] = {
	    1.0f,	 0x1.234568p-9f,  0x1p-149f, 3.0e38f, 0x1.fffffep-12f,
	    0x1.8p-125f, 0x1.fffffep-130f};

	for (int i = 0; i < 48; i++) {
		const struct gpu_sizes s = {1 + gpu_rnd_below(300),
					    16 * (1 + gpu_rnd_below(40)),
					    1 + gpu_rnd_below(3),
					    i % 4 ? 8 * gpu_rnd_below(3) : 1,
					    i % 2 ? NIB_SCALE_LAYOUT_TILED_128X4
						  : NIB_SCALE_LAYOUT_LINEAR,
					    (enum nib_dtype)(i % 3),
					    false};

		check_dequantize(&s, i % 8 < 7 ? globals[i % 8]
					       : global_of_tie(s.dtype, 9 + i / 8));
		check_convert(&s);
	}
	for (int i = 0; i < 24; i++)
		check_amax(1 + gpu_rnd_below(200), 1 + gpu_rnd_below(3000),
			   i % 3 ? gpu_rnd_below(9) : 0, (enum nib_dtype)(i % 3),
			   i / 3 % 2);
}

/* Packing finds a negative scale, be it the first or the last of the tensor. */
static void check_pack_signs(enum nib_scale_layout layout)
{
	const struct gpu_sizes s = {.rows = 130, .k = 96, .batch = 2, .layout = layout};
	const int64_t places[][3] = {{0, 0, 0}, {0, 129, 5}, {1, 129, 5}};
	struct gpu_twin t[2];
	struct nib_packed *packed = NULL;
	const char *why = NULL;

	gpu_operand_new(&s, t);
	gpu_fill_nvfp4(&s, gpu_host_of(&t[0]), gpu_host_of(&t[1]));
	gpu_upload(&t[0]);
	for (size_t i = 0; i < sizeof(places) / sizeof(*places) && !why; i++) {
		const struct nib_fp4 v =
		    gpu_nvfp4(&s, gpu_device_of(&t[0]), gpu_device_of(&t[1]));
		uint8_t *scales = gpu_host_of(&t[1]);
		uint8_t *scale =
		    scales + gpu_scale_at(&s, places[i][0], places[i][1], places[i][2]);

		*scale |= 0x80;
		gpu_upload(&t[1]);
		if (nib_pack(gpu_test.gpu, &v, NULL, &packed, &gpu_test.err) !=
		    NIB_STATUS_BAD_DATA)
			why = "not refused";
		nib_packed_free(packed);
		*scale &= 0x7F;
	}
	gpu_verdict(!why, "packing with a negative scale", why);
	gpu_twin_free(&t[0]);
	gpu_twin_free(&t[1]);
}

int main(void)
{
	int code;

	if (!gpu_begin(&code))
		return code;
	check_all_quantize();
	check_edges();
	check_all_conversions();
	check_pack_signs(NIB_SCALE_LAYOUT_LINEAR);
	check_pack_signs(NIB_SCALE_LAYOUT_TILED_128X4);
	return gpu_end();
}
