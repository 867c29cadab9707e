#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Triton kernels on the software GPU, without a GPU, a CUDA driver or torch.

    pip install triton numpy
    nibemu run --device h200 python3 triton_kernels.py [KERNEL ...]

Triton compiles and launches the kernels as for a GPU.  Two things differ: its driver
class does not import torch, and its last compilation step returns the PTX in place of
machine code.  Each kernel is compared with numpy; the exit status is 0 if all are
right.  Copy `Driver` and `Tensor` to test kernels of your own.
"""

import ctypes
import os
import sys
import tempfile

# Compiled kernels hold PTX here, so they must not be mixed with those for a GPU.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
# Older versions of Triton link their launcher with -lcuda.
LIBRARIES = os.environ.get("LD_LIBRARY_PATH", "").split(":")
os.environ["LIBRARY_PATH"] = ":".join(f"{folder}/stubs" for folder in LIBRARIES)
CACHE = tempfile.TemporaryDirectory(prefix="nibemu-triton-")
os.environ["TRITON_CACHE_DIR"] = CACHE.name

import numpy as np  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.backends.nvidia import compiler, driver  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

# ---- Triton without a GPU -----------------------------------------------------


class Driver(driver.CudaDriver):
    """Triton's CUDA driver without torch, for the current context's device."""

    def __init__(self):
        self.utils = driver.CudaUtils()
        self.launcher_cls = driver.CudaLauncher
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        capability = []
        for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
            value = ctypes.c_int()
            self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, 0)
            capability.append(value.value)
        self.capability = tuple(capability)
        self.get_device_capability = lambda device=0: self.capability
        self.get_current_device = lambda: 0
        self.set_current_device = lambda device: None
        self.get_current_stream = lambda device=0: 0

    def call(self, name, *arguments):
        """Calls a function of the driver API."""
        status = getattr(self.cuda, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(status, ctypes.byref(text))
            raise RuntimeError(f"{name}: error {status}: {text.value.decode()}")

    def get_current_target(self):
        return GPUTarget("cuda", 10 * self.capability[0] + self.capability[1], 32)


def use_software_gpu():
    """Makes Triton compile to PTX and launch it by libcuda.so.1."""

    def keep_ptx(self, source, metadata, options, capability):
        return source.encode()

    compiler.CUDABackend.make_cubin = keep_ptx
    triton.runtime.driver.set_active(Driver())
    triton.set_allocator(lambda bytes_, alignment, stream: Tensor.empty(bytes_, "i8"))
    return triton.runtime.driver.active


class Dtype:
    """A type of elements, by Triton's name."""

    BYTES = {"i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "fp16": 2, "bf16": 2,
             "fp32": 4, "fp8e4nv": 1}  # fmt: skip

    def __init__(self, name):
        self.name, self.itemsize = name, self.BYTES[name]
        self.is_floating_point = name[0] != "i" and name[0] != "u"

    def __str__(self):
        return self.name

    def __eq__(self, other):
        return str(self) == str(other)

    def __hash__(self):
        return hash(self.name)


NAMES = {"int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16",
         "int32": "i32", "float16": "fp16", "float32": "fp32"}  # fmt: skip


class Tensor:
    """Device memory with what Triton reads of a tensor: data_ptr(), dtype, shape."""

    def __init__(self, array, dtype=None):
        array = np.ascontiguousarray(array)
        self.shape, self.numpy_type = list(array.shape), array.dtype
        self.dtype = Dtype(dtype or NAMES[array.dtype.name])
        self.bytes = array.nbytes
        self.pointer = ctypes.c_uint64()
        self.driver = triton.runtime.driver.active
        self.driver.call(
            "cuMemAlloc_v2", ctypes.byref(self.pointer), ctypes.c_size_t(array.nbytes)
        )
        self.copy_from(array)

    @classmethod
    def empty(cls, count, dtype):
        """Zeros of a type that numpy has."""
        name = {ours: theirs for theirs, ours in NAMES.items()}[dtype]
        return cls(np.zeros(count, name))

    def copy_from(self, array):
        """Copies all elements to the device."""
        self.driver.call(
            "cuMemcpyHtoD_v2", self.pointer, ctypes.c_void_p(array.ctypes.data),
            ctypes.c_size_t(self.bytes),
        )  # fmt: skip

    def __del__(self):
        self.driver.cuda.cuMemFree_v2(self.pointer)

    def data_ptr(self):
        return self.pointer.value

    def stride(self, axis=None):
        strides = [int(np.prod(self.shape[i + 1 :])) for i in range(len(self.shape))]
        return strides if axis is None else strides[axis]

    def numpy(self):
        """All elements, after the kernels that were launched."""
        array = np.empty(self.shape, self.numpy_type)
        self.driver.call(
            "cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), self.pointer,
            ctypes.c_size_t(self.bytes),
        )  # fmt: skip
        return array


