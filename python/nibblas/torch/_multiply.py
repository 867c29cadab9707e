# SPDX-License-Identifier: Apache-2.0
"""_multiply.py - the multiplications as functions of tensors, which the operators
call.  A call with a known plan takes a few microseconds: it makes a key, looks the plan
up, writes six pointers and calls the library."""

from nibblas import _abi as abi
from nibblas import _problems
from nibblas._library import ArgumentError
from nibblas._packed import packed
from nibblas._plans import Plan, cache
from nibblas.torch._tensors import (USUAL, Cpu, Cuda, array, dtype_name, maker,
                                    meta, operand)
from nibblas.torch._weights import layer_weights

_WORDS = _problems.PROBLEM_WORDS
_SIZE = _problems.PROBLEM_SIZE
_A, _AS = _WORDS["a"], _WORDS["a_scales"]
_B, _BS = _WORDS["b"], _WORDS["b_scales"]
_ALPHA, _C = _WORDS["alpha"], _WORDS["c"]
_DUAL = [_WORDS[name] for name in (
    "a", "a_scales", "b", "b_scales", "b2", "b2_scales", "alpha", "alpha2", "c")]
_MOE = [_problems.MOE_WORDS[name] for name in (
    "a", "a_scales", "b", "b_scales", "row_offsets", "scale_rows", "alpha", "b2",
    "b2_scales", "alpha2", "c")]


NEW_SIZES = "a product of new sizes (run it once before)"


def new_plan(backend, device, op, key, template, given):
    """A new plan, kept under key."""
    backend.check_not_capturing(NEW_SIZES)
    plan = Plan(backend.open(device), op, template, given=given,
                caller_workspace=not backend.own_workspace)
    return cache.add(key, plan)


def problem_array(problems):
    """Returns problems as the library takes them."""
    return (abi.nib_problem * len(problems))(*problems)


def _single(backend, device, key, op, a, b, b2, alphas, c, dtype):
    """Plans one product; given: what makes c."""
    p, shape = _problems.product(
        a, b, b2, alphas, c=array("c", c), dtype=dtype_name(dtype),
        gemv=op == abi.NIB_GEMV)
    template = problem_array([] if shape[0] == 0 and p.a.batch == 0 else [p])
    return new_plan(backend, device, op, key, template,
                    maker(shape, dtype, a.codes.owner.device))


def _simple_plan(backend, op, device, key, c, a, a_scales, b, b_scales, alpha,
                 out_dtype, a_layout, b_layout):
    return _single(
        backend, device, key, op, operand("a", a, a_scales, a_layout),
        operand("b", b, b_scales, b_layout), None, [array("alpha", alpha)], c,
        out_dtype)


def simple(backend, op):
    """Returns gemm or gemv for one kind of device: a function of c (None for a new
    one), the operands and options.  It is written out, because it must be quick."""
    plans, clock = cache.plans, cache.clock
    device_of, run = backend.device_of, backend.run

    def multiply(c, a, a_scales, b, b_scales, alpha, out_dtype, a_layout,
                 b_layout):
        device = device_of(a)
        key = (op, device,
               a.shape, a.is_contiguous() or a.stride(), a.dtype,
               a_scales.shape, a_scales.is_contiguous() or a_scales.stride(),
               a_scales.dtype,
               b.shape, b.is_contiguous() or b.stride(), b.dtype,
               b_scales.shape, b_scales.is_contiguous() or b_scales.stride(),
               b_scales.dtype, a_layout, b_layout, out_dtype,
               alpha is None or alpha.shape, alpha is None or alpha.dtype,
               c is None or c.shape,
               c is None or c.is_contiguous() or c.stride())
        plan = plans.get(key)
        if plan is None:
            plan = _simple_plan(backend, op, device, key, c, a, a_scales, b,
                                b_scales, alpha, out_dtype, a_layout, b_layout)
        plan.stamp = clock()
        if c is None:
            c = plan.given()
        if plan.count == 0:
            return c
        work = plan.take()
        words = work.words
        words[_A], words[_AS] = a.data_ptr(), a_scales.data_ptr()
        words[_B], words[_BS] = b.data_ptr(), b_scales.data_ptr()
        words[_ALPHA] = 0 if alpha is None else alpha.data_ptr()
        words[_C] = c.data_ptr()
        run(plan, work, device)
        return c
    return multiply


