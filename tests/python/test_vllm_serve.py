# SPDX-License-Identifier: Apache-2.0
"""What of bench/vllm_serve.py needs neither vLLM nor a GPU: its arguments, the models
that it makes, the processes of runs, its tables."""

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from common import SOURCE, needs_torch

sys.path.insert(0, os.path.join(SOURCE, "bench"))
import vllm_serve  # noqa: E402
import vllm_table  # noqa: E402
import vllm_weights  # noqa: E402

SCRIPT = os.path.join(SOURCE, "bench", "vllm_serve.py")


class Arguments(unittest.TestCase):
    def refused(self, *arguments):
        error = io.StringIO()
        with contextlib.redirect_stderr(error), self.assertRaises(SystemExit) as end:
            vllm_serve.parse(arguments)
        self.assertEqual(end.exception.code, 2)
        return error.getvalue()

    def test_runs(self):
        run = vllm_serve.parse(["qwen3-30b-a3b:nibblas:w4a4:compressed-tensors:"
                                "layers=12:tp=2:eager"]).runs[0]
        self.assertEqual((run.model, run.engine, run.activations, run.form, run.layers,
                          run.tp, run.eager, run.features),
                         ("qwen3-30b-a3b", "nibblas", "w4a4", "compressed-tensors", 12,
                          2, True, False))
        run = vllm_serve.parse(["llama-8b:bf16:features"]).runs[0]
        self.assertEqual((run.activations, run.tp, run.features), (None, 1, True))

    def test_refused(self):
        for arguments, message in (
                ([], "give either runs or --table"),
                (["llama-8b:bf16", "--table", "x"], "give either runs or --table"),
                (["llama-8b"], "run 'llama-8b': must be MODEL:ENGINE"),
                (["llama:bf16"], "MODEL 'llama' must be one of llama-8b, "),
                (["llama-8b:marlyn"], "ENGINE 'marlyn' must be one of nibblas, "),
                (["llama-8b:nibblas:w4"], "OPTION 'w4' must be w4a16, "),
                (["llama-8b:nibblas:tp=0"], "OPTION 'tp=0' must be"),
                (["llama-8b:bf16:w4a16"], "bf16 has no format of NVFP4"),
                (["tiny-qwen3:nibblas:features"], "features need a dense model"),
                (["llama-8b:bf16", "--limit", "-1"],
                 "--limit -1: must not be negative"),
                (["llama-8b:bf16", "--memory", "1.5"],
                 "--memory 1.5: must be between 0 and 1")):
            with self.subTest(arguments=arguments):
                self.assertIn(message, self.refused(*arguments))

    def test_program(self):
        done = subprocess.run([sys.executable, SCRIPT, "--help"], text=True,
                              capture_output=True, check=True)
        self.assertIn("llama-8b:marlin:w4a16", done.stdout)
        if importlib.util.find_spec("vllm"):
            return
        done = subprocess.run([sys.executable, SCRIPT, "tiny-llama:bf16"], text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("vLLM is not installed: pip install", done.stderr)


class Models(unittest.TestCase):
    def setUp(self):
        self.torch = needs_torch()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def tensors(self, model, engine, activations, form):
        vllm_weights.write(self.folder.name, model, engine, activations, form)
        with open(os.path.join(self.folder.name, "config.json"),
                  encoding="utf-8") as file:
            config = json.load(file)
        made = list(vllm_weights.Maker(config, "cpu").tensors())
        self.assertEqual(len(made), len(dict(made)))
        return config, dict(made)

    def test_formats(self):
        """All formats have the same weights, and bfloat16 has them exactly."""
        import nibblas.torch  # noqa: F401
        torch = self.torch
        for model, name in (("tiny-llama", "model.layers.1.self_attn.k_proj"),
                            ("tiny-qwen3", "model.layers.0.mlp.experts.3.down_proj")):
            _, dense = self.tensors(model, "bf16", None, "modelopt")
            _, one = self.tensors(model, "nibblas", "w4a16", "modelopt")
            _, two = self.tensors(model, "nibblas", "w4a4", "compressed-tensors")
            self.assertTrue(torch.equal(one[name + ".weight"],
                                        two[name + ".weight_packed"]))
            scales = one[name + ".weight_scale"]
            self.assertTrue(torch.equal(scales.view(torch.uint8),
                                        two[name + ".weight_scale"].view(torch.uint8)))
            factor = one[name + ".weight_scale_2"]
            self.assertEqual(float(factor * two[name + ".weight_global_scale"]), 1)
            self.assertAlmostEqual(float(one[name + ".input_scale"]
                                         * two[name + ".input_global_scale"]), 1, 6)
            exact = torch.ops.nibblas.dequantize(
                one[name + ".weight"], scales, None, torch.float32, "linear") * factor
            w = dense[name + ".weight"]
            self.assertEqual(w.dtype, torch.bfloat16)
            self.assertTrue(torch.equal(w.float(), exact))
            self.assertGreater(len(exact.unique()), 100)
            # Layers differ.
            other = name.replace("layers.1", "layers.0").replace("experts.3",
                                                                 "experts.1")
            self.assertFalse(torch.equal(w, dense[other + ".weight"]))
            self.assertEqual({k for k in dense if k.endswith("norm.weight")},
                             {k for k in one if k.endswith("norm.weight")})

    def test_configurations(self):
        for engine, activations, form, algorithm in (
                ("nibblas", "w4a16", "modelopt", "W4A16_NVFP4"),
                ("marlin", "w4a4", "modelopt", "NVFP4"),
                ("humming", "w4a16", "modelopt", "NVFP4")):
            config, tensors = self.tensors("tiny-qwen3", engine, activations, form)
            given = config["quantization_config"]
            self.assertEqual(given["quant_algo"], algorithm)
            inputs = given["config_groups"]["group_0"]["input_activations"]
            self.assertEqual(inputs is not None, activations == "w4a4")
            # Humming's layers of W4A16 have no parameter for it.
            self.assertEqual(any(k.endswith("input_scale") for k in tensors),
                             engine != "humming")
        config, tensors = self.tensors("tiny-llama", "nibblas", "w4a16",
                                       "compressed-tensors")
        self.assertFalse(any("input" in k.rpartition(".")[2] for k in tensors))
        self.assertEqual(config["quantization_config"]["format"],
                         "nvfp4-pack-quantized")

    def test_adapter(self):
        if not importlib.util.find_spec("safetensors"):
            self.skipTest("no safetensors")
        from safetensors.torch import load_file
        vllm_weights.write_adapter(self.folder.name, "tiny-llama", rank=4)
        tensors = load_file(os.path.join(self.folder.name, "adapter_model.safetensors"))
        self.assertEqual(len(tensors), 2 * 7 * 2)
        name = "base_model.model.model.layers.1.mlp.down_proj.lora_"
        self.assertEqual(tensors[name + "A.weight"].shape, (4, 256))
        self.assertEqual(tensors[name + "B.weight"].shape, (128, 4))


class Processes(unittest.TestCase):
    """Each run is a process; its end, whatever it is, becomes a row."""

    def separate(self, function, seconds):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "rows.jsonl")
            given = vllm_serve.parse(["tiny-llama:bf16", "--folder", folder, "--out",
                                      out])
            with mock.patch.object(vllm_serve, "inner", function):
                good = vllm_serve.separate(given.runs[0], given, seconds, True)
            with open(os.path.join(folder, "tiny-llama-bf16.log"),
                      encoding="utf-8") as file:
                log = file.read()
            rows = vllm_table.read(out) if os.path.exists(out) else []
        return good, rows, log

    def test_good(self):
        def inner(run, given, rows, seconds, is_forked):
            print("to the log", flush=True)
            rows.say("done", parent=os.getppid())
            return 0
        good, rows, log = self.separate(inner, 60)
        self.assertTrue(good)
        self.assertEqual([(r["run"], r["step"], r["parent"]) for r in rows],
                         [("tiny-llama:bf16", "done", os.getpid())])
        self.assertEqual(log, "to the log\n")

    def test_bad(self):
        def inner(*_):
            raise RuntimeError("out of memory")
        good, rows, log = self.separate(inner, 60)
        self.assertFalse(good)
        self.assertIn("exit status 1", rows[0]["error"])
        self.assertIn("out of memory", log)

    def test_slow(self):
        """It is killed with the processes that it started."""
        with tempfile.NamedTemporaryFile() as kept:
            def inner(*_):
                child = subprocess.Popen(["sleep", "100"])
                with open(kept.name, "w", encoding="utf-8") as file:
                    file.write(str(child.pid))
                time.sleep(100)
            began = time.time()
            good, rows, _ = self.separate(inner, 1.5)
            child = int(kept.read())
        self.assertFalse(good)
        self.assertLess(time.time() - began, 60)
        self.assertIn("killed after 2 s", rows[0]["error"])
        for _ in range(100):
            try:
                with open(f"/proc/{child}/stat", encoding="utf-8") as file:
                    if file.read().split()[2] == "Z":
                        break
            except OSError:
                break
            time.sleep(.1)
        else:
            self.fail(f"{child} is alive")


