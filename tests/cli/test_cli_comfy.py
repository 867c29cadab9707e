#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ComfyUI's order of codes and scales: every command that reads a file computes what
it does with the same layer in ModelOpt's order."""

import json
import os
import unittest

from cli_common import (NibTest, exchange_nibbles, floats, load, matrix, save, tensor,
                        tile)

ROWS, K = 144, 96
PADDED = 256, 8


def to_comfy(tensors, name, mark=True):
    """The tensors of a ModelOpt layer in the order of comfy-kitchen."""
    out = dict(tensors)
    dtype, shape, codes = out[name + ".weight"]
    out[name + ".weight"] = (dtype, shape, exchange_nibbles(codes))
    dtype, (rows, groups), scales = out[name + ".weight_scale"]
    padded = bytearray(PADDED[0] * PADDED[1])
    for r in range(rows):
        padded[r * PADDED[1]:r * PADDED[1] + groups] = scales[r * groups:
                                                              (r + 1) * groups]
    out[name + ".weight_scale"] = (dtype, PADDED, tile(*PADDED, padded))
    if mark:
        text = json.dumps({"format": "nvfp4"}).encode()
        out[name + ".comfy_quant"] = ("U8", (len(text),), text)
    return out


class Comfy(NibTest):
    def setUp(self):
        super().setUp()
        save(self.path("float"), {"q.weight": matrix(ROWS, K, 1),
                                  "later.weight": matrix(16, 32, 2, "BF16")})
        self.nib("quantize", "float", "plain", "--include", "q.*")
        self.plain, _ = load(self.path("plain"))
        save(self.path("x"), {"x": matrix(4, K, 3)})
        save(self.path("marked"), to_comfy(self.plain, "q"))
        layers = {"layers": {"q": {"format": "nvfp4"}}}
        save(self.path("header"), to_comfy(self.plain, "q", False),
             {"_quantization_metadata": json.dumps(layers)})

    def product(self, weights, *args):
        self.nib("run", "--weights", weights, "--tensor", "q", "--input", "x",
                 "--output", "y", "--force", "--out", "fp32", *args)
        return floats(load(self.path("y"))[0]["output"])

    def test_run(self):
        for args in ((), ("--activations", "bf16")):
            want = self.product("plain", *args)
            for name in ("marked", "header"):
                self.assertEqual(self.product(name, *args), want)

    def test_run_takes_an_input_in_that_order(self):
        save(self.path("w"), {"w.weight": matrix(16, K, 4)})
        self.nib("quantize", "w", "w4")
        args = ["run", "--weights", "w4", "--tensor", "w", "--input-tensor", "q",
                "--output", "y", "--force", "--input"]
        self.nib(*args, "plain")
        want = self.read("y")
        self.nib(*args, "marked")
        self.assertEqual(self.read("y"), want)

    def test_verify(self):
        for name in ("marked", "header"):
            rows = {row["name"]: row for row in self.rows("verify", "plain", name)}
            self.assertTrue(rows["q"]["identical"])
            self.assertEqual(rows["q"]["b"], "NVFP4 comfy")
        # Undoing mistakes begins at what the layer is.
        save(self.path("wrong"), to_comfy({
            **self.plain, "q.weight": ("U8", [ROWS, K // 2], exchange_nibbles(
                self.plain["q.weight"][2]))}, "q"))
        rows = {row["name"]: row for row in self.rows("verify", "plain", "wrong",
                                                      code=1)}
        self.assertRegex(rows["q"]["text"], "nibbles exchanged")

    def test_inspect(self):
        want = next(row for row in self.rows("inspect", "plain")
                    if row["name"] == "q")
        for name in ("marked", "header"):
            self.assertIn("nothing looks wrong",
                          self.nib("inspect", name, "--strict").stdout)
            got = next(row for row in self.rows("inspect", name)
                       if row["name"] == "q")
            self.assertEqual(got.pop("format"), "NVFP4 comfy")
            self.assertEqual({**got, "format": want["format"]}, want)

    def test_quantize_leaves_such_layers_as_they_are(self):
        for name in ("marked", "header"):
            self.nib("quantize", name, "more", "--force")
            rows = {row["name"]: row for row in self.rows("verify", "plain", "more")}
            self.assertTrue(rows["q"]["identical"])
            self.assertEqual(rows["later"]["b"], "NVFP4 modelopt")

    def test_marks_of_other_shards(self):
        """Each header marks the layers of its shard; nib quantize would lose them."""
        comfy = to_comfy(self.plain, "q", False)
        parts = [{"later.weight": comfy.pop("later.weight")}, comfy]
        os.mkdir(self.path("m"))
        for i, part in enumerate(parts):
            save(self.path(f"m/{i}.safetensors"), part, i and {
                "_quantization_metadata": json.dumps({"layers": {"q": {
                    "format": "nvfp4"}}})})
        with open(self.path("m/model.safetensors.index.json"), "w",
                  encoding="utf-8") as file:
            json.dump({"weight_map": {name: f"{i}.safetensors" for i in (0, 1)
                                      for name in parts[i]}}, file)
        rows = {row["name"]: row for row in self.rows("verify", "plain", "m")}
        self.assertTrue(rows["q"]["identical"])
        with open(self.path("m/config.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        self.refused("quantize", "m", "out", code=3,
                     says="'q' is marked as ComfyUI's by the header of one of several")

    def test_marks_that_change_the_product_are_refused(self):
        text = b'{"format": "nvfp4", "convrot": true}'
        save(self.path("rotated"), {**to_comfy(self.plain, "q"), "q.comfy_quant": (
            "U8", (len(text),), text)})
        self.refused("run", "--weights", "rotated", "--tensor", "q", "--input", "x",
                     "--output", "y", code=3, says="has convrot, which changes")
        found = [row for row in self.rows("inspect", "rotated", code=1)
                 if row["kind"] == "finding"]
        self.assertEqual([(row["finding"], row["name"]) for row in found],
                         [("half-layer", "q")])


if __name__ == "__main__":
    unittest.main()
