# SPDX-License-Identifier: Apache-2.0
"""_contest.py - the contest's ten tests of each problem, data by its rules, and its
check: rtol = atol = 1e-3 in fp16, against a float64 product that shares no code with
the library.

Codes are of at most 1.5, scales 1 and 2: sums of products are exact in fp32, so a
product's only error is its one rounding."""

from typing import NamedTuple

import torch

SEED = 1111
LARGEST = 65504.0
# Rows of c whose reference is computed at once.
ROWS = 512


class Size(NamedTuple):
    """One product; of a gemv, m is the matrix's rows and n is 1."""

    m: int
    n: int
    k: int
    batch: int = 1


def _sizes(*sizes):
    """Specs of one product each."""
    return tuple((Size(*size),) for size in sizes)


def _groups(*groups):
    return tuple(tuple(Size(*size) for size in group) for group in groups)


TESTS = {
    "gemm": _sizes(
        (128, 256, 256), (128, 1536, 7168), (128, 3072, 1536), (256, 7168, 256),
        (256, 7168, 2048), (2304, 4608, 7168), (384, 7168, 2304),
        (512, 512, 7168), (512, 4096, 512), (512, 1536, 7168)),
    "dual_gemm": _sizes(
        (1536, 512, 7168), (256, 512, 256), (1536, 512, 7168),
        (3072, 1024, 1536), (7168, 1024, 256), (7168, 2304, 2048),
        (4608, 384, 7168), (7168, 384, 2304), (512, 768, 7168),
        (4096, 768, 512)),
    "gemv": _sizes(
        (128, 1, 256), (128, 1, 1536), (128, 1, 3072), (256, 1, 7168),
        (256, 1, 7168), (2432, 1, 4608, 2), (384, 1, 7168, 2),
        (512, 1, 512, 2), (512, 1, 4096, 2), (512, 1, 1536, 2)),
    "group_gemm": _groups(
        ((96, 128, 128), (128, 256, 512)),
        ((256, 512, 256), (72, 384, 256)),
        ((128, 128, 128), (128, 256, 512)),
        ((80, 384, 256), (128, 256, 512), (256, 128, 128)),
        ((64, 128, 384), (72, 384, 512), (96, 512, 128)),
        ((64, 768, 512), (256, 128, 512), (128, 256, 128)),
        ((128, 256, 768), (128, 512, 128), (64, 512, 768)),
        ((128, 128, 128), (128, 128, 128), (128, 128, 128), (128, 128, 128)),
        ((40, 512, 256), (56, 384, 256), (384, 256, 256), (512, 128, 256)),
        ((512, 256, 512), (384, 256, 128), (256, 256, 512), (128, 256, 128))),
}


# ---- data --------------------------------------------------------------------


def _operand(rows, k, batch, device, random):
    """(codes [rows, K/2, L], scales [rows, K/16, L], scales of 6 dimensions)."""
    codes = torch.randint(0, 256, (batch, rows, k // 2), dtype=torch.uint8,
                          generator=random) & 0xbb
    scales = torch.randint(1, 3, (batch, rows, k // 16), generator=random)
    padded = torch.zeros(batch, -(-rows // 128) * 128, -(-k // 64) * 4)
    padded[:, :rows, :k // 16] = scales
    # Row 32 i + j of 128 lies at [j, i].
    tiles = padded.view(batch, -1, 4, 32, padded.shape[2] // 4, 4).permute(
        0, 1, 4, 3, 2, 5).contiguous()
    kind = torch.float8_e4m3fn
    return (codes.to(device).permute(1, 2, 0),
            scales.float().to(kind).to(device).permute(1, 2, 0),
            tiles.to(kind).to(device).permute(3, 4, 1, 5, 2, 0))


def _result(size, device):
    """c, all NaN."""
    return torch.full((size.batch, size.m, size.n), float("nan"),
                      dtype=torch.float16, device=device).permute(1, 2, 0)


def _single(problem, size, device, random):
    """The tuple of one product."""
    rows = [size.m, 128 if problem == "gemv" else size.n]
    if problem == "dual_gemm":
        rows.append(size.n)
    parts = [_operand(n, size.k, size.batch, device, random) for n in rows]
    return (*(codes for codes, _, _ in parts),
            *(scales for _, scales, _ in parts),
            *(tiles for _, _, tiles in parts), _result(size, device))


def generate(problem, spec, device="cpu", seed=SEED):
    """The contest's tuple of a spec (a tuple of sizes)."""
    random = torch.Generator().manual_seed(seed)
    parts = [_single(problem, size, device, random) for size in spec]
    if problem != "group_gemm":
        return parts[0]
    return ([(a, b, c) for a, b, *_, c in parts],
            [(sfa, sfb) for _, _, sfa, sfb, *_ in parts],
            [(sfa, sfb) for _, _, _, _, sfa, sfb, _ in parts],
            [tuple(size) for size in spec])


# ---- the reference -----------------------------------------------------------


def decode(codes, scales):
    """Float64 [rows, K] of [rows, K/2] and [rows, K/16]."""
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64,
                          device=codes.device)
    values = torch.cat((values, -values))
    codes = codes.contiguous().view(torch.uint8).long()
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


def _close(got, want):
    """Which elements of fp16 are; beyond the largest, fp16 is infinite, and near it
    either is right."""
    near = (got - want).abs() <= 1e-3 + 1e-3 * want.abs()
    infinite = (want.abs() > LARGEST) & got.isinf() & (got * want > 0)
    return infinite | (near & (want.abs() <= LARGEST + 64))


class Verdict(NamedTuple):
    """Of all elements of a result."""

    elements: int
    wrong: int
    rounded: int  # as float64's value rounds to fp16
    first: str  # the first wrong element


def check(problem, data):
    """Compares c with the reference, every element."""
    elements = wrong = rounded = 0
    first = ""
    for i, (operands, scales, c) in enumerate(_products(problem, data)):
        for j in range(c.shape[2]):
            a, *b = (decode(x[:, :, j], y[:, :, j].to(x.device))
                     for x, y in zip(operands, scales))
            b = [x[:c.shape[1]] for x in b]
            for row in range(0, c.shape[0], ROWS):
                want = _reference(a[row:row + ROWS], *b)
                got = c[row:row + ROWS, :, j].double()
                bad = ~_close(got, want)
                elements += want.numel()
                rounded += int((got == want.half().double()).sum())
                wrong += int(bad.sum())
                if not first and bad.any():
                    at = bad.nonzero()[0].tolist()
                    first = (f"product {i}, batch {j}, row {row + at[0]}, col "
                             f"{at[1]}: got {got[tuple(at)]:g}, want "
                             f"{want[tuple(at)]:g}")
    return Verdict(elements, wrong, rounded, first)
