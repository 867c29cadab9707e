/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cuda_sm80.c - which architecture's kernels a GPU uses, on the fake driver: those
 * for Ampere and Ada also on newer GPUs without kernels of their own, or where
 * NIB_CUDA_ARCH selects them.  And how the mma kernels divide the k of one matrix.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/common/arch.h"
#include "backend/cuda/common/cuda.h"
#include "backend/cuda/common/gemm_common.h"
#include "backend/cuda/common/mma.h"
#include "backend/cuda/common/mma_matrix.h"
#include "backend/cuda/common/mma_warps.h"
#include "backend/cuda/common/vector.h"
#include "backend/cuda/kernels/common/mma_matrix_params.h"
#include "backend/cuda/kernels/common/mma_warps_params.h"
#include "backend/cuda/sm80/gemm.h"
#include "common/unit.h"
#include "fake_bed.h"

static void check_refused(const char *part)
{
	struct nib_device *device;
	struct nib_error err;

	assert_refused(nib_device_open("cuda", NULL, &device, &err),
		       NIB_STATUS_UNSUPPORTED, &err, part);
}

static void check_opens(const char *backend)
{
	struct nib_device_info info;
	struct nib_device *device;
	struct nib_error err;

	if (nib_device_open("cuda", NULL, &device, &err) != NIB_STATUS_OK)
		fail_msg("%s: %s", backend, err.message);
	info = test_device_info(device);
	assert_string_equal(info.backend, backend);
	nib_device_close(device);
}

/* Ascending capabilities, and those between and after them. */
static void capabilities(void)
{
	static const struct {
		int capability;
		bool sm80, sm90, sm100;
	} cases[] = {
	    {75, false, false, false}, {80, true, false, false},
	    {86, true, false, false},  {87, true, false, false},
	    {89, true, false, false},  {90, true, true, false},
	    {100, true, false, true},  {103, true, false, true},
	    {120, true, false, false}, {130, true, false, false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const int c = cases[i].capability;

		assert_int_equal(cuda_arch_runs_on(&cuda_sm80, c), cases[i].sm80);
		assert_int_equal(cuda_arch_runs_on(&cuda_sm90, c), cases[i].sm90);
		assert_int_equal(cuda_arch_runs_on(&cuda_sm100, c), cases[i].sm100);
	}
}

static void forced(void)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);

	setenv("NIB_CUDA_ARCH", "", 1);
	check_opens("cuda-sm90");
	setenv("NIB_CUDA_ARCH", "sm90", 1);
	check_opens("cuda-sm90");
	setenv("NIB_CUDA_ARCH", "sm75", 1);
	check_refused("NIB_CUDA_ARCH=sm75: this build has no kernels of that name");
	setenv("NIB_CUDA_ARCH", "sm100", 1);
	check_refused("NIB_CUDA_ARCH=sm100: these kernels are for 10.0, 10.3 (B200, "
		      "B300); cuda:0, NVIDIA Fake 0, has compute capability 9.0");
	/* No image of the name. */
	setenv("NIB_CUDA_ARCH", "sm80", 1);
	check_refused("NIB_CUDA_ARCH=sm80: this build has no kernels");
	fake_check_clean(fake);
}

static void turing(void)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);

	fake->capability[0] = 75;
	check_refused("cuda:0, NVIDIA Fake 0, has compute capability 7.5: the kernels "
		      "are for 9.0 (H100, H200) and 10.0");
	fake_check_clean(fake);
}

/* An H100, an A100 and an RTX 4090. */
static const struct cuda_device devices[] = {
    {.multiprocessors = 132,
     .shared_bytes = 232448,
     .memory_clock_khz = 2619000,
     .memory_bus_bits = 5120},
    {.multiprocessors = 108,
     .shared_bytes = 166912,
     .memory_clock_khz = 1215000,
     .memory_bus_bits = 5120},
    {.multiprocessors = 128,
     .shared_bytes = 101376,
     .memory_clock_khz = 10501000,
     .memory_bus_bits = 384},
};

