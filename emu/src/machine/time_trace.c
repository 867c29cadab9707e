/* SPDX-License-Identifier: Apache-2.0 */
/* time_trace.c - writes the timeline: see time_trace.h. */
#include "machine/time_trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/time_state.h"

#define MOST_SMS    256
#define ENGINES	    (EMU_TRACE_HBM + 1)
#define GPU_PROCESS 1000 /* of L2 and HBM; an SM's is its number */
#define ENGINE_ROW  100000
#define ROWS_OF_CTA 100
/* Gaps of an engine of up to this many cycles are not shown. */
#define ENGINE_GAP 16

struct emu_trace {
	FILE *file;
	double ghz;
	bool has_rows;
	bool is_chosen[MOST_SMS];
	bool is_named[MOST_SMS][ENGINES];
	struct emu_stretch engines[MOST_SMS][ENGINES];
};

const char *const emu_spent_names[EMU_SPENTS] = {
    [EMU_SPENT_ISSUE] = "issue",
    [EMU_SPENT_PIPE] = "wait: pipe",
    [EMU_SPENT_OPERANDS] = "wait: operands",
    [EMU_SPENT_LOADS] = "wait: loads",
    [EMU_SPENT_MBARRIER] = "wait: mbarrier",
    [EMU_SPENT_BARRIER] = "wait: barrier",
    [EMU_SPENT_TENSOR] = "wait: wgmma",
    [EMU_SPENT_COPIES] = "wait: copies",
    [EMU_SPENT_GRID] = "wait: grid before",
    [EMU_SPENT_FENCE] = "wait: fence",
    [EMU_SPENT_TCGEN05] = "wait: tcgen05",
};

static const char *const engine_names[ENGINES] = {
    [EMU_TRACE_TENSOR] = "tensor cores",
    [EMU_TRACE_TMA] = "TMA",
    [EMU_TRACE_SHARED] = "shared memory",
    [EMU_TRACE_SCALES] = "tcgen05.cp",
    [EMU_TRACE_TMEM] = "tensor memory",
    [EMU_TRACE_L2] = "L2",
    [EMU_TRACE_HBM] = "HBM",
};

/* ---- the file ------------------------------------------------------------ */

static void begin_row(struct emu_trace *t)
{
	(void)fputs(t->has_rows ? ",\n" : "", t->file);
	t->has_rows = true;
}

static void write_name(struct emu_trace *t, uint32_t process, uint32_t row,
		       const char *name)
{
	begin_row(t);
	(void)fprintf(t->file,
		      "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,"
		      "\"tid\":%u,\"args\":{\"name\":\"%s\"}}",
		      process, row, name);
}

static void write_process(struct emu_trace *t, uint32_t process)
{
	begin_row(t);
	(void)fprintf(t->file,
		      "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,"
		      "\"args\":{\"name\":\"%s %u (predicted)\"}}",
		      process, process == GPU_PROCESS ? "GPU" : "SM",
		      process == GPU_PROCESS ? 0 : process);
}

/* Times of the format are microseconds. */
static void write_stretch(struct emu_trace *t, uint32_t process, uint32_t row,
			  const char *name, const struct emu_stretch *s)
{
	begin_row(t);
	(void)fprintf(t->file,
		      "{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u,"
		      "\"ts\":%.4f,\"dur\":%.4f}",
		      name, process, row, s->from / t->ghz / 1e3,
		      (s->to - s->from) / t->ghz / 1e3);
}

static bool choose(struct emu_trace *t, const char *sms)
{
	char *end;

	do {
		const unsigned long sm = strtoul(sms, &end, 10);

		if (end == sms || sm >= MOST_SMS || (*end && *end != ','))
			return false;
		t->is_chosen[sm] = true;
		write_process(t, (uint32_t)sm);
		sms = end + 1;
	} while (*end);
	return true;
}

struct emu_trace *emu_trace_open(const char *path, const char *sms, double ghz,
				 struct emu_error *err)
{
	struct emu_trace *t = calloc(1, sizeof(*t));

