/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.h - what an instruction, or a word of it, requires of a module's .target.
 *
 *   "90"     sm_90 and later
 *   "90a"    sm_90a
 *   "100f"   sm_100a or sm_100f
 *   "90+"    sm_90 and later, with a or f
 */
#ifndef EMU_TARGET_H
#define EMU_TARGET_H

#include <stdbool.h>
#include <stddef.h>

/* True if a module of this .target ("sm_80") may use what requires `need`. */
bool emu_target_has(const char *target, const char *need);
/* Writes which targets fulfil `need`: "sm_90 or later". */
void emu_target_describe(const char *need, char *text, size_t bytes);
/*
 * The requirement of a word, from a list such as "bf16:90 f32x2:100", copied into
 * need.  False if the list does not have the word.
 */
bool emu_target_of_word(const char *list, const char *word, size_t length,
			char need[8]);

#endif
