# SPDX-License-Identifier: Apache-2.0
"""_calibrate.py - input scales of linear layers from data, by ModelOpt's rule: the
largest |x| that a layer has seen over 6 * 448."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from nibblas._library import ArgumentError, DataError
from nibblas.torch import Linear
from nibblas.torch._convert import LARGEST
from nibblas.torch._linear import LEAST_SCALE
from nibblas.transformers import _experts


class _Largest:
    """A hook that keeps the largest |x| of a layer; it waits for no GPU."""

    def __init__(self):
        self.amax = None

    def __call__(self, module, args, named):
        x = args[0] if args else named["x"]
        smooth = getattr(module, "pre_quant_scale", None)
        if smooth is not None:
            x = x * smooth.to(x.dtype)
        if x.numel():
            amax = x.detach().abs().amax().float()
            self.amax = amax if self.amax is None else torch.maximum(self.amax, amax)


def _run(model, batches):
    count = 0
    with torch.no_grad():
        for batch in batches:
            model(**batch) if isinstance(batch, Mapping) else model(batch)
            count += 1
    if not count:
        raise ArgumentError("batches: has none; must have at least one", "batches")


def calibrate(model: nn.Module, batches: Iterable[Any]
              ) -> tuple[list[str], dict[str, str]]:
    """Gives the NVFP4 linear layers of a model input scales, by which W4A4 quantises x
    without a search for its largest value, and makes these layers W4A4.

    model    of transformers, or any other with nibblas.torch.Linear; is changed
    batches  each is given to the model: a mapping by name, anything else as it is

    x is not quantised meanwhile, where the device has kernels for that.
    save_pretrained() writes the scales as ModelOpt does.  Returns (names of the layers
    calibrated, {name: reason} of those left, and of experts).  Raises DataError for a
    layer whose x had an inf or NaN; the model is as it was then."""
    layers = {name: x for name, x in model.named_modules() if isinstance(x, Linear)}
    if not layers:
        raise ArgumentError("model: has no nibblas.torch.Linear", "model")
    before = {name: x.activations for name, x in layers.items()}
    found = {name: _Largest() for name in layers}
    hooks = [x.register_forward_pre_hook(found[name], with_kwargs=True)
             for name, x in layers.items()]
    try:
        for x in layers.values():
            x.activations = None if x._must_quantize else "dense"
        _run(model, batches)
    finally:
        for hook in hooks:
            hook.remove()
        for name, x in layers.items():
            x.activations = before[name]
    scales, left = {}, {}
    for name, one in found.items():
        amax = 0.0 if one.amax is None else one.amax.item()
        if amax != amax or amax == float("inf"):
            raise DataError(f"{name}: x had an inf or NaN: must be finite", name)
        if amax:
            scales[name] = max(amax / LARGEST, LEAST_SCALE)
        else:
            left[name] = "has seen no x but zeros"
    for name, scale in scales.items():
        layers[name].set_input_scale(scale)
    for name, x in model.named_modules():
        if isinstance(getattr(x, "nibblas", None), _experts.Stacks):
            left[name] = ("experts quantise x by its largest value, or the "
                          "checkpoint's scale")
    return list(scales), left
