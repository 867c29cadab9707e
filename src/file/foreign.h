/* SPDX-License-Identifier: Apache-2.0 */
/* foreign.h - how writers whose layouts are not read here name a layer's tensors. */
#ifndef NIB_FILE_FOREIGN_H
#define NIB_FILE_FOREIGN_H

#define NIB_FOREIGN 5

struct nib_foreign {
	/* Layer X has the tensors X followed by mark and X followed by codes, of these
	 * types; NULL: of any. */
	const char *mark, *mark_dtype, *codes, *codes_dtype;
	const char *reason;
};

extern const struct nib_foreign nib_foreign[NIB_FOREIGN];

#endif
