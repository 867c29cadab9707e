# SPDX-License-Identifier: Apache-2.0
"""gpu_operands.py - what gpu_baselines.py multiplies: the shapes of nib's presets,
libnibblas through ctypes, and random NVFP4 operands as arrays of torch or numpy."""

import ctypes as C
import importlib.util
import itertools
import json
import math
import os
import subprocess
import sys
from typing import NamedTuple

FP8, FP16, BF16 = "fp8", "fp16", "bf16"
NVFP4 = "nvfp4"
ACTIVATIONS = {NVFP4: 9 / 16, FP16: 2, BF16: 2}  # bytes of a value of A
VALUES = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
# e4m3 of 1/8 to 3.75, so that sums of 16384 products fit fp16.
SCALES = tuple(range(0x20, 0x48))
DUAL_ALPHA = 2.0 ** -9  # sums of some thousands become some ones
CHECKED_ROWS = 4


def e4m3(byte):
    """The value of a finite positive e4m3."""
    exponent, mantissa = byte >> 3, byte & 7
    return (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa / 512


# ---- shapes ----------------------------------------------------------------


class Shape(NamedTuple):
    """One row.  ms: the rows of each product, of a MoE those of each expert."""

    name: str
    op: str
    ms: list
    n: int
    k: int
    batch: int = 1

    @property
    def rows(self):
        return sum(self.ms)

    @property
    def products(self):
        return 2 if self.op == "dual_gemm" else 1

    def flop(self):
        return 2.0 * self.rows * self.batch * self.n * self.k * self.products

    def bytes(self, activations=NVFP4):
        """Each operand once; experts without rows are not read."""
        weights = self.n * self.products * sum(m > 0 for m in self.ms)
        values = weights * 9 / 16 + self.rows * ACTIVATIONS[activations]
        return (values * self.k + 2.0 * self.rows * self.n) * self.batch

    def text(self):
        """As nib bench writes it."""
        if self.op == "gemv":
            return f"{self.n}x{self.k}x{self.batch}"
        if self.op in ("gemm", "dual_gemm"):
            return f"{self.ms[0]}x{self.n}x{self.k}"
        ms = ",".join(map(str, self.ms[:4]))
        if len(self.ms) > 4:
            rows = f", {self.rows} rows" if self.op == "moe" else ""
            ms += f",...({len(self.ms)}{rows})"
        return f"m={ms} n={self.n} k={self.k}"

    def shrunk(self):
        """The same kind, small enough for a dry run."""
        ms = self.ms if self.op == "gemv" else [m % 37 + 1 for m in self.ms[:5]]
        return self._replace(ms=ms, n=96 + self.n % 96,
                             k=16 * (3 + self.k // 16 % 7),
                             batch=min(self.batch, 2))


# The presets of `nib plan` that make one of ours, and the letters of the rows kept.
PRESETS = {"seeds": (["seeds", "balanced", "decode"], "GMDVES"),
           "decode": (["decode"], "ABCS"), "experts": (["experts"], "PQRT"),
           "prefill": (["prefill"], "KL"), "ampere": (["ampere"], "IJPQ")}


def find_nib(library):
    """The program nib: $NIB, else in the folder of the library, else in PATH."""
    near = os.path.join(os.path.dirname(os.path.abspath(library)), "nib")
    return os.environ.get("NIB") or (near if os.path.exists(near) else "nib")


def nib_rows(nib, *args):
    """The rows of a command of nib."""
    try:
        done = subprocess.run([nib, *args, "--quiet", "--format", "json"],
                              capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        why = getattr(problem, "stderr", None) or problem
        sys.exit(f"{nib} {args[0]}: {why}\nShapes come from nib: set NIB=PROGRAM")
    return json.loads(done.stdout)


def shapes_of(nib, preset):
    """The shapes of one of PRESETS, ordered by letter."""
    presets, letters = PRESETS[preset]
    rows = nib_rows(nib, "plan", "--device", "cpu", "--gflops", "1", "--gbps", "1",
                    *[f"--preset={name}" for name in presets])
    shapes = [Shape(row["name"], row["op"], [m for m, _, _ in row["sizes"]],
                    *row["sizes"][0][1:], row["batch"])
              for row in rows if row["name"][0] in letters]
    return sorted(shapes, key=lambda shape: letters.index(shape.name[0]))


def row_keys(nib):
    """The keys of a row of nib bench, in its order."""
    return list(nib_rows(nib, "bench", "--op", "gemm", "--shape", "1x1x16",
                         "--min-time", "0", "--samples", "1", "--threads", "1")[0])


SWEEP = [Shape(f"W{m}", "gemm", [m], 4096, 7168)
         for m in [*range(1, 65), *range(72, 513, 8)]]

# ---- libnibblas ------------------------------------------------------------


def load_abi():
    """The header's types: _abi.py next to this script, else the package's own."""
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
DTYPES = {FP16: abi.NIB_DTYPE_FP16, BF16: abi.NIB_DTYPE_BF16}
LAYOUTS = {"linear": abi.NIB_SCALE_LAYOUT_LINEAR,
           "tiled": abi.NIB_SCALE_LAYOUT_TILED_128X4}
OPS = {"gemm": abi.NIB_OP_GEMM, "group_gemm": abi.NIB_OP_GEMM, "moe": abi.NIB_OP_GEMM,
       "dual_gemm": abi.NIB_OP_DUAL_GEMM, "gemv": abi.NIB_OP_GEMV}


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

    def backend(self):
        """The device's: "cpu", "cuda-sm90"."""
        info = sized(abi.nib_device_info)
        self.call("nib_device_get_info", self.device, C.byref(info))
        return info.backend.decode()

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
        self.prefix = "nib_moe_" if shape.op == "moe" else "nib_"
        info = sized(abi.nib_plan_info)
        nib.call(self.prefix + "plan_create", nib.device, OPS[shape.op],
                 *self.arguments(work), None, C.byref(self.plan))
        nib.call("nib_plan_get_info", self.plan, C.byref(info))
        self.backend = info.backend.decode()
        self.explanation = info.explanation.decode()

    def arguments(self, work):
        return (C.byref(work),) if self.prefix == "nib_moe_" else (work, len(work))

    def run(self, work, stream):
        options = sized(abi.nib_run_options, stream=stream)
        self.nib.call(self.prefix + "run", self.plan,
                      *self.arguments(work), C.byref(options))

    def free(self):
        self.nib.lib.nib_plan_free(self.plan)


# ---- where arrays live -----------------------------------------------------


class Arrays:
    """Arrays of torch on a device, or in dry runs of numpy: mostly by the names that
    both have."""

    TYPES = {FP8: "float8_e4m3fn", FP16: "float16", BF16: "bfloat16",
             "fp32": "float32", "fp64": "float64", "int32": "int32",
             "index": "int64", "byte": "uint8"}

    def __init__(self, module, device, seed):
        self.module, self.device = module, device
        self.is_torch = module.__name__ == "torch"
        self.place = {"device": device} if self.is_torch else {}
        if self.is_torch:
            module.manual_seed(seed)
        else:
            self.numbers = module.random.default_rng(seed)
        self.stack = module.stack
        self.values = self.array(VALUES, "fp32")
        self.scales = self.array([e4m3(i) for i in range(127)], "fp32")

    def type(self, kind):
        return getattr(self.module, self.TYPES[kind])

    def array(self, values, kind):
        return self.module.asarray(values, dtype=self.type(kind), **self.place)

    def random(self, shape, choices=range(256)):
        """Bytes, each one of choices."""
        n, byte = len(choices), self.type("byte")
        if self.is_torch:
            x = self.module.randint(0, n, shape, dtype=byte, **self.place)
        else:
            x = self.numbers.integers(0, n, shape, dtype=byte)
        if n == 256:
            return x
        return self.array(choices, "byte")[self.cast(x, "int32")]

    def empty(self, shape):
        return self.module.full(shape, math.nan, dtype=self.type(FP16),
                                **self.place)

    def arange(self, n):
        return self.module.arange(n, **self.place)

    def cast(self, x, kind):
        return (x.to if self.is_torch else x.astype)(self.type(kind))

    def halves(self, x, kind):
        """fp32 x as fp16 or bf16, which hold its values exactly."""
        if kind == BF16 and not self.is_torch:
            return (x.view("uint32") >> 16).astype("uint16")
        return self.cast(x, kind)

    def pointer(self, x):
        return x.data_ptr() if self.is_torch else x.ctypes.data

    def stream(self):
        if self.device == "cpu":
            return None
        return self.module.cuda.current_stream().cuda_stream

    def silu(self, x):
        return x / (1 + self.module.exp(-x))

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

    def view(self, first=0, batch=None):
        """batch matrices from first on; None = all."""
        return abi.nib_fp4(
            codes=(self.side.pointer(self.codes)
                   + first * self.rows * self.k // 2),
            scales=self.side.pointer(self.scales) + first * self.each,
            rows=self.rows, k=self.k, batch=batch or self.batch,
            scale_layout=LAYOUTS[self.layout])

    def scale_bytes(self, index, rows=None):
        """[rows, k / 16] scales of matrix index; rows: which, None = all."""
        if rows is None:
            rows = self.side.arange(self.rows)
        groups = self.k // 16
        r, g = rows[:, None], self.side.arange(groups)[None, :]
        at = r * groups + g
        if self.layout == "tiled":
            at = ((r // 128 * ((groups + 3) // 4) + g // 4) * 512 + r % 32 * 16
                  + r % 128 // 32 * 4 + g % 4)
        return self.scales[index][at]

    def floats(self, index, rows=None):
        """[rows, k] of matrix index, fp32; rows: which, None = all."""
        side = self.side
        if rows is None:
            rows = side.arange(self.rows)
        codes = side.cast(self.codes[index][rows], "index")
        values = side.values[side.stack((codes & 15, codes >> 4), -1)]
        scales = side.scales[side.cast(self.scale_bytes(index, rows), "index")]
        return (values.reshape(len(rows), self.k // 16, 16)
                * scales[:, :, None]).reshape(len(rows), self.k)


class Operands:
    """One independent set of inputs and outputs of a shape.  works: the arguments of
    nib_run() for each kind of activations, with the same values.  nib: the library
    that packs the weights; None leaves them as views."""

    def __init__(self, side, shape, layout, weights=None, kinds=(NVFP4,),
                 nib=None):
        self.side, self.shape, self.nib = side, shape, nib
        self.packs = []
        ms, n, k, batch = shape.ms, shape.n, shape.k, shape.batch
        if shape.op == "group_gemm":
            self.a = [Matrices(side, m, k, 1, layout) for m in ms]
        else:
            self.a = [Matrices(side, shape.rows, k, batch, layout)]
        matrices = len(ms) if len(ms) > 1 else batch
        self.b = weights or [Matrices(side, n, k, matrices, layout)
                             for _ in range(shape.products)]
        self.c = side.empty((batch, shape.rows, n))
        self.alpha = side.array([DUAL_ALPHA], "fp32")
        self.starts = [0, *itertools.accumulate(ms)]
        self.offsets = side.array(self.starts, "int32")
        self.b_fields = [self.weights_of(b) for b in self.b]
        self.x, self.works = {}, {}
        for kind in kinds:
            if kind != NVFP4:
                self.x[kind] = [side.halves(side.stack(
                    [a.floats(i) for i in range(a.batch)]), kind)
                                for a in self.a]
            self.works[kind] = (self.moe(kind) if shape.op == "moe"
                                else self.problems(kind))

    def weights_of(self, b):
        """For each product of a group, else for all, the view or the pack of b."""
        views = ([b.view(i, 1) for i in range(len(self.a))] if len(self.a) > 1
                 else [b.view()])
        if not self.nib:
            return [("", view) for view in views]
        fields = []
        for view in views:
            packed = C.c_void_p()
            self.nib.call("nib_pack", self.nib.device, C.byref(view),
                          None, C.byref(packed))
            self.packs.append(packed)
            fields.append(("_packed", packed))
        return fields

    def free(self):
        """Frees the packed weights; works must not run any more."""
        for packed in self.packs:
            self.nib.lib.nib_packed_free(packed)
        self.packs, self.works = [], {}

    def set_operands(self, problem, kind, i):
        """Sets A and the weights of product i."""
        a = self.a[i]
        if kind == NVFP4:
            problem.a = a.view()
        else:
            problem.activations = abi.NIB_ACTIVATIONS_DENSE
            problem.x = abi.nib_dense(
                data=self.side.pointer(self.x[kind][i]), rows=a.rows,
                cols=a.k, batch=a.batch, dtype=DTYPES[kind])
        for name, fields in zip(("b", "b2"), self.b_fields):
            suffix, value = fields[i]
            setattr(problem, name + suffix, value)

    def result(self, first, rows, batch):
        at = self.side.pointer(self.c) + first * self.shape.n * 2
        return abi.nib_dense(data=at, dtype=abi.NIB_DTYPE_FP16, rows=rows,
                             cols=self.shape.n, batch=batch)

    def moe(self, kind):
        work = abi.nib_moe_problem(
            problem=abi.nib_problem(c=self.result(0, self.shape.rows, 1)),
            row_offsets=self.side.pointer(self.offsets))
        self.set_operands(work.problem, kind, 0)
        return work

    def problems(self, kind):
        work = (abi.nib_problem * len(self.a))()
        for i, p in enumerate(work):
            self.set_operands(p, kind, i)
            if len(self.b) > 1:
                p.alpha = p.alpha2 = self.side.pointer(self.alpha)
            p.c = self.result(self.starts[i], self.a[i].rows,
                              self.shape.batch)
        return work

    # What baselines multiply, in float types, matrix by matrix.

    def activations(self, kind):
        return [self.side.cast(a.floats(i), kind)
                for a in self.a for i in range(a.batch)]

    def weights(self, kind, which=0):
        b = self.b[which]
        return [self.side.cast(b.floats(i), kind) for i in range(b.batch)]

    # The reference.

    def rows(self):
        """Every row of c: (batch and row of c, matrices of A, which of them and
        which row, matrix of B)."""
        if self.shape.op == "gemv":
            return [(i, 0, self.a[0], i, 0, i) for i in range(self.shape.batch)]
        rows = [(product, row) for product, m in enumerate(self.shape.ms)
                for row in range(m)]
        if self.shape.op == "group_gemm":
            return [(0, at, self.a[product], 0, row, product)
                    for at, (product, row) in enumerate(rows)]
        return [(0, at, self.a[0], 0, at, product)
                for at, (product, _) in enumerate(rows)]

    def want(self):
        """[(batch, row of c, exact, sum of magnitudes)] of a few rows."""
        side, rows, out = self.side, self.rows(), []
        last = len(rows) - 1
        for at in sorted({last * i // (CHECKED_ROWS - 1)
                          for i in range(CHECKED_ROWS)}):
            batch, row, a, matrix, a_row, b = rows[at]
            x = side.cast(a.floats(matrix, side.array([a_row], "index"))[0],
                          "fp64")
            weights = [side.cast(w.floats(b), "fp64") for w in self.b]
            exact, size = weights[0] @ x, abs(weights[0]) @ abs(x)
            if len(weights) > 1:
                exact = (side.silu(exact * DUAL_ALPHA)
                         * (weights[1] @ x * DUAL_ALPHA))
                size = abs(exact) + side.largest(exact)
            out.append((batch, row, exact, size))
        return out

    def compare(self, want, result, tolerance=1e-3):
        """The worst |difference| over the sum of magnitudes, and whether every row is
        within tolerance of itself plus tolerance of its largest; result(batch, row)."""
        side, errors, is_close = self.side, [], True
        for batch, row, exact, size in want:
            off = side.cast(result(batch, row), "fp64") - exact
            allowed = tolerance * (abs(exact) + side.largest(exact))
            errors.append(side.largest(off / size))
            is_close = is_close and side.largest(off / allowed) <= 1
        return max(errors), is_close
