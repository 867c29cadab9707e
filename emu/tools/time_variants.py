#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""time_variants.py --nib NIB --device DEVICE [--emulator LIBRARY] [--plans] [--only TEXT]
                    [-o FILE]

Times plans of products that the planner does not choose.  A file of costs (NIB_TUNING)
forces the tile's rows of A and the number of split-k slices, and nib bench times each
plan, on a GPU or, with --device emu:h200 or emu:b200, by prediction.  Writes rows of nib
bench with the variant's name as their shape, for compare_times.py; on a B200 the planner's
own plan comes first and is named "as planned".  --emulator is libnibemu.so, for a device
of the software GPU; without it, the one next to NIB.  --plans only prints the plans,
--only uses the variants whose name has the text."""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SIZES = [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256]
# Rows of A of a tile, slices of k, shapes of one k.
HOPPER = [
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
# On a B200: an operation, its shape, rows of A of a tile, most slices of k.
GROUPS = ["80+176+128+72+64+248+96+160,4096,7168", "40+76+168+72+164+148+196+160,7168,2048",
          "192+320,3072,4096", "128+384,4096,1536"]
BLACKWELL = [
    ("gemm", "128x7168x16384", (64, 128), 2),
    ("gemm", "128x4096x7168", (64, 128), 4),
    ("gemm", "128x7168x2048", (64, 128), 2),
    ("dual_gemm", "256x4096x7168", (64, 128, 192), 4),
    ("dual_gemm", "512x4096x7168", (128, 192), 2),
    ("dual_gemm", "256x3072x4096", (64, 128, 192), 4),
    ("dual_gemm", "512x3072x7168", (128, 192), 2),
] + [("group_gemm", g, (64, 128, 192, 256), 1) for g in GROUPS]


def shape_of(text):
    """A shape in the form for nib bench; a group is written as its rows, n and k."""
    if "," not in text:
        return text
    rows, n, k = text.split(",")
    return "+".join(f"{m}x{n}x{k}" for m in rows.split("+"))


def variants_of(device):
    """(operation, rows of A or 0 for the planner's choice, slices, shapes)."""
    if not device.endswith("b200"):
        return [("gemm", *v) for v in HOPPER]
    return [(op, rows, slices, [shape_of(shape)]) for op, shape, sizes, most in BLACKWELL
            for rows in (0, *sizes) for slices in (1, 2, 4) if slices <= most
            and (rows or slices == 1)]


def split_cost(rows, slices, shape):
    """A cost of the reduction with which a plan of this many slices is the cheapest."""
    steps = int(shape.split("+")[0].split("x")[2]) // 64
    if slices != 2:
        return 10 ** 6 if slices == 1 else 1
    # A slice of s costs 400 steps / s and this times (s + 1) (rows + 32) / 480.
    return round(400 * steps * 0.145 * 480 / (rows + 32))


def step_cycles(rows):
    """A step of a pair of CTAs on a B200, as in src/backend/cuda/sm100/gemm_cut.c."""
    mine, blocks = rows / 2, 2 if rows > 128 else 1
    loads = 18432 / 4 / 40 + (mine * 128 + blocks * 2048) / 4 / 84
    return round(max(loads, (128 + mine) * 0.4, rows / 2, (128 + mine) / 4))


def revision():
    """The revision of costs that nib accepts; it ignores files of another one."""
    header = pathlib.Path(__file__).parents[2] / "src/backend/cuda/common/costs.h"
    return int(re.search(r"#define NIB_COSTS_REVISION (\d+)", header.read_text())[1])


def costs(device, processors, version, rows, split, is_group):
    """A file of costs in which only tiles of this many rows are cheap; for a group, whose
    last tiles are smaller, tiles of at most this many rows."""
    steps = [400 if s == rows else 900000 for s in SIZES]
    if is_group:
        steps = [step_cycles(s) if s <= rows else 900000 for s in SIZES]
    return {"device": device, "multiprocessors": processors, "version": version,
            "revision": revision(), "tile_rows": SIZES, "step_cycles": steps,
            "tile_cycles": 1500, "split_cycles": split}


def emulator_of(a):
    """The library for nib info."""
    nib = shutil.which(a.nib)
    beside = pathlib.Path(nib or a.nib).resolve().parent / "libnibemu.so"
    library = pathlib.Path(a.emulator or beside)
    if not library.is_file():
        sys.exit(f"time_variants.py: {library} does not exist: --emulator libnibemu.so")
    return str(library.resolve())


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


def run(command, env):
    """The output of a program, or its error messages."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.stdout, f"{done.stdout}{done.stderr}" if done.returncode else ""


def plan_of(a, env, command):
    """The plan that nib prints.  An emulated GPU is its cuda:0."""
    device = "cuda:0" if a.device.startswith("emu") else a.device
    text, why = run([a.nib, "plan", "--device", device, *command], env)
    return why or "".join(re.findall(r"^- .*\n", text, re.M))


def measure(a, env, command, name):
    """Rows of nib bench."""
    text, why = run([a.nib, "bench", "--device", a.device, *command, "--format", "json",
                     "--min-time", "0.05"], env)
    if why:
        return f"== {name}\n{why}\n"
    rows = [r for r in json.loads(text) if r["op"] != "peak"]
    for row in rows:
        row["shape"] += f", {name}"
    return "".join(json.dumps(row) + "\n" for row in rows)


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
    if a.device.startswith("emu:"):
        env["NIB_CUDA_LIBRARY"] = emulator_of(a)
        env["NIBEMU_DEVICE"] = a.device.removeprefix("emu:")
    gpu = gpu_of(a.nib, env, a.device)
    out = sys.stdout if a.output == "-" else open(a.output, "w", encoding="utf-8")
    seen = set()
    for op, rows, slices, shapes in variants_of(a.device):
        name = f"tiles of {rows}, {slices} of k" if rows else "as planned"
        if a.only and a.only not in f"{rows} {slices} {op} {shapes[0]}":
            continue
        command = ["--op", op, "--shape", ",".join(shapes), "--layout", "tiled"]
        # Its kernels read tiled scales directly, and packing takes longer than the product.
        command += ["--unpacked"] if a.device.endswith("b200") else []
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(costs(*gpu, rows, split_cost(rows, slices, shapes[0]),
                            op == "group_gemm"), file)
            file.flush()
            forced = env | ({"NIB_TUNING": file.name} if rows else {})
            plan = plan_of(a, forced, command[:4])
            if a.plans:
                out.write(f"== {name}\n{plan}")
            # The planner replaces a plan that it cannot use by another; each is timed once.
            elif (shapes[0], plan) not in seen:
                out.write(measure(a, forced, command, name))
            seen.add((shapes[0], plan))
            out.flush()


if __name__ == "__main__":
    main()
