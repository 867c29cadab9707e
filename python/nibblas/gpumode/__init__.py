# SPDX-License-Identifier: Apache-2.0
"""The problems of the GPU MODE x NVIDIA contest for NVFP4, as they are asked: each
function takes the tuple that the contest gives a submission, writes into its c and
returns it.

    a [M, K/2, L], b [N, K/2, L], c [M, N, L] float16, views of [L, rows, cols]
    sf.. [rows, K/16, L]                      not looked at
    sf.._permuted [32, 4, rows/128, 4, K/64, L]  as it lies in memory, used directly

Tensors of any device that nibblas.torch knows."""

import nibblas.torch  # noqa: F401 (registers the operators)
import torch
from nibblas._library import ArgumentError

_ops = torch.ops.nibblas
_gemm_out = _ops.gemm_out.default
_gemv_out = _ops.gemv_out.default
_dual_gemm_out = _ops.dual_gemm_out.default
_group_gemm_out = _ops.group_gemm_out.default


def _fail(name, x, rule):
    raise ArgumentError(f"{name}: shape {tuple(x.shape)}, strides "
                        f"{tuple(x.stride())}: {rule}")


def _take(data, count, what):
    """The tuple's parts."""
    if not isinstance(data, (tuple, list)) or len(data) != count:
        size = (f" of {len(data)}" if isinstance(data, (tuple, list)) else "")
        raise ArgumentError(f"data: {type(data).__name__}{size}; must be the "
                            f"{count} parts ({what})")
    return data


def _matrices(name, x, rows, cols, batch, at_least=False):
    """Checks [rows, cols, L] and gives [L, rows, cols]."""
    shape = tuple(x.shape)
    if shape != (rows, cols, batch) and not (
            at_least and len(shape) == 3 and shape[0] >= 1
            and shape[1:] == (cols, batch)):
        least = "at least " if at_least else ""
        _fail(name, x, f"must have shape ({least}{rows}, {cols}, {batch})")
    return x.permute(2, 0, 1)


def _tiles(name, x, rows, half, batch):
    """Scales of 6 dimensions as they lie in memory: [L, rows / 128, K / 64, 32, 4, 4],
    the tiled layout."""
    want = (32, 4, -(-rows // 128), 4, -(-half // 32), batch)
    if tuple(x.shape) != want:
        _fail(name, x, f"must have shape {want}")
    tiles = x.permute(5, 2, 4, 0, 1, 3)
    if not tiles.is_contiguous():
        _fail(name, x, f"must be a view of {tuple(tiles.shape)} as it lies in "
              "memory, permuted by (3, 4, 1, 5, 2, 0)")
    return tiles


def _sizes(a, b):
    """(M, N, K/2, L); the shapes of all else follow from them."""
    for name, x in (("a", a), ("b", b)):
        if x.dim() != 3:
            _fail(name, x, "must be [rows, K/2, L]")
    return a.shape[0], b.shape[0], a.shape[1], a.shape[2]


def gemm(data):
    """c = A * B^T of (a, b, sfa, sfb, sfa_permuted, sfb_permuted, c)."""
    a, b, _, _, sfa, sfb, c = _take(
        data, 7, "a, b, sfa, sfb, sfa_permuted, sfb_permuted, c")
    m, n, half, batch = _sizes(a, b)
    _gemm_out(_matrices("c", c, m, n, batch),
              _matrices("a", a, m, half, batch),
              _tiles("sfa_permuted", sfa, m, half, batch),
              _matrices("b", b, n, half, batch),
              _tiles("sfb_permuted", sfb, n, half, batch))
    return c


def gemv(data):
    """c [M, 1, L] = A * row 0 of B, which is padded to 128 rows, of the parts of
    gemm()."""
    a, b, _, _, sfa, sfb, c = _take(
        data, 7, "a, b, sfa, sfb, sfa_permuted, sfb_permuted, c")
    m, n, half, batch = _sizes(a, b)
    # The library's vectors come first; one row of scales is one row of tiles.
    _gemv_out(_matrices("c", c, m, 1, batch)[:, :, 0],
              _matrices("b", b, 1, half, batch, at_least=True)[:, 0],
              _tiles("sfb_permuted", sfb, min(n, 128), half, batch),
              _matrices("a", a, m, half, batch),
              _tiles("sfa_permuted", sfa, m, half, batch))
    return c


def dual_gemm(data):
    """c = silu(A * B1^T) * (A * B2^T) of (a, b1, b2, sfa, sfb1, sfb2, sfa_permuted,
    sfb1_permuted, sfb2_permuted, c)."""
    a, b1, b2, _, _, _, sfa, sfb1, sfb2, c = _take(
        data, 10, "a, b1, b2, sfa, sfb1, sfb2, sfa_permuted, sfb1_permuted, "
        "sfb2_permuted, c")
    m, n, half, batch = _sizes(a, b1)
    _dual_gemm_out(_matrices("c", c, m, n, batch),
                   _matrices("a", a, m, half, batch),
                   _tiles("sfa_permuted", sfa, m, half, batch),
                   _matrices("b1", b1, n, half, batch),
                   _tiles("sfb1_permuted", sfb1, n, half, batch),
                   _matrices("b2", b2, n, half, batch),
                   _tiles("sfb2_permuted", sfb2, n, half, batch))
    return c


def group_gemm(data):
    """The c of each product of (abc_tensors, sfasfb_tensors,
    sfasfb_reordered_tensors, problem_sizes), in one launch: lists of (a, b, c), of
    (sfa, sfb), of their six-dimensional forms, and of (M, N, K, L)."""
    abc, _, scales, sizes = _take(
        data, 4, "abc_tensors, sfasfb_tensors, sfasfb_reordered_tensors, "
        "problem_sizes")
    if not len(abc) == len(scales) == len(sizes):
        raise ArgumentError(
            f"data: {len(abc)} abc_tensors, {len(scales)} "
            f"sfasfb_reordered_tensors, {len(sizes)} problem_sizes: must be as "
            "many")
    lists = ([], [], [], [], [])
    for i, ((a, b, c), (sfa, sfb), (m, n, k, batch)) in enumerate(
            zip(abc, scales, sizes)):
        at, half = f"[{i}]", k // 2
        for parts, x in zip(lists, (
                _matrices("c" + at, c, m, n, batch),
                _matrices("a" + at, a, m, half, batch),
                _tiles("sfa_reordered" + at, sfa, m, half, batch),
                _matrices("b" + at, b, n, half, batch),
                _tiles("sfb_reordered" + at, sfb, n, half, batch))):
            parts.append(x)
    _group_gemm_out(*lists)
    return [c for _, _, c in abc]


PROBLEMS = {"group_gemm": group_gemm, "dual_gemm": dual_gemm, "gemm": gemm,
            "gemv": gemv}


def custom_kernel(problem):
    """The function of a problem: custom_kernel("gemm")(data)."""
    try:
        return PROBLEMS[problem]
    except (KeyError, TypeError):
        raise ArgumentError(f"problem = {problem!r}: must be " + " or ".join(
            map(repr, PROBLEMS))) from None
