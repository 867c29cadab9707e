# SPDX-License-Identifier: Apache-2.0
"""_convert.py - quantise, dequantise, and the layouts of scales, as functions of
tensors: what the operators call."""

import ctypes as C

import torch

from nibblas import _abi as abi
from nibblas import _views as views
from nibblas._library import call
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


def quantize(side, x, global_scale=None, layout="tiled", recipe="modelopt",
             saturate=False):
    """(codes, scales, global scale) of x, [rows, K] or [batch, rows, K]."""
    place = side.place(x)
    view, sizes = views.dense(array("x", x))
    if sizes.cols % abi.NIB_BLOCK:
        array("x", x).fail(f"K = {sizes.cols}: must be a multiple of 16")
    layout_number = views.choose("layout", layout, views.LAYOUTS)
    outer = x.shape[:-2]
    codes = torch.empty((*outer, sizes.rows, sizes.cols // 2),
                        dtype=torch.uint8, device=x.device)
    scales = torch.empty(
        (*outer, *views.scale_shape(layout, sizes.rows, sizes.cols // 16)),
        dtype=torch.float8_e4m3fn, device=x.device)
    options = abi.nib_quantize_options(
        struct_bytes=C.sizeof(abi.nib_quantize_options), saturate=saturate,
        recipe=views.choose("recipe", recipe, views.RECIPES),
        stream=side.stream(place))
    if not saturate:
        side.check_not_capturing("saturate = False: waits to tell of inf and "
                                 "NaN, which it cannot")
    used = C.c_float(1.0)
    if global_scale is not None:
        views.vector(array("global_scale", global_scale), 1)
        global_scale = global_scale.reshape(()).clone()
    elif x.is_cuda and saturate:
        global_scale = _global_on_device(x)
    if global_scale is not None:
        options.global_pointer = global_scale.data_ptr()
    q = abi.nib_nvfp4(codes=codes.data_ptr() or None,
                      scales=scales.data_ptr() or None, rows=sizes.rows,
                      k=sizes.cols, batch=sizes.batch,
                      scale_layout=layout_number)
    if x.numel():
        call("nib_quantize", side.device(place).handle, C.byref(view),
             C.byref(q), C.byref(options), C.byref(used))
    elif layout == "tiled":
        scales.view(torch.uint8).zero_()
    if global_scale is None:
        global_scale = torch.full((), used.value, dtype=torch.float32,
                                  device=x.device)
    return codes, scales, global_scale


def _decode(side, codes, scales, value, out_dtype, layout):
    """With the global scale as a number."""
    place = side.place(codes)
    view, sizes = views.nvfp4(array("codes", codes), array("scales", scales),
                              layout)
    y = torch.empty((*codes.shape[:-1], sizes.cols), dtype=out_dtype,
                    device=codes.device)
    to, _ = views.dense(array("y", y))
    options = _call_options(side, place)
    if y.numel():
        call("nib_dequantize", side.device(place).handle, C.byref(view),
             C.c_float(value), C.byref(to), C.byref(options))
    return y


def dequantize(side, codes, scales, global_scale, out_dtype, layout):
    if global_scale is None:
        return _decode(side, codes, scales, 1.0, out_dtype, layout)
    views.vector(array("global_scale", global_scale), 1)
    if global_scale.is_cuda and out_dtype == torch.float32:
        # Exact products, and one rounding by the multiplication: nothing waits.
        return _decode(side, codes, scales, 1.0, out_dtype,
                       layout).mul_(global_scale.reshape(()))
    side.check_not_capturing("out_dtype of 16 bits: reads global_scale, which "
                             "it cannot")
    return _decode(side, codes, scales, global_scale.item(), out_dtype, layout)


def _check_scales(x, dims):
    if x.dtype not in views.SCALES:
        x.fail("must be uint8 or float8_e4m3fn")
    if len(x.shape) not in dims:
        x.fail("must have " + " or ".join(map(str, dims)) + " dimensions")


def _convert(side, source, target, scales, blocked, rows, groups):
    """Between linear scales and blocked ones; source, target: tensors."""
    place = side.place(source)
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
