/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_plugin.c PLUGIN CPU - the ggml plug-in, loaded as programs load it, against
 * sums in fp64 of what ggml itself reads of the same blocks: all codes and scales,
 * odd sizes, stacks, ids in any order; that weights read back as they were written,
 * in pieces too; that results have the same bits for any number of threads, in a
 * second stream, and after fork(); that the error is not above that of CPU, ggml's
 * own backend.  Prints `N passed, N failed`.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

#define BLOCK	    64
#define BLOCK_BYTES 36
/*
 * An activation is rounded to a multiple of at most 9/8 of 1/127 of the largest of
 * its 16, so by half of that at most (nibblas.h, NIB_ACTIVATIONS_INT8).
 */
#define ROUNDING (0.5 * 1.125 / 127)
/* Sums in fp32: far above k * 2^-24 for all k here. */
#define SUMMING 1e-4

static int passed, failed;
static uint64_t state = 1;

static uint32_t rnd(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33);
}

static void tell(bool ok, const char *name)
{
	passed += ok;
	failed += !ok;
	if (!ok)
		printf("FAIL %s\n", name);
}

/* Tensors of one product, in a stream's buffer. */
struct product {
	struct ggml_context *context;
	struct ggml_cgraph *graph;
	struct ggml_tensor *w, *x, *ids, *y;
	ggml_backend_buffer_t buffer;
	uint8_t *blocks; /* as they were written */
	float *values;	 /* of the blocks, as ggml reads them */
	float *activations;
	int32_t *chosen; /* of the ids */
};

/* All codes; scales from a few binades, so that no sum is one of its terms. */
static void fill_weights(struct product *p)
{
	const size_t bytes = ggml_nbytes(p->w);
	const int64_t count = ggml_nelements(p->w);

	p->blocks = malloc(bytes);
	p->values = malloc((size_t)count * sizeof(float));
	for (size_t i = 0; i < bytes; i++)
		p->blocks[i] = (uint8_t)(i % BLOCK_BYTES >= 4 ? rnd()
					 : i % 7	      ? 40 + rnd() % 40
							      : rnd() % 0x7F);
	ggml_backend_tensor_set(p->w, p->blocks, 0, bytes);
	ggml_get_type_traits(GGML_TYPE_NVFP4)->to_float(p->blocks, p->values, count);
}

static void fill_activations(struct product *p, int experts)
{
	const int64_t count = ggml_nelements(p->x);

	p->activations = malloc((size_t)count * sizeof(float));
	for (int64_t i = 0; i < count; i++)
		p->activations[i] =
		    (float)((int)(rnd() % 2001) - 1000) * (i % 97 ? 1e-3f : 1.0f);
	ggml_backend_tensor_set(p->x, p->activations, 0, ggml_nbytes(p->x));
	if (!p->ids)
		return;
	p->chosen = malloc(ggml_nbytes(p->ids));
	for (int64_t i = 0; i < ggml_nelements(p->ids); i++)
		p->chosen[i] = (int32_t)(rnd() % (uint32_t)experts);
	ggml_backend_tensor_set(p->ids, p->chosen, 0, ggml_nbytes(p->ids));
}

/* ne: k, n, matrices, of w; rows m and matrices of x.  used: 0, or of the experts
 * by a token, of which there are m; each has rows of its own, or one for all. */
