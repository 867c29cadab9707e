# SPDX-License-Identifier: Apache-2.0
"""_rounding.py - NVFP4 of torch tensors on any device, by docs/numerics.md, section 7:
codes for given scales, and the scales that each rule tries.  The library rounds whole
matrices; GPTQ rounds sixteen columns at a time, by scales of its own choice."""

import math

import torch

BLOCK = 16
VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# A value is above a boundary; ties go to the even code, so that some boundaries are
# above themselves.
_BOUNDARIES = [0.25, math.nextafter(0.75, 0), 1.25, math.nextafter(1.75, 0), 2.5,
               math.nextafter(3.5, 0), 5.0]
_LEAST, _LARGEST = 2.0 ** -9, 448.0
ONE = 0x38  # ModelOpt's scale of a block of zeros


class Grid:
    """The constants of the format on a device."""

    def __init__(self, device):
        self.boundaries = torch.tensor(_BOUNDARIES, dtype=torch.float64, device=device)
        self.values = torch.tensor(VALUES + tuple(-x for x in VALUES),
                                   dtype=torch.float64, device=device)

    def codes(self, w, d):
        """The codes (int64) of float32 values w under scales d of float64, exact.

        The quotient is exact enough: w has 24 bits and boundary * d has 31, so it never
        rounds to a boundary or across one."""
        code = torch.bucketize(w.abs().double() / d, self.boundaries)
        return code + 8 * torch.signbit(w)

    def dequantize(self, codes, d):
        """float32 values of codes, rounded once."""
        return (self.values[codes] * d).float()


def exact_scales(blocks, global_scale):
    """scale * global of bytes of e4m3, in float64."""
    return blocks.view(torch.float8_e4m3fn).double() * global_scale.double()


def _encode(amax, largest, global_scale):
    """Bytes of the scales by which amax becomes `largest`."""
    q = amax / (global_scale.float() * largest)
    return q.clamp(_LEAST, _LARGEST).to(torch.float8_e4m3fn).view(torch.uint8)


def candidates(w, global_scale, rule):
    """Bytes [tries, ...] of the scales that a rule tries for blocks w [..., 16] of
    float32, the preferred one first."""
    amax = w.abs().amax(-1)
    six = torch.where(amax > 0, _encode(amax, 6.0, global_scale), ONE)
    if rule == "amax":
        return six[None]
    if rule == "four-six":
        return torch.stack([six, torch.where(
            amax > 0, _encode(amax, 4.0, global_scale), ONE)])
    # The larger one of equal scales first.  Bytes outside 1 to 126 are not tried.
    steps = torch.arange(6, -3, -1, device=w.device, dtype=torch.int16)
    tried = six.to(torch.int16) + steps.view(-1, *[1] * six.dim())
    tried = torch.where((tried < 1) | (tried > 126) | (amax == 0), six.to(torch.int16),
                        tried)
    return tried.to(torch.uint8)


def squared_error(grid, w, blocks, global_scale, weights=None):
    """The error of each block of w [..., 16] under scales `blocks`, summed in the order
    of docs/numerics.md.  weights [..., 16], of each square; None: 1."""
    d = exact_scales(blocks, global_scale)[..., None]
    error = w.double() - grid.values[grid.codes(w, d)] * d
    f = error * error if weights is None else error * error * weights
    for h in (8, 4, 2, 1):
        f = f[..., :h] + f[..., h:2 * h]
    return f[..., 0]


def least_first(errors):
    """The index of the least error along dimension 0, of equal ones the first."""
    return (errors == errors.amin(0)).int().argmax(0)


def choose_scales(grid, w, global_scale, rule, weights=None):
    """Bytes [rows, K/16] of the scales of w [rows, K] of float32 by a rule.

    weights  [K]: the squared error of each column counts so often; None: 1"""
    w = w.unflatten(-1, (-1, BLOCK))
    tried = candidates(w, global_scale, rule)
    if len(tried) == 1:
        return tried[0]
    if weights is not None:
        weights = weights.double().unflatten(-1, (-1, BLOCK))
    # One candidate at a time: all of them would be nine times the matrix in float64.
    best, chosen = None, None
    for one in tried:
        error = squared_error(grid, w, one, global_scale, weights)
        if best is None:
            best, chosen = error, one.clone()
        else:
            less = error < best
            best, chosen = torch.where(less, error, best), torch.where(
                less, one, chosen)
    return chosen


def pack(codes):
    """Two codes a byte, the first in the low half."""
    codes = codes.to(torch.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4
