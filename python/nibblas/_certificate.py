# SPDX-License-Identifier: Apache-2.0
"""_certificate.py - the certificate of a quantised checkpoint, a JSON file that nib
verify --certify writes and nibblas.certify adds to: read and checked, compared with the
checkpoint's tensors, and written.  docs/certificates.md defines the format."""

import contextlib
import json
import os
import re
import stat
import sys
import zlib
from typing import Any

from nibblas import _abi as abi
from nibblas._library import FileError, SystemIOError

FILE = "nibblas_certificate.json"
FORMAT, VERSION = "nibblas certificate", 1
# A kind of product, and the activations of nibblas.torch.Linear; the cheapest first.
KINDS = {"W4A4": "nvfp4", "W4A8": "int8", "W4A16": "dense"}
_COST = {activations: i for i, activations in enumerate(KINDS.values())}
_DIGEST = re.compile(r"crc32:[0-9a-f]{8}:[0-9]{1,20}\Z")


def _is_error(value):
    return (isinstance(value, (int, float)) and not isinstance(value, bool)
            and 0 <= value <= sys.float_info.max)


def _is_count(value):
    return (isinstance(value, int) and not isinstance(value, bool)
            and 0 <= value < 1 << 63)


def _is_errors(value):
    return (isinstance(value, dict) and set(value) <= set(KINDS)
            and all(map(_is_error, value.values())))


# {key of a layer: (whether a value is valid, rule)}
_REQUIRED = {
    "shape": (lambda x: isinstance(x, list) and 2 <= len(x) <= 3
              and all(map(_is_count, x)), "must be a list of 2 or 3 sizes"),
    "digest": (lambda x: isinstance(x, str) and _DIGEST.match(x) is not None,
               "must be crc32:, 8 hexadecimal digits, : and a number"),
    "relative_error": (_is_error, "must be a finite number, 0 or more"),
    "worst_row_error": (_is_error, "must be a finite number, 0 or more"),
    "worst_row": (_is_count, "must be the number of a row")}
_OPTIONAL = {
    "product_errors": (_is_errors, "must be finite numbers, 0 or more, for "
                                   + ", ".join(KINDS)),
    "tokens": (_is_count, "must be a number of tokens"),
    "activations": (lambda x: isinstance(x, str) and x in _COST,
                    "must be " + " or ".join(KINDS.values()))}


def _fail(path, rule):
    raise FileError(f"{path}: {rule}", "certificate")


def _check_layer(path, name, entry):
    if not isinstance(entry, dict):
        _fail(path, f"layers: {name}: must be an object")
    for key, (is_valid, rule) in {**_REQUIRED, **_OPTIONAL}.items():
        if key in _REQUIRED and key not in entry:
            _fail(path, f"layers: {name}: has no {key}")
        if entry.get(key) is not None and not is_valid(entry[key]) or (
                key in _REQUIRED and entry[key] is None):
            _fail(path, f"layers: {name}: {key} = {str(entry[key])[:60]}: {rule}")


def _unique(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def read(path: str) -> "dict[str, Any]":
    """The certificate in a file, every key of which has the right type."""
    try:
        # A FIFO would be waited for.
        if not stat.S_ISREG(os.stat(path).st_mode):
            _fail(path, "must be a regular file")
        with open(path, encoding="utf-8") as file:
            found = json.load(file, object_pairs_hook=_unique)
    except FileNotFoundError:
        raise FileError(f"{path}: no such file: the checkpoint has no certificate; "
                        "nib verify ORIGINAL CHECKPOINT --certify writes it",
                        "certificate") from None
    except OSError as error:
        raise SystemIOError(f"{path}: {error.strerror}", "certificate") from None
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: is no JSON: {error}", "certificate") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        _fail(path, f'must be an object with the format "{FORMAT}"')
    if type(found.get("version")) is not int or found["version"] != VERSION:
        _fail(path, f"version = {str(found.get('version'))[:60]}: must be {VERSION}")
    if not isinstance(found.get("layers"), dict):
        _fail(path, "layers: must be an object")
    for name, entry in found["layers"].items():
        _check_layer(path, name, entry)
    return found


def digest(tensors: "Any") -> str:
    """The digest of the arrays of a layer as a file stores them, in the order of
    StoredLayer.tensors."""
    crc = count = 0
    for one in tensors:
        crc = zlib.crc32(one.data, crc)
        count += one.nbytes
    return f"crc32:{crc:08x}:{count}"


def _is_nvfp4(stored):
    return stored.block == (1, 16) and stored.naming not in (
        abi.NIB_NAMING_FP8, abi.NIB_NAMING_FP8_BLOCKS)


def check(path: str, found: "dict[str, Any]", file: "Any") -> None:
    """Refuses a certificate that is not of the NVFP4 layers of a Checkpoint."""
    left = dict(found["layers"])
    for stored in file._stored_layers():
        if not _is_nvfp4(stored):
            continue
        entry = left.pop(stored.name, None)
        if entry is None:
            _fail(path, f"layers: has no {stored.name}: it is incomplete, or of "
                        "another model")
        parts = [file.tensor(x) for x in stored.tensors.values() if x is not None]
        if entry["digest"] != digest(parts):
            _fail(path, f"layers: {stored.name}: is stale: the checkpoint has other "
                        "tensors than those that were certified; run nib verify "
                        "--certify again")
    if left:
        _fail(path, f"layers: {next(iter(left))}: the checkpoint has no such layer: "
                    "the certificate is of another model")


def strictest(choices: "Any") -> str:
    """The one of several values of activations that has the smallest error."""
    return max(choices, key=_COST.__getitem__)


def choose(found: "dict[str, Any]", budget: float) -> None:
    """Gives each layer the cheapest activations whose error is within the budget; a
    layer that has none, or was not measured, gets W4A16."""
    for entry in found["layers"].values():
        errors = entry.get("product_errors") or {}
        entry["activations"] = next(
            (KINDS[kind] for kind in KINDS
             if kind in errors and errors[kind] <= budget), "dense")


def choices(path: str, file: "Any") -> "dict[str, str]":
    """{layer: its activations} of a certificate that is of a Checkpoint's layers."""
    found = read(path)
    check(path, found, file)
    for name, entry in found["layers"].items():
        if entry.get("activations") is None:
            _fail(path, f"layers: {name}: has no choice of activations: "
                        "python -m nibblas.certify --budget makes it")
    return {name: entry["activations"] for name, entry in found["layers"].items()}


def write(path: str, found: "dict[str, Any]") -> None:
    """Replaces the file whole or not at all."""
    part = f"{path}.{os.getpid()}.part"
    try:
        try:
            with open(part, "x", encoding="utf-8") as file:
                json.dump(found, file, indent=2, allow_nan=False)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(part)
    except OSError as error:
        raise SystemIOError(f"{path}: {error.strerror}", "certificate") from None
