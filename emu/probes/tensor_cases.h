/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_cases.h - tensor maps and boxes.  tensor.cu records what a GPU and its
 * driver answer, and test_tensor_recorded.c compares the software GPU with it.
 */
#ifndef EMU_PROBES_TENSOR_CASES_H
#define EMU_PROBES_TENSOR_CASES_H

#include "hardware/tensor_map.h"

#define TENSOR_CASES  256	   /* loads, and as many stores */
#define TENSOR_BYTES  (128 * 1024) /* of global memory */
#define TENSOR_SHARED (40 * 1024)  /* of shared memory, 1024-byte aligned */
#define TENSOR_RULES  512	   /* maps for the driver to take or refuse */
#define TENSOR_FILL   0xAA	   /* of what a load does not write */

struct tensor_case {
	struct emu_tensor_map map; /* address: offset in global memory */
	int32_t coordinates[EMU_TENSOR_RANK];
	uint32_t begin; /* of the box in shared memory */
};

/* Element strides of stores are 1. */
void tensor_case_make(struct tensor_case *made, bool is_store, int index);
/* The bytes of global and shared memory before a copy. */
uint8_t tensor_global_byte(uint32_t at);
uint8_t tensor_shared_byte(uint32_t at);
/* The software GPU's result: shared memory (load) or global memory (store). */
void tensor_case_load(const struct tensor_case *asked, const uint8_t *global,
		      uint8_t *shared);
void tensor_case_store(const struct tensor_case *asked, uint8_t *global,
		       const uint8_t *shared);
uint64_t tensor_hash(const uint8_t *bytes, uint32_t count);

/* A map that most often breaks one rule; base: an address, 64-byte aligned. */
void tensor_rule_make(struct emu_tensor_map *made, int index, uint64_t base);

#endif
