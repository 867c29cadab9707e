#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python_overhead.py - measures the host time of calls of nibblas.torch, with the
smallest operands and cached plans.  It prints microseconds:

    call      the operator, or one of torch's own functions for comparison
    library   the functions of nibblas.h, called with the arguments that the operators
              passed, minus the time for ctypes to call an empty function
    overhead  call minus library
    torch     the part of it that torch needs: Python operators with the same arguments
              that only allocate the same results

On a GPU the library's part includes launches and is not separated.  Times are processor
time of the calling thread over 31 rounds of 2,000 calls: the least round, because other
programs can only add to it, and the median of the calls.

    pip install . && python bench/python_overhead.py [--device cuda]"""

import argparse
import itertools
import statistics
import time

import torch

import nibblas
import nibblas.torch
from nibblas._library import lib
from nibblas._plans import cache
from nibblas.torch._convert import calls

CALLS, ROUNDS = 2000, 31
LIBRARY = torch.library.Library("nibblas_bench", "DEF")
NUMBERS = itertools.count()


class Timed:
    """A function with its arguments, and the time of a call in each round."""

    def __init__(self, function, args, kept=None):
        self.function, self.args, self.kept = function, args, kept
        self.rounds = []

    def measure(self):
        function, args = self.function, self.args
        begin = time.thread_time_ns()
        for _ in range(CALLS):
            function(*args)
        self.rounds.append((time.thread_time_ns() - begin) / CALLS / 1000)

    def least(self):
        return min(self.rounds)


def nothing_like(operator, args):
    """An operator with the same arguments that only allocates the same results."""
    result = operator(*args)
    several = result if isinstance(result, (tuple, list)) else [result]
    sizes = [(x.shape, x.stride(), x.dtype) for x in several if x is not None]
    device = next((x.device for x in several if x is not None), None)

    def make(*_):
        made = [torch.empty_strided(shape, stride, dtype=dtype, device=device)
                for shape, stride, dtype in sizes]
        return made[0] if isinstance(result, torch.Tensor) else (
            type(result)(made) if made else None)
    name = f"nothing{next(NUMBERS)}"
    LIBRARY.define(name + "(" + str(operator._schema).split("(", 1)[1])
    for key in ("CPU", "CUDA"):
        LIBRARY.impl(name, make, key)
    return Timed(getattr(torch.ops.nibblas_bench, name).default, args)


def library_calls(operator, args):
    """The function of nibblas.h that an operator calls, as it left its arguments,
    and one that does nothing, called with the same."""
    cache.clear()
    calls.clear()
    result = operator(*args)
    plan, = (*cache.plans.values(), *calls.plans.values())
    work = plan.take()
    nothing = lib["nib_version"]
    return [Timed(function, work.arguments, (result, plan, work))
            for function in (plan.function, nothing)]


class Row:
    """A line of the table.  operators: what the function calls, itself if it is
    one."""

    def __init__(self, name, function, *args, operators=None):
        self.name, self.call = name, Timed(function, args)
        self.library, self.torch = [], []
        for operator, its_args in operators or [(function, args)]:
            self.torch.append(nothing_like(operator, its_args))
            if all(x.is_cpu for x in its_args if isinstance(x, torch.Tensor)):
                self.library.append(library_calls(operator, its_args))

    def timed(self):
        return [self.call, *self.torch, *(x for two in self.library for x in two)]

    def text(self):
        call = self.call.least()
        library = sum(run.least() - nothing.least()
                      for run, nothing in self.library)
        numbers = [call, library, call - library,
                   sum(x.least() for x in self.torch),
                   statistics.median(self.call.rounds)]
        cells = [f"{x:8.1f}" for x in numbers]
        if not self.library:
            cells[1:3] = ["       -"] * 2
        return f"{self.name:33}" + "  ".join(cells)


class LayerRow:
    """A line of a module, called as a model calls it."""

    def __init__(self, name, module, x):
        self.name = name
        module.requires_grad_(False)
        self.call = Timed(module, (x,))

    def timed(self):
        return [self.call]

    def text(self):
        cells = [f"{self.call.least():8.1f}", *3 * ["       -"],
                 f"{statistics.median(self.call.rounds):8.1f}"]
        return f"{self.name:33}" + "  ".join(cells)


def operator_rows(device):
    """The eight operators."""
    ops, bf16 = torch.ops.nibblas, torch.bfloat16
    x = torch.ones(1, 16, device=device)
    a, scales, one = ops.quantize(x)
    alpha = torch.ones(1, device=device)
    c = torch.empty(1, 1, dtype=bf16, device=device)
    plain, third = (a, scales, a, scales), (a, scales)
    lists = [[x] for x in plain]
    eight = [[x] * 8 for x in plain]
    linear = ops.from_blocked(scales, 1, 1)
    return plain, alpha, [
        Row("gemm", ops.gemm.default, *plain),
        Row("gemm, alpha, out_dtype", ops.gemm.default, *plain, alpha, bf16),
        Row("gemm_out", ops.gemm_out.default, c, *plain),
        Row("gemv", ops.gemv.default, a[0], scales, a, scales),
        Row("gemv_out", ops.gemv_out.default, c[0], a[0], scales, a, scales),
        Row("dual_gemm", ops.dual_gemm.default, *plain, *third),
        Row("dual_gemm_out", ops.dual_gemm_out.default, c, *plain, *third),
        Row("group_gemm of one", ops.group_gemm.default, *lists),
        Row("group_gemm_out of one", ops.group_gemm_out.default, [c], *lists),
        Row("group_gemm of eight", ops.group_gemm.default, *eight),
        Row("quantize", ops.quantize.default, x),
        Row("quantize, global_scale", ops.quantize.default, x, one),
        Row("dequantize", ops.dequantize.default, a, scales),
        Row("dequantize, global_scale", ops.dequantize.default, a, scales, one),
        Row("to_blocked", ops.to_blocked.default, linear),
        Row("from_blocked", ops.from_blocked.default, scales, 1, 1),
    ]


def layer_rows(device):
    """nibblas.torch.Linear and torch's; its operators are not separated."""
    linear = torch.nn.Linear(16, 16, bias=False, device=device).bfloat16()
    x = torch.ones(1, 1, 16, dtype=torch.bfloat16, device=device)
    rows = [LayerRow("torch.nn.Linear", linear, x)]
    for name, scale, kind in (("Linear, W4A16", None, "dense"),
                              ("Linear, W4A4, input scale", 0.01, "nvfp4"),
                              ("Linear, W4A4", None, "nvfp4")):
        rows.append(LayerRow(name, nibblas.torch.Linear.from_linear(
            linear, input_scale=scale, activations=kind), x))
    return rows


