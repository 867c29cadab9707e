/* SPDX-License-Identifier: Apache-2.0 */
/* records.c - see records.h.  The library writes one flat object in each line. */
#include "records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One character of a text; *at then points after it. */
static char take_character(const char **at)
{
	char digits[5] = "";
	const char c = *(*at)++;

	if (c != '\\' || !**at)
		return c;
	switch (*(*at)++) {
	case 'n':
		return '\n';
	case 'u':
		strncpy(digits, *at, 4);
		*at += strlen(digits);
		return (char)strtoul(digits, NULL, 16);
	default:
		return (*at)[-1];
	}
}

/*
 * The text of a name, to be freed.  Quotes in texts are escaped, so the quoted name
 * can be searched for directly.
 */
static char *take_text(const char *line, const char *name)
{
	char *text = calloc(1, strlen(line) + 1);
	char start[32];
	const char *at;
	size_t used = 0;

	snprintf(start, sizeof(start), "\"%s\":\"", name);
	at = strstr(line, start);
	if (!at || !text)
		return text;
	at += strlen(start);
	while (*at && *at != '"')
		text[used++] = take_character(&at);
	text[used] = '\0';
	return text;
}

static void free_record(struct record *r)
{
	free(r->line);
	free(r->kind);
	free(r->rule);
	free(r->kernel);
	free(r->place);
	free(r->text);
}

static bool add(struct records *r, const char *line)
{
	struct record *list = realloc(r->list, (r->count + 1) * sizeof(*r->list));
	struct record *one;

	if (!list)
		return false;
	r->list = list;
	one = &list[r->count++];
	*one = (struct record){.line = strdup(line),
			       .kind = take_text(line, "kind"),
			       .rule = take_text(line, "rule"),
			       .kernel = take_text(line, "kernel"),
			       .place = take_text(line, "place"),
			       .text = take_text(line, "text"),
			       .is_waived = strstr(line, ",\"waived\":true,") != NULL};
	return one->line && one->kind && one->rule && one->kernel && one->place &&
	       one->text;
}

bool records_read(struct records *r, const char *path)
{
	FILE *file = fopen(path, "re");
	char *line = NULL;
	size_t size = 0;
	ssize_t length;
	bool ok = true;

	*r = (struct records){0};
	if (!file)
		return true;
	while (ok && (length = getline(&line, &size, file)) > 0) {
		/* A program that was killed may have left half a line. */
		if (length < 3 || strcmp(line + length - 2, "}\n") != 0)
			continue;
		line[length - 1] = '\0';
		ok = add(r, line);
	}
	free(line);
	fclose(file);
	return ok;
}

void records_free(struct records *r)
{
	for (size_t i = 0; i < r->count; i++)
		free_record(&r->list[i]);
	free(r->list);
	*r = (struct records){0};
}

const struct record *records_find(const struct records *r, const char *kind)
{
	for (size_t i = 0; i < r->count; i++)
		if (strcmp(r->list[i].kind, kind) == 0)
			return &r->list[i];
	return NULL;
}

bool record_is_report(const struct record *r)
{
	return strcmp(r->kind, "report") == 0;
}

const struct record *records_first_report(const struct records *r)
{
	for (size_t i = 0; i < r->count; i++)
		if (record_is_report(&r->list[i]) && !r->list[i].is_waived)
			return &r->list[i];
	return NULL;
}
