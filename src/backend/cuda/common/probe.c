/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - launches the kernels that measure the GPU's peak rates
 * (kernels/common/peaks.cuh). */

#include "arch.h"
#include "backend/cuda/kernels/common/probe_params.h"
#include "core/error.h"
#include "cuda.h"

struct launch {
	const char *kernel;
	int64_t blocks, threads, count;
};

static int64_t at_most(int64_t a, int64_t most)
{
	return a < most ? a : most;
}

/* *done: the amount, rounded up to a multiple of the kernel's unit. */
static struct launch launch_of(const struct cuda_device *device, enum nib_probe probe,
			       int64_t amount, int64_t *done)
{
	const int64_t sms = device->multiprocessors;
	const int64_t units = divide_up(amount, NIB_PROBE_READ_BYTES);
	const int64_t step_flop = sms * device->arch->probe_flop;
	const int64_t steps = divide_up(amount, step_flop);

	*done = amount;
	switch (probe) {
	case NIB_PROBE_READ:
		return (struct launch){"nib_probe_read",
				       at_most(divide_up(units, NIB_PROBE_READ_THREADS),
					       NIB_PROBE_READ_BLOCKS * sms),
				       NIB_PROBE_READ_THREADS, units};
	case NIB_PROBE_MULTIPLY:
		*done = steps * step_flop;
		return (struct launch){"nib_probe_multiply", sms,
				       device->arch->probe_threads, steps};
	default:
		return (struct launch){"nib_probe_cycles", 1, 1, amount};
	}
}

enum nib_status cuda_probe(struct nib_device *base, enum nib_probe probe,
			   const void *data, int64_t amount, int64_t *done,
			   void *stream, struct nib_error *err)
{
	struct cuda_device *device = cuda_device(base);
	const struct launch l = launch_of(device, probe, amount, done);
	const struct nib_span span = {(uintptr_t)data,
				      (uintptr_t)data + (data ? (uintptr_t)amount : 0)};
	struct nib_probe_args args = {data, l.count, NULL};
	void *arguments[] = {&args};
	CUlaunchConfig config = {0};
	CUfunction function;
	enum nib_status status = cuda_enter(device, err);

	if (status)
		return status;
	status = cuda_check_span(device, span, NIB_PROBE_READ_BYTES, nib_label("data"),
				 "", err);
	if (!status)
		status = cuda_kernel(device, l.kernel, 0, &function, err);
	if (!status) {
		config.gridDimX = (unsigned)l.blocks;
		config.blockDimX = (unsigned)l.threads;
		config.hStream = stream;
		status = cuda_launch(device, function, config, arguments, err);
	}
	cuda_leave(device);
	if (status)
		*done = 0;
	return status;
}
