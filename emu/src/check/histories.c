/* SPDX-License-Identifier: Apache-2.0 */
/* histories.c - see histories.h. */
#include "check/histories.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "hardware/arena.h"

#define MAPPED_BYTES (EMU_CHUNK_BYTES / EMU_WORD_BYTES * sizeof(emu_history))

/* Zeros that take no memory before they are used, unlike those of calloc(), which
 * clears memory that was freed before.  NULL: no memory. */
static void *map(size_t bytes)
{
	void *fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return fresh == MAP_FAILED ? NULL : fresh;
}

bool emu_histories_open(struct emu_histories *h, uint64_t base, uint64_t bytes)
{
	*h = (struct emu_histories){.base = base};
	pthread_mutex_init(&h->lock, NULL);
	h->chunks_bytes = (bytes / EMU_CHUNK_BYTES + 1) * sizeof(*h->chunks);
	h->chunks = map(h->chunks_bytes);
	return h->chunks;
}

void emu_histories_close(struct emu_histories *h)
{
	for (size_t i = 0; i < h->n_used; i++)
		munmap((void *)h->chunks[h->used[i]], MAPPED_BYTES);
	pthread_mutex_destroy(&h->lock);
	if (h->chunks)
		munmap((void *)h->chunks, h->chunks_bytes);
	free(h->used);
}

emu_history *emu_histories_map(struct emu_histories *h, uint64_t index)
{
	emu_history *chunk;
	uint64_t *used;

	pthread_mutex_lock(&h->lock);
	chunk = h->chunks[index];
	used = chunk ? NULL : emu_grow(h->used, &h->capacity, h->n_used, sizeof(*used));
	if (used) {
		h->used = used;
		chunk = map(MAPPED_BYTES);
		if (chunk) {
			used[h->n_used++] = index;
			atomic_store_explicit(&h->chunks[index], chunk,
					      memory_order_release);
		}
	}
	pthread_mutex_unlock(&h->lock);
	return chunk;
}
