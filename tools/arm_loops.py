#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicts the inner loops of the Arm instruction sets by llvm-mca: a Markdown table.

    tools/setup.sh cross && tools/cross.sh      # the build that is read
    tools/arm_loops.py --mca llvm-mca-22        # LLVM 16 or later knows Neoverse V2

For each loop: its instructions, and the cycles of an iteration on each processor as
llvm-mca models it, with the share of the rate at which the same model starts sdot, or
fused multiply-adds for floats.  smmla does twice the products of sdot.  No caches are
modelled, and nothing is measured.
"""
import argparse
import json
import os
import re
import shlex
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROCESSORS = ("neoverse-v2", "neoverse-n1", "apple-m1")
# File, function, the instruction of the rate, and the instructions that do its work
# with how much of it each does.
LOOPS = (
    ("neon/gemm_neondot.c", "tile_4", "sdot", {"sdot": 1}),
    ("neon/gemm_neoni8mm.c", "tile_4", "sdot", {"smmla": 2}),
    ("neon/gemm_neoni8mm.c", "tile_4", "smmla", {"smmla": 1}),
    ("neon/gemm_neondot.c", "panel_1", "sdot", {"sdot": 1}),
    ("neon/gemm_neondot.c", "panel_4", "sdot", {"sdot": 1}),
    ("neon/dense_neon.c", "tile_4", "fmla", {"fmla": 1}),
    ("neon/dense_neon.c", "panel_1", "fmla", {"fmla": 1}),
    ("neon/dense_neonbf16.c", "tile_4", "bfmmla", {"bfmmla": 1}),
    ("neon/dense_neonbf16.c", "panel_1", "bfdot", {"bfdot": 1}),
)
RATES = {"sdot": "sdot v{0}.4s, v30.16b, v31.4b[0]",
         "smmla": "smmla v{0}.4s, v30.16b, v31.16b",
         "bfmmla": "bfmmla v{0}.4s, v30.8h, v31.8h",
         "bfdot": "bfdot v{0}.4s, v30.8h, v31.8h",
         "fmla": "fmla v{0}.4s, v30.4s, v31.s[0]"}


def assembly(build, name):
    """The compiler's assembly of a source file of the CPU backend, as lines."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    for entry in commands:
        if entry["file"].endswith("src/backend/cpu/" + name):
            words = shlex.split(entry["command"])
            at = words.index("-o")
            words = words[:at] + words[at + 2:]
            words[words.index("-c")] = "-S"
            return subprocess.run(words + ["-g0", "-o", "-"], cwd=entry["directory"],
                                  check=True, capture_output=True,
                                  text=True).stdout.split("\n")
    sys.exit(f"arm_loops.py: {build} does not compile {name}: run tools/cross.sh")


def function_of(lines, name):
    begin = next(i for i, line in enumerate(lines) if line.startswith(name + ":"))
    end = next(i for i in range(begin, len(lines)) if ".size\t" + name in lines[i])
    return lines[begin:end]


def loop_of(lines, work):
    """The instructions of the loop with the most of `work` and no loop in it."""
    labels = {line[:-1]: i for i, line in enumerate(lines)
              if re.match(r"[.\w]+:$", line)}
    best = []
    for i, line in enumerate(lines):
        target = re.match(r"\tc?b[.\w]*\t(?:\w+, )*(\.L\w+)$", line)
        if not target or labels.get(target[1], i) >= i:
            continue
        body = [x for x in lines[labels[target[1]]:i + 1]
                if x.startswith("\t") and not x.startswith("\t.")]
        if sum(x.split()[0] in work for x in body) > sum(
                x.split()[0] in work for x in best):
            best = body
    return best


def cycles(mca, processor, body):
    """Cycles of an iteration, as llvm-mca predicts them."""
    done = subprocess.run(
        [mca, "-mtriple=aarch64", "-mcpu=" + processor, "-mattr=+dotprod,+i8mm,+bf16",
         "-iterations=200", "-instruction-info=0", "-resource-pressure=0"],
        input="\n".join(body), capture_output=True, text=True, check=True)
    return int(re.search(r"Total Cycles:\s+(\d+)", done.stdout)[1]) / 200


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mca", default="llvm-mca")
    parser.add_argument("--build", default=os.path.join(SOURCE, "build/cross-aarch64"))
    args = parser.parse_args()
    print("| loop | instructions | " +
          " | ".join(f"{p}: cycles, share" for p in PROCESSORS) + " |")
    print("|---" * (2 + len(PROCESSORS)) + "|")
    for name, function, of, work in LOOPS:
        body = loop_of(function_of(assembly(args.build, name), function), work)
        amount = sum(work.get(line.split()[0], 0) for line in body)
        cells = []
        for processor in PROCESSORS:
            rate = 24 / cycles(args.mca, processor,
                               [RATES[of].format(i) for i in range(24)])
            time = cycles(args.mca, processor, body)
            cells.append(f"{time:.1f}, {amount / rate / time:.2f}")
        stem = os.path.basename(name).split(".")[0]
        print(f"| `{stem}` {function}, of `{of}` | {len(body)} | " +
              " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
