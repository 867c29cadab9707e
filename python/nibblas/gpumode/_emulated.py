# SPDX-License-Identifier: Apache-2.0
"""_emulated.py - the software GPU (libnibemu.so) as the device of the tests: one of
DEVICES.  torch knows no such device, so tensors stay in the host's memory: each says
that it is on cuda:0, and its address is that of its copy in the software GPU's memory.

A submission opens libcuda.so.1 by name.  So the tests run in a process of their own,
whose libcuda.so.1 is the software GPU."""

import ctypes as C
import os
import subprocess
import sys
import tempfile

import torch

import nibblas
from nibblas._library import Error, UnsupportedError, call, lib, library_path
from nibblas.torch._tensors import Cuda

DEVICES = ("emu:h200", "emu:h100", "emu:b200", "emu:a100", "emu:rtx4090")
DRIVER = "libcuda.so.1"


def is_name(device):
    """Is it the name of a software GPU?"""
    if device.startswith("emu:") and device not in DEVICES:
        raise Error(f"--device {device}: the software GPUs are "
                    + ", ".join(DEVICES))
    return device in DEVICES


# ---- the process -----------------------------------------------------------------


def _folder():
    return os.path.dirname(os.path.realpath(library_path()))


def _emulator():
    path = os.path.join(_folder(), "libnibemu.so")
    if os.path.exists(path):
        return path
    try:
        import nibblas_emu
        return nibblas_emu.library()
    except (ImportError, FileNotFoundError):
        raise UnsupportedError(f"{path}: the software GPU is missing: pip install "
                               "nibblas-emu; a build of the source tree has it"
                               ) from None


def is_here(device):
    """Is this process's driver this software GPU?"""
    first = os.environ.get("LD_LIBRARY_PATH", "").split(":")[0]
    driver = os.path.realpath(os.path.join(first, DRIVER))
    return (driver == os.path.realpath(_emulator())
            and os.environ.get("NIBEMU_DEVICE") == device[4:])


def run_again(device, arguments):
    """Runs a command of nibblas.gpumode where the driver is this software GPU;
    returns its exit status."""
    emulator = _emulator()
    with tempfile.TemporaryDirectory(prefix="nibblas-") as links:
        os.symlink(emulator, os.path.join(links, DRIVER))
        # The kernels' PTX, which is looked for next to the driver.
        os.symlink(os.path.join(os.path.dirname(emulator), "nibblas"),
                   os.path.join(links, "nibblas"))
        others = os.environ.get("LD_LIBRARY_PATH")
        env = dict(os.environ, NIBEMU_DEVICE=device[4:], LD_LIBRARY_PATH=(
            f"{links}:{others}" if others else links))
        env.pop("NIB_CUDA_LIBRARY", None)
        return subprocess.run(
            [sys.executable, "-m", "nibblas.gpumode", *arguments], env=env,
            check=False).returncode


# ---- tensors ---------------------------------------------------------------------


class OnGpu(torch.Tensor):
    """A tensor of the host that says it is on the GPU."""

    is_cpu, is_cuda = False, True
    device = torch.device("cuda", 0)
    # The GPU's address of each storage, by the host's.
    copies = {}

    def get_device(self):
        return 0

    def data_ptr(self):
        host = self.untyped_storage().data_ptr()
        return self.copies[host] + super().data_ptr() - host


class _Memory:
    """The GPU's copies of one tuple."""

    def __init__(self):
        self.device = nibblas.device("cuda")
        self.pointers = []

    def to_gpu(self, x):
        """The same tuple, each tensor with a copy."""
        if isinstance(x, (tuple, list)):
            return type(x)(map(self.to_gpu, x))
        if not isinstance(x, torch.Tensor):
            return x
        storage = x.untyped_storage()
        if storage.data_ptr() not in OnGpu.copies:
            pointer = C.c_void_p()
            call("nib_device_alloc", self.device.handle, storage.nbytes(),
                 C.byref(pointer))
            self.pointers.append((storage.data_ptr(), pointer))
            call("nib_device_copy", self.device.handle, pointer,
                 storage.data_ptr(), storage.nbytes(), None)
            OnGpu.copies[storage.data_ptr()] = pointer.value
        return x.as_subclass(OnGpu)

    def to_host(self, x):
        """What the GPU has of it, in the host's memory."""
        if isinstance(x, list):
            return list(map(self.to_host, x))
        host = x.as_subclass(torch.Tensor)
        storage = host.untyped_storage()
        storage.fill_(0)
        call("nib_device_copy", self.device.handle, storage.data_ptr(),
             OnGpu.copies[storage.data_ptr()], storage.nbytes(), None)
        return host

    def free(self):
        for host, pointer in self.pointers:
            OnGpu.copies.pop(host, None)
            lib.nib_device_free(self.device.handle, pointer)
        self.pointers = []


def _workspace(n_bytes, _index):
    raise UnsupportedError(f"a workspace of {n_bytes} bytes: torch has no memory "
                           "of the software GPU")


def wrap(kernel):
    """A custom_kernel() of GPU tensors, as one of host tensors."""
    # torch has neither a stream nor a graph of this GPU.
    Cuda.raw_stream = staticmethod(lambda _index: 0)
    Cuda.is_capturing = staticmethod(lambda: False)
    Cuda.workspace = staticmethod(_workspace)

    def run(data):
        memory = _Memory()
        try:
            return memory.to_host(kernel(memory.to_gpu(data)))
        finally:
            memory.free()
    return run
