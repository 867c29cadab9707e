/* SPDX-License-Identifier: Apache-2.0 */
/* error.h - how every function of the library fails. */
#ifndef NIB_ERROR_H
#define NIB_ERROR_H

#include "nibblas.h"

/*
 * Writes status and the formatted message (cut to fit, between two
 * characters) into err, which may be NULL, and returns status:
 *	return nib_fail(err, NIB_BAD_ARGUMENT, "...", ...);
 */
__attribute__((format(printf, 3, 4))) enum nib_status
nib_fail(struct nib_error *err, enum nib_status status, const char *format,
	 ...);

/* The analyzer sees one file at a time: tell it that status is returned. */
#ifdef __clang_analyzer__
#define nib_fail(err, status, ...) (nib_fail(err, status, __VA_ARGS__), status)
#endif

#endif
