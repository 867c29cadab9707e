/* SPDX-License-Identifier: Apache-2.0 */
/* title.c - see title.h. */
#include "machine/title.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text ends where its last pair of parentheses, of the parameters, begins. */
static void cut_parameters(char *text)
{
	size_t at = strlen(text);
	int depth = 0;

	if (at == 0 || text[at - 1] != ')')
		return;
	while (at--) {
		depth += text[at] == ')';
		depth -= text[at] == '(';
		if (depth == 0)
			break;
	}
	if (at > 0 && at < strlen(text))
		text[at] = '\0';
}

/* Removes tags of an ABI, of which Numba gives each function two. */
static void cut_tags(char *text)
{
	char *begin;

	while ((begin = strstr(text, "[abi:"))) {
		const char *end = strchr(begin, ']');

		if (!end)
			return;
		memmove(begin, end + 1, strlen(end + 1) + 1);
	}
}

/* NULL: no C++ name, or no libstdc++. */
static char *demangled(const char *name)
{
	char *(*demangle)(const char *, char *, size_t *, int *) = NULL;
	void *library, *symbol;
	char *text = NULL;
	int status = 0;

	if (strncmp(name, "_Z", 2) != 0)
		return NULL;
	library = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL);
	symbol = library ? dlsym(library, "__cxa_demangle") : NULL;
	memcpy(&demangle, &symbol, sizeof(demangle));
	if (demangle)
		text = demangle(name, NULL, NULL, &status);
	if (library)
		dlclose(library);
	return text;
}

void emu_kernel_title(const char *name, char *text, size_t size)
{
	char *known = demangled(name);
	const char *begin = known ? known : name;

	if (known) {
		cut_parameters(known);
		cut_tags(known);
	}
	/* Only names of templates have the type of the result. */
	if (known && strncmp(begin, "void ", 5) == 0)
		begin += 5;
	if (strlen(begin) < size)
		snprintf(text, size, "%s", begin);
	else
		snprintf(text, size, "%.*s...", (int)size - 4, begin);
	free(known);
}

const char *emu_title_of(const char *name)
{
	static _Thread_local char title[150];

	emu_kernel_title(name, title, sizeof(title));
	return title;
}
