/* SPDX-License-Identifier: Apache-2.0 */
/* prints.c - see prints.h. */
#include "machine/prints.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct text {
	uint64_t grid, number; /* number: in the order of time */
	uint32_t cluster;
	size_t length;
	char *bytes;
};

struct emu_prints {
	pthread_mutex_t lock;
	struct text *list;
	size_t count, capacity;
	size_t bytes, most_bytes; /* of the texts; of the buffer */
	uint64_t grid, number;
	bool by_cluster;
};

struct emu_prints *emu_prints_open(void)
{
	struct emu_prints *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	p->most_bytes = EMU_PRINTS_BYTES;
	return p;
}

/* Forgets text number i; the caller closes the gap. */
static void forget(struct emu_prints *p, size_t i)
{
	p->bytes -= p->list[i].length;
	free(p->list[i].bytes);
}

void emu_prints_close(struct emu_prints *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->count; i++)
		forget(p, i);
	pthread_mutex_destroy(&p->lock);
	free(p->list);
	free(p);
}

bool emu_prints_resize(struct emu_prints *p, size_t bytes)
{
	if (p->number)
		return false;
	p->most_bytes = bytes;
	return true;
}

size_t emu_prints_size(const struct emu_prints *p)
{
	return p->most_bytes;
}

void emu_prints_begin(struct emu_prints *p, bool by_cluster)
{
	if (!p)
		return;
	p->grid++;
	p->by_cluster = by_cluster;
}

/* ---- texts ----------------------------------------------------------------- */

static int compare(const void *a_, const void *b_)
{
	const struct text *a = a_, *b = b_;

	if (a->grid != b->grid)
		return a->grid < b->grid ? -1 : 1;
	if (a->cluster != b->cluster)
		return a->cluster < b->cluster ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

/* Sorts the texts, and drops the first ones if there are too many. */
static void keep_last(struct emu_prints *p)
{
	size_t first = 0;

	if (p->count)
		qsort(p->list, p->count, sizeof(*p->list), compare);
	while (first < p->count && p->bytes > p->most_bytes)
		forget(p, first++);
	p->count -= first;
	if (first && p->count)
		memmove(p->list, p->list + first, p->count * sizeof(*p->list));
}

static bool grow(struct emu_prints *p)
{
	const size_t capacity = p->capacity ? 2 * p->capacity : 64;
	struct text *list;

	if (p->count < p->capacity)
		return true;
	list = realloc(p->list, capacity * sizeof(*list));
	if (!list)
		return false;
	p->list = list;
	p->capacity = capacity;
	return true;
}

void emu_prints_add(struct emu_prints *p, uint32_t cluster, const char *text)
{
	char *bytes;

	if (!p)
		return;
	bytes = strdup(text);
	pthread_mutex_lock(&p->lock);
	p->number++;
	if (bytes && grow(p)) {
		p->list[p->count++] = (struct text){
		    .grid = p->grid,
		    .number = p->number,
		    .cluster = p->by_cluster ? cluster : 0,
		    .length = strlen(bytes),
		    .bytes = bytes,
		};
		p->bytes += strlen(bytes);
		bytes = NULL;
		/* Texts that are dropped now would be dropped at the end. */
		if (p->bytes / 2 > p->most_bytes)
			keep_last(p);
	}
	pthread_mutex_unlock(&p->lock);
	free(bytes);
}

void emu_prints_cut(struct emu_prints *p, uint32_t cluster)
{
	size_t count = 0;

	if (!p)
		return;
	for (size_t i = 0; i < p->count; i++)
		if (p->list[i].grid == p->grid && p->list[i].cluster > cluster)
			forget(p, i);
		else
			p->list[count++] = p->list[i];
	p->count = count;
}

bool emu_prints_write(struct emu_prints *p, FILE *to)
{
	const bool has_some = p && p->count;

	if (!has_some)
		return false;
	keep_last(p);
	for (size_t i = 0; i < p->count; i++) {
		(void)fwrite(p->list[i].bytes, 1, p->list[i].length, to);
		forget(p, i);
	}
	p->count = 0;
	return true;
}
