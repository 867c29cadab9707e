/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_check_recorded.c - runs every kernel at the edges of its sizes, and compares a
 * hash of its output bits with the results of an H200.  results_h200.txt has a line for
 * each case: the hash, the name with the seed, and the plan.  On a B200 the results of
 * the software B200 are used: results_b200.txt.
 *
 *	gpu_check_recorded			compares (NIB_TEST_SIZE=small:
 *						a part)
 *	gpu_check_recorded --record FILE	writes FILE anew
 *
 * A change of a kernel's order of sums, or of the planner's choices, changes bits; then
 * record again.  The costs are the built-in ones.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_job.h"

#define SKIPPED	  77
#define LINE	  700
#define MAX_LINES 2000

static FILE *recording; /* being written; NULL: compared */
static char (*lines)[LINE];
static int n_lines;

/* ---- lines --------------------------------------------------------------- */

static uint64_t hash_of(const void *data, size_t bytes)
{
	const uint8_t *at = data;
	uint64_t hash = UINT64_C(0xCBF29CE484222325);

	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ at[i]) * UINT64_C(0x100000001B3);
	return hash;
}

/* "HASH NAME: CHOICE": where the choice begins; NULL: another name. */
static const char *choice_of(const char *line, const char *name)
{
	const size_t length = strlen(name);

	if (strlen(line) < 17 + length || strncmp(line + 17, name, length) != 0 ||
	    strncmp(line + 17 + length, ": ", 2) != 0)
		return NULL;
	return line + 17 + length + 2;
}

static void compare(const char *name, const char *choice, uint64_t hash)
{
	char why[LINE];
	int i = 0;

	while (i < n_lines && !choice_of(lines[i], name))
		i++;
	if (i == n_lines)
		snprintf(why, sizeof(why), "not in the recording");
	else
		snprintf(why, sizeof(why), "%016" PRIx64 " (%s), recorded: %.16s (%s)",
			 hash, choice, lines[i], choice_of(lines[i], name));
	if (i < n_lines && strtoull(lines[i], NULL, 16) != hash &&
	    strstr(name, " dual ") && gpu_in_software()) {
		/* Rounded to 16 bits, it is seldom seen. */
		printf("skipped: %s: SiLU's ex2.approx is a GPU's own, here "
		       "it is rounded to nearest\n",
		       name);
		return;
	}
	gpu_verdict(i < n_lines && strtoull(lines[i], NULL, 16) == hash, name, why);
}

static void tell(const char *name, const char *choice, const void *data, size_t bytes)
{
	const uint64_t hash = hash_of(data, bytes);

	if (recording)
		fprintf(recording, "%016" PRIx64 " %s: %s\n", hash, name, choice);
	else
		compare(name, choice, hash);
}

static bool read_lines(const char *path)
{
	FILE *file = fopen(path, "r");

	if (!file) {
		printf("skipped: %s does not exist: no GPU was recorded yet\n", path);
		return false;
	}
	lines = gpu_take(sizeof(*lines) * MAX_LINES);
	while (n_lines < MAX_LINES && fgets(lines[n_lines], LINE, file)) {
		lines[n_lines][strcspn(lines[n_lines], "\n")] = '\0';
		n_lines += lines[n_lines][0] != '#';
	}
	fclose(file);
	return true;
}

/* ---- products ------------------------------------------------------------ */

/* The memory after the run, gaps included. */
static void run_item(const struct gpu_item *x, const char *name)
{
	struct gpu_memory m = gpu_memory_new(x);
	const struct nib_problem p = gpu_problem(x, &m, gpu_device_of);
	struct nib_plan_info info = {.struct_bytes = sizeof(info)};
	struct nib_plan *plan;
	bool ok;

	gpu_must(
	    nib_plan_create(gpu_test.gpu, x->op, &p, 1, NULL, &plan, &gpu_test.err),
	    name);
	gpu_must(nib_plan_get_info(plan, &info, &gpu_test.err), name);
	gpu_must(nib_run(plan, &p, 1, NULL, &gpu_test.err), name);
	gpu_must(nib_device_wait(gpu_test.gpu, NULL, &gpu_test.err), name);
	ok = gpu_download(&m.c, gpu_host_of(&m.c));
	if (ok)
		tell(name, info.explanation, gpu_host_of(&m.c), m.c.bytes);
	else
		gpu_verdict(false, name, "a guard band has changed");
	nib_plan_free(plan);
	gpu_memory_free(&m);
}

