/* SPDX-License-Identifier: Apache-2.0 */
/*
 * baseline_ggml.c - ggml's product of NVFP4 weights and A rounded to 8 bits, as
 * llama.cpp runs it: ggml_mul_mat() on its CPU backend.  Rounding A belongs to
 * the run, as it does in nibblas's W4A8.
 *
 * ggml rounds 32 values of A at a time with a scale of fp16.  Its weights are
 * those of the shape exactly: NVFP4 again, in blocks of 64.
 */
#include "baseline.h"

#ifdef NIB_HAVE_GGML
#include <dlfcn.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

#define IMPORTS(F)                                                                     \
	F(base, ggml_init)                                                             \
	F(base, ggml_free)                                                             \
	F(base, ggml_new_tensor_2d)                                                    \
	F(base, ggml_mul_mat)                                                          \
	F(base, ggml_new_graph)                                                        \
	F(base, ggml_build_forward_expand)                                             \
	F(base, ggml_row_size)                                                         \
	F(cpu, ggml_cpu_init)                                                          \
	F(cpu, ggml_graph_plan)                                                        \
	F(cpu, ggml_graph_compute)

#define F(library, name) static __typeof__(name) *p_##name;
IMPORTS(F)
#undef F

static int n_threads;

/* 64 values: a scale for each 16, and codes k and k + 8 in one byte. */
#define BLOCK_VALUES 64
struct block {
	uint8_t scales[4];
	uint8_t codes[4][8];
};

/* A product that can be computed again and again. */
struct packed {
	struct ggml_context *context;
	struct ggml_cgraph *graph;
	struct ggml_cplan plan;
	void *a, *b;
	size_t a_bytes, b_bytes;
};

