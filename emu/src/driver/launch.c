/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c - modules, functions, occupancy and launches. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/image.h"
#include "driver/queue.h"
#include "driver/record.h"
#include "driver/stream.h"
#include "instruction/decode.h"
#include "machine/cluster.h"
#include "machine/grid.h"
#include "machine/title.h"
#include "ptx/replace.h"

/* ---- modules ------------------------------------------------------------- */

static uint64_t place_variable(void *context, const struct emu_variable *v,
			       struct emu_error *err)
{
	struct emu_machine *m = context;
	const uint64_t at = emu_memory_alloc(m->memory, v->bytes ? v->bytes : 1, err);

	if (!at)
		return 0;
	if (v->initial)
		memcpy((void *)(uintptr_t)at, v->initial, v->bytes);
	else
		memset((void *)(uintptr_t)at, 0, v->bytes);
	memset(m->global.shadow + (at - m->global.base), EMU_MAPPED | EMU_WRITTEN,
	       v->bytes);
	return at;
}

static void tell(unsigned count, const int *options, void **values, const char *text)
{
	char *buffer = NULL;
	size_t bytes = 0;

	for (unsigned i = 0; i < count; i++) {
		if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
			buffer = values[i];
		if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
			bytes = (size_t)(uintptr_t)values[i];
	}
	if (buffer && bytes)
		snprintf(buffer, bytes, "%s", text);
}

/* Reports a module or a kernel that is refused. */
static CUresult refuse(CUresult result, const char *why)
{
	emu_record_event("refused", why);
	return emu_driver_fail(result, "%s", why);
}

/* NIBEMU_REPLACE plants a bug in a module that is loaded (replace.h). */
static struct emu_module *read_module(const char *text, struct emu_error *err)
{
	const char *rule = secure_getenv("NIBEMU_REPLACE");
	char *changed = rule ? emu_replace(text, rule, err) : NULL;
	struct emu_module *module = NULL;

	if (changed && emu_driver.is_verbose)
		fprintf(stderr,
			"nibemu: NIBEMU_REPLACE: %zu lines of a module changed\n",
			emu_replaced_lines(text, changed));
	if (changed || !rule)
		module = emu_module_read(changed ? changed : text, place_variable,
					 &emu_driver.machine, err);
	free(changed);
	return module;
}

static CUresult load(struct CUmod_st *m, const void *image, unsigned count,
		     const int *options, void **values)
{
	struct emu_error err = {{0}};
	char *text = NULL;
	CUresult result = emu_image_text(image, emu_driver.machine.device, &text, &err);

	if (result) {
		tell(count, options, values, err.text);
		return refuse(result, err.text);
	}
	m->module = read_module(text, &err);
	free(text);
	if (m->module &&
	    !emu_device_takes(emu_driver.machine.device, m->module->target, &err)) {
		emu_module_free(m->module);
		m->module = NULL;
	}
	if (!m->module) {
		tell(count, options, values, err.text);
		return refuse(CUDA_ERROR_INVALID_PTX, err.text);
	}
	m->functions = calloc(m->module->n_kernels + 1u, sizeof(*m->functions));
	if (!m->functions) {
		emu_module_free(m->module);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (uint32_t i = 0; i < m->module->n_kernels; i++) {
		m->functions[i].kernel = m->module->kernels[i];
		m->functions[i].dynamic_bytes = 48 << 10;
		m->functions[i].carveout = -1;
	}
	m->next = emu_driver.modules;
	emu_driver.modules = m;
	return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
			    int *options, void **values)
{
	CUresult result = emu_driver_enter();
	struct CUmod_st *m;

	if (!result && (!module || !image))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result)
		return emu_driver_leave(result);
	m = calloc(1, sizeof(*m));
	result = m ? load(m, image, count, options, values) : CUDA_ERROR_OUT_OF_MEMORY;
	if (result)
		free(m);
	else
		*module = m;
	return emu_driver_leave(result);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

bool emu_is_module(const struct CUmod_st *module)
{
	const struct CUmod_st *m = emu_driver.modules;

	while (m && m != module)
		m = m->next;
	return m;
}

bool emu_is_function(const struct CUfunc_st *function)
{
	for (const struct CUmod_st *m = emu_driver.modules; m; m = m->next)
		for (uint32_t i = 0; i < m->module->n_kernels; i++)
			if (function == &m->functions[i])
				return true;
	return false;
}

CUresult cuModuleUnload(CUmodule module)
{
	CUresult result = emu_driver_enter();
	struct CUmod_st **at = &emu_driver.modules;

	if (!emu_is_module(module))
		return emu_driver_leave(CUDA_ERROR_INVALID_HANDLE);
	(void)emu_driver_flush();
	while (*at != module)
		at = &(*at)->next;
	*at = module->next;
	for (uint32_t i = 0; i < module->module->n_variables; i++)
		(void)emu_memory_free(emu_driver.machine.memory,
				      module->module->variables[i].address, NULL);
	emu_module_free(module->module);
	free(module->functions);
	free(module);
	return emu_driver_leave(result);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	CUresult result = emu_driver_enter();

	if (!result && !emu_is_module(module))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result)
		return emu_driver_leave(result);
	for (uint32_t i = 0; i < module->module->n_kernels; i++)
		if (strcmp(module->module->kernels[i]->name, name) == 0) {
			const char *refusal = module->module->kernels[i]->refusal;

			if (refusal)
				return emu_driver_leave(
				    refuse(CUDA_ERROR_INVALID_PTX, refusal));
			*function = &module->functions[i];
			return emu_driver_leave(CUDA_SUCCESS);
		}
	return emu_driver_leave(CUDA_ERROR_NOT_FOUND);
}

