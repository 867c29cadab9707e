# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the Python package: random operands, NVFP4 in float64 as
docs/numerics.md defines it, and the oracle of nibblas.h."""

import ctypes as C
import json
import os
import re
import struct
import threading
import unittest
from typing import Any, NamedTuple
from unittest import mock

import nibblas
import numpy as np

from nibblas import _abi as abi
from nibblas import _plans
from nibblas._library import call

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6])
VALUES = np.concatenate([E2M1, -E2M1])
BYTES = np.arange(127)
E4M3 = np.where(BYTES < 8, BYTES % 8 * 2.0 ** -9,
                (8 + BYTES % 8) * 2.0 ** (BYTES // 8 - 10.0))


def needs_torch():
    """torch, or raises SkipTest with the reason why it is not here."""
    reason = os.environ.get("NIBBLAS_NO_TORCH")
    if not reason:
        try:
            import torch
            return torch
        except ImportError as error:
            reason = str(error)
    raise unittest.SkipTest("no torch: " + reason)


def random_codes(rng, *shape):
    return rng.integers(0, 256, shape, dtype=np.uint8)


def random_scales(rng, *shape, low=40, high=72):
    """Bytes of e4m3; 40 to 72 are 1/4 to 4."""
    return rng.integers(low, high, shape, dtype=np.uint8)


def blocked_index(rows, groups):
    """The index of each scale in SWIZZLE_32_4_4, [rows, groups]."""
    r, g = np.arange(rows)[:, None], np.arange(groups)[None, :]
    return ((r // 128 * -(-groups // 4) + g // 4) * 512 + r % 32 * 16
            + r % 128 // 32 * 4 + g % 4)


def blocked(scales, padding=0x7F):
    """Linear scales [..., rows, groups] in that order, padding with NaN."""
    rows, groups = scales.shape[-2:]
    padded = (-(-rows // 128) * 128, -(-groups // 4) * 4)
    out = np.full((*scales.shape[:-2], padded[0] * padded[1]), padding,
                  np.uint8)
    out[..., blocked_index(rows, groups)] = scales
    return out.reshape(*scales.shape[:-2], *padded)


def decode(codes, scales):
    """float64 values of codes [..., K/2] with linear scales [..., K/16]."""
    pairs = np.stack([codes & 15, codes >> 4], -1)
    values = VALUES[pairs].reshape(*codes.shape[:-1], scales.shape[-1], 16)
    return (values * E4M3[scales][..., None]).reshape(
        *codes.shape[:-1], 2 * codes.shape[-1])


def bound(a, b):
    """docs/numerics.md for CPU backends: (K/16 + 4) * 2^-24 * sum of |block
    partials|; a, b: float64 values."""
    groups = a.shape[-1] // 16
    partials = np.einsum("...mgk,...ngk->...mng", *(
        x.reshape(*x.shape[:-1], groups, 16) for x in (a, b)))
    return (groups + 4) * 2.0 ** -24 * np.abs(partials).sum(-1)


def dense_bound(x, y):
    """docs/numerics.md for CPU backends where A is floats: (K + 8) * 2^-24 * sum of
    |products|; x, y: float64 values."""
    return (x.shape[-1] + 8) * 2.0 ** -24 * (np.abs(x) @ np.abs(
        np.swapaxes(y, -1, -2)))


def int8_values(x):
    """float64 values [..., K] as nibblas.h rounds them to 8 bits: 16 share the
    smallest scale (1 + t/8) * 2^e, e >= -100, of at least their largest / 127."""
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // 16, 16)
    largest = np.abs(blocks).max(-1, keepdims=True)
    exponent = np.frexp(np.maximum(largest / 127, 2.0 ** -100))[1] - 1
    scale = np.full_like(largest, np.inf)
    # The power of two may be one too low, where the quotient was rounded.
    for e in (exponent, exponent + 1):
        for eighths in range(8):
            one = np.ldexp(1 + eighths / 8, e)
            scale = np.where(one * 127 >= largest, np.minimum(scale, one), scale)
    return (np.rint(blocks / scale) * scale).reshape(x.shape)


def pointer(x):
    return None if x is None else x.ctypes.data


def view(codes, scales, layout=abi.NIB_SCALE_LAYOUT_LINEAR):
    """Contiguous arrays as struct nib_fp4."""
    *batch, rows, half = codes.shape
    return abi.nib_fp4(
        codes=pointer(codes), scales=pointer(scales), rows=rows, k=2 * half,
        batch=batch[0] if batch else 1, scale_layout=layout)


def dense(c, dtype):
    *batch, rows, cols = c.shape
    return abi.nib_dense(data=pointer(c), dtype=dtype, rows=rows, cols=cols,
                         batch=batch[0] if batch else 1)


class Floats(NamedTuple):
    """A that has no scales.  data: bfloat16 as 16-bit integers; dtype and
    activations: the library's."""

    data: Any
    dtype: int
    activations: int


