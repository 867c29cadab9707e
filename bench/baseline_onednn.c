/* SPDX-License-Identifier: Apache-2.0 */
/*
 * baseline_onednn.c - oneDNN 3's matmul on dequantised operands, weights packed into
 * the layout that it requests: f32, f32 without AVX-512, and bf16.  On processors with
 * AMX bf16 is multiplied by tdpbf16ps.
 *
 * The library is the file that NIB_ONEDNN names, else what tools/get_onednn.sh
 * installed, else the system's.  It must have OpenMP threads.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "baseline.h"
#include "machine.h"
#include "text.h"

#ifdef NIB_HAVE_DNNL
#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_version.h>
#endif

#if defined(NIB_HAVE_DNNL) && DNNL_VERSION_MAJOR == 3

#define IMPORTS(F)                                                                     \
	F(engine_create)                                                               \
	F(stream_create)                                                               \
	F(stream_wait)                                                                 \
	F(set_max_cpu_isa)                                                             \
	F(version)                                                                     \
	F(memory_create)                                                               \
	F(memory_destroy)                                                              \
	F(memory_desc_create_with_tag)                                                 \
	F(memory_desc_destroy)                                                         \
	F(memory_desc_get_size)                                                        \
	F(matmul_primitive_desc_create)                                                \
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
	const char *const named[] = {getenv("NIB_ONEDNN"), NULL};
	static const char *const usual[] = {NIB_ONEDNN_LIBDIR "/libdnnl.so.3",
					    "libdnnl.so.3", NULL};
	const char *const *names = named[0] ? named : usual;
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
	if (version()->major != DNNL_VERSION_MAJOR)
		return baseline_refuse(reason, "%s is oneDNN %d, not %d", names[0],
				       version()->major, DNNL_VERSION_MAJOR);
	return true;
}

static void describe(char text[BASELINE_VERSION])
{
	const dnnl_version_t *v = version();

	snprintf(text, BASELINE_VERSION, "oneDNN %d.%d.%d", v->major, v->minor,
		 v->patch);
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

static bool make_operand(struct operand *operand, const_dnnl_memory_desc_t md)
{
	operand->bytes = memory_desc_get_size(md);
	operand->data = machine_alloc(operand->bytes);
	return operand->data && memory_create(&operand->memory, md, engine,
					      operand->data) == dnnl_success;
}

/* Makes an operand of layout md from source of layout source_md. */
static bool reorder(struct operand *to, const_dnnl_memory_desc_t md,
		    const float *source, const_dnnl_memory_desc_t source_md)
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

/* A dense matrix in memory, row-major (dnnl_ab) or not; NULL without memory. */
static dnnl_memory_desc_t matrix(int64_t rows, int64_t cols, dnnl_data_type_t type,
				 dnnl_format_tag_t tag)
{
	const dnnl_dims_t dims = {rows, cols};
	dnnl_memory_desc_t md = NULL;

	memory_desc_create_with_tag(&md, 2, dims, type, tag);
	return md;
}

/* The primitive and its result; its operands are then made by fill(). */
static bool make_primitive(struct packed *p, const struct baseline_matmul *mm,
			   dnnl_data_type_t type, dnnl_primitive_desc_t *desc)
{
	dnnl_memory_desc_t a = matrix(mm->m, mm->k, type, dnnl_ab);
	dnnl_memory_desc_t b = matrix(mm->k, mm->n, type, dnnl_format_tag_any);
	dnnl_memory_desc_t c = matrix(mm->m, mm->n, dnnl_f32, dnnl_ab);
	const bool made = a && b && c &&
			  matmul_primitive_desc_create(desc, engine, a, b, NULL, c,
						       NULL) == dnnl_success &&
			  primitive_create(&p->matmul, *desc) == dnnl_success &&
			  memory_create(&p->c, c, engine, mm->c) == dnnl_success;

	memory_desc_destroy(a);
	memory_desc_destroy(b);
	memory_desc_destroy(c);
	return made;
}

/* The operands in the type and the layouts that the primitive requests. */
static bool fill(struct packed *p, const struct baseline_matmul *mm,
		 const_dnnl_primitive_desc_t desc)
{
	dnnl_memory_desc_t a = matrix(mm->m, mm->k, dnnl_f32, dnnl_ab);
	dnnl_memory_desc_t b = matrix(mm->k, mm->n, dnnl_f32, dnnl_ba);
	const bool filled =
	    a && b &&
	    reorder(&p->a, primitive_desc_query_md(desc, dnnl_query_src_md, 0), mm->a,
		    a) &&
	    reorder(&p->b, primitive_desc_query_md(desc, dnnl_query_weights_md, 0),
		    mm->b, b);

	memory_desc_destroy(a);
	memory_desc_destroy(b);
	return filled;
}

static bool pack(struct baseline_matmul *mm, dnnl_data_type_t type,
		 char reason[BASELINE_REASON])
{
	struct packed *p = calloc(1, sizeof *p);
	dnnl_primitive_desc_t desc = NULL;
	bool done = false;

	if (!p || !make_primitive(p, mm, type, &desc))
		baseline_refuse(reason, "oneDNN has no %s matmul for this machine",
				type == dnnl_bf16 ? "bf16" : "f32");
	else if (!fill(p, mm, desc))
		baseline_refuse(reason, "oneDNN cannot make the operands");
	else
		done = true;
	if (desc)
		primitive_desc_destroy(desc);
	if (done)
		mm->packed = p;
	else
		unpack(p);
	return done;
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
 * the weights as they are.  (Without AVX-512 the primitive of oneDNN 2.6
 * was half as fast as dnnl_sgemm().)
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
	.open = open_function, .version = describe, .set_threads = set_threads,        \
	.pack = pack_function, .run = run, .unpack = unpack,

#else
#define FUNCTIONS(open_function, pack_function)
#endif

#define ENGINE(name, peak, bytes, open_function, pack_function)                        \
	{                                                                              \
		.backend = "baseline:onednn-" name, .library = "oneDNN 3",             \
		.package = "tools/get_onednn.sh", .limit = peak, .a_bytes = bytes,     \
		.b_bytes = bytes, .tolerance = 1e-4,                                   \
		FUNCTIONS(open_function, pack_function)                                \
	}

const struct baseline_engine baseline_onednn_bf16 =
    ENGINE("bf16", PEAK_DOT_BF16, 2, open_best, pack_bf16);
const struct baseline_engine baseline_onednn_f32 =
    ENGINE("f32", PEAK_FMA, 4, open_best, pack_f32);
const struct baseline_engine baseline_onednn_f32_avx2 =
    ENGINE("f32-avx2", PEAK_FMA_AVX2, 4, open_avx2, pack_f32);
