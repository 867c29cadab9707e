# SPDX-License-Identifier: Apache-2.0
"""_swap.py - quantises the experts of a model that is in memory, so that
save_pretrained() writes them as ModelOpt does: one by one where transformers merges
them, else as stacks.  A model whose layers were swapped gets ModelOpt's
configuration."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (PrefixChange, WeightConverter,
                                             revert_weight_conversion)

from nibblas._library import version
from nibblas._numpy import ActivationsName
from nibblas._views import ACTIVATIONS, SCALE_RULES, ZERO_SCALES, choose
from nibblas.torch import Linear
from nibblas.transformers import _experts, _formats as formats
from nibblas.transformers._config import Config
from nibblas.transformers._dense import count_weights
from nibblas.transformers._plan import is_mergeable, merges_experts, merging
from nibblas.transformers._quantizer import Quantizer, add_converters, relabel


def _leaves(module):
    return "gate_up_proj" if hasattr(module, "gate_up_proj") else "up_proj", "down_proj"


def reason_left(model, name, module):
    """Why the experts of a module cannot be quantised; None: they can."""
    if getattr(module, "has_post_expert_norm", False):
        return "experts with a norm after each are not supported"
    turned = getattr(module, "is_transposed", True)
    conversions = _conversions(model)
    stacks = [f"{name}.{leaf}" for leaf in _leaves(module)
              if not _converter_of(conversions, f"{name}.{leaf}")]
    scales = [x + formats.STACK.scales for x in stacks] if turned else []
    saved = _saved_names(model, stacks + scales, 3)
    if None in saved.values() or any(
            saved[x + formats.STACK.scales] != saved[x] + formats.STACK.scales
            for x in stacks if turned):
        return (f"transformers saves them as {saved[stacks[0]] or 'other tensors'}, "
                "without their scales")
    if stacks and not turned and not is_mergeable(module):
        return ("experts with biases, or with interleaved gate and up, have no format "
                "to be saved in")
    for x in module.parameters(recurse=False):
        if x.dim() == 3 and x.shape[1 if turned else 2] % 16:
            return f"{list(x.shape)}: K is not a multiple of 16"
    return None


def _conversions(model):
    """transformers' conversions by which a model is saved."""
    found = getattr(model, "_weight_conversions", None)
    if found is None:
        found = [x for x in get_model_conversion_mapping(model, add_legacy=False)
                 if not isinstance(x, PrefixChange)]
    return found


def _saved_names(model, names, dims):
    """{name: its name in the files, None where transformers converts the tensor} of
    tensors of a model."""
    if not _conversions(model):
        return {name: name for name in names}
    tensors = {name: torch.empty([16] * dims, device="meta") for name in names}
    try:
        saved = revert_weight_conversion(model, dict(tensors))
    except Exception:  # pylint: disable=broad-except
        # A conversion wants other tensors, or other sizes: which one's is it?
        return {names[0]: None} if len(names) == 1 else {
            key: x for name in names for key,
            x in _saved_names(model, [name], dims).items()}
    found = {id(x): name for name, x in saved.items()}
    return {name: found.get(id(x)) for name, x in tensors.items()}


def _converter_of(conversions, name):
    """The converter that makes a stack, the parameter `name`, of single experts, or
    None."""
    for one in conversions:
        targets = getattr(one, "_original_target_patterns", one.target_patterns)
        if (isinstance(one, WeightConverter) and merges_experts(one)
                and name.endswith(targets[0].replace("\\", ""))):
            return one
    return None


def _converters_of(conversions, name, module):
    """{stack: its converter or None} of a module of experts.  Stacks [experts, rows, K]
    that transformers saves as they are get new converters, and are saved one by one:
    formats have stacks of [experts, K, rows] only."""
    leaves = _leaves(module)
    found = {leaf: _converter_of(conversions, f"{name}.{leaf}") for leaf in leaves}
    if None in found.values() and not module.is_transposed:
        conversions += merging(".".join(name.split(".")[-2:]), module.has_gate, False)
        found = {leaf: _converter_of(conversions, f"{name}.{leaf}") for leaf in leaves}
    return found


def _swap_stack(module, leaf, quantise, transposed, converter):
    """Puts codes and scales in the place of a parameter; returns its Projection.

    quantise   a function of (leaf, w [experts, rows, K])
    converter  makes the stack of single experts, or None"""
    w = getattr(module, leaf).detach()
    w = w.transpose(1, 2).contiguous() if transposed else w
    codes, scales, scale = quantise(leaf, w)
    if converter is None:
        one = _experts.Projection(leaf, leaf + formats.STACK.scales, (
            leaf + formats.STACK.global_scale,), (), False, transposed)
    else:
        one = _experts.projection(leaf, _experts.roles_of(
            leaf, len(converter.source_patterns)))
        scale = scale.repeat(len(w))
    values = [codes, scales] + [scale.clone() for _ in one.factors]
    for name, value in zip(one.names(), values):
        module._parameters.pop(name, None)
        module.register_parameter(name, nn.Parameter(value, requires_grad=False))
    return one


