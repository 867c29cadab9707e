#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checks of prose: tools/check_words.sh refuses these sentences and no others,
check_docs.py finds faults of pages, check_commits.sh those of subjects."""

import importlib.util
import os
import shutil
import subprocess
import tempfile
import unittest

SOURCE = os.environ["NIB_SOURCE_DIR"]

REFUSED = """
Zeros behind the last row of a problem.
The copy comes behind it.
NVFP4 results are not there.
Whether nvcc is there: see the log.
The file is not there yet.
The list of tiles lies in memory.
What stands behind the comma is the exponent.
The version stands in the header.
A model.safetensors lies beside the index.
It depends on k alone.
The scales alone are copied.
Three times as fast, beside oneDNN.
The loops of the machine code beside
The first tile, and the bytes behind
DESTDIR is heeded.
The planner asks for all multiprocessors.
The wheel brings its own library.
The API layer hands it over to the backend.
The kernel hands on what it has.
How x takes part is an option.
The limit that a row is held against.
The report says what became of it.
T = 16 takes 132.6 and not 114.8.
8.4 us and not 9.6 us.
Of nothing, no batches.
The warp who loads them waits.
""".strip().splitlines()

FAIR = """
The latency of the load is hidden behind the multiplication.
A clock falls behind.
There is no such file.
If there is a GPU, it runs there.
Tests that were there before stay.
The result lies between 0 and 1.
Each code stands for a value.
Here fp32 stands in for the oracle's type.
A library that stands alone is left alone.
Each test may be run alone.
Besides, it is exact.
Users ask for a GPU, and nib asks no more.
The hand of a clock.
It takes a second.
It is between 3 and 5, and not 4.
Both are exact, and not only fast.
Limits of 4 KiB apply.
""".strip().splitlines()


def run(script, *args, **options):
    return subprocess.run([script, *args], text=True, capture_output=True, check=False,
                          **options)


class Words(unittest.TestCase):
    def refused(self, sentences):
        """Those of the sentences that the script refuses, each a line of a file."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.md")
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(sentences) + "\n")
            done = run(os.path.join(SOURCE, "tools", "check_words.sh"), path)
        self.assertEqual(done.returncode, int(bool(done.stdout)), done.stderr)
        return {sentences[int(line[len(path) + 1:].split(":")[0]) - 1]
                for line in done.stdout.splitlines()}

    def test_refused(self):
        self.assertEqual(set(REFUSED) - self.refused(REFUSED), set())

    def test_fair(self):
        self.assertEqual(self.refused(FAIR), set())


def check_docs():
    path = os.path.join(SOURCE, "tools", "check_docs.py")
    spec = importlib.util.spec_from_file_location("check_docs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Docs(unittest.TestCase):
    def found(self, check, text):
        return [fault for _, fault in check("README.md", text)]

    def test_anchors(self):
        text = "# A `b_c` d\n```\n# no heading\n```\n## [x](y.md): z\n## A b_c d\n"
        self.assertEqual(check_docs().anchors(text), {"a-b_c-d", "x-z", "a-b_c-d-1"})

    def test_links(self):
        check = check_docs().broken_links
        good = ("[a](docs/numerics.md#1-formats) [b](#here) "
                "<img src=\"docs/overview.svg\">"
                "\n# Here\n`[c](nowhere.md)` [d](https://e.f/g)\n```\n"
                "[h](nowhere.md)\n```\n")
        self.assertEqual(self.found(check, good), [])
        self.assertEqual(self.found(check, "[a](nowhere.md)"),
                         ["link to nowhere.md: there is no nowhere.md"])
        self.assertEqual(self.found(check, "[a](NEWS.md#nowhere)"),
                         ["link to NEWS.md#nowhere: NEWS.md has no such heading"])

    def test_names(self):
        docs = check_docs()
        self.assertEqual(self.found(docs.missing_files,
                                    "`src/api/{run,plan}.c` "
                                    "`src/backend/cpu/*/*_avx2.c` "
                                    "`src/<kind>/x.c` `ls src/api/`"), [])
        self.assertEqual(self.found(docs.missing_files, "`src/api/{run,walk}.c`"),
                         ["`src/api/walk.c`: there is no such file"])
        self.assertEqual(self.found(docs.unknown_targets,
                                    "`make lint test` make a failure\n```sh\n"
                                    "make demo   # a block\n"
                                    "make fuzz FUZZ_SECONDS=6\n```"),
                         [])
        self.assertEqual(self.found(docs.unknown_targets, "`make tea`"),
                         ["make tea: the Makefile has no such target"])
        names = docs.unknown_names({"nib_run", "NIB_MAX_K"})
        self.assertEqual(self.found(names, "`nib_run()` `NIB_MAX_K` nib_walk()"), [])
        self.assertEqual(self.found(names, "`nib_walk()`"),
                         ["`nib_walk`: no source has this name"])

    def test_numbers(self):
        docs = check_docs()
        table = [(r"at most (\d+) lines", "800")]
        self.assertEqual(self.found(docs.wrong_numbers(table), "at most 800 lines"), [])
        self.assertEqual(list(docs.wrong_numbers(table)("x", "\nat most 8 lines")),
                         [(2, r"8: the tree says 800 (at most (\d+) lines)")])
        self.assertEqual(len(list(docs.unused(table, ["no number"]))), 1)


@unittest.skipUnless(shutil.which("git"), "no git")
class Commits(unittest.TestCase):
    def test_subjects(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "tools"))
            script = shutil.copy(os.path.join(SOURCE, "tools", "check_commits.sh"),
                                 os.path.join(folder, "tools"))

            def git(*args):
                done = run("git", "-c", "user.name=x", "-c", "user.email=x@y", *args,
                           cwd=folder)
                self.assertEqual(done.returncode, 0, done.stderr)

            def commit(subject):
                git("commit", "--allow-empty", "-qm", subject)

            git("init", "-q")
            commit("A subject of old times.")
            commit("area: what changes")
            self.assertEqual(run(script, cwd=folder).stdout, "")
            git("tag", "v1")
            for subject in ("no area", "area: a full stop.", "area: one; two",
                            "area: " + "x" * 67):
                commit(subject)
                commit("area, other: it is fine")
                done = run(script, cwd=folder)
                self.assertEqual(done.returncode, 1, subject)
                self.assertEqual(done.stdout.split(" ", 1)[1], subject + "\n")
                git("tag", "-f", "v1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
