/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - main() of a fuzz program that is built without libFuzzer.  Runs each
 * file of the folders in its arguments once, and prints TAP.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static int run_file(const char *folder, const char *name)
{
	char path[4096];
	size_t n_bytes;
	uint8_t *data;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "rb");
	if (!file) {
		perror(path);
		return 1;
	}
	data = malloc(MAX_FILE_BYTES);
	if (!data) {
		fclose(file);
		return 1;
	}
	n_bytes = fread(data, 1, MAX_FILE_BYTES, file);
	fclose(file);
	/* A block of exactly n_bytes, so that memcheck sees a read past it. */
	if (n_bytes > 0) {
		uint8_t *exact = realloc(data, n_bytes);

		data = exact ? exact : data;
	}
	LLVMFuzzerTestOneInput(data, n_bytes);
	free(data);
	return 0;
}

int main(int argc, char **argv)
{
	int files = 0, failed = 0;

	for (int i = 1; i < argc; i++) {
		DIR *folder = opendir(argv[i]);
		struct dirent *entry;

		if (!folder) {
			perror(argv[i]);
			return 1;
		}
		while ((entry = readdir(folder))) {
			int bad;

			if (entry->d_name[0] == '.')
				continue;
			bad = run_file(argv[i], entry->d_name);
			failed += bad;
			printf("%sok %d - %s\n", bad ? "not " : "", ++files,
			       entry->d_name);
			fflush(stdout);
		}
		closedir(folder);
	}
	if (files == 0)
		fprintf(stderr, "no files to run\n");
	return failed || files == 0;
}
