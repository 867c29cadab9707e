/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fail_alloc.c - a library for LD_PRELOAD that makes allocation number
 * $FAIL_ALLOC of a program fail, counted from 1, by emu/tests/common/alloc.c.  At
 * the end it writes "failed" or "no such allocation" into $FAIL_ALLOC_REPORT.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emu/tests/common/alloc.h"

__attribute__((constructor)) static void begin(void)
{
	const char *number = getenv("FAIL_ALLOC");

	if (number)
		test_alloc_fail(strtol(number, NULL, 10), TEST_ALLOC_ONE);
}

__attribute__((destructor)) static void end(void)
{
	const char *path = getenv("FAIL_ALLOC_REPORT");
	const char *text = test_alloc_stop() ? "failed" : "no such allocation";
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;

	if (fd >= 0) {
		(void)!write(fd, text, strlen(text));
		close(fd);
	}
}
