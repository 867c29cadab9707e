/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_header.h - declared.h by CUDA's own cuda.h; count 0 without that file.
 */
#ifndef EMU_TESTS_CUDA_HEADER_H
#define EMU_TESTS_CUDA_HEADER_H

int cuda_header_count(void);
long long cuda_header_value(int i);
/* What the header makes of names whose suffix changes with versions. */
extern const char *const cuda_header_names[];

#endif
