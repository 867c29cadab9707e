/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tmem.c - the instructions of tensor memory: every shape of tcgen05.ld and .st
 * is compared with the place of each register in the PTX ISA's pictures.  Also every
 * shape of tcgen05.cp, allocation, and what is refused.
 */
#include <stdio.h>
#include <string.h>

#include "common/tcgen05.h"
#include "common/unit.h"
#include "hardware/tensor_memory.h"
#include "machine/findings.h"

/* Warp 0 allocates, and all get the address.  DEALLOC is for the same warp. */
#define ALLOC_COLUMNS(n)                                                               \
	".shared .align 8 .b32 base; .reg .pred %w;\n"                                 \
	"setp.ne.u32 %w, %warp, 0;\n"                                                  \
	"@%w bra A;\n"                                                                 \
	"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 "                     \
	"[base], " n ";\n"                                                             \
	"tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"                 \
	"A: bar.sync 0;\n"                                                             \
	"ld.shared.b32 %r1, [base];\n"
#define ALLOC ALLOC_COLUMNS("512")
#define DEALLOC                                                                        \
	"bar.sync 0;\n"                                                                \
	"@%w bra Z;\n"                                                                 \
	"tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 512;\n"                    \
	"Z:\n"
/* %r2: the first lane that the warp can access. */
#define MY_LANES "shl.b32 %r2, %warp, 21; add.u32 %r2, %r2, %r1;\n"

/* ---- ld and st ----------------------------------------------------------- */

static const struct {
	const char *name;
	enum emu_tmem_shape shape;
	uint32_t most; /* .xN */
} shapes[] = {
    {"32x32b", EMU_TMEM_32X32B, 128},	  {"16x64b", EMU_TMEM_16X64B, 128},
    {"16x128b", EMU_TMEM_16X128B, 64},	  {"16x256b", EMU_TMEM_16X256B, 32},
    {"16x32bx2", EMU_TMEM_16X32BX2, 128},
};

/*
 * The pictures of PTX ISA, "Data Movement Shape": the thread and the register that
 * have the element of a lane and column.
 */
static void owner_of(enum emu_tmem_shape shape, uint32_t lane, uint32_t column,
		     uint32_t split, uint32_t *thread, uint32_t *reg)
{
	switch (shape) {
	case EMU_TMEM_32X32B:
		*thread = lane;
		*reg = column;
		return;
	case EMU_TMEM_16X64B: /* rows 0-7: even threads, rows 8-15: odd ones */
		*thread = lane % 8 * 4 + column % 2 * 2 + lane / 8;
		*reg = column / 2;
		return;
	case EMU_TMEM_16X128B: /* as the halves of mma's A */
		*thread = lane % 8 * 4 + column % 4;
		*reg = column / 4 * 2 + lane / 8;
		return;
	case EMU_TMEM_16X256B: /* as mma's C */
		*thread = lane % 8 * 4 + column % 8 / 2;
		*reg = column / 8 * 4 + lane / 8 * 2 + column % 2;
		return;
	default:
		*thread = lane + (column >= split ? 16 : 0);
		*reg = column % split;
	}
}

/* A value for each lane and column of the CTA. */
static uint32_t mark(uint32_t lane, uint32_t column)
{
	return lane << 16 | (column + 1);
}

