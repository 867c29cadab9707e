/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_umma_faults.c - tcgen05.mma, .cp and .commit that break a rule about
 * descriptors, tensor memory, the issuing thread, or order.
 */
#include <stdlib.h>
#include <string.h>

#include "common/tcgen05.h"
#include "common/unit.h"

#define MMA_OF(group, d, a, b, idesc, sfa, sfb, p)                                     \
	"tcgen05.mma.cta_group::" group ".kind::mxf4nvf4.block_scale.block16 [" d      \
	"], " a ", " b ", " idesc ", [" sfa "], [" sfb "], " p ";\n"
#define MMA "@%one " MMA_OF("1", "%r3", "%d2", "%d3", "%r8", "%r11", "%r12", "%p3")
#define CP  "@%one tcgen05.cp.cta_group::1.32x128b.warpx4 [%r11], %d6;\n"
#define COMMIT                                                                         \
	"@%one tcgen05.commit.cta_group::1.mbarrier::arrive::one"                      \
	".shared::cluster.b64 [bar];\n"
#define WAIT                                                                           \
	"W: mbarrier.try_wait.parity.shared::cta.b64 %p5, [bar], 0;\n"                 \
	"@!%p5 bra W;\n"
#define AFTER "tcgen05.fence::after_thread_sync;\n"
#define LOAD                                                                           \
	"tcgen05.ld.sync.aligned.32x32b.x1.b32 {%x0}, [%r7];\n"                        \
	"tcgen05.wait::ld.sync.aligned;\n"
#define END                                                                            \
	"barrier.cluster.arrive.release.aligned;\n"                                    \
	"barrier.cluster.wait.acquire.aligned;\n@%w bra Z;\n"                          \
	"tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 512;\nZ:\n"

static struct input *in;
static uint32_t out[128];

/* A and B of ones, all scales 1; %d6: the scales' bytes in shared memory. */
static void begin(int ctas)
{
	emu_text[0] = 0;
	emu_bring(ctas);
	emu_append("mov.u32 %%r10, dynamic; shr.u32 %%r10, %%r10, 4;\n"
		   "cvt.u64.u32 %%d4, %%r10; add.s64 %%d2, %%d4, 0x%llx;\n"
		   "add.s64 %%d3, %%d2, 0x%x; mov.u32 %%r8, 0x%x;\n"
		   "add.s64 %%d6, %%d4, 0x400800000000;\n"
		   "add.u32 %%r11, %%r3, 256; add.u32 %%r12, %%r3, 260;\n"
		   "mov.pred %%p3, 0; mov.u32 %%r14, dynamic;\n",
		   6ull << 61 | 1ull << 46 | 16ull << 32, IMAGE / 2 / 16,
		   ctas == 2 ? 0x10040480 : 0x08020480);
}

static struct emu_job job_of(int ctas, uint64_t seed, bool is_strict)
{
	struct emu_job job = emu_tcgen05_job(ctas);

	job.in = in;
	job.in_bytes = 2 * sizeof(*in);
	job.out = out;
	job.out_bytes = sizeof(out);
	job.seed = seed;
	job.is_strict = is_strict;
	return job;
}

static int setup(void **state)
{
	in = calloc(2, sizeof(*in));
	for (int cta = 0; in && cta < 2; cta++) {
		memset(in[cta].image, 0x22, IMAGE);
		memset(in[cta].tmem, 0x38, sizeof(in[cta].tmem));
	}
	return in ? 0 : -1;
}

static int teardown(void **state)
{
	free(in);
	return 0;
}

/* Must be reported on each of three schedules. */
static void bad(const char *body, const char *first, const char *second)
{
	for (uint64_t seed = 0; seed < 3; seed++) {
		struct emu_job job = job_of(1, seed, false);

		begin(1);
		emu_add(body);
		emu_must_fail(emu_text, &job, first, second, NULL);
	}
}

/* Only by PTX's order. */
static void bad_strictly(const char *body, const char *first, const char *second)
{
	for (uint64_t seed = 0; seed < 3; seed++) {
		struct emu_job job = job_of(1, seed, true);

		begin(1);
		emu_add(body);
		emu_must_fail(emu_text, &job, first, second, NULL);
		job.is_strict = false;
		emu_must_run(emu_text, &job);
	}
}

