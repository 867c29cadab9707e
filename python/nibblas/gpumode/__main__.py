# SPDX-License-Identifier: Apache-2.0
"""python -m nibblas.gpumode - the problems of the GPU MODE x NVIDIA contest: their
tests, their benchmarks, and a file to submit."""

import argparse
import json
import os
import runpy
import secrets
import sys

import torch

import nibblas
from nibblas import gpumode
from nibblas._library import Error
from nibblas.gpumode import (_bench, _bundle, _contest, _data, _emulated,
                             _limits, _specs)


def _write(path, text):
    """Writes a file that appears whole or not at all and replaces a link; writes into
    what is no file, such as /dev/null."""
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    new = os.path.join(os.path.dirname(path), f".nib-{secrets.token_hex(4)}.tmp")
    try:
        with open(new, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(new, path)
    except BaseException:
        if os.path.exists(new):
            os.unlink(new)
        raise


def _kernel(problem, submission=None):
    """custom_kernel of a file, or the package's."""
    if submission is None:
        return gpumode.custom_kernel(problem)
    names = runpy.run_path(submission, run_name="submission")
    if "custom_kernel" not in names:
        raise Error(f"{submission}: has no custom_kernel()")
    return names["custom_kernel"]


def _source(device, submission):
    """The kernel's origin and the hardware."""
    hardware = nibblas.device(device).info()["hardware"]
    origin = submission or f"nibblas {nibblas.version()}"
    return f"{origin} on {hardware}, torch {torch.__version__}"


def _chosen(everything, only):
    """[(index, one)] of all, or of those asked for."""
    if only is None:
        return list(enumerate(everything))
    for i in only:
        if not 0 <= i < len(everything):
            raise Error(f"--only {i}: must be 0 to {len(everything) - 1}")
    return [(i, everything[i]) for i in only]


def check(problem, device, submission=None, only=None):
    """Prints the table of the tests; returns how many failed."""
    kernel = _kernel(problem, submission)
    specs = [spec for _, spec in _chosen(_specs.TESTS[problem], only)]
    names = [_specs.name(problem, spec) for spec in specs]
    width = max(map(len, names))
    print(f"{problem} on {device}, seed {_specs.SEED}, rtol = atol = 1e-3\n"
          f"{'test':{width}}  {'elements':>9}  {'wrong':>8}  "
          f"{'rounded right':>13}")
    failed = 0
    host = device
    if _emulated.is_name(device):
        kernel, host = _emulated.wrap(kernel), "cpu"
    for name, spec in zip(names, specs):
        data = _data.generate(problem, spec, host)
        _contest.wipe(problem, data)
        v = _contest.check(problem, data, kernel(data))
        print(f"{name:{width}}  {v.elements:9}  {v.wrong:8}  "
              f"{100 * v.rounded / v.elements:12.3f}%", flush=True)
        if v.wrong:
            failed += 1
            print(f"  {v.first}")
    print(f"{len(specs) - failed} of {len(specs)} tests passed")
    return failed


def bench(problem, device, submission=None, only=None, inputs=None,
          repeats=None, measure_limits=True, out=sys.stdout):
    """Prints the table of the benchmarks; returns all that it says and each
    row's numbers, for JSON."""
    if _emulated.is_name(device):
        raise Error(f"--device {device}: a GPU in software cannot be timed")
    kernel = _kernel(problem, submission)
    benchmarks = _specs.BENCHMARKS[problem]
    chosen = [one for _, one in _chosen(benchmarks, only)]
    free = (torch.cuda.mem_get_info(device)[0]
            if torch.device(device).type == "cuda" else None)
    what = _bench.plan(problem, device, inputs, repeats, free)
    limits = _limits.measure(device) if measure_limits else None
    source = _source(device, submission)
    for text in _bench.heading(problem, device, what, limits, source):
        print(text, file=out)
    width = max(len(_specs.name(problem, one.spec)) for one in chosen)
    print(_bench.title_line(width), file=out, flush=True)
    rows = []
    for one in chosen:
        rows.append(_bench.run(problem, one, kernel, device, what, limits))
        print(_bench.row_line(rows[-1], width), file=out, flush=True)
    complete = len(rows) == len(benchmarks)
    print(_bench.last_line(rows, complete), file=out)
    return {"problem": problem, "device": device, "source": source,
            "inputs": what.inputs, "most_repeats": what.most_repeats,
            "flush_bytes": what.flush_bytes, "reduced": what.reduced or None,
            "complete": complete,
            "limits": limits._asdict() if limits else None,
            "geometric_mean_us": _bench.geometric_mean(
                [row["mean_us"] for row in rows]),
            "benchmarks": rows}


def _check_command(a):
    if _emulated.is_name(a.device) and not _emulated.is_here(a.device):
        return _emulated.run_again(a.device, a.arguments)
    return 1 if check(a.problem, a.device, a.submission, a.only) else 0


def _bench_command(a):
    # With --json - stdout has only the JSON.
    out = sys.stderr if a.json == "-" else sys.stdout
    result = bench(a.problem, a.device, a.submission, a.only, a.inputs,
                   a.repeats, not a.no_limit, out)
    text = json.dumps(result, indent=1) + "\n"
    if a.json == "-":
        sys.stdout.write(text)
    elif a.json:
        _write(a.json, text)
    return 0


def _bundle_command(a):
    text = _bundle.bundle(a.problem, a.current_stream)
    _write(a.output, text)
    print(f"{a.output}: {len(text)} characters (the contest takes "
          f"{_bundle.MOST_CHARACTERS})")
    return 0


def _positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return number


def _numbers(text):
    return [int(number) for number in text.split(",")]


def _add(commands, name, function, summary):
    one = commands.add_parser(name, help=summary, description=summary)
    one.add_argument("problem", choices=gpumode.PROBLEMS)
    one.set_defaults(function=function)
    return one


def _add_run(commands, name, function, summary):
    one = _add(commands, name, function, summary)
    one.add_argument("--device", default="cpu", help="cpu (default), cuda; for "
                     "check also emu:h200, emu:h100, emu:b200, emu:a100 and "
                     "emu:rtx4090, GPUs in software")
    one.add_argument("--only", type=_numbers, metavar="I[,I...]",
                     help="only these, counted from 0")
    one.add_argument("--submission", metavar="FILE",
                     help="the custom_kernel() of this file, not nibblas's")
    return one


def parser():
    top = argparse.ArgumentParser(prog="python -m nibblas.gpumode",
                                  description=__doc__.split(" - ")[1])
    commands = top.add_subparsers(dest="command", required=True)
    _add_run(commands, "check", _check_command,
             "the contest's ten tests: a line each, exit status 1 if a result "
             "is wrong")
    one = _add_run(commands, "bench", _bench_command,
                   "the contest's benchmarks by its protocol, every result "
                   "checked before")
    one.add_argument("--inputs", type=_positive,
                     help="inputs back to back (the contest's number; 1 on a "
                     "CPU)")
    one.add_argument("--repeats", type=_positive,
                     help="the most passes (the contest's number; 5 on "
                     "a CPU)")
    one.add_argument("--no-limit", action="store_true",
                     help="do not measure what this machine can do")
    one.add_argument("--json", metavar="FILE", help="the numbers; - is stdout, "
                     "and the table goes to stderr")
    one = _add(commands, "bundle", _bundle_command,
               "one self-contained file to submit")
    one.add_argument("-o", "--output", required=True, metavar="FILE")
    one.add_argument("--current-stream", action="store_true",
                     help="launch on torch's current stream, not on the default "
                     "one: for use elsewhere, since the contest refuses files "
                     "with that word")
    return top


def main(arguments=None):
    chosen = parser().parse_args(arguments)
    chosen.arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return chosen.function(chosen)
    except _bench.WrongResult as error:
        print(f"nibblas.gpumode: wrong result: {error}", file=sys.stderr)
        return 1
    except (Error, RuntimeError, OSError) as error:
        print(f"nibblas.gpumode: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
