# SPDX-License-Identifier: Apache-2.0
"""_convert.py - quantise, dequantise, and the layouts of scales, as functions of
tensors: what the operators call."""

import ctypes as C

import torch

from nibblas import _abi as abi
from nibblas import _views as views
from nibblas._library import call, fail, lib
from nibblas._plans import Cache
from nibblas.torch._tensors import array

LARGEST = 6.0 * 448.0


def _call_options(side, place):
    return abi.nib_call_options(
        struct_bytes=C.sizeof(abi.nib_call_options), stream=side.stream(place))


def _global_on_device(x):
    """amax / 2688 of what is finite, with no word to the host; as the library
    computes it."""
    size = x.abs().float()
    amax = torch.where(size.isfinite(), size, 0).amax() if x.numel() else (
        size.new_zeros(()))
    scale = (amax / LARGEST).clamp_min(2.0 ** -149)
    return torch.where(amax == 0, 1.0, scale)


class _Call:
    """The structs of one call of nib_quantize(), filled but for pointers."""

    def __init__(self, kept):
        self.x = abi.nib_dense.from_buffer_copy(kept.x)
        self.q = abi.nib_nvfp4.from_buffer_copy(kept.q)
        self.options = abi.nib_quantize_options.from_buffer_copy(kept.options)
        self.used, self.error = C.c_void_p(), abi.nib_error()
        self.arguments = (kept.handle, C.byref(self.x), C.byref(self.q),
                          C.byref(self.options), self.used,
                          C.byref(self.error))


