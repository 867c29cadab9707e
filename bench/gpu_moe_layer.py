#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_moe_layer.py - measures a whole layer of experts on one GPU:
torch.ops.nibblas.moe with W4A4 and W4A16, torch's grouped bf16 products and Humming's
grouped W4A16 of the same weights.  The last two have the routing and sums that their
users write in torch; SwiGLU is torch's and Humming's own.  "humming products" is the
part of Humming's layer that an engine with routing of its own would keep: rows are in
the order of experts beforehand, and the sums are not made.

    bench/gpu_moe_layer.py [--shapes deepseek-v3,...] [--tokens 1,4,...]
        [--ways W4A4,...] [--minutes 8] [--json FILE]

Each time is the median of 15 replays of one CUDA graph of layers whose tokens, experts
and, where one layer's do not fill the L2 four times, weights differ.  The read limit is
the time to read the weights of the used experts once, at the bandwidth measured in the
same run.  Results are compared with torch's; a wrong one has no time, and the status is
1.  A way that cannot run is a row with the reason, and status 1 if --ways names it.
--dry-run runs small layers on the CPU; its times mean nothing."""

import argparse
import datetime
import json
import math
import statistics
import sys
import time

try:
    import torch
except ImportError:
    sys.exit("gpu_moe_layer.py: torch is not installed")

import gpu_humming
import nibblas.torch  # noqa: F401
from experts import SHAPES, TorchExperts, by_expert, layer, of_tokens, stacks, tokens
from gpu_baselines import (GpuClock, HostClock, card, event_seconds, machine,
                           measure_mhz)
from gpu_operands import Nib, abi
from gpu_torch import version_of, versions
from nibblas._library import library_path
from nibblas.torch._weights import LayerWeights

LAYERS = 12  # in a graph
MOST_COPIES = 5
NOT_REACHED = "not reached in time"
# Largest difference from torch's, as part of the largest result: bf16 between the
# products of torch's and, in W4A4, x and the intermediate values in four bits.
BOUNDS = {"W4A4": 0.35, "W4A16": 0.03, "humming W4A16": 0.03,
          "humming products W4A16": 0.03}


def operator(experts):
    """The layer's operator, with the factors that are the same in every call."""
    m = experts
    alpha13, alpha2, x_global, h_global = m.w13_scale_2, m.w2_scale_2, None, None
    if m.is_quantized:
        x_global, h_global = m.input_scale, m.hidden_scale
        alpha13, alpha2 = alpha13 * x_global, alpha2 * h_global
    packed = [LayerWeights() for _ in range(3)]  # gate, up, down
    return lambda x, ids, weights: torch.ops.nibblas.moe(
        x, ids, weights, m.w13, m.w13_scale, m.w2, m.w2_scale, alpha13, alpha2,
        x_global, h_global, packed=[w.number for w in packed])


