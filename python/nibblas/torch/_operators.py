# SPDX-License-Identifier: Apache-2.0
"""_operators.py - torch.ops.nibblas: schemas, kernels for CPU and CUDA, and fake
kernels (shapes only), with which torch.compile and export trace.

An operator allocates its result.  Its twin *_out writes into c, which may be any
view whose last stride is 1, and returns nothing.  As with torch.mm(out=), c's version
goes up, so that autograd refuses a c that it has saved, and arguments that need
gradients are refused."""

import functools

import torch
from torch.autograd.graph import increment_version

from nibblas import _abi as abi
from nibblas._library import ArgumentError, UnsupportedError
from nibblas._views import DENSE, choose
from nibblas.torch import _convert, _moe, _multiply
from nibblas.torch._tensors import Cpu, Cuda, check_meta, dtype_name, usual_type

# The operators stay registered as long as this object exists.
LIBRARY = torch.library.Library("nibblas", "DEF")
TAGS = [torch.Tag.pt2_compliant_tag]
if hasattr(torch.Tag, "needs_exact_strides"):
    TAGS.append(torch.Tag.needs_exact_strides)

# Without a_scales, a is of floats.
OPERANDS = "Tensor a, Tensor? a_scales, Tensor b, Tensor b_scales"
LISTS = "Tensor[] a, Tensor[]? a_scales, Tensor[] b, Tensor[] b_scales"
OPTIONS = ('str a_layout="tiled", str b_layout="tiled", '
           "str? activations=None")
NEW = f"ScalarType? out_dtype=None, {OPTIONS}"


def _out_dtype(dtype, a):
    """The result's type in a fake kernel; other kernels leave the check to the plan."""
    if dtype is None:
        return usual_type(a)
    choose("out_dtype", dtype_name(dtype), DENSE)
    return dtype


def _register_fake(name, fake):
    """The fake kernel of an operator.  It runs if any tensor is on the meta device,
    which has no values.  Refuses such tensors together with others, because its
    result would be uninitialised memory."""
    @functools.wraps(fake)
    def checked(*arguments, **named):
        check_meta(getattr(torch.ops.nibblas, name).default, arguments, named)
        return fake(*arguments, **named)
    torch.library.register_fake("nibblas::" + name, checked, lib=LIBRARY)


def _define(name, schema, implementation, fake, *first):
    """implementation(backend, *first, ...) on each kind of device."""
    LIBRARY.define(name + schema, tags=TAGS)
    for key, backend in (("CPU", Cpu), ("CUDA", Cuda)):
        LIBRARY.impl(name, functools.partial(implementation, backend, *first), key)
    _register_fake(name, fake)


def _check_gradients(*tensors):
    """Refuses, as torch's out= does, results that autograd would have to track."""
    if torch.is_grad_enabled():
        for x in tensors:
            if x is not None and x.requires_grad:
                raise ArgumentError(
                    "c: operators that write into c have no gradients, but one of "
                    "the arguments requires one; use torch.no_grad()", "c")


def _out_fake(c, *arguments, **named):
    """The fake kernel of operators that write into c, a tensor or a list."""
    for one in (c, *arguments, *named.values()):
        if isinstance(one, torch.Tensor):
            _check_gradients(one)
        elif isinstance(one, (list, tuple)):
            _check_gradients(*one)


# ---- shapes of results -----------------------------------------------------


def _new(a, shape, dtype):
    return a.new_empty(shape, dtype=_out_dtype(dtype, a))


def _gemm_fake(a, a_scales, b, b_scales, alpha=None, out_dtype=None,
               a_layout="tiled", b_layout="tiled", activations=None):
    return _new(a, (*a.shape[:-1], b.shape[-2]), out_dtype)


def _dual_fake(a, a_scales, b, b_scales, b2, b2_scales, alpha=None, alpha2=None,
               out_dtype=None, a_layout="tiled", b_layout="tiled",
               activations=None):
    return _new(a, (*a.shape[:-1], b.shape[-2]), out_dtype)


def _group_fake(a, a_scales, b, b_scales, alpha=None, out_dtype=None,
                a_layout="tiled", b_layout="tiled", activations=None):
    return [_gemm_fake(x, None, y, None, None, out_dtype)
            for x, y in zip(a, b)]


def _moe_fake(a, a_scales, b, b_scales, row_offsets, scale_rows=None,
              alpha=None, out_dtype=None, a_layout="tiled", b_layout="tiled",
              activations=None):
    return _new(a, (a.shape[0], b.shape[1]), out_dtype)


