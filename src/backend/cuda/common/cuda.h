/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.h - what the files of the CUDA backend share: the device and its functions. */
#ifndef NIB_CUDA_H
#define NIB_CUDA_H

#include "backend/backend.h"
#include "core/view.h"
#include "costs.h"
#include "driver.h"

struct cuda_arch;    /* arch.h */
struct cuda_modules; /* module.c */

struct cuda_device {
	struct nib_device base;
	const struct cuda_driver *driver;
	int ordinal;
	CUdevice device;
	CUcontext context; /* primary, retained */
	struct cuda_modules *modules;
	const struct cuda_arch *arch; /* NULL: not supported */
	int multiprocessors;
	int capability;
	int shared_bytes; /* the most for one CTA */
	int l2_bytes;
	int clock_khz, memory_clock_khz;
	int memory_bus_bits;
	size_t memory_bytes;
	char name[16]; /* "cuda:0" */
	char hardware[64];
	struct nib_cuda_costs costs;
};

static inline int64_t divide_up(int64_t a, int64_t b)
{
	return a / b + (a % b != 0);
}

static inline int64_t round_up(int64_t a, int64_t step)
{
	return divide_up(a, step) * step;
}

static inline struct cuda_device *cuda_device(const struct nib_device *device)
{
	return (struct cuda_device *)device;
}

/* ---- context.c: opening, and the context around every group of calls ----- */

enum nib_status cuda_open(const char *name, const struct nib_device_options *options,
			  struct nib_device **device, struct nib_error *err);
void cuda_close(struct nib_device *device);
/* NIB_STATUS_UNSUPPORTED if this build has no kernels for the GPU. */
enum nib_status cuda_describe(const struct cuda_driver *driver, int ordinal,
			      struct cuda_device *device, struct nib_error *err);

/*
 * Between enter and leave the device's context is current on this thread. cuda_leave()
 * restores the context that was current before.
 */
enum nib_status cuda_enter(const struct cuda_device *device, struct nib_error *err);
void cuda_leave(const struct cuda_device *device);

/* ---- device_costs.c ------------------------------------------------------ */

enum nib_status cuda_costs_get(struct nib_device *device, struct nib_costs *costs,
			       struct nib_error *err);
enum nib_status cuda_costs_set(struct nib_device *device, const struct nib_costs *costs,
			       struct nib_error *err);

/* ---- image.c, module.c: the kernels of this build ------------------------ */

/*
 * The kernels of one source file.  words, with a space between: the file's
 * name without its suffix, the id of its PTX (tools/compile_kernels.sh), and
 * the names of its kernels.  code is a fat binary, or a cubin.
 */
struct cuda_image {
	const char *words;
	const void *code;
};
/* The last entry has NULL words.  A build without nvcc has no other entry. */
extern const struct cuda_image *cuda_images;
/* Whether this build has kernels for the architecture. */
bool cuda_has_images(const struct cuda_arch *arch);
/* With the context entered. */
enum nib_status cuda_image_load(const struct cuda_device *device,
				const struct cuda_image *image, CUmodule *module,
				struct nib_error *err);

/* Those of the device's architecture.  With the context entered. */
enum nib_status cuda_modules_load(struct cuda_device *device, struct nib_error *err);
/* has_context: the context is entered and the modules are unloaded from it. */
void cuda_modules_free(struct cuda_device *device, bool has_context);
/*
 * Finds the kernel `name` of the device's architecture ("nib_gemm" finds nib_gemm_sm90)
 * and allows it shared_bytes of dynamic shared memory.  The driver is asked once for
 * each device and name.  Thread-safe; with the context entered.
 */
enum nib_status cuda_kernel(struct cuda_device *device, const char *name,
			    int shared_bytes, CUfunction *function,
			    struct nib_error *err);
/*
 * Launches the kernel, with the context entered.  Sizes y and z of config that are 0
 * count as 1. arguments: a pointer to each parameter of the kernel; the values are
 * copied.
 */
enum nib_status cuda_launch(const struct cuda_device *device, CUfunction function,
			    CUlaunchConfig config, void **arguments,
			    struct nib_error *err);

/* ---- memory.c ------------------------------------------------------------ */

/*
 * cuMemAlloc and cuMemFree, with the context entered.  They also work while another
 * thread captures a stream, whose capture the plain calls would invalidate.
 */
CUresult cuda_memory_alloc(const struct cuda_driver *cu, CUdeviceptr *pointer,
			   size_t bytes);
CUresult cuda_memory_free(const struct cuda_driver *cu, CUdeviceptr pointer);

