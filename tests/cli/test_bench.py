#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nib bench, report and demo on tiny shapes.  Times are looked at for sanity,
never for speed."""

import html
import json
import os
import re
import resource
import shlex
import statistics
import unittest

from cli_common import NibTest, fake_gpu, nib, read_csv

# Keys that every row has, and those that a measured multiplication fills.
KEYS = """op shape backend threads layout out time_s samples_s flop bytes gflops gbps
limit_s peak_gflops peak_gbps fraction_of_limit limit_kind error bound ok version
machine command packed activations""".split()
QUICK = ["--min-time", "0.001", "--samples", "3", "--quiet"]
# The baselines' own code takes a minute under a sanitizer and is not ours to check.
BASELINES = ["--baselines"] if os.environ.get("NIB_TEST_SIZE") != "small" else []
ISAS = [backend["backend"][4:] for backend in json.loads(
    nib("info", "--format", "json").stdout)["backends"]
        if backend["open"] and backend["backend"].startswith("cpu-")]


def bench(test, *args, **options):
    return test.rows("bench", *args, *QUICK, **options)


def measured(rows):
    return [r for r in rows if r["op"] != "peak" and
            not r["backend"].startswith("baseline:")]


class Bench(NibTest):
    def check_row(self, row):
        for key in KEYS:
            self.assertIn(key, row)
            self.assertIsNotNone(row[key], "%s of %s" % (key, row["command"]))
        self.assertIs(row["ok"], True)
        self.assertLessEqual(row["error"], row["bound"])
        self.assertGreaterEqual(len(row["samples_s"]), 3)
        self.assertGreater(min(row["samples_s"]), 0)
        self.assertLessEqual(min(row["samples_s"]), row["time_s"])
        self.assertGreaterEqual(max(row["samples_s"]), row["time_s"])
        self.assertAlmostEqual(row["gflops"] * 1e9 * row["time_s"],
                               row["flop"], delta=row["flop"] * 1e-6)
        self.assertAlmostEqual(row["gbps"] * 1e9 * row["time_s"],
                               row["bytes"], delta=row["bytes"] * 1e-6)
        self.assertAlmostEqual(row["fraction_of_limit"] * row["time_s"],
                               row["limit_s"], delta=row["limit_s"] * 1e-6)

    def test_rows_of_every_multiplication(self):
        shapes = [
            ("--op", "gemm", "--shape", "7x33x240", 2 * 7 * 33 * 240,
             (7 + 33) * 240 * 9 / 16 + 7 * 33 * 2),
            ("--op", "dual_gemm", "--shape", "3x5x32", 4 * 3 * 5 * 32,
             (3 + 2 * 5) * 32 * 9 / 16 + 3 * 5 * 2),
            ("--op", "gemv", "--shape", "67x240x3", 2 * 67 * 240 * 3,
             3 * ((1 + 67) * 240 * 9 / 16 + 67 * 2)),
            ("--op", "group_gemm", "--shape", "0x8x32+9x8x48",
             2 * 9 * 8 * 48, (9 + 8) * 48 * 9 / 16 + 9 * 8 * 2),
        ]
        for *arguments, flop, n_bytes in shapes:
            row, = measured(bench(self, *arguments))
            self.check_row(row)
            self.assertEqual(row["op"], arguments[1])
            self.assertEqual(row["flop"], flop)
            self.assertEqual(row["bytes"], n_bytes)
        row, = measured(bench(self, "--op", "moe", "--m", "3,0,7", "--n", "24",
                              "--k", "48"))
        self.check_row(row)
        self.assertEqual(row["flop"], 2 * 10 * 24 * 48)

    def test_axes_are_combined(self):
        rows = measured(bench(self, "--op", "gemm", "--shape", "5x16x32",
                              "--isa", "all", "--threads", "1,2",
                              "--layout", "linear,tiled", "--packed",
                              "--unpacked"))
        rows += measured(bench(self, "--op", "gemm", "--shape", "5x16x32",
                               "--threads", "1", "--out", "fp32,fp16"))
        for row in rows:
            self.check_row(row)
        seen = {(r["backend"], r["threads"], r["layout"], r["out"], r["packed"])
                for r in rows}
        self.assertEqual(len(seen), len(rows))
        self.assertEqual(len(rows), len(ISAS) * 2 * 2 * 2 + 2)
        self.assertEqual({r["backend"] for r in rows},
                         {"cpu-" + isa for isa in ISAS})

    def test_a_sweep_has_a_row_for_each_m(self):
        rows = measured(bench(self, "--op", "gemm", "--m", "1:4+1", "--n",
                              "16", "--k", "32", "--threads", "1"))
        self.assertEqual([r["shape"] for r in rows],
                         ["%dx16x32" % m for m in (1, 2, 3, 4)])

    def test_operations_without_multiplication(self):
        for op, n_bytes in (("quantize", 64 * 256 * (2 + 9 / 16)),
                            ("dequantize", 64 * 256 * (2 + 9 / 16)),
                            ("convert", 64 * 16 + 128 * 16)):
            row, = measured(bench(self, "--op", op, "--shape", "64x256"))
            self.assertEqual(row["bytes"], n_bytes)
            self.assertIsNone(row["gflops"])
            self.assertIn("bandwidth", row["limit_kind"])
            self.assertGreater(row["fraction_of_limit"], 0)

    def test_spread_is_of_the_samples(self):
        rows = bench(self, "--op", "gemm", "--shape", "5x16x32")
        for row in rows:
            low, mid, high = statistics.quantiles(row["samples_s"], n=4,
                                                  method="inclusive")
            self.assertAlmostEqual(row["spread"], (high - low) / mid,
                                   delta=1e-6)

    def test_rows_above_the_limit_are_noted(self):
        """Whether there are any is the machine's affair."""
        result = self.nib("bench", "--op", "gemm", "--m", "1:8+1", "--n", "64",
                          "--k", "64", *QUICK)
        shares = [float(x) for x in re.findall(r"(\d+\.\d) %", result.stdout)]
        self.assertEqual(len(shares), 8)
        # Rounded, and so between the two.
        self.assertLessEqual(max(shares) > 105.05,
                             "above the limit:" in result.stdout)
        self.assertGreaterEqual(max(shares) > 104.95,
                                "above the limit:" in result.stdout)

    def test_times_have_a_unit_that_suits(self):
        text = self.nib("bench", "--op", "gemm", "--shape", "1x1x16", *QUICK,
                        "--plan").stdout
        self.assertRegex(text, r"plan +gemm 1x1x16 .* \d+\.\d{3} us ")
        self.assertNotIn("measured in the same run", text)
        self.assertRegex(self.nib("plan", "--shape", "1000x1000x1600",
                                  "--gflops", "1", "--gbps", "1").stdout,
                         r" 3\.200 s ")

    def test_plan_is_timed(self):
        row, = measured(bench(self, "--op", "gemm", "--shape", "5x16x32",
                              "--plan"))
        self.assertEqual((row["op"], row["shape"]), ("plan", "gemm 5x16x32"))
        self.assertGreater(row["time_s"], 0)
        self.assertIsNone(row["fraction_of_limit"])

    def test_peaks_of_the_same_run_are_rows(self):
        rows = bench(self, "--op", "gemm", "--shape", "5x16x32",
                     "--threads", "1")
        row, = measured(rows)
        peaks = {r["shape"]: r for r in rows if r["op"] == "peak"}
        self.assertIn(row["limit_kind"], peaks)
        self.assertIn("read bandwidth", peaks)
        for peak in peaks.values():
            self.assertEqual(peak["threads"], 1)
            self.assertGreater(peak["gflops"] or peak["gbps"], 0)

    def test_few_rows_are_held_against_a_gemm(self):
        rows = bench(self, "--op", "group_gemm", "--m", "8,1", "--n", "512",
                     "--k", "64", "--threads", "1")
        row, = measured(rows)
        gemm, = [r for r in rows if r["shape"].startswith("gemm ")]
        self.assertEqual(gemm["op"], "peak")
        self.assertEqual(gemm["backend"], row["backend"])
        self.assertIn("--shape 512x512x64 ", gemm["command"])
        self.assertGreaterEqual(row["limit_s"] * 1.000001,
                                row["flop"] / (gemm["gflops"] * 1e9))
        if row["limit_kind"] == gemm["shape"]:
            self.assertAlmostEqual(row["limit_s"] * gemm["gflops"] * 1e9,
                                   row["flop"], delta=row["flop"] * 1e-6)

    def test_many_rows_are_held_against_an_instruction(self):
        rows = bench(self, "--op", "group_gemm", "--m", "9,1", "--n", "512",
                     "--k", "64", "--threads", "1")
        self.assertFalse([r for r in rows if r["shape"].startswith("gemm ")])

    def test_the_read_peak_says_how_memory_is_read(self):
        rows = bench(self, "--peaks", "--threads", "1,2")
        patterns = {r["threads"]: r["pattern"] for r in rows
                    if r["shape"] == "read bandwidth"}
        self.assertEqual(set(patterns), {1, 2})
        for threads, pattern in patterns.items():
            words = re.fullmatch(r"(\d) threads?, (huge|small) pages"
                                 r"(, [248] streams each)?"
                                 r"(, prefetches (512|2048|8192) bytes ahead)?"
                                 r"(, blocks in turn)?", pattern)
            self.assertTrue(words, pattern)
            self.assertLessEqual(int(words[1]), threads)
        self.assertFalse([r for r in rows if r["pattern"] and
                          r["shape"] != "read bandwidth"])

    def test_limits_are_not_below_what_rows_reached(self):
        """A row that is faster than memory says why; the next ones have its rate."""
        rows = bench(self, "--op", "gemv", "--shape",
                     "64x256x1,2048x2048x1,1024x4096x1,2048x2048x1,1024x1024x1",
                     "--threads", "1,2")
        reached = {1: 0, 2: 0}
        for row in measured(rows):
            threads = row["threads"]
            if row["limit_kind"] == "read bandwidth":
                self.assertGreaterEqual(row["peak_gbps"] * (1 + 1e-9),
                                        reached[threads])
                self.assertEqual(row["limit_note"] is not None,
                                 row["fraction_of_limit"] > 1, row)
            if row["limit_note"] == "faster than the plain loops":
                for i in range(threads, 3):
                    reached[i] = max(reached[i], row["gbps"])

    def test_peaks_alone(self):
        rows = bench(self, "--peaks", "--threads", "1")
        self.assertEqual({r["op"] for r in rows}, {"peak"})
        names = {r["shape"] for r in rows}
        self.assertLessEqual({"clock", "f32 fma", "read bandwidth",
                              "write bandwidth", "copy bandwidth"}, names)

    @unittest.skipUnless(BASELINES, "NIB_TEST_SIZE=small")
    def test_baselines_are_measured_or_say_why_not(self):
        rows = bench(self, "--op", "gemm", "--shape", "16x64x256", "--baselines",
                     "--threads", "1")
        baselines = {r["backend"]: r for r in rows
                     if r["backend"].startswith("baseline:")}
        self.assertEqual(set(baselines), {
            "baseline:onednn-bf16", "baseline:onednn-f32", "baseline:onednn-f32-avx2",
            "baseline:openblas-f32", "baseline:ggml-nvfp4"})
        ours, = measured(rows)
        for backend, row in baselines.items():
            self.assertNotIn("wrong result", row["skipped"] or "")
            self.assertNotIn("died", row["skipped"] or "")
            self.assertNotEqual(row["skipped"] is None, row["time_s"] is None)
            if row["time_s"]:
                if "ggml" not in backend:  # which may not have a version
                    self.assertRegex(row["version"], r"^(oneDNN|OpenBLAS) \d+\.\d+")
                self.assertAlmostEqual(ours["speedup"][backend[9:]],
                                       row["time_s"] / ours["time_s"])

    @unittest.skipUnless(BASELINES, "NIB_TEST_SIZE=small")
    def test_a_baseline_that_cannot_be_opened_says_so(self):
        rows = bench(self, "--op", "gemm", "--shape", "16x64x256", "--baselines",
                     "--threads", "1", env={"NIB_ONEDNN": "/nowhere/libdnnl.so.3"})
        for row in rows:
            if "onednn" in row["backend"]:
                self.assertIsNone(row["time_s"])
                self.assertRegex(row["skipped"], "^not (installed: /nowhere/|built )")

    def test_a_row_says_how_to_measure_it_again(self):
        row, = measured(bench(self, "--op", "group_gemm", "--m", "3,0,17",
                              "--n", "24", "--k", "48", "--isa", ISAS[-1],
                              "--layout", "tiled", "--out", "fp16",
                              "--unpacked", "--seed", "7", "--threads", "2",
                              "--data", "contest"))
        command = shlex.split(row["command"])
        self.assertEqual(command[:2], ["nib", "bench"])
        again, = measured(self.rows(*command[1:], "--quiet"))
        for key in ("op shape backend threads layout out packed flop bytes error "
                    "bound command").split():
            self.assertEqual(again[key], row[key], key)

    def test_formats_show_the_same_rows(self):
        args = ["bench", "--op", "gemm", "--shape", "5x16x32", *QUICK]
        text = self.nib(*args).stdout
        self.assertRegex(text, r"(?m)^gemm +5x16x32 +cpu-")
        self.assertIn("measured in the same run", text)
        row = read_csv(self.nib(*args, "--format", "csv").stdout)[0]
        self.assertLessEqual(set(KEYS), set(row))
        self.assertEqual(len(row["samples_s"].split(";")) >= 3, True)

    def test_mistakes_are_named(self):
        for option, value in (("--isa", "avx3"), ("--threads", "0"),
                              ("--layout", "diagonal"), ("--out", "fp8"),
                              ("--dtype", "fp64"), ("--threads", "1,x"),
                              ("--activations", "bf16,int4")):
            self.refused("bench", "--op", "gemm", "--shape", "5x16x32",
                         option, value, code=2, says=option)


