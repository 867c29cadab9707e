# SPDX-License-Identifier: Apache-2.0
"""_tensors.py - torch's tensors, devices and streams for the rest of nibblas."""

import functools
import os

import torch

from nibblas import _device
from nibblas._library import (ArgumentError, NoDeviceError, OutOfMemoryError,
                              UnsupportedError, fail)
from nibblas._problems import Operand
from nibblas._views import Array, dense_strides
from nibblas._workspaces import Workspaces

NAMES = {torch.uint8: "uint8", torch.float32: "float32",
         torch.float16: "float16", torch.bfloat16: "bfloat16",
         torch.int32: "int32", torch.float8_e4m3fn: "float8_e4m3fn"}
# The types of results without out_dtype: that of A, or bfloat16 for codes, as in
# torch's scaled_mm.
USUAL = torch.bfloat16
_OWN = {torch.float32: torch.float32, torch.float16: torch.float16}
# Older versions of torch do not have this type; codes are uint8 there.
FLOAT4 = getattr(torch, "float4_e2m1fn_x2", None)
if FLOAT4 is not None:
    NAMES[FLOAT4] = "float4_e2m1fn_x2"


def usual_type(a):
    """Returns the type of the result of a product of a without out_dtype."""
    return _OWN.get(a.dtype, USUAL)


def dtype_name(dtype):
    """Returns "bfloat16" for torch.bfloat16."""
    return NAMES.get(dtype) or str(dtype).removeprefix("torch.")


def array(name, tensor):
    """Returns a tensor as a views.Array; None stays None."""
    if tensor is None:
        return None
    device = "cpu" if tensor.is_cpu else str(tensor.device)
    return Array(name, tensor.data_ptr(), tuple(tensor.shape),
                 tuple(tensor.stride()), dtype_name(tensor.dtype), device,
                 tensor)


def check_meta(operator, arguments, named):
    """Refuses a tensor on the meta device among arguments of an operator that are on
    others."""
    names = [one.name for one in operator._schema.arguments]
    found = {}
    for name, value in [*zip(names, arguments), *named.items()]:
        many = isinstance(value, (list, tuple))
        for i, x in enumerate(value if many else [value]):
            if isinstance(x, torch.Tensor):
                found[f"{name}[{i}]" if many else name] = x.device
    meta = [name for name, device in found.items() if device.type == "meta"]
    others = [name for name in found if name not in meta]
    if meta and others:
        raise ArgumentError(
            f"{meta[0]}: is on meta, where tensors have no values; must be on "
            f"{found[others[0]]}, as {others[0]} is", meta[0])


def _plain_keys():
    """The dispatcher's keys of a dense tensor of the CPU and of a thread without modes,
    inverted; None in versions of torch that do not tell."""
    try:
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
        for name in ("AutogradCPU", "AutocastCPU", "ADInplaceOrView", "BackendSelect"):
            keys = keys | torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name))
        torch._C._dispatch_keys(torch.empty(0, device="cpu")).raw_repr()
        torch._C._dispatch_tls_local_include_set().raw_repr()
        torch._C._len_torch_function_stack()
        return ~keys.raw_repr()
    except (AttributeError, TypeError):
        return None


_NOT_PLAIN = _plain_keys()


def needs_no_dispatch(x, alpha, bias):
    """Whether an operator with these tensors would go straight to its CPU kernel, so
    that a call of the kernel gives the same and saves 7 us.  False where something
    watches or replaces operators (a mode, a trace, vmap, the profiler), for gradients
    of the bias, and for tensors whose values are elsewhere or not as they are in their
    memory (other devices, subclasses, the negative bit).

    torch.compile must not trace it."""
    if _NOT_PLAIN is None or type(x) is not torch.Tensor:
        return False
    keys = (torch._C._dispatch_keys(x).raw_repr()
            | torch._C._dispatch_keys(alpha).raw_repr()
            | torch._C._dispatch_tls_local_include_set().raw_repr())
    if bias is not None:
        if bias.requires_grad:
            return False
        keys |= torch._C._dispatch_keys(bias).raw_repr()
    return not (keys & _NOT_PLAIN or torch._C._len_torch_function_stack()
                or torch.autograd.profiler._is_profiler_enabled)


