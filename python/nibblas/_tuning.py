# SPDX-License-Identifier: Apache-2.0
"""_tuning.py - the tile costs that `nib tune` measured on this machine: a GPU gets
them when it is opened.  cli/shared/tuning.c writes the file, and reads it by the same
rules."""

import ctypes as C
import json
import os
import re
from typing import Any

from nibblas import _abi as abi
from nibblas._library import call, version

_MAX_BYTES = 4096


def path(hardware: str, multiprocessors: int) -> str | None:
    """Returns the name of the file, which need not exist.  None if NIB_TUNING is "off",
    NIB_CUDA_ARCH selects other kernels, or there is no cache folder."""
    wanted = os.environ.get("NIB_TUNING")
    if wanted:
        return None if wanted == "off" else wanted
    if os.environ.get("NIB_CUDA_ARCH"):
        return None
    folder = os.environ.get("XDG_CACHE_HOME", "")
    if not folder.startswith("/"):
        home = os.environ.get("HOME", "")
        if not home.startswith("/"):
            return None
        folder = home + "/.cache"
    name = f"tune-{hardware}-{multiprocessors}-{version()}.json"
    return f"{folder}/nibblas/" + re.sub(r"[^-.0-9A-Za-z]", "-", name)


def _read(name: str) -> dict[str, Any]:
    """Returns the JSON object in the file; {} if there is none."""
    try:
        with open(name, "rb") as file:
            text = file.read(_MAX_BYTES + 1)
        found = json.loads(text) if len(text) <= _MAX_BYTES else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def load(handle: C.c_void_p, hardware: str, multiprocessors: int) -> bool:
    """Sets the device's costs from its file and returns True.  If the file is missing,
    damaged, or of another GPU or version, changes nothing and returns False."""
    costs = abi.nib_costs(struct_bytes=C.sizeof(abi.nib_costs))
    call("nib_device_get_costs", handle, C.byref(costs))
    name = path(hardware, multiprocessors)
    found = _read(name) if name else {}
    rows, steps = found.get("tile_rows"), found.get("step_cycles")
    others = found.get("tile_cycles"), found.get("split_cycles")
    if (found.get("device"), found.get("multiprocessors"), found.get("version"),
            found.get("revision"), rows) != (
                hardware, multiprocessors, version(), costs.revision,
                 list(costs.tile_rows[:costs.sizes])):
        return False
    if not isinstance(steps, list) or len(steps) != costs.sizes or not all(
            isinstance(x, int) and 1 <= x <= 10**6 for x in (*steps, *others)):
        return False
    costs.step_cycles[:costs.sizes] = steps
    costs.tile_cycles, costs.split_cycles = others
    call("nib_device_set_costs", handle, C.byref(costs))
    return True
