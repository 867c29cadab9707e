/* SPDX-License-Identifier: Apache-2.0 */
/* arch.c - the list of architectures; see arch.h. */
#include "arch.h"

#include <string.h>

const struct cuda_arch *const cuda_archs[CUDA_ARCHS] = {
    &cuda_sm90,
    &cuda_sm100,
};

const struct cuda_arch *cuda_arch_of(int capability)
{
	for (int i = 0; i < CUDA_ARCHS; i++)
		for (const int *c = cuda_archs[i]->capabilities; *c; c++)
			if (*c == capability)
				return cuda_archs[i];
	return NULL;
}

bool cuda_arch_has_image(const struct cuda_arch *arch, const char *name)
{
	const size_t length = strlen(arch->tag);

	return strncmp(name, arch->tag, length) == 0 && name[length] == '_';
}
