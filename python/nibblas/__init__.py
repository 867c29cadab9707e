# SPDX-License-Identifier: Apache-2.0
"""NVFP4 matrix multiplication on CPUs and NVIDIA GPUs: libnibblas for Python.

This module has the functions for NumPy arrays and for any array with __dlpack__():
quantize() and dequantize(), gemm() and the other products, pack() for weights that
are used again, and Checkpoint for files.  nibblas.torch has the layers and operators
for PyTorch, nibblas.gpumode the problems of the GPU MODE contest.

    q = nibblas.quantize(x)                 # codes, scales, global_scale
    w = nibblas.quantize(weights)
    y = nibblas.gemm(*q[:2], *w[:2], alpha=q.global_scale * w.global_scale)

Errors are nibblas.Error, with the argument that they are about."""

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