class _Quantizer:
    """What is known of x by its sizes; kept as plans are."""

    function = lib["nib_quantize"]
    function.restype = C.c_int

    def __init__(self, side, place, x, global_scale, layout, recipe, saturate):
        source = array("x", x)
        self.x, sizes = views.dense(source)
        if sizes.cols % abi.NIB_BLOCK:
            source.fail(f"K = {sizes.cols}: must be a multiple of 16")
        if global_scale is not None:
            views.vector(array("global_scale", global_scale), 1)
        outer, groups = tuple(x.shape[:-2]), sizes.cols // abi.NIB_BLOCK
        self.codes = (*outer, sizes.rows, sizes.cols // 2)
        self.scales = (*outer, *views.scale_shape(layout, sizes.rows, groups))
        self.q = abi.nib_nvfp4(
            rows=sizes.rows, k=sizes.cols, batch=sizes.batch,
            scale_layout=views.choose("layout", layout, views.LAYOUTS))
        self.options = abi.nib_quantize_options(
            struct_bytes=C.sizeof(abi.nib_quantize_options), saturate=saturate,
            recipe=views.choose("recipe", recipe, views.RECIPES))
        self.handle = side.device(place).handle
        self.is_empty = x.numel() == 0
        self.is_pinned, self.stamp, self.idle = False, 0, []

    def run(self, x, codes, scales, stream, given, used):
        """given: the address of a global scale, or None; used: where the one
        that was found goes, in the host's memory."""
        try:
            call_ = self.idle.pop()
        except IndexError:
            call_ = _Call(self)
        call_.x.data = x.data_ptr()
        call_.q.codes, call_.q.scales = codes.data_ptr(), scales.data_ptr()
        call_.options.stream = stream
        call_.options.global_pointer = given
        call_.used.value = used
        status = self.function(*call_.arguments)
        if status:
            fail(status, call_.error)
        self.idle.append(call_)


_quantizers = Cache()


def quantize(side, x, global_scale=None, layout="tiled", recipe="modelopt",
             saturate=False):
    """(codes, scales, global scale) of x, [rows, K] or [batch, rows, K]."""
    place = side.place(x, "x")
    key = (place, x.shape, x.is_contiguous() or x.stride(), x.dtype, layout,
           recipe, saturate, None if global_scale is None else (
               global_scale.shape, global_scale.dtype))
    kept = _quantizers.get(key)
    if kept is None:
        kept = _quantizers.add(key, _Quantizer(
            side, place, x, global_scale, layout, recipe, saturate))
    if not saturate:
        side.check_not_capturing("saturate = False: waits to tell of inf and "
                                 "NaN, which it cannot")
    device, used = x.device, None
    codes = torch.empty(kept.codes, dtype=torch.uint8, device=device)
    scales = torch.empty(kept.scales, dtype=torch.float8_e4m3fn, device=device)
    if global_scale is not None:
        scale = global_scale.reshape(()).clone()
    elif x.is_cuda and saturate:
        scale = _global_on_device(x)
    else:
        scale = used = torch.empty((), dtype=torch.float32)
        if kept.is_empty:
            scale.fill_(1.0)
    if kept.is_empty:
        scales.view(torch.uint8).zero_()
    else:
        kept.run(x, codes, scales, side.stream(place),
                 scale.data_ptr() if used is None else None,
                 None if used is None else used.data_ptr())
    # What was found on a GPU is told on the host.
    return codes, scales, scale if used is None else scale.to(device)


def dequantize(side, codes, scales, global_scale, out_dtype, layout):
    place = side.place(codes, "codes")
    value, pointer = 1.0, None
    if global_scale is not None:
        views.vector(array("global_scale", global_scale), 1)
        if global_scale.is_cuda:
            # The device reads it when it is there: nothing waits.
            value, pointer = 0.0, global_scale.data_ptr()
        else:
            value = global_scale.item()
    view, sizes = views.nvfp4(array("codes", codes), array("scales", scales),
                              layout)
    y = torch.empty((*codes.shape[:-1], sizes.cols), dtype=out_dtype,
                    device=codes.device)
    to, _ = views.dense(array("y", y))
    options = abi.nib_dequantize_options(
        struct_bytes=C.sizeof(abi.nib_dequantize_options),
        stream=side.stream(place), global_pointer=pointer)
    if y.numel():
        call("nib_dequantize", side.device(place).handle, C.byref(view),
             C.c_float(value), C.byref(to), C.byref(options))
    return y


def _check_scales(x, dims):
    if x.dtype not in views.SCALES:
        x.fail("must be uint8 or float8_e4m3fn")
    if len(x.shape) not in dims:
        x.fail("must have " + " or ".join(map(str, dims)) + " dimensions")


def _convert(side, source, target, scales, blocked, rows, groups):
    """Between linear scales and blocked ones; source, target: tensors."""
    place = side.place(source, "scales")
    shape = (*scales.shape[:-2], rows, groups * abi.NIB_BLOCK // 2)
    # No codes: nobody looks at them.
    codes = views.Array("codes", 0, shape, views.dense_strides(shape), "uint8",
                        scales.device)
    linear, _ = views.nvfp4(codes, scales, "linear")
    tiled, _ = views.nvfp4(codes, blocked, "tiled")
    pair = (linear, tiled) if source.data_ptr() == scales.pointer else (
        tiled, linear)
    if target.numel():
        options = _call_options(side, place)
        call("nib_convert_scales", side.device(place).handle,
             C.byref(pair[0]), C.byref(pair[1]), C.byref(options))
    return target


def to_blocked(side, scales):
    """[rows, K/16] to the padded tiles of SWIZZLE_32_4_4."""
    x = array("scales", scales)
    _check_scales(x, (2, 3))
    rows, groups = scales.shape[-2:]
    blocked = torch.empty((*scales.shape[:-2],
                           *views.scale_shape("tiled", rows, groups)),
                          dtype=scales.dtype, device=scales.device)
    return _convert(side, scales, blocked, x, array("blocked", blocked), rows,
                    groups)


def from_blocked(side, blocked, rows, groups):
    """Back, without the padding."""
    x = array("blocked", blocked)
    _check_scales(x, (1, 2, 3))
    outer = blocked.shape[:1] if blocked.dim() == 3 else ()
    scales = torch.empty((*outer, rows, groups), dtype=blocked.dtype,
                         device=blocked.device)
    return _convert(side, blocked, scales, array("scales", scales), x, rows,
                    groups)


# Pointers are numbers here.
_expert_rows = lib["nib_expert_rows"]
_expert_rows.restype = C.c_int


def expert_rows(side, ends):
    """(row_offsets [E + 1], scale_rows [E]) of a mixture, of where its experts'
    rows end; nothing waits."""
    place = side.place(ends, "ends")
    count = ends.numel()
    if ends.dim() != 1 or count < 1:
        array("ends", ends).fail("must be [experts], at least one")
    views.vector(array("ends", ends), count, "int32")
    rows = torch.empty(count + 1, dtype=torch.int32, device=ends.device)
    scales = torch.empty(count, dtype=torch.int32, device=ends.device)
    options, error = _call_options(side, place), abi.nib_error()
    status = _expert_rows(
        side.device(place).handle, C.c_void_p(ends.data_ptr()),
        C.c_int64(count), C.c_void_p(rows.data_ptr()),
        C.c_void_p(scales.data_ptr()), C.byref(options), C.byref(error))
    if status:
        fail(status, error)
    return rows, scales
