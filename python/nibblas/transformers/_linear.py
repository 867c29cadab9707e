# SPDX-License-Identifier: Apache-2.0
"""_linear.py - linear layers whose tensors have the names of the checkpoint that they
come from, so that transformers loads and saves them without renaming."""

import torch
from torch import nn
from torch.nn import functional as F

from nibblas.torch import Linear
from nibblas.torch._dense import DenseView
from nibblas.torch._linear import restore_types
from nibblas.transformers._formats import COMPRESSED
from nibblas.transformers._names import Origin

TYPES = {"U8": torch.uint8, "F8_E4M3": torch.float8_e4m3fn, "F32": torch.float32,
         "BF16": torch.bfloat16, "F16": torch.float16}


def _reciprocal(x):
    """1 / x in float32, also where that is subnormal and the thread counts those as 0
    (torch.set_flush_denormal): in float64 it is not, and its bits are made as an
    integer."""
    exact = 1 / x.double()
    bits = (exact.clamp(max=2.0 ** -126) * 2.0 ** 149).round().to(torch.int32)
    return torch.where(exact < 2.0 ** -126, bits.view(torch.float32), exact.float())


def factor(stored, is_divisor):
    """A global scale as a factor, from a tensor of a checkpoint."""
    return _reciprocal(stored) if is_divisor else stored.float()


def is_usable(scales):
    """Where global scales are finite and > 0; by their bits, because the thread may
    count subnormal ones as 0."""
    bits = scales.float().view(torch.int32)
    return (bits > 0) & (bits < 0x7F800000)


def check_factors(origin, values, is_divisor, first=0):
    """Refuses global scales that are not finite or not > 0.

    origin  of values, a tensor of the model
    first   the number of the first expert in it"""
    is_bad = ~(is_usable(values) & torch.isfinite(factor(values, is_divisor)))
    if is_bad.any():
        stored, index = origin.first_bad(is_bad, first)
        stored.fail(f"{values[index].item()}: global scales must be finite and > 0")


def check_block_scales(origin, scales, first=0):
    """Refuses scales of blocks that are NaN, or have a sign, which devices ignore and
    dequantisers do not; arguments as in check_factors()."""
    codes = scales.view(torch.uint8)
    if codes.numel() and codes.max() > 0x7E:
        stored, index = origin.first_bad(codes > 0x7E, first)
        stored.fail(f"the byte 0x{codes[index].item():02X}: scales of blocks must be "
                    "numbers >= 0, 0x00 to 0x7E")


def origins(layer):
    """{name of a tensor in its module: Origin} of a linear layer of _formats."""
    return {part.name[len(layer.name) + 1:]: Origin([[part]])
            for part in layer.tensors()}


def empty(stored):
    """A tensor on the meta device, of a stored tensor's shape and type."""
    return torch.empty(stored.shape, dtype=TYPES[stored.dtype], device="meta")


class Loading(DenseView):
    """A layer whose buffers a loader fills: weight is the buffer of that name until
    finish(), because transformers compares shapes with it."""

    # transformers initialises no module that has this attribute.
    _is_hf_initialized = True
    _is_loading = False

    @property
    def weight(self):
        stored = self._buffers.get("weight") if self._is_loading else None
        return super().weight if stored is None else stored


