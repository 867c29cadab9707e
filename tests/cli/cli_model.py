# SPDX-License-Identifier: Apache-2.0
"""A small float model for the tests of nib quantize, verify and run, and folders."""

import functools
import json
import os
import struct

from cli_common import NibTest, floats, matrix, save, tensor

ROWS, K = 128, 128


@functools.lru_cache(maxsize=None)
def sources():
    """A small model: what is quantised, and what is copied and why."""
    return {
        "model.embed_tokens.weight": matrix(40, 32, 1),
        "model.layers.0.mlp.gate_proj.weight": matrix(ROWS, K, 2),
        "model.layers.0.mlp.up_proj.weight": tensor("F32", (ROWS, K), [
            2.5 * x for x in floats(matrix(ROWS, K, 3))]),
        "model.layers.0.mlp.down_proj.weight": matrix(24, ROWS, 4, "F16"),
        "model.layers.0.self_attn.o_proj.weight": matrix(17, 48, 5, "BF16"),
        "model.layers.0.odd.weight": matrix(8, 20, 6),
        "model.layers.0.stack.weight": ("F32", [2, 4, 16], bytes(512)),
        "model.layers.0.input_layernorm.weight": tensor(
            "BF16", (K,), [1 + i / 256 for i in range(K)]),
        "model.layers.0.zero.weight": ("F32", [4, 32], bytes(512)),
        "model.layers.0.mlp.up_proj.bias": tensor("F32", (4,), [1, 2, 3, 4]),
        "model.position_ids": ("I64", [3], struct.pack("<3q", 0, 1, 2)),
    }


def checkpoint():
    return dict(sources())


QUANTISED = {
    "model.layers.0.mlp.gate_proj": "F32",
    "model.layers.0.mlp.up_proj": "F32",
    "model.layers.0.mlp.down_proj": "F16",
    "model.layers.0.self_attn.o_proj": "BF16",
    "model.layers.0.zero": "F32",
}


class ModelTest(NibTest):
    def setUp(self):
        super().setUp()
        self.source = checkpoint()
        save(self.path("in"), self.source, {"format": "pt"})

    def quantize(self, *args, code=0):
        return self.rows("quantize", "in", "out", *args, code=code)


# ---- folders -------------------------------------------------------------------

INDEX = "model.safetensors.index.json"


def shard_name(i, n):
    return f"model-{i + 1:05}-of-{n:05}.safetensors"


def save_folder(folder, shards, config=None):
    """Shards, the index of them, and config.json."""
    os.makedirs(folder, exist_ok=True)
    weight_map = {}
    for i, tensors in enumerate(shards):
        name = shard_name(i, len(shards))
        save(os.path.join(folder, name), tensors, {"format": "pt"})
        weight_map.update(dict.fromkeys(tensors, name))
    put_json(folder, INDEX, {"metadata": {"total_size": 1},
                             "weight_map": weight_map})
    if config is not None:
        put_json(folder, "config.json", config)


def put_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file)


def split(tensors, n):
    """Tensors dealt to n shards, so that what belongs together is apart."""
    shards = [{} for _ in range(n)]
    for i, name in enumerate(sorted(tensors)):
        shards[i % n][name] = tensors[name]
    return shards
