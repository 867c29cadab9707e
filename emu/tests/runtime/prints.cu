/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prints.cu - printf in kernels: once the program has waited, the text is on
 * standard output, after what the host printed before.  The host prints the same
 * with its own printf to standard error, so that the two can be compared.
 */
#include <cuda_runtime.h>
#include <stdio.h>

/* One list of arguments for both sides. */
#define PRINT(print, n)                                                                \
	print("%d of %u: %5d|%-5d|%05d|%+d %x %X %#x %o %hd %c%%\n", -n, 7u, n, n, n,  \
	      n, 255u, 255u, 255u, 8u, (short)-3, 'c'),                                \
	    print("%lld %llu %llx %ld %lx %zu\n", -5000000000ll,                       \
		  18446744073709551615ull, 81985529216486895ll, -6l, 7l, (size_t)8),   \
	    print("%f %.3f %8.2f|%-8.1f|%e %.2E %g %G %a\n", 0.5 * n, 1.0 / 3, -2.25,  \
		  3.75, 1e10, 1e-10, 1e20, 0.0001, 1.0),                               \
	    print("%s|%6s|%-6s|%.2s|%*d|%.*f\n", "text", "abc", "def", "cut", 6, n, 2, \
		  3.14159),                                                            \
	    print("%0*d|%-*d|%.*s\n", 7, n, -4, n, 2, "precision"),                    \
	    print("%4000d\n", n), print("no argument %%\n"), print("")

#define TO_STDERR(...) fprintf(stderr, __VA_ARGS__)

__global__ void print_all(int *counts)
{
	const int n = 3;

	PRINT(printf, n);
	counts[0] = printf("%d %d %s\n", 1, 2, "three");
	counts[1] = printf("four\n") + 100 * printf((const char *)nullptr);
}

__global__ void print_much(void)
{
	printf("%04d\n", blockIdx.x);
}

int main()
{
	int *counts, host[2] = {0};

	cudaMalloc(&counts, sizeof(host));
	if (cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 6000))
		return 1;
	print_all<<<1, 1>>>(counts);
	printf("before\n");
	if (cudaMemcpy(host, counts, sizeof(host), cudaMemcpyDeviceToHost))
		return 1;
	printf("counts %d %d\n", host[0], host[1]);
	/* The buffer holds the last 1200 lines. */
	print_much<<<1900, 1>>>();
	if (cudaDeviceSynchronize())
		return 1;
	/* Its size is fixed once a kernel has printed. */
	if (!cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 1 << 20))
		return 1;

	TO_STDERR("before\n");
	PRINT(TO_STDERR, 3);
	TO_STDERR("1 2 three\nfour\n");
	TO_STDERR("counts 3 -100\n");
	for (int k = 700; k < 1900; k++)
		TO_STDERR("%04d\n", k);
	return 0;
}