/* Four warps fill all lanes by 32x32b.x1, and then load by a shape. */
static void load_program(const char *name, uint32_t x, uint32_t registers,
			 uint32_t columns, uint32_t high_lanes, uint32_t split)
{
	emu_text[0] = 0;
	emu_add(ALLOC MY_LANES);
	emu_append(".reg .b32 %%x<%u>;\n", registers);
	emu_append("shl.b32 %%r3, %%tid, 16; mov.u32 %%r4, 0;\n"
		   "F: add.u32 %%r5, %%r2, %%r4; add.u32 %%r4, %%r4, 1;\n"
		   "add.u32 %%r6, %%r3, %%r4;\n"
		   "tcgen05.st.sync.aligned.32x32b.x1.b32 [%%r5], {%%r6};\n"
		   "setp.lt.u32 %%p1, %%r4, %u; @%%p1 bra F;\n"
		   "tcgen05.wait::st.sync.aligned;\n"
		   "tcgen05.ld.sync.aligned.%s.x%u.b32 ",
		   columns, name, x);
	emu_append_registers("x", registers);
	emu_append(", [%%r2+%u]", high_lanes << 16);
	if (split)
		emu_append(", %u", split);
	emu_append(";\ntcgen05.wait::ld.sync.aligned;\n"
		   "mul.wide.u32 %%d1, %%tid, %u; add.s64 %%d1, %%d1, %%out;\n",
		   4 * registers);
	for (uint32_t i = 0; i < registers; i++)
		emu_append("st.global.b32 [%%d1+%u], %%x%u;\n", 4 * i, i);
	emu_add(DEALLOC);
}

static void check_load(uint32_t which, uint32_t x, uint32_t high_lanes, uint64_t seed)
{
	static uint32_t out[128 * 128];
	const enum emu_tmem_shape shape = shapes[which].shape;
	const uint32_t registers = emu_tmem_shape_registers(shape) * x;
	const uint32_t split = shape == EMU_TMEM_16X32BX2 ? x + 3 : 0;
	const uint32_t columns = emu_tmem_shape_columns(shape) * x + split;
	struct emu_job job = {.target = TCGEN05_TARGET,
			      .out = out,
			      .out_bytes = 128 * 4 * (size_t)registers,
			      .block = 128,
			      .seed = seed};

	load_program(shapes[which].name, x, registers, columns, high_lanes, split);
	emu_must_run(emu_text, &job);
	for (uint32_t lane = 0; lane < 128; lane++)
		for (uint32_t c = 0; c < columns; c++) {
			const uint32_t high = split ? split : columns;
			const uint32_t in_shape = lane % 32 - high_lanes;
			uint32_t thread = 0, reg = 0;

			if (in_shape >= emu_tmem_shape_lanes(shape) ||
			    (split && c % high >= x))
				continue;
			owner_of(shape, in_shape, c, high, &thread, &reg);
			thread += lane / 32 * 32;
			if (out[thread * registers + reg] != mark(lane, c))
				fail_msg("%s.x%u: lane %u, column %u: %08x",
					 shapes[which].name, x, lane, c,
					 out[thread * registers + reg]);
		}
}

static void test_loads(void **state)
{
	for (uint32_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++)
		for (uint32_t x = 1; x <= shapes[s].most; x *= 2) {
			check_load(s, x, 0, 0);
			check_load(s, x, s ? 16 : 0, 3 + x);
		}
}

