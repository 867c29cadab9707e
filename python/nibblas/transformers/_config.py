# SPDX-License-Identifier: Apache-2.0
"""_config.py - what the configuration of a quantised model says: ModelOpt's
(quantization_config of config.json, or hf_quant_config.json) and compressed-tensors'.
The tensors say which layers are quantised; the configuration says what is done to the
activations, and which layers were left on purpose."""

from transformers.utils.quantization_config import QuantizationConfigMixin

from nibblas import _quantization
from nibblas._library import FileError
from nibblas._patterns import matches
from nibblas._views import ACTIVATIONS, choose

METHOD = "nibblas"
CERTIFIED = "certified"
# How from_pretrained() is told what is done to x.
CHOICES = {**ACTIVATIONS, CERTIFIED: None}
PACKED = "nvfp4-pack-quantized"
# ModelOpt's algorithms, and whether activations stay as they are.
ALGORITHMS = {"NVFP4": False, "NVFP4_AWQ": False, "W4A16_NVFP4": True,
              "NVFP4_W4A16": True, "FP8": True, "FP8_PB_WO": True,
              "FP8_PER_CHANNEL_PER_TOKEN": True, "MIXED_PRECISION": False}


def is_ours(source):
    """Whether nibblas loads models of this quantization_config: all of ModelOpt's,
    and compressed-tensors' that have NVFP4 layers."""
    if source.get("quant_method") != "compressed-tensors":
        return source.get("quant_method") in ("modelopt", METHOD)
    groups = source.get("config_groups")
    formats = [source.get("format")] + [
        one.get("format")
        for one in (groups.values() if isinstance(groups, dict) else ())
        if isinstance(one, dict)]
    return PACKED in formats


def _check_transforms(source):
    """Refuses changes of x or of the weights other than quantisation."""
    rotations = (source.get("transform_config") or {}).get("config_groups")
    if rotations:
        raise FileError("transform_config: nibblas does not rotate activations, as "
                        f"its groups {', '.join(rotations)} want", "transform_config")
    sparse = (source.get("sparsity_config") or {}).get("format", "dense")
    if sparse != "dense":
        raise FileError(f"sparsity_config: format = {sparse}: nibblas loads only "
                        "dense weights", "sparsity_config")


def _check_groups(groups):
    """Refuses config groups of weights that are neither NVFP4 nor FP8."""
    for name, group in groups.items():
        weights = group.get("weights") or {}
        kind = weights.get("num_bits", 4), weights.get("type", "float")
        if kind not in ((4, "float"), (8, "float")):
            raise FileError(f"config_groups: {name}: weights of {kind[0]} bits, type "
                            f"{kind[1]}: nibblas runs NVFP4 and FP8", "config_groups")
        block = weights.get("group_size")
        if kind[0] == 4 and block not in (None, 16):
            raise FileError(f"config_groups: {name}: group_size = {block}: NVFP4's "
                            "blocks have 16 values", "config_groups")


