/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_name.h - names of kernels in files that several architectures share:
 * NIB_KERNEL(amax) is nib_amax_sm90 where NIB_ARCH is sm90.
 */
#ifndef NIB_KERNEL_NAME_H
#define NIB_KERNEL_NAME_H

#ifndef NIB_ARCH
#error "define NIB_ARCH before: the file's architecture, as sm90"
#endif
#define NIB_KERNEL(name)	    NIB_KERNEL_OF(name, NIB_ARCH)
#define NIB_KERNEL_OF(name, arch)   NIB_KERNEL_JOIN(name, arch)
#define NIB_KERNEL_JOIN(name, arch) nib_##name##_##arch

#endif
