# SPDX-License-Identifier: Apache-2.0
"""_linear.py - torch.nn.Linear with NVFP4 weights; x is multiplied as it is, or is
quantised too."""

from typing import Any

import torch
from torch import Tensor, nn

from nibblas._files import Layer
from nibblas._library import ArgumentError, NoDeviceError, UnsupportedError
from nibblas._numpy import ActivationsName
from nibblas._views import ACTIVATIONS, SCALE_RULES, ZERO_SCALES, choose
from nibblas.torch._comfy import take_comfy
from nibblas.torch._dense import FLOATS, DenseView
from nibblas.torch._multiply import of_floats, takes_floats
from nibblas.torch._packed_module import PackedModule
from nibblas.torch._tensors import Cpu, needs_no_dispatch
from nibblas.torch._weights import LayerWeights


# compressed-tensors stores the reciprocal of a scale, which must be finite too.
LEAST_SCALE = 2.0 ** -126


class _StraightThrough(torch.autograd.Function):
    """The gradient of x is that of the quantised weights, as if x had not been
    rounded."""

    @staticmethod
    def forward(ctx, x, linear, *weights):
        ctx.save_for_backward(*weights)
        if not torch.compiler.is_compiling():
            # backward() may run after the model has been freed.
            ctx.weights = linear._packed
        ctx.sizes = (linear._packed.number, linear.out_features, linear.in_features)
        return linear.multiply(x)

    @staticmethod
    def backward(ctx, gradient):
        codes, scales, scale = ctx.saved_tensors
        if codes is None:
            codes, scales = torch.ops.nibblas._unpacked.default(gradient, *ctx.sizes)
        weight = torch.ops.nibblas.dequantize.default(
            codes, scales, scale, torch.float32, "linear").to(gradient.dtype)
        return gradient @ weight, None, None, None, None


def _is_exporting():
    """torch.compiler.is_exporting(), which torch.compile evaluates to True before torch
    2.13.  Still older versions have neither the function nor its flag."""
    return getattr(torch.compiler, "_is_exporting_flag", False)


def _must_quantize(tensor):
    """Whether the device of a layer's tensors can multiply NVFP4 only by NVFP4."""
    if not tensor.is_cuda:
        return False
    try:
        return not takes_floats(tensor.get_device())
    except (NoDeviceError, UnsupportedError):
        # The product will raise the error.
        return False


def restore_types(module, kept):
    """Restores the types of a module's buffers after _apply(): half() and to(bfloat16)
    must not change the types of codes and scales.

    kept  the buffers before _apply()"""
    for name, old in kept.items():
        moved = module._buffers[name]
        if old is not None and moved.dtype != old.dtype:
            module._buffers[name] = old.to(moved.device)


