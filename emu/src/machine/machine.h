/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h - the types of the machine (a grid has clusters, a cluster CTAs, a CTA
 * warps), and access to the rows of a warp's registers.  A warp that waits is in
 * one of the states of enum emu_wait.
 */
#ifndef EMU_MACHINE_H
#define EMU_MACHINE_H

#include "hardware/emu.h"
#include "machine/conditionals.h"
#include "machine/device.h"
#include "ptx/ptx.h"

#define EMU_BARRIERS   16
#define EMU_MAX_WARPS  32
#define EMU_NO_PC      UINT32_MAX
#define EMU_HEAP_BYTES (UINT64_C(8) << 20) /* CUDA's default */

struct emu_rule;

struct emu_path {
	uint32_t pc, lanes;
	bool is_blocked;  /* waits for the other lanes at pc */
	bool has_yielded; /* has polled without success: others go first */
};

enum emu_wait {
	EMU_RUNNABLE,
	EMU_AT_BARRIER,	      /* bar.sync; wait_address: its number */
	EMU_AT_CLUSTER,	      /* barrier.cluster.wait */
	EMU_AT_MBARRIER,      /* try_wait; wait_address: of the barrier */
	EMU_AT_GRID,	      /* griddepcontrol.wait */
	EMU_AT_REGISTERS,     /* setmaxnreg.inc */
	EMU_AT_TENSOR_MEMORY, /* tcgen05.alloc */
	EMU_AT_SERIAL_PHASE,  /* of the round: machine/parallel_phase.h */
	EMU_EXITED,
};

struct emu_warp {
	struct emu_cta *cta;
	const struct emu_instr *code;
	uint8_t *bank[EMU_BANKS];
	uint32_t index; /* in its CTA */
	uint32_t pc;	/* of the running path */
	uint32_t lanes;
	uint32_t carry; /* of each lane: add.cc and the like */
	uint32_t live;	/* lanes that have not exited */
	uint32_t begun; /* lanes that the CTA's size gives it */
	/* Paths that do not run now, and the smallest pc of those that could.
	 */
	struct emu_path paths[EMU_LANES];
	uint32_t n_paths, next_pc;
	enum emu_wait wait;
	/* With time, its clock.  Next to the wait, because both are read together. */
	double now, until;     /* until: its turn ends when now is later */
	uint64_t wait_address; /* shared::cluster address, or a number */
	uint32_t wait_parity;
	bool in_flight;	  /* registers of wgmma, tcgen05.ld are out of reach */
	bool must_yield;  /* ends its turn after this instruction */
	bool has_polled;  /* its turn ended with a load that may wait for others
			   */
	bool has_waited;  /* what it waited for has come: barriers */
	uint32_t yes, no; /* threads of that barrier, by their predicates */
	bool has_arrived; /* at the cluster's barrier, in this phase */
	uint32_t cluster_phase;
	uint32_t registers_each;      /* setmaxnreg */
	uint64_t instructions;	      /* of threads */
	struct emu_space local;	      /* of its lanes, one after the other */
	struct emu_async *async;      /* its own unfinished operations */
	char printed[200];	      /* by its last printf */
	struct emu_warp_clock *clock; /* NULL: no time */
};

struct emu_named_barrier {
	uint32_t expected, arrived; /* threads; expected 0: idle */
	uint32_t waiting;	    /* warps */
	uint32_t yes, no;	    /* threads that came with a predicate */
};

struct emu_cta {
	struct emu_cluster *cluster;
	struct emu_space shared;
	uint32_t rank; /* in the cluster */
	uint32_t id[3];
	uint32_t threads, n_warps, n_live;
	struct emu_warp *warps;
	struct emu_named_barrier barriers[EMU_BARRIERS];
	uint32_t register_pool;
	bool has_triggered;	     /* griddepcontrol.launch_dependents */
	struct emu_cta_clock *clock; /* NULL: no time */
	double earliest_at;	     /* of its warps, as in its cluster */
};

struct emu_cluster {
	struct emu_grid *grid;
	uint32_t index;
	uint32_t n_ctas, n_live; /* warps that live */
	struct emu_cta *ctas;
	uint32_t barrier_phase, barrier_arrived; /* threads */
	struct emu_transfers *transfers;
	struct emu_tensor *tensor;	     /* NULL: nothing of tcgen05 yet */
	struct emu_check *check;	     /* NULL: no checker */
	struct emu_cluster_context *context; /* machine/parallel_phase.h; or NULL */
	struct emu_cluster_clock *clock;     /* NULL: no time */
	struct emu_warp *earliest;	     /* with time: who runs next */
	double earliest_at;		     /* INFINITY: none */
};

struct emu_options {
	uint64_t seed;	   /* 0: everything at once and in order */
	uint64_t budget;   /* instructions of threads in a launch */
	uint32_t threads;  /* of the host */
	bool is_unchecked; /* no checker of the order of accesses */
	bool is_strict;	   /* also PTX's rules that kernels do without (check.h) */
	/* Tensor memory may be anywhere, as PTX allows, and not as on GPUs; operands
	 * must be as PTX has them. */
	bool is_anywhere;
	/* Reports after which a launch goes on; NULL: it goes on after none. */
	struct emu_findings *findings;
};

