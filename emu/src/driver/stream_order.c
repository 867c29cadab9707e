/* SPDX-License-Identifier: Apache-2.0 */
/* stream_order.c - see stream_order.h. */
#include "driver/stream_order.h"

#include <string.h>

#define NAMED EMU_STREAMS_NAMED

void emu_stream_order_merge(uint32_t *to, const uint32_t *from)
{
	for (uint32_t k = 0; k < EMU_STREAMS; k++)
		to[k] = to[k] > from[k] ? to[k] : from[k];
}

uint32_t emu_stream_order_add(struct emu_stream_order *o, bool is_apart)
{
	const uint32_t number = NAMED + o->count;

	if (number >= EMU_STREAMS) {
		o->is_short = true;
		return EMU_STREAMS;
	}
	o->count++;
	o->is_apart[number] = is_apart;
	return number;
}

/* A stream waits for the default one, and the default one for all but those apart. */
static void meet_default(struct emu_stream_order *o, uint32_t stream)
{
	for (uint32_t k = 1; k < NAMED + o->count && stream == 0; k++)
		if (!o->is_apart[k])
			emu_stream_order_merge(o->seen[0], o->seen[k]);
	if (stream && !o->is_apart[stream])
		emu_stream_order_merge(o->seen[stream], o->seen[0]);
}

void emu_stream_order_begin(struct emu_stream_order *o, uint32_t stream,
			    struct emu_stream_work *work)
{
	memset(work, 0, sizeof(*work));
	if (stream >= EMU_STREAMS || o->clocks[stream] + 1 >= EMU_STREAM_MOST) {
		o->is_short = true;
		return;
	}
	meet_default(o, stream);
	emu_stream_order_merge(o->seen[stream], o->host);
	work->streams = o->streams;
	work->stream = stream;
	memcpy(work->seen, o->seen[stream], sizeof(work->seen));
	work->clock = ++o->clocks[stream];
	o->seen[stream][stream] = work->clock;
}

uint32_t emu_stream_order_take(struct emu_stream_order *o)
{
	uint32_t number;

	if (o->n_spare)
		return o->spare[--o->n_spare];
	number = emu_stream_order_add(o, true);
	if (number < EMU_STREAMS && o->streams)
		emu_streams_mark_branch(o->streams, number);
	return number;
}

void emu_stream_order_return(struct emu_stream_order *o, uint32_t number)
{
	if (number < EMU_STREAMS)
		o->spare[o->n_spare++] = number;
}

void emu_stream_order_node(struct emu_stream_order *o, uint32_t number, uint32_t *seen,
			   struct emu_stream_work *work)
{
	memset(work, 0, sizeof(*work));
	if (number >= EMU_STREAMS || o->clocks[number] + 1 >= EMU_STREAM_MOST) {
		o->is_short = true;
		return;
	}
	work->streams = o->streams;
	work->stream = number;
	memcpy(work->seen, seen, sizeof(work->seen));
	work->clock = ++o->clocks[number];
	seen[number] = work->clock;
}

void emu_stream_order_seen(struct emu_stream_order *o, uint32_t stream, uint32_t *seen)
{
	emu_stream_order_record(o, stream, seen);
	emu_stream_order_merge(seen, o->host);
}

void emu_stream_order_record(struct emu_stream_order *o, uint32_t stream,
			     uint32_t *seen)
{
	if (stream >= EMU_STREAMS)
		return;
	meet_default(o, stream);
	memcpy(seen, o->seen[stream], sizeof(o->seen[stream]));
}

void emu_stream_order_wait(struct emu_stream_order *o, uint32_t stream,
			   const uint32_t *seen)
{
	if (stream < EMU_STREAMS)
		emu_stream_order_merge(o->seen[stream], seen);
}

void emu_stream_order_host(struct emu_stream_order *o, const uint32_t *seen)
{
	emu_stream_order_merge(o->host, seen);
}

void emu_stream_order_host_stream(struct emu_stream_order *o, uint32_t stream)
{
	if (stream >= EMU_STREAMS)
		return;
	meet_default(o, stream);
	emu_stream_order_merge(o->host, o->seen[stream]);
}

void emu_stream_order_host_all(struct emu_stream_order *o)
{
	emu_stream_order_merge(o->host, o->clocks);
}
