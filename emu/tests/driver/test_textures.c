/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_textures.c - arrays, texture objects and surface objects through the driver
 * interface: address modes, filters, conversions, layers and cubes, and what is
 * reported.  A launch with a report is the last one of its process, so each is run in
 * a child.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/unit.h"
#include "driver/cuda_api.h"
#include "hardware/texture.h"

#define N 32 /* lanes */

/* Parameters: object, coordinates (float4 a lane; integers in the same bits), out
 * (four words a lane). */
#define ENTRY(name, body)                                                              \
	".visible .entry " name                                                        \
	"(.param .u64 t, .param .u64 at, .param .u64 out)\n{\n"                        \
	".reg .b64 %d<8>; .reg .b32 %r<12>; .reg .f32 %f<8>;\n"                        \
	"ld.param.u64 %d1, [t]; ld.param.u64 %d2, [at]; ld.param.u64 %d3, [out];\n"    \
	"mov.u32 %r0, %tid.x; mad.wide.u32 %d2, %r0, 16, %d2;\n"                       \
	"mad.wide.u32 %d3, %r0, 16, %d3;\n"                                            \
	"ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d2];\n"                              \
	"ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d2];\n" body "ret;\n}\n"
#define TEX(geometry, at)                                                              \
	"tex." geometry ".v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, " at "];\n"           \
	"st.global.v4.f32 [%d3], {%f1, %f2, %f3, %f4};\n"

/* An array: a literal has at most 4,095 characters. */
static const char *const parts[] = {
    ".version 9.0\n.target sm_90a\n.address_size 64\n",
    ENTRY("t1", TEX("1d", "{%f1}")),
    ENTRY("t2", TEX("2d", "{%f1, %f2}")),
    ENTRY("t3", TEX("3d", "{%f1, %f2, %f3, %f3}")),
    ENTRY("layers", TEX("a2d", "{%r3, %f1, %f2, %f2}")),
    ENTRY("cube", TEX("cube", "{%f1, %f2, %f3, %f3}")),
    ENTRY("fetch", "tex.1d.v4.s32.s32 {%r5, %r6, %r7, %r8}, [%d1, {%r1}];\n"
		   "st.global.v4.u32 [%d3], {%r5, %r6, %r7, %r8};\n"),
    ENTRY("gather", "tld4.r.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f1, %f2}];\n"
		    "st.global.v4.f32 [%d3], {%f1, %f2, %f3, %f4};\n"),
    /* A surface's word to the one at its right. */
    ENTRY("copy", "suld.b.2d.b32.clamp {%r5}, [%d1, {%r1, %r2}];\n"
		  "bar.warp.sync -1; add.u32 %r6, %r5, 100; mov.u32 %r7, 0;\n"
		  "add.u32 %r1, %r1, 4;\n"
		  "sust.b.2d.b32.zero [%d1, {%r1, %r2}], {%r6};\n"
		  "st.global.v4.u32 [%d3], {%r5, %r7, %r7, %r7};\n"),
    ENTRY("trap", "sust.b.2d.b32.trap [%d1, {%r1, %r2}], {%r1};\n"),
};

static CUmodule module;

struct lane {
	float x, y, z, w;
};

static CUresult run(const char *name, unsigned long long object,
		    const struct lane at[N], struct lane out[N])
{
	CUdeviceptr from, to;
	CUfunction function;
	CUresult result;
	void *arguments[] = {&object, &from, &to};

	assert_int_equal(cuInit(0), 0);
	if (!module) {
		char text[16384] = "";

		for (size_t k = 0; k < sizeof(parts) / sizeof(*parts); k++)
			strcat(text, parts[k]);
		assert_int_equal(cuModuleLoadDataEx(&module, text, 0, NULL, NULL), 0);
	}
	assert_int_equal(cuModuleGetFunction(&function, module, name), 0);
	assert_int_equal(cuMemAlloc_v2(&from, N * sizeof(*at)), 0);
	assert_int_equal(cuMemAlloc_v2(&to, N * sizeof(*at)), 0);
	assert_int_equal(cuMemcpyHtoD_v2(from, at, N * sizeof(*at)), 0);
	assert_int_equal(
	    cuLaunchKernel(function, 1, 1, 1, N, 1, 1, 0, NULL, arguments, NULL), 0);
	result = cuCtxSynchronize();
	if (!result && out)
		result = cuMemcpyDtoH_v2(out, to, N * sizeof(*at));
	if (!result)
		assert_int_equal(cuMemFree_v2(from) + cuMemFree_v2(to), 0);
	return result;
}

