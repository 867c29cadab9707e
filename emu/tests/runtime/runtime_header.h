/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_header.h - numbers of CUDA's cuda_runtime_api.h; none: it is not here. */
#ifndef EMU_TESTS_RUNTIME_HEADER_H
#define EMU_TESTS_RUNTIME_HEADER_H

int runtime_header_count(void);
long long runtime_header_value(int i);

#endif