GPU = fake_gpu()


@unittest.skipUnless(GPU, "this build has no GPU kernels")
class Gpu(NibTest):
    """What is measured on a GPU; the numbers of the fake one mean nothing."""

    def test_limits_are_the_peaks_of_the_run(self):
        for arguments in (("--op", "gemm", "--shape", "33x256x512"),
                          ("--op", "group_gemm", "--m", "3,0,17", "--n", "24",
                           "--k", "48"),
                          ("--op", "quantize", "--shape", "64x256")):
            rows = bench(self, *arguments, "--device", "cuda:0", "--check",
                         "none", env=GPU)
            row, = measured(rows)
            limit = row["bytes"] / (row["peak_gbps"] * 1e9)
            if row["flop"]:
                limit = max(limit, row["flop"] / (row["peak_gflops"] * 1e9))
            self.assertAlmostEqual(row["limit_s"] / limit, 1)
            self.assertAlmostEqual(row["fraction_of_limit"] * row["time_s"] /
                                   limit, 1)
            self.assertAlmostEqual(row["fraction_of_read"] * row["time_s"] /
                                   row["read_s"], 1)
            self.assertGreater(row["clock_before_mhz"], 0)
            self.assertGreater(row["clock_after_mhz"], 0)
            peaks = {r["shape"]: r for r in rows if r["op"] == "peak"}
            self.assertEqual(set(peaks) - {"wgmma f16"},
                             {"read bandwidth", "clock"})
            self.assertEqual("wgmma f16" in peaks, bool(row["flop"]))
            self.assertIn(row["limit_kind"], peaks)

    def test_peaks_alone(self):
        rows = bench(self, "--peaks", "--device", "cuda:0", env=GPU)
        self.assertEqual({(r["op"], r["shape"], r["backend"]) for r in rows},
                         {("peak", name, "cuda-sm90") for name in
                          ("read bandwidth", "wgmma f16", "clock")})
        again = shlex.split(rows[0]["command"])[1:]
        self.assertEqual(len(self.rows(*again, "--samples", "1", "--quiet",
                                       env=GPU)), 3)

    def test_peaks_of_other_kernels(self):
        env = dict(GPU, NIB_CUDA_ARCH="sm80")
        about = json.loads(nib("info", "--format", "json", env=env).stdout)
        if not any(r["open"] and r["backend"] == "cuda-sm80"
                   for r in about["backends"]):
            self.skipTest("this build has no kernels of sm_80")
        rows = bench(self, "--peaks", "--device", "cuda:0", env=env)
        self.assertEqual([(r["shape"], r["backend"]) for r in rows],
                         [(name, "cuda-sm80") for name in
                          ("read bandwidth", "mma f16", "clock")])

    def test_plan_and_queue_have_no_limit(self):
        rows = measured(bench(self, "--op", "gemm", "--shape", "5x16x32",
                              "--plan", "--device", "cuda:0", env=GPU))
        self.assertEqual([(r["op"], r["shape"]) for r in rows],
                         [("plan", "gemm 5x16x32"), ("queue", "gemm 5x16x32")])
        for row in rows:
            self.assertGreater(row["time_s"], 0)
            self.assertIn("--plan", row["command"])
            for key in ("limit_s", "read_s", "gflops", "checked"):
                self.assertIsNone(row[key], key)

    def test_what_is_of_the_cpu_is_refused(self):
        for option in (["--baselines"], ["--isa", "scalar"]):
            self.nib("bench", "--op", "gemm", "--shape", "5x16x32", *option,
                     "--device", "cuda:0", env=GPU, code=2)


