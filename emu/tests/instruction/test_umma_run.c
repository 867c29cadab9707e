/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_umma_run.c - tcgen05.mma in PTX: all kinds, layouts and sizes with one CTA and
 * two, on numbers whose sums are integers, and every byte of the scales in tensor
 * memory, one at a time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/tcgen05.h"
#include "common/unit.h"
#include "hardware/umma.h"

#define LEAD 4096u

/* ---- one multiplication -------------------------------------------------- */

/* Lanes of each 32 that the second multiplication may keep. */
#define KEPT 0x00FF0F10u

/*
 * Twice: D = A B, and D = A B or D / 2^shift + A B, which with keeps leaves out
 * some lanes.
 */
static void program(const char *words, int ctas, bool a_in_tmem, bool is_scaled,
		    bool keeps, int shift)
{
	char end[16] = "";

	emu_text[0] = 0;
	emu_bring(ctas);
	emu_append("ld.global.b64 %%d2, [%%in]; ld.global.b64 %%d3, [%%in+8];\n"
		   "ld.global.b32 %%r8, [%%in+16]; ld.global.b32 %%r9, [%%in+20];\n"
		   "mov.u32 %%r10, dynamic; shr.u32 %%r10, %%r10, 4;\n"
		   "cvt.u64.u32 %%d4, %%r10; add.s64 %%d2, %%d2, %%d4;\n"
		   "add.s64 %%d3, %%d3, %%d4; mov.pred %%p3, 0;\n"
		   "add.u32 %%r11, %%r3, 256; add.u32 %%r12, %%r3, 260;\n"
		   "setp.ne.u32 %%p4, %%r9, 0;\n");
	if (shift)
		snprintf(end, sizeof(end), ", %d", shift);
	emu_append("mov.u32 %%r20, 0x%x;\n", KEPT);
	for (int i = 0; i < 2; i++)
		emu_append("@%%one tcgen05.mma.cta_group::%d.%s [%%r3], %s, "
			   "%%d3, %%r8, %s%s%%p%d%s;\n",
			   ctas, words, a_in_tmem ? "[%r11]" : "%d2",
			   is_scaled ? "[%r11], [%r12], " : "",
			   !keeps || !i ? ""
			   : ctas == 2	? "{%r20, %r20, %r20, %r20, %r20, "
					  "%r20, %r20, %r20}, "
					: "{%r20, %r20, %r20, %r20}, ",
			   3 + i, end);
	emu_append("mov.b16 %%m, %d;\n"
		   "@%%one tcgen05.commit.cta_group::%d.mbarrier::arrive::one"
		   ".shared::cluster.multicast::cluster.b64 [bar], %%m;\n"
		   "W: mbarrier.try_wait.parity.shared::cta.b64 %%p5, [bar], 0;\n"
		   "@!%%p5 bra W;\ntcgen05.fence::after_thread_sync;\n",
		   ctas == 2 ? 3 : 1, ctas);
}

/* D's columns, lane by lane. */
static void take(int columns, int ctas)
{
	emu_append("mul.wide.u32 %%d5, %%tid, 1024; add.s64 %%d5, %%d5, %%out;\n"
		   "mov.u32 %%r13, 0;\nT: add.u32 %%r14, %%r7, %%r13;\n"
		   "tcgen05.ld.sync.aligned.32x32b.x8.b32 ");
	emu_append_registers("x", 8);
	emu_append(", [%%r14];\ntcgen05.wait::ld.sync.aligned;\n"
		   "st.global.v4.b32 [%%d5], {%%x0,%%x1,%%x2,%%x3};\n"
		   "st.global.v4.b32 [%%d5+16], {%%x4,%%x5,%%x6,%%x7};\n"
		   "add.s64 %%d5, %%d5, 32; add.u32 %%r13, %%r13, 8;\n"
		   "setp.lt.u32 %%p6, %%r13, %d; @%%p6 bra T;\n"
		   "barrier.cluster.arrive.release.aligned;\n"
		   "barrier.cluster.wait.acquire.aligned;\n@%%w bra Z;\n"
		   "tcgen05.dealloc.cta_group::%d.sync.aligned.b32 %%r3, 512;\n"
		   "Z:\n",
		   columns, ctas);
}

