#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_moe_layer.py - measures a whole layer of experts on one GPU:
torch.ops.nibblas.moe with W4A4 and W4A16, torch's grouped bf16 products and Humming's
grouped W4A16.  The last two have the routing, silu and sums that their users write in
torch.

    bench/gpu_moe_layer.py [--shapes deepseek-v3,...] [--tokens 1,4,...]
        [--ways W4A4,...] [--json FILE]

Each time is the median of 15 replays of one CUDA graph of layers whose tokens, experts
and, where one layer's do not fill the L2 four times, weights differ.  The read limit is
the time to read the weights of the used experts once, at the bandwidth measured in the
same run.  Results are compared with torch's.  --dry-run runs small layers on the CPU;
its times mean nothing."""

import argparse
import datetime
import json
import math
import statistics
import sys

try:
    import torch
except ImportError:
    sys.exit("gpu_moe_layer.py: torch is not installed")

import nibblas.torch  # noqa: F401
from experts import SHAPES, TorchExperts, by_expert, layer, of_tokens, tokens
from gpu_baselines import GpuClock, HostClock, event_seconds
from gpu_operands import Nib, abi
from gpu_operands import Shape as Product
from gpu_torch import humming_layer, version_of
from nibblas._library import library_path
from nibblas.torch._weights import LayerWeights

LAYERS = 12  # in a graph
MOST_COPIES = 5
# Largest difference from torch's, as part of the largest result: bf16 between the
# products of torch's and, in W4A4, x and the intermediate values in four bits.
BOUNDS = {"W4A4": 0.35, "W4A16": 0.03}


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


def humming_experts(shape):
    """Its two products, with weights of its own, and torch's operators around."""
    def grouped(n, k):
        return humming_layer(torch, Product("", "moe", [1] * shape.experts, n, k))

    first = grouped(2 * shape.width, shape.k)
    second = grouped(shape.k, shape.width)

    def call(x, ids, weights):
        order, offsets = by_expert(ids, 0, shape.experts)
        gate, up = first(x.half()[order // shape.slots], offsets).chunk(2, 1)
        rows = second(torch.nn.functional.silu(gate) * up, offsets)
        return of_tokens(rows, order, weights)

    return call


# torch's first: the others are compared with it.
WAYS = {"torch grouped bf16": lambda s, d: TorchExperts(s, d, 0, s.experts),
        "W4A4": lambda s, d: operator(layer(s, d, True, 0, s.experts)),
        "W4A16": lambda s, d: operator(layer(s, d, False, 0, s.experts)),
        "humming W4A16": lambda s, d: humming_experts(s)}


def used_bytes(shape, ids):
    """Returns how many bytes of weights these tokens need."""
    values = 3 * shape.width * shape.k * len(ids.unique())
    return values * 9 // 16


def read_bandwidth():
    nib = Nib(library_path(), "cuda:0")
    data = torch.zeros(4 << 30, dtype=torch.uint8, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream
    return data.numel() / statistics.median(
        event_seconds(torch, lambda: nib.probe(
            abi.NIB_PROBE_READ, data.data_ptr(), data.numel(), stream))
        for _ in range(7))


def measure(shape, count, way, made, wanted, options):
    """A row; made: the copies of the weights.  wanted: torch's result, or None."""
    inputs = [tokens(shape, count, options.device, seed) for seed in range(LAYERS)]
    calls = [lambda f=made[i % len(made)], t=t: f(*t) for i, t in enumerate(inputs)]
    y = made[0](*inputs[0]).float()
    row = {"way": way, "tokens": count, "layers": LAYERS, "copies": len(made),
           "us": 1e6 * statistics.median(options.clock.samples(calls)),
           "bytes": statistics.mean(used_bytes(shape, t[1]) for t in inputs)}
    if wanted is not None and way in BOUNDS:
        row["worst"] = float((y - wanted).abs().max() / wanted.abs().max())
        row["ok"] = row["worst"] <= BOUNDS[way]
    return row, y


def measure_shape(name, options, say):
    shape, wanted = SHAPES[name], {}
    bytes_of_token = 3 * shape.width * shape.k * shape.slots * 9 // 16
    copies = min(max(1, math.ceil(4 * options.l2_bytes / bytes_of_token / LAYERS)),
                 MOST_COPIES)
    for way in options.ways:
        version = {} if way in BOUNDS else {"version": version_of(way.split()[0])}
        try:
            made = [WAYS[way](shape, options.device)
                    for _ in range(1 if "torch" in way else copies)]
            for count in options.tokens:
                row, y = measure(shape, count, way, made, wanted.get(count), options)
                if "torch" in way:
                    wanted[count] = y
                say({"shape": name, **version, **row})
        except (ImportError, RuntimeError, NotImplementedError) as problem:
            why = str(problem).split("\n", maxsplit=1)[0][:200]
            say({"shape": name, "way": way, **version,
                 "skipped": f"{type(problem).__name__}: {why}"})
        made = y = None
        if options.device == "cuda":
            torch.cuda.empty_cache()


def print_table(rows, read_bps):
    """Columns: ways; a row for a shape and a number of tokens."""
    found = {(r["shape"], r["tokens"], r["way"]): r for r in rows if "us" in r}
    head = ["layer", "tokens", "read limit", *WAYS]
    lines = [head]
    for shape, count in dict.fromkeys((s, t) for s, t, _ in found):
        some = next(r for (s, t, _), r in found.items() if (s, t) == (shape, count))
        limit = f"{some['bytes'] / read_bps * 1e6:.1f}" if read_bps else ""
        line = [shape, str(count), limit]
        for way in WAYS:
            row = found.get((shape, count, way))
            line.append(f"{row['us']:.1f}" if row else "")
        lines.append(line)
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("  ".join(x.ljust(w) if i < 1 else x.rjust(w)
                        for i, (x, w) in enumerate(zip(line, widths))))
    for row in rows:
        if "skipped" in row:
            print(f"not measured: {row['way']}, {row['shape']}: {row['skipped']}")
    print("us a layer" + (f"; read bandwidth {read_bps * 1e-12:.2f} TB/s"
                          if read_bps else ""))


def read_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="deepseek-v3,qwen3-30b-a3b,mixtral-8x7b")
    parser.add_argument("--tokens", default="1,4,16,64,256,4096")
    parser.add_argument("--ways", default=",".join(WAYS),
                        help="some of " + ", ".join(WAYS))
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    options.ways = options.ways.split(",")
    for way in options.ways:
        if way not in WAYS:
            parser.error(f"--ways {way}: must be of {', '.join(WAYS)}")
    options.tokens = [int(t) for t in options.tokens.split(",")]
    for name in options.shapes.split(","):
        if name not in SHAPES:
            parser.error(f"--shapes {name}: must be of {', '.join(SHAPES)}")
    options.device, options.l2_bytes = "cpu", 0
    options.clock = HostClock(3)
    if not options.dry_run:
        if not torch.cuda.is_available():
            sys.exit("gpu_moe_layer.py: torch finds no GPU (--dry-run needs none)")
        options.device, options.clock = "cuda", GpuClock(torch, 15)
        options.l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    return options


def main():
    options = read_args()
    read_bps = read_bandwidth() if options.device == "cuda" else None
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU, dry run"
    rows = [{"machine": name, "torch": torch.__version__, "read_bps": read_bps,
             "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"}]

    def say(row):
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(rows, file, indent=1)

    for shape in options.shapes.split(","):
        measure_shape(shape, options, say)
    print(name)
    print_table(rows, read_bps)
    wrong = sum(row.get("ok") is False for row in rows)
    print(f"{sum(row.get('ok') is True for row in rows)} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
