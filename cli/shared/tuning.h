/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tuning.h - tile costs that nib tune measured on this machine: the file that
 * keeps them, which every GPU that the command opens is given.
 */
#ifndef NIB_TUNING_H
#define NIB_TUNING_H

#include "nibblas.h"

struct tuning {
	char path[1024];  /* of the file; "" if none is looked for */
	char reason[192]; /* why its costs are not used; "" if they are */
};

/*
 * Gives an open device the costs of its file, if that is right; else it keeps
 * those that it has, and reason says why.  tuning may be NULL.
 */
void tuning_load(struct nib_device *device, struct tuning *tuning);
/* Writes the device's costs to tuning's file, which has a path. */
enum nib_status tuning_save(struct nib_device *device, struct tuning *tuning,
			    struct nib_error *err);

#endif
