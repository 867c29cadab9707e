/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend.h - the interface of a backend: support for one kind of hardware.  A backend
 * is a table of functions, none of them NULL unless its comment says so.  A backend
 * without a feature enters one of the functions at the end, which return
 * NIB_STATUS_UNSUPPORTED.
 *
 * The API layer (src/api) checks every argument, resolves strides and batches, and
 * calls through this table.  A backend calls nothing of that layer.  It checks what
 * only it can know: whether pointers belong to the device, values in memory that the
 * host does not read, and sizes that its kernels do not support.
 */
#ifndef NIB_BACKEND_H
#define NIB_BACKEND_H

#include <pthread.h>
#include <stdbool.h>

#include "nibblas_tune.h"

/* The device, packed and plan structs of a backend begin with these. */
struct nib_device {
	const struct nib_backend *backend;
};

struct nib_packed {
	struct nib_device *device;
	int64_t rows, k, batch;
	int64_t batch_stride_bytes; /* of codes or of a view of them */
	size_t bytes;
};

/*
 * The arguments of a plan's last run, bit by bit, and their resolved copies.  A run
 * with the same problems needs only a comparison.  Not used on host backends.
 */
struct nib_last_run {
	pthread_mutex_t lock; /* held while a run is enqueued */
	bool is_valid;
	/* plan->count entries; NULL for MoE, which has given_moe and moe. */
	struct nib_problem *given, *problems;
	struct nib_moe_problem given_moe, moe;
	void *scratch; /* for nib_valid_outputs() */
};

/* Workspaces that a plan keeps for concurrent runs. */
#define NIB_SPARES 64
struct nib_spares {
	_Atomic(void *) kept[NIB_SPARES]; /* unused now, or NULL */
};

struct nib_plan {
	struct nib_device *device;
	enum nib_op op;
	bool is_moe;
	int64_t count; /* problems, or experts */
	/* What the plan was made for: strides are resolved, pointers are not kept. */
	struct nib_problem *problems; /* count, or NULL for MoE */
	struct nib_moe_problem moe;
	double flop, bytes;
	/*
	 * The workspace of one run; NULL is passed if the size is 0.  The backend sets
	 * the size of its part.  On a host backend the API layer adds the head, which
	 * is before that part: resolved problems and scratch.
	 */
	size_t workspace_bytes, head_bytes;
	/* Filled by the backend. */
	int64_t tasks;
	int threads;
	const char *backend_name;
	char explanation[256];
	int k_slices; /* 1 before the backend's plan() */
	/* Every run passes its own workspace. */
	bool caller_workspace;
	struct nib_spares spares; /* of host backends */
	/* Other backends have this one; the caller's streams order its uses. */
	void *workspace;
	struct nib_last_run last;
};

/*
 * The kind of A, the same in all problems of a plan. nib_plan_x_dtype(): the type of x,
 * unless A is NVFP4.  A resolved problem whose A is x has the sizes of x in `a` as
 * well, without pointers.
 */
static inline enum nib_activations nib_plan_activations(const struct nib_plan *plan)
{
	if (plan->is_moe)
		return plan->moe.problem.activations;
	return plan->count ? plan->problems->activations : NIB_ACTIVATIONS_NVFP4;
}

static inline enum nib_dtype nib_plan_x_dtype(const struct nib_plan *plan)
{
	return plan->is_moe ? plan->moe.problem.x.dtype : plan->problems->x.dtype;
}

/* A run as a backend gets it.  The API layer has checked all but what the head of this
 * file leaves to the backend. */
struct nib_run {
	/* plan->count > 0 resolved problems, or NULL: moe is set instead. */
	const struct nib_problem *problems;
	const struct nib_moe_problem *moe;
	/* The problems equal those of the last successful run, bit for bit (never on a
	 * host backend). */
	bool is_repeated;
	/* The backend's part, aligned to 64: the plan's or the caller's. */
	void *workspace;
	bool is_callers_workspace;
	void *stream;
};

/* ---- the steps of a layer of experts between its products ------------------ */

/*
 * Sorts slots by expert: slot s, of token s / top_k, gets row slot_rows[s], or
 * -1 if its expert is not here.  Rows of an expert keep the order of slots.
 */
