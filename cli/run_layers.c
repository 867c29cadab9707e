/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_layers.c - the layers of nib run: found by name, with messages for names that are
 * no layer, and packed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"
#include "tensor.h"

/* The layer named so that cannot be read, with or without ".weight". */
static const struct nib_layer_defect *find_problem(const struct nib_file *file,
						   const char *name)
{
	for (int64_t i = 0; i < nib_file_layer_defect_count(file); i++) {
		const struct nib_layer_defect *problem =
		    nib_file_layer_defect_at(file, i);
		const size_t n = strlen(problem->name);

		if (!strncmp(name, problem->name, n) &&
		    (!name[n] || !strcmp(name + n, ".weight")))
			return problem;
	}
	return NULL;
}

/* The matrix named so, with or without ".weight", of another type than NVFP4. */
static const struct nib_file_tensor *find_other(const struct nib_file *file,
						const char *name)
{
	const struct nib_file_tensor *found = nib_file_find(file, name);
	char *whole;

	if (found)
		return found;
	if (asprintf(&whole, "%s.weight", name) < 0) {
		cli_out_of_memory();
		return NULL;
	}
	found = nib_file_find(file, whole);
	free(whole);
	return found;
}

static int other_type(const struct runner *r, const struct nib_file_tensor *t)
{
	const int is_fp8 = !strncmp(t->dtype, "F8_", 3);

	return cli_error(CLI_INPUT,
			 "%s: '%s' is %s: nib run multiplies by NVFP4 layers%s",
			 r->args->weights, t->name, t->dtype,
			 is_fp8 ? "; FP8 linears run in nibblas.transformers "
				  "(docs/transformers.md)"
				: " (nib inspect lists them)");
}

static int no_layer(const struct runner *r, const char *name)
{
	const struct nib_layer_defect *problem = find_problem(r->weights, name);
	const struct nib_file_tensor *other = find_other(r->weights, name);
	int64_t count = nib_file_layer_count(r->weights);
	char near[CLI_NEAREST_TEXT];

	if (problem)
		return cli_error(CLI_INPUT, "%s: the layer '%s' cannot be read: %s",
				 r->args->weights, problem->name, problem->reason);
	if (other)
		return other_type(r, other);
	if (!count)
		return cli_error(CLI_INPUT, "%s has no NVFP4 layers", r->args->weights);
	return cli_error(CLI_USAGE,
			 "%s has no NVFP4 layer '%s'; it has %lld, the first "
			 "is '%s' (nib inspect lists them)%s",
			 r->args->weights, name, (long long)count,
			 nib_file_layer_at(r->weights, 0)->name,
			 tensor_nearest_layer(r->weights, name, near));
}

/* Two layers of one input have the same AWQ scales of it, or none. */
static int same_pre_quant_scale(const struct nib_layer *const layers[2])
{
	const struct nib_file_tensor *a = layers[0]->pre_quant_scale;
	const struct nib_file_tensor *b = layers[1]->pre_quant_scale;

	return a == b || (a && b && !strcmp(a->dtype, b->dtype) &&
			  !memcmp(a->data, b->data, (size_t)a->bytes));
}

int run_find_layers(struct runner *r)
{
	const char *const names[] = {r->args->tensor, r->args->tensor2};
	const struct nib_fp4 *w[2] = {0};

	for (int i = 0; i < 2 && names[i]; i++) {
		r->layers[i] = nib_file_find_layer(r->weights, names[i]);
		if (!r->layers[i])
			return no_layer(r, names[i]);
		w[i] = &r->layers[i]->weight;
		if (r->args->index >= w[i]->batch)
			return cli_error(CLI_USAGE,
					 "--index %lld: %s has %lld matrices",
					 (long long)r->args->index, names[i],
					 (long long)w[i]->batch);
	}
	if (w[0] && w[1] && (w[0]->rows != w[1]->rows || w[0]->k != w[1]->k))
		return cli_error(
		    CLI_USAGE,
		    "%s and %s differ in shape: in_features %lld and %lld, "
		    "out_features %lld and %lld",
		    names[0], names[1], (long long)w[0]->k, (long long)w[1]->k,
		    (long long)w[0]->rows, (long long)w[1]->rows);
	if (w[1] && !same_pre_quant_scale(r->layers))
		return cli_error(CLI_INPUT,
				 "%s and %s differ in pre_quant_scale, by which "
				 "their one input is multiplied",
				 names[0], names[1]);
	return CLI_OK;
}

int run_load_weights(struct runner *r)
{
	struct nib_fp4 *const there[] = {&r->problem.b, &r->problem.b2};
	double begin_s = cli_now_s();
	struct nib_error err;

	for (int i = 0; i < 2 && r->layers[i]; i++) {
		struct tensor_source source;
		struct nib_fp4 b;

		tensor_from_layer(r->layers[i], &source);
		if (tensor_view(&source, r->args->index * source.rows_each,
				source.rows_each, &b, &r->globals[i], &r->copies[i],
				&err))
			return cli_fail(source.name, &err);
		/* A GPU reads them once: packing would cost more. */
		if (!cli_is_host(r->device)) {
			if (run_stage_view(r, &b, there[i], &err))
				return cli_fail(source.name, &err);
		} else if (nib_pack(r->device, &b, &r->packed[i], &err)) {
			return cli_fail_input(source.name, &err);
		}
	}
	r->problem.b_packed = r->packed[0];
	r->problem.b2_packed = r->packed[1];
	r->pack_s = cli_now_s() - begin_s;
	return CLI_OK;
}