class CheckpointLinear(Loading, Linear):
    """A Linear that is filled tensor by tensor under the names of its checkpoint, and
    then made ready by finish().  compressed-tensors' divisors stay in state_dict();
    weight_scale_2 and input_scale are made of them.  Multiplies x by AWQ's
    pre_quant_scale [in], where the checkpoint has it.

    old          the torch.nn.Linear whose place it takes, on the meta device
    layer        the tensors of the checkpoint, a _formats.Layer
    activations  as in Linear"""

    def __init__(self, old, layer, activations):
        super().__init__(old.in_features, old.out_features, old.bias is not None,
                         "meta", old.weight.dtype, activations)
        self._is_loading = True
        self.format, self.origins = layer.format, origins(layer)
        self.stored_name = layer.name
        self.has_input = layer.input_global is not None
        # Whether x is quantised by its largest value though there is an input scale.
        self.is_input_unusable = False
        self.has_smooth = layer.pre_quant_scale is not None
        parts = ([layer.global_scale] + [layer.input_global] * self.has_input
                 + [layer.pre_quant_scale] * self.has_smooth)
        if self.format == COMPRESSED:
            self.register_buffer("weight_packed", empty(layer.codes))
            self._buffers["weight"] = None
            self._non_persistent_buffers_set |= {"weight_scale_2", "input_scale"}
        elif not self.has_input:
            self._non_persistent_buffers_set.add("input_scale")
        for one in parts:
            self.register_buffer(one.name[len(layer.name) + 1:], empty(one))

    def finish(self):
        """Makes the layer ready, when its tensors are loaded; packs it on a CPU."""
        form, self._is_loading = self.format, False
        if "weight_packed" in self._buffers:
            self._buffers["weight"] = self._buffers.pop("weight_packed")
        stored = self._buffers[form.global_scale[1:]]
        check_factors(self.origins[form.global_scale[1:]], stored, form.is_divisor)
        self.weight_scale_2 = factor(stored, form.is_divisor).reshape(())
        check_block_scales(self.origins["weight_scale"], self.weight_scale)
        self._read_input()
        if self.has_smooth and not torch.isfinite(self.pre_quant_scale).all():
            self.origins["pre_quant_scale"].at().fail("must be finite")
        if self.bias is not None:
            self.bias.requires_grad_(False)
        # The next tensors come from load_state_dict().
        self.origins = {key: Origin([[one.at()._replace(file="state_dict")]])
                        for key, one in self.origins.items()}
        self.pack()

    def _read_input(self):
        """Makes input_scale; 0, by which Linear quantises x by its largest value, where
        the checkpoint has none that can be used."""
        form, scale = self.format, torch.zeros((), device=self._device())
        if self.has_input:
            stored = factor(self._buffers[form.input_global[1:]],
                            form.is_divisor).reshape(())
            self.is_input_unusable = not is_usable(stored)
            scale = scale if self.is_input_unusable else stored
        self.input_scale = scale

    def _released(self):
        # Until finish() the codes have another name.
        return [] if "weight_packed" in self._buffers else super()._released()

    def set_input_scale(self, scale):
        super().set_input_scale(scale)
        self.has_input = True
        self._non_persistent_buffers_set.discard("input_scale")
        if self.format == COMPRESSED:
            # What state_dict() has, and what is read from it, is the divisor.
            divisor = (1 / self.input_scale).reshape(1)
            self.register_buffer(self.format.input_global[1:], divisor)
            self.input_scale.copy_(factor(divisor, True).reshape(()))
            self._non_persistent_buffers_set.add("input_scale")

    def forward(self, x):
        if self.has_smooth:
            x = x * self.pre_quant_scale.to(x.dtype)
        return super().forward(x)

    def dequantize(self, dtype=None):
        """The weights as floats [out, in], times AWQ's pre_quant_scale."""
        if not self.has_smooth:
            return super().dequantize(dtype)
        weight = super().dequantize(torch.float32) * self.pre_quant_scale.float()
        return weight.to(dtype or self.compute_dtype)

    def _scale(self, how, number):
        super()._scale(how, number)
        if self.format.is_divisor:
            other = {"mul_": "div_", "div_": "mul_"}[how]
            getattr(self._buffers[self.format.global_scale[1:]], other)(number)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.format == COMPRESSED and prefix + "weight" in destination:
            destination[prefix + "weight_packed"] = destination.pop(
                prefix + "weight")

    def _load_from_state_dict(self, state_dict, prefix, *args):
        if self.format == COMPRESSED and prefix + "weight_packed" in state_dict:
            state_dict[prefix + "weight"] = state_dict.pop(prefix + "weight_packed")
        self.unpack()
        nn.Module._load_from_state_dict(self, state_dict, prefix, *args)
        self.finish()


class Fp8Linear(Loading):
    """A linear layer with weights in FP8 (e4m3) and one scale, one for each row or for
    each block; x is not quantised (W8A16).  Weights times their scales are rounded
    once, to x's type."""

    def __init__(self, old, layer):
        # Not that of torch.nn.Linear, which makes weights of floats.
        nn.Module.__init__(self)
        self._is_loading, self.compute_dtype = True, old.weight.dtype
        self.block, self.origins = layer.block, origins(layer)
        self.scale_name = layer.scales.name[len(layer.name) + 1:]
        self.in_features, self.out_features = old.in_features, old.out_features
        for one in layer.tensors():
            # register_buffer() takes the property weight for an attribute in the way.
            self._buffers[one.name[len(layer.name) + 1:]] = empty(one)
        self.bias = old.bias

    def finish(self):
        """Makes the layer ready, when its tensors are loaded."""
        self._is_loading = False
        check_factors(self.origins[self.scale_name], getattr(self, self.scale_name),
                      False)
        if self.bias is not None:
            self.bias.requires_grad_(False)

    def _apply(self, fn, recurse=True):
        self.compute_dtype = self._checked_type(fn)
        kept = dict(self._buffers)
        super()._apply(fn, recurse)
        restore_types(self, kept)
        return self

    def forward(self, x):
        # The scale first: 448 times x would leave float16's range.
        y = F.linear(x, self.dequantize(x.dtype))
        if self.bias is not None:
            y = y + self.bias
        return y.to(x.dtype)

    def _scale(self, how, number):
        getattr(self._buffers[self.scale_name], how)(number)

    def _device(self):
        return self._buffers["weight"].device

    def dequantize(self, dtype=None):
        """The weights as floats [out, in]."""
        rows, cols = self.block
        scale = getattr(self, self.scale_name).float()
        scale = scale.reshape(-(-self.out_features // rows), -1)
        # Broadcasting spreads a single row or column of scales.
        if 1 < rows < self.out_features:
            scale = scale.repeat_interleave(rows, 0)[:self.out_features]
        if 1 < cols < self.in_features:
            scale = scale.repeat_interleave(cols, 1)[:, :self.in_features]
        weight = self._buffers["weight"].float() * scale
        return weight.to(dtype or self.compute_dtype)

    def extra_repr(self):
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"block={self.block}")
