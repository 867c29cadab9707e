# SPDX-License-Identifier: Apache-2.0
"""_layers.py - NVFP4 layers as vLLM keeps them: the rows of several projections one
above the other in one matrix, each with global scales of its own.  Knows no vLLM."""

import itertools
import weakref
from typing import NamedTuple

import torch

from nibblas._library import FileError
from nibblas.torch import pack
from nibblas.torch._convert import quantize_saturated
from nibblas.torch._moe import FixedLayer
from nibblas.torch._multiply import of_codes, unbiased
from nibblas.torch._operators import LIBRARY, TAGS
from nibblas.torch._tensors import Cpu, Cuda
from nibblas.torch._weights import LayerWeights

_numbers = itertools.count(1)
_alive = weakref.WeakValueDictionary()


def check(name, scales):
    """Refuses global scales that no file had (NaN until they are loaded), or that are
    not finite and > 0.

    name  of the scales, for messages"""
    if not (torch.isfinite(scales) & (scales > 0)).all():
        raise FileError(f"{name}: {scales.reshape(-1).tolist()}: global scales must be "
                        "in the checkpoint (nan: no file has them), finite and > 0",
                        name)


def largest(name, scales):
    """The largest input scale of experts: of those that calibration has reached,
    because the others are 0, inf, or NaN until they are loaded.

    name  of the scales, for messages"""
    usable = torch.isfinite(scales) & (scales > 0)
    if not usable.any():
        raise FileError(f"{name}: {scales.reshape(-1).tolist()[:4]}: the input scale "
                        "of one expert at least must be in the checkpoint (nan: no "
                        "file has it), finite and > 0; a checkpoint of W4A16 needs "
                        "none", name)
    return scales[usable].amax()


class _Weights:
    """A matrix [rows, K] ready to multiply: packed on a CPU, where it does not keep the
    tensors that it is made of; on a GPU the codes as they are with packed scales, or
    the tensors where that is impossible."""

    def __init__(self, codes, scales):
        self.backend = Cpu if codes.is_cpu else Cuda
        self.layer = LayerWeights()
        # A layer that vLLM loads again is made again, so no product asks whether the
        # weights have changed.
        self.packed = (pack(codes, scales, "linear") if codes.is_cpu else
                       LayerWeights().get(codes, scales))
        self.tensors = None if self.packed else (codes, scales)

    def multiply(self, x, x_scales, alpha, dtype):
        """[.., rows] of type dtype.  x: floats [.., K], contiguous; or codes
        [M, K/2]."""
        if self.packed is None:
            y = torch.ops.nibblas._layer(
                x if x_scales is not None else x.view(-1, x.shape[-1]), x_scales,
                *self.tensors, self.layer.number, alpha, dtype,
                "dense" if x_scales is None else None)
            return y if x_scales is not None else y.view(*x.shape[:-1], -1)
        if x_scales is None:
            return unbiased(self.backend, x, self.packed, alpha, dtype, "dense")
        return of_codes(self.backend, x, x_scales, self.packed, alpha, dtype)


class _Part(NamedTuple):
    """Projections next to each other with the same global scales; input is None where
    x is not quantised."""

    weights: _Weights
    alpha: torch.Tensor        # the product of the global scales
    input: torch.Tensor | None
    input_value: float | None  # the same on the host, which must not wait


