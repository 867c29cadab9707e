# SPDX-License-Identifier: Apache-2.0
"""nibblas.gptq: codes and scales are the library's, errors are smaller than rounding's,
a stopped run continues with the same bits, and bad input is refused by name."""

import contextlib
import io
import json
import os
import shutil
import tempfile
import unittest
from unittest import mock

import torch
from safetensors.torch import load_file

import nibblas
import nibblas.transformers as nt
import tiny_models as tiny
from nibblas import gptq
from nibblas.gptq import __main__ as command, _rounding, _run, _solve, _state

SETTINGS = {"windows": 12, "length": 32, "min_tokens": 64}


def run(folder, out, **named):
    """The summary of a run, and its progress."""
    stream = io.StringIO()
    summary = gptq.quantize(folder, out, os.path.join(folder, "text.jsonl"),
                            stream=stream, **{**SETTINGS, **named})
    return summary, stream.getvalue()


def correlated(seed, k=64, rows=48, tokens=400):
    """Weights, and inputs that depend on each other as those of real layers do."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(k, k // 4, generator=generator)
    x = torch.randn(tokens, k // 4, generator=generator) @ mix.t()
    x += 0.3 * torch.randn(tokens, k, generator=generator)
    return torch.randn(rows, k, generator=generator), x


class RoundingTest(unittest.TestCase):
    """Codes and scales of torch tensors are those of nibblas.quantize()."""

    def values(self):
        generator = torch.Generator().manual_seed(1)
        w = torch.randn(96, 128, generator=generator)
        w[:16] *= 2.0 ** -9
        w[16:24, ::3] = 0
        w[24, :] = 0
        w[25] = -0.0
        # Ties: multiples of 1/4 under scales that are powers of two.
        w[32:64] = torch.randint(-24, 25, (32, 128), generator=generator) / 4
        w[32:64, ::16] = 6
        return w

    def test_as_library(self):
        w, grid = self.values(), _rounding.Grid("cpu")
        for rule in ("amax", "four-six", "mse"):
            for scale in (0.01, 1.0, 2.0 ** -8):
                codes, blocks, _ = nibblas.quantize(w.numpy(), scale, layout="linear",
                                                    scales=rule)
                chosen = _rounding.choose_scales(grid, w, torch.tensor(scale), rule)
                self.assertTrue(torch.equal(chosen, torch.from_numpy(blocks)),
                                (rule, scale))
                d = _rounding.exact_scales(chosen, torch.tensor(scale))
                made = _rounding.pack(grid.codes(w, d.repeat_interleave(16, -1)))
                self.assertTrue(torch.equal(made, torch.from_numpy(codes)),
                                (rule, scale))

    def test_weighted(self):
        """No scale of the rule has a smaller weighted error than the chosen one."""
        w, grid, scale = self.values(), _rounding.Grid("cpu"), torch.tensor(0.01)
        weights = torch.linspace(0.1, 9, 128)
        chosen = _rounding.choose_scales(grid, w, scale, "mse", weights)
        plain = _rounding.choose_scales(grid, w, scale, "mse")
        self.assertFalse(torch.equal(chosen, plain))
        blocks, each = w.unflatten(-1, (-1, 16)), weights.double().view(-1, 16)
        best = _rounding.squared_error(grid, blocks, chosen, scale, each)
        for one in _rounding.candidates(blocks, scale, "mse"):
            self.assertTrue(bool((best <= _rounding.squared_error(
                grid, blocks, one, scale, each)).all()))


class SolveTest(unittest.TestCase):
    """One matrix."""

    def solve(self, w, x, **named):
        options = _solve.Options(**{**{
            "damping": 0.01, "block_size": 32, "act_order": False, "scales": "mse",
            "choose": "search"}, **named})
        h = x.t() @ x
        grid, scale = _rounding.Grid("cpu"), w.abs().max() / 1536
        damped = _solve.damped("layer", h, options.damping)
        found = _solve.solve(grid, "layer", w, scale, damped, options)
        nearest = _solve.round_nearest(grid, w, scale, options)
        return found, [((w - one.values) @ x.t()).square().sum().item()
                       for one in (found, nearest)]

    def test_error(self):
        for seed in range(3):
            w, x = correlated(seed)
            for choose in ("static", "search"):
                for order in (False, True):
                    for rule in ("amax", "four-six", "mse"):
                        _, (error, nearest) = self.solve(
                            w, x, choose=choose, act_order=order, scales=rule)
                        self.assertLess(error, 0.5 * nearest, (choose, order, rule))

    def test_block_size(self):
        """It changes only the order of sums."""
        w, x = correlated(5)
        for choose in ("static", "search"):
            errors = [self.solve(w, x, block_size=size, choose=choose)[1][0]
                      for size in (16, 48, 64)]
            self.assertLess(max(errors), 1.05 * min(errors))

    def test_values(self):
        """Values are those of the codes and scales."""
        w, x = correlated(3)
        for choose in ("static", "search"):
            found, _ = self.solve(w, x, choose=choose, act_order=True)
            values = nibblas.dequantize(
                _rounding.pack(found.codes).numpy(), found.blocks.numpy(),
                (w.abs().max() / 1536).item(), layout="linear")
            self.assertTrue(torch.equal(found.values, torch.from_numpy(values)))

    def test_unused_input(self):
        """Weights of an input that is always zero are rounded to nearest."""
        w, x = correlated(4)
        x[:, 20] = 0
        found, _ = self.solve(w, x, choose="static")
        near = _solve.round_nearest(_rounding.Grid("cpu"), w, w.abs().max() / 1536,
                                    _solve.Options(0, 16, False, "mse", "static"),
                                    _solve.damped("", x.t() @ x, 0.01).diagonal())
        self.assertTrue(torch.equal(found.codes[:, 20], near.codes[:, 20]))

    def test_refused(self):
        w, x = correlated(6)
        with self.assertRaisesRegex(nibblas.DataError, "layer: damping = 0.0"):
            self.solve(w, x[:8], damping=0.0)
        x[3, 5] = float("inf")
        with self.assertRaisesRegex(nibblas.DataError, "layer: its Hessian"):
            self.solve(w, x)


class ModelTest(unittest.TestCase):
    """Whole models."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.llama = os.path.join(cls.folder, "llama")
        cls.model = tiny.save_dense(cls.llama, "llama")

    def out(self, name="out"):
        path = os.path.join(self.folder, name)
        shutil.rmtree(path, ignore_errors=True)
        return path

    def error_of(self, folder):
        """The squared error of the logits for the text of the calibration."""
        tokens = torch.randint(tiny.ALPHABET, (8, 32),
                               generator=torch.Generator().manual_seed(7))
        with torch.no_grad():
            logits = nt.from_pretrained(folder)(tokens).logits
            return (logits - self.model(tokens).logits).square().mean().item()

    def test_model(self):
        out, near = self.out(), self.out("near")
        summary, text = run(self.llama, out)
        self.assertRegex(text, r"block 2/2: error .* min left\n$")
        self.assertEqual(len(summary["layers"]), 14)
        self.assertEqual(summary["rounded"], [])
        for row in summary["layers"]:
            self.assertLess(row["error"], 0.85 * row["error_rounded"], row)
            self.assertEqual(row["tokens"], 12 * 32)
        with open(os.path.join(out, "gptq.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), summary)
        rounded, _ = run(self.llama, near, min_tokens=10 ** 6)
        self.assertEqual(len(rounded["rounded"]), 14)
        self.assertLess(self.error_of(out), 0.8 * self.error_of(near))
        self.assertFalse(os.path.exists(os.path.join(out, _state.FOLDER)))

    def stopped(self, folder, out, **named):
        """A run that ends after its first block."""
        with mock.patch.object(_run.Progress, "put", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                run(folder, out, **named)

    def same(self, whole, parts):
        """Checks that two folders have the same bits; returns the tensors."""
        one, other = (load_file(os.path.join(x, "model.safetensors"))
                      for x in (whole, parts))
        self.assertEqual(one.keys(), other.keys())
        for name, x in one.items():
            bits, others = (y.reshape(-1).view(torch.uint8) for y in (x, other[name]))
            self.assertTrue(torch.equal(bits, others), name)
        return one

    def test_resume(self):
        whole, parts = self.out("whole"), self.out("parts")
        run(self.llama, whole, activations="nvfp4")
        self.stopped(self.llama, parts, activations="nvfp4")
        with self.assertRaisesRegex(nibblas.FileError, "with seed = 0, not 1"):
            run(self.llama, parts, activations="nvfp4", seed=1)
        summary, text = run(self.llama, parts, activations="nvfp4")
        self.assertRegex(text, "^block 1/2: finished before\nblock 2/2: error")
        self.assertEqual(len(summary["layers"]), 14)
        self.assertIn("model.layers.1.mlp.up_proj.input_scale", self.same(whole, parts))
        again = nt.from_pretrained(parts)
        self.assertIn("14 W4A4", str(nt.report(again)))

    def test_experts(self):
        folder = os.path.join(self.folder, "mixtral")
        tiny.save_dense(folder, "mixtral")
        summary, _ = run(folder, self.out(), choose_scales="static", min_tokens=1)
        counts = sorted(x["tokens"] for x in summary["layers"]
                        if "experts" in x["layer"])
        limit = counts[len(counts) // 2]
        self.assertLess(counts[0], limit)
        named = {"choose_scales": "static", "min_tokens": limit}
        summary, _ = run(folder, self.out(), **named)
        parts = self.out("parts")
        self.stopped(folder, parts, **named)
        self.assertEqual(run(folder, parts, **named)[0], summary)
        self.same(self.folder + "/out", parts)
        rows = [x for x in summary["layers"] if "experts" in x["layer"]]
        self.assertEqual(len(rows), 16)
        for row in rows:
            self.assertEqual(row["method"],
                             "rounded" if row["tokens"] < limit else "gptq")
        self.assertEqual(summary["rounded"],
                         [x for x in rows if x["tokens"] < limit])
        self.assertIn(f"min-tokens = {limit}", summary["rounded"][0]["reason"])
        with torch.no_grad():
            logits = nt.from_pretrained(os.path.join(self.folder, "out"))(
                torch.arange(16)[None]).logits
        self.assertTrue(bool(torch.isfinite(logits).all()))

    def command(self, *arguments):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            code = command.main([str(x) for x in arguments])
        return code, said.getvalue()

    def test_refused(self):
        bad = os.path.join(self.folder, "bad.jsonl")
        for text, message in (
                ('{"text": "abc"}\n["text"]\n', "bad.jsonl, line 2: must be a JSON "),
                ('{"text": 3}\n', 'line 1: must be a JSON object with a string "text"'),
                ("{\n", "line 1: must be a JSON object"), ("\n\n", "has no text"),
                ('{"text": ""}\n', "has no text"),
                ('{"text": "abc"}\n', "has 3 tokens: must have at least length = 512")):
            with open(bad, "w", encoding="utf-8") as file:
                file.write(text)
            code, said = self.command(self.llama, self.out(), "--calibration", bad)
            self.assertEqual(code, 1, text)
            self.assertIn(message, said)
        given = self.llama, self.out(), "--calibration", bad
        for more, message in (
                (("--damping", "-1"), "damping = -1.0: must be finite, and 0 or more"),
                (("--damping", "nan"), "damping = nan"),
                (("--block-size", "24"), "block_size = 24: must be a multiple of 16"),
                (("--windows", "0"), "windows = 0: must be 1 or more"),
                (("--calibration", "/none"), "calibration = /none: No such file")):
            code, said = self.command(*given, *more)
            self.assertEqual(code, 1)
            self.assertIn(message, said)
        code, said = self.command("/none", *given[1:3],
                                  os.path.join(self.llama, "text.jsonl"))
        self.assertIn("model = /none: no such folder", said)


if __name__ == "__main__":
    unittest.main()
