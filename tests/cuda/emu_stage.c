/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_stage.c - the staging kernel (sm100/stage.cu) on the software B200: compares its
 * copies with src/format, byte by byte, and checks that it writes nothing else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/sm100/sm100.h"
#include "format/view.h"

#define BYTES	(1 << 21)
#define SPACE	(1 << 21)
#define CASES	60
#define COPIES	5
#define POISON	0xEE
#define EXPERTS 9

/* Operands of a launch: in one block of memory, at the same places on both. */
struct bed {
	struct nib_device *device;
	uint8_t *host, *memory, *space; /* space: of the copies */
	uint8_t *want;
	size_t used;
	struct sm100_chunk chunk;
	size_t workspace_bytes;
	struct nib_fp4 views[COPIES];
	struct sm100_map maps[COPIES];
};

static uint64_t seed = 88172645463325252;

static int32_t rnd_below(int32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (int32_t)((uint32_t)(seed >> 16) % (uint32_t)n);
}

static void check(enum nib_status status, const struct nib_error *err)
{
	if (status)
		fail_msg("%s", err->message);
}

static void make_bed(struct bed *bed)
{
	struct nib_error err;
	void *memory;

	memset(bed, 0, sizeof(*bed));
	check(nib_device_open("cuda", NULL, &bed->device, &err), &err);
	check(nib_device_alloc(bed->device, BYTES, &memory, &err), &err);
	bed->memory = memory;
	check(nib_device_alloc(bed->device, SPACE, &memory, &err), &err);
	bed->space = memory;
	bed->host = malloc(BYTES);
	bed->want = malloc(SPACE);
	assert_true(bed->host && bed->want);
}

static void free_bed(struct bed *bed)
{
	free(bed->chunk.stage);
	free(bed->host);
	free(bed->want);
	nib_device_free(bed->device, bed->memory);
	nib_device_free(bed->device, bed->space);
	nib_device_close(bed->device);
}

/* Any bytes: scales with sign bits and NaN among them, padding too. */
static size_t reserve(struct bed *bed, int64_t bytes)
{
	const size_t at = bed->used;

	bed->used += ((size_t)bytes + 15) / 16 * 16;
	assert_true(bed->used <= BYTES);
	for (size_t i = at; i < bed->used; i++)
		bed->host[i] = (uint8_t)rnd_below(256);
	return at;
}

/* An operand that must be copied; its host view. */
static struct nib_fp4 make_view(struct bed *bed, bool is_scales)
{
	struct nib_fp4 v = {
	    .rows = 1 + rnd_below(300),
	    .k = 16 * (int64_t)(1 + rnd_below(20)),
	    .batch = 1 + rnd_below(3),
	    .scale_layout =
		rnd_below(2) ? NIB_SCALE_LAYOUT_LINEAR : NIB_SCALE_LAYOUT_TILED_128X4,
	};
	const bool tiled = v.scale_layout == NIB_SCALE_LAYOUT_TILED_128X4;

	v.row_stride_bytes = v.k / 2 + 8 * (int64_t)rnd_below(3);
	v.batch_stride_bytes = v.rows * v.row_stride_bytes + 8 * (int64_t)rnd_below(3);
	if (!tiled)
		v.scale_row_stride_bytes = v.k / 16 + rnd_below(5);
	v.scale_batch_stride_bytes =
	    (tiled
		 ? (int64_t)nib_scales_bytes(NIB_SCALE_LAYOUT_TILED_128X4, v.rows, v.k)
		 : v.rows * v.scale_row_stride_bytes) +
	    rnd_below(20);
	if (is_scales)
		v.scales =
		    bed->host + reserve(bed, v.batch * v.scale_batch_stride_bytes);
	else
		v.codes = bed->host + reserve(bed, v.batch * v.batch_stride_bytes);
	return v;
}

/* The place of the copy of a scale. */
static uint8_t *scale_to(const struct bed *bed, const struct sm100_map *map,
			 int64_t matrix, int64_t row, int64_t group)
{
	const int64_t across = (int64_t)(map->strides_bytes[0] / 512);

	return bed->want + map->at + (size_t)matrix * map->strides_bytes[1] +
	       nib_scale_offset_tiled(4 * across, row, group);
}

