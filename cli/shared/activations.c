/* SPDX-License-Identifier: Apache-2.0 */
/* activations.c - what A of a multiplication is: see activations.h. */
#include "activations.h"

#include <stdio.h>
#include <string.h>

#include "fail.h"

const char *const cli_activations_names[] = {"nvfp4", "bf16", "fp16", "fp32", "int8"};

enum nib_activations cli_activations_kind(enum cli_activations activations)
{
	switch (activations) {
	case ACT_NVFP4:
		return NIB_ACTIVATIONS_NVFP4;
	case ACT_INT8:
		return NIB_ACTIVATIONS_INT8;
	case ACT_BF16:
	case ACT_FP16:
	case ACT_FP32:
		break;
	}
	return NIB_ACTIVATIONS_DENSE;
}

enum nib_dtype cli_activations_dtype(enum cli_activations activations)
{
	switch (activations) {
	case ACT_BF16:
	case ACT_INT8:
		return NIB_DTYPE_BF16;
	case ACT_FP16:
		return NIB_DTYPE_FP16;
	case ACT_FP32:
	case ACT_NVFP4:
		break;
	}
	return NIB_DTYPE_FP32;
}

double cli_activations_bytes(enum cli_activations activations)
{
	if (activations == ACT_NVFP4)
		return 0.5 + 1.0 / NIB_NVFP4_BLOCK;
	return (double)nib_dtype_bytes(cli_activations_dtype(activations));
}

int cli_fail_activations(const char *what, const struct nib_error *err,
			 enum cli_activations activations, int on_gpu)
{
	/* "problems[0].activations = 1: the rule" */
	const char *rule = strstr(err->message, ": ");
	const char *field = strrchr(err->argument, '.');
	struct nib_error named = *err;

	if (err->status != NIB_STATUS_UNSUPPORTED || !rule || !field ||
	    strcmp(field, ".activations"))
		return cli_fail(what, err);
	snprintf(named.message, sizeof(named.message), "--activations %s%.150s%s",
		 cli_activations_names[activations], rule,
		 on_gpu ? "; --device cpu takes all of them" : "");
	return cli_fail(what, &named);
}
