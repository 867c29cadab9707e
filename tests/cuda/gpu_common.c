/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_common.c - memory on both sides, views, inputs of the GPU's programs. */
#include "gpu_common.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD	   256
#define GUARD_BYTE 0xA5
#define SKIPPED	   77

struct gpu_test gpu_test;
static uint64_t seed = UINT64_C(88172645463325252);

static bool size_is(const char *name)
{
	const char *size = getenv("NIB_TEST_SIZE");

	return size && strcmp(size, name) == 0;
}

bool gpu_is_small(void)
{
	return size_is("small") || size_is("medium");
}

int gpu_cases(int all)
{
	return size_is("small") ? (all + 14) / 15 : all;
}

int gpu_repeats(int all)
{
	return gpu_is_small() && all > 2 ? 2 : all;
}

void gpu_seed(uint64_t number)
{
	seed = (number + 1) * UINT64_C(0x9E3779B97F4A7C15) | 1;
}

uint32_t gpu_rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 16);
}

int64_t gpu_rnd_below(int64_t n)
{
	return (int64_t)(gpu_rnd() % (uint32_t)n);
}

void *gpu_take(size_t bytes)
{
	void *memory = calloc(1, bytes ? bytes : 1);

	if (!memory) {
		fputs("no memory\n", stderr);
		exit(1);
	}
	return memory;
}

void gpu_must(enum nib_status status, const char *what)
{
	if (!status)
		return;
	printf("FAIL %s: %s: %s\n", what, nib_status_name(status),
	       gpu_test.err.message);
	exit(1);
}

void gpu_verdict(bool ok, const char *name, const char *why)
{
	gpu_test.passed += ok;
	gpu_test.failed += !ok;
	printf("%s %s%s%s\n", ok ? "ok  " : "FAIL", name, ok ? "" : ": ",
	       ok ? "" : why);
}

void gpu_tell(const char *name, const char *why)
{
	if (why)
		gpu_verdict(false, name, why);
	else
		gpu_test.passed++;
}

struct nib_check_options gpu_check_options(int64_t n, int64_t k, int64_t matrices,
					   int64_t products)
{
	return (struct nib_check_options){
	    .struct_bytes = sizeof(struct nib_check_options),
	    .sample_rows = 2 + products / (n * k + 1) / matrices,
	    .seed = gpu_rnd(),
	    .arithmetic = gpu_test.arithmetic,
	};
}

const char *gpu_result(const struct nib_check_result *r)
{
	static char text[200];

	snprintf(text, sizeof(text),
		 "%" PRId64 " of %" PRId64 " outside, %.3g of the bound, problem or "
		 "expert %" PRId64 " [%" PRId64 ", %" PRId64 ", %" PRId64
		 "]: %g, not %g",
		 r->failed, r->checked, r->worst_fraction, r->problem, r->batch, r->row,
		 r->col, r->got, r->want);
	return r->failed ? text : NULL;
}

/* ---- memory on both sides ------------------------------------------------ */

struct gpu_twin gpu_twin_new(size_t bytes)
{
	struct gpu_twin t = {gpu_take(bytes + 2 * GUARD), NULL, bytes, gpu_test.gpu};
	void *device = NULL;

	memset(t.host, GUARD_BYTE, bytes + 2 * GUARD);
	gpu_must(
	    nib_device_alloc(gpu_test.gpu, bytes + 2 * GUARD, &device, &gpu_test.err),
	    "alloc");
	t.device = device;
	return t;
}

void *gpu_host_of(const struct gpu_twin *t)
{
	return t->host + GUARD;
}

void *gpu_device_of(const struct gpu_twin *t)
{
	return t->device + GUARD;
}

void gpu_upload(const struct gpu_twin *t)
{
	gpu_must(nib_device_copy(t->gpu, t->device, t->host, t->bytes + 2 * GUARD, NULL,
				 &gpu_test.err),
		 "upload");
}

bool gpu_guards_hold(const struct gpu_twin *t)
{
	uint8_t bytes[2 * GUARD];
	bool ok = true;

	for (int i = 0; i < 2; i++)
		gpu_must(nib_device_copy(t->gpu, bytes + i * GUARD,
					 t->device + (i ? GUARD + t->bytes : 0), GUARD,
					 NULL, &gpu_test.err),
			 "guard band");
	for (size_t i = 0; i < sizeof(bytes); i++)
		ok = ok && bytes[i] == GUARD_BYTE;
	return ok;
}

