# SPDX-License-Identifier: Apache-2.0
"""_dense.py - the weights of a quantised linear layer as floats, for programs that read
linear.weight: models that look at its type or multiply by it themselves, and adapters
that are merged into it."""

import functools
from typing import Any

import torch
from torch import Tensor, nn

from nibblas._library import ArgumentError, UnsupportedError

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


_aten = torch.ops.aten
# Writes that are allowed: multiplications by one number, which change the global scale.
SCALING = {_aten.mul_.Tensor: "mul_", _aten.mul_.Scalar: "mul_",
           _aten.div_.Tensor: "div_", _aten.div_.Scalar: "div_"}


def _is_number(x):
    return not isinstance(x, Tensor) or x.dim() == 0 and not isinstance(x, DenseWeight)


class DenseWeight(Tensor):
    """The weights of a layer [out, in] as a tensor of floats.  Reading its shape, type
    and device costs nothing.  Each operation that reads values dequantises them again;
    nothing is cached.  Values cannot be written, but mul_() and div_() by one number
    change the layer's global scale (RWKV scales all layers in this way).  Assigning to
    .data, as merging an adapter does, turns the layer into a torch.nn.Linear with these
    weights."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, layer: "DenseView") -> "DenseWeight":
        made = Tensor._make_wrapper_subclass(
            cls, (layer.out_features, layer.in_features), dtype=layer.compute_dtype,
            device=layer._device())
        made.layer = layer
        # transformers does not initialise tensors that have this attribute.
        made._is_hf_initialized = True
        return made

    def dense(self) -> Tensor:
        """A new tensor of these values."""
        return self.layer.dequantize()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in SCALING and isinstance(args[0], DenseWeight) and _is_number(args[1]):
            args[0].layer._scale(SCALING[func], args[1])
            return args[0]
        for given, one in zip(func._schema.arguments, args):
            if isinstance(one, DenseWeight) and given.is_write:
                one._refuse(func)
        if isinstance(kwargs.get("out"), DenseWeight):
            kwargs["out"]._refuse(func)
        values = torch.utils._pytree.tree_map_only(
            DenseWeight, DenseWeight.dense, (args, kwargs))
        return func(*values[0], **values[1])

    def _refuse(self, what: Any) -> None:
        raise UnsupportedError(
            f"weight: {what} writes to it, but the layer keeps quantised weights, "
            "which are dequantised for each reader: write to a torch.nn.Linear, "
            "layer.to_linear(), or load quantised tensors by "
            "load_state_dict()", "weight")

    @property
    def data(self) -> "DenseWeight":  # type: ignore[override]
        return self

    @data.setter
    def data(self, value: Tensor) -> None:
        self.layer.make_dense(value)
        self.layer.was_quantised = True

    def __iadd__(self, other: Any) -> Tensor:  # type: ignore[override]
        return self.dense().add_(other)

    def __isub__(self, other: Any) -> Tensor:  # type: ignore[override]
        return self.dense().sub_(other)

    def __imul__(self, other: Any) -> Tensor:  # type: ignore[override]
        return self.dense().mul_(other)

    def data_ptr(self) -> int:
        raise UnsupportedError("weight: has no address: a kernel reads the layer's "
                               "weights as floats; layer.to_linear() keeps them "
                               "so", "weight")

    def numpy(self, **named: Any) -> Any:
        return self.dense().numpy(**named)

    def __repr__(self, **_named: Any) -> str:  # type: ignore[override]
        return repr(self.dense())

    def __deepcopy__(self, _memo: Any) -> Tensor:
        return self.dense()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.dense().__reduce_ex__(protocol)


def _new(name: str) -> Any:
    """A method of Tensor that returns the tensor itself if it has nothing to do."""
    method = getattr(Tensor, name)

    @functools.wraps(method)
    def call(self: DenseWeight, *arguments: Any, **named: Any) -> Any:
        got = method(self, *arguments, **named)
        return self.dense() if got is self else got
    return call


for _name in ("to", "type", "float", "half", "bfloat16", "cpu", "cuda", "contiguous"):
    setattr(DenseWeight, _name, _new(_name))


class DenseView(nn.Linear):
    """A linear layer of quantised weights that reads as a torch.nn.Linear: weight is a
    DenseWeight of the type that the layer computes in, which to(), half() and
    bfloat16() change.  A subclass has dequantize(), _scale() and _device()."""

    compute_dtype: torch.dtype = torch.float32

    def dequantize(self, dtype: "torch.dtype | None" = None) -> Tensor:
        """The weights as floats [out, in], of the layer's type or another."""
        raise NotImplementedError

    def _scale(self, how: str, number: Any) -> None:
        """Multiplies ("mul_") or divides ("div_") all weights by a number."""
        raise NotImplementedError

    def _device(self) -> torch.device:
        raise NotImplementedError

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The weights as floats, dequantised by each operation that reads them."""
        # A compiled graph removes it if nothing reads it.
        return self.dequantize() if torch.compiler.is_compiling() else DenseWeight(self)

    def to_linear(self, dtype: "torch.dtype | None" = None) -> nn.Linear:
        """A torch.nn.Linear of the dequantised weights, of the layer's type or
        another."""
        made = nn.Linear(self.in_features, self.out_features, self.bias is not None,
                         "meta", dtype or self.compute_dtype)
        made.weight = nn.Parameter(self.dequantize(made.weight.dtype),
                                   requires_grad=False)
        if self.bias is not None:
            made.bias = nn.Parameter(self.bias.detach().to(made.weight.dtype),
                                     requires_grad=False)
        return made.train(self.training)

    def make_dense(self, weight: Tensor) -> None:
        """Turns this module itself into a torch.nn.Linear with these weights."""
        if weight.shape != (self.out_features, self.in_features):
            raise ArgumentError(f"weight: {list(weight.shape)}: must be "
                                f"{[self.out_features, self.in_features]}", "weight")
        self._buffers.clear()
        self._non_persistent_buffers_set.clear()
        self.__dict__.pop("_packed", None)
        self.__class__ = nn.Linear  # type: ignore[assignment]
        self.weight = nn.Parameter(weight.detach(), requires_grad=False)

    def _checked_type(self, fn: Any) -> torch.dtype:
        """The layer's type after _apply(fn); refuses those that it cannot compute
        in."""
        kind = fn(torch.empty(0, dtype=self.compute_dtype, device="cpu")).dtype
        if kind not in FLOATS:
            raise UnsupportedError(
                f"dtype = {kind}: layers of quantised weights compute in float32, "
                "float16 or bfloat16; dequantize() of a model of transformers, or "
                "to_linear(), makes layers of "
                "floats", "dtype")
        return kind
