/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_reduce.c - cp.reduce.async.bulk and its tensor form: every operation on
 * every type, CTAs that reduce into the same memory at once, and the edges of a
 * tensor.
 */
#include <stdio.h>
#include <string.h>

#include "common/data.h"
#include "common/run.h"
#include "common/unit.h"
#include "hardware/tensor_map.h"

#define BYTES 128
#define CTAS  6

/* ---- elements by hand ------------------------------------------------------ */

struct value {
	const char *type;
	const char *operation;
	int bytes;
	uint64_t before, from, after;
};

/* Both edges of a type and what IEEE 754 gives. */
static const struct value values[] = {
    {"u32", "add", 4, 0xFFFFFFFF, 2, 1},
    {"s32", "add", 4, 5, 0xFFFFFFFA, 0xFFFFFFFF},
    {"u64", "add", 8, 0xFFFFFFFF, 1, UINT64_C(0x100000000)},
    {"u32", "min", 4, 0xFFFFFFFF, 2, 2},
    {"s32", "min", 4, 0xFFFFFFFF, 2, 0xFFFFFFFF},
    {"u32", "max", 4, 0xFFFFFFFF, 2, 0xFFFFFFFF},
    {"s32", "max", 4, 0xFFFFFFFF, 2, 2},
    {"u64", "max", 8, UINT64_MAX, 2, UINT64_MAX},
    {"s64", "max", 8, UINT64_MAX, 2, 2},
    {"u64", "min", 8, UINT64_MAX, 2, 2},
    {"s64", "min", 8, UINT64_MAX, 2, UINT64_MAX},
    {"u32", "inc", 4, 7, 7, 0},
    {"u32", "inc", 4, 6, 7, 7},
    {"u32", "dec", 4, 0, 7, 7},
    {"u32", "dec", 4, 8, 7, 7},
    {"u32", "dec", 4, 7, 7, 6},
    {"b32", "and", 4, 0xF0F0F0F0, 0xFF00FF00, 0xF000F000},
    {"b32", "or", 4, 0xF0F0F0F0, 0xFF00FF00, 0xFFF0FFF0},
    {"b32", "xor", 4, 0xF0F0F0F0, 0xFF00FF00, 0x0FF00FF0},
    {"b64", "xor", 8, UINT64_C(0xF0F0F0F000000000), 1, UINT64_C(0xF0F0F0F000000001)},
    {"f32", "add", 4, 0x3F800000, 0x33800000, 0x3F800000}, /* a tie to even */
    {"f32", "add", 4, 0x3F800001, 0x33800000, 0x3F800002},
    {"f32", "add", 4, 1, 0x3F800000, 0x3F800000},
    {"f32", "add", 4, 0x00400000, 0x00400000, 0}, /* subnormals are zeros */
    {"f32", "add", 4, 0x7F800000, 0xFF800000, 0x7FFFFFFF},
    {"f64", "add", 8, UINT64_C(0x3FF0000000000000), 1, UINT64_C(0x3FF0000000000000)},
    {"f16", "add.noftz", 2, 1, 2, 3},		     /* of subnormals */
    {"f16", "add.noftz", 2, 0x3C00, 0x1000, 0x3C00}, /* 1 + 2^-11 */
    {"f16", "add.noftz", 2, 0x3C01, 0x1000, 0x3C02},
    {"f16", "add.noftz", 2, 0x7BFF, 0x7BFF, 0x7C00},
    {"bf16", "add.noftz", 2, 0x3F80, 0x3F80, 0x4000},
    {"bf16", "add.noftz", 2, 0x3F81, 0x3B80, 0x3F82},
    {"f16", "min", 2, 0x3C00, 0xBC00, 0xBC00},
    {"f16", "max", 2, 0x3C00, 0xBC00, 0x3C00},
    {"f16", "max", 2, 0x7E00, 0xBC00, 0xBC00}, /* NaN loses */
    {"bf16", "min", 2, 0x8000, 0, 0x8000},
    {"bf16", "max", 2, 0x8000, 0, 0},
};

