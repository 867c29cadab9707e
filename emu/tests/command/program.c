/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.c - a program for tests of `nibemu run` that need no kernel:
 *
 *	program opens | exits N | signals N | prints LINES | hangs FILE
 *
 * opens: opens libcuda.so.1, and runs nothing.  hangs: hangs, with a child that also
 * hangs; both ignore SIGTERM and write their ids to FILE.
 *
 * With PROGRAM_MARK it contains a text of NVIDIA's runtime library, like programs
 * that nvcc has linked with -cudart static.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef PROGRAM_MARK
const char mark[] = "cudaErrorCudartUnloading";
#endif

static int open_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	void *symbol = library ? dlsym(library, "cuInit") : NULL;
	int (*init)(unsigned) = NULL;

	memcpy(&init, &symbol, sizeof(init));
	if (!init) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	return init(0);
}

static int hang(const char *path)
{
	FILE *file;
	pid_t child;

	signal(SIGTERM, SIG_IGN);
	child = fork();
	if (child != 0) {
		file = fopen(path, "a");
		if (!file)
			return 1;
		fprintf(file, "%d %d\n", (int)getpid(), (int)child);
		fclose(file);
	}
	for (;;)
		pause();
}

int main(int count, char **words)
{
	const char *word = count > 1 ? words[1] : "";
	const char *value = count > 2 ? words[2] : "0";

#ifdef PROGRAM_MARK
	printf("%s\n", mark);
#endif
	if (strcmp(word, "opens") == 0)
		return open_cuda();
	if (strcmp(word, "exits") == 0)
		return open_cuda() ? 99 : atoi(value);
	if (strcmp(word, "signals") == 0)
		return open_cuda() ? 99 : raise(atoi(value));
	if (strcmp(word, "hangs") == 0)
		return hang(value);
	for (int i = 1; strcmp(word, "prints") == 0 && i <= atoi(value); i++)
		printf("line %d of %s\n", i, value);
	return 0;
}
