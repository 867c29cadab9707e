# SPDX-License-Identifier: Apache-2.0
"""_siblings.py - linear layers with the same input.  Engines fuse them into one layer,
so they need a common global scale.  The names and the rule are those of `nib quantize`
(cli/tensor.c); tests/python/test_torch_weight.py compares them."""

import collections

import torch

from nibblas.torch._convert import amax_on_device, global_of

SETS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("w1", "w3"),
        ("q_a_proj", "kv_a_proj_with_mqa"), ("in_proj_qkv", "in_proj_z"),
        ("in_proj_b", "in_proj_a"), ("query", "key", "value"),
        ("query_proj", "key_proj", "value_proj"), ("to_q", "to_k", "to_v"),
        ("add_q_proj", "add_k_proj", "add_v_proj"), ("wq", "wk", "wv"), ("q", "k", "v"),
        ("q_lin", "k_lin", "v_lin"), ("linear_q", "linear_k", "linear_v"),
        ("gate", "up"), ("wi_0", "wi_1"))
_SET_OF = {name: number for number, names in enumerate(SETS) for name in names}


def shared_scales(linears, rule):
    """{name: global scale} of the layers that share one, the largest of theirs.

    linears  {name: torch.nn.Linear} that are quantised
    rule     scales of nibblas.quantize()"""
    fused, scales = collections.defaultdict(list), {}
    for name in linears:
        stem, _, leaf = name.rpartition(".")
        if leaf in _SET_OF:
            fused[stem, _SET_OF[leaf]].append(name)
    for names in fused.values():
        if len(names) > 1:
            largest = [amax_on_device(linears[name].weight.detach()) for name in names]
            scale = global_of(torch.stack([x.to(largest[0].device)
                                           for x in largest]).amax(), rule)
            scales.update((name, scale.to(linears[name].weight.device))
                          for name in names)
    return scales
