/* SPDX-License-Identifier: Apache-2.0 */
/* order_state.c - pages of words; see order_state.h. */
#include "check/order_state.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "hardware/arena.h"

/*
 * Words are 14 times as large as their memory, and 4 KiB of it have 56 KiB of them,
 * whose page faults took a fifth of the time of a histogram.  So a table with many
 * pages takes their words from blocks with huge pages, if the host has any.
 */
#define BLOCK_BYTES (UINT64_C(8) << 20)
#define HUGE_BYTES  (UINT64_C(2) << 20)

static bool add_block(struct table *t)
{
	struct block *grown =
	    emu_grow(t->blocks, &t->blocks_capacity, t->n_blocks, sizeof(*grown));
	uint8_t *memory;

	if (!grown)
		return false;
	t->blocks = grown;
	memory = mmap(NULL, BLOCK_BYTES + HUGE_BYTES, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return false;
	(void)madvise(memory, BLOCK_BYTES + HUGE_BYTES, MADV_HUGEPAGE);
	t->blocks[t->n_blocks++] =
	    (struct block){.memory = memory,
			   .next = memory + -(uintptr_t)memory % HUGE_BYTES,
			   .left = BLOCK_BYTES};
	return true;
}

void *emu_order_take(struct table *t, size_t bytes)
{
	struct block *last = t->n_blocks ? &t->blocks[t->n_blocks - 1] : NULL;
	void *taken;

	if (!last || last->left < bytes) {
		if (!add_block(t))
			return NULL;
		last = &t->blocks[t->n_blocks - 1];
	}
	taken = last->next;
	last->next += bytes;
	last->left -= bytes;
	return taken;
}

void emu_order_free_pages(struct emu_order *o)
{
	while (o->spare) {
		struct page *next = o->spare->next;

		free(o->spare->words);
		free(o->spare);
		o->spare = next;
	}
	for (size_t k = 0; k < EMU_ORDER_TABLES; k++) {
		for (size_t i = 0; i < o->tables[k].capacity; i++) {
			struct page *page = o->tables[k].pages[i];

			if (page && !page->is_in_block)
				free(page->words);
			free(page);
		}
		free(o->tables[k].pages);
		for (size_t i = 0; i < o->tables[k].n_blocks; i++)
			munmap(o->tables[k].blocks[i].memory, BLOCK_BYTES + HUGE_BYTES);
		free(o->tables[k].blocks);
	}
}

/* Makes all pages spare. */
void emu_order_forget_pages(struct emu_order *o)
{
	for (size_t k = 0; k < EMU_ORDER_TABLES; k++) {
		struct table *t = &o->tables[k];

		for (size_t i = 0; t->count && i < t->capacity; i++)
			if (t->pages[i]) {
				t->pages[i]->next = o->spare;
				o->spare = t->pages[i];
				t->pages[i] = NULL;
				t->count--;
			}
	}
	o->last = NULL;
}
