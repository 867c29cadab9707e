#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_census.py - ptx_census.py --list with a compiler that records its arguments:
variables, files that exist, files that do not compile; and the lists of tools/census."""

import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

import ptx_census as census  # noqa: E402

NVCC = """#!/bin/sh
case "$*" in *bad.cu*) echo "no such type" >&2; exit 1 ;; esac
echo "$*" >"$3"
"""


class List(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.at = pathlib.Path(self.folder.name)
        nvcc = self.at / "nvcc"
        nvcc.write_text(NVCC)
        nvcc.chmod(0o755)
        patch = mock.patch.dict(os.environ, {
            "PATH": f"{self.at}:{os.environ['PATH']}", "ROOT": "/there"})
        patch.start()
        self.addCleanup(patch.stop)

    def compile(self, text):
        """The compiler's arguments for each output, or its errors."""
        lines = self.at / "list"
        lines.write_text(text)
        census.compile_list(lines, self.at / "out")
        return {p.name: p.read_text().strip() for p in (self.at / "out").iterdir()}

    def test_variables(self):
        made = self.compile("# a comment\nFLAGS=-O3 -I$ROOT/include\n\n"
                            "one|-arch=sm_90a $FLAGS $ROOT/one.cu\n")
        self.assertEqual(list(made), ["one.ptx"])
        self.assertTrue(made["one.ptx"].endswith(
            "-arch=sm_90a -O3 -I/there/include /there/one.cu"))

    def test_failures_and_what_is_there(self):
        made = self.compile("a|good.cu\nb|bad.cu\n")
        self.assertEqual(made["b.ptx.err"], "no such type")
        again = self.compile("a|other.cu\nb|good.cu\n")
        self.assertEqual(again, made)

    def test_lists(self):
        lists = sorted((TOOLS / "census").glob("*.list"))
        self.assertTrue(lists)
        for path in lists:
            made = [line.split("|")[0] for line in path.read_text().splitlines()
                    if "|" in line and not line.startswith("#")]
            self.assertEqual(len(made), len(set(made)), path.name)


if __name__ == "__main__":
    unittest.main()
