# SPDX-License-Identifier: Apache-2.0
"""_quantizer.py - transformers' hooks: before the weights are loaded the model's layers
change places with nibblas', its converters learn the names of scales, and when the
weights are there the layers are made ready."""

import os

import torch
import transformers
from torch import nn
from transformers.core_model_loading import (Concatenate, MergeModulelist,
                                             SplitModulelist, Transpose,
                                             WeightConverter)
from transformers.quantizers import HfQuantizer
from transformers.quantizers.base import SequentialLlama4TextExperts

from nibblas import _certificate
from nibblas._files import Checkpoint
from nibblas._library import FileError, UnsupportedError
from nibblas.torch import Linear
from nibblas.transformers import _experts, _formats as formats, _parallel, _plan
from nibblas.transformers._config import CERTIFIED
from nibblas.transformers._dense import count_weights, dequantise
from nibblas.transformers._linear import CheckpointLinear, Fp8Linear, empty
from nibblas.transformers._names import Origin, following, targets
from nibblas.transformers._pages import give_back, mapped_files

CACHE_PATTERN = r"\.[kv]_(scale|zero_point)$"


def _linearise_llama4(model, tensors):
    """Llama 4's experts one by one, as compressed-tensors stores them."""
    for name, module in list(model.named_modules()):
        if type(module).__name__ != "Llama4TextExperts":
            continue
        # Names may have another prefix in the files.
        short = ".".join(name.split(".")[-3:]) + ".0."
        if any(short in key for key in tensors):
            parent, _, child = name.rpartition(".")
            with torch.device("meta"):
                new = SequentialLlama4TextExperts(model.config.get_text_config())
            new.to(module.down_proj.dtype)
            setattr(model.get_submodule(parent), child, new)


def _whole_stack(leaf, layer):
    """(Projection, origins) of a stack that is stored as one."""
    form = layer.format
    projection = _experts.Projection(
        leaf, leaf + form.scales, (leaf + form.global_scale,),
        (leaf + form.input_global,) * bool(layer.input_global),
        form.is_divisor, form.is_transposed)
    return projection, {name: Origin([[x]])
                        for name, x in zip(projection.names(), layer.tensors())}


def _inputs(layers):
    """The Origin of the input scales of experts, some of which may have none."""
    example = next(x.input_global for x in layers if x.input_global)
    return Origin([[x.input_global or example._replace(
                        name=x.name + x.format.input_global, file=x.codes.file)
                    for x in layers]],
                  tuple(i for i, x in enumerate(layers) if x.input_global is None))


def _projection(leaf, stored):
    """(Projection, {parameter: Origin}) of a stack; stored: [Layer], or a Part for each
    source."""
    if isinstance(stored[0], formats.Layer):
        return _whole_stack(leaf, stored[0])
    layers = [part.layers for part in stored]
    roles = _experts.roles_of(leaf, len(stored))
    with_inputs = {role: of_role for role, of_role in zip(roles, layers)
                   if any(x.input_global for x in of_role)}
    projection = _experts.projection(leaf, roles, with_inputs,
                                     layers[0][0].format.is_divisor)
    origins = {projection.codes: Origin([[x.codes for x in part] for part in layers]),
               projection.scales: Origin([[x.scales for x in part] for part in layers])}
    for name, part in zip(projection.factors, layers):
        origins[name] = Origin([[x.global_scale for x in part]])
    for name, part in zip(projection.inputs, with_inputs.values()):
        origins[name] = _inputs(part)
    return projection, origins


def _shape(origin, is_whole):
    """(shape, type of safetensors) of the tensor that transformers makes of its
    origin."""
    first = origin.at()
    if is_whole:
        return first.shape, first.dtype
    experts = len(origin.parts[0]) - len(origin.missing)
    rows = tuple(x * (len(origin.parts) if i == 0 else 1)
                 for i, x in enumerate(first.shape))
    return (experts, *rows), first.dtype


class _MergeScalars(MergeModulelist):
    """Merges [1] of each expert to [experts, 1]; older versions of transformers save
    scalars of the shape [] where they were [1]."""

    @property
    def reverse_op(self):
        return _SplitScalars(self.dim)


class _SplitScalars(SplitModulelist):
    def convert(self, *arguments, **named):
        return {name: x.reshape(1)
                for name, x in super().convert(*arguments, **named).items()}


