# SPDX-License-Identifier: Apache-2.0
"""The problems of the GPU MODE x NVIDIA contest for NVFP4, as they are asked: each
function takes the tuple that the contest gives a submission, writes into its c and
returns it.

    a [M, K/2, L], b [N, K/2, L], c [M, N, L] float16, views of [L, rows, cols]
    sf.. [rows, K/16, L]                      not looked at
    sf.._permuted [32, 4, rows/128, 4, K/64, L]  as it is in memory, used directly

Tensors of any device that nibblas.torch knows."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from nibblas import _abi as abi
from nibblas import _problems
from nibblas._library import ArgumentError
from nibblas._plans import cache, word
from nibblas.gpumode._tuples import PROBLEMS
from nibblas.torch._multiply import new_plan, problem_array
from nibblas.torch._tensors import Cpu, Cuda, array

__all__ = ["PROBLEMS", "custom_kernel", "dual_gemm", "gemm", "gemv", "group_gemm"]


def _check_devices(tensors):
    first = tensors[0].device
    if first.type not in ("cpu", "cuda"):
        raise ArgumentError(f"data: is on {first}; must be on a CPU or a GPU",
                            "data")
    for x in tensors:
        if x.device != first:
            raise ArgumentError(
                f"data: a tensor of shape {tuple(x.shape)} is on {x.device}; must "
                f"be on {first}, as the first", "data")


def _nib_problem(op, product):
    """A product's (name, view)s as the library has them."""
    c, *rest = (array(name, view) for name, view in product)
    a, b, *b2 = (_problems.Operand(codes, scales, "tiled")
                 for codes, scales in zip(rest[::2], rest[1::2]))
    return _problems.product(a, b, b2[0] if b2 else None, [], c=c,
                             gemv=op == abi.NIB_OP_GEMV)[0]


def _plan(problem, backend, device, key, data):
    """A new plan for such tuples, kept under key; given: where in its problems which
    tensor's pointer goes."""
    kind = PROBLEMS[problem]
    _check_devices(kind.tensors(data))
    problems, given = [], []
    for i, product in enumerate(kind.products(data)):
        p = _nib_problem(kind.op, product)
        if _problems.is_empty(p):
            continue
        base, first = len(problems) * _problems.PROBLEM_SIZE, i * len(kind.pointers)
        given += [(base + word(abi.nib_problem, *path.split(".")), first + j)
                  for j, path in enumerate(kind.pointers)]
        problems.append(p)
    return new_plan(backend, device, kind.op, key, problem_array(problems), given)


def _compute(problem, data):
    """No operator and no view on the way of tuples whose shapes are known: they
    would cost more than a small product takes."""
    kind = PROBLEMS[problem]
    tensors = kind.tensors(data)
    if not tensors:
        return kind.result(tensors)
    backend = Cuda if tensors[0].is_cuda else Cpu
    device = backend.device_of(tensors[0])
    key = [problem, device, kind.sizes(data)]
    for x in tensors:
        key += x.shape, x.stride(), x.dtype, x.device
    key = tuple(key)
    plan = cache.get(key) or _plan(problem, backend, device, key, data)
    if plan.count:
        work = plan.take()
        words = work.words
        for at, i in plan.given:
            words[at] = tensors[i].data_ptr()
        backend.run(plan, work, device)
    return kind.result(tensors)


def gemm(data: tuple[Any, ...]) -> Tensor:
    """Computes c = A * B^T of (a, b, sfa, sfb, sfa_permuted, sfb_permuted, c)."""
    return _compute("gemm", data)


def gemv(data: tuple[Any, ...]) -> Tensor:
    """Computes c [M, 1, L] = A * row 0 of B, which is padded to 128 rows, of the parts
    of gemm()."""
    return _compute("gemv", data)


def dual_gemm(data: tuple[Any, ...]) -> Tensor:
    """Computes c = silu(A * B1^T) * (A * B2^T) of (a, b1, b2, sfa, sfb1, sfb2,
    sfa_permuted, sfb1_permuted, sfb2_permuted, c)."""
    return _compute("dual_gemm", data)


def group_gemm(data: tuple[Any, ...]) -> list[Tensor]:
    """Computes the c of each product of (abc_tensors, sfasfb_tensors,
    sfasfb_reordered_tensors, problem_sizes), in one launch: lists of (a, b, c), of
    (sfa, sfb), of their six-dimensional forms, and of (M, N, K, L)."""
    return _compute("group_gemm", data)


_FUNCTIONS = {"group_gemm": group_gemm, "dual_gemm": dual_gemm, "gemm": gemm,
              "gemv": gemv}


def custom_kernel(problem: str) -> Callable[[tuple[Any, ...]], Any]:
    """Returns the function of a problem: custom_kernel("gemm")(data).  Raises
    ArgumentError for a problem that the contest has not."""
    try:
        return _FUNCTIONS[problem]
    except (KeyError, TypeError):
        raise ArgumentError(f"problem = {problem!r}: must be " + " or ".join(
            map(repr, PROBLEMS)), "problem") from None
