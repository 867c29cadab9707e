/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.c - streams (which share one queue), the graphs captured from them, and
 * events.
 */
#include "driver/stream.h"

#include <stdlib.h>
#include <string.h>

#include "driver/queue.h"
#include "machine/time.h"

struct CUevent_st {
	uint64_t instructions;
	double ns;		    /* predicted */
	uint64_t capture;	    /* that it is recorded in; 0: none */
	uint32_t seen[EMU_STREAMS]; /* by stream: work before it */
};

/* ---- streams ------------------------------------------------------------- */

/*
 * True for live streams, NULL, and the two numbers of the default streams.
 */
bool emu_stream_is_valid(CUstream stream)
{
	const struct CUstream_st *s = emu_driver.streams;

	if ((uintptr_t)stream <= 2)
		return true;
	while (s && s != stream)
		s = s->next;
	return s;
}

/* Compares the accesses of streams from now on, if they may run at the same time. */
static void compare_streams(bool is_apart)
{
	struct emu_stream_order *o = &emu_driver.order;
	const struct emu_space *s = &emu_driver.machine.global;

	if (!o->streams && !emu_driver.machine.options.is_unchecked &&
	    (is_apart || o->count > 1))
		o->streams = emu_streams_open(s->base, s->bytes);
}

bool emu_stream_is_capturing(CUstream stream)
{
	return (uintptr_t)stream > 2 && stream->graph;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
	CUresult result = emu_driver_enter();

	if (!result) {
		*stream = calloc(1, sizeof(**stream));
		if (*stream) {
			(*stream)->number =
			    emu_stream_order_add(&emu_driver.order, flags & 1);
			compare_streams(flags & 1);
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
	(void)priority;
	return cuStreamCreate(stream, flags);
}

static void free_graph(struct CUgraph_st *graph)
{
	struct emu_work *next;

	if (!graph)
		return;
	for (struct emu_work *w = graph->first; w; w = next) {
		next = w->next;
		emu_work_free(w);
	}
	free(graph);
}

/* Ends the capture of a graph in all of its streams. */
static void leave_capture(const struct CUgraph_st *graph)
{
	for (struct CUstream_st *s = emu_driver.streams; s; s = s->next)
		if (s->graph == graph) {
			s->graph = NULL;
			s->is_origin = false;
		}
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
	if (stream->is_origin) {
		struct CUgraph_st *graph = stream->graph;

		leave_capture(graph);
		free_graph(graph);
	}
	free(stream);
	return emu_driver_leave(result);
}

/* Runs what is queued, if the stream may be waited for. */
static CUresult flush(CUstream stream)
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
		result = flush(stream);
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

/*
 * A stream that waits for an event of a capture captures into the same graph, whose
 * nodes run in the order in which they were captured.
 */
static CUresult join_capture(CUstream stream, CUevent event)
{
	const struct CUstream_st *s = emu_driver.streams;

	while (s && (!s->is_origin || s->graph->capture != event->capture))
		s = s->next;
	if (!s)
		return CUDA_ERROR_CAPTURED_EVENT;
	if ((uintptr_t)stream <= 2)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->graph && stream->graph != s->graph)
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	stream->graph = s->graph;
	return CUDA_SUCCESS;
}

/* Streams do not overlap here, so recorded work has ended; on a GPU it may not have,
 * so the order is kept. */
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
	CUresult result = emu_driver_enter();

	(void)flags;
	if (!result && (!event || !emu_stream_is_valid(stream)))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result && event->capture)
		return emu_driver_leave(join_capture(stream, event));
	if (!result)
		emu_stream_order_wait(&emu_driver.order, emu_stream_number(stream),
				      event->seen);
	return emu_driver_leave(result);
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *flags)
{
	(void)stream;
	*flags = 0;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
	(void)stream;
	*priority = 0;
	return CUDA_SUCCESS;
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

static CUresult capture_host(CUstream stream, void (*function)(void *), void *argument)
{
	struct emu_work *w = calloc(1, sizeof(*w));

	if (!w)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->kind = EMU_WORK_HOST;
	w->function = function;
	w->argument = argument;
	return emu_driver_submit(stream, w);
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
		result = capture_host(stream, function, argument);
	else if (!result)
		result = flush(stream);
	result = emu_driver_leave(result);
	if (!result && !captures && function)
		function(argument);
	return result;
}

/* ---- graphs -------------------------------------------------------------- */

struct CUgraphExec_st {
	struct CUgraph_st *graph;
};

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
	CUresult result = emu_driver_enter();

	(void)mode;
	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	else if (!result && (uintptr_t)stream <= 2)
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	else if (!result && stream->graph)
		result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	if (!result) {
		stream->graph = calloc(1, sizeof(*stream->graph));
		if (!stream->graph)
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!result) {
		static uint64_t captures;

		stream->graph->capture = ++captures;
		stream->is_origin = true;
	}
	return emu_driver_leave(result);
}

