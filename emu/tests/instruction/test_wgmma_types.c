/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_wgmma_types.c - wgmma.mma_async of every type as a kernel issues it: operands
 * in shared memory and in registers, random codes of all values, and results at the
 * places of the PTX ISA's figures.  Sums of floats are those of tensor_core.h, which
 * tests/hardware/test_wgmma.c checks; sums of integers are computed here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/run.h"
#include "common/unit.h"
#include "hardware/tensor_core.h"

#define ROWS	64
#define MAX_N	96
#define THREADS 128
#define A_BYTES (ROWS * 32)

struct form {
	const char *types, *sum;
	enum emu_mma_type a, b;
	int k;
	bool d_is_f16, saturates, a_in_registers, negates_a, negates_b;
};

struct image {
	uint8_t a[ROWS][32], b[MAX_N][32];
	uint32_t c[THREADS][MAX_N / 2];
};

/* ---- the kernel ---------------------------------------------------------- */

/* K-major without swizzle: blocks of eight rows of 16 bytes. */
static uint32_t place(int row, int byte)
{
	return (uint32_t)(row / 8 * 256 + byte / 16 * 128 + row % 8 * 16 + byte % 16);
}

static int registers_of(const struct form *f, int n)
{
	return n / (f->d_is_f16 ? 4 : 2);
}

static char *list_registers(char *at, int count)
{
	*at++ = '{';
	for (int i = 0; i < count; i++)
		at += sprintf(at, "%s%%s%d", i ? ", " : "", i);
	return at + sprintf(at, "}");
}

/* in: A and B as in shared memory, the accumulators of each thread, and the registers
 * of A. */
static char *write_body(const struct form *f, int n)
{
	const int words = registers_of(f, n), bytes = A_BYTES + n * 32;
	const bool is_integer = f->a >= EMU_S8;
	char *body = malloc(EMU_TEXT_BYTES), *at = body;

	assert_non_null(body);
	at += sprintf(at,
		      ".reg .b32 %%s<64>;\nmov.u32 %%r1, dynamic;\n"
		      "shl.b32 %%r2, %%tid, 2;\nCOPY:\nadd.u32 %%r3, %%r1, %%r2;\n"
		      "cvt.u64.u32 %%d1, %%r2;\nadd.s64 %%d1, %%d1, %%in;\n"
		      "ld.global.u32 %%r4, [%%d1];\nst.shared.u32 [%%r3], %%r4;\n"
		      "add.u32 %%r2, %%r2, 512;\nsetp.lt.u32 %%p1, %%r2, %d;\n"
		      "@%%p1 bra COPY;\nfence.proxy.async;\nbar.sync 0;\n"
		      "mad.wide.u32 %%d2, %%tid, %d, %%in;\n"
		      "mad.wide.u32 %%d3, %%tid, 16, %%in;\n"
		      "ld.global.v4.u32 {%%r5, %%r6, %%r7, %%r8}, [%%d3+%d];\n",
		      bytes, 4 * words, bytes + THREADS * 4 * words);
	for (int i = 0; i < words; i++)
		at +=
		    sprintf(at, "ld.global.u32 %%s%d, [%%d2+%d];\n", i, bytes + 4 * i);
	at += sprintf(at,
		      "shr.u32 %%r9, %%r1, 4;\ncvt.u64.u32 %%d4, %%r9;\n"
		      "or.b64 %%d4, %%d4, 0x1000080000;\n"
		      "add.s64 %%d5, %%d4, %d;\nsetp.eq.u32 %%p2, 0, 0;\n"
		      "wgmma.fence.sync.aligned;\n"
		      "wgmma.mma_async.sync.aligned.m64n%dk%d%s.%s.%s ",
		      A_BYTES / 16, n, f->k, f->saturates ? ".satfinite" : "", f->sum,
		      f->types);
	at = list_registers(at, words);
	/* scale-d is true, as a predicate or as a number. */
	at += sprintf(at, ", %s, %%d5, %s",
		      f->a_in_registers ? "{%r5, %r6, %r7, %r8}" : "%d4",
		      n / 16 % 2 ? "1" : "%p2");
	if (!is_integer)
		at += sprintf(at, ", %d, %d%s", f->negates_a ? -1 : 1,
			      f->negates_b ? -1 : 1,
			      f->k != 16	  ? ""
			      : f->a_in_registers ? ", 0"
						  : ", 0, 0");
	at += sprintf(at, ";\nwgmma.commit_group.sync.aligned;\n"
			  "wgmma.wait_group.sync.aligned 0;\n");
	at += sprintf(at, "mad.wide.u32 %%d6, %%tid, %d, %%out;\n", 4 * words);
	for (int i = 0; i < words; i++)
		at += sprintf(at, "st.global.u32 [%%d6+%d], %%s%d;\n", 4 * i, i);
	return body;
}

