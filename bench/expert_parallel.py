#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""expert_parallel.py - checks and measures a layer of experts on several GPUs of one
host (or on CPUs).  It first compares the results with those of one rank.  Then it
measures microseconds per layer, with the parts dispatch, compute and combine, and for
comparison the same with tokens sent as bf16, torch's grouped product in bf16 with an
all-to-all, and an all-to-all of the same rows without anything else.

    torchrun --standalone --nproc-per-node 2 bench/expert_parallel.py --json FILE

Each rank has the given number of tokens; experts are chosen at random.  Rounds of all
ways alternate.  A time is the slowest rank's, the median over the rounds; it includes
the host's time to enqueue except for rows in CUDA graphs.  With --fail the last rank
raises, and the others must end with an error."""

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


def call_us(machine, calls=2000):
    """us that the host needs for a call of torch: what bounds a layer of one token."""
    x = torch.zeros(1, device=machine.device)
    best = []
    for _ in range(5):
        machine.wait()
        begin = time.perf_counter()
        for _ in range(calls):
            x.add_(1)
        best.append(1e6 * (time.perf_counter() - begin) / calls)
    return min(best)


# ---- fast ------------------------------------------------------------------


def medians_of(machine, calls, rounds):
    """For each of calls, which return marks: the medians of the times between them, and
    of the whole.  Rounds of all calls alternate, so that a busy host is fair to all."""
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, of_call in zip(calls, times):
            dist.barrier()
            machine.wait()
            marks = call()
            machine.wait()
            parts = [machine.us(a, b) for a, b in zip(marks, marks[1:])]
            of_call.append(machine.slowest([*parts, machine.us(marks[0], marks[-1])]))
    return [[statistics.median(t) for t in zip(*of_call)] for of_call in times]


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


def launches(machine, run):
    """Kernels and copies that a GPU has of a call, by torch's profiler."""
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as profile:
        run()
        machine.wait()
    return sum(x.device_type == torch.autograd.DeviceType.CUDA
               for x in profile.events())


def prepare(machine, way, experts, shape, count, counts_launches):
    """What is known of a row of the table before it is timed, and a call that returns
    marks."""
    mode, _, rows = WAYS[way]
    x, ids, weights = tokens(shape, count, machine.device, 100 + dist.get_rank())
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

    row = {"tokens": count, "way": way}
    for _ in range(3):
        run()
    if way.endswith("graph"):
        graph, row["same_bits_as_eager"] = graph_of(machine, run)

        # The graph reads x, ids, weights and what ep keeps.
        def replay(_alive=run):
            begin = machine.mark()
            graph.replay()
            return [begin, machine.mark()]
        return row, replay
    if counts_launches:
        row["launches"] = launches(machine, run)
    narrow = experts.is_quantized and rows == "quantized"
    row["row_bytes"] = shape.k * 9 // 16 if narrow else 2 * shape.k
    return row, parts


def all_to_all(machine, rows, row_bytes, rounds, times=10):
    """us of only an all-to-all of this many rows from each rank to each."""
    ranks = dist.get_world_size()
    sent = torch.zeros(ranks * rows, row_bytes, dtype=torch.uint8,
                       device=machine.device)
    got = torch.empty_like(sent)

    def run():
        begin = machine.mark()
        for _ in range(times):
            dist.all_to_all_single(got, sent)
        return [begin, machine.mark()]
    run()
    return medians_of(machine, [run], rounds)[0][-1] / times


def links(machine, name, count, rounds, say):
    """Times the links with the rows of exchange, if experts are chosen evenly."""
    shape, ranks = SHAPES[name], dist.get_world_size()
    rows = -(-count * shape.slots // ranks)
    for what, row_bytes in (("codes and scales", shape.k * 9 // 16),
                            ("bf16", 2 * shape.k)):
        us = all_to_all(machine, rows, row_bytes, rounds)
        sent = (ranks - 1) * rows * row_bytes
        say({"shape": name, "tokens": count, "way": "only all-to-all: " + what,
             "us": us, "bytes_to_others": sent, "gb_s": sent / us / 1e3})


def table(machine, options, say):
    part = dist.get_world_size(), dist.get_rank()
    for name in options.shapes.split(","):
        shape = SHAPES[name]
        mine = expert_range(shape.experts, *part)
        experts = {None: TorchExperts(shape, machine.device, *mine)}
        for quantized in (True, False):
            experts[quantized] = layer(shape, machine.device, quantized, *mine)
        for count in map(int, options.tokens.split(",")):
            links(machine, name, count, options.rounds, say)
            rows, calls = zip(*(
                prepare(machine, way, experts[quantized], shape, count,
                        options.launches and count == 16)
                for way, (_, quantized, _) in WAYS.items()
                if machine.is_gpu or not way.endswith("graph")))
            times = medians_of(machine, calls, options.rounds)
            for row, (*parts, whole) in zip(rows, times):
                names = ("dispatch_us", "compute_us", "combine_us")
                say({"shape": name, **row, "us": whole,
                     **(dict(zip(names, parts)) if len(parts) == 3 else {})})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if (
        torch.cuda.is_available()) else "cpu")
    parser.add_argument("--shapes", default="deepseek-v3,qwen3-30b-a3b")
    parser.add_argument("--tokens", default="1,16,128,1024", help="of a rank")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--timeout", type=int, default=120, help="seconds")
    parser.add_argument("--json", help="writes all rows to this file")
    parser.add_argument("--launches", action="store_true",
                        help="of GPUs, counted for 16 tokens")
    parser.add_argument("--fail", action="store_true")
    options = parser.parse_args()
    machine = Machine(options.device)
    dist.init_process_group(
        "nccl" if machine.is_gpu else "gloo",
        timeout=datetime.timedelta(seconds=options.timeout),
        **({"device_id": machine.device} if machine.is_gpu else {}))
    rows = [{"machine": machine.name(), "ranks": dist.get_world_size(),
             "torch": torch.__version__, "rounds": options.rounds,
             "call_us": call_us(machine)}]

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
