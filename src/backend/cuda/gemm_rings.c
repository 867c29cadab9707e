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
 * As many token stages as a warm L2 needs and fit beside three weight stages;
 * what is left goes to weights, which come from memory.
 */
static void choose_many_rings(int32_t capacity, int32_t token_steps,
			      struct nib_gemm_args *args)
{
	const int32_t stages = NIB_WEIGHT_STAGE_STEPS / token_steps;
	const int32_t stage =
	    args->tile_tokens * NIB_TOKEN_STAGE_K * 2 * token_steps;

	args->token_stage_bytes = stage;
	args->token_stages =
	    stages_in(capacity - 3 * NIB_WEIGHT_STAGE_BYTES, stage,
		      NIB_GEMM_STAGES_MAX / token_steps) /
	    stages * stages;
	args->weight_stages =
	    stages_in(capacity - args->token_stages * stage,
		      NIB_WEIGHT_STAGE_BYTES, NIB_GEMM_STAGES_MAX);
}

/*
 * Four weight stages: with more, a launch asks for so much at once that its
 * tokens come late; with three, both pairs of warpgroups wait (note 0038).  A
 * mixture is long: more stages win more than late tokens lose.
 *
 * Token stages: as many as weight stages or more.  A pair looks at a token
 * stage once the weights of the same item are there, so that those of
 * `weight_stages` items before were released, their tokens read: with fewer
 * token stages it could take one turn of a barrier for another, and with two
 * both pairs wait for ever.
 */
static void choose_few_rings(int32_t capacity, struct nib_gemm_args *args)
{
	args->token_stage_bytes = args->tile_tokens * NIB_WEIGHT_STAGE_K * 2;
	args->weight_stages = args->experts ? 5 : 4;
	args->token_stages =
	    stages_in(capacity - args->weight_stages * NIB_WEIGHT_STAGE_BYTES,
		      args->token_stage_bytes, 8);
}

void cuda_gemm_rings(const struct cuda_device *device, int32_t tile_tokens,
		     bool in_turns, struct gemm_part *part)
{
	struct nib_gemm_args *args = &part->args;
	int32_t tail = NIB_GEMM_TAIL_BYTES;
	int32_t capacity = device->shared_bytes;

	part->token_steps = in_turns && tile_tokens <= NIB_FEW_TOKENS
				? NIB_FEW_STEPS
			    : tile_tokens <= NIB_SHORT_TOKENS ? NIB_SHORT_STEPS
							      : NIB_MANY_STEPS;
	args->tile_tokens = tile_tokens;
	if (part->token_steps == NIB_FEW_STEPS) {
		tail += NIB_FEW_EXCHANGE_BYTES(tile_tokens);
		choose_few_rings(capacity - tail, args);
	} else {
		choose_many_rings(capacity - tail, part->token_steps, args);
	}
	part->shared_bytes = args->token_stages * args->token_stage_bytes +
			     args->weight_stages * NIB_WEIGHT_STAGE_BYTES +
			     tail;
}
