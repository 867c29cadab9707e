/* SPDX-License-Identifier: Apache-2.0 */
/*
 * baseline_onednn.c - oneDNN's matmul on dequantised operands, weights packed into
 * the layout that it requests: f32, f32 without AVX-512, and bf16.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "baseline.h"
#include "machine.h"
#include "text.h"

#ifdef NIB_HAVE_DNNL
#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_version.h>
#endif

#if defined(NIB_HAVE_DNNL) && DNNL_VERSION_MAJOR == 2

#define IMPORTS(F)                                                                     \
	F(engine_create)                                                               \
	F(stream_create)                                                               \
	F(stream_wait)                                                                 \
	F(set_max_cpu_isa)                                                             \
	F(memory_create)                                                               \
	F(memory_destroy)                                                              \
	F(memory_desc_get_size)                                                        \
	F(memory_desc_init_by_tag)                                                     \
	F(matmul_desc_init)                                                            \
	F(primitive_desc_create)                                                       \
	F(primitive_desc_query_md)                                                     \
	F(primitive_desc_destroy)                                                      \
	F(primitive_create)                                                            \
	F(primitive_execute)                                                           \
	F(primitive_destroy)                                                           \
	F(reorder_primitive_desc_create)                                               \
	F(sgemm)

#define F(name) static __typeof__(dnnl_##name) *name;
IMPORTS(F)
#undef F

/* The function of the OpenMP runtime that oneDNN is linked with. */
static void (*omp_set_num_threads)(int threads);

static dnnl_engine_t engine;
static dnnl_stream_t stream;

/* A oneDNN memory on huge pages, as the weights of nibblas are. */
struct operand {
	dnnl_memory_t memory;
	void *data;
	size_t bytes;
};

/* A matmul primitive with its operands in the layouts that it requests. */
struct packed {
	dnnl_primitive_t matmul;
	struct operand a, b;
	dnnl_memory_t c;
};

static bool load(char reason[BASELINE_REASON])
{
	static const char *const names[] = {"libdnnl.so.2", NULL};
	void *library = baseline_dlopen(names, reason);

	if (!library)
		return false;
#define F(name)                                                                        \
	*(void **)&name = dlsym(library, "dnnl_" #name);                               \
	if (!name)                                                                     \
		return baseline_refuse(reason, "%s has no dnnl_" #name, names[0]);
	IMPORTS(F)
#undef F
	*(void **)&omp_set_num_threads = dlsym(library, "omp_set_num_threads");
	if (!omp_set_num_threads)
		return baseline_refuse(reason, "%s has no OpenMP threads", names[0]);
	return true;
}

static bool open_best(char reason[BASELINE_REASON])
{
	if (!load(reason))
		return false;
	if (engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
	    stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success)
		return true;
	return baseline_refuse(reason, "oneDNN gives no CPU engine");
}

static bool open_avx2(char reason[BASELINE_REASON])
{
	if (!load(reason))
		return false;
	if (set_max_cpu_isa(dnnl_cpu_isa_avx2) != dnnl_success)
		return baseline_refuse(reason,
				       "this oneDNN cannot be restricted to AVX2");
	return open_best(reason);
}

/* oneDNN asks OpenMP how many threads there are, at each call. */
static void set_threads(int threads)
{
	omp_set_num_threads(threads);
}

static void free_operand(struct operand *operand)
{
	if (operand->memory)
		memory_destroy(operand->memory);
	machine_free(operand->data, operand->bytes);
}

static bool make_operand(struct operand *operand, const dnnl_memory_desc_t *md)
{
	operand->bytes = memory_desc_get_size(md);
	operand->data = machine_alloc(operand->bytes);
	return operand->data && memory_create(&operand->memory, md, engine,
					      operand->data) == dnnl_success;
}

/* Makes an operand of layout md from source of layout source_md. */
static bool reorder(struct operand *to, const dnnl_memory_desc_t *md,
		    const float *source, const dnnl_memory_desc_t *source_md)
{
	dnnl_primitive_desc_t desc = NULL;
	dnnl_primitive_t primitive = NULL;
	dnnl_memory_t from = NULL;
	bool done = false;

	if (make_operand(to, md) &&
	    memory_create(&from, source_md, engine, (void *)(uintptr_t)source) ==
		dnnl_success &&
	    reorder_primitive_desc_create(&desc, source_md, engine, md, engine, NULL) ==
		dnnl_success &&
	    primitive_create(&primitive, desc) == dnnl_success) {
		const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from},
						{DNNL_ARG_TO, to->memory}};

		done = primitive_execute(primitive, stream, 2, args) == dnnl_success &&
		       stream_wait(stream) == dnnl_success;
	}
	if (primitive)
		primitive_destroy(primitive);
	if (desc)
		primitive_desc_destroy(desc);
	if (from)
		memory_destroy(from);
	return done;
}

static void unpack(void *packed)
{
	struct packed *p = packed;

	if (!p)
		return;
	if (p->matmul)
		primitive_destroy(p->matmul);
	if (p->c)
		memory_destroy(p->c);
	free_operand(&p->a);
	free_operand(&p->b);
	free(p);
}

