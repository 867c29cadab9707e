#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_baselines.py - compares nibblas with PyTorch's products on one GPU.

A row has independent inputs, together at least four times the L2, captured one
after the other in one CUDA graph.  Its time is the median of 15 replays between
two events, divided by the number of inputs.  torch multiplies operands that were
expanded beforehand, Humming and Marlin the NVFP4 weights of nibblas by fp16.  Every
result is compared once, on a few rows, with a float64 sum of the dequantised
operands: FP8 rounds them and has a wider bound.  A baseline that cannot run, or whose
result is wrong, is a row with the reason and no time.  If --baselines names it, the
exit status is 1.

Needs torch, gpu_operands.py, gpu_torch.py, gpu_humming.py, gpu_marlin.py,
libnibblas.so (--library) and the program nib, whose presets and row keys it uses
($NIB, else the folder of the library, else PATH).  --dry-run runs small shapes on the
CPU, with torch or else numpy: it tests this script and measures nothing.

  gpu_baselines.py --library libnibblas.so --json rows.json
  gpu_baselines.py --only M1,G1 --only V
  gpu_baselines.py --preset decode --activations nvfp4,bf16 --packed
  gpu_baselines.py --preset experts --baselines humming --minutes 8
  NIB_CUDA_ARCH=sm80 gpu_baselines.py --preset ampere --baselines marlin,humming-sm80
  gpu_baselines.py --sweep --json sweep.json      # M = 1..512, N 4096, K 7168
  gpu_baselines.py --list
