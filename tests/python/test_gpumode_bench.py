# SPDX-License-Identifier: Apache-2.0
"""python -m nibblas.gpumode bench: the contest's protocol and numbers, on the CPU."""

import contextlib
import io
import json
import os
import tempfile
import unittest

from common import TorchTest


class Bench(TorchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        from nibblas import gpumode
        from nibblas.gpumode import __main__ as command
        from nibblas.gpumode import _bench, _limits, _specs
        cls.gpumode, cls.bench, cls.specs = gpumode, _bench, _specs
        cls.limits, cls.command = _limits, command

    def small(self, *size):
        return self.specs.Benchmark((self.specs.Size(*size),), 2.0)

    def test_plans(self):
        plan, gib = self.bench.plan, 1 << 30
        large = {"free_bytes": 139 * gib}
        self.assertEqual(plan("gemm", "cuda", **large),
                         (50, 200, "", 62.5 * gib))
        self.assertEqual(plan("dual_gemm", "cuda", **large).flush_bytes,
                         62.5 * gib)
        self.assertEqual(plan("group_gemm", "cuda:1", **large),
                         (15, 100, "", gib / 4))
        self.assertEqual(plan("gemv", "cuda", **large), (1, 200, "", 4 * gib))
        self.assertEqual(plan("gemm", "cuda", inputs=15, **large).reduced,
                         "15 inputs back to back, not 50")
        self.assertEqual(
            plan("gemm", "cuda", free_bytes=int(39.5 * gib)),
            (50, 200, "35 GiB written before each pass, not 62.5 GiB",
             35 * gib))
        heading = "\n".join(self.bench.heading(
            "gemm", "cuda", plan("gemm", "cuda", **large), None, "here"))
        self.assertIn("its 62.5 GiB written before each pass", heading)
        self.assertEqual(
            plan("group_gemm", "cpu"),
            (1, 5, "1 input back to back, not 15; at most 5 repeats, not 100; "
             "caches as they are", 0))

    def test_stats(self):
        """The contest's calculate_stats()."""
        s = self.bench.stats([10.0, 20.0, 60.0])
        self.assertEqual((s.runs, s.mean, s.best, s.worst, s.median),
                         (3, 30.0, 10.0, 60.0, 20.0))
        self.assertAlmostEqual(s.std, 700 ** 0.5)
        self.assertAlmostEqual(s.err, (700 / 3) ** 0.5)
        enough = self.bench._is_enough
        for durations, spent, want in (
                ([5.0] * 2, 1, False), ([5.0] * 3, 0.05, False),
                ([5.0] * 3, 1, True), ([5.0, 6.0, 7.0], 1, False),
                ([5e9, 6e9, 7e9], 20, True), ([5.0, 6.0, 7.0], 121, True)):
            self.assertEqual(enough(durations, spent), want, (durations, spent))

    def test_work(self):
        spec = (self.specs.Size(128, 7168, 2048, 2),)
        self.assertEqual(self.specs.flop("dual_gemm", spec),
                         8 * 128 * 7168 * 2048)
        self.assertEqual(self.specs.bytes_moved("gemm", spec), 2 * (
            (128 + 7168) * 2048 * 9 // 16 + 2 * 128 * 7168))
        for problem, benchmarks in self.specs.BENCHMARKS.items():
            # No faster than what a B200 could: 20 PFLOP/s, 8 TB/s.
            for one in benchmarks:
                flop = self.specs.flop(problem, one.spec)
                self.assertGreater(one.light_us, flop / 20e9)
                self.assertGreater(one.light_us, self.specs.bytes_moved(
                    problem, one.spec) / 8e6)

    def test_rows(self):
        limits = self.limits.Limits(1e9, 1e12, "")
        for problem in self.specs.BENCHMARKS:
            spec = self.small(16, 1 if problem == "gemv" else 32, 64)
            row = self.bench.run(
                problem, spec, self.gpumode.custom_kernel(problem), "cpu",
                self.bench.Plan(3, 4, ""), limits)
            self.assertLessEqual(row["runs"], 4)
            self.assertLessEqual(row["best_us"], row["median_us"])
            self.assertLessEqual(row["median_us"], row["worst_us"])
            self.assertAlmostEqual(row["contest_light_share"] * row["mean_us"],
                                   2.0)
            self.assertEqual(row["machine_limit_kind"], "reading")
            self.assertAlmostEqual(
                row["machine_limit_us"],
                self.specs.bytes_moved(problem, spec.spec) / 1e3)
        self.assertEqual(self.limits.Limits(1e9, 1e9, "").least_us(8000, 2000),
                         (8.0, "multiplications"))

    def test_inputs_differ_and_are_all_checked(self):
        seen = []

        def second_is_wrong(data):
            out = self.gpumode.gemm(data)
            seen.append(data[0].view(self.torch.uint8).clone())
            if len(seen) == 2:
                out[3, 5, 0] += 1
            return out

        with self.assertRaisesRegex(
                self.bench.WrongResult, "^input 1: 1 of 512 elements; product "
                "0, batch 0, row 3, col 5: got"):
            self.bench.run("gemm", self.small(16, 32, 64), second_is_wrong,
                           "cpu", self.bench.Plan(3, 3, ""), None)
        self.assertFalse(self.torch.equal(*seen))

    def test_command(self):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.assertEqual(self.command.main([
                "bench", "gemm", "--only", "2", "--repeats", "2", "--json",
                "-"]), 0)
        result = json.loads(out.getvalue())
        self.assertFalse(result["complete"])
        self.assertIn("at most 2 repeats, not 200", result["reduced"])
        row = result["benchmarks"][0]
        self.assertEqual(row["sizes"], [[128, 7168, 2048, 1]])
        self.assertEqual(row["contest_light_us"], 1.333)
        self.assertAlmostEqual(result["geometric_mean_us"], row["mean_us"])
        self.assertGreater(row["machine_limit_us"], 0)
        lines = err.getvalue().splitlines()
        self.assertEqual(len(lines[-2]), len(lines[-3]))
        self.assertIn("(of 1 benchmark only)", lines[-1])

    def test_other_kernels(self):
        """A file's custom_kernel(), right or wrong."""
        for body, status in (("gpumode.gemm(data)", 0), ("data[-1]", 1)):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "submission.py")
                with open(path, "w", encoding="utf-8") as file:
                    file.write("from nibblas import gpumode\n\n"
                               "def custom_kernel(data):\n"
                               f"    return {body}\n")
                text = io.StringIO()
                with contextlib.redirect_stdout(text), \
                        contextlib.redirect_stderr(text):
                    got = self.command.main(["check", "gemm", "--only", "0",
                                             "--submission", path])
                    bench = self.command.main([
                        "bench", "gemm", "--only", "2", "--repeats", "1",
                        "--no-limit", "--submission", path])
                self.assertEqual((got, bench), (status, status),
                                 text.getvalue())

    def test_files_appear_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            mine, path = (os.path.join(folder, x) for x in ("mine", "out.json"))
            self.command._write(mine, "mine")
            os.symlink(mine, path)
            self.command._write(path, "new")
            for name, text in ((mine, "mine"), (path, "new")):
                with open(name, encoding="utf-8") as file:
                    self.assertEqual(file.read(), text)
            self.command._write("/dev/null", "x")
            with self.assertRaises(UnicodeEncodeError):
                self.command._write(path, "\ud800")
            self.assertEqual(set(os.listdir(folder)), {"mine", "out.json"})

    def test_refusals(self):
        for arguments, message in (
                (["bench", "gemm", "--only", "3"], "must be 0 to 2"),
                (["check", "gemm", "--submission", "/none"], "/none")):
            text = io.StringIO()
            with contextlib.redirect_stderr(text):
                self.assertEqual(self.command.main(arguments), 2)
            self.assertIn(message, text.getvalue())


if __name__ == "__main__":
    unittest.main(verbosity=2)
