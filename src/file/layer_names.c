/* SPDX-License-Identifier: Apache-2.0 */
/* layer_names.c - the suffixes that formats give to the tensors of a layer. */
#include "layer_names.h"

#include <string.h>

const struct nib_layer_suffixes nib_layer_suffixes[NIB_NAMINGS] = {
    [NIB_NAMING_MODELOPT] =
	{
	    .codes = ".weight",
	    .scales = ".weight_scale",
	    .global = ".weight_scale_2",
	    .input_global = ".input_scale",
	    .pre_quant_scale = ".pre_quant_scale",
	},
    [NIB_NAMING_COMPRESSED_TENSORS] =
	{
	    .codes = ".weight_packed",
	    .scales = ".weight_scale",
	    .global = ".weight_global_scale",
	    .input_global = ".input_global_scale",
	    .is_reciprocal = 1,
	},
    [NIB_NAMING_MODELOPT_STACK] =
	{
	    .codes = "",
	    .scales = "_weight_scale",
	    .global = "_weight_scale_2",
	    .input_global = "_input_scale",
	},
    [NIB_NAMING_COMPRESSED_TENSORS_STACK] =
	{
	    .codes = "_packed",
	    .scales = "_scale",
	    .global = "_global_scale",
	    .input_global = "_input_global_scale",
	    .is_reciprocal = 1,
	},
    [NIB_NAMING_FP8] =
	{
	    .codes = ".weight",
	    .scales = ".weight_scale",
	    .input_global = ".input_scale",
	},
    [NIB_NAMING_FP8_BLOCKS] =
	{
	    .codes = ".weight",
	    .scales = ".weight_scale_inv",
	    .input_global = ".input_scale",
	},
};

const struct nib_layer_suffixes *nib_naming_suffixes(enum nib_naming naming)
{
	return (unsigned)naming < NIB_NAMINGS ? &nib_layer_suffixes[naming] : NULL;
}

size_t nib_stem_bytes(const char *name, size_t name_bytes, const char *suffix)
{
	const size_t n = strlen(suffix);

	if (name_bytes <= n || strcmp(name + name_bytes - n, suffix) != 0)
		return 0;
	return name_bytes - n;
}