"""

import argparse
import datetime
import json
import math
import os
import statistics
import subprocess
import sys
import time

import gpu_humming
from gpu_operands import (ACTIVATIONS, FP16, LAYOUTS, NVFP4, PRESETS, SWEEP, Arrays,
                          Matrices, Nib, Operands, Plan, abi, find_nib, row_keys,
                          shapes_of)
from gpu_torch import (HUMMING, HUMMING_SM80, NAMES, baselines_of, humming_kernel,
                       usual_baselines, version_of, versions)

REPLAYS = 15
WARM = 3
# A GPU that has waited for the host is up to 12 % slower at first, an unused one for
# longer.
WARM_SECONDS = 0.2
FIRST_WARM_SECONDS = 1.0

# ---- timing ----------------------------------------------------------------


def event_seconds(torch, call, before=lambda: None):
    """Seconds that the GPU needs for call, between two events, right after before."""
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    before()
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e-3


class GpuClock:
    """The protocol: calls captured in a graph, replayed.  mhz(load): measures the GPU's
    clock right after load, before and after the replays; clocks: what it returned."""

    def __init__(self, torch, replays, mhz=lambda load: None):
        self.torch, self.replays, self.mhz = torch, replays, mhz
        self.warm_s, self.clocks = FIRST_WARM_SECONDS, {}

    def samples(self, calls):
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM):
                for call in calls:
                    call()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        begin = time.perf_counter()
        while time.perf_counter() - begin < self.warm_s:
            graph.replay()
            torch.cuda.synchronize()
        self.warm_s = WARM_SECONDS
        before = self.mhz(graph.replay)
        samples = [event_seconds(torch, graph.replay) / len(calls)
                   for _ in range(self.replays)]
        self.clocks = {"clock_before_mhz": before,
                       "clock_after_mhz": self.mhz(graph.replay)}
        return samples


class HostClock:
    def __init__(self, replays):
        self.replays, self.clocks = replays, {}

    def samples(self, calls):
        out = []
        for _ in range(self.replays):
            begin = time.perf_counter()
            for call in calls:
                call()
            out.append((time.perf_counter() - begin) / len(calls))
        return out


# ---- rows ------------------------------------------------------------------

BASELINE = "baseline:"


def short(backend):
    return backend.removeprefix(BASELINE)


class Run:
    """What all rows of a run share."""

    def __init__(self, args, nib, side, clock, torch):
        self.args, self.nib, self.side, self.clock = args, nib, side, clock
        self.torch = torch
        self.read_bps, self.flops = args.read_tbps * 1e12, args.tflops * 1e12
        self.multiply = multiply_peak(nib.backend())
        self.l2_bytes, self.memory_bytes = 0, math.inf
        self.date = datetime.datetime.now(datetime.timezone.utc)
        self.machine = ("dry run, " + versions(torch) if args.dry_run
                        else machine(torch))
        self.rows, self.peaks, self.keys = [], [], row_keys(args.nib)
        self.not_reached = []  # names
        self.told = set()  # why baselines were skipped

    def row(self, op, shape, backend, **values):
        """A new row, in none of the lists."""
        row = dict.fromkeys(self.keys)
        row.update(
            {"version": self.nib.version(), **values}, op=op, shape=shape,
            backend=backend, threads=1, machine=self.machine,
            processors=len(os.sched_getaffinity(0)), load_average=os.getloadavg()[0],
            date=self.date.strftime("%Y-%m-%dT%H:%M:%SZ"), predicted=False)
        return row

    def product(self, shape, backend, samples=None, **values):
        """The row of a backend that took samples of seconds, or was skipped."""
        if samples:
            seconds = statistics.median(samples)
            low, _, high = (statistics.quantiles(samples, n=4, method="inclusive")
                            if len(samples) > 1 else 3 * samples)
            values.update(
                time_s=seconds, spread=(high - low) / seconds,
                samples_s=samples, flop=shape.flop(),
                gflops=shape.flop() / seconds * 1e-9, **self.clock.clocks)
        row = self.row(
            shape.op, shape.text(), backend, layout=self.args.layout, out=FP16,
            command=self.command(shape, values), name=shape.name, **values)
        self.rows.append(row)
        return row

    def command(self, shape, values):
        """The line that measures a row again."""
        arch = os.environ.get("NIB_CUDA_ARCH")
        line = f"NIB_CUDA_ARCH={arch} " if arch else ""
        line += f"gpu_baselines.py --preset {self.args.preset} --only {shape.name}"
        if values.get("activations", NVFP4) != NVFP4:
            line += " --activations " + values["activations"]
        return line + (" --packed" if values.get("packed") else "")

    def limit(self, shape, kind):
        by_bytes = shape.bytes(kind) / self.read_bps
        by_flop = shape.flop() / self.flops
        return max((by_bytes, "read bandwidth"), (by_flop, self.multiply))

    def write(self):
        """Writes --json; after each shape, so that a run that is cut off keeps rows."""
        if self.args.json:
            with open(self.args.json, "w", encoding="utf-8") as file:
                json.dump(self.rows + self.peaks, file, indent=1)
                file.write("\n")


def nvidia_smi(fields="name,driver_version,clocks.sm,clocks.mem,power.draw"):
    try:
        return subprocess.run(
            ["nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader",
             "-i", "0"], capture_output=True, text=True, check=True,
            timeout=30).stdout.strip().split(", ")
    except (OSError, subprocess.SubprocessError):
        return None


def machine(torch):
    smi = nvidia_smi() or [torch.cuda.get_device_name(), "unknown"]
    return f"{smi[0]}, driver {smi[1]}, {versions(torch)}"


def measure_mhz(torch, nib, load):
    """The clock that one multiprocessor counts for some 0.2 ms, right after load."""
    cycles, stream = int(4e5), torch.cuda.current_stream().cuda_stream
    return cycles * 1e-6 / event_seconds(torch, lambda: nib.probe(
        abi.NIB_PROBE_CYCLES, None, cycles, stream), load)


def card(torch, nib, when):
    """Prints clocks, power and temperature while the GPU multiplies.  Returns the clock
    in MHz."""
    stream = torch.cuda.current_stream().cuda_stream

    def multiply(times=1):
        for _ in range(times):
            nib.probe(abi.NIB_PROBE_MULTIPLY, None, int(2e13), stream)

    multiply(40)
    smi = nvidia_smi("clocks.sm,clocks.mem,power.draw,temperature.gpu,"
                     "clocks_event_reasons.active")
    mhz = measure_mhz(torch, nib, multiply)
    print(f"card {when}: clock {mhz:.0f} MHz after multiplying; nvidia-smi while "
          f"multiplying (SM, memory, power, temperature, reasons): "
          + ", ".join(smi or ["none"]), flush=True)
    return mhz


def measure_peaks(run):
    """Reading, multiplying, and the clocks while the GPU multiplies."""
    torch, nib, stream = run.torch, run.nib, run.side.stream()

    def seconds(call):
        return statistics.median(event_seconds(torch, call) for _ in range(7))

    def multiply():
        return nib.probe(abi.NIB_PROBE_MULTIPLY, None, int(2e13), stream)

    data = torch.zeros(4 << 30, dtype=torch.uint8, device="cuda")
    run.read_bps = data.numel() / seconds(lambda: nib.probe(
        abi.NIB_PROBE_READ, data.data_ptr(), data.numel(), stream))
    del data
    done = multiply()
    run.flops = done / seconds(multiply)
    for _ in range(40):
        multiply()
    smi = nvidia_smi()
    torch.cuda.synchronize()
    if smi:
        run.machine += f", under load SM {smi[2]}, memory {smi[3]}, {smi[4]}"


def multiply_peak(backend):
    """What a backend's multiplication probe measures."""
    return "mma f16" if backend == "cuda-sm80" else "wgmma f16"


