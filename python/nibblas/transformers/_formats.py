# SPDX-License-Identifier: Apache-2.0
"""_formats.py - the tensors of a checkpoint: which belong to a quantised layer, and of
which format.  It reads the headers of the files, no data, and knows no model; what it
does not understand it refuses with the file, the layer and the rule."""

import json
import os
import re
from typing import NamedTuple

from safetensors import SafetensorError, safe_open

from nibblas._library import FileError, SystemIOError

CODES, SCALES = "U8", "F8_E4M3"
FLOATS = ("F32", "BF16", "F16")
INDEX = "model.safetensors.index.json"
# Scales of the kv cache: not used, because the cache keeps the model's type.
CACHE = ("k_scale", "v_scale", "k_zero_point", "v_zero_point")


class Stored(NamedTuple):
    """A tensor as a file has it; dtype is safetensors' name."""

    file: str
    name: str
    dtype: str
    shape: tuple

    def fail(self, rule):
        raise FileError(f"{self.file}: {self.name} {list(self.shape)} {self.dtype}: "
                        f"{rule}", self.name)


class Format(NamedTuple):
    """How tensors of a quantised layer are named, after the name of the layer.

    values      the codes
    scales      one scale for each 16 values of a row
    factor      the global scale
    input       the global scale of x, which may be absent
    is_divisor  whether factor and input are stored as their reciprocals
    transposed  whether values and scales are [experts, K, rows]: K/2 and K/16 come
                before the rows"""

    name: str
    values: str
    scales: str
    factor: str
    input: str
    is_divisor: bool = False
    transposed: bool = False

    @property
    def is_stack(self):
        """Whether a layer is all experts' matrices in one tensor."""
        return not self.values.startswith(".")

    @property
    def leaf(self):
        """What transformers' patterns know the values by, after the layer's name."""
        return "" if self.is_stack else ".weight"

    def suffixes(self):
        """The ends of all tensors that a layer may have."""
        found = {self.values, self.scales, self.factor, self.input}
        return (found | {SMOOTH} if self is MODELOPT else found) - {""}


MODELOPT = Format("ModelOpt", ".weight", ".weight_scale", ".weight_scale_2",
                  ".input_scale")
COMPRESSED = Format("compressed-tensors", ".weight_packed", ".weight_scale",
                    ".weight_global_scale", ".input_global_scale", is_divisor=True)
# Experts that stay one stack, as Llama 4 and gpt-oss have it: K before the rows.
STACK = Format("ModelOpt", "", "_weight_scale", "_weight_scale_2", "_input_scale",
               transposed=True)
# K is last in both formats where the shapes say so.
COMPRESSED_STACK = Format("compressed-tensors", "_packed", "_scale", "_global_scale",
                          "_input_global_scale", is_divisor=True, transposed=True)
FP8 = Format("FP8", ".weight", ".weight_scale", "", ".input_scale")
# DeepSeek's name for scales of blocks, which are factors as all others are.
FP8_BLOCKS = FP8._replace(scales=".weight_scale_inv")
# AWQ: what each column of x is multiplied by, of ModelOpt's NVFP4_AWQ.
SMOOTH = ".pre_quant_scale"

# Tensors that change a layer though they are none of its own, by a word in their names.
SUSPECT = re.compile(r"scale|zero_point|quant|svd|lora|hadamard|rotation")
REFUSED = {
    "pre_quant_scale": "AWQ's scales of x are applied only to NVFP4 linear layers of "
                       "ModelOpt",
    "weight_scale_inv": "is of no weight in F8_E4M3",
    "weight_zero_point": "weights with zero points are not NVFP4",
    "input_zero_point": "activations with zero points are not NVFP4"}

UNKNOWN = ("is not understood: no part of a layer of ModelOpt or compressed-tensors "
           "that nibblas knows")


class Layer(NamedTuple):
    """The tensors of a quantised layer: values, scales, factor and input of its
    format; factor is None for FP8, input None where the file has none, and smooth,
    AWQ's scales of the columns of x, where the layer is not of AWQ."""

    name: str
    format: Format
    values: Stored
    scales: Stored
    factor: Stored | None
    input: Stored | None
    smooth: Stored | None


def _open(path):
    try:
        with safe_open(path, "pt") as file:
            for name in file.keys():
                part = file.get_slice(name)
                yield Stored(path, name, part.get_dtype(), tuple(part.get_shape()))
    except OSError as error:
        raise SystemIOError(f"{path}: {error}", "path") from None
    except SafetensorError as error:
        raise FileError(f"{path}: is no safetensors file: {error}", "path") from None


