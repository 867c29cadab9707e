# SPDX-License-Identifier: Apache-2.0
"""_tensors.py - torch's tensors, devices and streams as nibblas sees them."""

import ctypes as C
import functools
import threading
import weakref

import torch

from nibblas import _device
from nibblas._library import (ArgumentError, OutOfMemoryError, UnsupportedError,
                              call, fail, lib)
from nibblas._problems import Operand
from nibblas._views import Array, dense_strides

NAMES = {torch.uint8: "uint8", torch.float32: "float32",
         torch.float16: "float16", torch.bfloat16: "bfloat16",
         torch.int32: "int32", torch.float8_e4m3fn: "float8_e4m3fn"}
# Results' type if nothing is said, as in torch's scaled_mm.
USUAL = torch.bfloat16
# Older ones have no such type; there codes are uint8.
FLOAT4 = getattr(torch, "float4_e2m1fn_x2", None)
if FLOAT4 is not None:
    NAMES[FLOAT4] = "float4_e2m1fn_x2"


def dtype_name(dtype):
    """ "bfloat16" of torch.bfloat16."""
    return NAMES.get(dtype) or str(dtype).removeprefix("torch.")


def array(name, tensor):
    """A tensor as views take it; None stays None."""
    if tensor is None:
        return None
    device = "cpu" if tensor.is_cpu else str(tensor.device)
    return Array(name, tensor.data_ptr(), tuple(tensor.shape),
                 tuple(tensor.stride()), dtype_name(tensor.dtype), device,
                 tensor)


def operand(name, codes, scales, layout):
    return Operand(array(name, codes), array(name + "_scales", scales), layout)


def maker(shape, dtype, device):
    """A function that makes new tensors, dense: in the way that torch does it
    soonest, and with arguments that are ready."""
    return functools.partial(
        torch.empty_strided, tuple(shape), dense_strides(shape), dtype=dtype,
        device=device)


def meta(tensor):
    """What of a tensor a plan depends on.  Those that lie densely have no
    strides to compare."""
    if tensor is None:
        return None
    return (tensor.shape, tensor.is_contiguous() or tensor.stride(),
            tensor.dtype)


def _raw_stream_function():
    fast = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return fast or (lambda i: torch.cuda.current_stream(i).cuda_stream)


def _capturing_function():
    fast = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)
    return fast or torch.cuda.is_current_stream_capturing


class Cpu:
    """Where CPU tensors are multiplied: as many threads as torch uses."""

    own_workspace = True

    @staticmethod
    def place(_tensor, _name="a"):
        return torch.get_num_threads()

    @staticmethod
    def device(place):
        return _device.device("cpu", threads=place)

    @staticmethod
    def stream(_place):
        return None

    # Plan.run() without a call more.
    @staticmethod
    def run(plan, work, _place):
        status = plan.function(*work.arguments)
        if status:
            fail(status, work.error, plan.count, plan.names)
        plan.idle.append(work)

    @staticmethod
    def check_not_capturing(_what):
        pass


# Larger workspaces are not kept between calls, nor those of more streams.
MOST_KEPT_BYTES, MOST_KEPT = 8 << 20, 32


class Kept:
    """A workspace that a thread keeps for one of its streams, where work is in
    order.  Not of torch's memory: a graph's pool may hold nothing that outlives
    its calls.  The driver frees it behind the work that uses it."""

    __slots__ = ("bytes", "address", "__weakref__")

    def __init__(self, device, n_bytes):
        pointer = C.c_void_p()
        call("nib_device_alloc", device.handle, n_bytes, C.byref(pointer))
        self.bytes, self.address = n_bytes, pointer.value
        weakref.finalize(self, lib.nib_device_free, device.handle,
                         pointer).atexit = False


class Cuda:
    """Where CUDA tensors are: the current stream of their device.  Workspaces
    come from torch's allocator, which knows of streams and graphs, but for small
    ones, which cost less when they are kept."""

    own_workspace = False
    kept = threading.local()
    raw_stream = staticmethod(_raw_stream_function())
    is_capturing = staticmethod(_capturing_function())

    @staticmethod
    def place(tensor, name="a"):
        place = tensor.get_device()
        if place < 0:
            raise ArgumentError(f"{name}: is on {tensor.device}; must be on a "
                                "GPU, as another argument is")
        return place

    @staticmethod
    def device(place):
        return _device.device(f"cuda:{place}")

    @classmethod
    def stream(cls, place):
        return cls.raw_stream(place) or None

    @staticmethod
    def workspace(n_bytes, place):
        """Work on one stream is in order, so it may go at once."""
        return torch.empty(n_bytes, dtype=torch.uint8,
                           device=torch.device("cuda", place))

    @classmethod
    def kept_workspace(cls, n_bytes, place, stream):
        """This thread's for the stream, made or grown; None if there is no
        memory."""
        try:
            kept = cls.kept.workspaces
        except AttributeError:
            kept = cls.kept.workspaces = {}
        found = kept.get((place, stream))
        if found is None or found.bytes < n_bytes:
            if len(kept) >= MOST_KEPT:
                kept.clear()
            try:
                # Powers of two, so that growing ends.
                found = Kept(cls.device(place), 1 << (n_bytes - 1).bit_length())
            except OutOfMemoryError:
                return None
            kept[place, stream] = found
        return found

    @classmethod
    def run(cls, plan, work, place):
        options = work.options
        stream = options.stream = cls.raw_stream(place)
        n_bytes, kept = plan.workspace_bytes, None
        if cls.is_capturing():
            # The graph reads the plan's tables whenever it is replayed, and has
            # a workspace of its own memory.
            plan.is_pinned = True
        elif 0 < n_bytes <= MOST_KEPT_BYTES:
            kept = cls.kept_workspace(n_bytes, place, stream)
        if kept is not None:
            options.workspace = kept.address
        elif n_bytes:
            workspace = cls.workspace(n_bytes, place)
            options.workspace = workspace.data_ptr()
        options.workspace_bytes = n_bytes
        plan.run(work)

    @classmethod
    def check_not_capturing(cls, what):
        if cls.is_capturing():
            raise UnsupportedError(f"{what} while a CUDA graph is captured")
