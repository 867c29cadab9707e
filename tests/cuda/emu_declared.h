/* SPDX-License-Identifier: Apache-2.0 */
/* emu_declared.h - what the software GPU declares of the driver interface. */
#ifndef NIB_TESTS_EMU_DECLARED_H
#define NIB_TESTS_EMU_DECLARED_H

#include <stdbool.h>

/* False: it does not declare that name. */
bool emu_declared(const char *name, long long *value);

#endif
