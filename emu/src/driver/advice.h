/* SPDX-License-Identifier: Apache-2.0 */
/* advice.h - the rule that a report is about, and what usually mends it. */
#ifndef EMU_ADVICE_H
#define EMU_ADVICE_H

struct emu_advice {
	const char *phrase; /* of the report */
	const char *rule;   /* with the part of the PTX ISA that states it */
	const char *mend;
};

/* The first row whose phrase the report has; NULL: none, it says all itself. */
const struct emu_advice *emu_advice_for(const char *report);

#endif
