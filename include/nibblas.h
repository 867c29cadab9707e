/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nibblas.h - NVFP4 matrix multiplication on CPUs and NVIDIA GPUs.
 *
 * nibblas_tune.h has the functions that measure a GPU and tune its planner.
 *
 * NVFP4: 4-bit floats (e2m1), one e4m3 scale for 16 consecutive k of a row, and
 * one fp32 global scale for a tensor.  A value is  e2m1 * scale * global.
 * Weights are NVFP4.  Activations are NVFP4 too, or fp16, bf16 or fp32: enum
 * nib_activations.
 *
 * A multiplication has three steps:
 *   1. Describe the operands by views (struct nib_fp4, struct nib_dense).
 *   2. nib_plan_create() checks the sizes and chooses a kernel.
 *   3. nib_run() multiplies, as often as wanted.
 * Weights that are used more than once should go through nib_pack() first.
 * nib_multiply() does steps 2 and 3 in one call.
 *
 * Units.  Sizes are int64_t and count elements unless the name says _bytes or
 * _rows.  m is the rows of A and C, n the rows of B and columns of C, k the
 * length that is summed over.
 *
 * Memory.  Views own nothing.  Data pointers, alpha, row offsets and scale rows
 * are memory of the device: host memory for "cpu"; for a GPU see
 * nib_device_alloc().  "cpu" needs no alignment.  "cuda" needs codes, tiled
 * scales and dense data at multiples of 16 bytes, and alpha, row offsets and
 * scale rows at multiples of 4.  What a _create, _open or nib_pack() function
 * returns belongs to the caller and ends with the function named after it
 * (_free, _close, nib_writer_commit() or _discard()).  Strings and structs that
 * other functions return belong to the object that they describe.
 *
 * Order of work.  On "cpu" all work is done when a function returns.  On "cuda"
 * a function enqueues its work on the stream of its options and returns, unless
 * its comment says that it waits.  Functions that create or free an object may
 * wait.  Inputs must stay unchanged until the work is done.
 *
 * Errors.  A function that can fail returns enum nib_status.  Its last argument
 * is a struct nib_error, which may be NULL and is written only on failure.  The
 * message names the argument, its value and the rule.  A call that fails has
 * changed nothing, holds no memory, and leaves NULL where it would have
 * returned an object; exceptions are documented.  The library never prints,
 * exits or aborts.
 *
 * Later versions.  Structs that begin with struct_bytes grow at the end: set it
 * to sizeof the struct and the rest to zero.  A size smaller than this
 * version's is an older caller, whose missing fields mean zero; a larger one is
 * a newer caller, whose unknown fields must be zero, or the call is
 * NIB_STATUS_UNSUPPORTED.  Views, problems and struct nib_moe_layer contain each
 * other or are in arrays, so they have reserved fields instead, which must be zero
 * in the same way.  Structs that the library returns by pointer grow at the end.
 * Until 1.0 a minor version may break all this; the SONAME contains the minor
 * version.
 *
 * Threads.
 * - Any function may be called from any thread.  Several threads may use one
 *   object at once, with two exceptions:
 *   - An object must not be in use while it is closed or freed.
 *   - A writer must be used by one thread at a time.
 * - On "cpu" a call runs its tasks on the caller's thread and on threads of the
 *   device, which start with the first call that needs them; their number is
 *   nib_device_options.threads.  These threads block all signals.  The library
 *   honours OpenMP's variables.  With nib_device_options.openmp it uses OpenMP's
 *   threads instead.
 * - While other programs keep the cores busy, so that a call with threads takes
 *   longer than without, calls run on the caller's thread only.  Results do not
 *   change.
 * - nib_device_close() ends the device's threads.  A program may dlclose() the
 *   library once all its devices are closed.
 * - After fork() a child may go on using a "cpu" device, its plans and its
 *   packed weights: the child's first call starts new threads.  A call that
 *   another thread was in at the moment of the fork is lost in the child.  A
 *   "cuda" device does not survive a fork, because CUDA does not.
 * - The caller's own pool (nib_parallel_for) may run other work while it waits,
 *   runs of the same plan included: the library holds no lock while it calls
 *   the pool.
 */
#ifndef NIBBLAS_H
#define NIBBLAS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__SIZEOF_POINTER__) && __SIZEOF_POINTER__ < 8
#error "nibblas needs pointers of 64 bits: leave out -m32"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define NIB_VERSION_MAJOR 0
#define NIB_VERSION_MINOR 2
#define NIB_VERSION_PATCH 0

#if defined(NIB_BUILD) && defined(__GNUC__)
#define NIB_API __attribute__((visibility("default")))
#else
#define NIB_API
#endif

/* Values of a row that share one scale. */
#define NIB_NVFP4_BLOCK 16
/* Largest k: beyond it the exact int64 sum of the oracle could overflow. */
#define NIB_MAX_K (INT64_C(1) << 20)

/* "0.2.0", static. */
NIB_API const char *nib_version(void);

/* ------------------------------------------------------------------------ */
/* Errors                                                                    */

enum nib_status {
	NIB_STATUS_OK = 0,
	NIB_STATUS_BAD_ARGUMENT,  /* an argument breaks a rule */
	NIB_STATUS_UNSUPPORTED,	  /* valid, but this build or device cannot do it */
	NIB_STATUS_OUT_OF_MEMORY, /* no memory on the host or the device */
	NIB_STATUS_NO_DEVICE,	  /* this machine has no such device */
	NIB_STATUS_BAD_DATA,	  /* values: inf/NaN to quantise, scale sign bit */
	NIB_STATUS_BAD_FILE,	  /* a file's contents break its format */
	NIB_STATUS_IO,		  /* the operating system refused: errno's text */
	NIB_STATUS_DEVICE_FAILED, /* the driver, a launch or the device failed */
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
	uint64_t reserved[4]; /* written as 0 */
};

/* "bad argument" and so on, static; never NULL. */
NIB_API const char *nib_status_name(enum nib_status status);

/* ------------------------------------------------------------------------ */
/* Views                                                                     */

enum nib_dtype { NIB_DTYPE_FP32 = 0, NIB_DTYPE_FP16 = 1, NIB_DTYPE_BF16 = 2 };

enum nib_scale_layout {
	/* Row-major [rows, k/16], rows scale_row_stride_bytes apart. */
	NIB_SCALE_LAYOUT_LINEAR = 0,
	/*
	 * SWIZZLE_32_4_4 of cuBLAS and torch: rows padded to 128, k/16 to 4.
	 * With G = k/16, scale (r, g) is byte
	 *   ((r/128)*ceil(G/4) + g/4)*512 + (r%32)*16 + ((r%128)/32)*4 + g%4.
	 * The padding may have any contents.
	 */
	NIB_SCALE_LAYOUT_TILED_128X4 = 1,
};

