/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c - see queue.h. */
#include "driver/queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver/graph_memory.h"
#include "driver/record.h"
#include "machine/findings.h"
#include "machine/grid.h"
#include "machine/prints.h"
#include "machine/time.h"
#include "machine/title.h"
#include "machine/traffic.h"
#include "machine/watch.h"

/* ---- work ---------------------------------------------------------------- */

void emu_work_free(struct emu_work *work)
{
	if (!work)
		return;
	emu_reservation_leave(work->reservation);
	free(work->parameters);
	free(work->attributes);
	free(work);
}

/* A copy of bytes, which may be none.  NULL: no memory. */
static void *copy_of(const void *from, size_t bytes)
{
	void *to = malloc(bytes + 1);

	if (to && bytes)
		memcpy(to, from, bytes);
	return to;
}

struct emu_work *emu_work_copy(const struct emu_work *from)
{
	struct emu_work *w = malloc(sizeof(*w));

	if (!w)
		return NULL;
	*w = *from;
	w->next = NULL;
	if (w->reservation)
		w->reservation->owners++;
	w->parameters = copy_of(
	    from->parameters,
	    from->kind == EMU_WORK_KERNEL ? from->grid.kernel->parameter_bytes : 0);
	w->attributes =
	    copy_of(from->attributes, from->n_attributes * sizeof(*w->attributes));
	if (w->parameters && w->attributes)
		return w;
	emu_work_free(w);
	return NULL;
}

/* ---- copies and fills ---------------------------------------------------- */

/* True if a live allocation holds the range; memory of a graph can be unmapped. */
static bool is_in_block(CUdeviceptr pointer, size_t bytes)
{
	uint64_t begin, length;

	return emu_memory_find(emu_driver.machine.memory, pointer, &begin, &length) &&
	       bytes <= length - (pointer - begin) &&
	       emu_space_has(&emu_driver.machine.global, begin, 1, EMU_MAPPED);
}

/* Checks that all of a range in device memory is allocated. */
static CUresult check_range(const char *what, CUdeviceptr pointer, size_t bytes)
{
	char text[200];
	uint64_t at = pointer, begin, length;

	if (bytes == 0 || !emu_is_device(pointer) || is_in_block(pointer, bytes))
		return CUDA_SUCCESS;
	if (emu_space_has(&emu_driver.machine.global, at, 1, EMU_MAPPED) &&
	    emu_memory_find(emu_driver.machine.memory, at, &begin, &length))
		at = begin + length;
	emu_memory_describe(emu_driver.machine.memory, at, text, sizeof(text));
	return emu_driver_fail(CUDA_ERROR_INVALID_VALUE, "%s %zu bytes at 0x%llx: %s",
			       what, bytes, pointer, text);
}

/* bytes: a multiple of value_bytes. */
static void fill(const struct emu_work *w, CUdeviceptr at, size_t bytes)
{
	uint8_t *to = (uint8_t *)(uintptr_t)at;
	const uint32_t value = w->value;

	if (w->value_bytes == 1 || value == 0)
		emu_is_device(at) ? emu_memory_set(emu_driver.machine.memory, at, bytes,
						   (uint8_t)value)
				  : (void)memset(to, (int)value, bytes);
	else
		for (size_t i = 0; i < bytes; i += w->value_bytes)
			memcpy(to + i, &value, w->value_bytes);
}

/* ---- kernels ------------------------------------------------------------- */

#define MAX_CHAIN 64

/* Copies bytes for a kernel to device memory; 0: no memory is left. */
static uint64_t place(const void *data, size_t bytes)
{
	const uint64_t at = emu_driver_alloc(bytes + 1);

	if (!at)
		return 0;
	memcpy((void *)(uintptr_t)at, data, bytes);
	memset(emu_shadow_of(at), EMU_MAPPED | EMU_WRITTEN, bytes);
	emu_memory_hide(emu_driver.machine.memory, at);
	return at;
}

/*
 * Parameters are stored in device memory, where generic addresses reach them.  A
 * cooperative grid has a workspace, which cooperative_groups/details/driver_abi.h
 * defines: its size and a barrier, whose top bit may be 0 or 1.
 */
static CUresult place_parameters(struct emu_work *w)
{
	struct emu_grid *g = &w->grid;
	const uint32_t workspace[2] = {8, (uint32_t)(g->id % 2) << 31};

	g->parameters = place(w->parameters, g->kernel->parameter_bytes);
	if (g->parameters && g->is_cooperative)
		g->workspace = place(workspace, sizeof(workspace));
	return !g->parameters || (g->is_cooperative && !g->workspace)
		   ? CUDA_ERROR_OUT_OF_MEMORY
		   : CUDA_SUCCESS;
}

