#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kernel_table.py -o FILE.md --ptx FOLDER LOG... - tables of each kernel: registers,
static shared memory, stack and spills as ptxas -v reports them in LOG, columns of
tensor memory in the PTX, and instructions of the loops in the machine code next to
LOG.  Exits 1 if a kernel spills, after writing the tables."""
import argparse
import pathlib
import re
import sys

import sass_loops

HEAD = """# GPU kernels

For contributors to kernels. `make kernels` writes this page from the output of ptxas and
nvdisasm. Shared memory is the part that is fixed when a kernel is compiled. A launch adds
the part that its plan needs, on Blackwell up to all that a CTA can have. Tensor memory has
512 columns.

| file | kernel | registers | static shared bytes | tensor memory columns | stack bytes | \
spilled bytes, stored / loaded |
|---|---|---|---|---|---|---|
"""

LOOPS = """
## Loops

Instructions in the machine code of the loops that a product spends its time in
(`tools/sass_loops.py`). `tests/cuda/test_sass_loops.py` fails when one of them grows by
over 10 %. A loop counts with all its branches, the epilogue's by its shortest way that
stores a whole tile.

Blackwell's products: of the multiply warp and the load warp in a stage of k256, and of an
epilogue warp for 32 rows of A and 32 columns of C.

| kernel | multiply, a stage | an MMA | load, a stage | epilogue fp32 | fp16 | bf16 |
|---|---|---|---|---|---|---|
"""

VECTORS = """
Vectors and few rows of A: of a thread for 16 codes of B.

| kernel | instructions | of rows of A |
|---|---|---|
"""

HOPPER = """
Hopper's products: of a multiply warp in the loop of the widest tile.

| kernel | loop | wgmma in it | a wgmma |
|---|---|---|---|
"""

COLUMNS = re.compile(r"mov\.b32\s+(%r\d+), (\d+);\s+// begin inline asm\s+"
                     r"tcgen05\.alloc\S* \[%r\d+\], \1;")
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


def tensor_columns(ptx):
    """{kernel: columns of tensor memory} of the kernels that take some."""
    parts = re.split(r"\.entry (\w+)", ptx.read_text(encoding="utf-8"))
    return {name: int(match[2]) for name, text in zip(parts[1::2], parts[2::2])
            if (match := COLUMNS.search(text))}


def loop_tables(measured):
    """Markdown of what sass_loops.measure() gives."""
    def count(loops, name):
        return str(loops[name][0]) if name in loops else ""

    table = LOOPS
    for kernel, loops in measured.items():
        if "multiply" in loops:
            stage, mmas = loops["multiply"]
            table += (f"| {kernel} | {stage} | {stage / mmas:.1f} | "
                      f"{count(loops, 'load')} | {count(loops, 'fp32')} | "
                      f"{count(loops, 'fp16')} | {count(loops, 'bf16')} |\n")
    table += VECTORS
    for kernel, loops in measured.items():
        if "codes" in loops:
            instructions, units = loops["codes"]
            table += (f"| {kernel} | {instructions / units:.1f} | "
                      f"{re.search(r'gemv_[a-z_]*([0-9]+)', kernel)[1]} |\n")
    table += HOPPER
    for kernel, loops in measured.items():
        if "wgmma" in loops:
            instructions, units = loops["wgmma"]
            table += (f"| {kernel} | {instructions} | {units} | "
                      f"{instructions / units:.1f} |\n")
    return table


def main():
    """Writes the tables; 1 if a kernel spills."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", dest="out", required=True, type=pathlib.Path)
    parser.add_argument("--ptx", required=True, type=pathlib.Path)
    parser.add_argument("logs", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    rows = [(log.stem, kernel) for log in sorted(options.logs)
            for kernel in sorted(kernels(log.read_text(encoding="utf-8")),
                                 key=lambda k: k["name"])]
    if not rows:
        sys.exit("kernel_table.py: no kernel in " +
                 ", ".join(map(str, options.logs)))
    columns = {}
    for log in options.logs:
        columns |= tensor_columns(options.ptx / f"{log.stem}.ptx")
    table = HEAD + "".join(
        f"| {stem.replace('_', '/', 1)}.cu | {k['name']} | {k['registers']} | {k['shared']} | "
        f"{columns.get(k['name'], 0)} | {k['stack']} | "
        f"{k['stores']} / {k['loads']} |\n"
        for stem, k in rows)
    try:
        table += loop_tables(sass_loops.measure(
            [log.with_suffix(".cubin") for log in options.logs]))
    except FileNotFoundError as err:
        sys.exit(f"kernel_table.py: {err}")
    options.out.write_text(table, encoding="utf-8")
    spilled = [k["name"] for _, k in rows if k["stores"] or k["loads"]]
    if spilled:
        sys.exit("kernel_table.py: spills in " + ", ".join(spilled))


if __name__ == "__main__":
    main()
