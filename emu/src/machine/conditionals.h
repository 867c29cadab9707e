/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conditionals.h - the values of conditional nodes of graphs.  Kernels set them by
 * cudaGraphSetConditional; the driver makes the handles and reads the values.
 */
#ifndef EMU_CONDITIONALS_H
#define EMU_CONDITIONALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct emu_conditional {
	uint64_t handle; /* from 1 */
	size_t owners;	 /* nodes and graphs; 0: the entry may have another handle */
	_Atomic uint32_t value;
	uint32_t start; /* at each launch, if has_start */
	bool has_start;
};

struct emu_conditionals {
	struct emu_conditional *list;
	size_t count;
	uint64_t handles; /* that were made */
};

/* NULL: no handle of an existing graph. */
struct emu_conditional *emu_conditional_find(const struct emu_conditionals *c,
					     uint64_t handle);
/* Makes a handle with one owner; NULL: no memory. */
struct emu_conditional *emu_conditional_add(struct emu_conditionals *c);

#endif
