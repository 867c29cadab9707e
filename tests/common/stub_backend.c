/* SPDX-License-Identifier: Apache-2.0 */
/* common/stub_backend.c - see common/stub_backend.h. */
#include "stub_backend.h"

#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "data.h"
#include "unit.h"

struct stub stub;

/* A CPU's tables with another plan and run: of devices that are not the host,
 * and of those that are. */
static struct nib_backend backends[2];

static enum nib_status take_plan(struct nib_plan *plan, struct nib_error *err)
{
	(void)err;
	plan->backend_name = "stub";
	plan->threads = 1;
	snprintf(plan->explanation, sizeof(plan->explanation), "nothing runs");
	return NIB_STATUS_OK;
}

static enum nib_status note_run(struct nib_plan *plan, const struct nib_run *run,
				struct nib_error *err)
{
	(void)err;
	stub.runs++;
	stub.is_repeated = run->is_repeated;
	if (run->moe) {
		stub.moe = *run->moe;
		return NIB_STATUS_OK;
	}
	assert_true(plan->count <= STUB_PROBLEMS);
	memcpy(stub.problems, run->problems,
	       (size_t)plan->count * sizeof(*stub.problems));
	return NIB_STATUS_OK;
}

struct nib_device *stub_open(bool is_host)
{
	struct nib_device *device = test_device("scalar", 1);
	struct nib_backend *backend;

	assert_non_null(device);
	backend = &backends[is_host];
	*backend = *device->backend;
	backend->name = "stub";
	backend->is_host = is_host;
	backend->plan = take_plan;
	backend->run = note_run;
	device->backend = backend;
	memset(&stub, 0, sizeof(stub));
	return device;
}
