# SPDX-License-Identifier: Apache-2.0
"""_weights.py - packed weights for torch: pack(), and the weights of a layer, whose
packed form follows the tensors that they are made of."""

import itertools
import weakref

from torch import Tensor

from nibblas import _packed
from nibblas._library import OutOfMemoryError
from nibblas.torch._tensors import Cpu, Cuda, array


def _arrays(b, b_scales, layout):
    """(device, b and b_scales as pack_arrays() takes them, its layout and stream)."""
    backend = Cpu if b.is_cpu else Cuda
    device = backend.device_of(b)
    return (backend.open(device), array("b", b), array("b_scales", b_scales), layout,
            backend.stream(device))


def pack(b: Tensor, b_scales: Tensor, layout: str = "tiled",
         copy: bool = True) -> _packed.Packed:
    """Copies weights [N, K/2] (or a stack) into the order of the device that they
    are on, for products that come again.

    b_scales lie in layout, "tiled" or "linear".  copy=False: where a device reads the
    codes as they lie (on CUDA, K a multiple of 32 and b aligned to 128 bytes), only the
    scales are copied, an eighth of the codes' bytes, and the result keeps b, which must
    not change.  Returns a nibblas.Packed, whose number
    torch.ops.nibblas.gemm_packed takes, and which must live as long.  Raises
    ArgumentError for arrays that do not fit."""
    return _packed.pack_arrays(*_arrays(b, b_scales, layout), copy)


def _state(b, b_scales):
    """Returns what differs if one of two tensors has changed.  Tensors made in
    inference mode have no version."""
    return (b.data_ptr(), b_scales.data_ptr(),
            0 if b.is_inference() else b._version,
            0 if b_scales.is_inference() else b_scales._version)


def _same(x, y):
    """Whether two tensors are the same part of the same memory."""
    return x is y or (x.data_ptr() == y.data_ptr() and x.shape == y.shape
                      and x.stride() == y.stride())


_numbers = itertools.count(1)
_layers = weakref.WeakValueDictionary()


class LayerWeights:
    """The weights of a layer, packed when the first product comes and when they have
    changed.  On a GPU the codes are not copied, and changed weights are packed into the
    same memory, which CUDA graphs read.  number: what the operator of torch calls them
    by."""

    def __init__(self):
        # (Packed, state, b, b_scales): one value, for threads see all or none of it.
        # The tensors are held, so that no others come to lie where they are.
        self.held = None
        # What b and b_scales were when a GPU would have had to copy the codes.
        self.refused = None
        self.number = next(_numbers)
        _layers[self.number] = self

    def forget(self):
        """The next product packs the weights again, whatever tensors it has."""
        self.held = None

    def refresh(self, b, b_scales):
        """Packs these weights now, whatever torch has counted: on a GPU those that were
        packed before into the same memory."""
        held = self.held
        if held is not None:
            keeps = (held[0].is_shared and _same(b, held[2])
                     and _same(b_scales, held[3]))
            self.held = (held[0], None, *held[2:]) if keeps else None
        self.get(b, b_scales)

    def get(self, b, b_scales):
        """The packed form of these tensors; None if they are not the layer's, as in
        torch.func.functional_call(), or cannot be packed here or now."""
        held, state = self.held, _state(b, b_scales)
        if held is not None:
            if not (_same(b, held[2]) and _same(b_scales, held[3])):
                return None
            if state == held[1]:
                return held[0]
        # A GPU shall not copy codes, and a graph that is being captured cannot wait.
        kind = state, b.shape, b.stride()
        if not b.is_cpu and (kind == self.refused or Cuda.is_capturing()):
            return None
        arguments = _arrays(b, b_scales, "linear")
        if not b.is_cpu and not _packed.shares(*arguments[:4]):
            self.refused = kind
            return None
        if held is not None and held[0].is_shared:
            found = held[0]
            found.update(*arguments[1:])
        else:
            try:
                found = _packed.pack_arrays(*arguments, copy=False)
            except OutOfMemoryError:
                if b.is_cpu:
                    raise
                return None
        self.held = found, state, b, b_scales
        return found


def layer_weights(number, b, b_scales):
    """The packed form of b for the layer of this number, or None: a graph that was
    saved by another process has its number, but not its layers."""
    layer = _layers.get(number)
    return layer and layer.get(b, b_scales)