def operand(name, codes, scales, layout, activations=None):
    return Operand(array(name, codes), array(name + "_scales", scales), layout,
                   activations)


def maker(shape, dtype, device):
    """Returns a function that makes dense tensors: the quickest one of torch, with its
    arguments bound."""
    return functools.partial(
        torch.empty_strided, tuple(shape), dense_strides(shape), dtype=dtype,
        device=device)


def meta(tensor):
    """The properties of a tensor that a plan depends on.  Strides of contiguous
    tensors follow from their shape."""
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


# This library is linked with the OpenMP runtime of torch's own loops.
TORCH_CPU = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")


class Cpu:
    """How CPU tensors are multiplied: on torch's own OpenMP threads, as many as torch
    uses; on threads of the device where torch was built without OpenMP."""

    own_workspace = True
    # Whether layers quantise inf and NaN of x, because the host does not wait to see
    # them, or refuse them.
    saturates = False

    @staticmethod
    def device_of(_tensor, _name="a"):
        """Returns the device for keys: its kind and the number of threads."""
        return "cpu", torch.get_num_threads()

    @staticmethod
    def open(device):
        try:
            return _device.device("cpu", threads=device[1], openmp=TORCH_CPU)
        except NoDeviceError:
            return _device.device("cpu", threads=device[1])

    @staticmethod
    def stream(_device):
        return None

    # Plan.run(), written out to save a call.
    @staticmethod
    def run(plan, work, _device):
        status = plan.function(*work.arguments)
        if status:
            fail(status, work.error, plan.count, plan.names)
        plan.idle.append(work)

    @staticmethod
    def check_not_capturing(_what):
        pass


# Larger workspaces are returned to torch's allocator after each call.
MOST_KEPT_BYTES = 8 << 20


class Cuda:
    """How CUDA tensors are multiplied: on the current stream of their device.
    Workspaces come from torch's allocator, which supports streams and graphs.  Small
    ones are kept between calls, which costs less time."""

    own_workspace = False
    saturates = True
    workspaces = Workspaces()
    raw_stream = staticmethod(_raw_stream_function())
    is_capturing = staticmethod(_capturing_function())

    @staticmethod
    def device_of(tensor, name="a"):
        """Returns the device for keys: its kind and index."""
        index = tensor.get_device()
        if index < 0:
            raise ArgumentError(f"{name}: is on {tensor.device}; must be on a "
                                "GPU, as another argument is", name)
        return "cuda", index

    @staticmethod
    def open(device):
        return _device.device(f"cuda:{device[1]}")

    @classmethod
    def stream(cls, device):
        return cls.raw_stream(device[1]) or None

    @staticmethod
    def workspace(n_bytes, index):
        """Work on a stream is in order, so the workspace may be freed at once."""
        return torch.empty(n_bytes, dtype=torch.uint8,
                           device=torch.device("cuda", index))

    @classmethod
    def run(cls, plan, work, device):
        index, options = device[1], work.options
        stream = options.stream = cls.raw_stream(index)
        n_bytes, kept = plan.workspace_bytes, None
        if cls.is_capturing():
            # Each replay of the graph reads the plan's tables.  The workspace is in the
            # graph's own memory.
            plan.pin()
        elif 0 < n_bytes <= MOST_KEPT_BYTES:
            try:
                kept = cls.workspaces.get(plan.device, stream, n_bytes)
            except OutOfMemoryError:
                pass  # torch's allocator may have some that it keeps.
        if kept is not None:
            options.workspace = kept.address
        elif n_bytes:
            workspace = cls.workspace(n_bytes, index)
            options.workspace = workspace.data_ptr()
        options.workspace_bytes = n_bytes
        plan.run(work)

    @classmethod
    def check_not_capturing(cls, what):
        if cls.is_capturing():
            raise UnsupportedError(f"{what} while a CUDA graph is captured")
