#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_run_examples.py - run_examples.py without a project: its rows, and the results
that it derives from the ends of programs."""

import json
import os
import pathlib
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import run_examples as examples  # noqa: E402

ROWS = json.loads((examples.DRIVERS / "rows.json").read_text())
REPORT = "nibemu: k, CTA (0,0,0): ld: nothing orders that\n  rule: order: two threads\n"


class Rows(unittest.TestCase):
    """rows.json, and rows that are wrong."""

    def test_rows(self):
        self.assertGreater(len(ROWS), 20)
        self.assertEqual(examples.faults_of(ROWS), [])

    def test_faults(self):
        for change, words in (({"driver": "none.cu"}, "no driver"),
                              ({"device": "h100"}, "not known"),
                              ({"source": "a.cu", "driver": "b.cu"}, "or a driver"),
                              ({"more": 1}, "more is not known")):
            faults = examples.faults_of([*ROWS[1:], ROWS[0] | change])
            self.assertTrue(any(words in f for f in faults), change)
        self.assertTrue(any("twice" in f for f in examples.faults_of([*ROWS, ROWS[0]])))
        self.assertTrue(any("no row uses it" in f for f in examples.faults_of(ROWS[:1])))


class Runs(unittest.TestCase):
    """The result for each end of a program."""

    def result(self, script, seeds=3):
        """The cell "result" of a program that is this script."""
        row = {"name": "r", "project": "a/p", "commit": "0123456", "device": "h200",
               "source": "s.cu", "passes": "Passed", "fails": "Failed",
               "arguments": ["--m=1"], "env": {"NIBEMU_SMS": "8"}}
        with tempfile.TemporaryDirectory() as name:
            program = pathlib.Path(name) / "s_cu.out"
            program.write_text("#!/bin/sh\n" + script)
            os.chmod(program, 0o755)
            args = types.SimpleNamespace(build=pathlib.Path(name), folders=[],
                                         work=pathlib.Path(name), seeds=seeds)
            return examples.result_of(row, args)[1]

    def test_right(self):
        asked = 'test "$1 $NIBEMU_DEVICE $NIBEMU_SMS" = "--m=1 h200 8" || exit 1\n'
        self.assertEqual(self.result(asked + "echo Passed\n"),
                         "right, 3 of 3 schedules")

    def test_wrong(self):
        said = f"cat >&2 <<'END'\n{REPORT}END\necho Passed\n"
        for script, words in (("echo nothing\n", "does not say"),
                              ("echo Passed\necho Failed\n", "a result is wrong"),
                              ("echo Passed\nexit 3\n", "status 3: Passed"),
                              (said, "reported: `order`"),
                              ("test $NIBEMU_SEED = 2 || echo Passed\n", "seed 2: ")):
            self.assertIn(words, self.result(script))
        self.assertNotIn("seed 1", self.result("test $NIBEMU_SEED = 2 || echo Passed\n"))

    def test_not_there(self):
        row = ROWS[0] | {"source": "none.cu"}
        with tempfile.TemporaryDirectory() as name:
            args = types.SimpleNamespace(build=pathlib.Path(name), folders=[],
                                         work=pathlib.Path(name), seeds=1)
            self.assertIn("no folder has", examples.result_of(row, args)[1])


if __name__ == "__main__":
    unittest.main()
