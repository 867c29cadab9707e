/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arch.h - the table of GPU architectures with kernels, one row each.  A row has all
 * that differs between them; the rest of the host code is shared.
 */
#ifndef NIB_CUDA_ARCH_H
#define NIB_CUDA_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

struct cuda_device;
struct nib_moe_few;
struct nib_cuda_costs;
struct nib_plan;
struct nib_run;
struct nib_tile_device;

/* What a plan keeps of its product, and reports of it. */
struct cuda_product_plan {
	void *state; /* of the product */
	size_t workspace_bytes;
	int64_t tasks; /* CTAs, or tiles */
	/* ---- products that read the weights once ---- */
	const char *kernel; /* "vector", for the plan's explanation; else NULL */
	/* ---- products in tiles ---- */
	int64_t launches;
	int32_t tile_m, k_slices, clusters; /* of the first launch */
	int32_t most_matrices;		    /* in one launch */
	/* The kernels of one launch, for the plan's explanation. */
	const char *kernels;
};

/* A way to compute a plan: its problems, or its mixture of experts. */
struct cuda_product {
	/*
	 * plan: with the fields that the API layer fills.  The caller has entered the
	 * context, also for launch.
	 */
	enum nib_status (*plan)(struct cuda_device *device, const struct nib_plan *plan,
				struct cuda_product_plan *product,
				struct nib_error *err);
	/* run: resolved, pointers checked. */
	enum nib_status (*launch)(const struct cuda_device *device,
				  const struct cuda_product_plan *product,
				  const struct nib_run *run, struct nib_error *err);
	/*
	 * Also called after a failed plan, from any context, and after the device's
	 * context is lost.
	 */
	void (*free)(struct nib_device *device, struct cuda_product_plan *product);
};

/* The free of a product whose state is one allocation of malloc(). */
void cuda_product_free(struct nib_device *device, struct cuda_product_plan *product);

struct cuda_choice {
	const struct cuda_product *product;
	/* The measurement that decided, for the plan's explanation, or NULL. */
	const char *reason;
};

struct cuda_arch {
	const char *name; /* of its backend: "cuda-sm90" */
	/* Its kernels are in kernels/sm90 and are named "..._sm90". */
	const char *tag;
	int capabilities[6];  /* 90 is 9.0, ascending; 0 ends them */
	bool runs_on_newer;   /* its images have PTX for later ones */
	const char *hardware; /* those, for messages: "9.0 (H100, H200)" */
	enum nib_arithmetic arithmetic;
	const struct nib_cuda_costs *costs; /* built in */
	/* The kernels support A of fp16 and bf16. */
	bool takes_dense;
	/* A CTA computes the rows of B that a pair of CTAs has elsewhere. */
	bool has_wide_tiles;
	/* The alignment of rows of packed codes in bytes. */
	int32_t row_align;
	/* NIB_PROBE_MULTIPLY: the operations of one block's step. */
	int64_t probe_flop;
	int32_t probe_threads; /* of that block */

	/* The product that computes a plan. */
	struct cuda_choice (*choose)(const struct nib_plan *plan);
	/*
	 * Computes a layer of experts of few rows in few launches; *taken is false if
	 * it does not.  NULL: not supported.  The caller has entered the context, also
	 * for clusters.
	 */
	enum nib_status (*layer)(struct cuda_device *device,
				 const struct nib_moe_few *few, void *stream,
				 bool *taken, struct nib_error *err);
	/* The number of CTA pairs that can be resident at once, for the tile
	 * planner. */
	enum nib_status (*clusters)(struct cuda_device *device,
				    struct nib_tile_device *clusters,
				    struct nib_error *err);
};

/* sm80/sm80.c, sm90/sm90.c, sm100/sm100.c */
extern const struct cuda_arch cuda_sm80, cuda_sm90, cuda_sm100;

#define CUDA_ARCHS 3
extern const struct cuda_arch *const cuda_archs[CUDA_ARCHS];

/*
 * The architecture of this capability, else one whose kernels run on newer GPUs.  NULL
 * if there is none.
 */
const struct cuda_arch *cuda_arch_of(int capability);
/*
 * NIB_CUDA_ARCH, the tag of the architecture whose kernels all GPUs use; NULL if it is
 * not set.  It is for comparing sm80 with the kernels of a newer GPU.
 */
const char *cuda_arch_forced(void);
/* The architecture of this tag; NULL if there is none. */
const struct cuda_arch *cuda_arch_named(const char *tag);
/* Can the architecture's kernels run on a GPU of this capability? */
bool cuda_arch_runs_on(const struct cuda_arch *arch, int capability);
/* Does the image of this name belong to the architecture? */
bool cuda_arch_has_image(const struct cuda_arch *arch, const char *name);

#endif
