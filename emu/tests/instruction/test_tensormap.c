/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tensormap.c - a kernel that changes a tensor map as grouped products do:
 * in shared memory, copied to global memory after a fence of the proxy, and
 * used there; and in place in global memory.
 */
#include <string.h>

#include "common/run.h"
#include "common/unit.h"
#include "hardware/tensor_map.h"

#define ROWS  8
#define PITCH 64 /* bytes of a row */
#define BOX   32

/* The kernel's map, and the map that it makes from it. */
static struct {
	uint8_t map[EMU_TENSOR_MAP_BYTES], changed[EMU_TENSOR_MAP_BYTES];
	uint8_t tensor[ROWS][PITCH];
} in;

/* Rows of 64 bytes, from the first on. */
static void put_map(uint64_t address, uint8_t *at)
{
	struct emu_error err = {""};
	struct emu_tensor_map map = {
	    .type = EMU_TENSOR_U8,
	    .address = address + 2 * EMU_TENSOR_MAP_BYTES,
	    .rank = 2,
	    .sizes = {PITCH, ROWS},
	    .strides_bytes = {PITCH},
	    .box = {BOX, 2},
	    .element_strides = {1, 1},
	};

	if (!emu_tensor_map_check(&map, &err))
		fail_msg("%s", err.text);
	emu_tensor_map_encode(&map, at);
}

/* Every other row from the second on, and only 24 bytes of each row. */
#define REPLACE(space, at)                                                             \
	"add.s64 %d2, %in, 320;\nmov.u32 %r6, 24;\nmov.u64 %d3, 128;\n"                \
	"tensormap.replace.tile.global_address." space ".b1024.b64 [" at "], %d2;\n"   \
	"tensormap.replace.tile.global_dim." space ".b1024.b32 [" at "], 0, %r6;\n"    \
	"tensormap.replace.tile.global_dim." space ".b1024.b32 [" at "], 1, 4;\n"      \
	"tensormap.replace.tile.global_stride." space ".b1024.b64 [" at "], 0, %d3;\n"

#define BEGIN                                                                          \
	".shared .align 8 .b8 bar[8];\n.shared .align 128 .b8 smap[128];\n"            \
	"setp.ne.u32 %p1, %tid, 0;\nmov.u32 %r1, 1;\n"                                 \
	"@!%p1 mbarrier.init.shared::cta.b64 [bar], %r1;\n"                            \
	"@!%p1 fence.mbarrier_init.release.cluster;\n"

/* The box at row 2 of map %d1; each thread stores two of its bytes. */
#define USE                                                                            \
	"mov.u32 %r2, dynamic;\nmov.u32 %r3, 0;\nmov.u32 %r4, 2;\n"                    \
	"fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;\n"                     \
	"bar.sync 0;\n"                                                                \
	"@!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;\n"              \
	"@!%p1 cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%d1, "                 \
	"{%r3, %r4}];\n"                                                               \
	"@!%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile"                    \
	".mbarrier::complete_tx::bytes [%r2], [%d1, {%r3, %r4}], [bar];\n"             \
	"L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;\n"                 \
	"@!%p2 bra L;\n"                                                               \
	"mad.lo.u32 %r5, %tid, 2, %r2;\nmul.wide.u32 %d5, %tid, 2;\n"                  \
	"add.s64 %d5, %d5, %out;\nld.shared.u16 %h1, [%r5];\n"                         \
	"st.global.u16 [%d5], %h1;\n"

/* One thread copies the map to shared memory, and the warp back. */
#define BY_SHARED                                                                      \
	"mad.wide.u32 %d6, %tid, 4, %in;\nmov.u32 %r7, smap;\n"                        \
	"mad.lo.u32 %r8, %tid, 4, %r7;\nld.global.u32 %r9, [%d6];\n"                   \
	"st.shared.u32 [%r8], %r9;\nbar.sync 0;\n@%p1 bra NEXT;\n" REPLACE(            \
	    "shared::cta", "smap") "NEXT: bar.warp.sync -1;\n"                         \
				   "add.s64 %d1, %in, 128;\n"                          \
				   "tensormap.cp_fenceproxy.global.shared"             \
				   "::cta.tensormap::generic.release.gpu"              \
				   ".sync.aligned [%d1], [smap], 128;\n"