/* Slices begin at multiples of 128, in order, and none is empty. */
static void slices_cover_k(void)
{
	static const int64_t n[] = {1, 128, 129, 4096, 8192, 28672, 151936};
	static const int64_t k[] = {64, 128, 192, 4096, 7168, 8192, 28672, 1 << 20};

	for (size_t i = 0; i < sizeof(n) / sizeof(*n) * sizeof(k) / sizeof(*k); i++) {
		const int64_t n_i = n[i % 7], k_i = k[i / 7];
		const int steps = (int)divide_up(k_i, NIB_MMA_STEP);

		for (int m = 1; m <= NIB_MMA_MATRIX_ROWS; m++) {
			const struct cuda_device *d = &devices[m % 3];
			const struct mma_matrix_cut cut =
			    mma_matrix_cut(d, m, n_i, k_i);

			assert_in_range(m, cut.rows - 15, cut.rows);
			assert_int_equal(cut.tiles, divide_up(n_i, 128));
			assert_in_range(cut.slices, 1, steps);
			assert_in_range(cut.groups, 1, NIB_MMA_MATRIX_GROUPS);
			assert_in_range(nib_mma_matrix_shared_bytes(
					    cut.rows, cut.stages, cut.groups),
					1, d->shared_bytes);
			for (int s = 0; s < cut.slices; s++)
				assert_true(
				    nib_mma_first_step(steps, cut.slices, s) <
				    nib_mma_first_step(steps, cut.slices, s + 1));
			assert_int_equal(
			    nib_mma_first_step(steps, cut.slices, cut.slices), steps);
		}
	}
}

/* k is divided where tiles do not fill the GPU. */
static void slices(void)
{
	/* 64 tiles on 132 multiprocessors. */
	assert_in_range(mma_matrix_cut(&devices[0], 16, 8192, 8192).slices, 2, 8);
	assert_in_range(mma_matrix_cut(&devices[1], 16, 8192, 8192).slices, 2, 8);
	/* Groups of warps divide it first. */
	assert_int_equal(mma_matrix_cut(&devices[0], 16, 8192, 8192).groups, 4);
	assert_int_equal(mma_matrix_cut(&devices[0], 16, 151936, 4096).slices, 1);
	/* One step has no slices. */
	assert_int_equal(mma_matrix_cut(&devices[0], 16, 128, 128).slices, 1);
}

/* Every CTA fits on an SM, in both variants, and every warp has a step. */
static void warps_divide_k(void)
{
	static const int64_t n[] = {1, 128, 129, 4096, 8192, 28672, 151936};
	static const int64_t k[] = {64, 128, 192, 4096, 7168, 8192, 28672, 1 << 20};

	for (size_t i = 0; i < sizeof(n) / sizeof(*n) * sizeof(k) / sizeof(*k); i++) {
		for (int m = 1; m <= NIB_MMA_WARPS_ROWS; m++) {
			const int64_t n_i = n[i % 7], k_i = k[i / 7];
			const struct cuda_device *d = &devices[m % 3];
			const bool is_dense = m % 2;
			const struct mma_warps_cut cut =
			    mma_warps_cut(d, is_dense, m, n_i, k_i);

			assert_int_equal(cut.rows, m <= 8 ? 8 : 16);
			assert_true(cut.b_rows == 32 || cut.b_rows == 64);
			assert_int_equal(cut.tiles,
					 divide_up(n_i, 128) * (128 / cut.b_rows));
			assert_in_range(cut.warps, 1, NIB_MMA_WARPS_MOST);
			assert_true(cut.warps <= divide_up(k_i, NIB_MMA_WARPS_STEP));
			for (int b_rows = 32; b_rows <= cut.b_rows; b_rows += 32)
				assert_in_range(
				    nib_mma_warps_shared_bytes(cut.rows, b_rows,
							       is_dense, cut.warps),
				    1, d->shared_bytes);
		}
	}
}

static void check_warps(int device, bool is_dense, int64_t m, int64_t n, int b_rows,
			int most_warps)
{
	const struct mma_warps_cut cut =
	    mma_warps_cut(&devices[device], is_dense, m, n, 8192);

	assert_int_equal(cut.b_rows, b_rows);
	assert_int_equal(cut.warps, most_warps);
}

/* Many warps where a multiprocessor has one tile, fewer where it has several. */
static void warps(void)
{
	/* 132 multiprocessors: one tile of 32 rows for each. */
	check_warps(0, true, 8, 132 * 32 - 127, 32, 12);
	check_warps(0, false, 16, 132 * 32 - 127, 32, 12);
	/* One of 64. */
	check_warps(0, true, 8, 132 * 64, 64, 8);
	check_warps(0, false, 16, 132 * 64, 64, 8);
	check_warps(0, false, 8, 132 * 64, 32, 8);
	/* Two. */
	check_warps(0, true, 8, 132 * 128, 64, 4);
	check_warps(0, false, 16, 132 * 128, 32, 4);
	check_warps(0, true, 8, 132 * 128 + 1, 32, 4);
	check_warps(0, false, 8, 151936, 32, 4);
	/* 163 and 99 KiB of shared memory. */
	check_warps(1, true, 8, 3072, 32, 12);
	check_warps(1, true, 8, 8192, 64, 4);
	check_warps(2, true, 8, 8192, 64, 4);
	check_warps(2, false, 8, 4096, 32, 8);
	/* No more than steps of k. */
	assert_int_equal(mma_warps_cut(&devices[0], true, 8, 4096, 320).warps, 3);
}

