/* SPDX-License-Identifier: Apache-2.0 */
/*
 * umma.h - decodes the descriptors of Blackwell's tcgen05.mma, and gives the places
 * of operands in shared memory and in tensor memory, whose addresses are
 * lane << 16 | column.  Warps and memory are not known here.
 *
 * Sources: PTX ISA, "tcgen05 Instruction Descriptor" (tables 42 to 44), "Shared
 * memory descriptor", "Canonical layouts", "Data Path Layout Organization";
 * CUTLASS's mma_sm100_desc.hpp and mma_traits_sm100_frag.hpp for the layouts that
 * the PTX ISA shows as pictures.
 */
#ifndef EMU_UMMA_H
#define EMU_UMMA_H

#include "hardware/emu.h"

/* kind::mxf4 is MXF4NVF4 with two scales in each row. */
enum emu_umma_kind {
	EMU_UMMA_F16,
	EMU_UMMA_MXF8F6F4,
	EMU_UMMA_MXF4NVF4,
	EMU_UMMA_F8F6F4,
	EMU_UMMA_TF32,
	EMU_UMMA_I8,
};

enum emu_umma_type {
	EMU_UMMA_TYPE_F16,
	EMU_UMMA_TYPE_BF16,
	EMU_UMMA_TYPE_E4M3,
	EMU_UMMA_TYPE_E5M2,
	EMU_UMMA_TYPE_E2M3,
	EMU_UMMA_TYPE_E3M2,
	EMU_UMMA_TYPE_E2M1,
	EMU_UMMA_TYPE_TF32,
	EMU_UMMA_TYPE_U8,
	EMU_UMMA_TYPE_S8,
};

#define EMU_UMMA_MAX_ROWS   256
#define EMU_UMMA_MAX_K	    64
#define EMU_UMMA_K_BYTES    32 /* of an operand's row, whatever its type */
#define EMU_UMMA_MAX_SCALES 4

/* The information in the opcode. */
struct emu_umma_form {
	enum emu_umma_kind kind;
	int ctas;   /* of the cta_group: 1 or 2 */
	int scales; /* of a row in an instruction: 0, 1, 2 or 4 */
	bool a_in_tensor_memory;
};

/* The same with the instruction descriptor. */
struct emu_umma {
	struct emu_umma_form form;
	int m, n, k; /* elements */
	enum emu_umma_type a_type, b_type;
	bool d_is_f16, saturates, a_negated, b_negated, a_transposed, b_transposed;
	bool scale_is_ue8m0; /* else UE4M3 */
	int sfa_id, sfb_id;  /* byte of the first scale in its column */
};

/* False with err, which names the field, its value and the rule. */
bool emu_umma_decode(uint32_t descriptor, const struct emu_umma_form *form,
		     struct emu_umma *umma, struct emu_error *err);

/* Rows of A, and of B (columns of D), that one CTA's shared memory has. */
int emu_umma_a_rows(const struct emu_umma *umma);
int emu_umma_b_rows(const struct emu_umma *umma);
/* Columns of tensor memory that D takes in each CTA. */
int emu_umma_d_columns(const struct emu_umma *umma);

/* ---- shared memory ------------------------------------------------------- */

/* A matrix descriptor, in bytes.  start is an offset in the CTA's window. */
struct emu_umma_matrix {
	uint32_t start, lead, stride;
	uint32_t base;	  /* of the swizzle's pattern, rows of 128 bytes */
	uint32_t swizzle; /* 16 (none), 32, 64 or 128 */
};

/*
 * Start [13:0], leading [29:16] and stride offset [45:32] in 16 bytes, [48:46]
 * 1, base offset [51:49], swizzle [63:61] (0 none, 2 128, 4 64, 6 32 bytes).
 */
bool emu_umma_matrix_decode(uint64_t descriptor, struct emu_umma_matrix *matrix,
			    struct emu_error *err);
/*
 * The offset of 16 bytes of an operand.  K-major: piece `piece` (0 or 1) of the 32
 * bytes of row `row`.  Transposed: `row` counts k, and `piece` counts 16 bytes of m
 * or n.
 */
uint32_t emu_umma_offset(const struct emu_umma_matrix *matrix, bool is_transposed,
			 int row, int piece);

/*
 * The k element codes, of at most 8 bits, in the 32 bytes of a row.  Kinds mxf8f6f4
 * and f8f6f4 store 16 elements in each 16 bytes; those of 6 and 4 bits are packed at
 * the start of the 16 bytes.
 */
void emu_umma_unpack(const struct emu_umma *umma, enum emu_umma_type type,
		     const uint8_t bytes[EMU_UMMA_K_BYTES], uint8_t *codes);

/* ---- tensor memory ------------------------------------------------------- */

/* The place of an element of D: the CTA (0 or 1 of the pair), and the lane and the
 * column relative to D's address. */
void emu_umma_d_place(const struct emu_umma *umma, int row, int column, int *cta,
		      int *lane, int *tmem_column);
/* The lane of row `row` of the A that a CTA has, the same as for D. */
int emu_umma_a_lane(const struct emu_umma *umma, int row);
/*
 * The place of the scale of row `row` (of A in its CTA, or of all of B) and block
 * `block`: the column relative to the scales' address, and the byte in it.  Its lane
 * is row % 32 in each group of 32 lanes; all groups have a copy.
 */
void emu_umma_scale_place(int row, int id, int block, int *tmem_column, int *byte);

#endif