def add_peaks(run):
    for name, key, rate, unit in (
            ("read bandwidth", "gbps", run.read_bps, "B"),
            (run.multiply, "gflops", run.flops, "FLOP")):
        run.peaks.append(run.row("peak", name, run.nib.backend(), unit=unit,
                                 time_s=1e9 / rate, **{key: rate * 1e-9}))


def set_count(run, shape):
    count = math.ceil(4 * run.l2_bytes / shape.bytes())
    return run.args.sets or min(max(count, 5), 40)


def rival_sets(run, shape, sets):
    """The sets that baselines multiply: fewer where the weights of all of them, in 16
    bits, would take a quarter of the GPU's memory, but two and four times the L2."""
    weights = 2 * shape.n * shape.k * shape.products * max(len(shape.ms), shape.batch)
    if 4 * weights * len(sets) <= run.memory_bytes:
        return sets
    return sets[:max(2, math.ceil(4 * run.l2_bytes / shape.bytes()))]


def measure_ours(run, shape, sets, want, kind):
    c = sets[0].c
    c[:] = math.nan  # another kind's results
    plan = Plan(run.nib, shape, sets[0].works[kind])
    samples = run.clock.samples(
        [lambda o=o: plan.run(o.works[kind], run.side.stream()) for o in sets])
    plan.free()
    error, is_close = sets[0].compare(want, lambda batch, row: c[batch, row])
    seconds = statistics.median(samples)
    limit_s, limit_kind = run.limit(shape, kind)
    return run.product(
        shape, plan.backend, samples, packed=run.args.packed, activations=kind,
        bytes=shape.bytes(kind), gbps=shape.bytes(kind) / seconds * 1e-9,
        limit_s=limit_s, fraction_of_limit=limit_s / seconds,
        limit_kind=limit_kind, copies=len(sets),
        plan=plan.explanation, error=error, ok=is_close,
        checked=len(want) * shape.n)


class WrongResult(ValueError):
    """A baseline's result is not the product."""


def skip_baseline(run, shape, name, problem):
    """Records and prints why a baseline has no time."""
    why = f"{type(problem).__name__}: {problem}".split("\n", maxsplit=1)[0][:200]
    run.product(shape, BASELINE + name, skipped=why, version=version_of(name))
    if (name, why) not in run.told:
        print(f"  {shape.name} {name}: {why}", file=sys.stderr)
    run.told.add((name, why))