static void remove_parameters(struct emu_work *w)
{
	struct emu_memory *memory = emu_driver.machine.memory;

	if (w->grid.parameters)
		(void)emu_memory_free(memory, w->grid.parameters, NULL);
	if (w->grid.workspace)
		(void)emu_memory_free(memory, w->grid.workspace, NULL);
}

/* A report for people. */
struct text {
	char kernel[1024];			     /* the name, as in the PTX */
	char report[sizeof(struct emu_error) + 160]; /* without rule and advice */
	char all[sizeof(struct emu_error) + 1000];
};

/*
 * Formats a report, which begins with the kernel's name, with its rule and the way to
 * reproduce it.  kernel: the full name; NULL: the report has it.
 */
static void put_report(struct text *to, const char *kernel, const char *report,
		       const struct emu_rule *rule)
{
	const size_t length = strcspn(report, ",:");
	char title[150];
	int used;

	snprintf(to->kernel, sizeof(to->kernel), "%.*s",
		 (int)(kernel ? strlen(kernel) : length), kernel ? kernel : report);
	emu_kernel_title(to->kernel, title, sizeof(title));
	snprintf(to->report, sizeof(to->report), "%s%s", title, report + length);
	used = snprintf(to->all, sizeof(to->all), "%s", to->report);
	if (rule)
		used += snprintf(to->all + used, sizeof(to->all) - (size_t)used,
				 "\n  rule: %s: %s\n  try: %s", rule->name, rule->rule,
				 emu_rule_advice(rule, report));
	snprintf(to->all + used, sizeof(to->all) - (size_t)used,
		 "\n  again: NIBEMU_SEED=%" PRIu64, emu_driver.machine.options.seed);
}

/* Prints the report that ended a launch, and keeps it for cuGetErrorString. */
static CUresult report_failure(void)
{
	const struct emu_machine *m = &emu_driver.machine;
	const struct emu_rule *rule = m->report_rule;
	struct text text;

	put_report(&text, m->report_kernel, m->report.text, rule);
	fprintf(stderr, "nibemu: %s\n", text.all);
	emu_record_report(text.kernel, m->report.text, text.all, rule, false, 1);
	return emu_driver_fail(rule && strcmp(rule->name, "assert") == 0
				   ? CUDA_ERROR_ASSERT
				   : CUDA_ERROR_LAUNCH_FAILED,
			       "%s", text.all);
}

/* Prints a finding; a waived one only with NIBEMU_VERBOSE. */
static void tell_finding(const struct emu_finding *f)
{
	struct text text;

	put_report(&text, f->kernel, f->report, f->rule);
	emu_record_report(text.kernel, f->report, text.all, f->rule, f->is_waived,
			  f->count);
	if (f->is_waived && !emu_driver.is_verbose)
		return;
	fprintf(stderr, "nibemu: %s\n  %s %" PRIu64 " time%s\n", text.all,
		f->is_waived ? "waived," : "found", f->count, f->count == 1 ? "" : "s");
}

/*
 * Reports what was found while the launch continued.  Reports that are not waived
 * fail the launch at its end.
 */
static CUresult report_findings(void)
{
	const struct emu_finding *list;
	const size_t n = emu_findings_list(emu_driver.machine.options.findings, &list);
	size_t broken = 0, first = 0;
	struct text text;

	for (size_t i = 0; i < n; i++) {
		if (!list[i].is_waived && !broken++)
			first = i;
		tell_finding(&list[i]);
	}
	if (!broken)
		return CUDA_SUCCESS;
	put_report(&text, list[first].kernel, list[first].report, NULL);
	return emu_driver_fail(CUDA_ERROR_LAUNCH_FAILED, "%zu report%s; the first: %s",
			       broken, broken == 1 ? "" : "s", text.report);
}

static void print_traffic(const struct emu_traffic *t)
{
	const uint64_t *b = t->bytes;

	fprintf(stderr,
		"nibemu: global memory: loaded %" PRIu64
		" bytes (tensor copies %" PRIu64 ", bulk copies %" PRIu64
		", cp.async %" PRIu64 ", loads of threads %" PRIu64 "), stored %" PRIu64
		" bytes\n",
		b[EMU_TRAFFIC_TENSOR] + b[EMU_TRAFFIC_BULK] + b[EMU_TRAFFIC_CP_ASYNC] +
		    b[EMU_TRAFFIC_LOAD],
		b[EMU_TRAFFIC_TENSOR], b[EMU_TRAFFIC_BULK], b[EMU_TRAFFIC_CP_ASYNC],
		b[EMU_TRAFFIC_LOAD], b[EMU_TRAFFIC_STORE]);
	for (uint32_t k = 0; k < t->n_ranges; k++)
		fprintf(stderr,
			"nibemu: allocation 0x%" PRIx64 " of %" PRIu64
			" bytes: loaded %" PRIu64 ", stored %" PRIu64 "\n",
			t->ranges[k].begin, t->ranges[k].bytes, t->ranges[k].loaded,
			t->ranges[k].stored);
}

