/* SPDX-License-Identifier: Apache-2.0 */
/* records.h - reads what a run wrote to NIBEMU_REPORTS (driver/record.h). */
#ifndef NIBEMU_RECORDS_H
#define NIBEMU_RECORDS_H

#include <stdbool.h>
#include <stddef.h>

struct record {
	char *line; /* as it is written: an object of JSON */
	/* Its texts; "" if it has none of that name. */
	char *kind, *rule, *kernel, *place, *text;
	bool is_waived;
};

struct records {
	struct record *list;
	size_t count;
};

/* Reads a file, which need not exist.  False: no memory. */
bool records_read(struct records *r, const char *path);
void records_free(struct records *r);

/* The first of a kind; NULL: none. */
const struct record *records_find(const struct records *r, const char *kind);
/* The first report that is not waived; NULL: none. */
const struct record *records_first_report(const struct records *r);
bool record_is_report(const struct record *r);

#endif
