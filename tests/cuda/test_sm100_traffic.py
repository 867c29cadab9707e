#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_sm100_traffic.py [--seeds] [--write FILE.md] - bytes that products load on the
software B200, compared with the least possible: for each column of tiles of rows of A
the weights once, for a vector the weights once.  Fails where a product loads
over 5 % more of them.  Small products, or with --seeds the contest's shapes (5
minutes), whose table --write puts between the lines <!-- traffic --> of FILE.
Needs the kernels (nvcc), no GPU."""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys

BUILD = pathlib.Path(os.environ.get("NIB", "build/release/nib")).parent
MOST = 1.05
UNIT_ROWS = 256         # of B: the rows of a tile of a pair of CTAs
MARK = "<!-- traffic -->\n"
RANGE = re.compile(r"nibemu: allocation 0x(\w+) of (\d+) bytes: "
                   r"loaded (\d+), stored (\d+)")
TOTAL = re.compile(r"nibemu: global memory: loaded (\d+) bytes .*, stored (\d+)")

HEAD = """| product | m; n x k x batch | tiles along m | weights loaded / least | \
/ once | A loaded / once | all loaded / all once |
|---|---|---|---|---|---|---|
"""

Product = collections.namedtuple(
    "Product", "op shapes columns least weights weights_once a a_once loaded once")


def run(which):
    """The lines that the program and the software GPU write."""
    environment = os.environ | {
        "NIB_CUDA_LIBRARY": str(BUILD / "libnibemu.so"), "NIBEMU_DEVICE": "b200",
        "NIBEMU_VERBOSE": "1", "NIBEMU_UNCHECKED": "1", "NIBEMU_SEED": "0"}
    environment.pop("NIBEMU_SMS", None)     # the planner uses all of them
    program = BUILD / "emu_traffic"
    if not program.exists():
        print("skipped: the build has no kernels for a B200")
        sys.exit(77)
    done = subprocess.run([program, which], env=environment, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"{program}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stderr.splitlines()


def sizes_of(text):
    """The [(m, n, k, batch)] of MxNxKxL,..."""
    return [tuple(map(int, shape.split("x"))) for shape in text.split(",")]


def least_of(op, shapes, tasks, slices):
    """(columns of tiles, bytes of weights) that the plan's tiles must load: a task
    of tiles is UNIT_ROWS rows of B, of which k_slices share the sums."""
    once = sum(n * k * batch * 9 // 16 for _, n, k, batch in shapes)
    if op == "gemv":
        return 1, once
    units = sum(-(-n // UNIT_ROWS) for _, n, _, _ in shapes)
    columns = tasks / slices / (units / len(shapes))
    assert columns == int(columns) and len({s[1:] for s in shapes}) == 1, (
        shapes, tasks, slices)
    matrices = 2 if op == "dual" else 1
    _, n, k, batch = shapes[0]
    return int(columns), int(columns) * matrices * n * k * batch * 9 // 16


def products(lines):
    """Reads what run() gives."""
    operands, head, loaded, total = {}, None, {}, 0
    for line in lines:
        words = line.split()
        if words[:1] == ["operand"]:
            operands[int(words[3], 16)] = words[1], int(words[4])
        elif words[:1] == ["product"]:
            head, loaded, total = words[1:], collections.Counter(), 0
        elif (match := RANGE.match(line)) and int(match[1], 16) in operands:
            loaded[int(match[1], 16)] += int(match[3])
        elif match := TOTAL.match(line):
            total += int(match[1])
        elif line == "done":
            def of(names, table):
                return sum(table(at) for at, (name, _) in operands.items()
                           if name in names)
            shapes = sizes_of(head[1])
            columns, least = least_of(head[0], shapes, *map(int, head[2:]))
            # A's scales are allocated for 128 rows.
            a_once = sum(m * k * batch * 9 // 16 for m, _, k, batch in shapes)
            once = of(("b", "b2"), lambda at: operands[at][1])
            yield Product(head[0], head[1], columns, least,
                          of(("b", "b2"), loaded.__getitem__), once,
                          of(("a",), loaded.__getitem__), a_once, total,
                          once + a_once)
            operands = {}


def row(p):
    """A line of the table."""
    shapes = sizes_of(p.shapes)
    rows = ", ".join(str(shape[0]) for shape in shapes)
    rest = " x ".join(map(str, shapes[0][1:]))
    return (f"| {p.op} | {rows}; {rest} | {p.columns} | "
            f"{p.weights / p.least:.3f} | {p.weights / p.weights_once:.2f} | "
            f"{p.a / p.a_once:.1f} | {p.loaded / p.once:.2f} |\n")


def main():
    """Exits 1 where a product loads too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", action="store_true")
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    found = list(products(run("seeds" if options.seeds else "small")))
    table = HEAD + "".join(map(row, found))
    print(table, end="")
    if options.write:
        text = options.write.read_text(encoding="utf-8")
        before, _, after = text.split(MARK)
        options.write.write_text(before + MARK + table + MARK + after,
                                 encoding="utf-8")
    bad = [p for p in found if not 1 <= p.weights / p.least <= MOST]
    for p in bad:
        print(f"FAIL {p.op} {p.shapes}: weights loaded {p.weights} bytes, "
              f"least {p.least}")
    if bad or not found:
        sys.exit(1)
    print(f"{len(found)} products: weights loaded at most {MOST} of the least")


if __name__ == "__main__":
    main()