/* What the codes and scales of a view mean. */
enum nib_fp4_format {
	/* e2m1 codes, an e4m3 scale for 16 consecutive k, a global scale. */
	NIB_FP4_FORMAT_NVFP4 = 0,
	/*
	 * e2m1 codes, an e8m0 scale for 32 consecutive k, no global scale.  No
	 * function accepts it yet: NIB_STATUS_UNSUPPORTED.
	 */
	NIB_FP4_FORMAT_MXFP4 = 1,
};

enum nib_code_order {
	NIB_CODE_ORDER_LOW_FIRST = 0, /* the even k of a byte in its low nibble */
	/* As ComfyUI has it: see nib_layer_read_rows(). */
	NIB_CODE_ORDER_HIGH_FIRST = 1,
};

/*
 * A stack of `batch` NVFP4 matrices [rows, k], k contiguous.  Owns nothing.
 * Codes: two to a byte, the even k in the low nibble.  Bit 3 of a code is the
 * sign; the other bits, 0 to 7, mean 0, 0.5, 1, 1.5, 2, 3, 4, 6.
 * Only views of files have another code_order; functions refuse them.
 * Scales: e4m3 with the sign bit 0.  0x7F is NaN, and so is every result that
 * it contributes to.
 * A stride of 0 means dense.  Codes: k/2, and rows * row stride.  Linear scales: k/16,
 * and rows * row stride.  Tiled scales: nib_scales_bytes().  Rows and batches must not
 * overlap.  Batches are either stacked ([batch, rows, k] in memory) or interleaved
 * ([rows, batch, k], as the heads of attention are).
 * A function writes through the pointers only if its comment says so.
 */
struct nib_fp4 {
	void *codes;
	void *scales;
	int64_t rows;
	int64_t k;     /* a multiple of 16, 0 to NIB_MAX_K; 0 sums to 0 */
	int64_t batch; /* 0 means 1 */
	int64_t row_stride_bytes;
	int64_t batch_stride_bytes;
	enum nib_scale_layout scale_layout;
	enum nib_code_order code_order;
	enum nib_fp4_format format;
	int64_t scale_row_stride_bytes; /* NIB_SCALE_LAYOUT_LINEAR only */
	int64_t scale_batch_stride_bytes;
	uint64_t reserved[4]; /* must be 0 */
};

/*
 * A stack of `batch` matrices [rows, cols] of floats, cols contiguous.  A stride of 0
 * means dense: cols, and rows * row stride.  Batches are stacked or interleaved as
 * those of struct nib_fp4.
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

/* Enums are members of structs, so they have the size of an int: no -fshort-enums. */
typedef char nib_enums_are_ints[sizeof(enum nib_dtype) == sizeof(int) ? 1 : -1];

/* Bytes of the scales of one [rows, k] matrix, dense; 0 for invalid sizes. */
NIB_API size_t nib_scales_bytes(enum nib_scale_layout layout, int64_t rows, int64_t k);
/* Bytes of one element: 4, 2, 2. */
NIB_API size_t nib_dtype_bytes(enum nib_dtype dtype);

/* ------------------------------------------------------------------------ */
/* Devices                                                                   */

struct nib_device;

/*
 * Calls task(arg, i) once for every 0 <= i < tasks, in any order, on any
 * threads, and returns when all have returned.  Tasks never wait for each
 * other, so they may run one after the other.
 */
typedef void (*nib_parallel_for)(void *pool, int tasks, void (*task)(void *arg, int i),
				 void *arg);

struct nib_device_options {
	size_t struct_bytes;
	/*
	 * CPU: the number of threads of a call, including the caller's.  0 =
	 * OMP_NUM_THREADS, or if that is not set, the number of processors
	 * that the opening thread may use; in both cases at most
	 * OMP_THREAD_LIMIT.  Threads that wait for work spin for about 100 us
	 * before they sleep; with OMP_WAIT_POLICY=passive they sleep at once.
	 * Threads inherit the opening thread's affinity and are not bound to
	 * processors or memory nodes (docs/performance-cpu.md, "Two sockets").
	 */
	int threads;
	/* CPU: the caller's own pool instead of such threads, or NULL. */
	nib_parallel_for parallel_for;
	void *pool;
	/*
	 * CPU: "scalar", "avx2", "avxvnni", "avx512bw", "avx512vnni" or "amx", on
	 * Arm "scalar", "neon", "neondot", "neoni8mm" or "neonbf16" forces one
	 * instruction set ("avx512" is an older name of "avx512vnni"); NULL = the
	 * value of NIB_CPU, or if that is not set, the best one of this machine.
	 *
	 * On a processor with AMX, nib_device_open() with "amx" or NULL and
	 * nib_backend_get_info() request tile registers for the process. Linux
	 * does not take them back.  From then on sigaltstack() refuses stacks
	 * below some 11 KiB (getauxval(AT_MINSIGSTKSZ)); if a thread has a smaller
	 * one already, the request fails and "avx512vnni" is used.  A call keeps
	 * the calling thread's configuration of tiles, not their contents.
	 */
	const char *isa;
	/*
	 * CPU: the path or soname of a loaded library that uses OpenMP, such as
	 * torch's libtorch_cpu.so; NULL = none.  Calls run in a parallel region
	 * of `threads` of that library's OpenMP threads, because threads of the
	 * device would compete with those for the cores.  After a fork, calls
	 * of the child run on threads of the device, because an OpenMP runtime
	 * does not survive a fork.  NIB_STATUS_NO_DEVICE if the library is not
	 * loaded, or if no library that it is linked with has GOMP_parallel()
	 * (libgomp and LLVM's and Intel's OpenMP have it).  parallel_for must be
	 * NULL.
	 */
	const char *openmp;
};

/*
 * Opens a device: "cpu", "cuda" (the first GPU) or "cuda:1" (the second).
 * options may be NULL.  The device must outlive everything that is made from it.
 * NIB_STATUS_NO_DEVICE: the name is unknown, or this machine lacks the GPU or the
 * instruction set; the message says which.  NIB_STATUS_UNSUPPORTED: this build has
 * no kernels for the GPU.
 *
 * "cuda" opens libcuda.so.1, or the library that NIB_CUDA_LIBRARY names.  It
 * works in the GPU's primary context, as CUDA's runtime does, so pointers and
 * streams of other libraries can be used.  Every call leaves the thread's
 * current context as it was.
 */
NIB_API enum nib_status nib_device_open(const char *name,
					const struct nib_device_options *options,
					struct nib_device **device,
					struct nib_error *err);
/* NULL is fine.  On "cuda" enqueued work must be done: nib_device_wait(). */
NIB_API void nib_device_close(struct nib_device *device);

/*
 * How a device sums products, which decides how large its errors can be:
 * docs/numerics.md derives a bound for each.
 */