class Linear(PackedModule, DenseView):
    """y = x * W^T + bias with W in NVFP4, in the format of ModelOpt, so that its
    checkpoints load.  state_dict() has:

        weight          uint8 [out, in/2]
        weight_scale    float8_e4m3fn [out, in/16]
        weight_scale_2  float32 []
        input_scale     float32 []: the global scale of x where x is quantised to
                        NVFP4; 0 = amax / 2688 of it

    activations is how x is multiplied, and may be set at any time:

        "dense"  as it is (W4A16): float16 and bfloat16, on a CPU float32 too
        "int8"   rounded to 8 bits, with a scale for every 16 values of a row (W4A8,
                 on a CPU)
        "nvfp4"  quantised to NVFP4 (W4A4), by input_scale
        None     "dense"; "nvfp4" on a GPU that has no kernels for dense x

    For other programs the layer is a torch.nn.Linear: its attribute weight reads as the
    dequantised weights, of compute_dtype (the type of the original layer, which to()
    changes).  codes and weight_scale are the tensors themselves.

    The weights are packed when the layer is made or loaded.  On a CPU only the packed
    form is kept, 0.5625 bytes a value.  state_dict(), pickle and deepcopy() unpack the
    tensors, bit for bit.  Reading codes or weight_scale does so too, and the layer then
    keeps both forms until pack().  unpack() makes the tensors buffers again without the
    packed form, as torch.export needs.  On a GPU the scales are copied, 0.0625 bytes a
    value.

    Weights that have moved or changed are packed by the next product, and both forms
    are kept.  Call pack() after changes that torch does not count (through .data, or of
    tensors made in inference mode), after writing to input_scale, and before the replay
    of a CUDA graph that reads changed weights.

    On CUDA nothing waits for the device.  inf and NaN of x follow IEEE 754 in the
    product.  If x is quantised to NVFP4, CUDA saturates them, and on a CPU they raise
    DataError.  Weights and bias have no gradients; x has that of the quantised
    weights."""

    _WEIGHTS = ("weight", "weight_scale")
    activations: "ActivationsName | None" = None
    weight_scale_2: Tensor
    input_scale: Tensor

    def __init__(self, in_features: int, out_features: int, bias: bool = True,
                 device: Any = None, dtype: torch.dtype | None = None,
                 activations: "ActivationsName | None" = None) -> None:
        # Not torch.nn.Linear's, which allocates weights of floats.
        nn.Module.__init__(self)
        if activations is not None:
            choose("activations", activations, ACTIVATIONS)
        self.activations = activations
        self.compute_dtype = dtype or torch.get_default_dtype()
        if self.compute_dtype not in FLOATS:
            raise ArgumentError(
                f"dtype = {dtype}: must be float32, float16 or bfloat16", "dtype")
        if in_features % 16:
            raise ArgumentError(f"in_features = {in_features}: must be a "
                                "multiple of 16", "in_features")
        self.in_features, self.out_features = in_features, out_features
        self._packed = LayerWeights()

        def buffer(name, *shape, dtype):
            # register_buffer() would refuse these names, because they are properties.
            self._buffers[name] = torch.zeros(shape, dtype=dtype, device=device)
        buffer("weight", out_features, in_features // 2, dtype=torch.uint8)
        buffer("weight_scale", out_features, in_features // 16,
               dtype=torch.float8_e4m3fn)
        buffer("weight_scale_2", dtype=torch.float32)
        buffer("input_scale", dtype=torch.float32)
        self.bias = None
        if bias:
            self.bias = nn.Parameter(torch.zeros(
                out_features, dtype=dtype, device=device), requires_grad=False)
        self._has_input_scale = False
        self._must_quantize = _must_quantize(self.weight_scale_2)

    @classmethod
    def from_linear(cls, linear: nn.Linear, zero_scale: str = "modelopt",
                    input_scale: float | None = None,
                    activations: "ActivationsName | None" = None,
                    global_scale: Tensor | None = None,
                    scales: str = "amax") -> "Linear":
        """Quantises a torch.nn.Linear, whose in_features is a multiple of 16.

        zero_scale   "modelopt", "compressed-tensors" or "ggml": the scale of a block
                     of zeros, see nibblas.quantize()
        input_scale  the global scale of x, found by calibration, where x is quantised
                     to NVFP4; None: x is quantised by its own largest value
        activations  None, "dense", "int8" or "nvfp4", see Linear
        global_scale of the weights, float32 []; None: their largest value over 2688,
                     or over 1536 unless scales is "amax"
        scales       "amax", "four-six" or "mse": the scale of a block, see
                     nibblas.quantize()

        Raises ArgumentError."""
        choose("zero_scale", zero_scale, ZERO_SCALES)
        choose("scales", scales, SCALE_RULES)
        weight = linear.weight.detach()
        made = cls(linear.in_features, linear.out_features,
                   linear.bias is not None, weight.device, weight.dtype,
                   activations)
        codes, blocks, scale = torch.ops.nibblas.quantize(
            weight, global_scale, "linear", zero_scale, scales=scales)
        made._buffers["weight"].copy_(codes)
        made._buffers["weight_scale"].copy_(blocks)
        made.weight_scale_2.copy_(scale)
        if input_scale is not None:
            made.input_scale.fill_(float(input_scale))
        if linear.bias is not None:
            made.bias.data.copy_(linear.bias.detach())
        made.train(linear.training)
        made.pack()
        return made

    @classmethod
    def from_layer(cls, layer: Layer, bias: Tensor | None = None, device: Any = None,
                   activations: "ActivationsName | None" = None) -> "Linear":
        """Takes a layer of nibblas.Checkpoint, of either format, and a bias [out];
        activations as in Linear.  Raises ArgumentError for a stack of matrices, and for
        a layer of AWQ, whose x nibblas.transformers multiplies."""
        if layer.codes.ndim != 2:
            raise ArgumentError(f"layer {layer.name}: a stack of "
                                f"{layer.codes.shape[0]} matrices; must be one",
                                "layer")
        if layer.pre_quant_scale is not None:
            raise ArgumentError(f"layer {layer.name}: has a pre_quant_scale, by which "
                                "a Linear does not multiply x; nibblas.transformers "
                                "does",
                                "layer")
        rows, half = layer.codes.shape
        made = cls(2 * half, rows, bias is not None, device,
                   None if bias is None else bias.dtype, activations)
        made._buffers["weight"].copy_(torch.tensor(layer.codes, device="cpu"))
        made._buffers["weight_scale"].view(torch.uint8).copy_(
            torch.tensor(layer.scales, device="cpu"))
        made.weight_scale_2.fill_(layer.global_scale)
        made.input_scale.fill_(layer.input_global_scale or 0.0)
        if bias is not None:
            made.bias.data.copy_(bias)
        made.pack()
        return made

    def pack(self) -> None:
        """Packs the weights now, and reads input_scale.  On a CPU the packed form is
        all that is kept."""
        if (not self._keep_only_packed() and not self.is_only_packed
                and self.codes.is_cuda):
            self._packed.refresh(self.codes, self.weight_scale)
        self._packed.rescale()
        self._must_quantize = _must_quantize(self.weight_scale_2)
        if not self.input_scale.is_meta:
            self._has_input_scale = self.input_scale.item() != 0

    def set_input_scale(self, scale: float) -> None:
        """Makes the layer W4A4 by this global scale of x, from 2^-126, the least normal
        float32, on; 6 times it must be finite.  Raises ArgumentError."""
        if not LEAST_SCALE <= scale <= torch.finfo(torch.float32).max / 6:
            raise ArgumentError(f"scale = {scale}: must be at least 2^-126, and 6 "
                                "times it finite", "scale")
        self.input_scale.fill_(scale)
        self._has_input_scale, self.activations = True, "nvfp4"

    def _layers(self) -> "list[LayerWeights]":
        return [self._packed]

    def _codes_and_scales(self, tensors: "dict[str, Tensor]"
                          ) -> "list[tuple[Tensor, Tensor]]":
        return [(tensors["weight"], tensors["weight_scale"])]

    def _unpacked(self) -> "dict[str, Tensor]":
        return dict(zip(self._WEIGHTS, self._packed.unpack()))

    @property
    def codes(self) -> Tensor:
        """The codes, weight of state_dict(); on a CPU the layer keeps them, once they
        were read."""
        return self._weight("weight")

    @property
    def weight_scale(self) -> Tensor:
        """The scales of blocks, as codes."""
        return self._weight("weight_scale")

    def dequantize(self, dtype: "torch.dtype | None" = None) -> Tensor:
        """The weights as floats [out, in], of compute_dtype or another."""
        own = self._buffers
        codes, scales = (own.get(name) for name in self._WEIGHTS)
        if codes is None and scales is None:
            codes, scales = torch.ops.nibblas._unpacked.default(
                own["weight_scale_2"], self._packed.number, self.out_features,
                self.in_features)
        elif codes is None or scales is None:
            codes, scales = self._tensors().values()
        return torch.ops.nibblas.dequantize.default(
            codes, scales, own["weight_scale_2"], dtype or self.compute_dtype, "linear")

    def _scale(self, how: str, number: Any) -> None:
        getattr(self._buffers["weight_scale_2"], how)(number)

    def _device(self) -> torch.device:
        return self._buffers["weight_scale_2"].device

    def forward(self, x: Tensor) -> Tensor:
        """Takes x [.., in] of float32, float16 or bfloat16, with any strides, and
        returns [.., out] of the same type."""
        if x.requires_grad and torch.is_grad_enabled():
            own = self._buffers
            weights = [own.get(name) for name in self._WEIGHTS]
            if (weights[0] is None) != (weights[1] is None):
                weights = self._tensors().values()
            return _StraightThrough.apply(x, self, *weights, own["weight_scale_2"])
        return self.multiply(x)

    def multiply(self, x: Tensor) -> Tensor:
        """forward(x) without a gradient."""
        # Quicker than attributes, which torch looks up in several places.
        own, activations = self._buffers, self.activations
        codes, scales = own.get("weight"), own.get("weight_scale")
        if codes is None or scales is None:
            if codes is not scales:
                # One tensor was replaced while both were packed, perhaps for this call
                # only.
                codes, scales = self._tensors().values()
            elif _is_exporting():
                raise UnsupportedError("the weights are packed for this process only: "
                                       "call unpack() before torch.export")
        quantize = activations == "nvfp4" or (activations is None
                                              and self._must_quantize)
        alpha, bias = own["weight_scale_2"], self.bias
        if (codes is None and not quantize and not torch.compiler.is_compiling()
                and needs_no_dispatch(x, alpha, bias) and x.is_contiguous()):
            return of_floats(Cpu, x, self._packed.only_packed(), alpha, bias,
                             activations)
        return torch.ops.nibblas._linear.default(
            x, codes, scales, self._packed.number, self.out_features, alpha, bias,
            own["input_scale"] if quantize and self._has_input_scale else None,
            quantize, None if quantize else activations)

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, "
                f"out_features={self.out_features}, "
                f"bias={self.bias is not None}, "
                f"activations={self.activations!r}")

    def _apply(self, fn, recurse=True):
        self.compute_dtype = self._checked_type(fn)
        if not self._stays_on_cpu(fn):
            self.unpack()
        kept = dict(self._buffers)
        super()._apply(fn, recurse)
        restore_types(self, kept)
        # Does not pack now: after to_empty() the weights have no values yet.
        self._packed.forget()
        self._must_quantize = _must_quantize(self._buffers["weight_scale_2"])
        return self

    def _load_from_state_dict(self, state_dict, prefix, *args):
        # Checkpoints without it quantise x by its own amax.
        state_dict.setdefault(prefix + "input_scale",
                              torch.zeros_like(self.input_scale))
        if prefix + "comfy_quant" in state_dict:
            take_comfy(state_dict, prefix, self.out_features)
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.pack()

    def __getstate__(self) -> dict[str, Any]:
        # pickle does not support torch's float8 (torch.save() does).
        state = super().__getstate__()
        buffers = state["_buffers"]
        buffers["weight_scale"] = buffers["weight_scale"].view(torch.uint8)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._buffers["weight_scale"] = self._buffers["weight_scale"].view(
            torch.float8_e4m3fn)
        # Files of older versions have no "_packed".
        packed, self._packed = self.__dict__.get("_packed"), LayerWeights()
        self._must_quantize = _must_quantize(self._buffers["weight_scale_2"])
        if packed:
            self.pack()
