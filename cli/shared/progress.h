/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.h - one line on standard error that says how far a long command is:
 * a bar on a terminal once the work has taken half a second, else a plain line
 * every few seconds.  One progress at a time, from one thread.
 */
#ifndef NIB_PROGRESS_H
#define NIB_PROGRESS_H

/* Turns all progress off, or on again. */
void progress_set_quiet(int quiet);

/*
 * label: what is done ("quantising").  total: in any unit, 0 = unknown.
 * ticking: nonzero draws from a thread ten times a second, so that one long
 * call shows its seconds; leave it 0 while measuring time.
 */
void progress_begin(const char *label, double total, int ticking);
/* done of total; item: what is worked on now, copied, may be NULL. */
void progress_update(double done, const char *item);
/* The same, with more added to what was done before. */
void progress_advance(double more, const char *item);
void progress_end(void);
/* Wipes the bar, so that something else may be printed; it comes back. */
void progress_hide(void);

#endif
