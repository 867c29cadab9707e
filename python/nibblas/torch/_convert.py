# SPDX-License-Identifier: Apache-2.0
"""_convert.py - quantise, dequantise, and change the layout of scales, as functions of
tensors, which the operators call."""

import ctypes as C

import torch

from nibblas import _abi as abi
from nibblas import _views as views
from nibblas._library import ArgumentError
from nibblas._plans import Cache, Kept
from nibblas.torch._tensors import USUAL, array, dtype_name, maker

LARGEST = 6.0 * 448.0
# The same where a rule tries scales above that of the largest value.
LARGEST_SEARCHED = 6.0 * 256.0


def amax_on_device(x):
    """The largest finite |x| as float32, without waiting for the device: two
    kernels."""
    if not x.numel():
        return x.new_zeros((), dtype=torch.float32)
    return torch.linalg.vector_norm(x.nan_to_num(0.0, 0.0, 0.0), float("inf"),
                                    dtype=torch.float32)


def global_of(amax, scales="amax"):
    """Returns the global scale for amax, as the library computes it, without waiting
    for the device.  scales: as in nibblas.quantize()."""
    largest = LARGEST if scales == "amax" else LARGEST_SEARCHED
    # On CUDA torch multiplies by the reciprocal of a number, which rounds otherwise.
    quotient = amax / torch.full_like(amax, largest)
    return torch.where(amax == 0, 1.0, quotient.clamp_min(2.0 ** -149))


class _Work:
    """The arguments of a call, for one call at a time."""

    __slots__ = ("own", "error", "arguments")

    def __init__(self, call):
        self.own = [type(x).from_buffer_copy(x) for x in call.template]
        self.error = abi.nib_error()
        self.arguments = (call.handle, *(
            C.byref(x) if isinstance(x, C.Structure) else x for x in self.own),
            C.byref(self.error))


class _Call(Kept):
    """A function of nibblas.h and its checked arguments, except pointers.  given: makes
    the tensors of its results."""

    Work = _Work

    def __init__(self, backend, device, name, template, given, is_empty=False):
        super().__init__(name)
        self.handle = backend.open(device).handle
        self.template, self.given, self.is_empty = template, given, is_empty


calls = Cache()
_new_scale = maker((), torch.float32, torch.device("cpu"))


def _check_global(global_scale):
    if global_scale is not None:
        views.vector(array("global_scale", global_scale), 1)


