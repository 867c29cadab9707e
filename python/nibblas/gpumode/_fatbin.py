# SPDX-License-Identifier: Apache-2.0
"""_fatbin.py - the cubins in a fat binary, as nvcc -fatbin -Xfatbin=--compress-all
-compress-mode=speed makes one: a header of 16 bytes, and for each image a header and
its bytes, plain or as one LZ4 block (lz4's doc/lz4_Block_format.md).  CUDA documents
only the driver's side; the fields are those that nvcc 13.0 writes, and what has other
ones is refused."""

import struct
from typing import NamedTuple

MAGIC = b"\x50\xed\x55\xba\x01\x00\x10\x00"
ELF = 2
# Flags of an image.
LZ4 = 0x2000
ZSTD = 0x8000
# The fewest bytes that a match copies.
LZ4_MATCH = 4


class FatbinError(ValueError):
    """The bytes are no fat binary that this module can read."""


class Entry(NamedTuple):
    """An image's header; offsets are from the header, sizes in bytes."""

    kind: int
    version: int
    begin: int
    padded_size: int
    packed_size: int
    flags: int
    size: int


def _entry_at(data, at):
    kind, version, begin, padded, packed = struct.unpack_from("<HHIQI", data, at)
    flags, = struct.unpack_from("<Q", data, at + 40)
    size, = struct.unpack_from("<Q", data, at + 56)
    return Entry(kind, version, begin, padded, packed, flags, size)


def _length(block, at, length):
    """A length and where it ends: 15 goes on in further bytes, up to one below
    255."""
    if length == 15:
        while block[at] == 255:
            length += 255
            at += 1
        length += block[at]
        at += 1
    return length, at


def unpack_lz4(block, size):
    """The size bytes of one LZ4 block."""
    out = bytearray()
    at = 0
    while at < len(block):
        token = block[at]
        count, at = _length(block, at + 1, token >> 4)
        out += block[at:at + count]
        at += count
        if at >= len(block):
            break
        distance = block[at] | block[at + 1] << 8
        count, at = _length(block, at + 2, token & 15)
        count += LZ4_MATCH
        begin = len(out) - distance
        if not 0 <= begin < len(out):
            raise FatbinError(f"LZ4: a match begins at {begin} of {len(out)}")
        if distance >= count:
            out += out[begin:begin + count]
        else:  # it copies what it writes
            out += (bytes(out[begin:]) * (count // distance + 1))[:count]
    if len(out) != size:
        raise FatbinError(f"LZ4: {len(out)} bytes, and not {size}")
    return bytes(out)


def _unpack(data, at, entry):
    begin = at + entry.begin
    if entry.flags & ZSTD:
        raise FatbinError("an image is compressed by zstd: only LZ4 is read")
    if not entry.flags & LZ4:
        return data[begin:begin + entry.padded_size]
    return unpack_lz4(data[begin:begin + entry.packed_size], entry.size)


def cubins(data, at=0):
    """The machine code of each image of the fat binary at data[at:]."""
    if not data.startswith(MAGIC, at):
        raise FatbinError(f"no fat binary begins at {at}")
    size, = struct.unpack_from("<Q", data, at + 8)
    at += 16
    end = at + size
    while at < end:
        entry = _entry_at(data, at)
        if entry.kind == ELF:
            yield _unpack(data, at, entry)
        at += entry.begin + entry.padded_size
