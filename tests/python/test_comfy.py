#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ComfyUI's order of codes and scales, by Checkpoint and by load_state_dict()."""

import json
import os
import tempfile
import unittest

import nibblas
import numpy as np
from common import blocked, decode, random_codes, random_scales
from test_files import save

try:
    import torch
    import nibblas.torch as nt
except ImportError:
    torch = None

# (rows, k, rows before they were padded)
SIZES = [(128, 64, 128), (32, 80, 20), (144, 336, 144)]


class Comfy(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(3)

    def layer(self, rows, k):
        """(tensors of a marked layer, its values)."""
        codes = random_codes(self.rng, rows, k // 2)
        scales = random_scales(self.rng, rows, k // 16)
        mark = np.frombuffer(b'{"format": "nvfp4"}', np.uint8)
        padded = -(-rows // 128) * 128, -(-k // 64) * 4
        return {"weight": codes << 4 | codes >> 4,
                "weight_scale": np.asarray(blocked(scales)).reshape(padded),
                "weight_scale_2": np.float32(0.5),
                "comfy_quant": mark}, 0.5 * decode(codes, scales)

    def save(self, tensors):
        folder = tempfile.TemporaryDirectory(prefix="nib-comfy-")
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "m.safetensors")
        save(path, {"q." + name: ("F8_E4M3", x) if name == "weight_scale" else x
                    for name, x in tensors.items()})
        return path

    def test_checkpoint(self):
        for rows, k, _ in SIZES:
            tensors, want = self.layer(rows, k)
            with nibblas.Checkpoint(self.save(tensors)) as file:
                self.assertEqual(file.problems, {})
                layer = file["q"]
            self.assertEqual(layer.format, "comfy")
            self.assertFalse(layer.codes.flags.writeable)
            got = nibblas.dequantize(layer.codes, layer.scales, layer.global_scale,
                                     layout="linear")
            self.assertTrue(np.array_equal(got, want))

    def test_rows_that_were_added(self):
        tensors, want = self.layer(32, 80)
        text = json.dumps({"format": "nvfp4", "orig_shape": [20, 80]}).encode()
        tensors["comfy_quant"] = np.frombuffer(text, np.uint8)
        with nibblas.Checkpoint(self.save(tensors)) as file:
            layer = file["q"]
            got = nibblas.dequantize(layer.codes, layer.scales, layer.global_scale,
                                     layout="linear")
        self.assertTrue(np.array_equal(got, want[:20]))

    def state(self, tensors):
        state = {name: torch.tensor(x) for name, x in tensors.items()}
        state["weight_scale"] = state["weight_scale"].view(torch.float8_e4m3fn)
        return state

    @unittest.skipUnless(torch, "no torch")
    def test_load_state_dict(self):
        for rows, k, kept in SIZES:
            tensors, want = self.layer(rows, k)
            state = self.state(tensors)
            linear = nt.Linear(k, kept, bias=False, activations="dense")
            linear.load_state_dict(state)
            self.assertIn("comfy_quant", state)
            got = linear(torch.eye(k)).numpy().T
            self.assertTrue(np.array_equal(got, want[:kept]), (rows, k))

    @unittest.skipUnless(torch, "no torch")
    def test_load_state_dict_refuses(self):
        for mark, says in ((b'{"format": "mxfp8"}', "format must be nvfp4"),
                           (b'{"format": "nvfp4", "convrot": true}', "convrot changes"),
                           (b'{"format": "nvfp4", "group_size": 32}', "must be 16"),
                           (b'nvfp4', "is no JSON")):
            tensors, _ = self.layer(32, 64)
            tensors["comfy_quant"] = np.frombuffer(mark, np.uint8)
            with self.assertRaisesRegex(nibblas.UnsupportedError,
                                        "^comfy_quant.*" + says):
                nt.Linear(64, 32, bias=False).load_state_dict(self.state(tensors))
        tensors, _ = self.layer(32, 64)
        tensors["weight_scale"] = tensors["weight_scale"][:32]
        with self.assertRaisesRegex(nibblas.UnsupportedError, r"tiles \[128, 4\]"):
            nt.Linear(64, 32, bias=False).load_state_dict(self.state(tensors))


if __name__ == "__main__":
    unittest.main()
