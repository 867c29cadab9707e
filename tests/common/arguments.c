/* SPDX-License-Identifier: Apache-2.0 */
/* common/arguments.c - see common/arguments.h. */
#include "arguments.h"

#include <string.h>

#include "unit.h"

struct rng rng;
struct nib_device *device;

int open_device(void **state)
{
	rng = rng_new(test_seed());
	device = test_device("scalar", 2);
	return device ? 0 : -1;
}

int close_device(void **state)
{
	nib_device_close(device);
	return 0;
}

void refused(enum nib_status status, enum nib_status want, const struct nib_error *err,
	     const char *argument, const char *value, const char *rule)
{
	if (status != want || err->status != want || !strstr(err->message, argument) ||
	    !strstr(err->message, value) || !strstr(err->message, rule) ||
	    !err->argument[0] ||
	    strncmp(err->message, err->argument, strlen(err->argument)) != 0)
		fail_msg("%s (%s): '%s' of %s; wanted %s naming '%s', '%s', "
			 "'%s'",
			 nib_status_name(status), nib_status_name(err->status),
			 err->argument, err->message, nib_status_name(want), argument,
			 value, rule);
}
