#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kernel_table.py -o FILE.md LOG... - a table of what ptxas -v reports of each
kernel: registers, static shared memory, stack and spills.  Exits 1 if a kernel
spills, after writing the table."""
import argparse
import pathlib
import re
import sys

HEAD = """# GPU kernels

Written by `make kernels` from the output of ptxas. Shared memory is the part that is
fixed when a kernel is compiled; a launch adds what its plan asks for.

| file | kernel | registers | static shared bytes | stack bytes | spilled bytes, stored / loaded |
|---|---|---|---|---|---|
"""

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
FRAME = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def kernels(text):
    """The kernels of one log, as dicts."""
    found = None
    for line in text.splitlines():
        if match := ENTRY.search(line):
            found = {"name": match[1], "stack": 0, "stores": 0, "loads": 0}
        elif found and (match := FRAME.search(line)):
            found["stack"], found["stores"], found["loads"] = map(
                int, match.groups())
        elif found and (match := USED.search(line)):
            shared = SHARED.search(line)
            yield found | {"registers": int(match[1]),
                           "shared": int(shared[1]) if shared else 0}
            found = None


def main():
    """Writes the table; 1 if a kernel spills."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", dest="out", required=True, type=pathlib.Path)
    parser.add_argument("logs", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    rows = [(log.stem, kernel) for log in sorted(options.logs)
            for kernel in sorted(kernels(log.read_text(encoding="utf-8")),
                                 key=lambda k: k["name"])]
    if not rows:
        sys.exit("kernel_table.py: no kernel in " +
                 ", ".join(map(str, options.logs)))
    table = HEAD + "".join(
        f"| {stem}.cu | {k['name']} | {k['registers']} | {k['shared']} | "
        f"{k['stack']} | {k['stores']} / {k['loads']} |\n"
        for stem, k in rows)
    options.out.write_text(table, encoding="utf-8")
    spilled = [k["name"] for _, k in rows if k["stores"] or k["loads"]]
    if spilled:
        sys.exit("kernel_table.py: spills in " + ", ".join(spilled))


if __name__ == "__main__":
    main()
