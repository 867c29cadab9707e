# SPDX-License-Identifier: Apache-2.0
"""python -m nibblas.gpumode bundle: runs the file in a process that has torch and
nothing of this tree, on the software GPU.  Tensors in the memory of that GPU replace
CUDA tensors.  The results are checked here.  Skipped in builds without kernels."""

import ast
import itertools
import os
import re
import subprocess
import sys
import tempfile
import unittest

from common import SOURCE, TorchTest

EMULATOR = os.path.join(os.path.dirname(os.environ["NIBBLAS_LIBRARY"]),
                        "libnibemu.so")
DEVICES = ("h200", "b200", "a100")
PROBLEMS = ("gemm", "dual_gemm", "gemv", "group_gemm")

# What the contest's evaluation script does with a submission: it imports it by name
# and calls it with the tuple, and with others of the same shapes.
EVALUATE = '''
import ctypes as C
import os
import sys

import torch

driver = C.CDLL("libcuda.so.1")


class OnGpu(torch.Tensor):
    def data_ptr(self):
        return self.pointer

    def get_device(self):
        return 0


def to_gpu(x):
    if isinstance(x, (tuple, list)):
        return type(x)(map(to_gpu, x))
    if not isinstance(x, torch.Tensor):
        return x
    pointer = C.c_uint64()
    size = x.untyped_storage().nbytes()
    assert driver.cuMemAlloc_v2(C.byref(pointer), C.c_size_t(size)) == 0
    assert driver.cuMemcpy(pointer, C.c_uint64(x.data_ptr()),
                           C.c_size_t(size)) == 0
    y = x.as_subclass(OnGpu)
    y.pointer = pointer.value
    return y


def to_host(y):
    x = y.as_subclass(torch.Tensor)
    x.untyped_storage().fill_(0)
    assert driver.cuMemcpy(
        C.c_uint64(x.untyped_storage().data_ptr()), C.c_uint64(y.pointer),
        C.c_size_t(x.untyped_storage().nbytes())) == 0
    return x


def context():
    device, handle = C.c_int(), C.c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuDeviceGet(C.byref(device), 0) == 0
    assert driver.cuDevicePrimaryCtxRetain(C.byref(handle), device) == 0
    assert driver.cuCtxSetCurrent(handle) == 0


from submission import custom_kernel

assert not [name for name in sys.modules if name.startswith("nibblas")]
context()
results = []
for data in torch.load("data.pt"):
    data = to_gpu(data)
    got = custom_kernel(data)
    c = [x for _, _, x in data[0]] if isinstance(got, list) else data[-1]
    assert got is c or all(a is b for a, b in zip(got, c, strict=True))
    results.append([to_host(x) for x in got] if isinstance(got, list)
                   else to_host(got))
torch.save(results, "results.pt")
'''