/* ---- operands ------------------------------------------------------------ */

/* Bits of small integers in each type: their codes for 0, 1, 2, 3, -1. */
static uint32_t code_of(enum emu_umma_type type, int value)
{
	static const uint32_t codes[][5] = {
	    [EMU_UMMA_TYPE_F16] = {0, 0x3C00, 0x4000, 0x4200, 0xBC00},
	    [EMU_UMMA_TYPE_BF16] = {0, 0x3F80, 0x4000, 0x4040, 0xBF80},
	    [EMU_UMMA_TYPE_E4M3] = {0, 0x38, 0x40, 0x44, 0xB8},
	    [EMU_UMMA_TYPE_E5M2] = {0, 0x3C, 0x40, 0x42, 0xBC},
	    [EMU_UMMA_TYPE_E2M3] = {0, 0x08, 0x10, 0x14, 0x28},
	    [EMU_UMMA_TYPE_E3M2] = {0, 0x0C, 0x10, 0x12, 0x2C},
	    [EMU_UMMA_TYPE_E2M1] = {0, 2, 4, 5, 10},
	    [EMU_UMMA_TYPE_TF32] = {0, 0x3F800000, 0x40000000, 0x40400000, 0xBF800000},
	    [EMU_UMMA_TYPE_U8] = {0, 1, 2, 3, 255},
	    [EMU_UMMA_TYPE_S8] = {0, 1, 2, 3, 255},
	};

	return codes[type][value < 0 || value > 3 ? 4 : value];
}

static uint32_t bits_of(enum emu_umma_type type)
{
	static const uint8_t bits[] = {16, 16, 8, 8, 6, 6, 4, 32, 8, 8};

	return bits[type];
}

/* The layout of an operand. */
struct layout {
	uint32_t swizzle; /* bytes; 0 none */
	bool is_transposed;
};

static uint64_t descriptor_of(const struct layout *l, uint32_t at, uint32_t *wide)
{
	const uint64_t code = l->swizzle == 128	 ? 2
			      : l->swizzle == 64 ? 4
			      : l->swizzle == 32 ? 6
						 : 0;

	*wide = l->swizzle ? l->swizzle : 16;
	/* Groups of 8 rows are 8 x wide bytes apart; all else is LEAD apart. */
	return code << 61 | UINT64_C(1) << 46 | (uint64_t)(8 * *wide / 16) << 32 |
	       (uint64_t)(LEAD / 16) << 16 | at / 16;
}

/*
 * Byte of element (row, k) by CUTLASS's canonical layouts, in 16-byte units T:
 * K-major ((8,m),(T,2)), MN-major ((T,wide,m),(8,k)); swizzled by 16 bytes with
 * the number of the 128 bytes.
 */
static uint32_t place_of(const struct layout *l, uint32_t bits, uint32_t row,
			 uint32_t k, uint32_t *shift)
{
	const uint32_t wide = l->swizzle ? l->swizzle : 16;
	const uint32_t unit = bits >= 8 ? 128 / bits : 16;
	const uint32_t major = l->is_transposed ? k : row;
	const uint32_t minor = l->is_transposed ? row : k;
	const uint32_t piece = minor / unit, bit = minor % unit * bits;
	uint32_t at = major % 8 * wide;

	if (!l->is_transposed)
		at += major / 8 * 8 * wide + (l->swizzle ? 16 : LEAD) * piece;
	else if (l->swizzle)
		at += major / 8 * 8 * wide + piece % (wide / 16) * 16 +
		      piece / (wide / 16) * LEAD;
	else /* the strides' meaning changes */
		at += major / 8 * LEAD + piece * 128;
	at ^= (at >> 7 & (wide / 16 - 1)) << 4;
	*shift = bit % 8;
	return at + bit / 8;
}

