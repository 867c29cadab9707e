#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python_overhead.py - what a call of torch.ops.nibblas costs on the host beside its
work: a product of 1 x 1 x 16 whose plan is known, the time of nib_run() for it, and
the time that torch itself takes to call an operator that does nothing and to make the
result.  Processor time of the calling thread, so that others on the machine hardly
count; medians of rounds of 20,000 calls.

    pip install . && python bench/python_overhead.py [--device cuda]"""

import argparse
import statistics
import time

import torch

import nibblas
import nibblas.torch
from nibblas._plans import cache
from nibblas._problems import PROBLEM_WORDS

CALLS, ROUNDS = 20000, 9


def nothing():
    """An operator with gemm's arguments that returns its third."""
    library = torch.library.Library("nibblas_bench", "DEF")
    library.define("nothing(Tensor a, Tensor a_scales, Tensor b, Tensor b_scales,"
                   " Tensor? alpha=None, ScalarType? out_dtype=None) -> Tensor")
    for key in ("CPU", "CUDA"):
        library.impl("nothing", lambda a, s, b, *_: b, key)
    return library, torch.ops.nibblas_bench.nothing.default


def median_us(function, *args):
    wait = torch.cuda.synchronize if torch.cuda.is_available() else int
    rounds = []
    for _ in range(ROUNDS + 1):
        begin = time.thread_time_ns()
        for _ in range(CALLS):
            function(*args)
        rounds.append((time.thread_time_ns() - begin) / CALLS / 1000)
        wait()
    return statistics.median(rounds[1:]), min(rounds), max(rounds)


def run_alone(**tensors):
    """The library's part: the plan used last, of these tensors."""
    plan = max(cache.plans.values(), key=lambda plan: plan.stamp)
    work = plan.take()
    for name, tensor in tensors.items():
        work.words[PROBLEM_WORDS[name]] = tensor.data_ptr()

    def run():
        plan.function(*work.arguments)
    return run


def scaled_rows(a, scales, alpha):
    """torch's own conventions; the grouped one of a single expert."""
    kinds = torch.nn.functional
    if not hasattr(kinds, "scaled_grouped_mm"):
        return []
    block = kinds.ScalingType.BlockWise1x16
    whole = kinds.ScalingType.TensorWise
    swizzle = kinds.SwizzleType.SWIZZLE_32_4_4
    plain = kinds.SwizzleType.NO_SWIZZLE
    one = (scales, block, scales, block, swizzle, swizzle)
    two = ([scales, alpha], [block, whole], [scales, alpha], [block, whole],
           [swizzle, plain], [swizzle, plain])
    b = a[None].transpose(1, 2)
    offs = torch.ones(1, dtype=torch.int32, device=a.device)
    door = nibblas.torch
    return [
        ("scaled_mm", door.scaled_mm, a, a.t(), *one),
        ("scaled_mm, global scales", door.scaled_mm, a, a.t(), *two),
        ("_scaled_mm", door._scaled_mm, a, a.t(), scales, scales),
        ("scaled_grouped_mm of one", door.scaled_grouped_mm, a, b, *one, None,
         offs),
        ("scaled_grouped_mm, global scales", door.scaled_grouped_mm, a, b, *two,
         None, offs),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    device = parser.parse_args().device
    ops = torch.ops.nibblas
    x = torch.ones(1, 16, device=device)
    a, scales, _ = ops.quantize(x)
    alpha = torch.ones(1, device=device)
    c = torch.empty(1, 1, dtype=torch.bfloat16, device=device)
    plain = (a, scales, a, scales)
    library, empty = nothing()
    rows = [
        ("gemm", ops.gemm.default, *plain),
        ("gemm, alpha, out_dtype", ops.gemm.default, *plain, alpha,
         torch.bfloat16),
        ("gemm_out", ops.gemm_out.default, c, *plain),
        ("gemv", ops.gemv.default, a[0], scales, a, scales),
        ("group_gemm of one", ops.group_gemm.default, *([x] for x in plain)),
        ("torch: an operator of Python", empty, *plain),
        ("torch: torch.empty()", lambda: torch.empty(
            (1, 1), dtype=torch.bfloat16, device=device)),
    ]
    rows += scaled_rows(a, scales, alpha)
    if device == "cpu":
        ops.gemm(*plain)
        rows.append(("nib_run()", run_alone(
            a=a, a_scales=scales, b=a, b_scales=scales, c=c)))
    print(f"{nibblas.device(device)}, torch {torch.__version__}")
    for name, function, *args in rows:
        middle, least, most = median_us(function, *args)
        print(f"{middle:7.2f} us  ({least:.2f} to {most:.2f})  {name}")
    del library


if __name__ == "__main__":
    main()
