# SPDX-License-Identifier: Apache-2.0
"""_formats.py - the quantised layers of a checkpoint, as the C library finds and
measures them.  No data is read here, and no model is known.  Tensors that fit no layer
are refused with the file, the tensor and the rule."""

import contextlib
import contextvars
import os
import re
from typing import NamedTuple

from nibblas import _abi as abi
from nibblas._files import Checkpoint, suffixes
from nibblas._library import FileError

CODES, SCALES = "U8", "F8_E4M3"
FLOATS = ("F32", "BF16", "F16")
ONE_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
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

    codes          the values
    scales         one scale for each 16 values of a row
    global_scale   the global scale, "" for FP8
    input_global   the global scale of x, which may be absent
    is_divisor     whether global_scale and input_global are stored as their reciprocals
    is_transposed  whether codes and scales are [experts, K, rows]: K/2 and K/16 come
                   before the rows"""

    name: str
    codes: str
    scales: str
    global_scale: str
    input_global: str
    is_divisor: bool
    is_transposed: bool

    @property
    def is_stack(self):
        """Whether a layer is all experts' matrices in one tensor."""
        return not self.codes.startswith(".")

    @property
    def leaf(self):
        """What transformers' patterns know the codes by, after the layer's name."""
        return "" if self.is_stack else ".weight"

    def suffixes(self):
        """The ends of all tensors that a layer may have."""
        found = {self.codes, self.scales, self.global_scale, self.input_global}
        return (found | {PRE_QUANT_SCALE} if self is MODELOPT else found) - {""}


def _format(name, naming, is_transposed=False):
    ends = suffixes(naming)
    return Format(name, ends.codes, ends.scales, ends.global_scale or "",
                  ends.input_global, ends.is_divisor, is_transposed)


MODELOPT = _format("ModelOpt", abi.NIB_NAMING_MODELOPT)
COMPRESSED = _format("compressed-tensors", abi.NIB_NAMING_COMPRESSED_TENSORS)
# Experts that stay one stack, as Llama 4 and gpt-oss have it: K before the rows.
STACK = _format("ModelOpt", abi.NIB_NAMING_MODELOPT_STACK, True)
COMPRESSED_STACK = _format("compressed-tensors",
                           abi.NIB_NAMING_COMPRESSED_TENSORS_STACK, True)
FP8 = _format("FP8", abi.NIB_NAMING_FP8)
# DeepSeek's name for scales of blocks, which are factors as all others are.
FP8_BLOCKS = _format("FP8", abi.NIB_NAMING_FP8_BLOCKS)
FORMATS = {abi.NIB_NAMING_MODELOPT: MODELOPT,
           abi.NIB_NAMING_COMPRESSED_TENSORS: COMPRESSED,
           abi.NIB_NAMING_MODELOPT_STACK: STACK,
           abi.NIB_NAMING_COMPRESSED_TENSORS_STACK: COMPRESSED_STACK,
           abi.NIB_NAMING_FP8: FP8, abi.NIB_NAMING_FP8_BLOCKS: FP8_BLOCKS}
# AWQ: what each column of x is multiplied by, of ModelOpt's NVFP4_AWQ.
PRE_QUANT_SCALE = suffixes(abi.NIB_NAMING_MODELOPT).pre_quant_scale

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
    """The tensors of a quantised layer, with the C library's names.  global_scale is
    None for FP8, input_global None where the file has none, and pre_quant_scale, AWQ's
    scales of the columns of x, where the layer is not of AWQ.

    block  (rows, k) of the values that share one scale"""

    name: str
    format: Format
    block: tuple[int, int]
    codes: Stored
    scales: Stored
    global_scale: Stored | None
    input_global: Stored | None
    pre_quant_scale: Stored | None

    def tensors(self):
        return [x for x in self[3:] if x is not None]


class Tensors(dict):
    """{name: Stored} of all tensors of a model's files.

    layers  the StoredLayer of each quantised layer"""

    def __init__(self, file, paths):
        super().__init__((name, Stored(paths[shard], name, dtype, shape))
                         for name, dtype, shape, shard in file._stored())
        self.layers = file._stored_layers()


