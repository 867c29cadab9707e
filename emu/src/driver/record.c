/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - see record.h. */
#include "driver/record.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/state.h"
#include "machine/report.h"

/* ,"name":"text" */
static void put_text(FILE *to, const char *name, const char *text, size_t length)
{
	fprintf(to, ",\"%s\":\"", name);
	for (size_t i = 0; i < length; i++) {
		const unsigned char c = (unsigned char)text[i];

		if (c == '"' || c == '\\')
			fprintf(to, "\\%c", c);
		else if (c == '\n')
			fputs("\\n", to);
		else if (c < ' ')
			fprintf(to, "\\u%04x", c);
		else
			fputc(c, to);
	}
	fputc('"', to);
}

/* A line is built in memory, so that one write appends all of it. */
struct line {
	const char *path;
	FILE *to;
	char *text;
	size_t bytes;
};

/* False: no line is wanted. */
static bool begin_line(struct line *l, const char *kind)
{
	*l = (struct line){.path = secure_getenv("NIBEMU_REPORTS")};
	if (l->path && *l->path)
		l->to = open_memstream(&l->text, &l->bytes);
	if (l->to)
		fprintf(l->to, "{\"kind\":\"%s\",\"seed\":%" PRIu64, kind,
			emu_driver.machine.options.seed);
	return l->to;
}

/*
 * A file that cannot be written is not an error of the program.  Its reader notices
 * that "begin" is missing.
 */
static void end_line(struct line *l)
{
	int file;

	fputs("}\n", l->to);
	if (fclose(l->to))
		return;
	file = open(l->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	if (file >= 0) {
		(void)!write(file, l->text, l->bytes);
		close(file);
	}
	free(l->text);
}

void emu_record_event(const char *kind, const char *text)
{
	struct line l;

	if (!begin_line(&l, kind))
		return;
	put_text(l.to, "text", text, strlen(text));
	end_line(&l);
}

void emu_record_report(const char *kernel, const char *report, const char *text,
		       const struct emu_rule *rule, bool is_waived, uint64_t count)
{
	const char *name = rule ? rule->name : "", *place;
	size_t length = 0;
	struct line l;

	if (!begin_line(&l, "report"))
		return;
	place = emu_place_in(report, &length);
	put_text(l.to, "rule", name, strlen(name));
	put_text(l.to, "kernel", kernel, strlen(kernel));
	put_text(l.to, "place", place, length);
	fprintf(l.to, ",\"waived\":%s,\"count\":%" PRIu64, is_waived ? "true" : "false",
		count);
	put_text(l.to, "text", text, strlen(text));
	end_line(&l);
}
