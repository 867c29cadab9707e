/* SPDX-License-Identifier: Apache-2.0 */
/* common/isas.c - see isas.h. */
#include "isas.h"

struct nib_device *devices[TEST_ISAS];

int open_devices(void **state)
{
	for (int i = 0; i < TEST_ISAS; i++)
		devices[i] = test_device(test_isas[i], 3);
	return 0;
}

int close_devices(void **state)
{
	for (int i = 0; i < TEST_ISAS; i++)
		nib_device_close(devices[i]);
	return 0;
}
