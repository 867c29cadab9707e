#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_timer.py - measures what a timer of two CUDA events adds to the time of a kernel.

    bench/gpu_timer.py [--library FILE] [--repeats 25]

The GPU MODE contest records an event, runs a product once or for several inputs, and
records another event.  Before that it writes a buffer that is larger than the L2, so
that the operands are not in it.  The kernel then pays for three things that a kernel in
a CUDA graph does not: the events, the start of each launch, and the L2's modified
lines, which are written to memory as the operands replace them.  For each of the
contest's problems, with nibblas's kernels, the table has times in us of one product:

    host      the call returns
    dirty 1   one product between two events, after 4 GiB were written
    clean 1   the same, after 4 GiB were read
    dirty n   n products of different inputs, after 4 GiB were written
    clean n   the same, after 4 GiB were read
    graph     n products in a CUDA graph that is replayed

The first rows are for a kernel that does almost nothing and for reads."""

import argparse
import os
import statistics
import sys
import time

try:
    import torch
except ImportError:
    torch = None

FLUSH_BYTES = 4 << 30
# Products of different inputs: more than the L2 holds, except those of the smallest.
INPUTS = {"gemv": 6}
MOST_INPUTS = 15
WARM_REPLAYS = 30


def median_us(repeats, prepare, run, count):
    """The median time of run(0) to run(count - 1) after prepare(), divided by count."""
    samples = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        prepare()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        for i in range(count):
            run(i)
        events[1].record()
        torch.cuda.synchronize()
        samples.append(events[0].elapsed_time(events[1]) * 1e3 / count)
    return statistics.median(samples)


def graph_us(repeats, run, count):
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        run(0)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(count):
                run(i)
    for _ in range(WARM_REPLAYS):
        graph.replay()
    return median_us(repeats, lambda: None, lambda _: graph.replay(), 1) / count


def host_us(run, count):
    run(0)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for i in range(count):
        run(i)
    spent_us = (time.perf_counter() - begin) * 1e6
    torch.cuda.synchronize()
    return spent_us / count


def row(name, repeats, run, count):
    """Prints a row of the table.  Writing or reading the buffer takes longer than the
    host needs for its calls, so that the GPU never waits for the host."""
    buffer = torch.empty(FLUSH_BYTES >> 3, dtype=torch.int64, device="cuda")

    def write():
        buffer.fill_(42)

    def read():
        buffer.max()

    times = [host_us(run, count)]
    times += [median_us(repeats, prepare, run, n)
              for n in (1, count) for prepare in (write, read)]
    times.append(graph_us(repeats, run, count))
    print(f"{name:52} {count:2}" + "".join(f"{t:9.1f}" for t in times), flush=True)


def empty_and_reads(repeats):
    value = torch.zeros(1, device="cuda")
    row("an addition to one value", repeats, lambda _: value.add_(1), MOST_INPUTS)
    for mib in (4, 16, 64):
        data = [torch.zeros(mib << 17, dtype=torch.int64, device="cuda")
                for _ in range(MOST_INPUTS)]
        row(f"largest of {mib} MiB", repeats, lambda i, d=data: d[i].max(), MOST_INPUTS)


def problems(repeats):
    from nibblas import gpumode  # reads NIBBLAS_LIBRARY
    from nibblas.gpumode import _data, _specs

    for problem in gpumode.PROBLEMS:
        kernel = gpumode.custom_kernel(problem)
        for one in _specs.BENCHMARKS[problem]:
            inputs = [_data.generate(problem, one.spec, "cuda", _specs.SEED + 42 * i)
                      for i in range(INPUTS.get(problem, MOST_INPUTS))]
            row(f"{problem} {_specs.name(problem, one.spec)}", repeats,
                lambda i, k=kernel, d=inputs: k(d[i]), len(inputs))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", metavar="FILE")
    parser.add_argument("--repeats", type=int, default=25)
    options = parser.parse_args()
    if torch is None:
        sys.exit("gpu_timer.py: torch is not installed")
    if not torch.cuda.is_available():
        sys.exit("gpu_timer.py: torch finds no GPU")
    if options.library:
        os.environ["NIBBLAS_LIBRARY"] = os.path.abspath(options.library)
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                    "..", "python"))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; us")
    print(f"{'':52}  n" + "".join(f"{t:>9}" for t in (
        "host", "dirty 1", "clean 1", "dirty n", "clean n", "graph")))
    empty_and_reads(options.repeats)
    problems(options.repeats)


if __name__ == "__main__":
    main()
