# SPDX-License-Identifier: Apache-2.0
"""vllm_router.py - a plug-in of vLLM for test_vllm.py: the router of experts in torch.
vLLM 0.24 has no kernel of it for CPUs; 0.32 needs none."""


def register():
    import torch
    from vllm import _custom_ops

    if hasattr(torch.ops._moe_C, "topk_softmax"):
        return

    def topk_softmax(weights, ids, _, logits, renormalize=False, *unused):
        found, places = logits.float().softmax(-1).topk(ids.shape[1])
        weights.copy_(found / found.sum(-1, True) if renormalize else found)
        ids.copy_(places)

    _custom_ops.topk_softmax = topk_softmax
