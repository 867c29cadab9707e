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
    """A copy of weights [rows, k] (or a stack) in the order of its device, good for
    every product there; pack() makes it.  Nothing of it changes, so a copy is the
    thing itself; it cannot be pickled.

    device  where it is
    bytes   its size
    number  what operators of torch call it by, in this process"""

    # Plans with it are kept here, so that they go when it does.
    number: int
    bytes: int
    device: Any

    def __init__(self, device: Any, view: Any, sizes: Any) -> None:
        self.device, self.sizes, self.plans = device, sizes, None
        self.handle = C.c_void_p()
        call("nib_pack", device.handle, C.byref(view), C.byref(self.handle))
        self.bytes = lib.nib_packed_bytes(self.handle)
        self.plans = Cache(limit=64)
        self.number = next(_numbers)
        _alive[self.number] = self

    def __del__(self):
        # Plans first: they point to the weights.
        if self.plans is not None and lib is not None:
            self.plans.plans.clear()
            lib.nib_packed_free(self.handle)

    # Nothing of it changes: a copy is the thing itself.
    def __copy__(self) -> "Packed":
        return self

    def __deepcopy__(self, _memo: Any) -> "Packed":
        return self

    def __reduce__(self) -> Any:
        raise TypeError("nibblas.Packed cannot be pickled: it lies in the order of "
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


def pack_arrays(device, codes, scales, layout, stream=None):
    """Packs arrays of the device, which errors call b.  nib_pack() reads them on the
    default stream, so that work enqueued on another is waited for first."""
    view, sizes = views.nvfp4(codes, scales, layout)
    if sizes.is_stack and sizes.batch == 0:
        codes.fail("must have at least one matrix")
    if stream and not device.is_cpu:
        call("nib_device_wait", device.handle, stream)
    return Packed(device, view, sizes)
