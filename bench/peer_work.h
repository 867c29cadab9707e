/* SPDX-License-Identifier: Apache-2.0 */
/* peer_work.h - what the process of a peer does when it is asked. */
#ifndef NIB_BENCH_PEER_WORK_H
#define NIB_BENCH_PEER_WORK_H

#include "peer_engine.h"

enum peer_verb { PEER_PREPARE, PEER_TURN, PEER_RELEASE };

struct peer_request {
	enum peer_verb verb;
	int64_t shape;
	int threads;
	double budget_s;
	int max_samples;
};

struct peer_reply {
	bool ok;
	char reason[PEER_REASON];
	int count;
	double samples_s[PEER_MAX_SAMPLES];
	double spent_s;
};

struct peer_work;

struct peer_work *peer_work_new(const struct peer_engine *engine,
				const struct shape_list *list,
				const struct data_options *options);
void peer_work_answer(struct peer_work *work,
		      const struct peer_request *request,
		      struct peer_reply *reply);

#endif