def measure_baseline(run, shape, sets, want, name, make):
    """A row with its time, or with the reason why it has none."""
    try:
        if not run.torch:
            raise ModuleNotFoundError("torch is not installed")
        baseline = make(run.torch, shape, sets)
        error, is_close = sets[0].compare(want, baseline.result, baseline.tolerance)
        if not is_close:
            raise WrongResult(
                f"off by {error:.1e} of the sum of magnitudes, more than "
                f"{baseline.tolerance:g} of the result and of the largest")
        run.product(shape, BASELINE + name, run.clock.samples(baseline.calls),
                    error=error, copies=len(sets), version=version_of(name),
                    checked=len(want) * shape.n)
    except Exception as problem:  # whatever a baseline throws is its reason
        skip_baseline(run, shape, name, problem)
    if not run.args.dry_run:
        run.torch.cuda.empty_cache()


def is_wanted(names, name):
    """Whether --baselines has a name or its first words."""
    return any(name == n or name.startswith(n + " ") for n in names)


def measure(run, shape, weights=None):
    """The first of our rows, one for each kind of activations."""
    count = set_count(run, shape)
    sets = [Operands(run.side, shape, run.args.layout, weights and weights[i],
                     run.args.activations, run.nib if run.args.packed else None)
            for i in range(count)]
    want = sets[0].want()
    ours = [measure_ours(run, shape, sets, want, kind)
            for kind in run.args.activations]
    for o in sets:
        o.free()
    first, few = len(run.rows), rival_sets(run, shape, sets)
    for name, make in baselines_of(shape):
        if is_wanted(run.args.baselines, name):
            measure_baseline(run, shape, few, want, name, make)
    baselines = [r for r in run.rows[first:] if r["time_s"]]
    for row in ours:
        if row["ok"]:
            row["speedup"] = {short(r["backend"]): r["time_s"] / row["time_s"]
                              for r in baselines}
            row["against_baselines"] = ", ".join(
                f"{ratio:.2f} x {name}" for name, ratio in row["speedup"].items()
            ) or None
    return ours[0]


def compile_humming(run, shapes):
    """Compiles all kernels of Humming at once; a failure is left to its rows."""
    names = [name for name in (HUMMING, HUMMING_SM80)
             if is_wanted(run.args.baselines, name)]
    wanted = [humming_kernel(shape, name == HUMMING_SM80)
              for shape in shapes for name in names]
    if run.args.dry_run or not wanted:
        return
    begin = time.perf_counter()
    try:
        failed = gpu_humming.compile_ahead(run.torch, wanted)
    except Exception as problem:  # its rows say the same
        print(f"  humming: {problem}", file=sys.stderr)
    else:
        print(f"  humming: kernels of {len(wanted)} products, {failed} failed, "
              f"{time.perf_counter() - begin:.0f} s", file=sys.stderr)


def sweep(run):
    """All M on the same weights; a cliff is slower than some larger M."""
    count = run.args.sets or 12
    shapes = [s.shrunk() for s in SWEEP[:3]] if run.args.dry_run else SWEEP
    weights = [[Matrices(run.side, shapes[0].n, shapes[0].k, 1,
                         run.args.layout)] for _ in range(count)]
    run.args.sets = count
    times = [measure(run, shape, weights)["time_s"] for shape in shapes]
    cliffs = 0
    for i, shape in enumerate(shapes[:-1]):
        best = min(times[i + 1:])
        if times[i] > 1.02 * best:
            cliffs += 1
            print(f"  cliff: M = {shape.ms[0]} takes {times[i] * 1e6:.1f} us, "
                  f"a larger one {best * 1e6:.1f}", file=sys.stderr)
    print(f"{cliffs} cliffs of more than 2 %", file=sys.stderr)


# ---- the table -------------------------------------------------------------


def print_skipped(run):
    """One line for each baseline and reason that it was not measured."""
    reasons = {}
    for row in run.rows:
        if row.get("skipped"):
            key = short(row["backend"]), row["skipped"]
            reasons.setdefault(key, []).append(row["name"])
    for (name, why), rows in reasons.items():
        print(f"not measured: {name} for {', '.join(rows)}: {why}")
    if run.not_reached:
        print(f"not reached in time: {','.join(run.not_reached)}")


def baseline_cell(row):
    if row is None:
        return ""
    if row.get("time_s"):
        return f"{row['time_s'] * 1e6:.1f}"
    return "wrong" if row["skipped"].startswith(WrongResult.__name__) else "failed"


