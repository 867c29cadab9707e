/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mbarrier_cases.h - sequences of operations on an mbarrier.  mbarrier.cu records
 * what a GPU answers, and test_mbarrier_recorded.c compares the software GPU with
 * it.  The random ones come first.  Their steps break no rule of PTX, except that
 * one of them completes more bytes at once than can be counted.  Some of the named
 * ones, which follow, break rules.
 */
#ifndef EMU_PROBES_MBARRIER_CASES_H
#define EMU_PROBES_MBARRIER_CASES_H

#include "hardware/mbarrier.h"

#define MBARRIER_RANDOM 256
#define MBARRIER_STEPS	64

enum mbarrier_step_kind {
	MBARRIER_STEP_ARRIVE,
	MBARRIER_STEP_DROP,
	MBARRIER_STEP_EXPECT_TX,
	MBARRIER_STEP_COMPLETE_TX,
	MBARRIER_STEP_ARRIVE_EXPECT_TX,
};

/* The classes of random histories, a quarter each, so that an answer shows its
 * subject. */
enum mbarrier_class {
	MBARRIER_PLAIN,	   /* bytes land after they were expected */
	MBARRIER_EARLY,	   /* or before, while an arrival is pending */
	MBARRIER_COMPLETE, /* or after all arrivals */
	MBARRIER_LARGE,	   /* up to the largest count */
};

struct mbarrier_step {
	uint32_t kind, number;
};

struct mbarrier_case {
	uint32_t arrivals, n_steps;
	struct mbarrier_step steps[MBARRIER_STEPS];
	/*
	 * After each step: bit 0 (1): test_wait of parity 0 (1); from bit 8 on,
	 * of an arrival: how many were pending before it.
	 */
	uint32_t results[MBARRIER_STEPS];
	/* The software GPU refuses this step; n_steps: none. */
	uint32_t fault_step;
};

/* Random and named ones. */
int mbarrier_cases(void);
/* Sets results and fault_step to those of the software GPU. */
void mbarrier_case_make(struct mbarrier_case *made, int index);
/* "plain 12", "more arrivals than pending" */
void mbarrier_case_name(int index, char *text, size_t size);
/* A hash of the first steps' results. */
uint64_t mbarrier_case_hash(const struct mbarrier_case *asked, uint32_t steps);

#endif
