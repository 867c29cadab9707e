# SPDX-License-Identifier: Apache-2.0
"""_weights.py - packed weights for torch: pack(), and LayerWeights, the packed form of
a layer's weights, which is updated when the tensors change."""

import enum
import itertools
import threading
import weakref
from typing import NamedTuple

import torch
from torch import Tensor

from nibblas import _packed
from nibblas._library import ArgumentError, OutOfMemoryError
from nibblas.torch._tensors import Cpu, Cuda, array


def _arrays(b, b_scales, layout):
    """(device, b and b_scales as pack_arrays() takes them, its layout and stream)."""
    for name, x in (("b", b), ("b_scales", b_scales)):
        if x.is_meta:
            raise ArgumentError(f"{name}: is on meta, where tensors have no values; "
                                "must be on a CPU or GPU", name)
    backend = Cpu if b.is_cpu else Cuda
    device = backend.device_of(b)
    return (backend.open(device), array("b", b), array("b_scales", b_scales), layout,
            backend.stream(device))


def pack(b: Tensor, b_scales: Tensor, layout: str = "tiled",
         copy: bool = True) -> _packed.Packed:
    """Copies weights [N, K/2] (or a stack) into the order of the device that they
    are on, for repeated products.

    layout is that of b_scales, "tiled" or "linear".  copy=False: if the device can read
    the codes where they are (on CUDA, K a multiple of 32 and b aligned to 128 bytes),
    only the scales are copied, an eighth of the codes' bytes, and the result references
    b, which must not change.  Returns a nibblas.Packed; torch.ops.nibblas.gemm_packed
    accepts its number while it is alive.  Raises ArgumentError for arrays that do not
    fit."""
    return _packed.pack_arrays(*_arrays(b, b_scales, layout), copy)


def _versions(*tensors):
    """Returns what differs if one of these tensors has changed: addresses and torch's
    counters of writes.  Tensors made in inference mode have no counter."""
    return (*(x.data_ptr() for x in tensors),
            *(0 if x.is_inference() else x._version for x in tensors))


def _same(x, y):
    """Whether two tensors are the same part of the same memory."""
    return x is y or (x.data_ptr() == y.data_ptr() and x.shape == y.shape
                      and x.stride() == y.stride())


class State(enum.Enum):
    """What a layer has packed.

        EMPTY --get()--> CACHED --keep_only()--> ONLY_PACKED   (from any state)
                         CACHED <--keep_tensors()-- ONLY_PACKED
                         CACHED --get(), refresh()--> CACHED   changed tensors, repacked
        EMPTY --get()--> REFUSED                 a GPU would have to copy the codes
        REFUSED --get()--> CACHED                other tensors
        CACHED, REFUSED --forget()--> EMPTY"""

    EMPTY = "nothing"
    CACHED = "a packed copy; the layer has the tensors too"
    ONLY_PACKED = "a packed copy, the only form of the weights (CPU)"
    REFUSED = "nothing: these tensors cannot be packed without copying the codes (GPU)"


class Cached(NamedTuple):
    """A state and its data, which are replaced together: other threads see all of it or
    none."""

    state: State = State.EMPTY
    packed: "_packed.Packed | None" = None      # CACHED, ONLY_PACKED
    # CACHED: the _versions() of the packed tensors, None if they must be packed again.
    # REFUSED: those of the refused ones, and the shape and strides of the codes.
    versions: "tuple | None" = None
    # CACHED: the packed tensors, referenced so that no others get their addresses.
    codes: "Tensor | None" = None
    scales: "Tensor | None" = None


class ScaledAlpha(NamedTuple):
    """The product of two global scales, and the inputs that it was computed from."""

    alpha: Tensor
    scale: Tensor
    versions: tuple
    product: Tensor


_EMPTY = Cached()
_numbers = itertools.count(1)
_layers = weakref.WeakValueDictionary()