/* A's four registers of a thread, by the figures of m64nNk*: 4 bytes of k. */
static void fill_a_registers(const struct image *image, uint32_t to[][4])
{
	for (int t = 0; t < THREADS; t++)
		for (int i = 0; i < 4; i++)
			memcpy(&to[t][i],
			       &image->a[t / 32 * 16 + t % 32 / 4 + i % 2 * 8]
					[t % 4 * 4 + i / 2 * 16],
			       4);
}

/* ---- what must come out -------------------------------------------------- */

static uint32_t code_of(const uint8_t *row, enum emu_mma_type type, int k)
{
	const int bytes = emu_mma_type_bytes(type);
	uint32_t code = 0;

	memcpy(&code, row + k * bytes, (size_t)bytes);
	return code;
}

static uint32_t integer_sum(const struct form *f, const uint8_t *a, const uint8_t *b,
			    uint32_t c)
{
	int64_t sum = (int32_t)c;

	for (int k = 0; k < 32; k++)
		sum += (f->a == EMU_S8 ? (int8_t)a[k] : a[k]) *
		       (f->b == EMU_S8 ? (int8_t)b[k] : b[k]);
	if (f->saturates && sum > INT32_MAX)
		return INT32_MAX;
	if (f->saturates && sum < INT32_MIN)
		return UINT32_C(1) << 31;
	return (uint32_t)sum;
}

static void all_sums(const struct form *f, int n, const struct image *image,
		     const uint32_t *c, uint32_t *d)
{
	static struct emu_mma_operand x, y;
	static uint32_t a[ROWS * 32], b[MAX_N * 32];

	if (f->a >= EMU_S8) {
		for (int i = 0; i < ROWS * n; i++)
			d[i] = integer_sum(f, image->a[i / n], image->b[i % n], c[i]);
		return;
	}
	for (int i = 0; i < ROWS * f->k; i++)
		a[i] = code_of(image->a[i / f->k], f->a, i % f->k);
	for (int i = 0; i < n * f->k; i++)
		b[i] = code_of(image->b[i / f->k], f->b, i % f->k);
	emu_mma_operand_fill(&x, f->a, ROWS, a, f->negates_a);
	emu_mma_operand_fill(&y, f->b, n, b, f->negates_b);
	emu_fused_sums(&x, &y, f->d_is_f16, c, d);
}

/* Element i of a thread: row and column, by the figure of D. */
static int place_of_d(int thread, int i, int n)
{
	const int row = thread / 32 * 16 + thread % 32 / 4 + (i % 4 >= 2 ? 8 : 0);

	return row * n + i / 4 * 8 + thread % 4 * 2 + i % 2;
}

static uint32_t element(const struct form *f, const uint32_t *words, int i)
{
	return f->d_is_f16 ? words[i / 2] >> i % 2 * 16 & 0xFFFF : words[i];
}

