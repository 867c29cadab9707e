// SPDX-License-Identifier: Apache-2.0
// DeepGEMM's fp8 MQA logits for the B200, launched as csrc/jit_kernels does: 16 queries
// of 32 heads of 64 elements against 1024 keys.
#include <deep_gemm/impls/sm100_fp8_mqa_logits.cuh>

#include "dg_tensor_map.cuh"

int main(void)
{
	using namespace deep_gemm;
	const unsigned queries = 16, keys = 1024, heads = 32, dim = 64, block_q = 4,
		       block_kv = 256;
	auto byte = [](size_t i) {
		return (unsigned char)(0x28 + i * 2654435761u % 0x18);
	};
	auto *q = filled<unsigned char>(queries * heads * dim, byte),
	     *kv = filled<unsigned char>(keys * dim, byte);
	auto *scales = filled<float>(keys, number),
	     *weights = filled<float>(queries * heads, number);
	auto *start = zeros<unsigned>(queries),
	     *end = filled<unsigned>(queries, [](size_t) { return keys; });
	auto *logits = zeros<float>(queries * (keys + block_kv));
	const auto u8 = CU_TENSOR_MAP_DATA_TYPE_UINT8,
		   f32 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
	const int shared = 3 * (block_q * heads * (dim + 4) + block_kv * (dim + 4)) +
			   (6 + 6 + 4) * 8 + 4;
	launch(
	    sm100_fp8_mqa_logits<heads, dim, false, block_q, block_kv, 3, 3, 128, 256>,
	    2, 384, shared, 1, queries, keys, 0u, (uint64_t)(keys + block_kv), start,
	    end, logits,
	    matrix_map(u8, 1, q, dim, queries * heads, dim, block_q * heads, dim),
	    matrix_map(u8, 1, kv, dim, keys, dim, block_kv, dim),
	    matrix_map(f32, 4, scales, keys, 1, block_kv, 1, 0),
	    matrix_map(f32, 4, weights, heads, queries, heads, block_q, 0));
	return finish();
}
