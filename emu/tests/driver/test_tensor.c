/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_tensor.c - tensor copies from end to end, through the driver interface.  A map
 * is encoded and passed to a kernel, which loads a box that is partly outside the
 * tensor, copies its bytes to the output, and stores it with another map, at
 * coordinates that are not negative.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/unit.h"
#include "driver/cuda_api.h"

/* A matrix of bytes, a box, and the coordinates of its load and its store. */
#define WIDTH  272
#define HEIGHT 40
#define BOX_X  128
#define BOX_Y  16
#define BYTES  (BOX_X * BOX_Y)

static const char *const text =
    ".version 9.0\n.target sm_90a\n.address_size 64\n"
    ".extern .shared .align 1024 .b8 box[];\n"
    ".visible .entry k(.param .align 64 .b8 from[128],\n"
    "  .param .align 64 .b8 to[128], .param .u64 out,\n"
    "  .param .u32 x, .param .u32 y) {\n"
    ".shared .align 8 .b8 bar[8]; .reg .b32 %r<16>; .reg .b64 %d<8>;\n"
    ".reg .pred %p<4>; .reg .b16 %h<2>;\n"
    "mov.b64 %d1, from; cvta.param.u64 %d1, %d1; mov.b64 %d2, to;\n"
    "cvta.param.u64 %d2, %d2; ld.param.u64 %d3, [out];\n"
    "ld.param.u32 %r1, [x]; ld.param.u32 %r2, [y]; mov.u32 %r3, box;\n"
    "mov.u32 %r4, %tid.x; setp.ne.u32 %p1, %r4, 0; mov.u32 %r5, 1;\n"
    "mov.u32 %r6, 2048; @%p1 bra W;\n"
    "prefetch.tensormap [%d1];\n"
    "mbarrier.init.shared::cta.b64 [bar], %r5;\n"
    "fence.mbarrier_init.release.cluster;\n"
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], %r6;\n"
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile"
    ".mbarrier::complete_tx::bytes [%r3], [%d1, {%r1, %r2}], [bar];\n"
    "W: bar.sync 0;\n"
    "L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;\n"
    "@!%p2 bra L;\n"
    "add.u32 %r7, %r3, %r4; cvt.u64.u32 %d4, %r4; add.s64 %d4, %d4, %d3;\n"
    "mov.u32 %r8, 0;\n"
    "C: ld.shared.u8 %h1, [%r7]; st.global.u8 [%d4], %h1;\n"
    "add.u32 %r7, %r7, 64; add.s64 %d4, %d4, 64; add.u32 %r8, %r8, 64;\n"
    "setp.lt.u32 %p3, %r8, 2048; @%p3 bra C; bar.sync 0; @%p1 bra E;\n"
    "max.s32 %r1, %r1, 0; max.s32 %r2, %r2, 0;\n"
    "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group\n"
    "  [%d2, {%r1, %r2}], [%r3];\n"
    "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n"
    "E: ret; }\n";

static void must(CUresult result, const char *what)
{
	const char *why = "";

	if (!result)
		return;
	(void)cuGetErrorString(result, &why);
	fail_msg("%s: %s", what, why);
}

static CUtensorMap map_of(CUdeviceptr memory, int swizzle)
{
	const uint64_t sizes[] = {WIDTH, HEIGHT}, strides[] = {WIDTH};
	const uint32_t box[] = {BOX_X, BOX_Y}, steps[] = {1, 1};
	CUtensorMap map;

	must(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2,
				    (void *)(uintptr_t)memory, sizes, strides, box,
				    steps, 0, swizzle, 0, 0),
	     "map");
	return map;
}

static uint8_t original(int x, int y)
{
	return (uint8_t)(x * 7 + y * 31 + 1);
}

