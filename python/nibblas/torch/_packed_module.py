# SPDX-License-Identifier: Apache-2.0
"""_packed_module.py - modules that keep only the packed form of their weights on a CPU,
and unpack the tensors, bit for bit, when they are read or copied."""

from typing import Any

import torch
from torch import Tensor, nn

from nibblas.torch._weights import LayerWeights, State


class PackedModule(nn.Module):
    """A module whose buffers _WEIGHTS are None while their packed form is the only one.
    A subclass has a property for each of them, which calls _weight()."""

    _WEIGHTS: "tuple[str, ...]" = ()

    def _layers(self) -> "list[LayerWeights]":
        """The packed forms, to which the operator refers by their numbers."""
        raise NotImplementedError

    def _codes_and_scales(self, tensors: "dict[str, Tensor]"
                          ) -> "list[tuple[Tensor, Tensor]]":
        """(codes, scales) of each of _layers(), views of the tensors of _WEIGHTS."""
        raise NotImplementedError

    def _unpacked(self) -> "dict[str, Tensor]":
        """New tensors for _WEIGHTS, from the packed forms."""
        raise NotImplementedError

    @property
    def is_only_packed(self) -> bool:
        """Whether the packed form is the only form of the weights."""
        return self._has_only_packed() and len(self._released()) == len(self._WEIGHTS)

    def _has_only_packed(self) -> bool:
        """Whether the layers have packed forms without tensors.  Other tensors may have
        replaced some of _WEIGHTS, as in torch.func.functional_call()."""
        return self._layers()[0].cached.state is State.ONLY_PACKED

    def _released(self) -> "list[str]":
        """The names of _WEIGHTS that have no tensor now."""
        return [name for name in self._WEIGHTS if self._buffers.get(name) is None]

    def _tensors(self) -> "dict[str, Tensor]":
        """The weights as tensors, unpacked where there are none; changes nothing."""
        unpacked = self._unpacked() if self._released() else {}
        return {name: unpacked[name] if self._buffers.get(name) is None
                else self._buffers[name] for name in self._WEIGHTS}

    def _keep_only_packed(self) -> bool:
        """Packs weights that are tensors of a CPU and drops the tensors.  Returns
        whether it did."""
        if len(self._released()) == len(self._WEIGHTS):
            return False
        tensors = self._tensors()
        if not all(x.is_cpu for x in tensors.values()):
            return False
        parts = self._codes_and_scales(tensors)
        forms = [LayerWeights.pack_on_cpu(*part) for part in parts]
        for layer, packed in zip(self._layers(), forms):
            layer.keep_only(packed)
        self._buffers.update(dict.fromkeys(self._WEIGHTS))
        return True

    def unpack(self) -> None:
        """Unpacks the weights to tensors, bit for bit those that were packed.  Both
        forms are kept until pack()."""
        if not self._has_only_packed():
            return
        unpacked, released = self._unpacked(), self._released()
        for layer, part in zip(self._layers(), self._codes_and_scales(unpacked)):
            layer.keep_tensors(*part)
        self._buffers.update({name: unpacked[name] for name in released})
        if len(released) < len(self._WEIGHTS):
            for layer in self._layers():
                layer.forget()

    def _weight(self, name: str) -> Tensor:
        if self.is_only_packed:
            self.unpack()
        tensor = self._buffers.get(name)
        # None if another one was replaced, perhaps for one call: a new tensor.
        return self._tensors()[name] if tensor is None else tensor

    def _stays_on_cpu(self, fn: Any) -> bool:
        """Whether _apply(fn) keeps packed weights on the CPU."""
        return self.is_only_packed and fn(torch.empty(
            0, dtype=torch.uint8, device="cpu")).is_cpu

    def _save_to_state_dict(self, destination: Any, prefix: str,
                            keep_vars: bool) -> None:
        # Does not change the module, since another thread may be multiplying.
        unpacked = self._tensors() if self._released() else {}
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in self._buffers if unpacked else ():
            value = destination.pop(prefix + name, unpacked.get(name))
            if value is not None:
                destination[prefix + name] = value

    def _load_from_state_dict(self, *args: Any) -> None:
        self.unpack()
        super()._load_from_state_dict(*args)

    def __getstate__(self) -> "dict[str, Any]":
        return {**self.__dict__, "_buffers": {**self._buffers, **self._tensors()},
                "_packed": self._has_only_packed()}
