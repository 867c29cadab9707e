# SPDX-License-Identifier: Apache-2.0
"""_packed.py - weights in a device's own order, for products that come again."""

import ctypes as C
import itertools
import weakref
from typing import Any

from nibblas import _views as views
from nibblas._library import ArgumentError, call, lib
from nibblas._plans import Cache

_numbers = itertools.count(1)
_alive = weakref.WeakValueDictionary()


class Packed:
    """Weights [rows, k] (or a stack) in the order of their device, good for every
    product there; pack() makes it.  A copy of the object is the object itself; it
    cannot be pickled.

    device     where it is
    bytes      what was copied
    is_shared  the codes were not copied: they are those that were packed
    number     what operators of torch call it by, in this process"""

    # Plans with it are kept here, so that they go when it does.
    number: int
    bytes: int
    device: Any

    def __init__(self, device: Any, view: Any, sizes: Any, copy: bool = True) -> None:
        self.device, self.sizes, self.plans = device, sizes, None
        self.codes = None
        self.handle = C.c_void_p()
        call("nib_pack" if copy else "nib_pack_shared", device.handle, C.byref(view),
             None, C.byref(self.handle))
        self.bytes = lib.nib_packed_bytes(self.handle)
        self.is_shared = self.bytes < sizes.batch * sizes.rows * sizes.cols // 2
        self.plans = Cache(limit=64)
        self.number = next(_numbers)
        _alive[self.number] = self

    def __del__(self):
        # Plans first: they point to the weights.
        if self.plans is not None and lib is not None:
            self.plans.plans.clear()
            lib.nib_packed_free(self.handle)

    def update(self, codes: Any, scales: Any, layout: str, stream: Any = None) -> None:
        """Packs other weights of the same sizes into the same memory, which CUDA graphs
        may read; arguments as those of pack_arrays()."""
        view, _ = _source(self.device, codes, scales, layout, stream)
        call("nib_packed_update", self.handle, C.byref(view), None)

    def unpack(self, codes: Any, scales: Any, layout: str) -> None:
        """Writes what was packed, bit for bit, to arrays of its sizes on its device;
        arguments as those of pack_arrays()."""
        view, _ = views.nvfp4(codes, scales, layout)
        call("nib_unpack", self.handle, C.byref(view), None)

    # The memory is one: a copy is the thing itself.
    def __copy__(self) -> "Packed":
        return self

    def __deepcopy__(self, _memo: Any) -> "Packed":
        return self

    def __reduce__(self) -> Any:
        raise TypeError("nibblas.Packed cannot be pickled: it has the order of "
                        "this machine's device; pickle the codes and scales, and "
                        "pack() them again")

    def __repr__(self) -> str:
        s = self.sizes
        shape = [s.batch, s.rows, s.cols] if s.is_stack else [s.rows, s.cols]
        return f"nibblas.Packed({shape} on {self.device.name}, {self.bytes} bytes)"


def packed(number):
    """Returns the packed weights of this number, if they are alive."""
    found = _alive.get(number)
    if found is None:
        raise ArgumentError(f"b = {number}: is the number of no packed weights "
                            "that are alive", "b")
    return found


def _source(device, codes, scales, layout, stream):
    """(view, sizes) of arrays that can be read: nib_pack() reads them on the default
    stream, so that work enqueued on another is waited for first."""
    view, sizes = views.nvfp4(codes, scales, layout)
    if sizes.is_stack and sizes.batch == 0:
        codes.fail("must have at least one matrix")
    if stream and not device.is_cpu:
        call("nib_device_wait", device.handle, stream)
    return view, sizes


def shares(device, codes, scales, layout):
    """Whether pack_arrays(copy=False) leaves the codes where they are."""
    view, _ = views.nvfp4(codes, scales, layout)
    return bool(lib.nib_pack_shares(device.handle, C.byref(view)))


def pack_arrays(device, codes, scales, layout, stream=None, copy=True):
    """Packs arrays of the device, which errors call b.  copy: False = the codes need
    not be copied; the Packed keeps them then."""
    packed = Packed(device, *_source(device, codes, scales, layout, stream), copy)
    if packed.is_shared:
        packed.codes = codes
    return packed