struct operand {
	enum emu_umma_type type;
	struct layout layout;
	int rows, k;
	bool is_fp4; /* kind::mxf4nvf4: 32 elements in 16 bytes */
	int16_t value[256][64];
};

static void fill(struct operand *o)
{
	for (int i = 0; i < o->rows * o->k; i++) {
		int value = (int)(emu_test_random() % 5) - 1;

		/* -1's code has no sign. */
		if (o->type == EMU_UMMA_TYPE_U8 && value < 0)
			value = 255;
		o->value[i / o->k][i % o->k] = (int16_t)value;
	}
}

static void put(const struct operand *o, int first, int rows, uint8_t *to)
{
	for (int i = 0; i < rows * o->k; i++) {
		const uint32_t row = (uint32_t)(i / o->k);
		const uint32_t k = (uint32_t)(i % o->k);
		const uint32_t code =
		    code_of(o->type, o->value[(uint32_t)first + row][k]);
		uint32_t shift, at;

		if (o->is_fp4) {
			at = place_of(&o->layout, 8, row, k / 2, &shift);
			shift = k % 2 * 4;
		} else {
			at = place_of(&o->layout, bits_of(o->type), row, k, &shift);
		}
		for (uint32_t bit = 0; bit < shift + bits_of(o->type); bit += 8)
			to[at + bit / 8] |= (uint8_t)((uint64_t)code << shift >> bit);
	}
}

/* ---- a case -------------------------------------------------------------- */

struct test {
	struct emu_umma umma;
	struct layout a_layout, b_layout;
	bool accumulates;
	bool keeps; /* disable-output-lane */
	int shift;  /* scale-input-d */
};

static uint32_t idesc_of(const struct emu_umma *u)
{
	static const uint8_t codes[] = {0, 1, 0, 1, 3, 4, 5, 2, 0, 1};
	const bool is_fp4 = u->form.kind == EMU_UMMA_MXF4NVF4;
	uint32_t d = (uint32_t)(is_fp4 ? 1 : codes[u->a_type]) << 7 |
		     (uint32_t)(is_fp4 ? 1 : codes[u->b_type]) << 10 |
		     (uint32_t)u->a_negated << 13 | (uint32_t)u->b_negated << 14 |
		     (uint32_t)u->a_transposed << 15 | (uint32_t)u->b_transposed << 16 |
		     (uint32_t)u->n / 8 << 17;

	if (!u->form.scales)
		return d | (u->form.kind == EMU_UMMA_I8 ? 2u : !u->d_is_f16) << 4 |
		       (uint32_t)u->saturates << 3 | (uint32_t)u->m / 16 << 24;
	return d | (uint32_t)u->sfb_id << 4 | (uint32_t)u->scale_is_ue8m0 << 23 |
	       (uint32_t)u->m / 128 << 27 | (uint32_t)u->sfa_id << 29;
}

/* Scales of 1, 2 and 4; powers of two. */
static int scale_of(const struct emu_umma *u, bool of_a, int row, int block)
{
	return u->form.scales ? 1 << (row * 7 + block * 5 + of_a) % 3 : 1;
}

static uint8_t scale_code(const struct emu_umma *u, int scale)
{
	const int log = scale == 4 ? 2 : scale - 1;

	return (uint8_t)(u->scale_is_ue8m0 ? 127 + log : 0x38 + 8 * log);
}