/* ---- functions ----------------------------------------------------------- */

static const char *title_of(const struct emu_kernel *kernel)
{
	return emu_title_of(kernel->name);
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
	const struct emu_device *d = emu_driver.machine.device;
	CUresult result = emu_driver_enter();

	if (!result && attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
		if (value < 0 || (uint32_t)value + function->kernel->shared_bytes >
				     d->cta_shared_bytes)
			result = emu_driver_fail(
			    CUDA_ERROR_INVALID_VALUE,
			    "%s: %d bytes of dynamic and %u of static shared memory: a "
			    "CTA of the %s has at most %u",
			    title_of(function->kernel), value,
			    function->kernel->shared_bytes, d->title,
			    d->cta_shared_bytes);
		else
			function->dynamic_bytes = value;
	} else if (!result &&
		   attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
		function->any_cluster = value;
	} else if (!result &&
		   attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
		if (value < -1 || value > 100)
			result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
						 "%s: a carveout of %d: it is -1, or a "
						 "percentage",
						 title_of(function->kernel), value);
		else
			function->carveout = value;
	} else if (!result &&
		   attribute !=
		       CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE) {
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "%s: function attribute %d cannot be set",
					 title_of(function->kernel), attribute);
	}
	return emu_driver_leave(result);
}

/* Bytes of the constants of its module. */
static int constant_bytes(const struct emu_module *m)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < m->n_variables; i++)
		if (m->variables[i].space == EMU_CONST)
			bytes += m->variables[i].bytes;
	return (int)bytes;
}

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
	const struct emu_device *d = emu_driver.machine.device;
	const struct emu_kernel *k = function->kernel;
	CUresult result = emu_driver_enter();

	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
		*value = constant_bytes(k->module);
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
		*value = (int)strtol(k->module->target + strlen("sm_"), NULL, 10);
		break;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = 10 * d->major + d->minor;
		break;
	case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		*value = 0;
		break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*value = function->carveout;
		break;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
		*value = k->cluster[0] != 0;
		break;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		*value =
		    (int)k
			->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
		break;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		*value = function->any_cluster;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = (int)(k->max_threads ? k->max_threads : EMU_MAX_THREADS);
		break;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*value = (int)k->shared_bytes;
		break;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*value = (int)k->local_bytes;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = (int)emu_registers_each(k, EMU_MAX_THREADS);
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = function->dynamic_bytes;
		break;
	default:
		result = CUDA_ERROR_INVALID_VALUE;
	}
	return emu_driver_leave(result);
}