def gemm_packed(backend, a, a_scales, b, n, alpha=None, out_dtype=None,
                a_layout="tiled"):
    """b: the number of packed weights, whose device computes; n: their rows."""
    weights = packed(b)
    if n != weights.sizes.rows:
        raise ArgumentError(f"n = {n}: must be {weights.sizes.rows}, the rows of b",
                            "n")
    return _times_packed(backend, a, a_scales, weights, alpha,
                         out_dtype or USUAL, a_layout)


def layer(backend, a, a_scales, b, b_scales, number, alpha=None, out_dtype=None):
    """The product of a nibblas.torch.Linear, all scales linear: by the packed form
    of its weights b if they have one."""
    weights = backend is Cpu and layer_weights(number, b, b_scales)
    if not weights:
        return _layer_gemm[backend](None, a, a_scales, b, b_scales, alpha,
                                    out_dtype or USUAL, "linear", "linear")
    return _times_packed(backend, a, a_scales, weights, alpha,
                         out_dtype or USUAL, "linear")


def _times_packed(backend, a, a_scales, weights, alpha, out_dtype, a_layout):
    device = backend.device_of(a)
    key = (device, meta(a), meta(a_scales), meta(alpha), out_dtype, a_layout)
    plan = weights.plans.get(key)
    if plan is None:
        backend.check_not_capturing(NEW_SIZES)
        if backend.open(device).name != weights.device.name:
            raise ArgumentError(f"b: packed on {weights.device.name}; must be "
                                f"on a's {backend.open(device).name}", "b")
        p, shape = _problems.product(
            operand("a", a, a_scales, a_layout), weights, None,
            [array("alpha", alpha)], dtype=dtype_name(out_dtype))
        plan = weights.plans.add(key, Plan(
            weights.device, abi.NIB_GEMM,
            problem_array([p] if p.a.batch else []),
            given=maker(shape, out_dtype, a.device),
            caller_workspace=not backend.own_workspace, weights=weights))
    c = plan.given()
    if plan.count:
        work = plan.take()
        _set(work.words, _WORDS, {"a": a, "a_scales": a_scales, "alpha": alpha,
                                  "c": c})
        backend.run(plan, work, device)
    return c


def _set(words, where, tensors):
    """Writes the pointers of tensors by name."""
    for name, tensor in tensors.items():
        words[where[name]] = 0 if tensor is None else tensor.data_ptr()


_layer_gemm = {backend: simple(backend, abi.NIB_GEMM) for backend in (Cpu, Cuda)}


def _many(backend, op, plan, c, tensors, out_dtype, a_layout, b_layout, where):
    """A dual product or a mixture of experts.  `where` has the words of the tensors'
    pointers in the struct, that of c last; plan(...) makes a plan for new sizes."""
    device = backend.device_of(tensors[0])
    key = [op, device, out_dtype, a_layout, b_layout]
    for x in (*tensors, c):
        if x is None:
            key.append(None)
        else:
            key += x.shape, x.is_contiguous() or x.stride(), x.dtype
    key = tuple(key)
    known = cache.get(key)
    if known is None:
        known = plan(backend, device, key, c, *tensors, out_dtype, a_layout,
                     b_layout)
    if c is None:
        c = known.given()
    if known.count == 0:
        return c
    work = known.take()
    words = work.words
    for at, x in zip(where, tensors):
        words[at] = 0 if x is None else x.data_ptr()
    words[where[-1]] = c.data_ptr()
    backend.run(known, work, device)
    return c


def _dual_plan(backend, device, key, c, a, a_scales, b, b_scales, b2, b2_scales,
               alpha, alpha2, out_dtype, a_layout, b_layout):
    return _single(
        backend, device, key, abi.NIB_DUAL_GEMM,
        operand("a", a, a_scales, a_layout),
        operand("b", b, b_scales, b_layout),
        operand("b2", b2, b2_scales, b_layout),
        [array("alpha", alpha), array("alpha2", alpha2)], c, out_dtype)


def dual_gemm(backend, c, a, a_scales, b, b_scales, b2, b2_scales, alpha=None,
              alpha2=None, out_dtype=None, a_layout="tiled", b_layout="tiled"):
    """c: None for a new one, here and below."""
    return _many(backend, "dual", _dual_plan, c,
                 (a, a_scales, b, b_scales, b2, b2_scales, alpha, alpha2),
                 out_dtype or USUAL, a_layout, b_layout, _DUAL)


