# SPDX-License-Identifier: Apache-2.0
"""_multiply.py - the multiplications as functions of tensors, which the operators call.
A call with a known plan takes a few microseconds: it makes a key, looks the plan up,
writes six pointers and calls the library.  An A without scales is of floats (the
library's x)."""

import functools

import torch

from nibblas import _abi as abi
from nibblas import _problems
from nibblas._library import ArgumentError, UnsupportedError
from nibblas._packed import packed
from nibblas._plans import Plan, cache, word
from nibblas.torch._tensors import (Cpu, Cuda, array, dtype_name, maker, meta,
                                    operand, usual_type)
from nibblas.torch._convert import quantize_rows
from nibblas.torch._weights import layer_of, layer_weights

_WORDS = _problems.PROBLEM_WORDS
_SIZE = _problems.PROBLEM_SIZE
_A, _AS, _X = _WORDS["a"], _WORDS["a_scales"], _WORDS["x"]
_B, _BS = _WORDS["b"], _WORDS["b_scales"]
_ALPHA, _C = _WORDS["alpha"], _WORDS["c"]
_PACKED = word(abi.nib_problem, "b_packed")
_DUAL = [_WORDS[name] for name in (
    "a", "a_scales", "b", "b_scales", "b2", "b2_scales", "alpha", "alpha2", "x",
    "c")]
_MOE = [_problems.MOE_WORDS[name] for name in (
    "a", "a_scales", "b", "b_scales", "row_offsets", "scale_rows", "alpha", "b2",
    "b2_scales", "alpha2", "x", "c")]


NEW_SIZES = "a product of new sizes (run it once before)"


def new_plan(backend, device, op, key, template, given, names=None):
    """A new plan, kept under key."""
    backend.check_not_capturing(NEW_SIZES)
    plan = Plan(backend.open(device), op, template, names, given=given,
                caller_workspace=not backend.own_workspace)
    return cache.add(key, plan)


def problem_array(problems):
    """Returns problems as structs of the library."""
    return (abi.nib_problem * len(problems))(*problems)


def _single(backend, device, key, op, a, b, b2, alphas, c, dtype):
    """Plans one product; given: what makes c."""
    p, shape = _problems.product(
        a, b, b2, alphas, c=array("c", c), dtype=dtype_name(dtype),
        gemv=op == abi.NIB_OP_GEMV)
    template = problem_array([] if _problems.is_empty(p) else [p])
    return new_plan(backend, device, op, key, template,
                    maker(shape, dtype, a.codes.owner.device),
                    {"x": a.codes.name})


def _simple_plan(backend, op, device, key, name, c, a, a_scales, b, b_scales,
                 alpha, out_dtype, a_layout, b_layout, activations):
    return _single(
        backend, device, key, op,
        operand(name, a, a_scales, a_layout, activations),
        operand("b", b, b_scales, b_layout), None, [array("alpha", alpha)], c,
        out_dtype)


def simple(backend, op, name="a"):
    """Returns gemm or gemv for one kind of device: a function of c (None for a new
    one), the operands and options.  It is written without helper functions, because it
    must be quick.  name: what errors call a."""
    plans, clock = cache.plans, cache.clock
    device_of, run = backend.device_of, backend.run

    def multiply(c, a, a_scales, b, b_scales, alpha, out_dtype, a_layout,
                 b_layout, activations=None):
        device = device_of(a, name)
        key = (op, device,
               a.shape, a.is_contiguous() or a.stride(), a.dtype,
               a_scales is None or (
                   a_scales.shape, a_scales.is_contiguous() or a_scales.stride(),
                   a_scales.dtype),
               b.shape, b.is_contiguous() or b.stride(), b.dtype,
               b_scales.shape, b_scales.is_contiguous() or b_scales.stride(),
               b_scales.dtype, a_layout, b_layout, activations, out_dtype,
               alpha is None or alpha.shape, alpha is None or alpha.dtype,
               c is None or c.shape,
               c is None or c.is_contiguous() or c.stride())
        plan = plans.get(key)
        if plan is None:
            plan = _simple_plan(backend, op, device, key, name, c, a, a_scales,
                                b, b_scales, alpha, out_dtype, a_layout,
                                b_layout, activations)
        plan.stamp = clock()
        if c is None:
            c = plan.given()
        if plan.count == 0:
            return c
        work = plan.take()
        words = work.words
        if a_scales is None:
            words[_X] = a.data_ptr()
        else:
            words[_A], words[_AS] = a.data_ptr(), a_scales.data_ptr()
        words[_B], words[_BS] = b.data_ptr(), b_scales.data_ptr()
        words[_ALPHA] = 0 if alpha is None else alpha.data_ptr()
        words[_C] = c.data_ptr()
        run(plan, work, device)
        return c
    return multiply


