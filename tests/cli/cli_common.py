# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of the command: running it, writing safetensors files, and
NVFP4 as docs/numerics.md defines it, in plain Python."""

import csv
import ctypes
import io
import json
import math
import os
import pty
import random
import shutil
import struct
import subprocess
import tempfile
import unittest

NIB = os.environ.get("NIB", "nib")
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1, "F8_E4M3": 1, "F8_E8M0": 1, "I64": 8,
         "I32": 4, "I8": 1, "F4": 0.5}


def nib(*args, cwd=None, **options):
    """Runs nib; the result has returncode, stdout and stderr."""
    options.setdefault("timeout", 240)
    return subprocess.run([NIB, *map(str, args)], cwd=cwd, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True,
                          **options)


def without_override():
    """Root, too, is refused by the mode of a file or folder: CAP_DAC_OVERRIDE is given
    up."""
    for capability in (1, 2):
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)


def fake_gpu():
    """The environment in which nib sees the GPU of tests/cuda/fake_cuda, whose kernels
    do nothing; None for a build without kernels."""
    env = dict(os.environ, NIB_CUDA_LIBRARY=os.environ.get("FAKE_CUDA", ""),
               NIB_TUNING="off")
    backends = json.loads(nib("info", "--format", "json", env=env).stdout)["backends"]
    return env if any(r["open"] and r["backend"].startswith("cuda")
                      for r in backends) else None


class NibTest(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="nib-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)

    def nib(self, *args, code=0, **options):
        """Runs nib in the folder and compares its exit code."""
        result = nib(*args, cwd=self.folder, **options)
        self.assertEqual(result.returncode, code, "nib %s\n%s%s" % (
            " ".join(map(str, args)), result.stdout, result.stderr))
        return result

    def rows(self, *args, code=0, **options):
        """The rows that nib prints as JSON."""
        return json.loads(self.nib(*args, "--format", "json", code=code,
                                   **options).stdout)

    def refused(self, *args, code, says):
        """nib fails with code, one line and a text that says why."""
        result = self.nib(*args, code=code)
        self.assertRegex(result.stderr, says)
        # AddressSanitizer adds a line when malloc() fails.
        lines = [line for line in result.stderr.splitlines()
                 if "AddressSanitizer failed to allocate" not in line]
        self.assertEqual(len(lines), 1, result.stderr)
        return result


def is_instrumented(names=(b"asan", b"tsan", b"msan", b"ubsan")):
    """Sanitizers keep memory of their own, and files."""
    with open(NIB, "rb") as file:
        data = file.read()
    return any(b"__%s_" % name in data for name in names)


def read_csv(text):
    return list(csv.DictReader(io.StringIO(text)))


# ---- safetensors ---------------------------------------------------------------


def save(path, tensors, metadata=None):
    """tensors: name -> (dtype, shape, bytes)."""
    header, at = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        assert len(data) == SIZES[dtype] * math.prod(shape), name
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def save_sparse(path, rows, k, name="w.weight"):
    """One bf16 matrix of zeros that takes no space on the disk."""
    header = json.dumps({name: {"dtype": "BF16", "shape": [rows, k],
                                "data_offsets": [0, 2 * rows * k]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 2 * rows * k)


def load(path):
    """(tensors, metadata)"""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header, data = json.loads(data[8:8 + size]), data[8 + size:]
    metadata = header.pop("__metadata__", {})
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])])
            for name, t in header.items()}, metadata


def floats(tensor):
    """A float tensor's values as Python floats."""
    dtype, _, data = tensor
    if dtype == "F32":
        return list(struct.unpack("<%df" % (len(data) // 4), data))
    if dtype == "F16":
        return list(struct.unpack("<%de" % (len(data) // 2), data))
    halves = struct.unpack("<%dH" % (len(data) // 2), data)
    return list(struct.unpack("<%df" % len(halves), struct.pack(
        "<%dI" % len(halves), *(h << 16 for h in halves))))


def tensor(dtype, shape, values):
    """Values to a tensor; BF16 is truncated."""
    n = len(values)
    if dtype == "BF16":
        bits = struct.unpack("<%dI" % n, struct.pack("<%df" % n, *values))
        data = struct.pack("<%dH" % n, *(b >> 16 for b in bits))
    else:
        data = struct.pack("<%d%s" % (n, {"F32": "f", "F16": "e"}[dtype]),
                           *values)
    return dtype, list(shape), data


def matrix(rows, k, seed, dtype="F32"):
    """A weight as trained ones are: rows and columns differ in size."""
    r = random.Random(seed)
    row = [math.exp(r.gauss(0, 0.3)) for _ in range(rows)]
    col = [0.02 * math.exp(random.Random(k + i).gauss(0, 0.6))
           for i in range(k)]
    return tensor(dtype, (rows, k), [
        r.gauss(0, 1) * row[i] * col[j] for i in range(rows)
        for j in range(k)])


# ---- NVFP4 ---------------------------------------------------------------------


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent:
        return (8 + mantissa) * 2.0 ** (exponent - 10)
    return mantissa * 2.0 ** -9


SCALES = [e4m3(i) for i in range(127)]


def to_e4m3(value):
    """To nearest even, clamped to 2^-9 .. 448: the code."""
    value = min(max(value, 2.0 ** -9), 448.0)
    low = max(i for i in range(127) if SCALES[i] <= value)
    if SCALES[low] == value:
        return low
    below, above = value - SCALES[low], SCALES[low + 1] - value
    return low + (above < below or (above == below and low & 1))


def to_e2m1(value):
    """To nearest even: the code."""
    bounds = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]
    code = 0
    for i, bound in enumerate(bounds):
        if abs(value) > bound or (abs(value) == bound and i % 2):
            code = i + 1
    return code | (8 if math.copysign(1, value) < 0 else 0)


def decode_layer(tensors, name):
    """Values of an NVFP4 layer, either format, as rows."""
    if name + ".weight_packed" in tensors:
        codes = tensors[name + ".weight_packed"]
        scale = 1 / floats(tensors[name + ".weight_global_scale"])[0]
    else:
        codes = tensors[name + ".weight"]
        scale = floats(tensors[name + ".weight_scale_2"])[0]
    rows, half = codes[1]
    scales = tensors[name + ".weight_scale"][2]
    out = []
    for r in range(rows):
        row = []
        for j in range(2 * half):
            byte = codes[2][r * half + j // 2]
            code = byte >> 4 if j & 1 else byte & 15
            value = E2M1[code & 7] * SCALES[scales[r * half // 8 + j // 16]]
            row.append((-value if code & 8 else value) * scale)
        out.append(row)
    return out


def sqnr_db(want, got):
    signal = sum(x * x for x in want)
    noise = sum((x - y) ** 2 for x, y in zip(want, got))
    return 10 * math.log10(signal / noise)


def tile(rows, groups, data):
    """Row-by-row scales in the order of 128x4 tiles."""
    out = bytearray(rows * groups)
    for r in range(rows):
        for g in range(groups):
            out[((r // 128) * (groups // 4) + g // 4) * 512 + r % 32 * 16 +
                r % 128 // 32 * 4 + g % 4] = data[r * groups + g]
    return bytes(out)


def exchange_nibbles(data):
    return bytes((b << 4 | b >> 4) & 255 for b in data)


def open_terminal():
    """(our side, their side) of a pseudo-terminal; skips the test without one."""
    try:
        return pty.openpty()
    except OSError as error:
        raise unittest.SkipTest(f"no pseudo-terminal: {error}") from None
