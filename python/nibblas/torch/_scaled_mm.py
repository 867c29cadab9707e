# SPDX-License-Identifier: Apache-2.0
"""_scaled_mm.py - torch's own ways of asking for NVFP4 products: scaled_mm,
scaled_grouped_mm and _scaled_mm with torch's arguments, on devices where torch
refuses.  Other recipes than NVFP4's go to torch.  Errors are ValueError and
NotImplementedError, as torch's are, and name the argument."""

import torch
import torch.nn.functional as F

from nibblas.torch._tensors import FLOAT4

# torch.nn.functional's ScalingType and SwizzleType by value; older torch has none.
TENSOR_WISE, BLOCK_WISE_1X16 = 0, 2
LAYOUTS = {0: "linear", 1: "tiled"}
RECIPES = ([BLOCK_WISE_1X16], [BLOCK_WISE_1X16, TENSOR_WISE])
OUTPUTS = (torch.bfloat16, torch.float16, torch.float32)


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


def _check_codes(name, x, dims):
    _check(x.dim() in dims, f"{name} must be "
           + " or ".join(f"{n}D" for n in dims) + f", got {x.dim()}D")
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
    _check(mat_a.shape[-1] == mat_b.shape[-2],
           f"mat_a {tuple(mat_a.shape)} and mat_b {tuple(mat_b.shape)}: the "
           "contraction dimensions must match")
    _check(mat_a.shape[-1] % 8 == 0,
           "Expected trailing dimension of mat_a to be divisible by 16 but got "
           f"mat_a shape: ({mat_a.shape[-2]}x{2 * mat_a.shape[-1]})")
    output_dtype = output_dtype or torch.bfloat16
    _check(output_dtype in OUTPUTS, f"output_dtype = {output_dtype}: must be "
           "bfloat16, float16 or float32")
    if bias is not None:
        _check(bias.dtype == output_dtype and bias.shape == mat_b.shape[-1:],
               f"bias must be {output_dtype} of shape ({mat_b.shape[-1]},), "
               f"got {bias.dtype} of shape {tuple(bias.shape)}")
    return output_dtype


def _check_columns(mat_b, name="mat_b"):
    """mat_b is column-major: K is what lies together."""
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
    """Both or none, one value or count."""
    _check((a is None) == (b is None), "For two-level-scaled NVFP4, the global "
           f"scale of scale_{'a' if a is None else 'b'} must have a value")
    for side, one in (("a", a), ("b", b)):
        _check(one is None or one.numel() in (1, count),
               f"the global scale of scale_{side} must have 1 or {count} "
               f"elements, got {0 if one is None else one.numel()}")


def _alpha(a, b, count):
    """The product of two global scales, as count values."""
    alpha = a.reshape(-1) * b.reshape(-1)
    return alpha if alpha.numel() == count else alpha.expand(count).contiguous()


def _is_nvfp4(mat, recipe):
    return mat.dtype == FLOAT4 or BLOCK_WISE_1X16 in _numbers(
        "scale_recipe", recipe)


def _with_bias(multiply, bias, dtype):
    """One rounding: the bias is added in fp32."""
    if bias is None:
        return multiply(dtype)
    return (multiply(torch.float32) + bias).to(dtype)


# What calls were checked, by all that the checks look at.
_known = {}
MOST_KNOWN = 1024


def _frozen(x):
    """An argument as its checks see it."""
    if isinstance(x, torch.Tensor):
        return x.shape, x.stride(), x.dtype
    return tuple(map(_frozen, x)) if isinstance(x, (list, tuple)) else x


def _checked(check, *arguments):
    """What check() returns, remembered."""
    if torch.compiler.is_compiling():
        return check(*arguments)
    key = (check, *map(_frozen, arguments))
    known = _known.get(key)
    if known is None:
        known = check(*arguments)
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[key] = known
    return known


def _check_mm(mat_a, mat_b, scale_a, scale_recipe_a, scale_b, scale_recipe_b,
              swizzle_a, swizzle_b, bias, output_dtype, contraction_dim,
              use_fast_accum):
    """All rules; returns the type of the result and both layouts."""
    _check_codes("mat_a", mat_a, (2,))
    _check_codes("mat_b", mat_b, (2,))
    dtype = _check_common(mat_a, mat_b, bias, output_dtype, contraction_dim,
                          use_fast_accum)
    _check_columns(mat_b)
    block_a, global_a, layout_a = _read_scales("a", scale_a, scale_recipe_a,
                                               swizzle_a)
    block_b, global_b, layout_b = _read_scales("b", scale_b, scale_recipe_b,
                                               swizzle_b)
    (m, half), n = mat_a.shape, mat_b.shape[1]
    _check_blocks("a", block_a, m, half, layout_a)
    _check_blocks("b", block_b, n, half, layout_b)
    _check_globals(global_a, global_b, 1)
    return dtype, layout_a, layout_b