# ---- gemm, gemv: the functions that must be quick ---------------------------


def _simple(op, backend):
    """Both kernels on one kind of device."""
    multiply = _multiply.simple(backend, op)

    def kernel(a, a_scales, b, b_scales, alpha=None, out_dtype=None,
               a_layout="tiled", b_layout="tiled", activations=None):
        return multiply(None, a, a_scales, b, b_scales, alpha,
                        out_dtype or usual_type(a), a_layout, b_layout,
                        activations)

    def out_kernel(c, a, a_scales, b, b_scales, alpha=None, a_layout="tiled",
                   b_layout="tiled", activations=None):
        _check_gradients(c, a, alpha)
        multiply(c, a, a_scales, b, b_scales, alpha, c.dtype, a_layout,
                 b_layout, activations)
        increment_version(c)
    return kernel, out_kernel


def _define_simple(name, op):
    schemas = (f"({OPERANDS}, Tensor? alpha=None, {NEW}) -> Tensor",
               f"(Tensor(a!) c, {OPERANDS}, Tensor? alpha=None, {OPTIONS}) "
               "-> ()")
    fakes = (_gemm_fake, _out_fake)
    kernels = zip(_simple(op, Cpu), _simple(op, Cuda))
    for suffix, schema, pair, fake in zip(("", "_out"), schemas, kernels,
                                          fakes):
        LIBRARY.define(name + suffix + schema, tags=TAGS)
        LIBRARY.impl(name + suffix, pair[0], "CPU")
        LIBRARY.impl(name + suffix, pair[1], "CUDA")
        _register_fake(name + suffix, fake)


_define_simple("gemm", abi.NIB_OP_GEMM)
_define_simple("gemv", abi.NIB_OP_GEMV)

# ---- the other multiplications ---------------------------------------------


def _dual_out(backend, c, a, a_scales, b, b_scales, b2, b2_scales, alpha=None,
              alpha2=None, a_layout="tiled", b_layout="tiled", activations=None):
    _check_gradients(c, a, alpha, alpha2)
    _multiply.dual_gemm(backend, c, a, a_scales, b, b_scales, b2, b2_scales,
                        alpha, alpha2, c.dtype, a_layout, b_layout, activations)
    increment_version(c)


def _group_out(backend, c, a, a_scales, b, b_scales, alpha=None, a_layout="tiled",
               b_layout="tiled", activations=None):
    _check_gradients(alpha, *c, *a)
    _multiply.group_gemm(backend, c, a, a_scales, b, b_scales, alpha,
                         torch.bfloat16, a_layout, b_layout, activations)
    for x in c:
        increment_version(x)


def _moe_out(backend, c, a, a_scales, b, b_scales, row_offsets, scale_rows=None,
             alpha=None, a_layout="tiled", b_layout="tiled", activations=None):
    _check_gradients(c, a, alpha)
    _multiply.moe_gemm(backend, c, a, a_scales, b, b_scales, row_offsets,
                       scale_rows, alpha, c.dtype, a_layout, b_layout,
                       activations)
    increment_version(c)


def _moe_dual_fake(a, a_scales, b, b_scales, b2, b2_scales, row_offsets,
                   scale_rows=None, alpha=None, alpha2=None, out_dtype=None,
                   a_layout="tiled", b_layout="tiled", activations=None):
    return _new(a, (a.shape[0], b.shape[1]), out_dtype)


def _moe_dual(backend, a, a_scales, b, b_scales, b2, b2_scales, row_offsets,
              scale_rows=None, alpha=None, alpha2=None, out_dtype=None,
              a_layout="tiled", b_layout="tiled", activations=None):
    return _multiply.moe_gemm(
        backend, None, a, a_scales, b, b_scales, row_offsets, scale_rows, alpha,
        out_dtype, a_layout, b_layout, activations, b2, b2_scales, alpha2)


def _moe_dual_out(backend, c, a, a_scales, b, b_scales, b2, b2_scales, row_offsets,
                  scale_rows=None, alpha=None, alpha2=None, a_layout="tiled",
                  b_layout="tiled", activations=None):
    _check_gradients(c, a, alpha, alpha2)
    _multiply.moe_gemm(backend, c, a, a_scales, b, b_scales, row_offsets,
                       scale_rows, alpha, c.dtype, a_layout, b_layout,
                       activations, b2, b2_scales, alpha2)
    increment_version(c)


