#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nib verify: files that agree, and files that differ in each way it knows."""

import math
import struct
import unittest

from cli_common import (decode_layer, exchange_nibbles, floats, load, matrix, save,
                        sqnr_db, tensor, tile)
from cli_model import K, QUANTISED, ROWS, ModelTest


class Verify(ModelTest):
    def setUp(self):
        super().setUp()
        self.quantize()
        self.tensors, _ = load(self.path("out"))

    def change(self, name, data):
        dtype, shape, _ = self.tensors[name]
        self.tensors[name] = (dtype, shape, data)
        save(self.path("bad"), self.tensors)

    def remark(self, name):
        rows = self.rows("verify", "in", "bad", code=1)
        failed = [row for row in rows if not row["ok"]]
        self.assertEqual([row["name"] for row in failed], [name])
        return failed[0]["text"]

    def test_a_file_is_identical_to_itself(self):
        for name in ("in", "out"):
            rows = self.rows("verify", name, name)
            self.assertTrue(all(row["identical"] for row in rows))

    def test_numbers(self):
        rows = {row["name"]: row for row in self.rows("verify", "in", "out")}
        for layer in QUANTISED:
            want = floats(self.source[layer + ".weight"])
            got = [x for r in decode_layer(self.tensors, layer) for x in r]
            row = rows[layer]
            if not any(want):
                self.assertTrue(row["identical"])
                continue
            self.assertAlmostEqual(row["sqnr_db"], sqnr_db(want, got),
                                   delta=1e-3)
            dot = sum(x * y for x, y in zip(want, got))
            cosine = dot / math.sqrt(sum(x * x for x in want) *
                                     sum(y * y for y in got))
            self.assertAlmostEqual(row["cosine"], cosine, delta=1e-6)
            worst = max(abs(x - y) for x, y in zip(want, got))
            self.assertAlmostEqual(row["max_error"], worst,
                                   delta=1e-6 * worst)
            k = self.source[layer + ".weight"][1][1]
            at = row["row"] * k + row["col"]
            self.assertAlmostEqual(row["worst_a"], want[at], delta=1e-6)
            self.assertAlmostEqual(row["worst_b"], got[at], delta=1e-6)
            self.check_relative(row, want, got, k)

    def check_relative(self, row, want, got, k):
        """The relative errors of a layer and of its worst row."""
        def relative(x, y):
            noise = math.fsum((a - b) ** 2 for a, b in zip(x, y))
            return math.sqrt(noise / math.fsum(a * a for a in x)) if noise else 0
        self.assertAlmostEqual(row["relative_error"] / relative(want, got), 1, 6)
        each = [relative(want[i:i + k], got[i:i + k]) for i in range(0, len(want), k)]
        self.assertAlmostEqual(row["row_relative_error"] / max(each), 1, 6)
        self.assertAlmostEqual(each[row["relative_row"]] / max(each), 1, 6)

    def test_min_sqnr(self):
        self.nib("verify", "in", "out", "--min-sqnr", "15")
        self.nib("verify", "in", "out", "--min-sqnr", "60", code=1)

    def test_finds_exchanged_nibbles(self):
        name = "model.layers.0.mlp.down_proj"
        self.change(name + ".weight", exchange_nibbles(
            self.tensors[name + ".weight"][2]))
        self.assertRegex(self.remark(name), "^B fits .* nibbles exchanged$")

    def test_finds_tiled_scales(self):
        name = "model.layers.0.mlp.gate_proj"
        self.change(name + ".weight_scale", tile(
            ROWS, K // 16, self.tensors[name + ".weight_scale"][2]))
        self.assertRegex(self.remark(name), "^B fits .* 128x4 tiles$")

    def test_finds_a_reciprocal(self):
        name = "model.layers.0.self_attn.o_proj"
        stored = floats(self.tensors[name + ".weight_scale_2"])[0]
        self.change(name + ".weight_scale_2", struct.pack("<f", 1 / stored))
        self.assertRegex(self.remark(name), "1/x for its global scale$")
        self.change(name + ".weight_scale_2", struct.pack("<f", 3 * stored))
        self.assertRegex(self.remark(name), "multiplied by 0.33")

    def test_missing_and_misshapen(self):
        del self.tensors["model.layers.0.mlp.up_proj.bias"]
        save(self.path("bad"), self.tensors)
        self.assertIn("none of this name",
                      self.remark("model.layers.0.mlp.up_proj.bias"))
        name = "model.layers.0.odd.weight"
        self.tensors = dict(self.source)
        self.tensors[name] = matrix(4, 40, 6)
        save(self.path("bad"), self.tensors)
        self.assertIn("shape [4, 40]", self.remark(name))
        self.tensors = dict(self.source)
        self.change("model.position_ids", struct.pack("<3q", 0, 1, 3))
        self.assertIn("bytes differ", self.remark("model.position_ids"))

    def test_matrices_without_columns(self):
        save(self.path("none"), {"a.weight": ("BF16", [3, 0], b""),
                                 "b": ("F32", [0, 4], b"")})
        rows = self.rows("verify", "none", "none")
        self.assertEqual([(row["name"], row["identical"]) for row in rows],
                         [("a.weight", True), ("b", True)])

    def test_one_layer(self):
        rows = self.rows("verify", "in", "out", "--layer",
                         "model.layers.0.mlp.up_proj")
        self.assertEqual(len(rows), 1)
        self.assertEqual(rows, self.rows("verify", "in", "out", "--layer",
                                         "model.layers.0.mlp.up_proj.weight"))
        self.refused("verify", "in", "out", "--layer", "nope", code=2,
                     says="--layer nope: A has none$")
        self.refused("verify", "in", "out", "--layer", "model.layers.0.mlp.up_prj",
                     code=2,
                     says=r"A has none; did you mean "
                          r".*'model.layers.0.mlp.up_proj.weight'")

    def test_names_are_whole(self):
        """foo and foo.weight are two tensors, whatever comes first."""
        def file(name, foo, weight):
            save(self.path(name), {
                "foo": tensor("F32", (2, 5, 96), [foo] * 960),
                "foo.weight": tensor("F32", (4, 32), [weight] * 128)})
        file("a", 7.0, 5.0)
        file("b", 1.0, 5.0)
        rows = self.rows("verify", "a", "a")
        self.assertEqual([(row["name"], row["shape"], row["identical"])
                          for row in rows],
                         [("foo", [2, 5, 96], True),
                          ("foo.weight", [4, 32], True)])
        rows = self.rows("verify", "a", "b", code=1)
        self.assertEqual([row["ok"] for row in rows], [False, True])
        save(self.path("c"), {"foo.weight": tensor("F32", (960,), [7] * 960)})
        self.assertIn("none of this name",
                      self.rows("verify", "a", "c", code=1)[0]["text"])

    def test_what_only_b_has_is_counted(self):
        self.tensors["more"] = tensor("F32", (4,), [1] * 4)
        self.tensors["q.position_ids"] = self.source["model.position_ids"]
        save(self.path("bad"), self.tensors)
        self.assertIn("only in B: 2 tensors (more, ...)",
                      self.nib("verify", "in", "bad").stdout)
        self.assertEqual(
            {row["name"]: (row["b"], row["ok"], row["shape"]) for row in
             self.rows("verify", "in", "bad") if row["a"] == "-"},
            {"more": ("F32", True, [4]), "q.position_ids": ("I64", True, [3])})
        self.assertNotIn("only in B", self.nib("verify", "in", "out").stdout)
        self.assertNotIn("only in B", self.nib("verify", "out", "in").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