static void want_scales(struct bed *bed, const struct nib_fp4 *v,
			const struct sm100_map *map)
{
	memset(bed->want + map->at, 0, sm100_copy_bytes(map));
	for (int64_t l = 0; l < v->batch; l++)
		for (int64_t r = 0; r < v->rows; r++)
			for (int64_t g = 0; g < v->k / 16; g++)
				*scale_to(bed, map, l, r, g) =
				    *nib_fp4_scale(v, l, r, g);
}

static void want_codes(struct bed *bed, const struct nib_fp4 *v,
		       const struct sm100_map *map)
{
	memset(bed->want + map->at, 0, sm100_copy_bytes(map));
	for (int64_t l = 0; l < v->batch; l++)
		for (int64_t r = 0; r < v->rows; r++)
			memcpy(bed->want + map->at + (size_t)l * map->strides_bytes[1] +
				   (size_t)r * map->strides_bytes[0],
			       nib_fp4_row(v, l, r), (size_t)v->k / 2);
}

/* The operands over, the copies made, and what came compared. */
static void launch(struct bed *bed, int count)
{
	struct cuda_device *device = (struct cuda_device *)bed->device;
	uint8_t *got = malloc(SPACE);
	struct nib_error err;

	assert_non_null(got);
	memset(got, POISON, SPACE);
	for (int i = 0; i < count; i++) {
		struct nib_stage_copy *copy =
		    &bed->chunk.stage->copies[bed->maps[i].copy];
		const uint8_t *host =
		    bed->maps[i].is_scales ? bed->views[i].scales : bed->views[i].codes;

		copy->from = bed->memory + (host - bed->host);
		copy->to = bed->space + bed->maps[i].at;
	}
	check(
	    nib_device_copy(bed->device, bed->memory, bed->host, bed->used, NULL, &err),
	    &err);
	check(nib_device_copy(bed->device, bed->space, got, SPACE, NULL, &err), &err);
	check(cuda_enter(device, &err), &err);
	check(cuda_kernel(device, "nib_stage", 0, &bed->chunk.copy, &err), &err);
	check(sm100_stage_launch(device, &bed->chunk, NULL, &err), &err);
	cuda_leave(device);
	check(nib_device_wait(bed->device, NULL, &err), &err);
	check(nib_device_copy(bed->device, got, bed->space, SPACE, NULL, &err), &err);
	assert_true(bed->workspace_bytes <= SPACE);
	for (size_t i = 0; i < SPACE; i++)
		if (got[i] != bed->want[i])
			fail_msg("byte %zu is %02x, must be %02x", i, got[i],
				 bed->want[i]);
	free(got);
}

static void begin(struct bed *bed)
{
	free(bed->chunk.stage);
	bed->chunk.stage = NULL;
	bed->used = bed->workspace_bytes = 0;
	memset(bed->want, POISON, SPACE);
}

static void operands(void **state)
{
	struct bed bed;

	(void)state;
	make_bed(&bed);
	for (int i = 0; i < CASES; i++) {
		int count = 0;

		begin(&bed);
		while (count < 1 + rnd_below(COPIES)) {
			const bool is_scales = rnd_below(2);
			struct nib_fp4 *v = &bed.views[count];
			struct sm100_map *map = &bed.maps[count];
			struct sm100_source source;

			*v = make_view(&bed, is_scales);
			source = (struct sm100_source){v, v->batch, false};
			if (is_scales)
				sm100_scales_map(&source, 1, map);
			else
				sm100_codes_map(&source, 64, map);
			if (map->copy < 0)
				continue;
			assert_true(sm100_stage_add(&bed.chunk, &source, map,
						    &bed.workspace_bytes));
			if (is_scales)
				want_scales(&bed, v, map);
			else
				want_codes(&bed, v, map);
			count++;
		}
		launch(&bed, count);
	}
	free_bed(&bed);
}

/* ---- scales of experts --------------------------------------------------- */

struct experts {
	int32_t offsets[EXPERTS + 1], places[EXPERTS];
	int32_t rows; /* of the scales' tensor, if they are placed */
	bool is_placed;
};

