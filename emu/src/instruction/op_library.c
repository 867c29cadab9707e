/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_library.c - the functions of CUDA's run-time library that kernels call:
 * vprintf, whose text the host writes after the grid has run (machine/prints.h),
 * malloc and free, whose memory is that of cudaMalloc with the same checks,
 * __assertfail, and cudaGraphSetConditional (machine/conditionals.h).  Their
 * arguments are offsets in the thread's local memory, to which
 * the call has stored the values.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hardware/memory.h"
#include "instruction/binds.h"
#include "machine/access.h"
#include "machine/prints.h"
#include "machine/warp.h"

/* The parameters' offsets, in the order of the call. */
static bool bind_offsets(struct emu_bind *b, uint32_t count)
{
	if (!emu_arguments(b, count, count))
		return false;
	for (uint32_t n = 0; n < count; n++)
		if (!emu_src(b, emu_argument(b, n), EMU_B32))
			return false;
	return true;
}

static bool read_local(struct emu_warp *w, const struct emu_instr *i, int lane,
		       uint32_t operand, void *to, uint32_t bytes)
{
	const uint32_t *offset = emu_row(w, &i->operand[operand]);
	const uint8_t *from =
	    emu_access(w, i, lane, EMU_LOCAL, offset[lane], bytes, EMU_READ, NULL);

	if (from)
		memcpy(to, from, bytes);
	return from;
}

/* Reads a string that a lane points to, truncated to size; false after a fault. */
static bool read_text(struct emu_warp *w, const struct emu_instr *i, int lane,
		      uint64_t address, char *to, size_t size)
{
	for (size_t n = 0; n + 1 < size; n++) {
		const uint8_t *from =
		    emu_access(w, i, lane, EMU_GENERIC, address + n, 1, EMU_READ, NULL);

		if (!from)
			return false;
		to[n] = (char)*from;
		to[n + 1] = '\0';
		if (!*from)
			break;
	}
	return true;
}

/* ---- printf ---------------------------------------------------------------- */

#define MOST_ARGUMENTS 32 /* of a call; CUDA prints the others' conversions */
#define MOST_TEXT      4096

/* A call of one lane: its arguments follow each other, aligned. */
struct call {
	struct emu_warp *w;
	const struct emu_instr *i;
	int lane;
	uint64_t next; /* address of an argument */
	uint32_t count;
};

/* The type of a conversion's argument: a letter of printf, and its size. */
struct conversion {
	char text[40]; /* %5.2f, without l */
	char letter;
	uint32_t bytes;
};

/* Reads the next argument; false after a fault. */
static bool take(struct call *c, uint32_t bytes, uint64_t *bits)
{
	const uint64_t at = (c->next + bytes - 1) / bytes * bytes;
	const uint8_t *from =
	    emu_access(c->w, c->i, c->lane, EMU_GENERIC, at, bytes, EMU_READ, NULL);

	*bits = 0;
	if (!from)
		return false;
	memcpy(bits, from, bytes);
	c->next = at + bytes;
	c->count++;
	return true;
}

static bool is_any(char letter, const char *of)
{
	return letter && strchr(of, letter);
}

/* Adds a width or a precision, which is no larger than a text. */
static size_t add_number(struct conversion *c, size_t used, int64_t number)
{
	const int64_t most = MOST_TEXT - 1;
	const int64_t cut = number > most ? most : number < -most ? -most : number;

	return used + (size_t)snprintf(c->text + used, sizeof(c->text) - used, "%lld",
				       (long long)cut);
}

/*
 * Parses a conversion from after '%' to after its letter, to which *at then points.
 * A '*' takes an argument of its own.
 */
static bool parse_conversion(struct call *call, const char **at, struct conversion *c)
{
	size_t used = 1;
	uint64_t bits;

	*c = (struct conversion){.text = "%", .bytes = 4};
	/* The limit is longer than any sensible conversion. */
	while (used < sizeof(c->text) - 16 && is_any(**at, "-+ #0123456789.*lhzjt")) {
		if (is_any(**at, "123456789")) {
			char *end;

			used = add_number(c, used, strtoll(*at, &end, 10));
			*at = end;
			continue;
		}
		if (is_any(**at, "lzjt")) {
			c->bytes = 8;
		} else if (**at == '*') {
			if (!take(call, 4, &bits))
				return false;
			used = add_number(c, used, (int32_t)bits);
		} else {
			c->text[used++] = **at;
		}
		++*at;
	}
	c->letter = **at;
	if (is_any(c->letter, "eEfFgGaAsp"))
		c->bytes = 8;
	if (c->bytes == 8 && is_any(c->letter, "diuxXo")) {
		c->text[used++] = 'l';
		c->text[used++] = 'l';
	}
	c->text[used] = c->letter;
	*at += c->letter != '\0';
	return true;
}

