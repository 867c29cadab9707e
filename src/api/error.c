/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - status names and messages; no state. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

#undef nib_fail

enum nib_status nib_fail(struct nib_error *err, enum nib_status status,
			 const char *format, ...)
{
	if (err) {
		va_list args;

		err->status = status;
		va_start(args, format);
		vsnprintf(err->message, sizeof(err->message), format, args);
		va_end(args);
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
