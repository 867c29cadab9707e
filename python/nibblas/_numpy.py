# SPDX-License-Identifier: Apache-2.0
"""_numpy.py - the operations on NumPy's arrays, and on any DLPack object of a device
(then `out` says where the result goes)."""

import ctypes as C
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from nibblas import _abi as abi
from nibblas import _device
from nibblas import _problems
from nibblas import _views as views
from nibblas._arrays import AnyArray, array, new
from nibblas._library import ArgumentError, UnsupportedError, call
from nibblas._packed import Packed, pack_arrays
from nibblas._plans import Plan, cache
from nibblas._workspaces import NEW_SIZES, Workspaces, is_capturing

LayoutName: TypeAlias = Literal["tiled", "linear"]
TypeName: TypeAlias = Literal["float32", "float16", "bfloat16"]
ActivationsName: TypeAlias = Literal["dense", "int8", "nvfp4"]
ZeroScaleName: TypeAlias = Literal["modelopt", "compressed-tensors", "ggml"]
ScalesName: TypeAlias = Literal["amax", "four-six", "mse"]

# What C's views are called here.
NAMES = {"c": "out"}


class Quantized(NamedTuple):
    """An NVFP4 matrix, what quantize() returns: value = e2m1 * scale * global_scale.

    codes         uint8 [rows, K/2] or [batch, rows, K/2], two values to a byte, the
                  lower half of a byte is the even one
    scales        uint8 (e4m3): [.., rows, K/16] in layout "linear"; in "tiled" rows
                  padded to 128 and K/16 to 4
    global_scale  a float"""

    codes: Any
    scales: Any
    global_scale: float


def _check_layout(name, scales, layout):
    """Some scales know how they lie (_files.py)."""
    own = getattr(scales, "scale_layout", layout)
    if own != layout:
        raise ArgumentError(f"{name}: are in layout '{own}', not '{layout}', "
                            "which the call takes them for", name)


class _Call:
    """The arguments of one multiplication, by name."""

    def __init__(self, stream):
        self.arrays, self.stream = {}, stream

    def add(self, name, x):
        x = array(name, x, self.stream)
        if x is not None:
            self.arrays[name] = x
        return x

    def operand(self, name, codes, scales, layout, activations=None):
        _check_layout(name + "_scales", scales, layout)
        return _problems.Operand(self.add(name, codes),
                                 self.add(name + "_scales", scales), layout,
                                 activations)

    def alpha(self, name, value):
        """An array of the device, or a number on the host."""
        if value is not None and np.isscalar(value):
            value = np.array([value], np.float32)
        return self.add(name, value)

    def out(self, name, x, shape, dtype, device):
        """(what is returned, its array)."""
        if x is None:
            x = new(device, shape, dtype)
        return x, array(name, x, self.stream, write=True)

    def device(self):
        return views.check_device(list(self.arrays.values()))

    def key(self):
        return tuple((name, x.shape, x.strides, x.dtype)
                     for name, x in self.arrays.items())


_workspaces = Workspaces()


def _result_type(out_dtype, a):
    """The type of a new result: codes give float32, floats their own type."""
    if out_dtype is None:
        return a.dtype if a.dtype in views.DENSE else "float32"
    return out_dtype


def _pointers(words, arrays, c):
    """(word, address) of each array by name.  A without scales is the library's x."""
    for name, x in arrays.items():
        if name == "a" and "a_scales" not in arrays:
            name = "x"
        if name != "out":
            yield words[name], x.pointer
    yield words["c"], c.pointer


def _plan(device, op, template, stream, given, weights=None):
    """A new plan.  On a GPU every stream has its own workspace, so that work on
    two streams does not meet in the plan's."""
    if is_capturing(stream):
        raise UnsupportedError(NEW_SIZES)
    return Plan(device, op, template, NAMES, given=given,
                caller_workspace=not device.is_cpu, weights=weights)