_SECOND = "Tensor b2, Tensor b2_scales"
_ALPHAS = "Tensor? alpha=None, Tensor? alpha2=None"
_define("dual_gemm", f"({OPERANDS}, {_SECOND}, {_ALPHAS}, {NEW}) -> Tensor",
        _multiply.dual_gemm, _dual_fake, None)
_define("dual_gemm_out",
        f"(Tensor(a!) c, {OPERANDS}, {_SECOND}, {_ALPHAS}, {OPTIONS}) -> ()",
        _dual_out, _out_fake)
_define("group_gemm", f"({LISTS}, Tensor? alpha=None, {NEW}) -> Tensor[]",
        _multiply.group_gemm, _group_fake, None)
_define("group_gemm_out",
        f"(Tensor(a!)[] c, {LISTS}, Tensor? alpha=None, {OPTIONS}) -> ()",
        _group_out, _out_fake)
_ROUTES = "Tensor row_offsets, Tensor? scale_rows=None"
_ALPHA = "Tensor? alpha=None"
_define("moe_gemm", f"({OPERANDS}, {_ROUTES}, {_ALPHA}, {NEW}) -> Tensor",
        _multiply.moe_gemm, _moe_fake, None)
_define("moe_gemm_out",
        f"(Tensor(a!) c, {OPERANDS}, {_ROUTES}, {_ALPHA}, {OPTIONS}) -> ()",
        _moe_out, _out_fake)
_define("moe_dual_gemm",
        f"({OPERANDS}, {_SECOND}, {_ROUTES}, {_ALPHAS}, {NEW}) -> Tensor",
        _moe_dual, _moe_dual_fake)
_define("moe_dual_gemm_out",
        f"(Tensor(a!) c, {OPERANDS}, {_SECOND}, {_ROUTES}, {_ALPHAS}, "
        f"{OPTIONS}) -> ()", _moe_dual_out, _out_fake)


def _group_elsewhere(a, *_args, **_kwargs):
    """Without a tensor there is no device."""
    if not a:
        return []
    raise UnsupportedError(f"a: is on {a[0].device}; must be on a CPU or CUDA")


def _group_out_elsewhere(_c, a, *_args, **_kwargs):
    _group_elsewhere(a)


LIBRARY.impl("group_gemm", _group_elsewhere, "CompositeExplicitAutograd")
LIBRARY.impl("group_gemm_out", _group_out_elsewhere, "CompositeExplicitAutograd")

# ---- packed weights: b is the number of a nibblas.Packed ---------------------
# A number is valid in one process only, but compiled graphs move between processes.  So
# fake kernels do not look numbers up.


def _packed_fake(a, a_scales, b, n, alpha=None, out_dtype=None, a_layout="tiled",
                 activations=None):
    return _new(a, (*a.shape[:-1], n), out_dtype)


def _layer_fake(x, x_scales, b, b_scales, number, alpha=None, out_dtype=None,
                activations=None):
    return _new(x, (x.shape[0], b.shape[0]), out_dtype)


_define("gemm_packed", "(Tensor a, Tensor? a_scales, int b, SymInt n, "
        'Tensor? alpha=None, ScalarType? out_dtype=None, str a_layout="tiled", '
        "str? activations=None) -> Tensor", _multiply.gemm_packed, _packed_fake)
_define("_layer", "(Tensor x, Tensor? x_scales, Tensor b, Tensor b_scales, "
        "int number, Tensor? alpha=None, ScalarType? out_dtype=None, "
        "str? activations=None) -> Tensor", _multiply.layer, _layer_fake)


def _linear_fake(x, b, b_scales, number, n, alpha, bias=None, input_scale=None,
                 quantize=False, activations=None):
    return _new(x, (*x.shape[:-1], n), x.dtype)