class Bundles(TorchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        import nibblas
        from nibblas.gpumode import _bundle, _contest, _data, _specs
        from nibblas.gpumode import __main__ as command
        cls.bundle, cls.contest, cls.data = _bundle, _contest, _data
        cls.size, cls.command = _specs.Size, command
        folder = tempfile.TemporaryDirectory(prefix="nib-bundle-")
        cls.addClassCleanup(folder.cleanup)
        cls.texts = {}
        for problem in PROBLEMS:
            path = os.path.join(folder.name, problem + ".py")
            status = command.main(["bundle", problem, "-o", path])
            if status:
                try:
                    _bundle.bundle(problem)
                except nibblas.Error as error:
                    if "made without nvcc" in str(error):
                        raise unittest.SkipTest(str(error)) from None
                    raise
            with open(path, encoding="ascii") as file:
                cls.texts[problem] = file.read()

    def evaluate(self, text, inputs, **env):
        """(process, results) of a submission, alone in a folder."""
        t = self.torch
        if not os.path.exists(EMULATOR):
            self.skipTest("no " + EMULATOR)
        with tempfile.TemporaryDirectory() as folder:
            for name, content in (("submission.py", text),
                                  ("evaluate.py", EVALUATE)):
                with open(os.path.join(folder, name), "w",
                          encoding="utf-8") as file:
                    file.write(content)
            t.save(inputs, os.path.join(folder, "data.pt"))
            # What a user may have set for the package is nothing to a bundle.
            for name, target in (("libcuda.so.1", EMULATOR), ("nibblas",
                    os.path.join(os.path.dirname(EMULATOR), "nibblas"))):
                os.symlink(target, os.path.join(folder, name))
            home = os.path.join(folder, "home")
            os.mkdir(home)
            tuning = os.path.join(home, "tuning.json")
            with open(tuning, "w", encoding="utf-8") as file:
                file.write("{broken")
            clean = {"PATH": os.environ["PATH"], "NIBEMU_SMS": "16",
                     "LD_LIBRARY_PATH": folder, "HOME": home,
                     "XDG_CACHE_HOME": home, "NIB_TUNING": tuning,
                     "NIB_CUDA_LIBRARY": "/nowhere/libcuda.so.1", **env}
            done = subprocess.run(
                [sys.executable, "evaluate.py"], cwd=folder, env=clean,
                text=True, capture_output=True, check=False, timeout=300)
            path = os.path.join(folder, "results.pt")
            return done, t.load(path) if os.path.exists(path) else None

    def test_two_in_a_process(self):
        """Each has a library and kernels of its own."""
        with tempfile.TemporaryDirectory() as folder:
            for problem in ("gemm", "dual_gemm"):
                with open(os.path.join(folder, problem + ".py"), "w",
                          encoding="utf-8") as file:
                    file.write(self.texts[problem])
            done = subprocess.run(
                [sys.executable, "-c", "import gemm, dual_gemm\n"
                 "print(gemm._lib._handle != dual_gemm._lib._handle)"],
                cwd=folder, text=True, capture_output=True, check=False,
                timeout=120)
        self.assertEqual(done.stdout.strip(), "True", done.stderr)

    def inputs(self, problem, spec, count=2):
        """Tuples as bytes: 4-bit types cannot be saved everywhere."""
        def plain(x):
            if isinstance(x, (tuple, list)):
                return type(x)(map(plain, x))
            if isinstance(x, self.torch.Tensor) and x.element_size() == 1:
                return x.view(self.torch.uint8)
            return x
        out = []
        for i in range(count):
            data = self.data.generate(problem, spec, seed=1111 + 42 * i)
            self.contest.wipe(problem, data)
            out.append((data, plain(data)))
        return out

    def test_results(self):
        one, group = self.size, ((40, 64, 128), (9, 33, 64), (130, 40, 80))
        specs = {"gemm": [(one(130, 70, 192),), (one(9, 20, 80, 2),)],
                 "dual_gemm": [(one(70, 40, 128),)],
                 "gemv": [(one(130, 1, 256, 2),), (one(72, 1, 1024),)],
                 "group_gemm": [tuple(one(*s) for s in group)]}
        for problem, device in itertools.product(PROBLEMS, DEVICES):
            both = [self.inputs(problem, spec) for spec in specs[problem]]
            pairs = [pair for inputs in both for pair in inputs]
            done, results = self.evaluate(self.texts[problem],
                                          [plain for _, plain in pairs],
                                          NIBEMU_DEVICE=device)
            self.assertEqual(done.returncode, 0, (device, done.stderr))
            self.assertEqual(len(results), len(pairs))
            for (data, _), result in zip(pairs, results):
                verdict = self.contest.check(problem, data, result)
                self.assertEqual(verdict.wrong, 0,
                                 (problem, device, verdict.first))

    def test_other_gpus_are_refused(self):
        """Only the kernels of one architecture, on the other one's GPU."""
        inputs = [plain for _, plain in self.inputs(
            "gemm", (self.size(9, 20, 64),), 1)]
        images = self.bundle.images()
        for tag, device, message in (
                ("sm90_", "b200", r"has compute capability 10\.0: the kernels "
                 r"are for 9\.0 \(H100, H200\)$"),
                ("sm100_", "h200", r"has compute capability 9\.0: the kernels "
                 r"are for 10\.0, 10\.3 \(B200, B300\)$")):
            text = self.bundle._text(
                "gemm", False, self.bundle._code(), tuple(
                    one for one in images if one.words.startswith(tag)), 1)
            done, _ = self.evaluate(text, inputs, NIBEMU_DEVICE=device)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr.strip(),
                             r"nibblas \S+, gemm: cuda:0, .*" + message)

    def test_wrong_tuples_are_refused(self):
        good = self.inputs("gemm", (self.size(9, 20, 64),), 1)[0][1]
        for i, other, message in (
                (4, good[4][:, :3], "sfa_permuted: .*must have shape"),
                (6, good[6].float(), "c: .*must be float16"),
                (1, good[1][:, :16], "b: .*must have shape .20, 32, 1.")):
            bad = (*good[:i], other, *good[i + 1:])
            done, _ = self.evaluate(self.texts["gemm"], [bad])
            self.assertRegex(done.stderr, "ArgumentError: " + message)
        done, _ = self.evaluate(self.texts["gemm"], [good[:6]])
        self.assertRegex(done.stderr, "ArgumentError: data: tuple of 6; must be")

    def test_sizes_of_a_known_group_are_looked_at(self):
        """The tensors of a second tuple have the shapes of the first, its
        problem_sizes are others."""
        good = self.inputs("group_gemm", (self.size(9, 33, 64),), 1)[0][1]
        bad = (*good[:3], [(9, 33, 128, 1)])
        done, _ = self.evaluate(self.texts["group_gemm"], [good, bad])
        self.assertRegex(done.stderr, r"ArgumentError: a\[0\]: .*must have shape")

    def test_reads_no_environment(self):
        path = os.path.join(os.path.dirname(EMULATOR), "libnibblas_submission.so")
        done = subprocess.run(["nm", "-D", "--undefined-only", path], text=True,
                              capture_output=True, check=True)
        self.assertIn("dlopen", done.stdout)
        self.assertNotIn("getenv", done.stdout)

    def test_what_the_contest_takes(self):
        allowed = {"torch", "base64", "ctypes", "lzma", "os", "tempfile"}
        with open(os.path.join(SOURCE, "docs", "python.md"), encoding="utf-8") as file:
            size = float(re.search(r"size: ([\d.]+) million", file.read())[1])
        for problem, text in self.texts.items():
            self.assertLessEqual(len(text), 1_000_000)
            self.assertLess(abs(len(text) / 1e6 - size), 0.05, "see docs/python.md")
            self.assertNotIn("stream", text.lower())
            self.assertTrue(text.startswith(
                f"#!POPCORN leaderboard nvfp4_{problem}\n"))
            tree = ast.parse(text)
            imported = {alias.name for node in ast.walk(tree)
                        if isinstance(node, (ast.Import, ast.ImportFrom))
                        for alias in node.names}
            self.assertEqual(imported, allowed)
            for name in ("Ampere", "Hopper", "Blackwell"):
                self.assertIn(name, ast.get_docstring(tree))
            names = {node.name for node in tree.body
                     if isinstance(node, ast.FunctionDef)}
            self.assertIn("custom_kernel", names)

    def test_current_stream(self):
        text = self.bundle.bundle("gemv", current=True)
        ast.parse(text)
        self.assertEqual(text.lower().count("current_stream(index)"), 1)
        self.assertNotIn("default queue", text)

    def test_kernels_are_the_librarys(self):
        """Machine code is what ptxas made, debugging data gone, and the words name
        every kernel of it."""
        from nibblas._library import library_path
        folder = os.path.join(os.path.dirname(library_path()), "kernels")
        images = self.bundle.images()
        names = {name for one in images for name in one.words.split()[2:]}
        self.assertIn("nib_gemm_sm90", names)
        self.assertIn("nib_gemm_pair_few_sm100", names)
        self.assertFalse([name for name in names
                          if re.search("quantize|f16", name)])
        for one in images:
            sections = list(self.bundle._sections(one.cubin))
            code = [(offset, size) for name, _, offset, size in sections
                    if name.startswith(".text.")]
            self.assertEqual({name[6:] for name, *_ in sections
                              if name.startswith(".text.")},
                             set(one.words.split()[2:]))
            name = one.words.split()[0]
            with open(os.path.join(folder, f"{name}.cubin"), "rb") as file:
                made = file.read()
            for offset, size in code:
                self.assertEqual(one.cubin[offset:offset + size],
                                 made[offset:offset + size])
            # ".nv.merc.debug_frame" belongs to code for a family of GPUs, and is
            # left as it is.
            debug = [one.cubin[offset:offset + size] for name, _, offset, size
                     in sections if name.startswith((".debug", ".nv_debug"))]
            self.assertTrue(debug)
            self.assertFalse(any(map(any, debug)))
        self.assertEqual(self.bundle.hardware(images),
                         "Ampere and Ada (A100, L4, RTX 30 and 40), "
                         "Hopper (H100, H200), Blackwell (B200, B300)")


if __name__ == "__main__":
    unittest.main(verbosity=2)