/* The kernels take k in multiples of 64 and up to 16 and 64 rows. */
static void fits(void)
{
	struct nib_problem p = {.a = {.rows = 8, .k = 128},
				.b = {.rows = 1, .k = 128},
				.c = {.rows = 8, .cols = 1}};

	assert_true(cuda_mma_warps_fits(&p));
	p.a.rows = 16;
	assert_true(cuda_mma_warps_fits(&p));
	p.a.rows = 17;
	assert_false(cuda_mma_warps_fits(&p));
	p.a.rows = 64;
	assert_true(cuda_mma_matrix_fits(&p));
	p.a.rows = 65;
	assert_false(cuda_mma_matrix_fits(&p));
	p.a.rows = 5;
	p.a.k = p.b.k = 96;
	assert_false(cuda_mma_warps_fits(&p));
	assert_false(cuda_mma_matrix_fits(&p));
	p.a.k = p.b.k = 0;
	assert_false(cuda_mma_warps_fits(&p));
	assert_false(cuda_mma_matrix_fits(&p));
}

static const struct cuda_image images[] = {
    {"sm90_first 1-2 kernel_of_first_sm90", "cubin"},
    {"sm80_first 3-4 nib_amax_sm80", "cubin"},
    {NULL, NULL},
};

static void ampere(void)
{
	static const int found[] = {80, 86, 87, 89, 120, 121, 130};
	struct fake_cuda *fake = fake_open(FAKE_CUDA);
	struct nib_device_info info;
	struct nib_device *device;

	cuda_images = images;
	for (size_t i = 0; i < sizeof(found) / sizeof(*found); i++) {
		fake->capability[0] = found[i];
		check_opens("cuda-sm80");
	}
	fake->capability[0] = 90;
	check_opens("cuda-sm90");
	setenv("NIB_CUDA_ARCH", "sm80", 1);
	check_opens("cuda-sm80");
	assert_ok(nib_device_open("cuda", NULL, &device, NULL));
	info = test_device_info(device);
	assert_string_equal(info.features + strlen(info.features) -
				strlen(", NIB_CUDA_ARCH=sm80"),
			    ", NIB_CUDA_ARCH=sm80");
	nib_device_close(device);
	fake->capability[0] = 75;
	check_refused("these kernels are for 8.0 or newer (A100, RTX 30, L4, RTX 40); "
		      "cuda:0, NVIDIA Fake 0, has compute capability 7.5");
	unsetenv("NIB_CUDA_ARCH");
	check_refused("has compute capability 7.5: the kernels are for 9.0 (H100, "
		      "H200) and 8.0 or newer");
	fake_check_clean(fake);
}

/* Products in tiles compute what no other product does, also nothing. */
static void products(void)
{
	struct nib_plan plan = {0};

	assert_ptr_equal(cuda_sm80.choose(&plan).product, &sm80_tiles);
	plan.is_moe = true;
	plan.count = 4;
	assert_ptr_equal(cuda_sm80.choose(&plan).product, &sm80_tiles);
	plan.moe.problem.a = (struct nib_fp4){.rows = 8, .k = 128, .batch = 1};
	plan.moe.problem.b = (struct nib_fp4){
	    .rows = 128,
	    .k = 128,
	    .batch = 4,
	    .row_stride_bytes = 64,
	    .batch_stride_bytes = 8192,
	    .scale_layout = NIB_SCALE_LAYOUT_TILED_128X4,
	    .scale_batch_stride_bytes = 1024,
	};
	plan.moe.problem.a.row_stride_bytes = 64;
	plan.moe.problem.a.scale_row_stride_bytes = 8;
	assert_ptr_equal(cuda_sm80.choose(&plan).product, &cuda_mma);
	plan.moe.problem.a.rows = 4 * 32 + 1;
	assert_ptr_equal(cuda_sm80.choose(&plan).product, &sm80_tiles);
}