def swap_experts(model: nn.Module, zero_scale: str = "modelopt",
                 activations: "ActivationsName | None" = None,
                 scales: str = "amax") -> tuple[list[str], dict[str, str]]:
    """Quantises the experts of a model of transformers; nibblas.torch.swap_linears()
    does it to the linear layers.

    model        is changed
    zero_scale, scales
                 as in nibblas.torch.Linear.from_linear()
    activations  as in nibblas.torch.Linear

    Returns (names of the experts' modules swapped, {name: reason} of those left)."""
    choose("zero_scale", zero_scale, ZERO_SCALES)
    choose("scales", scales, SCALE_RULES)
    if activations is not None:
        choose("activations", activations, ACTIVATIONS)
    return swap_stacks(model, lambda _name, w: torch.ops.nibblas.quantize(
        w, None, "linear", zero_scale, scales=scales), activations)


def swap_stacks(model: Any, quantise: "Callable[[str, torch.Tensor], Any]",
                activations: "str | None") -> tuple[list[str], dict[str, str]]:
    """swap_experts() with another rounding.

    quantise  a function of (name of a stack, w [experts, rows, K]): codes, linear
              scales, global scale"""
    swapped, left, used = [], {}, {}
    conversions = list(_conversions(model))
    for name, module in list(model.named_modules()):
        llama4 = type(module).__name__ == "Llama4TextExperts"
        if hasattr(module, "nibblas") or not (llama4 or _experts.is_experts(module)):
            continue
        reason = reason_left(model, name, module)
        if reason:
            left[name] = reason
            continue
        if llama4:
            parent, _, child = name.rpartition(".")
            old, module = module, _experts.Llama4Experts(module)
            module._parameters.update(old._parameters)
            setattr(model.get_submodule(parent), child, module)
        made = []
        for leaf, converter in _converters_of(conversions, name, module).items():
            if converter:
                used[converter.source_patterns[0]] = formats.MODELOPT, False
            made.append(_swap_stack(
                module, leaf, lambda x, w, name=name: quantise(f"{name}.{x}", w),
                module.is_transposed, converter))
        module.nibblas = _experts.Stacks(*made, activations)
        _experts.complete(module)
        swapped.append(name)
    if used:
        model._weight_conversions = add_converters(conversions, used)
    if any(_experts.is_experts(model.get_submodule(name)) for name in swapped):
        model.set_experts_implementation(_experts.IMPLEMENTATION)
    if swapped:
        configure(model, left)
    return swapped, left


def _describe(config, model):
    """Writes what the layers of a swapped model do to x, and which are no NVFP4, into
    its configuration.  Where only some linear layers quantise x, each is named."""
    kinds = {name: (one if isinstance(one, Linear) else one.nibblas).activations
             for name, one in model.named_modules()
             if isinstance(one, Linear) or hasattr(one, "nibblas")}
    algorithm, groups, layers = "MIXED_PRECISION", {}, {}
    if len({kind == "nvfp4" for kind in kinds.values()}) == 1:
        four = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
        groups = {"group_0": {"targets": ["Linear"], "weights": four}}
        algorithm = "W4A16_NVFP4"
        if "nvfp4" in kinds.values():
            algorithm, groups["group_0"]["input_activations"] = "NVFP4", dict(four)
    else:
        weights = [name + ".weight" for name in kinds
                   if isinstance(model.get_submodule(name), Linear)]
        for weight, saved in _saved_names(model, weights, 2).items():
            kind = kinds[weight.removesuffix(".weight")]
            layers[saved.removesuffix(".weight")] = {
                "quant_algo": "NVFP4" if kind == "nvfp4" else "W4A16_NVFP4"}
    config.set_algorithm(algorithm, groups, layers)
    relabel(config, model)


def unsavable(model: Any) -> "dict[str, str]":
    """{name: reason} of the linear layers of a model whose weight transformers saves
    under a name, or as a part of a tensor, that their scales would not follow."""
    names = [name for name,
             module in model.named_modules() if type(module) is nn.Linear]
    weights = [name + ".weight" for name in names]
    saved = _saved_names(model, weights + [x + "_scale" for x in weights], 2)
    left = {}
    for name, weight in zip(names, weights):
        one = saved[weight]
        if not (one
                or "").endswith(".weight") or saved[weight
                                                    + "_scale"] != one + "_scale":
            left[name] = (f"transformers saves its weight as "
                          f"{one or 'part of another tensor'}"
                          ", without its scales")
    return left


def configure(model: Any, left: "dict[str, str]") -> None:
    """Makes a model whose layers were swapped one that transformers knows as quantised,
    in ModelOpt's format, so that save_pretrained() writes what from_pretrained() loads.

    left  {name: reason} of the layers that stay"""
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is None:
        config = Config(None, **{
            "quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "ignore": [],
            "producer": {"name": "nibblas", "version": version()}})
        quantizer = model.hf_quantizer = Quantizer(config)
        quantizer.describe = _describe
        model.config.quantization_config = config
        model.is_quantized, model.quantization_method = True, config.quant_method
        count_weights(model)
    if isinstance(quantizer, Quantizer):
        quantizer.left.update(left)
        (quantizer.describe or relabel)(quantizer.quantization_config, model)
