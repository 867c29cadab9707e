# SPDX-License-Identifier: Apache-2.0
"""python -m nibblas_emu - prints the path of libnibemu.so, for NIB_CUDA_LIBRARY, or to
make a link libcuda.so.1 to it in a folder for LD_LIBRARY_PATH."""

import sys

from nibblas_emu import library


def _main() -> int:
    if len(sys.argv) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(library())
    except FileNotFoundError as error:
        print(f"nibblas_emu: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
