/* SPDX-License-Identifier: Apache-2.0 */
/* stream.c - streams, which share one queue, and events. */
#include "driver/stream.h"

#include <stdlib.h>
#include <string.h>

#include "driver/queue.h"
#include "machine/time.h"

/* A flag of cuEventRecordWithFlags and cuStreamWaitEvent: a node in a capture. */
#define EVENT_EXTERNAL 1u

/* ---- streams ------------------------------------------------------------- */

void emu_streams_compare(bool is_apart)
{
	struct emu_stream_order *o = &emu_driver.order;
	const struct emu_space *s = &emu_driver.machine.global;

	if (!o->streams && !emu_driver.machine.options.is_unchecked &&
	    (is_apart || o->count > 1))
		o->streams = emu_streams_open(s->base, s->bytes);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
	CUresult result = emu_driver_enter();

	if (!result) {
		*stream = calloc(1, sizeof(**stream));
		if (*stream) {
			static uint64_t ids = 2; /* of the default streams */

			(*stream)->id = ++ids;
			(*stream)->flags = flags;
			(*stream)->number =
			    emu_stream_order_add(&emu_driver.order, flags & 1);
			emu_streams_compare(flags & 1);
			(*stream)->next = emu_driver.streams;
			emu_driver.streams = *stream;
		} else {
			result = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	return emu_driver_leave(result);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
	const CUresult result = cuStreamCreate(stream, flags);

	if (result)
		return result;
	if (priority > EMU_LEAST_PRIORITY)
		priority = EMU_LEAST_PRIORITY;
	if (priority < EMU_GREATEST_PRIORITY)
		priority = EMU_GREATEST_PRIORITY;
	(*stream)->priority = priority;
	return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	CUresult result = emu_driver_enter();
	struct CUstream_st **at = &emu_driver.streams;

	if (!emu_stream_is_valid(stream) || (uintptr_t)stream <= 2)
		return emu_driver_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!result)
		result = emu_driver_flush();
	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	emu_capture_leave(stream);
	free(stream->tails.nodes);
	free(stream);
	return emu_driver_leave(result);
}

CUresult emu_stream_flush(CUstream stream)
{
	if (!emu_stream_is_valid(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (emu_stream_is_capturing(stream))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	return emu_driver_flush();
}

CUresult cuStreamSynchronize(CUstream stream)
{
	CUresult result = emu_driver_enter();

	if (!result)
		result = emu_stream_flush(stream);
	if (!result)
		emu_stream_order_host_stream(&emu_driver.order,
					     emu_stream_number(stream));
	return emu_driver_leave(result);
}

/* Runs the work, as every wait does. */
CUresult cuStreamQuery(CUstream stream)
{
	return cuStreamSynchronize(stream);
}

/* Streams do not overlap here, so recorded work has ended; on a GPU it may not have,
 * so the order is kept. */
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
	CUresult result = emu_driver_enter();

	if (!result && (!event || !emu_stream_is_valid(stream)))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result && (event->capture || emu_stream_is_capturing(stream)))
		return emu_driver_leave(
		    emu_capture_wait(stream, event, flags & EVENT_EXTERNAL));
	if (!result)
		emu_stream_order_wait(&emu_driver.order, emu_stream_number(stream),
				      event->seen);
	return emu_driver_leave(result);
}

/* False for NULL and the two numbers of the default streams, which have no flags. */
static bool is_created(CUstream stream)
{
	return (uintptr_t)stream > 2;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *flags)
{
	CUresult result = emu_driver_enter();

	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		*flags = is_created(stream) ? stream->flags : 0;
	return emu_driver_leave(result);
}

CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
	CUresult result = emu_driver_enter();

	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		*priority = is_created(stream) ? stream->priority : 0;
	return emu_driver_leave(result);
}

/* Default streams have the numbers by which programs name them. */
CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
	CUresult result = emu_driver_enter();

	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		*id = is_created(stream) ? stream->id : (uintptr_t)stream;
	return emu_driver_leave(result);
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice *device)
{
	(void)stream;
	*device = 0;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
	(void)stream;
	return cuCtxGetCurrent(context);
}

/* ---- events -------------------------------------------------------------- */

/*
 * Without NIBEMU_TIME, time is counted in instructions of threads: 10^9 are a
 * millisecond.
 */
#define INSTRUCTIONS_A_MS 1e9f

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
	(void)flags;
	*event = calloc(1, sizeof(**event));
	return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuEventDestroy_v2(CUevent event)
{
	if (event)
		free(event->tails.nodes);
	free(event);
	return CUDA_SUCCESS;
}

void emu_event_set(CUevent event, const uint32_t *seen)
{
	memcpy(event->seen, seen, sizeof(event->seen));
	event->capture = 0;
	event->instructions = emu_driver.machine.instructions;
	if (emu_driver.machine.time)
		event->ns = emu_time_ns(emu_driver.machine.time);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
	CUresult result = emu_driver_enter();
	uint32_t seen[EMU_STREAMS] = {0};

	if (!result && !event)
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result && emu_stream_is_valid(stream) && emu_stream_is_capturing(stream))
		return emu_driver_leave(
		    emu_capture_record(event, stream, flags & EVENT_EXTERNAL));
	if (!result)
		result = emu_stream_flush(stream);
	if (!result) {
		emu_stream_order_record(&emu_driver.order, emu_stream_number(stream),
					seen);
		emu_event_set(event, seen);
	}
	return emu_driver_leave(result);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return cuEventRecordWithFlags(event, stream, 0);
}

CUresult cuEventQuery(CUevent event)
{
	return cuEventSynchronize(event);
}

CUresult cuEventSynchronize(CUevent event)
{
	CUresult result = emu_driver_enter();

	if (!result && event->capture)
		result = CUDA_ERROR_CAPTURED_EVENT;
	emu_stream_order_host(&emu_driver.order, event->seen);
	return emu_driver_leave(result);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end)
{
	if (emu_driver.machine.time)
		*milliseconds = (float)((end->ns - begin->ns) / 1e6);
	else
		*milliseconds = (float)(end->instructions - begin->instructions) /
				INSTRUCTIONS_A_MS;
	return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent begin, CUevent end)
{
	return cuEventElapsedTime(milliseconds, begin, end);
}

/* ---- functions of the host ----------------------------------------------------- */

static CUresult submit_host(CUstream stream, void (*function)(void *), void *argument)
{
	struct emu_work *w = calloc(1, sizeof(*w));

	if (!w)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->kind = EMU_WORK_HOST;
	w->function = function;
	w->argument = argument;
	return emu_stream_submit(stream, w);
}

CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *argument)
{
	CUresult result = emu_driver_enter();
	bool captures;

	if (!result && !function)
		result = CUDA_ERROR_INVALID_VALUE;
	captures =
	    !result && emu_stream_is_valid(stream) && emu_stream_is_capturing(stream);
	if (captures)
		result = submit_host(stream, function, argument);
	else if (!result)
		result = emu_stream_flush(stream);
	result = emu_driver_leave(result);
	if (!result && !captures && function)
		function(argument);
	return result;
}