def _run(plan, pointers, stream):
    """pointers: (word, address) of each."""
    work = plan.take()
    for at, pointer in pointers:
        work.words[at] = pointer
    options, n_bytes = work.options, plan.workspace_bytes
    options.stream = stream
    if not plan.device.is_cpu:
        workspace = _workspaces.get
        if is_capturing(stream):
            # The graph reads the plan's tables whenever it is replayed.
            plan.pin()
            workspace = _workspaces.for_graph
        if n_bytes:
            options.workspace = workspace(plan.device, stream, n_bytes).address
            options.workspace_bytes = n_bytes
    plan.run(work)


def _multiply(op, call_, build, out, out_dtype, options, stream, packed=None):
    """One product.  build(c, dtype) gives the problem and the shape of c."""
    name, out_dtype = call_.device(), _result_type(out_dtype, call_.arrays["a"])
    device = packed.device if packed else _device.device(name)
    if device.name != name:
        raise ArgumentError(f"b: packed on {device.name}; must be on a's {name}",
                            "b")
    plans = packed.plans if packed else cache
    c = array("out", out, stream, write=True)
    if c is not None:
        call_.arrays["out"] = c
        call_.device()
    key = ("array", op, name, call_.key(), options, out_dtype)
    plan = plans.get(key)
    if plan is None:
        problem, shape = build(c, out_dtype)
        full = not _problems.is_empty(problem)
        template = (abi.nib_problem * full)(*[problem][:full])
        plan = plans.add(key, _plan(device, op, template, stream, shape, packed))
    if c is None:
        out, c = call_.out("out", None, plan.given, out_dtype, name)
    if plan.count:
        _run(plan, _pointers(_problems.PROBLEM_WORDS, call_.arrays, c), stream)
    return out


def pack(b: AnyArray, b_scales: AnyArray, *, b_layout: LayoutName = "tiled",
         device: "_device.Device | None" = None,
         stream: int | None = None, copy: bool = True) -> Packed:
    """Copies weights into the order of their device, for gemm() and gemv(): products
    with the same weights are up to three times as fast on a CPU.

    b         codes [N, K/2] or [batch, N, K/2], uint8
    b_scales  their scales in b_layout
    device    what computes, of nibblas.device(): None is where b is, with as many
              threads as there are processors
    stream    CUDA: on which stream b is made, an int; it is waited for
    copy      False: where a GPU reads the codes as they lie (K a multiple of 32, b
              aligned to 128 bytes), only scales are copied; the Packed keeps b, which
              must not change

    Returns a Packed of 0.5625 bytes a value, of shared codes 0.0625.  Raises
    ArgumentError for arrays that do not fit, OutOfMemoryError."""
    _check_layout("b_scales", b_scales, b_layout)
    codes, scales = array("b", b, stream), array("b_scales", b_scales, stream)
    name = views.check_device([codes, scales])
    device = device or _device.device(name)
    if device.name != name:
        codes.fail(f"is on {name}; must be on the device, {device.name}")
    return pack_arrays(device, codes, scales, b_layout, stream, copy)


def _two(op, a, a_scales, b, b_scales, alpha, out, out_dtype, a_layout,
         b_layout, activations, stream):
    args = _Call(stream)
    left = args.operand("a", a, a_scales, a_layout, activations)
    right = b if isinstance(b, Packed) else args.operand(
        "b", b, b_scales, b_layout)
    factor = args.alpha("alpha", alpha)

    def build(c, dtype):
        return _problems.product(left, right, None, [factor], c=c, dtype=dtype,
                                 gemv=op == abi.NIB_OP_GEMV)
    return _multiply(op, args, build, out, out_dtype,
                     (a_layout, b_layout, activations), stream,
                     b if isinstance(b, Packed) else None)


