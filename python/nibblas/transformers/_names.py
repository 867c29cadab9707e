# SPDX-License-Identifier: Apache-2.0
"""_names.py - the tensors of a quantised layer under the names of the files and of the
model: renamings by which scales follow the weight that they belong to, and the way back
from a tensor of the model to the files, for messages."""

import copy
from typing import NamedTuple

from transformers.core_model_loading import (WeightConverter, WeightRenaming,
                                             dot_natural_key, rename_source_key)

from nibblas.transformers import _formats as formats


class Origin(NamedTuple):
    """The tensors of the files that one tensor of the model is made of.

    parts    [[Stored, ...], ...]: one list for each of the equal parts of its rows
             (gate, up); in a list one tensor for each expert, or one for all of them
    missing  the numbers of experts whose tensor no file has"""

    parts: list
    missing: tuple = ()

    def at(self, index=(0, 0), rows=1):
        """The Stored of the element `index`; rows: of the tensor."""
        expert, row = (*index, 0, 0)[:2]
        part = self.parts[row * len(self.parts) // rows]
        return part[expert] if len(part) > 1 else part[0]

    def first_bad(self, is_bad, offset=0):
        """(Stored, index) of the first element that is bad.

        is_bad  a tensor of bool, of the shape of the model's
        offset  the number of the first expert in it"""
        index = tuple(is_bad.nonzero()[0].tolist())
        first = (index[0] + offset, *index[1:]) if index else index
        return self.at(first, is_bad.shape[1] if is_bad.dim() > 1 else 1), index


class Renamed(WeightRenaming):
    """Gives single tensors other names; transformers applies it after its own
    renamings, and its reverse before theirs when it saves.

    names  {name: new name}"""

    __slots__ = ("names",)

    def __init__(self, names):
        # WeightRenaming has one pattern, which this class does not use.
        super().__init__("nibblas", "nibblas")
        self.names = names

    def rename_source_key(self, source_key):
        renamed = self.names.get(source_key)
        if renamed is None:
            return source_key, None
        self._was_used = True
        return renamed, self.source_patterns[0]

    def reverse_transform(self):
        return Renamed({new: old for old, new in self.names.items()})


def _copies(conversions):
    """(renamings, converters): copies, because transformers saves a model by those that
    remember that they were used."""
    copies = copy.deepcopy(conversions)
    return ([x for x in copies if isinstance(x, WeightRenaming)],
            [x for x in copies if isinstance(x, WeightConverter)])


def following(layers, conversions):
    """[Renamed] for the scales that transformers' patterns leave where they are while
    the weight moves, because a pattern is of `.weight` only; [] for none.

    layers       of _formats
    conversions  by which transformers loads the model"""
    renamings, converters = _copies(conversions)

    def renamed(name, converters):
        return rename_source_key(name, renamings, converters)[0]

    names = {}
    for layer in sorted(layers, key=lambda x: x.name):
        form = layer.format
        # A stack has a converter of its own, if any; of single experts each tensor has.
        own = converters if form.is_stack else []
        moved = renamed(layer.name + form.leaf, own)
        if not moved.endswith(form.leaf):
            layer.codes.fail(f"transformers renames {layer.name}{form.leaf} to "
                             f"{moved}, and scales cannot follow")
        stem = moved[:len(moved) - len(form.leaf)]
        for suffix in form.suffixes():
            wanted = stem + ("" if form.is_stack and suffix == form.codes else suffix)
            if renamed(layer.name + suffix, own) != wanted:
                names[renamed(layer.name + suffix, [])] = wanted
    return [Renamed(names)] if names else []


def targets(names, conversions, model):
    """The names in the model that tensors of the files are loaded under, and those that
    are tied to others.

    conversions  by which transformers loads the model"""
    renamings, converters = _copies(conversions)
    prefix, state = model.base_model_prefix, model.state_dict()
    found = set(getattr(model, "all_tied_weights_keys", None) or {})
    # Some renamings depend on those before them, in transformers' order.
    for name in sorted(names, key=dot_natural_key):
        renamed = rename_source_key(name, renamings, converters, prefix, state)[0]
        if renamed not in state and name in state:
            renamed = rename_source_key(name, [], [], prefix, state)[0]
        found.add(renamed)
    return found