/* A launch in a child must fail with these words. */
static void must_report(const char *name, unsigned long long object,
			const struct lane at[N], const char *words)
{
	int status;
	const pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		const char *why = "";
		const CUresult result = run(name, object, at, NULL);

		cuGetErrorString(result, &why);
		_exit(result == CUDA_ERROR_LAUNCH_FAILED && strstr(why, words) ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* An array of floats, element number i of which is 10 i. */
static CUarray floats(size_t width, size_t height, size_t depth, unsigned flags)
{
	const CUDA_ARRAY3D_DESCRIPTOR d = {width,	  height, depth,
					   EMU_TEXEL_F32, 1,	  flags};
	const size_t rows = height ? height : 1, slices = depth ? depth : 1;
	float *data = malloc(width * rows * slices * sizeof(*data));
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
			      .srcPitch = width * 4,
			      .srcHeight = rows,
			      .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			      .WidthInBytes = width * 4,
			      .Height = rows,
			      .Depth = slices};
	CUarray array;

	assert_non_null(data);
	for (size_t i = 0; i < width * rows * slices; i++)
		data[i] = 10.0f * (float)i;
	assert_int_equal(cuInit(0), 0);
	assert_int_equal(cuArray3DCreate_v2(&array, &d), 0);
	copy.srcHost = data;
	copy.dstArray = array;
	assert_int_equal(cuMemcpy3D_v2(&copy), 0);
	free(data);
	return array;
}

static unsigned long long texture(CUarray array, int edge, int filter, unsigned flags)
{
	const CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY,
				      .res.array.hArray = array};
	const CUDA_TEXTURE_DESC d = {.addressMode = {edge, edge, edge},
				     .filterMode = filter,
				     .flags = flags,
				     .borderColor = {-5}};
	unsigned long long object = 0;

	assert_int_equal(cuTexObjectCreate(&object, &r, &d, NULL), 0);
	return object;
}

/* x of lane l: 0.25 l - 2. */
static void places(struct lane at[N])
{
	for (int l = 0; l < N; l++)
		at[l] = (struct lane){0.25f * (float)l - 2, 0, 0, 0};
}

/* Four elements 0, 10, 20, 30 in each address mode. */
static void test_edges(void **state)
{
	const CUarray array = floats(4, 0, 0, 0);
	struct lane at[N], out[N];

	places(at);
	for (int edge = EMU_EDGE_WRAP; edge <= EMU_EDGE_BORDER; edge++) {
		const bool repeats = edge == EMU_EDGE_WRAP || edge == EMU_EDGE_MIRROR;
		const unsigned flags = repeats ? CU_TRSF_NORMALIZED_COORDINATES : 0;

		assert_int_equal(run("t1", texture(array, edge, 0, flags), at, out), 0);
		for (int l = 0; l < N; l++) {
			const int i = (int)floorf(at[l].x * (repeats ? 4 : 1));
			const int in_8 = (i + 80) % 8;
			const int want = edge == EMU_EDGE_WRAP ? 10 * ((i + 80) % 4)
					 : edge == EMU_EDGE_MIRROR
					     ? 10 * (in_8 < 4 ? in_8 : 7 - in_8)
					 : i >= 0 && i < 4	   ? 10 * i
					 : edge == EMU_EDGE_BORDER ? -5
					 : i < 0		   ? 0
								   : 30;

			if (out[l].x != (float)want ||
			    out[l].y != (edge == EMU_EDGE_BORDER ? out[l].y : 0))
				fail_msg("mode %d at %g: %g, not %d", edge,
					 (double)at[l].x, (double)out[l].x, want);
		}
	}
	assert_int_equal(cuArrayDestroy(array), 0);
}

/* Weights are multiples of 1/256, rounded to nearest. */
static void test_filter(void **state)
{
	const CUarray line = floats(4, 0, 0, 0), plane = floats(4, 3, 0, 0);
	const CUarray body = floats(4, 3, 2, 0);
	struct lane at[N], out[N];

	for (int l = 0; l < N; l++)
		at[l] = (struct lane){0.5f + 0.1f * (float)l, 1.25f, 0.75f, 0};
	assert_int_equal(run("t1", texture(line, EMU_EDGE_CLAMP, 1, 0), at, out), 0);
	for (int l = 0; l < N; l++) {
		const double w = floor((at[l].x - 0.5) * 256 + 0.5) / 256;

		assert_true(fabs(out[l].x - (w < 3 ? 10 * w : 30)) < 1e-5);
	}
	assert_int_equal(run("t2", texture(plane, EMU_EDGE_CLAMP, 1, 0), at, out), 0);
	for (int l = 0; l < N; l++) {
		const double w = floor((at[l].x - 0.5) * 256 + 0.5) / 256;

		assert_true(fabs(out[l].x - (w < 3 ? 10 * w : 30) - 30) < 1e-4);
	}
	assert_int_equal(run("t3", texture(body, EMU_EDGE_CLAMP, 1, 0), at, out), 0);
	for (int l = 0; l < N; l++) {
		const double w = floor((at[l].x - 0.5) * 256 + 0.5) / 256;

		assert_true(fabs(out[l].x - (w < 3 ? 10 * w : 30) - 60) < 1e-4);
	}
	assert_int_equal(run("gather", texture(plane, EMU_EDGE_CLAMP, 0, 0), at, out),
			 0);
	/* At (0.5, 1.25): elements (0, 0), (1, 0) and those of row 1. */
	assert_true(out[0].x == 40 && out[0].y == 50 && out[0].z == 10 &&
		    out[0].w == 0);
}

