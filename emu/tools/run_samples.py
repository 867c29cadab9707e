#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_samples.py [--build DIR] [--work DIR] [--include DIR] [--sample NAME] [--seconds N]
                  [--again] [--check] FOLDER

Runs NVIDIA's cuda-samples on the software GPU and prints the tables of
docs/coverage.md.  FOLDER is a checkout of cuda-samples; it is not changed.  Each sample
is copied to --work, compiled there by nvcc with PTX and the shared runtime library, and
run once in its folder on an H200 with seed 0.  It passes if it ends with 0, prints none
of the words by which samples report a wrong result, and nibemu reports nothing (or what
`reports` and `status` of examples/samples.json state).

examples/samples.json lists what is not run, with the reason, and for other samples
smaller sizes: `arguments`, `edits` (text of its sources, and what replaces it), `env`.
Programs and results stay in --work and are used again, unless --again is given.
--seconds limits the processor time of each (60).  --include is a folder with headers of
CUDA that nvcc's folder lacks (curand_kernel.h).  --check only validates samples.json."""

import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys

import upstream_bugs as upstream

HERE = pathlib.Path(__file__).resolve().parent
LIST = HERE / "examples" / "samples.json"
FIELDS = {"size", "arguments", "edits", "env", "status", "passes", "define", "rdc", "note",
          "reports"}
FAILS = r"(?i)\btest failed|result = fail|FAILED|mismatch|errors? detected|Errors = [1-9]"


def faults_of(rows):
    """The faults of samples.json, one in each line."""
    lists = list(rows["excluded"].values())
    names = [name for names in lists for name in names]
    faults = [f"{name}: an unknown field {field}"
              for name, row in rows["samples"].items() for field in set(row) - FIELDS]
    faults += [f"{name}: it is also excluded" for name in names
               if name in rows["samples"]]
    faults += [f"{name}: excluded twice" for name in set(names)
               if names.count(name) > 1]
    faults += [f"{name}: an edit or arguments without a size"
               for name, row in rows["samples"].items()
               if ("edits" in row or "arguments" in row) and "size" not in row]
    return faults


# ---- compiling -----------------------------------------------------------------


def prepare(folder, row, args):
    """The copy of a sample, with its edits; or the reason why there is none."""
    copy = args.work / folder.parent.name / folder.name
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    for name, edits in row.get("edits", {}).items():
        text = (copy / name).read_text(errors="replace")
        for before, after in edits.items():
            if before not in text:
                return copy, f"{name} has no `{before}` to replace"
            text = text.replace(before, after)
        (copy / name).write_text(text)
    return copy, ""


def sources_of(copy):
    """The sources of a program, and those of kernels that it loads from a file."""
    cmake = (copy / "CMakeLists.txt").read_text()
    loaded = re.findall(r"(\w+)64\.(fatbin|ptx)", cmake)
    kernels = {copy / f"{stem}.cu": kind for stem, kind in loaded
               if (copy / f"{stem}.cu").exists()}
    sources = [path for pattern in ("*.cu", "*.cpp", "*.c", "src/*.cu", "src/*.cpp")
               for path in sorted(copy.glob(pattern)) if path not in kernels]
    return sources, kernels


def compile_sample(copy, row, args):
    """The program of a sample, or the reason why there is none."""
    program = copy / (copy.name + ".out")
    if program.exists() and not args.again:
        return program, ""
    sources, kernels = sources_of(copy)
    common = ["nvcc", "-std=c++17", "-w", "-lineinfo", "-gencode",
              "arch=compute_90a,code=compute_90a",
              *(f"-D{d}" for d in row.get("define", [])),
              *(f"-I{d}" for d in (args.folder / "Common", copy, copy / "inc",
                                   *args.include))]
    builds = [[*common, "-fatbin" if kind == "fatbin" else "-ptx", str(path), "-o",
               str(copy / f"{path.stem}64.{kind}")] for path, kind in kernels.items()]
    # Kernels that launch kernels need relocatable code.
    relocatable = ["-rdc=true", "-lcudadevrt"] if row.get("rdc") else []
    builds.append([*common, *relocatable, "-cudart", "shared", "-Xcompiler", "-fopenmp",
                   *map(str, sources), "-o", str(program),
                   f"-L{args.build / 'cuda' / 'stubs'}", "-lcuda", "-lgomp"])
    for build in builds:
        done = subprocess.run(build, capture_output=True, text=True, check=False)
        if done.returncode:
            text = done.stderr.strip()
            lines = re.findall(r"(?:error|undefined).*", text) or [text[-200:]]
            return None, "not compiled: " + lines[0][:200]
    return program, ""


# ---- running -------------------------------------------------------------------