/* A shape loads what the same shape stores; also with packed halves. */
static void check_store(uint32_t which, uint32_t x, bool packs, uint64_t seed)
{
	static uint32_t in[128 * 128], out[128 * 128];
	const enum emu_tmem_shape shape = shapes[which].shape;
	const uint32_t registers = emu_tmem_shape_registers(shape) * x;
	struct emu_job job = {.target = TCGEN05_TARGET,
			      .in = in,
			      .in_bytes = 128 * 4 * (size_t)registers,
			      .out = out,
			      .out_bytes = 128 * 4 * (size_t)registers,
			      .block = 128,
			      .seed = seed};

	for (uint32_t i = 0; i < 128 * registers; i++)
		in[i] = emu_test_random();
	emu_text[0] = 0;
	emu_add(ALLOC MY_LANES);
	emu_append(".reg .b32 %%x<%u>;\n", registers);
	emu_append("mul.wide.u32 %%d1, %%tid, %u; add.s64 %%d2, %%d1, %%in;\n"
		   "add.s64 %%d1, %%d1, %%out;\n",
		   4 * registers);
	for (uint32_t i = 0; i < registers; i++)
		emu_append("ld.global.b32 %%x%u, [%%d2+%u];\n", i, 4 * i);
	emu_append("tcgen05.st.sync.aligned.%s.x%u%s.b32 [%%r2], ", shapes[which].name,
		   x, packs ? ".unpack::16b" : "");
	emu_append(shape == EMU_TMEM_16X32BX2 ? "128, " : "");
	emu_append_registers("x", registers);
	emu_append(";\ntcgen05.wait::st.sync.aligned;\n");
	for (uint32_t i = 0; i < registers; i++)
		emu_append("mov.b32 %%x%u, 0;\n", i);
	emu_append("tcgen05.ld.sync.aligned.%s.x%u%s.b32 ", shapes[which].name, x,
		   packs ? ".pack::16b" : "");
	emu_append_registers("x", registers);
	emu_append(", [%%r2]%s;\ntcgen05.wait::ld.sync.aligned;\n",
		   shape == EMU_TMEM_16X32BX2 ? ", 128" : "");
	for (uint32_t i = 0; i < registers; i++)
		emu_append("st.global.b32 [%%d1+%u], %%x%u;\n", 4 * i, i);
	emu_add(DEALLOC);
	emu_must_run(emu_text, &job);
	assert_memory_equal(in, out, job.out_bytes);
}

static void test_stores(void **state)
{
	for (uint32_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++)
		for (uint32_t x = 1; x <= shapes[s].most; x *= 4) {
			check_store(s, x, false, 0);
			check_store(s, x, false, 5);
			check_store(s, x, x <= 32, 6);
		}
}

/* ---- cp ------------------------------------------------------------------ */

static const struct {
	const char *name;
	uint32_t rows, row_bytes, copies;
	uint32_t lane_of_row[4]; /* of row 0 in each copy */
	uint32_t second;	 /* lane of row 32, copy 0 */
} copies[] = {
    {"128x256b", 128, 32, 1, {0}, 32},
    {"128x128b", 128, 16, 1, {0}, 32},
    {"64x128b.warpx2::02_13", 64, 16, 2, {0, 64}, 32},
    {"64x128b.warpx2::01_23", 64, 16, 2, {0, 32}, 64},
    {"32x128b.warpx4", 32, 16, 4, {0, 32, 64, 96}, 0},
};

#define INIT_BARRIER                                                                   \
	".shared .align 8 .b64 bar;\n"                                                 \
	"setp.ne.u32 %p7, %tid, 0;\n"                                                  \
	"@!%p7 mbarrier.init.shared::cta.b64 [bar], 1;\n"
#define COMMIT                                                                         \
	"@!%p7 tcgen05.commit.cta_group::1.mbarrier::arrive::one"                      \
	".shared::cluster.b64 [bar];\n"                                                \
	"C: mbarrier.try_wait.parity.shared::cta.b64 %p6, [bar], 0;\n"                 \
	"@!%p6 bra C;\n"                                                               \
	"tcgen05.fence::after_thread_sync;\n"

