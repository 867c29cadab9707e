# SPDX-License-Identifier: Apache-2.0
"""_arrays.py - the arrays that functions take: NumPy's own, and any object that
speaks DLPack, on a CPU or a GPU."""

import ctypes as C
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from nibblas._library import ArgumentError
from nibblas._views import Array, dense_strides


class SupportsDLPack(Protocol):
    """An array of another library: torch, CuPy, JAX."""

    def __dlpack__(self, *, stream: Any = ...) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


AnyArray: TypeAlias = npt.NDArray[Any] | SupportsDLPack

# ---- DLPack's structs, as dlpack.h 1.1 defines them ---------------------------


class _Device(C.Structure):
    _fields_ = [("kind", C.c_int32), ("index", C.c_int32)]


class _Type(C.Structure):
    _fields_ = [("code", C.c_uint8), ("bits", C.c_uint8), ("lanes", C.c_uint16)]


class _Tensor(C.Structure):
    _fields_ = [("data", C.c_void_p), ("device", _Device), ("ndim", C.c_int32),
                ("dtype", _Type), ("shape", C.POINTER(C.c_int64)),
                ("strides", C.POINTER(C.c_int64)),
                ("byte_offset", C.c_uint64)]


class _Versioned(C.Structure):
    _fields_ = [("major", C.c_uint32), ("minor", C.c_uint32),
                ("context", C.c_void_p), ("deleter", C.c_void_p),
                ("flags", C.c_uint64), ("tensor", _Tensor)]


READ_ONLY = 1  # of flags
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
TYPES = {(0, 32, 1): "int32", (1, 8, 1): "uint8", (2, 32, 1): "float32",
         (2, 16, 1): "float16", (4, 16, 1): "bfloat16",
         (10, 8, 1): "float8_e4m3fn", (17, 4, 2): "float4_e2m1fn_x2"}

_capsule_name = C.pythonapi.PyCapsule_GetName
_capsule_name.restype, _capsule_name.argtypes = C.c_char_p, [C.py_object]
_capsule_pointer = C.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = C.c_void_p
_capsule_pointer.argtypes = [C.py_object, C.c_char_p]


def _export(name, x, stream):
    """Returns x's capsule and device; on a GPU the data are ready for the stream."""
    kind, index = x.__dlpack_device__()
    if kind in (CUDA, CUDA_MANAGED):
        # 1 is the default stream.
        return x.__dlpack__(stream=stream or 1), f"cuda:{index}"
    if kind in (CPU, CUDA_HOST):
        return x.__dlpack__(), "cpu"
    raise ArgumentError(f"{name}: DLPack device {kind}: must be a CPU or CUDA", name)


def _from_dlpack(name, x, stream, write):
    capsule, device = _export(name, x, stream)
    kind = _capsule_name(capsule)
    address = _capsule_pointer(capsule, kind)
    if kind == b"dltensor_versioned":
        managed = _Versioned.from_address(address)
        if write and managed.flags & READ_ONLY:
            raise ArgumentError(f"{name}: is read-only", name)
        tensor = managed.tensor
    else:
        tensor = _Tensor.from_address(address)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
    else:
        strides = dense_strides(shape)
    t = tensor.dtype
    dtype = TYPES.get((t.code, t.bits, t.lanes),
                      f"DLPack type {t.code}, {t.bits} bits x {t.lanes}")
    # The capsule frees what it holds when it is deleted.
    return Array(name, (tensor.data or 0) + tensor.byte_offset, shape, strides,
                 dtype, device, (x, capsule))


def _from_numpy(name, x, write):
    if write and not x.flags.writeable:
        raise ArgumentError(f"{name}: is read-only", name)
    if not x.dtype.isnative:
        raise ArgumentError(f"{name}: {x.dtype.str}: the bytes of its values must "
                            "be in this machine's order: x.astype("
                            f"'{x.dtype.name}')", name)
    strides = []
    for n, stride in zip(x.shape, x.strides):
        if n > 1 and stride % x.itemsize:
            raise ArgumentError(f"{name}: strides of {x.strides} bytes: must "
                                f"be multiples of {x.itemsize}", name)
        strides.append(stride // x.itemsize)
    # ml_dtypes names its types as torch does.
    return Array(name, x.ctypes.data, x.shape, tuple(strides), x.dtype.name,
                 "cpu", x)


def array(name, x, stream=None, write=False):
    """Returns an argument as a views.Array; None stays None."""
    if x is None:
        return None
    if isinstance(x, np.ndarray):
        return _from_numpy(name, x, write)
    if hasattr(x, "__dlpack__"):
        return _from_dlpack(name, x, stream, write)
    raise ArgumentError(f"{name}: {type(x).__name__}: must be a NumPy array or "
                        "an object with __dlpack__()", name)


def numpy_type(name, dtype):
    """The NumPy type of this name; bfloat16 comes from ml_dtypes."""
    if dtype in ("float32", "float16", "uint8"):
        return np.dtype(dtype)
    if dtype == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise ArgumentError(f"{name} = 'bfloat16': NumPy has no such type: "
                                "install ml_dtypes, or pass out", name) from None
        return np.dtype(ml_dtypes.bfloat16)
    raise ArgumentError(f"{name} = {dtype!r}: must be 'float32', 'float16' or "
                        "'bfloat16'", name)


def new(device, shape, dtype):
    """Returns a NumPy array for a result; on a GPU the caller must pass out."""
    if device != "cpu":
        raise ArgumentError(f"out = None: on {device} it must be an array "
                            f"there, of shape {tuple(shape)} and {dtype}", "out")
    return np.empty(shape, numpy_type("out_dtype", dtype))
