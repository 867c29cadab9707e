/* SPDX-License-Identifier: Apache-2.0 */
/* array.h - space for one more item in an array that grows. */
#ifndef NIB_FILE_ARRAY_H
#define NIB_FILE_ARRAY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
 * array: the address of the array's pointer.  *capacity counts items; it
 * doubles, so that n items cost O(n).  On failure the array is as it was.
 * Items come from memory or from a checked file, so their bytes do not
 * overflow.
 */
static inline bool nib_array_grow(void *array, int64_t used, int64_t *capacity,
				  size_t item_bytes)
{
	int64_t more = *capacity ? 2 * *capacity : 16;
	void *items;

	if (used < *capacity)
		return true;
	/* Copied as bytes, because the pointer's type is not void *. */
	memcpy(&items, array, sizeof(items));
	items = realloc(items, (size_t)more * item_bytes);
	if (!items)
		return false;
	memcpy(array, &items, sizeof(items));
	*capacity = more;
	return true;
}

#endif
