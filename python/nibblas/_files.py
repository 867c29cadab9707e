# SPDX-License-Identifier: Apache-2.0
"""_files.py - reads safetensors files, and folders of them, without copies: NVFP4
layers of ModelOpt, compressed-tensors and ComfyUI, brought to one meaning, and the
other tensors."""

import ctypes as C
import math
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nibblas import _abi as abi
from nibblas._library import c_string, call, lib

FORMATS = {abi.NIB_CHECKPOINT_MODELOPT: "modelopt",
           abi.NIB_CHECKPOINT_COMPRESSED_TENSORS: "compressed-tensors",
           abi.NIB_CHECKPOINT_COMFY: "comfy"}
# NumPy has no BF16 and no floats of 8, 6 and 4 bits: arrays of their bits.
TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16,
         "BF16": np.uint16, "I64": np.int64, "I32": np.int32, "I16": np.int16,
         "I8": np.int8, "U64": np.uint64, "U32": np.uint32, "U16": np.uint16,
         "U8": np.uint8, "BOOL": np.bool_, "C64": np.complex64, "F8_E4M3": np.uint8,
         "F8_E5M2": np.uint8, "F8_E8M0": np.uint8, "F8_E4M3FNUZ": np.uint8,
         "F8_E5M2FNUZ": np.uint8}
# Several values to a byte.
PACKED_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}


class LinearScales(np.ndarray[Any, Any]):
    """Scales that carry their layout, because tiled ones have the same shape if rows
    are a multiple of 128 and K of 64."""

    scale_layout = "linear"


class Layer(NamedTuple):
    """An NVFP4 layer of a Checkpoint: value = e2m1 * scale * global_scale, whatever
    the file's own convention.  Arrays are read-only views of the file; codes and scales
    of "comfy", which have another order there, are copies.  Scales are "linear", which
    functions are told: gemm(..., b_layout="linear"), dequantize(..., layout="linear").

    format              "modelopt", "compressed-tensors" or "comfy"
    codes               uint8 [rows, K/2], or a stack
    scales              uint8 (e4m3) [rows, K/16], or a stack
    global_scale        a float; an array if a stack has several
    input_global_scale  of the activations, the same: an entry of 0 has none; None: the
                        file has none at all
    pre_quant_scale     AWQ: float32 [K], by which the columns of x are to be multiplied
                        before anything else; None: the file has none"""

    name: str
    format: str
    codes: npt.NDArray[np.uint8]
    scales: LinearScales
    global_scale: Any
    input_global_scale: Any
    pre_quant_scale: npt.NDArray[np.float32] | None = None


class StoredLayer(NamedTuple):
    """The tensors of a quantised layer, as a file stores them.

    naming   a NIB_NAMING of the C library
    block    (rows, k) of the values that share one scale; None: the shapes or types of
             codes and scales do not fit
    tensors  {field of nib_layer_tensors: name, or None where the file has none}"""

    name: str
    naming: int
    is_transposed: bool
    block: tuple[int, int] | None
    tensors: dict[str, str | None]


_PARTS = ("codes", "scales", "global", "input_global", "pre_quant_scale")


class Suffixes(NamedTuple):
    """What follows the name of a layer in the names of its tensors; None where such
    layers have no such tensor.

    is_divisor  whether global_scale and input_global are stored as reciprocals"""

    codes: str
    scales: str
    global_scale: str | None
    input_global: str | None
    pre_quant_scale: str | None
    is_divisor: bool


def suffixes(naming):
    """The Suffixes of a NIB_NAMING of the C library."""
    found = lib.nib_naming_suffixes(naming).contents
    texts = (getattr(found, part) for part in _PARTS)
    return Suffixes(*(None if x is None else x.decode() for x in texts),
                    bool(found.is_reciprocal))


def _name_at(address):
    """The name of a tensor of the file, or None."""
    return abi.nib_file_tensor.from_address(address).name.decode() if address else None


class _File:
    """The mapped file, closed when no array needs it any more.

    files  safetensors files to join, or None: path is the checkpoint"""

    def __init__(self, path, files=None):
        self.handle = C.c_void_p()
        if files is None:
            call("nib_file_open", c_string("path", path), C.byref(self.handle))
        else:
            paths = (C.c_char_p * len(files))(*(c_string("path", x) for x in files))
            call("nib_file_open_shards", paths, len(files), C.byref(self.handle))

    def __del__(self):
        if lib is not None:
            lib.nib_file_close(self.handle)

    def view(self, address, dtype, shape):
        """A read-only array that keeps the file open."""
        dtype = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        if count == 0:
            return np.empty(shape, dtype)
        data = (C.c_uint8 * (count * dtype.itemsize)).from_address(address)
        data.file = self
        out = np.frombuffer(data, dtype, count).reshape(shape)
        out.flags.writeable = False
        return out


def _is_plain(view):
    """Whether codes and scales are in the library's order."""
    return (view.code_order, view.scale_layout) == (abi.NIB_CODE_ORDER_LOW_FIRST,
                                                    abi.NIB_SCALE_LAYOUT_LINEAR)


def _float(bits):
    """A positive float32 from its bits, also where the thread counts subnormal ones as
    0 (torch.set_flush_denormal)."""
    bits = int(bits)
    return math.ldexp(bits, -149) if bits < 1 << 23 else struct.unpack(
        "f", struct.pack("I", bits))[0]


