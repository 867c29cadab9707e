/* SPDX-License-Identifier: Apache-2.0 */
/* graph_nodes.h - makes work for nodes of graphs.  The lock must not be held. */
#ifndef EMU_GRAPH_NODES_H
#define EMU_GRAPH_NODES_H

#include "driver/graph.h"

CUresult emu_make_kernel(const CUDA_KERNEL_NODE_PARAMS *p,
			 CUlaunchAttribute *attributes, uint32_t n_attributes,
			 struct emu_work **work);
CUresult emu_make_copy(const CUDA_MEMCPY3D *p, struct emu_work **work);
CUresult emu_make_fill(const CUDA_MEMSET_NODE_PARAMS *p, struct emu_work **work);
CUresult emu_make_host(const CUDA_HOST_NODE_PARAMS *p, struct emu_work **work);

#endif