static void test_layers(void **state)
{
	const CUarray layered = floats(2, 2, 3, CUDA_ARRAY3D_LAYERED);
	const CUarray faces = floats(2, 2, 6, CUDA_ARRAY3D_CUBEMAP);
	static const float directions[6][3] = {{1, 0, 0},  {-1, 0, 0}, {0, 1, 0},
					       {0, -1, 0}, {0, 0, 1},  {0, 0, -1}};
	struct lane at[N], out[N];

	for (int l = 0; l < N; l++) {
		const int32_t layer = l % 4; /* the last one is clamped */

		at[l] = (struct lane){1.5f, 0.5f, 0, 0};
		memcpy(&at[l].z, &layer, 4);
	}
	assert_int_equal(run("layers", texture(layered, EMU_EDGE_CLAMP, 0, 0), at, out),
			 0);
	for (int l = 0; l < N; l++)
		assert_true(out[l].x == (float)(10 + 40 * (l % 4 < 3 ? l % 4 : 2)));
	for (int l = 0; l < N; l++)
		memcpy(&at[l], directions[l % 6], sizeof(directions[0]));
	assert_int_equal(run("cube", texture(faces, EMU_EDGE_CLAMP, 0, 0), at, out), 0);
	/* The middle of a face is the corner of its last element. */
	for (int l = 0; l < N; l++)
		assert_true(out[l].x == (float)(40 * (l % 6) + 30));
}

/* Bytes as numbers of 0 to 1, and as integers; past the end is 0. */
static void test_linear(void **state)
{
	const uint8_t bytes[8] = {0, 51, 102, 153, 204, 255, 1, 2};
	CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_LINEAR,
				.res.linear = {.format = EMU_TEXEL_U8,
					       .numChannels = 2,
					       .sizeInBytes = sizeof(bytes)}};
	const CUDA_TEXTURE_DESC d = {.flags = CU_TRSF_READ_AS_INTEGER};
	unsigned long long object;
	struct lane at[N], out[N];

	assert_int_equal(cuInit(0), 0);
	assert_int_equal(cuMemAlloc_v2(&r.res.linear.devPtr, sizeof(bytes)), 0);
	assert_int_equal(cuMemcpyHtoD_v2(r.res.linear.devPtr, bytes, sizeof(bytes)), 0);
	assert_int_equal(cuTexObjectCreate(&object, &r, &d, NULL), 0);
	for (int l = 0; l < N; l++) {
		const int32_t place = l - 1;

		memcpy(&at[l].x, &place, 4);
	}
	assert_int_equal(run("fetch", object, at, out), 0);
	for (int l = 0; l < N; l++) {
		const bool is_inside = l > 0 && l <= 4;
		uint32_t words[4];

		memcpy(words, &out[l], sizeof(words));
		assert_int_equal(words[0], is_inside ? bytes[2 * l - 2] : 0);
		assert_int_equal(words[1], is_inside ? bytes[2 * l - 1] : 0);
		assert_int_equal(words[2] + words[3], 0);
	}
	/* The object has more bytes than the allocation. */
	r.res.linear.sizeInBytes = 2 * sizeof(bytes);
	assert_int_equal(cuTexObjectCreate(&object, &r, &d, NULL), 0);
	must_report("fetch", object, at, "not allocated");
}

