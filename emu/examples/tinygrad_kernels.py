#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tinygrad on the software GPU, without a GPU or a CUDA driver.

    pip install tinygrad numpy
    nibemu run --device h200 python3 tinygrad_kernels.py [KERNEL ...]
    nibemu run python3 tinygrad_kernels.py race     # a barrier is taken out of the PTX

Nothing is changed: tinygrad calls the driver API and writes PTX itself (DEV=CUDA:PTX),
or C++ for NVRTC if that is installed (DEV=CUDA).  Each result is compared with numpy;
the exit status is 0 if all are right.
"""

import os
import sys

os.environ.setdefault("DEV", "CUDA:PTX")
os.environ["CACHELEVEL"] = "0"  # no kernels of other runs

import numpy as np  # noqa: E402
from tinygrad import Tensor, TinyJit  # noqa: E402

RNG = np.random.default_rng(1)
KERNELS = {}


def kernel(run):
    """Registers a function that launches kernels and returns (result, reference)."""
    KERNELS[run.__name__] = run
    return run


@kernel
def add():
    x, y = RNG.random((2, 1000), np.float32)
    return (Tensor(x) + Tensor(y)).numpy(), x + y


@kernel
def total():
    """Threads of a block add their parts in shared memory, after a barrier."""
    x = RNG.random((512, 64), np.float32)
    return Tensor(x).sum().numpy(), x.sum()


@kernel
def softmax():
    x = RNG.random((7, 90), np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    return Tensor(x).softmax().numpy(), e / e.sum(1, keepdims=True)


@kernel
def matmul():
    a, b = RNG.random((64, 48), np.float32), RNG.random((48, 96), np.float32)
    return (Tensor(a) @ Tensor(b)).numpy(), a @ b


@kernel
def matmul_half():
    """By tensor cores (mma)."""
    a = RNG.integers(-4, 5, (64, 48)).astype(np.float16)
    b = RNG.integers(-4, 5, (48, 96)).astype(np.float16)
    return (Tensor(a) @ Tensor(b)).numpy(), a @ b


@kernel
def jit():
    """A captured function: its kernels are launched again with other tensors."""

    @TinyJit
    def twice(x):
        return (x * 2 + 1).realize()

    for _ in range(4):
        x = RNG.random(1000, np.float32)
        result = twice(Tensor(x).realize())
    return result.numpy(), x * 2 + 1


def race():
    """total() without its barrier: nibemu replaces it in the PTX."""
    os.environ["NIBEMU_REPLACE"] = "bar.sync\t0;=>"
    return total()


def main():
    names = sys.argv[1:] or list(KERNELS)
    runs = KERNELS | {"race": race}
    wrong = 0
    for name in names:
        result, reference = runs[name]()
        is_right = np.allclose(result, reference, rtol=1e-5)
        wrong += not is_right
        print(f"{name}: {'right' if is_right else 'wrong'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
