/* SPDX-License-Identifier: Apache-2.0 */
/* conditional.c - handles of conditional nodes (machine/conditionals.h). */
#include "machine/conditionals.h"

#include <stdlib.h>

#include "driver/graph.h"

static struct emu_conditional *find(CUgraphConditionalHandle handle)
{
	return emu_conditional_find(&emu_driver.machine.conditionals, handle);
}

bool emu_conditional_hold(CUgraphConditionalHandle handle)
{
	struct emu_conditional *c = find(handle);

	if (c)
		c->owners++;
	return c;
}

void emu_conditional_leave(CUgraphConditionalHandle handle)
{
	struct emu_conditional *c = find(handle);

	if (c)
		c->owners--;
}

void emu_conditional_begin(CUgraphConditionalHandle handle)
{
	struct emu_conditional *c = find(handle);

	if (c && c->has_start)
		c->value = c->start;
}

uint32_t emu_conditional_value(CUgraphConditionalHandle handle)
{
	const struct emu_conditional *c = find(handle);

	return c ? c->value : 0;
}

/* Adds the handle to those that end with the graph. */
static bool keep(CUgraph graph, CUgraphConditionalHandle handle)
{
	CUgraphConditionalHandle *grown =
	    realloc(graph->handles, (graph->n_handles + 1) * sizeof(*grown));

	if (!grown)
		return false;
	graph->handles = grown;
	grown[graph->n_handles++] = handle;
	return true;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph,
					CUcontext context, unsigned start,
					unsigned flags)
{
	CUresult result = emu_driver_enter();
	struct emu_conditional *c = NULL;

	(void)context;
	if (!result && (!handle || !graph || flags > CU_GRAPH_COND_ASSIGN_DEFAULT))
		result = emu_driver_fail(CUDA_ERROR_INVALID_VALUE,
					 "cuGraphConditionalHandleCreate: an argument "
					 "is NULL, or flags %#x are not 0 or 1",
					 flags);
	if (!result) {
		c = emu_conditional_add(&emu_driver.machine.conditionals);
		result = c ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!result && !keep(graph, c->handle)) {
		c->owners = 0;
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!result) {
		c->start = start;
		c->has_start = flags & CU_GRAPH_COND_ASSIGN_DEFAULT;
		*handle = c->handle;
	}
	return emu_driver_leave(result);
}
