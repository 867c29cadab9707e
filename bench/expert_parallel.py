#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""expert_parallel.py - a layer of experts on several GPUs of one host (or CPUs): first
whether results are right, then microseconds a layer, with the parts dispatch, compute and
combine, beside the same with tokens sent as bf16 and beside torch's grouped product in
bf16 with an all-to-all.

    torchrun --standalone --nproc-per-node 2 bench/expert_parallel.py --json results.json

Each rank has the given number of tokens; experts are chosen at random.  A time is the
median over the rounds of the slowest rank's; the host's time to enqueue is in it, but for
rows in CUDA graphs.  --fail: the last rank raises; the others must end with an error."""

import argparse
import datetime
import json
import os
import statistics
import sys
import time

# NVLink multicast stays off.
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import torch
import torch.distributed as dist

import nibblas.torch
from experts import SHAPES, TorchExperts, layer, tokens
from nibblas.torch.distributed import ExpertParallel, expert_range


# name: (mode, quantised, rows); torch's has no weights of ours.
WAYS = {"exchange w4a4": ("exchange", True, "quantized"),
        "exchange w4a4, bf16 rows": ("exchange", True, "dense"),
        "gather w4a4": ("gather", True, "quantized"),
        "gather w4a4, graph": ("gather", True, "quantized"),
        "gather w4a4, bf16 rows, graph": ("gather", True, "dense"),
        "exchange w4a16": ("exchange", False, "dense"),
        "torch bf16 grouped + all-to-all": ("exchange", None, "dense")}


class Machine:
    """This rank's device, and its clock."""

    def __init__(self, kind):
        self.is_gpu = kind == "cuda"
        self.device = torch.device("cpu")
        if self.is_gpu:
            self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(self.device)

    def wait(self):
        if self.is_gpu:
            torch.cuda.synchronize()

    def mark(self):
        if not self.is_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def us(self, begin, end):
        if not self.is_gpu:
            return 1e6 * (end - begin)
        return 1e3 * begin.elapsed_time(end)

    def slowest(self, values):
        """Each value's maximum over ranks."""
        all_of_them = torch.tensor(values, device=self.device)
        dist.all_reduce(all_of_them, dist.ReduceOp.MAX)
        return all_of_them.tolist()

    def name(self):
        if self.is_gpu:
            nccl = ".".join(map(str, torch.cuda.nccl.version()))
            return f"{torch.cuda.get_device_name()}, NCCL {nccl}"
        return nibblas.device().info()["hardware"]


# ---- right -----------------------------------------------------------------


def check(machine, say):
    """Several ranks against one, with even, uneven and empty ranks."""
    shape, device = SHAPES["small"], machine.device
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for quantized in (True, False):
        whole = layer(shape, device, quantized, 0, shape.experts)
        for mode in ("exchange", "gather"):
            for what, counts in (("even", [48] * ranks),
                                 ("uneven", [7 * r for r in range(ranks)])):
                ep = ExpertParallel(None, mode,
                                    max(counts) if mode == "gather" else None)
                x, ids, weights = tokens(shape, counts[rank], device, rank)
                y = ep(ep.shard(whole), x, ids, weights, shape.experts)
                want = whole(x, ids, weights)
                error = (y.float() - want.float()).abs().max() if len(y) else 0
                size = want.float().abs().max() if len(y) else 1
                bits, worst = machine.slowest(
                    [float(not torch.equal(y, want)), float(error / size)])
                # A partial sum of each rank is rounded to bf16.
                good = worst <= (ranks + 1) * 2.0 ** -8
                say({"check": f"{mode}, {'w4a4' if quantized else 'w4a16'}, {what}",
                     "same_bits": not bits, "worst": worst, "good": good})


# ---- fast ------------------------------------------------------------------


def median_of(machine, call, rounds):
    """call() returns marks; the medians of the times between them, and of the whole."""
    times = []
    for _ in range(rounds):
        dist.barrier()
        machine.wait()
        marks = call()
        machine.wait()
        parts = [machine.us(a, b) for a, b in zip(marks, marks[1:])]
        times.append(machine.slowest([*parts, machine.us(marks[0], marks[-1])]))
    return [statistics.median(t) for t in zip(*times)]


