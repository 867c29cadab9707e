/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_wmma.c - wmma.load, wmma.mma and wmma.store of every type and shape, in both
 * layouts: small integers, whose sums are exact in every type.  Then what is reported
 * and what is refused.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/data.h"
#include "common/run.h"
#include "common/unit.h"
#include "hardware/floats.h"

#define MOST 4096 /* bytes of a matrix */

enum kind { F16, BF16, TF32, S8, U8, S4, U4, B1, F64 };

/* Registers of A, B, C and D, and their first numbers in the register file `file`. */
static const struct shape {
	enum kind kind;
	const char *name, *sum; /* types; sum: of C and D */
	int m, n, k, a, b, c, d;
	const char *end; /* of the product's opcode */
} shapes[] = {
    {F16, "f16", "f32", 16, 16, 16, 8, 8, 8, 8, ".f32.f32"},
    {F16, "f16", "f16", 16, 16, 16, 8, 8, 4, 4, ".f16.f16"},
    {F16, "f16", "f32", 32, 8, 16, 8, 8, 8, 8, ".f32.f32"},
    {F16, "f16", "f32", 8, 32, 16, 8, 8, 8, 8, ".f32.f32"},
    {BF16, "bf16", "f32", 16, 16, 16, 4, 4, 8, 8, ".f32.bf16.bf16.f32"},
    {BF16, "bf16", "f32", 32, 8, 16, 8, 2, 8, 8, ".f32.bf16.bf16.f32"},
    {BF16, "bf16", "f32", 8, 32, 16, 2, 8, 8, 8, ".f32.bf16.bf16.f32"},
    {TF32, "tf32", "f32", 16, 16, 8, 4, 4, 8, 8, ".f32.tf32.tf32.f32"},
    {S8, "s8", "s32", 16, 16, 16, 2, 2, 8, 8, ".s32.s8.s8.s32"},
    {S8, "s8", "s32", 32, 8, 16, 4, 1, 8, 8, ".s32.s8.s8.s32"},
    {U8, "u8", "s32", 8, 32, 16, 1, 4, 8, 8, ".s32.u8.u8.s32"},
    {S4, "s4", "s32", 8, 8, 32, 1, 1, 2, 2, ".s32.s4.s4.s32"},
    {U4, "u4", "s32", 8, 8, 32, 1, 1, 2, 2, ".s32.u4.u4.s32"},
    {B1, "b1", "s32", 8, 8, 128, 1, 1, 2, 2, ".s32.b1.b1.s32"},
    {F64, "f64", "f64", 8, 8, 4, 1, 1, 2, 2, ".f64.f64.f64.f64"},
};

static int bits_of(enum kind kind)
{
	static const int bits[] = {16, 16, 32, 8, 8, 4, 4, 1, 64};

	return bits[kind];
}

/* Stores an integer as element i of an array. */
static void put(uint8_t *to, enum kind kind, int i, int x)
{
	const int bits = bits_of(kind);
	const double wide = x;
	const float single = (float)x;
	uint32_t code = (uint32_t)x;

	if (kind == F64) {
		memcpy(to + 8 * i, &wide, 8);
		return;
	}
	if (kind == F16 || kind == BF16)
		code = emu_narrow(kind == F16 ? &emu_format_f16 : &emu_format_bf16, x,
				  EMU_RN, false);
	if (kind == TF32)
		memcpy(&code, &single, 4);
	if (bits < 8)
		to[i * bits / 8] |=
		    (uint8_t)((code & ((1u << bits) - 1)) << i * bits % 8);
	else
		memcpy(to + i * bits / 8, &code, (size_t)bits / 8);
}

static int any(enum kind kind)
{
	const int x = (int)(emu_test_random() % 8);

	return kind == B1 ? x & 1 : kind == U4 || kind == U8 ? x : x - 4;
}

/* "{%r0, %r1}" */
static const char *registers(char *to, char file, int first, int count)
{
	char *at = to;

	at += sprintf(at, "{");
	for (int k = 0; k < count; k++)
		at += sprintf(at, "%s%%%c%d", k ? ", " : "", file, first + k);
	sprintf(at, "}");
	return to;
}

