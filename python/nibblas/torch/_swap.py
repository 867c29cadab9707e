# SPDX-License-Identifier: Apache-2.0
"""_swap.py - swap_linears(), which replaces a model's linear layers by NVFP4 layers."""

import collections
from collections.abc import Callable

from torch import nn

from nibblas._numpy import ActivationsName
from nibblas.torch._linear import Linear
from nibblas.torch._plugin import support_of, transformers_support
from nibblas.torch._siblings import shared_scales


def _leave_fast_path(model):
    """Makes torch's transformer encoders call their linear layers.  In eval mode their
    fast path would read the weights as floats.  Both attributes serve only that
    path."""
    for one in model.modules():
        if isinstance(one, nn.TransformerEncoderLayer) and any(
                isinstance(x, Linear) for x in (one.linear1, one.linear2)):
            one.activation_relu_or_gelu = 0
    for one in model.modules():
        if isinstance(one, nn.TransformerEncoder) and any(
                isinstance(x, Linear) for x in one.layers.modules()):
            one.use_nested_tensor = False


def _stacks(model):
    """(name, reason) of modules with stacks of matrices as parameters of their own, as
    experts have them."""
    for name, module in model.named_modules():
        if type(module).__module__.startswith("torch.nn."):
            continue
        for key, x in module.named_parameters(recurse=False):
            if x.dim() == 3 and x.is_floating_point() and x.element_size() > 1:
                yield name, (f"{key} {list(x.shape)} is a stack of matrices, not a "
                             "torch.nn.Linear: experts=True quantises those of "
                             "transformers")
                break


def _owners(model):
    """{id of a parameter: {id of a module: name} of the modules that have it}."""
    owners = collections.defaultdict(dict)
    for name, module in model.named_modules():
        for x in module._parameters.values():
            owners[id(x)][id(module)] = name
    return owners


def choose_linears(model, keep, support):
    """({name: linear}, {name: reason}): what is swapped, and what is left."""
    chosen, left, owners = {}, {}, _owners(model)
    unsaved = support.unsavable(model) if support else {}
    for name, linear in model.named_modules(remove_duplicate=False):
        if type(linear) is not nn.Linear:
            continue
        if keep is not None and keep(name, linear):
            left[name] = "kept"
        elif len(owners[id(linear.weight)]) > 1:
            left[name] = "shares its weight with " + ", ".join(
                other for one, other in owners[id(linear.weight)].items()
                if one != id(linear))
        elif name in unsaved:
            left[name] = unsaved[name]
        elif linear.in_features % 16:
            left[name] = (f"in_features = {linear.in_features} is not a multiple "
                          "of 16")
        elif name == "":
            left[name] = "is the model itself: use Linear.from_linear()"
        else:
            chosen[name] = linear
    return chosen, left


def replace(model, chosen, make):
    """Puts make(name, linear) in the places of linear layers; returns their names.

    chosen  {name: linear}, which becomes empty: the original weights of each layer are
            freed as soon as it has been swapped"""
    swapped, places = list(chosen), collections.defaultdict(list)
    for name, linear in chosen.items():
        places[id(linear)].append(name)
    for names in places.values():
        linear = [chosen.pop(name) for name in names][0]
        made = make(names[0], linear)
        for name in names:
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, made)
    return swapped


def finish(model, swapped, left, support):
    """Makes a model whose layers were replaced ready to run and to be saved."""
    left.update((name, reason) for name, reason in _stacks(model) if name not in left)
    _leave_fast_path(model)
    if swapped and support:
        support.configure(model, left)


def swap_linears(model: nn.Module,
                 keep: "Callable[[str, nn.Linear], bool] | None" = None,
                 zero_scale: str = "modelopt",
                 activations: "ActivationsName | None" = None,
                 experts: bool = False,
                 scales: str = "amax") -> tuple[list[str], dict[str, str]]:
    """Puts a nibblas.torch.Linear in the place of each torch.nn.Linear of a model.

    model        is changed
    keep         a function of (name, linear): True for those that stay as they are
    zero_scale   as in Linear.from_linear()
    activations  as in Linear: "nvfp4" quantises activations too
    experts      True: of a model of transformers the experts too, as by
                 nibblas.transformers.swap_experts(); keep does not apply to them
    scales       as in Linear.from_linear()

    Layers that read one input (q_proj, k_proj and v_proj, gate_proj and up_proj, and
    the like) share a global scale, because engines fuse them.

    Returns (names of those swapped, {name: reason} of those left, and of modules with
    stacks of experts).  A layer that the model has in two places stays one layer.  A
    layer that shares its weight with another module, such as a tied embedding, is not
    swapped.  torch's transformer encoders no longer use their fast path, which reads
    the weights of linear layers and does not support NVFP4.  A model of transformers
    gets the configuration by which save_pretrained() writes a folder that
    nibblas.transformers loads."""
    support = support_of(model)
    chosen, left = choose_linears(model, keep, support)
    shared = shared_scales(chosen, scales)
    swapped = replace(model, chosen, lambda name, linear: Linear.from_linear(
        linear, zero_scale, None, activations, shared.get(name), scales))
    if experts:
        also, others = transformers_support().swap_experts(
            model, zero_scale, activations, scales)
        swapped += also
        left.update(others)
    finish(model, swapped, left, support)
    return swapped, left
