/* SPDX-License-Identifier: Apache-2.0 */
/* other_format.c - files that are not safetensors: see other_format.h. */
#include "other_format.h"

#include <string.h>

#define GGUF                                                                           \
	"a GGUF file: run it by llama.cpp with nibblas's backend "                     \
	"(docs/ggml.md), or quantise the original model"
#define PICKLE                                                                         \
	"a pickle of PyTorch: load it there and save it by "                           \
	"safetensors.torch.save_file()"

static const struct {
	const char *begin; /* the first bytes of the file */
	const char *end;   /* of its name; NULL: the name does not tell */
	const char *meaning;
} formats[] = {
    {"GGUF", ".gguf", GGUF},
    {"PK\3\4", ".pt", PICKLE}, /* torch.save(), a zip */
    {"\x80\2", ".bin", PICKLE},
    {"\x80\3", ".pth", PICKLE},
    {"\x80\4", ".ckpt", PICKLE},
    {"\x80\5", ".pkl", PICKLE},
    {"version https://git-lfs", NULL,
     "a pointer of Git LFS: fetch the file by git lfs pull"},
    {"<", NULL, "HTML or XML, as a failed download leaves it"},
    {"ftrt", ".engine", "a TensorRT engine: use the model it was built from"},
};
#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

const char *nib_other_format(const void *bytes, size_t n_bytes)
{
	for (size_t i = 0; i < N_FORMATS; i++) {
		const size_t n = strlen(formats[i].begin);

		if (n_bytes >= n && !memcmp(bytes, formats[i].begin, n))
			return formats[i].meaning;
	}
	return NULL;
}

const char *nib_other_format_named(const char *name)
{
	const size_t length = strlen(name);

	for (size_t i = 0; i < N_FORMATS; i++) {
		const size_t n = formats[i].end ? strlen(formats[i].end) : 0;

		if (n && length > n && !strcmp(name + length - n, formats[i].end))
			return formats[i].meaning;
	}
	return NULL;
}
