#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""upstream_bugs.py [--build DIR] [--work DIR] [--seeds N] [--row NAME] [--json FILE]
                    [--include DIR] [--check] FOLDER...

Finds bugs that other projects have fixed with the software GPU.  Each FOLDER is a git
repository with history (it may be bare) that has commits of tools/upstream/rows.json;
nothing is fetched.  The kernels of a row are taken unchanged from the commit that fixed
the bug and from its parent, compiled by nvcc with the row's driver (tools/upstream/*.cu),
and run with the seeds 0 to N-1 (64).  Prints a table: on how many seeds the parent is
reported, by which rules, and on how many the fix is reported.

--build is emu's build folder (for libnibemu.so), --include a folder with headers of CUDA
that nvcc's folder lacks (curand.h).  Compiled programs stay in --work and are used again.
A row with "about" counts the reports that have these words, and continues after others.
--check only validates rows.json and prints its faults; it needs no folder."""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
DRIVERS = HERE / "upstream"
RULE = re.compile(r"^\s*rule: ([\w-]+)", re.M)
REPORT = re.compile(r"^nibemu: .*(?:\n  .*)*", re.M)
SIDES = ("parent", "fix")
NEEDED = {"name", "project", "commit", "driver", "device", "arch", "bug"}
OPTIONAL = {"about", "std", "tree", "include", "define", "copy", "with", "env", "note"}


@dataclasses.dataclass
class Side:
    """The results of a row's seeds at one of its two commits."""
    seeds: int = 0
    reported: int = 0
    first: int | None = None
    rules: collections.Counter = dataclasses.field(
        default_factory=collections.Counter)
    failed: str = ""


# ---- rows ----------------------------------------------------------------------


def read_rows():
    """The rows of rows.json."""
    return json.loads((DRIVERS / "rows.json").read_text())


def common_faults(rows, needed, optional, drivers):
    """The faults of the rows of any such file, one in each line."""
    found = []
    names = collections.Counter(row.get("name") for row in rows)
    for row in rows:
        name = row.get("name", "a row without a name")
        found += [f"{name}: no {key}" for key in sorted(needed - row.keys())]
        found += [f"{name}: {key} is not known"
                  for key in sorted(row.keys() - needed - optional)]
        if names[row.get("name")] > 1:
            found.append(f"{name}: the name is there twice")
        driver = drivers / row.get("driver", "none")
        if "driver" in needed | row.keys() and not driver.is_file():
            found.append(f"{name}: no driver {row.get('driver')}")
        if row.get("device") not in ("h200", "b200", "rtx5090"):
            found.append(f"{name}: device {row.get('device')} is not known")
    used = {row.get("driver") for row in rows}
    return found + [f"{driver.name}: no row uses it"
                    for driver in sorted(drivers.glob("*.cu")) if driver.name not in used]


def faults_of(rows):
    """The faults of the rows, one in each line."""
    return common_faults(rows, NEEDED, OPTIONAL, DRIVERS) + [
        f"{row.get('name')}: commit is not a commit's name" for row in rows
        if not re.fullmatch(r"[0-9a-f]{7,40}", row.get("commit", ""))]


# ---- trees ---------------------------------------------------------------------


