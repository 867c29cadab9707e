# SPDX-License-Identifier: Apache-2.0
"""python -m nibblas.ggml: the path of the plug-in, or what is missing.  test_wheel.py
has the plug-in of a wheel."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import nibblas.ggml
from common import SOURCE
from nibblas import _library

LIBRARY = os.path.realpath(_library.library_path())


def command(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "nibblas.ggml", *arguments], text=True,
        capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": os.path.join(SOURCE, "python"), **environment})


class Path(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="nib-ggml-")
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)

    def copy(self, name):
        target = os.path.join(self.folder, name)
        shutil.copy(LIBRARY, target)
        return target

    def test_is_next_to_the_library(self):
        path = nibblas.ggml.path()
        self.assertEqual(os.path.dirname(os.path.realpath(path)),
                         os.path.dirname(LIBRARY))
        self.assertTrue(hasattr(ctypes.CDLL(path), "ggml_backend_init"))
        done = command()
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, path + "\n", ""))

    def test_says_what_is_missing(self):
        done = command(NIBBLAS_LIBRARY=self.copy("libnibblas.so"))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(os.path.join(self.folder, "ggml-nibblas.so") +
                      " does not exist", done.stderr)
        self.assertIn("NIB_BUILD_GGML", done.stderr)

    def test_finds_a_library_of_the_system(self):
        """Loaded by its name only."""
        self.copy("libnibblas.so.0")
        plugin = os.path.join(self.folder, "ggml-nibblas.so")
        shutil.copy(nibblas.ggml.path(), plugin)
        done = command(NIBBLAS_LIBRARY="libnibblas.so.0", LD_LIBRARY_PATH=self.folder)
        self.assertEqual((done.returncode, done.stdout), (0, plugin + "\n"),
                         done.stderr)

    def test_takes_no_arguments(self):
        done = command("x")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("GGML_BACKEND_PATH", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
