/* SPDX-License-Identifier: Apache-2.0 */
/* pages.c - see pages.h. */
#include "hardware/pages.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Linux allows 65,530 mappings; the program needs some as well. */
#define MAPPED_MOST 40000
/* Mappings from which on new files are large, so that ranges need fewer of them. */
#define MAPPED_MANY 4000
#define LARGE_FILE  (UINT64_C(64) << 20)
/* A range is not divided into more mappings than this. */
#define PARTS_MOST 8192

void emu_pages_open(struct emu_pages *pages)
{
	memset(pages, 0, sizeof(*pages));
	pages->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
}

void emu_pages_close(struct emu_pages *pages)
{
	for (int i = 0; i < 256; i++)
		if (pages->files[i].bytes)
			close(pages->files[i].fd);
}

/* ---- files of one value -------------------------------------------------- */

/* The length of the file that suits a range; a power of two. */
static uint64_t file_bytes_for(const struct emu_pages *pages, uint64_t bytes)
{
	uint64_t length = pages->mapped < MAPPED_MANY ? EMU_PAGES_LEAST : LARGE_FILE;

	while (length < bytes / PARTS_MOST)
		length *= 2;
	return length;
}

/* Makes the file of a value at least this long, if the host can. */
static void extend(struct emu_pages *pages, uint8_t value, uint64_t length)
{
	uint8_t block[1 << 16];
	struct rlimit limit;
	uint64_t at = pages->files[value].bytes;

	if (at == 0)
		pages->files[value].fd = memfd_create("nibemu", MFD_CLOEXEC);
	/* A longer file than allowed ends the process by a signal. */
	if (pages->files[value].fd < 0 || getrlimit(RLIMIT_FSIZE, &limit) != 0 ||
	    limit.rlim_cur < length)
		return;
	memset(block, value, sizeof(block));
	while (at < length && pwrite(pages->files[value].fd, block, sizeof(block),
				     (off_t)at) == (ssize_t)sizeof(block))
		at += sizeof(block);
	pages->files[value].bytes = at;
}

/* ---- ranges -------------------------------------------------------------- */

/* The whole pages of a range: *at is advanced to the first; returns their bytes. */
static uint64_t whole_pages(const struct emu_pages *pages, uint8_t **at, uint64_t bytes)
{
	const uint64_t head = -(uint64_t)(uintptr_t)*at % pages->page_bytes;

	if (head >= bytes)
		return 0;
	*at += head;
	return (bytes - head) / pages->page_bytes * pages->page_bytes;
}

/* Replaces whole pages by zeros. */
static bool map_zeros(uint8_t *at, uint64_t bytes)
{
	return mmap(at, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		    0) != MAP_FAILED;
}

/* Maps the file of a value to whole pages; returns the bytes that this reached. */
static uint64_t map_value(struct emu_pages *pages, uint8_t *at, uint64_t bytes,
			  uint8_t value, uint64_t *mapped)
{
	const uint64_t length = file_bytes_for(pages, bytes);
	uint64_t done = 0, part;

	if (pages->files[value].bytes < length)
		extend(pages, value, length);
	if (pages->files[value].bytes < length)
		return 0;
	for (*mapped = 0; done < bytes; done += part) {
		part = pages->files[value].bytes;
		if (part > bytes - done)
			part = bytes - done;
		if (pages->mapped + *mapped >= MAPPED_MOST ||
		    mmap(at + done, part, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED,
			 pages->files[value].fd, 0) == MAP_FAILED)
			break;
		++*mapped;
	}
	pages->mapped += *mapped;
	return done;
}

uint64_t emu_pages_set(struct emu_pages *pages, uint8_t *at, uint64_t bytes,
		       uint8_t value)
{
	uint8_t *const end = at + bytes;
	uint8_t *first = at;
	uint64_t done = 0, mapped = 0;

	if (bytes >= EMU_PAGES_LEAST) {
		const uint64_t whole = whole_pages(pages, &first, bytes);

		if (value == 0)
			done = map_zeros(first, whole) ? whole : 0;
		else
			done = map_value(pages, first, whole, value, &mapped);
	}
	memset(at, value, (size_t)(first - at));
	memset(first + done, value, (size_t)(end - (first + done)));
	return mapped;
}

void emu_pages_clear(struct emu_pages *pages, uint8_t *at, uint64_t bytes,
		     uint64_t mapped)
{
	uint8_t *const end = at + bytes;
	uint8_t *first = at;
	uint64_t whole = whole_pages(pages, &first, bytes);

	/* Where mmap() fails, the bytes are cleared and keep their pages. */
	if (whole > 0 && !map_zeros(first, whole))
		whole = 0;
	memset(at, 0, (size_t)(first - at));
	memset(first + whole, 0, (size_t)(end - (first + whole)));
	pages->mapped -= mapped;
}
