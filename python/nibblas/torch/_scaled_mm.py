# SPDX-License-Identifier: Apache-2.0
"""_scaled_mm.py - scaled_mm, scaled_grouped_mm and _scaled_mm with torch's arguments,
for NVFP4 on devices where torch refuses it.  Unlike in torch, mat_a may be floats
without scales (W4A16).  Other recipes are passed to torch.  Errors are ValueError and
NotImplementedError, as torch's are, and name the argument."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nibblas.torch._tensors import FLOAT4, usual_type

# torch.nn.functional's ScalingType and SwizzleType by value; older torch has none.
TENSOR_WISE, BLOCK_WISE_1X16 = 0, 2
LAYOUTS = {0: "linear", 1: "tiled"}
RECIPES = ([BLOCK_WISE_1X16], [BLOCK_WISE_1X16, TENSOR_WISE])
OUTPUTS = (torch.bfloat16, torch.float16, torch.float32)

_ops = torch.ops.nibblas
_gemm, _group_gemm = _ops.gemm.default, _ops.group_gemm.default
_moe_gemm = _ops.moe_gemm.default
_group_gemm_out = _ops.group_gemm_out.default
_expert_rows = _ops.expert_rows.default


def _list(value):
    """A single value, a sequence or None as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _numbers(name, value):
    """Enumerators of torch as numbers."""
    out = []
    for one in _list(value):
        number = getattr(one, "value", one)
        if not isinstance(number, int):
            raise ValueError(f"{name} = {value!r}: must be of torch.nn."
                             "functional's enumeration, or a list of them")
        out.append(number)
    return out


def _check(condition, message):
    if not condition:
        raise ValueError(message)


def _check_dims(name, x, dims):
    _check(x.dim() in dims, f"{name} must be "
           + " or ".join(f"{n}D" for n in dims) + f", got {x.dim()}D")


def _check_codes(name, x, dims):
    _check_dims(name, x, dims)
    _check(x.dtype in (FLOAT4, torch.uint8),
           f"{name} must be float4_e2m1fn_x2, two values in a byte (or uint8), "
           f"got {x.dtype}")


def _check_common(mat_a, mat_b, bias, output_dtype, contraction_dim,
                  use_fast_accum):
    """The rules of both functions; returns the type of the result."""
    dims = [d % n.dim() - n.dim() for d, n in zip(contraction_dim,
                                                   (mat_a, mat_b))]
    _check(not dims or dims == [-1, -2],
           f"contraction_dim = {tuple(contraction_dim)}: must be (-1, -2), "
           "mat_a's columns and mat_b's rows")
    _check(not use_fast_accum, "use_fast_accum is not supported for "
           "float4_e2m1fn_x2")
    half = mat_b.shape[-2]
    k = mat_a.shape[-1] * (1 if mat_a.dtype in OUTPUTS else 2)
    _check(k == 2 * half,
           f"mat_a {tuple(mat_a.shape)} and mat_b {tuple(mat_b.shape)}: the "
           "contraction dimensions must match"
           + (", K and K/2" if mat_a.dtype in OUTPUTS else ""))
    _check(half % 8 == 0,
           "Expected trailing dimension of mat_a to be divisible by 16 but got "
           f"mat_a shape: ({mat_a.shape[-2]}x{k})")
    output_dtype = output_dtype or usual_type(mat_a)
    _check(output_dtype in OUTPUTS, f"output_dtype = {output_dtype}: must be "
           "bfloat16, float16 or float32")
    if bias is not None:
        _check(bias.dtype == output_dtype and bias.shape == mat_b.shape[-1:],
               f"bias must be {output_dtype} of shape ({mat_b.shape[-1]},), "
               f"got {bias.dtype} of shape {tuple(bias.shape)}")
    return output_dtype


def _check_columns(mat_b, name="mat_b"):
    """Checks that mat_b is column-major: elements of equal n are contiguous."""
    _check(mat_b.stride(-2) == 1 or mat_b.shape[-2] <= 1
           or mat_b.numel() == 0,
           f"{name} must be column-major, its stride({mat_b.dim() - 2}) 1, got "
           f"strides {mat_b.stride()}: pass the transpose of [N, K/2]")


