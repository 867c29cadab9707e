/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h - the rules that reports refer to: their short names, the places where
 * the PTX ISA states them, and the usual fixes.
 */
#ifndef EMU_RULES_H
#define EMU_RULES_H

#include <stdbool.h>
#include <stddef.h>

struct emu_rule {
	const char *name; /* for NIBEMU_WAIVE: "proxy-fence" */
	/* A launch can continue after a report, because nothing depends on it. */
	bool can_go_on;
	const char *phrase; /* of the report */
	const char *rule;   /* with the part of the PTX ISA that states it */
	const char *mend;
};

/* Added to reports of x += 1 by several threads: a load and a store of one word. */
#define EMU_UPDATE "(an update: this thread loads and stores the word)"
/* The advice for an update, instead of mend; NULL: the same. */
const char *emu_rule_update(const struct emu_rule *rule);
/* The advice for a report of a rule. */
const char *emu_rule_advice(const struct emu_rule *rule, const char *report);

/* The first rule whose phrase the report has; NULL: the report is complete. */
const struct emu_rule *emu_rule_for(const char *report);
/* True if only the checker of the order of accesses finds it (NIBEMU_UNCHECKED). */
bool emu_rule_is_order(const struct emu_rule *rule);
/* The rule with a name of `length` characters; NULL: none. */
const struct emu_rule *emu_rule_named(const char *name, size_t length);
/* Rule number i; NULL after the last. */
const struct emu_rule *emu_rule_at(size_t i);

#endif
