#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_speed.py - speed.py adds the launches of a program, and nothing else that
NIBEMU_VERBOSE=1 prints."""

import importlib.util
import pathlib
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/speed.py"

TEXT = """a line of the program
nibemu: _Z4copyPfPKfi, 8192 CTAs
nibemu: loaded 8388608 bytes (tensor maps 0, bulk copies 0, cp.async 0, threads 8388608)
nibemu: 35651584 instructions of threads, 0.787 s, 0.306 s of processors
nibemu: _Z4copyPfPKfi, 1 CTAs
nibemu: 100 instructions of threads, 0.5 s, 0.25 s of processors
"""


class Launches(unittest.TestCase):
    def test_sum(self):
        spec = importlib.util.spec_from_file_location("speed", TOOL)
        speed = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(speed)
        instructions, seconds = speed.sum_launches(TEXT)
        self.assertEqual(instructions, 35651684)
        self.assertAlmostEqual(seconds, 0.556)
        self.assertEqual(speed.sum_launches("no launch"), (0, 0))


if __name__ == "__main__":
    unittest.main()