CUresult cuStreamIsCapturing(CUstream stream, int *state)
{
	CUresult result = emu_driver_enter();

	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	else if (!result)
		*state = emu_stream_is_capturing(stream);
	return emu_driver_leave(result);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	CUresult result = emu_driver_enter();

	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	else if (!result && (!emu_stream_is_capturing(stream) || !stream->is_origin))
		result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	if (!result) {
		*graph = stream->graph;
		leave_capture(*graph);
	}
	return emu_driver_leave(result);
}

static struct emu_work *copy_work(const struct emu_work *from)
{
	struct emu_work *w = malloc(sizeof(*w));
	const size_t bytes =
	    from->kind == EMU_WORK_KERNEL ? from->grid.kernel->parameter_bytes : 0;

	if (!w)
		return NULL;
	*w = *from;
	w->next = NULL;
	if (w->reservation)
		w->reservation->owners++;
	w->parameters = malloc(bytes + 1);
	if (!w->parameters) {
		emu_work_free(w);
		return NULL;
	}
	if (bytes)
		memcpy(w->parameters, from->parameters, bytes);
	return w;
}

static struct CUgraph_st *copy_graph(const struct CUgraph_st *from)
{
	struct CUgraph_st *to = calloc(1, sizeof(*to));

	for (const struct emu_work *w = from->first; to && w; w = w->next) {
		struct emu_work *copy = copy_work(w);

		if (!copy) {
			free_graph(to);
			return NULL;
		}
		if (to->last)
			to->last->next = copy;
		else
			to->first = copy;
		to->last = copy;
		to->count++;
	}
	return to;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
				     unsigned long long flags)
{
	CUresult result = emu_driver_enter();

	(void)flags;
	if (result)
		return emu_driver_leave(result);
	*exec = calloc(1, sizeof(**exec));
	if (*exec)
		(*exec)->graph = copy_graph(graph);
	if (!*exec || !(*exec)->graph) {
		free(*exec);
		return emu_driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	return emu_driver_leave(CUDA_SUCCESS);
}

/* Calls the function of a node when the work before it has ended, without the lock. */
static CUresult call_host(const struct emu_work *w)
{
	CUresult result = emu_driver_flush();

	if (result)
		return result;
	(void)emu_driver_leave(CUDA_SUCCESS);
	w->function(w->argument);
	return emu_driver_enter();
}

static CUresult launch_node(const struct emu_work *w, CUstream stream)
{
	struct emu_work *copy;

	if (w->kind == EMU_WORK_HOST && !emu_stream_is_capturing(stream))
		return call_host(w);
	copy = copy_work(w);
	return copy ? emu_driver_submit(stream, copy) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	CUresult result = emu_driver_enter();

	if (!result && !emu_stream_is_valid(stream))
		result = CUDA_ERROR_INVALID_HANDLE;
	for (const struct emu_work *w = exec->graph->first; w && !result; w = w->next)
		result = launch_node(w, stream);
	return emu_driver_leave(result);
}

CUresult cuGraphCreate(CUgraph *graph, unsigned flags)
{
	if (!graph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = calloc(1, sizeof(**graph));
	return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph)
{
	CUresult result = emu_driver_enter();

	if (!result && (!clone || !graph))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		*clone = copy_graph(graph);
		if (!*clone)
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return emu_driver_leave(result);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	const struct emu_work *w = graph->first;

	if (!nodes) {
		*count = graph->count;
		return CUDA_SUCCESS;
	}
	for (size_t i = 0; i < *count && w; i++, w = w->next)
		nodes[i] = (CUgraphNode)(uintptr_t)w;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, int *type)
{
	static const int types[] = {
	    [EMU_WORK_KERNEL] = 0, [EMU_WORK_COPY] = 1,	 [EMU_WORK_SET] = 2,
	    [EMU_WORK_ALLOC] = 10, [EMU_WORK_FREE] = 11, [EMU_WORK_HOST] = 3,
	};

	*type = types[((const struct emu_work *)(uintptr_t)node)->kind];
	return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
	free_graph(graph);
	return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	if (exec)
		free_graph(exec->graph);
	free(exec);
	return CUDA_SUCCESS;
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
	free(event);
	return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	CUresult result = emu_driver_enter();

	if (!result && emu_stream_is_valid(stream) && emu_stream_is_capturing(stream)) {
		event->capture = stream->graph->capture;
		return emu_driver_leave(CUDA_SUCCESS);
	}
	event->capture = 0;
	if (!result)
		result = flush(stream);
	emu_stream_order_record(&emu_driver.order, emu_stream_number(stream),
				event->seen);
	event->instructions = emu_driver.machine.instructions;
	if (emu_driver.machine.time)
		event->ns = emu_time_ns(emu_driver.machine.time);
	return emu_driver_leave(result);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
	(void)flags;
	return cuEventRecord(event, stream);
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