def _quantize_call(backend, device, x, global_scale, layout, zero_scale, saturate,
                   scales, weights):
    source = array("x", x)
    dense, sizes = views.dense(source)
    if sizes.cols % abi.NIB_NVFP4_BLOCK:
        source.fail(f"K = {sizes.cols}: must be a multiple of 16")
    _check_global(global_scale)
    if weights is not None:
        views.vector(array("weights", weights), sizes.cols)
    outer, groups = x.shape[:-2], sizes.cols // abi.NIB_NVFP4_BLOCK
    q = abi.nib_fp4(
        rows=sizes.rows, k=sizes.cols, batch=sizes.batch,
        scale_layout=views.choose("layout", layout, views.LAYOUTS))
    options = abi.nib_quantize_options(
        struct_bytes=C.sizeof(abi.nib_quantize_options), saturate=saturate,
        zero_scale=views.choose("zero_scale", zero_scale, views.ZERO_SCALES),
        scales=views.choose("scales", scales, views.SCALE_RULES))
    blocks = views.scale_shape(layout, sizes.rows, groups)
    return _Call(
        backend, device, "nib_quantize", (dense, q, options, C.c_void_p()),
        (maker((*outer, sizes.rows, sizes.cols // 2), torch.uint8, x.device),
         maker((*outer, *blocks), torch.float8_e4m3fn, x.device)),
        x.numel() == 0)


def quantize(backend, x, global_scale=None, layout="tiled", zero_scale="modelopt",
             saturate=False, scales="amax", weights=None):
    """(codes, scales, global scale) of x, [rows, K] or [batch, rows, K]."""
    codes, blocks, scale = _quantize(backend, x, global_scale, layout, zero_scale,
                                     saturate, scales, weights)
    # An operator must not return one of its arguments.
    return codes, blocks, scale if global_scale is None else scale.clone()


def quantize_rows(backend, x, global_scale):
    """quantize() for x of a layer, with linear scales.  On CUDA nothing waits.  The
    global scale of an x of zeros is then any number, since all products are 0."""
    if global_scale is None and backend.saturates:
        # The smallest positive float32.
        global_scale = (amax_on_device(x) / LARGEST).clamp_min(2.0 ** -149)
    return _quantize(backend, x, global_scale, "linear", "modelopt", backend.saturates)


def quantize_saturated(backend, x, global_scale):
    """(codes, linear scales) of x by a given global scale; inf and NaN become the
    largest values on all devices, as in quantize(saturate=True)."""
    return _quantize(backend, x, global_scale, "linear", "modelopt", True)[:2]


def _quantize(backend, x, global_scale, layout, zero_scale, saturate, rule="amax",
              weights=None):
    device = backend.device_of(x, "x")
    if weights is not None and weights.device != x.device:
        raise ArgumentError(f"weights: is on {weights.device}; must be on x's "
                            f"{x.device}", "weights")
    key = ("quantize", device, x.shape, x.is_contiguous() or x.stride(), x.dtype,
           layout, zero_scale, saturate, rule, None if global_scale is None else (
               global_scale.shape, global_scale.dtype), None if weights is None else (
               weights.shape, weights.stride(), weights.dtype))
    known = calls.get(key) or calls.add(key, _quantize_call(
        backend, device, x, global_scale, layout, zero_scale, saturate, rule, weights))
    if not saturate:
        backend.check_not_capturing("saturate = False: waits to report inf and "
                                 "NaN, which it cannot")
    new_codes, new_scales = known.given
    codes, scales, is_found = new_codes(), new_scales(), False
    if global_scale is not None:
        # Nearly always a scalar, which needs no reshape().
        scale = global_scale.reshape(()) if global_scale.shape else global_scale
    elif x.is_cuda and saturate:
        scale = global_of(amax_on_device(x), rule)
    else:
        # The library returns a computed scale in host memory, also from a GPU.
        scale, is_found = _new_scale(), True
    if known.is_empty:
        scales.view(torch.uint8).zero_()
        return codes, scales, (
            scale.fill_(1.0).to(x.device) if is_found else scale)
    work = known.take()
    dense, q, options, used = work.own
    dense.data = x.data_ptr()
    q.codes, q.scales = codes.data_ptr(), scales.data_ptr()
    options.stream = backend.stream(device)
    options.column_weights = None if weights is None else weights.data_ptr()
    pointer = scale.data_ptr()
    options.global_pointer, used.value = (
        (None, pointer) if is_found else (pointer, None))
    known.run(work)
    if is_found and not x.is_cpu:
        scale = scale.to(x.device)
    return codes, scales, scale


def _rows_call(backend, device, x, global_scale):
    source = array("x", x)
    dense, sizes = views.dense(source)
    if sizes.cols % abi.NIB_NVFP4_BLOCK:
        source.fail(f"K = {sizes.cols}: must be a multiple of 16")
    _check_global(global_scale)
    width = -(-sizes.cols * 9 // 16 // 16) * 16
    q = abi.nib_fp4(
        rows=sizes.rows, k=sizes.cols, batch=1,
        scale_layout=abi.NIB_SCALE_LAYOUT_LINEAR,
        row_stride_bytes=width, scale_row_stride_bytes=width)
    options = abi.nib_quantize_options(
        struct_bytes=C.sizeof(abi.nib_quantize_options), saturate=1)
    return _Call(backend, device, "nib_quantize", (dense, q, options, C.c_void_p()),
                 maker((sizes.rows, width), torch.uint8, x.device), x.numel() == 0)


def quantize_joined(backend, x, global_scale):
    """uint8 [rows, K/2 + K/16, and bytes up to a multiple of 16]: the codes of a row of
    x, then its scales; values beyond the largest saturate."""
    device = backend.device_of(x, "x")
    key = ("quantize_joined", device, x.shape, x.is_contiguous() or x.stride(), x.dtype,
           global_scale.shape, global_scale.dtype)
    known = calls.get(key) or calls.add(key, _rows_call(backend, device, x,
                                                        global_scale))
    rows = known.given()
    if known.is_empty:
        return rows
    work = known.take()
    dense, q, options, _ = work.own
    dense.data = x.data_ptr()
    q.codes = rows.data_ptr()
    q.scales = q.codes + x.shape[1] // 2
    options.global_pointer = global_scale.data_ptr()
    options.stream = backend.stream(device)
    known.run(work)
    return rows


def _dequantize_call(backend, device, codes, scales, global_scale, out_dtype, layout):
    views.choose("out_dtype", dtype_name(out_dtype), views.DENSE)
    _check_global(global_scale)
    view, sizes = views.nvfp4(array("codes", codes), array("scales", scales),
                              layout)
    shape = (*codes.shape[:-1], sizes.cols)
    y = views.Array("y", 0, shape, views.dense_strides(shape),
                    dtype_name(out_dtype), "")
    options = abi.nib_dequantize_options(
        struct_bytes=C.sizeof(abi.nib_dequantize_options))
    return _Call(backend, device, "nib_dequantize",
                 (view, C.c_float(), views.dense(y)[0], options),
                 maker(shape, out_dtype, codes.device), 0 in shape)


def dequantize(backend, codes, scales, global_scale=None, out_dtype=None,
               layout="tiled"):
    out_dtype = out_dtype or USUAL
    device = backend.device_of(codes, "codes")
    key = ("dequantize", device, out_dtype, layout,
           codes.shape, codes.is_contiguous() or codes.stride(), codes.dtype,
           scales.shape, scales.is_contiguous() or scales.stride(), scales.dtype,
           None if global_scale is None else (
               global_scale.shape, global_scale.dtype))
    known = calls.get(key) or calls.add(key, _dequantize_call(
        backend, device, codes, scales, global_scale, out_dtype, layout))
    y = known.given()
    if known.is_empty:
        return y
    work = known.take()
    view, value, to, options = work.own
    view.codes, view.scales = codes.data_ptr(), scales.data_ptr()
    to.data = y.data_ptr()
    options.stream = backend.stream(device)
    value.value, options.global_pointer = 1.0, None
    if global_scale is not None:
        if global_scale.is_cpu and not codes.is_cpu:
            value.value = global_scale.item()
        else:
            # A scale on the codes' device is read when the work runs, so nothing waits.
            value.value, options.global_pointer = 0.0, global_scale.data_ptr()
    known.run(work)
    return y


def _check_scales(x, dims):
    if x.dtype not in views.SCALES:
        x.fail("must be uint8 or float8_e4m3fn")
    if len(x.shape) not in dims:
        x.fail("must have " + " or ".join(map(str, dims)) + " dimensions")


def _convert_call(backend, device, source, rows, groups, layouts):
    """Prepares the conversion of the scales of [rows, 16 * groups] from layouts[0] to
    layouts[1]; source: an Array."""
    outer = source.shape[:-2] if len(source.shape) == 3 else ()
    shape = (*outer, *views.scale_shape(layouts[1], rows, groups))
    target = source._replace(name="target", shape=shape,
                             strides=views.dense_strides(shape))
    # The library does not read the codes.
    shape = (*outer, rows, groups * abi.NIB_NVFP4_BLOCK // 2)
    codes = views.Array("codes", 0, shape, views.dense_strides(shape), "uint8",
                        source.device)
    pair = [views.nvfp4(codes, x, layout)[0]
            for x, layout in zip((source, target), layouts)]
    options = abi.nib_call_options(struct_bytes=C.sizeof(abi.nib_call_options))
    return _Call(backend, device, "nib_convert_scales", (*pair, options),
                 maker(target.shape, source.owner.dtype, source.owner.device),
                 0 in target.shape)


def _convert(backend, device, known, source):
    target = known.given()
    if not known.is_empty:
        work = known.take()
        one, other, options = work.own
        one.scales, other.scales = source.data_ptr(), target.data_ptr()
        options.stream = backend.stream(device)
        known.run(work)
    return target


def to_blocked(backend, scales):
    """[rows, K/16] to the padded tiles of SWIZZLE_32_4_4."""
    device = backend.device_of(scales, "scales")
    key = ("to_blocked", device, scales.shape,
           scales.is_contiguous() or scales.stride(), scales.dtype)
    known = calls.get(key)
    if known is None:
        x = array("scales", scales)
        _check_scales(x, (2, 3))
        known = calls.add(key, _convert_call(
            backend, device, x, *x.shape[-2:], ("linear", "tiled")))
    return _convert(backend, device, known, scales)


def from_blocked(backend, blocked, rows, groups):
    """The padded tiles to [rows, K/16], without the padding."""
    device = backend.device_of(blocked, "blocked")
    key = ("from_blocked", device, blocked.shape,
           blocked.is_contiguous() or blocked.stride(), blocked.dtype, rows,
           groups)
    known = calls.get(key)
    if known is None:
        x = array("blocked", blocked)
        _check_scales(x, (1, 2, 3))
        known = calls.add(key, _convert_call(
            backend, device, x, rows, groups, ("tiled", "linear")))
    return _convert(backend, device, known, blocked)


def _expert_rows_call(backend, device, ends):
    count = ends.numel()
    if ends.dim() != 1 or count < 1:
        array("ends", ends).fail("must be [experts], at least one")
    views.vector(array("ends", ends), count, "int32")
    options = abi.nib_call_options(struct_bytes=C.sizeof(abi.nib_call_options))
    return _Call(backend, device, "nib_moe_expert_rows",
                 (C.c_void_p(), C.c_int64(count), C.c_void_p(), C.c_void_p(),
                  options), (maker((count + 1,), torch.int32, ends.device),
                             maker((count,), torch.int32, ends.device)))


def expert_rows(backend, ends):
    """Returns (row_offsets [E + 1], scale_rows [E]) for a mixture of experts from the
    ends of its experts' rows, without waiting for the device."""
    device = backend.device_of(ends, "ends")
    key = ("expert_rows", device, ends.shape, ends.is_contiguous(), ends.dtype)
    known = calls.get(key) or calls.add(key, _expert_rows_call(
        backend, device, ends))
    new_rows, new_scales = known.given
    rows, scales = new_rows(), new_scales()
    work = known.take()
    source, _, to_rows, to_scales, options = work.own
    source.value = ends.data_ptr()
    to_rows.value, to_scales.value = rows.data_ptr(), scales.data_ptr()
    options.stream = backend.stream(device)
    known.run(work)
    return rows, scales
