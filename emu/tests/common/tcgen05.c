/* SPDX-License-Identifier: Apache-2.0 */
/* tcgen05.c - see tcgen05.h. */
#include "common/tcgen05.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

char emu_text[EMU_TEXT_BYTES];

void emu_append(const char *format, ...)
{
	const size_t used = strlen(emu_text);
	va_list list;

	va_start(list, format);
	vsnprintf(emu_text + used, sizeof(emu_text) - used, format, list);
	va_end(list);
}

void emu_add(const char *more)
{
	emu_append("%s", more);
}

void emu_append_registers(const char *name, uint32_t count)
{
	emu_append("{");
	for (uint32_t i = 0; i < count; i++)
		emu_append("%s%%%s%u", i ? "," : "", name, i);
	emu_append("}");
}

void emu_bring(int ctas)
{
	emu_append(".shared .align 8 .b64 bar; .shared .align 4 .b32 base;\n"
		   ".reg .b32 %%x<%d>; .reg .pred %%one, %%w; .reg .b16 %%m;\n"
		   "mov.u32 %%r1, %%cluster_ctarank;\n"
		   "mul.wide.u32 %%d1, %%r1, %u; add.s64 %%in, %%in, %%d1;\n"
		   "mul.wide.u32 %%d1, %%r1, %u; add.s64 %%out, %%out, %%d1;\n"
		   "or.b32 %%r2, %%r1, %%tid; setp.eq.u32 %%one, %%r2, 0;\n"
		   "setp.ne.u32 %%w, %%warp, 0; setp.ne.u32 %%p1, %%tid, 0;\n"
		   "@!%%p1 mbarrier.init.shared::cta.b64 [bar], 1;\n"
		   "barrier.cluster.arrive.release.aligned;\n"
		   "barrier.cluster.wait.acquire.aligned;\n@%%w bra A;\n"
		   "tcgen05.alloc.cta_group::%d.sync.aligned.shared::cta.b32 "
		   "[base], 512;\nA: bar.sync 0;\nld.shared.b32 %%r3, [base];\n",
		   WORDS, (unsigned)sizeof(struct input),
		   (unsigned)sizeof(struct output), ctas);
	/* 16 bytes for each thread and round. */
	emu_append("shl.b32 %%r4, %%tid, 4; cvt.u64.u32 %%d1, %%r4;\n"
		   "add.s64 %%d1, %%d1, %%in; mov.u32 %%r5, dynamic;\n"
		   "add.u32 %%r5, %%r5, %%r4; mov.u32 %%r6, 0;\nL: "
		   "ld.global.v4.b32 {%%x0,%%x1,%%x2,%%x3}, [%%d1+%u];\n"
		   "st.shared.v4.b32 [%%r5], {%%x0,%%x1,%%x2,%%x3};\n"
		   "add.s64 %%d1, %%d1, 2048; add.u32 %%r5, %%r5, 2048;\n"
		   "add.u32 %%r6, %%r6, 2048; setp.lt.u32 %%p2, %%r6, %u;\n"
		   "@%%p2 bra L;\nfence.proxy.async.shared::cta;\n",
		   (unsigned)offsetof(struct input, image), IMAGE);
	emu_append("mul.wide.u32 %%d1, %%tid, %u; add.s64 %%d1, %%d1, %%in;\n",
		   4 * WORDS);
	for (unsigned i = 0; i < WORDS; i += 4)
		emu_append("ld.global.v4.b32 {%%x%u,%%x%u,%%x%u,%%x%u}, "
			   "[%%d1+%u];\n",
			   i, i + 1, i + 2, i + 3,
			   (unsigned)offsetof(struct input, tmem) + 4 * i);
	emu_append("shl.b32 %%r7, %%warp, 21; add.u32 %%r7, %%r7, %%r3;\n"
		   /* The tests load all lanes of D, and an MMA may write only some. */
		   "mov.u32 %%r13, 0; mov.u32 %%r14, %%r7;\n"
		   "O: tcgen05.st.sync.aligned.32x32b.x1.b32 [%%r14], {%%r13};\n"
		   "add.u32 %%r14, %%r14, 1; sub.u32 %%r15, %%r14, %%r7;\n"
		   "setp.lt.u32 %%p2, %%r15, 256; @%%p2 bra O;\n"
		   "tcgen05.st.sync.aligned.32x32b.x%d.b32 [%%r7+256], ",
		   WORDS);
	emu_append_registers("x", WORDS);
	emu_append(";\ntcgen05.wait::st.sync.aligned;\n"
		   "tcgen05.fence::before_thread_sync;\n"
		   "barrier.cluster.arrive.release.aligned;\n"
		   "barrier.cluster.wait.acquire.aligned;\n"
		   "tcgen05.fence::after_thread_sync;\n");
}

struct emu_job emu_tcgen05_job(int ctas)
{
	return (struct emu_job){.target = TCGEN05_TARGET,
				.keeps_out = true,
				.grid = (uint32_t)ctas,
				.cluster = (uint32_t)ctas,
				.block = 128,
				.shared_bytes = IMAGE};
}
