/* SPDX-License-Identifier: Apache-2.0 */
/* few_rows.c - see few_rows.h. */
#include "few_rows.h"

#include <stdio.h>
#include <stdlib.h>

#include "format/view.h"
#include "gemm_common.h"
#include "operand.h"
#include "pack.h"

/* ---- parameters ---------------------------------------------------------- */

struct nib_problem few_rows_problem(const struct nib_problem *problems,
				    const struct nib_moe_problem *moe)
{
	return cuda_unpacked(moe ? &moe->problem : problems);
}

void few_rows_set_pointers(struct nib_gemv_params *params, const struct nib_problem *p,
			   bool is_moe)
{
	const int64_t batches = nib_fp4_batches(&p->a);

	params->a = cuda_a_operand(p, batches);
	params->b = cuda_operand(&p->b, is_moe ? nib_fp4_batches(&p->b) : batches);
	params->alpha = p->alpha;
	params->c = p->c.data;
}

void few_rows_set_sizes(struct nib_gemv_params *params, const struct nib_problem *p,
			bool is_moe)
{
	struct nib_problem shape = *p;

	shape.a.codes = shape.a.scales = shape.b.codes = shape.b.scales = NULL;
	shape.x.data = shape.c.data = NULL;
	shape.alpha = NULL;
	few_rows_set_pointers(params, &shape, is_moe);
	params->c_row_stride = nib_dense_row_stride_elems(&p->c);
	params->c_batch_stride = nib_dense_batch_stride_elems(&p->c);
	params->n = p->b.rows;
	params->k = (int32_t)p->b.k;
	params->c_dtype = (int32_t)p->c.dtype;
	params->m = is_moe ? 0 : (int32_t)p->a.rows;
}

struct nib_gemv_experts few_rows_experts(const struct nib_moe_problem *moe)
{
	const struct nib_fp4 *b = cuda_weights(&moe->problem.b, moe->problem.b_packed);

	return (struct nib_gemv_experts){
	    .experts = (int32_t)nib_fp4_batches(b),
	    .rows = (int32_t)moe->problem.a.rows,
	    .scale_rows_total = (int32_t)moe->scale_rows_total,
	    .row_offsets = moe->row_offsets,
	    .scale_rows = moe->scale_rows,
	};
}

static bool is_aligned(const struct nib_gemv_params *p)
{
	return p->a.codes_align == 16 && p->a.scales_align >= 4 &&
	       p->b.codes_align == 16 && p->b.scales_align == 16 && p->k % 32 == 0;
}

/* Advances the pointers by this number of matrices. */
static void skip_matrices(struct nib_gemv_params *params, int64_t count)
{
	const int64_t size = (int64_t)nib_dtype_bytes((enum nib_dtype)params->c_dtype);

	cuda_skip_matrices(&params->a, count);
	cuda_skip_matrices(&params->b, count);
	params->c = nib_offset_bytes(params->c, count * params->c_batch_stride * size);
}

const char *few_rows_type(enum nib_activations activations, enum nib_dtype x)
{
	if (activations != NIB_ACTIVATIONS_DENSE)
		return "";
	return x == NIB_DTYPE_FP16 ? "_f16" : "_bf16";
}

/* ---- plans and launches --------------------------------------------------- */

enum nib_status few_rows_new(const struct nib_plan *plan, const char *kernel,
			     size_t params_bytes, struct cuda_product_plan *product,
			     struct few_rows **few, struct nib_error *err)
{
	const struct nib_moe_problem *moe = plan->is_moe ? &plan->moe : NULL;
	const struct nib_problem p = few_rows_problem(plan->problems, moe);

	*few = product->state = calloc(1, sizeof(**few) + params_bytes);
	product->kernel = kernel;
	if (!*few)
		return cuda_no_memory(sizeof(**few) + params_bytes, err);
	(*few)->params = (struct nib_gemv_params *)(*few + 1);
	few_rows_set_sizes((*few)->params, &p, plan->is_moe);
	(*few)->batch = nib_fp4_batches(&p.a);
	return NIB_STATUS_OK;
}

enum nib_status few_rows_find(struct cuda_device *device, const char *name,
			      int64_t shared_bytes, CUfunction *function,
			      struct nib_error *err)
{
	CUresult result;
	enum nib_status status =
	    cuda_kernel(device, name, (int)shared_bytes, function, err);

	if (status)
		return status;
	result = device->driver->cuFuncSetAttribute(
	    *function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100);
	return result ? cuda_fail(device->driver, result, name, err) : NIB_STATUS_OK;
}

enum nib_status few_rows_find_both(struct cuda_device *device, const char *kernel,
				   int variant, int any, const char *type,
				   struct few_rows *few, struct nib_error *err)
{
	enum nib_status status = NIB_STATUS_OK;
	char name[32];

	if (is_aligned(few->params)) {
		snprintf(name, sizeof(name), "nib_%s_%d%s", kernel, variant, type);
		status =
		    few_rows_find(device, name, few->shared_bytes, &few->aligned, err);
	}
	if (status)
		return status;
	snprintf(name, sizeof(name), "nib_%s_%d_any%s", kernel, any, type);
	return few_rows_find(device, name, few->any_shared_bytes, &few->any, err);
}

enum nib_status few_rows_launch(const struct cuda_device *device,
				const struct few_rows *few,
				struct nib_gemv_params *params,
				const struct nib_run *run, struct nib_error *err)
{
	void *arguments[] = {params};
	CUlaunchAttribute attributes[2] = {{0}};
	CUlaunchConfig config = {.attrs = attributes};
	CUfunction function = few->aligned;
	int64_t shared_bytes = few->shared_bytes;
	enum nib_status status = NIB_STATUS_OK;

	if (few->any && (!function || !is_aligned(params))) {
		function = few->any;
		shared_bytes = few->any_shared_bytes;
	}
	config.gridDimX = (unsigned)few->ctas;
	config.blockDimX = (unsigned)few->threads;
	config.sharedMemBytes = (unsigned)shared_bytes;
	config.hStream = run->stream;
	cuda_may_overlap(device, &config);
	if (few->cluster > 1)
		cuda_set_cluster(&config, few->cluster);
	/* Loads of experts' weights must wait for the row offsets in any case. */
	params->b_is_constant = !run->moe && run->problems->b_packed;
	for (int64_t done = 0; done < few->batch && !status;) {
		const int64_t left = few->batch - done;
		const int64_t count =
		    left < FEW_ROWS_MAX_BATCH ? left : FEW_ROWS_MAX_BATCH;

		config.gridDimY = (unsigned)count;
		status = cuda_launch(device, function, config, arguments, err);
		skip_matrices(params, count);
		done += count;
	}
	return status;
}
