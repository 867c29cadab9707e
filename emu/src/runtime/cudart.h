/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudart.h - the part of CUDA's runtime interface (CUDA 13) that the software GPU
 * exports, so that programs built with `nvcc -cudart shared` run on it.
 * libcudart.so.13 is another name of the library.  Names, numbers and layouts are
 * those of CUDA's headers; test_runtime_api.c compares them if the headers are
 * installed.  Errors have the driver's numbers.
 */
#ifndef EMU_CUDART_H
#define EMU_CUDART_H

#include "driver/cuda_api.h"

typedef int cudaError_t;
typedef struct {
	unsigned x, y, z;
} emu_dim3;

enum {
	cudaErrorInvalidSymbol = 13,
	cudaErrorInvalidDeviceFunction = 98,
	cudaMemcpyHostToDevice = 1,
	cudaMemcpyDefault = 4,
};

typedef struct {
	emu_dim3 gridDim, blockDim;
	size_t dynamicSmemBytes;
	CUstream stream;
	CUlaunchAttribute *attrs;
	unsigned numAttrs;
} cudaLaunchConfig_t;

struct cudaFuncAttributes {
	size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
	int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA;
	int maxDynamicSharedSizeBytes, preferredShmemCarveout;
	int clusterDimMustBeSet, requiredClusterWidth, requiredClusterHeight,
	    requiredClusterDepth, clusterSchedulingPolicyPreference,
	    nonPortableClusterSizeAllowed;
	int reserved[16];
};

struct cudaExtent {
	size_t width, height, depth;
};

struct cudaPos {
	size_t x, y, z;
};

struct cudaPitchedPtr {
	void *ptr;
	size_t pitch, xsize, ysize;
};

struct cudaMemcpy3DParms {
	CUarray srcArray;
	struct cudaPos srcPos;
	struct cudaPitchedPtr srcPtr;
	CUarray dstArray;
	struct cudaPos dstPos;
	struct cudaPitchedPtr dstPtr;
	struct cudaExtent extent;
	int kind;
};

enum {
	cudaChannelFormatKindSigned,
	cudaChannelFormatKindUnsigned,
	cudaChannelFormatKindFloat,
};

struct cudaChannelFormatDesc {
	int x, y, z, w; /* bits of each component */
	int f;		/* cudaChannelFormatKind* */
};

struct cudaResourceDesc {
	int resType;
	union {
		struct {
			CUarray array;
		} array;
		struct {
			void *devPtr;
			struct cudaChannelFormatDesc desc;
			size_t sizeInBytes;
		} linear;
		struct {
			void *devPtr;
			struct cudaChannelFormatDesc desc;
			size_t width, height, pitchInBytes;
		} pitch2D;
		int reserved[32];
	} res;
	unsigned flags;
};

struct cudaTextureDesc {
	int addressMode[3], filterMode, readMode, sRGB;
	float borderColor[4];
	int normalizedCoords;
	unsigned maxAnisotropy;
	int mipmapFilterMode;
	float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
	int disableTrilinearOptimization, seamlessCubemap;
};

struct cudaPointerAttributes {
	int type, device;
	void *devicePointer, *hostPointer;
	long reserved[8];
};

struct cudaDeviceProp {
	char name[256];
	CUuuid uuid;
	char luid[8];
	unsigned luidDeviceNodeMask;
	size_t totalGlobalMem, sharedMemPerBlock;
	int regsPerBlock, warpSize;
	size_t memPitch;
	int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
	size_t totalConstMem;
	int major, minor;
	size_t textureAlignment, texturePitchAlignment;
	int multiProcessorCount, integrated, canMapHostMemory;
	int textures[39]; /* sizes of textures and surfaces: none */
	size_t surfaceAlignment;
	int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID;
	int tccDriver, asyncEngineCount, unifiedAddressing, memoryBusWidth;
	int l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor;
	int streamPrioritiesSupported, globalL1CacheSupported;
	int localL1CacheSupported;
	size_t sharedMemPerMultiprocessor;
	int regsPerMultiprocessor, managedMemory, isMultiGpuBoard;
	int multiGpuBoardGroupID, hostNativeAtomicSupported;
	int pageableMemoryAccess, concurrentManagedAccess;
	int computePreemptionSupported, canUseHostPointerForRegisteredMem;
	int cooperativeLaunch;
	size_t sharedMemPerBlockOptin;
	int pageableMemoryAccessUsesHostPageTables;
	int directManagedMemAccessFromHost, maxBlocksPerMultiProcessor;
	int accessPolicyMaxWindowSize;
	size_t reservedSharedMemPerBlock;
	int others[11];
	int clusterLaunch;
	int more[8];
	int reserved[56];
};

struct cudaKernelNodeParams {
	void *func;
	emu_dim3 gridDim, blockDim;
	unsigned sharedMemBytes;
	void **kernelParams, **extra;
};

/* Any node: as the driver's, but for kernels, copies and conditions. */
struct cudaGraphNodeParams {
	int type, reserved0[3];
	union {
		long long reserved1[29];
		struct cudaKernelNodeParams kernel;
		struct {
			int flags, reserved[3];
			struct cudaMemcpy3DParms copyParams;
		} memcpy;
		CUDA_MEMSET_NODE_PARAMS memset;
		CUDA_HOST_NODE_PARAMS host;
		struct {
			CUgraph graph;
			int ownership;
		} graph;
		CUevent event;
		CUDA_MEM_ALLOC_NODE_PARAMS alloc;
		void *free;
		struct {
			CUgraphConditionalHandle handle;
			int type;
			unsigned size;
			CUgraph *phGraph_out;
		} conditional;
	};
	long long reserved2;
};

/* Opens the driver once, and keeps an error for cudaGetLastError(). */
CUresult emu_runtime_begin(void);
cudaError_t emu_runtime_keep(CUresult result);
/* The rest of a function: opens the driver, calls it, and keeps an error. */
#define EMU_CALL(call)                                                                 \
	do {                                                                           \
		const CUresult begun_ = emu_runtime_begin();                           \
                                                                                       \
		return emu_runtime_keep(begun_ ? begun_ : (call));                     \
	} while (0)
/* The function of a kernel's stub in the host program. */
CUresult emu_runtime_function(const void *stub, CUfunction *function);
/* The stub of a function; the function itself, which is a kernel, if it has none. */
const void *emu_runtime_stub(CUfunction function);
/* The address of a variable on the device. */
CUresult emu_runtime_variable(const void *host, CUdeviceptr *to, size_t *bytes);
/* The driver's form of a copy.  copy: not NULL. */
CUDA_MEMCPY3D emu_runtime_box(const struct cudaMemcpy3DParms *copy);
/* The driver's form of a kernel node.  p: not NULL. */
CUresult emu_runtime_kernel_node(const struct cudaKernelNodeParams *p,
				 CUDA_KERNEL_NODE_PARAMS *to);
/* The address of bytes offset .. offset + bytes - 1 of a variable. */
CUresult emu_runtime_symbol(const void *symbol, size_t offset, size_t bytes,
			    CUdeviceptr *at);

#define F(type, name, arguments) EMU_EXPORT type name arguments;
#include "runtime/cudart.def"
#undef F

#endif