class HummingExperts:
    """Its two products and SwiGLU, with torch's operators around."""

    def __init__(self, shape, device):
        self.shape = shape
        self.first, self.second = (
            gpu_humming.product(torch, codes, scales.view(torch.uint8), global_scale)
            for codes, scales, global_scale in stacks(shape, device, 0, shape.experts))

    def routed(self, x, ids):
        """Rows in the order of experts, that order and the experts' first rows."""
        order, offsets = by_expert(ids, 0, self.shape.experts)
        return x.half()[order // self.shape.slots], order, offsets

    def products(self, rows, offsets):
        return self.second(gpu_humming.swiglu(self.first(rows, offsets)), offsets)

    def __call__(self, x, ids, weights):
        rows, order, offsets = self.routed(x, ids)
        return of_tokens(self.products(rows, offsets), order, weights)


class HummingProducts(HummingExperts):
    """The same layer, of which only the products are timed."""

    def timed(self, x, ids, weights):
        rows, _, offsets = self.routed(x, ids)
        return lambda: self.products(rows, offsets)


def compile_humming(options):
    """Compiles all of Humming's kernels at once; a failure is left to its rows."""
    if options.device == "cpu" or not any("humming" in w for w in options.ways):
        return
    shapes = [SHAPES[name] for name in options.shapes]
    wanted = [(s.experts, n, k, t * s.slots, True) for s in shapes
              for n, k in ((2 * s.width, s.k), (s.k, s.width)) for t in options.tokens]
    begin = time.perf_counter()
    try:
        failed = gpu_humming.compile_ahead(torch, wanted)
    except Exception as problem:  # its rows say the same
        print(f"  humming: {problem}", file=sys.stderr)
    else:
        print(f"  humming: kernels of {len(wanted)} products, {failed} failed, "
              f"{time.perf_counter() - begin:.0f} s", file=sys.stderr)


# torch's first: the others are compared with it.
WAYS = {"torch grouped bf16": lambda s, d: TorchExperts(s, d, 0, s.experts),
        "W4A4": lambda s, d: operator(layer(s, d, True, 0, s.experts)),
        "W4A16": lambda s, d: operator(layer(s, d, False, 0, s.experts)),
        "humming W4A16": HummingExperts, "humming products W4A16": HummingProducts}


def used_bytes(shape, ids):
    """Returns how many bytes of weights these tokens need."""
    values = 3 * shape.width * shape.k * len(ids.unique())
    return values * 9 // 16


def read_bandwidth(nib):
    data = torch.zeros(4 << 30, dtype=torch.uint8, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream
    return data.numel() / statistics.median(
        event_seconds(torch, lambda: nib.probe(
            abi.NIB_PROBE_READ, data.data_ptr(), data.numel(), stream))
        for _ in range(7))


def timed(layer_of_experts, inputs):
    """The call to time: the whole layer, unless it has a part for that."""
    if hasattr(layer_of_experts, "timed"):
        return layer_of_experts.timed(*inputs)
    return lambda: layer_of_experts(*inputs)


def measure(shape, count, way, made, wanted, options):
    """(row, result); made: the copies of the weights.  wanted: torch's result, or None.
    A result that is wrong is not timed."""
    inputs = [tokens(shape, count, options.device, seed) for seed in range(LAYERS)]
    calls = [timed(made[i % len(made)], t) for i, t in enumerate(inputs)]
    y = made[0](*inputs[0]).float()
    row = {"way": way, "tokens": count, "layers": LAYERS, "copies": len(made),
           "bytes": statistics.mean(used_bytes(shape, t[1]) for t in inputs)}
    if wanted is not None and way in BOUNDS:
        row["worst"] = float((y - wanted).abs().max() / wanted.abs().max())
        row["ok"] = row["worst"] <= BOUNDS[way]
        if not row["ok"]:
            why = f"off by {row['worst']:.2g} of the largest, more than {BOUNDS[way]}"
            return {**row, "skipped": "WrongResult: " + why}, y
    row["us"] = 1e6 * statistics.median(options.clock.samples(calls))
    return {**row, **options.clock.clocks}, y


def skipped(problem):
    why = str(problem).split("\n", maxsplit=1)[0][:200]
    return {"skipped": f"{type(problem).__name__}: {why}"}


def measure_way(name, way, copies, wanted, options, say):
    """The rows of one way: one, with the reason, if its weights cannot be made."""
    shape = SHAPES[name]
    row = {"shape": name, "way": way}
    if not way.startswith("W4"):
        row["version"] = version_of(way.removesuffix(" W4A16"))
    try:
        made = [WAYS[way](shape, options.device)
                for _ in range(1 if "torch" in way else copies)]
    except Exception as problem:  # whatever a way throws is its reason
        say({**row, **skipped(problem)})
        return
    for count in options.tokens:
        if time.monotonic() > options.end:
            say({**row, "tokens": count, "skipped": NOT_REACHED})
            continue
        try:
            found, y = measure(shape, count, way, made, wanted.get(count), options)
        except Exception as problem:
            say({**row, "tokens": count, **skipped(problem)})
            continue
        if "torch" in way:
            wanted[count] = y
        say({**row, **found})


def measure_shape(name, options, say):
    shape, wanted = SHAPES[name], {}
    bytes_of_token = 3 * shape.width * shape.k * shape.slots * 9 // 16
    copies = min(max(1, math.ceil(4 * options.l2_bytes / bytes_of_token / LAYERS)),
                 MOST_COPIES)
    for way in options.ways:
        if time.monotonic() > options.end:
            say({"shape": name, "way": way, "skipped": NOT_REACHED})
            continue
        measure_way(name, way, copies, wanted, options, say)
        if options.device == "cuda":
            torch.cuda.empty_cache()


def cell(row):
    if row is None:
        return ""
    if "us" in row:
        return f"{row['us']:.1f}"
    return "wrong" if row.get("ok") is False else "failed"


def print_table(rows, read_bps):
    """Columns: ways; a row for a shape and a number of tokens."""
    found = {(r["shape"], r.get("tokens"), r["way"]): r for r in rows}
    ways = list(dict.fromkeys(r["way"] for r in rows))
    lines = [["layer", "tokens", "read limit", *ways]]
    for shape, count in dict.fromkeys((s, t) for s, t, _ in found if t is not None):
        here = [found.get((shape, count, way), found.get((shape, None, way)))
                for way in ways]
        nbytes = next((r["bytes"] for r in here if r and "bytes" in r), None)
        limit = f"{nbytes / read_bps * 1e6:.1f}" if read_bps and nbytes else ""
        lines.append([shape, str(count), limit, *map(cell, here)])
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("  ".join(x.ljust(w) if i < 1 else x.rjust(w)
                        for i, (x, w) in enumerate(zip(line, widths))))
    for row in rows:
        if "skipped" in row:
            count = f", {row['tokens']} tokens" if "tokens" in row else ""
            print(f"not measured: {row['way']}, {row['shape']}{count}: "
                  f"{row['skipped']}")
    print("us a layer" + (f"; read bandwidth {read_bps * 1e-12:.2f} TB/s"
                          if read_bps else ""))


def read_args(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="deepseek-v3,qwen3-30b-a3b,mixtral-8x7b")
    parser.add_argument("--tokens", default="1,4,16,64,256,4096")
    parser.add_argument("--ways", help="some of " + ", ".join(WAYS))
    parser.add_argument("--minutes", type=float, default=math.inf,
                        help="measure nothing after that")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(argv)
    options.named = options.ways.split(",") if options.ways else []
    options.ways = options.named or list(WAYS)
    for way in options.ways:
        if way not in WAYS:
            parser.error(f"--ways {way}: must be of {', '.join(WAYS)}")
    options.tokens = [int(t) for t in options.tokens.split(",")]
    options.shapes = options.shapes.split(",")
    for name in options.shapes:
        if name not in SHAPES:
            parser.error(f"--shapes {name}: must be of {', '.join(SHAPES)}")
    options.end = time.monotonic() + 60 * options.minutes
    options.device, options.l2_bytes = "cpu", 0
    options.clock = HostClock(3)
    if not options.dry_run:
        if not torch.cuda.is_available():
            sys.exit("gpu_moe_layer.py: torch finds no GPU (--dry-run needs none)")
        options.nib = Nib(library_path(), "cuda:0")
        options.device = "cuda"
        options.clock = GpuClock(
            torch, 15, lambda load: measure_mhz(torch, options.nib, load))
        options.l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    return options


def failures(rows, options):
    """What makes the exit status 1, as lines."""
    needed = {"W4A4", "W4A16", *options.named}
    for row in rows:
        why = row.get("skipped", "")
        if why and (row["way"] in needed or row.get("ok") is False
                    or why == NOT_REACHED):
            yield f"{row['way']}, {row['shape']}: {row['skipped']}"


def main(argv=None):
    options = read_args(argv)
    if options.device == "cuda":
        read_bps, name = read_bandwidth(options.nib), machine(torch)
    else:
        read_bps, name = None, "CPU, dry run, " + versions(torch)
    head = {"machine": name, "torch": torch.__version__, "read_bps": read_bps,
            "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"}
    rows = []

    def write():
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump([head, *rows], file, indent=1)

    def say(row):
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
        write()

    if options.device == "cuda":
        head["clock_before_mhz"] = card(torch, options.nib, "before")
    compile_humming(options)
    for shape in options.shapes:
        measure_shape(shape, options, say)
    if options.device == "cuda":
        head["clock_after_mhz"] = card(torch, options.nib, "after")
        write()
    print(name)
    print_table(rows, read_bps)
    print(f"{sum(row.get('ok') is True for row in rows)} passed, "
          f"{sum(row.get('ok') is False for row in rows)} failed")
    problems = list(failures(rows, options))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
