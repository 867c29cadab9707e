/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_ops.c - calls the loops that differ between instruction sets one by one.  They
 * give the same bytes as the scalar loops for every length and alignment, and write
 * nothing before or after the output.  Inputs end at a guard page, and bytes that must
 * not change surround outputs.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/features.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/quantize_tables.h"
#include "common/data.h"
#include "common/unit.h"
#include "format/scale_layout.h"

enum { MAX_BLOCKS = 67, CANARY = 256 };

static struct rng rng;
static struct cpu_ops scalar, sets[CPU_ISA_COUNT];
static int set_count;

static int open_sets(void **state)
{
	rng = rng_new(test_seed());
	cpu_ops_init(&scalar, CPU_SCALAR);
	for (int isa = 0; isa < CPU_ISA_COUNT; isa++)
		if (cpu_isa_available((enum cpu_isa)isa, NULL, 0))
			cpu_ops_init(&sets[set_count++], (enum cpu_isa)isa);
	return 0;
}

/* Output of `bytes` at an offset into poison. */
struct output {
	uint8_t *memory, *data;
	size_t bytes, total;
};

static struct output output_new(size_t bytes, size_t offset)
{
	struct output o = {.bytes = bytes,
			   .total = (bytes + 3 * CANARY + 63) / 64 * 64};

	o.memory = aligned_alloc(64, o.total);
	assert_non_null(o.memory);
	memset(o.memory, GUARD_POISON, o.total);
	o.data = o.memory + CANARY + offset;
	return o;
}

/* Checks that it holds want and that the poison around it is unchanged. */
static void output_is(struct output *o, const void *want)
{
	assert_memory_equal(o->data, want, o->bytes);
	for (uint8_t *p = o->memory; p < o->memory + o->total; p++)
		if (p < o->data || p >= o->data + o->bytes)
			assert_int_equal(*p, GUARD_POISON);
	free(o->memory);
}

static size_t dtype_bytes(int dtype)
{
	return dtype == NIB_DTYPE_FP32 ? 4 : 2;
}

/* Random finite elements, which end at a guard page. */
static uint8_t *elements_new(int dtype, int64_t n)
{
	uint8_t *x = guard_new((size_t)n * dtype_bytes(dtype));

	for (int64_t i = 0; i < n; i++) {
		const float value = (float)rng_normal(&rng);
		uint32_t wide;

		memcpy(&wide, &value, sizeof(wide));
		if (dtype == NIB_DTYPE_FP32) {
			memcpy(x + 4 * i, &wide, 4);
		} else {
			/* The bits of a bf16, made finite as an fp16 too. */
			const uint16_t narrow = (uint16_t)(wide >> 16 & 0xBBFF);

			memcpy(x + 2 * i, &narrow, 2);
		}
	}
	return x;
}

static void quantize_blocks(int dtype, int64_t blocks, size_t offset)
{
	static struct cpu_quantizer z;
	const size_t n = (size_t)blocks;
	uint8_t *x = elements_new(dtype, 16 * blocks);
	uint8_t codes[8 * MAX_BLOCKS], scales[MAX_BLOCKS];

	cpu_quantizer_init(&z, (enum nib_dtype)dtype, 0x1p-9f, NIB_ZERO_SCALE_MODELOPT,
			   NIB_SCALES_AMAX);
	assert_true(scalar.quantize.quantize[dtype](&z, x, (enum nib_dtype)dtype,
						    blocks, x, codes, scales));
	for (int s = 0; s < set_count; s++) {
		struct output c = output_new(8 * n, offset);
		struct output e = output_new(n, offset);

		assert_true(sets[s].quantize.quantize[dtype](
		    &z, x, (enum nib_dtype)dtype, blocks, x, c.data, e.data));
		output_is(&c, codes);
		output_is(&e, scales);
	}
	guard_free(x, 16 * n * dtype_bytes(dtype));
}

static void quantize_writes_its_run(void **state)
{
	for (int dtype = 0; dtype < CPU_DTYPES; dtype++)
		for (int64_t blocks = 0; blocks <= MAX_BLOCKS; blocks++)
			quantize_blocks(dtype, blocks, (size_t)blocks % 5);
}

static void amax_reads_its_run(void **state)
{
	for (int dtype = 0; dtype < CPU_DTYPES; dtype++)
		for (int64_t n = 0; n < 300; n++) {
			uint8_t *x = elements_new(dtype, n);
			const uint32_t want = scalar.quantize.amax[dtype](x, n);

			for (int s = 0; s < set_count; s++)
				assert_int_equal(sets[s].quantize.amax[dtype](x, n),
						 want);
			guard_free(x, (size_t)n * dtype_bytes(dtype));
		}
}

