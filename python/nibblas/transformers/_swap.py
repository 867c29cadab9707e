# SPDX-License-Identifier: Apache-2.0
"""_swap.py - quantises the experts of a model that is in memory."""

import torch
from torch import nn

from nibblas._numpy import ActivationsName
from nibblas._views import ACTIVATIONS, RECIPES, choose
from nibblas.transformers import _experts


def _reason(module):
    """Why the experts of a module cannot be quantised; None: they can."""
    if getattr(module, "has_post_expert_norm", False):
        return "experts with a norm behind each are not supported"
    turned = getattr(module, "is_transposed", True)
    for x in module.parameters(recurse=False):
        if x.dim() == 3 and x.shape[1 if turned else 2] % 16:
            return f"{list(x.shape)}: K is no multiple of 16"
    return None


def _swap_stack(module, leaf, recipe, transposed):
    """Puts codes and scales in the place of a parameter; returns its Projection."""
    w = getattr(module, leaf).detach()
    w = w.transpose(1, 2).contiguous() if transposed else w
    codes, scales, scale = torch.ops.nibblas.quantize(w, None, "linear", recipe)
    one = _experts.Projection(leaf, leaf + "_weight_scale", (
        leaf + "_weight_scale_2",), (), False, transposed)
    for name, value in zip(one.names(), (codes, scales, scale)):
        module._parameters.pop(name, None)
        module.register_parameter(name, nn.Parameter(value, requires_grad=False))
    return one


def swap_experts(model: nn.Module, recipe: str = "modelopt",
                 activations: "ActivationsName | None" = None
                 ) -> tuple[list[str], dict[str, str]]:
    """Quantises the experts of a model of transformers; nibblas.torch.swap_linears()
    does it to the linear layers.

    model        is changed
    recipe       as in nibblas.torch.Linear.from_linear()
    activations  as in nibblas.torch.Linear

    Returns (names of the experts' modules swapped, {name: reason} of those left)."""
    choose("recipe", recipe, RECIPES)
    if activations is not None:
        choose("activations", activations, ACTIVATIONS)
    swapped, left = [], {}
    for name, module in list(model.named_modules()):
        llama4 = type(module).__name__ == "Llama4TextExperts"
        if hasattr(module, "nibblas") or not (llama4 or _experts.is_experts(module)):
            continue
        reason = _reason(module)
        if reason:
            left[name] = reason
            continue
        if llama4:
            parent, _, child = name.rpartition(".")
            old, module = module, _experts.Llama4Experts(module)
            module._parameters.update(old._parameters)
            setattr(model.get_submodule(parent), child, module)
        turned = llama4 or module.is_transposed
        first, down = (_swap_stack(module, leaf, recipe, turned) for leaf in (
            "gate_up_proj" if hasattr(module, "gate_up_proj") else "up_proj",
            "down_proj"))
        module.nibblas = _experts.Stacks(first, down, activations)
        swapped.append(name)
    if any(_experts.is_experts(model.get_submodule(name)) for name in swapped):
        model.set_experts_implementation(_experts.IMPLEMENTATION)
    return swapped, left
