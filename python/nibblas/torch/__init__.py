# SPDX-License-Identifier: Apache-2.0
"""NVFP4 in PyTorch: importing this registers torch.ops.nibblas, for CPU and CUDA
tensors, torch.compile and CUDA graphs."""

from nibblas.torch import _operators  # registers the operators
