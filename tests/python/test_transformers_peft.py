# SPDX-License-Identifier: Apache-2.0
"""Adapters of PEFT on NVFP4 layers: outputs and gradients are those of the dequantised
model with the same adapters, and merging makes layers of floats."""

import copy
import os
import sys
import unittest
import warnings

PEFT = os.environ.get("NIBBLAS_PEFT", "")
if os.path.isabs(PEFT):
    # Before transformers looks for accelerate, which PEFT needs.
    sys.path.append(PEFT)
try:
    import peft
    MISSING = ""
except ImportError as error:
    MISSING = f"no peft: {PEFT or error}"

import torch

import nibblas.torch
import nibblas.transformers as nt
import test_docs as docs
import tiny_models as tiny
from model_test import FORMATS, ModelTest, logits, tokens

LAYERS = ["q_proj", "down_proj"]


@unittest.skipIf(MISSING, MISSING)
class Adapters(ModelTest):
    def setUp(self):
        super().setUp()
        warnings.simplefilter("ignore")
        torch.manual_seed(0)

    def adapted(self, model, plain, **how):
        """Both models with the same adapters, random where `how` says nothing else."""
        config = peft.LoraConfig(**{"r": 4, "target_modules": LAYERS,
                                    "init_lora_weights": False, **how})
        plain = peft.get_peft_model(plain, copy.deepcopy(config))
        model = peft.get_peft_model(model, config)
        model.load_state_dict({name: x for name, x in plain.state_dict().items()
                               if "lora" in name}, strict=False)
        return model, plain

    def check(self, model, plain, **how):
        """Holds outputs, gradients and the merged model to those of a dense model."""
        model, plain = self.adapted(model, plain, **how)
        self.assert_near(logits(model, tokens()), logits(plain, tokens()), 3e-6)
        for one in (model, plain):
            one(tokens(), labels=tokens()).loss.backward()
        trained = [[x for _, x in one.named_parameters() if x.requires_grad]
                   for one in (model, plain)]
        self.assertEqual(len(trained[0]), len(trained[1]))
        for got, want in zip(*trained):
            self.assert_near(got.grad, want.grad, 1e-5)
        want = logits(plain, tokens())
        merged = model.merge_and_unload(safe_merge="use_dora" in how)
        self.assert_near(logits(merged, tokens()), want, 3e-6)
        rows = {row.name: row for row in nt.report(merged).rows}
        for layer in (0, 1):
            for name in ("self_attn.q_proj", "mlp.down_proj"):
                row = rows[f"model.layers.{layer}.{name}"]
                self.assertEqual((row.kind, row.note[:27]),
                                 ("float32", "its weights were written, a"))
        self.assertEqual(nt.report(merged).counts(), {"W4A16": 10, "float32": 5})
        merged.save_pretrained(os.path.join(self.folder, "merged"))
        again = self.load(os.path.join(self.folder, "merged"))
        self.assert_near(logits(again, tokens()), want, 3e-6)

    def test_loaded(self):
        for form, how in ((FORMATS[0], {}), (FORMATS[1], {"use_dora": True}),
                          (FORMATS[0], {"init_lora_weights": "olora"})):
            with self.subTest(form=form, how=how):
                packed, plain = self.saved("llama", form)
                self.check(self.load(packed), self.plain(plain), **how)

    def test_swapped(self):
        model = tiny.make("llama")
        _, left = nibblas.torch.swap_linears(model, lambda name, _: name == "lm_head")
        plain = copy.deepcopy(model)
        for name, one in list(plain.named_modules()):
            if isinstance(one, nibblas.torch.Linear):
                parent, _, child = name.rpartition(".")
                setattr(plain.get_submodule(parent), child, one.to_linear())
        self.assertEqual(list(left), ["lm_head"])
        self.check(model, plain)

    def test_unmerged(self):
        """unmerge() leaves the dequantised weights, and training in bf16 has
        gradients."""
        packed, _ = self.saved("llama")
        model, before = self.load(packed), self.load(packed)
        model, _ = self.adapted(model, copy.deepcopy(model))
        model.merge_adapter()
        model.unmerge_adapter()
        with model.disable_adapter():
            self.assert_near(logits(model, tokens()), logits(before, tokens()), 3e-6)
        half = peft.get_peft_model(self.load(packed, dtype=torch.bfloat16),
                                   peft.LoraConfig(
            r=4, target_modules="all-linear"))
        half(tokens(), labels=tokens()).loss.backward()
        # The second matrix is zero, so that of the first gradients is too.
        grads = [x.grad for name, x in half.named_parameters() if "lora_B" in name]
        self.assertEqual(len(grads), 14)
        self.assertTrue(all(bool(x.any()) for x in grads))

    def test_docs(self):
        """The adapters of docs/transformers.md run as the page has them."""
        page = docs.blocks("docs", "transformers.md")
        block, = [one for one in page if "merge_and_unload" in one]
        names = {"model": self.load(self.saved("llama")[0])}
        exec(block, names)
        self.assertEqual(nt.report(names["merged"]).counts(),
                         {"W4A16": 10, "float32": 5})


if __name__ == "__main__":
    unittest.main(verbosity=2)
