/* SPDX-License-Identifier: Apache-2.0 */
/* target.c - see target.h. */
#include "ptx/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool emu_target_has(const char *target, const char *need)
{
	char *suffix = NULL, *kind = NULL;
	const long wanted = strtol(need, &kind, 10);
	long has;

	if (!target || strncmp(target, "sm_", 3) != 0)
		return false;
	has = strtol(target + 3, &suffix, 10);
	switch (*kind) {
	case 'a':
		return has == wanted && strcmp(suffix, "a") == 0;
	case 'f':
		return has == wanted && *suffix;
	case '+':
		return has >= wanted && *suffix;
	default:
		return has >= wanted;
	}
}

void emu_target_describe(const char *need, char *text, size_t bytes)
{
	char *kind = NULL;
	const long sm = strtol(need, &kind, 10);

	switch (*kind) {
	case 'a':
		snprintf(text, bytes, "sm_%lda", sm);
		break;
	case 'f':
		snprintf(text, bytes, "sm_%lda or sm_%ldf", sm, sm);
		break;
	case '+':
		snprintf(text, bytes, "sm_%lda or a later one with a or f", sm);
		break;
	default:
		snprintf(text, bytes, "sm_%ld or later", sm);
	}
}

bool emu_target_of_word(const char *list, const char *word, size_t length, char need[8])
{
	while (list && *list) {
		const size_t entry = strcspn(list, " ");
		const char *colon = list + entry;

		/* A word may have colons itself: shared::cluster:90. */
		while (colon > list && *colon != ':')
			colon--;
		if ((size_t)(colon - list) == length &&
		    memcmp(list, word, length) == 0) {
			snprintf(need, 8, "%.*s", (int)(list + entry - colon - 1),
				 colon + 1);
			return true;
		}
		list += entry;
		list += *list == ' ';
	}
	return false;
}
