/* SPDX-License-Identifier: Apache-2.0 */
/* plan_limits.h - a quick measurement of what this machine can do. */
#ifndef NIB_PLAN_LIMITS_H
#define NIB_PLAN_LIMITS_H

#include "nibblas.h"

struct limits {
	double gflops, gbps;
	const char *compute_name, *memory_name; /* "vpdpbusd" */
};

/*
 * Some 100 ms.  What cannot be measured is infinite: it limits nothing.  A GPU
 * in software is not measured: its limits are those of the GPU's clocks.
 */
void limits_measure(const struct nib_device *device, struct limits *limits);

#endif
