# SPDX-License-Identifier: Apache-2.0
"""gpu_torch.py - the baselines of gpu_baselines.py: torch's products of operands that
were expanded beforehand, and Humming's and Marlin's of the NVFP4 weights."""

import ctypes
import importlib.metadata
import itertools
from typing import Callable, NamedTuple

import gpu_humming
import gpu_marlin
from gpu_operands import BF16, DUAL_ALPHA, FP8, FP16

# The largest difference from the exact result, as part of it plus the same part of the
# largest result of its row.  16 bits: results in bf16, and split-k sums in fp16.  FP8:
# operands of six significant bits are rounded to four.
ROUNDED_16, ROUNDED_FP8 = 4e-3, 0.1


class Baseline(NamedTuple):
    """calls: one for each set of inputs; result(batch, row) of the first one."""

    calls: list
    result: Callable
    tolerance: float


def products(multiply, made, row_of=lambda c, batch, row: c[row],
             tolerance=ROUNDED_16):
    """multiply(*operands) for each of made; row_of() finds a row in its result."""
    return Baseline([lambda m=m: multiply(*m) for m in made],
                    lambda batch, row: row_of(multiply(*made[0]), batch, row),
                    tolerance)


def fp16_baseline(torch, shape, sets):
    """torch.matmul, which is cuBLAS; products of a group one by one."""
    return products(lambda a, b: [x @ w.t() for x, w in zip(a, b)],
                    [(o.activations(FP16), o.weights(FP16)) for o in sets],
                    lambda c, batch, row: torch.cat(c)[row])


def bmm_baseline(torch, shape, sets):
    made = [(torch.stack(o.weights(FP16)),
             torch.stack(o.activations(FP16)).transpose(1, 2).contiguous())
            for o in sets]
    return products(torch.bmm, made, lambda c, batch, row: c[batch, :, 0])


def silu_baseline(torch, shape, sets):
    """One product with both weights, then silu and product, compiled."""
    n = shape.n
    made = [(o.activations(FP16)[0],
             torch.cat(o.weights(FP16, 0) + o.weights(FP16, 1)))
            for o in sets]
    silu_mul = torch.compile(lambda g, u: (
        torch.nn.functional.silu(g.float() * DUAL_ALPHA)
        * (u.float() * DUAL_ALPHA)).half())

    def multiply(a, b):
        h = a @ b.t()
        return silu_mul(h[:, :n], h[:, n:])

    return products(multiply, made)


def grouped_operands(torch, sets, kind):
    return [(torch.cat(o.activations(kind)),
             torch.stack(o.weights(kind)).transpose(-2, -1),
             o.offsets[1:].contiguous()) for o in sets]


def grouped_baseline(torch, shape, sets):
    return products(lambda a, b, offsets: torch._grouped_mm(a, b, offs=offsets),
                    grouped_operands(torch, sets, BF16))


def grouped_fp8_baseline(torch, shape, sets):
    scale_a = torch.ones(shape.rows, device=sets[0].side.device)
    scale_b = torch.ones(len(shape.ms), shape.n, device=sets[0].side.device)

    def multiply(a, b, offsets):
        return torch._scaled_grouped_mm(
            a, b, scale_a, scale_b, offs=offsets, out_dtype=torch.bfloat16,
            use_fast_accum=True)

    return products(multiply, grouped_operands(torch, sets, FP8),
                    tolerance=ROUNDED_FP8)


def fp8_baseline(torch, shape, sets):
    made = [(o.activations(FP8)[0], o.weights(FP8)[0]) for o in sets]
    one = torch.ones((), device=sets[0].side.device)

    def multiply(a, b):
        return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one,
                                out_dtype=torch.float16, use_fast_accum=True)

    return products(multiply, made, tolerance=ROUNDED_FP8)


def packed_weights(torch, o):
    """Codes and scales of a set's weights; those of a dual product in one matrix."""
    codes = torch.cat([b.codes for b in o.b], 1)
    scales = torch.cat([torch.stack([b.scale_bytes(i) for i in range(b.batch)])
                        for b in o.b], 1)
    return (codes, scales) if len(codes) > 1 else (codes[0], scales[0])


def first_rows(shape):
    """The first row of each expert, as which the products of a group or a batch are
    multiplied, and the end; None for one product."""
    ms = shape.ms if shape.batch == 1 else [1] * shape.batch
    return [0, *itertools.accumulate(ms)] if len(ms) > 1 else None


