#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The parts of bench/gpu_baselines.py that need no GPU, and tools/results_table.py."""

import contextlib
import datetime
import glob
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import types
import unittest
from unittest import mock

from cli_common import NIB, NibTest

SOURCE = os.environ["NIB_SOURCE_DIR"]
sys.path.insert(0, os.path.join(SOURCE, "bench"))
import gpu_baselines  # noqa: E402
import gpu_humming  # noqa: E402
import gpu_marlin  # noqa: E402
import gpu_operands  # noqa: E402
import gpu_torch  # noqa: E402

LIBRARY = os.path.join(os.path.dirname(NIB), "libnibblas.so")
NAMES = ("G1 G2 G3 G4 M1 M2 M3 M4 D1 D2 D3 D4 V1 V2 V3 E1 E8 E16 E32 E64 "
         "S1 S16 S64").split()
OURS = "cuda-sm90"
MARLIN = types.SimpleNamespace(marlin_version=lambda: b"vllm 1.2")  # the library


def needs_library(*modules):
    """Skips tests that load the library, with arrays of one of these modules."""
    why = ""
    if not any(importlib.util.find_spec(module) for module in modules):
        why = " and ".join(f"no {module}" for module in modules)
    elif not os.path.exists(LIBRARY):
        why = "no " + LIBRARY
    elif os.environ.get("NIB_TEST_SIZE") == "small":
        why = "a sanitizer must be the first library"
    return unittest.skipIf(why, why)


def script(*args, code=0):
    done = subprocess.run([sys.executable, os.path.join(SOURCE, *args[0]),
                           *args[1:]], capture_output=True, text=True)
    if done.returncode != code:
        raise AssertionError(f"{args}: {done.returncode}\n{done.stdout}"
                             f"{done.stderr}")
    return done.stdout