def _converters(converter, form, has_input):
    """How the tensors of a format become the parameters of _projection(); the longest
    names come first, because transformers 5.12 matches the beginnings of names."""
    sources = getattr(converter, "_original_source_patterns",
                      converter.source_patterns)
    target, = getattr(converter, "_original_target_patterns",
                      converter.target_patterns)
    stems = [x.removesuffix(".weight") for x in sources]
    base, _, leaf = target.rpartition(".")
    roles = _experts.roles_of(leaf, len(stems))
    base = base + "." if base else ""

    def new_converter(sources, target, operations):
        new = WeightConverter(sources, target, operations)
        new.scope_prefix = converter.scope_prefix
        new.base_model_prefix = converter.base_model_prefix
        return new

    def merge():
        return [MergeModulelist(dim=0)] + [Concatenate(dim=1)] * (len(stems) > 1)

    out = []
    for stem, role in zip(stems, roles):
        for suffix, name in ((form.global_scale, "factor"),
                             (form.input_global, "input"))[:1 + has_input]:
            merge_scalars = (_MergeScalars if form is formats.COMPRESSED
                             else MergeModulelist)
            out.append(new_converter(stem + suffix, f"{base}{name}_{role}_proj",
                                     [merge_scalars(dim=0)]))
    out.append(new_converter([x + form.scales for x in stems], f"{base}scale_{leaf}",
                             merge()))
    if form is not formats.MODELOPT:
        out.append(new_converter([x + form.codes for x in stems], target, merge()))
    return out


def add_converters(conversions, used):
    """transformers' conversions, with those of scales before those of their weights.

    used  {first source pattern of a converter: (Format, whether it has inputs)}"""
    out = []
    for conversion in conversions:
        if (isinstance(conversion, WeightConverter)
                and conversion.source_patterns[0] in used):
            out += _converters(conversion, *used[conversion.source_patterns[0]])
        out.append(conversion)
    return out


class _TransposeFloats(Transpose):
    """Leaves codes and scales as they are stored, because finish() turns them."""

    def convert(self, input_dict, source_patterns, target_patterns, **named):
        value = next(iter(input_dict.values()))
        value = value[0] if isinstance(value, list) else value
        if value.element_size() == 1:
            return {target_patterns[0]: value}
        return super().convert(input_dict, source_patterns, target_patterns, **named)

    @property
    def reverse_op(self):
        return _TransposeFloats(self.dim1, self.dim0, self.check_dims)


def _of_floats(converter):
    """A converter of transformers that transposes stacks, but not those in NVFP4."""
    operation, = converter.operations
    new = WeightConverter(converter._original_source_patterns,
                          converter._original_target_patterns,
                          [_TransposeFloats(operation.dim0, operation.dim1,
                                            operation.check_dims)])
    new.scope_prefix = converter.scope_prefix
    new.base_model_prefix = converter.base_model_prefix
    return new


def _check_devices(plan, device_map):
    """Refuses experts on the disk, whose parameters transformers makes up as floats."""
    named = device_map if isinstance(device_map, dict) else {}
    for part, device in named.items():
        for name in plan.stacks if device == "disk" else ():
            if not part or f"{name}.".startswith(part + ".") or part.startswith(
                    name + "."):
                raise UnsupportedError(
                    f"device_map: {part!r} is on the disk, with the experts {name}: "
                    "nibblas keeps experts in memory", "device_map")


def _keep_cache_scales(model, tensors, names):
    """Gives scales of the kv cache to the layers that they are named after, so that
    save_pretrained() writes them: an engine that reads the folder may use them."""
    parts = dict(model.named_modules())
    for stored in map(tensors.get, names):
        module, _, leaf = stored.name.rpartition(".")
        # Files may name layers without the prefix of the base model.
        for name in (module, f"{model.base_model_prefix}.{module}"):
            if isinstance(parts.get(name), (CheckpointLinear, Fp8Linear)):
                parts[name].register_buffer(leaf, empty(stored))


def relabel(config, model):
    """Updates the configuration's list of layers that are not quantised from the
    model."""
    plain, quantised = [], []
    for name, module in model.named_modules():
        if isinstance(module, (Linear, Fp8Linear)) or hasattr(module, "nibblas"):
            quantised.append(name)
        elif type(module) is nn.Linear or _experts.is_experts(module):
            plain.append(name)
    config.relabel(plain, quantised)


