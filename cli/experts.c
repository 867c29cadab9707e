/* SPDX-License-Identifier: Apache-2.0 */
/* experts.c - fused experts: see experts.h. */
#include "experts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "tensor.h"

#define GATE_UP ".experts.gate_up_proj"
#define DOWN	".experts.down_proj"
#define IN	".block_sparse_moe.input_linear.weight"
#define OUT	".block_sparse_moe.output_linear.weight"

#define WITHOUT "fused experts without *"

static const struct experts kinds[] = {
    {.end = GATE_UP,
     .partner = DOWN,
     .without_partner = WITHOUT DOWN,
     .leaf = ".gate_up_proj",
     .infix = "",
     .n_parts = 2,
     .parts = {"gate_proj", "up_proj"}},
    {.end = DOWN,
     .partner = GATE_UP,
     .without_partner = WITHOUT GATE_UP,
     .leaf = ".down_proj",
     .infix = "",
     .is_down = 1,
     .n_parts = 1,
     .parts = {"down_proj", ""}},
    {.end = IN,
     .partner = OUT,
     .without_partner = WITHOUT OUT,
     .leaf = ".input_linear.weight",
     .infix = ".experts",
     .n_parts = 2,
     .parts = {"gate_proj", "up_proj"}},
    {.end = OUT,
     .partner = IN,
     .without_partner = WITHOUT IN,
     .leaf = ".output_linear.weight",
     .infix = ".experts",
     .is_down = 1,
     .n_parts = 1,
     .parts = {"down_proj", ""}},
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

const struct experts *experts_find(const char *name)
{
	for (size_t i = 0; i < N_KINDS; i++)
		if (tensor_name_ends(name, kinds[i].end))
			return &kinds[i];
	return NULL;
}

/* Whether both fit, where k is size number k of their shapes, and n the other. */
static int fits(const struct nib_file_tensor *gate_up,
		const struct nib_file_tensor *down, int k)
{
	const int n = 3 - k;

	return gate_up->rank == 3 && down->rank == 3 &&
	       gate_up->shape[0] == down->shape[0] &&
	       gate_up->shape[n] == 2 * down->shape[k] &&
	       gate_up->shape[k] == down->shape[n] &&
	       gate_up->shape[k] % NIB_NVFP4_BLOCK == 0 &&
	       down->shape[k] % NIB_NVFP4_BLOCK == 0;
}

int experts_are_across(const struct nib_file *file, const struct nib_file_tensor *t,
		       const struct experts *e)
{
	const struct nib_file_tensor *partner =
	    tensor_beside(file, t->name, e->end, e->partner);

	return partner && !*e->infix &&
	       (e->is_down ? fits(partner, t, 1) : fits(t, partner, 1));
}

const char *experts_problem(const struct nib_file *file,
			    const struct nib_file_tensor *t, const struct experts *e)
{
	const struct nib_file_tensor *partner =
	    tensor_beside(file, t->name, e->end, e->partner);

	if (!partner)
		return e->without_partner;
	if (e->is_down ? fits(partner, t, 2) : fits(t, partner, 2))
		return NULL;
	return "fused experts, not as [experts, n, k] with k a multiple of 16";
}

size_t experts_stem(const char *name, const struct experts *e)
{
	return strlen(name) - strlen(e->leaf);
}

int experts_part(const struct nib_file_tensor *t, const struct experts *e, int64_t i,
		 const char *suffix, struct nib_file_tensor *part, char **name)
{
	if (asprintf(name, "%.*s%s.%lld.%s%s", (int)experts_stem(t->name, e), t->name,
		     e->infix, (long long)(i / e->n_parts), e->parts[i % e->n_parts],
		     suffix) < 0)
		return 0;
	*part = *t;
	part->name = *name;
	part->rank = 2;
	part->shape[0] = t->shape[1] / e->n_parts;
	part->shape[1] = t->shape[2];
	part->bytes = t->bytes / (uint64_t)(t->shape[0] * e->n_parts);
	part->data = (const char *)t->data + (uint64_t)i * part->bytes;
	return 1;
}

/*
 * The bytes of X.experts in the name of a layer, X.experts.7.PART, which has n
 * bytes; 0 if it is none.
 */
static size_t stem_of(const char *layer, size_t n, const char *part)
{
	static const char experts[] = ".experts";
	const size_t m = sizeof(experts) - 1, p = strlen(part);
	size_t at, digits;

	if (n < p + 1 || strncmp(layer + n - p, part, p) || layer[n - p - 1] != '.')
		return 0;
	digits = at = n - p - 1;
	while (at > 0 && layer[at - 1] >= '0' && layer[at - 1] <= '9')
		at--;
	if (at == digits || at < m + 1 || layer[at - 1] != '.' ||
	    strncmp(layer + at - 1 - m, experts, m))
		return 0;
	return at - 1;
}

const struct nib_file_tensor *experts_holder(const struct nib_file *file,
					     const char *name)
{
	static const char weight[] = ".weight";
	const size_t n =
	    strlen(name) - (tensor_name_ends(name, weight) ? sizeof(weight) - 1 : 0);
	const struct nib_file_tensor *found = NULL;

	for (size_t i = 0; i < N_KINDS * 2 && !found; i++) {
		const struct experts *e = &kinds[i / 2];
		const char *part = e->parts[i % 2];
		const size_t stem = *part ? stem_of(name, n, part) : 0;
		char *whole;

		if (!stem)
			continue;
		if (asprintf(&whole, "%.*s%s", (int)(stem - strlen(e->infix)), name,
			     e->leaf) < 0) {
			cli_out_of_memory();
			return NULL;
		}
		if (tensor_name_ends(whole, e->end))
			found = nib_file_find(file, whole);
		free(whole);
	}
	return found;
}
