# SPDX-License-Identifier: Apache-2.0
"""NVFP4 matrix multiplication on every machine: libnibblas for Python.

Here are the functions for NumPy's arrays and whatever speaks DLPack; PyTorch's
operators are in nibblas.torch."""

from nibblas._device import Device, Backend, device, backends
from nibblas._files import Checkpoint, Layer
from nibblas._library import (ArgumentError, DataError, DeviceFailedError, Error,
                              FileError, NoDeviceError, OutOfMemoryError,
                              SystemIOError, UnsupportedError, version)
from nibblas._numpy import (Quantized, dequantize, dual_gemm, from_blocked, gemm,
                            gemv, group_gemm, moe_gemm, pack, quantize,
                            to_blocked)
from nibblas._packed import Packed
from nibblas._plans import plan_cache_limit

__version__ = version()
__all__ = [
    "ArgumentError", "Checkpoint", "DataError", "Device", "DeviceFailedError",
    "Error", "FileError", "Layer", "NoDeviceError", "OutOfMemoryError", "Packed",
    "Quantized", "Backend", "SystemIOError", "UnsupportedError", "dequantize",
    "device", "dual_gemm", "from_blocked", "gemm", "gemv", "group_gemm", "moe_gemm",
    "pack", "plan_cache_limit", "quantize", "backends", "to_blocked", "version"]