def table_line(row, baselines):
    """One of our rows; baselines: the rows of the same product, or None."""
    kind = row.get("activations") or NVFP4
    cells = [row["name"], f"{row['op']} {row['shape']}"
             + ("" if kind == NVFP4 else f", A of {kind}")]
    if row["ok"]:
        cells += [f"{row['time_s'] * 1e6:.1f}", f"{row['limit_s'] * 1e6:.1f}",
                  f"{row['fraction_of_limit'] * 100:.0f} %"]
    else:
        cells += ["wrong", f"{row['limit_s'] * 1e6:.1f}", ""]
    ratios = row["speedup"] or {}
    return [*cells, *map(baseline_cell, baselines),
            f"{min(ratios.values()):.2f}" if ratios else "",
            f"{row['error']:.1e}", "yes" if row["ok"] else "NO"]


def print_table(run):
    backends = list(dict.fromkeys(row["backend"] for row in run.rows))
    baselines = sorted((b for b in backends if b.startswith(BASELINE)),
                       key=lambda b: NAMES.index(short(b)))
    found = {(row["name"], row["backend"]): row for row in run.rows}
    lines = [["", "product", "nibblas", "limit", "of limit", *map(short, baselines),
              "best baseline : ours", "error", "ok"]]
    lines += [table_line(row, [found.get((row["name"], b)) for b in baselines])
              for row in run.rows if row["backend"] not in baselines]
    print(f"{run.machine}, nibblas {run.nib.version()}, {run.date:%Y-%m-%d}")
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("  ".join(x.ljust(w) if i < 2 else x.rjust(w)
                        for i, (x, w) in enumerate(zip(line, widths))))
    print_skipped(run)
    print(f"us, cold operands, median; limit: the greater of bytes / "
          f"{run.read_bps * 1e-12:.2f} TB/s and FLOP / "
          f"{run.flops * 1e-12:.0f} TFLOP/s")


# ---- the command -----------------------------------------------------------


def read_args(argv):
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[1],
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=os.path.join(here, "libnibblas.so"),
                        help="default: the one next to this script")
    parser.add_argument("--preset", choices=PRESETS, default="seeds",
                        help="seeds has some experts and small M as well")
    parser.add_argument("--activations", default=NVFP4, metavar="LIST",
                        help="what A is for nibblas, a row each: some of "
                        + ",".join(ACTIVATIONS))
    parser.add_argument("--packed", action="store_true",
                        help="weights that nib_pack() packed")
    parser.add_argument("--only", action="append", default=[], metavar="NAMES",
                        help="names of --list, or their letters: M1,G,V")
    parser.add_argument("--sweep", action="store_true",
                        help="M = 1..512, N 4096, K 7168 instead")
    rivals = parser.add_mutually_exclusive_group()
    rivals.add_argument("--baselines", metavar="LIST", help="only these, and status 1 "
                        "if one of them cannot run: names or their first words, of "
                        + ", ".join(NAMES))
    rivals.add_argument("--no-baselines", action="store_true")
    parser.add_argument("--minutes", type=float, default=math.inf,
                        help="begin no shape later than that")
    parser.add_argument("--layout", choices=LAYOUTS, default="tiled",
                        help="of the scales")
    parser.add_argument("--sets", type=int, default=0,
                        help="independent inputs; 0: four times the L2")
    parser.add_argument("--replays", type=int, default=REPLAYS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--read-tbps", type=float, default=4.6,
                        help="if the library cannot measure it")
    parser.add_argument("--tflops", type=float, default=850,
                        help="if the library cannot measure it")
    parser.add_argument("--json", metavar="FILE",
                        help="rows as nib bench writes them")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--dry-run", action="store_true", help="small, on the CPU")
    args = parser.parse_args(argv)
    args.only = [n for text in args.only for n in text.split(",") if n]
    args.activations = args.activations.split(",")
    for kind in args.activations:
        if kind not in ACTIVATIONS:
            parser.error(f"--activations {kind}: must be of "
                         + ",".join(ACTIVATIONS))
    args.named = args.baselines.split(",") if args.baselines else []
    for name in args.named:
        if not any(is_wanted([name], known) for known in NAMES):
            parser.error(f"--baselines {name}: must be of {', '.join(NAMES)}")
    args.baselines = ([] if args.no_baselines
                      else args.named or usual_baselines(args.preset))
    args.nib = find_nib(args.library)
    args.shapes = shapes_of(args.nib, args.preset)
    known = {s.name for s in args.shapes} | {s.name[0] for s in args.shapes}
    for name in args.only:
        if name not in known:
            parser.error(f"--only {name}: must be of --list")
    if args.replays < 1 or args.sets < 0:
        parser.error("--replays must be at least 1, --sets at least 0")
    return args


