/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_rings.c - a launch's kernel and the stages of its rings, by its tiles;
 * see gemm.h. */
#include "gemm.h"

/* Stages of a ring that fit into so many bytes. */
static int32_t stages_in(int32_t bytes, int32_t stage_bytes, int32_t most)
{
	return bytes / stage_bytes < most ? bytes / stage_bytes : most;
}

/*
 * As many activation stages as cover the latency of a warm L2 and fit beside
 * three weight stages; what is left goes to weights, which come from memory.
 */
static void choose_rings(int32_t capacity, int32_t a_steps,
			 struct nib_gemm_args *args)
{
	const int32_t stages = NIB_WEIGHT_STAGE_STEPS / a_steps;
	const int32_t stage = args->tile_m * NIB_STEP_K * 2 * a_steps;

	args->a_stage_bytes = stage;
	args->a_stages = stages_in(capacity - 3 * NIB_WEIGHT_STAGE_BYTES, stage,
				   NIB_GEMM_STAGES_MAX / a_steps) /
			 stages * stages;
	args->weight_stages =
	    stages_in(capacity - args->a_stages * stage, NIB_WEIGHT_STAGE_BYTES,
		      NIB_GEMM_STAGES_MAX);
}

/*
 * Four weight stages: with more, a launch asks for so much at once that its
 * activations come late; with three, both pairs of warpgroups wait (note 0038).
 * MoE is longer: more stages win more than late activations lose.
 *
 * At least as many activation stages as weight stages. A pair waits for an
 * activation stage once the weights of the same item are there, so that those
 * of `weight_stages` items before were released and their activations read.
 * With fewer activation stages a pair could take one barrier phase for another,
 * and with two both pairs would wait for ever.
 */
static void choose_small_m_rings(int32_t capacity, struct nib_gemm_args *args)
{
	args->a_stage_bytes = args->tile_m * NIB_WEIGHT_STAGE_K * 2;
	args->weight_stages = args->experts ? 5 : 4;
	args->a_stages =
	    stages_in(capacity - args->weight_stages * NIB_WEIGHT_STAGE_BYTES,
		      args->a_stage_bytes, 8);
}

void cuda_gemm_rings(const struct cuda_device *device, int32_t tile_m,
		     bool may_alternate, struct gemm_chunk *chunk)
{
	struct nib_gemm_args *args = &chunk->args;
	int32_t tail = NIB_GEMM_TAIL_BYTES;
	int32_t capacity = device->shared_bytes;

	chunk->a_steps = may_alternate && tile_m <= NIB_SMALL_M_MAX
			     ? NIB_SMALL_M_STEPS
			 : tile_m <= NIB_MEDIUM_M_MAX ? NIB_MEDIUM_M_STEPS
						      : NIB_LARGE_M_STEPS;
	args->tile_m = tile_m;
	if (chunk->a_steps == NIB_SMALL_M_STEPS) {
		tail += NIB_SMALL_M_EXCHANGE_BYTES(tile_m);
		choose_small_m_rings(capacity - tail, args);
	} else {
		choose_rings(capacity - tail, chunk->a_steps, args);
	}
	chunk->shared_bytes = args->a_stages * args->a_stage_bytes +
			      args->weight_stages * NIB_WEIGHT_STAGE_BYTES +
			      tail;
}
