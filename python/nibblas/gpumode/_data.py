# SPDX-License-Identifier: Apache-2.0
"""_data.py - the contest's inputs. They follow the rules and the order of the
contest's generate_input(), so a seed gives the same data on a GPU. On a CPU torch's
generator, and therefore the data, is different."""

import torch

from nibblas.gpumode._specs import SEED

# Older versions of torch lack this type; with them codes are uint8.
FLOAT4 = getattr(torch, "float4_e2m1fn_x2", torch.uint8)
_TILES = (3, 4, 1, 5, 2, 0)


class _Source:
    """A random number generator on a device."""

    def __init__(self, device, seed):
        self.device = device
        self.generator = torch.Generator(device).manual_seed(seed)

    def integers(self, low, high, shape, dtype):
        return torch.randint(low, high, shape, dtype=dtype,
                             device=self.device, generator=self.generator)

    def codes(self, rule, batch, rows, k):
        """Random 4-bit codes, [rows, K/2, L]; rule is the name of a problem."""
        shape = (batch, rows, k // 2)
        if rule == "gemm":
            x = self.integers(-128, 128, shape, torch.int8)
        elif rule == "gemv":
            x = self.integers(0, 4, shape, torch.uint8)
        else:
            # Signs, and magnitudes of at most 1.5.
            x = self.integers(0, 255, shape, torch.uint8) & 0xbb
        return x.permute(1, 2, 0).view(FLOAT4)

    def result(self, size):
        """c [M, N, L] with random values."""
        return torch.randn(size.batch, size.m, size.n, dtype=torch.float16,
                           device=self.device, generator=self.generator
                           ).permute(1, 2, 0)

    def scales(self, rule, shape):
        """Random float8 scales of a shape: [L, rows, K/16], or that of tiles()."""
        if rule == "dual_gemm":
            x = torch.rand(shape, device=self.device, generator=self.generator)
        else:
            low, high = {"gemm": (0, 4), "gemv": (0, 3),
                         "group_gemm": (1, 3)}[rule]
            x = self.integers(low, high, shape, torch.int8)
        return x.to(torch.float8_e4m3fn)

    def tiles(self, rule, plain):
        """plain, [L, rows, K/16], in the six-dimensional layout of tiled scales. The
        padding is random where the contest's is."""
        batch, rows, groups = plain.shape
        shape = (batch, -(-rows // 128), -(-groups // 4), 32, 4, 4)
        if rule == "dual_gemm":
            padding = torch.zeros(shape, dtype=torch.uint8, device=self.device)
        else:
            padding = self.scales(rule, shape).view(torch.uint8)
        # In a tile of 128 rows, row 32 i + j is at [j, i].
        padded = padding.permute(0, 1, 4, 3, 2, 5).reshape(
            batch, shape[1] * 128, shape[2] * 4)
        padded[:, :rows, :groups] = plain.view(torch.uint8).to(self.device)
        tiles = padded.view(batch, shape[1], 4, 32, shape[2], 4).permute(
            0, 1, 4, 3, 2, 5).contiguous()
        return tiles.view(torch.float8_e4m3fn).permute(*_TILES)


def _single(problem, size, source):
    """The tuple of one product: codes, plain scales, tiles, c."""
    # The contest pads the vector of a gemv to 128 rows.
    rows = [size.m, 128 if problem == "gemv" else size.n]
    if problem == "dual_gemm":
        rows.append(size.n)
    codes = [source.codes(problem, size.batch, n, size.k) for n in rows]
    c = source.result(size)
    pairs = []
    for n in rows:
        plain = source.scales(problem, (size.batch, n, size.k // 16))
        pairs.append((plain, source.tiles(problem, plain)))
    return (*codes, *(plain.permute(1, 2, 0) for plain, _ in pairs),
            *(tiles for _, tiles in pairs), c)


def _member(size, source, host):
    """(a, b, c), plain scales and tiles of one product of a group. As in the contest,
    plain scales are generated on the host and stay there."""
    codes = [source.codes("group_gemm", size.batch, n, size.k)
             for n in (size.m, size.n)]
    c = source.result(size)
    plain = [host.scales("group_gemm", (size.batch, n, size.k // 16))
             for n in (size.m, size.n)]
    tiles = [source.tiles("group_gemm", x) for x in plain]
    return (*codes, c), tuple(x.permute(1, 2, 0) for x in plain), tuple(tiles)


def generate(problem, spec, device="cpu", seed=SEED):
    """The tuple of inputs that the contest makes from a spec (a tuple of sizes)."""
    source = _Source(device, seed)
    if problem != "group_gemm":
        return _single(problem, spec[0], source)
    host = source if torch.device(device).type == "cpu" else _Source("cpu", seed)
    parts = [_member(size, source, host) for size in spec]
    return (*(list(lists) for lists in zip(*parts)),
            [tuple(size) for size in spec])


def clone(data):
    """A copy of nested tuples and lists, with copies of the tensors."""
    if isinstance(data, torch.Tensor):
        # torch has few functions for 4-bit types.
        return data.view(torch.uint8).clone().view(data.dtype) if (
            data.dtype == FLOAT4) else data.clone()
    if isinstance(data, (tuple, list)):
        return type(data)(map(clone, data))
    return data
