#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nib quantize on experts that are stored as stacks."""

import unittest

from cli_common import NibTest, load, matrix, save

EXPERTS, N, K = 3, 32, 48
FUSED = "m.layers.0.mlp.experts"


def stack(batch, rows, k, seed, dtype="F32"):
    dtype, _, data = matrix(batch * rows, k, seed, dtype)
    return dtype, [batch, rows, k], data


def cut(tensor, begin, end):
    """Rows of a stack as a matrix."""
    dtype, (_, _, k), data = tensor
    size = len(data) // (tensor[1][0] * tensor[1][1])
    return dtype, [end - begin, k], data[begin * size:end * size]


class Experts(NibTest):
    def reasons(self, tensors, *args):
        save(self.path("in"), tensors)
        return {row["tensor"]: row["reason"] for row in
                self.rows("quantize", "in", "out", "--dry-run", *args)}

    def test_fused_experts_become_layers_of_each(self):
        gate_up = stack(EXPERTS, 2 * N, K, 1, "BF16")
        down = stack(EXPERTS, K, N, 2, "BF16")
        save(self.path("fused"), {FUSED + ".gate_up_proj": gate_up,
                                  FUSED + ".down_proj": down})
        tensors = {}
        for e in range(EXPERTS):
            at, name = 2 * N * e, f"{FUSED}.{e}."
            tensors[name + "gate_proj.weight"] = cut(gate_up, at, at + N)
            tensors[name + "up_proj.weight"] = cut(gate_up, at + N, at + 2 * N)
            tensors[name + "down_proj.weight"] = cut(down, K * e, K * (e + 1))
        save(self.path("each"), tensors)
        for args in ((), ("--format-out", "compressed-tensors"),
                     ("--no-share",)):
            rows = [sorted(self.rows("quantize", "--force", path, "out" + path,
                                     *args), key=lambda row: row["tensor"])
                    for path in ("fused", "each")]
            self.assertEqual(*rows)
            self.assertEqual(len(rows[0]), 3 * EXPERTS)
            self.assertTrue(all(row["to"] == "NVFP4" for row in rows[0]))
            self.assertEqual(*(load(self.path("out" + path))[0]
                               for path in ("fused", "each")))
        text = self.nib("quantize", "--force", "fused", "out").stdout
        self.assertIn("9 of 9 tensors are NVFP4 now; 27.0 KiB -> ", text)

    def test_fused_experts_of_other_layouts_are_copied(self):
        names = [FUSED + ".gate_up_proj", FUSED + ".down_proj"]

        def reason(*shapes):
            tensors = {name: stack(*shape, 1)
                       for name, shape in zip(names, shapes)}
            found = set(self.reasons(tensors).values())
            self.assertEqual(len(found), 1)
            return found.pop()
        self.assertEqual("", reason((2, 2 * N, K), (2, K, N)))
        # [experts, k, n], of sizes that are not multiples of 16, and others.
        for shapes in (((2, K, 2 * N), (2, N, K)), ((2, 2 * N, K), (3, K, N)),
                       ((2, 48, 48), (2, 48, 24)), ((2, 64, 40), (2, 40, 32))):
            self.assertIn("not as [experts, n, k]", reason(*shapes))
        self.assertIn("without *.experts.down_proj", reason((2, 64, 48)))

    def test_stacks(self):
        tensor = stack(3, 16, 32, 5)
        name = "m.block_sparse_moe.output_linear.weight"
        flat = {name: (tensor[0], [48, 32], tensor[2])}
        for args in ((), ("--format-out", "compressed-tensors")):
            save(self.path("in"), {name: tensor})
            row, = self.rows("quantize", "in", "out", "--force", *args)
            self.assertEqual(row["shape"], [3, 16, 32])
            save(self.path("in"), flat)
            want, = self.rows("quantize", "in", "flat", "--force", *args)
            want["shape"] = row["shape"]
            self.assertEqual(row, want)
            got, want = (load(self.path(x))[0] for x in ("out", "flat"))
            self.assertEqual({name: t[2] for name, t in got.items()},
                             {name: t[2] for name, t in want.items()})
            layer, = self.rows("inspect", "out")
            self.assertEqual(layer["shape"], [3, 16, 32])

    def test_other_stacks_are_copied_unless_asked_for(self):
        tensors = {"a.conv.weight": stack(3, 16, 32, 5)}
        self.assertEqual(self.reasons(tensors), {
            "a.conv.weight":
            "3-D, and not named as experts: --include takes it"})
        self.assertEqual(self.reasons(tensors, "--all"),
                         self.reasons(tensors))
        self.assertEqual(self.reasons(tensors, "--include", "a.*"),
                         {"a.conv": ""})

    def test_what_engines_leave_is_left(self):
        for name in ("m.mlp.shared_expert_gate.weight", "m.mlp.gate.weight",
                     "visual.blocks.0.mlp.up_proj.weight",
                     "m.vision_tower.q_proj.weight"):
            self.assertRegex(self.reasons({name: matrix(16, 32, 1)})[name],
                             "default exclude")


if __name__ == "__main__":
    unittest.main(verbosity=2)