static struct product product_new(ggml_backend_t backend, const int64_t *ne, int64_t m,
				  int64_t matrices, int64_t used, bool own)
{
	const struct ggml_init_params params = {.mem_size = ggml_tensor_overhead() * 8 +
							    ggml_graph_overhead(),
						.no_alloc = true};
	struct product p = {.context = ggml_init(params)};

	p.w = ggml_new_tensor_3d(p.context, GGML_TYPE_NVFP4, ne[0], ne[1], ne[2]);
	if (used) {
		p.x = ggml_new_tensor_3d(p.context, GGML_TYPE_F32, ne[0],
					 own ? used : 1, m);
		p.ids = ggml_new_tensor_2d(p.context, GGML_TYPE_I32, used, m);
		p.y = ggml_mul_mat_id(p.context, p.w, p.x, p.ids);
	} else {
		p.x = ggml_new_tensor_3d(p.context, GGML_TYPE_F32, ne[0], m, matrices);
		p.y = ggml_mul_mat(p.context, p.w, p.x);
	}
	p.graph = ggml_new_graph(p.context);
	ggml_build_forward_expand(p.graph, p.y);
	p.buffer = ggml_backend_alloc_ctx_tensors(p.context, backend);
	fill_weights(&p);
	fill_activations(&p, (int)ne[2]);
	return p;
}

static void product_free(struct product *p)
{
	free(p->blocks);
	free(p->values);
	free(p->activations);
	free(p->chosen);
	ggml_backend_buffer_free(p->buffer);
	ggml_free(p->context);
}

/* The result, poisoned before; NULL if the backend refused. */
static float *run(struct product *p, ggml_backend_t backend)
{
	const size_t bytes = ggml_nbytes(p->y);
	float *y = malloc(bytes);

	ggml_backend_tensor_memset(p->y, 0xFF, 0, bytes);
	if (ggml_backend_graph_compute(backend, p->graph)) {
		free(y);
		return NULL;
	}
	ggml_backend_tensor_get(p->y, y, 0, bytes);
	return y;
}

/* Row of w's values times a row of x, and the bound of a computed one. */
static bool is_right(float got, const float *w, const float *x, int64_t k)
{
	double sum = 0, bound = 0;

	for (int64_t b = 0; b < k; b += 16) {
		double largest = 0;

		for (int64_t i = b; i < b + 16; i++)
			largest = fmax(largest, fabs((double)x[i]));
		for (int64_t i = b; i < b + 16; i++) {
			sum += (double)w[i] * x[i];
			bound += fabs((double)w[i]) *
				 (ROUNDING * largest + SUMMING * fabs((double)x[i]));
		}
	}
	return fabs(got - sum) <= bound;
}

/* Element i of y: which rows of w and x it is of. */
static bool element_is_right(const struct product *p, const float *y, int64_t i)
{
	const int64_t n = p->y->ne[0], m = p->y->ne[1], k = p->w->ne[0];
	const int64_t row = i / n % m, third = i / n / m;
	int64_t matrix, from;

	if (p->ids) {
		matrix = p->chosen[third * m + row];
		from = third * p->x->ne[1] + row % p->x->ne[1];
	} else {
		matrix = third / (p->x->ne[2] / p->w->ne[2]);
		from = third * m + row;
	}
	return is_right(y[i], p->values + (matrix * n + i % n) * k,
			p->activations + from * k, k);
}

static bool reads_back(const struct product *p)
{
	const size_t bytes = ggml_nbytes(p->w);
	uint8_t *got = malloc(bytes);
	bool ok = true;

	/* In pieces of 1 to 100 bytes. */
	for (size_t at = 0, size; at < bytes; at += size) {
		size = 1 + rnd() % 100;
		if (size > bytes - at)
			size = bytes - at;
		ggml_backend_tensor_get(p->w, got + at, at, size);
		ggml_backend_tensor_set(p->w, got + at, at, size);
	}
	ok = memcmp(got, p->blocks, bytes) == 0;
	ggml_backend_tensor_get(p->w, got, 0, bytes);
	ok = ok && memcmp(got, p->blocks, bytes) == 0;
	free(got);
	return ok;
}