struct nib_moe_route {
	const void *ids;
	int ids_bytes;
	int64_t slots, top_k, first_expert, experts;
	int32_t *row_offsets; /* [experts + 1] */
	int32_t *slot_rows;   /* [slots] */
	int32_t *row_tokens;  /* [slots], for the backend's own use */
	/* The caller's, or NULL: not checked yet. */
	const void *workspace;
	size_t workspace_bytes;
};

/*
 * Sorts A by expert: row slot_rows[s] of `a` or `dense` becomes the row of token s /
 * top_k, quantised if struct nib_moe_layer says so.  Rows of no slot are not written.
 */
struct nib_moe_gather {
	const struct nib_moe_layer *layer;
	struct nib_fp4 a;	/* with NIB_ACTIVATIONS_NVFP4, */
	struct nib_dense dense; /* otherwise, of x's type */
	/* Rows of x by token, for host backends, which quantise into them. */
	struct nib_fp4 tokens;
};

/*
 * Computes h from gate and up (NULL: none), both dense [rows, cols of h], for the first
 * *rows rows.  If gate is NULL, h has been computed.  If q.codes is set, h is then
 * quantised with *h_global.
 */
struct nib_moe_activate {
	const struct nib_moe_layer *layer;
	const int32_t *rows;
	const float *gate, *up;
	struct nib_dense h; /* host backend: *rows rows, as in q */
	struct nib_fp4 q;
};

/* Step 5 of struct nib_moe_layer; rows has y's type. */
struct nib_moe_combine {
	const int32_t *slot_rows;
	const float *weights;
	int64_t top_k;
	struct nib_dense rows, y;
	/* The arrays are those of nib_moe_sum_slots(), and not checked yet. */
	bool is_callers;
};

/* The most slots for which a backend may compute a whole layer (few() below).  With
 * more it is faster to multiply all rows of an expert together
 * (docs/performance-hopper.md). */
#define NIB_MOE_FEW_SLOTS 32

/*
 * A whole layer and the problems of its products; up is NULL if gate and up are one
 * product.  The workspace has space for x quantised by token, and for one counter for
 * each 16 columns of y.  A backend may use the arrays of the workspace in which the
 * problems have their results in any order, such as by slot instead of by row.
 */
struct nib_moe_few {
	const struct nib_moe_layer *layer;
	const struct nib_moe_route *route;
	const struct nib_moe_problem *first, *up, *down;
	struct nib_fp4 tokens;
	uint32_t *arrivals;
};

struct nib_moe_steps {
	/*
	 * Computes a whole layer of few slots, with the same bits as its steps have.
	 * *taken is false if the backend does not support the layer; nothing has been
	 * done then.  May be NULL.
	 */
	enum nib_status (*few)(struct nib_device *device, const struct nib_moe_few *few,
			       void *stream, bool *taken, struct nib_error *err);
	/* Routes, then gathers. */
	enum nib_status (*begin)(struct nib_device *device,
				 const struct nib_moe_route *route,
				 const struct nib_moe_gather *gather, void *stream,
				 struct nib_error *err);
	enum nib_status (*activate)(struct nib_device *device,
				    const struct nib_moe_activate *activate,
				    void *stream, struct nib_error *err);
	enum nib_status (*combine)(struct nib_device *device,
				   const struct nib_moe_combine *combine, void *stream,
				   struct nib_error *err);
};

struct nib_backend {
	/* "cpu": what a device name starts with. */
	const char *name;
	/*
	 * Data is in host memory, which the API layer may read.  Calls return when
	 * their work is done, and streams do not exist.
	 */
	bool is_host;
	/* Rows of nib_backend_get_info(): level 0 .. levels - 1, best first. */
	int levels;
	void (*level_info)(int level, struct nib_backend_info *info);

	enum nib_status (*open)(const char *name,
				const struct nib_device_options *options,
				struct nib_device **device, struct nib_error *err);
	void (*close)(struct nib_device *device);
	void (*device_info)(const struct nib_device *device,
			    struct nib_device_info *info);

	/* bytes > 0; copy: likewise. */
	enum nib_status (*alloc)(struct nib_device *device, size_t bytes,
				 void **pointer, struct nib_error *err);
	void (*free)(struct nib_device *device, void *pointer);
	enum nib_status (*copy)(struct nib_device *device, void *to, const void *from,
				size_t bytes, void *stream, struct nib_error *err);
	enum nib_status (*wait)(struct nib_device *device, void *stream,
				struct nib_error *err);

