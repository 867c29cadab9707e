/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mbarrier_cases.h - random histories of an mbarrier that a GPU is asked
 * (mbarrier.cu writes what it answers) and the software GPU is then held to
 * (test_emu_mbarrier_recorded.c).  No step breaks a rule.
 */
#ifndef NIB_TESTS_MBARRIER_CASES_H
#define NIB_TESTS_MBARRIER_CASES_H

#include "mbarrier.h"

#define MBARRIER_CASES 256
#define MBARRIER_STEPS 64

enum mbarrier_step_kind {
	MBARRIER_STEP_ARRIVE,
	MBARRIER_STEP_DROP,
	MBARRIER_STEP_EXPECT_TX,
	MBARRIER_STEP_COMPLETE_TX,
	MBARRIER_STEP_ARRIVE_EXPECT_TX,
};

struct mbarrier_step {
	uint32_t kind, number;
};

struct mbarrier_case {
	uint32_t arrivals;
	struct mbarrier_step steps[MBARRIER_STEPS];
	/*
	 * After each step: bit 0 (1): test_wait of parity 0 (1); from bit 8 on,
	 * of an arrival: how many were pending before it.
	 */
	uint32_t results[MBARRIER_STEPS];
};

/* results: what the software GPU answers. */
void mbarrier_case_make(struct mbarrier_case *made, int index);
uint64_t mbarrier_case_hash(const struct mbarrier_case *asked);

#endif
