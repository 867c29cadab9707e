# SPDX-License-Identifier: Apache-2.0
"""NVFP4 models in transformers: directories of ModelOpt and compressed-tensors, run
as they are.

    import nibblas.transformers as nt
    model = nt.from_pretrained("model-NVFP4")
    print(nt.report(model))

or register() once, and then transformers' own from_pretrained().  The layers are
nibblas.torch's; experts run by transformers' registry of experts' implementations.
Needs transformers 5.12 or later."""

import contextlib
import copy
import json
import os
import stat
from typing import Any, Literal

import transformers

if tuple(int(x) for x in transformers.__version__.split(".")[:2]) < (5, 12):
    raise ImportError("nibblas.transformers needs transformers 5.12 or later; "
                      f"{transformers.__version__} is installed")

from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.quantizers.auto import (AUTO_QUANTIZATION_CONFIG_MAPPING,
                                          AUTO_QUANTIZER_MAPPING)
from transformers.utils import cached_file

from nibblas import _quantization
from nibblas._files import Checkpoint
from nibblas._library import ArgumentError, FileError, SystemIOError
from nibblas._numpy import ActivationsName
from nibblas._views import choose
from nibblas.transformers._calibrate import calibrate
from nibblas.transformers._config import (CHOICES, METHOD, PACKED, Config,
                                           is_ours)
from nibblas.transformers import _formats, _parallel
from nibblas.transformers._experts import IMPLEMENTATION, experts_forward
from nibblas.transformers._onload import METHOD as ON_LOAD, NVFP4Config, QuantizerOnLoad
from nibblas.transformers._quantizer import Quantizer
from nibblas.transformers._report import Report, Row, describe
from nibblas.transformers._swap import swap_experts

__all__ = ["NVFP4Config", "Report", "Row", "calibrate", "from_pretrained", "register",
           "report",
           "swap_experts"]

AUTO_QUANTIZATION_CONFIG_MAPPING[METHOD] = Config
AUTO_QUANTIZER_MAPPING[METHOD] = Quantizer
AUTO_QUANTIZATION_CONFIG_MAPPING[ON_LOAD] = NVFP4Config
AUTO_QUANTIZER_MAPPING[ON_LOAD] = QuantizerOnLoad
ALL_EXPERTS_FUNCTIONS.register(IMPLEMENTATION, experts_forward)
_parallel.register(IMPLEMENTATION)
_HUB = ("cache_dir", "force_download", "local_files_only", "proxies", "revision",
        "subfolder", "token", "trust_remote_code")
# With these transformers reads other files of a folder than Checkpoint does.
_ELSEWHERE = {"subfolder", "variant", "transformers_weights"}


def _read_object(path):
    """The object in a file of JSON."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise SystemIOError(f"{path}: {error.strerror}", "path") from None
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: is no JSON: {error}", "path") from None
    if not isinstance(found, dict):
        raise FileError(f"{path}: must have an object, {{...}}", "path")
    return found


def _check_files(folder):
    """Refuses files that a reader would wait for (a FIFO), and configurations that are
    no objects of JSON, whose entries transformers would take for others."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.endswith((".json", ".safetensors")) and os.path.exists(path):
            kind = os.stat(path).st_mode
            if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
                raise FileError(f"{path}: must be a regular file", "path")
    for name in "config.json", "hf_quant_config.json":
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            found = _read_object(path).get("quantization_config")
            if found is not None:
                _quantization.check(f"{path}: quantization_config", found)


def _check_folder(path, named):
    """Returns the Checkpoint of a folder, or a null context if path is on the hub.

    Refuses a path that is no folder, and a folder whose index, shards or headers are
    broken, before transformers reads them, because its errors do not name the file."""
    if os.path.isdir(path):
        _check_files(path)
        if not _ELSEWHERE & named.keys():
            file = Checkpoint(path)
            if file._reordered:
                raise FileError(f"{path}: {file._reordered[0]} is in ComfyUI's order, "
                                "which nibblas.Checkpoint and nib read: must be in "
                                "ModelOpt's or compressed-tensors'", "path")
            return file
    elif os.path.exists(path):
        raise FileError(f"{path}: must be a folder, with config.json and safetensors "
                        "files", "path")
    elif os.path.isabs(path):
        raise SystemIOError(f"{path}: no such folder", "path")
    return contextlib.nullcontext()


def _older_file(path, hub):
    """The path of hf_quant_config.json, in which older versions of ModelOpt write what
    is in config.json today, or None."""
    hub = {key: value for key, value in hub.items() if key != "trust_remote_code"}
    return cached_file(path, "hf_quant_config.json", **hub,
                       _raise_exceptions_for_missing_entries=False)