def gemm_packed(backend, a, a_scales, b, n, alpha=None, out_dtype=None,
                a_layout="tiled", activations=None):
    """b: the number of packed weights, whose device computes; n: their rows."""
    weights = packed(b)
    if n != weights.sizes.rows:
        raise ArgumentError(f"n = {n}: must be {weights.sizes.rows}, the rows of b",
                            "n")
    return _times_packed(backend, "a", a, a_scales, weights, alpha,
                         out_dtype or usual_type(a), a_layout, activations)


def layer(backend, x, x_scales, b, b_scales, number, alpha=None, out_dtype=None,
          activations=None):
    """The product of a nibblas.torch.Linear, all scales linear: by the packed form
    of its weights b if they have one.  x: floats, or codes with x_scales."""
    out_dtype = out_dtype or usual_type(x)
    weights = layer_weights(number, b, b_scales)
    if not weights:
        return _layer_gemm[backend](None, x, x_scales, b, b_scales, alpha,
                                    out_dtype, "linear", "linear", activations)
    return _times_packed(backend, "x", x, x_scales, weights, alpha, out_dtype,
                         "linear", activations)


def linear(backend, x, b, b_scales, number, n, alpha, bias=None, input_scale=None,
           quantize=False, activations=None):
    """A nibblas.torch.Linear as one operator: [.., n] of x [.., K], which is quantised
    to NVFP4 by input_scale, or by its largest value, where `quantize` says so.

    b, b_scales  of the layer of this number; None: only their packed form exists"""
    rows, scales, dtype = x, None, x.dtype
    if not quantize and x.is_contiguous():
        weights = layer_weights(number, b, b_scales)
        if weights:
            return of_floats(backend, x, weights, alpha, bias, activations)
    if x.dim() != 2:
        rows = x.reshape(-1, x.shape[-1])
    if rows.stride(1) != 1 or rows.stride(0) < rows.shape[1]:
        rows = rows.contiguous()
    if quantize:
        rows, scales, scale = quantize_rows(backend, rows, input_scale)
        layer_ = None if input_scale is None else layer_of(number)
        alpha = layer_.scale_alpha(alpha, scale) if layer_ else alpha * scale
        activations = None
    wanted = dtype if bias is None else torch.float32
    weights = layer_weights(number, b, b_scales)
    if not weights:
        y = _layer_gemm[backend](None, rows, scales, b, b_scales, alpha, wanted,
                                 "linear", "linear", activations)
    else:
        y = _times_packed(backend, "x", rows, scales, weights, alpha, wanted, "linear",
                          activations)
    y = _add_bias(y, bias, dtype)
    return y if x.dim() == 2 else y.view(*x.shape[:-1], n)


def _add_bias(y, bias, dtype):
    """y + bias of type dtype, rounded once, by the addition."""
    if bias is None:
        return y
    return y.add_(bias) if dtype == torch.float32 else torch.add(
        y, bias, out=torch.empty_like(y, dtype=dtype))


def of_floats(backend, x, weights, alpha, bias, activations):
    """x W^T + bias, of type x.dtype, by packed weights; x is contiguous."""
    dtype = x.dtype
    if bias is None:
        return unbiased(backend, x, weights, alpha, dtype, activations)
    return _add_bias(unbiased(backend, x, weights, alpha, torch.float32, activations),
                     bias, dtype)


