# SPDX-License-Identifier: Apache-2.0
"""_tuples.py - the tuples of the contest's problems: which of their tensors are used,
the rules of their shapes, and the same tensors as the library's views.  Bundles have
the text of these functions, which need tensors and ArgumentError, nothing else."""

from typing import Callable, NamedTuple

from nibblas import _abi as abi
from nibblas._library import ArgumentError


class Problem(NamedTuple):
    """A problem of the contest."""

    op: int
    tensors: Callable   # takes a tuple; the tensors used, c last in each product
    products: Callable  # takes a tuple; for each product the (name, view)s of c, a
    #                     and its scales, b and its scales, b2 and its scales
    sizes: Callable     # takes a tuple; the sizes that no tensor's shape has
    result: Callable    # takes the tensors; what a submission returns
    pointers: tuple     # the fields of struct nib_problem for a product's tensors


def _fail(name, x, rule):
    raise ArgumentError(f"{name}: shape {tuple(x.shape)}, strides "
                        f"{tuple(x.stride())}: {rule}", name)


def _take(data, count, what):
    """Checks the tuple's length, and returns it."""
    if not isinstance(data, (tuple, list)) or len(data) != count:
        size = (f" of {len(data)}" if isinstance(data, (tuple, list)) else "")
        raise ArgumentError(f"data: {type(data).__name__}{size}; must be the "
                            f"{count} parts ({what})", "data")
    return data


def _matrices(name, x, rows, cols, batch, at_least=False):
    """Checks that x is [rows, cols, L], and returns it as [L, rows, cols]."""
    shape = tuple(x.shape)
    if shape != (rows, cols, batch) and not (
            at_least and len(shape) == 3 and shape[0] >= 1
            and shape[1:] == (cols, batch)):
        least = "at least " if at_least else ""
        _fail(name, x, f"must have shape ({least}{rows}, {cols}, {batch})")
    return x.permute(2, 0, 1)


def _tiles(name, x, rows, half, batch):
    """Scales of 6 dimensions as they are in memory: [L, rows / 128, K / 64, 32, 4, 4],
    the tiled layout."""
    want = (32, 4, -(-rows // 128), 4, -(-half // 32), batch)
    if tuple(x.shape) != want:
        _fail(name, x, f"must have shape {want}")
    tiles = x.permute(5, 2, 4, 0, 1, 3)
    if not tiles.is_contiguous():
        _fail(name, x, f"must be a view of {tuple(tiles.shape)} as it is in "
              "memory, permuted by (3, 4, 1, 5, 2, 0)")
    return tiles


def _sizes(a, b):
    """Returns (M, N, K/2, L), from which all other shapes follow."""
    for name, x in (("a", a), ("b", b)):
        if x.dim() != 3:
            _fail(name, x, "must be [rows, K/2, L]")
    return a.shape[0], b.shape[0], a.shape[1], a.shape[2]


def _product(sizes, c, a, sfa, *bs):
    """Checks a product's (name, tensor)s and returns (name, view)s.  bs: b and its
    scales, and those of b2 for a dual product."""
    m, n, half, batch = sizes
    rules = [(_matrices, m, n), (_matrices, m, half), (_tiles, m, half),
             *[(_matrices, n, half), (_tiles, n, half)] * (len(bs) // 2)]
    return [(name, check(name, x, rows, cols, batch)) for (name, x), (
        check, rows, cols) in zip((c, a, sfa, *bs), rules)]


def last(tensors):
    return tensors[-1]


def no_sizes(_data):
    return ()


def gemm_tensors(data):
    a, b, _, _, sfa, sfb, c = _take(
        data, 7, "a, b, sfa, sfb, sfa_permuted, sfb_permuted, c")
    return a, b, sfa, sfb, c


def gemm_products(data):
    """c = A * B^T."""
    a, b, sfa, sfb, c = gemm_tensors(data)
    return [_product(_sizes(a, b), ("c", c), ("a", a), ("sfa_permuted", sfa),
                     ("b", b), ("sfb_permuted", sfb))]


def gemv_products(data):
    """c [M, 1, L] = A * row 0 of B, which is padded to 128 rows."""
    a, b, sfa, sfb, c = gemm_tensors(data)
    m, n, half, batch = _sizes(a, b)
    # The library's vectors come first; one row of scales is one row of tiles.
    return [[("c", _matrices("c", c, m, 1, batch)[:, :, 0]),
             ("b", _matrices("b", b, 1, half, batch, at_least=True)[:, 0]),
             ("sfb_permuted",
              _tiles("sfb_permuted", sfb, min(n, 128), half, batch)),
             ("a", _matrices("a", a, m, half, batch)),
             ("sfa_permuted", _tiles("sfa_permuted", sfa, m, half, batch))]]


def dual_tensors(data):
    a, b1, b2, _, _, _, sfa, sfb1, sfb2, c = _take(
        data, 10, "a, b1, b2, sfa, sfb1, sfb2, sfa_permuted, sfb1_permuted, "
        "sfb2_permuted, c")
    return a, b1, b2, sfa, sfb1, sfb2, c


def dual_products(data):
    """c = silu(A * B1^T) * (A * B2^T)."""
    a, b1, b2, sfa, sfb1, sfb2, c = dual_tensors(data)
    return [_product(_sizes(a, b1), ("c", c), ("a", a), ("sfa_permuted", sfa),
                     ("b1", b1), ("sfb1_permuted", sfb1),
                     ("b2", b2), ("sfb2_permuted", sfb2))]


def group_tensors(data):
    abc, _, scales, sizes = _take(
        data, 4, "abc_tensors, sfasfb_tensors, sfasfb_reordered_tensors, "
        "problem_sizes")
    if not len(abc) == len(scales) == len(sizes):
        raise ArgumentError(
            f"data: {len(abc)} abc_tensors, {len(scales)} "
            f"sfasfb_reordered_tensors, {len(sizes)} problem_sizes: must be as "
            "many", "data")
    return [x for (a, b, c), (sfa, sfb) in zip(abc, scales)
            for x in (a, b, sfa, sfb, c)]


def group_products(data):
    """The products of problem_sizes, lists of (M, N, K, L)."""
    tensors = iter(group_tensors(data))
    products = []
    for i, (m, n, k, batch) in enumerate(data[3]):
        a, b, sfa, sfb, c = (next(tensors) for _ in range(5))
        products.append(_product(
            (m, n, k // 2, batch), (f"c[{i}]", c), (f"a[{i}]", a),
            (f"sfa_reordered[{i}]", sfa), (f"b[{i}]", b),
            (f"sfb_reordered[{i}]", sfb)))
    return products


def group_sizes(data):
    return tuple(map(tuple, data[3]))


def every_c(tensors):
    return list(tensors[4::5])


_PAIR = ("a.codes", "b.codes", "a.scales", "b.scales", "c.data")
PROBLEMS = {
    "group_gemm": Problem(abi.NIB_OP_GEMM, group_tensors, group_products,
                          group_sizes, every_c, _PAIR),
    "dual_gemm": Problem(
        abi.NIB_OP_DUAL_GEMM, dual_tensors, dual_products, no_sizes, last,
        ("a.codes", "b.codes", "b2.codes", "a.scales", "b.scales", "b2.scales",
         "c.data")),
    "gemm": Problem(abi.NIB_OP_GEMM, gemm_tensors, gemm_products, no_sizes, last,
                    _PAIR),
    "gemv": Problem(
        abi.NIB_OP_GEMV, gemm_tensors, gemv_products, no_sizes, last,
        ("b.codes", "a.codes", "b.scales", "a.scales", "c.data"))}