enum nib_status cuda_alloc(struct nib_device *device, size_t bytes, void **pointer,
			   struct nib_error *err);
void cuda_free(struct nib_device *device, void *pointer);
enum nib_status cuda_copy(struct nib_device *device, void *to, const void *from,
			  size_t bytes, void *stream, struct nib_error *err);
enum nib_status cuda_wait(struct nib_device *device, void *stream,
			  struct nib_error *err);

/* ---- check.c: are pointers the device's? --------------------------------- */

/* The alignment in bytes that codes, tiled scales and dense data must have. */
#define CUDA_ALIGN 16

/*
 * Checks a range of memory; an empty one is valid.  Each of these functions needs the
 * context entered and costs one driver call for each pointer.
 */
enum nib_status cuda_check_span(const struct cuda_device *device, struct nib_span span,
				unsigned align, struct nib_label label,
				const char *field, struct nib_error *err);
enum nib_status cuda_check_nvfp4(const struct cuda_device *device,
				 const struct nib_fp4 *v, struct nib_label label,
				 struct nib_error *err);
enum nib_status cuda_check_scales(const struct cuda_device *device,
				  const struct nib_fp4 *v, struct nib_label label,
				  struct nib_error *err);
enum nib_status cuda_check_dense(const struct cuda_device *device,
				 const struct nib_dense *v, struct nib_label label,
				 struct nib_error *err);

/*
 * Checks the pointers of a run: those of its problems, unless it is repeated, and the
 * workspace if it is the caller's.  *known: the workspace that was last checked for the
 * plan, or NULL.  With the context entered.
 */
enum nib_status cuda_check_run(const struct nib_plan *plan, const struct nib_run *run,
			       void **known, struct nib_error *err);
/* Checks the pointers of a resolved layer; messages name its fields. */
enum nib_status cuda_check_layer(const struct cuda_device *device,
				 const struct nib_moe_route *route,
				 const struct nib_moe_layer *layer,
				 struct nib_error *err);
/* Checks the pointers of nib_moe_sum_slots(). */
enum nib_status cuda_check_combine(const struct cuda_device *device,
				   const struct nib_moe_combine *combine,
				   struct nib_error *err);

/* ---- launch.c, quantize_cuda.c, probe.c: entries of the backend's table -- */

enum nib_status cuda_probe(struct nib_device *device, enum nib_probe probe,
			   const void *data, int64_t amount, int64_t *done,
			   void *stream, struct nib_error *err);

enum nib_status cuda_pack(struct nib_device *device, const struct nib_fp4 *b,
			  bool shares_codes, void *stream, struct nib_packed **packed,
			  struct nib_error *err);
bool cuda_pack_shares(const struct nib_device *device, const struct nib_fp4 *b);
enum nib_status cuda_packed_update(struct nib_packed *packed, const struct nib_fp4 *b,
				   void *stream, struct nib_error *err);
enum nib_status cuda_unpack(const struct nib_packed *packed, const struct nib_fp4 *to,
			    void *stream, struct nib_error *err);
void cuda_packed_free(struct nib_packed *packed);
struct nib_plan *cuda_plan_new(void);
enum nib_status cuda_plan(struct nib_plan *plan, struct nib_error *err);
void cuda_plan_free(struct nib_plan *plan);
enum nib_status cuda_run(struct nib_plan *plan, const struct nib_run *run,
			 struct nib_error *err);
enum nib_status cuda_quantize(struct nib_device *device, const struct nib_dense *x,
			      const struct nib_fp4 *q,
			      const struct nib_quantize_options *options,
			      float *global_used, struct nib_error *err);
enum nib_status cuda_amax(struct nib_device *device, const struct nib_dense *x,
			  bool saturate, void *stream, float *amax,
			  struct nib_error *err);
enum nib_status cuda_dequantize(struct nib_device *device, const struct nib_fp4 *q,
				float global, const struct nib_dense *y,
				const struct nib_dequantize_options *options,
				struct nib_error *err);
enum nib_status cuda_convert_scales(struct nib_device *device,
				    const struct nib_fp4 *from,
				    const struct nib_fp4 *to, void *stream,
				    struct nib_error *err);
enum nib_status cuda_expert_rows(struct nib_device *device, const int32_t *ends,
				 int64_t experts, int32_t *row_offsets,
				 int32_t *scale_rows, void *stream,
				 struct nib_error *err);

/* moe_cuda.c */
extern const struct nib_moe_steps cuda_moe_steps;

#endif
