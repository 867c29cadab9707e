/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h - the CPU backend's device, and the functions of its files. */
#ifndef NIB_CPU_H
#define NIB_CPU_H

#include "backend/backend.h"
#include "features.h"
#include "openmp.h"
#include "ops.h"
#include "pace.h"
#include "pool.h"

struct cpu_device {
	struct nib_device base;
	struct cpu_ops ops;
	enum cpu_isa isa;
	int threads;
	/* The caller's pool, or NULL. */
	nib_parallel_for parallel_for;
	void *caller_pool;
	/* All NULL with one thread or the caller's pool. */
	struct cpu_openmp *openmp; /* NULL: pool */
	struct cpu_pool *pool;	   /* also for forks of a process with OpenMP */
	struct cpu_pace *pace;
	int64_t l1_bytes, l2_bytes;
	char hardware[64], features[128];
};

static inline const struct cpu_device *cpu_device(const struct nib_device *device)
{
	return (const struct cpu_device *)device;
}

/*
 * threads.c: sets the device's threads and pools as the options say.  After an error
 * there is nothing to close.
 */
enum nib_status cpu_threads_open(struct cpu_device *device,
				 const struct nib_device_options *options,
				 struct nib_error *err);
void cpu_threads_close(struct cpu_device *device);

/*
 * Runs task(arg, 0 .. tasks-1), at most device->threads of them, on the device's
 * threads, or on the caller only while others keep the cores busy, and returns when all
 * are done.  The caller's first task is task 0.  Returns whether other threads were
 * used.  Each task runs under the default floating-point mode (round to nearest,
 * subnormals kept), whatever the caller's thread has set.
 */
bool cpu_parallel(const struct cpu_device *device, int tasks,
		  void (*task)(void *arg, int i), void *arg);

/* weights.c */
enum nib_status cpu_pack(struct nib_device *device, const struct nib_fp4 *b,
			 bool shares_codes, void *stream, struct nib_packed **packed,
			 struct nib_error *err);
enum nib_status cpu_packed_update(struct nib_packed *packed, const struct nib_fp4 *b,
				  void *stream, struct nib_error *err);
enum nib_status cpu_unpack(const struct nib_packed *packed, const struct nib_fp4 *to,
			   void *stream, struct nib_error *err);
void cpu_packed_free(struct nib_packed *packed);

/*
 * memory.c.  cpu_lines(): memory that begins on a cache line, large blocks on
 * huge pages where the system has them; freed by free().
 */
void *cpu_lines(size_t bytes);
enum nib_status cpu_workspace_new(struct nib_device *device, size_t bytes,
				  void **workspace, struct nib_error *err);
enum nib_status cpu_alloc(struct nib_device *device, size_t bytes, void **pointer,
			  struct nib_error *err);
void cpu_free(struct nib_device *device, void *pointer);
enum nib_status cpu_copy(struct nib_device *device, void *to, const void *from,
			 size_t bytes, void *stream, struct nib_error *err);
enum nib_status cpu_wait(struct nib_device *device, void *stream,
			 struct nib_error *err);

/* multiply.c */
struct nib_plan *cpu_plan_new(void);
enum nib_status cpu_plan(struct nib_plan *plan, struct nib_error *err);
void cpu_plan_free(struct nib_plan *plan);
enum nib_status cpu_run(struct nib_plan *plan, const struct nib_run *run,
			struct nib_error *err);

/* quantize.c, dequantize.c, convert.c: as in nibblas.h, arguments valid. */
enum nib_status cpu_quantize(struct nib_device *device, const struct nib_dense *x,
			     const struct nib_fp4 *q,
			     const struct nib_quantize_options *options,
			     float *global_used, struct nib_error *err);
enum nib_status cpu_amax(struct nib_device *device, const struct nib_dense *x,
			 bool saturate, void *stream, float *amax,
			 struct nib_error *err);
enum nib_status cpu_dequantize(struct nib_device *device, const struct nib_fp4 *q,
			       float global, const struct nib_dense *y,
			       const struct nib_dequantize_options *options,
			       struct nib_error *err);
enum nib_status cpu_convert_scales(struct nib_device *device,
				   const struct nib_fp4 *from, const struct nib_fp4 *to,
				   void *stream, struct nib_error *err);

/* moe_steps.c */
extern const struct nib_moe_steps cpu_moe_steps;

/* expert_rows.c */
enum nib_status cpu_expert_rows(struct nib_device *device, const int32_t *ends,
				int64_t experts, int32_t *row_offsets,
				int32_t *scale_rows, void *stream,
				struct nib_error *err);

#endif
