/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu_declared.c - see emu_declared.h.  It is a separate file, because the headers of
 * nibblas and of the software GPU declare the same names.
 */
#include "emu_declared.h"

#include <string.h>

#include "driver/cuda_api.h"
#include "driver/declared.h"

bool emu_declared(const char *name, long long *value)
{
	for (size_t i = 0; i < sizeof(declared) / sizeof(*declared); i++)
		if (strcmp(declared[i].name, name) == 0) {
			*value = declared[i].value;
			return true;
		}
	return false;
}
