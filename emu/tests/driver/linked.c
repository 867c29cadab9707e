/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linked.c - a program that is linked with -lcuda.  Prints the number of devices of
 * the library that it finds when it starts.  No header of CUDA is needed.
 */
#include <stdio.h>

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);

int main(void)
{
	int count = 0;
	const int result = cuInit(0);

	if (result || cuDeviceGetCount(&count)) {
		printf("cuInit: %d\n", result);
		return 1;
	}
	printf("devices: %d\n", count);
	return 0;
}
