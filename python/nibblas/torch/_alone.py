# SPDX-License-Identifier: Apache-2.0
"""_alone.py - modules that keep the packed form of their weights alone on a CPU, and
write the tensors back, bit for bit, where a module's tensors are read or copied."""

from typing import Any

import torch
from torch import Tensor, nn

from nibblas.torch._weights import LayerWeights


class PackedModule(nn.Module):
    """A module whose buffers _WEIGHTS are None while their packed form is all that there
    is of them.  A subclass has a property for each of them, which calls _read()."""

    _WEIGHTS: "tuple[str, ...]" = ()

    def _layers(self) -> "list[LayerWeights]":
        """What the operator calls the packed forms by."""
        raise NotImplementedError

    def _parts(self, tensors: "dict[str, Tensor]") -> "list[tuple[Tensor, Tensor]]":
        """(codes, scales) of each of _layers(), views of the tensors of _WEIGHTS."""
        raise NotImplementedError

    def _made(self) -> "dict[str, Tensor]":
        """The tensors of _WEIGHTS, made anew of the packed forms."""
        raise NotImplementedError

    @property
    def is_packed_alone(self) -> bool:
        """Whether the packed form is all that is kept of the weights."""
        return self._layers()[0].alone is not None

    def _is_partly_packed(self) -> bool:
        """Whether some of the tensors were replaced while they were packed."""
        gone = [self._buffers.get(name) is None for name in self._WEIGHTS]
        return any(gone) and not all(gone)

    def _pack_alone(self) -> bool:
        """Packs weights that are tensors of a CPU, and lets these go; whether it did."""
        if self._is_partly_packed():
            self.unpack()
        own = self._buffers
        tensors = {name: own.get(name) for name in self._WEIGHTS}
        if not all(x is not None and x.is_cpu for x in tensors.values()):
            return False
        parts = self._parts(tensors)
        packed = [LayerWeights.packed(*part) for part in parts]
        for layer, one in zip(self._layers(), packed):
            layer.keep_alone(one)
        own.update(dict.fromkeys(self._WEIGHTS))
        return True

    def unpack(self) -> None:
        """Gives the weights a place as tensors, bit for bit those that were packed; until
        pack() both forms are kept."""
        if not self.is_packed_alone:
            return
        made = self._made()
        for layer, part in zip(self._layers(), self._parts(made)):
            layer.release(*part)
        partly = self._is_partly_packed()
        for name, x in made.items():
            if self._buffers.get(name) is None:
                self._buffers[name] = x
        if partly:
            for layer in self._layers():
                layer.forget()

    def _read(self, name: str) -> Tensor:
        self.unpack()
        return self._buffers[name]

    def _stays(self, fn: Any) -> bool:
        """Whether what _apply() does to tensors leaves packed weights where they are."""
        return self.is_packed_alone and fn(torch.empty(0, dtype=torch.uint8)).is_cpu

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        packed = self.is_packed_alone
        if packed:
            self._buffers.update(self._made())
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if packed:
            self._buffers.update(dict.fromkeys(self._WEIGHTS))

    def _load_from_state_dict(self, *args: Any) -> None:
        self.unpack()
        super()._load_from_state_dict(*args)

    def __getstate__(self) -> "dict[str, Any]":
        packed = self.is_packed_alone
        buffers = {**self._buffers, **(self._made() if packed else {})}
        return {**self.__dict__, "_buffers": buffers, "_packed": packed}
