/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_header.h - the numbers of declared.h from CUDA's own cuda.h; count 0 without it.
 */
#ifndef EMU_TESTS_CUDA_HEADER_H
#define EMU_TESTS_CUDA_HEADER_H

int cuda_header_count(void);
long long cuda_header_value(int i);
/* The header's definitions of names whose suffix changes with versions. */
extern const char *const cuda_header_names[];

#endif