def graph_of(machine, run):
    """A CUDA graph of run(), whose result must be that of a call."""
    want = run()
    machine.wait()
    dist.barrier()
    machine.wait()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        y = run()
    graph.replay()
    machine.wait()
    return graph, torch.equal(y, want)


def measure(machine, way, experts, shape, count, rounds):
    """One row of the table."""
    mode, _, rows = WAYS[way]
    rank = dist.get_rank()
    x, ids, weights = tokens(shape, count, machine.device, 100 + rank)
    ep = ExpertParallel(None, mode, None, rows)

    def parts():
        marks = [machine.mark()]
        got = ep.dispatch(experts, x, ids, weights, shape.experts)
        marks.append(machine.mark())
        y = ep.compute(experts, got, x.dtype)
        marks.append(machine.mark())
        ep.combine(got, y, x.dtype, count)
        marks.append(machine.mark())
        return marks

    def run():
        return ep(experts, x, ids, weights, shape.experts)

    row = {}
    for _ in range(3):
        run()
    if way.endswith("graph"):
        graph, row["same_bits_as_eager"] = graph_of(machine, run)

        def replay():
            begin = machine.mark()
            graph.replay()
            return [begin, machine.mark()]
        row["us"] = median_of(machine, replay, rounds)[-1]
        return row
    dispatch, compute, combine, whole = median_of(machine, parts, rounds)
    narrow = experts.is_quantized and rows == "quantized"
    return {**row, "us": whole, "dispatch_us": dispatch, "compute_us": compute,
            "combine_us": combine,
            "row_bytes": shape.k * 9 // 16 if narrow else 2 * shape.k}


def table(machine, options, say):
    first_end = dist.get_world_size(), dist.get_rank()
    for name in options.shapes.split(","):
        shape = SHAPES[name]
        made, kind = None, ()
        for way, (_, quantized, _) in sorted(WAYS.items(),
                                             key=lambda w: str(w[1][1])):
            if way.endswith("graph") and not machine.is_gpu:
                continue
            if (quantized,) != kind:
                kind, made = (quantized,), None
                part = expert_range(shape.experts, *first_end)
                made = (TorchExperts(shape, machine.device, *part)
                        if quantized is None else
                        layer(shape, machine.device, quantized, *part))
            for count in map(int, options.tokens.split(",")):
                row = measure(machine, way, made, shape, count, options.rounds)
                say({"shape": name, "tokens": count, "way": way, **row})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if (
        torch.cuda.is_available()) else "cpu")
    parser.add_argument("--shapes", default="deepseek-v3,qwen3-30b-a3b")
    parser.add_argument("--tokens", default="1,16,128,1024", help="of a rank")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--timeout", type=int, default=120, help="seconds")
    parser.add_argument("--json", help="writes all rows to this file")
    parser.add_argument("--fail", action="store_true")
    options = parser.parse_args()
    machine = Machine(options.device)
    dist.init_process_group(
        "nccl" if machine.is_gpu else "gloo",
        timeout=datetime.timedelta(seconds=options.timeout),
        **({"device_id": machine.device} if machine.is_gpu else {}))
    rows = [{"machine": machine.name(), "ranks": dist.get_world_size(),
             "torch": torch.__version__, "rounds": options.rounds}]

    def say(row):
        rows.append(row)
        if dist.get_rank() == 0:
            print(json.dumps(row), flush=True)
            if options.json:
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump(rows, file, indent=1)

    say(rows.pop())
    check(machine, say)
    if options.fail:
        if dist.get_rank() == dist.get_world_size() - 1:
            raise RuntimeError("this rank fails")
        check(machine, say)
    table(machine, options, say)
    dist.destroy_process_group()
    if not all(row.get("good", True) for row in rows):
        sys.exit("expert_parallel.py: some results are wrong")


if __name__ == "__main__":
    main()