# ---- the kernels --------------------------------------------------------------

RNG = np.random.default_rng(1)
KERNELS = {}


def kernel(run):
    """Registers a function that launches a kernel and returns (result, reference,
    relative tolerance)."""
    KERNELS[run.__name__] = run
    return run


def normal(*shape, dtype=np.float32):
    """Random values of a normal distribution."""
    return RNG.standard_normal(shape).astype(dtype)


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask) + tl.load(y + at, mask), mask)


@kernel
def add():
    x, y = normal(1000), normal(1000)
    out = Tensor(np.zeros_like(x))
    add_kernel[(4,)](Tensor(x), Tensor(y), out, 1000, BLOCK=256)
    return out.numpy(), x + y, 0


@triton.jit
def softmax_kernel(x, out, stride, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + at, at < n, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * stride + at, value / tl.sum(value, 0), at < n)


@kernel
def softmax():
    x = normal(7, 781)
    out = Tensor(np.zeros_like(x))
    softmax_kernel[(7,)](Tensor(x), out, 781, 781, BLOCK=1024)
    e = np.exp(x - x.max(1, keepdims=True))
    return out.numpy(), e / e.sum(1, keepdims=True), 1e-5


@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr,
                  BK: tl.constexpr):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a += (rows % M)[:, None] * K + k[None, :]
    b += k[:, None] * N + (columns % N)[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for at in range(0, K, BK):
        left = tl.load(a, k[None, :] < K - at, other=0.0)
        right = tl.load(b, k[:, None] < K - at, other=0.0)
        total = tl.dot(left, right, total)
        a += BK
        b += BK * N
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16), mask)


@kernel
def matmul():
    a, b = normal(200, 160, dtype=np.float16), normal(160, 144, dtype=np.float16)
    c = Tensor(np.zeros((200, 144), np.float16))
    matmul_kernel[(2, 2)](
        Tensor(a), Tensor(b), c, 200, 144, 160, BM=128, BN=128, BK=64, num_stages=3
    )
    return c.numpy(), a.astype(np.float32) @ b.astype(np.float32), 2e-3


@triton.jit
def matmul_tma_kernel(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr,
                      BK: tl.constexpr):  # fmt: skip
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for at in range(0, K, BK):
        total = tl.dot(a.load([row, at]), b.load([column, at]).T, total)
    c.store([row, column], total.to(tl.float16))


def matmul_tma_of(num_warps, bm):
    """A product by descriptors that the host makes, with B transposed."""
    a, b = normal(256, 192, dtype=np.float16), normal(128, 192, dtype=np.float16)
    c = Tensor(np.zeros((256, 128), np.float16))
    matmul_tma_kernel[(256 // bm, 1)](
        TensorDescriptor.from_tensor(Tensor(a), [bm, 64]),
        TensorDescriptor.from_tensor(Tensor(b), [128, 64]),
        TensorDescriptor.from_tensor(c, [bm, 128]),
        192, BM=bm, BN=128, BK=64, num_stages=3, num_warps=num_warps,
    )  # fmt: skip
    return c.numpy(), a.astype(np.float32) @ b.T.astype(np.float32), 2e-3


@kernel
def matmul_tma():
    return matmul_tma_of(4, 64)


@kernel
def matmul_tma_wide():
    return matmul_tma_of(8, 128)


@triton.jit
def matmul_device_tma_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr,
                             BK: tl.constexpr, SPECIAL: tl.constexpr):  # fmt: skip
    a = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    c = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    columns = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * columns
    for tile in tl.range(
        tl.program_id(0), tiles, tl.num_programs(0), warp_specialize=SPECIAL
    ):
        row, column = tile // columns * BM, tile % columns * BN
        total = tl.zeros((BM, BN), tl.float32)
        for at in range(0, K, BK):
            total = tl.dot(a.load([row, at]), b.load([column, at]).T, total)
        c.store([row, column], total.to(tl.float16))


