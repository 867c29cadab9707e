/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emu.h - types that all parts of the software GPU share: errors as text, memory
 * with a state for each byte, and the windows of the address space.  The models in
 * hardware/ (memory, mbarrier, wgmma, tensor_map) use these types.  They do not
 * depend on warps, instructions or the driver API.
 */
#ifndef EMU_EMU_H
#define EMU_EMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EMU_LANES 32

/*
 * Compiles the function for several instruction sets and chooses the best at run
 * time.  All give the same bits, because expressions are not contracted.
 */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) &&                  \
    !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
/* arch=skylake-avx512 is never chosen on other makers' processors. */
#if __GNUC__ >= 12
#define EMU_FAST __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define EMU_FAST                                                                       \
	__attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#endif
#else
#define EMU_FAST
#endif
/* A part of such a function, compiled for the same instruction sets. */
#define EMU_FAST_PART static inline __attribute__((always_inline))

struct emu_error {
	char text[1024];
};

/* Writes the text to err, which may be NULL.  Returns false.  What does not fit is left
 * out from a line or a word on, and " ..." ends the text. */
__attribute__((format(printf, 2, 3))) bool emu_fail(struct emu_error *err,
						    const char *format, ...);

/* Adds to the text. */
__attribute__((format(printf, 2, 3))) void emu_add_text(struct emu_error *err,
							const char *format, ...);

/* ---- memory -------------------------------------------------------------- */

/* The state of one byte, bits of its shadow; 0: not allocated. */
enum emu_shadow {
	EMU_MAPPED = 1,	   /* of an allocation */
	EMU_WRITTEN = 2,   /* its value is defined */
	EMU_LANDING = 4,   /* an asynchronous copy is going to write it */
	EMU_BARRIER = 8,   /* of a live mbarrier: not for loads and stores */
	EMU_UNFENCED = 16, /* written by threads, with no proxy fence since */
	EMU_LEAVING = 32,  /* an asynchronous operation is going to read it */
};

/*
 * A range of addresses: byte address - base of data, with its state in shadow.
 * base is 0 in windows that count from zero (shared memory of a CTA).
 */
struct emu_space {
	uint64_t base, bytes;
	uint8_t *data, *shadow;
};

/* True if all of bytes bytes have the state bits. */
static inline bool emu_space_has(const struct emu_space *s, uint64_t address,
				 uint64_t bytes, uint8_t bits)
{
	const uint64_t at = address - s->base;

	if (at >= s->bytes || bytes > s->bytes - at)
		return false;
	for (uint64_t i = 0; i < bytes; i++)
		if ((s->shadow[at + i] & bits) != bits)
			return false;
	return true;
}

/* ---- addresses ----------------------------------------------------------- */

/*
 * Generic addresses: device memory has its host address (below 2^47), and shared and
 * local memory have windows above.  An address in shared memory includes the CTA of
 * the cluster: rank << EMU_RANK_SHIFT | offset.  The first bytes of a CTA's shared
 * memory are reserved for the system, as on Hopper.
 */
#define EMU_SHARED_WINDOW   (UINT64_C(1) << 56)
#define EMU_LOCAL_WINDOW    (UINT64_C(1) << 57)
#define EMU_RANK_SHIFT	    24
#define EMU_SHARED_RESERVED 1024
#define EMU_SHARED_MAX	    (227 * 1024)
#define EMU_CLUSTER_MAX	    16

#endif
