/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - status names and messages. */
#include "error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef nib_fail
#undef nib_fail_argument
#undef nib_fail_at

/* Removes a UTF-8 character that was cut at the end of text. */
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

/* The message is the argument, as far as it fits, and the formatted text. */
__attribute__((format(printf, 4, 0))) static void fill(struct nib_error *err,
						       enum nib_status status,
						       const char *argument,
						       const char *format, va_list args)
{
	const size_t capacity = sizeof(err->message);
	int length;
	size_t at;

	err->status = status;
	snprintf(err->argument, sizeof(err->argument), "%s", argument);
	at = strlen(err->argument);
	memcpy(err->message, err->argument, at);
	length = vsnprintf(err->message + at, capacity - at, format, args);
	if (length >= (int)(capacity - at))
		trim_character(err->message, capacity - 1);
	memset(err->reserved, 0, sizeof(err->reserved));
}

enum nib_status nib_fail(struct nib_error *err, enum nib_status status,
			 const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (err)
		fill(err, status, "", format, args);
	va_end(args);
	return status;
}

enum nib_status nib_fail_argument(struct nib_error *err, enum nib_status status,
				  const char *argument, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (err)
		fill(err, status, argument, format, args);
	va_end(args);
	return status;
}

/* What does not fit is cut. */
static void write_label(struct nib_label label, const char *member,
			struct nib_label_text *text)
{
	const char *array = label.array ? label.array : "";
	const char *dot = label.array && *label.field ? "." : "";
	const char *member_dot = *member ? "." : "";
	const size_t bytes = sizeof(text->text);
	int length;

	if (label.array && label.index >= 0)
		length = snprintf(text->text, bytes, "%s[%" PRId64 "]%s%s%s%s", array,
				  label.index, dot, label.field, member_dot, member);
	else
		length = snprintf(text->text, bytes, "%s%s%s%s%s", array, dot,
				  label.field, member_dot, member);
	if (length >= (int)bytes)
		trim_character(text->text, bytes - 1);
}

const char *nib_label_write(struct nib_label label, struct nib_label_text *text)
{
	write_label(label, "", text);
	return text->text;
}

enum nib_status nib_fail_at(struct nib_error *err, enum nib_status status,
			    struct nib_label label, const char *member,
			    const char *format, ...)
{
	struct nib_label_text text;
	va_list args;

	va_start(args, format);
	if (err) {
		write_label(label, member, &text);
		fill(err, status, text.text, format, args);
	}
	va_end(args);
	return status;
}

void nib_error_rename(struct nib_error *err, const char *argument)
{
	struct nib_error old;

	if (!err)
		return;
	old = *err;
	nib_fail_argument(err, old.status, argument, "%s",
			  old.message + strlen(old.argument));
}

const char *nib_status_name(enum nib_status status)
{
	switch (status) {
	case NIB_STATUS_OK:
		return "ok";
	case NIB_STATUS_BAD_ARGUMENT:
		return "bad argument";
	case NIB_STATUS_UNSUPPORTED:
		return "unsupported";
	case NIB_STATUS_OUT_OF_MEMORY:
		return "out of memory";
	case NIB_STATUS_NO_DEVICE:
		return "no device";
	case NIB_STATUS_BAD_DATA:
		return "bad data";
	case NIB_STATUS_BAD_FILE:
		return "bad file";
	case NIB_STATUS_IO:
		return "input/output error";
	case NIB_STATUS_DEVICE_FAILED:
		return "device failed";
	}
	return "unknown status";
}

#define STRING(x)		     #x
#define VERSION(major, minor, patch) STRING(major) "." STRING(minor) "." STRING(patch)

const char *nib_version(void)
{
	return VERSION(NIB_VERSION_MAJOR, NIB_VERSION_MINOR, NIB_VERSION_PATCH);
}