def unbiased(backend, x, weights, alpha, out_dtype, activations):
    """[.., n] of contiguous x [.., K] as it is.  These are most of a model's products,
    so it is written without helper functions."""
    device = backend.device_of(x, "x")
    plans = weights.plans
    key = (device, x.shape, x.dtype, alpha.shape, alpha.dtype, out_dtype, activations)
    if _is_plans_shared(weights):
        plans, key = cache, ("floats", weights.sizes, *key)
    plan = plans.get(key)
    if plan is None:
        rows = operand("x", x.view(-1, x.shape[-1]), None, "linear", activations)
        plan = _packed_plan(backend, device, rows, weights, alpha, out_dtype)
        plan.given = maker((*x.shape[:-1], weights.sizes.rows), out_dtype, x.device)
        plan = plans.add(key, plan)
    c = plan.given()
    if plan.count:
        work = plan.take()
        words = work.words
        words[_X], words[_ALPHA] = x.data_ptr(), alpha.data_ptr()
        words[_C] = c.data_ptr()
        words[_PACKED] = weights.handle.value
        backend.run(plan, work, device)
    return c


def of_codes(backend, x, x_scales, weights, alpha, dtype):
    """[M, n] of type dtype: x [M, K/2] with linear scales by packed weights."""
    return _times_packed(backend, "x", x, x_scales, weights, alpha, dtype, "linear",
                         None)


def unpacked(backend, _like, number, _n, _k):
    """The tensors of a layer that has only the packed form."""
    layer_ = layer_of(number)
    return layer_.unpack() if layer_ else layer_weights(number, None, None)


def _is_plans_shared(weights):
    """Whether these weights may use plans of other weights of the same sizes.  Layers
    on a GPU, whose codes are not copied, share plans."""
    return weights.is_shared and not weights.sizes.is_stack


def _packed_plan(backend, device, a, weights, alpha, out_dtype):
    """Plans a product with packed weights; a: an Operand."""
    backend.check_not_capturing(NEW_SIZES)
    if backend.open(device).name != weights.device.name:
        raise ArgumentError(f"b: packed on {weights.device.name}; must be "
                            f"on a's {backend.open(device).name}", "b")
    p, shape = _problems.product(a, weights, None, [array("alpha", alpha)],
                                 dtype=dtype_name(out_dtype))
    return Plan(weights.device, abi.NIB_OP_GEMM,
                problem_array([] if _problems.is_empty(p) else [p]),
                {"x": a.codes.name},
                given=maker(shape, out_dtype, a.codes.owner.device),
                caller_workspace=not backend.own_workspace,
                weights=None if _is_plans_shared(weights) else weights)


def _times_packed(backend, name, a, a_scales, weights, alpha, out_dtype, a_layout,
                  activations):
    """name: what errors call a."""
    device = backend.device_of(a, name)
    key = (device, meta(a), meta(a_scales), meta(alpha), out_dtype, a_layout,
           activations)
    plans = weights.plans
    if _is_plans_shared(weights):
        plans, key = cache, ("packed", weights.sizes, *key)
    plan = plans.get(key)
    if plan is None:
        left = operand(name, a, a_scales, a_layout, activations)
        plan = plans.add(key, _packed_plan(backend, device, left, weights, alpha,
                                           out_dtype))
    c = plan.given()
    if plan.count:
        work = plan.take()
        where = "x" if a_scales is None else "a"
        _set(work.words, _WORDS, {where: a, "a_scales": a_scales, "alpha": alpha,
                                  "c": c})
        work.words[_PACKED] = weights.handle.value
        backend.run(plan, work, device)
    return c


