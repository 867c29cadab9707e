/* SPDX-License-Identifier: Apache-2.0 */
/* baseline_work.h - what the process of a baseline does when it is asked. */
#ifndef NIB_BENCH_BASELINE_WORK_H
#define NIB_BENCH_BASELINE_WORK_H

#include "baseline_engine.h"

enum baseline_verb { BASELINE_PREPARE, BASELINE_TURN, BASELINE_RELEASE };

struct baseline_request {
	enum baseline_verb verb;
	int64_t shape;
	int threads;
	double budget_s;
	int max_samples;
};

struct baseline_reply {
	bool ok;
	char reason[BASELINE_REASON];
	int count;
	double samples_s[BASELINE_MAX_SAMPLES];
	double spent_s;
};

struct baseline_work;

struct baseline_work *baseline_work_new(const struct baseline_engine *engine,
					const struct shape_list *list,
					const struct data_options *options);
void baseline_work_answer(struct baseline_work *work,
			  const struct baseline_request *request,
			  struct baseline_reply *reply);

#endif
