/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multiply.c - a program outside the tree: prints the version of the installed library
 * and computes one product whose result is known.
 */
#include <nibblas.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	/* Sixteen ones times sixteen twos, scales 1: 32. */
	unsigned char a_codes[8], b_codes[8], one = 0x38;
	float c = 0;
	struct nib_problem problem = {
	    .a = {.codes = a_codes, .scales = &one, .rows = 1, .k = 16},
	    .b = {.codes = b_codes, .scales = &one, .rows = 1, .k = 16},
	    .c = {.data = &c, .dtype = NIB_DTYPE_FP32, .rows = 1, .cols = 1},
	};
	struct nib_device *device;
	struct nib_error err;

	memset(a_codes, 0x22, sizeof(a_codes));
	memset(b_codes, 0x44, sizeof(b_codes));
	if (nib_device_open("cpu", NULL, &device, &err) ||
	    nib_multiply(device, NIB_OP_GEMM, &problem, 1, &err)) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	nib_device_close(device);
	printf("%s %g\n", nib_version(), (double)c);
	return c == 32.0f ? 0 : 1;
}