/*
 * CTAs of an SM whose registers fit.  PTX does not have the number that ptxas takes, so
 * that it is the most that .minnctapersm and .maxnreg allow; without both there is no
 * limit.  Each quarter of an SM has a quarter of the registers and of a CTA's warps.
 */
static uint32_t by_registers(const struct emu_kernel *k, uint32_t threads)
{
	const uint32_t warp = emu_registers_each(k, threads) * EMU_LANES;
	const uint32_t warps = (threads + EMU_LANES - 1) / EMU_LANES;

	if (!k->min_ctas && !k->max_registers)
		return UINT32_MAX;
	return EMU_SM_REGISTERS / 4 / warp / ((warps + 3) / 4);
}

static uint32_t resident(const struct emu_kernel *k, uint32_t threads,
			 size_t shared_bytes)
{
	const struct emu_device *d = emu_driver.machine.device;
	const size_t by_shared =
	    d->sm_shared_bytes / (shared_bytes + k->shared_bytes + 1024);
	const uint32_t limits[] = {threads ? d->sm_threads / threads : 0, d->sm_ctas,
				   threads ? by_registers(k, threads) : 0};
	uint32_t most = by_shared < UINT32_MAX ? (uint32_t)by_shared : UINT32_MAX;

	for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
		most = limits[i] < most ? limits[i] : most;
	return most;
}

#define SMS_OF_AN_H200 132

/*
 * A cluster runs within a GPC.  An H200 reported that it can hold 66 clusters of two
 * CTAs (one on each SM), 30 of four and 14 of eight, which fits GPCs of 14, 16 and 18
 * SMs.  With another number of SMs all SMs form one pool.
 */
static uint32_t clusters_at_once(uint32_t each, uint32_t ctas)
{
	static const uint32_t gpcs[] = {18, 18, 18, 18, 16, 16, 14, 14};
	uint32_t sum = 0;

	if (emu_driver.sms != SMS_OF_AN_H200)
		return emu_driver.sms * each / ctas;
	for (size_t i = 0; i < sizeof(gpcs) / sizeof(*gpcs); i++)
		sum += gpcs[i] * each / ctas;
	return sum;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
						     int threads, size_t shared_bytes)
{
	if (threads < 1 || threads > EMU_MAX_THREADS)
		return CUDA_ERROR_INVALID_VALUE;
	*blocks = (int)resident(function->kernel, (uint32_t)threads, shared_bytes);
	return CUDA_SUCCESS;
}

static uint32_t cluster_size(const CUlaunchConfig *config, uint32_t size[3])
{
	size[0] = size[1] = size[2] = 1;
	for (unsigned i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
			size[0] = config->attrs[i].value.clusterDim.x;
			size[1] = config->attrs[i].value.clusterDim.y;
			size[2] = config->attrs[i].value.clusterDim.z;
		}
	return size[0] * size[1] * size[2];
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function,
				      const CUlaunchConfig *config)
{
	const uint32_t threads =
	    config->blockDimX * config->blockDimY * config->blockDimZ;
	uint32_t size[3];
	const uint32_t ctas = cluster_size(config, size);

	if (ctas == 0 || ctas > emu_driver.machine.device->cluster_ctas)
		return CUDA_ERROR_INVALID_VALUE;
	*clusters = (int)clusters_at_once(
	    resident(function->kernel, threads, config->sharedMemBytes), ctas);
	return CUDA_SUCCESS;
}

/* ---- launches ------------------------------------------------------------ */

static CUresult needs_hopper(CUfunction function, const char *what)
{
	const struct emu_device *d = emu_driver.machine.device;

	return emu_driver_fail(CUDA_ERROR_NOT_SUPPORTED,
			       "%s: %s needs compute capability 9.0: the device (%s) "
			       "has %d.%d",
			       title_of(function->kernel), what, d->title, d->major,
			       d->minor);
}

/* Why a launch attribute is refused. */
static const char *attribute_refusal(int id)
{
	switch (id) {
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
		return " (PROGRAMMATIC_EVENT) is not supported";
	case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
		return " (LAUNCH_COMPLETION_EVENT) is not supported";
	case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
		return " (DEVICE_UPDATABLE_KERNEL_NODE) is not supported: kernels do "
		       "not change graphs";
	default:
		return " is not known here";
	}
}

