/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h - names and their meanings while a module is parsed, in nested
 * scopes.
 */
#ifndef EMU_NAMES_H
#define EMU_NAMES_H

#include "hardware/emu.h"

enum emu_name_kind {
	EMU_NAME_REGISTER, /* value: number of the register */
	EMU_NAME_RANGE,	   /* %r<8>: value is %r0's, count 8 */
	EMU_NAME_SYMBOL,   /* special + value, or only value */
	EMU_NAME_LABEL,	   /* value: index of an instruction */
	EMU_NAME_TARGETS,  /* value: the first of count labels of a list */
};

struct emu_name {
	const char *text; /* in the source */
	size_t length;
	enum emu_name_kind kind;
	int space;   /* of a symbol: enum emu_state_space */
	int special; /* of a symbol: what value is added to; -1 */
	uint64_t value;
	uint32_t count;		/* registers; of a local variable: its bytes */
	uint32_t element_bytes; /* of a variable */
	/* The size of a .shared variable of the module that has no address yet;
	 * else 0. */
	uint64_t module_bytes;
	uint32_t module_align;
	uint32_t next, hash; /* in a chain of the table */
};

struct emu_names {
	struct emu_name *names;
	size_t count, capacity;
	uint32_t buckets[1024]; /* index + 1 of the newest name */
};

/* False if there is no memory. */
bool emu_names_add(struct emu_names *names, const struct emu_name *name);
/* The innermost name of a kind; labels have a name space of their own. */
const struct emu_name *emu_names_find(const struct emu_names *names, const char *text,
				      size_t length, enum emu_name_kind kind);
/* True if a name of this kind was added after the first `begin` names. */
bool emu_names_has_since(const struct emu_names *names, size_t begin,
			 const struct emu_name *name);
/* Drops all names except the first `count`. */
void emu_names_cut(struct emu_names *names, size_t count);
void emu_names_free(struct emu_names *names);
/* 64-bit FNV-1a, which identifies texts in a table of machine code. */
uint64_t emu_text_hash(const char *text);

#endif
