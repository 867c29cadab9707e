# SPDX-License-Identifier: Apache-2.0
"""_bench.py - a problem's benchmarks, measured as the contest's evaluation script does
(_specs.PROTOCOLS), after every result was checked."""

import math
import statistics
import time
from typing import NamedTuple

import torch

from nibblas.gpumode import _contest, _data, _specs


class Plan(NamedTuple):
    """The part of the protocol that is done here; reduced: how it differs from the
    contest's."""

    inputs: int
    most_repeats: int
    reduced: str
    flush_bytes: int = 0


def _many(inputs):
    return f"{inputs} input{'s' * (inputs != 1)}"


# A CPU needs seconds where a B200 needs microseconds.
CPU_INPUTS, CPU_REPEATS = 1, 5


# What the inputs, the results and torch itself may need in addition to a flush.
SPARE_BYTES = 4 << 30


def _gib(n_bytes):
    return f"{n_bytes / (1 << 30):g} GiB"


def flush_bytes(problem, free_bytes):
    """Returns how many bytes to write before each pass: as many as the contest, or as
    many whole GiB as fit into this GPU's memory."""
    wanted = _specs.PROTOCOLS[problem].flush_bytes
    if wanted + SPARE_BYTES <= free_bytes:
        return wanted
    return min(wanted, max(free_bytes - SPARE_BYTES, 1 << 30) >> 30 << 30)


def plan(problem, device, inputs=None, repeats=None, free_bytes=None):
    """The contest's own counts, or fewer on a CPU, or those asked for.  free_bytes:
    of the GPU's memory."""
    protocol = _specs.PROTOCOLS[problem]
    on_cpu = torch.device(device).type == "cpu"
    if inputs is None:
        inputs = min(protocol.inputs, CPU_INPUTS) if on_cpu else protocol.inputs
    if repeats is None:
        repeats = CPU_REPEATS if on_cpu else protocol.most_repeats
    differs = []
    if inputs != protocol.inputs:
        differs.append(f"{_many(inputs)} back to back, not {protocol.inputs}")
    if repeats < protocol.most_repeats:
        differs.append(f"at most {repeats} repeats, not "
                       f"{protocol.most_repeats}")
    flush = 0
    if on_cpu:
        differs.append("caches as they are")
    else:
        flush = flush_bytes(problem, free_bytes)
        if flush != protocol.flush_bytes:
            differs.append(f"{_gib(flush)} written before each pass, not "
                           f"{_gib(protocol.flush_bytes)}")
    return Plan(inputs, repeats, "; ".join(differs), flush)


class _Clock:
    """Nanoseconds of one pass over all inputs."""

    def __init__(self, device, flush_bytes=0):
        self.device = torch.device(device)
        self.on_gpu = self.device.type == "cuda"
        self.flush = None
        if self.on_gpu:
            self.flush = torch.empty(flush_bytes >> 3, dtype=torch.int64,
                                     device=self.device)

    def wait(self):
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def measure(self, kernel, inputs):
        self.wait()
        if not self.on_gpu:
            begin = time.perf_counter_ns()
            for data in inputs:
                kernel(data)
            return time.perf_counter_ns() - begin
        self.flush.fill_(42)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        for data in inputs:
            kernel(data)
        events[1].record()
        self.wait()
        return events[0].elapsed_time(events[1]) * 1e6


class Stats(NamedTuple):
    """The contest's, in nanoseconds, and the median."""

    runs: int
    mean: float
    std: float
    err: float
    best: float
    worst: float
    median: float


def stats(durations):
    std = statistics.stdev(durations) if len(durations) > 1 else 0.0
    return Stats(len(durations), statistics.fmean(durations), std,
                 std / math.sqrt(len(durations)), min(durations),
                 max(durations), statistics.median(durations))


def _is_enough(durations, spent_s):
    """The contest's rule."""
    if len(durations) < _specs.LEAST_REPEATS or spent_s < _specs.LEAST_S:
        return False
    s = stats(durations)
    return (s.err < _specs.CLOSE_ENOUGH * s.mean
            or s.mean * s.runs > _specs.MEASURED_S * 1e9
            or spent_s > _specs.MOST_S)


def _inputs(problem, spec, device, count):
    """Data of seeds of their own."""
    step = _specs.PROTOCOLS[problem].seed_step
    return [_data.generate(problem, spec, device,
                           _specs.SEED + step * (i + 1 if step else i))
            for i in range(count)]