def gemm(a: AnyArray, a_scales: AnyArray | None, b: "AnyArray | Packed",
         b_scales: AnyArray | None = None, *, alpha: "float | AnyArray | None" = None,
         out: Any = None, out_dtype: TypeName | None = None,
         a_layout: LayoutName = "tiled", b_layout: LayoutName = "tiled",
         activations: ActivationsName | None = None,
         stream: int | None = None) -> Any:
    """Computes alpha * A * B^T.

    a, a_scales  codes [M, K/2] or [batch, M, K/2], and their scales in a_layout; or
                 float32, float16 or bfloat16 [M, K] or [batch, M, K], and None: these
                 values are multiplied as they are (W4A16)
    b, b_scales  codes [N, K/2] or [batch, N, K/2], and their scales in b_layout; or
                 what pack() returns, without b_scales.  One matrix b goes with every
                 matrix of a stack a
    alpha        a number, or an array of one float32 where the others are; None is 1
    out          an array [M, N] or [batch, M, N] of float32, float16 or bfloat16 for
                 the result, which GPU arrays need; None makes a NumPy array
    out_dtype    the type of a new array; None is that of floats a, "float32" for
                 codes; "bfloat16" needs the package ml_dtypes
    activations  "int8": floats a are rounded to 8 bits with a scale for every 16
                 values of a row (W4A8, on a CPU); "dense" or "nvfp4" only says what a
                 must be
    stream       CUDA: the stream to launch on, an int; None is the default stream

    Arrays are NumPy's or any with __dlpack__(), all on one device.  Codes are uint8,
    two values to a byte; K is a multiple of 16.  Scales are uint8 holding e4m3:
    "linear" is [rows, K/16], "tiled" is cuBLAS's and torch's SWIZZLE_32_4_4 with rows
    padded to 128 and K/16 to 4.

    Returns out, or the new array.  Raises ArgumentError (a ValueError) with the
    argument, its shape and the rule."""
    return _two(abi.NIB_OP_GEMM, a, a_scales, b, b_scales, alpha, out, out_dtype,
                a_layout, b_layout, activations, stream)


def gemv(a: AnyArray, a_scales: AnyArray | None, b: "AnyArray | Packed",
         b_scales: AnyArray | None = None, *, alpha: "float | AnyArray | None" = None,
         out: Any = None, out_dtype: TypeName | None = None,
         a_layout: LayoutName = "tiled", b_layout: LayoutName = "tiled",
         activations: ActivationsName | None = None,
         stream: int | None = None) -> Any:
    """Computes alpha * B * a, a matrix times a vector.

    a, a_scales  codes [K/2] or [batch, K/2]; scales [K/16] or [batch, K/16] in layout
                 "linear", one row of tiles each in "tiled"; or floats [K] or
                 [batch, K], and None
    b, b_scales  codes [N, K/2] or [batch, N, K/2], and their scales

    Returns [N] or [batch, N].  Everything else is as in gemm()."""
    return _two(abi.NIB_OP_GEMV, a, a_scales, b, b_scales, alpha, out, out_dtype,
                a_layout, b_layout, activations, stream)


def dual_gemm(a: AnyArray, a_scales: AnyArray | None, b: AnyArray,
              b_scales: AnyArray, b2: AnyArray, b2_scales: AnyArray, *,
              alpha: "float | AnyArray | None" = None,
              alpha2: "float | AnyArray | None" = None, out: Any = None,
              out_dtype: TypeName | None = None, a_layout: LayoutName = "tiled",
              b_layout: LayoutName = "tiled",
              activations: ActivationsName | None = None,
              stream: int | None = None) -> Any:
    """Computes silu(alpha * A * B^T) * (alpha2 * A * B2^T) in one kernel: the gate and
    up projections of a transformer's MLP.

    b2, b2_scales  of the sizes and layout of b and b_scales

    Everything else is as in gemm()."""
    args = _Call(stream)
    left = args.operand("a", a, a_scales, a_layout, activations)
    right = args.operand("b", b, b_scales, b_layout)
    second = args.operand("b2", b2, b2_scales, b_layout)
    factors = [args.alpha("alpha", alpha), args.alpha("alpha2", alpha2)]

    def build(c, dtype):
        return _problems.product(left, right, second, factors, c=c, dtype=dtype)
    return _multiply(abi.NIB_OP_DUAL_GEMM, args, build, out, out_dtype,
                     (a_layout, b_layout, activations), stream)