struct emu_machine {
	const struct emu_device *device; /* NULL: the default */
	struct emu_memory *memory;
	struct emu_space global;
	struct emu_options options;
	uint64_t random;
	uint64_t effects;	  /* counts what others can see: progress */
	uint64_t instructions;	  /* of threads */
	uint64_t clock;		  /* instructions of warps */
	struct emu_block *blocks; /* of warps that have ended */
	struct emu_order *order;  /* of what runs together; may be NULL */
	/* If clusters run separately: order is then that of this thread's cluster. */
	struct emu_races *races;
	uint32_t unwatched; /* bits of enum emu_unwatched (watch.h) */
	/* In a parallel phase (machine/parallel_phase.h); else NULL. */
	struct emu_order_reads *reads;
	struct emu_time *time;	   /* machine/time.h; NULL: no time */
	struct emu_prints *prints; /* machine/prints.h; NULL: not kept */
	/* malloc in kernels: the limit, 0 for the default, and what is allocated. */
	uint64_t heap_limit, heap_used;
	struct emu_textures *textures;	      /* hardware/texture.h; NULL: none */
	struct emu_conditionals conditionals; /* of graphs */
	bool has_failed;
	struct emu_error report;
	const struct emu_rule *report_rule; /* NULL: the report is complete */
	const char *report_kernel;	    /* its full name; NULL: the report has it */
};

struct emu_grid {
	struct emu_machine *machine;
	const struct emu_kernel *kernel;
	uint32_t grid[3], block[3], cluster[3];
	uint32_t dynamic_bytes;
	uint64_t parameters;	 /* in device memory */
	uint64_t workspace;	 /* likewise, of a cooperative grid, else 0 */
	struct emu_grid *before; /* griddepcontrol.wait; NULL: none */
	uint64_t id;
	bool is_cooperative;
	uint32_t resident; /* clusters that the GPU holds at once; 0: all */
	/* The scheduler's. */
	uint32_t n_clusters, begun, ended, triggered;
	/* Its place in the order of streams; NULL: that is not checked. */
	const struct emu_stream_work *work;
	uint32_t in_run;	     /* its number among the grids that run together */
	struct emu_traffic *traffic; /* NULL: not counted */
	/* With time, cycles: its end, and the last launch_dependents. */
	double time_end, time_trigger;
};

static inline struct emu_machine *emu_machine_of(const struct emu_warp *w)
{
	return w->cta->cluster->grid->machine;
}

static inline void *emu_row(const struct emu_warp *w, const struct emu_value *o)
{
	return w->bank[o->bank] + o->row;
}

/* A predicate operand's lanes. */
static inline uint32_t emu_lanes_of(const struct emu_warp *w, const struct emu_value *o)
{
	const uint32_t lanes = *(const uint32_t *)emu_row(w, o);

	return o->is_negated ? ~lanes : lanes;
}

static inline void emu_put_lanes(struct emu_warp *w, const struct emu_value *o,
				 uint32_t value, uint32_t lanes)
{
	uint32_t *to = emu_row(w, o);

	*to = (*to & ~lanes) | (value & lanes);
}

/* emu_put_16, _32, _64: a row's lanes. */
#define EMU_PUT(bits)                                                                  \
	static inline void emu_put_##bits(struct emu_warp *w,                          \
					  const struct emu_value *o,                   \
					  const uint##bits##_t *from, uint32_t lanes)  \
	{                                                                              \
		uint##bits##_t *to = emu_row(w, o);                                    \
                                                                                       \
		if (lanes == UINT32_MAX) {                                             \
			__builtin_memcpy(to, from, sizeof(*to) * EMU_LANES);           \
			return;                                                        \
		}                                                                      \
		for (int l = 0; l < EMU_LANES; l++)                                    \
			to[l] = lanes >> l & 1 ? from[l] : to[l];                      \
	}
EMU_PUT(16)
EMU_PUT(32)
EMU_PUT(64)
#undef EMU_PUT

#define EMU_EACH_LANE(l) for (int l = 0; l < EMU_LANES; l++)

/* Any integer register as 64 bits, zero-extended; 4-byte rows and 8-byte. */
static inline void emu_get_wide(const struct emu_warp *w, const struct emu_value *o,
				uint64_t *to)
{
	if (o->bytes == 8) {
		__builtin_memcpy(to, emu_row(w, o), 8 * EMU_LANES);
	} else if (o->bytes == 4) {
		const uint32_t *from = emu_row(w, o);

		EMU_EACH_LANE(l) to[l] = from[l];
	} else {
		const uint16_t *from = emu_row(w, o);

		EMU_EACH_LANE(l) to[l] = from[l];
	}
}

/* The reverse: 64 bits to any integer register, truncated. */
static inline void emu_put_wide(struct emu_warp *w, const struct emu_value *o,
				const uint64_t *from, uint32_t lanes)
{
	if (o->bytes == 8) {
		emu_put_64(w, o, from, lanes);
	} else if (o->bytes == 4) {
		uint32_t r[EMU_LANES];

		EMU_EACH_LANE(l) r[l] = (uint32_t)from[l];
		emu_put_32(w, o, r, lanes);
	} else {
		uint16_t r[EMU_LANES];

		EMU_EACH_LANE(l) r[l] = (uint16_t)from[l];
		emu_put_16(w, o, r, lanes);
	}
}

#endif
