/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ptx.h - a decoded module: kernels are arrays of instructions, which a warp runs
 * without parsing text again.  The lines of the text are kept for reports.
 */
#ifndef EMU_PTX_H
#define EMU_PTX_H

#include "hardware/emu.h"

enum emu_type {
	EMU_NO_TYPE,
	EMU_PRED,
	EMU_B8,
	EMU_U8,
	EMU_S8T,
	EMU_B16,
	EMU_U16,
	EMU_S16,
	EMU_T_F16,
	EMU_T_BF16,
	EMU_B32,
	EMU_U32,
	EMU_S32,
	EMU_F32,
	EMU_T_TF32,
	EMU_U16X2,
	EMU_S16X2,
	EMU_F16X2,
	EMU_BF16X2,
	EMU_E4M3X2,
	EMU_E5M2X2,
	EMU_E2M1X2,
	EMU_E2M3X2,
	EMU_E3M2X2,
	EMU_UE8M0X2,
	EMU_T_E4M3,
	EMU_T_E5M2,
	EMU_T_E2M1,
	EMU_T_E2M3,
	EMU_T_E3M2,
	EMU_T_UE4M3,
	EMU_T_UE8M0,
	EMU_T_S4,
	EMU_T_U4,
	EMU_T_B1,
	EMU_B64,
	EMU_U64,
	EMU_S64,
	EMU_F64,
	EMU_F32X2,
	EMU_B128,
	EMU_TYPES
};

int emu_type_bytes(enum emu_type type);
const char *emu_type_name(enum emu_type type);
/* EMU_NO_TYPE: the word is no type. */
enum emu_type emu_type_of(const char *word, size_t length);

enum emu_state_space {
	EMU_GENERIC,
	EMU_GLOBAL,
	EMU_SHARED,
	EMU_SHARED_CLUSTER,
	EMU_PARAM,
	EMU_LOCAL,
	EMU_CONST,
};

struct emu_warp;
struct emu_instr;

/* Runs an instruction for the lanes whose bits are set. */
typedef void emu_run(struct emu_warp *warp, const struct emu_instr *instr,
		     uint32_t lanes);

#define EMU_NO_REGISTER UINT32_MAX

/* EMU_SCRATCH: rows of a function that wraps another, while it runs. */
enum emu_bank { EMU_REGISTERS, EMU_CONSTANTS, EMU_SCRATCH, EMU_BANKS };

/*
 * A row of 32 values, one for each lane (predicates: one word of 32 bits), in a
 * bank.  The row of a register is set when registers get their places.
 */
struct emu_value {
	uint32_t row; /* bytes from the begin of the bank */
	uint32_t reg; /* or EMU_NO_REGISTER */
	uint8_t bank;
	uint8_t bytes; /* of one value: 1 is a predicate */
	bool is_negated, is_written, is_async;
};

/* Properties of an instruction that the machine needs besides its function. */
enum emu_trait {
	EMU_ATOMIC = 1,
	EMU_STRONG = 2, /* atomic, or of an order or scope: threads may wait by it */
	EMU_MATRIX = 4, /* an access of all lanes: ldmatrix, stmatrix */
	EMU_TAKES_CLUSTER = 8, /* clusterlaunchcontrol.try_cancel */
	EMU_RELEASES = 16,     /* to the GPU or the system */
	EMU_NEAR_FENCE = 32,   /* of the CTA, or only of shared memory */
	EMU_OF_THREADS = 64,   /* asynchronous, and of the generic proxy */
	EMU_VOLATILE = 128,    /* of data: emu_find_volatile_data() */
};

/* A machine instruction takes an issue slot and one of these pipes. */
enum emu_pipe { EMU_PIPE_ISSUE, EMU_PIPE_ALU, EMU_PIPE_FMA, EMU_PIPE_XU, EMU_PIPES };
#define EMU_SLOT 64 /* parts of one */

struct emu_instr {
	emu_run *run;
	emu_run *inner;	  /* what a wrapper runs: rounding modes */
	emu_run *wrapped; /* what .ftz, or sources of 16 bits, wrap */
	struct emu_value *operand;
	int64_t immediate; /* offset of its first address */
	int64_t offset[2]; /* and of others */
	const struct emu_opcode *opcode;
	uint32_t line, source_line; /* of the PTX and, if known, of the source */
	uint32_t target;	    /* of a branch: an index; else UINT32_MAX */
	uint32_t guard_row;	    /* of its predicate */
	uint32_t guard_reg;	    /* or EMU_NO_REGISTER */
	uint32_t option;	    /* of the opcode: what bind found */
	uint16_t operands;
	uint16_t source_file; /* index in the module's list; 0: unknown */
	/* The kernel's shared variable to which its address belongs + 1; 0: unknown. */
	uint16_t variable;
	uint8_t type, type2, space, vector;
	uint8_t traits; /* of enum emu_trait */
	/* Instructions of the machine, by pipe: machine/time_costs.h. */
	uint16_t slots[EMU_PIPES];
	uint16_t stall; /* cycles to the warp's next instruction, as slots */
	/* is_arithmetic: no memory, waiting or control.  See machine/time.c. */
	bool is_arithmetic, ends_block;
	uint8_t unit; /* of enum emu_unit: machine/time_state.h */
	bool guard_is_negated;
	bool is_converged;     /* needs all live lanes of its warp */
	bool is_cross_cluster; /* other clusters may see what it does */
	bool is_leader;	       /* begins a basic block */
};