def _read_scales(side, scale, recipe, swizzle):
    """(block scales, global scale or None, layout) of one operand."""
    scales, recipes = _list(scale), _numbers("scale_recipe_" + side, recipe)
    swizzles = _numbers("swizzle_" + side, swizzle) or [0]
    if recipes not in RECIPES:
        raise NotImplementedError(
            f"scale_recipe_{side} = {recipe}: NVFP4 is BlockWise1x16, or "
            "[BlockWise1x16, TensorWise]")
    _check(len(scales) == len(recipes),
           f"scale_{side} must have {len(recipes)} tensors, one for each "
           f"recipe, got {len(scales)}")
    _check(len(swizzles) in (1, len(recipes)) and swizzles[0] in LAYOUTS
           and not any(swizzles[1:]),
           f"swizzle_{side} = {swizzle}: must be SWIZZLE_32_4_4 or NO_SWIZZLE "
           "for the blocks, NO_SWIZZLE for a global scale")
    block, glob = scales[0], scales[1] if len(scales) > 1 else None
    _check(block.dtype == torch.float8_e4m3fn or block.dtype == torch.uint8,
           f"scale_{side} must be float8_e4m3fn, got {block.dtype}")
    _check(glob is None or glob.dtype == torch.float32,
           f"the global scale of scale_{side} must be float32, got "
           f"{None if glob is None else glob.dtype}")
    return block, glob, LAYOUTS[swizzles[0]]