def group_gemm(a: Sequence[AnyArray], a_scales: Sequence[AnyArray] | None,
               b: Sequence[AnyArray], b_scales: Sequence[AnyArray], *,
               alpha: AnyArray | None = None, out: Sequence[Any] | None = None,
               out_dtype: TypeName | None = None, a_layout: LayoutName = "tiled",
               b_layout: LayoutName = "tiled",
               activations: ActivationsName | None = None,
               stream: int | None = None) -> Sequence[Any]:
    """Computes products of different sizes in one launch.

    a, a_scales, b, b_scales, out  lists, of equal length, of what gemm() takes;
                                   a_scales is None if a are floats, of one type
    alpha  an array of float32, one value for each product

    Returns the list of results, [] for no products.  Errors name the product:
    "b[3]"."""
    lists = {"a_scales": a_scales, "b": b, "b_scales": b_scales, "out": out}
    for name, one in lists.items():
        if one is not None and len(one) != len(a):
            raise ArgumentError(f"{name}: {len(one)} arrays; must be as many "
                                f"as a has, {len(a)}", name)
    if not a:
        return []
    args = _Call(stream)
    factor = args.add("alpha", alpha)
    if factor is not None:
        views.vector(factor, len(a))
    blocks = a_scales or [None] * len(a)
    pairs = [(args.operand(f"a[{i}]", a[i], blocks[i], a_layout, activations),
              args.operand(f"b[{i}]", b[i], b_scales[i], b_layout))
             for i in range(len(a))]
    out_dtype = _result_type(out_dtype, pairs[0][0].codes)
    given = None if out is None else [
        array(f"out[{i}]", c, stream, write=True) for i, c in enumerate(out)]
    for c in given or []:
        args.arrays[c.name] = c
    device = args.device()
    key = ("array group", device, args.key(), (a_layout, b_layout, activations),
           out_dtype)
    plan = cache.get(key)
    if plan is None:
        plan = cache.add(key, _group_plan(device, pairs, given, out_dtype,
                                          stream))
    shapes, full = plan.given
    if out is None:
        out = [new(device, shape, out_dtype) for shape in shapes]
        given = [array(f"out[{i}]", c) for i, c in enumerate(out)]
    _run(plan, _group_pointers(pairs, factor, given, full), stream)
    return out


def _group_plan(device, pairs, given, out_dtype, stream):
    """given: the outputs, or None.  Products of no batch are left out."""
    made = [_problems.product(left, right, None, [], dtype=out_dtype,
                              c=None if given is None else given[i])
            for i, (left, right) in enumerate(pairs)]
    for left, _ in pairs:
        _problems.same_type(pairs[0][0], left)
    full = [i for i, (p, _) in enumerate(made) if not _problems.is_empty(p)]
    template = (abi.nib_problem * len(full))(*(made[i][0] for i in full))
    return _plan(_device.device(device), abi.NIB_OP_GEMM, template, stream,
                 ([shape for _, shape in made], full))


def _group_pointers(pairs, factor, given, full):
    words = _problems.PROBLEM_WORDS
    for at, i in enumerate(full):
        base = at * _problems.PROBLEM_SIZE
        left, right = pairs[i]
        if left.scales is None:
            yield base + words["x"], left.codes.pointer
        else:
            yield base + words["a"], left.codes.pointer
            yield base + words["a_scales"], left.scales.pointer
        yield base + words["b"], right.codes.pointer
        yield base + words["b_scales"], right.scales.pointer
        yield base + words["c"], given[i].pointer
        yield (base + words["alpha"],
               0 if factor is None else factor.pointer + 4 * i)