static void dequantize_blocks(int dtype, int64_t blocks, size_t offset)
{
	static struct cpu_dequantizer table;
	const size_t n = (size_t)blocks;
	uint8_t *codes = guard_new(8 * n), *scales = guard_new(n);
	uint8_t want[64 * MAX_BLOCKS];

	rng_fill(&rng, codes, 8 * n);
	rng_fill(&rng, scales, n);
	cpu_dequantizer_init(&table, (enum nib_dtype)dtype, 0.37f);
	scalar.quantize.dequantize[dtype](&table, codes, scales, blocks, want);
	for (int s = 0; s < set_count; s++) {
		struct output y = output_new(16 * n * dtype_bytes(dtype), offset);

		sets[s].quantize.dequantize[dtype](&table, codes, scales, blocks,
						   y.data);
		output_is(&y, want);
	}
	guard_free(codes, 8 * n);
	guard_free(scales, n);
}

static void dequantize_writes_its_run(void **state)
{
	for (int dtype = 0; dtype < CPU_DTYPES; dtype++)
		for (int64_t blocks = 0; blocks <= MAX_BLOCKS; blocks++)
			dequantize_blocks(dtype, blocks, (size_t)blocks % 3);
}

static void stream_copies_its_run(void **state)
{
	uint8_t from[300];

	rng_fill(&rng, from, sizeof(from));
	for (size_t bytes = 0; bytes <= 300; bytes += bytes < 140 ? 1 : 53)
		for (size_t offset = 0; offset < 64; offset += 7)
			for (int s = 0; s < set_count; s++) {
				struct output to = output_new(bytes, offset);
				uint8_t *source = guard_copy(from, bytes);

				sets[s].quantize.stream(to.data, source, bytes);
				sets[s].quantize.drain();
				output_is(&to, from);
				guard_free(source, bytes);
			}
}

/* A band of 4 * rows rows whose pitch is `pitch`, to tiles and back. */
static void tile_band(int rows, int64_t groups, int64_t pitch, size_t offset)
{
	const size_t band_bytes = (size_t)(4 * rows * pitch);
	const size_t tiles_bytes = (size_t)(groups / 4 * NIB_SCALE_TILE_BYTES);
	struct output given = output_new(band_bytes, offset);
	uint8_t *want = malloc(tiles_bytes), *band_want = malloc(band_bytes);
	const struct cpu_band from = {given.data, rows * pitch, pitch, rows};

	rng_fill(&rng, given.data, band_bytes);
	memset(want, GUARD_POISON, tiles_bytes);
	scalar.quantize.tile(&from, groups, NULL, false, want);
	memset(band_want, GUARD_POISON, band_bytes);
	for (int r = 0; r < 4 * rows; r++)
		memcpy(band_want + r * pitch, given.data + r * pitch, (size_t)groups);
	for (int s = 0; s < 2 * set_count; s++) {
		const struct cpu_quantize_ops *ops = &sets[s / 2].quantize;
		struct output tiles = output_new(tiles_bytes, offset);
		struct output back = output_new(band_bytes, offset);
		const struct cpu_band to = {back.data, rows * pitch, pitch, rows};

		ops->tile(&from, groups, s & 4 ? given.data : NULL, s & 1, tiles.data);
		ops->untile(tiles.data, groups, s & 4 ? tiles.data : NULL, s & 1, &to);
		ops->drain();
		output_is(&back, band_want);
		output_is(&tiles, want);
	}
	free(given.memory);
	free(want);
	free(band_want);
}

/* Offsets that are whole lines may be streamed, all others may not. */
static void tiles_and_back(void **state)
{
	static const size_t offsets[] = {0, 64, 32, 16, 1};

	for (int i = 0; i < 5; i++)
		for (int64_t groups = 4; groups <= 140; groups += 4) {
			tile_band(32, groups, (groups + 63) / 64 * 64, offsets[i]);
			tile_band(32, groups, groups, offsets[i]);
			tile_band(4, groups, groups + 32, offsets[i]);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(quantize_writes_its_run),
	    cmocka_unit_test(amax_reads_its_run),
	    cmocka_unit_test(dequantize_writes_its_run),
	    cmocka_unit_test(stream_copies_its_run),
	    cmocka_unit_test(tiles_and_back),
	};

	return cmocka_run_group_tests(tests, open_sets, NULL);
}
