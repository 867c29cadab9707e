# SPDX-License-Identifier: Apache-2.0
"""_views.py - turns arrays of any framework into the views of nibblas.h and checks
their shapes; errors name the argument.  It reads no data."""

import math
from typing import NamedTuple

from nibblas import _abi as abi
from nibblas._library import ArgumentError, lib

LAYOUTS = {"linear": abi.NIB_SCALE_LAYOUT_LINEAR,
           "tiled": abi.NIB_SCALE_LAYOUT_TILED_128X4}
ZERO_SCALES = {"modelopt": abi.NIB_ZERO_SCALE_MODELOPT,
           "compressed-tensors": abi.NIB_ZERO_SCALE_COMPRESSED_TENSORS,
           "ggml": abi.NIB_ZERO_SCALE_GGML}
SCALE_RULES = {"amax": abi.NIB_SCALES_AMAX, "four-six": abi.NIB_SCALES_FOUR_SIX,
               "mse": abi.NIB_SCALES_MSE}
DENSE = {"float32": abi.NIB_DTYPE_FP32, "float16": abi.NIB_DTYPE_FP16,
         "bfloat16": abi.NIB_DTYPE_BF16}
ACTIVATIONS = {"nvfp4": abi.NIB_ACTIVATIONS_NVFP4,
               "dense": abi.NIB_ACTIVATIONS_DENSE,
               "int8": abi.NIB_ACTIVATIONS_INT8}
CODES = ("uint8", "float4_e2m1fn_x2")
SCALES = ("uint8", "float8_e4m3fn")


class Array(NamedTuple):
    """An argument; strides count elements, device is "cpu" or "cuda:0"."""

    name: str
    pointer: int
    shape: tuple
    strides: tuple
    dtype: str
    device: str
    owner: object = None  # keeps the data alive

    def fail(self, rule):
        raise ArgumentError(f"{self.name}: shape {tuple(self.shape)}, "
                            f"{self.dtype}: {rule}", self.name)

    def is_contiguous(self, first=0):
        """Returns whether the dimensions from `first` on are contiguous."""
        size = 1
        for n, stride in zip(reversed(self.shape[first:]),
                             reversed(self.strides[first:])):
            if n != 1 and stride != size:
                return 0 in self.shape
            size *= n
        return True

    def numel(self):
        return math.prod(self.shape)


class Sizes(NamedTuple):
    """The sizes of a stack of matrices; is_stack: it has a batch dimension."""

    batch: int
    rows: int
    cols: int
    is_stack: bool


def dense_strides(shape):
    """Returns the strides of a row-major array, in elements."""
    strides, size = [], 1
    for n in reversed(shape):
        strides.append(size)
        size *= max(n, 1)
    return tuple(reversed(strides))


