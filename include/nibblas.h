/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nibblas.h - NVFP4 matrix multiplication on every machine.
 *
 * NVFP4: 4-bit floats e2m1, one e4m3 scale per 16 consecutive k of a row, one
 * fp32 global scale per tensor.  A value is  e2m1 * scale * global.
 *
 * The way of a multiplication:
 *   views (struct nib_nvfp4, struct nib_dense: own nothing)
 *   -> nib_plan_create(): checks every argument once, picks backend and kernel
 *   -> nib_run(): allocates nothing, may be called from several threads.
 * Weights used more than once should go through nib_pack() first.
 *
 * Conventions
 * - Sizes are int64_t and count elements unless the name says _bytes or _rows.
 *   m = rows of A and C, n = rows of B and columns of C, k = the summed length.
 * - All data pointers, alpha, row offsets and scale rows among them, are in the
 *   memory of the device (host memory for "cpu"), see nib_device_alloc().  No
 *   alignment is asked of them on a CPU.  On "cuda" codes, tiled scales and
 *   dense data begin at multiples of 16 bytes.
 * - On "cpu" all work is done when a function returns.  On "cuda" work is
 * queued on the stream of the options, after what is there already, unless a
 *   function says that it waits; inputs stay as they are until it is done.
 * - A function that can fail returns enum nib_status and takes a struct
 *   nib_error last, which may be NULL.  The message names the argument, its
 *   value and the rule.  The library never prints, exits or aborts.
 * - Structs that begin with struct_bytes grow at the end in later versions: set
 *   it to sizeof the struct and zero the rest.  A size smaller than today's is
 *   an older caller, and the missing fields mean zero.
 * - Views and problems, which lie in each other and in arrays, have no
 *   struct_bytes.  Their reserved fields are where later versions put new ones:
 *   they must be zero, or the call is NIB_UNSUPPORTED.
 */
#ifndef NIBBLAS_H
#define NIBBLAS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NIB_VERSION_MAJOR 0
#define NIB_VERSION_MINOR 1
#define NIB_VERSION_PATCH 0

#if defined(NIB_BUILD) && defined(__GNUC__)
#define NIB_API __attribute__((visibility("default")))
#else
#define NIB_API
#endif

/* Values of a row that share one scale. */
#define NIB_BLOCK 16
/* Largest k: beyond it the exact int64 sum of the oracle could overflow. */
#define NIB_MAX_K (INT64_C(1) << 20)

/* "0.1.0", static. */
NIB_API const char *nib_version(void);

/* ------------------------------------------------------------------------ */
/* Errors                                                                    */

enum nib_status {
	NIB_OK = 0,
	NIB_BAD_ARGUMENT,  /* an argument breaks a rule; nothing was done */
	NIB_UNSUPPORTED,   /* valid, but this build or device cannot do it */
	NIB_OUT_OF_MEMORY, /* nothing was done, nothing is held */
	NIB_NO_DEVICE,	   /* the device asked for is not there */
	NIB_BAD_DATA,	   /* values: inf/NaN to quantise, scale sign bit */
	NIB_BAD_FILE,	   /* a file's contents break its format */
	NIB_IO,		   /* the operating system refused: errno's text */
	NIB_DEVICE_FAILED, /* a launch or the device failed */
};

struct nib_error {
	enum nib_status status;
	/*
	 * The argument that the message is about, spelled as in this header:
	 * "name", "options.threads", "problems[3].a.k"; "" if it is about no
	 * single argument.
	 */
	char argument[64];
	/* One line, UTF-8, NUL-terminated.  It begins with argument. */
	char message[252];
};

/* "bad argument" and so on, static; never NULL. */
NIB_API const char *nib_status_name(enum nib_status status);

/* ------------------------------------------------------------------------ */
/* Views                                                                     */

enum nib_dtype { NIB_FP32 = 0, NIB_FP16 = 1, NIB_BF16 = 2 };

enum nib_scale_layout {
	/* Row-major [rows, k/16], rows scale_row_stride_bytes apart. */
	NIB_LINEAR = 0,
	/*
	 * cuBLAS's and torch's SWIZZLE_32_4_4: rows padded to 128, k/16 to 4.
	 * With G = k/16, scale (r, g) is byte
	 *   ((r/128)*ceil(G/4) + g/4)*512 + (r%32)*16 + ((r%128)/32)*4 + g%4.
	 * Padding is never read as data.
	 */
	NIB_TILED_128X4 = 1,
};