bool gpu_download(const struct gpu_twin *t, void *to)
{
	gpu_must(nib_device_copy(t->gpu, to, t->device + GUARD, t->bytes, NULL,
				 &gpu_test.err),
		 "download");
	return gpu_guards_hold(t);
}

void gpu_twin_free(struct gpu_twin *t)
{
	free(t->host);
	nib_device_free(t->gpu, t->device);
}

/* ---- views --------------------------------------------------------------- */

size_t gpu_codes_bytes(const struct gpu_sizes *s)
{
	return (size_t)(s->batch * s->rows * (s->k / 2 + s->gap));
}

size_t gpu_scale_bytes(const struct gpu_sizes *s)
{
	if (s->layout == NIB_SCALE_LAYOUT_TILED_128X4)
		return (size_t)s->batch * nib_scales_bytes(s->layout, s->rows, s->k);
	return (size_t)(s->batch * s->rows * (s->k / 16 + s->gap));
}

struct nib_fp4 gpu_nvfp4(const struct gpu_sizes *s, void *codes, void *scales)
{
	struct nib_fp4 v = {
	    .codes = codes,
	    .scales = scales,
	    .rows = s->rows,
	    .k = s->k,
	    .batch = s->batch,
	    .row_stride_bytes = s->k / 2 + s->gap,
	    .scale_layout = s->layout,
	};

	if (s->layout == NIB_SCALE_LAYOUT_LINEAR)
		v.scale_row_stride_bytes = s->k / 16 + s->gap;
	if (s->is_between) {
		v.batch_stride_bytes = v.row_stride_bytes;
		v.row_stride_bytes *= s->batch;
		v.scale_batch_stride_bytes = v.scale_row_stride_bytes;
		v.scale_row_stride_bytes *= s->batch;
	}
	return v;
}

size_t gpu_dense_bytes(const struct gpu_sizes *s)
{
	return (size_t)(s->batch * s->rows * (s->k + s->gap)) *
	       nib_dtype_bytes(s->dtype);
}

struct nib_dense gpu_dense(const struct gpu_sizes *s, void *data)
{
	const int64_t pitch = s->k + s->gap;

	return (struct nib_dense){
	    .data = data,
	    .dtype = s->dtype,
	    .rows = s->rows,
	    .cols = s->k,
	    .batch = s->batch,
	    .row_stride_elems = s->is_between ? s->batch * pitch : pitch,
	    .batch_stride_elems = s->is_between ? pitch : 0,
	};
}

/* The byte of a scale, as nibblas.h defines it. */
size_t gpu_scale_at(const struct gpu_sizes *s, int64_t batch, int64_t row,
		    int64_t group)
{
	const int64_t groups = s->k / 16;
	const int64_t each = (int64_t)gpu_scale_bytes(s) / s->batch;

	if (s->layout == NIB_SCALE_LAYOUT_LINEAR && s->is_between)
		return (size_t)((row * s->batch + batch) * (groups + s->gap) + group);
	if (s->layout == NIB_SCALE_LAYOUT_LINEAR)
		return (size_t)(batch * each + row * (groups + s->gap) + group);
	return (size_t)(batch * each +
			(row / 128 * ((groups + 3) / 4) + group / 4) * 512 +
			row % 32 * 16 + row % 128 / 32 * 4 + group % 4);
}

/* Any codes; scales 0 to 448, padding and gaps NaN. */
void gpu_fill_nvfp4(const struct gpu_sizes *s, uint8_t *codes, uint8_t *scales)
{
	for (size_t i = 0; i < gpu_codes_bytes(s); i++)
		codes[i] = (uint8_t)gpu_rnd();
	memset(scales, NAN_SCALE, gpu_scale_bytes(s));
	for (int64_t b = 0; b < s->batch; b++)
		for (int64_t r = 0; r < s->rows; r++)
			for (int64_t g = 0; g < s->k / 16; g++)
				scales[gpu_scale_at(s, b, r, g)] =
				    (uint8_t)gpu_rnd_below(NAN_SCALE);
}

