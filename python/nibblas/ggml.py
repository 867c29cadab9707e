# SPDX-License-Identifier: Apache-2.0
"""python -m nibblas.ggml - prints the path of ggml-nibblas.so, the ggml backend that
came with the library, for GGML_BACKEND_PATH of llama.cpp's programs (docs/ggml.md)."""

import os
import sys

from nibblas import _library

NAME = "ggml-nibblas.so"


def _library_folder() -> str:
    """The folder of the library that is loaded, which the system may have found."""
    path = _library.library_path()
    if os.path.dirname(path):
        return os.path.dirname(os.path.abspath(path))
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            # address, permissions, offset, device, inode, path
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) == 6 and "/libnibblas.so" in fields[5]:
                return os.path.dirname(fields[5])
    raise FileNotFoundError(f"{path} is loaded, and not in /proc/self/maps")


def path() -> str:
    """Returns the path of ggml-nibblas.so, which is next to the library; raises
    FileNotFoundError if the library was built without it."""
    found = os.path.join(_library_folder(), NAME)
    if not os.path.exists(found):
        raise FileNotFoundError(f"{found} does not exist: the library was built with "
                                "NIB_BUILD_GGML=OFF, or was copied without it")
    return found


def _main() -> int:
    if len(sys.argv) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(path())
    except OSError as error:
        print(f"nibblas.ggml: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
