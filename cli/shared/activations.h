/* SPDX-License-Identifier: Apache-2.0 */
/* activations.h - --activations: what A of a multiplication is. */
#ifndef NIB_CLI_ACTIVATIONS_H
#define NIB_CLI_ACTIVATIONS_H

#include "nibblas.h"

/* In the order of CLI_ACTIVATIONS_WORDS. */
enum cli_activations { ACT_NVFP4, ACT_BF16, ACT_FP16, ACT_FP32, ACT_INT8 };
#define CLI_ACTIVATIONS_WORDS "nvfp4|bf16|fp16|fp32|int8"
/* The help text of --activations in commands that generate A. */
#define CLI_ACTIVATIONS_HELP                                                           \
	"nvfp4 (W4A4); bf16, fp16 or fp32 as they are (W4A16); or int8, "              \
	"rounded from bf16 (W4A8)"
extern const char *const cli_activations_names[];

/* The library's value for it. */
enum nib_activations cli_activations_kind(enum cli_activations activations);
/* The type of x: bf16 for int8; unused for nvfp4 (NIB_DTYPE_FP32). */
enum nib_dtype cli_activations_dtype(enum cli_activations activations);
/* Bytes of a value of A in memory. */
double cli_activations_bytes(enum cli_activations activations);
/*
 * cli_fail().  If the device has no kernels for the activations, the message names
 * --activations and, on a GPU, a device that has them.
 */
int cli_fail_activations(const char *what, const struct nib_error *err,
			 enum cli_activations activations, int on_gpu);

#endif