/* The format is the conversion's own, which parse_conversion has made. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void print_number(const struct conversion *c, uint64_t bits, char *to,
			 size_t size)
{
	double x;

	memcpy(&x, &bits, sizeof(x));
	if (is_any(c->letter, "eEfFgGaA"))
		snprintf(to, size, c->text, x);
	else if (c->letter == 'p')
		snprintf(to, size, "%#llx", (unsigned long long)bits);
	else if (c->bytes == 8)
		snprintf(to, size, c->text, (long long)bits);
	else
		snprintf(to, size, c->text, (int)bits);
}

static bool print_text(const struct call *call, const struct conversion *c,
		       uint64_t address, char *to, size_t size)
{
	char text[MOST_TEXT] = "";

	if (!read_text(call->w, call->i, call->lane, address, text, sizeof(text)))
		return false;
	snprintf(to, size, c->text, text);
	return true;
}
#pragma GCC diagnostic pop

/* Prints a conversion, from after its '%'. */
static bool print_argument(struct call *call, const char **at, char *to, size_t size)
{
	const char *const begin = *at;
	struct conversion c;
	uint64_t bits;

	if (!parse_conversion(call, at, &c))
		return false;
	if (call->count >= MOST_ARGUMENTS || !is_any(c.letter, "diuxXoceEfFgGaAps")) {
		snprintf(to, size, "%%%.*s", (int)(*at - begin), begin);
		return true;
	}
	if (!take(call, c.bytes, &bits))
		return false;
	if (c.letter == 's')
		return print_text(call, &c, bits, to, size);
	print_number(&c, bits, to, size);
	return true;
}

static bool print(struct call *call, const char *format, char *text, size_t size)
{
	size_t used = 0;

	while (*format && used + 1 < size) {
		char *to = text + used;

		if (*format != '%' || format[1] == '%') {
			to[0] = *format;
			to[1] = '\0';
			format += 1 + (*format == '%');
		} else {
			format++;
			to[0] = '\0';
			if (!print_argument(call, &format, to, size - used))
				return false;
		}
		used += strlen(to);
	}
	return true;
}

/* Keeps the text for a trap that follows, which reports it in one line. */
static void keep(struct emu_warp *w, const char *text)
{
	snprintf(w->printed, sizeof(w->printed), "%.*s", (int)sizeof(w->printed) - 1,
		 text);
	for (char *at = w->printed; *at; at++)
		if (*at == '\n')
			*at = ' ';
}

/*
 * A lane's call: *count is the number of arguments, -1 without a format.  False
 * after a fault.
 */
static bool print_lane(struct emu_warp *w, const struct emu_instr *i, int lane,
		       int32_t *count)
{
	struct call call = {w, i, lane, 0, 0};
	char format[MOST_TEXT] = "", text[MOST_TEXT] = "";
	uint64_t at = 0;

	*count = -1;
	if (!read_local(w, i, lane, 1, &at, 8) ||
	    !read_local(w, i, lane, 2, &call.next, 8))
		return false;
	if (!at)
		return true;
	if (!read_text(w, i, lane, at, format, sizeof(format)) ||
	    !print(&call, format, text, sizeof(text)))
		return false;
	keep(w, text);
	emu_prints_add(emu_machine_of(w)->prints, w->cta->cluster->index, text);
	*count = (int32_t)call.count;
	return true;
}

/* result, format, arguments: the result is the number of the latter. */
static void run_printf(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t *result = emu_row(w, &i->operand[0]);

	EMU_EACH_LANE(l)
	{
		int32_t count;
		uint8_t *to;

		if (!(lanes >> l & 1))
			continue;
		if (!print_lane(w, i, l, &count))
			return;
		to = emu_access(w, i, l, EMU_LOCAL, result[l], 4, EMU_WRITE, NULL);
		if (!to)
			return;
		memcpy(to, &count, sizeof(count));
	}
}

bool emu_bind_printf(struct emu_bind *b)
{
	b->i->run = run_printf;
	return bind_offsets(b, 3);
}

/* ---- assert ---------------------------------------------------------------- */

