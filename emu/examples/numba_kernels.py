#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Numba kernels on the software GPU, without a GPU or a CUDA driver.

    pip install 'numba-cuda[cu13]' numpy
    nibemu run --device h200 python3 numba_kernels.py [KERNEL ...]
    nibemu run python3 numba_kernels.py race        # a barrier is missing

Numba compiles and launches the kernels as for a GPU.  One thing differs: its code
library returns the PTX that NVVM made and does not link it to machine code.  Each
kernel is compared with numpy; the exit status is 0 if all are right.
"""

import sys

import numpy as np
from cuda.core import ObjectCode
from numba import cuda, float32, int32
from numba.cuda import codegen
from numba.cuda.core import config

config.CUDA_LOW_OCCUPANCY_WARNINGS = 0


def keep_ptx(self, cc=None):
    """The module of a kernel: its PTX, which needs no other file."""
    if self._linking_files or self.needs_cudadevrt:
        raise NotImplementedError("kernels that are linked with other files")
    (ptx,) = self.get_asm_strs(cc=cc)
    return ObjectCode.from_ptx(ptx.encode())


codegen.CUDACodeLibrary.get_cubin = keep_ptx

# ---- the kernels --------------------------------------------------------------

THREADS = 256
RNG = np.random.default_rng(1)
KERNELS = {}


def kernel(run):
    """Registers a function that launches a kernel and returns (result, reference)."""
    KERNELS[run.__name__] = run
    return run


@cuda.jit(lineinfo=True)
def add_kernel(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


@kernel
def add():
    x, y = RNG.random((2, 1000), np.float32)
    out = cuda.device_array_like(x)
    add_kernel[4, THREADS](cuda.to_device(x), cuda.to_device(y), out)
    return out.copy_to_host(), x + y


def sums_kernel_of(has_barrier):
    """Each block adds its elements in shared memory; false leaves out a barrier."""

    @cuda.jit(lineinfo=True)
    def sums_kernel(x, out):
        part = cuda.shared.array(THREADS, float32)
        t = cuda.threadIdx.x
        part[t] = x[cuda.grid(1)]
        cuda.syncthreads()
        n = THREADS // 2
        while n:
            if t < n:
                part[t] += part[t + n]
            if has_barrier:
                cuda.syncthreads()
            n //= 2
        if t == 0:
            out[cuda.blockIdx.x] = part[0]

    return sums_kernel


def block_sums_of(has_barrier):
    x = RNG.random((8, THREADS), np.float32)
    out = cuda.device_array(8, np.float32)
    sums_kernel_of(has_barrier)[8, THREADS](cuda.to_device(x.ravel()), out)
    return out.copy_to_host(), x.sum(1)


@kernel
def block_sums():
    return block_sums_of(True)


@cuda.jit(lineinfo=True)
def histogram_kernel(x, out):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(out, x[i], 1)


@kernel
def histogram():
    x = RNG.integers(0, 16, 1000).astype(np.int32)
    out = cuda.to_device(np.zeros(16, np.int32))
    histogram_kernel[4, THREADS](cuda.to_device(x), out)
    return out.copy_to_host(), np.bincount(x, minlength=16)


@cuda.jit(lineinfo=True)
def matmul_kernel(a, b, out):
    left = cuda.shared.array((16, 16), float32)
    right = cuda.shared.array((16, 16), float32)
    column, row = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for at in range(0, a.shape[1], 16):
        left[y, x] = a[row, at + x]
        right[y, x] = b[at + y, column]
        cuda.syncthreads()
        for k in range(16):
            total += left[y, k] * right[k, x]
        cuda.syncthreads()
    out[row, column] = total


@kernel
def matmul():
    a, b = RNG.random((32, 48), np.float32), RNG.random((48, 64), np.float32)
    out = cuda.device_array((32, 64), np.float32)
    matmul_kernel[(4, 2), (16, 16)](cuda.to_device(a), cuda.to_device(b), out)
    return out.copy_to_host(), a @ b


@kernel
def reduce():
    """Numba's own reduction, by shuffles and shared memory."""
    x = RNG.integers(-99, 99, 3000).astype(np.int32)
    return cuda.reduce(lambda a, b: a + b)(cuda.to_device(x)), x.sum()


def main():
    names = sys.argv[1:] or list(KERNELS)
    runs = KERNELS | {"race": lambda: block_sums_of(False)}
    wrong = 0
    for name in names:
        result, reference = runs[name]()
        is_right = np.allclose(result, reference, rtol=1e-5)
        wrong += not is_right
        print(f"{name}: {'right' if is_right else 'wrong'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
