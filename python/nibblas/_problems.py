# SPDX-License-Identifier: Apache-2.0
"""_problems.py - makes the problems of nibblas.h from arrays: checks that they fit
together, and gives the sizes of results.  One function for each operation, shared by
the functions for NumPy, for PyTorch and for the contest."""

from typing import NamedTuple

from nibblas import _abi as abi
from nibblas import _views as views
from nibblas._library import ArgumentError
from nibblas._packed import Packed
from nibblas._plans import word


class Operand(NamedTuple):
    """An argument: the codes of NVFP4 with their scales and layout; or, as A only,
    floats without scales.  activations: what the caller says of A, or None."""

    codes: views.Array
    scales: views.Array | None
    layout: str
    activations: str | None = None

    @property
    def width(self):
        """The columns of codes, for messages."""
        return "K" if self.scales is None else "K/2"


def _alpha(alpha, count):
    """Checks alpha, if there is one."""
    if alpha is not None:
        views.vector(alpha, count)


def _output(c, shape, name="a"):
    """The struct of a given output, which must have this shape."""
    view, _ = views.dense(c)
    if tuple(c.shape) != tuple(shape):
        c.fail(f"must have shape {tuple(shape)}, {name}'s rows and b's")
    return view


def _result(shape, dtype):
    """The struct of an output that does not exist yet."""
    batch, rows, cols = shape if len(shape) == 3 else (1, *shape)
    return abi.nib_dense(dtype=views.choose("out_dtype", dtype, views.DENSE),
                         rows=rows, cols=cols, batch=batch)


def _kind(a):
    """The value of enum nib_activations: what A's scales and the caller say."""
    kind, wanted = abi.NIB_ACTIVATIONS_NVFP4, a.activations
    if a.scales is None:
        kind = abi.NIB_ACTIVATIONS_DENSE
    if wanted is None:
        return kind
    chosen = views.choose("activations", wanted, views.ACTIVATIONS)
    if (chosen == abi.NIB_ACTIVATIONS_NVFP4) != (
            kind == abi.NIB_ACTIVATIONS_NVFP4):
        name = a.codes.name
        rule = (f"{name} must be codes with {name}_scales: quantise it"
                if a.scales is None else
                f"{name} must be float32, float16 or bfloat16, without scales")
        raise ArgumentError(f"activations = {wanted!r}: {rule}", "activations")
    return chosen


def _fill_a(problem, a, scale_rows=None):
    """Writes A into a problem, and returns its Sizes."""
    problem.activations, scales = _kind(a), a.codes.name + "_scales"
    if problem.activations == abi.NIB_ACTIVATIONS_NVFP4:
        if a.codes.dtype in views.DENSE:
            a.codes.fail("must be uint8 or float4_e2m1fn_x2, two values to a "
                         f"byte; its own values are multiplied with {scales} = "
                         "None")
        problem.a, sizes = views.nvfp4(a.codes, a.scales, a.layout, scale_rows)
        return sizes
    if a.codes.dtype in views.CODES:
        raise ArgumentError(f"{scales} = None: must be the scales of "
                            f"{a.codes.name}, which is {a.codes.dtype}; only "
                            "float32, float16 and bfloat16 have none", scales)
    problem.x, sizes = views.dense(a.codes)
    if sizes.cols % abi.NIB_NVFP4_BLOCK:
        a.codes.fail(f"K = {sizes.cols}: must be a multiple of 16")
    return sizes


def same_type(first, a):
    """Checks that floats of a group have one type; first: A of its first product."""
    if a.scales is None and a.codes.dtype != first.codes.dtype:
        a.codes.fail(f"must be {first.codes.dtype}, as {first.codes.name} is")


def is_empty(problem):
    """Whether a product is of no matrices; the library has no batch of 0."""
    return (problem.x if problem.activations else problem.a).batch == 0


def product(a, b, b2, alphas, c=None, dtype=None, gemv=False):
    """(nib_problem, shape of c) of A * B^T, or of the dual product if b2 is
    not None.  gemv: a is [K/2] or [batch, K/2]; floats have K columns."""
    p = abi.nib_problem()
    is_vector = gemv and len(a.codes.shape) == 1
    if gemv:
        a = a._replace(codes=_as_row(a.codes, a.width), scales=_vector_scales(a))
    a_sizes = _fill_a(p, a)
    if isinstance(b, Packed):
        p.b_packed, b_sizes = b.handle, b.sizes
        b = Operand(_packed_codes(b), None, None)
    else:
        p.b, b_sizes = views.nvfp4(*b[:3])
    views.same_k(a.codes, a_sizes, b.codes, b_sizes)
    if b2 is not None:
        p.b2, b2_sizes = views.nvfp4(*b2[:3])
        views.same_k(a.codes, a_sizes, b2.codes, b2_sizes)
        if b2_sizes.rows != b_sizes.rows:
            b2.codes.fail(f"{b2_sizes.rows} rows: must be {b.codes.name}'s "
                          f"{b_sizes.rows}")
    for alpha in alphas:
        _alpha(alpha, 1)
    shape = (a_sizes.rows, b_sizes.rows)
    if a_sizes.is_stack:
        shape = (a_sizes.batch, *shape)
    elif b_sizes.is_stack and b_sizes.batch != 1:
        b.codes.fail(f"{b_sizes.batch} matrices: {a.codes.name} is one matrix")
    if gemv:
        outer = () if is_vector else shape[:1]
        p.c, shape = _gemv_output(c, shape, outer, dtype)
    else:
        p.c = _result(shape, dtype) if c is None else _output(
            c, shape, a.codes.name)
    return p, shape


