# SPDX-License-Identifier: Apache-2.0
"""_report.py - how each linear layer and each expert stack of a model computes."""

import collections
from typing import NamedTuple

from torch import nn

from nibblas.torch import Linear
from nibblas.transformers import _experts
from nibblas.transformers._linear import Fp8Linear

KINDS = {"nvfp4": "W4A4", None: "W4A16", "dense": "W4A16", "int8": "W4A8"}


class Row(NamedTuple):
    """One layer of a report.

    kind  "W4A4", "W4A8", "W4A16", "FP8", or the type of a layer that was left
    note  the format that it comes from, or why it was left"""

    name: str
    kind: str
    note: str


class Report(NamedTuple):
    """What nibblas.transformers.report() returns; str() is a table.

    rows          a Row for each linear layer and each stack of experts
    cache_scales  names of scales for a quantised kv cache, which are not used
    absent        quantised layers of the checkpoint that the model has no use for"""

    rows: tuple[Row, ...]
    cache_scales: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    def counts(self) -> dict[str, int]:
        """Returns how many layers there are of each kind."""
        return dict(collections.Counter(row.kind for row in self.rows))

    def __str__(self) -> str:
        width = max((len(row.name) for row in self.rows), default=0)
        lines = [f"{row.name:{width}}  {row.kind:5}  {row.note}" for row in self.rows]
        lines.append(", ".join(f"{n} {kind}" for kind, n in self.counts().items()))
        if self.cache_scales:
            lines.append(f"{len(self.cache_scales)} scales of the kv cache are not "
                         "used: the cache keeps the model's type")
        if self.absent:
            lines.append(f"{len(self.absent)} layers of the checkpoint are not in this "
                         f"model, first {self.absent[0]}")
        return "\n".join(lines)


def _kind(linear):
    return KINDS["nvfp4" if linear.activations is None and linear._must_quantize
                 else linear.activations]


def _linear_note(linear, kind):
    """The format that a layer comes from, and what is odd about it."""
    form = getattr(linear, "format", None)
    note = form.name if form else "swapped"
    if getattr(linear, "has_smooth", False):
        note += ", AWQ"
    if kind == "W4A4" and getattr(linear, "is_input_unusable", False):
        note += f", {form.input_global[1:]} not usable: x by its largest value"
    return note


def _experts_note(module, kind):
    """How many experts there are, and whose input scales are replaced."""
    note = f"{module.num_experts} experts"
    for one in module.nibblas.both() if kind == "W4A4" else ():
        if one.unusable:
            note += (f", {len(one.unusable)} input scales not usable, first "
                     f"{one.unusable[0]}: " + (
                         "x by its largest value" if one.is_dynamic else
                         "the largest of the others"))
    return note


def _why(quantizer, name, module):
    """Why a linear layer is not quantised."""
    if getattr(module, "was_quantised", False):
        return "its weights were written, as by merged adapters"
    if quantizer is None:
        return "not quantised"
    if name in quantizer.left:
        return quantizer.left[name]
    config = quantizer.quantization_config
    if any(config.ignores(x) for x in (name, quantizer.plan.plain.get(name, name))):
        return "the checkpoint's ignore list"
    return "stored so in the checkpoint"


def describe(quantizer, model):
    """The rows of a model; quantizer: None for one that was not loaded by nibblas."""
    rows = []
    for name, module in model.named_modules():
        if isinstance(module, Linear):
            kind = _kind(module)
            rows.append(Row(name, kind, _linear_note(module, kind)))
        elif isinstance(module, Fp8Linear):
            rows.append(Row(name, "FP8", "weights in FP8, activations as they are"))
        elif isinstance(getattr(module, "nibblas", None), _experts.Stacks):
            kind = KINDS[_experts.activations_of(module)]
            rows.append(Row(name, kind, _experts_note(module, kind)))
        elif type(module) is nn.Linear:
            kind = str(module.weight.dtype).removeprefix("torch.")
            rows.append(Row(name, kind, _why(quantizer, name, module)))
        elif not isinstance(module, nn.modules.conv._ConvNd) and any(
                x.dim() == 3 for x in module.parameters(recurse=False)):
            kind = str(next(module.parameters()).dtype).removeprefix("torch.")
            rows.append(Row(name, kind, "a stack of matrices that is not quantised"))
    return tuple(rows)