def problem(a, b, b2, alpha, alpha2, c):
    """One struct nib_problem; operands are (codes, linear scales), or Floats; c: a
    struct nib_dense."""
    p = (abi.nib_problem * 1)(abi.nib_problem(
        b=view(*b), alpha=pointer(alpha), alpha2=pointer(alpha2), c=c))
    if isinstance(a, Floats):
        p[0].x, p[0].activations = dense(a.data, a.dtype), a.activations
    else:
        p[0].a = view(*a)
    if b2 is not None:
        p[0].b2 = view(*b2)
    return p


def reference(op, a, b, b2=None, alpha=None, alpha2=None):
    """The oracle's fp32 result; operands as problem() takes them."""
    shape = (*a[0].shape[:-1], b[0].shape[-2])
    c = np.zeros(shape, np.float32)
    p = problem(a, b, b2, alpha, alpha2, dense(c, abi.NIB_DTYPE_FP32))
    call("nib_reference", op, p, C.c_int64(1))
    return c


def failures(op, a, b, c, arithmetic, b2=None, alpha=None, alpha2=None):
    """nib_check(): how many elements of c are outside the bound of a device's
    arithmetic, and a sentence about the worst.  c: fp32 or fp16."""
    dtype = {"float32": abi.NIB_DTYPE_FP32, "float16": abi.NIB_DTYPE_FP16}[c.dtype.name]
    p = problem(a, b, b2, alpha, alpha2, dense(c, dtype))
    options = abi.nib_check_options(
        struct_bytes=C.sizeof(abi.nib_check_options), arithmetic=arithmetic)
    result = abi.nib_check_result(
        struct_bytes=C.sizeof(abi.nib_check_result))
    call("nib_check", op, p, C.c_int64(1), C.byref(options), C.byref(result))
    assert result.checked == c.size
    return result.failed, (f"row {result.row}, col {result.col}: "
                           f"{result.got}, must be {result.want}")


SAFETENSORS = {"uint8": "U8", "float8_e4m3fn": "F8_E4M3", "float32": "F32",
               "float16": "F16", "bfloat16": "BF16", "int64": "I64"}


def write_safetensors(path, tensors):
    """A file as the format says: a header in JSON and the bytes.  tensors: name ->
    (type's name, shape, bytes)."""
    header, at = {}, 0
    for name, (kind, shape, raw) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(shape),
                        "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(raw for _, _, raw in tensors.values())


def save_safetensors(path, tensors):
    """Tensors of torch by name."""
    import torch
    write_safetensors(path, {
        name: (SAFETENSORS[str(x.dtype).removeprefix("torch.")], x.shape,
               x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        for name, x in tensors.items()})


def plans_made(function, kind=_plans.Plan):
    """How many plans, or calls of another kind, a call makes."""
    made, init = [], kind.__init__

    def count(plan, *args, **kwargs):
        made.append(plan)
        init(plan, *args, **kwargs)
    with mock.patch.object(kind, "__init__", count):
        function()
    return len(made)


def at_once(functions):
    """Runs them in threads that start together; an exception of one is raised here."""
    errors, start = [], threading.Barrier(len(functions))

    def run(function):
        start.wait()
        try:
            function()
        except BaseException as error:
            errors.append(error)
    workers = [threading.Thread(target=run, args=(one,)) for one in functions]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]


class OracleTest(unittest.TestCase):
    """Tests of a device with self.arithmetic, by nib_check()."""

    def assert_right(self, op, a, b, c, **kwargs):
        bad, worst = failures(op, a, b, c, self.arithmetic, **kwargs)
        self.assertEqual(bad, 0, worst)


class TorchTest(OracleTest):
    """Tests that need torch; self.ops is torch.ops.nibblas, self.package is
    nibblas.torch."""

    @classmethod
    def setUpClass(cls):
        cls.torch = needs_torch()
        import nibblas.torch
        cls.package = nibblas.torch
        cls.ops = cls.torch.ops.nibblas
        cls.rng = np.random.default_rng(1)
        cls.torch.manual_seed(1)

    def operand(self, *shape, layout="tiled", low=40, high=72):
        """(codes, scales) as tensors, and their float64 values and linear
        arrays; shape ends with K."""
        codes = random_codes(self.rng, *shape[:-1], shape[-1] // 2)
        scales = random_scales(self.rng, *shape[:-1], shape[-1] // 16, low=low,
                               high=high)
        laid = blocked(scales) if layout == "tiled" else scales
        tensors = (self.torch.from_numpy(codes), self.torch.from_numpy(
            np.ascontiguousarray(laid)))
        return tensors, decode(codes, scales), (codes, scales)

    def assert_within(self, got, want, limit):
        error = np.abs(got.double().numpy() - want)
        self.assertEqual(tuple(got.shape), want.shape)
        self.assertTrue((error <= limit).all(), (error - limit).tolist())

    def refused(self, pattern, function, *args, **kwargs):
        with self.assertRaisesRegex(ValueError, pattern) as caught:
            function(*args, **kwargs)
        self.assert_says_what(caught.exception)

    def assert_says_what(self, error):
        """An ArgumentError carries the argument that its message begins with."""
        if isinstance(error, nibblas.ArgumentError):
            self.assertEqual(error.status, abi.NIB_STATUS_BAD_ARGUMENT)
            self.assertTrue(error.argument, error)
            self.assertRegex(str(error),
                             "^" + re.escape(error.argument) + r"(?!\w)")
