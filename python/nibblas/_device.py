# SPDX-License-Identifier: Apache-2.0
"""_device.py - devices, which are opened once and kept, and the backends of this
machine."""

import ctypes as C
import threading
from typing import Any, NamedTuple

from nibblas import _abi as abi
from nibblas import _tuning
from nibblas._library import c_string, call, lib


class Backend(NamedTuple):
    """A kind of hardware that this build knows.

    name     "cpu-avx512vnni", "cuda-sm90", ...
    is_open  whether this machine has it
    reason   why not, "" if it has"""

    name: str
    is_open: bool
    reason: str


class Device:
    """An open device; device() makes it.  It is never closed: plans, packed weights
    and enqueued work of the process may need it until its end.  A copy is the device
    itself, also by pickle.

    name  "cpu" or "cuda:0"
    """

    name: str

    def __init__(self, name: str, threads: int = 0, isa: str | None = None,
                 openmp: str | None = None) -> None:
        self.name = "cuda:0" if name == "cuda" else name
        self.key = (self.name, threads, isa, openmp)
        options = abi.nib_device_options(
            struct_bytes=C.sizeof(abi.nib_device_options), threads=threads,
            isa=c_string("isa", isa) if isa else None,
            openmp=c_string("openmp", openmp) if openmp else None)
        self.handle = C.c_void_p()
        call("nib_device_open", c_string("name", name), C.byref(options),
             C.byref(self.handle))
        self.is_cpu = name == "cpu"
        if not self.is_cpu:
            info = self.info()
            _tuning.load(self.handle, info["hardware"], info["multiprocessors"])

    def info(self) -> dict[str, Any]:
        """Returns what the library says of it: backend, hardware, threads, ..."""
        info = abi.nib_device_info(struct_bytes=C.sizeof(abi.nib_device_info))
        call("nib_device_get_info", self.handle, C.byref(info))
        values = {key: getattr(info, key)
                  for key, _ in abi.nib_device_info._fields_[1:]}
        return {key: value.decode() if isinstance(value, bytes) else value
                for key, value in values.items()}

    # Copies, and pickles in this process or another, are the device itself.
    def __copy__(self) -> "Device":
        return self

    def __deepcopy__(self, _memo: Any) -> "Device":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return device, self.key

    def __repr__(self) -> str:
        return f"nibblas.Device({self.name!r}: {self.info()['backend']})"


_devices = {}
_lock = threading.Lock()


def device(name: str = "cpu", threads: int = 0, isa: str | None = None,
           openmp: str | None = None) -> Device:
    """Returns the device of this name, opened at the first call.

    name     "cpu", "cuda" or "cuda:1"
    threads  CPU: into how many tasks to cut work; 0 is one for each processor that
             the process may use
    isa      CPU: "scalar", "avx2", "avxvnni", "avx512bw", "avx512vnni" or "amx", on Arm
             "scalar", "neon", "neondot", "neoni8mm" or "neonbf16" forces an
             instruction set; "avx512" is an older name of "avx512vnni"
    openmp   CPU: the path of a library that this process has loaded, as torch's
             libtorch_cpu.so: work runs on its OpenMP threads, instead of on threads
             of the device, which would compete with them for the cores

    Raises NoDeviceError with the reason, UnsupportedError for a GPU that this build
    has no kernels for."""
    if name == "cuda":
        name = "cuda:0"
    key = (name, threads, isa, openmp)
    found = _devices.get(key)
    if found is None:
        with _lock:
            found = _devices.get(key)
            if found is None:
                found = _devices[key] = Device(*key)
    return found


def backends() -> list[Backend]:
    """Returns every backend of this build, open here or not, best first."""
    out = []
    for i in range(lib.nib_backend_count()):
        info = abi.nib_backend_info(struct_bytes=C.sizeof(abi.nib_backend_info))
        call("nib_backend_get_info", i, C.byref(info))
        out.append(Backend(info.backend.decode(), bool(info.is_open),
                           info.reason.decode()))
    return out
