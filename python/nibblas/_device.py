# SPDX-License-Identifier: Apache-2.0
"""_device.py - devices, opened once and kept; what this machine has."""

import ctypes as C
import threading
from typing import NamedTuple

from nibblas import _abi as abi
from nibblas._library import call, lib


class Backend(NamedTuple):
    """A kind of hardware that this build knows."""

    name: str
    is_open: bool
    reason: str  # why it is closed


class Device:
    """An open device.  It is never closed: plans, packed weights and queued work
    of the process may need it until its end."""

    def __init__(self, name, threads=0, isa=None):
        self.name = "cuda:0" if name == "cuda" else name
        self.key = (self.name, threads, isa)
        options = abi.nib_device_options(
            struct_bytes=C.sizeof(abi.nib_device_options), threads=threads,
            isa=isa.encode() if isa else None)
        self.handle = C.c_void_p()
        call("nib_device_open", name.encode(), C.byref(options),
             C.byref(self.handle))
        self.is_cpu = name == "cpu"

    def info(self):
        """What the library says of it: a dict."""
        info = abi.nib_device_info(struct_bytes=C.sizeof(abi.nib_device_info))
        call("nib_device_get_info", self.handle, C.byref(info))
        values = {key: getattr(info, key)
                  for key, _ in abi.nib_device_info._fields_[1:]}
        return {key: value.decode() if isinstance(value, bytes) else value
                for key, value in values.items()}

    # Copies, and pickles in this process or another, are the device itself.
    def __copy__(self):
        return self

    def __deepcopy__(self, _memo):
        return self

    def __reduce__(self):
        return device, self.key

    def __repr__(self):
        return f"nibblas.Device({self.name!r}: {self.info()['backend']})"


_devices = {}
_lock = threading.Lock()


def device(name="cpu", threads=0, isa=None):
    """The device of this name ("cpu", "cuda:0"), opened at the first call.
    threads, isa: of a CPU, as in struct nib_device_options."""
    if name == "cuda":
        name = "cuda:0"
    key = (name, threads, isa)
    found = _devices.get(key)
    if found is None:
        with _lock:
            found = _devices.get(key)
            if found is None:
                found = _devices[key] = Device(*key)
    return found


def backends():
    """Every backend of this build, open here or not, best first."""
    out = []
    for i in range(lib.nib_backend_count()):
        info = abi.nib_backend_info(struct_bytes=C.sizeof(abi.nib_backend_info))
        call("nib_backend_get_info", i, C.byref(info))
        out.append(Backend(info.backend.decode(), bool(info.is_open),
                        info.reason.decode()))
    return out