def _check_lengths(a, *lists):
    for name, one in zip(("a_scales", "b", "b_scales", "c"), lists):
        if one is not None and len(one) != len(a):
            raise ArgumentError(f"{name}: {len(one)} tensors; must be as many "
                                f"as a has, {len(a)}", name)


def _group_problems(a, a_scales, b, b_scales, alpha, out_dtype, a_layout,
                    b_layout, c):
    """(problems, what makes c); names as a[3]."""
    problems, makers = [], []
    if alpha is not None:
        _problems.views.vector(array("alpha", alpha), len(a))
    for i in range(len(a)):
        def at(name, tensors):
            return array(f"{name}[{i}]", tensors[i])
        p, shape = _problems.product(
            _problems.Operand(at("a", a), at("a_scales", a_scales), a_layout),
            _problems.Operand(at("b", b), at("b_scales", b_scales), b_layout),
            None, [], c=None if c is None else at("c", c),
            dtype=dtype_name(out_dtype))
        problems.append(p)
        makers.append(maker(shape, out_dtype, a[0].device))
    return problems, makers


def _group_plan(backend, device, key, a, a_scales, b, b_scales, alpha, out_dtype,
                a_layout, b_layout, c):
    """given: what makes c, and the first word of each product, which is None for
    products of batch 0, because they are left out."""
    _check_lengths(a, a_scales, b, b_scales, c)
    problems, makers = _group_problems(
        a, a_scales, b, b_scales, alpha, out_dtype, a_layout, b_layout, c)
    full = [p for p in problems if p.a.batch > 0]
    words = iter(range(0, len(full) * _SIZE, _SIZE))
    bases = [next(words) if p.a.batch > 0 else None for p in problems]
    return new_plan(backend, device, abi.NIB_GEMM, key, problem_array(full),
                    (makers, bases))


def group_gemm(backend, c, a, a_scales, b, b_scales, alpha=None, out_dtype=None,
               a_layout="tiled", b_layout="tiled"):
    """One launch of len(a) products; alpha: one value for each."""
    out_dtype = out_dtype or USUAL
    if not a:
        _check_lengths(a, a_scales, b, b_scales, c)
        return []
    device = backend.device_of(a[0])
    key = ["group", device, out_dtype, a_layout, b_layout, len(a), len(a_scales),
           len(b), len(b_scales), c is None or len(c),
           alpha is None or (alpha.shape, alpha.is_contiguous(), alpha.dtype)]
    for tensors in (a, a_scales, b, b_scales, c or ()):
        for x in tensors:
            key += x.shape, x.is_contiguous() or x.stride(), x.dtype
    key = tuple(key)
    plan = cache.get(key)
    if plan is None:
        plan = _group_plan(backend, device, key, a, a_scales, b, b_scales, alpha,
                           out_dtype, a_layout, b_layout, c)
    makers, bases = plan.given
    if c is None:
        c = [make() for make in makers]
    work = plan.take()
    words, factor = work.words, 0 if alpha is None else alpha.data_ptr()
    for base, x, x_scales, y, y_scales, z in zip(bases, a, a_scales, b, b_scales,
                                                 c):
        if base is not None:
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
              b_layout):
    moe, shape = _problems.moe(
        operand("a", a, a_scales, a_layout),
        operand("b", b, b_scales, b_layout),
        None if b2 is None else operand("b2", b2, b2_scales, b_layout),
        array("row_offsets", row_offsets), array("scale_rows", scale_rows),
        [array("alpha", alpha), array("alpha2", alpha2)],
        c=array("c", c), dtype=dtype_name(out_dtype))
    op = abi.NIB_GEMM if b2 is None else abi.NIB_DUAL_GEMM
    return new_plan(backend, device, op, key, moe, maker(shape, out_dtype, a.device))


def moe_gemm(backend, c, a, a_scales, b, b_scales, row_offsets, scale_rows=None,
             alpha=None, out_dtype=None, a_layout="tiled", b_layout="tiled",
             b2=None, b2_scales=None, alpha2=None):
    """A mixture of experts, or its dual product if there is b2; the offsets are read
    on the device."""
    return _many(backend, "moe", _moe_plan, c,
                 (a, a_scales, b, b_scales, row_offsets, scale_rows, alpha, b2,
                  b2_scales, alpha2), out_dtype or USUAL, a_layout, b_layout,
                 _MOE)