def _packed_codes(b):
    """Packed weights as an Array, for messages."""
    s = b.sizes
    shape = (s.batch, s.rows, s.cols) if s.is_stack else (s.rows, s.cols)
    return views.Array("b", 0, shape, (), "packed", b.device.name)


def _as_row(x, width="K/2"):
    """[K/2] or [batch, K/2] as [1, 1, K/2] or [batch, 1, K/2]."""
    if len(x.shape) not in (1, 2):
        x.fail(f"must be [{width}] or [batch, {width}]")
    batch, stride = (1, 0) if len(x.shape) == 1 else (x.shape[0], x.strides[0])
    return x._replace(shape=(batch, 1, x.shape[-1]),
                      strides=(stride, 0, x.strides[-1]))


def _vector_scales(a):
    """The scales of vectors as a stack's: linear ones, [K/16] or [batch, K/16], get
    a dimension of one row; tiled ones stay."""
    if a.scales is None:
        return None
    if a.layout != "linear":
        x = a.scales
        if len(a.codes.shape) == 1:
            return x._replace(shape=(1, *x.shape), strides=(0, *x.strides))
        return x
    if len(a.scales.shape) != len(a.codes.shape):
        a.scales.fail("must be [K/16] or [batch, K/16], as the codes are, in "
                      "layout 'linear'")
    return _as_row(a.scales)


def _gemv_output(c, shape, outer, dtype):
    """c is [n] or [batch, n]."""
    want = (*outer, shape[-1])
    if c is None:
        return _result(shape, dtype), want
    if tuple(c.shape) != want:
        c.fail(f"must have shape {want}")
    row = c.strides[0] if len(want) == 2 else 0
    x = c._replace(shape=shape, strides=(row, 0, c.strides[-1]))
    return views.dense(x)[0], want


def moe(a, b, b2, row_offsets, scale_rows, alphas, c=None, dtype=None):
    """(nib_moe_problem, shape of c) of a mixture of experts."""
    moe = abi.nib_moe_problem()
    problem = moe.problem
    total = None
    if len(a.codes.shape) != 2:
        a.codes.fail(f"must be [rows, {a.width}]: the tokens of all experts")
    if scale_rows is not None:
        if a.scales is None:
            scale_rows.fail(f"must be None: {a.codes.name} has no scales")
        total = _scale_rows_total(a)
        moe.scale_rows_total = total
    a_sizes = _fill_a(problem, a, total)
    problem.b, b_sizes = views.nvfp4(*b[:3])
    experts = b_sizes.batch
    stacks = [(problem.b, b)]
    if b2 is not None:
        problem.b2, _ = views.nvfp4(*b2[:3])
        stacks.append((problem.b2, b2))
    for view, x in stacks:
        if len(x.codes.shape) != 3:
            x.codes.fail("must be [experts, n, K/2]")
        if (view.batch, view.rows) != (experts, b_sizes.rows):
            x.codes.fail(f"must have {b.codes.name}'s {experts} experts of "
                         f"{b_sizes.rows} rows")
        if view.k != a_sizes.cols:
            x.codes.fail(f"K = {view.k}: must be {a.codes.name}'s "
                         f"{a_sizes.cols}")
    if experts == 0:
        b.codes.fail("must have at least one expert")
    views.vector(row_offsets, experts + 1, "int32")
    if scale_rows is not None:
        views.vector(scale_rows, experts, "int32")
    for alpha in alphas:
        _alpha(alpha, experts)
    shape = (a_sizes.rows, b_sizes.rows)
    problem.c = _result(shape, dtype) if c is None else _output(c, shape)
    return moe, shape


def _scale_rows_total(a):
    """Rows of a's scale tensor, whose experts begin where scale_rows says."""
    groups = a.codes.shape[-1] * 2 // 16
    width = groups if a.layout == "linear" else (groups + 3) // 4 * 4
    numel = a.scales.numel()
    if width == 0:
        return 0
    if numel % width or (a.layout == "tiled" and numel // width % 128):
        a.scales.fail(f"must have whole rows of {width} scales"
                      + (", a multiple of 128" if a.layout == "tiled" else ""))
    return numel // width


# The words of the structs that hold pointers, by the names of arguments; "x" is A
# where it has no scales.
_P, _M = abi.nib_problem, abi.nib_moe_problem


def _words(struct, *prefix):
    paths = {"a": ("a", "codes"), "a_scales": ("a", "scales"),
             "b": ("b", "codes"), "b_scales": ("b", "scales"),
             "b2": ("b2", "codes"), "b2_scales": ("b2", "scales"),
             "alpha": ("alpha",), "alpha2": ("alpha2",), "c": ("c", "data"),
             "x": ("x", "data")}
    return {name: word(struct, *prefix, *path) for name, path in paths.items()}


PROBLEM_WORDS = _words(_P)
MOE_WORDS = {**_words(_M, "problem"), "row_offsets": word(_M, "row_offsets"),
             "scale_rows": word(_M, "scale_rows")}
PROBLEM_SIZE = word(type("Two", (abi.C.Structure,), {
    "_fields_": [("first", _P), ("second", _P)]}), "second")