/* Rows of 8, pieces of 16 bytes: without a swizzle, strides of their own. */
static void check_copy(uint32_t which, uint64_t seed)
{
	static uint8_t in[4096];
	static uint32_t out[128 * 8];
	const uint32_t row_bytes = copies[which].row_bytes;
	const uint32_t columns = row_bytes / 4;
	struct emu_job job = {.target = TCGEN05_TARGET,
			      .in = in,
			      .in_bytes = sizeof(in),
			      .out = out,
			      .out_bytes = 128 * 4 * (size_t)columns,
			      .block = 128,
			      .shared_bytes = 8192,
			      .seed = seed};

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (uint8_t)emu_test_random();
	emu_text[0] = 0;
	/* Each thread writes 32 bytes: rows of 8 of 16 bytes, 128 apart; the
	 * second pieces 2048 bytes after the first. */
	emu_add(ALLOC INIT_BARRIER MY_LANES);
	emu_append(".reg .b32 %%x<8>;\n"
		   "shl.b32 %%r3, %%tid, 4; cvt.u64.u32 %%d1, %%r3;\n"
		   "add.s64 %%d1, %%d1, %%in; mov.u32 %%r4, dynamic;\n"
		   "add.u32 %%r5, %%r4, %%r3;\n"
		   "ld.global.v4.b32 {%%x0,%%x1,%%x2,%%x3}, [%%d1];\n"
		   "st.shared.v4.b32 [%%r5], {%%x0,%%x1,%%x2,%%x3};\n"
		   "ld.global.v4.b32 {%%x0,%%x1,%%x2,%%x3}, [%%d1+2048];\n"
		   "st.shared.v4.b32 [%%r5+2048], {%%x0,%%x1,%%x2,%%x3};\n"
		   "fence.proxy.async.shared::cta;\nbar.sync 0;\n"
		   "shr.u32 %%r4, %%r4, 4; cvt.u64.u32 %%d2, %%r4;\n"
		   "or.b64 %%d2, %%d2, 0x%llx;\n"
		   "@!%%p7 tcgen05.cp.cta_group::1.%s [%%r1+4], %%d2;\n",
		   (unsigned long long)(UINT64_C(1) << 46 | (uint64_t)(128 >> 4) << 32 |
					(uint64_t)(2048 >> 4) << 16),
		   copies[which].name);
	emu_add(COMMIT);
	emu_append("tcgen05.ld.sync.aligned.32x32b.x%u.b32 ", columns);
	emu_append_registers("x", columns);
	emu_append(", [%%r2+4];\ntcgen05.wait::ld.sync.aligned;\n"
		   "mul.wide.u32 %%d1, %%tid, %u; add.s64 %%d1, %%d1, %%out;\n",
		   4 * columns);
	for (uint32_t i = 0; i < columns; i++)
		emu_append("st.global.b32 [%%d1+%u], %%x%u;\n", 4 * i, i);
	emu_add(DEALLOC);
	emu_must_run(emu_text, &job);
	for (uint32_t row = 0; row < copies[which].rows; row++)
		for (uint32_t c = 0; c < copies[which].copies; c++) {
			const uint32_t lane =
			    copies[which].lane_of_row[c] + row % 32 +
			    (copies[which].second ? row / 32 * copies[which].second
						  : 0);

			for (uint32_t b = 0; b < row_bytes; b++)
				assert_int_equal(
				    ((const uint8_t *)out)[lane * row_bytes + b],
				    in[b / 16 * 2048 + row * 16 + b % 16]);
		}
}

static void test_copies(void **state)
{
	for (uint32_t s = 0; s < sizeof(copies) / sizeof(*copies); s++)
		for (uint64_t seed = 0; seed < 4; seed++)
			check_copy(s, seed);
}

/* ---- what must not be ---------------------------------------------------- */

static void bad_in(bool is_strict, const char *body, const char *first,
		   const char *second)
{
	uint32_t out[128];
	struct emu_job job = {.target = TCGEN05_TARGET,
			      .out = out,
			      .out_bytes = sizeof(out),
			      .block = 128,
			      .shared_bytes = 1024,
			      .is_strict = is_strict};

	emu_must_fail(body, &job, first, second, NULL);
}

static void bad(const char *body, const char *first, const char *second)
{
	bad_in(false, body, first, second);
}

#define LD1(address)                                                                   \
	"tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r9}, [" address "];\n"                \
	"tcgen05.wait::ld.sync.aligned;\n"
#define ST1(address)                                                                   \
	"tcgen05.st.sync.aligned.32x32b.x1.b32 [" address "], {%r1};\n"                \
	"tcgen05.wait::st.sync.aligned;\n"