/*
 * A stack of `batch` NVFP4 matrices [rows, k], k contiguous.  Owns nothing.
 * Codes: two to a byte, low nibble = even k.  Code c: bit 3 is the sign, and
 * c & 7 = 0..7 stands for 0, 0.5, 1, 1.5, 2, 3, 4, 6.
 * Scales: e4m3 with the sign bit 0; 0x7F is NaN and makes every result that it
 * takes part in NaN.
 * A stride of 0 means "dense": k/2 and rows * row stride for codes; k/16 and
 * rows * row stride for linear scales, nib_scales_bytes() for tiled ones.
 * Rows and batches must not overlap: each batch lies behind all rows of the one
 * before, or all batches lie between two rows ([rows, batch, k] in memory, as
 * heads lie in tokens).  Only functions that say so write through the pointers.
 */
struct nib_nvfp4 {
	void *codes;
	void *scales;
	int64_t rows;
	int64_t k;     /* a multiple of 16, 0 to NIB_MAX_K; 0 sums to 0 */
	int64_t batch; /* 0 means 1 */
	int64_t row_stride_bytes;
	int64_t batch_stride_bytes;
	enum nib_scale_layout scale_layout;
	int64_t scale_row_stride_bytes; /* NIB_LINEAR only */
	int64_t scale_batch_stride_bytes;
	uint64_t reserved[4]; /* must be 0 */
};

/*
 * A stack of `batch` matrices [rows, cols] of floats, cols contiguous.
 * A stride of 0 means dense: cols, and rows * row stride.  Rows and batches as
 * above.
 */
struct nib_dense {
	void *data;
	enum nib_dtype dtype;
	int64_t rows;
	int64_t cols;
	int64_t batch; /* 0 means 1 */
	int64_t row_stride_elems;
	int64_t batch_stride_elems;
	uint64_t reserved[4]; /* must be 0 */
};

/* Bytes of the scales of one [rows, k] matrix, dense; 0 for invalid sizes. */
NIB_API size_t nib_scales_bytes(enum nib_scale_layout layout, int64_t rows,
				int64_t k);
/* Bytes of one element: 4, 2, 2. */
NIB_API size_t nib_dtype_bytes(enum nib_dtype dtype);

/* ------------------------------------------------------------------------ */
/* Devices                                                                   */

struct nib_device;

/*
 * Calls task(arg, i) once for every 0 <= i < tasks, in any order, on any
 * threads, and returns when all have returned.  Tasks never wait for each
 * other, so running them one after the other is allowed.
 */
typedef void (*nib_parallel_for)(void *pool, int tasks,
				 void (*task)(void *arg, int i), void *arg);

struct nib_device_options {
	size_t struct_bytes;
	/*
	 * CPU: the threads of a call, the caller's among them.  0 = as many as
	 * OMP_NUM_THREADS says, else the processors that the opening thread
	 * may use; in both cases at most OMP_THREAD_LIMIT.  The first call
	 * that needs them starts threads of the device's own, which block all
	 * signals; nib_device_close() ends them, so that a program may unload
	 * the library after it.  After fork() the child may use the device:
	 * its first call starts threads for it.  Threads that wait for work
	 * spin for some 100 us before they sleep, and sleep at once with
	 * OMP_WAIT_POLICY=passive.
	 */
	int threads;
	/* CPU: the caller's own pool instead of such threads, or NULL. */
	nib_parallel_for parallel_for;
	void *pool;
	/*
	 * CPU: "scalar", "avx2", "avx512bw" or "avx512" forces one instruction
	 * set; NULL = what NIB_CPU says, else the best one here.
	 */
	const char *isa;
};

/*
 * Opens a device: "cpu", "cuda" (the first GPU) or "cuda:1" (the second).
 * options may be NULL.  Unknown names, GPUs that are not there and instruction
 * sets that this machine lacks are NIB_NO_DEVICE with the reason; a GPU that
 * this build has no kernels for is NIB_UNSUPPORTED.  The device must outlive
 * everything made from it.
 *
 * "cuda" opens libcuda.so.1, or what NIB_CUDA_LIBRARY names, and works in the
 * GPU's primary context, the one that CUDA's runtime uses, so that pointers and
 * streams of other libraries are good here.  The calling thread's current
 * context is left as it was.
 */
