/* SPDX-License-Identifier: Apache-2.0 */
/* state.c - see state.h. */
#include "driver/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>

struct emu_driver emu_driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

CUresult emu_driver_enter(void)
{
	pthread_mutex_lock(&emu_driver.lock);
	if (!emu_driver.is_begun)
		return CUDA_ERROR_NOT_INITIALIZED;
	return emu_driver.failed;
}

void emu_driver_tell(CUresult result, const char *format, ...)
{
	va_list arguments;

	emu_driver.text_of = result;
	va_start(arguments, format);
	vsnprintf(emu_driver.text, sizeof(emu_driver.text), format, arguments);
	va_end(arguments);
}

bool emu_stream_is_valid(CUstream stream)
{
	const struct CUstream_st *s = emu_driver.streams;

	if ((uintptr_t)stream <= 2)
		return true;
	while (s && s != stream)
		s = s->next;
	return s;
}

bool emu_stream_is_capturing(CUstream stream)
{
	return (uintptr_t)stream > 2 && stream->graph;
}

uint32_t emu_stream_number(CUstream stream)
{
	return !stream || (uintptr_t)stream == 1 ? 0
	       : (uintptr_t)stream == 2		 ? 1
						 : stream->number;
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

/* Adds why the device has less memory than it should. */
static void explain_shortage(struct emu_error *err)
{
	struct rlimit limit;

	if (emu_driver.machine.global.bytes >= emu_driver.wanted_bytes)
		return;
	emu_add_text(err,
		     ": the host refused to reserve %llu bytes twice, for data "
		     "and their states",
		     (unsigned long long)emu_driver.wanted_bytes);
	if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		emu_add_text(err,
			     "; this process may have %llu bytes of addresses "
			     "(ulimit -v unlimited removes the limit)",
			     (unsigned long long)limit.rlim_cur);
	else
		emu_add_text(err,
			     "; look at ulimit -d and /proc/sys/vm/overcommit_memory"
			     " (2 allows no reservation)");
}

CUdeviceptr emu_driver_alloc(size_t bytes)
{
	struct emu_error err = {{0}};
	const uint64_t at = emu_memory_alloc(emu_driver.machine.memory, bytes, &err);

	if (!at) {
		explain_shortage(&err);
		(void)emu_driver_fail(CUDA_ERROR_OUT_OF_MEMORY, "%s", err.text);
	}
	return at;
}