static void ask_product(enum nib_op op, int64_t m, int64_t n, int64_t k, int64_t batch,
			uint64_t seed)
{
	struct gpu_item x;
	char name[300], what[40];

	gpu_seed(seed);
	x = gpu_any_item(op, m, n, k, batch, batch);
	snprintf(what, sizeof(what), "seed %" PRIu64, seed);
	gpu_name_item(&x, what, name, sizeof(name));
	run_item(&x, name);
}

static const int64_t edges_m[] = {0,  1,  7,   8,   9,	 15,  16,  17,	63,
				  64, 65, 127, 128, 129, 255, 256, 257, 511};
static const int64_t edges_n[] = {64, 250, 129, 1, 128, 63, 300, 127, 65};
static const int64_t edges_k[] = {16, 7168, 48, 272, 240};

#define COUNT(x) ((int)(sizeof(x) / sizeof(*(x))))

/* All pairs of m and k; of a small run one k for each m, the long one rarely.
 */
static void ask_products(enum nib_op op)
{
	for (int i = 0; i < COUNT(edges_m); i++)
		for (int j = 0; j < COUNT(edges_k); j++) {
			const int64_t m = edges_m[i], k = edges_k[j];
			const int64_t n = edges_n[(i + 2 * j) % COUNT(edges_n)];
			const bool is_long = k == 7168 && m > 64;

			if (gpu_is_small() && (j != i % COUNT(edges_k) || is_long))
				continue;
			ask_product(op, m, n, k, 1, (uint64_t)(100 * i + j));
		}
	for (int i = 0; i < gpu_cases(20); i++)
		ask_product(op, edges_m[1 + i * 5 % 12], edges_n[i % 9],
			    edges_k[i * 2 % 5 == 1 ? 0 : i * 2 % 5], 2 + i % 3,
			    (uint64_t)(3000 + i));
}

/* Few rows have kernels of their own, and others where rows are not aligned. */
static void ask_few_rows(void)
{
	for (int64_t m = 1; m <= 8; m++)
		for (int i = 0; i < gpu_cases(20); i++)
			ask_product(m == 1 ? NIB_OP_GEMV : NIB_OP_GEMM, m,
				    edges_n[i % 9], i % 5 ? edges_k[i % 5] : 1024,
				    1 + i % 2, (uint64_t)(4000 + 100 * m + i));
}

/* ---- the other kinds ----------------------------------------------------- */

static void ask_job(enum gpu_kind kind, uint64_t seed)
{
	struct gpu_job *job;
	uint8_t *results;
	const char *why;
	char name[80];

	gpu_seed(seed);
	job = gpu_job_new(kind);
	results = gpu_take(job->bytes);
	snprintf(name, sizeof(name), "seed %" PRIu64 " %s", seed, gpu_kind_name(kind));
	why = gpu_job_result(job, NULL, results, &gpu_test.err);
	if (why)
		gpu_verdict(false, name, why);
	else
		tell(name, job->explanation, results, job->bytes);
	free(results);
	gpu_job_free(job);
}

/* The types and scales' layouts of quantise are any: several seeds.  Not in a
 * small run, whose jobs are others. */
static void ask_jobs(void)
{
	for (int kind = 0; kind < GPU_KINDS && !gpu_is_small(); kind++)
		for (uint64_t seed = 0; seed < (kind < GPU_QUANTIZE ? 2 : 8); seed++)
			ask_job((enum gpu_kind)kind, 6000 + seed);
}

