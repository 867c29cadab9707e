# SPDX-License-Identifier: Apache-2.0
"""The package nibblas-emu: where pip installed the software GPU.

`python -m nibblas_emu` prints the path of libnibemu.so, a CUDA driver that runs PTX on
the CPU.  The command `nibemu` runs a CUDA program on it; `nib --device emu:h100` and
`python -m nibblas.gpumode check --device emu:b200` find it."""

import os
from importlib import metadata

_PACKAGE = "nibblas-emu"
__version__ = metadata.version(_PACKAGE)
__all__ = ["library"]


def library() -> str:
    """Returns the path of libnibemu.so; raises FileNotFoundError if it is missing."""
    for file in metadata.files(_PACKAGE) or ():
        if file.name == "libnibemu.so":
            path = os.path.realpath(str(file.locate()))
            if os.path.exists(path):
                return path
    raise FileNotFoundError("libnibemu.so: pip did not install it with nibblas-emu; it "
                            "is in `lib` of a virtual environment, not of a --target")
