# SPDX-License-Identifier: Apache-2.0
"""gpu_operands.py - what gpu_baselines.py multiplies: its shapes, libnibblas
through ctypes, and random NVFP4 operands as arrays of torch or numpy."""

import ctypes as C
import importlib.util
import math
import os
import sys

FP8, FP16, BF16 = "fp8", "fp16", "bf16"
VALUES = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
SCALES = (0x38, 0x40)  # e4m3 of 1 and 2
DUAL_ALPHA = 2.0 ** -9  # sums of some thousands become some ones
CHECKED_ROWS = 4

# ---- shapes ----------------------------------------------------------------


class Shape:
    """One row.  ms: the rows of each product, of a MoE those of each expert."""

    def __init__(self, name, op, ms, n, k, batch=1):
        self.name, self.op, self.ms = name, op, list(ms)
        self.n, self.k, self.batch = n, k, batch

    @property
    def rows(self):
        return sum(self.ms)

    @property
    def products(self):
        return 2 if self.op == "dual_gemm" else 1

    def flop(self):
        return 2.0 * self.rows * self.batch * self.n * self.k * self.products

    def bytes(self):
        weights = self.n * self.products * len(self.ms)
        values = (weights + self.rows) * self.k * self.batch
        return values * 9 / 16 + 2.0 * self.rows * self.n * self.batch

    def text(self):
        """As nib bench writes it."""
        if self.op == "gemv":
            return f"{self.n}x{self.k}x{self.batch}"
        if self.op in ("gemm", "dual_gemm"):
            return f"{self.ms[0]}x{self.n}x{self.k}"
        ms = ",".join(map(str, self.ms[:4]))
        if len(self.ms) > 4:
            ms += f",...({len(self.ms)})"
        return f"m={ms} n={self.n} k={self.k}"

    def shrunk(self):
        """The same kind, small enough for a dry run."""
        ms = self.ms if self.op == "gemv" else [m % 37 + 1 for m in self.ms[:5]]
        return Shape(self.name, self.op, ms, 96 + self.n % 96,
                     16 * (3 + self.k // 16 % 7), min(self.batch, 2))


SHAPES = [
    Shape("G1", "group_gemm", [80, 176, 128, 72, 64, 248, 96, 160], 4096, 7168),
    Shape("G2", "group_gemm", [40, 76, 168, 72, 164, 148, 196, 160], 7168, 2048),
    Shape("G3", "group_gemm", [192, 320], 3072, 4096),
    Shape("G4", "group_gemm", [128, 384], 4096, 1536),
    Shape("M1", "gemm", [128], 7168, 16384),
    Shape("M2", "gemm", [128], 4096, 7168),
    Shape("M3", "gemm", [128], 7168, 2048),
    Shape("M4", "gemm", [2304], 4608, 7168),
    Shape("D1", "dual_gemm", [256], 4096, 7168),
    Shape("D2", "dual_gemm", [512], 4096, 7168),
    Shape("D3", "dual_gemm", [256], 3072, 4096),
    Shape("D4", "dual_gemm", [512], 3072, 7168),
    Shape("V1", "gemv", [1], 7168, 16384, 1),
    Shape("V2", "gemv", [1], 4096, 7168, 8),
    Shape("V3", "gemv", [1], 7168, 2048, 4),
] + [Shape(f"E{m}", "moe", [m] * 32, 4096, 7168) for m in (1, 8, 16, 32, 64)] \
  + [Shape(f"S{m}", "gemm", [m], 8192, 8192) for m in (1, 16, 64)]

SWEEP = [Shape(f"W{m}", "gemm", [m], 4096, 7168)
         for m in [*range(1, 65), *range(72, 513, 8)]]

# ---- libnibblas ------------------------------------------------------------


def load_abi():
    """The header's types: _abi.py beside this script, else the package's own."""
    here = os.path.dirname(os.path.abspath(__file__))
    paths = [os.path.join(here, *where, "_abi.py")
             for where in ((), ("..", "python", "nibblas"))]
    path = next((p for p in paths if os.path.exists(p)), None)
    if path is None:
        sys.exit(f"gpu_operands.py: no {paths[0]} (it is python/nibblas/_abi.py)")
    spec = importlib.util.spec_from_file_location("_abi", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


abi = load_abi()
LAYOUTS = {"linear": abi.NIB_LINEAR, "tiled": abi.NIB_TILED_128X4}
OPS = {"gemm": abi.NIB_GEMM, "group_gemm": abi.NIB_GEMM, "moe": abi.NIB_GEMM,
       "dual_gemm": abi.NIB_DUAL_GEMM, "gemv": abi.NIB_GEMV}


def sized(kind, **values):
    """A struct that begins with its size."""
    return kind(struct_bytes=C.sizeof(kind), **values)


class Nib:
    """The library, opened, and one of its devices."""

    def __init__(self, path, device):
        self.lib = C.CDLL(path)
        for name, (result, arguments) in abi.FUNCTIONS.items():
            function = getattr(self.lib, name)
            function.restype, function.argtypes = result, arguments
        self.device = C.c_void_p()
        self.call("nib_device_open", device.encode(), None,
                  C.byref(self.device))

    def version(self):
        return self.lib.nib_version().decode()

    def call(self, name, *args):
        error = abi.nib_error()
        if getattr(self.lib, name)(*args, C.byref(error)):
            raise RuntimeError(f"{name}: {error.message.decode()}")

    def probe(self, probe, data, amount, stream):
        options = sized(abi.nib_call_options, stream=stream)
        done = C.c_int64()
        self.call("nib_device_probe", self.device, probe, data, amount,
                  C.byref(done), C.byref(options))
        return done.value


class Plan:
    """A plan for work: an array of problems, or one MoE problem."""

    def __init__(self, nib, shape, work):
        self.nib, self.plan = nib, C.c_void_p()
        self.suffix = "_moe" if shape.op == "moe" else ""
        info = sized(abi.nib_plan_info)
        nib.call("nib_plan_create" + self.suffix, nib.device, OPS[shape.op],
                 *self.arguments(work), None, C.byref(self.plan))
        nib.call("nib_plan_get_info", self.plan, C.byref(info))
        self.backend = info.backend.decode()
        self.explanation = info.explanation.decode()

    def arguments(self, work):
        return (C.byref(work),) if self.suffix else (work, len(work))

    def run(self, work, stream):
        options = sized(abi.nib_run_options, stream=stream)
        self.nib.call("nib_run" + self.suffix, self.plan,
                      *self.arguments(work), C.byref(options))

    def free(self):
        self.nib.lib.nib_plan_free(self.plan)


# ---- where arrays live -----------------------------------------------------


class TorchSide:
    """Arrays of torch, on its device: "cuda", in dry runs "cpu"."""

    def __init__(self, torch, device, seed):
        self.torch, self.device = torch, device
        torch.manual_seed(seed)
        self.values = torch.tensor(VALUES, device=self.device)
        self.types = {FP16: torch.float16, BF16: torch.bfloat16,
                      FP8: torch.float8_e4m3fn, "fp32": torch.float32,
                      "fp64": torch.float64, "int32": torch.int32,
                      "index": torch.int64}
        self.stack = torch.stack

    def random(self, shape, choices=None):
        n = 256 if choices is None else len(choices)
        x = self.torch.randint(0, n, shape, dtype=self.torch.uint8,
                               device=self.device)
        if choices is None:
            return x
        table = self.torch.tensor(choices, dtype=self.torch.uint8,
                                  device=self.device)
        return table[x.to(self.torch.int32)]

    def array(self, values, kind):
        return self.torch.tensor(values, dtype=self.types[kind],
                                 device=self.device)

    def empty(self, shape):
        return self.torch.full(shape, math.nan, dtype=self.torch.float16,
                               device=self.device)

    def arange(self, n):
        return self.torch.arange(n, device=self.device)

    def cast(self, x, kind):
        return x.to(self.types[kind])

    def pointer(self, x):
        return x.data_ptr()

    def stream(self):
        if self.device == "cpu":
            return None
        return self.torch.cuda.current_stream().cuda_stream

    def silu(self, x):
        return x / (1 + self.torch.exp(-x))

    def largest(self, x):
        return float(x.abs().max())


class NumpySide:
    """The same of numpy, for dry runs."""

    def __init__(self, numpy, seed):
        self.numpy = numpy
        self.rng = numpy.random.default_rng(seed)
        self.values = numpy.array(VALUES, dtype=numpy.float32)
        self.types = {FP16: numpy.float16, "fp32": numpy.float32,
                      "fp64": numpy.float64, "int32": numpy.int32,
                      "index": numpy.int64}
        self.stack = numpy.stack
        self.arange = numpy.arange

    def random(self, shape, choices=None):
        if choices is None:
            choices = range(256)
        return self.rng.choice(self.numpy.array(choices, self.numpy.uint8),
                               shape)

    def array(self, values, kind):
        return self.numpy.array(values, dtype=self.types[kind])

    def empty(self, shape):
        return self.numpy.full(shape, math.nan, dtype=self.numpy.float16)

    def cast(self, x, kind):
        return x.astype(self.types[kind])

    def pointer(self, x):
        return x.ctypes.data

    def stream(self):
        return None

    def silu(self, x):
        return x / (1 + self.numpy.exp(-x))

    def largest(self, x):
        return float(abs(x).max())


# ---- operands --------------------------------------------------------------


class Matrices:
    """A stack [batch, rows, k] of NVFP4 matrices."""

    def __init__(self, side, rows, k, batch, layout):
        self.side, self.rows, self.k, self.batch = side, rows, k, batch
        self.layout = layout
        groups = k // 16
        if layout == "tiled":
            self.each = (rows + 127) // 128 * ((groups + 3) // 4) * 512
        else:
            self.each = rows * groups
        self.codes = side.random((batch, rows, k // 2))
        self.scales = side.random((batch, self.each), SCALES)

    def view(self, index=None):
        first = 0 if index is None else index
        codes = first * self.rows * self.k // 2
        return abi.nib_nvfp4(
            codes=self.side.pointer(self.codes) + codes,
            scales=self.side.pointer(self.scales) + first * self.each,
            rows=self.rows, k=self.k,
            batch=self.batch if index is None else 1,
            scale_layout=LAYOUTS[self.layout])

    def floats(self, index, rows=None):
        """[rows, k] of matrix index, fp32; rows: which, None = all."""
        side = self.side
        if rows is None:
            rows = side.arange(self.rows)
        codes = side.cast(self.codes[index][rows], "index")
        values = side.values[side.stack((codes & 15, codes >> 4), -1)]
        groups = self.k // 16
        r, g = rows[:, None], side.arange(groups)[None, :]
        at = r * groups + g
        if self.layout == "tiled":
            at = ((r // 128 * ((groups + 3) // 4) + g // 4) * 512 + r % 32 * 16
                  + r % 128 // 32 * 4 + g % 4)
        scales = side.cast(self.scales[index], "fp32")[at] / 8 - 6  # 1 and 2
        return (values.reshape(len(rows), groups, 16)
                * scales[:, :, None]).reshape(len(rows), self.k)


class Operands:
    """One independent set of inputs and outputs of a shape."""

    def __init__(self, side, shape, layout, weights=None):
        self.side, self.shape = side, shape
        ms, n, k, batch = shape.ms, shape.n, shape.k, shape.batch
        if shape.op == "group_gemm":
            self.a = [Matrices(side, m, k, 1, layout) for m in ms]
        else:
            self.a = [Matrices(side, shape.rows, k, batch, layout)]
        matrices = len(ms) if len(ms) > 1 else batch
        self.b = weights or [Matrices(side, n, k, matrices, layout)
                             for _ in range(shape.products)]
        self.c = side.empty((batch, shape.rows, n))
        self.alpha = None
        if shape.op == "dual_gemm":
            self.alpha = side.array([DUAL_ALPHA], "fp32")
        self.starts = [0]
        for m in ms:
            self.starts.append(self.starts[-1] + m)
        self.offsets = side.array(self.starts, "int32")
        self.work = self.moe() if shape.op == "moe" else self.problems()

    def result(self, first, rows, batch):
        at = self.side.pointer(self.c) + first * self.shape.n * 2
        return abi.nib_dense(data=at, dtype=abi.NIB_FP16, rows=rows,
                             cols=self.shape.n, batch=batch)

    def moe(self):
        return abi.nib_moe_problem(
            a=self.a[0].view(), b=self.b[0].view(),
            c=self.result(0, self.shape.rows, 1),
            row_offsets=self.side.pointer(self.offsets))

    def problems(self):
        count = len(self.a)
        work = (abi.nib_problem * count)()
        for i, p in enumerate(work):
            p.a = self.a[i].view()
            p.b = self.b[0].view(i if count > 1 else None)
            if len(self.b) > 1:
                p.b2 = self.b[1].view()
                p.alpha = p.alpha2 = self.side.pointer(self.alpha)
            p.c = self.result(self.starts[i], p.a.rows, self.shape.batch)
        return work

    # What baselines multiply, in float types, matrix by matrix.

    def activations(self, kind):
        return [self.side.cast(a.floats(i), kind)
                for a in self.a for i in range(a.batch)]

    def weights(self, kind, which=0):
        b = self.b[which]
        return [self.side.cast(b.floats(i), kind) for i in range(b.batch)]

    # The reference.

    def sample(self):
        """(row of c, matrix of b, matrix of a, row of it) of a few rows."""
        shape = self.shape
        if shape.op == "gemv":
            return [(0, i, i, 0) for i in range(shape.batch)][:CHECKED_ROWS]
        last = shape.rows - 1
        picked = sorted({last * i // (CHECKED_ROWS - 1)
                         for i in range(CHECKED_ROWS)})
        out = []
        for row in picked:
            i = max(j for j, s in enumerate(self.starts[:-1]) if s <= row)
            if shape.op == "group_gemm":
                out.append((row, i, i, row - self.starts[i]))
            else:
                out.append((row, i if shape.op == "moe" else 0, 0, row))
        return out

    def want(self):
        """[(batch, row of c, exact, sum of magnitudes)] of the sample."""
        side, out = self.side, []
        for row, b, a, a_row in self.sample():
            which = a if self.shape.op == "group_gemm" else 0
            matrix = a if self.shape.op == "gemv" else 0
            x = side.cast(self.a[which].floats(
                matrix, side.array([a_row], "index")), "fp64")
            sums = [side.cast(w.floats(b), "fp64") @ x[0] for w in self.b]
            size = abs(side.cast(self.b[0].floats(b), "fp64")) @ abs(x[0])
            exact = sums[0]
            if len(sums) > 1:
                g, u = sums[0] * DUAL_ALPHA, sums[1] * DUAL_ALPHA
                exact = side.silu(g) * u
                size = abs(exact) + side.largest(exact)
            out.append((matrix if self.shape.op == "gemv" else 0, row, exact,
                        size))
        return out

    def error(self, want, result):
        """Worst |difference| over the sum of magnitudes; result(batch, row)."""
        side = self.side
        return max(side.largest((side.cast(result(batch, row), "fp64") - exact)
                                / size)
                   for batch, row, exact, size in want)

    def is_close(self, want, result):
        """rtol = 1e-3, atol = 1e-3 of the row's largest."""
        side = self.side
        for batch, row, exact, _ in want:
            got = side.cast(result(batch, row), "fp64")
            most = side.largest(exact)
            excess = side.largest((got - exact)
                                  / (1e-3 * abs(exact) + 1e-3 * most))
            if not excess <= 1:
                return False
        return True