#define IN_PLACE                                                                       \
	"@%p1 bra NEXT;\n" REPLACE(                                                    \
	    "global", "%in") "fence.proxy.tensormap::generic.release.gpu;\n"           \
			     "NEXT: bar.sync 0;\nmov.u64 %d1, %in;\n"

static struct emu_job job_of(uint64_t seed, uint8_t *out, size_t bytes)
{
	for (int i = 0; i < ROWS * PITCH; i++)
		in.tensor[i / PITCH][i % PITCH] = (uint8_t)(i * 7 / 3);
	return (struct emu_job){.in = &in,
				.in_bytes = sizeof(in),
				.out = out,
				.out_bytes = bytes,
				.shared_bytes = 1024,
				.seed = seed,
				.prepare = put_map};
}

static void check(const char *body)
{
	for (uint64_t seed = 0; seed < 10; seed++) {
		uint8_t out[2 * BOX];
		struct emu_job job = job_of(seed, out, sizeof(out));

		emu_must_run(body, &job);
		/* Rows 2 and 3 of those at 1, 3, 5, 7. */
		for (int i = 0; i < 2 * BOX; i++)
			assert_int_equal(
			    out[i],
			    i % BOX < 24 ? in.tensor[i / BOX * 2 + 5][i % BOX] : 0);
	}
}

static void in_shared_memory(void **state)
{
	check(BEGIN BY_SHARED USE);
}

/* A kernel makes the map from 128 zeros. */
static void from_zeros(void **state)
{
	static const char *const body =
	    BEGIN "setp.ne.u32 %p3, %warp, 0;\nmov.u32 %r7, smap;\n"
		  "mad.lo.u32 %r8, %tid, 4, %r7;\nmov.u32 %r9, 0;\n"
		  "@!%p3 st.shared.u32 [%r8], %r9;\nbar.sync 0;\n@%p1 bra NEXT;\n"
		  "mov.u32 %r10, 32;\nmov.u32 %r11, 2;\nmov.u32 %r12, 1;\n"
#define FIELD(name, rest)                                                              \
	"tensormap.replace.tile." name ".shared::cta.b1024." rest ";\n"
	    FIELD("rank", "b32 [smap], 1") FIELD(
		"box_dim", "b32 [smap], 0, %r10") FIELD("box_dim",
							"b32 [smap], 1, %r11")
		FIELD("element_stride", "b32 [smap], 0, %r12") FIELD(
		    "element_stride", "b32 [smap], 1, %r12") FIELD("elemtype",
								   "b32 [smap], 0")
		    FIELD("swizzle_mode", "b32 [smap], 0") REPLACE(
			"shared::cta",
			"smap") "NEXT: bar.warp.sync -1;\nadd.s64 %d1, %in, 128;\n"
				"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic"
				".release.gpu.sync.aligned [%d1], [smap], 128;\n" USE;

	check(body);
}

static void in_global_memory(void **state)
{
	check(BEGIN IN_PLACE USE);
}

static void what_is_refused(void **state)
{
	uint8_t out[2 * BOX];
	struct emu_job job = job_of(0, out, sizeof(out));

	emu_must_fail("tensormap.replace.tile.rank.global.b1024.b32 [%in], 5;\n", &job,
		      "rank = 5", NULL);
	emu_must_fail("tensormap.replace.tile.rank.global.b1024.b32 [%in+64], "
		      "1;\n",
		      &job, "not aligned to 128", NULL);
	emu_must_fail("tensormap.replace.tile.global_address.global.b1024.b32 "
		      "[%in], %r1;\n",
		      &job, ".global_address is .b64", NULL);
	emu_must_fail("fence.proxy.tensormap::generic.gpu;\n", &job,
		      ".acquire or .release", NULL);
	/* Fields that do not fit each other are reported when the map is used. */
	emu_must_fail(BEGIN "mov.u64 %d1, %in;\nmov.u64 %d3, 24;\n"
			    "tensormap.replace.tile.global_stride.global.b1024.b64 "
			    "[%in], 0, %d3;\nbar.sync 0;\n" USE,
		      &job, "globalStrides[0] = 24", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(in_shared_memory),
	    cmocka_unit_test(from_zeros),
	    cmocka_unit_test(in_global_memory),
	    cmocka_unit_test(what_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