enum nib_arithmetic {
	/*
	 * The 16 products of a block are summed exactly, blocks in fp32.  With
	 * NIB_ACTIVATIONS_DENSE every product is added in fp32.
	 */
	NIB_ARITHMETIC_BLOCKS = 0,
	/*
	 * A tensor core adds 16 products of fp16 or bf16 to the accumulator at
	 * a time and cuts off what is below 2^-25 of the largest of these 17
	 * numbers.  Kernels for few rows are more exact.
	 */
	NIB_ARITHMETIC_FP16_TENSOR = 1,
	/*
	 * A tensor core multiplies the codes as they are.  It adds four blocks
	 * of 16 products to the accumulator at a time and cuts off what fp32
	 * does not hold.  Kernels for few rows sum in another way, within this
	 * bound.
	 */
	NIB_ARITHMETIC_FP4_TENSOR = 2,
};

struct nib_device_info {
	size_t struct_bytes;
	const char *name;    /* "cpu", "cuda:0" */
	const char *backend; /* "cpu-avx512vnni" */
	char hardware[64];   /* the processor's own name */
	char features[128];  /* "avx2 fma f16c avx512f ..." */
	int threads;	     /* of the host, in one call; 1 on "cuda" */
	int multiprocessors; /* of a GPU; 0 on a CPU */
	/* Data caches of one CPU core; the L2 of a GPU.  0 = unknown. */
	int64_t l1_bytes, l2_bytes;
	/* The following are 0 on a CPU. */
	int64_t memory_bytes;
	int driver_version;		 /* 13000 is CUDA 13.0 */
	int compute_capability;		 /* 90 is 9.0 */
	int clock_khz, memory_clock_khz; /* the highest */
	int memory_bus_bits;
	/* For nib_check_options.arithmetic of this device's results. */
	enum nib_arithmetic arithmetic;
};
NIB_API enum nib_status nib_device_get_info(const struct nib_device *device,
					    struct nib_device_info *info,
					    struct nib_error *err);

/* Options of functions that have no others; may be NULL. */
struct nib_call_options {
	size_t struct_bytes;
	/* "cuda": a CUstream, NULL = the default stream.  "cpu": NULL. */
	void *stream;
};

/*
 * Allocates device memory, for programs without an allocator of their own.  It begins
 * at a multiple of 64 bytes (256 on "cuda"); its contents are undefined.  0 bytes give
 * NULL.  Both functions may wait for enqueued work.
 */
NIB_API enum nib_status nib_device_alloc(struct nib_device *device, size_t bytes,
					 void **pointer, struct nib_error *err);
NIB_API void nib_device_free(struct nib_device *device, void *pointer);
/*
 * Copies bytes.  Each side is memory of the host or of the device; they must
 * not overlap.  The copy follows all work enqueued on the stream of options, and
 * the call waits until it is done.
 */
NIB_API enum nib_status nib_device_copy(struct nib_device *device, void *to,
					const void *from, size_t bytes,
					const struct nib_call_options *options,
					struct nib_error *err);
/*
 * Waits until all work enqueued on stream (NULL = the default stream) is done.
 * NIB_STATUS_DEVICE_FAILED if that work, or any before it, failed on the device.
 */
NIB_API enum nib_status nib_device_wait(struct nib_device *device, void *stream,
					struct nib_error *err);

/* A backend of this build.  is_open: this machine can run it. */
struct nib_backend_info {
	size_t struct_bytes;
	const char *backend; /* "cpu-avx512vnni" */
	int is_open;
	char reason[128]; /* why it cannot be opened; "" when open */
};
/* Backends are in order of preference. */
NIB_API int nib_backend_count(void);
NIB_API enum nib_status nib_backend_get_info(int index, struct nib_backend_info *info,
					     struct nib_error *err);

/* ------------------------------------------------------------------------ */
/* Packed weights                                                            */

/*
 * Weights in the order in which the device reads them: a copy of 0.5625 bytes a
 * value, on huge pages where the system has them, for every operation.  Plans of
 * another "cpu" device may use weights that were packed for a "cpu" device of
 * the same instruction set (nib_device_info.backend), which must outlive them.
 */
struct nib_packed;

/*
 * Packs all batches of b and waits until that is done; b may be freed then.  A
 * scale with its sign bit set is NIB_STATUS_BAD_DATA.  On "cuda" b is read on the
 * stream of options, after all work enqueued there.  If another stream writes b, wait
 * for it first.
 */
NIB_API enum nib_status nib_pack(struct nib_device *device, const struct nib_fp4 *b,
				 const struct nib_call_options *options,
				 struct nib_packed **packed, struct nib_error *err);
/*
 * As nib_pack(), but the codes are not copied if the device can read them in
 * place: on "cuda", if
 *   - rows are dense,
 *   - k is a multiple of 32, and
 *   - codes and matrices begin at multiples of 128 bytes.
 * Then only the scales are copied, 1/16 byte a value.  b.codes must stay allocated
 * until nib_packed_free(); call nib_packed_update() after changing them.
 */
NIB_API enum nib_status nib_pack_shared(struct nib_device *device,
					const struct nib_fp4 *b,
					const struct nib_call_options *options,
					struct nib_packed **packed,
					struct nib_error *err);
/*
 * Nonzero if nib_pack_shared() would not copy the codes of b; 0 also for
 * arguments that it refuses.  Reads only sizes, strides and addresses.
 */
NIB_API int nib_pack_shares(const struct nib_device *device, const struct nib_fp4 *b);
/*
 * Packs b into the memory of packed.  Plans and CUDA graphs that use packed stay
 * valid.  b must have the sizes of what was packed and, if codes are shared, the
 * same codes pointer.  Runs with packed must have ended.  Reads b as nib_pack()
 * does, and waits.  After NIB_STATUS_BAD_ARGUMENT packed is unchanged; after another
 * failure it must be updated again before its next use.
 */
NIB_API enum nib_status nib_packed_update(struct nib_packed *packed,
					  const struct nib_fp4 *b,
					  const struct nib_call_options *options,
					  struct nib_error *err);
/*
 * The inverse of nib_pack(): writes the codes and scales that were packed last,
 * bit for bit, to `to`, which has their sizes and any strides and layout.  The
 * original may have been freed.  The padding of tiled scales becomes 0.  Waits
 * until that is done; runs with packed may go on.  On "cuda" `to` is memory of the
 * device, written after all work enqueued on the stream of options, and must not
 * overlap shared codes.
 */
NIB_API enum nib_status nib_unpack(const struct nib_packed *packed,
				   const struct nib_fp4 *to,
				   const struct nib_call_options *options,
				   struct nib_error *err);
NIB_API void nib_packed_free(struct nib_packed *packed); /* NULL is fine */
/* Bytes of the copy; 0 for NULL. */
NIB_API size_t nib_packed_bytes(const struct nib_packed *packed);

