/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.cuh - DEVICE, with which every device function of the kernels begins.  Methods
 * and explicit specialisations are the exceptions, because this `static` would change
 * the former and is an error in the latter.
 */
#ifndef NIB_DEVICE_CUH
#define NIB_DEVICE_CUH

#define DEVICE static __device__ __forceinline__

#endif
