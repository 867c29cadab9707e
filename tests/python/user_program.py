# SPDX-License-Identifier: Apache-2.0
"""A program of a user, for type checkers: mypy --strict finds nothing in it
(test_annotations.py)."""

import numpy as np
import torch

import nibblas
import nibblas.torch
from nibblas import gpumode


def arrays(x: "np.typing.NDArray[np.float32]", path: str) -> float:
    """The functions for arrays, a checkpoint, devices, errors."""
    device: nibblas.Device = nibblas.device("cpu", threads=1)
    q: nibblas.Quantized = nibblas.quantize(x, layout="tiled", zero_scale="modelopt")
    weights: nibblas.Packed = nibblas.pack(q.codes, q.scales, device=device)
    c = nibblas.gemm(q.codes, q.scales, weights, alpha=q.global_scale ** 2)
    nibblas.gemm(x, None, weights, activations="int8", out_dtype="float16")
    nibblas.gemv(q.codes[0], q.scales[:128], q.codes, q.scales, out=c[0])
    nibblas.dual_gemm(*q[:2], *q[:2], *q[:2], alpha2=2.0, stream=None)
    several = nibblas.group_gemm([q.codes], [q.scales], [q.codes], [q.scales])
    offsets = np.zeros(2, np.int32)
    nibblas.moe_gemm(*q[:2], q.codes[None], q.scales[None], offsets)
    nibblas.from_blocked(nibblas.to_blocked(q.scales), 2, 2)
    nibblas.dequantize(*q, out_dtype="float16")
    try:
        with nibblas.Checkpoint(path) as file:
            for name, layer in file.items():
                scale: object = layer.global_scale
                print(name, layer.codes.shape, scale, file.problems.get(name))
    except nibblas.Error as error:
        print(error.argument.upper(), error.status)
    limit: int = nibblas.plan_cache_limit()
    names: list[str] = [backend.name for backend in nibblas.backends()]
    return float(c.sum()) + limit + len(names) + len(several)


def tensors(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Layers, torch's own functions, packed weights, the contest."""
    swapped, left = nibblas.torch.swap_linears(model, lambda name, _: name == "head",
                                               activations="nvfp4")
    print(swapped[0].upper(), left.items())
    layer = nibblas.torch.Linear.from_linear(torch.nn.Linear(64, 32))
    layer.activations = "int8"
    layer.pack()
    number: int = nibblas.torch.pack(layer.codes, layer.weight_scale,
                                     "linear").number
    y = nibblas.torch.scaled_mm(x, x.t(), x, 2, x, 2)
    nibblas.torch.scaled_mm(x, x.t(), None, None, x, 2)
    print(number, gpumode.custom_kernel("gemm"), y.shape)
    z: torch.Tensor = layer.forward(x)
    return z