/* ------------------------------------------------------------------------ */
/* Multiplication                                                            */

enum nib_op {
	/* C = alpha * A * B^T, for each of the batches. */
	NIB_OP_GEMM = 0,
	/* C = silu(alpha * A * B^T) * (alpha2 * A * B2^T); sums, silu and
	 * product in fp32, rounded once to the output. */
	NIB_OP_DUAL_GEMM = 1,
	/* NIB_OP_GEMM with one row of A: C[1, n] = alpha * B[n, k] * A[k]. */
	NIB_OP_GEMV = 2,
};

/*
 * What A, the activations, is.  A device that has no kernels for it refuses the
 * plan: NIB_STATUS_UNSUPPORTED.
 */
enum nib_activations {
	/* W4A4: A is the view a. */
	NIB_ACTIVATIONS_NVFP4 = 0,
	/*
	 * W4A16: A is the view x, of fp16 or bf16; on "cpu" also of fp32.  Its
	 * values are multiplied as they are, but a device may read a subnormal
	 * bf16 as zero.  An inf or a NaN follows IEEE 754: inf * 0 is NaN.  On
	 * "cuda" the strides of x are multiples of 8.
	 */
	NIB_ACTIVATIONS_DENSE = 1,
	/*
	 * W4A8, on "cpu": A is the view x, of any type, which the run rounds to
	 * 8 bits.  Each block of 16 consecutive k has a scale: the smallest
	 * (1 + t/8) * 2^e, with t = 0 to 7 and e >= -100, that is at least
	 * 1/127 of the block's largest |x|.  A value becomes scale * code,
	 * where code is the integer nearest to x / scale, ties to even.  Every
	 * backend rounds to the same values.  If a row of x has an inf or a
	 * NaN, the whole row of c is NaN.
	 */
	NIB_ACTIVATIONS_INT8 = 2,
};

/*
 * One multiplication.  A is [m, k], b [n, k] and c [m, n].
 *
 * A is the view a or the view x, depending on activations.  The other one is
 * ignored, including its reserved fields.  x is [m, k]: its cols are k, a multiple of
 * 16 up to NIB_MAX_K.  All problems of a group have the same activations, and
 * the same x.dtype if A is x.
 *
 * c has the batch count of A; b has the same, or one matrix that all batches of
 * A share.  Give the weights either as a view (b) or packed (b_packed; then b
 * is ignored).  The same holds for b2, which only NIB_OP_DUAL_GEMM reads.  alpha
 * and alpha2 point to one float each, the product of the global scales (x has
 * none); NULL = 1.
 *
 * No input may overlap any c; extents are compared from first to last byte.  The
 * outputs of a group must have no byte in common; they may be columns or heads of
 * one tensor.
 */
struct nib_problem {
	struct nib_fp4 a, b, b2;
	const struct nib_packed *b_packed, *b2_packed;
	const float *alpha, *alpha2;
	struct nib_dense c;
	struct nib_dense x;
	enum nib_activations activations;
	uint64_t reserved[4]; /* must be 0 */
};

/*
 * A mixture of experts: one product whose rows of A are tokens sorted by expert.
 * Expert e multiplies rows row_offsets[e] .. row_offsets[e+1]-1 of A by matrix e of
 * the stack b (and b2).  The fields of problem are:
 *   a or x, c    [rows, k] and [rows, n], batch 1; rows is an upper bound: rows
 *                outside the offsets are neither read nor written
 *   b, b2        batch = experts, at least one (or packed)
 *   alpha, alpha2  experts values each; NULL = 1
 * The others are:
 *   row_offsets  experts + 1 values, ascending, row_offsets[experts] <= A's rows;
 *                read when the plan runs
 *   scale_rows   NULL: the scales of a are laid out for all rows together.
 *                Else experts values: the row of a's scale tensor at which the
 *                scales of expert e begin, a multiple of 128 with
 *                NIB_SCALE_LAYOUT_TILED_128X4 (torch pads each expert to 128 rows
 *                there).  Must be NULL if A is x
 *   scale_rows_total  with scale_rows: rows of a's scale tensor
 * Arrays in host memory that break these rules are refused.  The kernels of a
 * GPU clamp row_offsets to [0, rows of A], give NaN for an expert whose scales
 * leave their tensor, and touch nothing outside.
 */
struct nib_moe_problem {
	struct nib_problem problem;
	const int32_t *row_offsets;
	const int32_t *scale_rows;
	int64_t scale_rows_total;
	uint64_t reserved[4]; /* must be 0 */
};

struct nib_plan;

struct nib_plan_options {
	size_t struct_bytes;
	/* Nonzero: the plan has no workspace; every run must pass one. */
	int caller_workspace;
};

/*
 * Plans count problems of one operation.  One problem is a plain product, more are a
 * group of any sizes, none do nothing.  Read from problems: activations, sizes, types,
 * strides, layouts and packed weights.  Not read, and possibly NULL: codes, scales,
 * data and alpha.  problems need not outlive the call; packed weights must outlive the
 * plan.
 */
NIB_API enum nib_status nib_plan_create(struct nib_device *device, enum nib_op op,
					const struct nib_problem *problems,
					int64_t count,
					const struct nib_plan_options *options,
					struct nib_plan **plan, struct nib_error *err);
/* The same for a mixture of experts; op is NIB_OP_GEMM or NIB_OP_DUAL_GEMM. */
NIB_API enum nib_status nib_moe_plan_create(struct nib_device *device, enum nib_op op,
					    const struct nib_moe_problem *moe,
					    const struct nib_plan_options *options,
					    struct nib_plan **plan,
					    struct nib_error *err);
NIB_API void nib_plan_free(struct nib_plan *plan); /* NULL is fine */

struct nib_plan_info {
	size_t struct_bytes;
	enum nib_op op;
	int64_t count; /* problems, or experts */
	const char *backend;
	size_t workspace_bytes; /* of one run; align to 64 */
	double flop;		/* the sum of 2*m*n*k; MoE: for all rows of A */
	double bytes;		/* inputs and outputs, each once */
	int64_t tasks;		/* about: units of work, run in parallel */
	int threads;		/* nib_device_info.threads */
	/* What runs, and why, in one sentence; lives as long as the plan. */
	const char *explanation;
	int k_slices; /* in which k is summed; 1 unless a GPU divides it */
};
NIB_API enum nib_status nib_plan_get_info(const struct nib_plan *plan,
					  struct nib_plan_info *info,
					  struct nib_error *err);

