/* SPDX-License-Identifier: Apache-2.0 */
/*
 * declared.h - the declarations of src/driver/cuda_api.h as numbers.  It is included
 * once after that file, and once after CUDA's own cuda.h.
 */
#define SHOW(x)                                                                        \
	{                                                                              \
#x, (long long)(x)                                                     \
	}
#define FIELD(type, field)                                                             \
	{                                                                              \
#type "." #field, (long long)offsetof(type, field)                     \
	}

static const struct declared {
	const char *name;
	long long value;
} declared[] = {
    SHOW(CUDA_SUCCESS),
    SHOW(CUDA_ERROR_INVALID_VALUE),
    SHOW(CUDA_ERROR_OUT_OF_MEMORY),
    SHOW(CUDA_ERROR_NOT_INITIALIZED),
    SHOW(CUDA_ERROR_INVALID_DEVICE),
    SHOW(CUDA_ERROR_INVALID_CONTEXT),
    SHOW(CUDA_ERROR_NO_BINARY_FOR_GPU),
    SHOW(CUDA_ERROR_INVALID_PTX),
    SHOW(CUDA_ERROR_INVALID_HANDLE),
    SHOW(CUDA_ERROR_NOT_FOUND),
    SHOW(CUDA_ERROR_CONTEXT_IS_DESTROYED),
    SHOW(CUDA_ERROR_LAUNCH_FAILED),
    SHOW(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE),
    SHOW(CUDA_ERROR_NOT_SUPPORTED),
    SHOW(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
    SHOW(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
    SHOW(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED),
    SHOW(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
    SHOW(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
    SHOW(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
    SHOW(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
    SHOW(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
    SHOW(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
    SHOW(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    SHOW(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    SHOW(CU_POINTER_ATTRIBUTE_MEMORY_TYPE),
    SHOW(CU_POINTER_ATTRIBUTE_DEVICE_POINTER),
    SHOW(CU_POINTER_ATTRIBUTE_IS_MANAGED),
    SHOW(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL),
    SHOW(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR),
    SHOW(CU_POINTER_ATTRIBUTE_RANGE_SIZE),
    SHOW(CU_MEMORYTYPE_DEVICE),
    SHOW(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
    SHOW(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
    SHOW(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
    SHOW(CU_FUNC_ATTRIBUTE_NUM_REGS),
    SHOW(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
    SHOW(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT),
    SHOW(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED),
    SHOW(CU_JIT_ERROR_LOG_BUFFER),
    SHOW(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES),
    SHOW(CU_LAUNCH_ATTRIBUTE_IGNORE),
    SHOW(CU_LAUNCH_ATTRIBUTE_COOPERATIVE),
    SHOW(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION),
    SHOW(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE),
    SHOW(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION),
    SHOW(CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION),
    SHOW(CU_TENSOR_MAP_DATA_TYPE_UINT8),
    SHOW(CU_TENSOR_MAP_SWIZZLE_NONE),
    SHOW(CU_TENSOR_MAP_SWIZZLE_128B),
    SHOW(sizeof(CUresult)),
    SHOW(sizeof(CUdevice)),
    SHOW(sizeof(CUdeviceptr)),
    SHOW(sizeof(CUtensorMap)),
    SHOW(_Alignof(CUtensorMap)),
    SHOW(sizeof(CUlaunchAttribute)),
    FIELD(CUlaunchAttribute, value),
    FIELD(CUlaunchAttribute, value.cooperative),
    FIELD(CUlaunchAttribute, value.clusterDim.z),
    FIELD(CUlaunchAttribute, value.programmaticStreamSerializationAllowed),
    SHOW(sizeof(CUlaunchConfig)),
    FIELD(CUlaunchConfig, blockDimX),
    FIELD(CUlaunchConfig, sharedMemBytes),
    FIELD(CUlaunchConfig, hStream),
    FIELD(CUlaunchConfig, attrs),
    FIELD(CUlaunchConfig, numAttrs),
};

#undef FIELD
#undef SHOW
