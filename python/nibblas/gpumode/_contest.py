# SPDX-License-Identifier: Apache-2.0
"""_contest.py - the contest's check: rtol = atol = 1e-3 in fp16, against a float64
product that shares no code with the library.

The data of all problems but dual_gemm make sums of products exact in fp32 (they are
multiples of a quarter, and below 2^24 quarters for the data that occur), so the only
error of a product is its one rounding."""

from typing import NamedTuple

import torch

LARGEST = 65504.0
# Rows of c, and columns, whose reference is computed at once.
ROWS, COLS = 512, 1024


def decode(codes, scales):
    """Float64 [rows, K] of [rows, K/2] and [rows, K/16]."""
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64,
                          device=codes.device)
    values = torch.cat((values, -values))
    codes = codes.view(torch.uint8).contiguous().long()
    pairs = torch.stack((values[codes & 15], values[codes >> 4]), dim=-1)
    return (pairs.view(*scales.shape, 16)
            * scales.double()[..., None]).flatten(-2)


def _products(problem, data):
    """(operands, their plain scales, c) of each product."""
    if problem == "group_gemm":
        for (a, b, c), scales in zip(data[0], data[1]):
            yield (a, b), scales, c
    else:
        count = 3 if problem == "dual_gemm" else 2
        yield data[:count], data[count:2 * count], data[-1]


def _reference(a, b, b2=None):
    """Some rows of c in float64."""
    c = a @ b.t()
    if b2 is not None:
        c = c * torch.sigmoid(c) * (a @ b2.t())
    return c


def wipe(problem, data):
    """Fills every c with NaN: what is not written is wrong."""
    for _, _, c in _products(problem, data):
        c.fill_(float("nan"))


def _close(got, want):
    """Which elements of fp16 are close enough.  Beyond the largest value fp16 is
    infinite; near it both are right."""
    near = (got - want).abs() <= 1e-3 + 1e-3 * want.abs()
    infinite = (want.abs() > LARGEST) & got.isinf() & (got * want > 0)
    return infinite | (near & (want.abs() <= LARGEST + 64))


class Verdict(NamedTuple):
    """What was found in all elements of a result."""

    elements: int
    wrong: int
    rounded: int  # as float64's value rounds to fp16
    first: str  # the first wrong element


class _Tally:
    """Counts the elements of parts of results."""

    def __init__(self):
        self.elements = self.wrong = self.rounded = 0
        self.first = ""

    def add(self, got, want, first):
        """first: (product, batch, row, column) of the first element."""
        bad = ~_close(got, want)
        self.elements += want.numel()
        self.rounded += int((got == want.half().double()).sum())
        self.wrong += int(bad.sum())
        if not self.first and bad.any():
            row, col = bad.nonzero()[0].tolist()
            product, batch, first_row, first_col = first
            self.first = (
                f"product {product}, batch {batch}, row {first_row + row}, col "
                f"{first_col + col}: got {got[row, col]:g}, want "
                f"{want[row, col]:g}")


def _parts(count, size):
    for begin in range(0, count, size):
        yield slice(begin, min(begin + size, count))


def _decoded(operand, scales, rows, batch):
    return decode(operand[rows, :, batch],
                  scales[rows, :, batch].to(operand.device))


def _check_product(tally, product, operands, scales, c):
    for j in range(c.shape[2]):
        for cols in _parts(c.shape[1], COLS):
            b = [_decoded(x, y, cols, j)
                 for x, y in zip(operands[1:], scales[1:])]
            for rows in _parts(c.shape[0], ROWS):
                a = _decoded(operands[0], scales[0], rows, j)
                tally.add(c[rows, cols, j].double(), _reference(a, *b),
                          (product, j, rows.start, cols.start))


def check(problem, data, result=None):
    """Compares c, or what a kernel returned, with the reference, every element."""
    tally = _Tally()
    for i, (operands, scales, c) in enumerate(_products(problem, data)):
        if result is not None:
            c = result[i] if problem == "group_gemm" else result
        _check_product(tally, i, operands, scales, c)
    return Verdict(tally.elements, tally.wrong, tally.rounded, tally.first)