class LayerWeights:
    """The weights of a layer, packed by the first product and again when they have
    changed: see State.  On a GPU the codes are not copied, and changed weights are
    packed into the same memory, which CUDA graphs read.

    number         by which the operators of torch refer to the layer
    cached         a Cached
    scaled_alpha   a ScaledAlpha of the last product, or None"""

    def __init__(self):
        self.cached, self.scaled_alpha = _EMPTY, None
        self._lock = threading.Lock()  # held while `cached` is replaced
        self.number = next(_numbers)
        _layers[self.number] = self

    def _replace(self, old, new):
        """Makes `new` the state, unless another thread has replaced `old`."""
        with self._lock:
            if self.cached is old:
                self.cached = new

    def forget(self):
        """Makes the next product pack its weights again."""
        with self._lock:
            if self.cached.state is not State.ONLY_PACKED:
                self.cached = _EMPTY
        self.scaled_alpha = None

    @staticmethod
    def pack_on_cpu(b, b_scales):
        """Returns the packed form of weights that are on a CPU."""
        return _packed.pack_arrays(*_arrays(b, b_scales, "linear"))

    def keep_only(self, packed):
        """Makes `packed` the only form of the weights."""
        with self._lock:
            self.cached = Cached(State.ONLY_PACKED, packed)

    def keep_tensors(self, b, b_scales):
        """Adds tensors to the layer, which have the values of the packed form."""
        with self._lock:
            self.cached = Cached(State.CACHED, self.only_packed(),
                                 _versions(b, b_scales),
                                 b, b_scales)

    def only_packed(self):
        """Returns the packed form of weights that have no other form."""
        # State.CACHED: a product that began before keep_tensors() still needs it.
        packed = self.cached.packed
        if packed is None:
            raise _unknown_layer(self.number)
        return packed

    def unpack(self):
        """Returns (codes, scales): new tensors with the packed weights."""
        packed = self.only_packed()
        s = packed.sizes
        shape = (s.batch, s.rows) if s.is_stack else (s.rows,)
        codes = torch.empty(*shape, s.cols // 2, dtype=torch.uint8, device="cpu")
        scales = torch.empty(*shape, s.cols // 16, dtype=torch.float8_e4m3fn,
                             device="cpu")
        packed.unpack(array("to", codes), array("to_scales", scales), "linear")
        return codes, scales

    def scale_alpha(self, alpha, scale):
        """Returns alpha * scale, and caches it for the next product.  A CUDA graph that
        reads it stays valid, because rescale() writes it into the same memory."""
        versions, cached = _versions(alpha, scale), self.scaled_alpha
        if (cached is not None and versions == cached.versions
                and _same(alpha, cached.alpha) and _same(scale, cached.scale)):
            return cached.product
        product = alpha * scale
        # Memory that is allocated during a capture belongs to the graph.
        if product.is_cpu or not Cuda.is_capturing():
            self.scaled_alpha = ScaledAlpha(alpha, scale, versions, product)
        return product

    def rescale(self):
        """Computes the product of scale_alpha() again, even if torch has counted no
        change."""
        cached = self.scaled_alpha
        if cached is not None:
            torch.mul(cached.alpha, cached.scale, out=cached.product)
            self.scaled_alpha = cached._replace(
                versions=_versions(cached.alpha, cached.scale))

    def refresh(self, b, b_scales):
        """Packs these weights now, even if torch has counted no change: on a GPU into
        the same memory if they were packed before."""
        cached = self.cached
        if cached.state is State.CACHED:
            is_kept = (cached.packed.is_shared and _same(b, cached.codes)
                       and _same(b_scales, cached.scales))
            self._replace(cached, cached._replace(versions=None) if is_kept else _EMPTY)
        self.get(b, b_scales)

    def get(self, b, b_scales):
        """Returns the packed form of these tensors; None if they are not the layer's,
        as in torch.func.functional_call(), or cannot be packed here or now."""
        cached, versions = self.cached, _versions(b, b_scales)
        state = cached.state
        if state is State.ONLY_PACKED:
            return None
        if state is State.CACHED:
            if not (_same(b, cached.codes) and _same(b_scales, cached.scales)):
                return None
            if versions == cached.versions:
                return cached.packed
        refused = versions, b.shape, b.stride()
        # Waiting is not allowed during the capture of a graph.
        if not b.is_cpu and ((state is State.REFUSED and refused == cached.versions)
                             or Cuda.is_capturing()):
            return None
        arguments = _arrays(b, b_scales, "linear")
        if not b.is_cpu and not _packed.shares(*arguments[:4]):
            self._replace(cached, Cached(State.REFUSED, versions=refused))
            return None
        if state is State.CACHED and cached.packed.is_shared:
            packed = cached.packed
            packed.update(*arguments[1:])
        else:
            try:
                packed = _packed.pack_arrays(*arguments, copy=False)
            except OutOfMemoryError:
                if b.is_cpu:
                    raise
                return None
        self._replace(cached, Cached(State.CACHED, packed, versions, b, b_scales))
        return packed


def _unknown_layer(number):
    return ArgumentError(
        f"number = {number}: is the number of no layer whose packed weights are alive "
        "in this process; Linear.unpack() before torch.export makes programs that have "
        "their own", "number")


def layer_of(number):
    """The LayerWeights of a number, or None."""
    return _layers.get(number)


def layer_weights(number, b, b_scales):
    """Returns the packed form of b for the layer of this number, or None: a graph that
    was saved by another process has its number, but not its layers.  b is None if the
    packed form is the only one."""
    layer = _layers.get(number)
    if b is None:
        if layer is None:
            raise _unknown_layer(number)
        return layer.only_packed()
    return layer and layer.get(b, b_scales)
