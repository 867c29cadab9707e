# SPDX-License-Identifier: Apache-2.0
"""_plan.py - where the tensors of a checkpoint go in a model of transformers: which
linear layers and experts become NVFP4, which stay, and what is refused.  The names are
matched by transformers' own renamings and converters."""

import re
from typing import NamedTuple

from torch import nn
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (Concatenate, MergeModulelist,
                                             WeightConverter, WeightRenaming,
                                             rename_source_key)

from nibblas._library import FileError, UnsupportedError
from nibblas.transformers import _formats as formats


class Part(NamedTuple):
    """One of the sources of an expert stack.  pattern: the converter's; layers: of
    all experts in their order."""

    pattern: str
    layers: list


def layers_of(stacks):
    """The layers of an experts' module, a value of Plan.stacks."""
    for stored in (x for leaf in stacks.values() for x in leaf):
        yield from [stored] if isinstance(stored, formats.Layer) else stored.layers


class Plan(NamedTuple):
    """What a checkpoint is for a model.

    linears  {module: Layer}
    stacks   {experts' module: {"gate_up_proj": [Part, Part] or [Layer], ...}}
    absent   layers of the checkpoint that the model has no use for
    added    {end of a module's name: arguments of merging()} of experts that are stored
             one by one, in an order that transformers does not know
    plain    {module: its name in the checkpoint} of linear layers that stay
    turned   source patterns of transformers' converters that transpose stacks"""

    linears: dict
    stacks: dict
    absent: list
    plain: dict
    added: dict
    turned: set

    def layers(self):
        """All layers of the checkpoint that the model uses."""
        yield from self.linears.values()
        for stacks in self.stacks.values():
            yield from layers_of(stacks)


def is_mergeable(module):
    """Whether the stacks of an experts' module are those of its layers, one below the
    other: gate and up, down."""
    return (getattr(module, "is_concatenated", False) and not module.is_transposed
            and not module.has_bias)


def merging(short, has_gate, number_last):
    """New converters for experts with the end `short` of their module's name.  Those
    that have matched a name say so ever after, and transformers saves by them.

    number_last  names are experts.gate_proj.0, not experts.0.gate_proj"""
    def pattern(role):
        names = f"{role}_proj.*" if number_last else f"*.{role}_proj"
        return f"{short}.{names}.weight"
    roles = ("gate", "up") if has_gate else ("up",)
    first = "gate_up_proj" if has_gate else "up_proj"
    return (WeightConverter([pattern(x) for x in roles], f"{short}.{first}",
                            [MergeModulelist(dim=0)] + [Concatenate(dim=1)] * has_gate),
            WeightConverter([pattern("down")], f"{short}.down_proj",
                            [MergeModulelist(dim=0)]))


def with_merging(conversions, added):
    """transformers' conversions, with those of Plan.added in the place of others that
    make the same stacks."""
    ours = [converter for short, how in added.items()
            for converter in merging(short, *how)]
    targets = {converter.target_patterns[0] for converter in ours}
    return ours + [x for x in conversions if not targets & set(x.target_patterns)]


class _Names:
    """transformers' names for those of a checkpoint."""

    def __init__(self, model):
        conversions = get_model_conversion_mapping(model)
        self.renamings = [x for x in conversions if isinstance(x, WeightRenaming)]
        self.converters = [x for x in conversions if isinstance(x, WeightConverter)]
        self.model = model
        self.prefix, self.state = model.base_model_prefix, model.state_dict()

    def add(self, names):
        """Adds converters for experts among the names of tensors that transformers has
        none for; returns Plan.added."""
        added, modules = {}, dict(self.model.named_modules())
        for name in names:
            order = re.search(r"\.experts\.(\d+\.down_proj|down_proj\.\d+)\.weight"
                              r"(_packed)?$", name)
            if not order:
                continue
            target, _ = self.find(name.removesuffix("_packed"))
            stem = target.rsplit(".", 3)[0]
            if target not in self.state and is_mergeable(modules.get(stem)):
                added[".".join(stem.split(".")[-2:])] = (
                    modules[stem].has_gate, order[1].startswith("down"))
        self.converters = with_merging(self.converters, added)
        return added

    def find(self, name):
        """(name in the model, the source pattern of the converter or None)."""
        renamed, pattern = rename_source_key(
            name, self.renamings, self.converters, self.prefix, self.state)
        if renamed not in self.state and name in self.state:
            return name, None
        return renamed, pattern

    def converter(self, pattern):
        return next(x for x in self.converters if pattern in x.source_patterns)

    def transposes(self, pattern):
        """Whether a converter does nothing but transpose."""
        return operations_of(self.converter(pattern)) == {"Transpose"}

    def targets(self, name):
        """All names in the model that a tensor is for."""
        renamed, pattern = self.find(name)
        if pattern is None:
            return [renamed]
        first, *others = self.converter(pattern).target_patterns
        return [renamed] + [renamed.replace(first, other) for other in others]