def git(folder, *words):
    """The output of a git command, or None if it failed."""
    done = subprocess.run(["git", "-C", str(folder), *words], check=False,
                          capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def holder_of(folders, commit):
    """The folder that has a commit, or None."""
    for folder in folders:
        if git(folder, "cat-file", "-e", commit + "^{commit}") is not None:
            return folder
    return None


def extract(folder, commit, paths, where):
    """Writes a commit's PATHS to WHERE, unless they exist.  False: it has none."""
    if where.exists():
        return True
    there = [p for p in paths if git(folder, "cat-file", "-e", f"{commit}:{p}")
             is not None]
    part = where.with_name(where.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for path in there:
        with subprocess.Popen(["git", "-C", str(folder), "archive",
                               f"--prefix={path}/", f"{commit}:{path}"],
                              stdout=subprocess.PIPE) as archive:
            done = subprocess.run(["tar", "x", "-C", str(part)], check=False,
                                  stdin=archive.stdout)
        if done.returncode or archive.returncode:
            return False
    if not there:
        return False
    part.rename(where)
    return True


def prepare(row, side, folders, work):
    """The row's sources at one commit.  Returns include folders, or what is missing."""
    folder = holder_of(folders, row["commit"])
    if not folder:
        return None, f"no folder has {row['commit']} of {row['project']}"
    commit = row["commit"] + ("^" if side == "parent" else "")
    tree = work / row["name"] / side
    if not extract(folder, commit, row.get("tree", ["include"]), tree):
        return None, f"{commit} was not extracted"
    includes = [tree / i for i in row.get("include", ["include"])]
    # A copy in a folder of its own: what it includes by "..." is not the file next to it.
    for path in row.get("copy", []):
        alone = work / row["name"] / (side + ".alone")
        alone.mkdir(exist_ok=True)
        shutil.copy(tree / path, alone)
        includes.append(alone)
    for other in row.get("with", []):
        folder = holder_of(folders, other["commit"])
        there = work / f"{other['commit'][:12]}"
        if not folder or not extract(folder, other["commit"], [other["path"]], there):
            return None, f"no folder has {other['commit']} of {other['project']}"
        includes.append(there / other["path"])
    return includes, ""


# ---- one row -------------------------------------------------------------------


def compile_program(row, source, program, folders, args):
    """Compiles a program.  Returns the reason if that fails, otherwise ""."""
    arch = f"arch=compute_{row['arch']},code=compute_{row['arch']}"
    folders = [*folders, DRIVERS, DRIVERS / "stub", *args.include]
    done = subprocess.run(
        ["nvcc", "-cudart", "shared", "-O2", "-w", "-lineinfo", "-DNDEBUG",
         "-std=c++" + row.get("std", "17"), "--expt-relaxed-constexpr",
         "--expt-extended-lambda", "-gencode", arch,
         *(f"-D{d}" for d in row.get("define", [])), *(f"-I{f}" for f in folders),
         str(source), "-o", str(program), f"-L{args.build / 'cuda' / 'stubs'}", "-lcuda"],
        capture_output=True, text=True, check=False)
    if done.returncode:
        program.unlink(missing_ok=True)
        return "not compiled: " + done.stderr.strip()[-300:]
    return ""


def compile_side(row, side, includes, args):
    """The program of a side, or the reason why there is none."""
    program = args.work / row["name"] / f"{side}.out"
    if program.exists():
        return program, ""
    why = compile_program(row, DRIVERS / row["driver"], program, includes, args)
    return (None if why else program), why


def run_seed(row, program, seed, args):
    """The rules of the reports of one schedule; "failed" for another end."""
    env = os.environ | row.get("env", {}) | {
        "NIBEMU_SEED": str(seed), "NIBEMU_DEVICE": row["device"],
        "LD_LIBRARY_PATH": str(args.build / "cuda")}
    if "about" in row:
        env["NIBEMU_CONTINUE"] = "1"
    done = subprocess.run([str(program)], env=env, check=False, capture_output=True,
                          text=True, errors="replace")
    text = done.stdout + done.stderr
    (args.work / row["name"] / f"{program.stem}.{seed}.txt").write_text(text)
    if done.returncode == 0:
        return []
    reports = REPORT.findall(text)
    if not reports:
        return ["failed: " + (text.strip().splitlines() or ["no word"])[-1][:200]]
    return [rule_of(report) for report in reports
            if re.search(row.get("about", ""), report)][:1]


def rule_of(report):
    """The name of a report's rule."""
    found = RULE.search(report)
    if found:
        return found.group(1)
    return "deadlock" if "deadlock" in report else "other"


def run_side(row, side, folders, args):
    """All seeds of one side."""
    result = Side()
    includes, result.failed = prepare(row, side, folders, args.work)
    if result.failed:
        return result
    program, result.failed = compile_side(row, side, includes, args)
    if result.failed:
        return result
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        ends = list(pool.map(lambda seed: run_seed(row, program, seed, args),
                             range(args.seeds)))
    result.seeds = args.seeds
    for seed, rules in enumerate(ends):
        if rules and rules[0].startswith("failed"):
            result.failed = rules[0]
        elif rules:
            result.reported += 1
            result.first = seed if result.first is None else result.first
            result.rules.update(rules)
    return result


# ---- the table -----------------------------------------------------------------


def words_of(side):
    """A side's cell of the table."""
    if side.failed:
        return side.failed.replace("\n", " ").replace("|", "\\|")
    if not side.reported:
        return f"0 of {side.seeds}"
    rules = ", ".join(f"`{r}`" + (f" ({n})" if len(side.rules) > 1 else "")
                      for r, n in side.rules.most_common())
    return f"{side.reported} of {side.seeds}, first {side.first}: {rules}"


def print_row(row, sides):
    """One line of Markdown."""
    options = " ".join(f"{k}={v}" for k, v in row.get("env", {}).items())
    print(f"| {row['project']} {row['commit']} | {row['bug']} | "
          f"{words_of(sides['parent'])} | {words_of(sides['fix'])} | "
          f"{'`' + options + '`' if options else ''} |", flush=True)


def as_json(row, sides):
    """A row's result for --json."""
    return {"name": row["name"], "project": row["project"], "commit": row["commit"],
            "env": row.get("env", {}),
            **{s: {"seeds": r.seeds, "reported": r.reported, "first": r.first,
                   "rules": dict(r.rules), "failed": r.failed}
               for s, r in sides.items()}}


def parser_of(text, work, seeds):
    """The options of both tools."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent / "build")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path(work))
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--row", action="append", default=[])
    parser.add_argument("--include", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    return parser


def rows_to_run(args, rows, faults, program):
    """The rows chosen, with absolute folders in args.  Exits where rows are wrong, after
    --check, and without a folder."""
    for line in faults:
        print("rows.json: " + line, file=sys.stderr)
    if faults or args.check:
        print(f"{len(rows)} rows, {len(faults)} faults")
        sys.exit(1 if faults else 0)
    if not args.folders:
        sys.exit(program + ": no FOLDER: give repositories with history")
    args.build, args.work = args.build.resolve(), args.work.resolve()
    return [row for row in rows if not args.row or row["name"] in args.row]


def main():
    """The table of the rows whose projects are available."""
    parser = parser_of(__doc__, "upstream_work", 64)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    args, rows = parser.parse_args(), read_rows()
    rows = rows_to_run(args, rows, faults_of(rows), "upstream_bugs.py")
    print("| commit | bug | at its parent | fixed | options |\n|---|---|---|---|---|")
    results = []
    for row in rows:
        sides = {s: run_side(row, s, args.folders, args) for s in SIDES}
        print_row(row, sides)
        results.append(as_json(row, sides))
        if args.json:
            args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
