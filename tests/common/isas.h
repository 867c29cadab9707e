/* SPDX-License-Identifier: Apache-2.0 */
/* common/isas.h - a device of each instruction set, for all tests of a group. */
#ifndef NIB_TESTS_COMMON_ISAS_H
#define NIB_TESTS_COMMON_ISAS_H

#include "data.h"

/* Three threads each; NULL where the machine lacks the instruction set. */
extern struct nib_device *devices[TEST_ISAS];
/* A group's setup and teardown. */
int open_devices(void **state);
int close_devices(void **state);

#endif
