# SPDX-License-Identifier: Apache-2.0
"""_weights.py - packed weights for torch: pack(), and the weights of a layer, whose
packed form follows the tensors that they are made of."""

import itertools
import weakref

import torch
from torch import Tensor

from nibblas import _packed
from nibblas._library import ArgumentError, OutOfMemoryError
from nibblas.torch._tensors import Cpu, Cuda, array


def _arrays(b, b_scales, layout):
    """(device, b and b_scales as pack_arrays() takes them, its layout and stream)."""
    for name, x in (("b", b), ("b_scales", b_scales)):
        if x.is_meta:
            raise ArgumentError(f"{name}: is on meta, where tensors have no values; must be "
                                "on a CPU or GPU", name)
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
    same memory, which CUDA graphs read.  On a CPU the packed form may be all that there
    is of them.  number: what the operator of torch calls them by."""

    def __init__(self):
        # On a CPU: the Packed whose tensors nobody keeps.
        self.alone = None
        # (Packed, state, b, b_scales): one value, for threads see all or none of it.
        # The tensors are held, so that no others come to lie where they are.
        self.held = None
        # What b and b_scales were when a GPU would have had to copy the codes.
        self.refused = None
        # (alpha, scale of x, their state, product of both) of the last product.
        self.scaled = None
        self.number = next(_numbers)
        _layers[self.number] = self

    def forget(self):
        """The next product packs the weights again, whatever tensors it has."""
        self.held = self.scaled = None

    @staticmethod
    def packed(b, b_scales):
        """The packed form of weights that are on a CPU."""
        return _packed.pack_arrays(*_arrays(b, b_scales, "linear"))

    def keep_alone(self, packed):
        """packed: all that is kept of the weights from now on."""
        self.alone, self.held = packed, None

    def unpacked(self):
        """(codes, scales): the tensors that were packed, made anew."""
        found = self.packed_alone()
        s = found.sizes
        shape = (s.batch, s.rows) if s.is_stack else (s.rows,)
        codes = torch.empty(*shape, s.cols // 2, dtype=torch.uint8, device="cpu")
        scales = torch.empty(*shape, s.cols // 16, dtype=torch.float8_e4m3fn,
                             device="cpu")
        found.unpack(array("to", codes), array("to_scales", scales), "linear")
        return codes, scales

    def release(self, b, b_scales):
        """The tensors of what was packed alone are kept too from now on."""
        # A product that has begun in another thread may still ask for the packed form.
        self.held = self.packed_alone(), _state(b, b_scales), b, b_scales
        self.alone = None

    def packed_alone(self):
        """The packed form of weights whose tensors nobody keeps."""
        alone, held = self.alone, self.held
        # Between the two reads another thread may have packed.
        found = alone or (held and held[0]) or self.alone
        if found is None:
            raise _gone(self.number)
        return found

    def times(self, alpha, scale):
        """alpha * scale, which is kept for the next product: a graph that reads it stays
        right, because rescale() writes it anew into the same memory."""
        state, kept = _state(alpha, scale), self.scaled
        if kept is not None and state == kept[2] and _same(alpha, kept[0]) and _same(
                scale, kept[1]):
            return kept[3]
        made = alpha * scale
        # Memory of a graph that is being captured is that graph's.
        if made.is_cpu or not Cuda.is_capturing():
            self.scaled = alpha, scale, state, made
        return made

    def rescale(self):
        """Writes the product of times() anew, whatever torch has counted."""
        kept = self.scaled
        if kept is not None:
            torch.mul(kept[0], kept[1], out=kept[3])
            self.scaled = kept[0], kept[1], _state(*kept[:2]), kept[3]

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
        if self.alone is not None:
            return None
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


def _gone(number):
    return ArgumentError(
        f"number = {number}: is the number of no layer whose packed weights are alive in "
        "this process; Linear.unpack() before torch.export makes programs that have "
        "their own", "number")


def layer_of(number):
    """The LayerWeights of a number, or None."""
    return _layers.get(number)


def layer_weights(number, b, b_scales):
    """The packed form of b for the layer of this number, or None: a graph that was
    saved by another process has its number, but not its layers.  b: None if the packed
    form is all that there is."""
    layer = _layers.get(number)
    if b is None:
        if layer is None:
            raise _gone(number)
        return layer.packed_alone()
    return layer and layer.get(b, b_scales)