static void good(const char *body)
{
	for (uint64_t seed = 0; seed < 6; seed++) {
		struct emu_job job = job_of(1, seed, seed % 2);

		begin(1);
		emu_add(body);
		emu_must_run(emu_text, &job);
	}
}

/* ---- the instruction ----------------------------------------------------- */

static void test_operands(void **state)
{
	good(MMA COMMIT WAIT AFTER LOAD END);
	bad("add.u32 %r8, %r8, 1;\n" MMA COMMIT END, "reserved bits", "lane 0");
	bad("mov.u32 %r8, 0x10020480;\n" MMA END, "M 256", "tcgen05.mma");
	bad("mov.b64 %d2, 0;\n" MMA END, "A: matrix descriptor", "bits 46 to 48");
	bad("mov.b64 %d3, -1;\n" MMA END, "B: matrix descriptor", "bits 14");
	bad("add.s64 %d2, %d2, 0x2000;\n" MMA COMMIT WAIT END, "shared memory offset",
	    "these bytes are not allocated");
	bad("add.u32 %r3, %r3, 508;\n" MMA END, "columns 508 to 515", "there are 512");
	bad("add.u32 %r3, %r3, 0x100000;\n" MMA END, "D at lane 16", "begins at 0");
	bad("add.u32 %r11, %r11, 0x200000;\n" MMA END, "scales at lanes 32", "not 0");
	bad("add.u32 %r12, %r12, 1;\n" MMA END, "scales of B at column",
	    "multiple of 2");
	bad("mov.pred %p3, 1; add.u32 %r3, %r3, 300;\n" MMA COMMIT WAIT END,
	    "never written", "it adds to tensor memory");
	bad(MMA_OF("1", "%r3", "%d2", "%d3", "%r8", "%r11", "%r12", "%p3") END,
	    "lanes ffffffff", "one thread issues it");
	bad("@%one tcgen05.cp.cta_group::1.32x128b.warpx4 [%r11+65536], %d6;\n" END,
	    "lane 1", "begins at 0");
	bad("@%one tcgen05.cp.cta_group::1.128x128b [%r11], %d2;\n"
	    "@%one tcgen05.cp.cta_group::1.4x256b [%r11+2097152], %d2;\n" END,
	    "lane 32", "0 to 31");
	bad("mov.u16 %m, 2;\n"
	    "@%one tcgen05.commit.cta_group::1.mbarrier::arrive::one"
	    ".shared::cluster.multicast::cluster.b64 [bar], %m;\n" END,
	    "mask 0002", "cluster of 1");
	bad("@%one tcgen05.commit.cta_group::1.mbarrier::arrive::one"
	    ".shared::cluster.b64 [base];\n" END,
	    "mbarrier", "tcgen05.commit");
}

/* Undefined rows give NaN, so that they cannot be stored as numbers. */
static void test_undefined(void **state)
{
	struct emu_job job = job_of(1, 1, false);

	begin(1);
	emu_add("add.u32 %r12, %r3, 280;\n" MMA COMMIT WAIT AFTER LOAD
		"mul.wide.u32 %d1, %tid, 4; add.s64 %d1, %d1, %out;\n"
		"st.global.b32 [%d1], %x0;\n" END);
	emu_must_run(emu_text, &job);
	for (int i = 0; i < 128; i++)
		assert_int_equal(out[i], 0x7FFFFFFF);
}