static CUresult read_attributes(const CUlaunchConfig *config, CUfunction function,
				struct emu_work *w)
{
	const struct emu_device *d = emu_driver.machine.device;
	const uint32_t ctas = cluster_size(config, w->grid.cluster);

	for (int i = 0; i < 3 && function->kernel->cluster[0]; i++)
		w->grid.cluster[i] = function->kernel->cluster[i];
	for (unsigned i = 0; i < config->numAttrs; i++)
		switch (config->attrs[i].id) {
		/* Caches, priorities and policies change no results. */
		case CU_LAUNCH_ATTRIBUTE_IGNORE:
		case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
			break;
		case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
			w->grid.is_cooperative = config->attrs[i].value.cooperative;
			break;
		case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
			/* A GPU may use the first although the second is given. */
			break;
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
			w->is_dependent =
			    config->attrs[i]
				.value.programmaticStreamSerializationAllowed;
			if (w->is_dependent && !emu_device_has_hopper(d))
				return needs_hopper(function, "a dependent launch");
			break;
		default:
			return emu_driver_fail(
			    CUDA_ERROR_NOT_SUPPORTED, "%s: launch attribute %d%s",
			    title_of(function->kernel), config->attrs[i].id,
			    attribute_refusal(config->attrs[i].id));
		}
	if (ctas > 1 && !emu_device_has_hopper(d))
		return needs_hopper(function, "a cluster");
	if (ctas > 8 && !function->any_cluster)
		return emu_driver_fail(
		    CUDA_ERROR_INVALID_VALUE,
		    "%s: a cluster of %u CTAs: over 8 must be allowed by "
		    "NON_PORTABLE_CLUSTER_SIZE_ALLOWED",
		    title_of(function->kernel), ctas);
	return CUDA_SUCCESS;
}

static CUresult copy_parameters(const struct emu_kernel *k, void **arguments,
				struct emu_work *w)
{
	if (k->n_parameters && !arguments)
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "%s: it has %u parameters, and kernelParams is "
				       "NULL",
				       title_of(k), k->n_parameters);
	for (uint32_t i = 0; i < k->n_parameters; i++)
		memcpy(w->parameters + k->parameters[i].offset, arguments[i],
		       k->parameters[i].bytes);
	return CUDA_SUCCESS;
}

/* Parameters as one buffer: pairs of a name and a value, until CU_LAUNCH_PARAM_END. */
static CUresult copy_buffer(const struct emu_kernel *k, void **extra,
			    struct emu_work *w)
{
	const void *buffer = NULL;
	size_t bytes = 0;

	for (; (uintptr_t)extra[0] != CU_LAUNCH_PARAM_END_AS_INT; extra += 2)
		switch ((uintptr_t)extra[0]) {
		case CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT:
			buffer = extra[1];
			break;
		case CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT:
			bytes = *(const size_t *)extra[1];
			break;
		default:
			return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					       "%s: extra has a name %p that is not "
					       "CU_LAUNCH_PARAM_...",
					       title_of(k), extra[0]);
		}
	if (!buffer || bytes < k->parameter_bytes)
		return emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				       "%s: extra has a buffer of %zu bytes: the "
				       "kernel has %u bytes of parameters",
				       title_of(k), buffer ? bytes : 0,
				       k->parameter_bytes);
	memcpy(w->parameters, buffer, k->parameter_bytes);
	return CUDA_SUCCESS;
}