static void test_scaled(void **state)
{
	const int8_t bytes[4] = {-128, -127, 0, 127};
	const CUDA_ARRAY_DESCRIPTOR a = {4, 0, EMU_TEXEL_S8, 1};
	CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
			      .srcHost = bytes,
			      .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			      .WidthInBytes = 4,
			      .Height = 1};
	struct lane at[N], out[N];

	assert_int_equal(cuInit(0), 0);
	assert_int_equal(cuArrayCreate_v2(&copy.dstArray, &a), 0);
	assert_int_equal(cuMemcpy2D_v2(&copy), 0);
	for (int l = 0; l < N; l++)
		at[l].x = (float)(l % 4);
	assert_int_equal(
	    run("t1", texture(copy.dstArray, EMU_EDGE_CLAMP, 0, 0), at, out), 0);
	for (int l = 0; l < N; l++)
		assert_true(out[l].x == (l % 4 == 3   ? 1.0f
					 : l % 4 == 2 ? 0.0f
						      : -1.0f));
}

static unsigned long long surface(CUarray array)
{
	const CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY,
				      .res.array.hArray = array};
	unsigned long long object;

	assert_int_equal(cuSurfObjectCreate(&object, &r), 0);
	return object;
}

/* Row l % 2, byte 8 (l / 2): two words of four rows of 32 words. */
static void test_surfaces(void **state)
{
	const CUarray array = floats(8, 2, 0, CUDA_ARRAY3D_SURFACE_LDST);
	const unsigned long long object = surface(array);
	struct lane at[N], out[N];
	float row[8];
	CUDA_MEMCPY2D back = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
			      .srcArray = array,
			      .srcY = 1,
			      .dstMemoryType = CU_MEMORYTYPE_HOST,
			      .dstHost = row,
			      .WidthInBytes = sizeof(row),
			      .Height = 1};

	for (int l = 0; l < N; l++) {
		/* Lanes from 8 on are to the right of the surface: loads are clamped
		 * and stores dropped. */
		const int32_t place[2] = {8 * (l / 2), l % 2};

		memcpy(&at[l], place, sizeof(place));
	}
	assert_int_equal(run("copy", object, at, out), 0);
	assert_int_equal(cuMemcpy2D_v2(&back), 0);
	for (int x = 0; x < 8; x += 2) {
		uint32_t left, right;

		memcpy(&left, &row[x], 4);
		memcpy(&right, &row[x + 1], 4);
		assert_true(row[x] == 80.0f + 10.0f * (float)x);
		assert_int_equal(right, left + 100);
	}
	must_report("trap", object, at, "outside of the surface");
	must_report("t2", object, at, "it is one of the other kind");
	assert_int_equal(cuSurfObjectDestroy(object), 0);
	must_report("copy", object, at, "is destroyed");
}

static void test_reports(void **state)
{
	const CUDA_ARRAY_DESCRIPTOR d = {4, 4, EMU_TEXEL_F32, 1};
	unsigned long long object;
	struct lane at[N] = {{0}};
	CUarray empty;

	assert_int_equal(cuInit(0), 0);
	assert_int_equal(cuArrayCreate_v2(&empty, &d), 0);
	object = texture(empty, EMU_EDGE_CLAMP, 0, 0);
	must_report("t2", object, at, "never written");
	must_report("t1", object, at, "the instruction is of .1d");
	must_report("t2", 1234, at, "0x4d2 is no texture object");
	assert_int_equal(cuArrayDestroy(empty), 0);
	must_report("t2", object, at, "not allocated");
}

static void test_refused(void **state)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {4, 4, 0, EMU_TEXEL_U8, 3, 0};
	CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY};
	CUDA_TEXTURE_DESC t = {.filterMode = 1, .flags = CU_TRSF_READ_AS_INTEGER};
	unsigned long long object;
	CUarray array;

	assert_int_equal(cuInit(0), 0);
	assert_int_equal(cuArray3DCreate_v2(&array, &d), CUDA_ERROR_INVALID_VALUE);
	d.NumChannels = 4;
	d.Flags = CUDA_ARRAY3D_CUBEMAP;
	assert_int_equal(cuArray3DCreate_v2(&array, &d), CUDA_ERROR_INVALID_VALUE);
	d.Flags = 0;
	assert_int_equal(cuArray3DCreate_v2(&array, &d), 0);
	r.res.array.hArray = array;
	assert_int_equal(cuTexObjectCreate(&object, &r, &t, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuSurfObjectCreate(&object, &r), CUDA_ERROR_INVALID_VALUE);
	t.filterMode = 0;
	t.flags |= CU_TRSF_SRGB;
	assert_int_equal(cuTexObjectCreate(&object, &r, &t, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuArrayDestroy(array), 0);
	assert_int_equal(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_edges),   cmocka_unit_test(test_filter),
	    cmocka_unit_test(test_layers),  cmocka_unit_test(test_linear),
	    cmocka_unit_test(test_scaled),  cmocka_unit_test(test_surfaces),
	    cmocka_unit_test(test_reports), cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