struct nib_run_options {
	size_t struct_bytes;
	/*
	 * workspace_bytes of the plan, at a multiple of 64 bytes, which no other
	 * run uses at the same time.  NULL: a workspace of the plan.  On "cpu"
	 * concurrent runs of a plan get one each; on "cuda" the plan has one.
	 */
	void *workspace;
	size_t workspace_bytes;
	/*
	 * Nonzero: a scale with its sign bit set is NIB_STATUS_BAD_DATA.  Zero:
	 * such scales give undefined results.  "cuda" does not support it:
	 * NIB_STATUS_UNSUPPORTED.
	 */
	int check_data;
	/*
	 * "cuda": a CUstream, NULL = the default stream.  "cpu": NULL.  Runs
	 * that share a workspace, including the plan's, must not overlap: the
	 * caller runs them on one stream or orders the streams.  A destroyed
	 * stream is NIB_STATUS_BAD_ARGUMENT if the driver notices, which CUDA does not
	 * promise.
	 */
	void *stream;
};

/*
 * Runs a plan on problems of the sizes that it was made for (others are
 * NIB_STATUS_BAD_ARGUMENT).  options may be NULL.
 *
 * A run allocates nothing, with one exception: on "cpu", if more runs of a plan
 * without a workspace of the caller's overlap than ever before, a new one is
 * allocated, which the plan keeps (up to 64).
 *
 * On "cuda" the call returns when the work is enqueued; problems need not
 * outlive it.  A run may be captured in a graph.  Then the plan, its packed
 * weights, operands and workspace must outlive the graph, whose replays use
 * them as runs do.
 *
 * The same inputs give the same bits, whatever the number of threads, the
 * instruction set, the order of a group and the other problems in it.  Exceptions:
 *   - "cpu", x of bf16: if the plan's explanation names vdpbf16ps, that instruction
 *     sums in another order, and few rows in another order than many.
 *   - "cpu", NVFP4 and x of bf16: the same if it names tdpbf16ps (instruction set
 *     "amx").  NIB_CPU=avx512vnni gives the bits of the other sets.
 *   - "cpu", x of bf16: the same if it names bfmmla (instruction set "neonbf16").
 *     NIB_CPU=neoni8mm gives the bits of the other sets.
 *   - "cuda", a plan of one problem: it may sum in another order than a group, and
 *     one matrix in another order than a batch.
 *   - "cuda", a MoE whose experts have few rows: the same.
 *
 * On failure every c is unchanged, except that on "cuda" the driver may refuse
 * a launch of a large group after others were enqueued.
 */
NIB_API enum nib_status nib_run(struct nib_plan *plan,
				const struct nib_problem *problems, int64_t count,
				const struct nib_run_options *options,
				struct nib_error *err);
NIB_API enum nib_status nib_moe_run(struct nib_plan *plan,
				    const struct nib_moe_problem *moe,
				    const struct nib_run_options *options,
				    struct nib_error *err);

/*
 * Plans, runs and frees the plan, for a first try or for sizes that are used once.  On
 * "cuda" it runs on the default stream.
 */
NIB_API enum nib_status nib_multiply(struct nib_device *device, enum nib_op op,
				     const struct nib_problem *problems, int64_t count,
				     struct nib_error *err);

/* ------------------------------------------------------------------------ */
/* Layers of experts                                                         */

/* h, the function of g = gate and u = up between the products of an expert, in
 * fp32.  sigmoid(z) is 1 / (1 + e^-z). */
enum nib_moe_activation {
	/* g * sigmoid(g) * u */
	NIB_MOE_ACTIVATION_SWIGLU = 0,
	/* g' * sigmoid(swiglu_alpha * g') * (u' + up_bias), where g' is g, at most
	 * limit, and u' is u, clamped to -limit .. limit. */
	NIB_MOE_ACTIVATION_SWIGLU_CLAMPED = 1,
	/* g * sigmoid(2 sqrt(2/pi) (g + 0.044715 g^3)) * u: the tanh form of GELU. */
	NIB_MOE_ACTIVATION_GELU = 2,
	/* max(g, 0)^2; up is not used. */
	NIB_MOE_ACTIVATION_RELU2 = 3,
};

/*
 * A layer of experts: y = sum over the slots j of a token, in their order, of
 *   weights[t, j] * down(h(gate(x), up(x)))   of expert ids[t, j].
 * The caller computes ids and weights.  Slots whose id is outside expert_offset ..
 * expert_offset + experts - 1 are left out, so that a layer may have a part of the
 * experts.  A token without slots gets zeros.
 *
 * These steps and their roundings define the result:
 *   1. A is x [tokens, k] as it is, or, with NIB_ACTIVATIONS_NVFP4, x quantised
 *      by *x_global as nib_quantize() does with saturate, or the view a.
 *   2. g and u are products of A with gate_alpha and up_alpha, in fp32.
 *   3. h is computed in fp32.  With NIB_ACTIVATIONS_NVFP4 it is quantised by
 *      *h_global, with saturate; else it is rounded to x's type.
 *   4. A slot's row is the product of that with down_alpha, rounded to y's type.
 *   5. The rows of a token, times their weights (rounded to fp32), are added to
 *      0 in fp32, slot after slot, and rounded once to y's type.
 *
 *   x          [tokens, k], batch 1, of the types that activations allow
 *   a          [tokens, k], linear scales; A if is_quantized is nonzero, which
 *              needs NIB_ACTIVATIONS_NVFP4.  Then x is ignored, else a
 *   ids        [tokens, top_k] integers of ids_bytes (4 or 8) each, contiguous
 *   weights    [tokens, top_k], contiguous
 *   gate, up   [experts, n, k]; n, the width of h, is a multiple of 16
 *   down       [experts, cols of y, n]
 *              Each is a view or packed, as b of struct nib_problem.  Weights
 *              whose rows of gate and up alternate are views with twice the
 *              row stride.  NIB_MOE_ACTIVATION_RELU2 ignores up
 *   *_alpha    experts values each, the product of the global scales of weights
 *              and input; NULL = 1
 *   x_global   a float: the global scale of x.  Read with NIB_ACTIVATIONS_NVFP4
 *              unless is_quantized
 *   h_global   a float: the global scale of h.  Read with NIB_ACTIVATIONS_NVFP4
 *   limit, swiglu_alpha, up_bias  of NIB_MOE_ACTIVATION_SWIGLU_CLAMPED; limit > 0
 *   y          [tokens, cols], batch 1; overlaps no input
 * tokens * top_k is below 2^31.  All arrays are memory of the device.
 */
struct nib_moe_layer {
	struct nib_dense x;
	struct nib_fp4 a;
	int is_quantized;
	enum nib_activations activations;
	const void *ids;
	int ids_bytes;
	int64_t top_k;
	int64_t expert_offset;
	const float *weights;
	struct nib_fp4 gate, up, down;
	const struct nib_packed *gate_packed, *up_packed, *down_packed;
	const float *gate_alpha, *up_alpha, *down_alpha;
	const float *x_global, *h_global;
	enum nib_moe_activation activation;
	float limit, swiglu_alpha, up_bias;
	struct nib_dense y;
	uint64_t reserved[4]; /* must be 0 */
};

