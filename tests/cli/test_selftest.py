#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nib selftest: the report, the recorded bits of this processor and of the GPUs in
software, steps that fail, and what --read makes of a report.  When bits change on
purpose, the failures print the lines for cli/selftest_recorded.c."""

import json
import os
import resource
import signal
import subprocess
import time
import unittest

from cli_common import NIB, NibTest, fake_gpu, nib

RECORDED = ["check nvfp4", "check bf16", "check fp16", "check fp32", "check int8",
            "check sizes"]
OPEN = [row["backend"] for row in json.loads(
    nib("info", "--format", "json").stdout)["backends"] if row["open"]]
EMULATED = {"h200": "sm90", "a100": "sm80", "rtx4090": "sm80", "b200": "sm100"}


class Run(NibTest):
    def device_rows(self, *args, env=None, code=0):
        """The rows of a quick test, or of one with other arguments."""
        args = args or ("--quick",)
        return {row["step"]: row for row in self.rows(
            "selftest", *args, "--force", "--quiet", code=code,
            env=dict(os.environ, **(env or {})))}

    def check_bits(self, rows, backend):
        name = "cpu" if backend.startswith("cpu-") else "cuda-" + backend
        lines = [f'{{"{name}", "{step}", "{rows[step]["digest"]}"}},'
                 for step in RECORDED if step in rows and
                 rows[step]["result"] == "ok" and rows[step]["bits"] != "as recorded"]
        self.assertEqual(lines, [], "results changed; selftest_recorded.c needs:\n" +
                         "\n".join(lines))
        self.assertEqual(rows["check nvfp4 again"]["bits"], "the same")
        right = {row["right"] for row in rows.values() if row["right"]}
        self.assertEqual(right, {"28 of 28", "6 of 6"})

    def test_bits_of_this_processor(self):
        for backend in OPEN:
            # AMX sums in an order of its own, which is not recorded.
            if backend.startswith("cpu-") and backend != "cpu-amx":
                with self.subTest(backend=backend):
                    rows = self.device_rows(env={"NIB_CPU": backend[4:]})
                    self.check_bits(rows, backend)
                    self.assertEqual({row["result"] for row in rows.values()}, {"ok"})

    @unittest.skipUnless(fake_gpu(), "this build has no GPU kernels")
    def test_bits_of_gpus_in_software(self):
        if not os.path.exists(os.path.join(os.path.dirname(NIB), "libnibemu.so")):
            self.skipTest("no libnibemu.so next to nib")
        for device, backend in EMULATED.items():
            with self.subTest(device=device):
                rows = self.device_rows("--quick", "--device", "emu:" + device)
                self.check_bits(rows, backend)
                self.assertEqual({row["result"] for row in rows.values()},
                                 {"ok", "unsupported"} if device == "b200" else {"ok"})

    def test_report(self):
        text = self.nib("selftest", "--quick", "--quiet", "-o", "r.json").stdout
        self.assertIn("8 of 8 steps are as they should be\n", text)
        self.assertIn("report: r.json", text)
        report = json.loads(self.read("r.json"))
        self.assertEqual(report["format"], "nibblas selftest 1")
        self.assertEqual(report["command"], "nib selftest --device cpu --quick")
        self.assertRegex(report["date"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        steps = {step["name"]: step for step in report["steps"]}
        self.assertEqual(list(steps), ["info", "check nvfp4", "check nvfp4 again",
                                       *RECORDED[1:]])
        for step in steps.values():
            self.assertEqual((step["exit_code"], step["signal"], step["timed_out"],
                              step["messages"]), (0, 0, False, ""))
        self.assertEqual(steps["check bf16"]["command"],
                         "nib check --preset small --format json --quiet --device cpu "
                         "--activations bf16 --layout tiled")
        again = self.nib(*steps["check bf16"]["command"].split()[1:]).stdout
        self.assertEqual([row["digest"] for row in json.loads(again)],
                         [row["digest"] for row in steps["check bf16"]["output"]])
        self.assertNotIn(self.folder, self.read("r.json").decode())
        self.refused("selftest", "--quick", "-o", "r.json", code=2, says="r.json")
        self.assertEqual(
            self.nib("selftest", "--read", "r.json").stdout,
            text.split("\n\nreport:")[0] + "\n")

    @unittest.skipUnless(fake_gpu(), "this build has no GPU kernels")
    def test_no_driver(self):
        """A GPU that does not exist: every step says so, and the report is written."""
        rows = self.device_rows("--device", "cuda:0", "-o", "r.json", code=1,
                                env={"NIB_CUDA_LIBRARY": "/nowhere/libcuda.so"})
        self.assertEqual(rows["info"]["result"], "ok")
        self.assertEqual(rows["bench decode"]["result"], "NOT RUN")
        self.assertIn("/nowhere/libcuda.so", rows["check nvfp4"]["message"])
        self.assertEqual(len(json.loads(self.read("r.json"))["steps"]), 9)

    def test_step_that_is_killed(self):
        """Here by its limit of processor time; the next step runs."""
        done = nib("selftest", "--quiet", "--format", "json", cwd=self.folder,
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (2, 2)))
        rows = {row["step"]: row for row in json.loads(done.stdout)}
        self.assertEqual(done.returncode, 1)
        self.assertEqual(rows["check sizes"]["result"], "ok")
        for step in "bench seeds", "bench decode":
            self.assertEqual(rows[step]["result"], "CRASHED", rows[step])

    def test_interrupted(self):
        """No report, and no step is left running."""
        process = subprocess.Popen([NIB, "selftest", "--quiet"], cwd=self.folder,
                                   stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)
        time.sleep(1.5)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, said)
        self.assertEqual(os.listdir(self.folder), [])
        with self.assertRaises(ProcessLookupError):
            os.killpg(process.pid, 0)

    def test_bad_arguments(self):
        for args, code, says in (
                (("--device", "gpu"), 2, "--device 'gpu': must be cpu, cuda:N or emu:"),
                (("--claims", "x.json"), 2, "it needs --read"),
                (("-o", "no/folder/r.json", "--quick"), 4, "no/folder/r.json"),
                (("x",), 2, "too many")):
            with self.subTest(args=args):
                self.refused("selftest", *args, code=code, says=says)


class Read(NibTest):
    """What --read says of reports."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = os.environ.get("TMPDIR", "/tmp")
        path = os.path.join(folder, f"nib-selftest-{os.getpid()}.json")
        nib("selftest", "--quick", "--quiet", "--force", "-o", path)
        with open(path, encoding="utf-8") as file:
            cls.good = file.read()
        os.remove(path)

    def step(self, name, change, code=1):
        """The row of a step after change() of it."""
        report = json.loads(self.good)
        step, = (s for s in report["steps"] if s["name"] == name)
        change(step)
        self.write("r.json", json.dumps(report).encode())
        return {row["step"]: row for row in self.rows(
            "selftest", "--read", "r.json", code=code)}[name]

    def test_steps_that_failed(self):
        def worse(row, **values):
            row.update(values)
        name = "check nvfp4"
        for change, key, says in (
                (lambda s: worse(s, signal=11, exit_code=-1), "result", "CRASHED"),
                (lambda s: worse(s, timed_out=True, signal=9), "result", "TIMED OUT"),
                (lambda s: worse(s, exit_code=1), "result", "WRONG"),
                (lambda s: worse(s, exit_code=4, output=""), "result", "NOT RUN"),
                (lambda s: worse(s["output"][3], ok=False), "right", "27 of 28"),
                (lambda s: worse(s["output"][3], digest="0" * 16), "bits",
                 "DIFFERENT"),
                (lambda s: s["output"].pop(), "bits", "DIFFERENT")):
            self.assertEqual(self.step(name, change)[key], says)
        self.assertEqual(self.step(
            "check nvfp4 again",
            lambda s: worse(s["output"][0], digest="0" * 16))["bits"], "CHANGED")
        row = self.step("check bf16", lambda s: worse(
            s, exit_code=4, output="", messages="nib check: no kernels (unsupported)\n"
            "second line"), code=0)
        self.assertEqual((row["result"], row["message"]),
                         ("unsupported", "nib check: no kernels (unsupported)"))

    def test_claims(self):
        row = {"op": "gemm", "shape": "128x4096x7168", "activations": "nvfp4",
               "backend": "cuda-sm100", "time_s": 10e-6}
        report = {"format": "nibblas selftest 1", "version": "0.2.0",
                  "device": "cuda:0", "steps": [{
                      "name": "bench seeds", "exit_code": 0, "output": [
                          row, dict(row, shape="1x8192x8192")]}]}
        claims = [dict(row, time_s=None, predicted_us=9.0),  # 1.11
                  dict(row, shape="1x8192x8192", time_s=8e-6, activations=None),
                  dict(row, activations="bf16"), dict(row, shape="2x2x16"),
                  dict(row, backend="baseline:cublas")]
        self.write("r.json", json.dumps(report).encode())
        self.write("c.json", json.dumps(claims).encode())
        text = self.nib("selftest", "--read", "r.json", "--claims", "c.json").stdout
        self.assertIn("2 of 5 claims were measured: 1 confirmed (at most 15 % slower), "
                      "1 refuted", text)
        rows = self.rows("selftest", "--read", "r.json", "--claims", "c.json")
        self.assertEqual([(r["kind"], round(r["ratio"], 2)) for r in rows],
                         [("predicted", 1.11), ("measured", 1.25)])

    def test_files_that_are_no_reports(self):
        for text, says in (
                ("", "r.json: "), ("[]", "not a report"), ("{}", "not a report"),
                ('{"format": "nibblas selftest 1", "steps": {}}', "not a report"),
                ('{"format": "nibblas selftest 2", "steps": []}', "nibblas selftest 1"),
                ('{"format": "nibblas selftest 1", "format": 1}', "duplicate")):
            self.write("r.json", text.encode())
            self.refused("selftest", "--read", "r.json", code=3, says=says)
        self.refused("selftest", "--read", "none.json", code=3, says="none.json")
        # Values of other types count as missing.
        self.write("r.json", json.dumps(
            {"format": "nibblas selftest 1", "version": 1, "device": [],
             "steps": [1, None, {}, {"name": 5, "output": [1, {"digest": 7}],
                                     "messages": "\x1b[31m\n", "exit_code": "0"}]}
        ).encode())
        text = self.nib("selftest", "--read", "r.json").stdout
        self.assertNotIn("\x1b", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
