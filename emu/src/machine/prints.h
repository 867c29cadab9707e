/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prints.h - what kernels print, until the host writes it: a ring buffer of
 * fixed size, as on a GPU. Texts of clusters that ran in parallel are in the
 * order of the clusters, so the output depends only on the seed.
 */
#ifndef EMU_PRINTS_H
#define EMU_PRINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EMU_PRINTS_BYTES ((size_t)1 << 20) /* CUDA's default */

struct emu_prints;

/* NULL: no memory. */
struct emu_prints *emu_prints_open(void);
void emu_prints_close(struct emu_prints *p);
/*
 * Sets the buffer's size, in bytes of text.  False once something has been printed,
 * as in CUDA.
 */
bool emu_prints_resize(struct emu_prints *p, size_t bytes);
size_t emu_prints_size(const struct emu_prints *p);

/* A grid begins; by_cluster: its clusters run in parallel. */
void emu_prints_begin(struct emu_prints *p, bool by_cluster);
/* Any thread may call it.  Without memory the text is lost.  p may be NULL. */
void emu_prints_add(struct emu_prints *p, uint32_t cluster, const char *text);
/*
 * Drops what clusters after this one have printed since the grid began, because
 * after a report of this cluster it depends on timing which of them ran.
 */
void emu_prints_cut(struct emu_prints *p, uint32_t cluster);
/* Writes and empties the buffer; true if it was not empty. */
bool emu_prints_write(struct emu_prints *p, FILE *to);

#endif