struct nib_moe_layer_plan;

/*
 * Plans a layer.  Data pointers, ids, weights, alphas, x_global and h_global are
 * not read and may be NULL; packed weights must outlive the plan.  On "cuda" the
 * activations are those of its products; others are NIB_STATUS_UNSUPPORTED.
 */
NIB_API enum nib_status
nib_moe_layer_plan_create(struct nib_device *device, const struct nib_moe_layer *layer,
			  const struct nib_plan_options *options,
			  struct nib_moe_layer_plan **plan, struct nib_error *err);
NIB_API void nib_moe_layer_plan_free(struct nib_moe_layer_plan *plan);

struct nib_moe_layer_plan_info {
	size_t struct_bytes;
	const char *backend;
	size_t workspace_bytes; /* of one run; align to 64 */
	/* The plans of gate, up and down; lives as long as the plan. */
	const char *explanation;
};
NIB_API enum nib_status
nib_moe_layer_plan_get_info(const struct nib_moe_layer_plan *plan,
			    struct nib_moe_layer_plan_info *info,
			    struct nib_error *err);

/*
 * Runs a layer of the sizes, types and packed weights that the plan was made for;
 * options and workspaces as those of nib_run().  On "cuda" a run is asynchronous and
 * may be captured, and the values of x_global and h_global are not checked.  On failure
 * y is unchanged, except that on "cuda" the driver may refuse a launch after others
 * were enqueued.
 */
NIB_API enum nib_status nib_moe_layer_run(struct nib_moe_layer_plan *plan,
					  const struct nib_moe_layer *layer,
					  const struct nib_run_options *options,
					  struct nib_error *err);

/*
 * Computes row_offsets [experts + 1] of a mixture of experts, and scale_rows
 * [experts] (may be NULL), from the ends [experts] of the experts' rows, which
 * ascend.  scale_rows are those of tiled scales that are padded to 128 rows for
 * each expert.  All arrays are memory of the device.  Does not wait.
 */
NIB_API enum nib_status nib_moe_expert_rows(struct nib_device *device,
					    const int32_t *ends, int64_t experts,
					    int32_t *row_offsets, int32_t *scale_rows,
					    const struct nib_call_options *options,
					    struct nib_error *err);

/*
 * Only step 5 of a layer, for rows that other devices have computed:
 *   y[t] = sum over j, in their order, of weights[t, j] * rows[slot_rows[t, j]],
 * added to 0 in fp32 and rounded once to y's type.  Does not wait.
 *
 *   rows       [any number, cols of y], contiguous, batch 1, of y's type
 *   slot_rows  [tokens, top_k], contiguous; a negative one is left out.  Others
 *              must be below the number of rows: "cuda" does not check them
 *   weights    [tokens, top_k], contiguous
 *   y          [tokens, cols], batch 1; overlaps no input
 * tokens * top_k is below 2^31.  All arrays are memory of the device.
 */
NIB_API enum nib_status
nib_moe_sum_slots(struct nib_device *device, const struct nib_dense *rows,
		  const int32_t *slot_rows, const float *weights, int64_t top_k,
		  const struct nib_dense *y, const struct nib_call_options *options,
		  struct nib_error *err);

/* ------------------------------------------------------------------------ */
/* The oracle                                                                */

/*
 * Writes the exact result: the sum without rounding, times alpha, rounded
 * once to c's type.  NIB_OP_DUAL_GEMM: both sums are exact, silu and product are
 * computed in double and rounded once.  Slow and single-threaded; data is host
 * memory, and packed weights are refused.
 */
NIB_API enum nib_status nib_reference(enum nib_op op,
				      const struct nib_problem *problems, int64_t count,
				      struct nib_error *err);
NIB_API enum nib_status nib_moe_reference(enum nib_op op,
					  const struct nib_moe_problem *moe,
					  struct nib_error *err);

struct nib_check_options {
	size_t struct_bytes;
	/* Rows of each matrix of c to compare, chosen by seed; 0 = all. */
	int64_t sample_rows;
	uint64_t seed;
	/*
	 * Which bound: nib_device_info.arithmetic of the device.
	 * NIB_STATUS_UNSUPPORTED if no device with this arithmetic supports the
	 * activations of the problems.
	 */
	enum nib_arithmetic arithmetic;
};

struct nib_check_result {
	size_t struct_bytes;
	int64_t checked; /* elements compared */
	int64_t failed;	 /* elements outside their bound */
	/*
	 * The largest error: |c - exact| / (|alpha| * T), for NIB_OP_DUAL_GEMM
	 * over the product of both such terms; not divided if that is 0.  T is
	 * the sum of |block partials|; for NIB_ARITHMETIC_FP16_TENSOR and for
	 * NIB_ACTIVATIONS_DENSE that of |products|.
	 */
	double worst_error;
	double worst_bound;    /* the bound of that same element, same unit */
	double worst_fraction; /* largest error / bound; <= 1 passes */
	/* The element of worst_fraction; MoE: problem is the expert, row is
	 * c's row. */
	int64_t problem, batch, row, col;
	double got, want;
};

/*
 * Compares problems[].c, in host memory, with the oracle under the bound of
 * docs/numerics.md.  Elements outside it do not make the call fail:
 * nib_check_result.failed counts them.
 */
NIB_API enum nib_status nib_check(enum nib_op op, const struct nib_problem *problems,
				  int64_t count,
				  const struct nib_check_options *options,
				  struct nib_check_result *result,
				  struct nib_error *err);
NIB_API enum nib_status nib_moe_check(enum nib_op op, const struct nib_moe_problem *moe,
				      const struct nib_check_options *options,
				      struct nib_check_result *result,
				      struct nib_error *err);

/* ------------------------------------------------------------------------ */
/* Quantisation                                                              */

/* The scale of a block of zeros, by the program that writes it. */
enum nib_zero_scale {
	NIB_ZERO_SCALE_MODELOPT = 0,	       /* 1.0 */
	NIB_ZERO_SCALE_COMPRESSED_TENSORS = 1, /* 0.125 */
	NIB_ZERO_SCALE_GGML = 2,	       /* 0 */
};

/* How the scale of a block is chosen; docs/numerics.md defines each. */
enum nib_scales {
	NIB_SCALES_AMAX = 0,	 /* its largest |x| becomes 6 */
	NIB_SCALES_FOUR_SIX = 1, /* 6 or 4, whichever has the least squared error */
	NIB_SCALES_MSE = 2,	 /* of nine scales, the one with the least of it */
};

