#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Warp kernels on the software GPU, without a GPU or a CUDA driver.

    pip install warp-lang numpy
    nibemu run --device h200 python3 warp_kernels.py [KERNEL ...]
    nibemu run python3 warp_kernels.py race         # threads add without atomics

Warp compiles the kernels to PTX and launches them as for a GPU.  Memory differs: Warp
allocates and copies by NVIDIA's runtime library, which is linked into it and requires
NVIDIA's driver.  `use_driver_api()` replaces these calls, and the load of a module, by
those of the driver API.  Each kernel is compared with numpy; the exit status is 0 if
all are right.
"""

import ctypes
import sys
import tempfile

import numpy as np
import warp as wp

CACHE = tempfile.TemporaryDirectory(prefix="nibemu-warp-")
wp.config.kernel_cache_dir = CACHE.name
wp.config.cuda_output = "ptx"
wp.config.lineinfo = True
wp.config.log_level = wp.LOG_WARNING
wp.config.enable_mathdx_gemm = False  # it takes minutes to compile

# ---- Warp without NVIDIA's runtime library --------------------------------------

CUDA = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    """Calls a function of the driver API."""
    status = getattr(CUDA, name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        CUDA.cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f"{name}: error {status}: {text.value.decode()}")
    return True


def allocate(context, size, *_):
    pointer = ctypes.c_void_p()
    call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    return pointer.value


def free(context, pointer, *_):
    CUDA.cuMemFree_v2(ctypes.c_void_p(pointer))


def copy(context, to, source, size, stream):
    to, source = ctypes.c_void_p(to), ctypes.c_void_p(source)
    return call("cuMemcpy", to, source, ctypes.c_size_t(size))


def fill(context, to, value, size, stream):
    byte = ctypes.c_ubyte(value & 255)
    return call("cuMemsetD8_v2", ctypes.c_void_p(to), byte, ctypes.c_size_t(size))


def repeat(context, to, value, size, count):
    """Fills memory with copies of a value of the host."""
    values = ctypes.string_at(value, size) * count
    size = ctypes.c_size_t(len(values))
    return call("cuMemcpyHtoD_v2", ctypes.c_void_p(to), values, size)


def load_module(context, path):
    module = ctypes.c_void_p()
    with open(path, "rb") as file:
        call("cuModuleLoadData", ctypes.byref(module), file.read() + b"\0")
    return module.value


def use_driver_api():
    """Starts Warp with the functions above."""
    wp.init()
    core = wp._src.context.runtime.core
    for kind in ("async", "default"):
        setattr(core, f"wp_alloc_device_{kind}", allocate)
        setattr(core, f"wp_free_device_{kind}", free)
    core.wp_memcpy_h2d = core.wp_memcpy_d2h = core.wp_memcpy_d2d = copy
    core.wp_memset_device = fill
    core.wp_memtile_device = repeat
    core.wp_cuda_load_module = load_module


# ---- the kernels --------------------------------------------------------------

RNG = np.random.default_rng(1)
KERNELS = {}


def kernel(run):
    """Registers a function that launches a kernel and returns (result, reference)."""
    KERNELS[run.__name__] = run
    return run


def zeros(*shape):
    return wp.zeros(shape, dtype=float, device="cuda:0")


@wp.kernel(module="unique", enable_backward=False)
def add_kernel(x: wp.array(dtype=float), y: wp.array(dtype=float),
               out: wp.array(dtype=float)):  # fmt: skip
    i = wp.tid()
    out[i] = x[i] + y[i]


@kernel
def add():
    x, y = RNG.random((2, 1000), np.float32)
    out = zeros(1000)
    inputs = [wp.array(x, device="cuda:0"), wp.array(y, device="cuda:0"), out]
    wp.launch(add_kernel, dim=1000, inputs=inputs, device="cuda:0")
    return out.numpy(), x + y


@wp.kernel(module="unique", enable_backward=False)
def total_kernel(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    wp.atomic_add(out, 0, x[wp.tid()])


@wp.kernel(module="unique", enable_backward=False)
def race_kernel(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    out[0] = out[0] + x[wp.tid()]


def total_of(add_all):
    x = RNG.random(1000, np.float32)
    out = zeros(1)
    inputs = [wp.array(x, device="cuda:0"), out]
    wp.launch(add_all, dim=1000, inputs=inputs, device="cuda:0")
    return out.numpy(), [x.sum()]


@kernel
def total():
    return total_of(total_kernel)


@wp.kernel(module="unique", enable_backward=False)
def tile_sums_kernel(x: wp.array(dtype=float), out: wp.array(dtype=float)):
    i = wp.tid()
    part = wp.tile_load(x, shape=256, offset=i * 256)
    wp.tile_store(out, wp.tile_sum(part), offset=i)


@kernel
def tile_sums():
    """A tile's sum: shuffles and shared memory."""
    x = RNG.random((8, 256), np.float32)
    out = zeros(8)
    inputs = [wp.array(x.ravel(), device="cuda:0"), out]
    wp.launch_tiled(
        tile_sums_kernel, dim=[8], inputs=inputs, block_dim=64, device="cuda:0"
    )
    return out.numpy(), x.sum(1)


@wp.kernel(module="unique", enable_backward=False)
def tile_matmul_kernel(a: wp.array2d(dtype=float), b: wp.array2d(dtype=float),
                       out: wp.array2d(dtype=float)):  # fmt: skip
    i, j = wp.tid()
    sums = wp.tile_zeros(shape=(16, 16), dtype=float)
    for k in range(a.shape[1] // 16):
        left = wp.tile_load(a, shape=(16, 16), offset=(i * 16, k * 16))
        right = wp.tile_load(b, shape=(16, 16), offset=(k * 16, j * 16))
        wp.tile_matmul(left, right, sums)
    wp.tile_store(out, sums, offset=(i * 16, j * 16))


@kernel
def tile_matmul():
    a, b = RNG.random((32, 48), np.float32), RNG.random((48, 64), np.float32)
    out = zeros(32, 64)
    inputs = [wp.array(a, device="cuda:0"), wp.array(b, device="cuda:0"), out]
    wp.launch_tiled(
        tile_matmul_kernel, dim=[2, 4], inputs=inputs, block_dim=64, device="cuda:0"
    )
    return out.numpy(), a @ b


def main():
    use_driver_api()
    names = sys.argv[1:] or list(KERNELS)
    runs = KERNELS | {"race": lambda: total_of(race_kernel)}
    wrong = 0
    for name in names:
        result, reference = runs[name]()
        is_right = np.allclose(result, reference, rtol=1e-5)
        wrong += not is_right
        print(f"{name}: {'right' if is_right else 'wrong'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
