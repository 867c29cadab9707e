/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mbarrier.cu - runs the histories of mbarrier_cases.h on a Hopper GPU, records the
 * results, and compares them with the software GPU's.  The end of the GPU's context is
 * also a result.  Exit code 1 if anything differs.  run.sh builds it.
 *
 * A line of the recording is "ok HASH" (of all results), or "trap STEP HASH NAME": the
 * number of steps that had a result, the hash of these, and CUDA's error.
 */
#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include "children.h"
#include "mbarrier_cases.h"
}

#define UNKNOWN 0xFFFFFFFFu /* the result of a step not taken */

static __device__ uint32_t pending_of(uint64_t state)
{
	uint32_t count;

	asm("mbarrier.pending_count.b64 %0, %1;" : "=r"(count) : "l"(state));
	return count;
}

/* Returns the pending count before an arrival, or 0 for other steps. */
static __device__ uint32_t take_step(uint32_t bar, mbarrier_step s)
{
	uint64_t state;

	switch (s.kind) {
	case MBARRIER_STEP_ARRIVE:
		asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1], %2;"
			     : "=l"(state)
			     : "r"(bar), "r"(s.number)
			     : "memory");
		return pending_of(state);
	case MBARRIER_STEP_DROP:
		asm volatile("mbarrier.arrive_drop.shared::cta.b64 %0, [%1], %2;"
			     : "=l"(state)
			     : "r"(bar), "r"(s.number)
			     : "memory");
		return pending_of(state);
	case MBARRIER_STEP_ARRIVE_EXPECT_TX:
		asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], "
			     "%2;"
			     : "=l"(state)
			     : "r"(bar), "r"(s.number)
			     : "memory");
		return pending_of(state);
	case MBARRIER_STEP_EXPECT_TX:
		asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], "
			     "%1;" ::"r"(bar),
			     "r"(s.number)
			     : "memory");
		return 0;
	default:
		asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 "
			     "[%0], %1;" ::"r"(bar),
			     "r"(s.number)
			     : "memory");
		return 0;
	}
}

static __device__ uint32_t test_wait(uint32_t bar, uint32_t parity)
{
	uint32_t done;

	asm volatile("{\n\t.reg .pred p;\n\t"
		     "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
		     "selp.u32 %0, 1, 0, p;\n\t}"
		     : "=r"(done)
		     : "r"(bar), "r"(parity)
		     : "memory");
	return done;
}

/*
 * results is in host memory, which outlives the context: the result of a step
 * is written before the next step begins.
 */
static __global__ void ask_gpu(const __grid_constant__ mbarrier_case c,
			       volatile uint32_t *results)
{
	__shared__ uint64_t barrier;
	const uint32_t bar = (uint32_t)__cvta_generic_to_shared(&barrier);

	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar),
		     "r"(c.arrivals)
		     : "memory");
	for (uint32_t i = 0; i < c.n_steps; i++) {
		const uint32_t pending = take_step(bar, c.steps[i]);

		results[i] = pending << 8 | test_wait(bar, 1) << 1 | test_wait(bar, 0);
		__threadfence_system();
	}
}

static void must(cudaError_t status, const char *what)
{
	if (status == cudaSuccess)
		return;
	fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
	exit(2);
}

static uint32_t *results; /* of the GPU */

static void begin(char *name, int bytes)
{
	cudaDeviceProp device;

	must(cudaGetDeviceProperties(&device, 0), "device");
	snprintf(name, bytes, "%s", device.name);
	must(cudaHostAlloc((void **)&results, MBARRIER_STEPS * sizeof(*results),
			   cudaHostAllocMapped),
	     "host memory");
}

/* Prints how the GPU's results differ from the model's, if they do. */
static void compare(int question, const mbarrier_case *model, const mbarrier_case *gpu,
		    uint32_t steps, probe_answer *answer)
{
	char name[80];
	uint32_t i = 0;

	mbarrier_case_name(question, name, sizeof(name));
	while (i < steps && i < model->fault_step &&
	       gpu->results[i] == model->results[i])
		i++;
	if (i == model->n_steps || (i == steps && i == model->fault_step))
		return;
	answer->differs = 1;
	printf("%s, %u arrivals, step %u (kind %u, number %u): GPU ", name,
	       model->arrivals, i, model->steps[i].kind, model->steps[i].number);
	if (i < steps)
		printf("0x%x", gpu->results[i]);
	else
		printf("traps");
	if (i < model->fault_step)
		printf(", model 0x%x\n", model->results[i]);
	else
		printf(", model reports\n");
	fflush(stdout);
}

static void ask(int question, probe_answer *answer)
{
	static mbarrier_case model, gpu;
	cudaError_t status;
	uint32_t steps = 0;

	mbarrier_case_make(&model, question);
	gpu = model;
	for (int i = 0; i < MBARRIER_STEPS; i++)
		results[i] = UNKNOWN;
	ask_gpu<<<1, 1>>>(model, results);
	status = cudaGetLastError();
	if (status == cudaSuccess)
		status = cudaDeviceSynchronize();
	while (steps < model.n_steps && results[steps] != UNKNOWN) {
		gpu.results[steps] = results[steps];
		steps++;
	}
	compare(question, &model, &gpu, steps, answer);
	if (status != cudaSuccess)
		probe_trap(answer, "trap %u %016llx %s", steps,
			   (unsigned long long)mbarrier_case_hash(&gpu, steps),
			   cudaGetErrorName(status));
	snprintf(answer->text, sizeof(answer->text), "ok %016llx",
		 (unsigned long long)mbarrier_case_hash(&gpu, steps));
}

int main(int argc, char **argv)
{
	probe_questions questions = {mbarrier_cases(), begin, ask};

	questions.program = "mbarrier.cu";
	questions.things = "histories";
	return probe_main(argc, argv, &questions);
}