struct nib_quantize_options {
	size_t struct_bytes;
	enum nib_zero_scale zero_scale; /* the scale of a block of zeros */
	/* The global scale: positive, with 6 * global finite; or 0, which means
	 * amax / 2688 of all of x, and amax / 1536 unless scales is 0. */
	float global;
	/* Zero: an inf or NaN in x is NIB_STATUS_BAD_DATA, with the index of the first
	 * one, and q is undefined.  Nonzero: an inf becomes 6 * 448 * global
	 * with its sign, a NaN becomes 0, and a global scale that is computed
	 * counts neither. */
	int saturate;
	/* "cuda": a CUstream, NULL = the default stream.  "cpu": NULL. */
	void *stream;
	/*
	 * The global scale in memory of the device, read when the work runs.
	 * global must be 0 then, and global_used is not written.  NULL: global.
	 */
	const float *global_pointer;
	enum nib_scales scales;
	/*
	 * In memory of the device, k floats from 0 to 2^100: the weight of each column
	 * in the squared error, such as the mean square of that input of the layer.
	 * NULL: 1 each.  Must be NULL with NIB_SCALES_AMAX.  "cuda": read when the
	 * work runs, and not checked; other weights give any scale of those tried.
	 */
	const float *column_weights;
};

/*
 * Quantises x [rows, k] with its batches into q, which has the same sizes and
 * is written:
 *   scale = e4m3(amax of the block / (6 * global)), clamped to [2^-9, 448];
 *           see scales for others
 *   code = e2m1(x / (scale * global))
 * Both round to nearest even.  Every backend gives the same bits.  The padding
 * of tiled scales is written as zero.  *global_used (may be NULL) receives the
 * global scale, which is 1 if all of x is zero.
 *
 * On "cuda" the call waits if global_used is not NULL or saturate is 0, because
 * it has a result to return.
 */
NIB_API enum nib_status nib_quantize(struct nib_device *device,
				     const struct nib_dense *x, const struct nib_fp4 *q,
				     const struct nib_quantize_options *options,
				     float *global_used, struct nib_error *err);

/*
 * The largest |x|; waits for it.  An inf or NaN is NIB_STATUS_BAD_DATA if saturate is
 * zero; otherwise it is ignored.  On "cuda" x is read on the stream of options.
 */
NIB_API enum nib_status nib_amax(struct nib_device *device, const struct nib_dense *x,
				 int saturate, const struct nib_call_options *options,
				 float *amax, struct nib_error *err);

struct nib_dequantize_options {
	size_t struct_bytes;
	/* "cuda": a CUstream, NULL = the default stream.  "cpu": NULL. */
	void *stream;
	/*
	 * The global scale in memory of the device, read when the work runs, in
	 * place of the argument global, which must be 0 then.  NULL: global.
	 */
	const float *global_pointer;
};

/*
 * y = e2m1 * scale * global, rounded once to y's type.  global is an argument because
 * it has no default: any value is used as it is, 0 included.  options may be NULL.
 */
NIB_API enum nib_status nib_dequantize(struct nib_device *device,
				       const struct nib_fp4 *q, float global,
				       const struct nib_dense *y,
				       const struct nib_dequantize_options *options,
				       struct nib_error *err);

/*
 * Copies the scales of from into the layout of to.  Both have the same rows, k and
 * batch; codes are not read.  The padding of to is written as zero.
 */
NIB_API enum nib_status nib_convert_scales(struct nib_device *device,
					   const struct nib_fp4 *from,
					   const struct nib_fp4 *to,
					   const struct nib_call_options *options,
					   struct nib_error *err);

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
	int64_t shard; /* its index: see nib_file_shard_at() */
};

/*
 * Opens a checkpoint as one file, whichever way it is stored.  path is
 *
 *   a safetensors file
 *   an index, *.safetensors.index.json: all of its shards, which are in its folder
 *   a folder: its model.safetensors.index.json, else its model.safetensors, else its
 *     only index or its only safetensors file.  A model.safetensors that the index of
 *     the folder does not name is NIB_STATUS_BAD_FILE
 *
 * A layer may be spread over shards: a scale need not be where its weight is.  Each
 * tensor of the index must be in the shard that it names, no tensor in two shards, and
 * no shard in another folder.  Tensors that only a shard names are included.
 *
 * Maps each safetensors file, read-only, and checks its whole header: at most 100 MB,
 * no duplicate keys, known dtypes, shape * size = bytes without overflow, ranges inside
 * the file, contiguous and not overlapping.
 *
 * Reading a tensor's data raises SIGBUS if another process has made the file shorter
 * since, or if the disk fails.  A program that must not end by a signal handles SIGBUS,
 * as the command nib does, or reads the file into memory and calls
 * nib_file_open_memory().
 */
NIB_API enum nib_status nib_file_open(const char *path, struct nib_file **file,
				      struct nib_error *err);
/* The same for bytes in memory, which must outlive the file; messages show path. */
NIB_API enum nib_status nib_file_open_memory(const void *bytes, size_t n_bytes,
					     const char *path, struct nib_file **file,
					     struct nib_error *err);
/* Joins count safetensors files, which need no index; they are its shards. */
NIB_API enum nib_status nib_file_open_shards(const char *const *paths, int64_t count,
					     struct nib_file **file,
					     struct nib_error *err);
NIB_API void nib_file_close(struct nib_file *file); /* NULL is fine */

/* The shards by name; 0 if the checkpoint is a single file.  NULL past the end. */
NIB_API int64_t nib_file_shard_count(const struct nib_file *file);
NIB_API const char *nib_file_shard_at(const struct nib_file *file, int64_t index);
/* Tensors in the order of their data, one shard after the other. */
NIB_API int64_t nib_file_tensor_count(const struct nib_file *file);
NIB_API const struct nib_file_tensor *nib_file_tensor_at(const struct nib_file *file,
							 int64_t index);
/* NULL if there is no such tensor. */
NIB_API const struct nib_file_tensor *nib_file_find(const struct nib_file *file,
						    const char *name);
/* The string pairs of "__metadata__" of the first shard, by key; both NULL past the
 * end. */
NIB_API int64_t nib_file_metadata_count(const struct nib_file *file);
NIB_API void nib_file_metadata_at(const struct nib_file *file, int64_t index,
				  const char **key, const char **value);

/* How the tensors of a layer X are named. */
enum nib_naming {
	NIB_NAMING_MODELOPT = 0,
	NIB_NAMING_COMPRESSED_TENSORS = 1,
	NIB_NAMING_MODELOPT_STACK = 2, /* X is a parameter: experts.gate_up_proj */
	NIB_NAMING_COMPRESSED_TENSORS_STACK = 3,
	NIB_NAMING_FP8 = 4,
	NIB_NAMING_FP8_BLOCKS = 5, /* FP8 with scales named as DeepSeek's */
};
/* What follows X in the name of each tensor; NULL if such layers have none. */
struct nib_layer_suffixes {
	const char *codes, *scales, *global, *input_global, *pre_quant_scale;
	int is_reciprocal; /* global and input_global are stored as 1 / x */
};
/* NULL for another value. */
NIB_API const struct nib_layer_suffixes *nib_naming_suffixes(enum nib_naming naming);
/* The tensors of a quantised layer by name and type, also of FP8, transposed and
 * incomplete layers.  All but codes are NULL where the file has none.  Layers are in
 * the order of their codes. */