static void make_experts(struct experts *x, int i)
{
	*x = (struct experts){.is_placed = i % 2};
	for (int e = 0; e < EXPERTS; e++) {
		const int32_t m = rnd_below(3) ? rnd_below(300) : 0;

		x->offsets[e + 1] = x->offsets[e] + m;
		x->places[e] = x->rows;
		x->rows += (m + 127) / 128 * 128;
	}
	/* One expert whose scales leave their tensor, or all of it. */
	if (i % 4 == 3) {
		const int32_t outside[3] = {-1, x->rows - 1, 4096};

		x->places[rnd_below(EXPERTS)] = outside[rnd_below(3)];
	}
}

static void want_expert(struct bed *bed, const struct experts *x, int32_t e)
{
	const struct nib_fp4 *v = &bed->views[0];
	const struct sm100_map *map = &bed->maps[0];
	const int32_t first = x->offsets[e], m = x->offsets[e + 1] - first;
	const int32_t row0 = nib_sm100_staged_row(e, first);
	const int64_t from = x->is_placed ? x->places[e] : first;
	const bool is_nan = x->is_placed && (from < 0 || from > (int64_t)x->rows - m);

	/* The blocks that the expert has, whole. */
	if (m > 0)
		memset(bed->want + map->at +
			   (size_t)(row0 / 128) * map->strides_bytes[0],
		       0, (size_t)((m + 127) / 128) * map->strides_bytes[0]);
	for (int32_t r = 0; r < m; r++)
		for (int64_t g = 0; g < v->k / 16; g++)
			*scale_to(bed, map, 0, row0 + r, g) =
			    is_nan ? 0x7F : *nib_fp4_scale(v, 0, from + r, g);
}

/* The scales of A of MoE, and the arrays that say whose they are. */
static void add_experts(struct bed *bed, const struct experts *x)
{
	struct nib_fp4 *v = &bed->views[0];
	struct sm100_map *map = &bed->maps[0];
	const struct sm100_source source = {v, 1, false};
	struct nib_stage_params *p;
	size_t at;

	v->scales = bed->host + reserve(bed, (int64_t)nib_scales_bytes(v->scale_layout,
								       v->rows, v->k));
	at = reserve(bed, sizeof(*x));
	memcpy(bed->host + at, x, sizeof(*x));
	sm100_scales_map(&source, 1, map);
	map->sizes[1] = (uint64_t)(x->offsets[EXPERTS] / 128 + EXPERTS);
	map->strides_bytes[0] = 512 * (uint64_t)nib_stage_tiles_across((int32_t)v->k);
	assert_true(sm100_stage_add(&bed->chunk, &source, map, &bed->workspace_bytes));
	p = bed->chunk.stage;
	p->copies[0].is_of_experts = 1;
	p->experts = EXPERTS;
	p->rows = x->offsets[EXPERTS];
	p->row_offsets = (const int32_t *)(bed->memory + at);
	p->scale_rows_total = x->rows;
	if (x->is_placed)
		p->scale_rows =
		    (const int32_t *)(bed->memory + at + sizeof(x->offsets));
}

static void experts(void **state)
{
	struct bed bed;

	(void)state;
	make_bed(&bed);
	for (int i = 0; i < CASES; i++) {
		struct experts x;

		begin(&bed);
		make_experts(&x, i);
		bed.views[0] = (struct nib_fp4){
		    .rows = x.is_placed ? x.rows : x.offsets[EXPERTS],
		    .k = 16 * (int64_t)(1 + rnd_below(6)),
		    .batch = 1,
		    .scale_layout = i / 2 % 2 ? NIB_SCALE_LAYOUT_LINEAR
					      : NIB_SCALE_LAYOUT_TILED_128X4,
		};
		if (bed.views[0].rows == 0)
			continue;
		add_experts(&bed, &x);
		for (int32_t e = 0; e < EXPERTS; e++)
			want_expert(&bed, &x, e);
		launch(&bed, 1);
	}
	free_bed(&bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(operands),
	    cmocka_unit_test(experts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
