/* SPDX-License-Identifier: Apache-2.0 */
/* real.h - what CUDA's own cuda.h says; count 0 where it is not installed. */
#ifndef NIB_TESTS_REAL_H
#define NIB_TESTS_REAL_H

int real_count(void);
long long real_value(int i);
extern const char *const real_names[];

#endif
