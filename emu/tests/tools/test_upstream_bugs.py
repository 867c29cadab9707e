#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_upstream_bugs.py - upstream_bugs.py without a project: its rows, the trees that it
extracts from a repository made here, and the rules that it finds in reports of a run."""

import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import upstream_bugs as bugs  # noqa: E402

REPORT = """nibemu: k, CTA (0,0,0): ld: nothing orders that
  rule: order: two threads
  again: NIBEMU_SEED=1
nibemu: k: deadlock: no copy is in flight, and no warp can run:
  cluster 0, CTA (0,0,0), warp 0 waits
"""


def commit(folder, text):
    """A commit with one file.h that holds TEXT; its name."""
    (folder / "include").mkdir(exist_ok=True)
    (folder / "include" / "file.h").write_text(text)
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", text], check=True)
    return bugs.git(folder, "rev-parse", "HEAD")


class Rows(unittest.TestCase):
    """rows.json, and rows that are wrong."""

    def test_rows(self):
        rows = bugs.read_rows()
        self.assertGreater(len(rows), 10)
        self.assertEqual(bugs.faults_of(rows), [])

    def test_faults(self):
        row = bugs.read_rows()[0]
        for change, words in (({"commit": "HEAD"}, "commit's name"),
                              ({"driver": "none.cu"}, "no driver"),
                              ({"device": "h100"}, "not known"),
                              ({"more": 1}, "more is not known")):
            self.assertTrue(any(words in f for f in bugs.faults_of([row | change])),
                            change)
        self.assertTrue(any("twice" in f for f in bugs.faults_of([row, row])))


class Trees(unittest.TestCase):
    """The files that are extracted from a repository."""

    def test_both_sides(self):
        with tempfile.TemporaryDirectory() as name:
            folder, work = pathlib.Path(name) / "git", pathlib.Path(name) / "work"
            folder.mkdir()
            subprocess.run(["git", "init", "-q", str(folder)], check=True)
            commit(folder, "old")
            row = {"name": "r", "project": "p", "commit": commit(folder, "new")}
            commit(folder, "later")
            for side, text in (("parent", "old"), ("fix", "new")):
                includes, fault = bugs.prepare(row, side, [folder], work)
                self.assertEqual(fault, "")
                self.assertEqual((includes[0] / "file.h").read_text(), text)
            includes, fault = bugs.prepare(row | {"commit": "0123456"}, "fix",
                                           [folder], work)
            self.assertIsNone(includes)
            self.assertIn("no folder has 0123456", fault)


class Runs(unittest.TestCase):
    """The result for each end of a program."""

    def run_script(self, script, **row):
        with tempfile.TemporaryDirectory() as name:
            program = pathlib.Path(name) / "r" / "fix.out"
            program.parent.mkdir()
            program.write_text("#!/bin/sh\n" + script)
            os.chmod(program, 0o755)
            args = types.SimpleNamespace(build=pathlib.Path(name),
                                         work=pathlib.Path(name))
            return bugs.run_seed({"name": "r", "device": "h200"} | row, program, 7, args)

    def test_ends(self):
        said = f"cat >&2 <<'END'\n{REPORT}END\nexit 1\n"
        self.assertEqual(self.run_script("exit 0\n"), [])
        self.assertEqual(self.run_script(said), ["order"])
        self.assertEqual(self.run_script(said, about="deadlock"), ["deadlock"])
        self.assertEqual(self.run_script(said, about="no such words"), [])
        self.assertEqual(self.run_script("echo lost >&2; exit 2\n"), ["failed: lost"])
        self.assertEqual(self.run_script("test $NIBEMU_SEED = 7 && exit 0; exit 1\n"), [])

    def test_words(self):
        side = bugs.Side(seeds=4, reported=2, first=1)
        side.rules.update(["order", "order"])
        self.assertEqual(bugs.words_of(side), "2 of 4, first 1: `order`")
        self.assertEqual(bugs.words_of(bugs.Side(seeds=4)), "0 of 4")


if __name__ == "__main__":
    unittest.main()
