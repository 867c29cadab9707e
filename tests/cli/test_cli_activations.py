#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--activations of nib check, plan, bench and report: every kind of A on every
instruction set against the oracle, its bytes, its limits, its rows."""

import json
import re
import shlex
import unittest

from cli_common import NibTest, nib

WIDTHS = {"nvfp4": 9 / 16, "bf16": 2, "fp16": 2, "fp32": 4, "int8": 2}
KINDS = list(WIDTHS)
FLOATS = [kind for kind in KINDS if kind not in ("nvfp4", "int8")]
OPS = {"gemm", "dual_gemm", "group_gemm", "group_dual", "gemv", "moe", "moe_dual"}
QUICK = ["--threads", "1", "--min-time", "0.001", "--samples", "3", "--quiet"]
ISAS = [backend["backend"][4:] for backend in json.loads(
    nib("info", "--format", "json").stdout)["backends"]
        if backend["open"] and backend["backend"].startswith("cpu-")]


class Check(NibTest):
    def test_every_kind_on_every_instruction_set(self):
        for isa in ISAS:
            for seed, kind in enumerate(KINDS):
                rows = self.rows(
                    "check", "--preset", "small", "--isa", isa,
                    "--activations", kind, "--seed", seed, "--layout",
                    ("linear", "tiled")[seed % 2], "--out",
                    ("fp32", "bf16", "fp16")[seed % 3])
                self.assertTrue(all(row["ok"] for row in rows))
                self.assertEqual({row["activations"] for row in rows}, {kind})
                self.assertEqual({row["op"] for row in rows}, OPS)
                # Something is rounded, so the values are no trivial ones.
                self.assertGreater(max(row["error"] for row in rows), 0)

    def test_contest_values_are_exact(self):
        """Sums of them fit fp32, whatever A is."""
        for kind in ["nvfp4", *FLOATS]:
            for row in self.rows("check", "--op", "gemm", "--shape", "9x17x512",
                                 "--data", "contest", "--activations", kind):
                self.assertEqual((row["error"], row["ok"]), (0, True))

    def test_rows_are_given_again_by_their_command(self):
        for row in self.rows("check", "--preset", "small", "--op", "moe",
                             "--activations", FLOATS[-1], "--seed", "3"):
            again, = self.rows(*shlex.split(row["repro"])[1:])
            for key in ("activations", "shape", "weights", "checked", "error",
                        "bound", "worst_got"):
                self.assertEqual(again[key], row[key], row["repro"])


class Plan(NibTest):
    def test_bytes(self):
        for kind in KINDS:
            for op, experts in (("gemm --shape 7x48x64", 1),
                                ("moe --m 3,0,4 --n 48 --k 64", 3)):
                row, = self.rows("plan", "--op", *op.split(), "--gflops", "1",
                                 "--gbps", "1", "--activations", kind)
                self.assertEqual(row["activations"], kind)
                self.assertEqual(row["bytes"], 7 * 64 * WIDTHS[kind]
                                 + experts * 48 * 64 * 9 / 16 + 7 * 48 * 2)


class Bench(NibTest):
    def bench(self, *args):
        return self.rows("bench", *args, *QUICK)

    def test_they_are_an_axis(self):
        for arguments, a, b, c in (
                (("--op", "dual_gemm", "--shape", "9x32x64"), 9 * 64,
                 2 * 32 * 64, 9 * 32),
                (("--op", "moe", "--m", "2,0,11", "--n", "24", "--k", "48"),
                 13 * 48, 2 * 24 * 48, 13 * 24)):
            rows = [r for r in self.bench(*arguments, "--activations",
                                          ",".join(KINDS)) if r["op"] != "peak"]
            self.assertEqual([r["activations"] for r in rows], KINDS)
            for row in rows:
                self.assertIs(row["ok"], True)
                self.assertEqual(row["bytes"], a * WIDTHS[row["activations"]]
                                 + b * 9 / 16 + c * 2)
                self.assertIn("--activations " + row["activations"],
                              row["command"])

    def test_conversions_have_none(self):
        row = self.bench("--op", "quantize", "--shape", "16x64",
                         "--activations", "nvfp4,bf16")[0]
        self.assertIsNone(row["activations"])

    def test_floats_are_held_against_their_instruction(self):
        has_bf16 = "vdpbf16ps" in nib("bench", "--peaks", "--samples", "1",
                                      "--quiet").stdout
        for isa in ISAS:
            want = {kind: {"scalar": "f32 mul add sse", "avx2": "f32 fma avx2",
                           "avxvnni": "f32 fma avx2"}
                    .get(isa, "f32 fma") for kind in FLOATS}
            if isa == "avx512vnni" and has_bf16:
                want["bf16"] = "vdpbf16ps"
            if isa == "amx":
                want["bf16"] = "tdpbf16ps"
            rows = self.bench("--op", "gemm", "--shape", "64x64x256", "--isa",
                              isa, "--activations", ",".join(FLOATS))
            peaks = {r["shape"] for r in rows
                     if r["op"] == "peak" and r["gflops"]}
            self.assertEqual(peaks, set(want.values()))
            for row in rows:
                if row["op"] != "peak":
                    self.assertIn(row["limit_kind"],
                                  (want[row["activations"]], "read bandwidth"))
                    self.assertGreaterEqual(
                        row["limit_s"] * 1.000001,
                        row["flop"] / (row["peak_gflops"] * 1e9))

    def test_few_rows_are_held_against_a_gemm_of_their_kind(self):
        rows = self.bench("--op", "gemm", "--shape", "1x64x64", "--isa",
                          "scalar", "--activations", "nvfp4,bf16")
        gemms = {r["shape"]: r["command"] for r in rows
                 if r["shape"].startswith("gemm ")}
        self.assertEqual(set(gemms), {"gemm scalar k=64",
                                      "gemm scalar bf16 k=64"})
        self.assertTrue(gemms["gemm scalar bf16 k=64"].endswith(
            "--activations bf16"))

    def test_report_tells_them_apart(self):
        text = self.nib("bench", "--op", "gemm", "--shape", "16x64x64",
                        "--activations", "nvfp4,bf16", *QUICK, "--format",
                        "json").stdout
        self.write("rows.json", text.encode())
        self.nib("report", "rows.json", "-o", "page.html")
        page = self.read("page.html").decode()
        best = json.loads(text)[0]["backend"]
        self.assertEqual(re.findall(r"Roofline of ([^<]*)</h2>", page),
                         [best + ", 1 thread",
                          best + ", A of bf16, 1 thread"])
        self.assertIn(best + ", A of bf16, 1 thread</span><span class=plot>",
                      page)


if __name__ == "__main__":
    unittest.main(verbosity=2)
