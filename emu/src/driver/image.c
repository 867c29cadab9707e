/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.c - see image.h.  CUDA's fatbinary_section.h describes only the wrapper of
 * fat binaries.  The other fields were found in the output of nvcc 12 and 13, with
 * and without --no-compress.
 */
#include "driver/image.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define WRAPPER_MAGIC 0x466243B1u
#define FATBIN_MAGIC  0xBA55ED50u
#define ELF_MAGIC     0x464C457Fu

/* The structure that cuda_runtime registers. */
struct wrapper {
	uint32_t magic, version;
	const void *data;
	const void *more;
};

struct fatbin {
	uint32_t magic;
	uint16_t version, header_bytes;
	uint64_t bytes; /* of the entries */
};

enum { KIND_PTX = 1, KIND_ELF = 2 };
enum { FLAG_LZ4 = 0x2000, FLAG_ZSTD = 0x8000 };

struct entry {
	uint16_t kind, version;
	uint32_t header_bytes;
	uint64_t padded_bytes;	   /* of what follows the header */
	uint32_t compressed_bytes; /* 0: as it is */
	uint32_t unknown;
	uint16_t minor, major;
	uint32_t sm;
	uint64_t unknown_2;
	uint64_t flags;
	uint64_t unknown_3;
	uint64_t text_bytes; /* once it is not compressed */
};

/* ---- compressed texts ---------------------------------------------------- */

/* Libraries are opened when they are needed, so that building needs none. */
static void *find(const char *library, const char *function)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);

	return handle ? dlsym(handle, function) : NULL;
}

static bool expand_zstd(char *to, size_t to_bytes, const void *from, size_t bytes,
			struct emu_error *err)
{
	size_t (*expand)(void *, size_t, const void *, size_t);
	void *symbol = find("libzstd.so.1", "ZSTD_decompress");

	if (!symbol)
		return emu_fail(err, "its PTX is compressed, and libzstd.so.1 is not "
				     "here: install libzstd, or compile with nvcc "
				     "--no-compress");
	memcpy(&expand, &symbol, sizeof(expand));
	return expand(to, to_bytes, from, bytes) == to_bytes ||
	       emu_fail(err, "its PTX is compressed, and broken");
}

static bool expand_lz4(char *to, size_t to_bytes, const void *from, size_t bytes,
		       struct emu_error *err)
{
	int (*expand)(const char *, char *, int, int);
	void *symbol = find("liblz4.so.1", "LZ4_decompress_safe");

	if (!symbol)
		return emu_fail(err, "its PTX is compressed, and liblz4.so.1 is not "
				     "here: install liblz4, or compile with nvcc "
				     "--no-compress");
	memcpy(&expand, &symbol, sizeof(expand));
	return expand(from, to, (int)bytes, (int)to_bytes) == (int)to_bytes ||
	       emu_fail(err, "its PTX is compressed, and broken");
}

static char *text_of(const struct entry *e, const uint8_t *payload,
		     struct emu_error *err)
{
	const bool is_compressed = e->flags & (FLAG_LZ4 | FLAG_ZSTD);
	const uint64_t bytes = is_compressed ? e->text_bytes : e->padded_bytes;
	char *text = bytes < INT32_MAX ? malloc(bytes + 1) : NULL;
	bool is_good = true;

	if (!text) {
		(void)emu_fail(err, "no memory for PTX of %" PRIu64 " bytes", bytes);
		return NULL;
	}
	if (e->flags & FLAG_ZSTD)
		is_good = expand_zstd(text, bytes, payload, e->compressed_bytes, err);
	else if (e->flags & FLAG_LZ4)
		is_good = expand_lz4(text, bytes, payload, e->compressed_bytes, err);
	else
		memcpy(text, payload, bytes);
	text[bytes] = '\0';
	if (is_good)
		return text;
	free(text);
	return NULL;
}

/* ---- choosing ------------------------------------------------------------ */

/* "sm_90a" of a text's .target. */
static bool target_of(const char *text, char *target, size_t size)
{
	const char *at = strstr(text, ".target");
	size_t n;

	if (!at)
		return false;
	at += strlen(".target");
	at += strspn(at, " \t");
	n = strcspn(at, " \t\r\n,");
	if (n + 1 > size)
		return false;
	memcpy(target, at, n);
	target[n] = '\0';
	return true;
}