class Config(QuantizationConfigMixin):
    """A quantization_config, kept as it is and written back so.

    activations  "dense", "int8" or "nvfp4" for all layers; "certified": as certified
                 has it; None: as the checkpoint says
    certified    {layer of the checkpoint: its activations} of the certificate"""

    # The default of models that are loaded by their quant_method's name.
    default_activations = None

    def __init__(self, activations=None, /, **source):
        self.quant_method = METHOD
        self.source = source
        self.activations, self.certified = activations, {}
        if self.activations is not None:
            choose("activations", self.activations, CHOICES)
        inner = source.get("quantization") or source
        _check_transforms(inner)
        self.groups = inner.get("config_groups") or {}
        _check_groups(self.groups)
        self.layers = inner.get("quantized_layers") or {}
        self.algorithm = inner.get("quant_algo")
        self.has_no_input_scales = inner.get("with_input_scale") is False
        self.ignored = list(inner.get("ignore") or []) + list(
            inner.get("exclude_modules") or [])
        for name in {self.algorithm} | {
                one.get("quant_algo") for one in self.layers.values()}:
            if name is not None and name not in ALGORITHMS:
                raise FileError(f"quant_algo = {name}: nibblas runs "
                                f"{', '.join(ALGORITHMS)}", "quant_algo")

    @classmethod
    def from_dict(cls, config_dict, return_unused_kwargs=False, **kwargs):
        where = "config.json: quantization_config"
        _quantization.check(where, config_dict)
        if config_dict.get("nibblas_source") is not None:  # nt.from_pretrained()
            source = config_dict["nibblas_source"]
            activations = config_dict.get("nibblas_activations")
        else:
            source, activations = config_dict, cls.default_activations
        _quantization.check(where, source)
        try:
            made = cls(activations, **source)
        except FileError as error:
            raise FileError(f"{where}: {error}", error.argument) from None
        return (made, kwargs) if return_unused_kwargs else made

    def to_dict(self):
        return dict(self.source)

    def to_diff_dict(self):
        return self.to_dict()

    def get_loading_attributes(self):
        return {}

    def ignores(self, name):
        """Whether the list of layers that are not quantised has a module."""
        return any(matches(name, rule) for rule in self.ignored)

    def set_algorithm(self, algorithm, groups, layers):
        """Says what is done to x, in ModelOpt's format; layers: in each, where they
        differ."""
        self.algorithm, self.groups, self.layers = algorithm, groups, layers
        self.source = {**self.source, "quant_algo": algorithm}
        for key, value in (("config_groups", groups), ("quantized_layers", layers)):
            self.source.pop(key, None)
            if value:
                self.source[key] = value

    def relabel(self, plain, quantised):
        """Updates the list of layers that are not quantised: adds these layers, and
        removes rules that match quantised ones."""
        inner = self.source.get("quantization") or self.source
        key = "exclude_modules" if "exclude_modules" in inner else "ignore"
        rules = [rule for rule in inner.get(key) or []
                 if not any(matches(name, rule) for name in quantised)]
        self.ignored = rules + [name for name in plain if not any(
            matches(name, rule) for rule in rules)]
        inner = {**inner, key: self.ignored}
        self.source = inner if "quantization" not in self.source else {
            **self.source, "quantization": inner}

    def _group(self, name):
        """The config group of a linear layer, or None: one that names it goes before
        one of all linear layers."""
        groups = [(target, group) for group in self.groups.values()
                  for target in group.get("targets") or ()]
        named = [group for target, group in groups
                 if target != "Linear" and matches(name, target)]
        return (named + [group for target, group in groups if target == "Linear"]
                + [None])[0]

    def is_weight_only(self, name, has_input_scale):
        """Whether the checkpoint leaves the activations of a layer as they are."""
        algorithm = self.layers.get(name, {}).get("quant_algo", self.algorithm)
        if ALGORITHMS.get(algorithm) or self.has_no_input_scales:
            return True
        group = self._group(name)
        if group is not None:
            return not group.get("input_activations")
        return algorithm in (None, "MIXED_PRECISION") and not has_input_scale

    def _check_input(self, name):
        """Refuses activations of a type that is neither NVFP4 nor the model's own."""
        given = (self._group(name) or {}).get("input_activations") or {}
        kind = given.get("num_bits", 4), given.get("type", "float")
        if kind != (4, "float"):
            raise FileError(f"{name}: input_activations are of {kind[0]} bits, type "
                            f"{kind[1]}: with NVFP4 weights nibblas runs 4 bits; "
                            "activations= of from_pretrained() chooses another way",
                            name)

    def activations_of(self, name, has_input_scale):
        """How a layer uses x: a value of nibblas.torch.Linear's
        activations."""
        if self.activations == CERTIFIED:
            return self.certified[name]
        if self.activations is not None:
            return self.activations
        if self.is_weight_only(name, has_input_scale):
            return None
        self._check_input(name)
        return "nvfp4"
