/* SPDX-License-Identifier: Apache-2.0 */
/* results.c - see results.h; the table is in table.c, JSON in json.c. */
#include "results.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "machine/device.h"
#include "verdict.h"

static void describe_end(const struct run *r, char *to, size_t size)
{
	if (WIFSIGNALED(r->status))
		snprintf(to, size, "ended by signal %d (%s)", WTERMSIG(r->status),
			 strsignal(WTERMSIG(r->status)));
	else
		snprintf(to, size, "ended with status %d", WEXITSTATUS(r->status));
}

void result_describe(const struct run *r, const struct job *job, char *to, size_t size)
{
	const char *what = "clean";
	char end[120];

	describe_end(r, end, sizeof(end));
	switch (r->result) {
	case RESULT_CLEAN:
		break;
	case RESULT_FAILED:
		what = end;
		break;
	case RESULT_TIMEOUT:
		snprintf(to, size, "took longer than %u s (--timeout)",
			 job->options->timeout_s);
		return;
	case RESULT_UNUSED:
		snprintf(to, size, "no kernel ran on the software GPU%s%s%s",
			 r->status ? " (it " : "", r->status ? end : "",
			 r->status ? ")" : "");
		return;
	case RESULT_REPORT:
		what = "a rule was broken";
		break;
	case RESULT_REFUSED:
		what = "a kernel or its module was refused";
		break;
	case RESULT_INTERRUPTED:
		what = "interrupted";
		break;
	case RESULT_NONE:
		what = "not run";
		break;
	}
	snprintf(to, size, "%s", what);
}

/* Explains why no kernel ran: what the loader, the library or the program did. */
static void explain_unused(const struct run *r, const struct job *job, char *to,
			   size_t size)
{
	const struct record *unopened = records_find(&r->records, "unopened");
	const struct record *launch = records_find(&r->records, "launch");

	if (unopened)
		snprintf(to, size, "it could not be opened: %s", unopened->text);
	else if (job->program->suspicion[0])
		snprintf(to, size, "%s", job->program->suspicion);
	else if (records_find(&r->records, "foreign"))
		snprintf(to, size,
			 "it loads NVIDIA's runtime library, which requires "
			 "NVIDIA's driver: build all of it with "
			 "nvcc 13 -cudart shared");
	else if (!records_find(&r->records, "begin"))
		snprintf(to, size,
			 "it never opened the software GPU: it does not use "
			 "CUDA, or it opens a libcuda.so.1 by its full path");
	else if (WIFEXITED(r->status) && WEXITSTATUS(r->status) == 127)
		snprintf(to, size,
			 "the loader did not find a function or a file: see its "
			 "message (functions of the runtime library that nibemu does "
			 "not have are undefined symbols)");
	else if (launch)
		snprintf(to, size, "its launch was refused: %s", launch->text);
	else
		snprintf(to, size,
			 "it opened the GPU, and waited for no kernel: kernels run "
			 "when the program waits for them (cudaDeviceSynchronize, "
			 "cudaMemcpy)");
}

void result_explain(const struct run *r, const struct job *job, char *to, size_t size)
{
	const struct record *refused = records_find(&r->records, "refused");
	const struct record *launch = records_find(&r->records, "launch");

	to[0] = '\0';
	if (r->result == RESULT_REFUSED && refused)
		snprintf(to, size, "%s", refused->text);
	else if (r->result == RESULT_UNUSED)
		explain_unused(r, job, to, size);
	else if (r->result == RESULT_TIMEOUT && records_find(&r->records, "ran"))
		snprintf(to, size,
			 "with NIBEMU_BUDGET=100000000 a kernel that does not end is "
			 "reported with its line");
	else if (launch && r->result != RESULT_REPORT)
		snprintf(to, size, "a launch was refused: %s", launch->text);
}

int results_status(const struct runs *r)
{
	static const struct {
		enum result result;
		int status;
	} order[] = {
	    {RESULT_INTERRUPTED, STATUS_INTERRUPTED}, {RESULT_REPORT, STATUS_REPORT},
	    {RESULT_TIMEOUT, STATUS_TIMEOUT},	      {RESULT_REFUSED, STATUS_UNUSED},
	    {RESULT_UNUSED, STATUS_UNUSED},	      {RESULT_FAILED, STATUS_FAILED},
	};

	if (r->is_interrupted)
		return STATUS_INTERRUPTED;
	for (size_t k = 0; k < sizeof(order) / sizeof(*order); k++)
		for (size_t i = 0; i < r->count; i++)
			if (r->list[i].result == order[k].result)
				return order[k].status;
	return STATUS_CLEAN;
}

const char *results_device(const struct runs *r, const struct job *job)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct record *begin = records_find(&r->list[i].records, "begin");

		if (begin)
			return begin->text;
	}
	return job->options->device ? job->options->device : emu_device_default()->name;
}

void results_tell(const struct runs *r, const struct job *job)
{
	const struct run *run = &r->list[0];
	char what[200], why[1400];

	/* The library has printed the report. */
	if (run->result == RESULT_REPORT)
		return;
	result_describe(run, job, what, sizeof(what));
	result_explain(run, job, why, sizeof(why));
	if (run->result == RESULT_CLEAN) {
		fprintf(stderr, "nibemu: %s: clean: ", job->options->program[0]);
		verdict_print(stderr, r, job);
		return;
	}
	fprintf(stderr, "nibemu: %s: %s%s%s\n", job->options->program[0], what,
		why[0] ? ": " : "", why);
}