#define DEALLOC_N(n) "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, " n ";\n"
#define ALLOC_N(n)                                                                     \
	"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [base], " n ";\n"
#define ONE_WARP "setp.ne.u32 %p1, %warp, 0; @%p1 exit;\n"
#define BASE	 ".shared .align 4 .b32 base;\n"
#define STORE_BASE                                                                     \
	"ld.shared.b32 %r1, [base];\n"                                                 \
	"mul.wide.u32 %d2, %lane, 4; add.s64 %d2, %d2, %out;\n"                        \
	"st.global.b32 [%d2], %r1;\n" DEALLOC_N("32")

static void test_lifecycle(void **state)
{
	bad(ALLOC, "has 512 columns of tensor memory", "dealloc is missing");
	bad(ALLOC DEALLOC ONE_WARP DEALLOC_N("512"), "no allocation begins",
	    "tcgen05.dealloc");
	bad(ONE_WARP BASE ALLOC_N("64") "ld.shared.b32 %r1, [base];\n" DEALLOC_N("32"),
	    "32 columns at 0x00000000", "allocation of 64");
	bad(ONE_WARP BASE ALLOC_N("64") "mov.u32 %r1, 32;\n" DEALLOC_N("32"),
	    "no allocation begins at 0x00000020", "tcgen05.dealloc");
	bad(ONE_WARP BASE ALLOC_N("48"), "48 columns", "power of two");
	bad(ONE_WARP BASE ALLOC_N("16"), "16 columns", "power of two");
	bad(ONE_WARP BASE ALLOC_N("1024"), "1024 columns", "power of two");
	bad(ONE_WARP BASE ALLOC_N("32") ALLOC_N("64"), "64 columns after 32",
	    "may not grow");
	bad(ALLOC ONE_WARP ALLOC_N("32"), "relinquish_alloc_permit", "tcgen05.alloc");
	bad(ONE_WARP BASE ALLOC_N("512") ALLOC_N("512"), "deadlock",
	    "for tensor memory");
	bad("tcgen05.alloc.cta_group::1.sync.aligned.b32 [%out], 32;\n",
	    "tcgen05.alloc", "k, cluster 0");
	bad(BASE "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 "
		 "[base], 32;\n",
	    "cta_group::2 in a cluster of 1", "no other one");
	/* The address is not waited for. */
	bad(".shared .align 4 .b32 base; setp.ne.u32 %p1, %warp, 1;\n"
	    "@%p1 bra A;\n" ALLOC_N("32") "A: ld.shared.b32 %r1, [base];\n",
	    "never written", "ld");
}

/* A GPU gives column 0 first, and kernels rely on it.  PTX does not promise it. */
static void test_first_column(void **state)
{
	uint32_t elsewhere = 0;

	for (int generic = 0; generic < 2; generic++)
		for (uint64_t seed = 0; seed < 20; seed++) {
			uint32_t out[32];
			struct emu_job job = {.target = TCGEN05_TARGET,
					      .out = out,
					      .out_bytes = sizeof(out),
					      .seed = seed};
			const char *body = generic ? BASE
					       "mov.u64 %d1, base;\n"
					       "cvta.shared.u64 %d1, %d1;\n"
					       "tcgen05.alloc.cta_group::1.sync.aligned"
					       ".b32 [%d1], 32;\n" STORE_BASE
						   : BASE ALLOC_N("32") STORE_BASE;

			emu_must_run(body, &job);
			assert_int_equal(out[31], 0);
			job.is_strict = true;
			emu_must_run(body, &job);
			elsewhere += out[31] != 0;
		}
	assert_true(elsewhere > 20);
}