def matmul_device_tma_of(special):
    """A persistent product by descriptors that the kernel makes."""
    a, b = normal(256, 192, dtype=np.float16), normal(256, 192, dtype=np.float16)
    c = Tensor(np.zeros((256, 256), np.float16))
    matmul_device_tma_kernel[(2,)](
        Tensor(a), Tensor(b), c, 256, 256, 192, BM=128, BN=128, BK=64,
        SPECIAL=special, num_stages=2, num_warps=4,
    )  # fmt: skip
    return c.numpy(), a.astype(np.float32) @ b.T.astype(np.float32), 2e-3


@kernel
def matmul_device_tma():
    return matmul_device_tma_of(False)


@kernel
def matmul_specialised():
    return matmul_device_tma_of(True)


@triton.jit
def matmul_typed_kernel(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr,
                        BK: tl.constexpr, TOTAL: tl.constexpr):  # fmt: skip
    rows, columns, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), TOTAL)
    for at in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + (at + k)[None, :])
        right = tl.load(b + columns[None, :] * K + (at + k)[:, None])
        total = tl.dot(left, right, total, out_dtype=TOTAL)
    tl.store(c + rows[:, None] * BN + columns[None, :], total)


@kernel
def matmul_int8():
    a = RNG.integers(-128, 128, (64, 128)).astype(np.int8)
    b = RNG.integers(-128, 128, (64, 128)).astype(np.int8)
    c = Tensor(np.zeros((64, 64), np.int32))
    matmul_typed_kernel[(1,)](
        Tensor(a), Tensor(b), c, 128, BM=64, BN=64, BK=64, TOTAL=tl.int32
    )
    return c.numpy(), a.astype(np.int32) @ b.T.astype(np.int32), 0


def e4m3(codes):
    """The values of e4m3 codes."""
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    value = np.where(
        exponent, (8 + mantissa) * 2.0 ** (exponent - 10.0), mantissa * 2.0**-9
    )
    return (sign * value).astype(np.float32)


@kernel
def matmul_fp8():
    a, b = (RNG.integers(0, 0x40, (64, 128)) | RNG.integers(0, 2, (64, 128)) * 0x80
            for _ in range(2))  # fmt: skip
    c = Tensor(np.zeros((64, 64), np.float32))
    matmul_typed_kernel[(1,)](
        Tensor(a.astype(np.uint8), "fp8e4nv"), Tensor(b.astype(np.uint8), "fp8e4nv"),
        c, 128, BM=64, BN=64, BK=64, TOTAL=tl.float32,
    )  # fmt: skip
    return c.numpy(), e4m3(a) @ e4m3(b).T, 2e-3


