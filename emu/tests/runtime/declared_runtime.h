/* SPDX-License-Identifier: Apache-2.0 */
/*
 * declared_runtime.h - a table of the sizes and offsets that src/runtime/cudart.h
 * declares.  It is included once after that file and once after CUDA's own
 * cuda_runtime_api.h, and a test compares the two tables.
 */
#define SIZE(type)                                                                     \
	{                                                                              \
#type, (long long)sizeof(type)                                         \
	}
#define FIELD(type, field)                                                             \
	{                                                                              \
#type "." #field, (long long)offsetof(type, field)                     \
	}
#define PROPERTY(field) FIELD(struct cudaDeviceProp, field)

static const struct declared {
	const char *name;
	long long value;
} declared[] = {
    SIZE(cudaLaunchConfig_t),
    FIELD(cudaLaunchConfig_t, blockDim),
    FIELD(cudaLaunchConfig_t, dynamicSmemBytes),
    FIELD(cudaLaunchConfig_t, stream),
    FIELD(cudaLaunchConfig_t, attrs),
    FIELD(cudaLaunchConfig_t, numAttrs),
    SIZE(struct cudaFuncAttributes),
    FIELD(struct cudaFuncAttributes, localSizeBytes),
    FIELD(struct cudaFuncAttributes, maxThreadsPerBlock),
    FIELD(struct cudaFuncAttributes, numRegs),
    FIELD(struct cudaFuncAttributes, binaryVersion),
    FIELD(struct cudaFuncAttributes, maxDynamicSharedSizeBytes),
    FIELD(struct cudaFuncAttributes, nonPortableClusterSizeAllowed),
    SIZE(struct cudaKernelNodeParams),
    FIELD(struct cudaKernelNodeParams, sharedMemBytes),
    FIELD(struct cudaKernelNodeParams, kernelParams),
    SIZE(struct cudaMemcpy3DParms),
    FIELD(struct cudaMemcpy3DParms, srcPos),
    FIELD(struct cudaMemcpy3DParms, srcPtr.ysize),
    FIELD(struct cudaMemcpy3DParms, dstPtr.pitch),
    FIELD(struct cudaMemcpy3DParms, extent.depth),
    FIELD(struct cudaMemcpy3DParms, kind),
    SIZE(struct cudaChannelFormatDesc),
    FIELD(struct cudaChannelFormatDesc, f),
    SIZE(struct cudaResourceDesc),
    FIELD(struct cudaResourceDesc, res.linear.sizeInBytes),
    FIELD(struct cudaResourceDesc, res.pitch2D.pitchInBytes),
    FIELD(struct cudaResourceDesc, flags),
    SIZE(struct cudaTextureDesc),
    FIELD(struct cudaTextureDesc, readMode),
    FIELD(struct cudaTextureDesc, borderColor),
    FIELD(struct cudaTextureDesc, normalizedCoords),
    FIELD(struct cudaTextureDesc, seamlessCubemap),
    SIZE(struct cudaGraphNodeParams),
    FIELD(struct cudaGraphNodeParams, kernel.kernelParams),
    FIELD(struct cudaGraphNodeParams, memcpy.copyParams),
    FIELD(struct cudaGraphNodeParams, conditional.phGraph_out),
    FIELD(struct cudaGraphNodeParams, reserved2),
    SIZE(struct cudaPointerAttributes),
    FIELD(struct cudaPointerAttributes, device),
    FIELD(struct cudaPointerAttributes, devicePointer),
    FIELD(struct cudaPointerAttributes, hostPointer),
    SIZE(struct cudaDeviceProp),
    PROPERTY(uuid),
    PROPERTY(totalGlobalMem),
    PROPERTY(sharedMemPerBlock),
    PROPERTY(regsPerBlock),
    PROPERTY(warpSize),
    PROPERTY(memPitch),
    PROPERTY(maxThreadsPerBlock),
    PROPERTY(maxThreadsDim),
    PROPERTY(maxGridSize),
    PROPERTY(totalConstMem),
    PROPERTY(major),
    PROPERTY(minor),
    PROPERTY(textureAlignment),
    PROPERTY(multiProcessorCount),
    PROPERTY(canMapHostMemory),
    PROPERTY(surfaceAlignment),
    PROPERTY(concurrentKernels),
    PROPERTY(asyncEngineCount),
    PROPERTY(unifiedAddressing),
    PROPERTY(memoryBusWidth),
    PROPERTY(l2CacheSize),
    PROPERTY(persistingL2CacheMaxSize),
    PROPERTY(accessPolicyMaxWindowSize),
    PROPERTY(texturePitchAlignment),
    PROPERTY(maxThreadsPerMultiProcessor),
    PROPERTY(sharedMemPerMultiprocessor),
    PROPERTY(regsPerMultiprocessor),
    PROPERTY(managedMemory),
    PROPERTY(concurrentManagedAccess),
    PROPERTY(cooperativeLaunch),
    PROPERTY(sharedMemPerBlockOptin),
    PROPERTY(maxBlocksPerMultiProcessor),
    PROPERTY(reservedSharedMemPerBlock),
    PROPERTY(clusterLaunch),
    PROPERTY(reserved),
};