static void test_pairs(void **state)
{
	static const struct {
		const char *body, *why;
	} cases[] = {
	    {"mov.u32 %r20, %cluster_ctarank; setp.eq.u32 %p4, %r20, 1;\n"
	     "setp.ne.u32 %p5, %tid, 0; @%p5 bra E; @!%p4 bra E;\n" MMA_OF(
		 "2", "%r3", "%d2", "%d3", "%r8", "%r11", "%r12",
		 "%p3") "E: bar.sync 0;\n",
	     "the even CTA of a pair issues it"},
	    {"@%one " MMA_OF("2", "%r3", "%d2", "%d3", "0x08040480", "%r11", "%r12",
			     "%p3"),
	     "M 128"},
	    /* The other CTA leaves before the multiplication has ended. */
	    {"@%one " MMA_OF("2", "%r3", "%d2", "%d3", "%r8", "%r11", "%r12",
			     "%p3") "@%w bra Z;\n"
				    "tcgen05.dealloc.cta_group::2.sync.aligned"
				    ".b32 %r3, 512;\nZ: bar.sync 0;\n",
	     "tensor memory"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (uint64_t seed = 0; seed < 3; seed++) {
			struct emu_job job = job_of(2, seed, false);

			begin(2);
			emu_add(cases[i].body);
			emu_must_fail(emu_text, &job, cases[i].why, NULL);
		}
}

/* ---- order --------------------------------------------------------------- */

#define STORE "@!%w st.shared.b32 [%r14+16], %r14;\n"
#define SYNC  "bar.sync 0;\n"

static void test_order(void **state)
{
	/* Written by threads, and no proxy fence. */
	bad(STORE SYNC MMA COMMIT WAIT END, "no fence.proxy.async",
	    "the tensor core reads shared memory");
	good(STORE "fence.proxy.async.shared::cta;\n" SYNC MMA COMMIT WAIT AFTER END);
	bad("@!%w st.shared.b32 [%r14], %r14;\n" SYNC CP COMMIT WAIT END,
	    "no fence.proxy.async", "tcgen05.cp");
	/* Overwritten while it may be read. */
	bad(MMA STORE COMMIT WAIT END, "tcgen05.mma or .cp of warp 0",
	    "a later tcgen05.commit must be waited for");
	bad(MMA COMMIT STORE WAIT END, "store to shared memory", "tcgen05.commit");
	good(MMA COMMIT WAIT STORE END);
	/* Results that are not complete yet. */
	bad(MMA LOAD COMMIT WAIT END, "tensor memory", "tcgen05.ld");
	bad(MMA COMMIT LOAD WAIT END, "tensor memory", "tcgen05.ld");
	bad(MMA COMMIT AFTER LOAD WAIT END, "tensor memory", "tcgen05.ld");
	/* Overwritten, or deallocated, while they are read. */
	bad(MMA COMMIT WAIT AFTER
	    "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%x0}, [%r7];\n"
	    "bar.sync 0;\n" MMA "tcgen05.wait::ld.sync.aligned;\n" END,
	    "tcgen05.ld of warp", "tcgen05.wait::ld");
	bad(MMA COMMIT WAIT "@%w bra Z;\n"
			    "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 512;\n"
			    "Z:\n" LOAD,
	    "tcgen05", "tensor memory");
	/* Operands that a store has not written yet. */
	bad("tcgen05.st.sync.aligned.32x32b.x1.b32 [%r7+256], {%r14};\n" SYNC MMA COMMIT
		WAIT "tcgen05.wait::st.sync.aligned;\n" END,
	    "its scales", "tcgen05.wait::st");
	bad(MMA END, "tcgen05.dealloc", "a later tcgen05.commit");
}

/* Order that the hardware has and PTX does not promise. */
static void test_strict_order(void **state)
{
	bad_strictly(MMA CP COMMIT WAIT END, "tcgen05.cp", "reads it as scales");
	bad_strictly(CP CP COMMIT WAIT END, "tcgen05.cp of warp 0", "writes it");
	good(CP MMA COMMIT WAIT AFTER END);
	good(MMA MMA COMMIT WAIT AFTER END);
	bad_strictly(MMA "mov.u32 %r8, 0x08040480;\n" MMA COMMIT WAIT END,
		     "its accumulator", "tcgen05.mma of warp 0");
	bad_strictly(MMA COMMIT WAIT LOAD END, "fence::after_thread_sync",
		     "tcgen05.ld");
	bad_strictly(MMA COMMIT WAIT AFTER LOAD SYNC AFTER MMA COMMIT
		     "V: mbarrier.try_wait.parity.shared::cta.b64 %p5, [bar], "
		     "1;\n@!%p5 bra V;\n" END,
		     "fence::before_thread_sync", "tcgen05.mma");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_operands),	 cmocka_unit_test(test_undefined),
	    cmocka_unit_test(test_pairs),	 cmocka_unit_test(test_order),
	    cmocka_unit_test(test_strict_order),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