def judge(row, text, status, is_late):
    """What a run shows: "passed", or what is wrong."""
    report = upstream.REPORT.search(text)
    rule = report and upstream.RULE.search(report.group(0))
    if report and "deadlock" in report.group(0):
        return "reported: deadlock"
    symbol = re.search(r"undefined symbol: (\w+)", text)
    missing = re.search(r"PTX line.*?not known[^\n]*|it holds no code.*not modelled",
                        text)
    if is_late:
        return "takes longer"
    if symbol:
        return f"refused: `{symbol.group(1)}`"
    if (rule.group(1) if rule else None) != row.get("reports"):
        return f"reported: `{rule.group(1)}`" if rule else "reported nothing"
    if missing:
        return "refused: " + re.sub(r"^PTX line \d+: |_Z\w+: ", "", missing.group(0))[:150]
    if status != row.get("status", 0):
        return f"ends with {status}: " + (text.strip().splitlines() or [""])[-1][:150]
    if "passes" in row and not re.search(row["passes"], text):
        return "does not print that its results are right"
    if "passes" not in row and re.search(FAILS, text):
        return "wrong"
    return "passed"


def run_sample(copy, program, row, args):
    """Seconds of processors, and what the run shows."""
    env = os.environ | row.get("env", {}) | {
        "NIBEMU_SEED": "0", "NIBEMU_DEVICE": "h200",
        "LD_LIBRARY_PATH": str(args.build / "cuda"),
        "NIBEMU_REPORTS": str(copy / "reports.txt")}

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (args.seconds, args.seconds + 5))

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(program), *row.get("arguments", [])], env=env, cwd=copy,
                          text=True, check=False, capture_output=True,
                          errors="replace", preexec_fn=limit,
                          stdin=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    text = done.stdout + "\n" + done.stderr
    (copy / "output.txt").write_text(text)
    # Refusals that the program does not print.
    if (copy / "reports.txt").exists():
        text += "\n" + (copy / "reports.txt").read_text()
        (copy / "reports.txt").unlink()
    return seconds, judge(row, text, done.returncode, seconds > args.seconds)


def result_of(folder, row, args):
    """The seconds and the result of a sample, from --work if it has them."""
    kept = args.work / folder.parent.name / folder.name / "result.json"
    if kept.exists() and not args.again:
        old = json.loads(kept.read_text())
        if old["row"] == row:
            return old["seconds"], old["result"]
        if {"edits", "define"} & (set(row) | set(old["row"])):
            shutil.rmtree(kept.parent)
    copy, why = prepare(folder, row, args)
    program = None
    seconds = 0.0
    if not why:
        program, why = compile_sample(copy, row, args)
    if program:
        seconds, why = run_sample(copy, program, row, args)
    kept.write_text(json.dumps({"row": row, "seconds": seconds, "result": why}))
    return seconds, why


# ---- the tables ----------------------------------------------------------------


def print_sample(folder, row, seconds, result):
    """One line of Markdown."""
    notes = [row.get("note", "")] + \
        ["`" + " ".join(f"{k}={v}" for k, v in row["env"].items()) + "`"
         if "env" in row else ""]
    note = "; ".join(n for n in notes if n)
    print(f"| {folder.parent.name[0]} | {folder.name} | {row.get('size', 'its own')} | "
          f"{seconds:.1f} | {result} | {note} |".replace("\n", " "), flush=True)


def print_counts(counts, excluded):
    """The counts by category, and what is not run."""
    print("\n| category | run | pass |\n|---|---|---|")
    for category, (run, passed) in sorted(counts.items()):
        print(f"| {category} | {run} | {passed} |")
    run = sum(c[0] for c in counts.values())
    passed = sum(c[1] for c in counts.values())
    share = 100 * passed / run if run else 0
    print(f"| all | {run} | {passed} ({share:.1f} %) |")
    print("\n| not run, for | samples |\n|---|---|")
    for reason, names in excluded.items():
        print(f"| {reason} | {len(names)}: {', '.join(names)} |")


def parse_arguments():
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--work", type=pathlib.Path,
                        default=pathlib.Path("samples_work"))
    parser.add_argument("--include", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--sample", action="append", default=[])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    return parser.parse_args()


def main():
    """The tables of all samples, or of those that were named."""
    args = parse_arguments()
    rows = json.loads(LIST.read_text())
    faults = faults_of(rows)
    for line in faults:
        print("samples.json: " + line, file=sys.stderr)
    if faults or args.check:
        print(f"{len(rows['samples'])} samples, {len(faults)} faults")
        return 1 if faults else 0
    if not args.folder:
        sys.exit("run_samples.py: no FOLDER: give a checkout of cuda-samples")
    for name in ("build", "work", "folder"):
        setattr(args, name, getattr(args, name).resolve())
    excluded = {name for names in rows["excluded"].values() for name in names}
    counts = {}
    print("| category | sample | size | seconds | result | remarks |\n"
          "|---|---|---|---|---|---|")
    for folder in sorted(args.folder.glob("Samples/[0-9]*/*/")):
        if folder.name in excluded or (args.sample and folder.name not in args.sample):
            continue
        row = rows["samples"].get(folder.name, {})
        seconds, result = result_of(folder, row, args)
        print_sample(folder, row, seconds, result)
        run, passed = counts.get(folder.parent.name, (0, 0))
        counts[folder.parent.name] = (run + 1, passed + (result == "passed"))
    if not args.sample:
        print_counts(counts, rows["excluded"])
    return 0 if all(run == passed for run, passed in counts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
