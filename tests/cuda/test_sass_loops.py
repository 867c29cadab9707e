#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_sass_loops.py [--record] [FOLDER] - the loops of the kernels in FOLDER (of the
build) have at most 10 % more instructions than in sass_loops.json, which --record
writes (`make kernels`).  Another nvcc makes other machine code; then, and without
nvdisasm, the test is skipped."""
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tools"))
import sass_loops  # pylint: disable=wrong-import-position

RECORDED = HERE / "sass_loops.json"
MOST = 1.10


def skip(why):
    """Ends the test."""
    print(f"skipped: {why}")
    sys.exit(77)


def nvcc_version():
    """That of the build's nvcc, as 13.0.88."""
    program = os.environ.get("NIB_NVCC", "nvcc")
    try:
        text = subprocess.run([program, "--version"], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
    except (FileNotFoundError, subprocess.CalledProcessError) as err:
        skip(f"no nvcc: {err}")
    return re.search(r"V([0-9.]+)", text)[1]


def faults(recorded, measured):
    """What has grown or is gone, as lines."""
    for kernel in sorted(recorded.keys() & measured.keys()):
        for loop, (instructions, units) in recorded[kernel].items():
            now = measured[kernel].get(loop)
            if not now:
                yield f"{kernel}, {loop}: the loop was not found"
            elif now[0] / now[1] > MOST * instructions / units:
                yield (f"{kernel}, {loop}: {now[0]} instructions for {now[1]} units, "
                       f"recorded {instructions} for {units}")


def check_faults():
    """faults() notices what it is for."""
    recorded = {"k": {"load": [100, 4]}}
    assert not list(faults(recorded, {"k": {"load": [110, 4]}, "new": {}}))
    assert not list(faults(recorded, {}))
    assert len(list(faults(recorded, {"k": {"load": [111, 4]}}))) == 1
    assert len(list(faults(recorded, {"k": {"load": [100, 3]}}))) == 1
    assert len(list(faults(recorded, {"k": {}}))) == 1


def main():
    """Exits 1 where a loop has grown."""
    arguments = [a for a in sys.argv[1:] if a != "--record"]
    folder = pathlib.Path(arguments[0]) if arguments else \
        pathlib.Path(os.environ["NIB"]).parent / "kernels"
    cubins = sorted(folder.glob("sm*.cubin"))
    if not cubins:
        skip("the build has no kernels for a GPU")
    if not sass_loops.find_nvdisasm():
        skip(sass_loops.HINT)
    version = nvcc_version()
    if "--record" in sys.argv:
        rows = ",\n".join(f' "{kernel}": {json.dumps(loops)}' for kernel, loops
                          in sass_loops.measure(cubins).items())
        RECORDED.write_text(f'{{"nvcc": "{version}", "loops": {{\n{rows}\n}}}}\n',
                            encoding="utf-8")
        return
    check_faults()
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    if version != recorded["nvcc"]:
        skip(f"nvcc is {version}, the recorded loops are of {recorded['nvcc']}")
    measured = sass_loops.measure(cubins)
    for kernel in sorted(recorded["loops"].keys() ^ measured.keys()):
        print(f"note: {kernel} is only in the "
              f"{'build' if kernel in measured else 'record'}: make kernels")
    lines = list(faults(recorded["loops"], measured))
    compared = recorded["loops"].keys() & measured.keys()
    print("".join(f"FAIL {line}\n" for line in lines), end="")
    print(f"{len(compared)} kernels compared, {len(lines)} loops have grown")
    if lines or not compared:
        print("if it has to be: make kernels")
        sys.exit(1)


if __name__ == "__main__":
    main()
