# SPDX-License-Identifier: Apache-2.0
"""_solve.py - GPTQ (arXiv 2210.17323) of one matrix: columns are rounded in order, and
what rounding a column does to the output is made good in the columns that are not
rounded yet.

    minimise |(W - Q) X|^2 = trace((W - Q) H (W - Q)^T),  H = X X^T

U is the upper Cholesky factor of H^-1.  Rounding column c, with error
e = (w_c - q_c) / U_cc, adds |e|^2 to the output's squared error if the later columns
become w_j - e U_cj.  Factors are torch.linalg's."""

from typing import NamedTuple

import torch

from nibblas._library import DataError
from nibblas.gptq._rounding import (BLOCK, candidates, choose_scales, exact_scales,
                                    least_first)


class Options(NamedTuple):
    """damping     of H: this times the mean of its diagonal is added to the diagonal
    block_size  columns whose updates of later columns are made at once
    act_order   columns in the order of decreasing diagonal of H
    scales      "amax", "four-six" or "mse"
    choose      "static": of the original weights, least squared error, weighted by the
                diagonal of H; "search": of the updated weights when their group begins,
                least increment of the output's error"""

    damping: float
    block_size: int
    act_order: bool
    scales: str
    choose: str


class Rounded(NamedTuple):
    """codes [rows, K] (int64), blocks [rows, K/16] (bytes), values float32 [rows, K]"""

    codes: torch.Tensor
    blocks: torch.Tensor
    values: torch.Tensor


def damped(name, hessian, damping):
    """H + damping, in float64.  Inputs that are always zero get the mean of the
    diagonal, so that their weights are rounded to nearest."""
    if not bool(torch.isfinite(hessian).all()):
        raise DataError(f"{name}: its Hessian has an inf or NaN: the layer's inputs "
                        "must be finite", name)
    h = hessian.double()
    diagonal = h.diagonal()
    mean = diagonal.mean().item() or 1.0
    extra = torch.where(diagonal == 0, mean, damping * mean)
    return h + torch.diag(extra)


def factor(name, h, damping):
    """The upper Cholesky factor of H^-1, in float32."""
    lower, info = torch.linalg.cholesky_ex(h)
    if not info.item():
        upper, info = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower),
                                               upper=True)
    if info.item():
        raise DataError(f"{name}: damping = {damping}: its Hessian is not positive "
                        "definite; use a larger damping or more calibration text",
                        name)
    return upper.float()


def round_nearest(grid, w, global_scale, options, weights=None):
    """A matrix rounded to nearest, by scales of the rule."""
    blocks = choose_scales(grid, w, global_scale, options.scales, weights)
    d = exact_scales(blocks, global_scale).repeat_interleave(BLOCK, -1)
    codes = grid.codes(w, d)
    return Rounded(codes, blocks, grid.dequantize(codes, d))


def output_error(difference, hessian):
    """|D X|^2 from H."""
    return torch.sum((difference @ hessian) * difference).item()


class _Columns:
    """Columns in the order of rounding, as rows [K, rows] so that each is
    contiguous."""

    def __init__(self, w, upper, block_size):
        self.w = w.t().contiguous()
        self.upper, self.block_size = upper, block_size
        self.codes = torch.empty(self.w.shape, dtype=torch.int64, device=w.device)

    def each(self, steps):
        """Rounds all columns.  steps(first, rows, u): rounds `rows` [columns, rows] in
        place of the last dimension, with the square u of the factor, and returns their
        errors."""
        k = len(self.w)
        for first in range(0, k, self.block_size):
            end = min(first + self.block_size, k)
            errors = steps(first, self.w[first:end].clone(),
                           self.upper[first:end, first:end])
            if end < k:
                self.w[end:] -= self.upper[first:end, end:].t() @ errors