# What from_pretrained() has opened to check it, for read() to use.
_checked = contextvars.ContextVar("checked", default=None)


@contextlib.contextmanager
def keep(file):
    """Lets read() use a Checkpoint that is open, so that headers are read once."""
    token = _checked.set(file)
    try:
        yield
    finally:
        _checked.reset(token)


def _paths(file):
    """The paths of the files of a Checkpoint."""
    folder = file.path if os.path.isdir(file.path) else os.path.dirname(file.path)
    if file.shards:
        return [os.path.join(folder, x) for x in file.shards]
    return [os.path.join(folder, ONE_FILE) if os.path.isdir(file.path) else file.path]


def _is_of(file, files):
    """Whether a Checkpoint has these files and no others."""
    return {os.path.realpath(x) for x in _paths(file)} == {
        os.path.realpath(x) for x in files}


def read(files):
    """The Tensors of a model's files."""
    files = [str(path) for path in files]
    for path in files:
        if not path.endswith(".safetensors"):
            raise FileError(f"{path}: must be a safetensors file", "path")
    found = _checked.get()
    if found is not None and _is_of(found, files):
        return Tensors(found, _paths(found))
    index = os.path.join(os.path.dirname(files[0]), INDEX)
    if os.path.exists(index):
        with Checkpoint(index) as file:
            if not _is_of(file, files):
                raise FileError(f"{index}: names other files than "
                                f"{', '.join(files[:4])}", "path")
            return Tensors(file, _paths(file))
    with Checkpoint._of_files(files) as file:
        return Tensors(file, files)


def is_fp8(form):
    return form.name == FP8.name


def _layer(stored, tensors):
    form = FORMATS[stored.naming]
    if form.is_stack:
        form = form._replace(is_transposed=stored.is_transposed)
    parts = {key: tensors.get(name) for key, name in stored.tensors.items()}
    layer = Layer(stored.name, form, stored.block, parts["codes"], parts["scales"],
                  parts["global"], parts["input_global"], parts["pre_quant_scale"])
    for suffix, part in ((form.scales, layer.scales),
                         (form.global_scale, layer.global_scale)):
        if suffix and part is None:
            layer.codes.fail(f"needs {layer.name}{suffix}, which no file has")
    if layer.block is None:
        _fail_of_block(layer)
    for one in () if is_fp8(form) else (layer.global_scale, layer.input_global):
        if one is not None and one.dtype != "F32":
            one.fail("must be F32")
    return layer


def _fail_of_block(layer):
    """Refuses a layer whose scales the C library cannot assign to its codes."""
    codes, scales, form = layer.codes, layer.scales, layer.format
    dims = 3 if form.is_stack else 2
    if not is_fp8(form) and codes.dtype != CODES:
        codes.fail("must be U8, two values of NVFP4 a byte")
    if len(codes.shape) != dims:
        codes.fail(f"must have {dims} dimensions")
    if is_fp8(form):
        rows, k = codes.shape
        if scales.dtype not in FLOATS:
            scales.fail(f"must be of {', '.join(FLOATS)}")
        scales.fail(f"must be one scale, [{rows}] or [{rows}, 1], one for each row, or "
                    f"{[-(-rows // 128), -(-k // 128)]}, one for each 128 x 128 of the "
                    "weight")
    want, at = list(codes.shape), 1 if form.is_transposed else -1
    if want[at] % 8:
        codes.fail("K must be a multiple of 16")
    want[at] //= 8
    if scales.dtype != SCALES:
        scales.fail("must be F8_E4M3, one for 16 values")
    scales.fail(f"must be {want}, a scale for each 16 of K: NVFP4's blocks have 16 "
                "values")


def layers(tensors):
    """{name: Layer} of the quantised layers among the tensors; refuses tensors that
    look quantised and are no layer of a format that is known."""
    # F8_E5M2 is not supported: the scales of such a layer are refused as unknown.
    found = {one.name: _layer(one, tensors) for one in tensors.layers
             if tensors[one.tensors["codes"]].dtype != "F8_E5M2"}
    used = {part.name for layer in found.values() for part in layer.tensors()}
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
