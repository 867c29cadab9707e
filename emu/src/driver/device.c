/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - cuInit, errors, the device and contexts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/queue.h"
#include "driver/record.h"
#include "machine/findings.h"
#include "machine/prints.h"
#include "machine/time.h"

#define LEAST_BYTES	(UINT64_C(256) << 20)
#define MOST_ATTRIBUTES 200
#define BUDGET		UINT64_C(50000000000)

/* The device, also before cuInit. */
static const struct emu_device *device_of(void)
{
	return emu_device_or_default(emu_driver.machine.device);
}

/* The contexts of the calling thread. */
#define MAX_DEPTH 64
#define CTX_FLAGS 0xffu /* of cuCtxCreate */
static _Thread_local CUcontext contexts[MAX_DEPTH];
static _Thread_local int depth;
struct CUctx_st {
	struct CUctx_st *next;
} primary;

/* Contexts of cuCtxCreate.  They share memory and modules with the primary one. */
static struct CUctx_st *created;

/* ---- begin --------------------------------------------------------------- */

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = secure_getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

/* A variable that must be a number and is none would mean 0. */
static CUresult check_numbers(void)
{
	static const char *const names[] = {"NIBEMU_SEED",	   "NIBEMU_BUDGET",
					    "NIBEMU_UNCHECKED",	   "NIBEMU_STRICT",
					    "NIBEMU_THREADS",	   "NIBEMU_VERBOSE",
					    "NIBEMU_SMS",	   "NIBEMU_TIME",
					    "NIBEMU_MEMORY_BYTES", "NIBEMU_CONTINUE"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const char *text = secure_getenv(names[i]);
		char *end = NULL;

		if (!text || !*text)
			continue;
		(void)strtoull(text, &end, 0);
		if (*text < '0' || *text > '9' || *end)
			return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					       "%s=%s: must be a number", names[i],
					       text);
	}
	return CUDA_SUCCESS;
}

/* Reserves as much memory as the GPU has, or as the host has addresses for. */
static bool open_memory(struct emu_error *err)
{
	struct emu_machine *m = &emu_driver.machine;
	uint64_t bytes = number_from("NIBEMU_MEMORY_BYTES", device_of()->memory_bytes);

	emu_driver.wanted_bytes = bytes;
	for (; !m->memory && bytes >= LEAST_BYTES; bytes /= 2)
		m->memory = emu_memory_open(bytes, err);
	if (!m->prints)
		m->prints = emu_prints_open();
	if (!m->memory)
		return bytes == emu_driver.wanted_bytes
			   ? emu_fail(err, "NIBEMU_MEMORY_BYTES=%llu: at least %llu",
				      (unsigned long long)bytes,
				      (unsigned long long)LEAST_BYTES)
			   : false;
	if (!m->prints)
		return emu_fail(err, "no memory for what kernels print");
	m->global = *emu_memory_space(m->memory);
	return true;
}

static CUresult choose_device(void)
{
	const char *name = secure_getenv("NIBEMU_DEVICE");
	const struct emu_device *d = emu_device_default();

	if (name && *name)
		d = emu_device_find(name);
	if (!d)
		return emu_driver_fail(CUDA_ERROR_INVALID_DEVICE,
				       "NIBEMU_DEVICE=%s: " EMU_DEVICE_NAMES, name);
	emu_driver.machine.device = d;
	return CUDA_SUCCESS;
}

/* NIBEMU_WAIVE and NIBEMU_CONTINUE. */
static CUresult open_findings(void)
{
	const char *waive = secure_getenv("NIBEMU_WAIVE");
	const bool continues = number_from("NIBEMU_CONTINUE", 0);
	struct emu_options *o = &emu_driver.machine.options;
	struct emu_error err = {{0}};

	if (o->findings || (!waive && !continues))
		return CUDA_SUCCESS;
	o->findings = emu_findings_open(waive, continues, &err);
	return o->findings ? CUDA_SUCCESS
			   : emu_driver_fail(CUDA_ERROR_INVALID_VALUE, "%s", err.text);
}

/*
 * NIBEMU_TIME=1: predicted time, for one schedule and without the checker, which
 * would only slow it down.  NIBEMU_SASS=FILE: the costs of instructions.
 */