/* The products of one matrix by their rows of A, and what the others need. */
static const struct cuda_product *product_of_n(int64_t m, int64_t n, int64_t k,
					       int64_t x_stride)
{
	struct nib_problem p = {.a = {.rows = m, .k = k},
				.b = {.rows = n, .k = k},
				.c = {.rows = m, .cols = n}};
	const struct nib_plan plan = {.op = NIB_OP_GEMM, .count = 1, .problems = &p};

	if (x_stride) {
		p.activations = NIB_ACTIVATIONS_DENSE;
		p.x = (struct nib_dense){.rows = m,
					 .cols = k,
					 .row_stride_elems = x_stride,
					 .dtype = NIB_DTYPE_BF16};
	}
	return cuda_sm80.choose(&plan).product;
}

static const struct cuda_product *product_of(int64_t m, int64_t k, int64_t x_stride)
{
	return product_of_n(m, 300, k, x_stride);
}

static void choices(void)
{
	assert_ptr_equal(product_of(1, 16, 0), &cuda_vector);
	assert_ptr_equal(product_of(4, 4096, 0), &cuda_vector);
	/* Few rows of dense A, if B has enough rows for all SMs. */
	assert_ptr_equal(product_of(1, 4096, 4096), &cuda_vector);
	assert_ptr_equal(product_of_n(1, 4096, 4096, 0), &cuda_vector);
	assert_ptr_equal(product_of_n(1, 4096, 4096, 4096), &cuda_mma_warps);
	assert_ptr_equal(product_of_n(4, 4096, 4112, 4112), &cuda_vector);
	assert_ptr_equal(product_of(5, 4096, 0), &cuda_mma_warps);
	assert_ptr_equal(product_of(8, 64, 67), &cuda_mma_warps);
	assert_ptr_equal(product_of(9, 64, 67), &cuda_mma_matrix);
	assert_ptr_equal(product_of(32, 4096, 0), &cuda_mma_matrix);
	assert_ptr_equal(product_of(16, 48, 51), &cuda_vector);
	assert_ptr_equal(product_of(64, 64, 67), &cuda_mma_matrix);
	assert_ptr_equal(product_of(64, 48, 67), &cuda_vector);
	assert_ptr_equal(product_of(5, 48, 0), &sm80_tiles);
	assert_ptr_equal(product_of(33, 64, 0), &cuda_mma_matrix);
	assert_ptr_equal(product_of(65, 64, 0), &sm80_tiles);
	assert_ptr_equal(product_of(65, 64, 67), &sm80_tiles);
}

/* Kernels without griddepcontrol never overlap the kernel before. */
static void no_overlap(void)
{
	struct fake_cuda *fake = fake_open(FAKE_CUDA);

	cuda_images = images;
	for (int is_forced = 0; is_forced < 2; is_forced++) {
		CUlaunchAttribute attributes[2];
		CUlaunchConfig config = {.attrs = attributes};
		struct nib_device *device;

		if (is_forced)
			setenv("NIB_CUDA_ARCH", "sm80", 1);
		assert_ok(nib_device_open("cuda", NULL, &device, NULL));
		cuda_may_overlap(cuda_device(device), &config);
		assert_int_equal(config.numAttrs, !is_forced);
		nib_device_close(device);
	}
	fake_check_clean(fake);
}

/* Only the selected row of `nib info` is open. */
static void rows(void)
{
	struct nib_backend_info info = {.struct_bytes = sizeof(info)};

	fake_open(FAKE_CUDA);
	cuda_images = images;
	setenv("NIB_CUDA_ARCH", "sm80", 1);
	for (int i = 0; i < CUDA_ARCHS; i++) {
		assert_ok(nib_backend_get_info(i, &info, NULL));
		assert_int_equal(info.is_open, strcmp(info.backend, "cuda-sm80") == 0);
		if (strcmp(info.backend, "cuda-sm90") == 0)
			assert_string_equal(info.reason,
					    "NIB_CUDA_ARCH=sm80 selects other kernels");
	}
}

int main(int argc, char **argv)
{
	static const struct fake_test tests[] = {
	    {"capabilities", capabilities},
	    {"forced", forced},
	    {"turing", turing},
	    {"slices_cover_k", slices_cover_k},
	    {"slices", slices},
	    {"warps_divide_k", warps_divide_k},
	    {"warps", warps},
	    {"fits", fits},
	    {"ampere", ampere},
	    {"products", products},
	    {"choices", choices},
	    {"rows", rows},
	    {"no_overlap", no_overlap},
	};

	return fake_main(argc, argv, tests, sizeof(tests) / sizeof(*tests));
}