/* All copies of the scales, in the bytes that the ids name. */
static void put_scales(const struct emu_umma *u, int cta, struct input *in)
{
	const int rows = u->m / u->form.ctas;

	for (int lane = 0; lane < 128; lane++)
		for (int s = 0; s < u->form.scales; s++) {
			uint8_t *words = (uint8_t *)in->tmem[lane];

			for (int m = lane % 32; m < rows; m += 32)
				words[4 * (m / 32) + u->sfa_id + s] =
				    scale_code(u, scale_of(u, true, cta * rows + m, s));
			for (int n = lane % 32; n < u->n; n += 32)
				words[16 + 4 * (n / 32) + u->sfb_id + s] =
				    scale_code(u, scale_of(u, false, n, s));
		}
}

static void put_a_in_tmem(const struct emu_umma *u, const struct operand *a, int cta,
			  struct input *in)
{
	const int rows = u->m / u->form.ctas;

	for (int r = 0; r < rows; r++) {
		uint8_t *to = (uint8_t *)in->tmem[emu_umma_a_lane(u, r)];

		for (int k = 0; k < u->k; k++) {
			const uint32_t bit = (uint32_t)k * bits_of(a->type);
			const uint32_t code =
			    code_of(a->type, a->value[cta * rows + r][k]);

			for (uint32_t b = 0; b < bits_of(a->type); b += 8)
				to[(bit + b) / 8] = (uint8_t)(code >> b);
		}
	}
}

static int sum_of(const struct test *t, const struct operand *a,
		  const struct operand *b, int m, int n)
{
	const struct emu_umma *u = &t->umma;
	const int block = u->form.scales ? u->k / u->form.scales : u->k;
	int sum = 0;

	for (int k = 0; k < u->k; k++)
		sum += a->value[m][k] * b->value[n][k] *
		       scale_of(u, true, m, k / block) *
		       scale_of(u, false, n, k / block);
	if (u->a_negated != u->b_negated)
		sum = -sum;
	return sum;
}

static float float_of(uint32_t bits, const struct emu_umma *u)
{
	const uint32_t magnitude = bits & 0x7FFF;
	float x;

	if (u->form.kind == EMU_UMMA_I8)
		return (float)(int32_t)bits;
	if (u->d_is_f16 && magnitude)
		bits = (bits & 0x8000) << 16 | ((magnitude << 13) + 0x38000000);
	memcpy(&x, &bits, sizeof(x));
	return x;
}

static void check(const struct test *t, const struct operand *a,
		  const struct operand *b, const struct output *out)
{
	for (int m = 0; m < t->umma.m; m++)
		for (int n = 0; n < t->umma.n; n++) {
			const float sum = (float)sum_of(t, a, b, m, n);
			float got, want = sum;
			int cta, lane, column;

			emu_umma_d_place(&t->umma, m, n, &cta, &lane, &column);
			if (t->accumulates && !(t->keeps && KEPT >> lane % 32 & 1))
				want += sum / (float)(1 << t->shift);
			got = float_of(out[cta].d[lane][column], &t->umma);
			if (got != want)
				fail_msg("%dx%d, kind %d, types %d %d, row %d, "
					 "column %d: %g, not %g",
					 t->umma.m, t->umma.n, t->umma.form.kind,
					 t->umma.a_type, t->umma.b_type, m, n,
					 (double)got, (double)want);
		}
}

static const char *words_of(const struct emu_umma *u)
{
	static const char *const plain[] = {
	    [EMU_UMMA_F16] = "kind::f16",
	    [EMU_UMMA_MXF8F6F4] = "kind::mxf8f6f4.block_scale.scale_vec::1X",
	    [EMU_UMMA_F8F6F4] = "kind::f8f6f4",
	    [EMU_UMMA_TF32] = "kind::tf32",
	    [EMU_UMMA_I8] = "kind::i8"};

	if (u->form.kind != EMU_UMMA_MXF4NVF4)
		return plain[u->form.kind];
	if (u->form.scales == 2 && u->a_negated)
		return "kind::mxf4.block_scale";
	return u->form.scales == 4 ? "kind::mxf4nvf4.block_scale.scale_vec::4X"
				     ".collector::a::fill"
				   : "kind::mxf4nvf4.block_scale.block32";
}

