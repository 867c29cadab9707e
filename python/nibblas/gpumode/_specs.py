# SPDX-License-Identifier: Apache-2.0
"""_specs.py - the contest's numbers, from the task.yml of each problem and the
evaluation scripts that they name, as of 2026-07: ten tests, the benchmarks with the
time that the contest calls the speed of light, and how it measures."""

from typing import NamedTuple

SEED = 1111


class Size(NamedTuple):
    """One product; of a gemv, m is the matrix's rows and n is 1."""

    m: int
    n: int
    k: int
    batch: int = 1


class Benchmark(NamedTuple):
    """light_us: the contest's own, of a B200 at 1.5 GHz."""

    spec: tuple
    light_us: float


class Protocol(NamedTuple):
    """How the contest measures a problem. A pass writes flush_bytes, so that the
    caches are cold, then runs `inputs` products of different data between two
    events. Passes repeat until the mean is known to 0.1 %, ten seconds are measured,
    two minutes have passed or most_repeats are done."""

    inputs: int
    seed_step: int  # from one input's data to the next's
    most_repeats: int
    flush_bytes: int


PROTOCOLS = {"gemm": Protocol(50, 42, 200, 16000 << 22),
             "dual_gemm": Protocol(50, 42, 200, 16000 << 22),
             "gemv": Protocol(1, 0, 200, 4 << 30),
             "group_gemm": Protocol(15, 42, 100, 256 << 20)}
LEAST_REPEATS = 3
LEAST_S, MEASURED_S, MOST_S = 0.1, 10.0, 120.0
CLOSE_ENOUGH = 0.001


def _sizes(*sizes):
    """Specs of one product each."""
    return tuple((Size(*size),) for size in sizes)


def _group(m, n, k):
    """A group by its lists of M, N and K."""
    return tuple(Size(*size) for size in zip(m, n, k))


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
    "group_gemm": (
        _group((96, 128), (128, 256), (256, 512)),
        _group((256, 72), (512, 384), (256, 256)),
        _group((128, 128), (128, 256), (512, 256)),
        _group((80, 128, 256), (384, 256, 128), (256, 512, 256)),
        _group((64, 72, 96), (128, 384, 512), (512, 512, 256)),
        _group((64, 256, 128), (768, 128, 256), (512, 256, 512)),
        _group((128, 128, 64), (256, 512, 512), (768, 256, 768)),
        _group((128, 128, 128, 128), (128, 128, 128, 128),
               (512, 256, 512, 256)),
        _group((40, 56, 384, 512), (512, 384, 256, 128), (256, 256, 256, 256)),
        _group((512, 384, 256, 128), (256, 256, 256, 256),
               (512, 768, 512, 768))),
}

BENCHMARKS = {
    "gemm": (Benchmark((Size(128, 7168, 16384),), 8.994),
             Benchmark((Size(128, 4096, 7168),), 2.354),
             Benchmark((Size(128, 7168, 2048),), 1.333)),
    "dual_gemm": (Benchmark((Size(256, 4096, 7168),), 4.708),
                  Benchmark((Size(512, 4096, 7168),), 8.714),
                  Benchmark((Size(256, 3072, 4096),), 2.125),
                  Benchmark((Size(512, 3072, 7168),), 6.535)),
    "gemv": (Benchmark((Size(7168, 1, 16384),), 8.622),
             Benchmark((Size(4096, 1, 7168, 8),), 17.275),
             Benchmark((Size(7168, 1, 2048, 4),), 4.317)),
    "group_gemm": (
        Benchmark(_group((80, 176, 128, 72, 64, 248, 96, 160), (4096,) * 8,
                         (7168,) * 8), 18.833),
        Benchmark(_group((40, 76, 168, 72, 164, 148, 196, 160), (7168,) * 8,
                         (2048,) * 8), 10.667),
        Benchmark(_group((192, 320), (3072,) * 2, (4096,) * 2), 2.406),
        Benchmark(_group((128, 384), (4096,) * 2, (1536,) * 2), 1.525)),
}


def name(problem, spec):
    """ "m 128 n 256 k 256", several sizes by commas, one for all alike."""
    def several(values):
        values = tuple(values)
        same = len(set(values)) == 1
        return ",".join(map(str, values[:1] if same else values))
    text = f"g {len(spec)} " if problem == "group_gemm" else ""
    text += f"m {several(s.m for s in spec)}"
    if problem != "gemv":
        text += f" n {several(s.n for s in spec)}"
    text += f" k {several(s.k for s in spec)}"
    return text + (f" l {spec[0].batch}" if spec[0].batch > 1 else "")


def flop(problem, spec):
    """The multiplications and additions of a spec."""
    twice = 4 if problem == "dual_gemm" else 2
    return twice * sum(s.m * s.n * s.k * s.batch for s in spec)


def bytes_moved(problem, spec):
    """Codes and scales read once, without padding, and c written in fp16."""
    total = 0
    for s in spec:
        rows = s.m + s.n * (2 if problem == "dual_gemm" else 1)
        total += s.batch * (rows * (s.k // 2 + s.k // 16) + 2 * s.m * s.n)
    return total
