#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nib quantize and run on real files, against NVFP4 in plain Python."""

import json
import math
import os
import random
import resource
import signal
import struct
import subprocess
import time
import unittest

from cli_common import (E2M1, NIB, SCALES, NibTest, decode_layer, e4m3, fake_gpu,
                        floats, is_instrumented, load, matrix, nib, open_terminal,
                        save, save_sparse, sqnr_db, tensor, to_e2m1, to_e4m3)
from cli_model import K, QUANTISED, ROWS, ModelTest, checkpoint


def to_bf16(value):
    """To nearest even, of an fp32 number."""
    bits, = struct.unpack("<I", struct.pack("<f", value))
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


class Quantize(ModelTest):
    def test_tensors_and_metadata(self):
        rows = {row["tensor"]: row for row in self.quantize()}
        tensors, metadata = load(self.path("out"))
        self.assertEqual(metadata["format"], "pt")
        self.assertEqual(metadata["nvfp4_recipe"], "modelopt")
        for name, (dtype, shape, data) in self.source.items():
            layer = name[:-len(".weight")]
            if layer not in QUANTISED:
                self.assertEqual(tensors[name], (dtype, shape, data))
                self.assertEqual(rows[name]["to"], dtype)
                continue
            self.assertEqual(rows[layer]["to"], "NVFP4")
            self.assertEqual(tensors[name][:2],
                             ("U8", [shape[0], shape[1] // 2]))
            self.assertEqual(tensors[layer + ".weight_scale"][:2],
                             ("F8_E4M3", [shape[0], shape[1] // 16]))
            self.assertEqual(tensors[layer + ".weight_scale_2"][:2],
                             ("F32", []))
        self.assertEqual(len(tensors), len(self.source) + 2 * len(QUANTISED))

    def test_says_why_a_tensor_is_copied(self):
        reasons = {row["tensor"]: row["reason"] for row in self.quantize()}
        for name, says in [
                ("model.embed_tokens.weight", r"default exclude \*embed\*"),
                ("model.layers.0.odd.weight", "k = 20 is not a multiple"),
                ("model.layers.0.stack.weight", "3-D"),
                ("model.layers.0.input_layernorm.weight", "1-D"),
                ("model.layers.0.mlp.up_proj.bias", "1-D"),
                ("model.position_ids", "I64")]:
            self.assertRegex(reasons[name], says)

    def check_bits(self, zero_scale, *args, peaks=(6,)):
        """Scales and codes are those of the definition, bit for bit.  peaks: what the
        largest value of a block may become."""
        rows = {row["tensor"]: row for row in self.quantize(*args)}
        tensors, _ = load(self.path("out"))
        weight = ".weight_packed" if "compressed-tensors" in args \
            else ".weight"
        for layer in QUANTISED:
            values = floats(self.source[layer + ".weight"])
            got = [x for row in decode_layer(tensors, layer) for x in row]
            scales = tensors[layer + ".weight_scale"][2]
            codes = tensors[layer + weight][2]
            unit = rows[layer]["global"]
            for at in range(0, len(values), 16):
                block = values[at:at + 16]
                amax = max(map(abs, block))
                scale = scales[at // 16]
                if amax == 0:
                    self.assertEqual(e4m3(scale), zero_scale)
                    continue
                near = [to_e4m3(amax / (peak * unit) * (1 + e))
                        for peak in peaks for e in (-3e-7, 0, 3e-7)]
                self.assertIn(scale, near, layer)
                for i, value in enumerate(block):
                    x = value / (SCALES[scale] * unit)
                    byte = codes[(at + i) // 2]
                    code = byte >> 4 if i & 1 else byte & 15
                    near = [E2M1[to_e2m1(x * (1 + e)) & 7]
                            for e in (-3e-7, 0, 3e-7)]
                    self.assertIn(E2M1[code & 7], near, (layer, at + i))
            if any(values):
                self.assertAlmostEqual(rows[layer]["sqnr_db"],
                                       sqnr_db(values, got), delta=1e-3)
                self.assertGreater(rows[layer]["sqnr_db"], 18)
                worst = max(abs(x - y) for x, y in zip(values, got))
                self.assertAlmostEqual(rows[layer]["max_error"], worst,
                                       delta=1e-6 * worst)
                at = rows[layer]["max_error_row"] * self.source[
                    layer + ".weight"][1][1] + rows[layer]["max_error_col"]
                self.assertAlmostEqual(abs(values[at] - got[at]), worst,
                                       delta=1e-6 * worst)

    def test_modelopt_bits(self):
        self.check_bits(1.0, "--scales", "amax")

    def test_compressed_tensors_bits(self):
        self.check_bits(0.125, "--format-out", "compressed-tensors", "--scales", "amax")

    def test_recipe(self):
        self.check_bits(0.0, "--zero-scale", "ggml", "--threads", "1",
                        "--scales", "amax")

    def test_scales_by_squared_error(self):
        best = {}
        for rule in ("amax", "four-six", "mse"):
            rows = {row["tensor"]: row for row in self.quantize(
                "--scales", rule, "--force")}
            best[rule] = rows
            for layer in QUANTISED:
                values = floats(self.source[layer + ".weight"])
                if any(values) and rule != "amax":
                    self.assertGreater(rows[layer]["global"],
                                       1.74 * best["amax"][layer]["global"])
            want = self.read("out")
            self.quantize("--scales", rule, "--force", "--isa", "scalar",
                          "--threads", "3")
            self.assertEqual(self.read("out"), want)
        self.check_bits(1.0, "--scales", "four-six", "--force", peaks=(6, 4))
        want = self.read("out")
        self.quantize("--force")
        self.assertEqual(self.read("out"), want)
        one, two, three = (
            sum(rows[x]["sqnr_db"] for x in QUANTISED if rows[x]["sqnr_db"]) /
            len(QUANTISED) for rows in best.values())
        self.assertGreater(two, one + 0.2)
        self.assertGreater(three, two + 0.2)
        self.refused("quantize", "in", "none", "--scales", "5", code=2,
                     says="--scales")
        self.assertFalse(os.path.exists(self.path("none")))

    @unittest.skipUnless(fake_gpu(), "this build has no GPU kernels")
    def test_scales_by_squared_error_on_a_gpu(self):
        for rule in ("four-six", "mse"):
            self.quantize("--scales", rule, "--force")
            want = self.read("out")
            self.quantize("--scales", rule, "--force", "--device", "emu:h200")
            self.assertEqual(self.read("out"), want)

    def test_fused_layers_share_a_global_scale(self):
        gate, up = ("model.layers.0.mlp.%s_proj" % x for x in ("gate", "up"))
        rows = {row["tensor"]: row for row in self.quantize()}
        amax = max(map(abs, floats(self.source[up + ".weight"])))
        self.assertEqual(rows[gate]["global"], rows[up]["global"])
        self.assertAlmostEqual(rows[up]["global"], amax / 1536, delta=1e-9)
        rows = {row["tensor"]: row
                for row in self.quantize("--no-share", "--force")}
        amax = max(map(abs, floats(self.source[gate + ".weight"])))
        self.assertAlmostEqual(rows[gate]["global"], amax / 1536, delta=1e-9)

    def test_threads_and_isa_do_not_change_the_file(self):
        self.quantize()
        want = self.read("out")
        for args in (("--threads", "1"), ("--isa", "scalar"),
                     ("--isa", "scalar", "--threads", "7")):
            self.quantize("--force", *args)
            self.assertEqual(self.read("out"), want)

    def test_globs(self):
        def quantised(*args):
            return {row["tensor"] for row in self.quantize("--dry-run", *args)
                    if row["to"] == "NVFP4"}
        self.assertEqual(quantised(), set(QUANTISED))
        self.assertEqual(quantised("--all"),
                         set(QUANTISED) | {"model.embed_tokens"})
        self.assertEqual(quantised("--include", "*gate*,*up*"), {
            "model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj"})
        self.assertEqual(quantised("--include", "*gate*", "--include",
                                   "*up*", "--exclude", "*up*"),
                         {"model.layers.0.mlp.gate_proj"})
        self.assertEqual(quantised("--exclude", "*.mlp.*"), {
            "model.embed_tokens", "model.layers.0.self_attn.o_proj",
            "model.layers.0.zero"})
        self.assertFalse(os.path.exists(self.path("out")))

    def test_nothing_to_quantise_is_a_copy(self):
        self.refused("quantize", "in", "out", "--include", "nope", code=2,
                     says="--include nope: in has no tensor to quantise")
        self.assertFalse(os.path.exists(self.path("out")))
        result = self.nib("quantize", "in", "out", "--exclude", "*")
        self.assertIn("no tensor to quantise", result.stderr)
        self.assertEqual(load(self.path("out"))[0], self.source)
        save(self.path("empty"), {})
        self.nib("quantize", "empty", "empty2")
        self.assertEqual(load(self.path("empty2"))[0], {})

    def test_a_name_that_is_there_already(self):
        """The error is of the tensor, not of --device."""
        save(self.path("in"), {
            "a.weight": tensor("F32", (1, 16), [1] * 16),
            "a.weight_scale": tensor("F32", (2,), [1, 2])})
        self.refused("quantize", "in", "out", code=2, says=(
            "^nib quantize: out: the tensor 'a.weight_scale': declared "
            "before .bad argument.$"))
        self.assertEqual(os.listdir(self.folder), ["in"])

    def test_already_quantised_layers_are_kept(self):
        self.quantize()
        rows = self.rows("quantize", "out", "again", "--all")
        self.assertEqual({row["reason"] for row in rows
                          if row["tensor"].startswith(
                              "model.layers.0.mlp.gate")}, {"already NVFP4"})
        first, again = load(self.path("out"))[0], load(self.path("again"))[0]
        for name in first:
            if "embed" not in name:
                self.assertEqual(again[name], first[name])

    def test_never_over_the_input(self):
        before = self.read("in")
        os.link(self.path("in"), self.path("hard"))
        os.symlink("in", self.path("soft"))
        for out in ("in", "./in", "hard", "soft"):
            self.refused("quantize", "in", out, "--force", code=2,
                         says="same file")
        self.assertEqual(self.read("in"), before)

    def test_existing_output_needs_force(self):
        self.write("out", b"precious")
        self.refused("quantize", "in", "out", code=2, says="--force")
        self.assertEqual(self.read("out"), b"precious")
        self.quantize("--force")
        self.refused("quantize", "in", ".", "--force", code=2,
                     says="not a regular file")
        result = self.refused("quantize", "in", "no/such/folder", code=4,
                              says="No such")
        self.assertEqual(result.stderr.count("no/such/folder"), 1)
        self.refused("quantize", "in", "-", code=2, says="not the standard")
        self.assertFalse(os.path.exists(self.path("-")))

    def test_force_keeps_the_mode(self):
        self.write("out", b"precious")
        os.chmod(self.path("out"), 0o600)
        self.quantize("--force")
        self.assertEqual(os.stat(self.path("out")).st_mode & 0o777, 0o600)

    def test_inf_and_nan(self):
        name = "model.layers.0.mlp.up_proj.weight"
        for bad in (math.inf, math.nan):
            values = floats(checkpoint()[name])
            values[1000] = bad
            self.source[name] = tensor("F32", (ROWS, K), values)
            save(self.path("in"), self.source)
            self.refused("quantize", "in", "out", code=3,
                         says=name + ".*or give --saturate")
            self.assertEqual(os.listdir(self.folder), ["in"])
        result = self.nib("quantize", "in", "out", "--saturate", "--format",
                          "json")
        rows = {row["tensor"]: row for row in json.loads(result.stdout)}
        self.assertGreater(rows[name[:-7]]["sqnr_db"], 18)
        self.assertEqual({row["tensor"]: row["not_finite"] for row in
                          rows.values() if row.get("not_finite")},
                         {name[:-7]: 1})
        self.assertRegex(result.stderr, "1 value was inf or NaN, and finite")

    def test_exact_layers_have_no_sqnr(self):
        save(self.path("z"), {"z.weight": ("F32", [4, 32], bytes(512))})
        text = self.nib("quantize", "z", "zeros").stdout
        self.assertIn("exact: 1 layer\n", text)
        self.assertNotIn("SQNR:", text)
        text = self.nib("quantize", "in", "out").stdout
        rows = self.rows("quantize", "in", "out", "--force")
        finite = [row["sqnr_db"] for row in rows if row.get("sqnr_db")]
        self.assertIn("SQNR: mean %.2f dB, worst %.2f dB" % (
            sum(finite) / len(finite), min(finite)), text)
        layer, = [row for row in self.rows("inspect", "zeros", code=1)
                  if row["kind"] == "layer"]
        self.assertEqual(layer["amax"], 0)

    @unittest.skipIf(is_instrumented([b"tsan"]),
                     "ThreadSanitizer maps a file longer than the limit")
    def test_full_disk_leaves_nothing(self):
        """A file size limit, as a full disk would be."""
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        result = nib("quantize", "in", "out", cwd=self.folder,
                     preexec_fn=limit)
        self.assertEqual(result.returncode, 4)
        self.assertRegex(result.stderr, "out.*(large|space)")
        self.assertEqual(os.listdir(self.folder), ["in"])

    @unittest.skipIf(is_instrumented(), "a sanitizer takes memory too")
    def test_little_memory(self):
        """At each limit it works, or says that memory is short."""
        codes = []
        # Below its own size the system ends the program before it starts.
        own = os.path.getsize(NIB) >> 20
        for mib in (*range(own + 2, own + 28, 2), own + 64, own + 400):
            def limit(size=mib << 20):
                resource.setrlimit(resource.RLIMIT_AS, (size, size))
            for args in (("quantize", "in", "out", "--force"),
                         ("inspect", "in"), ("verify", "in", "in"),
                         ("check", "--op", "gemm", "--shape", "16x2048x2048",
                          "--packed")):
                threads = () if args[0] == "inspect" else ("--threads", "1")
                result = nib(*args, *threads, cwd=self.folder,
                             preexec_fn=limit,
                             env=dict(os.environ, OMP_NUM_THREADS="1"))
                codes.append(result.returncode)
                # 127: not even the shared libraries fit.
                self.assertIn(result.returncode, (0, 3, 4, 127), result.stderr)
                if result.returncode in (3, 4):
                    self.assertRegex(result.stderr, "memory")
                self.assertEqual(set(os.listdir(self.folder)) - {"in", "out"},
                                 set())
        self.assertIn(4, codes)
        self.assertIn(0, codes)

    @unittest.skipIf(is_instrumented(), "a sanitizer starts threads of its own")
    def test_no_threads(self):
        """Where the system starts no thread, as in a container with a limit of
        processes, everything runs on the first."""
        values = [i / 64 for i in range(-32, 32)] * 8192
        source = {"w.weight": tensor("F32", [512, 1024], values),
                  "v.weight": tensor("BF16", [512, 1024], values)}
        save(self.path("wide"), source)
        os.chmod(self.folder, 0o777)

        def limit():
            if os.geteuid() == 0:
                os.setuid(65534)  # root has no limit
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        for args in (("quantize", "wide", "out", "--force"), ("inspect", "wide"),
                     ("verify", "wide", "out"),
                     ("check", "--op", "gemm", "--shape", "16x512x512")):
            threads = () if args[0] == "inspect" else ("--threads", "4")
            result = nib(*args, *threads, cwd=self.folder, preexec_fn=limit,
                         env=dict(os.environ, OMP_NUM_THREADS="4"))
            self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(set(os.listdir(self.folder)), {"in", "wide", "out"})

    def test_broken_inputs(self):
        data = self.read("in")
        for name, content in [
                ("empty", b""), ("short", data[:4]), ("cut", data[:-1]),
                ("text", b"{}" * 100), ("long", data + b"x"),
                ("huge", struct.pack("<Q", 1 << 60) + data[8:])]:
            self.write("bad", content)
            for command in (("inspect", "bad"), ("quantize", "bad", "out"),
                            ("verify", "bad", "in"), ("verify", "in", "bad")):
                with self.subTest(name=name, command=command):
                    self.refused(*command, code=3, says="bad")
        self.assertNotIn("out", os.listdir(self.folder))


def catches(pid, number):
    """Whether the process has got so far as to handle the signal."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except FileNotFoundError:
        pass
    return False


class LargeFiles(NibTest):
    @unittest.skipIf(is_instrumented(), "a sanitizer takes memory too")
    def test_memory_does_not_grow_with_the_file(self):
        save_sparse(self.path("in"), 16384, 8192)  # 256 MiB
        with subprocess.Popen([NIB, "quantize", "in", "out", "--quiet"],
                              cwd=self.folder, stdout=subprocess.DEVNULL) as p:
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(p.returncode, 0)
        self.assertEqual(os.stat(self.path("out")).st_size // 1000,
                         16384 * 8192 * 9 // 16 // 1000)
        self.assertLess(usage.ru_maxrss, 160 * 1024)

    def interrupt(self, number, when):
        save_sparse(self.path("in"), 32768, 8192)
        with subprocess.Popen([NIB, "quantize", "in", "out"], cwd=self.folder,
                              stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as p:
            end = time.monotonic() + 60
            while not (catches(p.pid, number) and when()):
                if p.poll() is not None or time.monotonic() > end:
                    break
                time.sleep(0.002)
            p.send_signal(number)
            text = p.communicate(timeout=60)[1]
        self.assertEqual(p.returncode, 128 + number, text)
        self.assertIn("interrupted; nothing was written", text)
        self.assertEqual(os.listdir(self.folder), ["in"])

    def test_interrupted_while_reading(self):
        self.interrupt(signal.SIGINT, lambda: True)

    def test_interrupted_while_writing(self):
        self.interrupt(signal.SIGTERM,
                       lambda: len(os.listdir(self.folder)) > 1)

    def progress(self, term, lines):
        """What a terminal gets of a quantize that is interrupted after lines."""
        save_sparse(self.path("in"), 65536, 16384)
        ours, theirs = open_terminal()
        with subprocess.Popen([NIB, "quantize", "in", "out", "--threads", "1"],
                              cwd=self.folder, stdout=subprocess.DEVNULL,
                              stderr=theirs,
                              env=dict(os.environ, TERM=term)) as p:
            os.close(theirs)
            seen = b""
            while seen.count(b"\r") < lines:
                seen += os.read(ours, 1024)
            p.send_signal(signal.SIGINT)
            try:
                while True:
                    seen += os.read(ours, 1024)
            except OSError:  # they closed their side
                os.close(ours)
        return seen.decode()

    def test_progress_is_a_bar_on_a_terminal(self):
        text = self.progress("xterm", 4)
        self.assertRegex(text, r"\r\x1b\[Kquantising \[[=> ]{24}\] +\d+ %")
        self.assertRegex(text, r"\r\x1b\[Knib quantize: interrupted")

    def test_progress_is_lines_on_a_dumb_terminal(self):
        text = self.progress("dumb", 1)
        self.assertRegex(text, r"^quantising +\d+ %  \d+ s.*\r\n")
        self.assertRegex(text, r"\nnib quantize: interrupted")
        self.assertNotIn("\x1b", text)

    def test_quiet_says_nothing(self):
        save_sparse(self.path("in"), 8192, 16384)
        result = self.nib("quantize", "in", "out", "--quiet", "--threads", "1")
        self.assertEqual(result.stderr, "")

    def test_progress_says_how_far(self):
        save_sparse(self.path("in"), 65536, 16384)  # 2 GiB: some seconds
        with subprocess.Popen([NIB, "quantize", "in", "out", "--threads", "1"],
                              cwd=self.folder, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as p:
            line = p.stderr.readline()
            p.send_signal(signal.SIGINT)
            p.communicate(timeout=60)
        self.assertRegex(line, r"quantising +\d+ %  \d+ s")


class Run(ModelTest):
    LAYER = "model.layers.0.mlp.gate_proj"

    def setUp(self):
        super().setUp()
        self.quantize()
        self.weight = decode_layer(load(self.path("out"))[0], self.LAYER)
        r = random.Random(9)
        self.x = [r.gauss(0, 1) for _ in range(6 * K)]
        save(self.path("x"), {"x": tensor("F32", (2, 3, K), self.x)})

    def run_nib(self, *args, code=0):
        return self.rows("run", "--weights", "out", "--tensor", self.LAYER,
                         "--input", "x", "--output", "y", "--out", "fp32",
                         *args, code=code)[0]

    def output(self, name="output"):
        tensors, _ = load(self.path("y"))
        self.assertEqual(list(tensors), [name])
        return tensors[name]

    def quantised_rows(self, unit):
        """x as NVFP4 with the global scale unit, as rows."""
        save(self.path("xw"), {"x.weight": tensor("F32", (6, K), self.x)})
        self.nib("quantize", "xw", "xq", "--force", "--scales", "amax")
        tensors, _ = load(self.path("xq"))
        self.assertAlmostEqual(
            floats(tensors["x.weight_scale_2"])[0], unit, delta=1e-9)
        return decode_layer(tensors, "x")

    @staticmethod
    def product(a, b):
        return [sum(x * y for x, y in zip(row, col)) for row in a for col in b]

    def test_is_the_product_of_the_quantised(self):
        row = self.run_nib()
        want = self.product(self.quantised_rows(row["input_global"]),
                            self.weight)
        dtype, shape, _ = self.output()
        self.assertEqual((dtype, shape), ("F32", [2, 3, ROWS]))
        self.assertGreater(sqnr_db(want, floats(self.output())), 120)
        self.assertEqual((row["m"], row["n"], row["k"]), (6, ROWS, K))
        self.assertEqual(row["input_global_from"], "data")

    def test_is_near_the_float_product(self):
        self.run_nib()
        weight = floats(self.source[self.LAYER + ".weight"])
        want = self.product([self.x[i * K:][:K] for i in range(6)],
                            [weight[i * K:][:K] for i in range(ROWS)])
        self.assertGreater(sqnr_db(want, floats(self.output())), 14)

    def test_output_types(self):
        self.run_nib()
        want = floats(self.output())
        for out, dtype, db in (("fp16", "F16", 60), ("bf16", "BF16", 45)):
            self.run_nib("--out", out, "--force", "--output-tensor", "c")
            self.assertEqual(self.output("c")[0], dtype)
            self.assertGreater(sqnr_db(want, floats(self.output("c"))), db)

    def test_the_default_type_of_the_output(self):
        self.nib("run", "--weights", "out", "--tensor", self.LAYER, "--input",
                 "x", "-o", "y")
        self.assertEqual(self.output()[0], "BF16")

    def test_input_scale_of_the_file(self):
        tensors, _ = load(self.path("out"))
        tensors[self.LAYER + ".input_scale"] = tensor("F32", (), [0.004])
        save(self.path("out"), tensors)
        row = self.run_nib()
        self.assertEqual(row["input_global_from"], "weights file")
        self.assertAlmostEqual(row["input_global"], 0.004, delta=1e-9)

    def test_nvfp4_input_and_compressed_tensors(self):
        first = self.run_nib()
        self.quantised_rows(first["input_global"])
        want = self.output()[2]
        os.rename(self.path("xq"), self.path("x"))
        row = self.run_nib("--force")
        self.assertEqual(row["input"], "NVFP4")
        dtype, shape, data = self.output()
        self.assertEqual((dtype, shape, data), ("F32", [6, ROWS], want))

    def test_dual(self):
        up = "model.layers.0.mlp.up_proj"
        row = self.run_nib("--tensor2", up)
        self.assertEqual(row["tensor2"], up)
        a = self.quantised_rows(row["input_global"])
        gate = self.product(a, self.weight)
        other = self.product(a, decode_layer(load(self.path("out"))[0], up))
        want = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, other)]
        self.assertGreater(sqnr_db(want, floats(self.output())), 100)

    def float_product(self, values):
        rows = [values[i * K:][:K] for i in range(6)]
        return self.product(rows, self.weight)

    def test_floats_are_multiplied_as_they_are(self):
        for dtype, kind in (("F32", "fp32"), ("F16", "fp16"), ("BF16", "bf16")):
            x = tensor(dtype, (2, 3, K), self.x)
            save(self.path("x"), {"x": x})
            row = self.run_nib("--activations", kind, "--force")
            self.assertEqual((row["input"], row["activations"]), (dtype, kind))
            for key in ("input_global", "input_global_from", "quantize_s"):
                self.assertIsNone(row[key])
            got = self.output()
            self.assertEqual(got[:2], ("F32", [2, 3, ROWS]))
            self.assertGreater(sqnr_db(self.float_product(floats(x)),
                                       floats(got)), 110)

    def test_floats_are_rounded_to_the_type_asked_for(self):
        tie = [1 + 2 ** -8, 1 + 3 * 2 ** -8, -2 ** -24 * 1.5, 2 ** -25, 65519.0,
               1 + 2 ** -11, 1 + 3 * 2 ** -11]
        self.x[:len(tie)] = tie
        save(self.path("x"), {"x": tensor("F32", (6, K), self.x)})
        for kind, dtype, to in (("fp16", "F16", lambda v: struct.unpack(
                "<e", struct.pack("<e", v))[0]), ("bf16", "BF16", to_bf16)):
            self.run_nib("--activations", kind, "--force")
            got = self.output()[2]
            save(self.path("x2"), {"x": tensor(dtype, (6, K),
                                               list(map(to, self.x32())))})
            self.nib("run", "--weights", "out", "--tensor", self.LAYER,
                     "--input", "x2", "-o", "y", "--out", "fp32", "--force",
                     "--activations", kind)
            self.assertEqual(self.output()[2], got)

    def test_int8_activations(self):
        """Whatever the file's type."""
        for dtype in ("F32", "F16", "BF16"):
            x = tensor(dtype, (6, K), self.x)
            save(self.path("x"), {"x": x})
            row = self.run_nib("--activations", "int8", "--force")
            self.assertEqual(row["input"], dtype)
            db = sqnr_db(self.float_product(floats(x)), floats(self.output()))
            self.assertGreater(db, 40)
            self.assertLess(db, 70)

    def test_dual_of_floats(self):
        up = "model.layers.0.mlp.up_proj"
        self.run_nib("--tensor2", up, "--activations", "fp32")
        gate = self.float_product(self.x32())
        other = self.product([self.x32()[i * K:][:K] for i in range(6)],
                             decode_layer(load(self.path("out"))[0], up))
        want = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, other)]
        self.assertGreater(sqnr_db(want, floats(self.output())), 100)

    def x32(self):
        return floats(load(self.path("x"))[0]["x"])

    def test_inf_of_floats_follows_ieee(self):
        self.x[3] = math.inf
        save(self.path("x"), {"x": tensor("F32", (6, K), self.x)})
        result = self.nib("run", "--weights", "out", "--tensor", self.LAYER,
                          "--input", "x", "-o", "y", "--activations", "fp32",
                          "--out", "fp32")
        self.assertIn("the output holds inf or NaN", result.stderr)
        out = floats(self.output())
        self.assertFalse(any(map(math.isfinite, out[:ROWS])))
        self.assertTrue(all(map(math.isfinite, out[ROWS:])))

    def test_beyond_fp16_is_told(self):
        self.x[3] = 65520.0
        save(self.path("x"), {"x": tensor("F32", (6, K), self.x)})
        result = self.nib("run", "--weights", "out", "--tensor", self.LAYER,
                          "--input", "x", "-o", "y", "--activations", "fp16")
        self.assertIn("x: 1 value of 'x' is infinite in fp16, which ends at "
                      "65504; try --activations bf16", result.stderr)

    def test_refusals(self):
        base = ["run", "--weights", "out", "--input", "x", "--output", "y"]
        self.refused(*base, "--tensor", "nope", code=2,
                     says="no NVFP4 layer 'nope'; it has 5")
        self.refused(*base, "--tensor", self.LAYER, "--index", "1", code=2,
                     says="has 1 matrices")
        self.refused(*base, "--tensor", "model.layers.0.mlp.down_proj",
                     "--tensor2", self.LAYER, code=2, says="differ in shape: "
                     "in_features 128 and 128, out_features 24 and 128")
        self.refused(*base, "--tensor", "model.layers.0.self_attn.o_proj",
                     code=3,
                     says="the last size of 'x' is 128: must be in_features = 48 "
                     "of the layer 'model.layers.0.self_attn.o_proj'")
        for wrong, near in (
                ("up_proj", "'model.layers.0.mlp.up_proj'"),
                ("layers.0.mlp.up_proj", "'model.layers.0.mlp.up_proj'"),
                ("model.layers.0.mlp.up_porj", "'model.layers.0.mlp.up_proj'"),
                ("up_proj.weight", "'model.layers.0.mlp.up_proj'"),
                ("x.model.layers.0.zero", "'model.layers.0.zero'")):
            self.refused(*base, "--tensor", wrong, code=2,
                         says=r"did you mean (.*, )?%s" % near)
        self.assertNotIn("mean", self.nib(*base, "--tensor", "nope", code=2).stderr)
        save(self.path("xs"), {"hidden": matrix(2, K, 1), "other": matrix(2, K, 2)})
        self.refused(*base[:4], "xs", *base[5:], "--tensor", self.LAYER,
                     "--input-tensor", "hidden2", code=2, says="did you mean 'hidden'")
        self.refused(*base, "--tensor", self.LAYER, "--input-tensor", "z",
                     code=2, says="no tensor 'z'")
        self.refused(*base[:-1], "x", "--tensor", self.LAYER, "--force",
                     code=2, says="same file")
        self.refused("run", "--weights", "in", "--tensor", "z", "--input", "x",
                     "--output", "y", code=3, says="no NVFP4 layers")
        self.refused(*base[:4], "out", *base[5:], "--tensor", self.LAYER,
                     "--input-tensor", self.LAYER, "--activations", "bf16",
                     code=2, says="--activations bf16: '%s' of out is NVFP4: "
                     "must be nvfp4" % self.LAYER)
        self.refused(*base[:4], "in", *base[5:], "--tensor", self.LAYER,
                     code=2, says="choose with --input-tensor")
        self.assertFalse(os.path.exists(self.path("y")))
        self.refused(*base, "--tensor", self.LAYER, "--output-tensor",
                     b"\xff".decode(errors="surrogateescape"), code=2,
                     says="^nib run: y: --output-tensor ")
        self.assertFalse(os.path.exists(self.path("y")))
        save(self.path("x"), {"x": tensor("F32", (1, K), [math.nan] * K)})
        self.refused(*base, "--tensor", self.LAYER, code=3,
                     says=": x: .*or give --saturate .bad data")
        self.assertFalse(os.path.exists(self.path("y")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