NIB_API enum nib_status
nib_device_open(const char *name, const struct nib_device_options *options,
		struct nib_device **device, struct nib_error *err);
/* NULL is fine.  On "cuda" queued work must be done: nib_device_wait(). */
NIB_API void nib_device_close(struct nib_device *device);

/*
 * How a device adds products up, and so how far its results may be off:
 * docs/numerics.md has a bound for each.
 */
enum nib_arithmetic {
	/* The 16 products of a block exactly, blocks in fp32. */
	NIB_ARITHMETIC_BLOCKS = 0,
	/* 16 fp16 products and the sum so far at a time, on a tensor core,
	 * which cuts off what is below 2^-25 of the largest of them.  What
	 * does better, as products of few rows, is inside this bound too. */
	NIB_ARITHMETIC_FP16_TENSOR = 1,
};

struct nib_device_info {
	size_t struct_bytes;
	const char *name;    /* "cpu", "cuda:0" */
	const char *backend; /* "cpu-avx512": row of the speed tables */
	char hardware[64];   /* the processor's own name */
	char features[128];  /* "avx2 fma f16c avx512f ..." */
	int threads;	     /* multiprocessors of a GPU */
	/* Data caches of one core, a GPU's L2 of all; 0 = unknown. */
	int64_t l1_bytes, l2_bytes;
	/* Of GPUs, 0 on a CPU. */
	int64_t memory_bytes;
	int driver_version;		 /* 13000 is CUDA 13.0 */
	int compute_capability;		 /* 90 is 9.0 */
	int clock_khz, memory_clock_khz; /* the highest */
	int memory_bus_bits;
	/* What nib_check_options.arithmetic must be for results of this one. */
	enum nib_arithmetic arithmetic;
};
NIB_API enum nib_status nib_device_get_info(const struct nib_device *device,
					    struct nib_device_info *info,
					    struct nib_error *err);

/*
 * Memory that the device computes in, for those who have no allocator of their
 * own: at a multiple of 64 bytes (256 on "cuda"), contents undefined.  0 bytes
 * give NULL.  Alloc and free may wait for queued work.
 */
NIB_API enum nib_status nib_device_alloc(struct nib_device *device,
					 size_t bytes, void **pointer,
					 struct nib_error *err);
NIB_API void nib_device_free(struct nib_device *device, void *pointer);
/*
 * Copies bytes; each side is memory of the host or of the device, and they do
 * not overlap.  Comes after all work queued on the default stream, and waits
 * until done.
 */
NIB_API enum nib_status nib_device_copy(struct nib_device *device, void *to,
					const void *from, size_t bytes,
					struct nib_error *err);
/*
 * Waits until all work queued on stream (NULL = the default stream) is done,
 * and returns NIB_DEVICE_FAILED if it, or anything before, failed on the
 * device.
 */
NIB_API enum nib_status nib_device_wait(struct nib_device *device, void *stream,
					struct nib_error *err);

/* Options of calls that have no others; may be NULL. */
struct nib_call_options {
	size_t struct_bytes;
	/* "cuda": a CUstream, NULL = the default stream.  "cpu": NULL. */
	void *stream;
};

/*
 * Work that does one thing only, as fast as the device can: what results are
 * held against.
 */
enum nib_probe {
	/* Reads amount bytes, a multiple of 16, at data, each once. */
	NIB_PROBE_READ = 0,
	/* amount FLOP of fp16 products and fp32 sums on the tensor cores, the
	 * operands in registers and shared memory. */
	NIB_PROBE_MULTIPLY = 1,
	/* One multiprocessor lets its clock tick amount times. */
	NIB_PROBE_CYCLES = 2,
};
/*
 * Queues a probe.  data: memory of the device at a multiple of 16, for
 * NIB_PROBE_READ; else NULL.  *done (may be NULL) receives what the probe does:
 * amount, FLOP rounded up to whole steps of all multiprocessors.  amount 0 does
 * nothing.  On "cpu" that is NIB_UNSUPPORTED.
 */
NIB_API enum nib_status nib_device_probe(struct nib_device *device,
					 enum nib_probe probe, const void *data,
					 int64_t amount, int64_t *done,
					 const struct nib_call_options *options,
					 struct nib_error *err);

/*
 * What a GPU's planner holds of its kernels: by these cycles it cuts products
 * into tiles.  Only their ratios matter, and no result depends on them but by
 * how k is divided (nib_run()).
 */
