/* SPDX-License-Identifier: Apache-2.0 */
/*
 * empty.c - libcuda.so.1 and libcudart.so.13 of a Python wheel, where they cannot be
 * links to libnibemu.so: they have no code, and need that library.
 */
typedef int nibemu_empty;
