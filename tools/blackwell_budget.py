#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""blackwell_budget.py [--nib PROGRAM] [--json FILE]

Predicts, from published microbenchmarks of a B200, how long the kernels of sm_100a
take on the contest's shapes, and reports what bounds each.  Nothing here was measured
by the project: the table is a budget, to be compared with a B200 when one is available.
--json writes the predictions and the best public times as rows for results_table.py.

Two ways to cut a product into tiles of pairs are predicted: the fastest of all ways
with equal tiles, and with --nib the one that the planner makes for a software B200
(nib plan).  The time is

    launch + first bytes + the slower of memory and the busiest CTA's stages
    + the last tile's epilogue + split-k

and of a vector launch + first bytes + memory + the last stores.  Each is followed by
the band between the constants' good and bad ends.

Each constant below names its source by the marks of docs/performance-blackwell.md."""

import argparse
import dataclasses
import json
import math
import re
import subprocess


@dataclasses.dataclass(frozen=True)
class Constants:
    """What a B200 is taken to need; GOOD and BAD are the ends of the band."""

    clock_ghz: float = 1.85         # in tensor loops [SA]
    hbm_bytes_ns: float = 7200      # read, with 96 KB or more in flight an SM [SA]
    sm_bytes_ns: float = 75         # cold stream of one SM in whole products (from
                                    # [FI2540])
    tma_cycles_row: float = 1.6     # a row of up to 128 bytes (from [SA])
    launch_ns: float = 700          # to the first instruction, barriers, tensor
                                    # memory (0.5 to 1.2 us, from [FI2540])
    first_ns: float = 1800          # until a first stage of 16 to 32 KB is whole, all
                                    # SMs [SA]
    drain_ns: float = 400           # stores to memory (0.3 to 0.6 us, [QR])


MIDDLE = Constants()
# The ends of the sources' ranges; of first_ns, which has none, 0.4 us on either side.
GOOD = Constants(clock_ghz=1.965, hbm_bytes_ns=7300, tma_cycles_row=1.4, launch_ns=500,
                 first_ns=1400, drain_ns=300)
# The contest's clock for its bounds, and the rate between two of the best public vector
# products (V3 and V2, from [GM]: 99 MB in 15.6 us).
BAD = Constants(clock_ghz=1.5, hbm_bytes_ns=6350, tma_cycles_row=2.0, launch_ns=1200,
                first_ns=2200, drain_ns=600)

SMS = 148                   # [QR]
WRITE_BYTES_NS = 6700.0     # mixed reads and writes [QR]
TMA_CYCLES_LOAD = 48        # between loads of one thread [QR]
CP_CYCLES = 18              # tcgen05.cp of 512 bytes, one warp [SD]
COMMIT_CYCLES = 301         # the last MMA to its wait, pair, N = 256 [SA]
CHUNK_CYCLES = 250          # 32 rows of A: tcgen05.ld 40, 212 instructions (kernels.md)
SLICE_NS = 500              # split-k: two remote barriers, 190 ns each [QR], and 64 KB

STAGE_K, CTA_ROWS = 256, 128

# (name, [(m, n, k)], dual, light us, best public us)
SHAPES = [
    ("G1", [(m, 4096, 7168) for m in (80, 176, 128, 72, 64, 248, 96, 160)], False,
     18.83, 27.9),
    ("G2", [(m, 7168, 2048) for m in (40, 76, 168, 72, 164, 148, 196, 160)], False,
     10.67, 19.4),
    ("G3", [(192, 3072, 4096), (320, 3072, 4096)], False, 2.41, 8.48),
    ("G4", [(128, 4096, 1536), (384, 4096, 1536)], False, 1.53, 6.43),
    ("M1", [(128, 7168, 16384)], False, None, 18.3),
    ("M2", [(128, 4096, 7168)], False, None, 8.29),
    ("M3", [(128, 7168, 2048)], False, None, 6.54),
    ("D1", [(256, 4096, 7168)], True, None, 12.4),
    ("D2", [(512, 4096, 7168)], True, None, 16.4),
    ("D3", [(256, 3072, 4096)], True, None, 9.43),
    ("D4", [(512, 3072, 7168)], True, None, 16.3),
]

# (name, (rows of the matrix, k, batch), best public us)
VECTORS = [
    ("V1", (7168, 16384, 1), 18.4),
    ("V2", (4096, 7168, 8), 28.0),
    ("V3", (7168, 2048, 4), 12.4),
]


def stage_cycles(c, rows, dual):
    """Cycles of one CTA of a pair and a stage of k256: (TMA, tensor core)."""
    weights = 2 if dual else 1
    blocks = 1 if rows <= 128 else 2
    loads = 2 * weights + 2
    # A box of scales is 2 KB: 16 rows of 128 bytes.
    tma_rows = weights * (CTA_ROWS + 16) + rows / 2 + 16 * blocks
    tma = max(c.tma_cycles_row * tma_rows, TMA_CYCLES_LOAD * loads)
    mma = max(rows / 2, 32 + rows / 8) * 4 * weights
    copies = CP_CYCLES * 4 * (weights + blocks)
    return tma, max(mma, copies)


def tiles_of(shapes, dual, most):
    """[(rows, stages)] of pairs, equal tiles of at most `most` rows of A."""
    tiles = []
    for m, n, k in shapes:
        count = math.ceil(m / most)
        rows = math.ceil(m / 16) * 16 if count == 1 else \
            math.ceil(math.ceil(m / count) / 64) * 64
        units = math.ceil(n / (2 * CTA_ROWS))
        for first in range(0, m, rows):
            part = min(rows, math.ceil((m - first) / 16) * 16)
            tiles += [(part, math.ceil(k / STAGE_K))] * units
    return tiles


def predict(c, shapes, dual, most, slices, pairs=None):
    """(microseconds, what bounds, CTAs) of one way to cut."""
    pairs = pairs or SMS // 2 // slices
    tiles = tiles_of(shapes, dual, most)
    if slices > 1 and len(tiles) > pairs:
        return None
    loads = [0.0] * min(pairs, len(tiles))
    for rows, stages in sorted(tiles, reverse=True):
        i = loads.index(min(loads))
        loads[i] += math.ceil(stages / slices) * max(stage_cycles(c, rows, dual))
    busiest = max(loads) / c.clock_ghz
    weights = sum((2 if dual else 1) * n * k * 0.5625 for m, n, k in shapes)
    reads = weights + sum(m * k * 0.5625 for m, n, k in shapes)
    writes = sum(m * n * 2 for m, n, k in shapes)
    ctas = len(loads) * 2 * slices
    memory = reads / min(c.hbm_bytes_ns, c.sm_bytes_ns * ctas) + writes / WRITE_BYTES_NS
    rows = max(r for r, _ in tiles)
    end = (COMMIT_CYCLES + CHUNK_CYCLES * math.ceil(rows / slices / 32)) / c.clock_ghz
    total = c.launch_ns + c.first_ns + max(busiest, memory) + end + c.drain_ns + \
        (SLICE_NS if slices > 1 else 0)
    bound = "memory" if memory > busiest else "loads and tensor core"
    return total / 1000, bound, ctas, most, slices


def predict_vector(c, rows, k, batch):
    """Microseconds of a vector product, which memory bounds."""
    reads = (rows * k + k) * batch * 0.5625
    return (c.launch_ns + c.first_ns + reads / c.hbm_bytes_ns + c.drain_ns) / 1000


def best(shapes, dual):
    """The fastest way by the budget."""
    ways = [predict(MIDDLE, shapes, dual, most, slices)
            for most in ((64, 128, 192) if dual else (64, 128, 192, 256))
            for slices in ((1, 2, 4) if len(shapes) == 1 else (1,))]
    return min(way for way in ways if way)


def planned(nib, shapes, dual):
    """(rows of A a tile, slices, pairs) of the planner."""
    op = "dual_gemm" if dual else "gemm" if len(shapes) == 1 else "group_gemm"
    found = subprocess.run(
        [nib, "plan", "--device", "emu:b200", "--op", op, "--layout", "tiled",
         "--out", "fp16", "--m", ",".join(str(m) for m, _, _ in shapes),
         "--n", str(shapes[0][1]), "--k", str(shapes[0][2]), "--gflops", "1", "--gbps",
         "1", "--format", "json"], check=True, text=True, stdout=subprocess.PIPE)
    plan = json.loads(found.stdout)[0]
    match = re.search(r"up to (\d+) rows of A on (\d+) clusters", plan["explanation"])
    return int(match[1]), plan["k_slices"], int(match[2])


def band(low, high):
    """As 4.5 to 6.0."""
    return f"{low:.1f} to {high:.1f}"


def shape_of(name, shapes):
    """Operation and shape as nib bench writes them."""
    m, n, k = zip(*shapes)
    if name[0] == "G":
        rows = ",".join(map(str, m[:4])) + (f",...({len(m)})" if len(m) > 4 else "")
        return "group_gemm", f"m={rows} n={n[0]} k={k[0]}"
    return {"M": "gemm", "D": "dual_gemm"}[name[0]], f"{m[0]}x{n[0]}x{k[0]}"


def rows_of(name, op, shape, times, public, bound="memory", light=None):
    """A prediction and the best public time as rows; times: middle and both ends."""
    row = {"op": op, "shape": shape, "name": name}
    return [
        {**row, "backend": "the budget", "predicted": True, "predicted_us": times[0],
         "low_us": times[1], "high_us": times[2], "limit_kind": bound,
         "goal_us": light, "command": "blackwell_budget.py"},
        {**row, "backend": "baseline:public kernel", "time_s": public * 1e-6,
         "version": "[GM]"}]


def text_of(way):
    """As 148, 128, 1."""
    return ", ".join(map(str, way))


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nib", help="the command, whose planner is asked")
    parser.add_argument("--json", metavar="FILE", help="writes rows there")
    options = parser.parse_args()
    rows = []
    print("| shape | fastest way: CTAs, rows, slices | predicted us | band | "
          "planner's way | "
          "predicted us | band | bound by | light | best public |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, shapes, dual, light, public in SHAPES:
        total, bound, *way = best(shapes, dual)
        ends = [predict(c, shapes, dual, *way[1:])[0] for c in (GOOD, BAD)]
        plan, times = ["", "", ""], [total, *ends]
        if options.nib:
            cut = planned(options.nib, shapes, dual)
            middle, *their_ends = (predict(c, shapes, dual, *cut)
                                   for c in (MIDDLE, GOOD, BAD))
            bound, times = middle[1], [middle[0], *(end[0] for end in their_ends)]
            plan = ["the same" if list(middle[2:]) == way else text_of(middle[2:]),
                    f"{middle[0]:.1f}", band(*(end[0] for end in their_ends))]
        print(f"| {name} | {text_of(way)} | {total:.1f} | {band(*ends)} | "
              f"{' | '.join(plan)} | {bound} | {light or ''} | {public} |")
        rows += rows_of(name, *shape_of(name, shapes), times, public, bound, light)
    for name, shape, public in VECTORS:
        middle, good, bad = (predict_vector(c, *shape) for c in (MIDDLE, GOOD, BAD))
        print(f"| {name} | | {middle:.1f} | {band(good, bad)} | | | | memory | | "
              f"{public} |")
        rows += rows_of(name, "gemv", "x".join(map(str, shape)), (middle, good, bad),
                        public)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
