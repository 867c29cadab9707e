#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""expert_parallel.py - a layer of experts in NVFP4 whose experts several processes
share: on GPUs of one host by NCCL, else on CPUs by gloo.

    pip install . torch
    torchrun --standalone --nproc-per-node 2 examples/expert_parallel.py"""

import datetime
import os
import sys

import torch
import torch.distributed as dist

import nibblas.torch
from nibblas.torch.distributed import ExpertParallel, expert_range

EXPERTS, WIDTH, K, SLOTS, TOKENS = 16, 256, 512, 4, 24


def main():
    """Computes the layer on all ranks together, and on each rank separately."""
    on_gpu = torch.cuda.is_available()
    # A rank that fails ends the others after this time at the latest.
    dist.init_process_group("nccl" if on_gpu else "gloo",
                            timeout=datetime.timedelta(seconds=60))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if on_gpu:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)

    # All ranks make the same layer here; a model's ranks read only their experts.
    torch.manual_seed(0)
    whole = nibblas.torch.MoE.from_weights(
        torch.randn(EXPERTS, 2 * WIDTH, K) * K ** -0.5,
        torch.randn(EXPERTS, K, WIDTH) * WIDTH ** -0.5,
        input_scale=4 / 2688, hidden_scale=4 / 2688)
    x = torch.randn(TOKENS, K).bfloat16()
    weights, ids = torch.randn(TOKENS, EXPERTS).softmax(1).topk(SLOTS)
    whole, x, ids, weights = (t.to(device) for t in (whole, x, ids, weights))

    # This rank's tokens and experts.
    mine = slice(TOKENS * rank // ranks, TOKENS * (rank + 1) // ranks)
    for mode in ("exchange", "gather"):
        ep = ExpertParallel(mode=mode, capacity=TOKENS if mode == "gather" else None)
        part = ep.shard(whole)
        y = ep(part, x[mine], ids[mine], weights[mine], EXPERTS)
        want = whole(x, ids, weights)[mine]
        error = (y - want).abs().max().item() if len(y) else 0.0
        largest = want.abs().max().item() if len(y) else 0.0
        first, end = expert_range(EXPERTS, ranks, rank)
        # One write a line: the ranks share a terminal.
        sys.stdout.write(
            f"rank {rank} of {ranks}, {mode}: experts {first} to {end - 1}, "
            f"{len(y)} tokens, same bits as one process: {torch.equal(y, want)}, "
            f"largest difference {error:.2g} of {largest:.2g}\n")
        sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