def moe_gemm(a: AnyArray, a_scales: AnyArray | None, b: AnyArray,
             b_scales: AnyArray, row_offsets: AnyArray, *,
             scale_rows: AnyArray | None = None, b2: AnyArray | None = None,
             b2_scales: AnyArray | None = None, alpha: AnyArray | None = None,
             alpha2: AnyArray | None = None, out: Any = None,
             out_dtype: TypeName | None = None, a_layout: LayoutName = "tiled",
             b_layout: LayoutName = "tiled",
             activations: ActivationsName | None = None,
             stream: int | None = None) -> Any:
    """Computes a mixture of experts (MoE): rows row_offsets[e] to row_offsets[e + 1]
    of a are multiplied by matrix e of b; with b2 the dual product, as dual_gemm().

    a, a_scales  codes [rows, K/2], the tokens of all experts, and their scales; or
                 floats [rows, K], and None
    b, b_scales  codes [experts, N, K/2], and their scales
    row_offsets  int32 [experts + 1], ascending
    scale_rows   int32 [experts]: the row of a_scales at which the scales of each
                 expert begin; None: the row of a at which its tokens begin, or a
                 without scales
    alpha, alpha2  float32 [experts], or None

    Returns [rows, N]; rows outside the offsets are not written.  Everything else is
    as in gemm()."""
    args = _Call(stream)
    left = args.operand("a", a, a_scales, a_layout, activations)
    right = args.operand("b", b, b_scales, b_layout)
    second = None if b2 is None else args.operand("b2", b2, b2_scales, b_layout)
    routes = [args.add("row_offsets", row_offsets),
              args.add("scale_rows", scale_rows)]
    factors = [args.add("alpha", alpha), args.add("alpha2", alpha2)]
    c = array("out", out, stream, write=True)
    if c is not None:
        args.arrays["out"] = c
    name, out_dtype = args.device(), _result_type(out_dtype, left.codes)
    key = ("array moe", name, args.key(), (a_layout, b_layout, activations),
           out_dtype)
    plan = cache.get(key)
    if plan is None:
        moe, shape = _problems.moe(left, right, second, *routes, factors,
                                   c=c, dtype=out_dtype)
        op = abi.NIB_OP_GEMM if b2 is None else abi.NIB_OP_DUAL_GEMM
        plan = cache.add(key, _plan(_device.device(name), op, moe, stream,
                                    shape))
    if c is None:
        out, c = args.out("out", None, plan.given, out_dtype, name)
    _run(plan, _pointers(_problems.MOE_WORDS, args.arrays, c), stream)
    return out


# ---- formats -----------------------------------------------------------------


def _options(kind, stream):
    return kind(struct_bytes=C.sizeof(kind), stream=stream)


