/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_marlin.cu - Marlin's host functions (the file HOST, from vLLM) as C functions for
 * gpu_marlin.py.
 *
 * tools/get_marlin.sh fetches vLLM's sources and compiles this file twice: with
 * MARLIN_EXPERTS for products of experts, and without it for dense products and the
 * conversion of weights.  Marlin chooses its kernels itself, as in vLLM; sums of
 * different CTAs are added in fp32, vLLM's default.
 */
#include HOST

#include <exception>
#include <string>

/* A product.  Operands are on the GPU, in Marlin's layouts (gpu_marlin.py). */
struct marlin_product {
	const void *a, *codes, *scales;
	const float *global_scales; /* one, or one for each expert */
	void *c;
	float *sums; /* of split products: large enough for all CTAs */
	int *locks;  /* zeros, at least 4 for each multiprocessor */
	int m, n, k;
	/* Products of experts: rows by block, with m for padding; the expert of each
	 * block; the number of rows with padding; rows of a block. */
	const int *sorted_rows, *experts_of_blocks, *padded_rows;
	int block_rows, experts;
	cudaStream_t stream;
};

/* Why the last call failed, or NULL. */
template <class F>
static const char *message_of(F call)
{
	static std::string message;

	try {
		call();
		const cudaError_t error = cudaGetLastError();
		if (error == cudaSuccess)
			return nullptr;
		message = cudaGetErrorString(error);
	} catch (const std::exception &problem) {
		message = problem.what();
	}
	return message.c_str();
}

struct device {
	int index = 0, multiprocessors = 0;

	device()
	{
		cudaGetDevice(&index);
		cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount,
				       index);
	}
};

#ifdef MARLIN_EXPERTS

extern "C" const char *marlin_experts(const marlin_product *p)
{
	return message_of([&] {
		const device gpu;
		marlin_moe_wna16::marlin_mm(
		    p->a, p->codes, p->c, p->sums, nullptr, nullptr, (void *)p->scales,
		    (void *)p->global_scales, nullptr, (void *)p->sorted_rows,
		    (void *)p->experts_of_blocks, (void *)p->padded_rows, nullptr,
		    p->block_rows, p->experts, /*top_k=*/1, /*mul_topk_weights=*/false,
		    p->m, p->n, p->k, p->locks, vllm::kFloat16, vllm::kFE2M1f,
		    vllm::kFloat16, vllm::kFE4M3fn, /*has_bias=*/false,
		    /*has_zp=*/false, /*group_size=*/16, gpu.index, p->stream,
		    /*thread_k=*/-1, /*thread_n=*/-1, gpu.multiprocessors,
		    /*blocks_per_sm=*/-1, /*use_atomic_add=*/false,
		    /*use_fp32_reduce=*/true, /*is_zp_float=*/false);
	});
}

#else

/* Codes uint32 [k / 8, n], of eight values each, in Marlin's order. */
extern "C" const char *marlin_repack(const uint32_t *codes, uint32_t *out, int n, int k,
				     cudaStream_t stream)
{
	return message_of([&] {
		const auto kernel =
		    marlin::gptq_marlin_repack_kernel<marlin::repack_threads, 4, false>;
		const device gpu;
		int bytes = 0;

		cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
				       gpu.index);
		cudaFuncSetAttribute(
		    kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
		kernel<<<gpu.multiprocessors, marlin::repack_threads, bytes, stream>>>(
		    codes, out, k, n);
	});
}

extern "C" const char *marlin_dense(const marlin_product *p)
{
	return message_of([&] {
		const device gpu;
		marlin::marlin_mm(
		    p->a, p->codes, p->c, p->sums, nullptr, nullptr, (void *)p->scales,
		    (void *)p->global_scales, nullptr, p->m, p->n, p->k, /*lda=*/p->k,
		    p->locks, vllm::kFloat16, vllm::kFE2M1f, vllm::kFloat16,
		    vllm::kFE4M3fn, /*has_bias=*/false, /*has_zp=*/false,
		    /*num_groups=*/p->k / 16, /*group_size=*/16, gpu.index, p->stream,
		    /*thread_k=*/-1, /*thread_n=*/-1, gpu.multiprocessors,
		    /*use_atomic_add=*/false, /*use_fp32_reduce=*/true,
		    /*is_zp_float=*/false);
	});
}

extern "C" const char *marlin_version(void)
{
	return VERSION;
}

#endif