static void test_accesses(void **state)
{
	bad(ONE_WARP LD1("0"), "column 0 is not allocated", "tcgen05.ld");
	bad(ALLOC_COLUMNS("32") MY_LANES "add.u32 %r2, %r2, 32;\n" ST1("%r2"),
	    "column 32 is not allocated", "tcgen05.st");
	bad_in(true, ALLOC ONE_WARP "add.u32 %r1, %r1, 0x200000;\n" LD1("%r1"),
	       "warp 0 reaches lanes 0 to 31", "lane 32");
	bad(ALLOC MY_LANES LD1("%r2"), "never written", "lane 0");
	bad(ALLOC MY_LANES
	    "tcgen05.ld.sync.aligned.16x64b.x1.b32 {%r9}, [%r2+524288];\n",
	    "this shape", "multiple of 16");
	bad(ALLOC MY_LANES ST1("%r2") "tcgen05.ld.sync.aligned.32x32b.x2.b32 "
				      "{%r9, %r10}, [%r2+511];\n",
	    "columns 511 to 512", "there are 512");
	bad(ALLOC MY_LANES ST1("%r2") "tcgen05.ld.sync.aligned.32x32b.x1.b32 "
				      "{%r9}, [%r2];\nadd.u32 %r10, %r9, 1;\n",
	    "result of a tcgen05.ld", "add");
	bad(ALLOC MY_LANES ST1("%r2") "tcgen05.ld.sync.aligned.32x32b.x1.b32 "
				      "{%r9}, [%r2];\nmov.u32 %r9, 1;\n",
	    "result of a tcgen05.ld", "mov");
	bad(ALLOC MY_LANES "add.u32 %r2, %r2, %lane;\n" ST1("%r2"),
	    "the address differs between lanes", "tcgen05.st");
	/* Lanes that have left. */
	bad(ALLOC MY_LANES "setp.eq.u32 %p1, %lane, 3; @%p1 exit;\n" ST1("%r2"),
	    "lanes of the warp have exited", "tcgen05.st");
}

/* The address of an allocation, passed on by a barrier that releases nothing. */
static void test_relaxed_barrier(void **state)
{
	uint32_t out[64];
	struct emu_job job = {.target = TCGEN05_TARGET,
			      .out = out,
			      .out_bytes = sizeof(out),
			      .block = 64};
	const char *body = ".shared .align 8 .b32 base; .reg .pred %w;\n"
			   "setp.ne.u32 %w, %warp, 0;\n@%w bra A;\n"
			   "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 "
			   "[base], 512;\n"
			   "A: barrier.cluster.arrive.relaxed.aligned;\n"
			   "barrier.cluster.wait.acquire.aligned;\n"
			   "ld.shared.b32 %r1, [base];\n" DEALLOC;

	for (job.seed = 0; job.seed < 10; job.seed++) {
		job.is_strict = job.seed % 2;
		emu_text[0] = 0;
		emu_add(body);
		if (job.is_strict)
			emu_must_fail(emu_text, &job, "load of shared memory",
				      "warp 0 of CTA rank 0 wrote it", NULL);
		else
			emu_must_run(emu_text, &job);
	}
}

/*
 * A use of a result without a wait::ld, waived: the load is over then, as on a
 * GPU, and the warp that gives the columns back needs no wait of the others.
 */
static void test_waived_results(void **state)
{
	static const char *const use =
	    "add.u32 %r9, %r9, 1;\nmul.wide.u32 %d1, %tid, 4;\n"
	    "add.s64 %d1, %d1, %out;\nst.global.b32 [%d1], %r9;\n";
	uint32_t out[64];
	struct emu_error err;
	struct emu_job job = {.target = TCGEN05_TARGET,
			      .out = out,
			      .out_bytes = sizeof(out),
			      .block = 64};

	for (job.seed = 0; job.seed < 10; job.seed++) {
		const bool is_used = job.seed % 2;

		job.findings = emu_findings_open("tcgen05-ld-result", false, &err);
		assert_non_null(job.findings);
		emu_text[0] = 0;
		emu_add(ALLOC MY_LANES
			"tcgen05.st.sync.aligned.32x32b.x1.b32 [%r2], {%tid};\n"
			"tcgen05.wait::st.sync.aligned;\n"
			"tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r9}, "
			"[%r2];\n");
		emu_add(is_used ? use : "");
		emu_add(DEALLOC);
		if (is_used)
			emu_must_run(emu_text, &job);
		else
			emu_must_fail(emu_text, &job, "tcgen05.dealloc",
				      "tcgen05.wait::ld", NULL);
		for (uint32_t k = 0; is_used && k < 64; k++)
			assert_int_equal(out[k], k + 1);
		emu_findings_close(job.findings);
	}
}

