/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_peaks.h - samples of what a GPU can do at most, by the library's probes:
 * the GPU's part of peaks.h.
 */
#ifndef NIB_BENCH_GPU_PEAKS_H
#define NIB_BENCH_GPU_PEAKS_H

#include "peaks.h"

struct gpu_peaks;

/* name: "cuda:0".  On failure *gpu is NULL. */
enum nib_status gpu_peaks_open(const char *name, struct gpu_peaks **gpu,
			       struct nib_error *err);
void gpu_peaks_close(struct gpu_peaks *gpu); /* NULL is fine */
/* "cuda-sm90": lives as long as gpu. */
const char *gpu_peaks_backend(const struct gpu_peaks *gpu);
/* Units a second of a kind that peak_is_gpu(); 0 if it failed. */
double gpu_peaks_sample(struct gpu_peaks *gpu, enum peak_kind kind);

#endif