static void run(struct test *t, uint64_t seed)
{
	struct emu_umma *u = &t->umma;
	const int ctas = u->form.ctas;
	struct input *in = calloc((size_t)ctas, sizeof(*in));
	struct output *out = calloc((size_t)ctas, sizeof(*out));
	static struct operand a, b;
	struct emu_job job = emu_tcgen05_job(ctas);
	uint32_t wide;

	assert_non_null(in);
	assert_non_null(out);
	job.in = in;
	job.in_bytes = (size_t)ctas * sizeof(*in);
	job.out = out;
	job.out_bytes = (size_t)ctas * sizeof(*out);
	job.seed = seed;
	u->k = u->form.kind == EMU_UMMA_MXF4NVF4
		   ? 64
		   : (int)(256 / (bits_of(u->a_type) > 8 ? bits_of(u->a_type) : 8));
	t->a_layout.is_transposed = u->a_transposed;
	t->b_layout.is_transposed = u->b_transposed;
	a = (struct operand){.type = u->a_type,
			     .layout = t->a_layout,
			     .rows = u->m,
			     .k = u->k,
			     .is_fp4 = u->form.kind == EMU_UMMA_MXF4NVF4};
	b = (struct operand){.type = u->b_type,
			     .layout = t->b_layout,
			     .rows = u->n,
			     .k = u->k,
			     .is_fp4 = a.is_fp4};
	fill(&a);
	fill(&b);
	for (int cta = 0; cta < ctas; cta++) {
		in[cta].a = descriptor_of(&t->a_layout, 0, &wide);
		in[cta].b = descriptor_of(&t->b_layout, IMAGE / 2, &wide);
		in[cta].idesc = idesc_of(u);
		in[cta].accumulates = t->accumulates;
		put(&a, cta * u->m / ctas, u->m / ctas, in[cta].image);
		put(&b, cta * u->n / ctas, u->n / ctas, in[cta].image + IMAGE / 2);
		if (u->form.scales)
			put_scales(u, cta, &in[cta]);
		if (u->form.a_in_tensor_memory)
			put_a_in_tmem(u, &a, cta, &in[cta]);
	}
	program(words_of(u), ctas, u->form.a_in_tensor_memory, u->form.scales > 0,
		t->keeps, t->shift);
	take(emu_umma_d_columns(u), ctas);
	emu_must_run(emu_text, &job);
	check(t, &a, &b, out);
	free(in);
	free(out);
}

/* ---- cases --------------------------------------------------------------- */

#define F16_FORM(ctas, a_in_tmem)                                                      \
	{                                                                              \
		EMU_UMMA_F16, ctas, 0, a_in_tmem                                       \
	}

static void test_f16_sizes(void **state)
{
	static const int sizes[][3] = {{1, 64, 8},    {1, 64, 72},   {1, 64, 256},
				       {1, 128, 16},  {1, 128, 240}, {2, 128, 32},
				       {2, 128, 208}, {2, 256, 16},  {2, 256, 256}};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int s = 0; s < 2; s++) {
			struct test t = {.umma = {.form = F16_FORM(sizes[i][0], false),
						  .m = sizes[i][1],
						  .n = sizes[i][2],
						  .a_type = EMU_UMMA_TYPE_F16,
						  .b_type = s ? EMU_UMMA_TYPE_BF16
							      : EMU_UMMA_TYPE_F16,
						  .d_is_f16 = !s},
					 .a_layout.swizzle = 128,
					 .b_layout.swizzle = 64,
					 .accumulates = i % 2};

			run(&t, (uint64_t)s * (i + 1));
		}
}

