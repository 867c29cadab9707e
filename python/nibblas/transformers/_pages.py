# SPDX-License-Identifier: Apache-2.0
"""_pages.py - gives back the memory of tensors in a mapped file.  transformers
leaves tensors of a CPU where safetensors has mapped them; the process has every page
that was read until the last tensor of the file goes."""

import ctypes
import mmap


def mapped_files(paths):
    """[(begin, end)]: the addresses at which this process has files mapped.  Empty
    where the system does not tell."""
    wanted, found = {str(path) for path in paths}, []
    try:
        with open("/proc/self/maps", encoding="utf-8") as file:
            for line in file:
                addresses, *_, path = line.split(maxsplit=5)
                if path.rstrip("\n") in wanted:
                    found.append(tuple(int(x, 16) for x in addresses.split("-")))
    except (OSError, ValueError):
        pass
    return found


def give_back(tensors, ranges):
    """Gives back the whole pages of tensors that nobody has written to: they are read
    from the file again if they are needed."""
    libc, page = ctypes.CDLL(None), mmap.PAGESIZE
    for x in tensors:
        begin = -(-x.data_ptr() // page) * page
        end = (x.data_ptr() + x.nbytes) // page * page
        if begin < end and any(a <= begin and end <= b for a, b in ranges):
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin),
                         mmap.MADV_DONTNEED)