class FusedLinear:
    """One linear layer of several projections.

    codes    uint8 [rows, K/2], scales float8_e4m3fn [rows, K/16]
    widths   the rows of each projection
    factors  float32 [projections], the global scales
    inputs   the same of x, which is then quantised to NVFP4 (W4A4); None: x is used
             as it is (W4A16)

    Projections whose global scales differ are multiplied one by one, so that none is
    rounded to another's scale.  number: what the operator calls the layer by."""

    def __init__(self, codes, scales, widths, factors, inputs):
        self.rows, self.parts = codes.shape[0], []
        keys = list(zip(factors.tolist(),
                        [None] * len(widths) if inputs is None else inputs.tolist()))
        begin = 0
        for key, group in itertools.groupby(zip(keys, widths), lambda one: one[0]):
            end = begin + sum(width for _, width in group)
            factor, given = (None if x is None else torch.tensor(
                x, dtype=torch.float32, device=codes.device) for x in key)
            self.parts.append(_Part(_Weights(codes[begin:end], scales[begin:end]),
                                    factor if given is None else factor * given,
                                    given, key[1]))
            begin = end
        self.number = next(_numbers)
        _alive[self.number] = self

    def multiply(self, x, dtype):
        """[.., rows] of type dtype, of x [.., K], contiguous."""
        made, last, rows = [], None, None
        for part in self.parts:
            if part.input is None:
                made.append(part.weights.multiply(x, None, part.alpha, dtype))
                continue
            if last != part.input_value:
                rows = quantize_saturated(
                    part.weights.backend, x if x.dim() == 2 else
                    x.view(-1, x.shape[-1]), part.input)
                last = part.input_value
            y = part.weights.multiply(*rows, part.alpha, dtype)
            made.append(y if x.dim() == 2 else y.view(*x.shape[:-1], -1))
        return made[0] if len(made) == 1 else torch.cat(made, -1)


# The number is a tensor, not an int: a compiled graph that vLLM keeps on disk would
# hold the int of the process that compiled it.
def _fused_linear(x, number, bias, _width):
    layer = _alive[int(number)]
    if not x.is_contiguous():
        x = x.contiguous()
    if bias is None:
        return layer.multiply(x, x.dtype)
    return (layer.multiply(x, torch.float32) + bias).to(x.dtype)


# Not torch.library.custom_op, whose wrapper costs the host more than the product does:
# vLLM waits for it wherever no CUDA graph has the size of a batch.
LIBRARY.define("_fused_linear(Tensor x, Tensor number, Tensor? bias, SymInt width) -> "
               "Tensor", tags=TAGS)
for _key in ("CPU", "CUDA"):
    LIBRARY.impl("_fused_linear", _fused_linear, _key)


@torch.library.register_fake("nibblas::_fused_linear", lib=LIBRARY)
def _(x, _number, _bias, width):
    return x.new_empty(*x.shape[:-1], width)


class Experts:
    """The experts of a layer.

    w13, w2     (codes, linear scales) of stacks [experts, rows, K]; gate above up
    factor13    float32 [experts, 2], the global scales of gate and up; factor2
                [experts]
    x_global    float32 []: the global scale by which x is quantised (W4A4); None: x is
                not quantised (W4A16)
    h_global    the same for what is between the products
    activation  of torch.ops.nibblas.moe

    Holds the tensors given, and no copy of them.  On a GPU that reads codes where they
    are, it holds a copy of the block scales instead, for which the GPU's kernels are
    faster.  has_scales: whether it needs the block scales given."""

    def __init__(self, w13, factor13, w2, factor2, x_global, h_global, activation):
        alpha13, alpha2 = factor13.t().contiguous(), factor2
        if x_global is not None:
            alpha13, alpha2 = alpha13 * x_global, factor2 * h_global
        self.given = (*w13, *w2, alpha13, alpha2, x_global, h_global, activation)
        # The operator is for torch.compile: on a CPU vLLM lets it see the experts.
        self.fixed = None if w13[0].is_cpu else FixedLayer(Cuda, *self.given, pack=True)
        self.has_scales = not (self.fixed and self.fixed.packed)
        if not self.has_scales:
            self.given = self.fixed.given

    def run(self, x, ids, weights, expert_map):
        """[tokens, cols] of x's type.

        ids         [tokens, slots], of all experts, others are left out; weights
                    of the same shape
        expert_map  [all experts]: the index of each here, -1 for other processes';
                    None: all are here"""
        if expert_map is not None:
            last = len(expert_map) - 1
            here = expert_map[ids.long().clamp(0, last)]
            ids = torch.where((ids >= 0) & (ids <= last), here, -1)
        if self.fixed and not torch.compiler.is_compiling():
            return self.fixed.run(x, ids, weights)
        return torch.ops.nibblas.moe(x, ids, weights, *self.given, out_dtype=x.dtype)
