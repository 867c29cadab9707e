# SPDX-License-Identifier: Apache-2.0
"""python -m nibblas.gpumode check PROBLEM [--device cuda] - the contest's ten tests of
a problem: a line each, and exit status 1 if a result is wrong."""

import argparse
import sys

from nibblas import gpumode
from nibblas._library import Error
from nibblas.gpumode import _contest


def _name(problem, spec):
    """ "m 128 n 256 k 256", several sizes by commas."""
    def several(values):
        return ",".join(map(str, values))
    text = f"m {several(s.m for s in spec)}"
    if problem != "gemv":
        text += f" n {several(s.n for s in spec)}"
    text += f" k {several(s.k for s in spec)}"
    return text + (f" l {spec[0].batch}" if spec[0].batch > 1 else "")


def check(problem, device):
    """Prints the table; returns how many specs failed."""
    specs = _contest.TESTS[problem]
    names = [_name(problem, spec) for spec in specs]
    width = max(map(len, names))
    print(f"{problem} on {device}, seed {_contest.SEED}, rtol = atol = 1e-3\n"
          f"{'test':{width}}  {'elements':>9}  {'wrong':>8}  "
          f"{'rounded right':>13}")
    failed = 0
    for name, spec in zip(names, specs):
        data = _contest.generate(problem, spec, device)
        gpumode.custom_kernel(problem)(data)
        v = _contest.check(problem, data)
        print(f"{name:{width}}  {v.elements:9}  {v.wrong:8}  "
              f"{100 * v.rounded / v.elements:12.3f}%", flush=True)
        if v.wrong:
            failed += 1
            print(f"  {v.first}")
    print(f"{len(specs) - failed} of {len(specs)} tests passed")
    return failed


def main():
    parser = argparse.ArgumentParser(prog="python -m nibblas.gpumode",
                                     description=__doc__.split(" - ")[1])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("check", help="the contest's ten tests")
    one.add_argument("problem", choices=gpumode.PROBLEMS)
    one.add_argument("--device", default="cpu", help="cpu (default), cuda")
    arguments = parser.parse_args()
    try:
        return 1 if check(arguments.problem, arguments.device) else 0
    except (Error, RuntimeError) as error:
        print(f"nibblas.gpumode: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
