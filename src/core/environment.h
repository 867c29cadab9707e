/* SPDX-License-Identifier: Apache-2.0 */
/* environment.h - variables that choose code: a set-user-ID process ignores them. */
#ifndef NIB_ENVIRONMENT_H
#define NIB_ENVIRONMENT_H

#include <stdlib.h>
#if defined(__APPLE__)
#include <unistd.h>
#endif

/* As secure_getenv() of glibc: NULL in a process with more rights than its user. */
static inline const char *nib_secure_getenv(const char *name)
{
#if defined(__APPLE__)
	return issetugid() ? NULL : getenv(name);
#else
	return secure_getenv(name);
#endif
}

#endif
