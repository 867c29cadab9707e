/* SPDX-License-Identifier: Apache-2.0 */
/*
 * histories.h - 8 bytes of history for each word of device memory.  They are mapped in
 * pieces when they are used, so a large allocation costs nothing.
 */
#ifndef EMU_HISTORIES_H
#define EMU_HISTORIES_H

#include <pthread.h>
#include <stdatomic.h>

#include "hardware/emu.h"

#define EMU_WORD_BYTES 4
/* Device memory whose histories are mapped at once. */
#define EMU_CHUNK_BYTES (UINT64_C(256) << 10)

typedef _Atomic uint64_t emu_history;

struct emu_histories {
	uint64_t base;
	size_t chunks_bytes;
	_Atomic(emu_history *) *chunks;
	pthread_mutex_t lock; /* of all that follows */
	uint64_t *used;	      /* chunks */
	size_t n_used, capacity;
};

/* For `bytes` bytes of device memory at base.  False: no memory. */
bool emu_histories_open(struct emu_histories *h, uint64_t base, uint64_t bytes);
void emu_histories_close(struct emu_histories *h);
/* Maps a chunk; NULL: no memory. */
emu_history *emu_histories_map(struct emu_histories *h, uint64_t chunk);

/* The history of the word at base + offset, zero at first; NULL: no memory. */
static inline emu_history *emu_history_at(struct emu_histories *h, uint64_t offset)
{
	const uint64_t index = offset / EMU_CHUNK_BYTES;
	emu_history *chunk =
	    atomic_load_explicit(&h->chunks[index], memory_order_acquire);

	if (!chunk)
		chunk = emu_histories_map(h, index);
	return chunk ? &chunk[offset % EMU_CHUNK_BYTES / EMU_WORD_BYTES] : NULL;
}

#endif
