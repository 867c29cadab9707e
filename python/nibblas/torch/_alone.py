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
        return self._has_alone() and len(self._gone()) == len(self._WEIGHTS)

    def _has_alone(self) -> bool:
        """Whether there are packed forms without tensors, though some of the tensors may
        have others in their place, as in torch.func.functional_call()."""
        return self._layers()[0].alone is not None

    def _gone(self) -> "list[str]":
        return [name for name in self._WEIGHTS if self._buffers.get(name) is None]

    def _tensors(self) -> "dict[str, Tensor]":
        """The weights as tensors, those that are gone made anew; changes nothing."""
        made = self._made() if self._gone() else {}
        return {name: made[name] if self._buffers.get(name) is None
                else self._buffers[name] for name in self._WEIGHTS}

    def _pack_alone(self) -> bool:
        """Packs weights that are tensors of a CPU, and lets these go; whether it did."""
        own = self._buffers
        if len(self._gone()) == len(self._WEIGHTS):
            return False
        tensors = self._tensors()
        if not all(x.is_cpu for x in tensors.values()):
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
        if not self._has_alone():
            return
        made, gone = self._made(), self._gone()
        for layer, part in zip(self._layers(), self._parts(made)):
            layer.release(*part)
        self._buffers.update({name: made[name] for name in gone})
        if len(gone) < len(self._WEIGHTS):
            for layer in self._layers():
                layer.forget()

    def _read(self, name: str) -> Tensor:
        if self.is_packed_alone:
            self.unpack()
        found = self._buffers.get(name)
        # The other tensor was replaced, perhaps for one call: this one is unpacked anew.
        return self._tensors()[name] if found is None else found

    def _stays(self, fn: Any) -> bool:
        """Whether what _apply() does to tensors leaves packed weights where they are."""
        return self.is_packed_alone and fn(torch.empty(
            0, dtype=torch.uint8, device="cpu")).is_cpu

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        # The module stays as it is: another thread may be multiplying.
        made = self._tensors() if self._gone() else {}
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in self._buffers if made else ():
            value = destination.pop(prefix + name, made.get(name))
            if value is not None:
                destination[prefix + name] = value

    def _load_from_state_dict(self, *args: Any) -> None:
        self.unpack()
        super()._load_from_state_dict(*args)

    def __getstate__(self) -> "dict[str, Any]":
        return {**self.__dict__, "_buffers": {**self._buffers, **self._tensors()},
                "_packed": self._has_alone()}