class Report(NibTest):
    def page(self, *files, **options):
        self.nib("report", *files, "-o", "page.html", **options)
        return self.read("page.html").decode()

    def test_every_row_is_on_the_page(self):
        text = self.nib("bench", "--op", "gemm", "--m", "1:2+1", "--n", "16",
                        "--k", "32", *BASELINES, "--threads", "1", *QUICK,
                        "--format", "json").stdout
        self.write("rows.json", text.encode())
        page = self.page("rows.json")
        rows = json.loads(text)
        table = page[page.index("All rows"):page.index("To measure a row")]
        self.assertEqual(table.count("<tr>"), len(rows) + 1)
        for row in rows:
            self.assertIn("<td class=t>%s</td>" % html.escape(row["shape"]),
                          table)
            if row["command"]:
                self.assertIn(html.escape(row["command"]), page)
        self.assertEqual(page.count("<svg"), page.count("</svg>"))
        self.assertGreaterEqual(page.count("<svg"), 1)
        self.assertGreaterEqual(page.count("<div class=bars>"), 3)
        self.assertIn(html.escape(rows[0]["machine"]), page)
        self.check_every_row_is_drawn(rows, page)
        self.check_geometry(page)
        self.check_table_fits(page)
        # One file, nothing fetched.
        self.assertNotRegex(page, r"https?://|<script|<link|@import|url\(")

    def test_json_lines_and_several_files(self):
        row = {"op": "gemm", "shape": "1x2x16", "backend": "cpu-scalar",
               "threads": 1, "time_s": 1.0, "gflops": 2.0,
               "fraction_of_limit": 0.5, "limit_kind": "vpdpbusd"}
        self.write("a.jsonl", (json.dumps(row) + "\n" + json.dumps(
            dict(row, shape="3x4x32")) + "\n").encode())
        self.write("b.json", json.dumps([dict(row, shape="5x6x48")]).encode())
        page = self.page("a.jsonl", "b.json")
        for shape in ("1x2x16", "3x4x32", "5x6x48"):
            self.assertIn("<td class=t>%s</td>" % shape, page)

    def test_text_of_rows_is_escaped(self):
        row = {"op": "<b>", "shape": "\"&'<script>alert(1)</script>",
               "backend": "<i>", "threads": 1, "time_s": 1, "gflops": 1,
               "fraction_of_limit": 2.5, "limit_kind": "<u>"}
        self.write("rows.json", json.dumps([row]).encode())
        page = self.page("rows.json")
        for tag in ("<b>&", "<script", "<i>", "<u>"):
            self.assertNotIn(tag, page)
        self.assertIn("&lt;script&gt;", page)

    def test_controls_of_the_direction_of_writing(self):
        row = {"op": "gemm", "shape": "1\u202e2\u2066\u061c", "backend": "cpu",
               "threads": 1, "time_s": 1, "gflops": 1}
        self.write("rows.json", json.dumps([row]).encode())
        page = self.page("rows.json")
        self.assertIn("1?2??", page)
        self.assertFalse(set("\u202e\u2066\u061c") & set(page))

    def test_roofline_of_impossible_rates(self):
        """No number of the page is inf or NaN, whatever the rows hold."""
        row = {"op": "gemm", "shape": "8x8x16", "backend": "cpu", "threads": 1,
               "flop": 1e308, "bytes": 1e-308, "time_s": 1e-308, "peak_gflops": 1e308,
               "peak_gbps": 1e-308, "ok": True}
        usual = dict(row, flop=2e9, bytes=1e7, time_s=4e-6, peak_gflops=5e5,
                     peak_gbps=2500)
        peak = dict(usual, op="peak", shape="multiply", gflops=1e308)
        self.write("rows.json", json.dumps([row, usual, peak] + [
            dict(usual, **{key: value})
            for key in ("flop", "bytes", "time_s", "peak_gbps",
                        "peak_gflops")
            for value in (1e308, 1e-308)]).encode())
        self.assertNotRegex(self.page("rows.json"), r'="-?(inf|nan)')

    def test_roofline(self):
        row = {"op": "gemm", "shape": "8x8x16", "backend": "cuda-sm90",
               "threads": 1, "flop": 2e9, "bytes": 1e7, "time_s": 4e-6,
               "peak_gflops": 5e5, "peak_gbps": 2500, "ok": True}
        # At the ridge; on the slope; below both; of another backend; none.
        rows = [row, dict(row, bytes=1e8, time_s=4e-5),
                dict(row, time_s=4e-5, ok=False),
                dict(row, backend="cpu-avx2", threads=2),
                dict(row, backend="baseline:x"), dict(row, peak_gbps=None),
                dict(row, op="peak", flop=1e9, bytes=None)]
        self.write("rows.json", json.dumps(rows).encode())
        page = self.page("rows.json")
        charts = re.findall(r"Roofline of ([^<]*)</h2>.*?(<svg.*?</svg>)", page,
                            re.S)
        self.assertEqual([name for name, _ in charts],
                         ["cuda-sm90", "cpu-avx2, 2 threads"])
        svg = charts[0][1]
        slope, flat = [[float(x) for x in line] for line in re.findall(
            r"class=roof x1='(.*?)' y1='(.*?)' x2='(.*?)' y2='(.*?)'", svg)]
        dots = [(series, float(x), float(y)) for series, x, y in re.findall(
            r"<circle class=(\w+) cx='(.*?)' cy='(.*?)'", svg)]
        self.assertEqual(slope[2:], flat[:2])
        self.assertEqual(len(dots), 3)
        self.assertIn(("s0", *slope[2:]), dots)
        self.assertEqual([d[1] for d in dots if d[0] == "s6"], [slope[2]])
        x, y = [d[1:] for d in dots if d[1] < slope[2]][0]
        share = (x - slope[0]) / (slope[2] - slope[0])
        self.assertAlmostEqual(slope[1] + share * (slope[3] - slope[1]), y,
                               delta=0.2)
        self.assertIn("multiply instruction, 500 TFLOP/s", svg)
        self.assertIn("read bandwidth, 2500 GB/s", svg)
        self.assertIn("FLOP per byte", svg)
        names = re.search(r"cuda-sm90</h2>.*?<ol>(.*?)</ol>", page, re.S)[1]
        self.assertEqual(names.count(">gemm 8x8x16, 0 %</span>"), 3)
        numbers = re.findall(r"<text [^>]*>(\d+)</text><circle", svg)
        self.assertEqual(numbers, ["1", "2", "3"])

    def test_the_roof_is_the_peak_of_the_table(self):
        """Rows say what was known when they were measured, a peak's row what the
        whole run found; with others on the machine they are far apart."""
        row = {"op": "gemm", "shape": "8x8x16", "backend": "cpu-avx512vnni",
               "threads": 2, "flop": 2e9, "bytes": 1e7, "time_s": 4e-3,
               "peak_gflops": 865, "peak_gbps": 40, "ok": True}
        peak = {"op": "peak", "backend": "cpu", "threads": 2, "time_s": 1}
        self.write("rows.json", json.dumps([
            row, dict(peak, shape="vpdpbusd", gflops=517, unit="OP"),
            dict(peak, shape="vpdpbusd", gflops=300, unit="OP", threads=1),
            dict(peak, shape="read bandwidth", gbps=31.5, unit="B")]).encode())
        page = self.page("rows.json")
        self.assertIn("multiply instruction, 517 GFLOP/s", page)
        self.assertIn("read bandwidth, 31.5 GB/s", page)
        self.assertNotIn("865", page)

    # What was measured: a chart of the rates has each of these rows.
    SPEED = [{"op": op, "shape": shape, "backend": backend, "threads": 2,
              "time_s": 1e-3, "flop": 1e9, "bytes": 1e6, **values}
             for op, shape, backend, values in (
        ("gemm", "128x64x64", "cpu-avx512vnni",
         {"gflops": 600, "limit_s": 8e-4, "limit_kind": "vpdpbusd"}),
        ("gemm", "128x64x64", "baseline:onednn-f32",
         {"gflops": 200, "limit_s": 9e-4, "limit_kind": "f32 fma"}),
        ("gemv", "64x64x1", "cpu-avx512vnni",
         {"gflops": 90, "limit_s": 9e-4, "limit_kind": "read bandwidth"}),
        ("gemv", "64x64x1", "baseline:onednn-f32",
         {"gflops": 20, "limit_s": 9e-4, "limit_kind": "f32 fma"}),
        ("moe", "m=1,2 n=64 k=64", "cpu-avx512vnni",
         {"gflops": 91, "limit_s": 9e-4, "limit_kind": "gemm avx512vnni k=64"}),
        ("moe", "m=1,2 n=64 k=64", "baseline:openblas-f32", {"gflops": 21}),
        ("gemm", "7x7x16", "baseline:humming", {"gflops": 22}),
        ("quantize", "64x64", "cpu-avx512vnni",
         {"gbps": 20, "limit_kind": "copy bandwidth", "limit_s": 9e-4}),
        ("plan", "gemm 7x7x16", "cpu-avx512vnni", {}),
        ("queue", "gemm 7x7x16", "cuda-sm90", {}),
        ("peak", "vpdpbusd", "cpu", {"gflops": 900, "unit": "OP"}),
        ("peak", "clock", "cpu", {"gflops": 3.5, "unit": "cycle"}),
        ("peak", "read bandwidth", "cpu", {"gbps": 31.5, "unit": "B"}))]
    OTHER_CHARTS = ("Share of this", "Error against", "Roofline of")

    def bars(self, page):
        """[(chart, group, label, plot's inside, value)]"""
        out, group = [], ""
        for section in re.findall(r"<section>(.*?)</section>", page, re.S):
            title = re.search(r"<h2>(.*?)</h2>", section)[1]
            for heading, *bar in re.findall(
                    r"<h3>(.*?)</h3>|<div class=bar><span>(.*?)</span>"
                    r"<span class=plot>(.*?)</span><span>(.*?)</span></div>",
                    section):
                group = heading or group
                if bar[0]:
                    out.append((title, group, *bar))
        return out

    def check_every_row_is_drawn(self, rows, page):
        bars = [b for b in self.bars(page)
                if not b[0].startswith(self.OTHER_CHARTS)]
        drawn = [r for r in rows if r.get("time_s")]
        self.assertEqual(len(bars), len(drawn))
        for row in drawn:
            work = html.escape(row["shape"], quote=False)
            if row["op"] != "peak":
                work = row["op"] + " " + work
            backend = row["backend"].removeprefix("baseline:")
            self.assertTrue([b for b in bars if work in (b[1] + b[2]) and
                             backend in b[2]], row)

    def check_geometry(self, page):
        """Bars and lines end inside their plot, texts inside their chart, and
        none lies over another; nothing is cut."""
        self.assertNotIn("\u2026", page)
        self.assertIn("<meta name=viewport content='width=device-width'>", page)
        for *_, plot, value in self.bars(page):
            places = [float(x) for x in re.findall(
                r"(?:width|left):([\d.]+)%", plot)]
            self.assertTrue(places)
            self.assertLessEqual(max(places), 100)
            self.assertFalse(re.search(r"\de\+\d", plot + value), plot + value)
            # Its value is next to the plot, not in it.
            self.assertEqual(re.sub(r"<[^>]*>", "", plot), "")
            self.assertTrue(value)
        for width, height, svg in re.findall(
                r"<svg viewBox='0 0 (\d+) (\d+)'.*?>(.*?)</svg>", page, re.S):
            # 16 pixels are left and right of it on a phone 390 wide.
            size = float(re.search(r"svg text{font:(\d+)px", page)[1])
            self.assertGreaterEqual(size * (390 - 32) / float(width), 10)
            boxes = []
            for attributes, text in re.findall(r"<text (.*?)>(.*?)</text>", svg):
                x = float(re.search(r"x='([\d.]+)'", attributes)[1])
                y = float(re.search(r"y='([\d.]+)'", attributes)[1])
                # Digits and letters of sans-serif are 0.6 of the size wide.
                wide = len(html.unescape(text)) * 0.6 * size
                x -= (wide if "anchor=end" in attributes else
                      wide / 2 if "anchor=middle" in attributes else 0)
                boxes.append((x, y - 0.75 * size, x + wide, y, text))
            for box in boxes:
                self.assertGreaterEqual(box[0], 0, box)
                self.assertGreaterEqual(box[1], 0, box)
                self.assertLessEqual(box[2], float(width), box)
                self.assertLessEqual(box[3], float(height), box)
            for i, a in enumerate(boxes):
                for b in boxes[:i]:
                    self.assertFalse(a[0] < b[2] and b[0] < a[2] and
                                     a[1] < b[3] and b[1] < a[3], (a, b))

    def check_table_fits(self, page, width=1280 - 32):
        """A column is as wide as its longest word (a number: its text)."""
        table = page[page.index("All rows"):page.index("To measure a row")]
        columns = zip(*[re.findall(r"<td(.*?)>(.*?)</td>", line)
                        for line in table.split("<tr>")[2:]])
        wide = 0
        for column in columns:
            longest = max(
                len(word) for attributes, text in column for word in
                (re.split(r"[ -]", html.unescape(text))
                 if "t" in attributes else [text]))
            wide += longest * 0.6 * 12 + 10
        self.assertLess(wide, width)

    def test_every_kind_of_row_is_drawn(self):
        rows = [*self.SPEED, {"op": "gemm", "shape": "7x7x16", "time_s": None,
                              "backend": "baseline:onednn-f32", "threads": 2,
                              "skipped": "not there"}]
        self.write("rows.json", json.dumps(rows).encode())
        page = self.page("rows.json")
        self.check_every_row_is_drawn(rows, page)
        self.check_geometry(page)
        self.assertIn("<td class=t>skipped: not there</td>", page)
        charts = {b[0] for b in self.bars(page)}
        few = [b[2] for b in self.bars(page) if "few rows" in b[0]]
        self.assertEqual(len(few), 4, charts)

    def test_measured_pages_are_drawn_whole(self):
        results = os.path.join(os.environ["NIB_SOURCE_DIR"], "docs", "results")
        for name in sorted(os.listdir(results)):
            if not name.endswith(".json"):
                continue
            path = os.path.join(results, name)
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)
            page = self.page(path, "--force")
            self.check_every_row_is_drawn(rows, page)
            self.check_geometry(page)
            self.check_table_fits(page)

    def test_bad_rows_are_refused_and_nothing_is_written(self):
        for data, says in ((b"", "no rows"), (b"[]", "no rows"),
                           (b"[1]", "row 1"), (b'[{"op": "gemm"}]', "row 1"),
                           (b'[{"op": "gemm"', "rows.json:1")):
            self.write("rows.json", data)
            self.refused("report", "rows.json", "-o", "page.html", code=3,
                         says=says)
            self.assertEqual(os.listdir(self.folder), ["rows.json"])
        self.refused("report", "none.json", code=3, says="none.json")
        self.write("plan.json", self.nib(
            "plan", "--shape", "1x1x16", "--gflops", "1", "--gbps", "1",
            "--format", "json").stdout.encode())
        self.refused("report", "plan.json", "-o", "page.html", code=3,
                     says="row 1 is not a row of nib bench")
        self.refused("report", "rows.json", "-o", "-", code=2,
                     says="not the standard output")

    def test_a_page_is_not_overwritten_unasked(self):
        self.write("rows.json", b'[{"op": "gemm", "shape": "1x1x16", "time_s": 1}]')
        self.write("page.html", b"mine")
        result = self.nib("report", "rows.json", "-o", "page.html", code=2)
        self.assertIn("page.html", result.stderr)
        self.assertEqual(self.read("page.html"), b"mine")
        self.nib("report", "rows.json", "-o", "page.html", "--force")
        self.assertIn(b"<html", self.read("page.html"))

    def test_a_page_appears_whole_or_not_at_all(self):
        """And is written through no link: its temporary file is a new one."""
        self.write("rows.json", b'[{"op": "gemm", "shape": "1x1x16", "time_s": 1}]')
        self.write("mine", b"mine")
        for name in ("page.html.part", "page.html"):
            os.symlink("mine", self.path(name))
        self.nib("report", "rows.json", "-o", "page.html", "--force")
        self.assertEqual(self.read("mine"), b"mine")
        self.assertIn(b"<html", self.read("page.html"))
        self.assertFalse(os.path.islink(self.path("page.html")))
        os.chmod(self.path("page.html"), 0o640)
        self.nib("report", "rows.json", "-o", "page.html", "--force")
        self.assertEqual(os.stat(self.path("page.html")).st_mode & 0o777, 0o640)
        limit = (16, 16)
        got = self.nib("report", "rows.json", "-o", "new.html", code=4,
                       preexec_fn=lambda:
                       resource.setrlimit(resource.RLIMIT_FSIZE, limit))
        self.assertIn("new.html: File too large", got.stderr)
        self.assertEqual(set(os.listdir(self.folder)),
                         {"rows.json", "mine", "page.html", "page.html.part"})


