# SPDX-License-Identifier: Apache-2.0
"""_limits.py - measures this machine, and from that the least time that a benchmark
could take here.  The contest's speed of light is another machine's."""

import ctypes as C
import statistics
import time
from typing import NamedTuple

import torch

from nibblas import _abi as abi
from nibblas import _device
from nibblas._library import UnsupportedError, call

ROUNDS = 5
READ_BYTES = 1 << 30
MULTIPLY_FLOP = 1 << 40
CPU_READ_BYTES = 1 << 28


class Limits(NamedTuple):
    """Rates; flop_per_s None: not known."""

    bytes_per_s: float
    flop_per_s: float | None
    note: str

    def least_us(self, flop, n_bytes):
        """(time, which rate sets it)."""
        read = n_bytes / self.bytes_per_s
        multiply = flop / self.flop_per_s if self.flop_per_s else 0
        kind = "multiplications" if multiply > read else "reading"
        return 1e6 * max(read, multiply), kind

    def describe(self):
        text = f"reading at {self.bytes_per_s * 1e-9:.0f} GB/s"
        if self.flop_per_s:
            text += f" or {self.flop_per_s * 1e-12:.0f} TFLOP/s of its tensor cores"
        return text + ", measured here" + self.note


def _of_cpu():
    x = torch.ones(CPU_READ_BYTES // 8, dtype=torch.int64)
    times = []
    for _ in range(ROUNDS + 1):
        begin = time.perf_counter()
        x.sum()
        times.append(time.perf_counter() - begin)
    return Limits(CPU_READ_BYTES / statistics.median(times[1:]), None,
                  "; multiplications are not counted on a CPU (`nib bench` "
                  "does)")


def probe_rate(probe_s, amount):
    """Units a second: the median of some probes after one that warms up.
    probe_s(amount) does one and returns (units done, seconds)."""
    rates = []
    for _ in range(ROUNDS + 1):
        done, seconds = probe_s(amount)
        rates.append(done / seconds)
    return statistics.median(rates[1:])


def launch_probe(device, probe, data, amount, stream=None):
    """Launches a probe; returns how much it does."""
    done = C.c_int64()
    options = abi.nib_call_options(
        struct_bytes=C.sizeof(abi.nib_call_options), stream=stream)
    call("nib_device_probe", device.handle, probe, data, amount,
         C.byref(done), C.byref(options))
    return done.value


def multiply_rate(timed):
    """(the rate of multiplications or None, what is to be noted).  timed(probe,
    data): what probe_rate() takes."""
    try:
        return probe_rate(timed(abi.NIB_PROBE_MULTIPLY, None), MULTIPLY_FLOP), ""
    except UnsupportedError:
        return None, ("; multiplications are not counted: there is no probe of "
                      "their rate on this GPU")


def _of_gpu(index):
    device = _device.device(f"cuda:{index}")
    x = torch.zeros(READ_BYTES, dtype=torch.uint8, device=f"cuda:{index}")

    def timed(probe, data):
        def run(amount):
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            stream = torch.cuda.current_stream(index)
            events[0].record(stream)
            done = launch_probe(device, probe, data, amount,
                               stream.cuda_stream or None)
            events[1].record(stream)
            torch.cuda.synchronize(index)
            return done, events[0].elapsed_time(events[1]) / 1e3
        return run
    read = probe_rate(timed(abi.NIB_PROBE_READ, x.data_ptr()), READ_BYTES)
    return Limits(read, *multiply_rate(timed))


def measure(device):
    """The limits of a torch device."""
    device = torch.device(device)
    if device.type == "cpu":
        return _of_cpu()
    return _of_gpu(torch.cuda.current_device() if device.index is None
                   else device.index)