static void test_f16_layouts(void **state)
{
	static const uint32_t swizzles[] = {0, 32, 64, 128};

	for (int i = 0; i < 4 * 4 * 4; i++) {
		struct test t = {.umma = {.form = F16_FORM(1 + i % 3 / 2, false),
					  .m = i % 3 == 2 ? 256 : 128,
					  .n = 64,
					  .a_type = EMU_UMMA_TYPE_BF16,
					  .b_type = EMU_UMMA_TYPE_F16,
					  .a_transposed = i & 1,
					  .b_transposed = i & 2,
					  .a_negated = i & 4,
					  .b_negated = i % 5 == 0},
				 .a_layout.swizzle = swizzles[i / 4 % 4],
				 .b_layout.swizzle = swizzles[i / 16]};

		run(&t, (uint64_t)(i % 7));
	}
}

static void test_a_in_tensor_memory(void **state)
{
	static const int cases[][3] = {{1, 64, 32}, {1, 128, 48}, {2, 256, 64}};

	for (size_t i = 0; i < 3; i++) {
		struct test t = {.umma = {.form = F16_FORM(cases[i][0], true),
					  .m = cases[i][1],
					  .n = cases[i][2],
					  .a_type = EMU_UMMA_TYPE_F16,
					  .b_type = EMU_UMMA_TYPE_F16},
				 .b_layout.swizzle = 32,
				 .accumulates = true};

		run(&t, i);
		run(&t, 7 + i);
	}
}

static void test_mxf8f6f4(void **state)
{
	for (int i = 0; i < 25; i++) {
		const int a = i % 5, b = i / 5;
		struct test t = {
		    .umma = {.form = {EMU_UMMA_MXF8F6F4, 1 + i % 2, 1, false},
			     .m = 128 << i % 2,
			     .n = 16 + 16 * (i % 4),
			     .a_type = (enum emu_umma_type)(EMU_UMMA_TYPE_E4M3 + a),
			     .b_type = (enum emu_umma_type)(EMU_UMMA_TYPE_E4M3 + b),
			     .a_transposed = a < 2 && i % 3 == 0,
			     .b_transposed = b < 2 && i % 2,
			     .b_negated = i % 4 == 3,
			     .scale_is_ue8m0 = true,
			     .sfa_id = i % 4,
			     .sfb_id = i / 2 % 4},
		    .a_layout.swizzle = i % 2 ? 128 : 32,
		    .b_layout.swizzle = i % 3 ? 64 : 32,
		    .accumulates = i % 2};

		run(&t, (uint64_t)(i % 5));
	}
}

static void test_mxf4nvf4(void **state)
{
	for (int i = 0; i < 16; i++) {
		struct test t = {.umma = {.form = {EMU_UMMA_MXF4NVF4, 1 + i % 2,
						   i % 4 < 2 ? 4 : 2, false},
					  .m = 128 << i % 2,
					  .n = i % 2 ? 16 * (1 + i) : 8 * (1 + 2 * i),
					  .a_type = EMU_UMMA_TYPE_E2M1,
					  .b_type = EMU_UMMA_TYPE_E2M1,
					  .a_negated = i % 3 == 0,
					  .scale_is_ue8m0 = i % 4 >= 2 || i % 8 == 4},
				 .a_layout.swizzle = i % 8 < 4 ? 128 : 0,
				 .b_layout.swizzle = i % 3 ? 64 : 32,
				 .accumulates = i % 2};

		if (t.umma.form.scales == 2)
			t.umma.sfa_id = 2;
		run(&t, (uint64_t)(i % 5));
	}
}