def _quantization_of(path, config, hub):
    """(the quantization_config of a model, the file that has it, for messages): of
    config.json, or hf_quant_config.json."""
    where = os.path.join(str(path), "config.json") + ": quantization_config"
    for one in (config, config.get_text_config(decoder=True)):
        found = getattr(one, "quantization_config", None)
        if found is not None:
            found = found.to_dict() if hasattr(found, "to_dict") else found
            _quantization.check(where, found)
            found = found.get("nibblas_source") or found
            _quantization.check(where, found)
            return found, where
    older = _older_file(path, hub)
    if older is None:
        raise FileError(f"{path}: has no quantization_config in config.json, and no "
                        "hf_quant_config.json: it is not a quantised model; "
                        "quantize=True quantises it while it is loaded", "path")
    found = {"quant_method": "modelopt", **_read_object(older)}
    _quantization.check(older, found)
    return found, older


def _quantise(path, config, quantize, activations, cls, named):
    """from_pretrained() of a dense checkpoint, which becomes NVFP4."""
    found = ("quantization_config"
             if getattr(config, "quantization_config", None) is not None
             else _older_file(path, {key: named[key] for key in _HUB if key in named}))
    if found is not None:
        raise ArgumentError(
            f"quantize: {path} is quantised already, by its {os.path.basename(found)}: "
            "load it without quantize=", "quantize")
    if quantize is True:
        quantize = NVFP4Config(activations=activations)
    elif not isinstance(quantize, NVFP4Config):
        raise ArgumentError(f"quantize = {quantize!r}: must be True or an NVFP4Config",
                            "quantize")
    elif activations is not None:
        raise ArgumentError(f"activations = {activations!r}: with an NVFP4Config it "
                            "says the activations", "activations")
    return cls.from_pretrained(path, config=config, quantization_config=quantize,
                               **named)


def from_pretrained(path: Any, *,
                    activations: "ActivationsName | Literal['certified'] | None" = None,
                    cls: Any = AutoModelForCausalLM,
                    quantize: "bool | NVFP4Config" = False, **named: Any) -> Any:
    """Loads an NVFP4 model of ModelOpt or compressed-tensors, or a dense one that it
    quantises.

    path         a directory, or a name on the hub
    activations  how every layer uses x, as in nibblas.torch.Linear; "certified": as
                 the folder's certificate chooses for each layer (nibblas.certify);
                 None: as the checkpoint says
    cls          the class to load, or an AutoModel class
    quantize     True, or an NVFP4Config: the checkpoint is dense, and becomes NVFP4
    named        go to cls.from_pretrained(); config may be among them

    Returns a model of transformers.  Raises FileError for what the checkpoint has and
    nibblas does not understand, with the file, the layer and the rule."""
    if activations is not None:
        choose("activations", activations, CHOICES)
    with _check_folder(path, named) as file, _formats.keep(file):
        return _load(path, activations, cls, quantize, named)


def _load(path, activations, cls, quantize, named):
    hub = {key: value for key, value in named.items() if key in _HUB}
    config = copy.deepcopy(named.pop("config", None)) or AutoConfig.from_pretrained(
        path, **hub)
    if quantize is not False:
        return _quantise(path, config, quantize, activations, cls, named)
    found, where = _quantization_of(path, config, hub)
    if not is_ours(found):
        raise ArgumentError(
            f"path = {path}: {where} has quant_method = "
            f"{found.get('quant_method')}, format = {found.get('format')}: must be "
            f"modelopt, or compressed-tensors with format {PACKED}", "path")
    try:
        Config(activations, **found)
    except FileError as error:
        raise FileError(f"{where}: {error}", error.argument) from None
    # The key quant_method chooses Quantizer; Config leaves both keys out when saving.
    config.quantization_config = {"quant_method": METHOD, "nibblas_source": found,
                                  "nibblas_activations": activations}
    return cls.from_pretrained(path, config=config, **named)


def register(
        activations: "ActivationsName | Literal['certified'] | None" = None) -> None:
    """Makes transformers' own from_pretrained() load NVFP4 models by nibblas: those of
    quant_method "modelopt", and those of "compressed-tensors" that have NVFP4 layers;
    others of compressed-tensors are loaded as before.

    activations  as in from_pretrained(), for all models that are loaded so"""
    if activations is not None:
        choose("activations", activations, CHOICES)
    Config.default_activations = activations
    mapping = AUTO_QUANTIZATION_CONFIG_MAPPING
    for method in ("modelopt", "compressed-tensors"):
        previous = mapping.get(method)
        if previous is Config or getattr(previous, "is_nibblas", False):
            continue
        mapping[method] = Config if previous is None else _either(previous)


def _either(previous):
    """A configuration class that makes Config for NVFP4 models, and `previous` for
    others."""
    class Either(previous):
        is_nibblas = True

        @classmethod
        def from_dict(cls, config_dict, *args, **named):
            chosen = Config if is_ours(config_dict) else previous
            return chosen.from_dict(config_dict, *args, **named)

    Either.__name__ = Either.__qualname__ = previous.__name__
    return Either


def report(model: Any) -> Report:
    """Returns how each linear layer and each stack of experts of a model computes:
    W4A4, W4A8, W4A16, FP8, or left as it is, and why."""
    quantizer = getattr(model, "hf_quantizer", None)
    if not isinstance(quantizer, Quantizer):
        return Report(describe(None, model))
    return Report(describe(quantizer, model), tuple(quantizer.cache),
                  tuple(quantizer.plan.absent))