/* The entries of a fat binary, checked as they are walked. */
struct walk {
	const uint8_t *at, *end;
};

static bool next_entry(struct walk *w, struct entry *e, const uint8_t **payload)
{
	if ((size_t)(w->end - w->at) < sizeof(*e))
		return false;
	memcpy(e, w->at, sizeof(*e));
	if (e->header_bytes < sizeof(*e) ||
	    e->header_bytes > (size_t)(w->end - w->at) ||
	    e->padded_bytes > (size_t)(w->end - w->at) - e->header_bytes ||
	    e->compressed_bytes > e->padded_bytes)
		return false;
	*payload = w->at + e->header_bytes;
	w->at = *payload + e->padded_bytes;
	return true;
}

/* The newest PTX that the device accepts; with equal numbers, the one with a letter. */
static char *choose(struct walk w, const struct emu_device *device,
		    struct emu_error *err)
{
	char target[32], *text, *best = NULL;
	const uint8_t *payload;
	uint32_t best_rank = 0;
	struct entry e;

	(void)emu_fail(err,
		       "it holds no PTX: compile with -gencode "
		       "arch=compute_%d%da,code=compute_%d%da",
		       device->major, device->minor, device->major, device->minor);
	if (w.at == w.end)
		(void)emu_fail(
		    err, "it holds no code, as with nvcc -rdc=true and only PTX: "
			 "compile without -rdc (dynamic parallelism, which needs "
			 "it, is not modelled: launch those kernels from the host)");
	while (next_entry(&w, &e, &payload)) {
		uint32_t rank;

		text = e.kind == KIND_PTX ? text_of(&e, payload, err) : NULL;
		if (!text)
			continue;
		if (!target_of(text, target, sizeof(target))) {
			(void)emu_fail(err, "its PTX has no .target");
			free(text);
			continue;
		}
		rank = 2 * e.sm + 1 + (strpbrk(target, "af") != NULL);
		if (rank > best_rank && emu_device_takes(device, target, err)) {
			free(best);
			best = text;
			best_rank = rank;
		} else {
			free(text);
		}
	}
	return best;
}

static bool is_text(const void *image)
{
	const unsigned char first = *(const unsigned char *)image;

	return (first >= ' ' && first < 0x7F) || first == '\n' || first == '\t' ||
	       first == '\r';
}

static CUresult broken(struct emu_error *err)
{
	(void)emu_fail(err, "the fat binary is broken");
	return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult emu_image_text(const void *image, const struct emu_device *device, char **text,
			struct emu_error *err)
{
	struct wrapper wrapper;
	struct fatbin fatbin;
	uint32_t magic = 0;

	/* A text may be shorter than a magic number. */
	if (strnlen(image, sizeof(magic)) == sizeof(magic))
		memcpy(&magic, image, sizeof(magic));
	if (magic == WRAPPER_MAGIC) {
		memcpy(&wrapper, image, sizeof(wrapper));
		image = wrapper.data;
		if (!image)
			return broken(err);
		memcpy(&magic, image, sizeof(magic));
	}
	if (magic == FATBIN_MAGIC) {
		memcpy(&fatbin, image, sizeof(fatbin));
		if (fatbin.header_bytes < sizeof(fatbin) || fatbin.bytes > PTRDIFF_MAX)
			return broken(err);
		*text =
		    choose((struct walk){(const uint8_t *)image + fatbin.header_bytes,
					 (const uint8_t *)image + fatbin.header_bytes +
					     fatbin.bytes},
			   device, err);
		return *text ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	if (magic == ELF_MAGIC) {
		(void)emu_fail(err,
			       "the module is a cubin: build with PTX (-gencode "
			       "arch=compute_%d%da,code=compute_%d%da)",
			       device->major, device->minor, device->major,
			       device->minor);
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	if (!is_text(image)) {
		(void)emu_fail(err, "the module is neither PTX nor a fat "
				    "binary");
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	*text = strdup(image);
	return *text ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