def humming_baseline(torch, shape, sets, is_sm80=False):
    """A dual product has Humming's own kernel for SwiGLU."""
    starts = first_rows(shape)
    offsets = starts and torch.tensor(starts, dtype=torch.int32,
                                      device=sets[0].side.device)
    made = [(gpu_humming.product(torch, *packed_weights(torch, o), is_sm80=is_sm80),
             torch.cat(o.activations(FP16)), offsets) for o in sets]

    def multiply(layer, x, offsets):
        c = layer(x, offsets)
        return c if shape.products == 1 else gpu_humming.swiglu(c, DUAL_ALPHA)

    # The rows of a batch have one matrix each.
    return products(multiply, made, lambda c, batch, row: c[batch + row])


def humming_kernel(shape, is_sm80=False):
    """What humming_baseline() needs compiled, for gpu_humming.compile_ahead()."""
    experts = max(len(shape.ms), shape.batch)
    return (experts if experts > 1 else 0, shape.n * shape.products, shape.k,
            shape.rows * shape.batch, False, is_sm80)


def humming_sm80_baseline(torch, shape, sets):
    return humming_baseline(torch, shape, sets, is_sm80=True)


def marlin_baseline(torch, shape, sets):
    if shape.products > 1:
        raise NotImplementedError("Marlin has no kernel of two products and SwiGLU")
    library, starts = gpu_marlin.load(), first_rows(shape)
    scratch = gpu_marlin.Scratch(torch, sets[0].side.device)
    made = [(gpu_marlin.product(torch, *packed_weights(torch, o), scratch, library),
             torch.cat(o.activations(FP16)), starts) for o in sets]
    return products(lambda multiply, x, starts: multiply(x, starts), made,
                    lambda c, batch, row: c[batch + row])


def cublas_version():
    """The version of the cuBLAS that torch loaded, or None."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if "/libcublas.so" in line}
    if not paths:
        return None
    library, numbers = ctypes.CDLL(min(paths)), []
    for kind in range(3):  # major, minor, patch
        value = ctypes.c_int()
        if library.cublasGetProperty(kind, ctypes.byref(value)):
            return None
        numbers.append(str(value.value))
    return ".".join(numbers)


def versions(torch):
    """CUDA, cuBLAS, torch, Humming and Marlin, as text."""
    packages = (f"{gpu_humming.PACKAGE} {gpu_humming.version() or 'not installed'}, "
                + (gpu_marlin.version() or "Marlin not built"))
    if torch is None:
        return f"torch not installed, {packages}"
    return (f"CUDA {torch.version.cuda}, cuBLAS {cublas_version()}, "
            f"torch {torch.__version__}, {packages}")


def version_of(name):
    """The version of a baseline's library; None if it is not installed."""
    if name == MARLIN:
        return gpu_marlin.version()
    if name.startswith(HUMMING):
        found = gpu_humming.version()
        return found and f"{gpu_humming.PACKAGE} {found}"
    try:
        found = f"torch {importlib.metadata.version('torch')}"
    except importlib.metadata.PackageNotFoundError:
        return None
    cublas = cublas_version() if name.startswith("cuBLAS") else None
    return f"cuBLAS {cublas}, {found}" if cublas else found


HUMMING, HUMMING_SM80, MARLIN = "humming", "humming-sm80", "marlin"
GROUPED = {"torch grouped bf16": grouped_baseline,
           "torch grouped fp8": grouped_fp8_baseline}
BASELINES = {
    "gemm": {"cuBLAS fp16": fp16_baseline, "cuBLAS fp8": fp8_baseline},
    "group_gemm": {"cuBLAS fp16": fp16_baseline, **GROUPED},
    "moe": GROUPED,
    "dual_gemm": {"cuBLAS fp16 + silu": silu_baseline},
    "gemv": {"torch bmm fp16": bmm_baseline},
}
# These compute all products.
PACKED = {HUMMING: humming_baseline, HUMMING_SM80: humming_sm80_baseline,
          MARLIN: marlin_baseline}
NAMES = list(dict.fromkeys([*(n for made in BASELINES.values() for n in made),
                            *PACKED]))
# The preset ampere is compared with what an A100 runs, the others with the rest.
OF_SM80 = ["cuBLAS fp16", "torch grouped bf16", HUMMING_SM80, MARLIN]


def usual_baselines(preset):
    """The baselines of a preset, unless --baselines names others."""
    if preset == "ampere":
        return OF_SM80
    return [name for name in NAMES if name not in (HUMMING_SM80, MARLIN)]


def baselines_of(shape):
    """(name, function that makes it) of all rivals of a shape.  One that cannot
    compute the shape raises, and its row says why."""
    return [*BASELINES[shape.op].items(), *PACKED.items()]