static void ask_dequantize(const struct gpu_sizes *s, uint64_t seed)
{
	struct gpu_twin q[2], y = gpu_twin_new(gpu_dense_bytes(s));
	struct nib_fp4 from;
	struct nib_dense to;
	char name[120];

	gpu_operand_new(s, q);
	gpu_fill_nvfp4(s, gpu_host_of(&q[0]), gpu_host_of(&q[1]));
	gpu_upload(&q[0]);
	gpu_upload(&q[1]);
	gpu_poison(&y, 0xFF);
	from = gpu_nvfp4(s, gpu_device_of(&q[0]), gpu_device_of(&q[1]));
	to = gpu_dense(s, gpu_device_of(&y));
	gpu_must(nib_dequantize(gpu_test.gpu, &from, 0x1.234568p-9f, &to, NULL,
				&gpu_test.err),
		 "dequantise");
	snprintf(name, sizeof(name),
		 "seed %" PRIu64 " dequantise %s %s %" PRId64 "x%" PRId64, seed,
		 gpu_dtype_name(s->dtype), gpu_layout_name(s->layout), s->rows, s->k);
	if (gpu_download(&y, gpu_host_of(&y)))
		tell(name, "", gpu_host_of(&y), y.bytes);
	else
		gpu_verdict(false, name, "a guard band has changed");
	gpu_twin_free(&q[0]);
	gpu_twin_free(&q[1]);
	gpu_twin_free(&y);
}

static void ask_amax(const struct gpu_sizes *s, uint64_t seed)
{
	struct gpu_twin x = gpu_twin_new(gpu_dense_bytes(s));
	struct nib_dense from = gpu_dense(s, gpu_device_of(&x));
	float amax = -1;
	char name[120];

	gpu_fill_dense(s, gpu_host_of(&x), false);
	gpu_upload(&x);
	gpu_must(nib_amax(gpu_test.gpu, &from, 1, NULL, &amax, &gpu_test.err), "amax");
	snprintf(name, sizeof(name), "seed %" PRIu64 " amax %s %" PRId64 "x%" PRId64,
		 seed, gpu_dtype_name(s->dtype), s->rows, s->k);
	tell(name, "", &amax, sizeof(amax));
	gpu_twin_free(&x);
}

static void ask_conversions(void)
{
	for (uint64_t i = 0; i < (uint64_t)gpu_cases(60); i++) {
		struct gpu_sizes s;

		gpu_seed(7000 + i);
		s = (struct gpu_sizes){1 + gpu_rnd_below(300),
				       16 * (1 + gpu_rnd_below(40)),
				       1,
				       0,
				       i % 2 ? NIB_SCALE_LAYOUT_TILED_128X4
					     : NIB_SCALE_LAYOUT_LINEAR,
				       (enum nib_dtype)(i % 3),
				       false};
		ask_dequantize(&s, 7000 + i);
		ask_amax(&s, 7000 + i);
	}
}

/* Opens the GPU, and the recording of its kind. */
static bool begin(int argc, char **argv, int *code)
{
	struct nib_device_info info = {.struct_bytes = sizeof(info)};

	*code = 2;
	if (argc != 1 && (argc != 3 || strcmp(argv[1], "--record") != 0)) {
		fprintf(stderr, "usage: %s [--record FILE]\n", argv[0]);
		return false;
	}
	if (!gpu_begin(code))
		return false;
	gpu_must(nib_device_get_info(gpu_test.gpu, &info, &gpu_test.err), "info");
	if (argc == 3) {
		recording = fopen(argv[2], "w");
		if (!recording) {
			perror(argv[2]);
			*code = 2;
			return false;
		}
		fprintf(recording, "# gpu_check_recorded --record, nibblas %s, %s\n",
			nib_version(), info.hardware);
		return true;
	}
	*code = SKIPPED;
	return read_lines(strstr(info.hardware, "B200")
			      ? NIB_RECORDINGS "/results_b200.txt"
			      : NIB_RECORDINGS "/results_h200.txt");
}

int main(int argc, char **argv)
{
	int code;

	if (!begin(argc, argv, &code))
		return code;
	ask_products(NIB_OP_GEMM);
	ask_products(NIB_OP_DUAL_GEMM);
	ask_few_rows();
	ask_jobs();
	ask_conversions();
	code = gpu_end();
	free(lines);
	if (recording && fclose(recording) != 0)
		code = 2;
	return code;
}
