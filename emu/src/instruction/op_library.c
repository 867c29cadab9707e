/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_library.c - the functions of CUDA's run-time library that kernels call:
 * vprintf, whose text a later trap reports, and __assertfail.  Their arguments
 * are offsets in the thread's local memory, where the call has stored them.
 */
#include <stdio.h>
#include <string.h>

#include "instruction/binds.h"
#include "machine/access.h"
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
	const uint8_t *from = emu_access(w, i, lane, EMU_LOCAL, offset[lane],
					 bytes, EMU_READ, NULL);

	if (from)
		memcpy(to, from, bytes);
	return from;
}

/* A string that a lane points to, cut to size; false after a fault. */
static bool read_text(struct emu_warp *w, const struct emu_instr *i, int lane,
		      uint64_t address, char *to, size_t size)
{
	for (size_t n = 0; n + 1 < size; n++) {
		const uint8_t *from = emu_access(
		    w, i, lane, EMU_GENERIC, address + n, 1, EMU_READ, NULL);

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

/* What a conversion's argument is: a letter of printf, and its bytes. */
struct conversion {
	char text[16]; /* %5.2f, without l and h */
	char letter;
	uint32_t bytes;
};

/* From behind '%' to behind its letter. */
static const char *parse_conversion(const char *at, struct conversion *c)
{
	uint32_t used = 0;

	memset(c, 0, sizeof(*c));
	c->bytes = 4;
	c->text[used++] = '%';
	for (; *at && strchr("-+ #0123456789.lhz", *at); at++) {
		if (*at == 'l' || *at == 'z')
			c->bytes = 8;
		else if (*at != 'h' && used < 10)
			c->text[used++] = *at;
	}
	c->letter = *at;
	if (strchr("eEfFgGaA", c->letter) || c->letter == 's' ||
	    c->letter == 'p')
		c->bytes = 8;
	if (c->bytes == 8 && strchr("diuxXo", c->letter)) {
		c->text[used++] = 'l';
		c->text[used++] = 'l';
	}
	c->text[used] = c->letter;
	return *at ? at + 1 : at;
}

/* The format is the conversion's own, which parse_conversion has made. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void print_number(const struct conversion *c, uint64_t bits, char *to,
			 size_t size)
{
	double x;

	memcpy(&x, &bits, sizeof(x));
	if (strchr("eEfFgGaA", c->letter))
		snprintf(to, size, c->text, x);
	else if (c->letter == 'p')
		snprintf(to, size, "%#llx", (unsigned long long)bits);
	else if (c->bytes == 8)
		snprintf(to, size, c->text, (long long)bits);
	else
		snprintf(to, size, c->text, (int)bits);
}
#pragma GCC diagnostic pop

/* Takes the argument at *address, which goes on behind it. */
static bool print_argument(struct emu_warp *w, const struct emu_instr *i,
			   int lane, const struct conversion *c,
			   uint64_t *address, char *to, size_t size)
{
	const uint64_t at = (*address + c->bytes - 1) / c->bytes * c->bytes;
	const uint8_t *from =
	    emu_access(w, i, lane, EMU_GENERIC, at, c->bytes, EMU_READ, NULL);
	uint64_t bits = 0;

	if (!from)
		return false;
	memcpy(&bits, from, c->bytes);
	*address = at + c->bytes;
	if (c->letter == 's')
		return read_text(w, i, lane, bits, to, size);
	if (!strchr("diuxXoceEfFgGaAp", c->letter))
		return true;
	print_number(c, bits, to, size);
	return true;
}

static bool print(struct emu_warp *w, const struct emu_instr *i, int lane,
		  const char *format, uint64_t arguments)
{
	size_t used = 0;

	while (*format && used + 1 < sizeof(w->printed)) {
		char *to = w->printed + used;
		const size_t size = sizeof(w->printed) - used;
		struct conversion c;

		to[0] = *format == '\n' ? ' ' : *format;
		to[1] = '\0';
		if (*format++ == '%' && *format != '%') {
			to[0] = '\0';
			format = parse_conversion(format, &c);
			if (!print_argument(w, i, lane, &c, &arguments, to,
					    size))
				return false;
		} else if (to[0] == '%') {
			format++;
		}
		used += strlen(to);
	}
	return true;
}

/* result, format, arguments: the result is the number of the latter. */
static void run_printf(struct emu_warp *w, const struct emu_instr *i,
		       uint32_t lanes)
{
	const uint32_t *result = emu_row(w, &i->operand[0]);

	EMU_EACH_LANE(l)
	{
		const uint32_t zero = 0;
		uint64_t format = 0, arguments = 0;
		char text[400] = "";
		uint8_t *to;

		if (!(lanes >> l & 1))
			continue;
		if (!read_local(w, i, l, 1, &format, 8) ||
		    !read_local(w, i, l, 2, &arguments, 8) ||
		    !read_text(w, i, l, format, text, sizeof(text)) ||
		    !print(w, i, l, text, arguments))
			return;
		to = emu_access(w, i, l, EMU_LOCAL, result[l], 4, EMU_WRITE,
				NULL);
		if (!to)
			return;
		memcpy(to, &zero, sizeof(zero));
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
		emu_fault(w, i, lane, "%s:%u: %s: assertion `%s' failed", where,
			  line, who, what);
}

bool emu_bind_assertfail(struct emu_bind *b)
{
	b->i->run = run_assertfail;
	return bind_offsets(b, 5);
}
