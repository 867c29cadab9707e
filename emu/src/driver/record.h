/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - events for other programs: with NIBEMU_REPORTS=FILE the library
 * appends a line of JSON for each report and for each of the events below.
 * Without the variable nothing is written.
 */
#ifndef EMU_RECORD_H
#define EMU_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "machine/rules.h"

/*
 * kind:
 * - "begin": the driver was opened (text: the device);
 * - "unopened": the driver could not be opened (the reason);
 * - "ran": the first kernel ran (its name);
 * - "refused": a module or kernel was refused (the reason);
 * - "launch": a launch was refused that a GPU would also refuse (the reason);
 * - "unwatched": something of a launch was not checked (what);
 * - "foreign": a runtime library needs NVIDIA's driver.
 */
void emu_record_event(const char *kind, const char *text);

/*
 * A report that was made `count` times.  kernel: its name; report: its first lines,
 * with the place; text: the same with rule and advice, as it is printed; rule: NULL for
 * none.
 */
void emu_record_report(const char *kernel, const char *report, const char *text,
		       const struct emu_rule *rule, bool is_waived, uint64_t count);

#endif