static void check(ggml_backend_t backend, ggml_backend_t other, const int64_t *ne,
		  int64_t m, int64_t matrices, int64_t used, bool own)
{
	struct product p = product_new(backend, ne, m, matrices, used, own);
	const size_t bytes = ggml_nbytes(p.y);
	float *y, *again;
	char name[120];
	bool ok;

	snprintf(name, sizeof(name),
		 "k %lld n %lld matrices %lld, m %lld x %lld, %lld used%s",
		 (long long)ne[0], (long long)ne[1], (long long)ne[2], (long long)m,
		 (long long)matrices, (long long)used,
		 own ? ", rows of their own" : "");
	ok = ggml_backend_supports_op(backend, p.y) && reads_back(&p);
	y = run(&p, backend);
	again = run(&p, other);
	ok = ok && y && again && memcmp(y, again, bytes) == 0;
	for (int64_t i = 0; ok && i < ggml_nelements(p.y); i++)
		ok = element_is_right(&p, y, i);
	tell(ok, name);
	free(y);
	free(again);
	product_free(&p);
}

static void check_all(ggml_backend_t backend, ggml_backend_t other)
{
	static const int64_t k[] = {64, 128, 576, 2048};
	static const int64_t n[] = {1, 17, 64, 131};
	static const int64_t used[] = {1, 2, 8};

	for (int i = 0; i < 66; i++) {
		const int64_t ne[] = {k[i % 4], n[i / 4 % 4], 1 + i % 3};

		check(backend, other, ne, 1 + i / 2, ne[2] * (1 + i % 2), 0, false);
	}
	for (int i = 0; i < 36; i++) {
		const int64_t ne[] = {k[i % 4], n[i / 4 % 4], 1 + i * 5 % 19};

		check(backend, other, ne, 1 + i, 1, used[i % 3], i / 3 % 2);
	}
}

/* What is not ours goes to other backends. */
static void check_refusals(ggml_backend_t backend)
{
	const struct ggml_init_params params = {.mem_size = ggml_tensor_overhead() * 32,
						.no_alloc = true};
	struct ggml_context *c = ggml_init(params);
	struct ggml_tensor *w = ggml_new_tensor_2d(c, GGML_TYPE_NVFP4, 128, 32);
	struct ggml_tensor *f32 = ggml_new_tensor_2d(c, GGML_TYPE_F32, 128, 5);
	struct ggml_tensor *f16 = ggml_new_tensor_2d(c, GGML_TYPE_F16, 128, 5);
	struct ggml_tensor *q4 = ggml_new_tensor_2d(c, GGML_TYPE_Q4_0, 128, 32);
	struct ggml_tensor *ids = ggml_new_tensor_1d(c, GGML_TYPE_I32, 3);

	tell(ggml_backend_supports_op(backend, ggml_mul_mat(c, w, f32)),
	     "NVFP4 by fp32 is taken");
	tell(!ggml_backend_supports_op(backend, ggml_mul_mat(c, w, f16)),
	     "activations of fp16 are refused");
	tell(!ggml_backend_supports_op(backend, ggml_mul_mat(c, q4, f32)),
	     "other weights are refused");
	tell(!ggml_backend_supports_op(
		 backend, ggml_mul_mat(c, ggml_view_2d(c, w, 64, 32, w->nb[1], 0),
				       ggml_new_tensor_2d(c, GGML_TYPE_F32, 64, 5))),
	     "views of weights are refused");
	tell(!ggml_backend_supports_op(backend, ggml_get_rows(c, w, ids)),
	     "rows of weights are refused");
	tell(!ggml_backend_supports_op(backend, ggml_add(c, f32, f32)),
	     "sums are refused");
	ggml_free(c);
}

/* An id that is no expert's fails the graph, and nothing else. */
static void check_bad_id(ggml_backend_t backend)
{
	const int64_t ne[] = {64, 16, 4};
	struct product p = product_new(backend, ne, 3, 1, 2, false);
	const int32_t bad[] = {-1, 4, INT32_MAX};
	float *y;

	for (int i = 0; i < 3; i++) {
		ggml_backend_tensor_set(p.ids, &bad[i], 8, 4);
		y = run(&p, backend);
		tell(!y, "an id outside of the experts is refused");
		free(y);
	}
	ggml_backend_tensor_set(p.ids, p.chosen, 0, ggml_nbytes(p.ids));
	y = run(&p, backend);
	tell(y && element_is_right(&p, y, 0), "and the next graph runs");
	free(y);
	product_free(&p);
}

