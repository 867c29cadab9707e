/* SPDX-License-Identifier: Apache-2.0 */
/* state.c - see state.h. */
#include "driver/state.h"

#include <stdarg.h>
#include <stdio.h>

struct emu_driver emu_driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

CUresult emu_driver_enter(void)
{
	pthread_mutex_lock(&emu_driver.lock);
	if (!emu_driver.is_begun)
		return CUDA_ERROR_NOT_INITIALIZED;
	return emu_driver.failed;
}

CUresult emu_driver_leave(CUresult result)
{
	pthread_mutex_unlock(&emu_driver.lock);
	return result;
}

CUresult emu_driver_fail(CUresult result, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(emu_driver.text, sizeof(emu_driver.text), format, arguments);
	va_end(arguments);
	return result;
}

bool emu_is_device(CUdeviceptr pointer)
{
	const struct emu_space *s = &emu_driver.machine.global;

	return pointer - s->base < s->bytes;
}

uint8_t *emu_shadow_of(CUdeviceptr pointer)
{
	const struct emu_space *s = &emu_driver.machine.global;

	return s->shadow + (pointer - s->base);
}
