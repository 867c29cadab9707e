# SPDX-License-Identifier: Apache-2.0
"""The Python in README.md and docs/python.md runs as the page has it."""

import os
import re
import tempfile
import unittest

import nibblas
import numpy as np
from common import SOURCE, TorchTest, save_safetensors


def blocks(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as file:
        return re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)


class Docs(TorchTest):
    def test_readme(self):
        found = blocks("README.md")
        # The first loads a model: test_transformers.py.
        self.assertEqual(len(found), 2)
        names = {}
        exec(found[1], names)
        self.assertEqual(tuple(names["y"].shape), (128, 4096))

    def test_page(self):
        t = self.torch
        model, layer, experts, first, floats, scaled, arrays, files = blocks(
            "docs", "python.md")
        names = {}
        exec(model, names)
        self.assertEqual((names["swapped"], names["left"]), (["0", "2"], {}))
        self.assertEqual(tuple(names["y"].shape), (8, 64))
        exec(layer, names)
        self.assertEqual(names["x"].grad.shape, names["x"].shape)
        exec(experts, names)
        self.assertEqual(tuple(names["y"].shape), (5, 64))
        self.assertTrue(names["y"].isfinite().all())
        exec(first, names)
        x, w, whole = names["x"], names["w"], names["y"]
        self.assertLess((whole - x @ w.t()).norm() / whole.norm(), 0.3)
        exec(floats, names)
        for name, dtype in (("y16", t.bfloat16), ("y8", t.float32)):
            self.assertEqual(names[name].dtype, dtype)
            self.assertLess((names[name] - x @ w.t()).norm() / whole.norm(), 0.2)
        exec(scaled, names)
        self.assertTrue(t.equal(names["y"], whole))
        names = {}
        exec(arrays, names)
        want = names["x"] @ names["w"].T
        self.assertLess(np.linalg.norm(names["y"] - want),
                        0.3 * np.linalg.norm(want))
        self.addCleanup(os.chdir, os.getcwd())
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            linear = self.package.Linear.from_linear(t.nn.Linear(64, 24))
            os.mkdir("model-dir")
            save_safetensors("model-dir/model.safetensors", {
                "up." + key: value for key, value in
                linear.state_dict().items() if key.startswith("weight")})
            names = {"nibblas": nibblas}
            exec(files, names)
            self.assertEqual(names["layer"].codes.shape, (24, 32))
            os.chdir(SOURCE)


if __name__ == "__main__":
    unittest.main(verbosity=2)