	/* amount > 0, for READ a multiple of 16; data is not checked yet. */
	enum nib_status (*probe)(struct nib_device *device, enum nib_probe probe,
				 const void *data, int64_t amount, int64_t *done,
				 void *stream, struct nib_error *err);

	/* costs of set may be NULL. */
	enum nib_status (*costs_get)(struct nib_device *device, struct nib_costs *costs,
				     struct nib_error *err);
	enum nib_status (*costs_set)(struct nib_device *device,
				     const struct nib_costs *costs,
				     struct nib_error *err);

	/*
	 * The API layer has checked the signs of scales for a host backend only.
	 * shares_codes: the codes need not be copied.
	 */
	enum nib_status (*pack)(struct nib_device *device, const struct nib_fp4 *b,
				bool shares_codes, void *stream,
				struct nib_packed **packed, struct nib_error *err);
	/* Whether pack() shares the codes of b if shares_codes is set. */
	bool (*pack_shares)(const struct nib_device *device, const struct nib_fp4 *b);
	/* b: of the same sizes. */
	enum nib_status (*packed_update)(struct nib_packed *packed,
					 const struct nib_fp4 *b, void *stream,
					 struct nib_error *err);
	/* to: of the same sizes; its codes and scales do not overlap. */
	enum nib_status (*unpack)(const struct nib_packed *packed,
				  const struct nib_fp4 *to, void *stream,
				  struct nib_error *err);
	void (*packed_free)(struct nib_packed *packed);

	/* Allocates a zeroed plan of the backend's size. */
	struct nib_plan *(*plan_new)(void);
	/* Fills the backend's part of a plan whose other parts are complete. */
	enum nib_status (*plan)(struct nib_plan *plan, struct nib_error *err);
	void (*plan_free)(struct nib_plan *plan);
	/* A workspace that the plan keeps; bytes > 0, aligned to 64. */
	enum nib_status (*workspace_new)(struct nib_device *device, size_t bytes,
					 void **workspace, struct nib_error *err);
	void (*workspace_free)(struct nib_device *device, void *workspace);
	enum nib_status (*run)(struct nib_plan *plan, const struct nib_run *run,
			       struct nib_error *err);

	/*
	 * Views are valid, strides resolved.  A host backend sees no
	 * global_pointer and no stream.
	 */
	enum nib_status (*quantize)(struct nib_device *device,
				    const struct nib_dense *x, const struct nib_fp4 *q,
				    const struct nib_quantize_options *options,
				    float *global_used, struct nib_error *err);
	enum nib_status (*amax)(struct nib_device *device, const struct nib_dense *x,
				bool saturate, void *stream, float *amax,
				struct nib_error *err);
	enum nib_status (*dequantize)(struct nib_device *device,
				      const struct nib_fp4 *q, float global,
				      const struct nib_dense *y,
				      const struct nib_dequantize_options *options,
				      struct nib_error *err);
	/* experts > 0, scale_rows may be NULL. */
	enum nib_status (*expert_rows)(struct nib_device *device, const int32_t *ends,
				       int64_t experts, int32_t *row_offsets,
				       int32_t *scale_rows, void *stream,
				       struct nib_error *err);
	enum nib_status (*convert_scales)(struct nib_device *device,
					  const struct nib_fp4 *from,
					  const struct nib_fp4 *to, void *stream,
					  struct nib_error *err);
	/* The steps of layers of experts. */
	const struct nib_moe_steps *moe_steps;
};

/* Every backend of this build, best first, NULL at the end (device.c). */
extern const struct nib_backend *const nib_backends[];

extern const struct nib_backend nib_backend_cpu;
extern const struct nib_backend nib_backend_cuda;

/* Entries of backends that cannot do it: NIB_STATUS_UNSUPPORTED (unsupported.c). */
bool nib_shares_no_codes(const struct nib_device *device, const struct nib_fp4 *b);
enum nib_status nib_no_probe(struct nib_device *device, enum nib_probe probe,
			     const void *data, int64_t amount, int64_t *done,
			     void *stream, struct nib_error *err);
enum nib_status nib_no_costs_get(struct nib_device *device, struct nib_costs *costs,
				 struct nib_error *err);
enum nib_status nib_no_costs_set(struct nib_device *device,
				 const struct nib_costs *costs, struct nib_error *err);
/* For plans with an A that the backend has no kernels for. rule: what it has kernels
 * for. */
enum nib_status nib_no_activations(const struct nib_plan *plan, const char *rule,
				   struct nib_error *err);

#endif
