#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each allocation of nib fails in turn: nib reports it and fails, or the result is that
of a run without a failure."""

import os
import shutil
import unittest

from cli_common import (NIB, NibTest, floats, is_instrumented, load, nib, save,
                        tensor)
from cli_model import save_folder, shard_name

LIBRARY = os.environ.get("FAIL_ALLOC_LIBRARY", "")
MOST = 4000  # no small run has as many


def model():
    layer = "model.layers.0."
    weight = tensor("F32", (16, 16), [1 + i % 7 for i in range(256)])
    experts = tensor("F32", (2, 32, 16), [1 + i % 7 for i in range(1024)])
    return [{layer + "mlp.up_proj.weight": weight,
             layer + "mlp.experts.gate_up_proj": experts},
            {layer + "mlp.gate_proj.weight": weight,
             layer + "mlp.experts.down_proj": tensor("F32", (2, 16, 16), [1] * 512),
             "model.embed_tokens.weight": weight}]


@unittest.skipUnless(os.path.exists(LIBRARY), "no library that fails allocations")
@unittest.skipIf(is_instrumented(), "sanitizers have an allocator of their own")
class Memory(NibTest):
    def setUp(self):
        super().setUp()
        save_folder(self.path("model"), model(), {"model_type": "llama"})
        self.nib("quantize", "model", "want")
        save(self.path("x"), {"x": tensor("F32", (2, 16), [1] * 32)})
        self.before = set(os.listdir(self.folder))

    def runs(self, *args):
        """(number, result) of runs in which one allocation failed."""
        for n in range(1, MOST):
            env = dict(os.environ, LD_PRELOAD=LIBRARY, FAIL_ALLOC=str(n),
                       OMP_NUM_THREADS="1", FAIL_ALLOC_REPORT=self.path("report"))
            result = nib(*args, "--quiet", cwd=self.folder, env=env)
            self.assertIn(result.returncode, (0, 1, 2, 3, 4, 5),
                          f"allocation {n}: {result.stderr}")
            if result.returncode not in (0, 1):
                self.assertRegex(result.stderr, r"(?m)^nib( \w+)?: .",
                                 f"allocation {n}")
            if os.path.exists(self.path("report")):
                with open(self.path("report"), encoding="utf-8") as file:
                    if file.read() != "failed":
                        self.assertGreater(n, 100)
                        return
                os.remove(self.path("report"))
            # OpenMP's runtime ends the program itself.
            if "libgomp" not in result.stderr:
                yield n, result
            for name in set(os.listdir(self.folder)) - self.before:
                shutil.rmtree(self.path(name))
        self.fail(f"{MOST} allocations")

    def files(self, folder):
        """{name: bytes} of a folder's files."""
        return {name: self.read(os.path.join(folder, name))
                for name in os.listdir(self.path(folder))}

    def test_quantize_of_a_folder(self):
        self.check_quantize()

    def test_quantize_with_a_budget(self):
        self.nib("quantize", "model", "mixed", "--budget", "8")
        self.assertIn(b"MIXED_PRECISION", self.files("mixed")["config.json"])
        self.before.add("mixed")
        self.check_quantize("--budget", "8", want="mixed")

    def check_quantize(self, *options, want="want"):
        want = self.files(want)
        for n, result in self.runs("quantize", "model", "out", *options):
            left = set(os.listdir(self.folder)) - self.before
            # The table is printed when the folder exists, and may fail then.
            if left or not result.returncode:
                self.assertEqual(left, {"out"}, f"allocation {n}: {result.stderr}")
                self.assertEqual(self.files("out"), want, f"allocation {n}")

    def test_inspect_and_verify(self):
        self.nib("verify", "model", "want", "--certify")
        files = self.files("want")
        for args in (("inspect", "want"), ("verify", "model", "want", "--certify")):
            want = self.nib(*args, "--format", "json").stdout
            for n, result in self.runs(*args, "--format", "json"):
                if result.returncode in (0, 1):
                    self.assertEqual((result.stdout, result.returncode), (want, 0),
                                     f"{args[0]}: allocation {n}")
                self.assertEqual(self.files("want"), files, f"allocation {n}")

    def test_repair(self):
        """Two fused layers with scales of their own, and no list with lm_head."""
        name = "model.layers.0.mlp.gate_proj.weight_scale_2"
        shards = [load(self.path("want/" + shard_name(i, 2)))[0] for i in range(2)]
        shards[1][name] = tensor("F32", (), [1.3 * floats(shards[1][name])[0]])
        shards[1]["lm_head.weight"] = shards[1]["model.embed_tokens.weight"]
        save_folder(self.path("bad"), shards, {
            "model_type": "llama", "quantization_config": {
                "quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}})
        self.nib("repair", "bad", "mended")
        want = self.files("mended")
        self.assertNotEqual(want["config.json"], self.files("bad")["config.json"])
        self.before |= {"bad", "mended"}
        for n, result in self.runs("repair", "bad", "out"):
            left = set(os.listdir(self.folder)) - self.before
            if left or not result.returncode:
                self.assertEqual(left, {"out"}, f"allocation {n}: {result.stderr}")
                self.assertEqual(self.files("out"), want, f"allocation {n}")

    def test_run(self):
        args = ("run", "--weights", "want", "--tensor", "model.layers.0.mlp.up_proj",
                "--input", "x", "--output", "y", "--force")
        self.nib(*args)
        want = self.read("y")
        self.before.add("y")
        for n, result in self.runs(*args):
            self.assertEqual(self.read("y"), want, f"allocation {n}: {result.stderr}")


if __name__ == "__main__":
    assert NIB
    unittest.main()
