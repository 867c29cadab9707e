# SPDX-License-Identifier: Apache-2.0
"""expert_ranks.py FOLDER CASE - one process of test_torch_distributed.py: a layer of
experts over torch.distributed (gloo), whose results go to FOLDER."""

import datetime
import sys

import torch
import torch.distributed as dist

import nibblas.torch
from nibblas.torch.distributed import ExpertParallel

EXPERTS, WIDTH, K, TOKENS, SLOTS = 10, 48, 64, 24, 3


def experts(is_quantized):
    """The same on all ranks."""
    torch.manual_seed(3)
    scales = {"input_scale": 2.0 ** -9, "hidden_scale": 2.0 ** -10}
    return nibblas.torch.MoE.from_weights(
        torch.randn(EXPERTS, 2 * WIDTH, K) * 0.1, torch.randn(EXPERTS, K, WIDTH) * 0.1,
        **(scales if is_quantized else {}))


def tokens(dtype):
    """(x, ids, weights) of all ranks; a few ids are nobody's, one row has none, and
    their weights must not matter."""
    torch.manual_seed(4)
    x = torch.randn(TOKENS, K).to(dtype)
    ids = torch.rand(TOKENS, EXPERTS).topk(SLOTS).indices
    ids[3, 1], ids[5, 0], ids[7] = -1, EXPERTS, 10 ** 6
    weights = torch.rand(TOKENS, SLOTS)
    weights[3, 1], weights[5, 0], weights[7] = torch.inf, torch.nan, -torch.inf
    return x, ids, weights


def bounds(ranks, how):
    """Where the tokens of each rank end."""
    if how == "even":
        return [TOKENS * (r + 1) // ranks for r in range(ranks)]
    # Rank 0 has none, the last one the most.
    return [0, *(3 * r for r in range(1, ranks - 1)), TOKENS][-ranks:]


def run(folder, rank, ranks):
    for is_quantized in (False, True):
        whole = experts(is_quantized)
        for mode, how, rows in (("exchange", "even", "quantized"),
                                ("exchange", "uneven", "quantized"),
                                ("exchange", "uneven", "dense"),
                                ("gather", "even", "quantized"),
                                ("gather", "uneven", "quantized")):
            ends = bounds(ranks, how)
            mine = slice(ends[rank - 1] if rank else 0, ends[rank])
            capacity = TOKENS if (mode, how) == ("gather", "uneven") else None
            ep = ExpertParallel(None, mode, capacity, rows)
            part = ep.shard(whole)
            for dtype in (torch.bfloat16, torch.float32):
                x, ids, weights = tokens(dtype)
                y = ep(part, x[mine], ids[mine], weights[mine], EXPERTS)
                name = f"{is_quantized}-{mode}-{how}-{rows}-{dtype}-{rank}"
                torch.save(y, f"{folder}/{name}.pt")


def fail(rank):
    """The last rank raises between two layers; the others must not hang."""
    ep = ExpertParallel()
    part = ep.shard(experts(True))
    x, ids, weights = tokens(torch.bfloat16)
    for layer in range(3):
        if layer == 1 and rank == dist.get_world_size() - 1:
            raise RuntimeError("this rank fails")
        ep(part, x, ids, weights, EXPERTS)


def main(folder, case):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if case == "fail":
        fail(rank)
    else:
        run(folder, rank, ranks)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
