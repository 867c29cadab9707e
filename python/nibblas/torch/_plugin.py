# SPDX-License-Identifier: Apache-2.0
"""_plugin.py - what swap_linears() does in addition for models of another library.

nibblas.torch does not need transformers and does not import nibblas.transformers, which
imports nibblas.torch.  A support module is loaded by name when a model requires it, and
has

    unsavable(model)          {name: reason} of linear layers that could not be saved
    configure(model, left)    sets the configuration of a swapped model
    swap_experts(model, zero_scale, activations, scales)
                              (names of swapped experts, {name: reason} of the
                               others)"""

import importlib
import sys

_TRANSFORMERS = "nibblas.transformers._swap"


def transformers_support():
    """The support module for models of transformers.  Raises ImportError without a
    transformers that nibblas.transformers can use."""
    return importlib.import_module(_TRANSFORMERS)


def support_of(model):
    """The support module for this model, or None if its library has none."""
    modeling = sys.modules.get("transformers.modeling_utils")
    if modeling is None or not isinstance(model, modeling.PreTrainedModel):
        return None
    try:
        return transformers_support()
    except ImportError:
        return None  # A version before 5.12, which loads no NVFP4 either.
