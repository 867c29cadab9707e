# SPDX-License-Identifier: Apache-2.0
"""gpu_torch.py - the baselines of gpu_baselines.py: what torch and Humming multiply, on
operands that were expanded beforehand."""

import importlib.metadata
import json
from typing import Callable, NamedTuple

from gpu_operands import BF16, DUAL_ALPHA, FP8, FP16


class Baseline(NamedTuple):
    """calls: one for each set of inputs; result(batch, row) of the first one;
    None if its weights are its own."""

    calls: list
    result: Callable | None = None


def products(multiply, made, row_of=lambda c, batch, row: c[row]):
    """multiply(*operands) for each of made; row_of() finds a row in its result."""
    return Baseline([lambda m=m: multiply(*m) for m in made],
                    lambda batch, row: row_of(multiply(*made[0]), batch, row))


def fp16_baseline(torch, shape, sets):
    """torch.matmul, which is cuBLAS; products of a group one by one."""
    return products(lambda a, b: [x @ w.t() for x, w in zip(a, b)],
                    [(o.activations(FP16), o.weights(FP16)) for o in sets],
                    lambda c, batch, row: torch.cat(c)[row])


def bmm_baseline(torch, shape, sets):
    made = [(torch.stack(o.weights(FP16)),
             torch.stack(o.activations(FP16)).transpose(1, 2).contiguous())
            for o in sets]
    return products(torch.bmm, made, lambda c, batch, row: c[batch, :, 0])


def silu_baseline(torch, shape, sets):
    """One product with both weights, then silu and product, compiled."""
    n = shape.n
    made = [(o.activations(FP16)[0],
             torch.cat(o.weights(FP16, 0) + o.weights(FP16, 1)))
            for o in sets]
    silu_mul = torch.compile(lambda g, u: (
        torch.nn.functional.silu(g.float() * DUAL_ALPHA)
        * (u.float() * DUAL_ALPHA)).half())

    def multiply(a, b):
        h = a @ b.t()
        return silu_mul(h[:, :n], h[:, n:])

    return products(multiply, made)


def grouped_operands(torch, sets, kind):
    return [(torch.cat(o.activations(kind)),
             torch.stack(o.weights(kind)).transpose(-2, -1),
             o.offsets[1:].contiguous()) for o in sets]


def grouped_baseline(torch, shape, sets):
    return products(lambda a, b, offsets: torch._grouped_mm(a, b, offs=offsets),
                    grouped_operands(torch, sets, BF16))


def grouped_fp8_baseline(torch, shape, sets):
    scale_a = torch.ones(shape.rows, device=sets[0].side.device)
    scale_b = torch.ones(len(shape.ms), shape.n, device=sets[0].side.device)

    def multiply(a, b, offsets):
        return torch._scaled_grouped_mm(
            a, b, scale_a, scale_b, offs=offsets, out_dtype=torch.bfloat16,
            use_fast_accum=True)

    return products(multiply, grouped_operands(torch, sets, FP8))


def fp8_baseline(torch, shape, sets):
    made = [(o.activations(FP8)[0], o.weights(FP8)[0]) for o in sets]
    one = torch.ones((), device=sets[0].side.device)

    def multiply(a, b):
        return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one,
                                out_dtype=torch.float16, use_fast_accum=True)

    return products(multiply, made)


def humming_layer(torch, shape):
    """A function of x and an expert layout; weights are its own."""
    from humming.config import GemmType
    from humming.layer import HummingLayer
    from humming.tune import get_heuristics_config

    grouped = len(shape.ms) > 1
    kind = GemmType.GROUPED_CONTIGUOUS if grouped else GemmType.DENSE

    layer = HummingLayer(
        shape_n=shape.n * shape.products, shape_k=shape.k,
        num_experts=len(shape.ms) if grouped else 0,
        weight_config={"dtype": "float4e2m1", "group_size": 16,
                       "scale_dtype": "float8e4m3", "has_zero_point": False,
                       "is_fp_zero_point": False},
        input_config={"dtype": "float16", "group_size": 0},
        torch_dtype=torch.float16).to("cuda:0")
    for p in layer.parameters():
        p.data.view(torch.uint8).fill_(0x38)
    layer.transform()
    tuning = get_heuristics_config(
        meta=layer.humming_metas[""], use_f16_accum=False,
        use_m_major_input_scale=False, gemm_type=kind)
    compute = json.dumps({"use_f16_accum": False,
                          "use_m_major_input_scale": False,
                          "gemm_type": kind.value})
    return lambda x, offsets=None: layer(
        inputs=x, input_scale=None, sorted_ids=None, expert_ids=None,
        num_tokens_padded=None, expert_layout=offsets, valid_shape_m=0,
        compute_config=compute, tuning_config=tuning, top_k=1)


def humming_baseline(torch, shape, sets):
    """Its results are not compared; a group's products are experts."""
    if shape.batch > 1:
        raise NotImplementedError("humming has no batched product")

    def call(o):
        layer, x = humming_layer(torch, shape), torch.cat(o.activations(FP16))
        return lambda: layer(x, o.offsets if len(shape.ms) > 1 else None)

    return Baseline([call(o) for o in sets])


def version_of(name):
    """The version of a baseline's library; None if it is not installed."""
    library = "humming" if name == "humming" else "torch"
    try:
        return f"{library} {importlib.metadata.version(library)}"
    except importlib.metadata.PackageNotFoundError:
        return None


def baselines_of(shape):
    """(name, function that makes it) of all rivals of a shape.  One that cannot
    compute the shape raises, and its row says why."""
    grouped = [("torch grouped bf16", grouped_baseline),
               ("torch grouped fp8", grouped_fp8_baseline)]
    return {
        "gemm": [("cuBLAS fp16", fp16_baseline), ("cuBLAS fp8", fp8_baseline)],
        "group_gemm": [("cuBLAS fp16", fp16_baseline)] + grouped,
        "moe": grouped,
        "dual_gemm": [("cuBLAS fp16 + silu", silu_baseline)],
        "gemv": [("torch bmm fp16", bmm_baseline)],
    }[shape.op] + [("humming", humming_baseline)]