class WrongResult(Exception):
    """A kernel's result is not the product."""


def check(problem, kernel, inputs):
    """Raises WrongResult; the kernel gets copies, as in the contest."""
    for i, data in enumerate(inputs):
        copy = _data.clone(data)
        _contest.wipe(problem, copy)
        verdict = _contest.check(problem, data, kernel(copy))
        if verdict.wrong:
            raise WrongResult(f"input {i}: {verdict.wrong} of "
                              f"{verdict.elements} elements; {verdict.first}")


def run(problem, benchmark, kernel, device, what, limits):
    """One line of the table as a dictionary: times in microseconds of one
    input.  limits: of this machine, or None."""
    spec = benchmark.spec
    inputs = _inputs(problem, spec, device, what.inputs)
    check(problem, kernel, inputs)
    clock = _Clock(device, what.flush_bytes)
    durations = []
    begin = time.perf_counter()
    for _ in range(what.most_repeats):
        durations.append(clock.measure(kernel, inputs) / len(inputs))
        if _is_enough(durations, time.perf_counter() - begin):
            break
    s = stats(durations)
    row = {"name": _specs.name(problem, spec),
           "sizes": [list(size) for size in spec], "runs": s.runs}
    row.update({key + "_us": getattr(s, key) / 1e3 for key in s._fields[1:]})
    row["contest_light_us"] = benchmark.light_us
    row["contest_light_share"] = benchmark.light_us / row["mean_us"]
    if limits is not None:
        row["machine_limit_us"], row["machine_limit_kind"] = limits.least_us(
            _specs.flop(problem, spec), _specs.bytes_moved(problem, spec))
        row["machine_limit_share"] = row["machine_limit_us"] / row["mean_us"]
    return row


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


# ---- what is printed -----------------------------------------------------------


def heading(problem, device, what, limits, source):
    """The lines above the table."""
    lines = [f"{problem} on {device}: {source}",
             f"times of one input in us; {_many(what.inputs)} back to back, "
             "every result checked before"]
    if what.reduced:
        lines.append(f"reduced: {what.reduced}")
    else:
        lines.append(f"the contest's counts, and its {_gib(what.flush_bytes)} "
                     "written before each pass")
    lines.append("contest light: the contest's speed of light, of a B200 at "
                 "1.5 GHz; not this machine's")
    lines.append("machine limit: " + (limits.describe() if limits
                                      else "not measured"))
    return lines


def _share(row, key):
    value = row.get(key)
    return "-" if value is None else f"{100 * value:.3g}%"


COLUMNS = (
    ("mean", lambda row: f"{row['mean_us']:.2f}"),
    ("+- error", lambda row: f"{row['err_us']:.2f}"),
    ("median", lambda row: f"{row['median_us']:.2f}"),
    ("best", lambda row: f"{row['best_us']:.2f}"),
    ("worst", lambda row: f"{row['worst_us']:.2f}"),
    ("runs", lambda row: str(row["runs"])),
    ("contest light", lambda row: f"{row['contest_light_us']:.3f}"),
    ("reached", lambda row: _share(row, "contest_light_share")),
    ("machine limit", lambda row: "-" if "machine_limit_us" not in row else
     f"{row['machine_limit_us']:.2f}"),
    ("reached", lambda row: _share(row, "machine_limit_share")),
)


def line(values, width):
    """A line of the table; values: the name and one for each column."""
    cells = [f"{values[0]:{width}}"]
    for (title, _), value in zip(COLUMNS, values[1:]):
        cells.append(f"{value:>{max(len(title), 10)}}")
    return "  ".join(cells)


def title_line(width):
    return line(["benchmark", *(title for title, _ in COLUMNS)], width)


def row_line(row, width):
    return line([row["name"], *(cell(row) for _, cell in COLUMNS)], width)


def last_line(rows, complete):
    """The contest ranks by it."""
    mean = geometric_mean([row["mean_us"] for row in rows])
    light = geometric_mean([row["contest_light_us"] for row in rows])
    return (f"geometric mean {mean:.2f} us, contest light {light:.3f} us"
            + ("" if complete else f" (of {len(rows)} benchmark"
               f"{'s' * (len(rows) != 1)} only)"))

