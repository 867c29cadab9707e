/* SPDX-License-Identifier: Apache-2.0 */
/*
 * common/stub_backend.h - a device whose backend accepts every plan, computes nothing
 * and records the arguments of a run.  It is for tests of what the API layer checks and
 * passes on, also for problems that no backend has kernels for.  No operand is touched.
 */
#ifndef NIB_TESTS_COMMON_STUB_BACKEND_H
#define NIB_TESTS_COMMON_STUB_BACKEND_H

#include <stdbool.h>

#include "nibblas.h"

#define STUB_PROBLEMS 4

/* What the last run of any such device was given, resolved. */
struct stub {
	int runs;
	bool is_repeated;
	struct nib_problem problems[STUB_PROBLEMS];
	struct nib_moe_problem moe;
};
extern struct stub stub;

/*
 * is_host: its data is host memory, as a CPU's; else runs go the way of a
 * GPU's, which compares them with the last one.  Closed by nib_device_close().
 */
struct nib_device *stub_open(bool is_host);

#endif
