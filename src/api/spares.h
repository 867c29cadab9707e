/* SPDX-License-Identifier: Apache-2.0 */
/* spares.h - options of a run, and workspaces that a plan keeps. */
#ifndef NIB_SPARES_H
#define NIB_SPARES_H

#include "backend/backend.h"

/*
 * Checks the options of a run that needs `bytes` of workspace and copies them to
 * ours.  callers: the caller must provide the workspace.
 */
enum nib_status nib_read_run_options(const struct nib_device *device,
				     const struct nib_run_options *options,
				     struct nib_run_options *ours, size_t bytes,
				     bool callers, struct nib_error *err);

/*
 * A workspace that no other run uses.  No lock is held while it is in use: a
 * task of the caller's pool may itself run the plan, on this thread.
 */
enum nib_status nib_spare_take(struct nib_device *device, struct nib_spares *spares,
			       size_t bytes, void **workspace, struct nib_error *err);
void nib_spare_give(struct nib_device *device, struct nib_spares *spares,
		    void *workspace);
void nib_spares_free(struct nib_device *device, struct nib_spares *spares);

#endif