static bool open_library(char reason[BASELINE_REASON])
{
	/* The second one needs the first. */
	static const char *const base_names[] = {
	    "libggml-base.so.0", NIB_GGML_LIBDIR "/libggml-base.so", NULL};
	static const char *const cpu_names[] = {
	    "libggml-cpu.so.0", NIB_GGML_LIBDIR "/libggml-cpu.so", NULL};
	void *base = baseline_dlopen(base_names, reason), *cpu = NULL;

	if (base)
		cpu = baseline_dlopen(cpu_names, reason);
	if (!cpu)
		return false;
#define F(library, name)                                                               \
	*(void **)&p_##name = dlsym(library, #name);                                   \
	if (!p_##name)                                                                 \
		return baseline_refuse(reason, "ggml has no " #name "()");
	IMPORTS(F)
#undef F
	p_ggml_cpu_init();
	return true;
}

static void set_threads(int threads)
{
	n_threads = threads;
}

/* x as the bits of an e4m3; false if it is none. */
static bool to_scale(float x, uint8_t *bits)
{
	const float units = x * 512.0f;
	int exponent;
	float fraction;

	if (!(x >= 0x1p-9f && x <= 448.0f))
		return false;
	fraction = 16 * frexpf(units, &exponent); /* 8 to 16 */
	*bits = exponent < 4 ? (uint8_t)units
			     : (uint8_t)((exponent - 3) << 3 | ((int)fraction & 7));
	return exponent < 4 ? units == (float)*bits : fraction == (float)(int)fraction;
}

/* The codes of 16 values of that scale; false if one has none. */
static bool to_codes(const float *x, float scale, uint8_t codes[8])
{
	static const uint8_t of_twice[13] = {0,	 1, 2,	3,  4,	99, 5,
					     99, 6, 99, 99, 99, 7};

	memset(codes, 0, 8);
	for (int i = 0; i < 16; i++) {
		const float twice = fabsf(x[i]) / scale * 2;
		const int n = twice <= 12 ? (int)twice : 5;

		if (twice != (float)n || of_twice[n] == 99)
			return false;
		codes[i % 8] |= (uint8_t)((of_twice[n] | (signbit(x[i]) ? 8 : 0))
					  << (i < 8 ? 0 : 4));
	}
	return true;
}

/* A scale that 16 values were made with, the largest that serves. */
static bool to_block(const float *x, uint8_t *scale, uint8_t codes[8])
{
	static const float sizes[] = {0.5f, 1, 1.5f, 2, 3, 4, 6};
	float amax = 0;

	for (int i = 0; i < 16; i++)
		amax = fmaxf(amax, fabsf(x[i]));
	*scale = 0;
	memset(codes, 0, 8);
	if (amax == 0)
		return true;
	for (int i = 0; i < 7; i++)
		if (to_scale(amax / sizes[i], scale) &&
		    to_codes(x, amax / sizes[i], codes))
			return true;
	return false;
}

static bool to_nvfp4(const float *x, int64_t values, struct block *out)
{
	for (int64_t i = 0; i < values; i += 16) {
		struct block *block = &out[i / BLOCK_VALUES];
		const int part = (int)(i % BLOCK_VALUES / 16);

		if (!to_block(x + i, &block->scales[part], block->codes[part]))
			return false;
	}
	return true;
}

static void unpack(void *packed)
{
	struct packed *p = packed;

	if (!p)
		return;
	if (p->context)
		p_ggml_free(p->context);
	machine_free(p->a, p->a_bytes);
	machine_free(p->b, p->b_bytes);
	free(p->plan.work_data);
	free(p);
}

static bool make_graph(struct packed *p, const struct baseline_matmul *mm)
{
	const struct ggml_init_params params = {.mem_size = 1 << 20, .no_alloc = true};
	struct ggml_tensor *a, *b, *c;

	p->context = p_ggml_init(params);
	if (!p->context)
		return false;
	b = p_ggml_new_tensor_2d(p->context, GGML_TYPE_NVFP4, mm->k, mm->n);
	a = p_ggml_new_tensor_2d(p->context, GGML_TYPE_F32, mm->k, mm->m);
	c = p_ggml_mul_mat(p->context, b, a);
	a->data = p->a;
	b->data = p->b;
	c->data = mm->c;
	p->graph = p_ggml_new_graph(p->context);
	p_ggml_build_forward_expand(p->graph, c);
	p->plan = p_ggml_graph_plan(p->graph, n_threads, NULL);
	p->plan.work_data = malloc(p->plan.work_size + 1);
	return p->plan.work_data != NULL;
}

static bool pack(struct baseline_matmul *mm, char reason[BASELINE_REASON])
{
	struct packed *p;

	if (mm->k % BLOCK_VALUES != 0)
		return baseline_refuse(reason, "k = %lld: ggml wants a multiple of %d",
				       (long long)mm->k, BLOCK_VALUES);
	if (sizeof(struct block) != p_ggml_row_size(GGML_TYPE_NVFP4, 64))
		return baseline_refuse(reason, "ggml has other NVFP4 blocks");
	p = calloc(1, sizeof *p);
	if (!p)
		return baseline_refuse(reason, "out of memory");
	p->a_bytes = (size_t)(mm->m * mm->k) * sizeof(float);
	p->b_bytes = (size_t)(mm->n * mm->k / BLOCK_VALUES) * sizeof(struct block);
	p->a = machine_alloc(p->a_bytes);
	p->b = machine_alloc(p->b_bytes);
	if (!p->a || !p->b || !make_graph(p, mm)) {
		unpack(p);
		return baseline_refuse(reason, "out of memory");
	}
	memcpy(p->a, mm->a, p->a_bytes);
	if (!to_nvfp4(mm->b, mm->n * mm->k, p->b)) {
		unpack(p);
		return baseline_refuse(reason, "weights are not NVFP4");
	}
	mm->packed = p;
	return true;
}

static void run(const struct baseline_matmul *mm)
{
	struct packed *p = mm->packed;

	p_ggml_graph_compute(p->graph, &p->plan);
}

#define FUNCTIONS                                                                      \
	.open = open_library, .set_threads = set_threads, .pack = pack, .run = run,    \
	.unpack = unpack
#endif

const struct baseline_engine baseline_ggml_nvfp4 = {.backend = "baseline:ggml-nvfp4",
						    .library = "ggml",
						    .package = "tools/get_ggml.sh",
						    .limit = PEAK_DOT8_AVX512,
						    .a_bytes = 4,
						    .b_bytes = 0.5625,
						    .tolerance = 0.02,
#ifdef FUNCTIONS
						    FUNCTIONS
#endif
};