def baselines(*args, code=0):
    """In this process, because an import of torch takes seconds."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = gpu_baselines.main(args)
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
    if status != code:
        raise AssertionError(f"{args}: {status}\n{out.getvalue()}{err.getvalue()}")
    return out.getvalue()


class Baselines(unittest.TestCase):
    def test_list(self):
        lines = baselines("--list").splitlines()
        self.assertEqual([line.split()[0] for line in lines], NAMES)

    def test_seeds_are_those_of_nib(self):
        done = subprocess.run(
            [NIB, "plan", "--preset", "seeds", "--gflops", "1", "--gbps", "1",
             "--format", "json"], capture_output=True, text=True, check=True)
        ours = [line.split(maxsplit=2)[1:]
                for line in baselines("--list").splitlines()
                if line[0] in "GMDV"]
        self.assertEqual(sorted(ours), sorted(
            [row["op"], row["shape"]] for row in json.loads(done.stdout)))

    def test_presets_are_those_of_nib(self):
        for preset in ("decode", "experts", "ampere"):
            done = subprocess.run(
                [NIB, "plan", "--preset", preset, "--gflops", "1", "--gbps",
                 "1", "--format", "json"], capture_output=True, text=True,
                check=True)
            ours = [line.split(maxsplit=2) for line in
                    baselines("--list", "--preset", preset).splitlines()]
            self.assertEqual([line[1:] for line in ours], [
                [row["op"], row["shape"]] for row in json.loads(done.stdout)])
            self.assertEqual(len({line[0] for line in ours}), len(ours))

    def test_bad_arguments(self):
        for bad in (["--only", "Q"], ["--replays", "0"], ["--layout", "odd"],
                    ["--activations", "fp32"], ["--activations", ""],
                    ["--preset", "cpu"], ["--preset", "decode", "--only", "G1"],
                    ["--baselines", "hum"], ["--baselines", "humming,", "--list"],
                    ["--baselines", "humming", "--no-baselines"]):
            baselines(*bad, code=2)


@needs_library("numpy", "torch")
class DryRun(NibTest):
    def dry_run(self, *args):
        path = os.path.join(self.folder, "rows.json")
        text = baselines("--dry-run", "--library", LIBRARY, "--json", path, *args)
        with open(path, encoding="utf-8") as file:
            return text, json.load(file)

    def test_every_row_is_right(self):
        for layout in ("tiled", "linear"):
            text, rows = self.dry_run("--layout", layout)
            ours = [r for r in rows if not r["backend"].startswith("baseline:")]
            self.assertEqual([r["name"] for r in ours], NAMES)
            self.assertIn(f"{len(NAMES)} passed, 0 failed", text)
            for row in ours:
                self.assertTrue(row["ok"])
                self.assertLess(row["error"], 1e-3)
                self.assertGreater(row["time_s"], 0)
                self.assertEqual(row["layout"], layout)

    def test_packed_weights(self):
        text, rows = self.dry_run("--packed", "--only", "G1,M1,D1,V2,E8",
                                  "--no-baselines")
        self.assertEqual([r["packed"] for r in rows], [True] * 5)
        self.assertIn("5 passed, 0 failed", text)
        self.assertIn("--packed", rows[0]["command"])

    def test_activations(self):
        kinds = ["nvfp4", "fp16", "bf16"]
        text, rows = self.dry_run("--activations", ",".join(kinds), "--only",
                                  "G3,D1,V2,E8", "--no-baselines")
        self.assertEqual([r["activations"] for r in rows], 4 * kinds)
        self.assertIn("12 passed, 0 failed", text)
        for nvfp4, fp16, bf16 in zip(*[iter(rows)] * 3):
            self.assertGreater(fp16["bytes"], nvfp4["bytes"])
            self.assertEqual(fp16["bytes"], bf16["bytes"])
            self.assertIn(" --activations bf16", bf16["command"])

    def test_presets(self):
        for preset, only in (("decode", "A1,S16"), ("experts", "P1,R4")):
            text, rows = self.dry_run("--preset", preset, "--only", only,
                                      "--no-baselines")
            self.assertIn(f"{len(rows)} passed, 0 failed", text)
            self.assertIn("--preset " + preset, rows[0]["command"])

    def test_rivals_that_cannot_run_are_rows(self):
        """Each has a reason, in the rows and under the table."""
        text, rows = self.dry_run("--only", "M1,V2")
        missing = [r for r in rows if r["backend"] == "baseline:humming"]
        self.assertEqual([r["name"] for r in missing], ["M1", "V2"])
        for r in missing:
            self.assertTrue(r["skipped"])
            self.assertIsNone(r["time_s"])
            self.assertIn(" failed ", text)
            self.assertRegex(text, f"(?m)^not measured: humming for .*{r['name']}")
        self.assertGreaterEqual(
            {r["backend"] for r in rows},
            {"baseline:cuBLAS fp16", "baseline:cuBLAS fp8", "baseline:torch bmm fp16"})

    def test_keys_are_those_of_bench(self):
        _, rows = self.dry_run("--only", "M1")
        bench = json.loads(self.nib(
            "bench", "--op", "gemm", "--shape", "1x1x16", "--min-time", "0",
            "--samples", "1", "--format", "json").stdout)
        self.assertIn("name", bench[0])
        self.assertEqual([k for k in rows[0] if k != "name"],
                         [k for k in bench[0] if k != "name"])

    def test_sweep(self):
        text, rows = self.dry_run("--sweep", "--no-baselines")
        self.assertEqual([r["name"] for r in rows], ["W1", "W2", "W3"])
        self.assertIn("3 passed, 0 failed", text)

    def test_report_draws_them(self):
        _, rows = self.dry_run("--only", "G,M1")
        self.write("rows.json", json.dumps(rows).encode())
        self.nib("report", "rows.json", "-o", "page.html")
        self.assertIn(b"group_gemm", self.read("page.html"))


def row(name, backend, time_s, **values):
    return dict(op="gemm", shape="128x4096x7168", name=name, backend=backend,
                time_s=time_s, machine="GPU X", date="2026-01-02T03:04:05Z",
                **values)


def rival(factor=1.0, tolerance=gpu_torch.ROUNDED_16):
    """A maker of a baseline that returns factor times the exact results."""
    def make(torch, shape, sets):
        exact = {(b, row): x for b, row, x, _ in sets[0].want()}
        return gpu_torch.Baseline([lambda: None for _ in sets],
                                  lambda b, row: factor * exact[b, row], tolerance)
    return make


def raises(problem):
    def make(torch, shape, sets):
        raise problem
    return make


@needs_library("numpy", "torch")
class Rivals(NibTest):
    """What becomes of a rival that fails, with stand-ins for all rivals."""

    def run_with(self, made, *args):
        """(status, printed, rows) of a dry run of M1 with these rivals."""
        def open_run(args):
            run = opened(args)
            run.torch = run.torch or types.SimpleNamespace()
            return run

        opened, path = gpu_baselines.open_run, self.path("rows.json")
        out = io.StringIO()
        with mock.patch.multiple(gpu_baselines, open_run=open_run,
                                 baselines_of=lambda shape: made), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = gpu_baselines.main(["--dry-run", "--library", LIBRARY, "--only",
                                         "M1", "--json", path, *args])
        with open(path, encoding="utf-8") as file:
            return status, out.getvalue(), json.load(file)

    def test_right_result_has_a_time(self):
        status, text, rows = self.run_with([("humming", rival())],
                                           "--baselines", "humming")
        self.assertEqual(status, 0, text)
        self.assertGreater(rows[1]["time_s"], 0)
        self.assertEqual(rows[1]["error"], 0)
        self.assertIn("humming", rows[0]["speedup"])

    def test_call_that_raises_is_a_line(self):
        made = [("humming", raises(TypeError("unexpected keyword 'meta'"))),
                ("cuBLAS fp16", rival())]
        status, text, rows = self.run_with(made)
        self.assertEqual(status, 0, text)
        self.assertEqual(rows[1]["skipped"], "TypeError: unexpected keyword 'meta'")
        self.assertIsNone(rows[1]["time_s"])
        self.assertEqual(list(rows[0]["speedup"]), ["cuBLAS fp16"])
        self.assertIn("not measured: humming for M1: TypeError: unexpected", text)

    def test_call_that_raises_while_timed_is_a_line(self):
        def make(torch, shape, sets):
            def call():
                raise RuntimeError("CUDA out of memory")
            return rival()(torch, shape, sets)._replace(calls=[call])

        _, text, rows = self.run_with([("humming", make)])
        self.assertEqual(rows[1]["skipped"], "RuntimeError: CUDA out of memory")
        self.assertIn("not measured: humming for M1", text)

    def test_named_rival_that_fails_fails_the_run(self):
        for problem in (TypeError("unexpected keyword"), ImportError("no module"),
                        NotImplementedError("no batched product")):
            status, text, rows = self.run_with([("humming", raises(problem))],
                                               "--baselines", "humming")
            self.assertEqual(status, 1)
            self.assertIn("--baselines humming: not measured for M1", text)
            self.assertIn(str(problem), rows[1]["skipped"])

    def test_first_words_name_rivals(self):
        made = [("cuBLAS fp16", rival()), ("cuBLAS fp8", rival()), ("humming", rival())]
        _, _, rows = self.run_with(made, "--baselines", "cuBLAS")
        self.assertEqual([r["backend"] for r in rows[1:]],
                         ["baseline:cuBLAS fp16", "baseline:cuBLAS fp8"])

    def test_named_rival_without_a_row_fails_the_run(self):
        status, text, rows = self.run_with([("cuBLAS fp16", rival())],
                                           "--baselines", "humming")
        self.assertEqual((status, len(rows)), (1, 1))
        self.assertIn("--baselines humming: computes none of these products", text)

    def test_wrong_result_has_no_time(self):
        for factor in (1.01, 0.0, float("nan")):
            status, text, rows = self.run_with([("humming", rival(factor))])
            self.assertEqual(status, 1)
            self.assertRegex(rows[1]["skipped"], "^WrongResult: off by ")
            self.assertIsNone(rows[1]["time_s"])
            self.assertEqual(rows[0]["speedup"], {})
            self.assertRegex(text, "(?m)^M1 .* wrong ")
            self.assertIn("wrong: humming for M1", text)

    def test_tolerance_is_the_rivals_own(self):
        made = [("cuBLAS fp8", rival(1.01, gpu_torch.ROUNDED_FP8))]
        status, text, rows = self.run_with(made)
        self.assertEqual(status, 0, text)
        self.assertGreater(rows[1]["error"], 0)

    def test_large_weights_have_fewer_sets(self):
        """256 experts of 4096x7168 in bf16 take 14 GiB; eight of them have rows."""
        run = types.SimpleNamespace(l2_bytes=50 << 20, memory_bytes=80 << 30)
        shape = types.SimpleNamespace(n=4096, k=7168, products=1, batch=1,
                                      ms=[1] * 8 + [0] * 248, bytes=lambda: 132e6)
        self.assertEqual(gpu_baselines.rival_sets(run, shape, [1, 2, 3, 4, 5]), [1, 2])
        shape.ms = [1]
        self.assertEqual(gpu_baselines.rival_sets(run, shape, [1, 2, 3]), [1, 2, 3])

    def test_time_that_is_over_names_what_is_left(self):
        status, text, rows = self.run_with([], "--minutes", "-1")
        self.assertEqual((status, rows), (1, []))
        self.assertIn("not reached in time: M1", text)


    def test_gpu_table_has_a_file_for_each_preset(self):
        out = self.path("out")
        script(("bench", "gpu_table.py"), "--dry-run", "--library", LIBRARY, "--out",
               out, "--preset", "decode:A1", "experts:P1", "seeds:G3,V2")
        for preset, names in (("decode", ["A1"]), ("experts", ["P1"]),
                              ("seeds", ["G3", "V2"])):
            with open(os.path.join(out, preset + ".json"), encoding="utf-8") as file:
                rows = json.load(file)
            self.assertEqual(list(dict.fromkeys(r["name"] for r in rows)), names)
            self.assertIn("baseline:humming", {r["backend"] for r in rows})

    def test_gpu_table_needs_rivals_where_they_compute(self):
        """cuBLAS computes nothing of P1; Humming would, but is not installed."""
        for names, code in (("cuBLAS", 0), ("cuBLAS,humming", 1)):
            text = script(("bench", "gpu_table.py"), "--dry-run", "--library", LIBRARY,
                          "--out", self.folder, "--preset", "experts:P1",
                          "--baselines", names, code=code)
            self.assertEqual("not measured: humming for P1" in text, code == 1)

    def test_gpu_table_names_what_is_left(self):
        text = script(("bench", "gpu_table.py"), "--dry-run", "--library", LIBRARY,
                      "--out", self.folder, "--minutes", "0", "--preset", "decode:A1",
                      "layers", code=1)
        self.assertIn("not reached in time: --preset decode:A1 layers", text)

    def test_gpu_table_bad_arguments(self):
        script(("bench", "gpu_table.py"), "--preset", "cpu", code=2)


@needs_library("torch")
class PackedOperands(NibTest):
    """What Humming and Marlin multiply for each kind of product: a stand-in for their
    layers multiplies the codes and scales, and must return the exact results."""

    def product(self, torch, codes, scales, *args, is_sm80=False):
        def matrix(codes, scales):
            values = torch.tensor(gpu_operands.VALUES)[torch.stack(
                (codes & 15, codes >> 4), -1).long()].reshape(len(codes), -1, 16)
            return (values * scales.view(torch.float8_e4m3fn).float()[:, :, None]
                    ).reshape(len(codes), -1)

        def multiply(x, offsets=None):
            if offsets is None:
                return (x.float() @ matrix(codes, scales).t()).half()
            ends = offsets if isinstance(offsets, list) else offsets.tolist()
            return torch.cat([(x[a:b].float() @ matrix(c, s).t()).half()
                              for a, b, c, s in zip(ends, ends[1:], codes, scales)])

        self.kinds.append(is_sm80)
        return multiply

    def swiglu(self, x, alpha=1.0):
        import torch

        gate, up = (alpha * x.float()).chunk(2, 1)
        return (torch.nn.functional.silu(gate) * up).half()

    def check(self, baseline, names, *args):
        """Every product of names has a time and an exact result."""
        path, out, self.kinds = self.path("rows.json"), io.StringIO(), []
        with mock.patch.multiple(gpu_humming, product=self.product,
                                 swiglu=self.swiglu), \
                mock.patch.multiple(gpu_marlin, product=self.product,
                                    load=lambda: MARLIN, Scratch=mock.Mock()), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = gpu_baselines.main([
                "--dry-run", "--library", LIBRARY, "--only", ",".join(names),
                "--baselines", baseline, "--json", path, *args])
        self.assertEqual(status, 0, out.getvalue())
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)[1::2]
        self.assertEqual([(r["name"], r["backend"]) for r in rows],
                         [(name, "baseline:" + baseline) for name in names])
        for row in rows:
            self.assertGreater(row["time_s"], 0)
            self.assertLess(row["error"], 1e-3)
        return set(self.kinds)

    def test_every_kind_of_product(self):
        names = ["G1", "M1", "D1", "V1", "V2", "E8"]
        for layout in ("tiled", "linear"):
            self.assertEqual(self.check("humming", names, "--layout", layout), {False})
        self.assertEqual(self.check("humming-sm80", names), {True})
        self.check("marlin", [name for name in names if name != "D1"])

    def test_ampere(self):
        for baseline in ("humming-sm80", "marlin"):
            self.check(baseline, ["I1", "J1024", "P16", "Q1"], "--preset", "ampere")


class Marlin(NibTest):
    def run_without(self, *args, code):
        """What a dry run prints, and its rows, if Marlin is not built."""
        path = self.path("rows.json")
        with mock.patch.dict(os.environ, NIB_MARLIN=self.path("none.so")):
            text = baselines("--dry-run", "--library", LIBRARY, "--json", path,
                             "--preset", "ampere", "--only", "I1", *args, code=code)
        with open(path, encoding="utf-8") as file:
            return text, json.load(file)

    @needs_library("numpy", "torch")
    def test_missing_library_is_a_line(self):
        text, rows = self.run_without(code=0)
        self.assertIn("Marlin not built", text.splitlines()[0])
        self.assertIn("Marlin not built", rows[0]["machine"])
        self.assertEqual([r["backend"][9:] for r in rows[1:]],
                         ["cuBLAS fp16", "humming-sm80", "marlin"])
        if importlib.util.find_spec("torch"):
            self.assertIn("not measured: marlin for I1: FileNotFoundError: "
                          "libmarlin.so is not built: run tools/get_marlin.sh", text)
        self.assertIsNone(rows[-1]["version"])
        self.run_without("--baselines", "marlin", code=1)

    @needs_library("numpy", "torch")
    def test_others_are_compared_with_it_by_name_only(self):
        args = ("--dry-run", "--library", LIBRARY, "--only", "M1")
        self.assertNotIn("  marlin", baselines(*args))
        self.assertIn("--baselines marlin: not measured for M1",
                      subprocess.run([sys.executable, os.path.join(
                          SOURCE, "bench", "gpu_baselines.py"), *args, "--baselines",
                          "marlin"], capture_output=True, text=True).stderr)

    def test_version(self):
        with mock.patch.object(gpu_marlin, "load", lambda: MARLIN):
            self.assertEqual(gpu_torch.version_of("marlin"), "Marlin of vllm 1.2")
            self.assertIn("Marlin of vllm 1.2", gpu_torch.versions(None))

    def test_blocks(self):
        """Experts of 3, 0, 8 and 9 rows in blocks of 8; 20 is padding."""
        self.assertEqual(gpu_marlin.blocks_of([0, 3, 3, 11, 20], 8), (
            [0, 1, 2, 20, 20, 20, 20, 20, *range(3, 20), *7 * [20]], [0, 2, 3, 3]))
        self.assertEqual([gpu_marlin.block_rows(rows, 128) for rows in
                          (8, 921, 922, 1843, 1844, 2048, 100000)],
                         [8, 8, 16, 16, 32, 32, 64])

    @unittest.skipUnless(importlib.util.find_spec("torch"), "no torch")
    def test_scales(self):
        """S0E5M3 is the upper byte of 128 times a scale in fp16, shifted by its sign;
        eight columns in a row are those that a thread multiplies, 8 apart."""
        import torch

        scales = torch.arange(128, dtype=torch.uint8).repeat(64, 1)
        values = scales.view(torch.float8_e4m3fn).half() * 128
        values[values < 2] = 0
        expected = (values.view(torch.int16).int() << 1 >> 8 & 255).to(torch.uint8)
        expected[:, 127] = 0xf7  # NaN, which no weight has
        self.assertEqual(gpu_marlin.scales_of(torch, scales).t().tolist(),
                         expected.tolist())
        columns = torch.arange(8, 8 + 128, dtype=torch.uint8)[:, None].repeat(1, 2)
        found = gpu_marlin.scales_of(torch, columns).int() - 0x78 - 8
        self.assertEqual(found[0].tolist(), found[1].tolist())
        for first in range(0, 128, 8):
            run = found[0, first:first + 8].tolist()
            start = first // 64 * 64 + first % 64 // 8
            self.assertEqual(sorted(run), [start + 8 * j for j in range(8)])
            self.assertEqual(run, [start + 8 * j for j in (0, 2, 1, 3, 4, 6, 5, 7)])

    @unittest.skipUnless(importlib.util.find_spec("torch"), "no torch")
    def test_needs_a_gpu(self):
        import torch

        with self.assertRaisesRegex(RuntimeError, "Marlin needs a GPU"):
            gpu_marlin.Scratch(torch, "cpu")


class Humming(NibTest):
    """Which releases are supported, with stand-ins for the installed one."""

    def install(self, version):
        info = self.path("humming_kernels.dist-info")
        os.makedirs(info, exist_ok=True)
        self.write(os.path.join(info, "METADATA"),
                   f"Metadata-Version: 2.1\nName: humming-kernels\n"
                   f"Version: {version}\n".encode())
        importlib.invalidate_caches()

    def setUp(self):
        super().setUp()
        sys.path.insert(0, self.folder)
        self.addCleanup(sys.path.remove, self.folder)

    def test_versions(self):
        for version in ("0.1.19", "0.1.20", "0.2.0", "1.0"):
            self.install(version)
            gpu_humming.require()
            self.assertEqual(gpu_torch.version_of("humming"),
                             "humming-kernels " + version)
            self.assertIn(version, gpu_torch.versions(None))

    def test_older_release_is_refused_by_version(self):
        for version in ("0.1.18", "0.1.9", "0.0.20"):
            self.install(version)
            with self.assertRaisesRegex(NotImplementedError,
                                        f"^humming-kernels {version} is older than"):
                gpu_humming.require()

    def test_missing_package(self):
        sys.path.remove(self.folder)
        with mock.patch.object(gpu_humming, "PACKAGE", "no-such-package"), \
                self.assertRaisesRegex(ModuleNotFoundError, "is not installed"):
            gpu_humming.require()
        sys.path.insert(0, self.folder)


class Printed(unittest.TestCase):
    """The table that gpu_baselines.py prints."""

    def test_times_of_baselines_are_in_it(self):
        ours = row("M2", OURS, 12e-6, fraction_of_limit=0.75, limit_s=9e-6,
                   speedup={"cuBLAS fp16": 2.0}, error=1e-4, ok=True)
        dense = dict(ours, activations="bf16", time_s=16e-6,
                     speedup={"cuBLAS fp16": 1.5})
        run = types.SimpleNamespace(
            rows=[ours, dense, row("M2", "baseline:cuBLAS fp16", 24e-6)],
            read_bps=4e12, flops=8e14, machine="GPU X", not_reached=[],
            nib=types.SimpleNamespace(version=lambda: "0"),
            date=datetime.date(2026, 1, 2))
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            gpu_baselines.print_table(run)
        above, *table = out.getvalue().splitlines()[:4]
        self.assertEqual(above, "GPU X, nibblas 0, 2026-01-02")
        head, line, other = [re.split("  +", text.strip()) for text in table]
        self.assertIn("cuBLAS fp16", head)
        self.assertEqual(line[-4:], ["24.0", "2.00", "1.0e-04", "yes"])
        self.assertEqual(other[1], line[1] + ", A of bf16")
        self.assertEqual(other[-4:], ["24.0", "1.50", "1.0e-04", "yes"])


class NeedsGpu(unittest.TestCase):
    def test_needs_torch_and_a_gpu(self):
        """They have nothing to say without them, and say which is missing."""
        for name, title in (("gpu_chain.py", "layers, us a layer"),
                            ("gpu_timer.py", "dirty 1")):
            process = subprocess.run(
                [sys.executable, os.path.join(SOURCE, "bench", name)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                timeout=300)
            if process.returncode == 0:
                self.assertIn(title, process.stdout)
            else:
                self.assertRegex(process.stderr,
                                 f"^{name}: torch (is not installed|finds no GPU)")


class MoeLayer(NibTest):
    def run_script(self, *args):
        """The process; torch may be missing."""
        process = subprocess.run(
            [sys.executable, os.path.join(SOURCE, "bench", "gpu_moe_layer.py"), *args],
            capture_output=True, text=True,
            env=dict(os.environ, NIBBLAS_LIBRARY=LIBRARY,
                     PYTHONPATH=os.path.join(SOURCE, "python")))
        if "torch is not installed" in process.stderr:
            self.skipTest("no torch")
        return process

    def test_dry_run(self):
        """Every way but Humming's, which is not installed, gives torch's results."""
        rows = os.path.join(self.folder, "layers.json")
        process = self.run_script("--dry-run", "--shapes", "small", "--tokens", "1,3",
                                  "--json", rows)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertIn("4 passed, 0 failed", process.stdout)
        with open(rows, encoding="utf-8") as file:
            found = json.load(file)[1:]
        self.assertEqual([(r["way"], r.get("tokens"), r.get("ok")) for r in found], [
            ("torch grouped bf16", 1, None), ("torch grouped bf16", 3, None),
            ("W4A4", 1, True), ("W4A4", 3, True), ("W4A16", 1, True),
            ("W4A16", 3, True), ("humming W4A16", None, None),
            ("humming products W4A16", None, None)])
        for row in found[-2:]:
            self.assertIn("humming-kernels", row["skipped"])

    def test_named_way_that_fails_fails_the_run(self):
        process = self.run_script("--dry-run", "--shapes", "small", "--tokens", "1",
                                  "--ways", "W4A4,humming W4A16")
        self.assertEqual(process.returncode, 1, process.stderr)
        self.assertRegex(process.stdout, "(?m)^small .* failed$")
        self.assertIn("not measured: humming W4A16, small: ModuleNotFoundError",
                      process.stdout)
        self.assertIn("humming W4A16, small: ModuleNotFoundError", process.stderr)

    def test_time_that_is_over_is_a_reason(self):
        process = self.run_script("--dry-run", "--shapes", "small", "--tokens", "1",
                                  "--minutes", "-1")
        self.assertEqual(process.returncode, 1)
        self.assertIn("not measured: W4A4, small: not reached in time", process.stdout)

    def test_bad_arguments(self):
        process = self.run_script("--shapes", "none")
        self.assertEqual(process.returncode, 2)
        self.assertIn("--shapes none: must be of deepseek-v3", process.stderr)


class Table(NibTest):
    ROWS = [row("M2", OURS, 12e-6, fraction_of_limit=0.75, ok=True),
            row("M2", OURS, 16e-6, fraction_of_limit=0.5, ok=True,
                activations="fp16"),
            row("M2", "baseline:cuBLAS fp16", 24e-6),
            row("M2", "baseline:humming", None, skipped="not there"),
            dict(row("D1", OURS, 40e-6, fraction_of_limit=0.5, ok=True),
                 op="dual_gemm", shape="256x4096x7168"),
            dict(op="peak", shape="read bandwidth", backend=OURS)]
    TABLE = ("| product | nibblas | of limit | cuBLAS fp16 |\n"
             "|---|---|---|---|\n"
             "| gemm 128x4096x7168 | 12.0 us | 75 % | 24.0 us, 2.00x |\n"
             "| gemm 128x4096x7168, A of fp16 | 16.0 us | 50 % "
             "| 24.0 us, 1.50x |\n"
             "| dual_gemm 256x4096x7168 | 40.0 us | 50 % | |\n"
             "\n- Not measured: humming for M2: not there\n")

    def table(self, *args, **options):
        return script(("tools", "results_table.py"), *args, **options)

    def test_table(self):
        self.write("r.json", json.dumps(self.ROWS).encode())
        path = os.path.join(self.folder, "r.json")
        self.assertEqual(self.table(path), self.TABLE)
        self.assertNotIn("dual", self.table(path, "--only", "M2"))

    def test_short_table_has_the_fastest_baselines(self):
        rows = self.ROWS + [row("M2", "baseline:slow fp16", 48e-6),
                            row("M2", "baseline:cuBLAS fp8", 6e-6)]
        self.write("r.json", json.dumps(rows).encode())
        path = os.path.join(self.folder, "r.json")
        self.assertEqual(self.table(path, "--short"), (
            "| product | nibblas | of limit | fastest 16-bit baseline "
            "| fastest FP8 baseline |\n|---|---|---|---|---|\n"
            "| gemm 128x4096x7168 | 12.0 us | 75 % "
            "| cuBLAS fp16: 24.0 us, 2.00x | cuBLAS fp8: 6.0 us, 0.50x |\n"
            "| dual_gemm 256x4096x7168 | 40.0 us | 50 % | | |\n"
            "\n- Not measured: humming for M2: not there\n"))

    def test_update_and_check(self):
        self.write("r.json", json.dumps(self.ROWS).encode())
        before = "a\n<!-- table: r.json -->\nold\n<!-- /table -->\nb\n"
        self.write("page.md", before.encode())
        page = os.path.join(self.folder, "page.md")
        self.table("--check", page, code=1)
        self.assertEqual(self.read("page.md").decode(), before)
        self.table("--update", page)
        self.assertEqual(self.read("page.md").decode(),
                         before.replace("old\n", self.TABLE))
        self.table("--check", page)
        self.write("short.md", before.replace("json", "json M2 short").encode())
        page = os.path.join(self.folder, "short.md")
        self.table("--update", page)
        self.assertIn("cuBLAS fp16: 24.0 us", self.read("short.md").decode())
        self.assertNotIn("dual", self.read("short.md").decode())

    def test_card(self):
        """A line has goal, limit, our times and the best rivals; the list under the
        table has versions, and why a rival is missing."""
        ours = row("M2", OURS, 12e-6, limit_s=9e-6, ok=True, activations="nvfp4",
                   command="gpu_baselines.py --only M2")
        rows = [dict(ours, machine="NVIDIA H200, driver 1"),
                dict(ours, activations="fp16", time_s=16e-6),
                row("M2", "baseline:cuBLAS fp16", 24e-6, version="torch 2"),
                row("M2", "baseline:slow", 25e-6),
                row("M2", "baseline:cuBLAS fp8", 6e-6),
                row("M2", "baseline:humming", None, skipped="not there"),
                dict(op="peak", shape="read bandwidth", backend=OURS, gbps=4e3)]
        self.write("r.json", json.dumps(rows).encode())
        path = os.path.join(self.folder, "r.json")
        self.assertEqual([re.split(r" *\| *", line) for line in
                          self.table(path, "--card").splitlines()], [
            ["", "problem", "goal", "limit", "W4A4", "W4A16 fp16",
             "best 16-bit rival", "ratio", "best FP8 rival", "ratio", ""],
            [""] + ["-" * n for n in (22, 4, 5, 4, 10, 17, 5, 15, 5)] + [""],
            ["", "M2: gemm 128x4096x7168", "12", "9.0", "12.0", "16.0",
             "cuBLAS fp16: 24.0", "2.00", "cuBLAS fp8: 6.0", "0.50", ""],
            [""],
            ["- M: 2026-01-02, NVIDIA H200, driver 1; `gpu_baselines.py "
             "--activations nvfp4,fp16`; limit: bytes / 4.00 TB/s; rivals: "
             "cuBLAS fp16 (torch 2); slow, cuBLAS fp8 (version not recorded)"],
            ["- Not measured: humming for M2: not there"]])

    def test_card_of_rivals_for_sm80(self):
        """They have columns of their own; the command has the kernels' architecture."""
        ours = row("I1", "cuda-sm80", 12e-6, ok=True, activations="fp16",
                   command="NIB_CUDA_ARCH=sm80 gpu_baselines.py --only I1")
        rows = [ours, dict(ours, activations="nvfp4", time_s=10e-6),
                row("I1", "baseline:marlin", 24e-6),
                row("I1", "baseline:humming-sm80", 18e-6),
                dict(op="peak", shape="mma f16", backend="cuda-sm80", gflops=6e5)]
        self.write("r.json", json.dumps(rows).encode())
        head, _, line, _, text = self.table(
            os.path.join(self.folder, "r.json"), "--card").splitlines()
        self.assertEqual(re.split(r" *\| *", head)[4:], [
            "best 16-bit rival", "ratio", "Humming for sm_80", "ratio", "Marlin",
            "ratio", ""])
        self.assertEqual(re.split(r" *\| *", line)[4:], [
            "humming-sm80: 18.0", "1.50", "18.0", "1.50", "24.0", "2.00", ""])
        self.assertIn("`NIB_CUDA_ARCH=sm80 gpu_baselines.py --activations fp16,nvfp4`; "
                      "limit: FLOP / 600 TFLOP/s", text)

    def test_card_of_predictions(self):
        """Predicted times are named so in the heading and in the list."""
        rows = [row("M2", "emu:b200", None, predicted=True, predicted_us=9.5,
                    low_us=8.0, high_us=11.0),
                row("M2", "baseline:public kernel", 19e-6)]
        self.write("r.json", json.dumps(rows).encode())
        text = self.table(os.path.join(self.folder, "r.json"), "--card")
        self.assertIn("| predicted by emu:b200 | best public kernel  | ratio |", text)
        self.assertIn("| 9.5 (8.0 to 11.0)     | public kernel: 19.0 | 2.00  |", text)
        self.assertIn("2026-01-02, predicted by emu:b200", text)

    def test_several_files_and_letters(self):
        self.write("r.json", json.dumps(self.ROWS).encode())
        marker = "<!-- table: r.json D r.json M2 card -->\n"
        self.write("page.md", (marker + "<!-- /table -->\n").encode())
        self.table("--update", os.path.join(self.folder, "page.md"))
        lines = self.read("page.md").decode().splitlines()
        self.assertIn("D1: dual_gemm", lines[3])
        self.assertIn("M2: gemm", lines[4])

    def test_record_drops_samples(self):
        rows = [row("M2", OURS, 12e-6, samples_s=[11e-6, 12e-6, 13e-6], bound=None,
                    spread=1 / 3, ok=True)]
        self.write("r.json", json.dumps(rows).encode())
        text = self.table("--record", os.path.join(self.folder, "r.json"))
        self.assertEqual(len(text.splitlines()), 2 + len(rows))
        found = json.loads(text)[0]
        self.assertEqual((found["samples"], found["spread"], found["time_s"]),
                         (3, 0.333333333, 12e-6))
        self.assertNotIn("samples_s", found)
        self.assertNotIn("bound", found)

    def test_record_reads_layers(self):
        rows = [{"machine": "GPU X", "torch": "2", "read_bps": 4e12,
                 "date": "2026-01-02"},
                {"shape": "small", "way": "W4A4", "tokens": 1, "us": 5.0,
                 "bytes": 4e6, "ok": True},
                {"shape": "small", "way": "humming W4A16", "skipped": "not there"},
                {"shape": "small", "way": "humming products W4A16", "tokens": 1,
                 "us": 4.0, "bytes": 4e6, "ok": True}]
        self.write("r.json", json.dumps(rows).encode())
        ours, other, part = json.loads(
            self.table("--record", os.path.join(self.folder, "r.json")))
        self.assertEqual((ours["shape"], ours["time_s"], ours["limit_s"]),
                         ("small, 1 token", 5e-6, 1e-6))
        self.assertEqual((other["backend"], other["skipped"]),
                         ("baseline:humming", "not there"))
        self.write("c.json", json.dumps([ours, part]).encode())
        text = self.table(os.path.join(self.folder, "c.json"), "--card")
        self.assertIn("| W4A4 | products only         | ratio |", text)
        self.assertIn("| 5.0  | humming products: 4.0 | 0.80  |", text)

    def test_wrong_results_have_no_table(self):
        self.write("r.json", json.dumps(
            [row("M2", OURS, 1e-6, fraction_of_limit=1, ok=False)]).encode())
        self.table(os.path.join(self.folder, "r.json"), code=1)

    def test_wrong_result_of_a_rival_has_no_time_in_a_table(self):
        rows = self.ROWS + [row("M2", "baseline:wrong", None, ok=False,
                                skipped="WrongResult: off by 1")]
        self.write("r.json", json.dumps(rows).encode())
        text = self.table(os.path.join(self.folder, "r.json"))
        self.assertIn("- Not measured: wrong for M2: WrongResult: off by 1\n", text)
        self.assertIn("| product | nibblas | of limit | cuBLAS fp16 |\n", text)

    def test_tables_of_the_project_are_those_of_the_results(self):
        pages = [os.path.join(SOURCE, "README.md")] + glob.glob(
            os.path.join(SOURCE, "docs", "**", "*.md"), recursive=True)
        found = 0
        for page in pages:
            with open(page, encoding="utf-8") as file:
                found += "<!-- table: " in file.read()
            self.table("--check", page)
        self.assertGreaterEqual(found, 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