static void run(const struct baseline_matmul *mm)
{
	const struct packed *p = mm->packed;

	if (p) {
		const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, p->a.memory},
						{DNNL_ARG_WEIGHTS, p->b.memory},
						{DNNL_ARG_DST, p->c}};

		primitive_execute(p->matmul, stream, 3, args);
		stream_wait(stream);
	} else {
		sgemm('N', 'T', mm->m, mm->n, mm->k, 1.0f, mm->a, mm->k, mm->b, mm->k,
		      0.0f, mm->c, mm->n);
	}
}

/* The primitive, and the layout in which it wants the weights. */
static bool make_primitive(struct packed *p, const struct baseline_matmul *mm,
			   dnnl_data_type_t type, dnnl_memory_desc_t *a_md,
			   dnnl_memory_desc_t *b_md)
{
	const dnnl_dims_t a_dims = {mm->m, mm->k};
	const dnnl_dims_t b_dims = {mm->k, mm->n};
	const dnnl_dims_t c_dims = {mm->m, mm->n};
	dnnl_memory_desc_t any, c_md;
	dnnl_primitive_desc_t desc = NULL;
	dnnl_matmul_desc_t op;
	bool made = false;

	memory_desc_init_by_tag(a_md, 2, a_dims, type, dnnl_ab);
	memory_desc_init_by_tag(&any, 2, b_dims, type, dnnl_format_tag_any);
	memory_desc_init_by_tag(&c_md, 2, c_dims, dnnl_f32, dnnl_ab);
	if (matmul_desc_init(&op, a_md, &any, NULL, &c_md) == dnnl_success &&
	    primitive_desc_create(&desc, &op, NULL, engine, NULL) == dnnl_success) {
		*b_md = *primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
		made = primitive_create(&p->matmul, desc) == dnnl_success &&
		       memory_create(&p->c, &c_md, engine, mm->c) == dnnl_success;
	}
	if (desc)
		primitive_desc_destroy(desc);
	return made;
}

static bool pack(struct baseline_matmul *mm, dnnl_data_type_t type,
		 char reason[BASELINE_REASON])
{
	const dnnl_dims_t a_dims = {mm->m, mm->k};
	const dnnl_dims_t b_dims = {mm->k, mm->n};
	dnnl_memory_desc_t a_f32, b_f32, a_md, b_md;
	struct packed *p = calloc(1, sizeof *p);

	if (!p || !make_primitive(p, mm, type, &a_md, &b_md)) {
		unpack(p);
		return baseline_refuse(reason,
				       "oneDNN has no %s matmul for this machine",
				       type == dnnl_bf16 ? "bf16" : "f32");
	}
	memory_desc_init_by_tag(&a_f32, 2, a_dims, dnnl_f32, dnnl_ab);
	memory_desc_init_by_tag(&b_f32, 2, b_dims, dnnl_f32, dnnl_ba);
	if (!reorder(&p->a, &a_md, mm->a, &a_f32) ||
	    !reorder(&p->b, &b_md, mm->b, &b_f32)) {
		unpack(p);
		return baseline_refuse(reason, "oneDNN cannot make the operands");
	}
	mm->packed = p;
	return true;
}

static bool pack_bf16(struct baseline_matmul *mm, char reason[BASELINE_REASON])
{
	return pack(mm, dnnl_bf16, reason);
}

static double time_second_run(const struct baseline_matmul *mm)
{
	double begin;

	run(mm);
	begin = cli_now_s();
	run(mm);
	return cli_now_s() - begin;
}

/*
 * f32 goes through the faster of oneDNN's two interfaces, as timed once for
 * these sizes: the matmul primitive with packed weights, or dnnl_sgemm() with
 * the weights as they are.  (Without AVX-512 the primitive of 2.6 is half as
 * fast as dnnl_sgemm().)
 */
static bool pack_f32(struct baseline_matmul *mm, char reason[BASELINE_REASON])
{
	static struct baseline_matmul timed; /* the sizes of the last timing */
	static bool sgemm_wins;
	struct baseline_matmul plain = *mm;
	bool is_known = timed.m == mm->m && timed.n == mm->n && timed.k == mm->k;

	if (is_known && sgemm_wins)
		return true;
	if (!pack(mm, dnnl_f32, reason))
		return false;
	if (!is_known) {
		timed = plain;
		sgemm_wins = time_second_run(&plain) < time_second_run(mm);
	}
	if (sgemm_wins) {
		unpack(mm->packed);
		mm->packed = NULL;
	}
	return true;
}

#define FUNCTIONS(open_function, pack_function)                                        \
	.open = open_function, .set_threads = set_threads, .pack = pack_function,      \
	.run = run, .unpack = unpack,

#else
#define FUNCTIONS(open_function, pack_function)
#endif

#define ENGINE(name, peak, bytes, open_function, pack_function)                        \
	{                                                                              \
		.backend = "baseline:onednn-" name, .library = "oneDNN 2",             \
		.package = "Debian: libdnnl-dev", .limit = peak, .a_bytes = bytes,     \
		.b_bytes = bytes, .tolerance = 1e-4,                                   \
		FUNCTIONS(open_function, pack_function)                                \
	}

const struct baseline_engine baseline_onednn_bf16 =
    ENGINE("bf16", PEAK_DOT_BF16, 2, open_best, pack_bf16);
const struct baseline_engine baseline_onednn_f32 =
    ENGINE("f32", PEAK_FMA, 4, open_best, pack_f32);
const struct baseline_engine baseline_onednn_f32_avx2 =
    ENGINE("f32-avx2", PEAK_FMA_AVX2, 4, open_avx2, pack_f32);
