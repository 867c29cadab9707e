# SPDX-License-Identifier: Apache-2.0
"""_dense.py - a model of transformers as one of floats: dequantize(), which replaces
its NVFP4 and FP8 layers by dense ones, and num_parameters(), which counts their
weights."""

import functools

import torch
from torch import nn

from nibblas.transformers import _experts
from nibblas.transformers._linear import Fp8Linear
from nibblas.torch import Linear

# How transformers runs experts that are left as they are.
USUAL = "grouped_mm"


def _dequantise_stack(module, one, dtype):
    """The weights of a Projection as the model's class has them."""
    codes, scales = getattr(module, one.codes), getattr(module, one.scales)
    factors = _experts.factors_of(module, one)
    rows = codes.shape[1] // len(factors)
    out = codes.new_empty(*codes.shape[:2], 2 * codes.shape[2], dtype=dtype)
    for part, factor in enumerate(factors):
        here = slice(part * rows, (part + 1) * rows)
        for expert, scale in enumerate(factor):
            out[expert, here] = torch.ops.nibblas.dequantize(
                codes[expert, here], scales[expert, here], scale, dtype, "linear")
    return out.transpose(1, 2).contiguous() if module.is_transposed else out


def _dequantise_experts(module, dtype):
    """Makes the parameters of a module of experts those of its class."""
    for one in module.nibblas.both():
        dense = _dequantise_stack(module, one, dtype)
        for name in one.names():
            del module._parameters[name]
        module.register_parameter(one.codes, nn.Parameter(dense))
    for name, x in module.named_parameters(recurse=False):
        if x.is_floating_point():
            x.data = x.data.to(dtype)
    _experts.forget(module)


def dequantise(model, dtype):
    """Replaces all quantised layers of a model by dense ones of a type, in their
    places."""
    for module in model.modules():
        if isinstance(module, (Linear, Fp8Linear)):
            module.make_dense(module.dequantize(dtype))
            module.weight.requires_grad_()
            if module.bias is not None:
                module.bias = nn.Parameter(module.bias.detach().to(dtype))
        elif hasattr(module, "nibblas"):
            _dequantise_experts(module, dtype)
    if getattr(model.config, "_experts_implementation",
               None) == _experts.IMPLEMENTATION:
        model.set_experts_implementation(USUAL)
    # Those of scales are gone; transformers has those of its own for models without
    # any.
    model.__dict__.pop("_weight_conversions", None)
    model.__dict__.pop("num_parameters", None)
    return model


def _count(model, only_trainable=False, exclude_embeddings=False):
    """transformers' num_parameters(), with the weights of quantised layers, each of
    which is one; scales are none."""
    total = type(model).num_parameters(model, only_trainable, exclude_embeddings)
    for module in () if only_trainable else model.modules():
        if isinstance(module, (Linear, Fp8Linear)):
            total += module.out_features * module.in_features
        elif hasattr(module, "nibblas"):
            for one in module.nibblas.both():
                stored = [getattr(module, name).numel() for name in one.names()]
                total += 2 * stored[0] - sum(stored)
    return total


def count_weights(model):
    """Makes num_parameters() of a quantised model count weights, not their bytes."""
    model.num_parameters = functools.partial(_count, model)
