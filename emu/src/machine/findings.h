/* SPDX-License-Identifier: Apache-2.0 */
/*
 * findings.h - reports after which a launch continues: those of waived rules and,
 * if requested, of every rule that allows it.  Reports of one rule at one line of a
 * kernel are one finding.
 */
#ifndef EMU_FINDINGS_H
#define EMU_FINDINGS_H

#include <stdint.h>

#include "hardware/emu.h"
#include "machine/rules.h"

struct emu_finding {
	const struct emu_rule *rule;
	char *kernel;
	uint32_t line; /* of the PTX */
	uint32_t cluster;
	char *report; /* that of the first cluster */
	uint64_t count;
	bool is_waived;
};

struct emu_findings;

/*
 * waive: "rule,rule:kernel,...", where kernel is a part of a kernel's name; NULL:
 * nothing.  continues: continue after every report that allows it.  Returns NULL
 * with err if memory runs out, or if a rule does not exist or cannot be waived.
 */
struct emu_findings *emu_findings_open(const char *waive, bool continues,
				       struct emu_error *err);
void emu_findings_close(struct emu_findings *f);
/*
 * Counts a report.  True if the launch continues after it.  Any thread may call it.
 * f may be NULL.
 */
bool emu_findings_add(struct emu_findings *f, const struct emu_finding *one);
/*
 * The findings since the last clear, in an order that does not depend on the timing
 * of threads.  Returns how many there are.  They belong to f.
 */
size_t emu_findings_list(struct emu_findings *f, const struct emu_finding **list);
void emu_findings_clear(struct emu_findings *f);

#endif
