/* SPDX-License-Identifier: Apache-2.0 */
/* order_state.c - pages of words; see order_state.h. */
#include "check/order_state.h"

#include <stdlib.h>

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

			if (page)
				free(page->words);
			free(page);
		}
		free(o->tables[k].pages);
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