class Demo(NibTest):
    def test_small(self):
        result = self.nib("demo", "--preset", "small", "--min-time", "0.001",
                          "--threads", "1", "--quiet", "-o", "page.html")
        match = re.search(r"(\d+) of (\d+) shapes correct", result.stdout)
        self.assertEqual(match[1], match[2])
        self.assertGreater(int(match[2]), 5)
        self.assertIn("report: " + os.path.realpath(self.path("page.html")),
                      result.stdout)
        page = self.read("page.html").decode()
        self.assertIn(f"{match[1]} of {match[2]}</b>", page)
        # Columns that say nothing are in neither table.
        titles = next(line for line in result.stdout.splitlines()
                      if line.startswith("op ")).split("  ")
        titles = [title.strip() for title in titles if title.strip()]
        for title in ("predicted us", "busy", "longest wait"):
            self.assertNotIn(title, titles)
            self.assertNotIn(f">{title}", page)
        self.assertRegex(result.stdout, r"processors \(load average [\d.]+\); "
                         r"the samples of a row spread by \d+ %")
        self.assertIn("processors (load average", page)

    def demo_model(self, *args, **options):
        return self.nib("demo", "--model", "model", "--size", "tiny", "--preset",
                        "small", "--min-time", "0.0001", "--threads", "1", "-o",
                        "page.html", *args, **options)

    def test_model(self):
        result = self.demo_model("--format", "json", "--quiet")
        # Programs get rows only; what the commands say goes to standard error.
        rows = json.loads(result.stdout)
        for command in ("quantize model/bf16 model/nvfp4", "inspect model/nvfp4",
                        "verify model/bf16 model/nvfp4", "run --weights model/nvfp4"):
            self.assertIn("$ nib " + command, result.stderr)
        self.assertIn("nothing looks wrong", result.stderr)
        self.assertEqual(sorted(os.listdir(self.path("model"))),
                         ["bf16", "nvfp4", "x.safetensors", "y.safetensors"])
        self.assertEqual(sorted(os.listdir(self.path("model/bf16"))),
                         ["config.json", "model.safetensors"])
        # A block's time is the sum of its layers': k and v count twice, and so on.
        sizes = [(256, 256), (64, 256), (64, 256), (256, 256), (512, 256),
                 (512, 256), (256, 512)]
        for m, name in ((1, "1 row, 7 layers"), (128, "128 rows, 7 layers")):
            blocks = [row for row in rows if row["op"] == "decoder_block"
                      and row["shape"] == name]
            self.assertIn("cpu-", blocks[0]["backend"])
            for block in blocks:
                layers = [next(row for row in rows if row["op"] == "gemm"
                               and row["shape"] == f"{m}x{n}x{k}"
                               and row["backend"] == block["backend"])
                          for n, k in sizes]
                self.assertAlmostEqual(sum(row["time_s"] for row in layers),
                                       block["time_s"])
                self.assertEqual(block["flop"], sum(2 * m * n * k for n, k in sizes))
            for other in blocks[1:]:
                self.assertAlmostEqual(
                    blocks[0]["speedup"][other["backend"][9:]],
                    other["time_s"] / blocks[0]["time_s"])
        page = self.read("page.html").decode()
        # Whether memory or arithmetic bounds a shape is measured.
        self.assertLess(page.index("A decoder block of a Llama: one token"),
                        page.index("Multiplications of "))

    def test_model_onto_a_full_disk(self):
        limit = (1 << 16, 1 << 16)
        result = self.demo_model(
            code=4, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
        self.assertRegex(result.stderr, "nib demo: .*model.safetensors: ")
        self.assertEqual(os.listdir(self.folder), [])

    def test_folder_of_others_stays(self):
        os.mkdir(self.path("model"))
        self.write("model/mine", b"mine")
        result = self.demo_model(code=2)
        self.assertIn("model: a folder that is not empty", result.stderr)
        self.assertEqual(os.listdir(self.path("model")), ["mine"])

    def test_the_place_of_the_page_is_checked_first(self):
        os.mkdir(self.path("folder"))
        result = self.refused("demo", "-o", "folder", code=2,
                              says="folder: not a regular file")
        self.assertEqual(result.stdout, "")


if __name__ == "__main__":
    unittest.main()
