# SPDX-License-Identifier: Apache-2.0
"""_onload.py - quantises a dense checkpoint while transformers loads it: the weights
are loaded as they are, and then become NVFP4 layer by layer."""

from collections.abc import Iterable
from typing import Any

from torch import nn
from transformers.quantizers import HfQuantizer
from transformers.quantizers.base import get_keys_to_not_convert
from transformers.utils.quantization_config import QuantizationConfigMixin

from nibblas import _patterns
from nibblas._library import ArgumentError, FileError, UnsupportedError
from nibblas._numpy import ActivationsName
from nibblas._views import ACTIVATIONS, SCALE_RULES, ZERO_SCALES, choose
from nibblas.torch import swap_linears

METHOD = "nibblas-quantize"
# Last parts of the names of linear layers that choose experts.
ROUTERS = ("gate", "router", "shared_expert_gate")


def _check_rules(rules):
    """Refuses what is neither a name nor a pattern in an argument `ignore`."""
    for one in rules:
        if not isinstance(one, str):
            raise ArgumentError(f"ignore: {one!r}: must be a string", "ignore")
        try:
            _patterns.check(one)
        except FileError as error:
            raise ArgumentError(f"ignore: {error}", "ignore") from None


class NVFP4Config(QuantizationConfigMixin):
    """How a dense checkpoint is quantised while it is loaded, by
    nibblas.transformers.from_pretrained(quantize=) or transformers' own
    from_pretrained(quantization_config=).

    ignore       names of linear layers that stay as they are, or patterns: a glob
                 with *,
                 or "re:" and a regular expression.  None: the output layer and the
                 layers
                 that choose experts, as ModelOpt and transformers leave them
    zero_scale   as in nibblas.torch.Linear.from_linear()
    activations  as in nibblas.torch.Linear
    experts      False: stacks of experts stay as they are
    scales       as in nibblas.torch.Linear.from_linear()"""

    def __init__(self, ignore: "Iterable[str] | None" = None,
                 zero_scale: str = "modelopt",
                 activations: "ActivationsName | None" = None, experts: bool = True,
                 scales: str = "amax", **_named: Any) -> None:
        # transformers gives a config's other entries too.
        if "recipe" in _named:
            raise TypeError("NVFP4Config: 'recipe' is called 'zero_scale'")
        if isinstance(ignore, str):
            raise ArgumentError(f"ignore = {ignore!r}: must be a list of names",
                                "ignore")
        ignore = None if ignore is None else list(ignore)
        _check_rules(ignore or ())
        choose("zero_scale", zero_scale, ZERO_SCALES)
        choose("scales", scales, SCALE_RULES)
        if activations is not None:
            choose("activations", activations, ACTIVATIONS)
        self.quant_method = METHOD
        self.ignore, self.zero_scale = ignore, zero_scale
        self.activations, self.experts, self.scales = activations, experts, scales


def default_ignored(model):
    """The output layer and routers of a model."""
    return set(get_keys_to_not_convert(model)) | {
        name for name, one in model.named_modules()
        if type(one) is nn.Linear and name.rpartition(".")[2] in ROUTERS}


class QuantizerOnLoad(HfQuantizer):
    """Quantises a model when transformers has loaded its weights."""

    requires_calibration = False
    is_trainable = True

    def __init__(self, quantization_config, **named):
        super().__init__(quantization_config, **named)
        if self.pre_quantized:
            raise ArgumentError(
                "quantization_config: the checkpoint says that NVFP4Config quantised "
                "it, which is never written: remove quantization_config from its "
                "config.json",
                "quantization_config")

    def is_serializable(self, *_args, **_named):
        return False  # Quantizer takes this one's place.

    def _process_model_after_weight_loading(self, model, **_named):
        chosen = self.quantization_config
        for name, one in model.named_parameters():
            if one.is_meta:
                raise UnsupportedError(
                    f"device_map: {name} is on the disk; nibblas quantises models that "
                    "are in memory", "device_map")
        if chosen.ignore is None:
            ignored = default_ignored(model).__contains__
        else:
            def ignored(name):
                return any(_patterns.matches(name, rule) for rule in chosen.ignore)
        del model.hf_quantizer, model.config.quantization_config
        swapped, _ = swap_linears(model, lambda name, _: ignored(name),
                                  chosen.zero_scale, chosen.activations, chosen.experts,
                                  chosen.scales)
        if not swapped:
            raise ArgumentError("ignore: leaves no layer of the model to quantise",
                                "ignore")
        return model
