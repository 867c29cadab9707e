/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_umma_scales.c - changes every byte of tensor memory that can be a scale of a
 * tcgen05.mma, one at a time, and checks which results change.
 */
#include <stdlib.h>
#include <string.h>

#include "common/tcgen05.h"
#include "common/unit.h"

#define SCALE_N	    8
#define SFA_COLUMNS 4
#define SCALE_BYTES (128 * (SFA_COLUMNS + 1) * 4)

/* All elements and scales are 1, except one byte of tensor memory, which is 2 and
 * another one in each turn.  D of each turn: 128 lanes of 8. */
static void scale_program(void)
{
	emu_text[0] = 0;
	emu_bring(1);
	emu_append("ld.global.b64 %%d2, [%%in]; ld.global.b64 %%d3, [%%in+8];\n"
		   "mov.u32 %%r10, dynamic; shr.u32 %%r10, %%r10, 4;\n"
		   "cvt.u64.u32 %%d4, %%r10; add.s64 %%d2, %%d2, %%d4;\n"
		   "add.s64 %%d3, %%d3, %%d4; ld.global.b32 %%r8, [%%in+16];\n"
		   "add.u32 %%r11, %%r3, 256; add.u32 %%r12, %%r3, 260;\n"
		   "mov.pred %%p3, 0; mov.u32 %%r20, 0;\n"
		   "shl.b32 %%r15, %%tid, 5; cvt.u64.u32 %%d5, %%r15;\n"
		   "add.s64 %%d5, %%d5, %%out;\n"
		   /* turn = (lane * 5 + column) * 4 + byte */
		   "N: and.b32 %%r21, %%r20, 3; shr.u32 %%r22, %%r20, 2;\n"
		   "div.u32 %%r23, %%r22, 5; rem.u32 %%r24, %%r22, 5;\n"
		   "setp.eq.u32 %%p5, %%r23, %%tid; shl.b32 %%r21, %%r21, 3;\n"
		   "mov.u32 %%r25, 0x78; shl.b32 %%r25, %%r25, %%r21;\n"
		   "selp.b32 %%r25, %%r25, 0, %%p5;\n");
	for (int c = 0; c < 5; c++)
		emu_append("setp.eq.u32 %%p6, %%r24, %d;\n"
			   "selp.b32 %%r26, %%r25, 0, %%p6;\n"
			   "xor.b32 %%x%d, %%r26, 0x38383838;\n",
			   c, c);
	emu_append("tcgen05.st.sync.aligned.32x32b.x4.b32 [%%r7+256], "
		   "{%%x0,%%x1,%%x2,%%x3};\n"
		   "tcgen05.st.sync.aligned.32x32b.x1.b32 [%%r7+260], {%%x4};\n"
		   "tcgen05.wait::st.sync.aligned;\n"
		   "tcgen05.fence::before_thread_sync;\nbar.sync 0;\n"
		   "tcgen05.fence::after_thread_sync;\n"
		   "@%%one tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale"
		   ".block16 [%%r3], %%d2, %%d3, %%r8, [%%r11], [%%r12], %%p3;\n"
		   "@%%one tcgen05.commit.cta_group::1.mbarrier::arrive::one"
		   ".shared::cluster.b64 [bar];\nand.b32 %%r27, %%r20, 1;\n"
		   "W: mbarrier.try_wait.parity.shared::cta.b64 %%p5, [bar], "
		   "%%r27;\n@!%%p5 bra W;\ntcgen05.fence::after_thread_sync;\n"
		   "tcgen05.ld.sync.aligned.32x32b.x8.b32 "
		   "{%%x0,%%x1,%%x2,%%x3,%%x4,%%x5,%%x6,%%x7}, [%%r7];\n"
		   "tcgen05.wait::ld.sync.aligned;\n"
		   "st.global.v4.b32 [%%d5], {%%x0,%%x1,%%x2,%%x3};\n"
		   "st.global.v4.b32 [%%d5+16], {%%x4,%%x5,%%x6,%%x7};\n"
		   "add.s64 %%d5, %%d5, 4096; add.u32 %%r20, %%r20, 1;\n"
		   "setp.lt.u32 %%p6, %%r20, %d; @%%p6 bra N;\nbar.sync 0;\n"
		   "@%%w bra Z;\n"
		   "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %%r3, 512;\n"
		   "Z:\n",
		   SCALE_BYTES);
}

/* 16 of the 64 products of a row or a column count twice. */
static float with_scale(int turn, int lane, int n)
{
	const int column = turn / 4 % 5, at = turn / 20;

	/* A row has its scales in its own lane, in the column of its 32. */
	if (column < 4)
		return at == lane && column == lane / 32 ? 80 : 64;
	/* A column of B, in each quarter of the lanes: for the rows there. */
	return at / 32 == lane / 32 && at % 32 == n ? 80 : 64;
}

static void test_scale_bytes(void **state)
{
	float *out = malloc(SCALE_BYTES * 128 * SCALE_N * sizeof(float));
	struct input *in = calloc(1, sizeof(*in));
	/* Rows of 32 bytes, swizzled; 8 of them 256 bytes apart. */
	const uint64_t layout =
	    UINT64_C(6) << 61 | UINT64_C(1) << 46 | UINT64_C(256 / 16) << 32;
	struct emu_job job = {.target = TCGEN05_TARGET,
			      .in = in,
			      .in_bytes = sizeof(*in),
			      .out = out,
			      .out_bytes = SCALE_BYTES * 128 * SCALE_N * sizeof(float),
			      .block = 128,
			      .shared_bytes = IMAGE};

	assert_non_null(in);
	assert_non_null(out);
	memset(in->image, 0x22, IMAGE);
	in->a = layout;
	in->b = layout + IMAGE / 2 / 16;
	in->idesc = 0x08020480;
	scale_program();
	emu_must_run(emu_text, &job);
	for (int turn = 0; turn < SCALE_BYTES; turn++)
		for (int lane = 0; lane < 128; lane++)
			for (int n = 0; n < SCALE_N; n++)
				if (out[(turn * 128 + lane) * SCALE_N + n] !=
				    with_scale(turn, lane, n))
					fail_msg(
					    "byte %d, row %d, column %d: %g", turn,
					    lane, n,
					    (double)
						out[(turn * 128 + lane) * SCALE_N + n]);
	free(in);
	free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_scale_bytes)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