def function_rows(a, scales, alpha):
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
    offs = torch.ones(1, dtype=torch.int32, device=a.device)
    ops, ours = torch.ops.nibblas, nibblas.torch
    starts, rows = ops.expert_rows(offs)
    gemm = [(ops.gemm.default, (a, scales, a, scales))]
    grouped = [(ops.expert_rows.default, (offs,)),
               (ops.moe_gemm.default, (a, scales, a[None], scales[None], starts,
                                       rows))]
    b = a[None].transpose(1, 2)
    return [
        Row("scaled_mm", ours.scaled_mm, a, a.t(), *one, operators=gemm),
        Row("scaled_mm, global scales", ours.scaled_mm, a, a.t(), *two,
            operators=gemm),
        Row("_scaled_mm", ours._scaled_mm, a, a.t(), scales, scales,
            operators=gemm),
        Row("scaled_grouped_mm of one", ours.scaled_grouped_mm, a, b, *one, None,
            offs, operators=grouped),
        Row("scaled_grouped_mm, global scales", ours.scaled_grouped_mm, a, b,
            *two, None, offs, operators=grouped),
    ]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    device = parser.parse_args().device
    plain, alpha, rows = operator_rows(device)
    rows += function_rows(*plain[:2], alpha)
    rows += layer_rows(device)
    for _ in range(ROUNDS + 1):
        for row in rows:
            for one in row.timed():
                one.measure()
            if device != "cpu":
                torch.cuda.synchronize()
    print(f"{nibblas.device(device)}, torch {torch.__version__}\n"
          f"{'us':33}    call   library  overhead     torch    median")
    for row in rows:
        print(row.text())


if __name__ == "__main__":
    main()