static CUresult open_time(void)
{
	struct emu_machine *m = &emu_driver.machine;
	const char *table = secure_getenv("NIBEMU_SASS");
	const char *trace = secure_getenv("NIBEMU_TRACE");
	const uint64_t value = number_from("NIBEMU_TIME", 0);
	struct emu_error err = {{0}};

	if (value > 1)
		return emu_driver_fail(
		    CUDA_ERROR_INVALID_VALUE,
		    "NIBEMU_TIME=%s: must be 0, or 1: predicted time, "
		    "without checking the order of accesses",
		    secure_getenv("NIBEMU_TIME"));
	if (!value)
		return CUDA_SUCCESS;
	if (m->options.seed)
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "NIBEMU_TIME with NIBEMU_SEED=%llu: "
				       "times are predicted only for seed 0",
				       (unsigned long long)m->options.seed);
	m->options.is_unchecked = true;
	m->time = emu_time_open(m->device, &err);
	if (!m->time || (table && !emu_time_use_counts(m->time, table, &err)) ||
	    (trace && !emu_time_use_trace(m->time, trace,
					  secure_getenv("NIBEMU_TRACE_SMS"), &err)))
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE, "%s", err.text);
	return CUDA_SUCCESS;
}

static CUresult choose_sms(struct emu_driver *d)
{
	const uint32_t most = device_of()->sms;
	const uint64_t sms = number_from("NIBEMU_SMS", most);

	if (sms < 1 || sms > most)
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "NIBEMU_SMS=%s: must be 1 to %u, the "
				       "multiprocessors of %s",
				       secure_getenv("NIBEMU_SMS"), most,
				       device_of()->name);
	d->sms = (uint32_t)sms;
	return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags)
{
	struct emu_driver *d = &emu_driver;
	struct emu_error err = {{0}};
	CUresult result = CUDA_SUCCESS;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&d->lock);
	if (!d->is_begun)
		result = check_numbers();
	if (!d->is_begun && !result)
		result = choose_device();
	if (!d->is_begun && !result)
		result = open_findings();
	if (!d->is_begun && !result) {
		d->machine.options.seed = number_from("NIBEMU_SEED", 0);
		d->machine.options.budget = number_from("NIBEMU_BUDGET", BUDGET);
		d->machine.options.is_unchecked = number_from("NIBEMU_UNCHECKED", 0);
		d->machine.options.is_strict = number_from("NIBEMU_STRICT", 0);
		d->machine.options.is_anywhere = number_from("NIBEMU_STRICT", 0) == 1;
		d->machine.options.threads = (uint32_t)number_from(
		    "NIBEMU_THREADS", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
		d->is_verbose = number_from("NIBEMU_VERBOSE", 0);
		result = choose_sms(d);
		if (!result)
			result = open_time();
	}
	if (!d->is_begun && !result) {
		d->is_begun = open_memory(&err);
		if (!d->is_begun)
			result =
			    emu_driver_fail(CUDA_ERROR_OUT_OF_MEMORY, "%s", err.text);
		else
			emu_record_event("begin", device_of()->name);
	}
	if (result)
		emu_record_event("unopened", d->text);
	pthread_mutex_unlock(&d->lock);
	return result;
}

/* ---- errors -------------------------------------------------------------- */

static const struct error {
	CUresult result;
	const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available: the software GPU runs PTX"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE",
     "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT",
     "invalid device context"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED",
     "context is destroyed"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
     "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "PTX was refused"},
    {CUDA_ERROR_FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED",
     "unspecified launch failure"},
    {CUDA_ERROR_ASSERT, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
     "too many blocks in cooperative launch"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "the event belongs to the capture of another graph"},
    {CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "the stream is not capturing, or is already"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "a stream of the capture has work for which the first stream does not wait"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "a capture depends on work that is not captured"},
    {CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
     "the graph cannot be updated: its result information says why"},
};

/* NULL: unknown. */
static const struct error *find_error(CUresult result)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		if (errors[i].result == result)
			return &errors[i];
	return NULL;
}