/* Strong, in memory that CTAs share. */
static inline bool emu_is_strong(const struct emu_instr *i)
{
	return (i->space == EMU_GLOBAL || i->space == EMU_GENERIC) &&
	       i->traits & EMU_STRONG;
}

/* Registers that a warp has in every program: %tid.x ... */
enum emu_special {
	EMU_TID_X,
	EMU_TID_Y,
	EMU_TID_Z,
	EMU_NTID_X,
	EMU_NTID_Y,
	EMU_NTID_Z,
	EMU_CTAID_X,
	EMU_CTAID_Y,
	EMU_CTAID_Z,
	EMU_NCTAID_X,
	EMU_NCTAID_Y,
	EMU_NCTAID_Z,
	EMU_CLUSTERID_X,
	EMU_CLUSTERID_Y,
	EMU_CLUSTERID_Z,
	EMU_NCLUSTERID_X,
	EMU_NCLUSTERID_Y,
	EMU_NCLUSTERID_Z,
	EMU_CLUSTER_CTAID_X,
	EMU_CLUSTER_CTAID_Y,
	EMU_CLUSTER_CTAID_Z,
	EMU_CLUSTER_NCTAID_X,
	EMU_CLUSTER_NCTAID_Y,
	EMU_CLUSTER_NCTAID_Z,
	EMU_CLUSTER_CTARANK,
	EMU_CLUSTER_NCTARANK,
	EMU_LANEID,
	EMU_WARPID,
	EMU_NWARPID,
	EMU_SMID,
	EMU_NSMID,
	EMU_LANEMASK_EQ,
	EMU_LANEMASK_LT,
	EMU_LANEMASK_LE,
	EMU_LANEMASK_GT,
	EMU_LANEMASK_GE,
	EMU_DYNAMIC_SMEM_SIZE,
	EMU_TOTAL_SMEM_SIZE,
	EMU_CLOCK,
	EMU_ENVREG1, /* of a cooperative grid: the address of its workspace */
	EMU_ENVREG2,
	EMU_SHARED_BASE, /* the CTA's window: what symbols are added to */
	EMU_SPECIALS_32,
	EMU_SHARED_BASE_64 = EMU_SPECIALS_32, /* rows of 64 bits from here */
	EMU_PARAM_BASE,
	EMU_GRIDID,
	EMU_CLOCK64,
	EMU_GLOBALTIMER,
	EMU_SPECIALS
};

const char *emu_special_name(enum emu_special special);
uint32_t emu_special_row(enum emu_special special);
/* Where rows of the program's own registers begin. */
uint32_t emu_special_rows_bytes(void);

struct emu_parameter {
	char *name;
	uint32_t offset, bytes;
};

struct emu_kernel {
	char *name;
	struct emu_module *module;
	struct emu_instr *code;
	uint32_t count; /* of instructions; the last one is an exit */
	struct emu_parameter *parameters;
	uint32_t n_parameters, parameter_bytes;
	uint32_t register_bytes; /* of a warp, special ones included */
	uint8_t *constants;
	uint32_t shared_bytes; /* static */
	/* The static shared variables: offsets in the CTA's memory. */
	struct emu_parameter *shared;
	uint32_t n_shared;
	uint32_t dynamic_align;
	uint32_t local_bytes;
	uint32_t max_threads, required_threads[3], cluster[3];
	/* Of .minnctapersm and .maxnreg; 0: the kernel has none. */
	uint32_t min_ctas, max_registers;
	uint32_t cta_group; /* of all its tcgen05 instructions; 0: none */
	uint32_t line;
	char *refusal; /* why it cannot run: it has no code; else NULL */
};

struct emu_module {
	struct emu_arena *arena;
	struct emu_kernel **kernels;
	uint32_t n_kernels;
	char **files; /* names of .file; [0] is NULL */
	uint32_t n_files;
	/* Module variables: their initial bytes and their addresses. */
	struct emu_variable *variables;
	uint32_t n_variables;
	const char *target; /* "sm_90a" */
	uint64_t hash;	    /* of its text: 64-bit FNV-1a */
};

struct emu_variable {
	char *name;
	uint64_t bytes, align;
	uint8_t *initial; /* NULL: zeros */
	uint64_t address; /* in device memory, once the module is loaded */
	enum emu_state_space space;
};

/* Allocates device memory for a module variable; NULL if there is none. */
typedef uint64_t emu_place(void *context, const struct emu_variable *variable,
			   struct emu_error *err);
void emu_module_free(struct emu_module *module);
struct emu_kernel *emu_module_find(const struct emu_module *module, const char *name);

#endif