#define NIB_MAX_TILE_SIZES 32
struct nib_costs {
	size_t struct_bytes;
	int sizes;			     /* of tiles that there are */
	int tile_rows[NIB_MAX_TILE_SIZES];   /* of a, ascending */
	int step_cycles[NIB_MAX_TILE_SIZES]; /* for 64 of k, 1 to 10^6 */
	int tile_cycles;		     /* of a tile beside its steps */
	int split_cycles; /* of joining two parts of k of a tile of 128 rows */
	/* The rest is for reading.  Columns of c of a tile; tiles that all
	 * multiprocessors together compute at once. */
	int tile_cols, tiles_at_once;
	int is_from_file;
	/* Where the file is looked for when the device is opened, "" for
	 * nowhere; lives as long as the device. */
	const char *path;
	char reason[128]; /* why they are not from that file; "" if they are */
};
/*
 * Costs of a device.  When it is opened they are those of a file that was saved
 * on this machine for this kind of GPU and this version, else built in.  The
 * file is nibblas/tune-<GPU>-<multiprocessors>-<version>.json in
 * $XDG_CACHE_HOME or ~/.cache, or what NIB_TUNING names; NIB_TUNING=off: none.
 * A file that is damaged or of another GPU is not used, and is no error.
 */
NIB_API enum nib_status nib_device_get_costs(struct nib_device *device,
					     struct nib_costs *costs,
					     struct nib_error *err);
/*
 * Plans made from now on use these (NULL = the built-in ones); sizes and
 * tile_rows are those of get.  No other thread may make plans meanwhile.
 */
NIB_API enum nib_status nib_device_set_costs(struct nib_device *device,
					     const struct nib_costs *costs,
					     struct nib_error *err);
/* Writes the device's costs to that file, and its folders. */
NIB_API enum nib_status nib_device_save_costs(struct nib_device *device,
					      struct nib_error *err);

/* Every backend of this build, open here or not, best first. */
struct nib_backend_info {
	size_t struct_bytes;
	const char *backend; /* "cpu-avx512" */
	int is_open;
	char reason[128]; /* why it is closed; "" when open */
};
NIB_API int nib_backend_count(void);
NIB_API enum nib_status nib_backend_get_info(int index,
					     struct nib_backend_info *info,
					     struct nib_error *err);

/* ------------------------------------------------------------------------ */
/* Packed weights                                                            */

/*
 * Weights in the device's own order: 0.5625 bytes a value, on huge pages where
 * the system has them, good for every operation.  Holds a copy; the source may
 * be freed.
 */
struct nib_packed;

/*
 * Packs all batches of b, and waits until done.  A scale with its sign bit set
 * is NIB_BAD_DATA.  On "cuda" b is read behind all work queued on the default
 * stream: what a stream that does not order itself with that one writes there
 * must be done before.
 */
NIB_API enum nib_status nib_pack(struct nib_device *device,
				 const struct nib_nvfp4 *b,
				 struct nib_packed **packed,
				 struct nib_error *err);
NIB_API void nib_packed_free(struct nib_packed *packed); /* NULL is fine */
/* Bytes held for the weights. */
NIB_API size_t nib_packed_bytes(const struct nib_packed *packed);

/* ------------------------------------------------------------------------ */
/* Multiplication                                                            */

enum nib_op {
	/* C = alpha * A * B^T, for each of the batches. */
	NIB_GEMM = 0,
	/* C = silu(alpha * A * B^T) * (alpha2 * A * B2^T); sums, silu and
	 * product in fp32, one rounding to the output. */
	NIB_DUAL_GEMM = 1,
	/* NIB_GEMM with a.rows == 1: C[1, n] = alpha * B[n, k] * a[k]. */
	NIB_GEMV = 2,
};

/*
 * One multiplication.  a [m, k] and b [n, k] have the same batch count, or b
 * has one that all batches of a share; c is [m, n] with a's batch count.  Give
 * the weights either as a view (b) or packed (b_packed, then b is ignored); the
 * same for b2, which only NIB_DUAL_GEMM reads.  alpha, alpha2: one float each,
 * the product of the global scales; NULL = 1.
 *
 * c must not overlap any input, from its first byte to its last, or another
 * problem's c; two of them may be columns or heads of one tensor.
 */
struct nib_problem {
	struct nib_nvfp4 a, b, b2;
	const struct nib_packed *b_packed, *b2_packed;
	const float *alpha, *alpha2;
	struct nib_dense c;
	uint64_t reserved[4]; /* must be 0 */
};