@triton.jit
def matmul_fp4_kernel(a, a_scale, b, b_scale, c, K: tl.constexpr, GROUP: tl.constexpr,
                      BM: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    k, scale = tl.arange(0, K // 2), tl.arange(0, K // GROUP)
    left = tl.load(a + rows[:, None] * (K // 2) + k[None, :])
    right = tl.load(b + columns[None, :] * (K // 2) + k[:, None])
    left_scale = tl.load(a_scale + rows[:, None] * (K // GROUP) + scale[None, :])
    right_scale = tl.load(b_scale + columns[:, None] * (K // GROUP) + scale[None, :])
    total = tl.dot_scaled(left, left_scale, "e2m1", right, right_scale, "e2m1")
    tl.store(c + rows[:, None] * BN + columns[None, :], total)


def fp4(rows, k, group):
    """Random e2m1 codes, scales of groups, and the values of both."""
    codes = RNG.integers(0, 16, (rows, k))
    if group == 32:
        scales = RNG.integers(124, 130, (rows, k // group))
        factors, name = 2.0 ** (scales - 127), "u8"
    else:
        scales = RNG.integers(0x20, 0x48, (rows, k // group))
        factors, name = e4m3(scales), "fp8e4nv"
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    values = np.where(codes & 8, -1, 1) * table[codes & 7]
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)
    return (
        Tensor(packed),
        Tensor(scales.astype(np.uint8), name),
        values * np.repeat(factors, group, 1),
    )


@kernel
def matmul_mxfp4():
    a, a_scale, a_value = fp4(128, 128, 32)
    b, b_scale, b_value = fp4(128, 128, 32)
    c = Tensor(np.zeros((128, 128), np.float32))
    matmul_fp4_kernel[(1,)](a, a_scale, b, b_scale, c, K=128, GROUP=32, BM=128, BN=128)
    return c.numpy(), a_value @ b_value.T, 1e-5


@kernel
def matmul_nvfp4():
    """The same kernel with e4m3 scales of 16 values."""
    a, a_scale, a_value = fp4(128, 128, 16)
    b, b_scale, b_value = fp4(128, 128, 16)
    c = Tensor(np.zeros((128, 128), np.float32))
    matmul_fp4_kernel[(1,)](a, a_scale, b, b_scale, c, K=128, GROUP=16, BM=128, BN=128)
    return c.numpy(), a_value @ b_value.T, 1e-5


@triton.jit
def layer_norm_kernel(x, weight, bias, out, mean_out, n, epsilon, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, at < n, other=0.0).to(tl.float32)
    mean = tl.sum(value, 0) / n
    centred = tl.where(at < n, value - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / n + epsilon)
    tl.store(mean_out + row, mean)
    result = centred * scale * tl.load(weight + at, at < n) + tl.load(bias + at, at < n)
    tl.store(out + row * n + at, result, at < n)


@kernel
def layer_norm():
    x, weight, bias = normal(5, 500), normal(500), normal(500)
    out, mean = Tensor(np.zeros_like(x)), Tensor(np.zeros(5, np.float32))
    layer_norm_kernel[(5,)](
        Tensor(x), Tensor(weight), Tensor(bias), out, mean, 500, 1e-5, BLOCK=512
    )
    centred = x - x.mean(1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    want = np.append(centred * scale * weight + bias, x.mean(1))
    return np.append(out.numpy(), mean.numpy()), want, 1e-4


@triton.jit
def attention_kernel(q, k, v, out, n, scale, D: tl.constexpr, BM: tl.constexpr,
                     BN: tl.constexpr):  # fmt: skip
    head = tl.program_id(1) * n * D
    rows, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    query = tl.load(q + head + rows[:, None] * D + d[None, :])
    most = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    sums = tl.zeros((BM, D), tl.float32)
    for begin in range(0, (tl.program_id(0) + 1) * BM, BN):
        at = begin + tl.arange(0, BN)
        key = tl.load(k + head + at[None, :] * D + d[:, None])
        score = tl.dot(query, key) * scale
        score = tl.where(at[None, :] <= rows[:, None], score, -float("inf"))
        new_most = tl.maximum(most, tl.max(score, 1))
        p = tl.exp2(score - new_most[:, None])
        factor = tl.exp2(most - new_most)
        total = total * factor + tl.sum(p, 1)
        value = tl.load(v + head + at[:, None] * D + d[None, :])
        sums = tl.dot(p.to(tl.float16), value, sums * factor[:, None])
        most = new_most
    tl.store(
        out + head + rows[:, None] * D + d[None, :],
        (sums / total[:, None]).to(tl.float16),
    )


@kernel
def attention():
    q, k, v = (normal(2, 128, 64, dtype=np.float16) for _ in range(3))
    out = Tensor(np.zeros_like(q))
    attention_kernel[(2, 2)](
        Tensor(q), Tensor(k), Tensor(v), out, 128, 0.125 * 1.4426950408889634,
        D=64, BM=64, BN=64, num_stages=2,
    )  # fmt: skip
    score = q.astype(np.float32) @ k.astype(np.float32).transpose(0, 2, 1) * 0.125
    score = np.where(np.tri(128, dtype=bool), score, -np.inf)
    p = np.exp(score - score.max(2, keepdims=True))
    return out.numpy(), p / p.sum(2, keepdims=True) @ v.astype(np.float32), 4e-3


@triton.jit
def atomics_kernel(x, counts, total, most, lock, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n, other=0)
    tl.atomic_add(counts + value, 1, at < n)
    tl.atomic_max(most, tl.max(value, 0))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + tl.sum(value, 0))
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@kernel
def atomics():
    x = RNG.integers(0, 64, 1000).astype(np.int32)
    counts, total, most, lock = (Tensor.empty(n, "i32") for n in (64, 1, 1, 1))
    atomics_kernel[(8,)](Tensor(x), counts, total, most, lock, 1000, BLOCK=128)
    got = np.concatenate([t.numpy() for t in (counts, total, most)])
    return got, np.append(np.bincount(x, minlength=64), [x.sum(), x.max()]), 0


@triton.jit
def scan_kernel(x, out, best, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, at < n, other=0.0)
    tl.store(out + row * n + at, tl.cumsum(value, 0), at < n)
    tl.store(best + row, tl.argmax(value, 0))


@kernel
def scan():
    x = np.abs(normal(4, 1000))
    out, best = Tensor(np.zeros_like(x)), Tensor.empty(4, "i32")
    scan_kernel[(4,)](Tensor(x), out, best, 1000, BLOCK=1024)
    want = np.append(np.cumsum(x, 1, dtype=np.float64), x.argmax(1))
    return np.append(out.numpy(), best.numpy()), want, 1e-5


@triton.jit
def sort_kernel(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@kernel
def sort():
    x = RNG.integers(0, 60000, 512).astype(np.uint16)
    out = Tensor(np.zeros_like(x))
    sort_kernel[(1,)](Tensor(x), out, BLOCK=512)
    return out.numpy(), np.sort(x), 0


@triton.jit
def topk_kernel(x, out, BLOCK: tl.constexpr, K: tl.constexpr):
    tl.store(out + tl.arange(0, K), tl.topk(tl.load(x + tl.arange(0, BLOCK)), K))


@kernel
def topk():
    x = normal(256)
    out = Tensor(np.zeros(8, np.float32))
    topk_kernel[(1,)](Tensor(x), out, BLOCK=256, K=8)
    return out.numpy(), np.sort(x)[:-9:-1], 0


@triton.jit
def dropout_kernel(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, at) > p
    value = tl.load(x + at, at < n, other=0.0)
    tl.store(out + at, tl.where(keep, value / (1 - p), 0.0), at < n)


@kernel
def dropout():
    x = np.ones(4000, np.float32)
    out = Tensor(np.zeros_like(x))
    dropout_kernel[(4,)](Tensor(x), out, 4000, 0.25, 7, BLOCK=1024)
    got = out.numpy()
    values = np.unique(got)
    return np.append(values, got.mean()), [0, 1 / 0.75, 1], 0.05


# ---- main ---------------------------------------------------------------------


def is_right(got, want, tolerance):
    """Compares with the largest absolute value of the reference as the scale."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    scale = max(np.abs(want).max(), 1)
    return got.shape == want.shape and np.abs(got - want).max() <= tolerance * scale


def main(names):
    use_software_gpu()
    names = names or list(KERNELS)
    right = 0
    for name in names:
        good = is_right(*KERNELS[name]())
        print(f"{name}: {'right' if good else 'wrong'}", flush=True)
        right += good
    print(f"{right} of {len(names)} kernels right")
    return 0 if right == len(names) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