/* in: the source, then what is reduced into. */
static const char *const one =
    "mov.u32 %%r1, dynamic;\nshl.b32 %%r2, %%tid, 2;\n"
    "add.u32 %%r3, %%r1, %%r2;\ncvt.u64.u32 %%d1, %%r2;\n"
    "add.s64 %%d2, %%in, %%d1;\nadd.s64 %%d3, %%out, %%d1;\n"
    "ld.global.u32 %%r4, [%%d2];\nst.shared.u32 [%%r3], %%r4;\n"
    "fence.proxy.async.shared::cta;\nbar.sync 0;\n"
    "setp.ne.u32 %%p1, %%tid, 0;\nadd.s64 %%d4, %%in, 128;\n"
    "@!%%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.%s.%s [%%d4], "
    "[%%r1], 128;\n"
    "@!%%p1 cp.async.bulk.commit_group;\n"
    "@!%%p1 cp.async.bulk.wait_group 0;\nbar.sync 0;\n"
    "ld.global.u32 %%r5, [%%d2+128];\nst.global.u32 [%%d3], %%r5;\n";

static void check_value(const struct value *v)
{
	uint8_t in[2 * BYTES], out[BYTES];
	struct emu_job job = {.in = in,
			      .in_bytes = sizeof(in),
			      .out = out,
			      .out_bytes = sizeof(out),
			      .shared_bytes = BYTES};
	char body[1024];

	snprintf(body, sizeof(body), one, v->operation, v->type);
	for (int i = 0; i < BYTES; i += v->bytes) {
		memcpy(in + i, &v->from, (size_t)v->bytes);
		memcpy(in + BYTES + i, &v->before, (size_t)v->bytes);
	}
	for (job.seed = 0; job.seed < 3; job.seed++) {
		emu_must_run(body, &job);
		for (int i = 0; i < BYTES; i += v->bytes) {
			uint64_t got = 0;

			memcpy(&got, out + i, (size_t)v->bytes);
			if (got != v->after)
				fail_msg("%s.%s of %llx and %llx: %llx", v->operation,
					 v->type, (unsigned long long)v->before,
					 (unsigned long long)v->from,
					 (unsigned long long)got);
		}
	}
}

static void each_operation(void **state)
{
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
		check_value(&values[i]);
}

/* ---- many at once --------------------------------------------------------- */

#define MAP_BYTES EMU_TENSOR_MAP_BYTES
#define ELEMENTS  6 /* of the tensor; a box has 8 */

static struct {
	uint8_t map[MAP_BYTES];
	float sums[ELEMENTS + 2];
} in;

static void put_map(uint64_t address, uint8_t *at)
{
	struct emu_error err = {""};
	struct emu_tensor_map map = {.type = EMU_TENSOR_F32,
				     .address = address + MAP_BYTES,
				     .rank = 1,
				     .sizes = {ELEMENTS},
				     .box = {8},
				     .element_strides = {1}};

	if (!emu_tensor_map_check(&map, &err))
		fail_msg("%s", err.text);
	emu_tensor_map_encode(&map, at);
}

/* CTA c adds c + 1 to each element; the first thread of the last CTA reads them. */
#define ADD_BOX(end)                                                                   \
	"mov.u32 %r1, dynamic;\nshl.b32 %r2, %tid, 2;\n"                               \
	"add.u32 %r3, %r1, %r2;\nmov.u32 %r4, %ctaid.x;\n"                             \
	"add.u32 %r4, %r4, 1;\ncvt.rn.f32.u32 %f1, %r4;\n"                             \
	"st.shared.f32 [%r3], %f1;\nfence.proxy.async.shared::cta;\n"                  \
	"bar.sync 0;\nsetp.ne.u32 %p1, %tid, 0;\nmov.u32 %r5, 0;\n"                    \
	"@!%p1 cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile"             \
	".bulk_group [%in, {%r5}], [%r1];\n"                                           \
	"@!%p1 cp.async.bulk.commit_group;\n"                                          \
	"@!%p1 cp.async.bulk.wait_group 0;\n" end