def scaled_mm(mat_a, mat_b, scale_a, scale_recipe_a, scale_b, scale_recipe_b,
              swizzle_a=None, swizzle_b=None, bias=None,
              output_dtype=torch.bfloat16, contraction_dim=(),
              use_fast_accum=False):
    """torch.nn.functional.scaled_mm, with NVFP4 on every device of nibblas.

    mat_a [M, K/2] row-major, mat_b [K/2, N] column-major, both float4_e2m1fn_x2 (or
    uint8); recipes BlockWise1x16, or [BlockWise1x16, TensorWise] with scales
    [blocks, global]; swizzles SWIZZLE_32_4_4 or NO_SWIZZLE (None).  N may be any,
    output_dtype float32 too, and bias is added before the one rounding."""
    if not _is_nvfp4(mat_a, scale_recipe_a):
        return F.scaled_mm(mat_a, mat_b, scale_a, scale_recipe_a, scale_b,
                           scale_recipe_b, swizzle_a, swizzle_b, bias,
                           output_dtype, contraction_dim, use_fast_accum)
    dtype, layout_a, layout_b = _checked(
        _check_mm, mat_a, mat_b, scale_a, scale_recipe_a, scale_b,
        scale_recipe_b, swizzle_a, swizzle_b, bias, output_dtype,
        contraction_dim, use_fast_accum)
    (block_a, *global_a), (block_b, *global_b) = _list(scale_a), _list(scale_b)
    alpha = global_a[0] * global_b[0] if global_a else None
    if layout_a == "linear":
        block_a = block_a.view(mat_a.shape[0], mat_a.shape[1] // 8)
    if layout_b == "linear":
        block_b = block_b.view(mat_b.shape[1], mat_a.shape[1] // 8)
    return _with_bias(lambda out: torch.ops.nibblas.gemm.default(
        mat_a, block_a, mat_b.t(), block_b, alpha, out, layout_a, layout_b),
        bias, dtype)


def _scaled_mm(mat_a, mat2, scale_a, scale_b, bias=None, scale_result=None,
               out_dtype=None, use_fast_accum=False):
    """torch._scaled_mm for NVFP4: mat2 column-major, both scales blocked
    (SWIZZLE_32_4_4); other types go to torch."""
    if mat_a.dtype != FLOAT4 and mat_a.dtype != torch.uint8:
        return torch._scaled_mm(mat_a, mat2, scale_a, scale_b, bias,
                                scale_result, out_dtype, use_fast_accum)
    _check(scale_result is None, "scale_result is not supported for "
           "float4_e2m1fn_x2")
    return scaled_mm(mat_a, mat2, scale_a, BLOCK_WISE_1X16, scale_b,
                     BLOCK_WISE_1X16, 1, 1, bias, out_dtype, (), use_fast_accum)


# ---- groups ------------------------------------------------------------------


def _expert_rows(offs, padding):
    """Row offsets with their leading 0, and if there is padding where each expert's
    scales begin, rows padded to 128; computed on the device."""
    starts = torch.cat((offs.new_zeros(1), offs))
    if not padding:
        return starts, None
    padded = (offs - starts[:-1] + 127) & -128
    return starts, padded.cumsum(0, dtype=torch.int32) - padded


def _check_group(mat_a, mat_b, offs):
    _check((offs is not None) == (mat_a.dim() == 2 or mat_b.dim() == 2),
           "Have to provide offsets (offs) if there is a 2d matrix, and only "
           "then")
    if mat_b.dim() == 2:
        raise NotImplementedError(
            "mat_b must be 3D: groups of rows of mat_b or of K are not "
            "supported for float4_e2m1fn_x2")
    if offs is not None:
        _check(offs.dim() == 1 and offs.dtype == torch.int32,
               f"offs must be 1D of int32, got {offs.dim()}D of {offs.dtype}")
        _check(offs.numel() == mat_b.shape[0],
               f"offs must have an end for each of mat_b's {mat_b.shape[0]} "
               f"matrices, got {offs.numel()}")


def _check_token_scales(block, rows, groups, layout):
    """Groups' own paddings are known to the device alone."""
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
    if layout == "linear":
        return block.view(count, rows, half // 8)
    return block.view(count, block.numel() // max(count, 1))


def _check_grouped(mat_a, mat_b, scale_a, scale_recipe_a, scale_b,
                   scale_recipe_b, swizzle_a, swizzle_b, bias, offs,
                   output_dtype, contraction_dim, use_fast_accum):
    """All rules; returns the type of the result and both layouts."""
    _check_codes("mat_a", mat_a, (2, 3))
    _check_codes("mat_b", mat_b, (2, 3))
    _check_group(mat_a, mat_b, offs)
    _check(bias is None, "Bias not supported yet")
    dtype = _check_common(mat_a, mat_b, bias, output_dtype, contraction_dim,
                          use_fast_accum)
    _check_columns(mat_b)
    block_a, global_a, layout_a = _read_scales("a", scale_a, scale_recipe_a,
                                               swizzle_a)
    block_b, global_b, layout_b = _read_scales("b", scale_b, scale_recipe_b,
                                               swizzle_b)
    count, half, n = mat_b.shape
    _check_blocks("b", block_b, n, half, layout_b, count)
    _check_globals(global_a, global_b, count)
    if offs is not None:
        _check_token_scales(block_a, mat_a.shape[0], half // 8, layout_a)
        return dtype, layout_a, layout_b
    _check(mat_a.shape[0] == count, f"mat_a must have mat_b's {count} "
           f"matrices, got {mat_a.shape[0]}")
    _check_blocks("a", block_a, mat_a.shape[1], half, layout_a, count)
    return dtype, layout_a, layout_b


def scaled_grouped_mm(mat_a, mat_b, scale_a, scale_recipe_a, scale_b,
                      scale_recipe_b, swizzle_a=None, swizzle_b=None, bias=None,
                      offs=None, output_dtype=torch.bfloat16, contraction_dim=(),
                      use_fast_accum=False):
    """torch.nn.functional.scaled_grouped_mm, with NVFP4 on every device of
    nibblas.

    mat_b [G, K/2, N], each matrix column-major.  mat_a [rows, K/2] with offs,
    int32: where each group's rows end; with SWIZZLE_32_4_4 each group's scales are
    padded to 128 rows, with NO_SWIZZLE they are [rows, K/16].  Rows after the last
    end are not written.  Or mat_a [G, M, K/2] without offs.  Global scales: one
    value, or one for each group.  Nothing waits for the device."""
    if not _is_nvfp4(mat_a, scale_recipe_a):
        return F.scaled_grouped_mm(
            mat_a, mat_b, scale_a, scale_recipe_a, scale_b, scale_recipe_b,
            swizzle_a, swizzle_b, bias, offs, output_dtype, contraction_dim,
            use_fast_accum)
    dtype, layout_a, layout_b = _checked(
        _check_grouped, mat_a, mat_b, scale_a, scale_recipe_a, scale_b,
        scale_recipe_b, swizzle_a, swizzle_b, bias, offs, output_dtype,
        contraction_dim, use_fast_accum)
    (block_a, *global_a), (block_b, *global_b) = _list(scale_a), _list(scale_b)
    count, half, n = mat_b.shape
    block_b = _cut(block_b, layout_b, count, n, half)
    alpha = _alpha(*global_a, *global_b, count) if global_a else None
    b = mat_b.transpose(1, 2)
    if offs is not None:
        starts, scale_rows = _expert_rows(offs, layout_a == "tiled")
        return torch.ops.nibblas.moe_gemm.default(
            mat_a, block_a, b, block_b, starts, scale_rows, alpha, dtype,
            layout_a, layout_b)
    block_a = _cut(block_a, layout_a, count, mat_a.shape[1], half)
    return _batched(mat_a, block_a, b, block_b, alpha, dtype, layout_a,
                    layout_b)


def _batched(a, a_scales, b, b_scales, alpha, dtype, a_layout, b_layout):
    """One product of stacks; with several factors, a group of matrices."""
    if alpha is None or alpha.numel() == 1:
        return torch.ops.nibblas.gemm.default(
            a, a_scales, b, b_scales, alpha, dtype, a_layout, b_layout)
    return torch.stack(torch.ops.nibblas.group_gemm.default(
        list(a.unbind()), list(a_scales.unbind()), list(b.unbind()),
        list(b_scales.unbind()), alpha, dtype, a_layout, b_layout))
