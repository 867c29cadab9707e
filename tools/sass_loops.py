#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sass_loops.py CUBIN... - counts the instructions of the kernels' loops in machine
code, as JSON: {kernel: {loop: [instructions, of how many units]}}.  A loop runs
from the target of a backward branch to the branch; the smallest one that holds the
instruction named below counts.

  multiply   UTCOMMA    a stage of k256; the units are MMAs
  load       UTMALDG    a stage of k256; the units are loads
  fp32, fp16, bf16      the epilogue's loop with LDTM.x32, 32 rows of A, on the
                        shortest way that stores a whole tile
  codes      HMMA, IMMA, IDP in a kernel of vectors; a unit is 16 codes of B
  wgmma      HGMMA, of the widest tile; the units are HGMMAs

Takes nvdisasm from the machine, or from build/, where tools/setup.sh puts it."""
import bisect
import collections
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HINT = ("no nvdisasm: it comes with the CUDA toolkit, or by tools/setup.sh kernels "
        "from PyPI (nvidia-cuda-nvdisasm)")

SECTION = re.compile(r"\s*\.section\s+\.text\.(\w+)")
LABEL = re.compile(r"(\.L_x_\d+):")
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
BRANCH = re.compile(r"(@\S+ +)?(BRA\S*) +(.*?)`\((\.L_x_\d+)\)")

ROWS = 32               # of A that LDTM.x32 reads


def find_nvdisasm():
    """The program, or None."""
    folders = [ROOT / "build" / name / "bin" for name in ("nvdisasm", "nvcc")]
    folders += [pathlib.Path(os.environ[name]) / "bin"
                for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    folders += [pathlib.Path("/usr/local/cuda/bin")]
    path = os.pathsep.join([os.environ.get("PATH", "")] + list(map(str, folders)))
    return shutil.which("nvdisasm", path=path)


class Function:
    """The machine code of a kernel."""

    def __init__(self, name):
        self.name, self.code, self.labels = name, [], {}

    @functools.cached_property
    def names(self):
        """The instructions' names, without predicates."""
        words = [text.split(maxsplit=2) for text in self.code]
        return [w[1] if w[0].startswith("@") else w[0] for w in words]

    @functools.cached_property
    def branches(self):
        """{at: (target, is conditional)}."""
        found = {}
        for at, name in enumerate(self.names):
            match = BRANCH.match(self.code[at]) if name.startswith("BRA") else None
            if match:
                found[at] = self.labels[match[4]], bool(match[1] or match[3].strip())
        return found

    @functools.cached_property
    def loops(self):
        """[(first, last)] of all loops, the smallest first."""
        found = [(to, at) for at, (to, _) in self.branches.items() if to < at]
        return sorted(found, key=lambda loop: loop[1] - loop[0])

    def loops_with(self, pattern):
        """[(first, last, how many such instructions)], the smallest first."""
        at = [i for i, name in enumerate(self.names) if re.match(pattern, name)]
        counts = [(first, last, bisect.bisect(at, last) - bisect.bisect(at, first - 1))
                  for first, last in (self.loops if at else [])]
        return [loop for loop in counts if loop[2]]

    def successors(self, at):
        """Where the instruction may go."""
        to, is_conditional = self.branches.get(at, (None, True))
        if to is not None:
            yield to
        is_end = self.names[at].startswith(("EXIT", "RET", "BRX")) and \
            not self.code[at].startswith("@")
        if is_conditional and not is_end and at + 1 < len(self.code):
            yield at + 1

    def way(self, first, goal):
        """Instructions on the shortest way from first to goal, or None."""
        queue, seen = collections.deque([first]), {first: 1}
        while queue and goal not in seen:
            at = queue.popleft()
            for to in self.successors(at):
                if to not in seen:
                    seen[to] = seen[at] + 1
                    queue.append(to)
        return seen.get(goal)


def functions(text):
    """The kernels of nvdisasm -c."""
    found = None
    for line in text.splitlines():
        if match := SECTION.match(line):
            if found:
                yield found
            found = Function(match[1])
        elif found and (match := LABEL.match(line)):
            found.labels[match[1]] = len(found.code)
        elif found and (match := INSTRUCTION.match(line)):
            found.code.append(match[1])
    if found:
        yield found


def stores(f, first, last):
    """[(type, first, last)]: blocks of a loop, of ROWS stores without a predicate."""
    ends = {at + 1 for at in f.branches} | {to for to, _ in f.branches.values()}
    ends = sorted(at for at in ends if first <= at <= last + 1)
    for begin, end in zip(ends, ends[1:]):
        names = [name for name, text in zip(f.names[begin:end], f.code[begin:end])
                 if not text.startswith("@")]
        plain = [name for name in names if name.startswith("STG.E")]
        if len(plain) == ROWS:
            kind = ("fp32" if not any(".U16" in name for name in plain) else
                    "bf16" if any(name.startswith("F2FP.BF16") for name in names)
                    else "fp16")
            yield kind, begin, end - 1


def epilogue(f):
    """{type: instructions of ROWS rows of A, from the loop's begin to its end}."""
    found = {}
    for first, last, _ in f.loops_with(r"LDTM\.x32")[:1]:
        load = next(at for at in range(first, last) if f.names[at] == "LDTM.x32")
        for kind, begin, end in stores(f, first, last):
            ways = f.way(first, load), f.way(load, begin), f.way(end, last)
            if all(ways):
                # load, begin and end are counted twice.
                count = sum(ways) + (end - begin + 1) - 3
                found[kind] = min(count, found.get(kind, count))
    return found


def codes_of(f, first, last):
    """Sixteens of codes that a thread takes in a pass of a loop."""
    names = collections.Counter(f.names[first:last + 1])
    wide = sum(4 * n for name, n in names.items()
               if name.startswith("LDG") and name.endswith(".256"))
    wide += sum(2 * n for name, n in names.items()
                if name.startswith("LDGSTS") and name.endswith("LTC256B.128"))
    return wide or 8        # else a step: 16 rows of k 256 a warp


def loops_of(f):
    """{loop: [instructions, units]} of one kernel."""
    found = {}
    for loop, pattern in (("multiply", "UTCOMMA"), ("load", "UTMALDG")):
        for first, last, count in f.loops_with(pattern)[:1]:
            found[loop] = [last - first + 1, count]
    found |= {kind: [count, ROWS] for kind, count in sorted(epilogue(f).items())}
    if "gemv" in f.name:
        for first, last, _ in f.loops_with("HMMA|IMMA|IDP")[:1]:
            found["codes"] = [last - first + 1, codes_of(f, first, last)]
    widths = [int(match[1]) for name in f.names
              if (match := re.match(r"HGMMA\.64x(\d+)", name))]
    if widths:
        for first, last, count in f.loops_with(rf"HGMMA\.64x{max(widths)}x")[:1]:
            found["wgmma"] = [last - first + 1, count]
    return found


def measure(cubins):
    """{kernel: {loop: [instructions, units]}}; exits where there is no nvdisasm."""
    program = find_nvdisasm()
    if not program:
        raise FileNotFoundError(HINT)
    found = {}
    for cubin in cubins:
        text = subprocess.run([program, "-c", cubin], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        found |= {f.name: loops for f in functions(text) if (loops := loops_of(f))}
    return dict(sorted(found.items()))


def main():
    """Prints them."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        print(json.dumps(measure(sys.argv[1:]), indent=1))
    except FileNotFoundError as err:
        sys.exit(f"sass_loops.py: {err}")


if __name__ == "__main__":
    main()
