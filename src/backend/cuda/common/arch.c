/* SPDX-License-Identifier: Apache-2.0 */
/* arch.c - the list of architectures; see arch.h. */
#include "arch.h"

#include <string.h>

#include "core/environment.h"

const struct cuda_arch *const cuda_archs[CUDA_ARCHS] = {
    &cuda_sm90,
    &cuda_sm100,
    &cuda_sm80,
};

static bool is_listed(const struct cuda_arch *arch, int capability)
{
	const int *c = arch->capabilities;

	while (*c && *c != capability)
		c++;
	return *c;
}

bool cuda_arch_runs_on(const struct cuda_arch *arch, int capability)
{
	return is_listed(arch, capability) ||
	       (arch->runs_on_newer && capability > arch->capabilities[0]);
}

const struct cuda_arch *cuda_arch_of(int capability)
{
	for (int i = 0; i < CUDA_ARCHS; i++)
		if (is_listed(cuda_archs[i], capability))
			return cuda_archs[i];
	for (int i = 0; i < CUDA_ARCHS; i++)
		if (cuda_arch_runs_on(cuda_archs[i], capability))
			return cuda_archs[i];
	return NULL;
}

const char *cuda_arch_forced(void)
{
	const char *tag = nib_secure_getenv("NIB_CUDA_ARCH");

	return tag && *tag ? tag : NULL;
}

const struct cuda_arch *cuda_arch_named(const char *tag)
{
	for (int i = 0; i < CUDA_ARCHS; i++)
		if (strcmp(cuda_archs[i]->tag, tag) == 0)
			return cuda_archs[i];
	return NULL;
}

bool cuda_arch_has_image(const struct cuda_arch *arch, const char *name)
{
	const size_t length = strlen(arch->tag);

	return strncmp(name, arch->tag, length) == 0 && name[length] == '_';
}
