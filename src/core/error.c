/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - status names and messages; no state. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

#undef nib_fail

/* A text that was cut may end inside a UTF-8 character: takes that off, too. */
static void trim_character(char *text, size_t length)
{
	size_t tail = 0, whole = 1;
	unsigned char lead;

	while (tail < 3 && tail < length &&
	       ((unsigned char)text[length - 1 - tail] & 0xC0) == 0x80)
		tail++;
	if (tail == length)
		return;
	lead = (unsigned char)text[length - 1 - tail];
	if (lead >= 0xF0)
		whole = 4;
	else if (lead >= 0xE0)
		whole = 3;
	else if (lead >= 0xC0)
		whole = 2;
	if (1 + tail < whole)
		text[length - 1 - tail] = '\0';
}

enum nib_status nib_fail(struct nib_error *err, enum nib_status status,
			 const char *format, ...)
{
	if (err) {
		va_list args;
		int length;

		err->status = status;
		va_start(args, format);
		length =
		    vsnprintf(err->message, sizeof(err->message), format, args);
		va_end(args);
		if (length >= (int)sizeof(err->message))
			trim_character(err->message, sizeof(err->message) - 1);
	}
	return status;
}

const char *nib_status_name(enum nib_status status)
{
	switch (status) {
	case NIB_OK:
		return "ok";
	case NIB_BAD_ARGUMENT:
		return "bad argument";
	case NIB_UNSUPPORTED:
		return "unsupported";
	case NIB_OUT_OF_MEMORY:
		return "out of memory";
	case NIB_NO_DEVICE:
		return "no device";
	case NIB_BAD_DATA:
		return "bad data";
	case NIB_BAD_FILE:
		return "bad file";
	case NIB_IO:
		return "input/output error";
	case NIB_DEVICE_FAILED:
		return "device failed";
	}
	return "unknown status";
}

#define STRING(x) #x
#define VERSION(major, minor, patch)                                           \
	STRING(major) "." STRING(minor) "." STRING(patch)

const char *nib_version(void)
{
	return VERSION(NIB_VERSION_MAJOR, NIB_VERSION_MINOR, NIB_VERSION_PATCH);
}
