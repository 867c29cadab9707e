#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_speed.py - speed.py adds the launches of a program, and nothing else that
NIBEMU_VERBOSE=1 prints."""

import importlib.util
import pathlib
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/speed.py"

TEXT = """a line of the program
nibemu: copy, 8192 CTAs
nibemu: global memory: loaded 8388608 bytes (tensor copies 0, bulk copies 0), stored 8 bytes
nibemu: 35651584 thread instructions, 0.787 s wall time, 0.306 s processor time
nibemu: copy, 1 CTA
nibemu: 100 thread instructions, 0.500 s wall time, 0.250 s processor time
"""


class Launches(unittest.TestCase):
    def test_sum(self):
        spec = importlib.util.spec_from_file_location("speed", TOOL)
        speed = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(speed)
        instructions, wall, processors = speed.sum_launches(TEXT)
        self.assertEqual(instructions, 35651684)
        self.assertAlmostEqual(wall, 1.287)
        self.assertAlmostEqual(processors, 0.556)
        self.assertEqual(speed.sum_launches("no launch"), (0, 0, 0))


if __name__ == "__main__":
    unittest.main()