/* message, file, line, function, size of a character */
static void run_assertfail(struct emu_warp *w, const struct emu_instr *i,
			   uint32_t lanes)
{
	const int lane = __builtin_ctz(lanes);
	uint64_t message = 0, file = 0, function = 0;
	uint32_t line = 0;
	char what[200] = "", where[200] = "", who[200] = "";

	if (read_local(w, i, lane, 0, &message, 8) &&
	    read_local(w, i, lane, 1, &file, 8) &&
	    read_local(w, i, lane, 2, &line, 4) &&
	    read_local(w, i, lane, 3, &function, 8) &&
	    read_text(w, i, lane, message, what, sizeof(what)) &&
	    read_text(w, i, lane, file, where, sizeof(where)) &&
	    read_text(w, i, lane, function, who, sizeof(who)))
		emu_fault(w, i, lane, "%s:%u: %s: assertion `%s' failed", where, line,
			  who, what);
}

bool emu_bind_assertfail(struct emu_bind *b)
{
	b->i->run = run_assertfail;
	return bind_offsets(b, 5);
}

/* ---- malloc and free ------------------------------------------------------- */

/* The address of new memory; 0: the limit of the heap is reached, or none is left. */
static uint64_t allocate(struct emu_machine *m, uint64_t bytes)
{
	const uint64_t limit = m->heap_limit ? m->heap_limit : EMU_HEAP_BYTES;
	uint64_t at = 0;

	if (bytes && bytes <= limit && m->heap_used <= limit - bytes)
		at = emu_memory_alloc(m->memory, bytes, NULL);
	if (!at)
		return 0;
	emu_memory_give_to_kernels(m->memory, at);
	m->heap_used += bytes;
	return at;
}

/* result, size */
static void run_malloc(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	const uint32_t *result = emu_row(w, &i->operand[0]);

	for (; lanes; lanes &= lanes - 1) {
		const int lane = __builtin_ctz(lanes);
		uint64_t bytes = 0, at;
		uint8_t *to;

		if (!read_local(w, i, lane, 1, &bytes, 8))
			return;
		at = allocate(emu_machine_of(w), bytes);
		to =
		    emu_access(w, i, lane, EMU_LOCAL, result[lane], 8, EMU_WRITE, NULL);
		if (!to)
			return;
		memcpy(to, &at, sizeof(at));
	}
	emu_machine_of(w)->effects++;
}

static void run_free(struct emu_warp *w, const struct emu_instr *i, uint32_t lanes)
{
	struct emu_machine *m = emu_machine_of(w);

	for (; lanes; lanes &= lanes - 1) {
		const int lane = __builtin_ctz(lanes);
		char where[200];
		uint64_t at = 0, bytes;

		if (!read_local(w, i, lane, 0, &at, 8))
			return;
		bytes = emu_memory_of_kernels(m->memory, at);
		if (bytes) {
			(void)emu_memory_free(m->memory, at, NULL);
			m->heap_used -= bytes;
		} else if (at) {
			emu_memory_describe(m->memory, at, where, sizeof(where));
			emu_fault(w, i, lane,
				  "free of 0x%llx, which malloc of a kernel did not "
				  "return, or which is free already: %s",
				  (unsigned long long)at, where);
			return;
		}
	}
	m->effects++;
}

/* The heap is common to all clusters. */
static bool bind_heap(struct emu_bind *b, uint32_t count)
{
	b->i->space = EMU_GLOBAL;
	b->i->traits = EMU_STRONG;
	return bind_offsets(b, count);
}

bool emu_bind_malloc(struct emu_bind *b)
{
	b->i->run = run_malloc;
	return bind_heap(b, 2);
}

bool emu_bind_free(struct emu_bind *b)
{
	b->i->run = run_free;
	return bind_heap(b, 1);
}

/* ---- conditional nodes ------------------------------------------------------- */

/* handle, value */
static void run_setconditional(struct emu_warp *w, const struct emu_instr *i,
			       uint32_t lanes)
{
	struct emu_conditional *c;

	EMU_EACH_LANE(l)
	{
		uint64_t handle = 0;
		uint32_t value = 0;

		if (!(lanes >> l & 1))
			continue;
		if (!read_local(w, i, l, 0, &handle, 8) ||
		    !read_local(w, i, l, 1, &value, 4))
			return;
		c = emu_conditional_find(&emu_machine_of(w)->conditionals, handle);
		if (!c) {
			emu_fault(w, i, l,
				  "cudaGraphSetConditional: %llu is not the handle of "
				  "a condition of an existing graph",
				  (unsigned long long)handle);
			return;
		}
		atomic_store_explicit(&c->value, value, memory_order_relaxed);
	}
}

bool emu_bind_setconditional(struct emu_bind *b)
{
	b->i->run = run_setconditional;
	return bind_offsets(b, 2);
}
