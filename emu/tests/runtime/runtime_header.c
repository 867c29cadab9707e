/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_header.c - what CUDA's own header declares: see test_runtime_api.c. */
#include <stddef.h>

#include "runtime_header.h"

#ifdef NIBEMU_HAVE_CUDA_H
#include <cuda_runtime_api.h>

#include "declared_runtime.h"

int runtime_header_count(void)
{
	return (int)(sizeof(declared) / sizeof(*declared));
}

long long runtime_header_value(int i)
{
	return declared[i].value;
}
#else
int runtime_header_count(void)
{
	return 0;
}

long long runtime_header_value(int i)
{
	(void)i;
	return -1;
}
#endif