/* What a launch keeps of its arguments. */
static CUresult copy_arguments(const CUlaunchConfig *config, const struct emu_kernel *k,
			       void **arguments, void **extra, struct emu_work *w)
{
	w->parameters = calloc(1, k->parameter_bytes + 1u);
	w->attributes = calloc(config->numAttrs + 1u, sizeof(*w->attributes));
	if (!w->parameters || !w->attributes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->n_attributes = config->numAttrs;
	if (config->numAttrs)
		memcpy(w->attributes, config->attrs,
		       config->numAttrs * sizeof(*w->attributes));
	return extra ? copy_buffer(k, extra, w) : copy_parameters(k, arguments, w);
}

/* All CTAs of a cooperative grid must be resident at the same time. */
static CUresult check_residency(struct emu_grid *g)
{
	const uint32_t threads = g->block[0] * g->block[1] * g->block[2];
	const uint32_t ctas = g->cluster[0] * g->cluster[1] * g->cluster[2];
	const uint64_t all = (uint64_t)g->grid[0] * g->grid[1] * g->grid[2];
	const uint32_t each = resident(g->kernel, threads, g->dynamic_bytes);

	g->resident = clusters_at_once(each, ctas);
	if (g->is_cooperative && all > (uint64_t)g->resident * ctas)
		return emu_driver_fail(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
				       "%s: a cooperative grid of %" PRIu64
				       " CTAs: the GPU holds %u at once",
				       title_of(g->kernel), all, g->resident * ctas);
	/* Clusters that NIBEMU_SMS cannot hold run one after the other. */
	g->resident += g->resident == 0;
	return CUDA_SUCCESS;
}

static CUresult make_work(const CUlaunchConfig *config, CUfunction function,
			  void **arguments, void **extra, struct emu_work *w)
{
	struct emu_error err = {{0}};
	struct emu_grid *g = &w->grid;
	CUresult result;

	g->machine = &emu_driver.machine;
	g->kernel = function->kernel;
	g->grid[0] = config->gridDimX;
	g->grid[1] = config->gridDimY;
	g->grid[2] = config->gridDimZ;
	g->block[0] = config->blockDimX;
	g->block[1] = config->blockDimY;
	g->block[2] = config->blockDimZ;
	g->dynamic_bytes = config->sharedMemBytes;
	result = read_attributes(config, function, w);
	if (!result && config->sharedMemBytes > (unsigned)function->dynamic_bytes)
		result =
		    emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
				    "%s: %u bytes of shared memory, %d are allowed",
				    title_of(function->kernel), config->sharedMemBytes,
				    function->dynamic_bytes);
	if (!result && !emu_grid_check(g, &err))
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE, "%s", err.text);
	if (!result)
		result = check_residency(g);
	w->kernel = function;
	if (!result)
		result = copy_arguments(config, function->kernel, arguments, extra, w);
	return result;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
			  void **arguments, void **extra)
{
	CUresult result = emu_driver_enter();
	struct emu_work *w = NULL;

	if (!result && (!config || !function || (arguments && extra)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && !emu_is_function(function))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result && !emu_stream_is_valid(config->hStream))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (!result) {
		w = calloc(1, sizeof(*w));
		emu_driver.text[0] = '\0';
		result = w ? make_work(config, function, arguments, extra, w)
			   : CUDA_ERROR_OUT_OF_MEMORY;
		if (result)
			emu_record_event("launch", emu_driver.text);
	}
	if (!result)
		result = emu_stream_submit(config->hStream, w);
	else if (w)
		emu_work_free(w);
	return emu_driver_leave(result);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
			unsigned grid_z, unsigned block_x, unsigned block_y,
			unsigned block_z, unsigned shared_bytes, CUstream stream,
			void **arguments, void **extra)
{
	const CUlaunchConfig config = {grid_x,	grid_y,	      grid_z, block_x, block_y,
				       block_z, shared_bytes, stream, NULL,    0};

	return cuLaunchKernelEx(&config, function, arguments, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x,
				   unsigned grid_y, unsigned grid_z, unsigned block_x,
				   unsigned block_y, unsigned block_z,
				   unsigned shared_bytes, CUstream stream,
				   void **arguments)
{
	CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
					 .value = {.cooperative = 1}};
	const CUlaunchConfig config = {grid_x,	     grid_y,  grid_z,	    block_x,
				       block_y,	     block_z, shared_bytes, stream,
				       &cooperative, 1};

	return cuLaunchKernelEx(&config, function, arguments, NULL);
}

CUresult cuLaunchCooperativeKernelMultiDevice(void *launches, unsigned count,
					      unsigned flags)
{
	(void)launches;
	(void)flags;
	(void)emu_driver_enter();
	return emu_driver_leave(emu_driver_fail(
	    CUDA_ERROR_NOT_SUPPORTED,
	    "cuLaunchCooperativeKernelMultiDevice: %u launches: there is one device",
	    count));
}