def _is_ignored(model, name):
    """Whether the model's class says that it has no use for a tensor."""
    patterns = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()
    return any(re.search(pattern, name) for pattern in patterns)


def _check_linear(name, linear, layer):
    stored, rows, k = layer.codes, linear.out_features, linear.in_features
    want = [rows, k] if formats.is_fp8(layer.format) else [rows, k // 2]
    if k % 16 and not formats.is_fp8(layer.format):
        stored.fail(f"the model's {name} has in_features = {k}: must be a multiple "
                    "of 16")
    if list(stored.shape) != want:
        stored.fail(f"must be {want}, because the model's {name} has out_features = "
                    f"{rows}, in_features = {k}")
    for scalar in (layer.global_scale, layer.input_global):
        if scalar is not None and _numel(scalar) != 1:
            scalar.fail("must be one number")
    awq = layer.pre_quant_scale
    if awq is not None and (list(awq.shape) != [k] or awq.dtype not in formats.FLOATS):
        awq.fail(f"must be [{k}] of {', '.join(formats.FLOATS)}, a number for each "
                 "column of x")


def _numel(stored):
    count = 1
    for n in stored.shape:
        count *= n
    return count


def _place_linear(plan, model, name, layer):
    """name: of the module."""
    module = model.get_submodule(name)
    if type(module) is not nn.Linear:
        layer.codes.fail(f"the model's {name} is a {type(module).__name__}; quantised "
                          "layers must be torch.nn.Linear")
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    if name + ".weight" in tied:
        layer.codes.fail(f"config.json ties {name}.weight to "
                          f"{tied[name + '.weight']}; a quantised layer has weights "
                          "of its own")
    _check_linear(name, module, layer)
    plan.linears[name] = layer


def _expert(name):
    """The numbers in the name of a layer; the last one is the expert's."""
    return [int(x) for x in re.findall(r"\.(\d+)(?=\.)", name + ".")]


def operations_of(converter):
    return {type(x).__name__ for x in converter.operations}


def merges_experts(converter):
    """Whether a converter of transformers makes a stack of the experts' layers."""
    return not operations_of(converter) - {"MergeModulelist", "Concatenate"} and all(
        "experts." in x and ".*." in x and x.endswith(".weight")
        for x in converter.source_patterns)


def _place_expert(plan, names, target, pattern, layer):
    converter = names.converter(pattern)
    module, _, leaf = target.rpartition(".")
    sources = converter.source_patterns
    if not merges_experts(converter) or formats.is_fp8(layer.format):
        layer.codes.fail(f"transformers makes {target} of it by "
                          f"{sorted(operations_of(converter))}, which nibblas does not "
                          f"do to {layer.format.name}")
    if layer.pre_quant_scale is not None:
        layer.pre_quant_scale.fail(formats.REFUSED["pre_quant_scale"]
                                   + ": experts share their x")
    parts = plan.stacks.setdefault(module, {}).setdefault(
        leaf, [Part(x, []) for x in sources])
    parts[sources.index(pattern)].layers.append(layer)


def _check_parts(module, leaf, parts, want):
    """The experts of a stack [E, rows, K], each of which is a layer of its own."""
    experts, rows, k = want
    alike = parts[0].layers[0] if parts[0].layers else None
    for part in parts:
        part.layers.sort(key=lambda x: _expert(x.name))
        if alike is None or len(part.layers) != experts:
            example = (part.layers or parts[-1].layers)[0].codes
            example.fail(f"{module}.{leaf} needs {part.pattern} of {experts} experts; "
                         f"the files have {len(part.layers)}")
        for number, layer in enumerate(part.layers):
            if _expert(layer.name)[-1] != number:
                layer.codes.fail(f"{module}.{leaf}: expert {number} of {part.pattern} "
                                  "is missing, this one is another")
        for layer in part.layers:
            shape = [rows // len(parts), k // 2]
            if list(layer.codes.shape) != shape:
                layer.codes.fail(f"must be {shape}, because the model's "
                                  f"{module}.{leaf} is {list(want)}")
            for scalar in (layer.global_scale, layer.input_global):
                if scalar is not None and _numel(scalar) != 1:
                    scalar.fail("must be one number")
                if scalar is not None and scalar.shape != alike.global_scale.shape:
                    scalar.fail(f"must be {list(alike.global_scale.shape)}, as "
                                f"{alike.global_scale.name} is")
            if layer.format != alike.format:
                layer.codes.fail(f"is not stored as {alike.name} is: experts of one "
                                  "layer must be alike")


def _check_stack(layer, module, want):
    """A stack that is stored as one, [E, K/2, rows] or [E, rows, K/2]; want: the shape
    of the model's."""
    experts, rows, k = want
    # Llama 4 does not say that its experts are transposed.
    if getattr(module, "is_transposed", True):
        rows, k = k, rows
    shapes = [[experts, k // 2, rows], [experts, rows, k // 2]]
    if list(layer.codes.shape) != shapes[not layer.format.is_transposed] or k % 16:
        layer.codes.fail(f"must be {shapes[0]} or {shapes[1]}, because the model's is "
                          f"{list(want)}, with K = {k}, a multiple of 16")
    for scalar in (layer.global_scale, layer.input_global):
        if scalar is not None and _numel(scalar) not in (1, experts):
            scalar.fail(f"must be one number, or {experts}, one for each expert")


def _check_stacks(plan, model):
    for name, stacks in plan.stacks.items():
        module = model.get_submodule(name)
        if getattr(module, "has_post_expert_norm", False):
            raise UnsupportedError(f"{name}: experts with a norm after each are not "
                                   "supported", name)
        leaves = [x for x in ("gate_up_proj", "up_proj", "down_proj")
                  if getattr(module, x, None) is not None]
        for leaf in leaves:
            if leaf not in stacks:
                raise FileError(f"{name}.{leaf}: is not quantised, but other weights "
                                "of these experts are", name)
            want = tuple(getattr(module, leaf).shape)
            first = stacks[leaf][0]
            if isinstance(first, formats.Layer):
                _check_stack(first, module, want)
            else:
                _check_parts(name, leaf, stacks[leaf], want)


def _check_missing(model, names, tensors):
    """Refuses a checkpoint without all weights of a model: transformers would make
    the missing ones up."""
    provided = {target for name in tensors for target in names.targets(name)}
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    allowed = getattr(model, "_keys_to_ignore_on_load_missing", None) or ()
    for name in names.state:
        if name not in provided and name not in tied and tied.get(name) is None and (
                not any(re.search(x, name) for x in allowed)):
            example = next(iter(tensors.values()))
            raise FileError(f"{example.file}: {name}: is in no file of the checkpoint, "
                            f"and {type(model).__name__} needs it", name)


def _check_unused(names, model, tensor):
    """Refuses a tensor that the model does not have and that may change its layers."""
    leaf = tensor.name.rpartition(".")[2]
    if (formats.SUSPECT.search(leaf) and leaf not in formats.CACHE
            and not any(x in names.state for x in names.targets(tensor.name))
            and not _is_ignored(model, tensor.name)):
        tensor.fail(formats.UNKNOWN)


def make(model, tensors):
    """The plan of a checkpoint, tensors of _formats.read(), for a model on the meta
    device."""
    names = _Names(model)
    plan = Plan({}, {}, [], {}, names.add(tensors), set())
    quantised = formats.layers(tensors)
    modules = dict(model.named_modules())
    used = {part.name for layer in quantised.values() for part in layer.tensors()}
    plainly = {name: tensor for name, tensor in tensors.items() if name not in used}
    for layer in quantised.values():
        stack, name = layer.format.is_stack, layer.name + layer.format.leaf
        target, pattern = names.find(name)
        module = target.rpartition(".")[0]
        plainly[name] = layer.codes
        if stack and target in names.state and (
                pattern is None or names.transposes(pattern)):
            plan.stacks.setdefault(module, {})[target.rpartition(".")[2]] = [layer]
            plan.turned.update({pattern} - {None})
        elif pattern is not None and target in names.state:
            _place_expert(plan, names, target, pattern, layer)
        elif target in names.state and module in modules:
            _place_linear(plan, model, module, layer)
        elif _is_ignored(model, target):
            plan.absent.append(layer.name)
        else:
            layer.codes.fail(f"{type(model).__name__} of transformers has no {target}")
    _check_stacks(plan, model)
    _check_missing(model, names, plainly)
    for name, tensor in plainly.items():
        _check_unused(names, model, tensor)
        module = names.find(name)[0].removesuffix(".weight")
        if type(modules.get(module)) is nn.Linear and module not in plan.linears:
            plan.plain[module] = name.removesuffix(".weight")
    return plan