/*
 * A use above the wait of its basic block, where compilers move it, is reported only in
 * the strict mode; above a wait of another block it is always reported.
 */
static void test_results_before_the_wait(void **state)
{
	static const char *const use = "add.u32 %r9, %r9, 1;\n";
	static const char *const wait = "tcgen05.wait::ld.sync.aligned;\n";
	uint32_t out[64];
	struct emu_job job = {.target = TCGEN05_TARGET,
			      .out = out,
			      .out_bytes = sizeof(out),
			      .block = 64};

	for (int i = 0; i < 40; i++) {
		const bool is_other_block = i % 2;

		job.is_strict = i / 2 % 2;
		job.seed = (uint64_t)i / 4;
		emu_text[0] = 0;
		emu_add(ALLOC MY_LANES
			"tcgen05.st.sync.aligned.32x32b.x1.b32 [%r2], {%tid};\n"
			"tcgen05.wait::st.sync.aligned;\n"
			"tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r9}, [%r2];\n");
		emu_add(use);
		emu_add(is_other_block ? "bra NEXT;\nNEXT:\n" : "");
		emu_add(wait);
		emu_add("mul.wide.u32 %d1, %tid, 4;\nadd.s64 %d1, %d1, %out;\n"
			"st.global.b32 [%d1], %r9;\n" DEALLOC);
		if (job.is_strict || is_other_block) {
			emu_must_fail(emu_text, &job, "add: operand",
				      "is a result of a tcgen05.ld", NULL);
			continue;
		}
		emu_must_run(emu_text, &job);
		for (uint32_t k = 0; k < 64; k++)
			assert_int_equal(out[k], k + 1);
	}
}

