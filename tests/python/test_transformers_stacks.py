# SPDX-License-Identifier: Apache-2.0
"""nibblas.transformers loads experts in the orders that quantisers write: one by one
with the number first or last, or as stacks whose K is before the rows or last, against
the same model dequantised."""

import copy
import os
import tempfile
import unittest

import nibblas
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

import nibblas.transformers as nt
import tiny_models as tiny
from model_test import FORMATS, ModelTest, logits, tokens

LEAVES = {FORMATS[0]: ("", "_weight_scale", "_weight_scale_2", "_input_scale"),
          FORMATS[1]: ("_packed", "_scale", "_global_scale", "_input_global_scale")}


def stack(name, w, form, w4a4):
    """The tensors of a stack [E, rows, K] with K last, and its weights dequantised."""
    (codes, scales, scale), back = tiny.quantize(w)
    given = torch.tensor(tiny.input_scale(name))
    if form == FORMATS[1]:
        scale, given = 1 / scale.expand(len(w), 1), 1 / given.reshape(1)
        back = torch.ops.nibblas.dequantize(codes, scales, (1 / scale[0]).reshape(()),
                                            torch.float32, "linear")
    parts = [codes, scales, scale, given][:3 + w4a4]
    return {name + leaf: x for leaf, x in zip(LEAVES[form], parts)}, back


def number_last(name, w, form):
    """The tensors of a stack [E, rows, K] as single experts in ModelOpt's order for
    Qwen3-VL, experts.gate_proj.0.weight, and its weights dequantised."""
    out, back, (module, _, leaf) = {}, [], name.rpartition(".")
    roles = ("gate_proj", "up_proj") if leaf == "gate_up_proj" else (leaf,)
    for e, one in enumerate(w):
        rows = []
        for role, part in zip(roles, one.chunk(len(roles))):
            tensors, plain = tiny._linear(f"{module}.{role}.{e}.weight", part.clone(),
                                          form,
                                          False)
            out.update(tensors)
            rows.append(plain)
        back.append(torch.cat(rows))
    return out, torch.stack(back)


class Orders(ModelTest):
    def model(self, family):
        if family != "qwen3_vl_moe":
            return tiny.make(family)
        torch.manual_seed(0)
        text = {**tiny.SIZES, **tiny.EXPERTS, "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}}
        vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 64,
                  "num_heads": 2,
                  "out_hidden_size": 64, "deepstack_visual_indexes": [0]}
        config = transformers.AutoConfig.for_model(
            family, text_config=text, vision_config=vision, tie_word_embeddings=False)
        return AutoModelForImageTextToText.from_config(
            config, dtype=torch.float32).eval()

    def cls(self, family):
        return AutoModelForImageTextToText if "_vl_" in family else AutoModelForCausalLM

    def rewritten(self, family, form, w4a4, change):
        """(the folder of a model whose experts change(name, stack) makes tensors of,
        the model dequantised)."""
        model = self.model(family)
        packed, plain = tiny.save(model, tempfile.mkdtemp(dir=self.folder), form, w4a4,
                                  keep=("lm_head", "gate.weight", "visual", "router"))
        plain = self.cls(family).from_pretrained(plain, dtype=torch.float32)
        made, experts = {}, []
        for name, module in model.named_modules():
            for leaf in ("gate_up_proj", "down_proj") if hasattr(
                    module, "is_concatenated") else ():
                parts, back = change(f"{name}.{leaf}", getattr(module, leaf).detach())
                # As the files of Mixtral have it.
                made.update({key.replace(".mlp.", ".block_sparse_moe.") if family ==
                             "mixtral" else key: x for key, x in parts.items()})
                getattr(plain.get_submodule(name), leaf).data.copy_(back)
                experts.append(name)

        def edit(tensors):
            for key in [x for x in tensors if ".experts." in x and "_bias" not in x]:
                del tensors[key]
            tensors.update(made)
        return self.edit(packed, edit), plain, len(set(experts))

    def check(self, family, form, w4a4, change):
        """Logits, dense and dequantised, the names and bits of what is saved, and W4A4
        loaded again."""
        packed, plain, experts = self.rewritten(family, form, w4a4, change)
        load = {"cls": self.cls(family)}
        model = self.load(packed, activations="dense", **load)
        notes = [row.note for row in nt.report(model).rows]
        self.assertEqual(notes.count("4 experts"), experts)
        self.assert_near(logits(model, tokens()), logits(plain, tokens()), 3e-6,
                         (family, form))
        copied, want = copy.deepcopy(model), logits(model, tokens())
        for one in (x for x in copied.parameters() if x.dim() == 3):
            one.data.zero_()
        copied.load_state_dict(model.state_dict())
        self.assertTrue(torch.equal(logits(copied, tokens()), want))
        copied.dequantize()
        self.assert_near(logits(copied, tokens()), logits(plain, tokens()), 3e-6,
                         (family, form))
        again = os.path.join(packed, "again")
        model.save_pretrained(again)
        self.assertEqual(self.tensors(packed), self.tensors(again))
        if w4a4:
            got = logits(self.load(packed, **load), tokens())
            self.assert_near(got, logits(plain, tokens()), 0.4, (family, form))
            self.assertFalse(torch.equal(got, logits(model, tokens())))
            self.assertTrue(torch.equal(logits(self.load(again, **load), tokens()),
                                        got))

    def test_stacks_with_k_last(self):
        """ModelOpt's of Inkling, and compressed-tensors' gate_up_proj_packed."""
        for family in ("qwen3_moe", "mixtral"):
            for form in FORMATS:
                self.check(family, form, True,
                           lambda name, w, form=form: stack(name, w, form, True))

    def test_stacks_of_a_model_with_rows_last(self):
        """gpt-oss keeps [E, K, rows]; its file may have them either way."""
        def turned(name, w, form):
            parts, back = stack(name, w.transpose(1, 2).contiguous(), form, True)
            return parts, back.transpose(1, 2)
        for form in FORMATS:
            self.check("gpt_oss", form, True,
                       lambda name, w, form=form: turned(name, w, form))

    def test_transposed_by_transformers(self):
        """Qwen3-VL-MoE: stacks [E, K, rows] in the file, [E, rows, K] in the model."""
        self.check("qwen3_vl_moe", FORMATS[0], True, lambda name, w: (
            lambda parts, back: (parts, back.transpose(1, 2)))(
                *tiny._stack(name, w.transpose(1, 2).contiguous(), True)))
        self.check("qwen3_vl_moe", FORMATS[1], True,
                   lambda name, w: stack(name, w, FORMATS[1], True))

    def test_numbers_last(self):
        for family in ("qwen3_moe", "qwen3_vl_moe"):
            for form in FORMATS:
                self.check(family, form, False,
                           lambda name, w, form=form: number_last(name, w, form))

    def test_wrong_widths(self):
        packed, *_ = self.rewritten("qwen3_moe", FORMATS[0], False, lambda name,
                                    w: stack(
            name, w, FORMATS[0], False))

        def narrow(tensors):
            for key in [x for x in tensors if "gate_up_proj" in x
                        and tensors[x].dim() == 3]:
                tensors[key] = tensors[key][:, :-16]
        self.edit(packed, narrow)
        with self.assertRaisesRegex(nibblas.FileError, r"experts.\w+_proj .* must be "
                                    r"\[4, \d+, \d+\] or \[4, \d+, \d+\], because"):
            self.load(packed)


if __name__ == "__main__":
    unittest.main(verbosity=2)