/*
 * A mixture of experts: the rows of a are tokens sorted by expert; expert e has
 * rows row_offsets[e] .. row_offsets[e+1]-1 and multiplies them by matrix e of
 * the stack b (and b2).  row_offsets is read when the plan runs.
 *   a, c         [rows, k] and [rows, n], batch 1; rows is an upper bound: rows
 *                outside the offsets are neither read nor written
 *   b, b2        batch = experts, at least one (or packed)
 *   row_offsets  experts + 1 values, ascending, row_offsets[experts] <= a.rows
 *   scale_rows   NULL: the scales of a are laid out for all rows together.
 *                Else experts values: the row of a's scale tensor at which the
 *                scales of expert e begin (torch pads each expert to 128 rows
 *                in NIB_TILED_128X4; each entry a multiple of 128 there)
 *   scale_rows_total  with scale_rows: rows of a's scale tensor
 *   alpha, alpha2  experts values each; NULL = 1
 * Host arrays that break these rules are refused.  On a GPU nobody looks at
 * them beforehand: row_offsets are clamped to [0, a.rows], an expert whose
 * scales leave their tensor gives NaN, and nothing outside is touched.
 */
struct nib_moe_problem {
	struct nib_nvfp4 a, b, b2;
	const struct nib_packed *b_packed, *b2_packed;
	const float *alpha, *alpha2;
	struct nib_dense c;
	const int32_t *row_offsets;
	const int32_t *scale_rows;
	int64_t scale_rows_total;
	uint64_t reserved[4]; /* must be 0 */
};

struct nib_plan;

struct nib_plan_options {
	size_t struct_bytes;
	/* Nonzero: the plan keeps no workspace; every run must bring one. */
	int caller_workspace;
};

/*
 * Plans count problems of one operation: 1 is the plain call, more a group (one
 * launch, any mixture of m, n, k), 0 does nothing.  Sizes, strides, layouts and
 * packed weights are taken from problems; codes, scales, data and alpha
 * pointers are not read and may be NULL.  problems need not outlive the call;
 * packed weights must outlive the plan.
 */
NIB_API enum nib_status
nib_plan_create(struct nib_device *device, enum nib_op op,
		const struct nib_problem *problems, int64_t count,
		const struct nib_plan_options *options, struct nib_plan **plan,
		struct nib_error *err);
/* The same for a mixture of experts; op is NIB_GEMM or NIB_DUAL_GEMM. */
NIB_API enum nib_status
nib_plan_create_moe(struct nib_device *device, enum nib_op op,
		    const struct nib_moe_problem *moe,
		    const struct nib_plan_options *options,
		    struct nib_plan **plan, struct nib_error *err);
NIB_API void nib_plan_free(struct nib_plan *plan); /* NULL is fine */

struct nib_plan_info {
	size_t struct_bytes;
	enum nib_op op;
	int64_t count; /* problems, or experts */
	const char *backend;
	size_t workspace_bytes; /* of one run; align to 64 */
	double flop;		/* 2*m*n*k summed; MoE: for all rows of a */
	double bytes;		/* inputs and outputs, each once */
	int64_t tasks;		/* units of work, about: a run balances them */
	int threads;
	/* One sentence: what runs, and why. */
	const char *explanation;
};
NIB_API enum nib_status nib_plan_get_info(const struct nib_plan *plan,
					  struct nib_plan_info *info,
					  struct nib_error *err);

struct nib_run_options {
	size_t struct_bytes;
	/*
	 * workspace_bytes of the plan, for this run alone.  NULL: the plan's
	 * own, and runs of one plan on several threads take turns.
	 */
	void *workspace;
	size_t workspace_bytes;
	/*
	 * Nonzero: also look at every scale for a sign bit (NIB_BAD_DATA).  On
	 * "cuda" that is NIB_UNSUPPORTED.
	 */
	int check_data;
	/*
	 * "cuda": a CUstream, NULL = the default stream.  "cpu": NULL.  Runs
	 * that share a workspace, the plan's own too, are the caller's to
	 * order: on one stream they are.  A destroyed one is NIB_BAD_ARGUMENT
	 * where the driver tells, which CUDA does not promise.
	 */
	void *stream;
};

