# SPDX-License-Identifier: Apache-2.0
"""_experts.py - a layer of experts as a module: weights and scales as checkpoints store
them, stacked, and how it is computed."""

from typing import Any

import torch
from torch import Tensor

from nibblas._library import ArgumentError
from nibblas._views import SCALE_RULES, ZERO_SCALES, choose
from nibblas.torch._packed_module import PackedModule
from nibblas.torch._moe import ACTIVATIONS, halves
from nibblas.torch._weights import LayerWeights

# The tensors that have a row for each expert.
_STACKS = ("w13", "w13_scale", "w13_scale_2", "w2", "w2_scale", "w2_scale_2")


def _quantize(weights, zero_scale, scales):
    """(codes, scales, global scales) of stacks; each matrix has a global scale."""
    parts = [torch.ops.nibblas.quantize(w, None, "linear", zero_scale, scales=scales)
             for w in weights]
    codes, blocks, scale = zip(*parts)
    return (torch.stack(codes),
            torch.stack([s.view(torch.uint8) for s in blocks]).view(
                torch.float8_e4m3fn), torch.stack(scale).reshape(-1))


class MoE(PackedModule):
    """The experts of a MoE layer; routing stays with the model.

        w13          uint8 [experts, 2 * width, k/2]: gate above up (with "relu2"
                     only one of them), w13_scale float8_e4m3fn [.., k/16]
        w13_scale_2  float32 [experts], the global scales
        w2           uint8 [experts, cols, width/2], w2_scale, w2_scale_2
        input_scale, hidden_scale
                     float32 []: the global scales of x and h (the input of the last
                     product), where they are quantised (W4A4)

    is_quantized     True: x and h are quantised to NVFP4
    activation       "swiglu", "swiglu_clamped", "gelu" or "relu2"
    limit, swiglu_alpha, up_bias
                     numbers of "swiglu_clamped"
    expert_offset    the id of the first expert here; slots of others are left out

    On a CPU the weights are packed when the layer is made or loaded, and only the
    packed form is kept, as in nibblas.torch.Linear.  state_dict() and deepcopy() unpack
    the tensors; reading w13 does too, and the layer keeps them until pack().  On a GPU
    the first product copies the scales, 0.0625 bytes a value.  Weights that have moved
    or changed are packed again if torch has counted the change."""

    _WEIGHTS = ("w13", "w13_scale", "w2", "w2_scale")
    w13_scale_2: Tensor
    w2_scale_2: Tensor
    input_scale: Tensor
    hidden_scale: Tensor

    def __init__(self, w13: "tuple[Tensor, Tensor, Tensor]",
                 w2: "tuple[Tensor, Tensor, Tensor]",
                 input_scale: "Tensor | float | None" = None,
                 hidden_scale: "Tensor | float | None" = None,
                 activation: str = "swiglu", expert_offset: int = 0,
                 limit: float = 7.0, swiglu_alpha: float = 1.702,
                 up_bias: float = 1.0) -> None:
        """w13, w2: (codes, linear scales, global scales) of stacks.  Without
        input_scale and hidden_scale x is multiplied as it is (W4A16)."""
        super().__init__()
        choose("activation", activation, ACTIVATIONS)
        if (input_scale is None) != (hidden_scale is None):
            raise ArgumentError("hidden_scale: must be given with input_scale, and "
                                "only with it", "hidden_scale")
        self.activation = activation
        self.options = {"limit": limit, "swiglu_alpha": swiglu_alpha,
                        "up_bias": up_bias}
        self.expert_offset = expert_offset
        self.is_quantized = input_scale is not None
        self._packed = [LayerWeights() for _ in range(3)]
        self._sizes = w13[0].shape[0], w2[0].shape[1]
        for name, tensor in zip(_STACKS, (*w13, *w2)):
            # register_buffer() would refuse these names, because they are properties.
            self._buffers[name] = tensor
        for name, scale in (("input_scale", input_scale),
                            ("hidden_scale", hidden_scale)):
            self.register_buffer(name, torch.as_tensor(
                1.0 if scale is None else scale, dtype=torch.float32,
                device=w13[0].device))
        self.pack()

    def pack(self) -> None:
        """On a CPU: packs the weights now and keeps only the packed form."""
        self._keep_only_packed()

    def _layers(self) -> "list[LayerWeights]":
        gate, up, down = self._packed
        return [gate, down] if self.activation == "relu2" else [gate, up, down]

    def _codes_and_scales(self, tensors: "dict[str, Tensor]"
                          ) -> "list[tuple[Tensor, Tensor]]":
        (gate, up), (gate_scales, up_scales) = (
            halves(tensors[name], self.activation, False) for name in self._WEIGHTS[:2])
        first = [(gate, gate_scales)] + [(up, up_scales)] * (up is not None)
        return [*first, (tensors["w2"], tensors["w2_scale"])]

    def _unpacked(self) -> "dict[str, Tensor]":
        *first, down = (layer.unpack() for layer in self._layers())
        codes, scales = zip(*first)
        bytes_ = [x.view(torch.uint8) for x in scales]
        w13 = torch.cat(codes, 1), torch.cat(bytes_, 1).view(torch.float8_e4m3fn)
        return dict(zip(self._WEIGHTS, (*w13, *down)))

    @property
    def w13(self) -> Tensor:
        """The codes of gate and up.  On a CPU the layer keeps them after they have been
        read."""
        return self._weight("w13")

    @property
    def w13_scale(self) -> Tensor:
        """The block scales of gate and up, kept as w13 is."""
        return self._weight("w13_scale")

    @property
    def w2(self) -> Tensor:
        """The codes of down, kept as w13 is."""
        return self._weight("w2")

    @property
    def w2_scale(self) -> Tensor:
        """The block scales of down, kept as w13 is."""
        return self._weight("w2_scale")

    @classmethod
    def from_weights(cls, w13: Tensor, w2: Tensor, zero_scale: str = "modelopt",
                     scales: str = "amax", **arguments: Any) -> "MoE":
        """Quantises stacks of floats [experts, 2 * width, k] and
        [experts, cols, width]; zero_scale and scales are those of
        Linear.from_linear(), the other arguments those of MoE."""
        choose("zero_scale", zero_scale, ZERO_SCALES)
        choose("scales", scales, SCALE_RULES)
        return cls(_quantize(w13, zero_scale, scales),
                   _quantize(w2, zero_scale, scales), **arguments)

    @property
    def experts(self) -> int:
        """Returns the number of experts of this layer."""
        return self._sizes[0]

    def part(self, first: int, end: int) -> "MoE":
        """Returns a copy of the experts first .. end-1 of this layer, with all of their
        scales, so that the others can be freed."""
        if not 0 <= first < end <= self.experts:
            raise ArgumentError(f"first, end = {first}, {end}: must be a range of "
                                f"the {self.experts} experts", "first")
        own = {**self._buffers, **self._tensors()}
        stacks = [own[name][first:end].clone() for name in _STACKS]
        scales = ((self.input_scale, self.hidden_scale) if self.is_quantized
                  else (None, None))
        return type(self)(tuple(stacks[:3]), tuple(stacks[3:]), *scales,
                          self.activation, self.expert_offset + first,
                          **self.options)

    def quantize(self, x: Tensor) -> "tuple[Tensor, Tensor]":
        """Returns x [tokens, k] as this layer multiplies it: codes and linear
        scales."""
        codes, scales, _ = torch.ops.nibblas.quantize.default(
            x, self.input_scale, "linear", "modelopt", True)
        return codes, scales

    def forward(self, x: Tensor, topk_ids: Tensor, topk_weights: Tensor,
                x_scales: "Tensor | None" = None,
                expert_offset: "int | None" = None,
                out_dtype: "torch.dtype | None" = None) -> Tensor:
        """Takes x [tokens, k] with any strides, or its codes with x_scales, and ids and
        weights [tokens, slots], and returns [tokens, cols]."""
        if x.dim() == 2 and x.stride(1) != 1:
            x = x.contiguous()
        alpha13, alpha2 = self.w13_scale_2, self.w2_scale_2
        x_global = h_global = None
        if self.is_quantized:
            alpha13, alpha2 = alpha13 * self.input_scale, alpha2 * self.hidden_scale
            x_global = self.input_scale if x_scales is None else None
            h_global = self.hidden_scale
        weights = [self._buffers.get(name) for name in self._WEIGHTS]
        if 0 < weights.count(None) < len(weights):
            # Some tensors were replaced while all were packed, perhaps for this call
            # only.
            weights = self._tensors().values()
        return torch.ops.nibblas.moe(
            x, topk_ids, topk_weights, *weights,
            alpha13, alpha2, x_global, h_global, self.activation,
            self.expert_offset if expert_offset is None else expert_offset,
            x_scales, out_dtype=out_dtype, **self.options,
            packed=[w.number for w in self._packed], cols=self._sizes[1])

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self.pack()

    def _apply(self, fn, recurse=True):
        if not self._stays_on_cpu(fn):
            self.unpack()
        # half() and to(bfloat16) must not change the types of codes and scales.
        kept = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, old in kept.items():
            moved = self._buffers[name]
            if old is not None and moved.dtype != old.dtype:
                self._buffers[name] = old.to(moved.device)
        for weights in self._packed:
            weights.forget()
        return self

    def __setstate__(self, state: "dict[str, Any]") -> None:
        super().__setstate__(state)
        packed, self._packed = self._packed, [LayerWeights() for _ in range(3)]
        if packed:
            self.pack()

    def extra_repr(self) -> str:
        return (f"experts={self.experts}, expert_offset={self.expert_offset}, "
                f"activation={self.activation!r}, "
                f"is_quantized={self.is_quantized}")