class Checkpoint(Mapping[str, Layer]):
    """The NVFP4 layers of a checkpoint, by name.

        with nibblas.Checkpoint("model-dir") as file:
            layer = file["model.layers.0.mlp.up_proj"]

    path      of a safetensors file, a folder, or an index of shards: a str or
              os.PathLike.  Layers are joined across shards
    problems  {name: reason} of what is named like an NVFP4 layer and cannot be read:
              broken layers, those of SVDQuant, and stacks of AWQ
    shards    the names of the files that an index joins; [] for a single file

    tensor() gives the other tensors.  Raises SystemIOError if a file cannot be read,
    FileError if it is no safetensors file or not what the index says."""

    problems: dict[str, str]
    shards: list[str]

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        self._read(path, _File(path))

    @classmethod
    def _of_files(cls, files):
        """Joins safetensors files without an index; shards are their paths."""
        made = cls.__new__(cls)
        made._read(files[0], _File(files[0], files))
        return made

    def _read(self, path, file):
        self.path = path
        self._file = file
        handle = self._file.handle
        self._layers = {}
        self._reordered = []  # stored in another order than the library's
        for i in range(lib.nib_file_layer_count(handle)):
            layer = lib.nib_file_layer_at(handle, i).contents
            self._layers[layer.name.decode()] = i
            if not _is_plain(layer.weight):
                self._reordered.append(layer.name.decode())
        self._tensors = {}
        for i in range(lib.nib_file_tensor_count(handle)):
            tensor = lib.nib_file_tensor_at(handle, i).contents
            self._tensors[tensor.name.decode()] = i
        self.shards = [lib.nib_file_shard_at(handle, i).decode()
                       for i in range(lib.nib_file_shard_count(handle))]
        self.problems = {}
        for i in range(lib.nib_file_layer_defect_count(handle)):
            problem = lib.nib_file_layer_defect_at(handle, i).contents
            self.problems[problem.name.decode()] = problem.reason.decode()

    def __getitem__(self, name: str) -> Layer:
        layer = lib.nib_file_layer_at(self._open(), self._layers[name]).contents
        codes, scales = self._codes(layer)
        return Layer(name, FORMATS[layer.format], codes, scales.view(LinearScales),
                     self._globals(layer, layer.globals, 0.0),
                     self._globals(layer, layer.input_globals, None),
                     self._floats(layer.pre_quant_scale))

    def _globals(self, layer, address, none):
        """The global scale that all matrices of a layer share, or an array of them;
        none if the file has none."""
        if not address:
            return none
        found = self._file.view(address, np.float32, (layer.weight.batch,))
        bits = found.view(np.uint32)
        return found if (bits != bits[0]).any() else _float(bits[0])

    def _codes(self, layer):
        """Codes and scales of a layer: views, or copies in the library's order."""
        w = layer.weight
        shape = (w.batch, w.rows) if w.batch > 1 else (w.rows,)
        if _is_plain(w):
            return (self._file.view(w.codes, np.uint8, (*shape, w.k // 2)),
                    self._file.view(w.scales, np.uint8, (*shape, w.k // 16)))
        codes = np.empty((*shape, w.k // 2), np.uint8)
        scales = np.empty((*shape, w.k // 16), np.uint8)
        call("nib_layer_read_rows", C.byref(layer), 0, w.batch * w.rows,
             codes.ctypes.data, scales.ctypes.data)
        codes.flags.writeable = scales.flags.writeable = False
        return codes, scales

    def _floats(self, address):
        """A tensor of floats as float32, read-only, or None."""
        if not address:
            return None
        tensor = abi.nib_file_tensor.from_address(address)
        dtype = tensor.dtype.decode()
        found = self._file.view(tensor.data, TYPES[dtype],
                                tuple(tensor.shape[:tensor.rank]))
        if dtype == "BF16":
            found = (found.astype(np.uint32) << 16).view(np.float32)
        found = found.astype(np.float32)
        found.flags.writeable = False
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def tensors(self) -> list[str]:
        """Returns the names of all tensors, those of layers too."""
        return list(self._tensors)

    def tensor(self, name: str) -> npt.NDArray[Any]:
        """Returns a tensor as it is stored, read-only; bfloat16 and 8-bit floats,
        which NumPy lacks, as uint16 and uint8.  Floats of 4 and 6 bits are bytes: the
        last size counts them, or the array has one dimension if rows do not end with a
        byte.  Raises KeyError."""
        tensor = lib.nib_file_tensor_at(self._open(),
                                        self._tensors[name]).contents
        dtype, shape = tensor.dtype.decode(), tuple(tensor.shape[:tensor.rank])
        if dtype in PACKED_BITS:
            row = (shape[-1] if shape else 1) * PACKED_BITS[dtype]
            shape = (tensor.bytes,) if row % 8 else (*shape[:-1], row // 8)
            return self._file.view(tensor.data, np.uint8, shape)
        return self._file.view(tensor.data, TYPES[dtype], shape)

    def _stored(self):
        """Yields (name, dtype, shape, number of the shard) of each tensor."""
        handle = self._open()
        for name, i in self._tensors.items():
            tensor = lib.nib_file_tensor_at(handle, i).contents
            yield (name, tensor.dtype.decode(), tuple(tensor.shape[:tensor.rank]),
                   tensor.shard)

    def _stored_layers(self):
        """The StoredLayer of each quantised layer, FP8 and transposed stacks too."""
        handle, found = self._open(), []
        for i in range(lib.nib_file_layer_tensors_count(handle)):
            one = lib.nib_file_layer_tensors_at(handle, i).contents
            block = (one.block_rows, one.block_k) if one.block_k else None
            names = {part: _name_at(getattr(one, part)) for part in _PARTS}
            found.append(StoredLayer(one.name.decode(), one.naming,
                                     bool(one.is_transposed), block, names))
        return found

    def _open(self):
        if self._file is None:
            raise ValueError(f"{self.path}: is closed")
        return self._file.handle

    def close(self) -> None:
        """Closes the file; arrays that were read stay good."""
        self._file = None

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()
