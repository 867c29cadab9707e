/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.h - what clean runs were checked for, and what was not checked in them. */
#ifndef NIBEMU_VERDICT_H
#define NIBEMU_VERDICT_H

#include <stdio.h>

#include "runs.h"

/* The number of rules whose reports would have failed the runs. */
unsigned verdict_rules(const struct runs *r, const struct options *o);
/* Text k of what the runs did not check, each text once; NULL: there are no more. */
const char *verdict_unwatched(const struct runs *r, const struct job *job, size_t k);
/* Prints "51 rules checked on 1 schedule; not checked: ...". */
void verdict_print(FILE *to, const struct runs *r, const struct job *job);

#endif