struct layouts {
	bool a_is_columns, b_is_rows, c_is_columns;
};

/* A, B and C are in the input, one after the other with MOST bytes each. */
static const char *body_of(const struct shape *s, struct layouts l, char *text)
{
	const char *a = l.a_is_columns ? "col" : "row",
		   *b = l.b_is_rows ? "row" : "col";
	const char *c = l.c_is_columns ? "col" : "row";
	const char file = s->kind == F64 ? 'g' : 'r';
	const char sum = s->kind == F64 ? 'g' : strcmp(s->sum, "f32") == 0 ? 'f' : 'r';
	const int first = sum == 'f' ? 0 : 16;
	char ra[100], rb[100], rc[100], rd[100];

	registers(ra, file, 0, s->a);
	registers(rb, file, 8, s->b);
	registers(rc, sum, first, s->c);
	registers(rd, sum, first + 8, s->d);
	sprintf(text,
		"wmma.load.a.sync.aligned.%s.m%dn%dk%d.global.%s %s, [%%in], %d;\n"
		"wmma.load.b.sync.aligned.%s.m%dn%dk%d.%s %s, [%%in+%d], %d;\n"
		"wmma.load.c.sync.aligned.%s.m%dn%dk%d.global.%s %s, [%%in+%d];\n"
		"wmma.mma%s.sync.aligned.%s.%s.m%dn%dk%d%s %s, %s, %s, %s;\n"
		"wmma.store.d.sync.aligned.%s.m%dn%dk%d.global.%s [%%out], %s, %d;\n",
		a, s->m, s->n, s->k, s->name, ra, l.a_is_columns ? s->m : s->k, b, s->m,
		s->n, s->k, s->name, rb, MOST, l.b_is_rows ? s->n : s->k, c, s->m, s->n,
		s->k, s->sum, rc, 2 * MOST, s->kind == B1 ? ".xor.popc" : "", a, b,
		s->m, s->n, s->k, s->end, rd, ra, rb, rc, c, s->m, s->n, s->k, s->sum,
		rd, l.c_is_columns ? s->m : s->n);
	return text;
}

static enum kind sum_kind(const struct shape *s)
{
	return s->kind == F64		    ? F64
	       : strcmp(s->sum, "f16") == 0 ? F16
	       : strcmp(s->sum, "f32") == 0 ? TF32
					    : S8;
}

static void put_sum(uint8_t *to, const struct shape *s, int i, int x)
{
	if (sum_kind(s) == S8)
		memcpy(to + 4 * i, &x, 4);
	else
		put(to, sum_kind(s), i, x);
}

static void check(const struct shape *s, struct layouts l)
{
	static uint8_t in[3 * MOST], out[MOST], want[MOST];
	static int a[32][128], b[32][128];
	char text[4096];
	const size_t bytes = (size_t)(s->m * s->n) * (sum_kind(s) == F64   ? 8
						      : sum_kind(s) == F16 ? 2
									   : 4);
	struct emu_job job = {
	    .in = in, .in_bytes = sizeof(in), .out = out, .out_bytes = bytes};

	memset(in, 0, sizeof(in));
	memset(want, 0, sizeof(want));
	for (int i = 0; i < s->m; i++)
		for (int k = 0; k < s->k; k++)
			put(in, s->kind, l.a_is_columns ? k * s->m + i : i * s->k + k,
			    a[i][k] = any(s->kind));
	for (int j = 0; j < s->n; j++)
		for (int k = 0; k < s->k; k++)
			put(in + MOST, s->kind,
			    l.b_is_rows ? k * s->n + j : j * s->k + k,
			    b[j][k] = any(s->kind));
	for (int i = 0; i < s->m; i++)
		for (int j = 0; j < s->n; j++) {
			const int at = l.c_is_columns ? j * s->m + i : i * s->n + j;
			int sum = any(S8);

			put_sum(in + 2 * MOST, s, at, sum);
			for (int k = 0; k < s->k; k++)
				sum += s->kind == B1 ? a[i][k] ^ b[j][k]
						     : a[i][k] * b[j][k];
			put_sum(want, s, at, sum);
		}
	emu_must_run(body_of(s, l, text), &job);
	if (memcmp(out, want, bytes) != 0)
		fail_msg("m%dn%dk%d of %s, layouts %d %d %d", s->m, s->n, s->k, s->name,
			 l.a_is_columns, l.b_is_rows, l.c_is_columns);
}

