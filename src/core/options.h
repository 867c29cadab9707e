/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - structs that grow between versions: those that begin with
 * struct_bytes may be older (shorter) or newer (longer) than this build's, the
 * others have reserved fields.
 */
#ifndef NIB_OPTIONS_H
#define NIB_OPTIONS_H

#include "core/error.h"

/*
 * Copies the caller's options (NULL = all zero) into ours, which has `bytes`.
 * A longer struct is accepted if everything after ours is zero.  name: for the
 * message.
 */
enum nib_status nib_options_read(void *ours, size_t bytes, const void *theirs,
				 const char *name, struct nib_error *err);

/* Checks an info struct of the caller's; *bytes = how much of it to write. */
enum nib_status nib_info_check(const void *theirs, size_t ours_bytes, size_t *bytes,
			       const char *name, struct nib_error *err);
/* Copies ours into theirs but for struct_bytes. */
void nib_info_write(void *theirs, const void *ours, size_t bytes);

/* NIB_STATUS_UNSUPPORTED if a field that belongs to later versions is set. */
enum nib_status nib_check_reserved(const uint64_t reserved[4], struct nib_label label,
				   struct nib_error *err);

#endif
