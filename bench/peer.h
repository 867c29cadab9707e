/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.h - other libraries on the same shapes, in the same run.
 *
 * Each peer lives in a process of its own, forked before any thread is started:
 * oneDNN decides on its instruction set once in a process, the libraries'
 * thread pools do not meet, and a peer that is missing or crashes is a row that
 * says so.  The process sleeps between its turns.  A peer gets the operands of
 * data.h dequantised to its own type beforehand, weights packed beforehand if
 * it can.
 */
#ifndef NIB_BENCH_PEER_H
#define NIB_BENCH_PEER_H

#include <stdbool.h>
#include <stddef.h>

#include "data.h"
#include "peaks.h"
#include "shapes.h"

#define PEER_REASON	 160
#define PEER_MAX_SAMPLES 64

struct peer;

/* Entries of the list of peers, built in or not. */
int peer_count(void);
/* "peer:onednn-bf16", static. */
const char *peer_room(int index);
/* The instruction that the peer multiplies with: the limit of its rows. */
enum peak_kind peer_limit(int index);
/* Bytes that the peer moves for shape: operands in its type, results f32. */
double peer_bytes(int index, const struct shape *shape);

/*
 * Forks the process of a peer; no thread may have been started before.  list
 * must not change afterwards.  NULL when there is no process to be had.
 */
struct peer *peer_start(int index, const struct shape_list *list,
			const struct data_options *options);
/* Ends the process; NULL is fine. */
void peer_stop(struct peer *peer);

/*
 * Makes the operands of list->shapes[shape] on threads threads and checks one
 * result against sums in double.  False with the reason: not built, not
 * installed, unsupported, too large.
 */
bool peer_prepare(struct peer *peer, int64_t shape, int threads,
		  char reason[PEER_REASON]);
/*
 * One turn: two untimed calls, then timed ones until budget_s is spent, at
 * least one and at most max_samples (<= PEER_MAX_SAMPLES).  A sample of a short
 * call is the mean of several.  The number of samples, and the timed seconds; 0
 * if the process died.
 */
int peer_turn(struct peer *peer, double budget_s, int max_samples,
	      double samples_s[PEER_MAX_SAMPLES], double *spent_s);
/* Frees the operands of the last prepare. */
void peer_release(struct peer *peer);

#endif