@functools.cache
def takes_floats(index):
    """Whether the kernels of this GPU multiply bfloat16 as it is; others multiply only
    NVFP4."""
    p = abi.nib_problem(
        activations=abi.NIB_ACTIVATIONS_DENSE,
        x=abi.nib_dense(dtype=abi.NIB_DTYPE_BF16, rows=1, cols=16, batch=1),
        b=abi.nib_fp4(rows=16, k=16, batch=1, scale_layout=abi.NIB_SCALE_LAYOUT_LINEAR),
        c=abi.nib_dense(dtype=abi.NIB_DTYPE_BF16, rows=1, cols=16, batch=1))
    try:
        Plan(Cuda.open(("cuda", index)), abi.NIB_OP_GEMM, problem_array([p]),
             caller_workspace=True)
    except UnsupportedError:
        return False
    return True


def _set(words, where, tensors):
    """Writes the pointers of tensors by name."""
    for name, tensor in tensors.items():
        words[where[name]] = 0 if tensor is None else tensor.data_ptr()


_layer_gemm = {backend: simple(backend, abi.NIB_OP_GEMM, "x")
               for backend in (Cpu, Cuda)}


def _many(backend, op, plan, c, tensors, options, where):
    """A dual product or a mixture of experts.  `where` has the words of the tensors'
    pointers in the struct, x and c last; plan(...) makes a plan for new sizes."""
    device = backend.device_of(tensors[0])
    key = [op, device, *options]
    for x in (*tensors, c):
        if x is None:
            key.append(None)
        else:
            key += x.shape, x.is_contiguous() or x.stride(), x.dtype
    key = tuple(key)
    known = cache.get(key)
    if known is None:
        known = plan(backend, device, key, c, *tensors, *options)
    if c is None:
        c = known.given()
    if known.count == 0:
        return c
    work = known.take()
    words = work.words
    for at, x in zip(where, tensors):
        words[at] = 0 if x is None else x.data_ptr()
    if tensors[1] is None:
        words[where[0]], words[where[-2]] = 0, tensors[0].data_ptr()
    words[where[-1]] = c.data_ptr()
    backend.run(known, work, device)
    return c


def _dual_plan(backend, device, key, c, a, a_scales, b, b_scales, b2, b2_scales,
               alpha, alpha2, out_dtype, a_layout, b_layout, activations):
    return _single(
        backend, device, key, abi.NIB_OP_DUAL_GEMM,
        operand("a", a, a_scales, a_layout, activations),
        operand("b", b, b_scales, b_layout),
        operand("b2", b2, b2_scales, b_layout),
        [array("alpha", alpha), array("alpha2", alpha2)], c, out_dtype)


def dual_gemm(backend, c, a, a_scales, b, b_scales, b2, b2_scales, alpha=None,
              alpha2=None, out_dtype=None, a_layout="tiled", b_layout="tiled",
              activations=None):
    """c: None for a new one, here and below."""
    return _many(backend, "dual", _dual_plan, c,
                 (a, a_scales, b, b_scales, b2, b2_scales, alpha, alpha2),
                 (out_dtype or usual_type(a), a_layout, b_layout, activations),
                 _DUAL)


def _check_lengths(a, *lists):
    for name, one in zip(("a_scales", "b", "b_scales", "c"), lists):
        if one is not None and len(one) != len(a):
            raise ArgumentError(f"{name}: {len(one)} tensors; must be as many "
                                f"as a has, {len(a)}", name)


def _group_problems(a, a_scales, b, b_scales, alpha, out_dtype, a_layout,
                    b_layout, activations, c):
    """(problems, what makes c); names as a[3]."""
    problems, makers, first = [], [], None
    if alpha is not None:
        _problems.views.vector(array("alpha", alpha), len(a))
    for i in range(len(a)):
        def at(name, tensors):
            return tensors and array(f"{name}[{i}]", tensors[i])
        left = _problems.Operand(at("a", a), at("a_scales", a_scales), a_layout,
                                 activations)
        p, shape = _problems.product(
            left,
            _problems.Operand(at("b", b), at("b_scales", b_scales), b_layout),
            None, [], c=None if c is None else at("c", c),
            dtype=dtype_name(out_dtype))
        first = first or left
        _problems.same_type(first, left)
        problems.append(p)
        makers.append(maker(shape, out_dtype, a[0].device))
    return problems, makers