def quantize(x: AnyArray, global_scale: float | None = None, *,
             layout: LayoutName = "tiled", zero_scale: ZeroScaleName = "modelopt",
             saturate: bool = False, out: tuple[Any, Any] | None = None,
             stream: int | None = None, scales: ScalesName = "amax",
             weights: AnyArray | None = None) -> Quantized:
    """Rounds x to NVFP4: 4-bit codes, a scale for every 16 values of a row, and a
    global scale.

    x             [rows, K] or [batch, rows, K] of float32, float16 or bfloat16; K is
                  a multiple of 16
    global_scale  a number; None is amax / 2688 of all of x, or amax / 1536 unless
                  scales is "amax"
    layout        of the scales: "tiled" or "linear", see gemm()
    zero_scale    the scale of a block of zeros: "modelopt" 1, "compressed-tensors"
                  0.125, "ggml" 0
    saturate      True makes inf the largest value and NaN zero; False refuses both
    out           arrays (codes, scales) to write into, which GPU arrays need
    scales        "amax": a block's largest value becomes 6.  "four-six": 6 or 4,
                  whichever has the least squared error.  "mse": the scale with the
                  least squared error of nine
    weights       of the columns in that error: float32 [K], from 0 to 2^100, where x
                  is; for weights of a layer the mean squares of its inputs.  None is 1

    Returns a Quantized.  Raises DataError with the row and column of inf or NaN,
    ArgumentError."""
    source = array("x", x, stream)
    view, sizes = views.dense(source)
    if sizes.cols % abi.NIB_NVFP4_BLOCK:
        source.fail(f"K = {sizes.cols}: must be a multiple of 16")
    outer = tuple(source.shape[:-2])
    if out is None:
        shape = (*outer, *views.scale_shape(layout, sizes.rows, sizes.cols // 16))
        out = (new(source.device, (*outer, sizes.rows, sizes.cols // 2),
                   "uint8"), new(source.device, shape, "uint8"))
    codes, blocks = (array(name, one, stream, write=True)
                     for name, one in zip(("codes", "scales"), out))
    by = array("weights", weights, stream)
    views.check_device([one for one in (source, codes, blocks, by) if one is not None])
    q, q_sizes = views.nvfp4(codes, blocks, layout)
    if q_sizes != sizes:
        codes.fail(f"must hold x's {tuple(source.shape)} values")
    options = _options(abi.nib_quantize_options, stream)
    options.zero_scale = views.choose("zero_scale", zero_scale, views.ZERO_SCALES)
    options.scales = views.choose("scales", scales, views.SCALE_RULES)
    options.saturate = saturate
    if by is not None:
        views.vector(by, sizes.cols)
        options.column_weights = by.pointer
    if global_scale is not None:
        # A keyword of Python's.
        setattr(options, "global", float(global_scale))
    used = C.c_float(1.0)
    if source.numel():
        call("nib_quantize", _device.device(source.device).handle,
             C.byref(view), C.byref(q), C.byref(options), C.byref(used))
    return Quantized(*out, used.value)


def dequantize(codes: AnyArray, scales: AnyArray, global_scale: float = 1.0, *,
               layout: LayoutName = "tiled", out_dtype: TypeName = "float32",
               out: Any = None, stream: int | None = None) -> Any:
    """Computes e2m1 * scale * global_scale, rounded once to the type of the result.

    codes, scales  [rows, K/2] or [batch, rows, K/2], and scales in layout
    out, out_dtype, stream  as in gemm()

    Returns [rows, K] or [batch, rows, K].  Raises ArgumentError."""
    _check_layout("scales", scales, layout)
    source, blocks = array("codes", codes, stream), array("scales", scales, stream)
    q, sizes = views.nvfp4(source, blocks, layout)
    shape = (*source.shape[:-1], sizes.cols)
    if out is None:
        out = new(source.device, shape, out_dtype)
    target = array("out", out, stream, write=True)
    views.check_device([source, blocks, target])
    if tuple(target.shape) != shape:
        target.fail(f"must have shape {shape}")
    y, _ = views.dense(target)
    options = _options(abi.nib_dequantize_options, stream)
    if target.numel():
        call("nib_dequantize", _device.device(source.device).handle,
             C.byref(q), C.c_float(global_scale), C.byref(y), C.byref(options))
    return out


def _convert(source, target, shape, layouts, stream):
    """Scales of [.., rows, groups]; source and target are arrays."""
    views.check_device([source, target])
    codes = (*shape[:-1], shape[-1] * abi.NIB_NVFP4_BLOCK // 2)
    blank = views.Array("scales", 0, codes, views.dense_strides(codes), "uint8",
                        source.device)
    pair = [views.nvfp4(blank, x, layout)[0]
            for x, layout in zip((source, target), layouts)]
    options = _options(abi.nib_call_options, stream)
    if target.numel():
        call("nib_convert_scales", _device.device(source.device).handle,
             C.byref(pair[0]), C.byref(pair[1]), C.byref(options))


def to_blocked(scales: AnyArray, *, out: Any = None, stream: int | None = None) -> Any:
    """Brings scales from layout "linear", [rows, K/16] or [batch, rows, K/16], to
    "tiled" (SWIZZLE_32_4_4): rows padded to 128, K/16 to 4, the padding zero.

    Returns out, or a new uint8 array.  Raises ArgumentError."""
    source = array("scales", scales, stream)
    if len(source.shape) not in (2, 3):
        source.fail("must have 2 or 3 dimensions")
    shape = source.shape
    if out is None:
        out = new(source.device,
                  (*shape[:-2], *views.scale_shape("tiled", *shape[-2:])),
                  "uint8")
    _convert(source, array("out", out, stream, write=True), shape,
             ("linear", "tiled"), stream)
    return out


def from_blocked(blocked: AnyArray, rows: int, groups: int, *, out: Any = None,
                 stream: int | None = None) -> Any:
    """Brings scales from layout "tiled" back to "linear", without the padding.

    blocked       scales of the result's matrices, [.., rows padded, groups padded]
    rows, groups  of the result, [rows, groups] or [batch, rows, groups]; groups is
                  K/16

    Returns out, or a new uint8 array.  Raises ArgumentError."""
    source = array("blocked", blocked, stream)
    outer = tuple(source.shape[:1]) if len(source.shape) == 3 else ()
    shape = (*outer, rows, groups)
    if out is None:
        out = new(source.device, shape, "uint8")
    _convert(source, array("out", out, stream, write=True), shape,
             ("tiled", "linear"), stream)
    return out
