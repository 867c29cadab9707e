#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ptx_census.py [--library PATH] [--json] [--reasons N] [--list FILE] FOLDER...

Counts the kernels of other projects that the software GPU accepts.  Each folder is a
project; its .ptx files are loaded through libnibemu, and each of their entries is
looked up by its name.  Prints a table: project, files, entries, accepted entries, and
below it the reasons why the others were refused, with counts.

--list FILE compiles first: a line "output|nvcc's arguments" makes FOLDER/output.ptx of
the first folder, one after the other, unless it exists.  The arguments may have
$VARIABLES, of the environment or of lines "NAME=value" above; tools/census/ has lists.
A file that does not compile leaves output.ptx.err with the compiler's messages, and
counts as a file without PTX.

Each module is loaded on the software GPU of its target: h200, b200 or rtx5090.  For an
accepted entry all instructions are supported; it was not run."""

import argparse
import collections
import ctypes
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ENTRY = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+)*\.entry\s+([\w$]+)", re.M)
TARGET = re.compile(r"^\.target\s+sm_(\d+)(\w?)", re.M)
# An entry that is always accepted, so that a module whose own are all refused is read.
ALWAYS = "\n.visible .entry nibemu_census() { ret; }\n"
# What differs between two places of one gap: names, numbers, lines.
VARIES = re.compile(r"\$?_Z\w+|\$\w+|%\w+|\bPTX line \d+: |'[^']{24,}'")


@dataclasses.dataclass
class Count:
    """What a project's modules had."""

    files: int = 0
    uncompiled: int = 0
    entries: int = 0
    taken: int = 0
    reasons: collections.Counter = dataclasses.field(
        default_factory=collections.Counter)
    refused_modules: list = dataclasses.field(default_factory=list)


def compile_list(path, folder):
    """Makes the PTX files of a list, one nvcc at a time."""
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        variable = re.match(r"(\w+)=(.*)", line)
        if variable:
            os.environ[variable[1]] = os.path.expandvars(variable[2])
            continue
        output, arguments = line.split("|", 1)
        ptx = folder / f"{output}.ptx"
        failed = ptx.with_suffix(".ptx.err")
        if ptx.exists() or failed.exists():
            continue
        ptx.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["nvcc", "-ptx", "-o", str(ptx) + ".part",
                               *shlex.split(os.path.expandvars(arguments))],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            failed.write_text(done.stderr)
        else:
            os.replace(str(ptx) + ".part", ptx)


# ---- one module ----------------------------------------------------------------


class Driver:
    """The calls of libnibemu that the census needs."""

    def __init__(self, library):
        self.cuda = ctypes.CDLL(library)
        self.check(self.cuda.cuInit(0))
        context = ctypes.c_void_p()
        self.check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        self.check(self.cuda.cuCtxPushCurrent_v2(context))

    def text(self, result):
        """The driver's text for a result."""
        words = ctypes.c_char_p()
        self.cuda.cuGetErrorString(result, ctypes.byref(words))
        return words.value.decode(errors="replace") if words.value else str(result)

    def check(self, result):
        """Ends the program if a call that must succeed has failed."""
        if result:
            raise SystemExit(f"ptx_census.py: {self.text(result)}")

    def entries(self, text):
        """Each entry's name with None, or with the reason why it was refused."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        result = self.cuda.cuModuleLoadData(ctypes.byref(module),
                                            (text + ALWAYS).encode())
        if result:
            why = self.text(result)
            return {name: "module: " + why for name in ENTRY.findall(text)}
        found = {}
        for name in ENTRY.findall(text):
            result = self.cuda.cuModuleGetFunction(ctypes.byref(function), module,
                                                   name.encode())
            found[name] = self.text(result) if result else None
        return found


def one_file(library, path):
    """Loads one module and prints its entries as JSON (a process of its own)."""
    text = pathlib.Path(path).read_text(errors="replace")
    print(json.dumps(Driver(library).entries(text)))


def device_of(text):
    """The software device for a module's target."""
    found = TARGET.search(text)
    target = int(found.group(1)) if found else 90
    return "h200" if target <= 90 else "b200" if target <= 103 else "rtx5090"


def ask(library, path):
    """A module's entries; a crash of the library is also a reason."""
    device = device_of(path.read_text(errors="replace"))
    done = subprocess.run([sys.executable, __file__, "--library", library,
                           "--one", str(path)],
                          env=os.environ | {"NIBEMU_DEVICE": device},
                          capture_output=True, text=True, check=False)
    if done.returncode:
        names = ENTRY.findall(path.read_text(errors="replace"))
        why = f"the library ended with {done.returncode}: {done.stderr[-200:]}"
        return {name: why for name in names}
    return json.loads(done.stdout)


# ---- the table -----------------------------------------------------------------


def kind_of(why):
    """The reason without the parts that are specific to one place."""
    why = why.split("; ")[0]
    return " ".join(VARIES.sub("", why).split())


def count_project(library, folder):
    """All of a project's modules."""
    count = Count()
    count.uncompiled = len(list(folder.rglob("*.ptx.err")))
    for path in sorted(folder.rglob("*.ptx")):
        entries = ask(library, path)
        count.files += 1
        count.entries += len(entries)
        for why in entries.values():
            if why is None:
                count.taken += 1
            else:
                count.reasons[kind_of(why)] += 1
        if any(w and w.startswith("module: ") for w in entries.values()):
            count.refused_modules.append(path.name)
    return count


def share(taken, entries):
    """As a percentage."""
    return f"{100 * taken / entries:.1f} %" if entries else "-"


def print_table(counts, most):
    """Markdown: the counts, then the reasons."""
    print("| project | files | not compiled | entries | accepted | share |")
    print("|---|---|---|---|---|---|")
    for name, c in counts.items():
        print(f"| {name} | {c.files} | {c.uncompiled} | {c.entries} | {c.taken} | "
              f"{share(c.taken, c.entries)} |")
    entries = sum(c.entries for c in counts.values())
    taken = sum(c.taken for c in counts.values())
    print(f"| all | {sum(c.files for c in counts.values())} | "
          f"{sum(c.uncompiled for c in counts.values())} | {entries} | {taken} | "
          f"{share(taken, entries)} |")
    reasons = collections.Counter()
    for c in counts.values():
        reasons.update(c.reasons)
    if reasons:
        print("\n| entries | refused for |\n|---|---|")
    for why, number in reasons.most_common(most):
        print(f"| {number} | {why.replace('|', chr(92) + '|')} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library",
                        default=str(HERE.parent / "build" / "libnibemu.so"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--reasons", type=int, default=40)
    parser.add_argument("--list", type=pathlib.Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    if args.one:
        one_file(args.library, args.one)
        return
    if args.list:
        compile_list(args.list, args.folders[0])
    counts = {f.name: count_project(args.library, f) for f in args.folders}
    if args.json:
        print(json.dumps({name: dataclasses.asdict(c)
                          for name, c in counts.items()}, indent=1))
    else:
        print_table(counts, args.reasons)


if __name__ == "__main__":
    main()
