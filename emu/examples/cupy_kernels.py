#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CuPy kernels on the software GPU, without a GPU or a CUDA driver.

    pip install cupy-cuda13x nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl
    cupy_runtime.sh python3 ~/cupy_runtime.so
    export CUPY_RUNTIME=~/cupy_runtime.so
    nibemu run --device h200 python3 cupy_kernels.py [KERNEL ...]
    nibemu run python3 cupy_kernels.py race         # a barrier is missing

CuPy's package holds NVIDIA's static runtime library, which requires NVIDIA's driver.
cupy_runtime.sh builds the one module that calls it for all others with the shared one;
`use_shared_runtime()` loads it.  CuPy's own variables do the rest: kernels are compiled
to PTX, and reductions do not use CUB, whose module has the static library too.  Each
kernel is compared with numpy; the exit status is 0 if all are right.
"""

import importlib.util
import inspect
import os
import sys
import tempfile

CACHE = tempfile.TemporaryDirectory(prefix="nibemu-cupy-")
os.environ["CUPY_CACHE_DIR"] = CACHE.name
os.environ["CUPY_COMPILE_WITH_PTX"] = "1"
os.environ["CUPY_ACCELERATORS"] = ""

# ---- CuPy without NVIDIA's static runtime library --------------------------------


class Runtime:
    """Finds CuPy's module of the runtime library in the file CUPY_RUNTIME."""

    NAME = "cupy_backends.cuda.api.runtime"

    def find_spec(self, name, path=None, target=None):
        if name != self.NAME:
            return None
        return importlib.util.spec_from_file_location(name, os.environ["CUPY_RUNTIME"])


def use_shared_runtime():
    """Loads CUPY_RUNTIME before CuPy.  Functions that are missing fail when called."""
    sys.meta_path.insert(0, Runtime())
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_LAZY)
    importlib.import_module(Runtime.NAME)
    sys.setdlopenflags(flags)


use_shared_runtime()

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402

# ---- the kernels --------------------------------------------------------------

THREADS = 256
RNG = np.random.default_rng(1)
KERNELS = {}


def kernel(run):
    """Registers a function that launches a kernel and returns (result, reference)."""
    KERNELS[run.__name__] = run
    return run


@kernel
def arithmetic():
    """Kernels that CuPy writes: one for each operation."""
    x, y = RNG.random((2, 1000), np.float32)
    return (cp.array(x) * 2 + cp.array(y)).get(), x * 2 + y


@kernel
def elementwise():
    squares = cp.ElementwiseKernel(
        "float32 x, float32 y", "float32 z", "z = (x - y) * (x - y)", "squares"
    )
    x, y = RNG.random((2, 1000), np.float32)
    return squares(cp.array(x), cp.array(y)).get(), (x - y) ** 2


@kernel
def reductions():
    x = RNG.random((50, 70), np.float32)
    device = cp.array(x)
    result = [device.sum(), device.max(), device.argmin(), *device.sum(0)]
    reference = [x.sum(), x.max(), x.argmin(), *x.sum(0)]
    return np.array([float(value) for value in result]), reference


@kernel
def softmax():
    """A kernel that CuPy fuses of several operations."""

    @cp.fuse()
    def scaled(x, y):
        return cp.exp(x - y) * 0.5

    x = RNG.random((7, 90), np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    device = cp.array(x)
    result = scaled(device, device.max(1, keepdims=True))
    return (result / result.sum(1, keepdims=True)).get(), e / e.sum(1, keepdims=True)


BLOCK_SUMS = r"""
extern "C" __global__ void block_sums(const float *x, float *out)
{
    __shared__ float part[256];
    const int t = threadIdx.x;

    part[t] = x[blockIdx.x * 256 + t];
    __syncthreads();
    for (int n = 128; n; n /= 2) {
        if (t < n)
            part[t] += part[t + n];
#ifndef RACE
        __syncthreads();
#endif
    }
    if (t == 0)
        out[blockIdx.x] = part[0];
}
"""
BLOCK_SUMS_LINE = inspect.currentframe().f_lineno - 1 - BLOCK_SUMS.count("\n")


def block_sums_of(*options):
    source = f'#line {BLOCK_SUMS_LINE} "{__file__}"\n{BLOCK_SUMS}'
    sums = cp.RawKernel(source, "block_sums", options=("-lineinfo", *options))
    x = RNG.random((8, THREADS), np.float32)
    out = cp.empty(8, np.float32)
    sums((8,), (THREADS,), (cp.array(x), out))
    return out.get(), x.sum(1)


@kernel
def block_sums():
    return block_sums_of()


def main():
    names = sys.argv[1:] or list(KERNELS)
    runs = KERNELS | {"race": lambda: block_sums_of("-DRACE")}
    wrong = 0
    for name in names:
        result, reference = runs[name]()
        is_right = np.allclose(result, reference, rtol=1e-5)
        wrong += not is_right
        print(f"{name}: {'right' if is_right else 'wrong'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
