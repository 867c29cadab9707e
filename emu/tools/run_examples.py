#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_examples.py [--build DIR] [--work DIR] [--seeds N] [--row NAME] [--include DIR]
                   [--check] FOLDER...

Runs programs on the software GPU that verify the results of kernels of other projects.
Each FOLDER is a git repository with history (it may be bare) that has commits of
tools/examples/rows.json; nothing is fetched.  A row is an unchanged program of the project
(CUTLASS's examples verify on the host), or a driver of ours (tools/examples/*.cu) that
launches the project's kernel as its own launcher does and compares with a sum in float64.
Compiles one row at a time, runs the seeds 0 to N-1 (1), and prints the table of
docs/coverage.md.  A row is right if the program ends with 0, prints `passes` and does not
print `fails`.

--build is emu's build folder, --include a folder with headers of CUDA that nvcc's folder
lacks (curand_kernel.h).  Compiled programs stay in --work and are used again.  --check
only validates rows.json and prints its faults; it needs no folder."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

import upstream_bugs as upstream

HERE = pathlib.Path(__file__).resolve().parent
DRIVERS = HERE / "examples"
NEEDED = {"name", "project", "commit", "what", "device", "arch", "size", "passes"}
OPTIONAL = {"source", "driver", "std", "tree", "include", "define", "with", "arguments",
            "env", "fails", "note"}


def faults_of(rows):
    """The faults of the rows, one in each line."""
    return upstream.common_faults(rows, NEEDED, OPTIONAL, DRIVERS) + [
        f"{row.get('name')}: it needs a source or a driver" for row in rows
        if ("source" in row) == ("driver" in row)]


def compile_row(row, args):
    """The program of a row, or the reason why there is none."""
    key = row.get("source", row.get("driver")) + " ".join(row.get("define", []))
    program = args.work / (re.sub(r"\W+", "_", key) + ".out")
    if program.exists():
        return program, ""
    folders, why = upstream.prepare(row | {"name": row["project"].split("/")[-1]}, "fix",
                                    args.folders, args.work)
    if why:
        return None, why
    tree = args.work / row["project"].split("/")[-1] / "fix"
    source = tree / row["source"] if "source" in row else DRIVERS / row["driver"]
    why = upstream.compile_program(row, source, program, [*folders, DRIVERS], args)
    return (None if why else program), why


def run_row(row, program, seed, args):
    """Seconds, and the failure, or ""."""
    env = os.environ | row.get("env", {}) | {
        "NIBEMU_SEED": str(seed), "NIBEMU_DEVICE": row["device"],
        "LD_LIBRARY_PATH": str(args.build / "cuda")}
    begin = time.monotonic()
    done = subprocess.run([str(program), *row.get("arguments", [])], env=env, text=True,
                          check=False, capture_output=True, errors="replace")
    seconds = time.monotonic() - begin
    text = done.stdout + done.stderr
    (args.work / f"{row['name']}.{seed}.txt").write_text(text)
    report = upstream.REPORT.search(text)
    rule = report and upstream.RULE.search(report.group(0))
    if rule:
        return seconds, f"seed {seed}: reported: `{rule.group(1)}`"
    if report:
        return seconds, f"seed {seed}: {report.group(0)[:200]}"
    if done.returncode:
        last = (text.strip().splitlines() or [""])[-1]
        return seconds, f"seed {seed}: status {done.returncode}: {last[:200]}"
    if "fails" in row and re.search(row["fails"], text, re.M):
        return seconds, f"seed {seed}: a result is wrong"
    if not re.search(row["passes"], text, re.M):
        return seconds, f"seed {seed}: it does not say that its results are right"
    return seconds, ""


def result_of(row, args):
    """The cells "seconds" and "result"."""
    program, why = compile_row(row, args)
    if why:
        return "", why
    ends = [run_row(row, program, seed, args) for seed in range(args.seeds)]
    wrong = [why for _, why in ends if why]
    slowest = max(seconds for seconds, _ in ends)
    return f"{slowest:.1f}", "; ".join(wrong) or \
        f"right, {args.seeds} of {args.seeds} schedules"


def main():
    """The table of the rows whose projects are available."""
    args = upstream.parser_of(__doc__, "examples_work", 1).parse_args()
    rows = json.loads((DRIVERS / "rows.json").read_text())
    rows = upstream.rows_to_run(args, rows, faults_of(rows), "run_examples.py")
    args.work.mkdir(parents=True, exist_ok=True)
    print("| example | device | size | seconds | result | options |\n"
          "|---|---|---|---|---|---|")
    is_right = True
    for row in rows:
        seconds, result = result_of(row, args)
        is_right &= result.startswith("right")
        options = " ".join(f"{k}={v}" for k, v in row.get("env", {}).items())
        result = result.replace("\n", " ").replace("|", "\\|")
        print(f"| {row['what']} | `{row['device']}` | {row['size']} | {seconds} | "
              f"{result} | {'`' + options + '`' if options else ''} |", flush=True)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
