/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_layers.c - finds the layers of nib run by name, explains names that are not NVFP4
 * layers, and packs the weights.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"
#include "tensor.h"

/* Why the layer of this name, with or without ".weight", cannot be read; or NULL. */
static const struct nib_layer_defect *find_defect(const struct nib_file *file,
						  const char *name)
{
	for (int64_t i = 0; i < nib_file_layer_defect_count(file); i++) {
		const struct nib_layer_defect *defect =
		    nib_file_layer_defect_at(file, i);
		const size_t n = strlen(defect->name);

		if (!strncmp(name, defect->name, n) &&
		    (!name[n] || !strcmp(name + n, ".weight")))
			return defect;
	}
	return NULL;
}

/* The tensor of this name, with or without ".weight", which is not NVFP4; or NULL. */
static const struct nib_file_tensor *find_tensor(const struct nib_file *file,
						 const char *name)
{
	const struct nib_file_tensor *found = nib_file_find(file, name);
	char *with_suffix;

	if (found)
		return found;
	if (asprintf(&with_suffix, "%s.weight", name) < 0) {
		cli_out_of_memory();
		return NULL;
	}
	found = nib_file_find(file, with_suffix);
	free(with_suffix);
	return found;
}

static int report_type(const struct runner *r, const struct nib_file_tensor *t)
{
	const int is_fp8 = !strncmp(t->dtype, "F8_", 3);

	return cli_error(CLI_INPUT,
			 "%s: '%s' is %s: nib run multiplies by NVFP4 layers%s",
			 r->args->weights, t->name, t->dtype,
			 is_fp8 ? "; FP8 linears run in nibblas.transformers "
				  "(docs/transformers.md)"
				: " (nib inspect lists them)");
}

static int report_missing(const struct runner *r, const char *name)
{
	const struct nib_layer_defect *defect = find_defect(r->weights, name);
	const struct nib_file_tensor *tensor = find_tensor(r->weights, name);
	int64_t count = nib_file_layer_count(r->weights);
	char near[CLI_NEAREST_TEXT];

	if (defect)
		return cli_error(CLI_INPUT, "%s: the layer '%s' cannot be read: %s",
				 r->args->weights, defect->name, defect->reason);
	if (tensor)
		return report_type(r, tensor);
	if (!count)
		return cli_error(CLI_INPUT, "%s has no NVFP4 layers", r->args->weights);
	return cli_error(CLI_USAGE,
			 "%s has no NVFP4 layer '%s'; it has %lld, the first "
			 "is '%s' (nib inspect lists them)%s",
			 r->args->weights, name, (long long)count,
			 nib_file_layer_at(r->weights, 0)->name,
			 tensor_nearest_layer(r->weights, name, near));
}

/* Layers that share an input must have equal AWQ scales for it (pre_quant_scale), or
 * none. */
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
			return report_missing(r, names[i]);
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
				 "%s and %s differ in pre_quant_scale, but they "
				 "share the input that it multiplies",
				 names[0], names[1]);
	return CLI_OK;
}

int run_load_weights(struct runner *r)
{
	struct nib_fp4 *const operands[] = {&r->problem.b, &r->problem.b2};
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
		/* nib run reads the weights once, so on a GPU packing would cost more
		 * than it saves. */
		if (!cli_is_host(r->device)) {
			if (run_stage_view(r, &b, operands[i], &err))
				return cli_fail(source.name, &err);
		} else if (nib_pack(r->device, &b, NULL, &r->packed[i], &err)) {
			return cli_fail_input(source.name, &err);
		}
	}
	r->problem.b_packed = r->packed[0];
	r->problem.b2_packed = r->packed[1];
	r->pack_s = cli_now_s() - begin_s;
	return CLI_OK;
}
