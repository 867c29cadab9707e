/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common/arguments.h - helpers of the tests of refused arguments, test_arguments*.c:
 * one device, one stream of random numbers, and the check of a refusal.
 */
#ifndef NIB_TESTS_COMMON_ARGUMENTS_H
#define NIB_TESTS_COMMON_ARGUMENTS_H

#include "problem.h"

extern struct rng rng;
extern struct nib_device *device; /* scalar, two threads */

/* A group's setup and teardown. */
int open_device(void **state);
int close_device(void **state);

/*
 * status is want, and so is err's; its message has all three texts and begins
 * with err's argument.
 */
void refused(enum nib_status status, enum nib_status want, const struct nib_error *err,
	     const char *argument, const char *value, const char *rule);

#endif
