#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""time_variants.py --nib NIB --device DEVICE [--plans] [--only TEXT] [-o FILE]

Products cut in ways that the planner does not choose: the tile's rows of A and the
number of slices of k are forced by a file of costs (NIB_TUNING), and nib bench times
each one, on a GPU or, with --device emu:h200, by prediction.  Writes rows of nib bench
with the variant's name as their shape, for compare_times.py.  --plans only says how
each would be cut."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

SIZES = [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256]
# Rows of A of a tile, slices of k, shapes of one k.
VARIANTS = [
    (16, 1, ["32x4096x7168", "64x4096x7168"]),
    (16, 2, ["32x4096x7168"]),
    (32, 1, ["32x4096x7168", "64x4096x7168", "128x4096x7168"]),
    (32, 2, ["32x4096x7168", "64x4096x7168"]),
    (64, 1, ["64x4096x7168", "128x4096x7168", "256x4096x7168"]),
    (64, 2, ["64x4096x7168", "128x4096x7168"]),
    (128, 1, ["128x4096x7168", "256x4096x7168"]),
    (128, 2, ["128x4096x7168"]),
    (256, 1, ["256x4096x7168"]),
    (256, 2, ["256x4096x7168"]),
    (256, 4, ["256x4096x7168"]),
    (32, 1, ["64x7168x2048", "128x7168x2048"]),
    (128, 1, ["128x7168x2048"]),
    (128, 2, ["128x7168x2048"]),
    (64, 2, ["64x7168x2048"]),
]


def split_cost(rows, slices, shape):
    """A cost of the reduction with which so many slices are the cheapest plan."""
    steps = int(shape.split("x")[2]) // 64
    if slices != 2:
        return 10 ** 6 if slices == 1 else 1
    # A slice of s costs 400 steps / s and this times (s + 1) (rows + 32) / 480.
    return round(400 * steps * 0.145 * 480 / (rows + 32))


def costs(device, processors, version, rows, split):
    """A file of costs in which only tiles of so many rows are cheap."""
    return {"device": device, "multiprocessors": processors, "version": version,
            "revision": 4, "tile_rows": SIZES,
            "step_cycles": [400 if s == rows else 900000 for s in SIZES],
            "tile_cycles": 1500, "split_cycles": split}


def gpu_of(nib, env, device):
    """Name and number of multiprocessors, as nib names them."""
    text = subprocess.run([nib, "info"], env=env, capture_output=True, text=True,
                          check=True).stdout
    name = "cuda:0" if device.startswith("emu") else device
    found = re.search(rf"^{name}\s+(.*?), (\d+) multiprocessors", text, re.M)
    if not found:
        sys.exit(f"time_variants.py: nib info names no {name}")
    version = re.search(r"^version\s+(\S+)", text, re.M)
    return found.group(1), int(found.group(2)), version.group(1)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nib", default="nib")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--emulator", help="libnibemu.so, for nib info")
    parser.add_argument("--plans", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("-o", "--output", default="-")
    a = parser.parse_args()
    env = dict(os.environ)
    if a.emulator:
        env["NIB_CUDA_LIBRARY"] = a.emulator
    gpu = gpu_of(a.nib, env, a.device)
    out = sys.stdout if a.output == "-" else open(a.output, "w", encoding="utf-8")
    for rows, slices, shapes in VARIANTS:
        if a.only and a.only not in f"{rows} {slices}":
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(costs(*gpu, rows, split_cost(rows, slices, shapes[0])), file)
            file.flush()
            command = [a.nib, "bench", "--device", a.device, "--op", "gemm",
                       "--shape", ",".join(shapes), "--layout", "tiled",
                       "--format", "json", "--min-time", "0.05"]
            if a.plans:
                command = [a.nib, "plan", "--device", "cuda:0", "--shape",
                           ",".join(shapes)]
            done = subprocess.run(command, env=dict(env, NIB_TUNING=file.name),
                                  capture_output=True, text=True, check=False)
        if a.plans or done.returncode:
            print(f"== {rows} {slices}\n{done.stdout}{done.stderr}", file=out, flush=True)
            continue
        for row in json.loads(done.stdout):
            if row["op"] == "gemm":
                row["shape"] += f", tiles of {rows}, {slices} of k"
                print(json.dumps(row), file=out, flush=True)


if __name__ == "__main__":
    main()