/* begin_ns: when the first of them was launched. */
static void print_time(uint32_t grids, double begin_ns)
{
	const struct emu_time *t = emu_driver.machine.time;
	struct emu_error text = {{0}};

	emu_time_describe(t, &text);
	fprintf(stderr, "nibemu: %s\n", text.text);
	if (grids > 1)
		fprintf(stderr, "nibemu: %u grids: %.2f us predicted\n", grids,
			(emu_time_ns(t) - begin_ns) / 1e3);
}

static double seconds(clockid_t clock_id)
{
	struct timespec t;

	(void)clock_gettime(clock_id, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Records once what launches have not watched. */
static void record_unwatched(void)
{
	static const char *const texts[] = {EMU_UNWATCHED_TEXTS};
	static uint32_t recorded;

	for (uint32_t k = 0; k < sizeof(texts) / sizeof(*texts); k++)
		if (emu_driver.machine.unwatched & ~recorded & 1u << k)
			emu_record_event("unwatched", texts[k]);
	recorded |= emu_driver.machine.unwatched;
}

static CUresult run_chain(struct emu_grid **grids, uint32_t count)
{
	struct emu_machine *m = &emu_driver.machine;
	struct emu_traffic *traffic =
	    emu_driver.is_verbose ? calloc(count, sizeof(*traffic)) : NULL;

	const uint64_t before = m->instructions;
	const double begin_ns = m->time ? emu_time_ns(m->time) : 0;
	const double begin = seconds(CLOCK_MONOTONIC);
	const double cpu_begin = seconds(CLOCK_PROCESS_CPUTIME_ID);
	CUresult found;
	bool ok;

	if (grids[0]->id == 1)
		emu_record_event("ran", grids[0]->kernel->name);
	for (uint32_t i = 0; i < count; i++)
		grids[i]->traffic = traffic ? &traffic[i] : NULL;
	ok = emu_grids_run(m, grids, count);
	if (emu_driver.order.is_short)
		m->unwatched |= EMU_UNWATCHED_STREAMS;
	record_unwatched();
	if (emu_prints_write(m->prints, stdout))
		(void)fflush(stdout);
	for (uint32_t i = 0; i < count && emu_driver.is_verbose; i++) {
		const uint32_t ctas =
		    grids[i]->grid[0] * grids[i]->grid[1] * grids[i]->grid[2];

		fprintf(stderr, "nibemu: %s, %u CTA%s%s\n",
			emu_title_of(grids[i]->kernel->name), ctas,
			ctas == 1 ? "" : "s",
			i ? ", launched before the previous kernel has ended" : "");
		if (traffic)
			print_traffic(&traffic[i]);
	}
	free(traffic);
	if (emu_driver.is_verbose)
		fprintf(stderr,
			"nibemu: %" PRIu64 " thread instructions, %.3f s wall "
			"time, %.3f s processor time\n",
			m->instructions - before, seconds(CLOCK_MONOTONIC) - begin,
			seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin);
	if (emu_driver.is_verbose && m->time)
		print_time(count, begin_ns);
	found = report_findings();
	if (m->options.findings)
		emu_findings_clear(m->options.findings);
	if (!ok)
		found = report_failure();
	if (found)
		emu_driver.failed = found;
	return found;
}

CUresult emu_driver_flush(void)
{
	struct emu_grid *grids[MAX_CHAIN];
	struct emu_work *w = emu_driver.queue, *next;
	uint32_t count = 0;
	CUresult result = CUDA_SUCCESS;

	for (; w && !result; w = w->next) {
		w->grid.before = count ? grids[count - 1] : NULL;
		w->grid.id = ++emu_driver.grids;
		w->grid.work = w->order.streams ? &w->order : NULL;
		result = place_parameters(w);
		grids[count++] = &w->grid;
	}
	if (count && !result)
		result = run_chain(grids, count);
	for (w = emu_driver.queue; w; w = next) {
		next = w->next;
		remove_parameters(w);
		emu_work_free(w);
	}
	emu_driver.queue = emu_driver.queue_end = NULL;
	return result;
}

static CUresult queue_kernel(struct emu_work *w)
{
	uint32_t length = 0;
	CUresult result = CUDA_SUCCESS;

	for (const struct emu_work *q = emu_driver.queue; q; q = q->next)
		length++;
	if (!w->is_dependent || length == MAX_CHAIN)
		result = emu_driver_flush();
	if (result) {
		emu_work_free(w);
		return result;
	}
	w->next = NULL;
	if (emu_driver.queue)
		emu_driver.queue_end->next = w;
	else
		emu_driver.queue = w;
	emu_driver.queue_end = w;
	return CUDA_SUCCESS;
}

/* A row of a copy or a fill. */
struct row {
	CUdeviceptr to, from;
	size_t bytes;
};

/* Checks the bytes of a row in the order of streams. */
static CUresult check_order(const struct emu_work *w, struct row row)
{
	struct emu_machine *m = &emu_driver.machine;
	const bool is_copy = w->kind == EMU_WORK_COPY;
	char name[] = "copy", title[60];
	struct emu_error err, report;
	struct emu_finding one;
	CUresult found;

	if (!w->order.streams ||
	    ((!emu_is_device(row.to) || emu_stream_access(&w->order, EMU_STREAM_WRITE,
							  row.to, row.bytes, &err)) &&
	     (!is_copy || !emu_is_device(row.from) ||
	      emu_stream_access(&w->order, EMU_STREAM_READ, row.from, row.bytes,
				&err))))
		return CUDA_SUCCESS;
	if (!is_copy)
		memcpy(name, "fill", sizeof(name));
	emu_stream_title(w->order.streams, w->order.stream, title, sizeof(title));
	emu_fail(&report, "%s of %zu bytes in %s: %.700s", name, row.bytes, title,
		 err.text);
	one = (struct emu_finding){
	    .rule = emu_rule_for(err.text), .kernel = name, .report = report.text};
	if (emu_findings_add(m->options.findings, &one)) {
		found = report_findings();
		emu_findings_clear(m->options.findings);
	} else {
		m->report = report;
		m->report_rule = one.rule;
		found = report_failure();
	}
	emu_driver.failed = found;
	return found;
}

static CUresult check_row(const struct emu_work *w, struct row row)
{
	CUresult result = check_range("write of", row.to, row.bytes);

	if (!result && w->kind == EMU_WORK_COPY)
		result = check_range("read of", row.from, row.bytes);
	return result ? result : check_order(w, row);
}

static CUresult move_row(const struct emu_work *w, struct row row)
{
	const bool is_copy = w->kind == EMU_WORK_COPY;
	const CUresult result = check_row(w, row);

	if (result)
		return result;
	if (is_copy)
		memmove((void *)(uintptr_t)row.to, (void *)(uintptr_t)row.from,
			row.bytes);
	else
		fill(w, row.to, row.bytes);
	if (!emu_is_device(row.to))
		return CUDA_SUCCESS;
	if (is_copy && emu_is_device(row.from))
		memmove(emu_shadow_of(row.to), emu_shadow_of(row.from), row.bytes);
	else
		emu_memory_set_state(emu_driver.machine.memory, row.to, row.bytes,
				     EMU_MAPPED | EMU_WRITTEN);
	return CUDA_SUCCESS;
}

/* True if the rows are one range, which moves faster. */
static bool is_one_range(const struct emu_work *w)
{
	const struct emu_rows *r = &w->rows;
	const bool is_copy = w->kind == EMU_WORK_COPY;

	return r->to_pitch == w->bytes && r->to_slice == r->rows * w->bytes &&
	       (!is_copy ||
		(r->from_pitch == w->bytes && r->from_slice == r->rows * w->bytes));
}

/* Runs a copy or a fill. */
static CUresult run_move(const struct emu_work *w)
{
	const struct emu_rows *r = &w->rows;
	const bool is_one = is_one_range(w);
	const size_t rows = is_one ? 1 : r->rows, slices = is_one ? 1 : r->slices;
	CUresult result = CUDA_SUCCESS;

	if (w->reservation)
		return emu_reservation_change(w->reservation,
					      w->kind == EMU_WORK_ALLOC);
	for (size_t z = 0; z < slices && w->bytes; z++)
		for (size_t y = 0; y < rows && !result; y++) {
			const struct row row = {
			    w->to + z * r->to_slice + y * r->to_pitch,
			    w->from + z * r->from_slice + y * r->from_pitch,
			    is_one ? w->bytes * r->rows * r->slices : w->bytes};

			if (row.bytes)
				result = move_row(w, row);
		}
	return result;
}

CUresult emu_driver_submit(struct emu_work *w)
{
	CUresult result;

	if (w->kind == EMU_WORK_KERNEL)
		return queue_kernel(w);
	result = emu_driver_flush();
	if (!result)
		result = run_move(w);
	emu_work_free(w);
	return result;
}
