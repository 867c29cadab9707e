# SPDX-License-Identifier: Apache-2.0
"""_layers.py - NVFP4 layers as vLLM keeps them: the rows of several projections one
above the other in one matrix, each with global scales of its own.  Knows no vLLM."""

import itertools
import weakref
from typing import NamedTuple

import torch

from nibblas._library import FileError
from nibblas.torch import pack
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
    tensors that it is made of; those tensors on a GPU."""

    def __init__(self, codes, scales):
        self.rows = codes.shape[0]
        self.packed = pack(codes, scales, "linear") if codes.is_cpu else None
        self.tensors = None if codes.is_cpu else (codes, scales)
        self.layer = LayerWeights()

    def multiply(self, x, x_scales, alpha, dtype):
        activations = "dense" if x_scales is None else None
        if self.packed is not None:
            return torch.ops.nibblas.gemm_packed(
                x, x_scales, self.packed.number, self.rows, alpha, dtype, "linear",
                activations)
        return torch.ops.nibblas._layer(x, x_scales, *self.tensors, self.layer.number,
                                        alpha, dtype, activations)


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

    def multiply(self, rows, dtype):
        """[M, rows] of type dtype, of rows [M, K], contiguous."""
        made, last = [], None
        for part in self.parts:
            if part.input is None:
                x, scales = rows, None
            else:
                if last != part.input_value:
                    codes, blocks, _ = torch.ops.nibblas.quantize(
                        rows, part.input, "linear", "modelopt", True)
                    last = part.input_value
                x, scales = codes, blocks
            made.append(part.weights.multiply(x, scales, part.alpha, dtype))
        return made[0] if len(made) == 1 else torch.cat(made, -1)


# The number is a tensor, not an int: a compiled graph that vLLM keeps on disk would
# hold the int of the process that compiled it.
@torch.library.custom_op("nibblas::_fused_linear", mutates_args=())
def _fused_linear(x: torch.Tensor, number: torch.Tensor, bias: torch.Tensor | None,
                  width: int) -> torch.Tensor:
    layer = _alive[int(number)]
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    y = layer.multiply(rows, x.dtype if bias is None else torch.float32)
    if bias is not None:
        y = (y + bias).to(x.dtype)
    return y.reshape(*x.shape[:-1], width)


@_fused_linear.register_fake
def _(x, _number, _bias, width):
    return x.new_empty(*x.shape[:-1], width)


class Experts:
    """The experts of a layer, by torch.ops.nibblas.moe.

    w13, w2     (codes, linear scales) of stacks [experts, rows, K]; gate above up
    factor13    float32 [experts, 2], the global scales of gate and up; factor2
                [experts]
    x_global    float32 []: the global scale by which x is quantised (W4A4); None: x is
                not quantised (W4A16)
    h_global    the same for what is between the products
    activation  of torch.ops.nibblas.moe

    Holds the tensors given, and no copy of them."""

    def __init__(self, w13, factor13, w2, factor2, x_global, h_global, activation):
        self.weights = (*w13, *w2)
        self.alpha13, self.alpha2 = factor13.t().contiguous(), factor2
        self.inputs, self.activation = (x_global, h_global), activation
        if x_global is not None:
            self.alpha13, self.alpha2 = self.alpha13 * x_global, factor2 * h_global

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
        return torch.ops.nibblas.moe(
            x, ids, weights, *self.weights, self.alpha13, self.alpha2, *self.inputs,
            self.activation, out_dtype=x.dtype)
