/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - reads and writes structs that grow between versions. */
#include "options.h"

#include <inttypes.h>
#include <string.h>

/* Above every struct of nibblas.h; a size that was never set is often larger. */
#define MAX_STRUCT_BYTES 4096

enum nib_status nib_options_read(void *ours, size_t bytes, const void *theirs,
				 const char *name, struct nib_error *err)
{
	const unsigned char *from = theirs;
	size_t theirs_bytes;

	memset(ours, 0, bytes);
	if (!theirs)
		return NIB_STATUS_OK;
	memcpy(&theirs_bytes, theirs, sizeof(theirs_bytes));
	if (theirs_bytes < sizeof(size_t) || theirs_bytes > MAX_STRUCT_BYTES)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, nib_label(name),
				   "struct_bytes", " = %zu: must be sizeof the struct",
				   theirs_bytes);
	for (size_t i = bytes; i < theirs_bytes; i++)
		if (from[i])
			return nib_fail_at(
			    err, NIB_STATUS_UNSUPPORTED, nib_label(name),
			    "struct_bytes",
			    " = %zu: byte %zu is set, and this version knows %zu",
			    theirs_bytes, i, bytes);
	memcpy(ours, theirs, theirs_bytes < bytes ? theirs_bytes : bytes);
	return NIB_STATUS_OK;
}

enum nib_status nib_info_check(const void *theirs, size_t ours_bytes, size_t *bytes,
			       const char *name, struct nib_error *err)
{
	size_t theirs_bytes;

	if (!theirs)
		return nib_fail_argument(err, NIB_STATUS_BAD_ARGUMENT, name,
					 " = NULL: must point to a struct");
	memcpy(&theirs_bytes, theirs, sizeof(theirs_bytes));
	if (theirs_bytes < sizeof(size_t) || theirs_bytes > MAX_STRUCT_BYTES)
		return nib_fail_at(err, NIB_STATUS_BAD_ARGUMENT, nib_label(name),
				   "struct_bytes", " = %zu: must be sizeof the struct",
				   theirs_bytes);
	*bytes = theirs_bytes < ours_bytes ? theirs_bytes : ours_bytes;
	return NIB_STATUS_OK;
}

void nib_info_write(void *theirs, const void *ours, size_t bytes)
{
	memcpy((char *)theirs + sizeof(size_t), (const char *)ours + sizeof(size_t),
	       bytes - sizeof(size_t));
}

enum nib_status nib_check_reserved(const uint64_t reserved[4], struct nib_label label,
				   struct nib_error *err)
{
	for (int i = 0; i < 4; i++)
		if (reserved[i])
			return nib_fail_at(
			    err, NIB_STATUS_UNSUPPORTED, label, "reserved",
			    "[%d] = 0x%" PRIx64 ": must be 0 in this version", i,
			    reserved[i]);
	return NIB_STATUS_OK;
}