class Tables(unittest.TestCase):
    def test_text(self):
        def tokens(run, shift, **more):
            first = {str(i): -5 - .1 * i + shift * (i == 3) for i in range(4)}
            return {"run": run, "step": "tokens", "prompt": 32, "seed": 11, "ms": 1.5,
                    "cached": 0, "tokens": [3, 1, 2 + bool(shift)], "first": first,
                    **more}
        rows = [{"step": "versions", "vllm": "0.24.0"},
                {"run": "llama-8b:nibblas", "step": "started", "start_s": 33.1},
                tokens("llama-8b:nibblas", .4), tokens("llama-8b:bf16", 0),
                {"run": "llama-8b:nibblas", "step": "decode", "batch": 8,
                 "tokens_per_s": 2457.1},
                {"run": "llama-8b:bf16", "step": "decode", "batch": 64, "error": "x"},
                {"run": "llama-8b:nibblas", "step": "first token", "prompt": 512,
                 "ms": 39.8},
                {"run": "llama-8b:bf16", "step": "profile", "batch": 1, "prompt": 512,
                 "new": 1, "ms": 20.5, "gpu_us": 1200, "kernels": [["gemm", 900, 12]],
                 "calls": []}]
        text = vllm_table.text(vllm_table._Rows(rows).rows)
        self.assertIn("| llama-8b:nibblas | 33.1 | 2457.1 |  | 39.8 |", text)
        self.assertIn("4 tokens in common, log-probabilities differ by 0.3000, 2 of 3",
                      text)
        self.assertIn("kernel      900 us     12 x  gemm", text)
        self.assertIn("failed: llama-8b:bf16 decode: x", text)

    def test_malformed(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write('{"step": "versions"}\n[]\n')
            file.flush()
            with self.assertRaisesRegex(ValueError, "line 2: is no row"):
                vllm_table.read(file.name)
            error = io.StringIO()
            with contextlib.redirect_stderr(error):
                self.assertEqual(vllm_serve.main(["--table", file.name]), 2)
            self.assertIn("line 2", error.getvalue())


if __name__ == "__main__":
    unittest.main(verbosity=2)