def _check_index(folder, tensors):
    """Refuses an index that is none, or names tensors which its files do not have."""
    path = os.path.join(folder, INDEX)
    if not os.path.exists(path):
        return
    try:
        with open(path, encoding="utf-8") as file:
            promised = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"{path}: {error}", "path") from None
    promised = promised.get("weight_map") if isinstance(promised, dict) else None
    if not isinstance(promised, dict):
        raise FileError(f"{path}: weight_map: must be an object that gives each "
                        "tensor's file", "weight_map")
    for name, shard in promised.items():
        if name not in tensors or os.path.basename(tensors[name].file) != shard:
            raise FileError(f"{path}: {name}: is not in {shard}", name)


def read(files):
    """{name: Stored} of all tensors of a model's files."""
    tensors = {}
    for path in files:
        if not str(path).endswith(".safetensors"):
            raise FileError(f"{path}: must be a safetensors file", "path")
        for one in _open(path):
            if one.name in tensors:
                one.fail(f"is in {tensors[one.name].file} too")
            tensors[one.name] = one
    for folder in {os.path.dirname(path) for path in files}:
        _check_index(folder, tensors)
    return tensors


def _format_of(one, tensors):
    """(name of the layer, Format) if a tensor is the values of a quantised layer."""
    stem, _, leaf = one.name.rpartition(".")
    if leaf == "weight_packed":
        return stem, COMPRESSED
    if leaf == "weight" and one.dtype == CODES:
        return stem, MODELOPT
    if leaf == "weight" and one.dtype == SCALES:
        return stem, (FP8_BLOCKS if stem + FP8_BLOCKS.scales in tensors else FP8)
    for form in STACK, COMPRESSED_STACK:
        name = one.name.removesuffix(form.values)
        scales = tensors.get(name + form.scales)
        if one.dtype == CODES and one.name == name + form.values and scales is not None:
            return name, form._replace(transposed=one.shape[:2] != scales.shape[:2])
    return None


def is_fp8(form):
    return form.name == FP8.name


def _layer(stem, form, tensors):
    def part(suffix, needed=True):
        found = tensors.get(stem + suffix) if suffix else None
        if found is None and needed:
            tensors[stem + form.values].fail(f"needs {stem}{suffix}, which no file "
                                             "has")
        return found
    layer = Layer(stem, form, tensors[stem + form.values], part(form.scales),
                  part(form.factor, not is_fp8(form)), part(form.input, False),
                  part(SMOOTH, False) if form is MODELOPT else None)
    if is_fp8(form):
        if layer.scales.dtype not in FLOATS:
            layer.scales.fail(f"must be of {', '.join(FLOATS)}")
        return layer
    if layer.values.dtype != CODES:
        layer.values.fail("must be U8, two values of NVFP4 a byte")
    if layer.scales.dtype != SCALES:
        layer.scales.fail("must be F8_E4M3, one for 16 values")
    _check_shapes(layer)
    for one in (layer.factor, layer.input):
        if one is not None and one.dtype != "F32":
            one.fail("must be F32")
    return layer


def _check_shapes(layer):
    """[.., rows, K/2] values need [.., rows, K/16] scales."""
    want = list(layer.values.shape)
    dims, at = 3 if layer.format.is_stack else 2, 1 if layer.format.transposed else -1
    if len(want) != dims:
        layer.values.fail(f"must have {dims} dimensions")
    if want[at] % 8:
        layer.values.fail("K must be a multiple of 16")
    want[at] //= 8
    if list(layer.scales.shape) != want:
        layer.scales.fail(f"must be {want}, a scale for each 16 of K: NVFP4's "
                          "blocks have 16 values")


def layers(tensors):
    """{name: Layer} of the quantised layers among the tensors; refuses tensors that
    look quantised and are no layer of a format that is known."""
    found = {}
    for one in tensors.values():
        stem = _format_of(one, tensors)
        if stem:
            found[stem[0]] = _layer(*stem, tensors)
    used = {part.name for layer in found.values() for part in layer[2:] if part}
    for one in tensors.values():
        stem, _, leaf = one.name.rpartition(".")
        if one.name in used or leaf in CACHE:
            continue
        if leaf.lstrip("_") in REFUSED:
            one.fail(REFUSED[leaf.lstrip("_")])
        if one.dtype in (CODES, SCALES) or (
                _is_inside(stem, found) and leaf not in ("bias", "weight")):
            one.fail(UNKNOWN)
    return found


def _is_inside(stem, found):
    """Whether a module is a quantised layer, or in one."""
    while stem:
        if stem in found:
            return True
        stem = stem.rpartition(".")[0]
    return False


def cache_scales(tensors):
    """The names of scales for a quantised kv cache."""
    return [name for name in tensors if name.rpartition(".")[2] in CACHE]