uint32_t gpu_float_bits(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

/* Finite: of all sizes, or near the ties of blocks whose largest is 6 * d. */
static uint32_t any_value(enum nib_dtype dtype, bool ties)
{
	uint32_t bits =
	    ties ? gpu_float_bits((float)(gpu_rnd_below(49) - 24) * 0.25f) : gpu_rnd();

	if (dtype == NIB_DTYPE_FP32)
		return (bits & 0x7F800000) == 0x7F800000 ? bits & 0x80FFFFFF : bits;
	if (dtype == NIB_DTYPE_BF16) {
		bits >>= 16;
		return (bits & 0x7F80) == 0x7F80 ? bits & 0x80FF : bits;
	}
	if (ties) { /* multiples of 1/4 up to 6, as fp16 */
		static const uint16_t half[] = {0x0000, 0x3400, 0x3800, 0x3A00, 0x3C00,
						0x3D00, 0x3E00, 0x3F00, 0x4000, 0x4100,
						0x4200, 0x4300, 0x4400, 0x4480, 0x4500,
						0x4580, 0x4600};

		return (uint32_t)(half[gpu_rnd_below(17)] | (gpu_rnd() & 0x8000));
	}
	bits &= 0xFFFF;
	return (bits & 0x7C00) == 0x7C00 ? bits & 0x83FF : bits;
}

void gpu_put(const struct gpu_sizes *s, void *data, int64_t index, uint32_t bits)
{
	const uint16_t narrow = (uint16_t)bits;

	if (s->dtype == NIB_DTYPE_FP32)
		memcpy((uint8_t *)data + 4 * index, &bits, 4);
	else
		memcpy((uint8_t *)data + 2 * index, &narrow, 2);
}

/* Gaps hold NaN; a quarter of the blocks zeros. */
void gpu_fill_dense(const struct gpu_sizes *s, void *data, bool ties)
{
	const int64_t pitch = s->k + s->gap;
	const uint32_t six = s->dtype == NIB_DTYPE_FP32	  ? 0x40C00000
			     : s->dtype == NIB_DTYPE_FP16 ? 0x4600
							  : 0x40C0;
	bool zeros = false;

	memset(data, 0xFF, gpu_dense_bytes(s));
	for (int64_t i = 0; i < s->batch * s->rows * pitch; i++) {
		if (i % pitch % 16 == 0)
			zeros = gpu_rnd_below(4) == 0;
		if (i % pitch >= s->k)
			continue;
		gpu_put(s, data, i,
			zeros			      ? 0
			: ties && i % pitch % 16 == 0 ? six
						      : any_value(s->dtype, ties));
	}
}

const char *gpu_layout_name(enum nib_scale_layout layout)
{
	return layout == NIB_SCALE_LAYOUT_LINEAR ? "linear" : "tiled";
}

const char *gpu_dtype_name(enum nib_dtype dtype)
{
	return dtype == NIB_DTYPE_FP32	 ? "fp32"
	       : dtype == NIB_DTYPE_FP16 ? "fp16"
					 : "bf16";
}

bool gpu_begin(int *exit_code)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};
	enum nib_status status;

	/* The last line then says where a program hangs. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	status = nib_device_open("cuda", NULL, &gpu_test.gpu, &gpu_test.err);
	*exit_code = SKIPPED;
	if (status == NIB_STATUS_NO_DEVICE || status == NIB_STATUS_UNSUPPORTED) {
		printf("skipped: %s\n", gpu_test.err.message);
		return false;
	}
	gpu_must(status, "cuda");
	gpu_must(nib_device_open("cpu", NULL, &gpu_test.cpu, &gpu_test.err), "cpu");
	gpu_must(nib_device_get_info(gpu_test.gpu, &info, &gpu_test.err), "info");
	gpu_test.arithmetic = info.arithmetic;
	printf("%s: %s\n", info.name, info.hardware);
	return true;
}

bool gpu_in_software(void)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};

	gpu_must(nib_device_get_info(gpu_test.gpu, &info, &gpu_test.err), "the device");
	return strstr(info.hardware, "in software") != NULL;
}

int gpu_end(void)
{
	printf("%d passed, %d failed\n", gpu_test.passed, gpu_test.failed);
	nib_device_close(gpu_test.gpu);
	nib_device_close(gpu_test.cpu);
	return gpu_test.failed != 0;
}