def _group_plan(backend, device, key, a, a_scales, b, b_scales, alpha, out_dtype,
                a_layout, b_layout, activations, c):
    """given: what makes c, and the first word of each product, which is None for
    products of batch 0, because they are left out."""
    _check_lengths(a, a_scales, b, b_scales, c)
    problems, makers = _group_problems(
        a, a_scales, b, b_scales, alpha, out_dtype, a_layout, b_layout,
        activations, c)
    full = [p for p in problems if not _problems.is_empty(p)]
    words = iter(range(0, len(full) * _SIZE, _SIZE))
    bases = [None if _problems.is_empty(p) else next(words) for p in problems]
    return new_plan(backend, device, abi.NIB_OP_GEMM, key, problem_array(full),
                    (makers, bases))


def group_gemm(backend, c, a, a_scales, b, b_scales, alpha=None, out_dtype=None,
               a_layout="tiled", b_layout="tiled", activations=None):
    """One launch of len(a) products; alpha: one value for each."""
    if not a:
        _check_lengths(a, a_scales, b, b_scales, c)
        return []
    out_dtype, device = out_dtype or usual_type(a[0]), backend.device_of(a[0])
    key = ["group", device, out_dtype, a_layout, b_layout, activations, len(a),
           a_scales is None or len(a_scales), len(b), len(b_scales),
           c is None or len(c),
           alpha is None or (alpha.shape, alpha.is_contiguous(), alpha.dtype)]
    for tensors in (a, a_scales or (), b, b_scales, c or ()):
        for x in tensors:
            key += x.shape, x.is_contiguous() or x.stride(), x.dtype
    key = tuple(key)
    plan = cache.get(key)
    if plan is None:
        plan = _group_plan(backend, device, key, a, a_scales, b, b_scales, alpha,
                           out_dtype, a_layout, b_layout, activations, c)
    makers, bases = plan.given
    if c is None:
        c = [make() for make in makers]
    work = plan.take()
    words, factor = work.words, 0 if alpha is None else alpha.data_ptr()
    blocks = a_scales or [None] * len(a)
    for base, x, x_scales, y, y_scales, z in zip(bases, a, blocks, b, b_scales, c):
        if base is not None:
            if x_scales is None:
                words[base + _X] = x.data_ptr()
            else:
                words[base + _A], words[base + _AS] = (x.data_ptr(),
                                                       x_scales.data_ptr())
            words[base + _B], words[base + _BS] = (y.data_ptr(),
                                                   y_scales.data_ptr())
            words[base + _ALPHA], words[base + _C] = factor, z.data_ptr()
        if factor:
            factor += 4
    backend.run(plan, work, device)
    return c


def _moe_plan(backend, device, key, c, a, a_scales, b, b_scales, row_offsets,
              scale_rows, alpha, b2, b2_scales, alpha2, out_dtype, a_layout,
              b_layout, activations):
    moe, shape = _problems.moe(
        operand("a", a, a_scales, a_layout, activations),
        operand("b", b, b_scales, b_layout),
        None if b2 is None else operand("b2", b2, b2_scales, b_layout),
        array("row_offsets", row_offsets), array("scale_rows", scale_rows),
        [array("alpha", alpha), array("alpha2", alpha2)],
        c=array("c", c), dtype=dtype_name(out_dtype))
    op = abi.NIB_OP_GEMM if b2 is None else abi.NIB_OP_DUAL_GEMM
    return new_plan(backend, device, op, key, moe, maker(shape, out_dtype, a.device))


def moe_gemm(backend, c, a, a_scales, b, b_scales, row_offsets, scale_rows=None,
             alpha=None, out_dtype=None, a_layout="tiled", b_layout="tiled",
             activations=None, b2=None, b2_scales=None, alpha2=None):
    """A mixture of experts, or its dual product if there is b2; the offsets are read
    on the device."""
    return _many(backend, "moe", _moe_plan, c,
                 (a, a_scales, b, b_scales, row_offsets, scale_rows, alpha, b2,
                  b2_scales, alpha2),
                 (out_dtype or usual_type(a), a_layout, b_layout, activations),
                 _MOE)
