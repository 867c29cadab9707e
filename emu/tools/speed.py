#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""speed.py [--runs N] [--threads N] [--seconds N] [--program FILE]... LIBRARY...

How fast the software GPU runs plain kernels, with its checkers and without.  A LIBRARY
is the folder of a libcuda.so.1, as build/cuda; several are run in alternation and
compared.  Without --program, speed.cu is compiled by nvcc and each of its kernels is
one row; a program is one row of all its launches in the first N seconds.  The numbers
are millions of threads' instructions per second of the launches, the best of N runs:
by the clock on the wall, where --threads counts, and by the processors' time of all
threads together."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

LAUNCH = re.compile(r"^nibemu: (\d+) thread instructions, ([\d.]+) s wall time, "
                    r"([\d.]+) s processor time")


def sum_launches(text):
    """Instructions, seconds of the clock and of processors, from NIBEMU_VERBOSE=1."""
    launches = [LAUNCH.match(line) for line in text.splitlines()]
    found = [(int(m[1]), float(m[2]), float(m[3])) for m in launches if m]
    return tuple(sum(column) for column in zip(*found)) or (0, 0.0, 0.0)


def run(command, library, is_unchecked, options):
    """Runs a program once: its instructions and its two times, see sum_launches()."""
    env = dict(os.environ, LD_LIBRARY_PATH=library, NIBEMU_VERBOSE="1",
               NIBEMU_UNCHECKED="1" if is_unchecked else "0",
               NIBEMU_THREADS=str(options.threads))
    try:
        text = subprocess.run(command, env=env, text=True, timeout=options.seconds,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE).stderr
    except subprocess.TimeoutExpired as cut:
        text = (cut.stderr or b"").decode()
    sums = sum_launches(text)
    if not sums[2]:
        sys.exit(f"{command[0]}: no launch has ended:\n{text}")
    return sums


def rate(name, command, options):
    """Prints the rows of one program."""
    best = {}
    for _ in range(options.runs):
        for library in options.library:
            for is_unchecked in (False, True):
                count, wall, processors = run(command, library, is_unchecked, options)
                key = library, is_unchecked
                speeds = count / wall / 1e6, count / processors / 1e6
                best[key] = [max(*pair) for pair in
                             zip(best.get(key, (0, 0)), speeds)]
    for library in options.library:
        checked, unchecked = best[library, False], best[library, True]
        print(f"| {name} | {library} | {count / 1e6:.1f} | {checked[0]:.0f} "
              f"| {unchecked[0]:.0f} | {checked[1]:.0f} | {unchecked[1]:.0f} "
              f"| {unchecked[1] / checked[1]:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--program", action="append", default=[])
    parser.add_argument("library", nargs="+")
    options = parser.parse_args()
    print("| program | library | thread-instructions, M | checked, M/s | unchecked, M/s "
          "| checked, M/s of a core | unchecked, M/s of a core | ratio |\n"
          "|---|---|---|---|---|---|---|---|")
    for program in options.program:
        rate(pathlib.Path(program).name, [program], options)
    if options.program:
        return
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/speed"
        source = pathlib.Path(__file__).with_suffix(".cu")
        subprocess.run(["nvcc", "-O2", "-cudart", "shared", "-gencode",
                        "arch=compute_90a,code=compute_90a", "-o", program, source],
                       check=True)
        env = dict(os.environ, LD_LIBRARY_PATH=options.library[0])
        names = subprocess.run([program], env=env, text=True, check=True,
                               stdout=subprocess.PIPE).stdout.split()
        for name in names:
            rate(name, [program, name], options)


if __name__ == "__main__":
    main()
