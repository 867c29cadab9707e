// SPDX-License-Identifier: Apache-2.0
// DeepGEMM's fp8 product for the B200, launched as csrc/jit_kernels does: pairs of
// CTAs, 512 x 256 x 1024 in blocks of 128. Scales are UE8M0, four of k in a word: of A
// by 1 x 128, of B by 1 x 128 too, or with -DB_IS_FP4 for a B of 4 bits by 1 x 32.
#include <deep_gemm/impls/sm100_fp8_fp4_gemm_1d1d.cuh>

#include "dg_tensor_map.cuh"
#include "product.cuh"

#ifdef B_IS_FP4
using b_type = cutlass::detail::float_e2m1_unpacksmem_t;
const unsigned b_k = 32;
#else
using b_type = cutlass::float_e4m3_t;
const unsigned b_k = 128;
#endif

// Scales 2^-4 to 2^3 of ROWS rows, [K / (4 * STEP)][rows][4].
static matrix random_scales(unsigned rows, unsigned k, unsigned step)
{
	matrix m{k / step, rows, std::vector<double>(k / step * rows),
		 std::vector<unsigned char>(k / step * rows)};
	for (size_t s = 0; s < k / step; s++)
		for (size_t row = 0; row < rows; row++) {
			const int e = int(source()() % 8) - 4;
			m.value[s * rows + row] = std::ldexp(1.0, e);
			m.bytes[(s / 4 * rows + row) * 4 + s % 4] =
			    (unsigned char)(127 + e);
		}
	return m;
}

// Rows of 4 bits become bytes of shared memory, 16 of them from 8.
static CUtensorMap fp4_map(void *data, unsigned inner, unsigned outer,
			   unsigned box_outer)
{
	CUtensorMap map;
	const cuuint64_t dims[2] = {inner, outer}, strides[1] = {inner / 2};
	const cuuint32_t box[2] = {128, box_outer}, steps[2] = {1, 1};
	if (cuTensorMapEncodeTiled(
		&map, CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B, 2, data, dims, strides,
		box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
		CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
		CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
		give_up("cuTensorMapEncodeTiled", "a map was refused");
	return map;
}

int main(void)
{
	using namespace deep_gemm;
	const unsigned m = 512, n = 256, k = 1024, sms = 4;
	const bool is_fp4 = b_k == 32;
	const matrix a = random_matrix<__nv_fp8_e4m3>(m, k);
	const matrix b = is_fp4 ? random_fp4(n, k) : random_matrix<__nv_fp8_e4m3>(n, k);
	const matrix sa = random_scales(m, k, 128), sb = random_scales(n, k, b_k);
	auto *d = zeros<__nv_bfloat16>(m * n);
	const auto type = CU_TENSOR_MAP_DATA_TYPE_UINT8,
		   words = CU_TENSOR_MAP_DATA_TYPE_INT32;
	const int stages = 4, shared = 2 * 128 * 128 +
				       stages * (128 * 128 + 64 * 128 + 1024) +
				       stages * 24 + 40 + 4;
	launch(sm100_fp8_fp4_gemm_1d1d_impl<
		   cute::UMMA::Major::K, cute::UMMA::Major::K, 128, b_k, 128, 0, 0, 0,
		   128, 128, 128, 1, 128, 128, 128, stages, 128, 128, 2, false, sms,
		   false, false, GemmType::Normal, false, cutlass::float_e4m3_t, b_type,
		   cutlass::bfloat16_t, epilogue::transform::EpilogueIdentity>,
	       sms, 256, shared, 2, (int *)nullptr, m, n, k,
	       matrix_map(type, 1, a.on_device(), k, m, 128, 128, 128),
	       is_fp4 ? fp4_map(b.on_device(), k, n, 64)
		      : matrix_map(type, 1, b.on_device(), k, n, 128, 64, 128),
	       matrix_map(words, 4, sa.on_device(), m, k / 512, 128, 1, 0),
	       matrix_map(words, 4, sb.on_device(), n, k / (4 * b_k), 128, 1, 0),
	       matrix_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, d, n, m, 64, 128, 128));
	return compare(
	    d, m, n, k,
	    [&](size_t i, size_t l) { return a.at(i, l) * sa.at(l / 128, i); },
	    [&](size_t j, size_t l) { return b.at(j, l) * sb.at(l / b_k, j); });
}
