/* SPDX-License-Identifier: Apache-2.0 */
/*
 * halves.h - fp16 arithmetic on rows, in the host's vectors.  A sum or a product of
 * two values is rounded to fp32 and then to fp16.  The result is the same as with
 * one rounding, because fp32 has at least twice the bits of fp16 and two more.
 * Every NaN becomes 0x7FFF.
 */
#ifndef EMU_HALVES_H
#define EMU_HALVES_H

#include "hardware/emu.h"

#define EMU_HALVES_MOST 64 /* of a row: two a lane */

/* r may be a or b. */
void emu_halves_add(const uint16_t *a, const uint16_t *b, uint16_t *r, int n);
void emu_halves_subtract(const uint16_t *a, const uint16_t *b, uint16_t *r, int n);
void emu_halves_multiply(const uint16_t *a, const uint16_t *b, uint16_t *r, int n);
/* Codes of E4M3: exact. */
void emu_halves_from_e4m3(const uint8_t *codes, uint16_t *r, int n);

#endif