/*
 * Runs a plan on problems of the sizes that it was made for (else
 * NIB_BAD_ARGUMENT).  Allocates nothing.  On "cuda" it returns when the work is
 * queued, and may be captured in a graph; problems may be gone by then.  The
 * plan, its packed weights, operands and workspace must outlive a graph, and
 * its replays are runs that use the workspace.  The same inputs give the same
 * bits for any thread count, instruction set, group order and neighbours
 * ("cuda": among groups; plans of one matrix and mixtures of few tokens an
 * expert have bits of their own).  On failure every c is unchanged ("cuda":
 * unless a launch of a large group is refused after others).  options or NULL.
 */
NIB_API enum nib_status nib_run(struct nib_plan *plan,
				const struct nib_problem *problems,
				int64_t count,
				const struct nib_run_options *options,
				struct nib_error *err);
NIB_API enum nib_status nib_run_moe(struct nib_plan *plan,
				    const struct nib_moe_problem *moe,
				    const struct nib_run_options *options,
				    struct nib_error *err);

/* Plan, run, free: for a first try, or sizes that never come back. */
NIB_API enum nib_status nib_multiply(struct nib_device *device, enum nib_op op,
				     const struct nib_problem *problems,
				     int64_t count, struct nib_error *err);

/* ------------------------------------------------------------------------ */
/* The oracle                                                                */

/*
 * The exact result: an int64 sum with no rounding and no order, times alpha,
 * rounded once to c's type (NIB_DUAL_GEMM: both sums exact, silu and product in
 * double, rounded once).  Slow, single-threaded, host memory, views only
 * (packed weights are refused).
 */
NIB_API enum nib_status nib_reference(enum nib_op op,
				      const struct nib_problem *problems,
				      int64_t count, struct nib_error *err);
NIB_API enum nib_status nib_reference_moe(enum nib_op op,
					  const struct nib_moe_problem *moe,
					  struct nib_error *err);

struct nib_check_options {
	size_t struct_bytes;
	/* Rows of each matrix of c to compare, chosen by seed; 0 = all. */
	int64_t sample_rows;
	uint64_t seed;
	/* Whose bound: that of the device, nib_device_info.arithmetic. */
	enum nib_arithmetic arithmetic;
};

struct nib_check_result {
	size_t struct_bytes;
	int64_t checked; /* elements compared */
	int64_t failed;	 /* elements outside their bound */
	/*
	 * |c - exact| / (|alpha| * T), for the dual operation over the product
	 * of both; not divided where that is 0.  T is the sum of what the
	 * arithmetic rounds: of |block partials| for NIB_ARITHMETIC_BLOCKS, of
	 * |products| for NIB_ARITHMETIC_FP16_TENSOR.
	 */
	double worst_error;
	double worst_bound;    /* the bound of that same element, same unit */
	double worst_fraction; /* largest error / bound; <= 1 passes */
	/* Where worst_fraction was found; MoE: problem is the expert, row is
	 * c's row. */
	int64_t problem, batch, row, col;
	double got, want;
};

/*
 * Compares problems[].c, as a backend wrote it, with the oracle under the bound of
 * docs/numerics.md.  A mismatch is not an error of this call: read failed.
 */
NIB_API enum nib_status
nib_check(enum nib_op op, const struct nib_problem *problems, int64_t count,
	  const struct nib_check_options *options,
	  struct nib_check_result *result, struct nib_error *err);
NIB_API enum nib_status nib_check_moe(enum nib_op op,
				      const struct nib_moe_problem *moe,
				      const struct nib_check_options *options,
				      struct nib_check_result *result,
				      struct nib_error *err);

/* ------------------------------------------------------------------------ */
/* Quantisation                                                              */

/* What a block of sixteen zeros gets as its scale. */
enum nib_recipe {
	NIB_RECIPE_MODELOPT = 0,	   /* 1.0 */
	NIB_RECIPE_COMPRESSED_TENSORS = 1, /* 0.125 */
	NIB_RECIPE_GGML = 2,		   /* 0 */
};

struct nib_quantize_options {
	size_t struct_bytes;
	enum nib_recipe recipe;
	/* Values are e2m1 * scale * global; 0 = amax / 2688 of all of x, else
	 * positive, with 6 * global finite. */
	float global;
	/* Nonzero: inf becomes the largest value, NaN becomes zero.  Else the
	 * first one is NIB_BAD_DATA, with its index, and q is undefined. */
	int saturate;
	/* "cuda": a CUstream, NULL = the default stream.  "cpu": NULL. */
	void *stream;
	/*
	 * The global scale in the device's memory, read when the work runs;
	 * then global is 0, and global_used is not written.  NULL: see global.
	 */
	const float *global_pointer;
};

