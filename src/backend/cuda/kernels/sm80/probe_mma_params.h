/* SPDX-License-Identifier: Apache-2.0 */
/* probe_mma_params.h - the multiplication probe of Ampere and Ada. */
#ifndef NIB_SM80_PROBE_MMA_PARAMS_H
#define NIB_SM80_PROBE_MMA_PARAMS_H

/* Eight warps, each of which computes m16n8k16 sixteen times in a step. */
#define NIB_PROBE_MMA_THREADS 256
#define NIB_PROBE_MMA_CHAINS  16
#define NIB_PROBE_MMA_FLOP                                                             \
	(NIB_PROBE_MMA_THREADS / 32 * NIB_PROBE_MMA_CHAINS * 2 * 16 * 8 * 16)

#endif
