#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_chain.py - measures layers that each read the result of the layer before, as in
decoding.  Kernels that start before the previous kernel ends show their gain here.

    bench/gpu_chain.py [--library FILE] [--layers 8] [--sizes 4096,8192]
        [--rows 1,8,16,64]

A CUDA graph has several chains of square layers, each with its own packed weights, so
that weights are cold; results are fp16.  For comparison: the same layers without a
dependence (all read the same x), torch.matmul with fp16 weights, and Humming if it is
installed (see gpu_baselines.py).  Times are medians in us per layer."""

import argparse
import math
import os
import statistics
import sys

import gpu_humming
from gpu_baselines import GpuClock, machine
from gpu_operands import FP16, Arrays, Nib, Operands, Plan, Shape
from gpu_torch import packed_weights

# A row of 4096 random weights adds up to this many times its x, about.
GROWTH = 5.0


def chain_of(side, nib, shape, layers):
    alpha = side.array([1 / (GROWTH * math.sqrt(shape.k))], "fp32")
    sets = [Operands(side, shape, "tiled", kinds=(FP16,), nib=nib)
            for _ in range(layers)]
    for o in sets:
        o.works[FP16][0].alpha = side.pointer(alpha)
        o.alpha = alpha
    return sets


def connect(side, sets):
    for before, o in zip(sets, sets[1:]):
        o.works[FP16][0].x.data = side.pointer(before.c)


def times(clock, calls, layers):
    return statistics.median(clock.samples(calls)) * 1e6 / layers


def our_time(side, nib, clock, chains, layers, connected):
    if connected:
        for chain in chains:
            connect(side, chain)
    plan = Plan(nib, chains[0][0].shape, chains[0][0].works[FP16])

    def call(chain):
        for o in chain:
            plan.run(o.works[FP16], side.stream())

    seconds = times(clock, [lambda c=c: call(c) for c in chains], layers)
    plan.free()
    return seconds


def torch_time(clock, chains, layers):
    made = [(o[0].activations(FP16)[0], [x.weights(FP16)[0] for x in o])
            for o in chains]

    def call(x, weights):
        for w in weights:
            x = x @ w.t()

    return times(clock, [lambda m=m: call(*m) for m in made], layers)


def humming_time(torch, clock, chains, layers):
    alpha = chains[0][0].alpha
    made = [[gpu_humming.product(torch, *packed_weights(torch, o), alpha)
             for o in chain] for chain in chains]
    first = [chain[0].activations(FP16)[0] for chain in chains]

    def call(x, chain):
        for layer in chain:
            x = layer(x)

    return times(clock, [lambda x=x, m=m: call(x, m)
                         for x, m in zip(first, made)], layers)


def row(torch, side, nib, clock, m, size, layers, with_humming):
    shape = Shape(f"{m}x{size}", "gemm", [m], size, size)
    count = max(3, math.ceil(2e8 / (layers * size * size * 0.5625)))
    chains = [chain_of(side, nib, shape, layers) for _ in range(count)]
    out = [our_time(side, nib, clock, chains, layers, False),
           our_time(side, nib, clock, chains, layers, True),
           torch_time(clock, chains, layers)]
    out.append(humming_time(torch, clock, chains, layers)
               if with_humming else math.nan)
    for chain in chains:
        for o in chain:
            o.free()
    return out


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--library", default=os.path.join(
        here, "..", "build", "release", "libnibblas.so"))
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--sizes", default="4096,8192")
    parser.add_argument("--rows", default="1,8,16,64")
    parser.add_argument("--replays", type=int, default=15)
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("gpu_chain.py: torch is not installed")
    if not torch.cuda.is_available():
        sys.exit("gpu_chain.py: torch finds no GPU")
    try:
        gpu_humming.require()
        why_not = None
    except (ImportError, NotImplementedError) as problem:
        why_not = f"not measured: humming: {problem}"
    nib = Nib(options.library, "cuda:0")
    side, clock = Arrays(torch, "cuda", 1), GpuClock(torch, options.replays)
    print(f"{options.layers} layers, us a layer, {machine(torch)}")
    print("layer              apart  chained  cuBLAS fp16  humming")
    for size in map(int, options.sizes.split(",")):
        for m in map(int, options.rows.split(",")):
            times_of = row(torch, side, nib, clock, m, size, options.layers,
                           not why_not)
            print(f"{m}x{size}x{size}".ljust(17)
                  + "".join(f"{t:{w}.2f}" for t, w in zip(times_of, (7, 9, 13, 9))),
                  flush=True)
    if why_not:
        print(why_not)


if __name__ == "__main__":
    main()
