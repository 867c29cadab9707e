# SPDX-License-Identifier: Apache-2.0
"""NVFP4 in PyTorch.

swap_linears() puts NVFP4 into a model, Linear is one layer of it, MoE a layer of
experts.  Importing this module registers torch.ops.nibblas for CPU and CUDA tensors,
torch.compile and CUDA graphs; scaled_mm, scaled_grouped_mm and _scaled_mm take torch's
own arguments."""

from nibblas.torch import _operators
from nibblas.torch._experts import MoE
from nibblas.torch._linear import Linear
from nibblas.torch._scaled_mm import _scaled_mm, scaled_grouped_mm, scaled_mm
from nibblas.torch._swap import swap_linears
from nibblas.torch._weights import pack

__all__ = ["Linear", "MoE", "_scaled_mm", "pack", "scaled_grouped_mm", "scaled_mm",
           "swap_linears"]
