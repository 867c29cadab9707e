/* SPDX-License-Identifier: Apache-2.0 */
/*
 * experts.h - fused experts: models that store the experts of a layer as two
 * tensors, X.experts.gate_up_proj [experts, 2 i, k] and X.experts.down_proj
 * [experts, k, i].  Engines for NVFP4 load a layer for each expert and
 * projection instead, X.experts.7.up_proj.  GraniteMoE's X.input_linear.weight and
 * X.output_linear.weight become the same.
 *
 * Llama 4 and gpt-oss store them across, [experts, k, 2 i] and [experts, i, k],
 * and ModelOpt's NVFP4 of such stacks keeps that order: two values of k a byte.
 */
#ifndef NIB_EXPERTS_H
#define NIB_EXPERTS_H

#include "nibblas.h"

/* How one of the two tensors divides. */
struct experts {
	const char *end, *partner;   /* of its name, and of the other's */
	const char *without_partner; /* what is wrong without the other */
	const char *leaf, *infix;    /* a layer is X infix .7.PART, a tensor X leaf */
	int is_down, n_parts;	     /* projections of an expert */
	const char *parts[2];
};

/*
 * Looks up the end of a tensor's name.  NULL means that the tensor does not hold
 * fused experts.
 */
const struct experts *experts_find(const char *name);
/* The bytes of X before leaf: the same for both tensors of a layer. */
size_t experts_stem(const char *name, const struct experts *experts);
/* NULL if file has the other tensor, and both divide into layers; else why not,
 * in words. */
const char *experts_problem(const struct nib_file *file,
			    const struct nib_file_tensor *tensor,
			    const struct experts *experts);
/* Whether file has the other tensor, both are across, and k is a multiple of 16. */
int experts_are_across(const struct nib_file *file,
		       const struct nib_file_tensor *tensor,
		       const struct experts *experts);
/*
 * Matrix i of a tensor: a view of its rows, with the name of its layer and
 * suffix, which the caller frees.  0 if there is no memory for the name.
 */
int experts_part(const struct nib_file_tensor *tensor, const struct experts *experts,
		 int64_t i, const char *suffix, struct nib_file_tensor *part,
		 char **name);
/* The fused tensor that holds the layer so named, with or without ".weight", or
 * NULL. */
const struct nib_file_tensor *experts_holder(const struct nib_file *file,
					     const char *name);

#endif