static void check_form(const struct form *f, int n)
{
	static struct image image;
	static uint32_t c[ROWS * MAX_N], want[ROWS * MAX_N];
	static uint32_t out[THREADS * MAX_N / 2], a_registers[THREADS][4];
	static uint8_t in[sizeof(image) + sizeof(a_registers)];
	const int words = registers_of(f, n);
	const size_t begin = A_BYTES + (size_t)n * 32;
	const size_t c_bytes = (size_t)(THREADS * words) * 4;
	uint32_t *registers = image.c[0];
	struct emu_job job = {.in = in,
			      .out = out,
			      .out_bytes = c_bytes,
			      .block = THREADS,
			      .shared_bytes = (uint32_t)begin};
	char *body = write_body(f, n);

	for (size_t i = 0; i < sizeof(image); i++)
		((uint8_t *)&image)[i] = (uint8_t)emu_test_random();
	for (int i = 0; i < ROWS * 32; i++)
		in[place(i / 32, i % 32)] = image.a[i / 32][i % 32];
	for (int i = 0; i < n * 32; i++)
		in[A_BYTES + place(i / 32, i % 32)] = image.b[i / 32][i % 32];
	fill_a_registers(&image, a_registers);
	memcpy(in + begin, registers, c_bytes);
	memcpy(in + begin + c_bytes, a_registers, sizeof(a_registers));
	job.in_bytes = begin + c_bytes + sizeof(a_registers);
	for (int i = 0; i < THREADS * n / 2; i++) {
		const int t = i / (n / 2), e = i % (n / 2);

		c[place_of_d(t, e, n)] = element(f, registers + t * words, e);
	}
	all_sums(f, n, &image, c, want);
	emu_must_run(body, &job);
	free(body);
	for (int i = 0; i < THREADS * n / 2; i++) {
		const int t = i / (n / 2), e = i % (n / 2);

		assert_int_equal(element(f, out + t * words, e),
				 want[place_of_d(t, e, n)]);
	}
}

/* ---- tests --------------------------------------------------------------- */

static void check_pairs(const char *const *names, const enum emu_mma_type *mma,
			int count, struct form f)
{
	for (int i = 0; i < count * count * 4; i++) {
		static const int sizes[] = {8, 24, 32, MAX_N};
		const int a = i / 4 % count, b = i / 4 / count;
		char types[16];

		snprintf(types, sizeof(types), "%s.%s", names[a], names[b]);
		f.types = types;
		f.a = mma[a];
		f.b = mma[b];
		f.a_in_registers = i % 2;
		f.negates_a = f.a < EMU_S8 && i % 4 == 1;
		f.negates_b = f.a < EMU_S8 && i % 4 == 2;
		check_form(&f, sizes[i % 4]);
	}
}

static void floats(void **state)
{
	static const char *const f16[] = {"f16"}, *const bf16[] = {"bf16"},
				 *const tf32[] = {"tf32"};
	static const enum emu_mma_type types[] = {EMU_F16, EMU_BF16, EMU_TF32};

	check_pairs(f16, types, 1, (struct form){.sum = "f32", .k = 16});
	check_pairs(f16, types, 1,
		    (struct form){.sum = "f16", .k = 16, .d_is_f16 = true});
	check_pairs(bf16, types + 1, 1, (struct form){.sum = "f32", .k = 16});
	check_pairs(tf32, types + 2, 1, (struct form){.sum = "f32", .k = 8});
}

static void bytes_of_float(void **state)
{
	static const char *const names[] = {"e4m3", "e5m2"};
	static const enum emu_mma_type types[] = {EMU_E4M3, EMU_E5M2};

	check_pairs(names, types, 2, (struct form){.sum = "f32", .k = 32});
	check_pairs(names, types, 2,
		    (struct form){.sum = "f16", .k = 32, .d_is_f16 = true});
}

static void integers(void **state)
{
	static const char *const names[] = {"s8", "u8"};
	static const enum emu_mma_type types[] = {EMU_S8, EMU_MMA_U8};

	check_pairs(names, types, 2, (struct form){.sum = "s32", .k = 32});
	check_pairs(names, types, 2,
		    (struct form){.sum = "s32", .k = 32, .saturates = true});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(floats),
	    cmocka_unit_test(bytes_of_float),
	    cmocka_unit_test(integers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
