// SPDX-License-Identifier: Apache-2.0
// Tensor maps as DeepGEMM's launchers make them
// (csrc/jit_kernels/impls/runtime_utils.hpp).
#pragma once
#include "driver.cuh"

// A matrix of OUTER rows of INNER elements of SIZE bytes, loaded in boxes of BOX_INNER
// x BOX_OUTER; SWIZZLE is 0, 32, 64 or 128 and is then the box's width in bytes.
inline CUtensorMap matrix_map(CUtensorMapDataType type, int size, void *data,
			      unsigned inner, unsigned outer, unsigned box_inner,
			      unsigned box_outer, int swizzle)
{
	CUtensorMap map;
	const cuuint64_t dims[2] = {inner, outer},
			 strides[1] = {(cuuint64_t)inner * size};
	const cuuint32_t box[2] = {swizzle ? swizzle / size : box_inner, box_outer},
			 steps[2] = {1, 1};
	const CUtensorMapSwizzle mode = swizzle == 128	? CU_TENSOR_MAP_SWIZZLE_128B
					: swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
					: swizzle == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
							: CU_TENSOR_MAP_SWIZZLE_NONE;
	if (cuTensorMapEncodeTiled(&map, type, 2, data, dims, strides, box, steps,
				   CU_TENSOR_MAP_INTERLEAVE_NONE, mode,
				   CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
				   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
		give_up("cuTensorMapEncodeTiled", "a map was refused");
	return map;
}

// Launches KERNEL with clusters of CLUSTER CTAs.
template <typename... P, typename... A>
void launch(void (*kernel)(P...), int grid, int threads, int shared, int cluster,
	    A... arguments)
{
	must(cudaFuncSetAttribute((const void *)kernel,
				  cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
	     "cudaFuncSetAttribute");
	cudaLaunchAttribute attribute = {};
	attribute.id = cudaLaunchAttributeClusterDimension;
	attribute.val.clusterDim.x = cluster;
	attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
	cudaLaunchConfig_t config = {};
	config.gridDim = dim3(grid);
	config.blockDim = dim3(threads);
	config.dynamicSmemBytes = shared;
	config.attrs = &attribute;
	config.numAttrs = 1;
	must(cudaLaunchKernelEx(&config, kernel, P(arguments)...), "launch");
}
