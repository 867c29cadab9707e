// SPDX-License-Identifier: Apache-2.0
// CUTLASS's grouped product of example 24: two CTAs take the eight tiles of four
// products of 128 x 256 x 64.
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/thread/linear_combination.h>
#include <cutlass/gemm/device/gemm_grouped.h>
#include <cutlass/gemm/gemm.h>
#include <cutlass/gemm/kernel/default_gemm_grouped.h>
#include <cutlass/gemm/kernel/gemm_grouped.h>

#include "driver.cuh"

using half_type = cutlass::half_t;
using Columns = cutlass::layout::ColumnMajor;
using Kernel = cutlass::gemm::kernel::DefaultGemmGrouped<
    half_type, Columns, cutlass::ComplexTransform::kNone, 8, half_type, Columns,
    cutlass::ComplexTransform::kNone, 8, half_type, Columns, float,
    cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
    cutlass::gemm::GemmShape<128, 128, 32>, cutlass::gemm::GemmShape<64, 64, 32>,
    cutlass::gemm::GemmShape<16, 8, 16>,
    cutlass::epilogue::thread::LinearCombination<half_type, 8, float, float>,
    cutlass::gemm::threadblock::GemmBatchedIdentityThreadblockSwizzle, 4>::GemmKernel;
using Gemm = cutlass::gemm::device::GemmGrouped<Kernel>;

int main(void)
{
	const int count = 4, m = 128, n = 256, k = 64;
	half_type *a[count], *b[count], *c[count];
	for (int i = 0; i < count; i++) {
		a[i] = filled<half_type>(m * k, number);
		b[i] = filled<half_type>(k * n, number);
		c[i] = zeros<half_type>(m * n);
	}
	auto *sizes = filled<cutlass::gemm::GemmCoord>(
	    count, [](size_t) { return cutlass::gemm::GemmCoord(m, n, k); });
	auto *pa = filled<half_type *>(count, [&](size_t i) { return a[i]; });
	auto *pb = filled<half_type *>(count, [&](size_t i) { return b[i]; });
	auto *pc = filled<half_type *>(count, [&](size_t i) { return c[i]; });
	auto *lda = filled<int64_t>(count, [](size_t) { return m; }),
	     *ldb = filled<int64_t>(count, [](size_t) { return k; });
	Gemm::Arguments arguments(sizes, count, 2, {1.0f, 0.0f}, pa, pb, pc, pc, lda,
				  ldb, lda, lda);
	Gemm gemm;
	if (gemm.initialize(arguments) != cutlass::Status::kSuccess ||
	    gemm.run() != cutlass::Status::kSuccess)
		give_up("GemmGrouped", "it was not launched");
	return finish();
}