def chosen(args):
    return [s for s in args.shapes if not args.only
            or s.name in args.only or s.name[0] in args.only]


def open_run(args):
    if args.dry_run:
        args.sets = args.sets or 2
        nib = Nib(args.library, "cpu")
        try:
            import torch
        except ImportError:
            torch = None
            import numpy
        side = Arrays(torch or numpy, "cpu", args.seed)
        return Run(args, nib, side, HostClock(3), torch)
    import torch
    if not torch.cuda.is_available():
        sys.exit("gpu_baselines.py: torch finds no GPU (--dry-run needs none)")
    nib = Nib(args.library, "cuda:0")
    clock = GpuClock(torch, args.replays,
                     lambda load: measure_mhz(torch, nib, load))
    run = Run(args, nib, Arrays(torch, "cuda", args.seed), clock, torch)
    properties = torch.cuda.get_device_properties(0)
    run.l2_bytes, run.memory_bytes = properties.L2_cache_size, properties.total_memory
    try:
        measure_peaks(run)
    except (AttributeError, RuntimeError) as problem:
        print(f"  limits as given: {problem}", file=sys.stderr)
    return run


def measure_all(run):
    """Measures the chosen shapes, until the time is over."""
    begin, shapes = time.monotonic(), chosen(run.args)
    compile_humming(run, shapes)
    for shape in shapes:
        if time.monotonic() - begin > 60 * run.args.minutes:
            run.not_reached.append(shape.name)
            continue
        print(f"{shape.name} ...", file=sys.stderr, flush=True)
        try:
            measure(run, shape.shrunk() if run.args.dry_run else shape)
        finally:  # an error of the GPU ends the run, but no row is lost
            run.write()


def failures(run):
    """What makes the exit status 1, as lines."""
    wrong = [r["name"] for r in run.rows if r["ok"] is False]
    if wrong:
        yield f"wrong: {', '.join(wrong)}"
    for row in run.rows:
        if (row["skipped"] or "").startswith(WrongResult.__name__):
            yield f"wrong: {short(row['backend'])} for {row['name']}"
    if run.not_reached:
        yield f"not reached in time: {','.join(run.not_reached)}"
    for name in run.args.named:
        rows = [r for r in run.rows if is_wanted([name], short(r["backend"]))]
        missing = [r["name"] for r in rows if r.get("skipped")]
        if missing:
            yield f"--baselines {name}: not measured for {', '.join(missing)}"
        elif not rows:
            yield f"--baselines {name}: computes none of these products"


def main(argv=None):
    args = read_args(argv)
    if args.list:
        for s in args.shapes:
            print(f"{s.name:4} {s.op} {s.text()}")
        return 0
    run = open_run(args)
    if not args.dry_run:
        add_peaks(run)
        before = card(run.torch, run.nib, "before")
    if args.sweep:
        sweep(run)
    else:
        measure_all(run)
    if not args.dry_run:
        run.peaks[-1].update(clock_before_mhz=before,
                             clock_after_mhz=card(run.torch, run.nib, "after"))
    run.write()
    print_table(run)
    print(f"{sum(r['ok'] is True for r in run.rows)} passed, "
          f"{sum(r['ok'] is False for r in run.rows)} failed")
    problems = list(failures(run))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