def scale_shape(layout, rows, groups):
    """The shape of the scales of one [rows, 16 * groups] matrix."""
    if choose("layout", layout, LAYOUTS) == abi.NIB_SCALE_LAYOUT_LINEAR:
        return rows, groups
    return -(-rows // 128) * 128, -(-groups // 4) * 4


def choose(name, value, choices):
    """Returns choices[value]; raises an error that lists the choices."""
    try:
        return choices[value]
    except (KeyError, TypeError):
        raise ArgumentError(f"{name} = {value!r}: must be "
                            + " or ".join(map(repr, choices)), name) from None


def check_device(arrays):
    """Returns the device, which must be the same for all arrays."""
    first = arrays[0]
    for x in arrays:
        if x.device != first.device:
            x.fail(f"is on {x.device}; must be on {first.name}'s "
                   f"{first.device}")
    return first.device


def _stack(x, what):
    """Returns Sizes, row stride and batch stride of [rows, cols] or
    [batch, rows, cols].  A stride of 0 means dense."""
    if len(x.shape) not in (2, 3):
        x.fail(f"must have 2 or 3 dimensions: {what}")
    if x.shape[-1] > 1 and x.strides[-1] != 1 and 0 not in x.shape:
        x.fail(f"strides {tuple(x.strides)}: the last must be 1")
    strides = []
    for n, stride in zip(x.shape[:-1], x.strides[:-1]):
        if n > 1 and stride <= 0 and 0 not in x.shape:
            x.fail(f"strides {tuple(x.strides)}: rows and matrices must lie "
                   "one after the other; make it contiguous")
        strides.append(stride if n > 1 else 0)
    batch = x.shape[0] if len(x.shape) == 3 else 1
    sizes = Sizes(batch, x.shape[-2], x.shape[-1], len(x.shape) == 3)
    return sizes, strides[-1], strides[0] if len(x.shape) == 3 else 0


def _linear_scales(view, scales, sizes, groups):
    want = (sizes.rows, groups)
    if sizes.is_stack:
        want = (sizes.batch, *want)
    if tuple(scales.shape) != want:
        tiled = lib.nib_scales_bytes(abi.NIB_SCALE_LAYOUT_TILED_128X4, sizes.rows,
                                     view.k)
        hint = ("; this is the size of 'tiled' ones"
                if scales.numel() == tiled * sizes.batch else "")
        scales.fail(f"must have shape {want} in layout 'linear'{hint}")
    _, row, batch = _stack(scales, "[rows, K/16]")
    view.scale_row_stride_bytes = row
    view.scale_batch_stride_bytes = batch


def _tiled_scales(view, scales, sizes):
    one = lib.nib_scales_bytes(abi.NIB_SCALE_LAYOUT_TILED_128X4, sizes.rows, view.k)
    is_cut = (sizes.is_stack and len(scales.shape) > 1
              and scales.shape[0] == sizes.batch)
    if is_cut and scales.numel() == one * sizes.batch:
        if not scales.is_contiguous(1):
            scales.fail(f"strides {tuple(scales.strides)}: each matrix's "
                        "scales must be contiguous in layout 'tiled'")
        if sizes.batch > 1:
            view.scale_batch_stride_bytes = scales.strides[0]
        return
    if scales.numel() != one * sizes.batch:
        padded = (-(-sizes.rows // 128) * 128, -(-view.k // 64) * 4)
        count = f"{sizes.batch} x " if sizes.is_stack else ""
        hint = ("; this is the size of 'linear' ones" if scales.numel() ==
                sizes.batch * sizes.rows * (view.k // 16) else "")
        scales.fail(f"must have {count}{padded[0]} x {padded[1]} elements in "
                    f"layout 'tiled': rows padded to 128, K/16 to 4{hint}")
    if not scales.is_contiguous():
        scales.fail(f"strides {tuple(scales.strides)}: must be contiguous in "
                    "layout 'tiled'")


def nvfp4(codes, scales, layout, scale_rows=None):
    """Returns (struct nib_fp4, Sizes), where cols is k.  scale_rows: the rows of
    the scale tensor, if they are not those of codes."""
    if codes.dtype not in CODES:
        codes.fail("must be uint8 or float4_e2m1fn_x2, two values to a byte")
    sizes, row, batch = _stack(codes, "[rows, K/2] or [batch, rows, K/2]")
    k = sizes.cols * 2
    if k % abi.NIB_NVFP4_BLOCK:
        codes.fail(f"K = 2 * {sizes.cols} = {k}: must be a multiple of 16")
    view = abi.nib_fp4(
        codes=codes.pointer or None, rows=sizes.rows, k=k, batch=sizes.batch,
        row_stride_bytes=row, batch_stride_bytes=batch)
    if scales is None:
        return view, sizes._replace(cols=k)
    if scales.dtype not in SCALES:
        scales.fail("must be uint8 or float8_e4m3fn")
    view.scales = scales.pointer or None
    view.scale_layout = choose(codes.name + "_layout", layout, LAYOUTS)
    laid = sizes if scale_rows is None else sizes._replace(rows=scale_rows)
    if view.scale_layout == abi.NIB_SCALE_LAYOUT_LINEAR:
        _linear_scales(view, scales, laid, k // 16)
    else:
        _tiled_scales(view, scales, laid)
    return view, sizes._replace(cols=k)


def dense(x):
    """Returns (struct nib_dense, Sizes) of [rows, cols] or [batch, rows, cols]."""
    dtype = DENSE.get(x.dtype)
    if dtype is None:
        x.fail("must be float32, float16 or bfloat16")
    sizes, row, batch = _stack(x, "[rows, cols] or [batch, rows, cols]")
    view = abi.nib_dense(
        data=x.pointer or None, dtype=dtype, rows=sizes.rows, cols=sizes.cols,
        batch=sizes.batch, row_stride_elems=row, batch_stride_elems=batch)
    return view, sizes


def vector(x, count, dtype="float32"):
    """Checks that x has count contiguous values."""
    if x.dtype != dtype:
        x.fail(f"must be {dtype}")
    if x.numel() != count:
        x.fail(f"must have {count} element{'s' if count != 1 else ''}")
    if not x.is_contiguous():
        x.fail(f"strides {tuple(x.strides)}: must be contiguous")


def same_k(a, a_sizes, b, b_sizes):
    """Checks that a and b have the same K, and that b has one matrix or as many as
    a."""
    if a_sizes.cols != b_sizes.cols:
        b.fail(f"K = {b_sizes.cols}: must be {a.name}'s {a_sizes.cols}")
    if b_sizes.batch not in (1, a_sizes.batch):
        b.fail(f"{b_sizes.batch} matrices: must be 1 or {a.name}'s "
               f"{a_sizes.batch}")
