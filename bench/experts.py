# SPDX-License-Identifier: Apache-2.0
"""experts.py - the layers of experts that expert_parallel.py and gpu_moe_layer.py
measure: shapes of public models, random weights, and the same in bf16 by torch."""

from typing import NamedTuple

import torch

import nibblas.torch


class Shape(NamedTuple):
    """A layer of experts."""

    k: int
    width: int
    experts: int
    slots: int


SHAPES = {"deepseek-v3": Shape(7168, 2048, 256, 8),
          "qwen3-30b-a3b": Shape(2048, 768, 128, 8),
          "mixtral-8x7b": Shape(4096, 14336, 8, 2),
          "small": Shape(512, 256, 16, 4)}


def stacks(shape, device, first, end):
    """Codes, scales and global scales of experts first .. end-1, the same on
    all ranks."""
    made = []
    for rows, k in ((2 * shape.width, shape.k), (shape.k, shape.width)):
        codes, scales = [], []
        for expert in range(first, end):
            g = torch.Generator(device).manual_seed(expert)
            codes.append(torch.randint(256, (rows, k // 2), dtype=torch.uint8,
                                       device=device, generator=g))
            scales.append(torch.randint(0x30, 0x3c, (rows, k // 16),
                                        dtype=torch.uint8, device=device,
                                        generator=g))
        scale = torch.full((end - first,), k ** -0.5 / 3, device=device)
        made.append((torch.stack(codes),
                     torch.stack(scales).view(torch.float8_e4m3fn), scale))
    return made


def layer(shape, device, quantized, first, end):
    """Experts first .. end-1 as a module."""
    scales = {"input_scale": 5 / 2688, "hidden_scale": 8 / 2688}
    return nibblas.torch.MoE(*stacks(shape, device, first, end),
                             expert_offset=first, **(scales if quantized else {}))


class TorchExperts:
    """The same weights in bf16, by torch._grouped_mm."""

    is_quantized = False

    def __init__(self, shape, device, first, end):
        self.expert_offset, self.experts = first, end - first
        self.w13, self.w2 = (torch.stack([
            torch.ops.nibblas.dequantize(codes[e], scales[e], scale[e],
                                         torch.bfloat16, "linear")
            for e in range(end - first)]).transpose(-2, -1)
            for codes, scales, scale in stacks(shape, device, first, end))

    def products(self, x, offsets):
        """Both products of rows that are in the order of experts."""
        g = torch._grouped_mm(x, self.w13, offs=offsets)
        gate, up = g.chunk(2, 1)
        return torch._grouped_mm(torch.nn.functional.silu(gate) * up, self.w2,
                                 offs=offsets)

    def __call__(self, x, ids, weights, x_scales=None, out_dtype=None):
        order, offsets = by_expert(ids, self.expert_offset, self.experts)
        rows = self.products(x[order // ids.shape[1]], offsets[1:])
        return of_tokens(rows, order, weights)


def by_expert(ids, first, experts):
    """Returns the slots in the order of their experts, and int32 [experts + 1]: the
    first slot of each expert.  Slots of other experts follow those of the last one.
    Nothing of it waits for a GPU."""
    local = ids.reshape(-1) - first
    local = torch.where((local < 0) | (local >= experts), experts, local)
    order = torch.argsort(local, stable=True)
    bounds = torch.arange(experts + 1, device=ids.device, dtype=local.dtype)
    return order, torch.searchsorted(local[order], bounds).int()


def of_tokens(rows, order, weights):
    """Rows in the order of experts as those of tokens, weighted and added."""
    y = torch.empty_like(rows)
    y[order] = rows
    slots = y.view(*weights.shape, -1)
    return (slots * weights[:, :, None].to(y.dtype)).sum(1)


def tokens(shape, count, device, seed):
    """(x, ids, weights)."""
    g = torch.Generator(device).manual_seed(seed)
    x = torch.randn(count, shape.k, device=device, generator=g).bfloat16()
    scores = torch.rand(count, shape.experts, device=device, generator=g)
    weights, ids = scores.topk(shape.slots)
    return x, ids, weights / weights.sum(1, keepdim=True)
