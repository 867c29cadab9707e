/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - UTF-8, and names and paths in one-line messages. */
#include "text.h"

#include <errno.h>
#include <string.h>

#include "core/error.h"

size_t nib_utf8_char_bytes(const char *text, size_t n_bytes)
{
	const unsigned char *c = (const unsigned char *)text;
	unsigned low = 0x80, high = 0xBF;
	size_t length;

	if (n_bytes == 0)
		return 0;
	if (c[0] < 0x80)
		return 1;
	if (c[0] < 0xC2 || c[0] > 0xF4)
		return 0;
	length = c[0] < 0xE0 ? 2 : c[0] < 0xF0 ? 3 : 4;
	if (length > n_bytes)
		return 0;
	/* The second byte rules out overlong forms, surrogates, > U+10FFFF. */
	if (c[0] == 0xE0)
		low = 0xA0;
	else if (c[0] == 0xED)
		high = 0x9F;
	else if (c[0] == 0xF0)
		low = 0x90;
	else if (c[0] == 0xF4)
		high = 0x8F;
	if (c[1] < low || c[1] > high)
		return 0;
	for (size_t i = 2; i < length; i++) {
		if ((c[i] & 0xC0) != 0x80)
			return 0;
	}
	return length;
}

/*
 * C0, DEL and C1, which could move a terminal's cursor, and the bidirectional
 * controls, which can disguise a name: U+061C, U+200E, U+200F, U+202A to U+202E,
 * U+2066 to U+2069.
 */
static int is_control(const char *text, size_t length)
{
	const unsigned char *c = (const unsigned char *)text;

	if (length == 1)
		return c[0] < 0x20 || c[0] == 0x7F;
	if (length == 2)
		return (c[0] == 0xC2 && c[1] < 0xA0) || (c[0] == 0xD8 && c[1] == 0x9C);
	if (length != 3 || c[0] != 0xE2)
		return 0;
	if (c[1] == 0x80)
		return c[2] == 0x8E || c[2] == 0x8F || (c[2] >= 0xAA && c[2] <= 0xAE);
	return c[1] == 0x81 && c[2] >= 0xA6 && c[2] <= 0xA9;
}

/* Returns the bytes written before the NUL; stops at a whole character. */
static size_t show(char *shown, size_t capacity, const char *text, size_t n_bytes)
{
	size_t used = 0;

	while (n_bytes > 0) {
		size_t length = nib_utf8_char_bytes(text, n_bytes);
		int hide = length == 0 || is_control(text, length);

		if (length == 0)
			length = 1;
		if (used + (hide ? 1 : length) >= capacity)
			break;
		if (hide) {
			shown[used++] = '?';
		} else {
			memcpy(shown + used, text, length);
			used += length;
		}
		text += length;
		n_bytes -= length;
	}
	shown[used] = '\0';
	return used;
}

const char *nib_show_name(char shown[NIB_SHOWN_BYTES], const char *name)
{
	size_t length = strlen(name);
	size_t used;

	if (length < NIB_SHOWN_BYTES) {
		show(shown, NIB_SHOWN_BYTES, name, length);
		return shown;
	}
	used = show(shown, NIB_SHOWN_BYTES - 3, name, length);
	memcpy(shown + used, "...", 4);
	return shown;
}

const char *nib_show_path(char shown[NIB_SHOWN_BYTES], const char *path)
{
	size_t length = strlen(path);
	size_t skip;

	if (length < NIB_SHOWN_BYTES) {
		show(shown, NIB_SHOWN_BYTES, path, length);
		return shown;
	}
	skip = length - (NIB_SHOWN_BYTES - 4);
	while (((unsigned char)path[skip] & 0xC0) == 0x80)
		skip++;
	shown[0] = shown[1] = shown[2] = '.';
	show(shown + 3, NIB_SHOWN_BYTES - 3, path + skip, length - skip);
	return shown;
}

enum nib_status nib_fail_errno(struct nib_error *err, const char *path,
			       const char *verb, int code)
{
	char shown[NIB_SHOWN_BYTES];

	return nib_fail(err, code == ENOMEM ? NIB_STATUS_OUT_OF_MEMORY : NIB_STATUS_IO,
			"%s: cannot %s: %s", nib_show_path(shown, path), verb,
			strerror(code));
}
