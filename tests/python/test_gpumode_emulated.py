# SPDX-License-Identifier: Apache-2.0
"""python -m nibblas.gpumode check --device emu:b200: the contest's tests on the
software GPU, by the package and by the file that bundle writes, and how many kernels a
call launches.  Some small tests; NIB_TEST_SIZE=medium: all ten of each problem.
Skipped in builds without kernels."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from common import TorchTest

FOLDER = os.path.dirname(os.environ["NIBBLAS_LIBRARY"])
IS_WHOLE = os.environ.get("NIB_TEST_SIZE", "small") != "small"
# The cheapest that are not like another.
SMALL = {"gemm": "0", "dual_gemm": "1", "gemv": "0,7", "group_gemm": "0,4,8"}
# The file's kernels are the package's.
SMALLEST = {"gemm": "0", "dual_gemm": "1", "gemv": "0", "group_gemm": "0"}
LAUNCH = re.compile(r"^nibemu: (nib_\w+), \d+ CTAs?$", re.MULTILINE)


class Emulated(TorchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name in ("libnibemu.so", "nibblas/sm100_gemm.ptx"):
            if not os.path.exists(os.path.join(FOLDER, name)):
                raise unittest.SkipTest(f"no {FOLDER}/{name}")

    def command(self, *arguments, **env):
        return subprocess.run(
            [sys.executable, "-m", "nibblas.gpumode", *arguments],
            env={**os.environ, "NIBEMU_VERBOSE": "1", **env}, text=True,
            capture_output=True, check=False)

    def check(self, problem, device, *arguments, only=SMALL):
        """All pass, and each call launched one kernel of the device's."""
        some = () if IS_WHOLE else ("--only", only[problem])
        done = self.command("check", problem, "--device", device, *some,
                            *arguments)
        said = (problem, device, arguments, done.stdout, done.stderr)
        self.assertEqual(done.returncode, 0, said)
        count = 10 if IS_WHOLE else len(only[problem].split(","))
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0],
                         f"{problem} on {device}, seed 1111, rtol = atol = 1e-3")
        self.assertEqual(lines[-1], f"{count} of {count} tests passed")
        kernels = LAUNCH.findall(done.stderr)
        self.assertEqual(len(kernels), count, said)
        suffix = {"emu:b200": "_sm100", "emu:h200": "_sm90",
                  "emu:a100": "_sm80"}[device]
        self.assertEqual([k for k in kernels if not k.endswith(suffix)], [])
        print(f"{problem} on {device} {arguments}: {lines[-1]}, "
              f"{len(kernels)} launches: {', '.join(sorted(set(kernels)))}",
              flush=True)

    def test_the_package(self):
        for problem in SMALL:
            with self.subTest(problem=problem):
                self.check(problem, "emu:b200")

    def test_the_file(self):
        """One file is for all GPUs."""
        with tempfile.TemporaryDirectory() as folder:
            for problem in SMALL:
                path = os.path.join(folder, problem + ".py")
                made = self.command("bundle", problem, "-o", path)
                self.assertEqual(made.returncode, 0, made.stderr)
                print(made.stdout.split("/")[-1], end="")
                with self.subTest(problem=problem):
                    self.check(problem, "emu:b200", "--submission", path,
                               only=SMALLEST)
            if not IS_WHOLE:
                for device in "emu:h200", "emu:a100":
                    self.check("gemv", device, "--submission",
                               os.path.join(folder, "gemv.py"), only={"gemv": "0"})

    def test_a_wrong_result_is_found(self):
        """What a submission leaves alone on the GPU is no result of the host's."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "idle.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write("def custom_kernel(data):\n    return data[-1]\n")
            done = self.command("check", "gemv", "--device", "emu:b200", "--only",
                                "0", "--submission", path)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stdout.splitlines()[-1], "0 of 1 tests passed")

    def test_the_package_nibblas_emu(self):
        """It has the software GPU that a wheel's library has not next to it."""
        with tempfile.TemporaryDirectory() as folder:
            library = shutil.copy(os.environ["NIBBLAS_LIBRARY"], folder)
            gemv = "check", "gemv", "--device", "emu:b200", "--only", "0"
            done = self.command(*gemv, NIBBLAS_LIBRARY=library)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(f"{folder}/libnibemu.so: the software GPU is missing: pip "
                          "install nibblas-emu", done.stderr)
            with open(os.path.join(folder, "nibblas_emu.py"), "w",
                      encoding="utf-8") as file:
                file.write(f"def library():\n    return {FOLDER!r} '/libnibemu.so'\n")
            path = os.pathsep.join((folder, os.environ["PYTHONPATH"]))
            done = self.command(*gemv, NIBBLAS_LIBRARY=library, PYTHONPATH=path)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_refusals(self):
        for arguments, message in (
                (("check", "gemv", "--device", "emu:b300"),
                 "--device emu:b300: the software GPUs are emu:h200, "
                 "emu:h100, emu:b200, emu:a100, emu:rtx4090"),
                (("bench", "gemv", "--device", "emu:b200"),
                 "--device emu:b200: a GPU in software cannot be timed")):
            done = self.command(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertEqual(done.stderr, f"nibblas.gpumode: {message}\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