static const struct {
	const char *text, *why;
} refused_words[] = {
    {"tcgen05.alloc.sync.aligned.shared::cta.b32 [dynamic], 32;\n",
     ".cta_group::1 or .cta_group::2"},
    {"tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned; "
     "tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;\n",
     "the other .cta_group"},
    {"tcgen05.relinquish_alloc_permit.cta_group::1;\n", ".sync.aligned is missing"},
    {"tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1}, [%r2];\n", "1 registers, not 2"},
    {"tcgen05.ld.sync.aligned.32x32b.b32 {%r1}, [%r2];\n", "one shape and one of"},
    {"tcgen05.ld.sync.aligned.16x256b.x64.b32 {%r1}, [%r2];\n",
     "256 registers, at most 128"},
    {"tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%d2];\n", "has 32 bits"},
    {"tcgen05.ld.sync.aligned.64x32b.x1.b32 {%r1}, [%r2];\n",
     ".64x32b is not known here"},
    {"tcgen05.cp.cta_group::1.32x128b [%r1], %d1;\n", ".warpx4"},
    {"tcgen05.cp.cta_group::1.64x128b [%r1], %d1;\n", "warpx2::02_13"},
    {"tcgen05.cp.cta_group::1.128x256b.b8x16.b4x16_p64 [%r1], %d1;\n",
     ".b8x16 is not known here"},
    {"tcgen05.shift.cta_group::1.down [%r1];\n", "not known here"},
    {"tcgen05.mma.cta_group::1.kind::f4 [%r1], %d1, %d2, %r2, %p1;\n",
     ".kind::f4 is not known here"},
    {"tcgen05.mma.cta_group::1 [%r1], %d1, %d2, %r2, %p1;\n", "one .kind"},
    {"tcgen05.mma.cta_group::1.kind::i8.block_scale [%r1], %d1, %d2, "
     "%r2, %p1;\n",
     "kind::i8 has no scales"},
    {"tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::4X "
     "[%r1], %d1, %d2, %r2, [%r3], [%r4], %p1;\n",
     "kind::mxf4 has scale_vec::2X"},
    {"tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale "
     "[%r1], %d1, %d2, %r2, [%r3], [%r4], %p1;\n",
     "must say which"},
    {"tcgen05.mma.cta_group::1.kind::mxf4nvf4.block16 "
     "[%r1], %d1, %d2, %r2, [%r3], [%r4], %p1;\n",
     ".block_scale is missing"},
    {"tcgen05.mma.cta_group::2.kind::f16 [%r1], %d1, %d2, %r2, "
     "{%r3,%r4,%r5,%r6}, %p1;\n",
     "disable-output-lane has 8 registers, not 4"},
    {"tcgen05.mma.cta_group::1.kind::i8 [%r1], %d1, %d2, %r2, %p1, 1;\n",
     "kind::i8 has no scale-input-d"},
    {"tcgen05.mma.cta_group::1.kind::f16 [%r1], %d1, %d2, %r2, %p1, 16;\n", "0 to 15"},
    {"tcgen05.commit.cta_group::1.shared::cluster.b64 [%r1];\n",
     "mbarrier::arrive::one"},
    {"wgmma.fence.sync.aligned;\n", "needs .target sm_90a"},
};

static void test_words(void **state)
{
	for (size_t i = 0; i < sizeof(refused_words) / sizeof(*refused_words); i++) {
		struct emu_job job = {.target = TCGEN05_TARGET};

		emu_must_fail(refused_words[i].text, &job, "PTX line 20",
			      refused_words[i].why, NULL);
	}
	for (size_t i = 0; i < 2; i++) {
		struct emu_job job = {.target = i ? "sm_90a" : "sm_100"};

		emu_must_fail("tcgen05.wait::ld.sync.aligned;\n", &job,
			      "needs .target sm_100a or sm_100f", NULL);
	}
}

/* The address goes to a generic address of shared memory, with the space's word
 * and without. */
static void test_generic_addresses(void **state)
{
	for (int i = 0; i < 2; i++) {
		char body[512];
		uint32_t out[1];
		struct emu_job job = {.target = TCGEN05_TARGET,
				      .out = out,
				      .out_bytes = sizeof(out),
				      .shared_bytes = 64};

		snprintf(body, sizeof(body),
			 "mov.u32 %%r1, dynamic;\ncvt.u64.u32 %%d1, %%r1;\n"
			 "cvta.shared.u64 %%d2, %%d1;\n"
			 "tcgen05.alloc.cta_group::1.sync.aligned%s.b32 "
			 "[%%d2], 64;\nld.shared.u32 %%r2, [%%r1];\n"
			 "setp.eq.u32 %%p1, %%lane, 0;\n"
			 "@%%p1 st.global.u32 [%%out], %%r2;\n"
			 "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %%r2, "
			 "64;\n",
			 i ? ".shared::cta" : "");
		emu_must_run(body, &job);
		assert_true(out[0] <= 512 - 64);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_loads),
	    cmocka_unit_test(test_stores),
	    cmocka_unit_test(test_copies),
	    cmocka_unit_test(test_lifecycle),
	    cmocka_unit_test(test_first_column),
	    cmocka_unit_test(test_accesses),
	    cmocka_unit_test(test_waived_results),
	    cmocka_unit_test(test_results_before_the_wait),
	    cmocka_unit_test(test_relaxed_barrier),
	    cmocka_unit_test(test_words),
	    cmocka_unit_test(test_generic_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