def _check_blocks(side, scale, rows, half, layout, matrices=1):
    """The number of scales, by torch's rule."""
    groups = half // 8
    if layout == "linear":
        want = rows * groups * matrices
    else:
        want = -(-rows // 128) * 128 * (-(-groups // 4) * 4) * matrices
    _check(scale.numel() == want and scale.is_contiguous(),
           f"For BlockWise1x16 scaling scale_{side} should have {want} "
           f"elements, contiguous, got: {scale.numel()} of shape "
           f"{tuple(scale.shape)}")


def _check_globals(a, b, count):
    """Checks the global scales: both or none, one value or count.  a, b: results of
    _check_operands()."""
    is_dense, a, b = a[0] is None, a[1], b[1]
    _check(is_dense or (a is None) == (b is None), "For two-level-scaled NVFP4, "
           f"the global scale of scale_{'a' if a is None else 'b'} must have a "
           "value")
    for side, one in (("a", a), ("b", b)):
        _check(one is None or one.numel() in (1, count),
               f"the global scale of scale_{side} must have 1 or {count} "
               f"elements, got {0 if one is None else one.numel()}")


def _is_none(scale):
    """Whether there are no scales: mat_a is floats."""
    return scale is None or (isinstance(scale, (list, tuple)) and not scale)


def _scales(scale_a, scale_b, count=1):
    """(blocks of a, of b, alpha or None), the checks being done; alpha is the
    product of the global scales, as count values."""
    if _is_none(scale_a):
        block, *whole = _list(scale_b)
        return None, block, whole[0].reshape(-1).expand(
            count).contiguous() if whole else None
    block_a = scale_a if isinstance(scale_a, torch.Tensor) else scale_a[0]
    block_b = scale_b if isinstance(scale_b, torch.Tensor) else scale_b[0]
    if isinstance(scale_a, torch.Tensor) or len(scale_a) == 1:
        return block_a, block_b, None
    a, b = scale_a[1], scale_b[1]
    if a.dim() > 1 or b.dim() > 1:
        a, b = a.reshape(-1), b.reshape(-1)
    alpha = a * b
    if alpha.numel() != count:
        alpha = alpha.expand(count)
    return block_a, block_b, alpha.contiguous()


def _is_nvfp4(mat, recipe):
    return mat.dtype is FLOAT4 or BLOCK_WISE_1X16 in _numbers(
        "scale_recipe", recipe)


def _is_ours(mat_a, mat_b, recipe_a, recipe_b):
    """Whether a product is of NVFP4; A may be floats without a recipe."""
    if mat_a.dtype in OUTPUTS and not _list(recipe_a):
        return _is_nvfp4(mat_b, recipe_b)
    return _is_nvfp4(mat_a, recipe_a)


# Calls that have been checked, by all that the checks depend on.  A key has the
# addresses of recipes, so the recipes are kept alive and no other object can get their
# addresses.
_known = {}
MOST_KNOWN = 1024


def _add_sizes(key, x):
    """Adds the properties of scales (a tensor or several) that the checks depend on."""
    if isinstance(x, torch.Tensor):
        key += x.shape, x.is_contiguous() or x.stride(), x.dtype
    elif isinstance(x, (list, tuple)):
        for one in x:
            _add_sizes(key, one)
    key.append(None)


def _checked(check, tensors, options):
    """Returns check(*tensors, *options), remembered.  tensors: both
    matrices, both scales, more.  Hashing torch's enumerators would cost more
    than the rest."""
    if torch.compiler.is_compiling():
        return check(*tensors, *options)
    a, b, scale_a, scale_b, *more = tensors
    key = [check, a.shape, a.stride(), a.dtype, b.shape, b.stride(), b.dtype]
    _add_sizes(key, scale_a)
    _add_sizes(key, scale_b)
    for x in more:
        key.append(x is None or (x.shape, x.dtype))
    for x in options:
        key.append(tuple(map(id, x)) if isinstance(x, (list, tuple)) else id(x))
    key = tuple(key)
    known = _known.get(key)
    if known is None:
        result = check(*tensors, *options)
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        held = [tuple(x) if isinstance(x, list) else x for x in options]
        _known[key] = known = (result, held)
    return known[0]


def _check_operands(dims, mat_a, mat_b, scale_a, scale_b, bias, scale_recipe_a,
                    scale_recipe_b, swizzle_a, swizzle_b, output_dtype,
                    contraction_dim, use_fast_accum):
    """The rules of all functions; returns the type of the result, and (blocks, global
    scale or None, layout) of a and b.  For an a of floats only a layout is returned,
    which nothing reads."""
    dense = mat_a.dtype in OUTPUTS and not _list(scale_recipe_a)
    (_check_dims if dense else _check_codes)("mat_a", mat_a, dims)
    _check_codes("mat_b", mat_b, dims)
    dtype = _check_common(mat_a, mat_b, bias, output_dtype, contraction_dim,
                          use_fast_accum)
    _check_columns(mat_b)
    b = _read_scales("b", scale_b, scale_recipe_b, swizzle_b)
    if not dense:
        return dtype, _read_scales("a", scale_a, scale_recipe_a, swizzle_a), b
    _check(_is_none(scale_a), "scale_a must be None without scale_recipe_a: mat_a "
           f"of {mat_a.dtype} has no scales")
    return dtype, (None, None, "tiled"), b


def _check_mm(mat_a, mat_b, scale_a, scale_b, bias, scale_recipe_a, *options):
    """All rules; returns the type of the result and both layouts, or Nones if the
    product is not NVFP4 and torch has to compute it."""
    if not _is_ours(mat_a, mat_b, scale_recipe_a, options[0]):
        return None, None, None
    dtype, a, b = _check_operands((2,), mat_a, mat_b, scale_a, scale_b, bias,
                                  scale_recipe_a, *options)
    half, n = mat_b.shape
    if a[0] is not None:
        _check_blocks("a", a[0], mat_a.shape[0], half, a[2])
    _check_blocks("b", b[0], n, half, b[2])
    _check_globals(a, b, 1)
    return dtype, a[2], b[2]


def scaled_mm(mat_a: Tensor, mat_b: Tensor,
              scale_a: "Tensor | list[Tensor] | None", scale_recipe_a: Any,
              scale_b: "Tensor | list[Tensor]",
              scale_recipe_b: Any, swizzle_a: Any = None, swizzle_b: Any = None,
              bias: Tensor | None = None,
              output_dtype: torch.dtype | None = torch.bfloat16,
              contraction_dim: Sequence[int] = (),
              use_fast_accum: bool = False) -> Tensor:
    """Computes torch.nn.functional.scaled_mm, with NVFP4 on every device of nibblas.

    mat_a [M, K/2] row-major, mat_b [K/2, N] column-major, both float4_e2m1fn_x2 (or
    uint8); recipes BlockWise1x16, or [BlockWise1x16, TensorWise] with scales
    [blocks, global]; swizzles SWIZZLE_32_4_4 or NO_SWIZZLE (None).  N may be any,
    output_dtype float32 too, and bias is added before the one rounding.  Returns
    [M, N].

    mat_a may also be float32, float16 or bfloat16 [M, K], which is multiplied as it
    is: scale_a and scale_recipe_a are None then, and output_dtype None is mat_a's.

    Raises ValueError and NotImplementedError, as torch does."""
    dtype, layout_a, layout_b = _checked(
        _check_mm, (mat_a, mat_b, scale_a, scale_b, bias),
        (scale_recipe_a, scale_recipe_b, swizzle_a, swizzle_b, output_dtype,
         contraction_dim, use_fast_accum))
    if dtype is None:
        return F.scaled_mm(mat_a, mat_b, scale_a, scale_recipe_a, scale_b,
                           scale_recipe_b, swizzle_a, swizzle_b, bias,
                           output_dtype, contraction_dim, use_fast_accum)
    block_a, block_b, alpha = _scales(scale_a, scale_b)
    if (bias is None and layout_a == layout_b == "tiled"
            and dtype is usual_type(mat_a)):
        # Absent arguments cost no time.
        if alpha is None:
            return _gemm(mat_a, block_a, mat_b.t(), block_b)
        return _gemm(mat_a, block_a, mat_b.t(), block_b, alpha)
    if layout_a == "linear":
        block_a = block_a.view(mat_a.shape[0], mat_b.shape[0] // 8)
    if layout_b == "linear":
        block_b = block_b.view(mat_b.shape[1], mat_b.shape[0] // 8)
    if bias is None:
        return _gemm(mat_a, block_a, mat_b.t(), block_b, alpha, dtype, layout_a,
                     layout_b)
    # One rounding: the bias is added in fp32.
    product = _gemm(mat_a, block_a, mat_b.t(), block_b, alpha, torch.float32,
                    layout_a, layout_b)
    return (product + bias).to(dtype)


def _scaled_mm(mat_a: Tensor, mat2: Tensor, scale_a: Tensor, scale_b: Tensor,
               bias: Tensor | None = None, scale_result: Tensor | None = None,
               out_dtype: torch.dtype | None = None,
               use_fast_accum: bool = False) -> Tensor:
    """Computes torch._scaled_mm for NVFP4: mat2 column-major, both scales blocked
    (SWIZZLE_32_4_4); other types go to torch."""
    if mat_a.dtype != FLOAT4 and mat_a.dtype != torch.uint8:
        return torch._scaled_mm(mat_a, mat2, scale_a, scale_b, bias,
                                scale_result, out_dtype, use_fast_accum)
    _check(scale_result is None, "scale_result is not supported for "
           "float4_e2m1fn_x2")
    return scaled_mm(mat_a, mat2, scale_a, BLOCK_WISE_1X16, scale_b,
                     BLOCK_WISE_1X16, 1, 1, bias, out_dtype, (), use_fast_accum)


# ---- groups ------------------------------------------------------------------


def _check_group(mat_a, mat_b, offs):
    _check((offs is not None) == (mat_a.dim() == 2 or mat_b.dim() == 2),
           "Have to provide offsets (offs) if there is a 2d matrix, and only "
           "then")
    if mat_a.dim() == 3 and mat_b.dim() == 2:
        raise NotImplementedError(
            "mat_a is 3D and mat_b 2D: groups of columns are not supported for "
            "float4_e2m1fn_x2; only 2d-3d, 2d-2d (groups of K) and 3d-3d are")
    if offs is not None:
        _check(offs.dim() == 1 and offs.dtype == torch.int32,
               f"offs must be 1D of int32, got {offs.dim()}D of {offs.dtype}")
        _check(mat_b.dim() == 2 or offs.numel() == mat_b.shape[0],
               f"offs must have an end for each of mat_b's {mat_b.shape[0]} "
               f"matrices, got {offs.numel()}")


def _check_token_scales(block, rows, groups, layout):
    """Only the device knows the padding of each group."""
    if layout == "linear":
        return _check(tuple(block.shape) == (rows, groups), "scale_a must have "
                      f"shape {(rows, groups)}, got {tuple(block.shape)}")
    padded = -(-groups // 4) * 4
    return _check(
        block.is_contiguous() and block.numel() % max(128 * padded, 1) == 0
        and block.numel() >= rows * padded,
        f"scale_a must have whole tiles of 128 x {padded} scales, at least "
        f"{rows} rows, contiguous, got {block.numel()} of shape "
        f"{tuple(block.shape)}")


def _cut(block, layout, count, rows, half):
    """The scales of a stack, by matrix."""
    if block.dim() == (3 if layout == "linear" else 2) and (
            block.shape[0] == count and count > 0):
        return block
    if layout == "linear":
        return block.view(count, rows, half // 8)
    return block.view(count, block.numel() // max(count, 1))


def _check_grouped(mat_a, mat_b, scale_a, scale_b, offs, bias, scale_recipe_a,
                   *options):
    """As _check_mm()."""
    if not _is_ours(mat_a, mat_b, scale_recipe_a, options[0]):
        return None, None, None
    _check_group(mat_a, mat_b, offs)
    _check(bias is None, "Bias not supported yet")
    dtype, a, b = _check_operands((2, 3), mat_a, mat_b, scale_a, scale_b, bias,
                                  scale_recipe_a, *options)
    if mat_b.dim() == 2:
        # The number of scales depends on the values of offs.
        _check_globals(a, b, offs.numel())
        return dtype, a[2], b[2]
    count, half, n = mat_b.shape
    _check_blocks("b", b[0], n, half, b[2], count)
    _check_globals(a, b, count)
    if offs is None:
        _check(mat_a.shape[0] == count, f"mat_a must have mat_b's {count} "
               f"matrices, got {mat_a.shape[0]}")
    if a[0] is not None and offs is not None:
        _check_token_scales(a[0], mat_a.shape[0], half // 8, a[2])
    elif a[0] is not None:
        _check_blocks("a", a[0], mat_a.shape[1], half, a[2], count)
    return dtype, a[2], b[2]


# ---- groups of K: their sizes must be known on the host
# ---------------------------------


def _check_ends(ends, k):
    """offs' values."""
    _check(all(begin <= end for begin, end in zip([0, *ends], ends))
           and not any(end % 16 for end in ends) and ends[-1:] <= [k],
           f"offs = {ends}: must be multiples of 16 in ascending order, at most "
           f"K = {k}")


def _cut_k(side, codes, block, layout, ends):
    """([codes], [scales]) of each group; blocked scales are those of one group
    after the other.  Floats have no scales: ([floats], None)."""
    rows, groups = codes.shape[0], codes.shape[1] // 8
    begins = [0, *ends[:-1]]
    if block is None:
        return [codes[:, begin:end] for begin, end in zip(begins, ends)], None
    pieces = [codes[:, begin // 2:end // 2] for begin, end in zip(begins, ends)]
    if layout == "linear":
        _check(tuple(block.shape) == (rows, groups), f"scale_{side} must have "
               f"shape {(rows, groups)}, got {tuple(block.shape)}")
        return pieces, [block[:, begin // 16:end // 16]
                        for begin, end in zip(begins, ends)]
    sizes = [-(-rows // 128) * 128 * (-(-(end - begin) // 64) * 4)
             for begin, end in zip(begins, ends)]
    _check(block.numel() == sum(sizes) and block.is_contiguous(),
           f"scale_{side} must have {sum(sizes)} elements, each group's rows "
           "padded to 128 and its K/16 to 4, contiguous, got "
           f"{block.numel()} of shape {tuple(block.shape)}")
    return pieces, list(block.view(-1).split(sizes))


def _by_k(mat_a, block_a, b, block_b, offs, alpha, dtype, layout_a, layout_b):
    """[G, M, N]: a product for each group of K, in one launch."""
    ends = offs.tolist()
    _check_ends(ends, 2 * b.shape[1])
    c = torch.empty((len(ends), mat_a.shape[0], b.shape[0]), dtype=dtype,
                    device=mat_a.device)
    if ends:
        _group_gemm_out(
            list(c.unbind()), *_cut_k("a", mat_a, block_a, layout_a, ends),
            *_cut_k("b", b, block_b, layout_b, ends), alpha, layout_a, layout_b)
    return c


def scaled_grouped_mm(mat_a: Tensor, mat_b: Tensor,
                      scale_a: "Tensor | list[Tensor] | None", scale_recipe_a: Any,
                      scale_b: "Tensor | list[Tensor]", scale_recipe_b: Any,
                      swizzle_a: Any = None, swizzle_b: Any = None,
                      bias: Tensor | None = None, offs: Tensor | None = None,
                      output_dtype: torch.dtype | None = torch.bfloat16,
                      contraction_dim: Sequence[int] = (),
                      use_fast_accum: bool = False) -> Tensor:
    """Computes torch.nn.functional.scaled_grouped_mm, with NVFP4 on every device
    of nibblas.

    mat_b [G, K/2, N], each matrix column-major.  mat_a [rows, K/2] with offs,
    int32: where each group's rows end; with SWIZZLE_32_4_4 each group's scales are
    padded to 128 rows, with NO_SWIZZLE they are [rows, K/16].  Rows after the last
    end are not written.  Or mat_a [G, M, K/2] without offs.  Global scales: one
    value, or one for each group.  Nothing waits for the device.

    Or mat_a [M, K/2] and mat_b [K/2, N] with offs, where each group of K ends: the
    result is [G, M, N].  Blocked scales are those of each group, one after the other;
    linear scales are [rows, K/16].  That reads offs, and so waits for it.

    Raises ValueError and NotImplementedError, as torch does."""
    dtype, layout_a, layout_b = _checked(
        _check_grouped, (mat_a, mat_b, scale_a, scale_b, offs, bias),
        (scale_recipe_a, scale_recipe_b, swizzle_a, swizzle_b, output_dtype,
         contraction_dim, use_fast_accum))
    if dtype is None:
        return F.scaled_grouped_mm(
            mat_a, mat_b, scale_a, scale_recipe_a, scale_b, scale_recipe_b,
            swizzle_a, swizzle_b, bias, offs, output_dtype, contraction_dim,
            use_fast_accum)
    if mat_b.dim() == 2:
        block_a, block_b, alpha = _scales(scale_a, scale_b, offs.numel())
        return _by_k(mat_a, block_a, mat_b.t(), block_b, offs, alpha, dtype,
                     layout_a, layout_b)
    count, half, n = mat_b.shape
    block_a, block_b, alpha = _scales(scale_a, scale_b, count)
    b = mat_b.mT
    if layout_b == "linear" or offs is None:
        block_b = _cut(block_b, layout_b, count, n, half)
    if offs is not None:
        starts, scale_rows = _expert_rows(offs.contiguous())
        if layout_a == "linear" or block_a is None:
            scale_rows = None
        if layout_a == layout_b == "tiled" and dtype is usual_type(mat_a):
            return _moe_gemm(mat_a, block_a, b, block_b, starts, scale_rows,
                             alpha)
        return _moe_gemm(
            mat_a, block_a, b, block_b, starts, scale_rows, alpha, dtype,
            layout_a, layout_b)
    if block_a is not None:
        block_a = _cut(block_a, layout_a, count, mat_a.shape[1], half)
    return _batched(mat_a, block_a, b, block_b, alpha, dtype, layout_a,
                    layout_b)


def _batched(a, a_scales, b, b_scales, alpha, dtype, a_layout, b_layout):
    """One product of stacks; with several factors, a group of matrices."""
    if alpha is None or alpha.numel() == 1:
        return _gemm(
            a, a_scales, b, b_scales, alpha, dtype, a_layout, b_layout)
    return torch.stack(_group_gemm(
        list(a.unbind()), None if a_scales is None else list(a_scales.unbind()),
        list(b.unbind()), list(b_scales.unbind()), alpha, dtype, a_layout,
        b_layout))