/*
 * Quantises x [rows, k] (batch too) into q, which has x's sizes and is written:
 *   scale = e4m3(amax of the block / (6 * global)), to nearest even, clamped to
 *           [2^-9, 448];  code = e2m1(x / (scale * global)), to nearest even.
 * Bit-exact in every backend.  TILED padding is written as zero.  *global_used
 * (may be NULL) receives the global scale; all zeros give 1.
 *
 * On "cuda" the call waits if it may have something to tell: global_used is not
 * NULL, or saturate is 0.
 */
NIB_API enum nib_status nib_quantize(struct nib_device *device,
				     const struct nib_dense *x,
				     const struct nib_nvfp4 *q,
				     const struct nib_quantize_options *options,
				     float *global_used, struct nib_error *err);

/* Largest |x|, waiting for it.  NaN or inf is NIB_BAD_DATA unless saturate
 * (then skipped).  On "cuda" x is read on the default stream, as by nib_pack().
 */
NIB_API enum nib_status nib_amax(struct nib_device *device,
				 const struct nib_dense *x, int saturate,
				 float *amax, struct nib_error *err);

struct nib_dequantize_options {
	size_t struct_bytes;
	/* "cuda": a CUstream, NULL = the default stream.  "cpu": NULL. */
	void *stream;
	/* The global scale in the device's memory, read when the work runs;
	 * then global is 0.  NULL: see global. */
	const float *global_pointer;
};

/* y = e2m1 * scale * global, rounded once to y's type.  options may be NULL. */
NIB_API enum nib_status
nib_dequantize(struct nib_device *device, const struct nib_nvfp4 *q,
	       float global, const struct nib_dense *y,
	       const struct nib_dequantize_options *options,
	       struct nib_error *err);

/*
 * Copies the scales of from into the layout of to, both [rows, k] and batch the
 * same; codes are not looked at.  Padding of to is written as zero.
 */
NIB_API enum nib_status
nib_convert_scales(struct nib_device *device, const struct nib_nvfp4 *from,
		   const struct nib_nvfp4 *to,
		   const struct nib_call_options *options,
		   struct nib_error *err);

/*
 * Where rows and scales of a mixture's experts begin, of where their rows end
 * (ends [experts], ascending): row_offsets [experts + 1], and scale_rows
 * [experts] (may be NULL) for tiled scales of which each expert's are padded to
 * 128 rows.  All in the device's memory; waits for nothing.
 */
NIB_API enum nib_status
nib_expert_rows(struct nib_device *device, const int32_t *ends, int64_t experts,
		int32_t *row_offsets, int32_t *scale_rows,
		const struct nib_call_options *options, struct nib_error *err);

/* ------------------------------------------------------------------------ */
/* Files: safetensors                                                        */

#define NIB_MAX_RANK 8

struct nib_file;

struct nib_file_tensor {
	const char *name;  /* lives as long as the file */
	const char *dtype; /* "F32", "BF16", "U8", "F8_E4M3", ... as stored */
	int rank;
	int64_t shape[NIB_MAX_RANK];
	const void *data;
	uint64_t bytes;
};

/*
 * Maps a safetensors file and checks its whole header: at most 100 MB, no
 * duplicate keys, known dtypes, shape * size = bytes without overflow, ranges
 * inside the file, contiguous and not overlapping.  Read-only.  One file may be
 * read from several threads.  Nobody may make the file shorter meanwhile: the
 * missing pages would raise SIGBUS.
 */
NIB_API enum nib_status nib_file_open(const char *path, struct nib_file **file,
				      struct nib_error *err);
/* The same for bytes in memory, which must outlive the file; path names it. */
NIB_API enum nib_status nib_file_open_memory(const void *bytes, size_t n_bytes,
					     const char *path,
					     struct nib_file **file,
					     struct nib_error *err);
NIB_API void nib_file_close(struct nib_file *file); /* NULL is fine */

/* Tensors in the order of their data. */
NIB_API int64_t nib_file_tensor_count(const struct nib_file *file);
NIB_API const struct nib_file_tensor *
nib_file_tensor_at(const struct nib_file *file, int64_t index);
/* NULL if there is no such tensor. */
NIB_API const struct nib_file_tensor *nib_file_find(const struct nib_file *file,
						    const char *name);
