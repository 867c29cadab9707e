# SPDX-License-Identifier: Apache-2.0
"""_workspaces.py - workspaces on a GPU that are kept between calls, and whether a
stream is being captured in a CUDA graph."""

import ctypes as C
import os
import threading
import weakref

from nibblas._library import UnsupportedError, call, lib

NEW_SIZES = ("a product of new sizes while a CUDA graph is captured (run it once "
             "before, in the same thread and on the same stream)")
# Streams of a thread that have a workspace; with one more, all are let go.
MOST_KEPT = 32


class Workspace:
    """Memory of a GPU.  Not of torch's allocator: the pool of a graph must hold
    nothing that outlives its calls.  The driver waits for work that uses it before
    it frees it."""

    __slots__ = ("bytes", "address", "__weakref__")

    def __init__(self, device, n_bytes):
        pointer = C.c_void_p()
        call("nib_device_alloc", device.handle, n_bytes, C.byref(pointer))
        self.bytes, self.address = n_bytes, pointer.value
        weakref.finalize(self, lib.nib_device_free, device.handle,
                         pointer).atexit = False


class Workspaces(threading.local):
    """The workspaces of a thread, one for each stream of a device: what runs on one
    stream runs in order, and so can share memory."""

    def __init__(self):
        self.kept, self.of_graphs = {}, {}

    def get(self, device, stream, n_bytes):
        """The stream's, made or grown."""
        key = device.name, stream
        found = self.kept.get(key)
        if found is None or found.bytes < n_bytes:
            if len(self.kept) >= MOST_KEPT:
                self.kept.clear()
            # Powers of two, so that growing ends.
            found = Workspace(device, 1 << (n_bytes - 1).bit_length())
            self.kept[key] = found
        return found

    def for_graph(self, device, stream, n_bytes):
        """A workspace for the graphs that are captured from the stream.  Nothing
        can be allocated now, so the graphs take over the stream's own, which an
        earlier call made; that call's successors get another."""
        key = device.name, stream
        found = self.of_graphs.get(key)
        if found is None or found.bytes < n_bytes:
            found = self.kept.get(key)
            if found is None or found.bytes < n_bytes:
                raise UnsupportedError(NEW_SIZES)
            del self.kept[key]
            self.of_graphs[key] = found
            # A replay may come at any time until the end of the process.
            _of_graphs.append(found)
        return found


_of_graphs = []


def _find():
    """The driver's function, of the library that libnibblas works with."""
    path = os.environ.get("NIB_CUDA_LIBRARY") or "libcuda.so.1"
    function = C.CDLL(path).cuStreamIsCapturing
    function.argtypes = [C.c_void_p, C.POINTER(C.c_int)]
    return function


_function = None


def is_capturing(stream):
    """Whether work on this stream goes into a CUDA graph.  The default stream
    (None, 0, 1) cannot be captured."""
    global _function
    if stream in (None, 0, 1):
        return False
    if _function is None:
        _function = _find()
    state = C.c_int()
    # A stream that the driver knows nothing of is refused by the run.
    return _function(stream, C.byref(state)) == 0 and state.value != 0