def _certified(files, plan):
    """{layer: its activations} of the certificate next to a checkpoint's files.  The
    layers of one module of experts get the same: that with the smallest error."""
    path = os.path.join(os.path.dirname(str(files[0])), _certificate.FILE)
    with Checkpoint._of_files([str(x) for x in files]) as file:
        chosen = _certificate.choices(path, file)
    for stacks in plan.stacks.values():
        names = [x.name for x in _plan.layers_of(stacks)]
        same = _certificate.strictest(chosen[x] for x in names)
        chosen.update(dict.fromkeys(names, same))
    return chosen


class Quantizer(HfQuantizer):
    """Puts NVFP4 layers into a model while transformers loads it."""

    requires_calibration = True
    # Adapters are; the weights stay as they are.
    is_trainable = True
    is_compileable = True

    def __init__(self, quantization_config, **named):
        super().__init__(quantization_config, **named)
        # What a loaded checkpoint is for the model; of one that was swapped, nothing.
        self.plan, self.cache, self.is_mixed = _plan.Plan({}, {}, [], {}, {},
                                                          set()), [], False
        # A swapped model has {name: reason} of layers that stayed, and what writes its
        # configuration.
        self.left, self.describe = {}, None

    def validate_environment(self, *_args, **_named):
        pass

    def is_serializable(self, *_args, **_named):
        """Experts of which some layers are packed and some are not would be saved
        under one name."""
        return not self.is_mixed

    def get_state_dict_and_metadata(self, model):
        """transformers' hook, before it writes the configuration: what the layers of a
        swapped model do, and layers that became floats, as by merged adapters."""
        if self.describe is not None:
            self.describe(self.quantization_config, model)
        elif any(getattr(x, "was_quantised", False) for x in model.modules()):
            relabel(self.quantization_config, model)
        return super().get_state_dict_and_metadata(model)

    def _convert_model_for_quantization(self, model):
        pass

    def _process_model_before_weight_loading(self, model, checkpoint_files=None,
                                             device_map=None, **_named):
        _parallel.check(model)
        if not checkpoint_files:
            raise UnsupportedError("checkpoint_files: none; nibblas loads models from "
                                   "safetensors files", "checkpoint_files")
        self.files = [os.path.realpath(path) for path in checkpoint_files]
        tensors = formats.read(checkpoint_files)
        _linearise_llama4(model, tensors)
        plan = self.plan = _plan.make(model, tensors)
        self.cache = formats.cache_scales(tensors)
        if not plan.linears and not plan.stacks:
            raise FileError(f"{checkpoint_files[0]}: has no quantised layer, but the "
                            "configuration says that the model is quantised", "path")
        _check_devices(plan, device_map)
        config = self.quantization_config
        if config.activations == CERTIFIED:
            config.certified = _certified(checkpoint_files, plan)
        # {experts' module: {parameter: Origin}}
        self.origins = {}
        self.used = {}
        for name, layer in plan.linears.items():
            self._swap(model, name, layer)
        for name, stacks in plan.stacks.items():
            self._swap_experts(model, name, stacks)
        _keep_cache_scales(model, tensors, self.cache)
        packed = {x for x, _ in self.used.values()} == {formats.COMPRESSED}
        whole = [name for name, module in model.named_modules()
                 if _experts.is_experts(module) and not hasattr(module, "nibblas")]
        self.is_mixed = bool(packed and whole)
        if any(_experts.is_experts(model.get_submodule(x)) for x in plan.stacks):
            model.set_experts_implementation(_experts.IMPLEMENTATION)
        self.tensors, self.model = tensors, model
        known = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()
        model._keys_to_ignore_on_load_unexpected = {*known, CACHE_PATTERN}

    def _swap(self, model, name, layer):
        parent, _, child = name.rpartition(".")
        old = model.get_submodule(name)
        if formats.is_fp8(layer.format):
            new = Fp8Linear(old, layer)
        else:
            new = CheckpointLinear(old, layer, self.quantization_config.activations_of(
                layer.name, layer.input_global is not None))
        setattr(model.get_submodule(parent), child, new)

    def _swap_experts(self, model, name, stacks):
        module = model.get_submodule(name)
        if type(module).__name__ == "Llama4TextExperts":
            parent, _, child = name.rpartition(".")
            module = _experts.Llama4Experts(module)
            setattr(model.get_submodule(parent), child, module)
        elif not _experts.is_experts(module):
            raise UnsupportedError(f"{name}: {type(module).__name__} is not dispatched "
                                   "by transformers' registry of experts", name)
        projections, any_layer, self.origins[name] = {}, None, {}
        for leaf, stored in stacks.items():
            projections[leaf], origins = _projection(leaf, stored)
            self.origins[name].update(origins)
            any_layer = stored[0]
            is_whole = isinstance(any_layer, formats.Layer)
            _experts.add_parameters(module, {
                key: _shape(origin, is_whole) for key, origin in origins.items()})
            for part in () if is_whole else stored:
                any_layer = part.layers[0]
                _, has_inputs = self.used.get(part.pattern, (None, False))
                self.used[part.pattern] = (any_layer.format,
                                           has_inputs or bool(projections[leaf].inputs))
        # transformers shall not initialise what is in it.
        module._is_hf_initialized = True
        down = projections.pop("down_proj")
        (first,) = projections.values()
        module.nibblas = _experts.Stacks(
            first, down, self.quantization_config.activations_of(
                any_layer.name, bool(first.inputs)))

    def update_weight_conversions(self, weight_conversions, model=None):
        """transformers' hook."""
        conversions = _plan.with_merging(weight_conversions, self.plan.added)
        conversions = [_of_floats(x) if self.plan.turned & set(x.source_patterns) else x
                       for x in add_converters(conversions, self.used)]
        conversions += following(self.plan.layers(), conversions)
        filled = targets(self.tensors, conversions, self.model)
        self._refuse_unfilled(self.model, lambda name, _value: name in filled)
        # transformers changes places of models while it loads them.
        del self.tensors, self.model
        return conversions

    def update_parallel_plan(self, model, plan):
        """transformers' hook."""
        _parallel.update_plan(model, plan)

    def _refuse_unfilled(self, model, is_filled):
        """Refuses a model with a tensor of a quantised layer that transformers loads
        from no file: it makes up a value, or leaves what was in the memory.

        is_filled  a function of (name in the model, tensor)"""
        left = []
        for name, module in model.named_modules():
            origins = self.origins.get(name) or getattr(module, "origins", None)
            if origins is None:
                continue
            for key, value in (*module._parameters.items(), *module._buffers.items()):
                if (value is not None and key not in module._non_persistent_buffers_set
                        and not is_filled(f"{name}.{key}", value)):
                    left.append(origins[key].at() if key in origins else
                                next(iter(origins.values())).at()._replace(
                                    name=f"{name}.{key}"))
        if left:
            names = ", ".join(x.name for x in left[:4]) + ", ..." * (len(left) > 4)
            raise FileError(
                f"{left[0].file}: {names}: transformers {transformers.__version__} "
                f"loads {len(left)} tensors of {type(model).__name__} from no file: "
                "its names for them differ from the weights', or key_mapping or "
                ""
                "ignore_mismatched_sizes leaves them out", left[0].name)

    def _check_loaded(self, model):
        """By the marks of transformers, which do not outlive a move to another device;
        what is on the disk has none."""
        if len(set((getattr(model, "hf_device_map", None) or {}).values())) < 2:
            self._refuse_unfilled(model, lambda _name, value: value.is_meta or getattr(
                value, "_is_hf_initialized", False))

    def _process_model_after_weight_loading(self, model, **_named):
        ranges = mapped_files(self.files)
        self._check_loaded(model)
        for name, module in model.named_modules():
            if isinstance(module, (CheckpointLinear, Fp8Linear)):
                for key, value in module.named_buffers():
                    if type(value) is not torch.Tensor:
                        raise UnsupportedError(f"{name}.{key}: is sharded; nibblas "
                                               "loads only whole layers", name)
                    if value.is_meta:
                        raise UnsupportedError(f"{name}.{key}: is on no device; "
                                               "nibblas keeps layers in memory, "
                                               "without offload_buffers", name)
                sources = list(module.buffers()) if isinstance(
                    module, CheckpointLinear) else []
                module.finish()
                if sources and module.is_only_packed:
                    give_back(sources, ranges)
            elif hasattr(module, "nibblas"):
                _experts.finish(name, module, self.origins[name])
        count_weights(model)
        return model

    def _dequantize(self, model, dtype=None):
        """transformers' hook of model.dequantize()."""
        return dequantise(model, dtype or model.dtype)