/* The string pairs of "__metadata__", by key; both NULL past the end. */
NIB_API int64_t nib_file_metadata_count(const struct nib_file *file);
NIB_API void nib_file_metadata_at(const struct nib_file *file, int64_t index,
				  const char **key, const char **value);

enum nib_checkpoint {
	NIB_CHECKPOINT_MODELOPT = 0,
	NIB_CHECKPOINT_COMPRESSED_TENSORS = 1,
};

/*
 * An NVFP4 layer of a file, both formats read to one meaning:
 * value = e2m1 * scale * global.
 */
struct nib_layer {
	const char *name; /* "model.layers.0.mlp.up_proj", without suffix */
	enum nib_checkpoint format;
	/* Read-only.  A stack [batch, rows, k] if the tensor has rank 3. */
	struct nib_nvfp4 weight;
	/* NaN if the matrices of a stack have different ones: read globals. */
	float global;
	float input_global; /* 0 = the file has none; NaN as above */
	/* weight.batch values, one for each matrix; NULL if all have global. */
	const float *globals;
};
NIB_API int64_t nib_file_layer_count(const struct nib_file *file);
NIB_API const struct nib_layer *nib_file_layer_at(const struct nib_file *file,
						  int64_t index);
/* By layer name, or by the full name of its weight tensor; NULL if none. */
NIB_API const struct nib_layer *nib_file_find_layer(const struct nib_file *file,
						    const char *name);

/*
 * A layer that is named like NVFP4 and is not in the list above: a tensor of it
 * is missing, or has the wrong type or shape, or a global scale is no scale.
 */
struct nib_layer_problem {
	const char *name;
	enum nib_checkpoint format;
	char reason[160]; /* "weight_scale_2 is missing" */
};
NIB_API int64_t nib_file_layer_problem_count(const struct nib_file *file);
NIB_API const struct nib_layer_problem *
nib_file_layer_problem_at(const struct nib_file *file, int64_t index);

/*
 * Writes a safetensors file atomically: declare every tensor, then write their
 * bytes in the same order in pieces of any size, then commit.  Until commit
 * (fsync, rename) the path holds what it held before; discard, or a failed
 * write or commit, removes the temporary file, which is in path's folder.
 * A symbolic link is replaced, not followed; what is no regular file is
 * refused.  In the file the tensors lie by falling alignment, as other writers
 * do.  Used by one thread at a time.
 */
struct nib_writer;
NIB_API enum nib_status nib_writer_open(const char *path,
					struct nib_writer **writer,
					struct nib_error *err);
NIB_API enum nib_status nib_writer_metadata(struct nib_writer *writer,
					    const char *key, const char *value,
					    struct nib_error *err);
NIB_API enum nib_status nib_writer_declare(struct nib_writer *writer,
					   const char *name, const char *dtype,
					   int rank, const int64_t *shape,
					   struct nib_error *err);
/* The tensors of an NVFP4 layer, codes first, in format's names and order. */
NIB_API enum nib_status
nib_writer_declare_layer(struct nib_writer *writer, enum nib_checkpoint format,
			 const char *name, int64_t rows, int64_t k,
			 int has_input_global, struct nib_error *err);
/*
 * The next bytes of the declared data.  The first call writes the header and
 * asks the disk for the whole size.
 */
NIB_API enum nib_status nib_writer_write(struct nib_writer *writer,
					 const void *bytes, size_t n_bytes,
					 struct nib_error *err);
/*
 * A whole declared layer, batch 1; any strides and scale layout.  Scales with
 * their sign bit set are NIB_BAD_DATA.  input_global is 0 exactly if the layer
 * was declared without.  compressed-tensors stores 1 / global, so that reading
 * it back may differ in the last bit.
 */
NIB_API enum nib_status nib_writer_write_layer(struct nib_writer *writer,
					       enum nib_checkpoint format,
					       const struct nib_nvfp4 *weight,
					       float global, float input_global,
					       struct nib_error *err);
/* Frees writer whether it succeeds or not. */
NIB_API enum nib_status nib_writer_commit(struct nib_writer *writer,
					  struct nib_error *err);
NIB_API void nib_writer_discard(struct nib_writer *writer); /* NULL is fine */

#ifdef __cplusplus
}
#endif

#endif