CUresult cuGetErrorName(CUresult result, const char **text)
{
	const struct error *e = find_error(result);

	*text = e ? e->name : NULL;
	return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Returns the text of the last failure, if any, because it is more precise. */
CUresult cuGetErrorString(CUresult result, const char **text)
{
	const struct error *e = find_error(result);

	if (result && result == emu_driver.text_of && emu_driver.text[0]) {
		*text = emu_driver.text;
		return CUDA_SUCCESS;
	}
	*text = e ? e->text : NULL;
	return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- the device ---------------------------------------------------------- */

CUresult cuDriverGetVersion(int *version)
{
	*version = 13000;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
	*count = 1;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	*device = ordinal;
	return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device)
{
	if (device != 0 || bytes < 1)
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, (size_t)bytes, "%s", device_of()->title);
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	CUresult result = emu_driver_enter();

	if (!result && device != 0)
		result = CUDA_ERROR_INVALID_DEVICE;
	if (!result)
		*bytes = emu_driver.machine.global.bytes;
	return emu_driver_leave(result);
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
	if (!major || !minor)
		return CUDA_ERROR_INVALID_VALUE;
	if (device != 0)
		return CUDA_ERROR_INVALID_DEVICE;
	*major = device_of()->major;
	*minor = device_of()->minor;
	return CUDA_SUCCESS;
}

struct attribute {
	int attribute, value;
};

/* Attributes that all devices share. */
static const struct attribute shared_attributes[] = {
    {1, EMU_MAX_THREADS},
    {2, 1024},
    {3, 1024},
    {4, EMU_MAX_BLOCK_Z},
    {5, INT32_MAX},
    {6, EMU_MAX_GRID_YZ},
    {7, EMU_MAX_GRID_YZ},
    {8, 48 << 10},   /* shared memory without opting in */
    {9, 64 << 10},   /* constant memory */
    {11, INT32_MAX}, /* pitch */
    {14, 512},	     /* alignment of textures */
    {15, 1},	     /* copies that overlap kernels */
    {19, 1},	     /* host memory can be mapped */
    {23, 32},	     /* alignment of a texture's pitch */
    {30, 512},	     /* alignment of surfaces */
    {31, 1},	     /* kernels that overlap kernels */
    {40, 3},	     /* copy engines */
    {10, EMU_LANES},
    {12, EMU_SM_REGISTERS},
    {41, 1}, /* unified addressing */
    {82, EMU_SM_REGISTERS},
    {78, 1}, /* priorities of streams */
    {79, 1}, /* caches of global and local memory */
    {80, 1},
    {83, 1}, /* managed memory, also while kernels run */
    {89, 1},
    {95, 1},	      /* cooperative launches */
    {99, 1},	      /* registered memory of the host */
    {111, 1024},      /* shared memory of a CTA that the system takes */
    {102, 1},	      /* addresses that are mapped later */
    {115, 1},	      /* memory pools */
    {107, 1},	      /* memory that may be compressed */
    {109, 128 << 20}, /* bytes of an access policy window */
};

static const struct attribute *find_attribute(const struct attribute *list,
					      size_t count, int attribute)
{
	for (size_t i = 0; i < count; i++)
		if (list[i].attribute == attribute)
			return &list[i];
	return NULL;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	const struct emu_device *d = device_of();
	const struct attribute of_device[] = {
	    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
	     (int)(emu_driver.sms ? emu_driver.sms : d->sms)},
	    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, d->clock_khz},
	    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, d->memory_clock_khz},
	    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, d->bus_bits},
	    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, d->l2_bytes},
	    {39, (int)d->sm_threads},
	    {106, (int)d->sm_ctas},
	    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d->major},
	    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d->minor},
	    {81, (int)d->sm_shared_bytes},
	    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
	     (int)d->cta_shared_bytes},
	    {120, d->cluster_ctas > 1}, /* clusters */
	    {108, d->l2_bytes / 4 * 3}, /* of the L2 cache, for persisting lines */
	};
	const struct attribute *found = find_attribute(
	    of_device, sizeof(of_device) / sizeof(*of_device), attribute);

	if (device != 0)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!found)
		found = find_attribute(
		    shared_attributes,
		    sizeof(shared_attributes) / sizeof(*shared_attributes), attribute);
	/* Sizes of textures and other things that the device does not have are 0. */
	*value = found ? found->value : 0;
	return found || (attribute > 0 && attribute < MOST_ATTRIBUTES)
		   ? CUDA_SUCCESS
		   : CUDA_ERROR_INVALID_VALUE;
}

