#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""whole_model.py - measures tokens per second of a whole model in transformers on the
CPU, in NVFP4 and in bfloat16, for several numbers of threads.

    python bench/whole_model.py                       # 1, 2, 4, ... threads
    python bench/whole_model.py --size 1b --busy 1    # while another process computes

Each row is a process of examples/generate.py with a random Llama, whose two versions
alternate; only the number of threads is set.  --busy starts processes that keep one
core each busy.  Exits with 77 and one line if torch or transformers is missing."""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GENERATE = os.path.join(ROOT, "examples", "generate.py")
# A process that always computes.
BUSY = [sys.executable, "-c", "while True: pass"]


def powers_of_two(most):
    """[1, 2, 4, ..., most]"""
    counts = [1]
    while counts[-1] * 2 < most:
        counts.append(counts[-1] * 2)
    return counts + [most] if most > 1 else counts


def measure(given, folder, threads):
    """Returns what one process of generate.py measured."""
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("OMP_", "KMP_", "GOMP_", "MKL_"))}
    environment |= {"OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, GENERATE, "--json", "--keep", folder,
               "--size", given.size, "--rounds", str(given.rounds),
               "--prompt", str(given.prompt)]
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE,
                          check=True)
    lines = done.stdout.splitlines()
    return {"machine": lines[0], "busy": given.busy, **json.loads(lines[-1])}


def columns(rates):
    for step in ("prompt", "decode"):
        dense, nvfp4 = rates["bfloat16"][step], rates["NVFP4"][step]
        yield f"{nvfp4:10.1f} {dense:10.1f} {nvfp4 / dense:6.2f}x"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--size", default="small", choices=("tiny", "small", "1b"))
    parser.add_argument("--threads", help="1,2,4: numbers of threads; by default up to "
                        "all cores")
    parser.add_argument("--busy", type=int, default=0,
                        help="other processes that compute")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="writes the rows there")
    given = parser.parse_args()
    missing = [name for name in ("torch", "transformers", "nibblas")
               if importlib.util.find_spec(name) is None]
    if missing:
        print(f"whole model: not measured, {sys.executable} has no "
              f"{', '.join(missing)}")
        sys.exit(77)
    threads = ([int(x) for x in given.threads.split(",")] if given.threads
               else powers_of_two(len(os.sched_getaffinity(0))))
    rows = []
    busy = [subprocess.Popen(BUSY) for _ in range(given.busy)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            for count in threads:
                row = measure(given, folder, count)
                if not rows:
                    print(f"Llama, size {given.size}, random weights; "
                          f"{row['machine'].split(', ', 1)[1].split('threads, ')[-1]}; "
                          f"{given.busy} other busy processes")
                    print(f"{'tokens/s':8}{'prompt of ' + str(given.prompt):>29}"
                          f"{'then each token':>30}")
                    print(f"{'threads':8}"
                          + 2 * f"{'NVFP4':>11}{'bfloat16':>11}{'':>7}")
                rows.append(row)
                print(f"{count:<8}" + " ".join(columns(row["tokens_per_s"])),
                      flush=True)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