	if (t)
		t->file = fopen(path, "w");
	if (!t || !t->file) {
		(void)emu_fail(err, "NIBEMU_TRACE=%s: %s", path, strerror(errno));
		free(t);
		return NULL;
	}
	t->ghz = ghz;
	(void)fputs("[\n", t->file);
	write_process(t, GPU_PROCESS);
	if (choose(t, sms ? sms : "0"))
		return t;
	(void)emu_fail(err,
		       "NIBEMU_TRACE_SMS=%s: not numbers of SMs below %d, as "
		       "0,5",
		       sms, MOST_SMS);
	emu_trace_close(t);
	return NULL;
}

/* ---- rows ---------------------------------------------------------------- */

static uint32_t row_of(const struct emu_warp *w)
{
	const struct emu_cluster *c = w->cta->cluster;

	return (c->index * c->n_ctas + w->cta->rank + 1) * ROWS_OF_CTA + w->index;
}

static void flush_warp(struct emu_trace *t, const struct emu_warp *w)
{
	struct emu_stretch *s = &w->clock->stretch;
	const struct emu_cluster *c = w->cta->cluster;
	char name[64];

	if (s->to <= 0)
		return;
	if (!w->clock->is_named) {
		w->clock->is_named = true;
		(void)snprintf(name, sizeof(name), "CTA %u warp %u",
			       c->index * c->n_ctas + w->cta->rank, w->index);
		write_name(t, w->cta->clock->sm->number, row_of(w), name);
	}
	write_stretch(t, w->cta->clock->sm->number, row_of(w), emu_spent_names[s->kind],
		      s);
	s->to = 0;
}

void emu_trace_warp(struct emu_trace *trace, struct emu_warp *w, enum emu_spent kind,
		    double from, double to)
{
	struct emu_stretch *s = &w->clock->stretch;

	if (!trace || !trace->is_chosen[w->cta->clock->sm->number % MOST_SMS])
		return;
	/* Short waits between instructions belong to the same interval. */
	if (s->to > 0 && (s->kind == (int)kind || to - from < ENGINE_GAP) &&
	    from - s->to < ENGINE_GAP) {
		s->to = to;
		return;
	}
	flush_warp(trace, w);
	*s = (struct emu_stretch){.from = from, .to = to, .kind = (int)kind};
}

void emu_trace_warp_end(struct emu_trace *trace, struct emu_warp *w)
{
	if (trace && trace->is_chosen[w->cta->clock->sm->number % MOST_SMS])
		flush_warp(trace, w);
}

static void flush_engine(struct emu_trace *t, uint32_t sm, uint32_t engine)
{
	struct emu_stretch *s = &t->engines[sm][engine];
	const uint32_t process = engine >= EMU_TRACE_L2 ? GPU_PROCESS : sm;

	if (s->to <= 0)
		return;
	if (!t->is_named[sm][engine])
		write_name(t, process, ENGINE_ROW + engine, engine_names[engine]);
	t->is_named[sm][engine] = true;
	write_stretch(t, process, ENGINE_ROW + engine, "busy", s);
	s->to = 0;
}

void emu_trace_engine(struct emu_trace *trace, uint32_t sm,
		      enum emu_trace_engine engine, double from, double to)
{
	struct emu_stretch *s;

	if (engine >= EMU_TRACE_L2)
		sm = 0;
	if (!trace || sm >= MOST_SMS ||
	    (engine < EMU_TRACE_L2 && !trace->is_chosen[sm]))
		return;
	s = &trace->engines[sm][engine];
	if (s->to > 0 && from - s->to < ENGINE_GAP) {
		s->to = to > s->to ? to : s->to;
		return;
	}
	flush_engine(trace, sm, engine);
	*s = (struct emu_stretch){.from = from, .to = to};
}

void emu_trace_flush(struct emu_trace *trace)
{
	static const char end[] = "\n]\n";

	if (!trace)
		return;
	for (uint32_t sm = 0; sm < MOST_SMS; sm++)
		for (uint32_t k = 0; k < ENGINES; k++)
			flush_engine(trace, sm, k);
	/* The next row overwrites the end. */
	(void)fputs(end, trace->file);
	(void)fflush(trace->file);
	(void)fseek(trace->file, -(long)(sizeof(end) - 1), SEEK_CUR);
}

void emu_trace_close(struct emu_trace *trace)
{
	if (!trace)
		return;
	emu_trace_flush(trace);
	(void)fclose(trace->file);
	free(trace);
}
