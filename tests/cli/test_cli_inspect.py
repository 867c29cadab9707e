#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nib inspect: good files, and files broken in each of the ways it knows."""

import math
import random
import struct
import unittest

from cli_common import (NibTest, SCALES, exchange_nibbles, floats, load,
                        matrix, read_csv, save, tensor, tile)

ROWS, K = 256, 256
GATE, UP = "layers.0.gate_proj", "layers.0.up_proj"


class Inspect(NibTest):
    @classmethod
    def setUpClass(cls):
        gate, up = matrix(ROWS, K, 1), matrix(ROWS, K, 2)
        # A norm on the same channels: large where the columns are small.
        columns = [sum(abs(x) for x in floats(gate)[j::K]) for j in range(K)]
        cls.source = {
            GATE + ".weight": gate,
            UP + ".weight": up,
            "layers.0.down_proj.weight": matrix(64, 144, 3),
            "layers.0.norm.weight": tensor("F32", (K,), [
                1 / c for c in columns]),
        }

    def setUp(self):
        super().setUp()
        save(self.path("float"), self.source, {"format": "pt"})
        self.nib("quantize", "float", "good")
        self.tensors, _ = load(self.path("good"))

    def change(self, name, data, shape=None):
        dtype, old, _ = self.tensors[name]
        self.tensors[name] = (dtype, shape or old, data)

    def findings(self, code=1, *args):
        """{(finding, layer)} of the changed file."""
        save(self.path("bad"), self.tensors)
        rows = self.rows("inspect", "bad", *args, code=code)
        found = [row for row in rows if row["kind"] == "finding"]
        text = self.nib("inspect", "bad", *args, code=code).stdout
        for row in found:
            self.assertIn("(%s)" % row["finding"], text)
            self.assertIn(row["advice"], text)
            self.assertTrue(row["text"])
        return {(row["finding"], row["name"]) for row in found}

    def test_good_files(self):
        for name in ("float", "good"):
            result = self.nib("inspect", name, "--strict")
            self.assertIn("nothing looks wrong", result.stdout)
        self.nib("quantize", "float", "ct", "--format-out",
                 "compressed-tensors")
        self.assertIn("nothing looks wrong",
                      self.nib("inspect", "ct", "--strict").stdout)

    def test_statistics(self):
        rows = {row["name"]: row for row in self.rows("inspect", "good")}
        for layer in (GATE, UP, "layers.0.down_proj"):
            scales = sorted(SCALES[s] for s in
                            self.tensors[layer + ".weight_scale"][2])
            row = rows[layer]
            self.assertEqual(row["kind"], "layer")
            self.assertEqual(row["scale_min"], scales[0])
            self.assertEqual(row["scale_max"], scales[-1])
            self.assertIn(row["scale_median"],
                          scales[len(scales) // 2 - 1:len(scales) // 2 + 1])
            codes = self.tensors[layer + ".weight"][2]
            zeros = sum((b & 7 == 0) + (b >> 4 & 7 == 0) for b in codes)
            self.assertAlmostEqual(row["zeros"], zeros / 2 / len(codes))
            unit = floats(self.tensors[layer + ".weight_scale_2"])[0]
            self.assertAlmostEqual(row["global"], unit, delta=1e-9)
            self.assertAlmostEqual(row["amax"], 6 * scales[-1] * unit,
                                   delta=1e-6)
        # Every row has every key.
        self.assertEqual(len({frozenset(row) for row in rows.values()}), 1)
        self.assertEqual(rows[GATE]["shape"], [ROWS, K])
        norm = floats(self.tensors["layers.0.norm.weight"])
        self.assertAlmostEqual(rows["layers.0.norm.weight"]["amax"],
                               max(norm), delta=1e-6)

    def test_words_of_one(self):
        save(self.path("one"), {"a": tensor("F32", (2,), [math.nan, 1])})
        text = self.nib("inspect", "one", code=1).stdout
        self.assertRegex(text, r"^one: \d+ B, 1 tensor, 0 NVFP4 layers\n")
        self.assertRegex(text, r"\na +F32 +\[2\] +8 B ")
        self.assertIn("look at what the file was made from", text)

    def test_formats(self):
        self.change(GATE + ".weight_scale", bytes(ROWS * K // 16))
        save(self.path("bad"), self.tensors)
        rows = self.rows("inspect", "bad", code=1)
        table = read_csv(self.nib("inspect", "bad", "--format", "csv",
                                  code=1).stdout)
        self.assertEqual([row["kind"] for row in table],
                         [row["kind"] for row in rows])
        brief = self.rows("inspect", "bad", "--brief", code=1)
        self.assertEqual({row["kind"] for row in brief}, {"finding"})
        self.assertIn("| layer", self.nib("inspect", "good", "--format",
                                          "md").stdout)

    def test_control_characters_of_names(self):
        """A terminal gets none; JSON has the name as it is."""
        name = "a\x1b[31m\nb\x7f\u009bc\u00e9\t\"d"
        save(self.path("bad"), {
            name + ".weight": matrix(16, 32, 7),
            "x" + name: tensor("F32", (2,), [math.nan] * 2)})
        for args, code in ((("inspect", "bad"), 1),
                           (("inspect", "bad", "--brief"), 1),
                           (("quantize", "bad", "out", "--force"), 0),
                           (("verify", "bad", "good"), 1),
                           (("verify", "good", "bad"), 1)):
            for form in ("text", "md", "csv"):
                result = self.nib(*args, "--format", form, code=code)
                self.assertIn("a?[31m?b??c\u00e9?", result.stdout)
                self.assertNotRegex(result.stdout + result.stderr,
                                    "[\x00-\x09\x0b-\x1f\x7f-\x9f]")
        self.assertIn(name + ".weight", {
            row["name"] for row in self.rows("inspect", "bad", code=1)})
        self.refused("run", "--weights", "good", "--tensor", name,
                     "--input", "bad", "--output", "y", code=2,
                     says=r"'a\?\[31m\?b")

    def test_controls_of_the_direction_of_writing(self):
        """They would show another name than there is."""
        controls = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e" + \
            "\u2066\u2067\u2068\u2069"
        name = "".join(f"a{c}" for c in controls) + "\u2013\u2065\u206a\u0627"
        save(self.path("bad"), {name: tensor("F32", (2,), [math.nan] * 2)})
        for form in ("text", "md", "csv"):
            text = self.nib("inspect", "bad", "--format", form, code=1).stdout
            self.assertIn("a?" * 12 + name[24:], text)
            self.assertFalse(set(controls) & set(text))
        result = self.nib("inspect", "no\u202e", code=3)
        self.assertIn("no?:", result.stderr)

    def test_sign_bits(self):
        name = UP + ".weight_scale"
        data = bytearray(self.tensors[name][2])
        data[77] |= 0x80
        self.change(name, bytes(data))
        self.assertEqual(self.findings(), {("scale-sign", UP)})

    def test_nan_scale(self):
        name = UP + ".weight_scale"
        self.change(name, self.tensors[name][2][:-1] + b"\x7f")
        self.assertEqual(self.findings(), {("scale-nan", UP)})

    def test_all_zero(self):
        self.change(GATE + ".weight", bytes(ROWS * K // 2))
        self.change("layers.0.down_proj.weight_scale", bytes(64 * 9))
        self.assertEqual(self.findings(), {
            ("all-zero", GATE), ("all-zero", "layers.0.down_proj")})

    def test_half_layers(self):
        del self.tensors[GATE + ".weight_scale_2"]
        self.change("layers.0.down_proj.weight_scale", bytes(64 * 8),
                    [64, 8])
        found = self.findings()
        self.assertIn(("half-layer", GATE), found)
        self.assertIn(("half-layer", "layers.0.down_proj"), found)

    def test_padded_tiles(self):
        name = "layers.0.down_proj.weight_scale"
        self.change(name, bytes(128 * 12), [128, 12])
        save(self.path("bad"), self.tensors)
        rows = self.rows("inspect", "bad", "--brief", code=1)
        self.assertEqual([row["finding"] for row in rows], ["half-layer"])
        self.assertIn("128x4 tiles", rows[0]["text"])

    def test_reciprocal_global_scale(self):
        for layer in (GATE, UP, "layers.0.down_proj"):
            name = layer + ".weight_scale_2"
            self.change(name, struct.pack(
                "<f", 1 / floats(self.tensors[name])[0]))
        self.assertEqual(self.findings(), {
            ("reciprocal-global", layer)
            for layer in (GATE, UP, "layers.0.down_proj")})

    def test_reciprocal_in_compressed_tensors(self):
        self.nib("quantize", "float", "ct", "--format-out",
                 "compressed-tensors")
        self.tensors, _ = load(self.path("ct"))
        name = "layers.0.down_proj.weight_global_scale"
        self.change(name, struct.pack("<f",
                                      1 / floats(self.tensors[name])[0]))
        self.assertEqual(self.findings(), {
            ("reciprocal-global", "layers.0.down_proj")})

    def test_reciprocal_input_scale(self):
        self.tensors[UP + ".input_scale"] = tensor("F32", (), [2688 / 9.0])
        self.assertEqual(self.findings(0), {("input-scale", UP)})
        self.findings(1, "--strict")

    def test_tiled_scales(self):
        for layer in (GATE, UP):
            name = layer + ".weight_scale"
            self.change(name, tile(ROWS, K // 16, self.tensors[name][2]))
        self.assertEqual({f for f in self.findings()
                          if f[0] != "nibble-order"},
                         {("tiled-scales", GATE), ("tiled-scales", UP)})
        good = {row["name"]: row for row in self.rows("inspect", "good")}
        for row in self.rows("inspect", "bad", code=1):
            if row["name"] in (GATE, UP) and row["kind"] == "layer":
                self.assertAlmostEqual(row["tiled_structure"],
                                       good[row["name"]]["linear_structure"])

    def test_exchanged_nibbles_are_a_hint(self):
        name = GATE + ".weight"
        self.change(name, exchange_nibbles(self.tensors[name][2]))
        found = self.findings(0)
        self.assertIn(("nibble-order", GATE), found)
        self.assertEqual({kind for kind, _ in found}, {"nibble-order"})

    def test_both_layers_exchanged(self):
        for layer in (GATE, UP):
            name = layer + ".weight"
            self.change(name, exchange_nibbles(self.tensors[name][2]))
        self.assertEqual(self.findings(0), {("nibble-order", GATE),
                                            ("nibble-order", UP)})

    def test_int4(self):
        r = random.Random(5)
        codes = [max(-7, min(7, round(r.gauss(0, 2.5)))) & 15
                 for _ in range(ROWS * K)]
        self.change(GATE + ".weight", bytes(
            codes[i] | codes[i + 1] << 4 for i in range(0, len(codes), 2)))
        self.assertIn(("int4-codes", GATE), self.findings())

    def test_weak_blocks_and_small_scales(self):
        name = UP + ".weight_scale"
        self.change(name, bytes(max(s - 40, 1) for s in
                                self.tensors[name][2]))
        self.assertIn(("small-scales", UP), self.findings(0))
        name = "layers.0.down_proj.weight"
        self.change(name, bytes(b & 0xBB for b in self.tensors[name][2]))
        self.assertIn(("weak-blocks", "layers.0.down_proj"),
                      self.findings(0))

    def test_fused_layers_with_different_scales(self):
        self.nib("quantize", "float", "good", "--no-share", "--force")
        self.tensors, _ = load(self.path("good"))
        self.assertEqual(self.findings(0), {("not-shared", UP)})

    def test_broken_floats(self):
        values = floats(self.tensors["layers.0.norm.weight"])
        values[3], values[9] = math.nan, math.inf
        self.tensors["layers.0.norm.weight"] = tensor("F32", (K,), values)
        found = self.findings()
        self.assertIn(("not-finite", "layers.0.norm.weight"), found)

    def test_random_weights_raise_no_alarm(self):
        r = random.Random(11)
        for seed in range(3):
            save(self.path("float"), {"a.%s.weight" % name: tensor(
                "BF16", (128, 256), [r.gauss(0, 0.02)
                                     for _ in range(128 * 256)])
                for name in ("q_proj", "k_proj", "o_proj")})
            self.nib("quantize", "float", "good", "--force")
            self.assertIn("nothing looks wrong", self.nib(
                "inspect", "good", "--strict").stdout, seed)


if __name__ == "__main__":
    unittest.main(verbosity=2)