/* A child that forked after products of the parent computes the same bits. */
static void check_fork(ggml_backend_t backend)
{
	const int64_t ne[] = {576, 131, 1};
	struct product p = product_new(backend, ne, 9, 1, 0, false);
	float *y = run(&p, backend), *again;
	int code = 1;
	pid_t child = fork();

	if (child == 0) {
		again = run(&p, backend);
		_exit(!again || memcmp(y, again, ggml_nbytes(p.y)) != 0);
	}
	waitpid(child, &code, 0);
	tell(code == 0, "the same bits after fork()");
	free(y);
	product_free(&p);
}

/* About normal, as activations are: of 12 uniform numbers. */
static void fill_normal(struct product *p)
{
	for (int64_t i = 0; i < ggml_nelements(p->x); i++) {
		int sum = 0;

		for (int j = 0; j < 12; j++)
			sum += (int)(rnd() % 2001) - 1000;
		p->activations[i] = (float)sum * 5e-4f;
	}
	ggml_backend_tensor_set(p->x, p->activations, 0, ggml_nbytes(p->x));
}

/* The root of the mean square of the error over that of the result, of a product
 * that is the same for each backend. */
static double rms_error(ggml_backend_t backend)
{
	const int64_t ne[] = {4096, 200, 1}, m = 16;
	double errors = 0, squares = 0;
	struct product p;
	float *y;

	state = 7;
	p = product_new(backend, ne, m, 1, 0, false);
	fill_normal(&p);
	y = run(&p, backend);
	for (int64_t i = 0; y && i < ggml_nelements(p.y); i++) {
		double sum = 0;

		for (int64_t j = 0; j < ne[0]; j++)
			sum += (double)p.values[i % ne[1] * ne[0] + j] *
			       p.activations[i / ne[1] * ne[0] + j];
		errors += (y[i] - sum) * (y[i] - sum);
		squares += sum * sum;
	}
	product_free(&p);
	free(y);
	return squares > 0 ? sqrt(errors / squares) : INFINITY;
}

/* The data are the same on every machine, and sums differ in the last bits. */
static void check_error(ggml_backend_t backend, ggml_backend_reg_t cpu)
{
	ggml_backend_t other =
	    ggml_backend_dev_init(ggml_backend_reg_dev_get(cpu, 0), NULL);
	const double ours = rms_error(backend), theirs = rms_error(other);

	printf("error of normal activations, rms: nibblas %.5f, ggml's CPU %.5f\n",
	       ours, theirs);
	tell(ours <= theirs, "an error that is not above ggml's own");
	ggml_backend_free(other);
}

int main(int argc, char **argv)
{
	ggml_backend_set_n_threads_t set_threads;
	ggml_backend_t backend, other;
	ggml_backend_reg_t reg, cpu;

	reg = argc > 2 ? ggml_backend_load(argv[1]) : NULL;
	cpu = argc > 2 ? ggml_backend_load(argv[2]) : NULL;
	if (!reg || !cpu) {
		fprintf(stderr, "test_plugin PLUGIN CPU: cannot load them\n");
		return 2;
	}
	backend = ggml_backend_dev_init(ggml_backend_reg_dev_get(reg, 0), NULL);
	other = ggml_backend_dev_init(ggml_backend_reg_dev_get(reg, 0), NULL);
	set_threads = (ggml_backend_set_n_threads_t)ggml_backend_reg_get_proc_address(
	    reg, "ggml_backend_set_n_threads");
	set_threads(backend, 2);
	set_threads(other, 1);
	check_all(backend, other);
	check_refusals(backend);
	check_bad_id(backend);
	check_fork(backend);
	check_error(backend, cpu);
	ggml_backend_free(backend);
	ggml_backend_free(other);
	ggml_backend_unload(reg);
	printf("%d passed, %d failed\n", passed, failed);
	return failed != 0;
}
