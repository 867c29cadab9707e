# SPDX-License-Identifier: Apache-2.0
"""`pip install .` as a user does it, without nvcc: the wheel has the library, all
modules with their types, the ggml plug-in, and the command nib; it needs only NumPy."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from common import SOURCE

TRY = """
import sys
import numpy as np
import nibblas
x = np.arange(64, dtype=np.float32).reshape(2, 32)
q = nibblas.quantize(x)
c = nibblas.gemm(q.codes, q.scales, q.codes, q.scales,
                 alpha=q.global_scale ** 2)
assert np.allclose(c, x @ x.T, rtol=0.05), c
assert "torch" not in sys.modules
assert any(backend.name == "cpu-scalar" for backend in nibblas.backends())
print(nibblas.__file__, nibblas.__version__)
"""


def run(command, **options):
    return subprocess.run(command, text=True, capture_output=True, check=False,
                          **options)


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="nib-wheel-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        done = run([sys.executable, "-m", "pip", "wheel", "--no-deps",
                    "--no-input", "--disable-pip-version-check", "--retries",
                    "1", "--timeout", "15", "--verbose", "--wheel-dir",
                    cls.folder, SOURCE,
                    "--config-settings", "cmake.define.NIB_CUDA=OFF",
                    # Other tests run the optimised library.
                    "--config-settings",
                    "cmake.define.CMAKE_C_FLAGS_RELEASE=-O1"],
                   timeout=240)
        cls.said = said = done.stdout + done.stderr
        if "scikit-build-core" in said and "No matching distribution" in said:
            raise unittest.SkipTest("pip: cannot get scikit-build-core")
        assert done.returncode == 0, said
        cls.wheel = os.path.join(cls.folder, next(
            name for name in os.listdir(cls.folder) if name.endswith(".whl")))

    def test_holds_all_modules_and_the_library(self):
        with zipfile.ZipFile(self.wheel) as archive:
            names = set(archive.namelist())
        root = os.path.join(SOURCE, "python")
        for folder, _, files in os.walk(os.path.join(root, "nibblas")):
            for name in files:
                if name.endswith((".py", "py.typed")):
                    self.assertIn(os.path.relpath(os.path.join(folder, name),
                                                  root), names)
        libraries = [name for name in names if ".so" in name]
        self.assertEqual(sorted(libraries), [
            "nibblas/lib/ggml-nibblas.so",
            "nibblas/lib/libnibblas.so",
            "nibblas/lib/libnibblas_submission.so"])
        self.assertIn("nibblas/py.typed", names)
        self.assertRegex(os.path.basename(self.wheel),
                         r"^nibblas-\d+\.\d+\.\d+-py3-none-linux_")

    def install(self, name):
        target = os.path.join(self.folder, name)
        done = run([sys.executable, "-m", "pip", "install", "--no-deps",
                    "--no-index", "--disable-pip-version-check", "--quiet",
                    "--target", target, self.wheel])
        self.assertEqual(done.returncode, 0, done.stderr)
        return target

    def test_has_the_command(self):
        """Linked only with libc and libm."""
        if "nib (Debian: libjansson-dev)" in self.said:
            self.skipTest("no libjansson.a")
        nib = os.path.join(self.install("command"), "bin", "nib")
        for arguments, pattern in (
                (["--version"], r"\d+\.\d+\.\d+"),
                (["check", "--op", "gemm", "--shape", "3x5x64"], "3x5x64")):
            done = run([nib, *arguments], env={"PATH": os.environ["PATH"]})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, pattern)
        libraries = re.findall(r"^\s+(lib\w+)", run(["ldd", nib]).stdout, re.M)
        self.assertLessEqual(set(libraries), {"libc", "libm"}, libraries)

    @unittest.skipUnless(shutil.which("nm"), "no nm")
    def test_runs_on_older_systems(self):
        """Symbols of glibc 2.34 at the latest (2021), where libpthread and libdl
        became parts of libc: a build on 2.34 or later needs them."""
        with zipfile.ZipFile(self.wheel) as archive:
            files = [archive.extract(name, os.path.join(self.folder, "raw"))
                     for name in archive.namelist()
                     if name.endswith((".so", "/nib"))]
        self.assertGreaterEqual(len(files), 2)
        for file in files:
            found = {(int(minor), symbol) for symbol, minor in re.findall(
                r"(\w+)@GLIBC_2\.(\d+)", run(["nm", "-D", file]).stdout)}
            self.assertTrue(found)
            self.assertLessEqual(max(found), (34, "~"), file)

    def test_works_where_it_is_installed(self):
        target = self.install("site")
        env = {key: value for key, value in os.environ.items()
               if key != "NIBBLAS_LIBRARY"}
        done = run([sys.executable, "-c", TRY], cwd=self.folder,
                   env={**env, "PYTHONPATH": target})
        self.assertEqual(done.returncode, 0, done.stderr)
        path, version = done.stdout.split()
        self.assertTrue(path.startswith(target), path)
        self.assertIn(f"nibblas-{version}-", self.wheel)

    def test_has_the_ggml_plugin(self):
        """Next to the library, which it finds where it is installed; it is linked with
        no ggml.  ggml's and jansson's licences are with it."""
        target = self.install("plugin")
        env = {key: value for key, value in os.environ.items()
               if key != "NIBBLAS_LIBRARY"}
        done = run([sys.executable, "-m", "nibblas.ggml"], cwd=self.folder,
                   env={**env, "PYTHONPATH": target})
        self.assertEqual(done.returncode, 0, done.stderr)
        plugin = os.path.join(target, "nibblas", "lib", "ggml-nibblas.so")
        self.assertEqual(done.stdout, plugin + "\n")
        library = os.path.join(target, "nibblas", "lib", "libnibblas.so")
        needed = run(["ldd", plugin]).stdout
        self.assertIn(f"libnibblas.so => {library} ", needed)
        self.assertNotIn("ggml", needed.replace(plugin, ""))
        # No ggml has called it: it refuses.
        init = ctypes.CDLL(plugin).ggml_backend_init
        init.restype = ctypes.c_void_p
        self.assertIsNone(init())
        with zipfile.ZipFile(self.wheel) as archive:
            licences = [archive.read(name) for name in archive.namelist()
                        if "/licenses/" in name]
        self.assertEqual(len(licences), 3)
        for owner in (b"The ggml authors", b"Petri Lehtinen"):
            self.assertTrue(any(owner in text for text in licences), owner)

    def test_without_a_library_says_what_is_missing(self):
        env = {**os.environ, "NIBBLAS_LIBRARY": "/nowhere/libnibblas.so"}
        done = run([sys.executable, "-c", "import nibblas"], env=env)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("/nowhere/libnibblas.so", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