/* ---- contexts ------------------------------------------------------------ */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	CUresult result = emu_driver_enter();

	if (device != 0)
		return emu_driver_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!result) {
		emu_driver.retained++;
		*context = &primary;
	}
	return emu_driver_leave(result);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	if (device != 0)
		return CUDA_ERROR_INVALID_DEVICE;
	(void)emu_driver_enter();
	if (emu_driver.retained == 0)
		return emu_driver_leave(CUDA_ERROR_INVALID_CONTEXT);
	emu_driver.retained--;
	return emu_driver_leave(CUDA_SUCCESS);
}

/* The pointer to a context in the list; NULL: unknown.  The lock must be held. */
static struct CUctx_st **find_created(CUcontext context)
{
	struct CUctx_st **at = &created;

	while (*at && *at != context)
		at = &(*at)->next;
	return *at ? at : NULL;
}

static bool is_context(CUcontext context)
{
	bool found;

	(void)emu_driver_enter();
	found = context == &primary || (context && find_created(context));
	(void)emu_driver_leave(CUDA_SUCCESS);
	return found;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	if (!is_context(context) || depth == MAX_DEPTH)
		return CUDA_ERROR_INVALID_CONTEXT;
	contexts[depth++] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	if (depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (context)
		*context = contexts[depth];
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
	if (context && !is_context(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth == 0)
		depth = 1;
	contexts[depth - 1] = context;
	if (!context)
		depth--;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
	*context = depth ? contexts[depth - 1] : NULL;
	return CUDA_SUCCESS;
}

/* The new context becomes the current one.  The flags change nothing here. */
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
	CUresult result = emu_driver_enter();
	struct CUctx_st *c = NULL;

	if (!result && device != 0)
		result = CUDA_ERROR_INVALID_DEVICE;
	if (!result && (!context || flags & ~CTX_FLAGS || depth == MAX_DEPTH))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		c = calloc(1, sizeof(*c));
		if (!c)
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!result) {
		c->next = created;
		created = c;
		contexts[depth++] = *context = c;
	}
	return emu_driver_leave(result);
}

/* The parameters reserve multiprocessors. */
CUresult cuCtxCreate_v3(CUcontext *context, void *parameters, int count, unsigned flags,
			CUdevice device)
{
	return parameters || count ? CUDA_ERROR_NOT_SUPPORTED
				   : cuCtxCreate_v2(context, flags, device);
}

/* The parameters reserve multiprocessors, or are those of a graphics context. */
CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags,
			CUdevice device)
{
	const CUctxCreateParams *p = parameters;

	if (p && (p->execAffinityParams || p->numExecAffinityParams || p->cigParams))
		return emu_driver_fail(
		    CUDA_ERROR_NOT_SUPPORTED,
		    "a context for some of the multiprocessors, or of "
		    "a graphics context, is not modelled");
	return cuCtxCreate_v2(context, flags, device);
}

/*
 * Waits for the device.  Memory and modules stay until they are freed, or the process
 * ends, because other contexts share them.  A context that is current for another
 * thread stays so, and is refused where that thread uses it.
 */
CUresult cuCtxDestroy_v2(CUcontext context)
{
	CUresult result = emu_driver_enter();
	struct CUctx_st **at = context ? find_created(context) : NULL;

	if (!at)
		return emu_driver_leave(result == CUDA_ERROR_NOT_INITIALIZED
					    ? result
					    : CUDA_ERROR_INVALID_CONTEXT);
	if (!result)
		result = emu_driver_flush();
	if (!result)
		emu_stream_order_host_all(&emu_driver.order);
	*at = context->next;
	free(context);
	if (depth && contexts[depth - 1] == context)
		depth--;
	return emu_driver_leave(result);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	if (depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!is_context(contexts[depth - 1]))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*device = 0;
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	CUresult result = emu_driver_enter();

	if (!result)
		result = emu_driver_flush();
	if (!result)
		emu_stream_order_host_all(&emu_driver.order);
	return emu_driver_leave(result);
}
