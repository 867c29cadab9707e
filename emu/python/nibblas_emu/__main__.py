# SPDX-License-Identifier: Apache-2.0
"""python -m nibblas_emu [--cuda-folder] - prints the path of libnibemu.so, for
NIB_CUDA_LIBRARY, or of the folder with its libcuda.so.1, for LD_LIBRARY_PATH."""

import sys

from nibblas_emu import cuda_folder, library


def _main() -> int:
    choices = {(): library, ("--cuda-folder",): cuda_folder}
    choice = choices.get(tuple(sys.argv[1:]))
    if choice is None:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(choice())
    except FileNotFoundError as error:
        print(f"nibblas_emu: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
