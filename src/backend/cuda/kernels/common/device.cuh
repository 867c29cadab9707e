/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.cuh - DEVICE, which every device function of the kernels begins with.
 * Methods and explicit specialisations, which take no `static`, are the exceptions.
 */
#ifndef NIB_DEVICE_CUH
#define NIB_DEVICE_CUH

#define DEVICE static __device__ __forceinline__

#endif