def _static(grid, w, global_scale, upper, order, blocks, block_size):
    d = exact_scales(blocks, global_scale).t().repeat_interleave(BLOCK, 0)
    if order is not None:
        w, d = w[:, order], d[order]
    columns = _Columns(w, upper, block_size)

    def steps(first, rows, u):
        errors = torch.empty_like(rows)
        for c, column in enumerate(rows):
            at = first + c
            code = grid.codes(column, d[at])
            columns.codes[at] = code
            errors[c] = (column - grid.dequantize(code, d[at])) / u[c, c]
            rows[c + 1:] -= torch.outer(u[c, c + 1:], errors[c])
        return errors

    columns.each(steps)
    codes = columns.codes
    if order is not None:
        codes = torch.empty_like(codes).index_copy_(0, order, columns.codes)
    return codes.t().contiguous()


def _try_group(grid, rows, u, d):
    """Rounds the sixteen columns of a group by each of several scales at once.

    rows  [16, rows]
    d     [tries, rows]

    Returns (codes, errors) [16, tries, rows]."""
    rows = rows[:, None].repeat(1, len(d), 1)
    codes = torch.empty(rows.shape, dtype=torch.int64, device=rows.device)
    errors = torch.empty_like(rows)
    for c, column in enumerate(rows):
        codes[c] = grid.codes(column, d)
        errors[c] = (column - grid.dequantize(codes[c], d)) / u[c, c]
        rows[c + 1:] -= u[c, c + 1:, None, None] * errors[c]
    return codes, errors


def _search(grid, w, global_scale, upper, order, rule, block_size):
    if order is not None:
        w = w[:, order]
    columns = _Columns(w, upper, block_size)
    blocks = torch.empty(w.shape[1] // BLOCK, w.shape[0], dtype=torch.uint8,
                         device=w.device)

    def steps(first, rows, u):
        errors = torch.empty_like(rows)
        for begin in range(0, len(rows), BLOCK):
            end = begin + BLOCK
            tried = candidates(rows[begin:end].t(), global_scale, rule)
            codes, made = _try_group(grid, rows[begin:end], u[begin:end, begin:end],
                                     exact_scales(tried, global_scale))
            best = least_first((made * made).sum(0))[None]
            blocks[(first + begin) // BLOCK] = tried.gather(0, best)[0]
            at = best[None].expand(BLOCK, 1, -1)
            columns.codes[first + begin:first + end] = codes.gather(1, at)[:, 0]
            errors[begin:end] = made.gather(1, at)[:, 0]
            rows[end:] -= u[begin:end, end:].t() @ errors[begin:end]
        return errors

    columns.each(steps)
    codes = columns.codes
    if order is not None:
        groups = order[::BLOCK] // BLOCK
        codes = torch.empty_like(codes).index_copy_(0, order, columns.codes)
        blocks = torch.empty_like(blocks).index_copy_(0, groups, blocks)
    return codes.t().contiguous(), blocks.t().contiguous()


def _order(diagonal, by_group):
    """The columns in the order of decreasing diagonal; by_group: sixteen together."""
    if not by_group:
        return torch.argsort(diagonal, descending=True, stable=True)
    groups = torch.argsort(diagonal.view(-1, BLOCK).sum(-1), descending=True,
                           stable=True)
    return (groups[:, None] * BLOCK + torch.arange(
        BLOCK, device=groups.device)).flatten()


def solve(grid, name, w, global_scale, h, options):
    """A Rounded of w [rows, K] of float32, by GPTQ.

    h  the damped Hessian [K, K] of float64"""
    searched = options.choose == "search"
    order, ordered = None, h
    if options.act_order:
        order = _order(h.diagonal(), searched)
        ordered = h[order][:, order]
    upper = factor(name, ordered, options.damping)
    if searched:
        codes, blocks = _search(grid, w, global_scale, upper, order, options.scales,
                                options.block_size)
    else:
        blocks = choose_scales(grid, w, global_scale, options.scales, h.diagonal())
        codes = _static(grid, w, global_scale, upper, order, blocks,
                        options.block_size)
    d = exact_scales(blocks, global_scale).repeat_interleave(BLOCK, -1)
    return Rounded(codes, blocks, grid.dequantize(codes, d))