static void test_shapes(void **state)
{
	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
		for (int k = 0; k < 8; k++) {
			const struct layouts l = {k & 1, k & 2, k & 4};

			if (bits_of(shapes[i].kind) >= 8 || k % 4 == 0)
				check(&shapes[i], l);
		}
}

/* Both rows of a fragment are changed alike: C times 3 by its registers. */
static void test_elements(void **state)
{
	float in[256], out[256];
	char text[2048], *at = text;

	for (int i = 0; i < 256; i++)
		in[i] = (float)(i % 37);
	at += sprintf(at, "wmma.load.c.sync.aligned.row.m16n16k16.global.f32 "
			  "{%%f0,%%f1,%%f2,%%f3,%%f4,%%f5,%%f6,%%f7}, [%%in], 16;\n");
	for (int k = 0; k < 8; k++)
		at += sprintf(at, "mul.f32 %%f%d, %%f%d, 0f40400000;\n", k, k);
	sprintf(at, "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%%out], "
		    "{%%f0,%%f1,%%f2,%%f3,%%f4,%%f5,%%f6,%%f7}, 16;\n");
	emu_must_run(text, &(struct emu_job){.in = in,
					     .in_bytes = sizeof(in),
					     .out = out,
					     .out_bytes = sizeof(out)});
	for (int i = 0; i < 256; i++)
		assert_true(out[i] == 3 * in[i]);
}

#define LOAD                                                                           \
	"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 "                           \
	"{%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, "

static void test_faults(void **state)
{
	uint8_t in[512] = {0}, out[16];
	struct emu_job job = {
	    .in = in, .in_bytes = sizeof(in), .out = out, .out_bytes = sizeof(out)};

	emu_must_fail(LOAD "[%in+16], 16;\n", &job, "not allocated", NULL);
	emu_must_fail(LOAD "[%in], 32;\n", &job, "not allocated", NULL);
	emu_must_fail(LOAD "[%out], 0;\n", &job, "never written", NULL);
	emu_must_fail("mad.wide.u32 %d1, %tid, 16, %in;\n" LOAD "[%d1], 16;\n", &job,
		      "address differs between lanes", NULL);
	emu_must_fail(LOAD "[%in], %tid;\n", &job, "stride differs between lanes",
		      NULL);
	emu_must_fail("setp.lt.u32 %p1, %tid, 16;\n@%p1 " LOAD "[%in], 16;\n", &job,
		      "needs all of the warp", NULL);
}

static void test_refused(void **state)
{
	struct emu_job job = {.in = "x", .in_bytes = 1};

	emu_must_fail(
	    "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r0}, [%in];\n", &job,
	    "1 registers, not 8", NULL);
	emu_must_fail(
	    "wmma.load.a.sync.aligned.row.m16n16k8.global.f16 {%r0}, [%in];\n", &job,
	    "m16n16k8 of .f16 is not known here", NULL);
	emu_must_fail("wmma.load.a.sync.aligned.m16n16k16.global.f16 {%r0}, [%in];\n",
		      &job, "it needs .row or .col", NULL);
	emu_must_fail("wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%r0}, [%in];\n",
		      &job, "less than 8 bits", NULL);
	emu_must_fail(
	    "wmma.mma.sync.aligned.row.m16n16k16.f32.f32 {%f0}, {%r0}, {%r1}, "
	    "{%f1};\n",
	    &job, "layouts of A and B are missing", NULL);
	emu_must_fail("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f32 {%r0}, {%r0}, "
		      "{%r1}, {%f1};\n",
		      &job, "D of .f16 with C of .f32", NULL);
	emu_must_fail("wmma.mma.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r0,%r1}, "
		      "{%r2}, {%r3}, {%r4,%r5};\n",
		      &job, ".xor.popc or .and.popc", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_shapes),
	    cmocka_unit_test(test_elements),
	    cmocka_unit_test(test_faults),
	    cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
