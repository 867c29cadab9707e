/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.h - the shape of a backend: one kind of hardware, a table of functions none
 * of which is NULL but where a comment says so.  The front door (device.c,
 * plan.c, run.c, quantize.c) validates every argument and calls through this
 * table; a backend sees only valid arguments with all strides resolved
 * (validate.h), but for the problems of a run, which it takes one by one
 * (run.h): only the backend knows where their copies can live and whether their
 * data can be read.
 */
#ifndef NIB_BACKEND_H
#define NIB_BACKEND_H

#include <pthread.h>
#include <stdbool.h>

#include "nibblas.h"

/* A backend's own device, packed and plan structs begin with these. */
struct nib_device {
	const struct nib_backend *backend;
};

struct nib_packed {
	struct nib_device *device;
	int64_t rows, k, batch;
	size_t bytes;
};

struct nib_plan {
	struct nib_device *device;
	enum nib_op op;
	bool is_moe;
	int64_t count; /* problems, or experts */
	/* What the plan was made for, strides resolved, pointers not kept. */
	struct nib_problem *problems; /* count, or NULL for MoE */
	struct nib_moe_problem moe;
	double flop, bytes;
	/* Filled by the backend. */
	size_t workspace_bytes; /* 0: a run needs none, and gets NULL */
	int64_t tasks;
	int threads;
	const char *backend_name;
	char explanation[256];
	/* The plan's own workspace, NULL if every run brings one. */
	void *workspace;
	pthread_mutex_t workspace_lock;
};

struct nib_backend {
	/* "cpu": what a device name starts with. */
	const char *name;
	/* Data is host memory, work is done on return: there are no streams. */
	bool is_host;
	/* Rows of nib_backend_get_info(): level 0 .. levels - 1, best first. */
	int levels;
	void (*level_info)(int level, struct nib_backend_info *info);

	enum nib_status (*open)(const char *name,
				const struct nib_device_options *options,
				struct nib_device **device,
				struct nib_error *err);
	void (*close)(struct nib_device *device);
	void (*device_info)(const struct nib_device *device,
			    struct nib_device_info *info);

	/* bytes > 0; copy: likewise. */
	enum nib_status (*alloc)(struct nib_device *device, size_t bytes,
				 void **pointer, struct nib_error *err);
	void (*free)(struct nib_device *device, void *pointer);
	enum nib_status (*copy)(struct nib_device *device, void *to,
				const void *from, size_t bytes,
				struct nib_error *err);
	enum nib_status (*wait)(struct nib_device *device, void *stream,
				struct nib_error *err);

	/*
	 * The next four: NULL in backends that are is_host.  amount > 0, of READ a
	 * multiple of 16; data is not looked at yet.
	 */
	enum nib_status (*probe)(struct nib_device *device,
				 enum nib_probe probe, const void *data,
				 int64_t amount, int64_t *done, void *stream,
				 struct nib_error *err);

	/* costs of set may be NULL. */
	enum nib_status (*costs_get)(struct nib_device *device,
				     struct nib_costs *costs,
				     struct nib_error *err);
	enum nib_status (*costs_set)(struct nib_device *device,
				     const struct nib_costs *costs,
				     struct nib_error *err);
	enum nib_status (*costs_save)(struct nib_device *device,
				      struct nib_error *err);

	/* Looks at the scales' signs itself. */
	enum nib_status (*pack)(struct nib_device *device,
				const struct nib_nvfp4 *b,
				struct nib_packed **packed,
				struct nib_error *err);
	void (*packed_free)(struct nib_packed *packed);

	/* Allocates a plan of the backend's own size, zeroed. */
	struct nib_plan *(*plan_new)(void);
	/* Fills the backend's part of a plan whose front-door part is complete. */
	enum nib_status (*plan)(struct nib_plan *plan, struct nib_error *err);
	void (*plan_free)(struct nib_plan *plan);
	/* A workspace that the plan keeps; bytes > 0, aligned to 64. */
	enum nib_status (*workspace_new)(struct nib_device *device,
					 size_t bytes, void **workspace,
					 struct nib_error *err);
	void (*workspace_free)(struct nib_device *device, void *workspace);
	/*
	 * problems: plan->count > 0 of them as the caller gave them, nothing
	 * checked: see nib_take_problem() and nib_take_moe() in run.h.
	 * options: workspace is there and aligned, the caller's or the plan's.
	 */
	enum nib_status (*run)(struct nib_plan *plan,
			       const struct nib_problem *problems,
			       const struct nib_run_options *options,
			       struct nib_error *err);
	enum nib_status (*run_moe)(struct nib_plan *plan,
				   const struct nib_moe_problem *moe,
				   const struct nib_run_options *options,
				   struct nib_error *err);

	/*
	 * Views are valid, strides resolved.  A host backend sees no
	 * global_pointer and no stream.
	 */
	enum nib_status (*quantize)(struct nib_device *device,
				    const struct nib_dense *x,
				    const struct nib_nvfp4 *q,
				    const struct nib_quantize_options *options,
				    float *global_used, struct nib_error *err);
	enum nib_status (*amax)(struct nib_device *device,
				const struct nib_dense *x, bool saturate,
				float *amax, struct nib_error *err);
	enum nib_status (*dequantize)(
	    struct nib_device *device, const struct nib_nvfp4 *q, float global,
	    const struct nib_dense *y,
	    const struct nib_dequantize_options *options,
	    struct nib_error *err);
	/* NULL in backends that are is_host; experts > 0, scale_rows may be NULL.
	 */
	enum nib_status (*expert_rows)(struct nib_device *device,
				       const int32_t *ends, int64_t experts,
				       int32_t *row_offsets,
				       int32_t *scale_rows, void *stream,
				       struct nib_error *err);
	enum nib_status (*convert_scales)(struct nib_device *device,
					  const struct nib_nvfp4 *from,
					  const struct nib_nvfp4 *to,
					  void *stream, struct nib_error *err);
};

/* Every backend of this build, best first, NULL at the end (device.c). */
extern const struct nib_backend *const nib_backends[];

extern const struct nib_backend nib_backend_cpu;
extern const struct nib_backend nib_backend_cuda;

#endif
