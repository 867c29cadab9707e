/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mbarrier.cu - asks a Hopper GPU what mbarrier_cases.h lists, writes its
 * answers, and compares them with the software GPU's.  Exit code 1 if anything
 * differs.  run.sh builds it.
 */
#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include "mbarrier_cases.h"
}

static __device__ uint32_t pending_of(uint64_t state)
{
	uint32_t count;

	asm("mbarrier.pending_count.b64 %0, %1;" : "=r"(count) : "l"(state));
	return count;
}

/* The pending count before it, or 0 of what is no arrival. */
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
		asm volatile(
			"mbarrier.arrive_drop.shared::cta.b64 %0, [%1], %2;"
			: "=l"(state)
			: "r"(bar), "r"(s.number)
			: "memory");
		return pending_of(state);
	case MBARRIER_STEP_ARRIVE_EXPECT_TX:
		asm volatile(
			"mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], "
			"%2;"
			: "=l"(state)
			: "r"(bar), "r"(s.number)
			: "memory");
		return pending_of(state);
	case MBARRIER_STEP_EXPECT_TX:
		asm volatile(
			"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], "
			"%1;" ::"r"(bar),
			"r"(s.number)
			: "memory");
		return 0;
	default:
		asm volatile(
			"mbarrier.complete_tx.relaxed.cta.shared::cta.b64 "
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

/* One thread a case. */
static __global__ void ask(mbarrier_case *cases)
{
	mbarrier_case *c = cases + blockIdx.x;
	__shared__ uint64_t barrier;
	const uint32_t bar = (uint32_t)__cvta_generic_to_shared(&barrier);

	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar),
		     "r"(c->arrivals)
		     : "memory");
	for (int i = 0; i < MBARRIER_STEPS; i++) {
		const uint32_t pending = take_step(bar, c->steps[i]);

		c->results[i] = pending << 8 | test_wait(bar, 1) << 1 |
				test_wait(bar, 0);
	}
}

static void must(cudaError_t status, const char *what)
{
	if (status == cudaSuccess)
		return;
	fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
	exit(2);
}

static mbarrier_case models[MBARRIER_CASES], answers[MBARRIER_CASES];

/* The first step that differs; MBARRIER_STEPS: none. */
static int difference(int i)
{
	int step = 0;

	while (step < MBARRIER_STEPS &&
	       answers[i].results[step] == models[i].results[step])
		step++;
	return step;
}

int main(int argc, char **argv)
{
	FILE *file;
	int differences = 0;
	cudaDeviceProp device;
	mbarrier_case *cases;

	if (argc != 2) {
		fprintf(stderr, "usage: %s RECORDING\n", argv[0]);
		return 2;
	}
	must(cudaGetDeviceProperties(&device, 0), "device");
	file = fopen(argv[1], "w");
	if (!file) {
		perror(argv[1]);
		return 2;
	}
	for (int i = 0; i < MBARRIER_CASES; i++)
		mbarrier_case_make(&models[i], i);
	must(cudaMalloc(&cases, sizeof(models)), "malloc");
	must(cudaMemcpy(cases, models, sizeof(models), cudaMemcpyHostToDevice),
	     "copy");
	ask<<<MBARRIER_CASES, 1>>>(cases);
	must(cudaGetLastError(), "launch");
	must(cudaMemcpy(answers, cases, sizeof(answers),
			cudaMemcpyDeviceToHost),
	     "run");
	fprintf(file, "# tests/gpu_probe/mbarrier.cu on %s\n", device.name);
	for (int i = 0; i < MBARRIER_CASES; i++) {
		const int step = difference(i);

		fprintf(file, "%016llx%c",
			(unsigned long long)mbarrier_case_hash(&answers[i]),
			i % 4 == 3 ? '\n' : ' ');
		if (step == MBARRIER_STEPS)
			continue;
		if (differences++ < 20)
			printf("case %d (%u arrivals) step %d: kind %u number %u: GPU 0x%x, model 0x%x\n",
			       i, models[i].arrivals, step,
			       models[i].steps[step].kind,
			       models[i].steps[step].number,
			       answers[i].results[step],
			       models[i].results[step]);
	}
	if (fclose(file) != 0)
		return 2;
	printf("%d of %d cases differ\n", differences, MBARRIER_CASES);
	return differences != 0;
}