static void check_shared(const uint8_t *out, int x, int y, bool is_swizzled)
{
	for (int r = 0; r < BOX_Y; r++)
		for (int c = 0; c < BOX_X; c++) {
			const int chunk = is_swizzled ? c / 16 ^ r % 8 : c / 16;
			const bool inside =
			    x + c >= 0 && x + c < WIDTH && y + r >= 0 && y + r < HEIGHT;

			assert_int_equal(out[r * BOX_X + chunk * 16 + c % 16],
					 inside ? original(x + c, y + r) : 0);
		}
}

/* Checks the bytes that were loaded at (x, y) and stored at coordinates >= 0. */
static void check_stored(const uint8_t *to, int x, int y)
{
	const int move_x = x < 0 ? x : 0, move_y = y < 0 ? y : 0;

	for (int r = 0; r < HEIGHT; r++)
		for (int c = 0; c < WIDTH; c++) {
			const int from_x = c + move_x, from_y = r + move_y;
			const bool is_in_box = from_x >= x && from_x < x + BOX_X &&
					       from_y >= y && from_y < y + BOX_Y;
			const bool was_outside = from_x < 0 || from_y < 0;

			assert_int_equal(to[r * WIDTH + c],
					 !is_in_box    ? 0xEE
					 : was_outside ? 0
						       : original(from_x, from_y));
		}
}

static void run_case(CUfunction function, int x, int y, int swizzle)
{
	static uint8_t from[WIDTH * HEIGHT], to[WIDTH * HEIGHT], out[BYTES];
	CUdeviceptr device_from, device_to, device_out;
	CUtensorMap maps[2];
	void *arguments[] = {&maps[0], &maps[1], &device_out, &x, &y};
	CUlaunchConfig config = {1, 1, 1, 64, 1, 1, BYTES, NULL, NULL, 0};

	for (int r = 0; r < HEIGHT; r++)
		for (int c = 0; c < WIDTH; c++)
			from[r * WIDTH + c] = original(c, r);
	memset(to, 0xEE, sizeof(to));
	must(cuMemAlloc_v2(&device_from, sizeof(from)), "memory");
	must(cuMemAlloc_v2(&device_to, sizeof(to)), "memory");
	must(cuMemAlloc_v2(&device_out, sizeof(out)), "memory");
	must(cuMemcpy(device_from, (uintptr_t)from, sizeof(from)), "copy");
	must(cuMemcpy(device_to, (uintptr_t)to, sizeof(to)), "copy");
	maps[0] = map_of(device_from, swizzle);
	maps[1] = map_of(device_to, swizzle);
	must(cuLaunchKernelEx(&config, function, arguments, NULL), "launch");
	must(cuMemcpy((uintptr_t)out, device_out, sizeof(out)), "kernel");
	must(cuMemcpy((uintptr_t)to, device_to, sizeof(to)), "copy");
	check_shared(out, x, y, swizzle == CU_TENSOR_MAP_SWIZZLE_128B);
	check_stored(to, x, y);
	must(cuMemFree_v2(device_from), "free");
	must(cuMemFree_v2(device_to), "free");
	must(cuMemFree_v2(device_out), "free");
}

static void test_boxes(void **state)
{
	static const int places[][2] = {{0, 0},	 {16, 3},  {208, 30},  {-32, -5},
					{0, 39}, {272, 0}, {-112, 20}, {96, -15}};
	CUmodule module;
	CUfunction function;

	must(cuInit(0), "cuInit");
	must(cuModuleLoadDataEx(&module, text, 0, NULL, NULL), "module");
	must(cuModuleGetFunction(&function, module, "k"), "function");
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		run_case(function, places[i][0], places[i][1],
			 CU_TENSOR_MAP_SWIZZLE_NONE);
		run_case(function, places[i][0], places[i][1],
			 CU_TENSOR_MAP_SWIZZLE_128B);
	}
	must(cuModuleUnload(module), "unload");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_boxes)};

	/* Late pieces, in any order. */
	if (setenv("NIBEMU_SEED", "7", 1) != 0 ||
	    setenv("NIBEMU_MEMORY_BYTES", "0x10000000", 1) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
