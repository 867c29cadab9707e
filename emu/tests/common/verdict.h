/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict.h - compares what the checkers of the software GPU report for a step
 * with what they must report.  The test has a struct emu_error called err.
 */
#ifndef EMU_TESTS_VERDICT_H
#define EMU_TESTS_VERDICT_H

/* GOOD: a call that must not object.  BAD: one that must, with a text. */
#define GOOD(call)                                                                     \
	do {                                                                           \
		if (!(call))                                                           \
			fail_msg("%s: %s", #call, err.text);                           \
	} while (0)
#define BAD(call, part)                                                                \
	do {                                                                           \
		err.text[0] = 0;                                                       \
		assert_false(call);                                                    \
		if (!strstr(err.text, part))                                           \
			fail_msg("\"%s\" does not say \"%s\"", err.text, part);        \
	} while (0)

#endif