struct nib_layer_tensors {
	const char *name; /* X */
	enum nib_naming naming;
	int is_transposed; /* a stack of codes [experts, k/2, rows] */
	const struct nib_file_tensor *codes, *scales, *global, *input_global;
	const struct nib_file_tensor *pre_quant_scale, *comfy_quant;
	int64_t batch, rows, k; /* 0 if the codes have another type or rank */
	/* How many rows and k share one scale: 1 and 16 for NVFP4.  0 if there are no
	 * scales, or their type or shape does not fit the codes. */
	int64_t block_rows, block_k;
};
NIB_API int64_t nib_file_layer_tensors_count(const struct nib_file *file);
NIB_API const struct nib_layer_tensors *
nib_file_layer_tensors_at(const struct nib_file *file, int64_t index);
/* The layer that one of the file's tensors belongs to, or NULL. */
NIB_API const struct nib_layer_tensors *
nib_file_layer_tensors_of(const struct nib_file *file,
			  const struct nib_file_tensor *tensor);

enum nib_checkpoint {
	NIB_CHECKPOINT_MODELOPT = 0,
	NIB_CHECKPOINT_COMPRESSED_TENSORS = 1,
	/* ModelOpt's names, marked by X.comfy_quant or _quantization_metadata */
	NIB_CHECKPOINT_COMFY = 2, /* read, not written */
};

/* An NVFP4 layer of a file.  In all formats a value is  e2m1 * scale * global. */
struct nib_layer {
	const char *name; /* "model.layers.0.mlp.up_proj", without suffix */
	enum nib_checkpoint format;
	/* Read-only and dense.  A stack [batch, rows, k] if the tensor has rank 3.
	 * NIB_CODE_ORDER_LOW_FIRST and NIB_SCALE_LAYOUT_LINEAR, except for
	 * NIB_CHECKPOINT_COMFY: nib_layer_read_rows() reorders its bytes. */
	struct nib_fp4 weight;
	/* The global scale of each matrix: weight.batch values, positive.  NULL only
	 * if the weight has no rows. */
	const float *globals;
	/* The global scale of x for each matrix: weight.batch values.  0 means that
	 * the file has 0, inf or NaN for this matrix, because the calibration saw no
	 * input.  NULL if all would be 0, if the file has no such scales, or if the
	 * weight has no rows. */
	const float *input_globals;
	/* AWQ: k numbers of F32, F16 or BF16, by which the caller multiplies the
	 * columns of x before x is quantised and multiplied.  NULL: none. */
	const struct nib_file_tensor *pre_quant_scale;
	const struct nib_layer_tensors *tensors; /* as the file stores it */
};
NIB_API int64_t nib_file_layer_count(const struct nib_file *file);
NIB_API const struct nib_layer *nib_file_layer_at(const struct nib_file *file,
						  int64_t index);
/* By layer name, or by the full name of its weight tensor; NULL if none. */
NIB_API const struct nib_layer *nib_file_find_layer(const struct nib_file *file,
						    const char *name);

/* Copies rows first .. first + rows - 1 of a layer, whatever their order in the file,
 * into dense arrays: codes [rows, k/2] with NIB_CODE_ORDER_LOW_FIRST, and scales
 * [rows, k/16] with NIB_SCALE_LAYOUT_LINEAR.  Matrices of a stack follow each other. */
NIB_API enum nib_status nib_layer_read_rows(const struct nib_layer *layer,
					    int64_t first, int64_t rows, void *codes,
					    void *scales, struct nib_error *err);

/* A layer that is named like NVFP4 and cannot be read: a tensor is missing or has the
 * wrong type or shape, or a stored global scale is zero, negative, infinite or NaN. */
struct nib_layer_defect {
	const char *name;
	enum nib_checkpoint format;
	char reason[160];			 /* "weight_scale_2 is missing" */
	const struct nib_layer_tensors *tensors; /* NULL if it has no codes */
};
NIB_API int64_t nib_file_layer_defect_count(const struct nib_file *file);
NIB_API const struct nib_layer_defect *
nib_file_layer_defect_at(const struct nib_file *file, int64_t index);

/*
 * Writes a safetensors file: declare every tensor, write their bytes in the same order
 * in pieces of any size, commit.
 *
 * The file appears all at once.  Until commit the bytes are in a temporary file in the
 * folder of path, and path is what it was.  Commit syncs the file to the disk and
 * renames it.  Discard, or a write or commit that fails, removes it.  A file that is
 * replaced passes on its permissions.  A symbolic link is replaced, not followed.  A
 * path that is neither free nor a regular file is NIB_STATUS_IO.
 *
 * The file has the tensors sorted by alignment, largest first, as other writers do.
 */
struct nib_writer;
NIB_API enum nib_status nib_writer_open(const char *path, struct nib_writer **writer,
					struct nib_error *err);
NIB_API enum nib_status nib_writer_metadata(struct nib_writer *writer, const char *key,
					    const char *value, struct nib_error *err);
NIB_API enum nib_status nib_writer_declare(struct nib_writer *writer, const char *name,
					   const char *dtype, int rank,
					   const int64_t *shape, struct nib_error *err);
/* The tensors of an NVFP4 layer, codes first, as the format names and orders them. */
NIB_API enum nib_status nib_writer_declare_layer(struct nib_writer *writer,
						 enum nib_checkpoint format,
						 const char *name, int64_t rows,
						 int64_t k, int has_input_global,
						 struct nib_error *err);
/* The same for a stack [batch, rows, k] with one global scale; batch is positive. */
NIB_API enum nib_status
nib_writer_declare_stack(struct nib_writer *writer, enum nib_checkpoint format,
			 const char *name, int64_t batch, int64_t rows, int64_t k,
			 int has_input_global, struct nib_error *err);
/* Writes the next bytes of the declared data.  The first call also writes the header
 * and reserves the whole size on the disk. */
NIB_API enum nib_status nib_writer_write(struct nib_writer *writer, const void *bytes,
					 size_t n_bytes, struct nib_error *err);
/* Writes a whole declared layer or stack, of any strides and scale layout.  Scales
 * with their sign bit set are NIB_STATUS_BAD_DATA.  global is positive, and so is
 * input_global if the layer was declared with one; else it is 0.  compressed-tensors
 * stores 1 / global, so the value that is read back may differ in the last bit. */
NIB_API enum nib_status nib_writer_write_layer(struct nib_writer *writer,
					       enum nib_checkpoint format,
					       const struct nib_fp4 *weight,
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
