# SPDX-License-Identifier: Apache-2.0
"""The memory of a model of nibblas.transformers, and its input scales from data."""

import copy
import os
import unittest

import nibblas
import numpy as np
import torch
from safetensors.torch import load_file

from nibblas.torch import Linear, swap_linears
from nibblas.transformers import _pages
import nibblas.transformers as nt
import test_transformers
import tiny_models as tiny
from model_test import FORMATS, ModelTest, logits, newest, tokens


class Calibration(ModelTest):
    LAYERS = test_transformers.Awq.LAYERS  # for its awq()
    BATCHES = (tokens(seed=3), {"input_ids": tokens(seed=4)}, tokens(1, 5, seed=5))

    def seen(self, model, scaled=()):
        """The largest |x| of each linear layer over BATCHES; scaled: {name: AWQ's}."""
        largest, hooks = {}, []
        for name, one in model.named_modules():
            if hasattr(one, "in_features"):
                def hook(_module, args, name=name):
                    x = args[0] * scaled[name] if name in scaled else args[0]
                    largest[name] = max(largest.get(name, 0), float(x.abs().max()))
                hooks.append(one.register_forward_pre_hook(hook))
        for batch in self.BATCHES:
            with torch.no_grad():
                model(**batch) if isinstance(batch, dict) else model(batch)
        for hook in hooks:
            hook.remove()
        return largest

    def check(self, model, path, form, scaled=()):
        """calibrate() by ModelOpt's rule, saved under the format's names, and
        loaded."""
        largest = self.seen(model, scaled)
        names, left = nt.calibrate(model, self.BATCHES)
        self.assertEqual((len(names), left), (14, {}))
        self.assertEqual(nt.report(model).counts(), {"W4A4": 14, "float32": 1})
        model.save_pretrained(path)
        stored = load_file(os.path.join(path, "model.safetensors"))
        for name in names:
            scale = model.get_submodule(name).input_scale
            self.assert_near(scale, torch.tensor(largest[name] / (6 * 448)), 1e-6)
            if form == "modelopt":
                self.assertEqual(stored[name + ".input_scale"], scale)
            else:
                self.assertNotIn(name + ".input_scale", stored)
                self.assertEqual((1 / stored[name + ".input_global_scale"])[0], scale)
        again = self.load(path, activations="nvfp4")
        self.assertTrue(torch.equal(logits(again, tokens()), logits(model, tokens())))
        copied = copy.deepcopy(model)
        self.assertTrue(torch.equal(logits(copied, tokens()), logits(model, tokens())))
        self.assertEqual(list(copied.state_dict()), list(model.state_dict()))
        copied.load_state_dict(model.state_dict())
        self.assertTrue(torch.equal(logits(copied, tokens()), logits(model, tokens())))

    @newest
    def test_both_formats(self):
        for form in FORMATS:
            packed, _ = self.saved("llama", form)
            self.check(self.load(packed), os.path.join(packed, "again"), form)

    @newest
    def test_awq(self):
        """x is multiplied before its largest value is looked for."""
        packed, scales, _ = test_transformers.Awq.awq(self, False)
        self.check(self.load(packed), os.path.join(packed, "again"), "modelopt", scales)

    @newest
    def test_a_swapped_model(self):
        model = tiny.make("llama")
        swap_linears(model, keep=lambda name, _: name == "lm_head")
        model.config.quantization_config = {
            "quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
        self.check(model, os.path.join(self.folder, "swapped"), "modelopt")
        again = self.load(os.path.join(self.folder, "swapped"))
        self.assertEqual(nt.report(again).counts(), {"W4A4": 14, "float32": 1})

    @newest
    def test_refused(self):
        packed, _ = self.saved("mixtral")
        model = self.load(packed)
        before = model.state_dict()
        with self.assertRaisesRegex(ValueError, "batches: has none"):
            nt.calibrate(model, [])
        bad = model.model.embed_tokens.weight
        kept, bad.data = bad.data, torch.full_like(bad, float("nan"))
        with self.assertRaisesRegex(nibblas.DataError, "q_proj: x had an inf or NaN"):
            nt.calibrate(model, self.BATCHES)
        bad.data = kept
        self.assertEqual(list(model.state_dict()), list(before))
        self.assertEqual(nt.report(model).counts(), {"W4A16": 10, "float32": 1})
        names, left = nt.calibrate(model, self.BATCHES)
        self.assertEqual((len(names), len(left)), (8, 2))
        self.assertTrue(all("experts quantise x" in x for x in left.values()))
        with self.assertRaisesRegex(ValueError, "model: has no nibblas.torch.Linear"):
            nt.calibrate(torch.nn.Linear(4, 4), [torch.ones(1, 4)])


    @newest
    def test_odd_models(self):
        """x that is given by name, and values whose scale is no normal float32."""
        class Model(torch.nn.Module):
            def __init__(self, factor):
                super().__init__()
                self.linear, self.factor = Linear.from_linear(torch.nn.Linear(
                    64, 32, bias=False)), factor

            def forward(self, x):
                return self.linear(x=x * self.factor)
        x = torch.randn(3, 64)
        for factor in (1.0, 1e-36, 1e-44):
            model = Model(factor)
            self.assertEqual(nt.calibrate(model, [x]), (["linear"], {}))
            self.assertTrue(torch.isfinite(1 / model.linear.input_scale))
            self.assertTrue(torch.isfinite(model(x)).all())
        linear = model.linear
        before = linear(x)
        for scale in (0.0, -1.0, 1e-40, 1e38, float("inf"), float("nan")):
            with self.assertRaisesRegex(ValueError, "^scale = .*: must be at least 2"):
                linear.set_input_scale(scale)
        self.assertTrue(torch.equal(linear(x), before))


class Pages(ModelTest):
    def resident(self, path):
        """Bytes of a mapped file that this process has."""
        with open("/proc/self/smaps", encoding="utf-8") as file:
            lines = iter(file)
            for line in lines:
                if line.rstrip().endswith(path):
                    return 1024 * int(next(x for x in lines if x.startswith(
                        "Rss:")).split()[1])
        return 0

    @newest
    def test_pages_go_back(self):
        """Those of a tensor in a mapped file, which is read again where it is used; no
        other memory, and no part of a neighbour."""
        path, n = os.path.join(self.folder, "x.safetensors"), 1 << 20
        data = np.random.default_rng(1).integers(0, 256, n, np.uint8)
        data.tofile(path)
        all_ = torch.from_file(path, size=n, dtype=torch.uint8)
        self.assertEqual(int(all_.sum()), int(data.sum()))
        self.assertGreaterEqual(self.resident(path), n)
        ranges = _pages.mapped_files([path])
        self.assertEqual(len(ranges), 1)
        own = torch.from_numpy(data.copy())
        # Written, so that it would be lost: it has the first page but for a byte.
        all_[0] = 7
        _pages.give_back([own, all_[1:n - 5000]], ranges)
        self.assertLess(self.resident(path), 5 * 4096)
        self.assertEqual(int(all_[0]), 7)
        for got in (own[1:], all_[1:]):
            self.assertTrue(torch.equal(got, torch.from_numpy(data[1:])))
        self.assertEqual(_pages.mapped_files([path + "x"]), [])

    @newest
    def test_a_model_keeps_one_copy(self):
        """Each linear layer, loaded, moved and copied."""
        for form in FORMATS:
            packed, _ = self.saved("llama", form)
            model = self.load(packed)
            for one in (model, copy.deepcopy(model), model.to(torch.bfloat16)):
                layers = [x for x in one.modules() if isinstance(x, Linear)]
                self.assertEqual(len(layers), 14)
                self.assertTrue(all(x.is_only_packed for x in layers))
                self.assertFalse([name for name, x in one.named_buffers()
                                  if x.dtype in (torch.uint8, torch.float8_e4m3fn)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
