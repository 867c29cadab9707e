/* SPDX-License-Identifier: Apache-2.0 */
/* images.c - the kernels of tests that run on the fake driver: names alone. */
#include "cuda/cuda.h"

const struct cuda_image cuda_images[] = {
    {"first.cu", "cubin only kernel_of_first", "ptx only kernel_of_first"},
    {"second.cu", "cubin", "ptx"},
    {NULL, NULL, NULL},
};
