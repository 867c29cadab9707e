/* SPDX-License-Identifier: Apache-2.0 */
/* conditionals.c - see conditionals.h. */
#include "machine/conditionals.h"

#include <stdlib.h>
#include <string.h>

struct emu_conditional *emu_conditional_find(const struct emu_conditionals *c,
					     uint64_t handle)
{
	for (size_t i = 0; i < c->count; i++)
		if (c->list[i].owners && c->list[i].handle == handle)
			return &c->list[i];
	return NULL;
}

/* An entry without owners, or a new one. */
static struct emu_conditional *place(struct emu_conditionals *c)
{
	struct emu_conditional *grown;

	for (size_t i = 0; i < c->count; i++)
		if (!c->list[i].owners)
			return &c->list[i];
	grown = realloc(c->list, (c->count + 1) * sizeof(*grown));
	if (!grown)
		return NULL;
	c->list = grown;
	return &grown[c->count++];
}

struct emu_conditional *emu_conditional_add(struct emu_conditionals *c)
{
	struct emu_conditional *at = place(c);

	if (!at)
		return NULL;
	memset(at, 0, sizeof(*at));
	at->handle = ++c->handles;
	at->owners = 1;
	return at;
}
