/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.h - sets large ranges of memory to one value without using memory of the
 * host: the pages of a range map a file that consists of this value, privately, so
 * that Linux copies a page when it is first written.
 */
#ifndef EMU_PAGES_H
#define EMU_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Shorter ranges are set by memset(). */
#define EMU_PAGES_LEAST (UINT64_C(4) << 20)

struct emu_pages {
	uint64_t page_bytes;
	uint64_t mapped; /* mappings that exist; Linux has a limit */
	struct {
		int fd;
		uint64_t bytes; /* 0: there is no file */
	} files[256];
};

void emu_pages_open(struct emu_pages *pages);
void emu_pages_close(struct emu_pages *pages);

/*
 * Sets a range of a private, writable mapping to value.  Returns the number of
 * mappings that this added, for emu_pages_clear().
 */
uint64_t emu_pages_set(struct emu_pages *pages, uint8_t *at, uint64_t bytes,
		       uint8_t value);

/* Sets a range to 0 and returns its memory to the host.  mapped: what the calls of
 * emu_pages_set() for this range have returned. */
void emu_pages_clear(struct emu_pages *pages, uint8_t *at, uint64_t bytes,
		     uint64_t mapped);

#endif
