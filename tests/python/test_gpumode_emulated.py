# SPDX-License-Identifier: Apache-2.0
"""python -m nibblas.gpumode check --device emu:b200: the contest's tests on the
software GPU, by the package and by the file that bundle writes, and how many kernels a
call launches.  Some small tests; NIB_TEST_SIZE=medium: all ten of each problem.
Skipped in builds without kernels."""

import json
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
# Between the checks of one process, on both streams.
NEXT = "==== next\n"
EACH = f"""
import json, sys
from nibblas.gpumode.__main__ import main
for job in json.loads(sys.argv[1]):
    for out in sys.stdout, sys.stderr:
        print({NEXT!r}, end="", file=out, flush=True)
    if main(job):
        sys.exit(1)
"""
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

    def check_all(self, device, files, only=SMALL):
        """Checks {problem: its file, None for the package} in one process, which
        imports torch once.  All pass, and each call launched one kernel of the
        device's."""
        jobs = []
        for problem, file in files.items():
            some = () if IS_WHOLE else ("--only", only[problem])
            mine = () if file is None else ("--submission", file)
            jobs.append(["check", problem, "--device", device, *some, *mine])
        with tempfile.TemporaryDirectory() as links:
            # What makes it the process that the command starts.
            for name, target in (("libcuda.so.1", "libnibemu.so"),
                                 ("nibblas", "nibblas")):
                os.symlink(os.path.join(FOLDER, target), os.path.join(links, name))
            done = subprocess.run(
                [sys.executable, "-c", EACH, json.dumps(jobs)], text=True,
                capture_output=True, check=False, env={
                    **os.environ, "NIBEMU_VERBOSE": "1", "LD_LIBRARY_PATH": links,
                    "NIBEMU_DEVICE": device.removeprefix("emu:")})
        said = (jobs, done.stdout, done.stderr)
        self.assertEqual(done.returncode, 0, said)
        texts, errors = (text.split(NEXT)[1:] for text in (done.stdout, done.stderr))
        self.assertEqual((len(texts), len(errors)), (len(jobs), len(jobs)), said)
        for problem, text, error in zip(files, texts, errors):
            with self.subTest(problem=problem):
                self.look(problem, device, only, text, error)

    def look(self, problem, device, only, text, error):
        """What a check printed, and what the software GPU did."""
        count = 10 if IS_WHOLE else len(only[problem].split(","))
        lines = text.splitlines()
        self.assertEqual(lines[0],
                         f"{problem} on {device}, seed 1111, rtol = atol = 1e-3")
        self.assertEqual(lines[-1], f"{count} of {count} tests passed", text)
        kernels = LAUNCH.findall(error)
        self.assertEqual(len(kernels), count, error)
        suffix = {"emu:b200": "_sm100", "emu:h200": "_sm90",
                  "emu:a100": "_sm80"}[device]
        self.assertEqual([k for k in kernels if not k.endswith(suffix)], [])
        print(f"{problem} on {device}: {lines[-1]}, "
              f"{len(kernels)} launches: {', '.join(sorted(set(kernels)))}",
              flush=True)

    def test_the_package(self):
        self.check_all("emu:b200", dict.fromkeys(SMALL))

    def test_the_file(self):
        """One file is for all GPUs."""
        from nibblas.gpumode import __main__ as command

        with tempfile.TemporaryDirectory() as folder:
            files = {problem: os.path.join(folder, problem + ".py")
                     for problem in SMALL}
            # In one process, which compresses the kernels once.
            for problem, path in files.items():
                self.assertEqual(command.main(["bundle", problem, "-o", path]), 0)
            self.check_all("emu:b200", files, SMALLEST)
            if not IS_WHOLE:
                for device in "emu:h200", "emu:a100":
                    self.check_all(device, {"gemv": files["gemv"]}, SMALLEST)

    def test_the_command(self):
        """It starts the process that has the software GPU."""
        done = self.command("check", "gemv", "--device", "emu:b200", "--only", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.look("gemv", "emu:b200", SMALLEST, done.stdout, done.stderr)

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
