#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""emu_schedules.py BUILD [COUNT [STRICT [FIRST]]] - Blackwell's products
(tests/cuda/emu_tiles.c) on the software B200 in order, then on COUNT (20) other
schedules from number FIRST (1) on, and on STRICT (5) with NIBEMU_STRICT=1: no report,
and the same bits of every result on all of them, which are those of
tests/cuda/results_b200_tiles.txt.  `--record` as COUNT writes that file anew.  The last
line: N schedules passed, N failed."""
import concurrent.futures
import os
import re
import subprocess
import sys

RECORDING = "tests/cuda/results_b200_tiles.txt"
SHOWN = 3  # failures told whole


def run(build, seed, strict, oracle=False):
    """The exit code, the lines of hashes, and all that was printed."""
    env = dict(os.environ, NIBEMU_SEED=str(seed), NIBEMU_SMS="8",
               NIBEMU_DEVICE="b200", NIBEMU_THREADS="1",
               NIBEMU_STRICT=str(int(strict)),
               NIB_CUDA_LIBRARY=os.path.join(build, "libnibemu.so"))
    if not strict:
        env.pop("NIBEMU_STRICT")
    if not oracle:
        env["NIB_TEST_HASH_ONLY"] = "1"
    done = subprocess.run([os.path.join(build, "emu_tiles")], env=env,
                          capture_output=True, text=True, timeout=900,
                          check=False)
    text = done.stdout + done.stderr
    return done.returncode, re.findall(r"^[0-9a-f]{16} .*", text, re.M), text


def compare(build, right, seed, strict):
    """What is wrong on a schedule, or None."""
    code, lines, text = run(build, seed, strict)
    where = f"NIBEMU_SEED={seed}" + (" NIBEMU_STRICT=1" if strict else "")
    if code != 0:
        return f"{where}: exit code {code}: {text[-1500:]}"
    changed = [x for x, y in zip(lines, right) if x[:16] != y[:16]]
    if changed or len(lines) != len(right):
        return f"{where}: other bits: " + "; ".join(changed)
    return None


def record(lines):
    """Writes the recording."""
    with open(RECORDING, "w", encoding="utf-8") as file:
        file.write("# tools/emu_schedules.py BUILD --record: the software "
                   "B200, eight multiprocessors\n")
        file.writelines(line + "\n" for line in lines)


def read_recording():
    """The recorded lines."""
    with open(RECORDING, encoding="utf-8") as file:
        return [x.rstrip("\n") for x in file if not x.startswith("#")]


def main():
    """0, 1, 2 for wrong arguments, or 77 without kernels."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 2 if len(sys.argv) < 2 else 0
    build = os.path.abspath(sys.argv[1])
    if not os.path.exists(os.path.join(build, "emu_tiles")):
        print(f"emu_schedules.py: {sys.argv[1]}: no build folder with emu_tiles")
        return 2
    what = sys.argv[2] if len(sys.argv) > 2 else "20"
    # The oracle checks the values once; after that their bits do.
    code, right, text = run(build, 0, False, oracle=True)
    if code != 0:
        print(text)
        return code
    if what == "--record":
        record(right)
        return 0
    if [x[:16] for x in right] != [x[:16] for x in read_recording()]:
        print("other bits than recorded:\n" + "\n".join(right))
        return 1
    strict = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    first = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    work = [(seed, False) for seed in range(first, first + int(what))]
    work += [(seed, True) for seed in range(first, first + strict)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = [x for x in pool.map(
            lambda w: compare(build, right, *w), work) if x]
    print("\n".join(failures[:SHOWN]), end="\n" if failures else "")
    print(f"{len(right)} products: {1 + len(work) - len(failures)} schedules "
          f"passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