/* In kinds without scales also M of 64, and pairs with 64 rows each. */
static void test_f8f6f4(void **state)
{
	for (int i = 0; i < 25; i++) {
		const int a = i % 5, b = i / 5;
		struct test t = {
		    .umma = {.form = {EMU_UMMA_F8F6F4, 1 + i % 2, 0,
				      i % 2 == 0 && a < 2},
			     .m = (64 << i % 2) << i / 2 % 2,
			     .n = 32 + 32 * (i % 3),
			     .a_type = (enum emu_umma_type)(EMU_UMMA_TYPE_E4M3 + a),
			     .b_type = (enum emu_umma_type)(EMU_UMMA_TYPE_E4M3 + b),
			     .b_transposed = b < 2 && i % 2,
			     .a_negated = i % 4 == 1,
			     .d_is_f16 = i % 3 == 1},
		    .a_layout.swizzle = i % 2 ? 128 : 32,
		    .b_layout.swizzle = i % 3 ? 64 : 32,
		    .accumulates = i % 2};

		run(&t, (uint64_t)(i % 5));
	}
}

static void test_tf32_and_i8(void **state)
{
	for (int i = 0; i < 32; i++) {
		const bool is_i8 = i % 2;
		const enum emu_umma_type of_i8[] = {EMU_UMMA_TYPE_U8, EMU_UMMA_TYPE_S8};
		const enum emu_umma_type a_type =
		    is_i8 ? of_i8[i / 8 % 2] : EMU_UMMA_TYPE_TF32;
		const enum emu_umma_type b_type =
		    is_i8 ? of_i8[i / 16] : EMU_UMMA_TYPE_TF32;
		struct test t = {
		    .umma = {.form = {is_i8 ? EMU_UMMA_I8 : EMU_UMMA_TF32,
				      1 + i / 2 % 2, 0, i % 7 == 3},
			     .m = (64 << i / 2 % 2) << (i / 4 % 2),
			     .n = 32 + 32 * (i % 5),
			     .a_type = a_type,
			     .b_type = b_type,
			     .a_transposed = is_i8 && i % 3 == 0 && i % 7 != 3,
			     .b_transposed = is_i8 && i % 5 == 0,
			     .b_negated = !is_i8 && i % 3 == 0,
			     .saturates = is_i8 && i % 3 == 1},
		    .a_layout.swizzle = i % 4 ? 128 : 0,
		    .b_layout.swizzle = i % 3 ? 64 : 32,
		    .accumulates = i / 2 % 2};

		if (t.umma.form.a_in_tensor_memory && t.umma.form.ctas == 2)
			t.umma.m = 256;
		run(&t, (uint64_t)(i % 5));
	}
}

static void test_kept_lanes_and_shifted_sums(void **state)
{
	for (int i = 0; i < 24; i++) {
		const bool is_tf32 = i % 3 == 1, is_f8 = i % 3 == 2;
		const enum emu_umma_type type = is_tf32 ? EMU_UMMA_TYPE_TF32
						: is_f8 ? EMU_UMMA_TYPE_E4M3
							: EMU_UMMA_TYPE_F16;
		struct test t = {.umma = {.form = {is_tf32 ? EMU_UMMA_TF32
						   : is_f8 ? EMU_UMMA_F8F6F4
							   : EMU_UMMA_F16,
						   1 + i % 2, 0, false},
					  .m = (64 << i % 2) << i / 2 % 2,
					  .n = 32 + 32 * (i % 2),
					  .a_type = type,
					  .b_type = type,
					  .d_is_f16 = !is_tf32 && i % 4 == 0},
				 .a_layout.swizzle = 128,
				 .b_layout.swizzle = 128,
				 .accumulates = true,
				 .keeps = i / 6 % 2,
				 .shift = is_f8 ? 0 : i % 5};

		run(&t, (uint64_t)(i % 5));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_f16_sizes),
	    cmocka_unit_test(test_f16_layouts),
	    cmocka_unit_test(test_a_in_tensor_memory),
	    cmocka_unit_test(test_mxf8f6f4),
	    cmocka_unit_test(test_mxf4nvf4),
	    cmocka_unit_test(test_f8f6f4),
	    cmocka_unit_test(test_tf32_and_i8),
	    cmocka_unit_test(test_kept_lanes_and_shifted_sums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
