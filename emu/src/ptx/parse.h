/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.h - the parser's state, and a statement as the decoder sees it: words
 * of the opcode and arguments whose names are resolved.
 */
#ifndef EMU_PARSE_H
#define EMU_PARSE_H

#include "hardware/arena.h"
#include "ptx/lexer.h"
#include "ptx/names.h"
#include "ptx/ptx.h"

#define EMU_MAX_ARGUMENTS 10
#define EMU_MAX_ELEMENTS  512
#define EMU_MAX_DEPTH	  32

enum emu_argument_kind {
	EMU_ARG_REGISTER,
	EMU_ARG_SPECIAL,
	EMU_ARG_INTEGER,
	EMU_ARG_FLOAT,
	EMU_ARG_SYMBOL,	 /* special (or -1) + value */
	EMU_ARG_ADDRESS, /* [element + value], element may be missing */
	EMU_ARG_VECTOR,	 /* {elements} */
	EMU_ARG_LABEL,
	EMU_ARG_SINK, /* _ */
};

struct emu_argument {
	enum emu_argument_kind kind;
	bool is_negated; /* !p */
	uint8_t float_bytes;
	uint8_t space; /* of a symbol */
	uint32_t reg;
	int special;
	uint64_t value;
	const char *text; /* of a label */
	size_t length;
	/* Elements of a vector; of an address: base and coordinates. */
	uint32_t first, count;
	/* p|q: index of q among the elements + 1. */
	uint32_t second;
};

struct emu_statement {
	const char *opcode; /* with its dots */
	size_t opcode_length;
	uint32_t line;
	uint32_t n_arguments, n_elements;
	struct emu_argument arguments[EMU_MAX_ARGUMENTS];
	struct emu_argument elements[EMU_MAX_ELEMENTS];
	bool has_guard;
	struct emu_argument guard;
};

#define EMU_MAX_CALLS 24
/* Functions are expanded where they are called, at most so often in a module. */
#define EMU_MAX_EXPANDED (1u << 16)

/* A function of the module: where its text is read. */
struct emu_function {
	const char *text; /* its name */
	size_t length;
	struct emu_lexer at; /* after .func */
	bool is_defined;     /* else only declared */
	bool is_taken;	     /* its address is used */
};

/* A branch whose label is not known yet. */
struct emu_fixup {
	const char *text;
	size_t length;
	uint32_t instr, line;
};

/* A label in a list of .branchtargets. */
struct emu_branch_target {
	const char *text;
	size_t length;
};

/* A place in the source. */
struct emu_loc {
	uint32_t file, line, column;
	uint32_t caller; /* index + 1 of the call that was inlined; 0: none */
	uint32_t next;	 /* in a chain of the table */
};

struct emu_locs {
	struct emu_loc *list;
	size_t count, capacity;
	uint32_t buckets[4096]; /* index + 1 of the newest */
};

/* A kernel under construction. */
struct emu_builder {
	struct emu_kernel *kernel;
	struct emu_instr *code;
	size_t count, capacity;
	uint8_t *register_bytes; /* of each virtual register: 1 is a predicate */
	size_t registers, registers_capacity;
	struct emu_fixup *fixups;
	size_t n_fixups, fixups_capacity;
	struct emu_branch_target *targets;
	size_t n_targets, targets_capacity;
	uint8_t *constants;
	size_t constants_used, constants_capacity;
	uint32_t constant_map[4096]; /* offset + 1 by hash of value and size */
	uint32_t source; /* of the next instruction: index + 1 in the parser's locs */
	bool has_dynamic_symbol;
};

struct emu_parser;

/* Appends the parser's statement to the kernel as an instruction. */
typedef bool emu_decode(struct emu_parser *parser);

struct emu_parser {
	struct emu_lexer lexer;
	struct emu_module *module;
	struct emu_names names;
	struct emu_builder build;
	struct emu_locs locs;
	struct emu_statement statement;
	char opcode[160]; /* where spaces stood in it */
	emu_decode *decode;
	/* Reads a block after its '{', for functions; it is in parse_body.c. */
	bool (*read_scope)(struct emu_parser *parser);
	emu_place *place;
	void *place_context;
	uint32_t depth;
	struct emu_function *functions;
	size_t n_functions, functions_capacity;
	/* The functions whose bodies are being read, each called in the one before. */
	const struct emu_function *calls[EMU_MAX_CALLS];
	uint32_t n_calls;
	uint32_t n_expanded; /* calls of the module that were read */
	/* The last failure is a fault of the text and not of memory: it refuses
	 * only one entry. */
	bool is_refusal;
	struct emu_error *err;
};

/* Fails; the message begins with the line. */
__attribute__((format(printf, 3, 4))) bool
emu_parse_fail(struct emu_parser *parser, uint32_t line, const char *format, ...);
bool emu_expect_mark(struct emu_parser *parser, char mark);
bool emu_take_mark(struct emu_parser *parser, char mark);
bool emu_expect_number(struct emu_parser *parser, uint64_t *value);
/* Fails: names what was found and what was wanted. */
bool emu_unexpected(struct emu_parser *parser, const char *wanted);
bool emu_take_word(struct emu_parser *parser, const char *word);
/* From '{' to after its '}'; false if the text ends before. */
bool emu_skip_braces(struct emu_parser *parser);
/*
 * Resolves branches from number `fixups` on to labels from number `scope` on.  The
 * others stay for the enclosing scopes.
 */
void emu_resolve_labels(struct emu_parser *parser, size_t fixups, size_t scope);

#endif
