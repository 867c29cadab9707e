# SPDX-License-Identifier: Apache-2.0
"""moe_operators.py - a layer of experts composed of operators of the package and of
torch: what torch.ops.nibblas.moe is compared with."""

import torch

from nibblas.torch._moe import _alphas, halves


def weighted_sum(rows, weights, dtype):
    """The sum over slots of rows [tokens, slots, cols] times weights in fp32, slot
    after slot, as the library adds them."""
    total = torch.zeros(rows.shape[0], rows.shape[2], dtype=torch.float32,
                        device=rows.device)
    for slot in range(rows.shape[1]):
        total += rows[:, slot] * weights[:, slot, None]
    return total.to(dtype)


def routes(ids, first, experts):
    """How slots are sorted by expert: (order of the slots, row_offsets, which slots are
    here [tokens, slots]), by operations whose sizes do not depend on the values."""
    local = ids.long() - first
    here = (local >= 0) & (local < experts)
    local = torch.where(here, local, experts).reshape(-1)
    order = torch.argsort(local, stable=True)
    ends = torch.arange(experts + 1, device=ids.device)
    return order, torch.searchsorted(local[order], ends).int(), here


def _h(g, activation, interleaved, limit, swiglu_alpha, up_bias):
    """h of the products g [rows, gate and up] in fp32."""
    if activation == "relu2":
        return g.relu().square()
    gate, up = halves(g, activation, interleaved)
    if activation == "gelu":
        return torch.nn.functional.gelu(gate, approximate="tanh") * up
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(swiglu_alpha * gate) * (up + up_bias)


def composed(x, x_scales, ids, weights, w13, s13, w2, s2, alpha13, alpha2, x_global,
             h_global, activation, limit, swiglu_alpha, up_bias, interleaved,
              expert_offset,
             out_dtype):
    """The layer as operators of this package and of torch."""
    ops = torch.ops.nibblas
    if ids.numel() == 0:
        return x.new_zeros((x.shape[0], w2.shape[1]), dtype=out_dtype)
    order, row_offsets, here = routes(ids, expert_offset, w13.shape[0])
    token, is_dense = order // ids.shape[1], h_global is None
    a, a_scales = x, x_scales
    if x_global is not None:
        a, a_scales, _ = ops.quantize(x, x_global, "linear", "modelopt", True)
    a = a[token]
    if a_scales is not None:
        a_scales = a_scales.view(torch.uint8)[token]
    alpha, alpha_up = _alphas(alpha13)
    wide = x.dtype if is_dense else torch.float32
    if activation == "swiglu":
        (gate, up), (sg, su) = (halves(t, activation, interleaved)
                                for t in (w13, s13))
        h = ops.moe_dual_gemm(a, a_scales, gate, sg, up, su, row_offsets, None,
                              alpha, alpha_up, wide, "linear", "linear")
    else:
        assert alpha is alpha_up, activation
        g = ops.moe_gemm(a, a_scales, w13, s13, row_offsets, None, alpha,
                         torch.float32, "linear", "linear")
        h = _h(g, activation, interleaved, limit, swiglu_alpha, up_bias).to(
            wide).contiguous()
    h_scales = None
    if not is_dense:
        # Rows of no expert hold anything: saturating takes what there is.
        h, h_scales, _ = ops.quantize(h, h_global, "linear", "modelopt", True)
    rows = torch.zeros(order.shape[0], w2.shape[1], dtype=out_dtype, device=x.device)
    ops.moe_gemm_out(rows, h, h_scales, w2, s2, row_offsets, None, alpha2,
                     "linear", "linear")
    slots = torch.empty_like(rows)
    slots[order] = rows
    weights = torch.where(here, weights, 0.0)
    return weighted_sum(slots.view(*ids.shape, w2.shape[1]), weights, out_dtype)
