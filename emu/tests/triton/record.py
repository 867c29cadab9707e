#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the PTX that Triton makes of kernels of examples/triton_kernels.py, for
tests/driver/test_triton.c, without debug data and comments.

    for device in h200 b200; do
        nibemu run --device $device python3 record.py $device
    done
"""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "examples"))

import triton  # noqa: E402
import triton_kernels  # noqa: E402

KERNELS = {
    "h200": ["attention", "matmul_tma", "matmul_specialised"],
    "b200": ["softmax", "matmul_specialised"],
}


def stripped(text):
    """The lines that have an effect."""
    text = re.sub(r"\n\t?\.section.*?\n\t?\}", "", text, flags=re.DOTALL)
    lines = (line.split("//")[0].rstrip() for line in text.replace(", debug", "").split("\n"))
    unused = re.compile(r"\s*\.(loc|file|section)\b|\$L__(tmp|func)|\s*$")
    return "".join(line + "\n" for line in lines if not unused.match(line))


def main(device):
    name = None

    def keep_ptx(self, source, metadata, options, capability):
        path = os.path.join(HERE, f"{device}_{name}.ptx")
        with open(path, "w", encoding="ascii") as f:
            f.write(
                f"// Triton {triton.__version__}: {metadata['shared']} bytes of shared "
                f"memory, {metadata['global_scratch_size']} of scratch for each CTA\n"
            )
            f.write(stripped(source))
        return source.encode()

    triton_kernels.use_software_gpu()
    triton_kernels.compiler.CUDABackend.make_cubin = keep_ptx
    for name in KERNELS[device]:
        got, want, tolerance = triton_kernels.KERNELS[name]()
        assert triton_kernels.is_right(got, want, tolerance), name


if __name__ == "__main__":
    main(sys.argv[1])
