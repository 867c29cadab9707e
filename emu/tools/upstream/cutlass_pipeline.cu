// SPDX-License-Identifier: Apache-2.0
// CUTLASS's PipelineTmaAsync between the two CTAs of a cluster, set up as its kernels
// do: the constructor, a relaxed arrival at the cluster's barrier, and the wait.
// Consumers of each CTA then release a stage to the producers of both.
#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/pipeline/pipeline.hpp>

#include "driver.cuh"

using Pipeline = cutlass::PipelineTmaAsync<2>;
using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;

__global__ __cluster_dims__(2, 1, 1) void hand_over(void)
{
	__shared__ alignas(16) char bytes[sizeof(Pipeline::SharedStorage)];
	auto &storage = *reinterpret_cast<Pipeline::SharedStorage *>(bytes);
	Pipeline::Params params;
	params.transaction_bytes = 0;
	params.role = threadIdx.x < 128 ? Pipeline::ThreadCategory::Consumer
					: Pipeline::ThreadCategory::Producer;
	params.is_leader = threadIdx.x == 128;
	params.num_consumers = 128;
	Pipeline pipeline(storage, params, Cluster{});
	cute::cluster_arrive_relaxed();
	cute::cluster_wait();
	if (threadIdx.x < 128) {
		cutlass::PipelineState<2> state;
		pipeline.consumer_release(state);
	} else if (threadIdx.x == 128) {
		auto state = cutlass::make_producer_start_state<Pipeline>();
		++state, ++state;
		pipeline.producer_acquire(state);
	}
	cute::cluster_sync();
}

int main(void)
{
	hand_over<<<2, 256>>>();
	must(cudaGetLastError(), "launch");
	return finish();
}
