/* SPDX-License-Identifier: Apache-2.0 */
/* names.c - see names.h. */
#include "ptx/names.h"

#include <stdlib.h>
#include <string.h>

#include "hardware/arena.h"

#define BUCKETS (sizeof(((struct emu_names *)0)->buckets) / sizeof(uint32_t))

static uint32_t hash_of(const char *text, size_t length)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)text[i]) * 16777619u;
	return hash;
}

bool emu_names_add(struct emu_names *names, const struct emu_name *name)
{
	struct emu_name *grown =
	    emu_grow(names->names, &names->capacity, names->count, sizeof(*grown));
	struct emu_name *to;
	uint32_t *bucket;

	if (!grown)
		return false;
	names->names = grown;
	to = &grown[names->count];
	*to = *name;
	to->hash = hash_of(name->text, name->length);
	bucket = &names->buckets[to->hash % BUCKETS];
	to->next = *bucket;
	names->count++;
	*bucket = (uint32_t)names->count;
	return true;
}

const struct emu_name *emu_names_find(const struct emu_names *names, const char *text,
				      size_t length, enum emu_name_kind kind)
{
	const uint32_t hash = hash_of(text, length);

	for (uint32_t i = names->buckets[hash % BUCKETS]; i;
	     i = names->names[i - 1].next) {
		const struct emu_name *n = &names->names[i - 1];

		if (n->hash == hash && n->length == length && n->kind == kind &&
		    memcmp(n->text, text, length) == 0)
			return n;
	}
	return NULL;
}

bool emu_names_has_since(const struct emu_names *names, size_t begin,
			 const struct emu_name *name)
{
	const struct emu_name *n =
	    emu_names_find(names, name->text, name->length, name->kind);

	return n && (size_t)(n - names->names) >= begin;
}

void emu_names_cut(struct emu_names *names, size_t count)
{
	while (names->count > count) {
		const struct emu_name *n = &names->names[--names->count];

		names->buckets[n->hash % BUCKETS] = n->next;
	}
}

void emu_names_free(struct emu_names *names)
{
	free(names->names);
	memset(names, 0, sizeof(*names));
}

uint64_t emu_text_hash(const char *text)
{
	uint64_t hash = UINT64_C(0xCBF29CE484222325);

	for (; *text; text++)
		hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001B3);
	return hash;
}