def _unpacked_fake(like, number, n, k):
    return (like.new_empty((n, k // 2), dtype=torch.uint8),
            like.new_empty((n, k // 16), dtype=torch.float8_e4m3fn))


_define("_linear", "(Tensor x, Tensor? b, Tensor? b_scales, int number, SymInt n, "
        "Tensor alpha, Tensor? bias=None, Tensor? input_scale=None, "
        "bool quantize=False, str? activations=None) -> Tensor",
        _multiply.linear, _linear_fake)
_define("_unpacked",
        "(Tensor like, int number, SymInt n, SymInt k) -> (Tensor, Tensor)",
        _multiply.unpacked, _unpacked_fake)

# ---- a layer of experts ------------------------------------------------------


def _layer_of_experts_fake(x, topk_ids, topk_weights, w13, w13_scales, w2, w2_scales,
                           alpha13=None, alpha2=None, x_global=None, h_global=None,
                           activation="swiglu", expert_offset=0, x_scales=None,
                           limit=7.0, swiglu_alpha=1.702, up_bias=1.0,
                           interleaved=False, out_dtype=None, packed=(), cols=None):
    return _new(x, (x.shape[0], cols if w2 is None else w2.shape[1]), out_dtype)


_define("moe", "(Tensor x, Tensor topk_ids, Tensor topk_weights, Tensor? w13, "
        "Tensor? w13_scales, Tensor? w2, Tensor? w2_scales, Tensor? alpha13=None, "
        "Tensor? alpha2=None, Tensor? x_global=None, Tensor? h_global=None, "
        'str activation="swiglu", SymInt expert_offset=0, Tensor? x_scales=None, '
        "float limit=7.0, float swiglu_alpha=1.702, float up_bias=1.0, "
        "bool interleaved=False, ScalarType? out_dtype=None, int[] packed=[], "
        "SymInt? cols=None) -> Tensor",
        _moe.moe, _layer_of_experts_fake)


def _sum_slots_fake(rows, slot_rows, weights):
    return rows.new_empty(slot_rows.shape[0], rows.shape[1])


_define("sum_slots", "(Tensor rows, Tensor slot_rows, Tensor weights) -> Tensor",
        _moe.sum_slots, _sum_slots_fake)

# ---- formats ---------------------------------------------------------------


def _padded(rows, groups):
    return -(-rows // 128) * 128, -(-groups // 4) * 4


def _quantize_fake(x, global_scale=None, layout="tiled", zero_scale="modelopt",
                   saturate=False, scales="amax", weights=None):
    outer, rows, k = x.shape[:-2], x.shape[-2], x.shape[-1]
    blocks = (rows, k // 16) if layout == "linear" else _padded(rows, k // 16)
    return (x.new_empty((*outer, rows, k // 2), dtype=torch.uint8),
            x.new_empty((*outer, *blocks), dtype=torch.float8_e4m3fn),
            x.new_empty((), dtype=torch.float32))


def _quantize_joined_fake(x, global_scale):
    return x.new_empty(x.shape[0], -(-x.shape[1] * 9 // 16 // 16) * 16,
                       dtype=torch.uint8)


def _dequantize_fake(codes, scales, global_scale=None, out_dtype=None,
                     layout="tiled"):
    return _new(codes, (*codes.shape[:-1], codes.shape[-1] * 2), out_dtype)


def _to_blocked_fake(scales):
    return scales.new_empty((*scales.shape[:-2],
                             *_padded(scales.shape[-2], scales.shape[-1])))


def _from_blocked_fake(blocked, rows, groups):
    outer = blocked.shape[:-2] if blocked.dim() == 3 else ()
    return blocked.new_empty((*outer, rows, groups))


_define("quantize",
        '(Tensor x, Tensor? global_scale=None, str layout="tiled", '
        'str zero_scale="modelopt", bool saturate=False, str scales="amax", '
        "Tensor? weights=None) -> (Tensor, Tensor, Tensor)", _convert.quantize,
        _quantize_fake)
_define("_quantize_joined", "(Tensor x, Tensor global_scale) -> Tensor",
        _convert.quantize_joined, _quantize_joined_fake)
_define("dequantize",
        "(Tensor codes, Tensor scales, Tensor? global_scale=None, "
        'ScalarType? out_dtype=None, str layout="tiled") -> Tensor',
        _convert.dequantize, _dequantize_fake)


def _expert_rows_fake(ends):
    return ends.new_empty(ends.shape[0] + 1), ends.new_empty(ends.shape[0])


_define("expert_rows", "(Tensor ends) -> (Tensor, Tensor)",
        _convert.expert_rows, _expert_rows_fake)
_define("to_blocked", "(Tensor scales) -> Tensor", _convert.to_blocked,
        _to_blocked_fake)
_define("from_blocked", "(Tensor blocked, SymInt rows, SymInt groups) -> Tensor",
        _convert.from_blocked, _from_blocked_fake)
