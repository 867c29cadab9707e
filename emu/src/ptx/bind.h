/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bind.h - turns a statement into an instruction: a row of the table of opcodes,
 * and the functions for binding an opcode.
 */
#ifndef EMU_BIND_H
#define EMU_BIND_H

#include "ptx/parse.h"

#define EMU_MAX_WORDS 20
#define EMU_MAX_TYPES 5

struct emu_bind {
	struct emu_parser *parser;
	const struct emu_statement *s;
	struct emu_instr *i;
	/* The opcode's words after its name that are neither types nor a
	 * shape. */
	const char *words[EMU_MAX_WORDS];
	size_t lengths[EMU_MAX_WORDS];
	uint32_t n_words;
	enum emu_type types[EMU_MAX_TYPES];
	uint32_t n_types;
	int shape_m, shape_n, shape_k; /* m64n16k16; 0: none */
	uint32_t n_operands, n_addresses;
	struct emu_value operands[EMU_MAX_ELEMENTS];
};

/*
 * Whether other clusters can observe the effects of an opcode, or it observes
 * theirs.  Plain loads do not count.  Strong accesses always count.
 */
enum emu_cross_cluster {
	EMU_CROSS_NEVER,
	EMU_CROSS_IN_GLOBAL, /* unless its state space is another one */
	EMU_CROSS_BY_SCOPE,  /* if its scope is wider than the cluster */
	EMU_CROSS_ALWAYS,
};

/*
 * One row of the table of opcodes.  Fields after bind may be omitted; 0 is the usual
 * value.
 */
struct emu_opcode {
	const char *name; /* the first words of the opcode */
	/* Words that may follow in any order, separated by blanks; "shape" is
	 * one such as m64n16k16. */
	const char *modifiers, *types;
	bool (*bind)(struct emu_bind *b);
	uint8_t cross_cluster; /* enum emu_cross_cluster */
	/* The .target that a module needs (ptx/target.h); NULL: any. */
	const char *target;
	/* The same for words and types: "bf16:90 f32x2:100". */
	const char *word_targets;
	bool is_move; /* copies a register to a register */
	/* For predicted times: */
	bool is_pinned;	     /* memory, waiting or control: ptxas keeps its place */
	bool ends_block;     /* later instructions begin after all earlier ones */
	bool is_tensor_copy; /* a box of a tensor map */
	uint8_t unit;	     /* enum emu_unit (machine/time_state.h) */
	/*
	 * Mean number of SASS instructions in each pipe, for modules without a
	 * table of their own (machine/time_costs.h): all 0 is one instruction.
	 * slots_64 is for results of 64 bits, if not all 0.
	 */
	float slots[EMU_PIPES], slots_64[EMU_PIPES];
};

/* ---- for functions that bind --------------------------------------------- */

__attribute__((format(printf, 2, 3))) bool emu_bind_fail(struct emu_bind *b,
							 const char *format, ...);

/*
 * Fails unless the module's .target has what needs `need` (ptx/target.h).  what: its
 * name for the message, NULL for the instruction itself.
 */
bool emu_bind_needs(struct emu_bind *b, const char *need, const char *what);

/* Fails unless the opcode has .sync.aligned, which all lanes of a warp need. */
bool emu_bind_aligned(struct emu_bind *b);

/* True if the opcode has the word. */
bool emu_has(const struct emu_bind *b, const char *word);
/* True if the opcode has exactly one of the words; *which is its index. */
static inline bool emu_has_one(const struct emu_bind *b, const char *const *words,
			       uint32_t count, uint32_t *which)
{
	uint32_t found = 0;

	for (uint32_t k = 0; k < count; k++)
		if (emu_has(b, words[k])) {
			*which = k;
			found++;
		}
	return found == 1;
}
/* Fails unless the number of arguments is from least to most. */
bool emu_arguments(struct emu_bind *b, uint32_t least, uint32_t most);

/*
 * Append argument n as an operand: a register of exactly bytes (1: a
 * predicate), for sources also a number, a special register or a symbol.
 * A destination may be _.
 */
bool emu_dst(struct emu_bind *b, const struct emu_argument *a, int bytes);
bool emu_src(struct emu_bind *b, const struct emu_argument *a, enum emu_type type);
/* The same for ld, st and cvt, whose registers may be wider than the type. */
bool emu_wide_dst(struct emu_bind *b, const struct emu_argument *a, int least_bytes);
bool emu_wide_src(struct emu_bind *b, const struct emu_argument *a, enum emu_type type);
/* A predicate source, !p too. */
bool emu_predicate(struct emu_bind *b, const struct emu_argument *a);
/* Appends the base of an address as an operand of 4 or 8 bytes (0 if it is missing).
 * The offset goes to immediate, that of a second and a third address to offset[]. */
bool emu_address(struct emu_bind *b, const struct emu_argument *a);
/* Fails unless the argument is an integer from least to most. */
bool emu_number(struct emu_bind *b, const struct emu_argument *a, int64_t least,
		int64_t most, int64_t *value);
/* The elements of a vector, or the argument itself as one. */
const struct emu_argument *emu_elements(const struct emu_bind *b,
					const struct emu_argument *a, uint32_t *count);
const struct emu_argument *emu_argument(const struct emu_bind *b, uint32_t n);

/* The state space that the opcode names; EMU_GENERIC without one. */
enum emu_state_space emu_space_of(const struct emu_bind *b);

#endif
