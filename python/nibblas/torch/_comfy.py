# SPDX-License-Identifier: Apache-2.0
"""_comfy.py - a layer of a state_dict that ComfyUI marks, in the order of the library.

comfy-kitchen (comfy_kitchen/tensor/nvfp4.py) stores the even value of a byte in the
high nibble and scales in the 128x4 tiles of cuBLAS, under ModelOpt's names, and marks
the layer by `comfy_quant`, the bytes of a JSON text.  src/file/comfy.c reads the
same."""

import json

import torch

from nibblas._library import UnsupportedError

# The keys that do not change the product; other keys are accepted if they are false.
_HARMLESS = {"format", "full_precision_matrix_mult", "group_size", "orig_dtype",
             "orig_shape"}


def _check(key, mark):
    try:
        found = json.loads(bytes(mark.detach().cpu().view(torch.uint8).tolist()))
    except ValueError as error:
        raise UnsupportedError(f"{key}: is no JSON: {error}") from None
    if not isinstance(found, dict) or found.get("format") != "nvfp4":
        raise UnsupportedError(f"{key} = {found}: the format must be nvfp4")
    if found.get("group_size", 16) != 16:
        raise UnsupportedError(f"{key} = {found}: group_size must be 16")
    for name, value in found.items():
        if name not in _HARMLESS and value:
            raise UnsupportedError(f"{key} = {found}: {name} changes the product and "
                                   "is not done here")


def _linear_scales(key, scales, rows, groups):
    """[rows, groups] of tiles [rows up to 128, groups up to 4]."""
    padded = -(-rows // 128) * 128, -(-groups // 4) * 4
    if tuple(scales.shape) != padded:
        raise UnsupportedError(f"{key}: shape {list(scales.shape)}: ComfyUI's scales "
                               f"of {rows} rows must be tiles {list(padded)}")
    tiles = scales.view(torch.uint8).reshape(padded[0] // 128, padded[1] // 4, 32, 4, 4)
    linear = tiles.permute(0, 3, 2, 1, 4).reshape(padded)[:rows, :groups]
    return linear.contiguous().view(torch.float8_e4m3fn)


def take_comfy(state_dict, prefix, rows):
    """Replaces the tensors of a marked layer and removes its mark.  Drops the rows that
    pad the layer to a multiple of 16."""
    mark = prefix + "comfy_quant"
    _check(mark, state_dict.pop(mark))
    codes = state_dict.get(prefix + "weight")
    scales = state_dict.get(prefix + "weight_scale")
    if codes is None or scales is None:
        return  # load_state_dict() names what is missing
    if codes.dtype != torch.uint8 or codes.dim() != 2:
        raise UnsupportedError(f"{prefix}weight: {codes.dtype} {list(codes.shape)}: "
                               "must be uint8 of two dimensions")
    stored = codes.shape[0]
    scales = _linear_scales(prefix + "weight_scale", scales, stored,
                            codes.shape[1] // 8)
    kept = rows if stored == -(-rows // 16) * 16 else stored
    state_dict[prefix + "weight"] = (codes << 4 | codes >> 4)[:kept]
    state_dict[prefix + "weight_scale"] = scales[:kept]