/* The last CTA to arrive copies the sums. */
#define COUNT                                                                          \
	"@%p1 bra END;\nfence.acq_rel.gpu;\n"                                          \
	"atom.acq_rel.gpu.global.add.u32 %r6, [%in+156], 1;\n"                         \
	"setp.ne.u32 %p2, %r6, 5;\n@%p2 bra END;\nfence.acq_rel.gpu;\n"                \
	"ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%in+128];\n"                      \
	"ld.global.v2.u32 {%r14, %r15}, [%in+144];\n"                                  \
	"ld.global.u32 %r16, [%in+152];\n"                                             \
	"st.global.v4.u32 [%out], {%r10, %r11, %r12, %r13};\n"                         \
	"st.global.v2.u32 [%out+16], {%r14, %r15};\n"                                  \
	"st.global.u32 [%out+24], %r16;\nEND:\n"

static void ctas_add_to_one_box(void **state)
{
	for (uint64_t seed = 0; seed < 40; seed++) {
		float out[ELEMENTS + 1];
		struct emu_job job = {.in = &in,
				      .in_bytes = sizeof(in),
				      .out = out,
				      .out_bytes = sizeof(out),
				      .grid = CTAS,
				      .shared_bytes = BYTES,
				      .seed = seed,
				      .prepare = put_map};

		for (int i = 0; i < ELEMENTS + 1; i++)
			in.sums[i] = (float)(100 * i);
		in.sums[ELEMENTS + 1] = 0;
		emu_must_run(ADD_BOX(COUNT), &job);
		for (int i = 0; i < ELEMENTS; i++)
			assert_true(out[i] == (float)(100 * i + 21));
		/* Bytes after the tensor do not change. */
		assert_true(out[ELEMENTS] == 100 * ELEMENTS);
	}
}

/* A CTA that reads without waiting for the others races with them. */
static void races_are_reported(void **state)
{
	struct emu_job job = {.in = &in,
			      .in_bytes = sizeof(in),
			      .out = &in,
			      .out_bytes = 4,
			      .grid = 2,
			      .shared_bytes = BYTES,
			      .prepare = put_map};
	float out[1];

	job.out = out;
	emu_must_fail(ADD_BOX("ld.global.u32 %r6, [%in+128];\n"), &job, "global", NULL);
}

static void what_is_refused(void **state)
{
	static const struct {
		const char *body, *why;
	} cases[] = {
	    {"cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f32 "
	     "[%d1], [%r1], 16;\n",
	     ".min does not support this type"},
	    {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 "
	     "[%d1], [%r1], 16;\n",
	     ".noftz"},
	    {"cp.reduce.async.bulk.global.shared::cta.bulk_group.u32 [%d1], "
	     "[%r1], 16;\n",
	     "one operation"},
	    {"cp.reduce.async.bulk.tensor.1d.global.shared::cta.tile."
	     "bulk_group [%in, {%r5}], [%r1];\n",
	     "one operation"},
	    {"mov.u32 %r1, dynamic;\nmov.u32 %r5, 0;\n"
	     "cp.reduce.async.bulk.tensor.1d.global.shared::cta.xor.tile."
	     "bulk_group [%in, {%r5}], [%r1];\n",
	     "no such reduction"},
	};
	struct emu_job job = {.in = &in,
			      .in_bytes = sizeof(in),
			      .shared_bytes = BYTES,
			      .prepare = put_map};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		emu_must_fail(cases[i].body, &job, cases[i].why, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_operation),
	    cmocka_unit_test(ctas_add_to_one_box),
	    cmocka_unit_test(races_are_reported),
	    cmocka_unit_test(what_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
