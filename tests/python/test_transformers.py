# SPDX-License-Identifier: Apache-2.0
"""nibblas.transformers: compares tiny models with random weights with the same models
dequantised, in transformers' own arithmetic.  With the newest version of transformers
everything runs.  With older versions fewer families run, and tests that do not depend
on the version are left out."""

import copy
import importlib
import inspect
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import typing
import unittest
import unittest.mock

import nibblas
import numpy as np
import tokenizers
import torch
import transformers
from common import SOURCE, bound, decode, dense_bound
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import nibblas.transformers as nt
import test_docs as docs
import tiny_models as tiny
from model_test import FORMATS, IS_NEWEST, ModelTest, logits, newest, tokens

ops = torch.ops.nibblas
# Stored as stacks, which compressed-tensors does not do.
STACKED = ("gpt_oss", "llama4_text")
FEWER = ("llama", "mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "llama4_text")
FAMILIES = list(tiny.FAMILIES) if IS_NEWEST else FEWER


def round_trip(x, scale):
    """x quantised to NVFP4 and back."""
    rows = x.reshape(-1, x.shape[-1])
    back = ops.dequantize(*ops.quantize(rows, torch.tensor(scale), "linear"),
                          torch.float32, "linear")
    return back.reshape(x.shape)


def emulated_experts(self, x, index, weights):
    """The experts of transformers in float32, one after the other, with activations
    that make the round trip by the scales self.tiny_scales."""
    out = torch.zeros_like(x)
    turn = (lambda w: w.t()) if self.is_transposed else (lambda w: w)
    first = self.gate_up_proj if self.has_gate else self.up_proj
    act = self._apply_gate if self.has_gate else self.act_fn
    before, between = self.tiny_scales
    for e in range(self.num_experts):
        row, slot = torch.where(index == e)
        h = round_trip(x[row], before) @ turn(first[e]).t()
        if self.has_bias:
            h = h + self.gate_up_proj_bias[e]
        y = round_trip(act(h), between) @ turn(self.down_proj[e]).t()
        if self.has_bias:
            y = y + self.down_proj_bias[e]
        out.index_add_(0, row, y * weights[row, slot, None])
    return out


def _emulated_llama4(self, x):
    before, between = self.tiny_scales
    x = round_trip(x, before).view(self.num_experts, -1, self.hidden_size)
    gate, up = torch.bmm(x, self.gate_up_proj).chunk(2, dim=-1)
    return torch.bmm(round_trip(up * self.act_fn(gate), between),
                     self.down_proj).view(-1, self.hidden_size)


def emulate(model):
    """Makes activations of a dequantised model make the round trip of W4A4."""
    transformers.integrations.moe.ALL_EXPERTS_FUNCTIONS.register(
        "emulated", emulated_experts)
    for name, module in model.named_modules():
        module.tiny_scales = [tiny.input_scale(f"{name}.{part}") for part in (
            "gate_up_proj", "down_proj")] if name.endswith(".experts") else None
        if type(module) is torch.nn.Linear and tiny.LINEAR.search(name + ".weight"):
            module.register_forward_pre_hook(
                lambda _module, arguments, scale=tiny.input_scale(name): (
                    round_trip(arguments[0], scale),))
        elif type(module).__name__ == "Llama4TextExperts":
            module.forward = _emulated_llama4.__get__(module)
        elif hasattr(module, "is_concatenated"):
            model.set_experts_implementation("emulated")
    return model


class Families(ModelTest):
    CASES = [(family, form) for family in FAMILIES
             for form in (FORMATS[:1] if family in STACKED else FORMATS)]

    def check_layers(self, model, x):
        """Holds every linear layer of a forward pass to the bound of
        docs/numerics.md; returns how many."""
        seen = []
        for name, module in model.named_modules():
            if isinstance(module, nibblas.torch.Linear):
                module.register_forward_hook(
                    lambda module, given, y, name=name: seen.append(
                        (name, module, given[0].detach().clone(), y.clone())))
        logits(model, x)
        for name, module, given, y in seen:
            w = decode(module.codes.numpy(), module.weight_scale.view(
                torch.uint8).numpy())
            rows = given.reshape(-1, given.shape[-1])
            alpha, limit = module.weight_scale_2.item(), dense_bound
            a = rows.double().numpy()
            if module.activations == "nvfp4":
                codes, scales, scale = ops.quantize(
                    rows, module.input_scale, "linear")
                a = decode(codes.numpy(), scales.view(torch.uint8).numpy())
                alpha, limit = (scale * module.weight_scale_2).item(), bound
            want, most = alpha * (a @ w.T), abs(alpha) * limit(a, w)
            if module.bias is not None:
                want = want + module.bias.detach().double().numpy()
            got = y.detach().double().numpy().reshape(want.shape)
            # The roundings by alpha and of the sum with bias.
            most = most + 2.0 ** -23 * (np.abs(want) + np.abs(got))
            self.assertTrue((np.abs(got - want) <= most).all(), name)
        return len(seen)

    def test_as_dequantised(self):
        """W4A16 in float32: the logits of the same model dequantised, but for the
        order of sums."""
        for family, form in self.CASES:
            packed, plain = self.saved(family, form)
            model = self.load(packed)
            want = logits(self.plain(plain), tokens())
            self.assert_near(logits(model, tokens()), want, 3e-6, family)
            self.assertGreater(self.check_layers(model, tokens()), 5)
            kinds = nt.report(model).counts()
            self.assertEqual(set(kinds), {"W4A16", "float32"})

    def test_as_emulated(self):
        """W4A4: each layer within its bound, the model as one whose activations make
        the round trip (where a sum rounds to another code, it differs a little)."""
        for family, form in self.CASES:
            packed, plain = self.saved(family, form, w4a4=True)
            model = self.load(packed)
            got, dense = logits(model, tokens()), logits(self.plain(plain), tokens())
            want = logits(emulate(self.plain(plain)), tokens())
            self.assert_near(got, want, 1e-2, family)
            self.assertGreater((got - dense).norm() / dense.norm(), 0.05)
            self.assertGreater(self.check_layers(model, tokens()), 5)
            self.assertIn("W4A4", nt.report(model).counts())

    def test_bfloat16(self):
        for family in ("llama", "mixtral", "gpt_oss"):
            packed, plain = tiny.save(tiny.make(family).to(torch.bfloat16),
                                      tempfile.mkdtemp(dir=self.folder))
            got = logits(self.load(packed, dtype=torch.bfloat16), tokens())
            self.assertEqual(got.dtype, torch.bfloat16)
            other, want = self.plain(plain), logits(self.plain(plain), tokens())
            stock = logits(other.to(torch.bfloat16), tokens()).float()
            # Not less exact than transformers in bfloat16.
            error = (stock - want).norm() / want.norm()
            self.assert_near(got.float(), want, 1.1 * error, family)

    def test_saved_again(self):
        """The names, types and bits of the source come back, and load again."""
        for family, form in self.CASES:
            packed, _ = self.saved(family, form, w4a4=family != "qwen3_moe")
            model, again = self.load(packed), os.path.join(packed, "again")
            model.save_pretrained(again)
            self.assertEqual(self.tensors(packed), self.tensors(again))
            self.assertEqual(self.quantization(packed), self.quantization(again))
            self.assertTrue(torch.equal(logits(self.load(again), tokens()),
                                        logits(model, tokens())))

    def quantization(self, path):
        with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
            return json.load(file)["quantization_config"]


class Command(ModelTest):
    def test_nib_quantize(self):
        """Folders of nib quantize load: experts one by one, and stacks across (Llama 4,
        gpt-oss), whose tensors are those of the tests' checkpoints."""
        for family in ("mixtral", "llama4_text", "gpt_oss"):
            model, folder = tiny.make(family), tempfile.mkdtemp(dir=self.folder)
            packed, _ = tiny.save(model, folder)
            source, made = (os.path.join(folder, x) for x in ("source", "made"))
            model.save_pretrained(source)
            subprocess.run([os.environ.get("NIB", "nib"), "quantize", source, made,
                            "--no-share", "--quiet", "--scales", "amax"], check=True,
                           capture_output=True)
            self.assertEqual(self.tensors(made), self.tensors(packed))
            loaded = self.load(made)
            self.assertIn("4 experts", [row.note for row in nt.report(loaded).rows])
            self.assertTrue(torch.equal(logits(loaded, tokens()),
                                        logits(self.load(packed), tokens())))


class Awq(ModelTest):
    """ModelOpt's NVFP4_AWQ, where its scales of x are in the files."""

    LAYERS = [f"model.layers.{i}.{name}" for i in range(2) for name in (
        "self_attn.k_proj", "self_attn.o_proj", "mlp.down_proj", "mlp.up_proj")]

    def awq(self, w4a4, dtype=torch.float32):
        """(folder, {layer: scales}, the dequantised model, whose layers of LAYERS
        multiply x by their scales)."""
        packed, plain = self.saved("llama", w4a4=w4a4)
        gen, model = torch.Generator().manual_seed(5), self.plain(plain)
        scales = {}
        for name in self.LAYERS:
            module = model.get_submodule(name)
            scales[name] = (torch.rand(module.in_features,
                                       generator=gen) + 0.25).to(dtype)
            module.register_forward_pre_hook(lambda _module, given, s=scales[name]: (
                given[0] * s.to(given[0].dtype),))
        self.edit(packed, lambda x: x.update(
            {name + ".pre_quant_scale": s for name, s in scales.items()}))
        if w4a4:
            self.configure(packed, quant_algo="NVFP4_AWQ")
        return packed, scales, model

    def test_as_dequantised(self):
        for dtype in (torch.float32, torch.bfloat16):
            packed, scales, plain = self.awq(False, dtype)
            model = self.load(packed)
            self.assert_near(logits(model, tokens()), logits(plain, tokens()), 3e-6)
            for name, s in scales.items():
                kept = model.get_submodule(name).pre_quant_scale
                self.assertEqual(kept.dtype, dtype)
                self.assertTrue(torch.equal(kept, s))
            notes = {row.name: row.note for row in nt.report(model).rows}
            self.assertEqual(notes[self.LAYERS[0]], "ModelOpt, AWQ")
            self.assertEqual(notes["model.layers.0.self_attn.q_proj"], "ModelOpt")
            self.assert_near(logits(model.dequantize(), tokens()),
                             logits(plain, tokens()),
                             3e-6)

    def test_as_emulated(self):
        """x is multiplied before it is quantised."""
        packed, _, plain = self.awq(True)
        model = self.load(packed)
        self.assertEqual(nt.report(model).counts()["W4A4"], 14)
        self.assert_near(logits(model, tokens()), logits(emulate(plain), tokens()),
                         1e-2)

    def test_saved_again(self):
        packed, _, _ = self.awq(True, torch.bfloat16)
        model, again = self.load(packed), os.path.join(packed, "again")
        model.save_pretrained(again)
        self.assertEqual(self.tensors(packed), self.tensors(again))
        self.assertTrue(torch.equal(logits(self.load(again), tokens()),
                                    logits(model, tokens())))

    def test_types_and_gradients(self):
        packed, scales, plain = self.awq(False)
        model = self.load(packed).to(torch.bfloat16)
        for name in scales:
            self.assertEqual(model.get_submodule(name).pre_quant_scale.dtype,
                             torch.float32)
        self.assert_near(logits(model, tokens()).float(), logits(plain, tokens()), 0.05)
        x = torch.randn(3, 96, requires_grad=True)
        name, s = "model.layers.0.mlp.down_proj", scales["model.layers.0.mlp.down_proj"]
        self.load(packed).get_submodule(name)(x).sum().backward()
        weight = plain.get_submodule(name).weight.detach()
        self.assert_near(x.grad, (weight.sum(0) * s).expand(3, -1), 1e-5)


class Loading(ModelTest):
    def test_shards_and_cache_scales(self):
        for form in FORMATS:
            whole, _ = self.saved("mixtral", form, w4a4=True)
            parts, _ = self.saved("mixtral", form, w4a4=True, shards=3, cache=True)
            one, other = self.load(whole), self.load(parts)
            self.assertTrue(torch.equal(logits(one, tokens()), logits(other, tokens())))
            self.assertEqual(len(nt.report(other).cache_scales), 2)
            self.assertIn("2 scales of the kv cache are not used",
                          str(nt.report(other)))
            # They are saved again, in their own type.
            again = os.path.join(self.folder, form)
            self.load(parts, dtype=torch.bfloat16).save_pretrained(again)
            names = [f"model.layers.{i}.self_attn.k_proj.k_scale" for i in (0, 1)]
            saved = load_file(os.path.join(again, "model.safetensors"))
            for i, name in enumerate(names):
                self.assertEqual(saved[name].dtype, torch.float32)
                self.assertEqual(saved[name].item(), tiny.CACHE_SCALE * (i + 1))

    def test_groups_by_name(self):
        """A group that names a layer goes before one of all linear layers."""
        from nibblas.transformers._config import Config
        every, named = {"targets": ["Linear"]}, {"targets": ["re:.*down_proj"]}
        config = Config(config_groups={"group_0": every, "group_1": named})
        self.assertIs(config._group("model.layers.0.mlp.down_proj"), named)
        self.assertIs(config._group("model.layers.0.mlp.up_proj"), every)

    def test_register(self):
        """transformers' own call, with nothing else changed."""
        nt.register()
        nt.register()
        for form in FORMATS:
            packed, _ = self.saved("mixtral", form, w4a4=True)
            model = AutoModelForCausalLM.from_pretrained(packed, dtype=torch.float32)
            self.assertTrue(torch.equal(
                logits(model, tokens()), logits(self.load(packed), tokens())))
            self.assertEqual(nt.report(model).counts(), {"W4A4": 10, "float32": 1})
        try:
            nt.register("int8")
            model = AutoModelForCausalLM.from_pretrained(packed, dtype=torch.float32)
            self.assertEqual(nt.report(model).counts(), {"W4A8": 10, "float32": 1})
        finally:
            nt.register()

    def test_others_of_compressed_tensors_load_as_before(self):
        class Previous:
            @classmethod
            def from_dict(cls, config_dict, **_named):
                return "previous", config_dict["format"]
        made = nt._either(Previous)
        self.assertEqual(made.from_dict({"quant_method": "compressed-tensors",
                                         "format": "pack-quantized"}),
                         ("previous", "pack-quantized"))
        mine = made.from_dict(tiny.configuration("compressed-tensors", True))
        self.assertEqual(mine.quant_method, "nibblas")

    def test_older_configuration(self):
        """Only hf_quant_config.json, without quantization_config."""
        packed, plain = self.saved("llama")
        shutil.copy(os.path.join(plain, "config.json"), packed)
        with self.assertRaisesRegex(nibblas.FileError, "no hf_quant_config.json"):
            self.load(packed)
        with open(os.path.join(packed, "hf_quant_config.json"), "w",
                  encoding="utf-8") as file:
            json.dump({"producer": {"name": "modelopt"}, "quantization": {
                "quant_algo": "W4A16_NVFP4", "group_size": 16,
                "exclude_modules": ["lm_head"]}}, file)
        model = self.load(packed)
        self.assert_near(logits(model, tokens()), logits(self.plain(plain), tokens()),
                         3e-6)
        self.assertIn("lm_head", [row.name for row in nt.report(model).rows
                                  if row.note == "the checkpoint's ignore list"])

    def test_activations(self):
        for family in ("llama", "mixtral", "llama4_text"):
            packed, plain = self.saved(family, w4a4=True)
            want = logits(self.plain(plain), tokens())
            for name, kind, limit in (("dense", "W4A16", 3e-6), ("int8", "W4A8", 0.03),
                                      ("nvfp4", "W4A4", 0.4), (None, "W4A4", 0.4)):
                model = self.load(packed, activations=name)
                self.assertIn(kind, nt.report(model).counts())
                self.assert_near(logits(model, tokens()), want, limit, (family, name))
        with self.assertRaisesRegex(nibblas.ArgumentError, "activations"):
            self.load(packed, activations="fp8")

    def test_input_scales_of_experts(self):
        """x is quantised once for all experts of a layer, by the largest of their
        input scales."""
        packed, _ = self.saved("mixtral", w4a4=True)

        before = logits(self.load(packed), tokens())
        largest = tiny.input_scale("layers.0.experts.gate_up_proj")

        def with_scale(expert, times):
            self.edit(packed, lambda x: x.update({
                f"model.layers.0.block_sparse_moe.experts.{expert}.input_scale":
                torch.tensor(times * largest)}))
            return logits(self.load(packed), tokens())
        one = with_scale("2.w3", 1.3)
        self.assertFalse(torch.equal(one, before))
        self.assertTrue(torch.equal(with_scale("1.w1", 1.3), one))
        self.assertFalse(torch.equal(with_scale("1.w1", 1.4), one))

    def test_dynamic_activations(self):
        """W4A4 without input scales: x is quantised by its own largest value."""
        packed, plain = self.saved("mixtral")
        model = self.load(self.configure(packed,
                                         **tiny.configuration("modelopt", True)))
        self.assertEqual(nt.report(model).counts(), {"W4A4": 10, "float32": 1})
        self.assert_near(logits(model, tokens()), logits(self.plain(plain), tokens()),
                         0.4)

    @newest
    def test_text_and_images(self):
        """The language model of a larger one, whose vision part is left alone."""
        text = {**tiny.SIZES, "model_type": "gemma3_text"}
        vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
                  "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
        cls = transformers.AutoModelForImageTextToText
        model = cls.from_config(transformers.AutoConfig.for_model(
            "gemma3", text_config=text, vision_config=vision), dtype=torch.float32)
        packed, path = tiny.save(model.eval(), self.folder, w4a4=True, keep=(
            "lm_head", "vision", "projector"))
        model = self.load(packed, cls=cls, activations="dense")
        want = cls.from_pretrained(path, dtype=torch.float32)
        self.assert_near(logits(model, tokens()), logits(want, tokens()), 3e-6)
        rows = nt.report(model).rows
        self.assertEqual({row.kind for row in rows if "language_model" in row.name},
                         {"W4A16"})
        self.assertEqual({row.kind for row in rows if "vision" in row.name},
                         {"float32"})

    @newest
    def test_experts_without_a_converter(self):
        """Experts one by one, as both formats store them, of a family that transformers
        stores as stacks."""
        for form in FORMATS:
            packed, path = tiny.save(tiny.make("granitemoe", **tiny.EXPERTS),
                                     tempfile.mkdtemp(dir=self.folder), form)
            plain, found = self.plain(path), {}
            for name, module in plain.named_modules():
                for e in range(4) if hasattr(module, "is_concatenated") else ():
                    gate, up = module.gate_up_proj.data[e].chunk(2)
                    for leaf, w in (("gate", gate), ("up", up),
                                    ("down", module.down_proj.data[e])):
                        parts, back = tiny._linear(f"{name}.{e}.{leaf}_proj.weight",
                                                   w.clone(), form, False)
                        w.copy_(back)
                        found.update(parts)

            def change(tensors, found=found):
                for key in [x for x in tensors if tensors[x].dim() == 3]:
                    del tensors[key]
                tensors.update(found)
            model = self.load(self.edit(packed, change))
            self.assertEqual(nt.report(model).counts(), {"W4A16": 10, "float32": 1})
            self.assert_near(logits(model, tokens()), logits(plain, tokens()), 3e-6)
            again = os.path.join(packed, "again")
            model.save_pretrained(again)
            self.assertEqual(self.tensors(packed), self.tensors(again))
            self.assertTrue(torch.equal(logits(self.load(again), tokens()),
                                        logits(model, tokens())))

    def test_some_experts_stay(self):
        """Experts of the first layer in float32, of the second in NVFP4."""
        for form in FORMATS:
            packed, plain = self.saved("qwen3_moe", form, keep=(
                "lm_head", "gate.weight", "layers.0.mlp.experts"))
            model = self.load(packed)
            self.assert_near(logits(model, tokens()),
                             logits(self.plain(plain), tokens()), 3e-6)
            self.assertIn("a stack of matrices that is not quantised",
                          str(nt.report(model)))
        # Both kinds would be saved under the names of one.
        with self.assertRaisesRegex(ValueError, "not serializable"):
            model.save_pretrained(os.path.join(packed, "again"))

    def test_fp8(self):
        """Layers of a mixed checkpoint in FP8, with one scale and one for each row."""
        for rows in (1, 64):
            packed, plain = self.saved("llama", keep=("lm_head", "q_proj"))
            given = {}

            def quantise(tensors):
                for name in [x for x in tensors if "q_proj" in x]:
                    w = tensors[name]
                    scale = w.reshape(rows, -1).abs().amax(1, keepdim=True) / 448
                    tensors[name] = (w / scale).to(torch.float8_e4m3fn)
                    tensors[name + "_scale"] = scale if rows > 1 else scale[0, 0]
                    given[name] = tensors[name].float() * scale
            self.edit(packed, quantise)
            self.configure(packed, quant_algo="MIXED_PRECISION", quantized_layers={
                name.removesuffix(".weight"): {"quant_algo": "FP8"} for name in given})
            model = self.load(packed)
            want = logits(self.plain(self.edit(plain, lambda x: x.update(given))),
                          tokens())
            self.assert_near(logits(model, tokens()), want, 3e-6)
            self.assertEqual(nt.report(model).counts()["FP8"], 2)
            half = copy.deepcopy(model).to(torch.bfloat16)
            layer = half.model.layers[0].self_attn.q_proj
            self.assertEqual((layer.state_dict()["weight"].dtype,
                              layer.weight_scale.dtype),
                             (torch.float8_e4m3fn, torch.float32))

    def test_fp8_blocks(self):
        """One scale for 128 x 128 weights, the last blocks smaller, by the names and
        shapes of DeepSeek, compressed-tensors and ModelOpt."""
        model = tiny.make("llama", hidden_size=144, head_dim=36)
        for suffix, shape in (("_scale_inv", (2, 2)), ("_scale", (2, 2)),
                              ("_scale", (2, 1, 2, 1))):
            packed, plain = tiny.save(model, tempfile.mkdtemp(dir=self.folder),
                                      keep=("lm_head", "self_attn"))
            given = {}

            def quantise(tensors, suffix=suffix, shape=shape, given=given):
                for name in [x for x in tensors if "q_proj" in x or "v_proj" in x]:
                    w = tensors[name]
                    blocks = -(-w.shape[0] // 128), 2
                    # Scales that differ much: one in another's place is seen.
                    scale = torch.arange(blocks[0] * 2.).reshape(blocks)
                    scale = torch.exp2(scale) / 512
                    spread = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
                    spread = spread[:w.shape[0], :w.shape[1]]
                    tensors[name] = (w / spread).to(torch.float8_e4m3fn)
                    tensors[name + suffix] = scale.reshape(
                        shape if blocks == (2, 2) else (1, *shape[1:]))
                    given[name] = tensors[name].float() * spread
            self.edit(packed, quantise)
            self.configure(packed, quant_algo="MIXED_PRECISION", quantized_layers={
                name.removesuffix(".weight"): {"quant_algo": "FP8_PB_WO"}
                for name in given})
            model_ = self.load(packed)
            want = logits(self.plain(self.edit(plain, lambda x, y=given: x.update(y))),
                          tokens())
            self.assert_near(logits(model_, tokens()), want, 3e-6)
            self.assertEqual(nt.report(model_).counts()["FP8"], 4)
            again = os.path.join(packed, "again")
            model_.save_pretrained(again)
            self.assertEqual(self.tensors(packed), self.tensors(again))

    def test_quantised_head(self):
        packed, plain = self.saved("llama", keep=("nothing",))
        head = "lm_head.weight"
        values = {}

        def quantise(tensors):
            parts, values[head] = tiny._linear(head, tensors.pop(head), "modelopt",
                                               False)
            tensors.update(parts)
        self.edit(packed, quantise)
        model = self.load(packed)
        self.assertEqual(nt.report(model).counts(), {"W4A16": 15})
        want = self.plain(self.edit(plain, lambda x: x.update(values)))
        self.assert_near(logits(model, tokens()), logits(want, tokens()), 3e-6)


class Running(ModelTest):
    def generated(self, model, x, **how):
        with torch.no_grad():
            return model.generate(x, max_new_tokens=8, do_sample=False,
                                  min_new_tokens=8, pad_token_id=0, **how)

    def test_generate(self):
        """Greedy tokens are those of the model dequantised; batches are padded on the
        left, and a static cache gives the same."""
        for family in ("llama", "qwen3_moe", "gpt_oss"):
            packed, plain = self.saved(family)
            model, want = self.load(packed), self.plain(plain)
            x = tokens(3, 7)
            x[0, :3] = 0
            mask = (x != 0).long()
            got = self.generated(model, x, attention_mask=mask)
            self.assertTrue(torch.equal(
                got, self.generated(want, x, attention_mask=mask)), family)
            if family != "gpt_oss":
                self.assertTrue(torch.equal(got, self.generated(
                    model, x, attention_mask=mask, cache_implementation="static",
                    disable_compile=True)), family)

    def test_compiled(self):
        """One graph, with a static cache: a step of decoding."""
        for family, form in (("llama", "compressed-tensors"), ("mixtral", "modelopt")):
            packed, _ = tiny.save(tiny.make(family, num_hidden_layers=1),
                                  tempfile.mkdtemp(
                dir=self.folder), form, w4a4=True)
            model, x = self.load(packed), tokens(2, 1)
            want = logits(model, x)
            torch._dynamo.reset()
            # Inductor compiles for a quarter of a minute.
            is_whole = IS_NEWEST and family == "mixtral"
            backend = "inductor" if is_whole else "aot_eager"
            step = torch.compile(model, fullgraph=True, backend=backend)
            cache = transformers.StaticCache(config=model.config, max_cache_len=16)
            with torch.no_grad():
                y = step(x, past_key_values=cache, use_cache=True).logits
            self.assert_near(y, want, 1e-2, family)

    @newest
    def test_moved_and_copied(self):
        """to_empty() on the meta device and back, deepcopy, other types."""
        for form in FORMATS:
            packed, _ = self.saved("mixtral", form, w4a4=True)
            model = self.load(packed)
            want, state = logits(model, tokens()), model.state_dict()
            other = copy.deepcopy(model)
            self.assertTrue(torch.equal(logits(other, tokens()), want))
            with io.BytesIO() as file:
                torch.save(model, file)
                file.seek(0)
                other = torch.load(file, weights_only=False)
            self.assertTrue(torch.equal(logits(other, tokens()), want))
            layer = other.model.layers[0].self_attn.q_proj
            kept = {k: v.clone() for k, v in layer.state_dict().items()}
            layer.to("meta").to_empty(device="cpu")
            layer.load_state_dict(kept)
            self.assertTrue(torch.equal(logits(other, tokens()), want))
            other.to(torch.bfloat16)
            for name, x in other.state_dict().items():
                if name.rpartition(".")[2] not in ("weight", "bias"):
                    self.assertEqual(x.dtype, state[name].dtype, name)

    def test_gradient_of_input(self):
        for family in ("llama", "mixtral", "gpt_oss", "llama4_text"):
            packed, plain = self.saved(family)
            model, want = self.load(packed), self.plain(plain)
            want.set_experts_implementation("eager")
            for one in (model, want):
                x = one.get_input_embeddings()(tokens()).detach().requires_grad_()
                one(inputs_embeds=x).logits.square().sum().backward()
                one.given = x.grad
            self.assert_near(model.given, want.given, 1e-5, family)


class Swapping(ModelTest):
    """Models in memory: swap_linears() and swap_experts()."""

    def test_stacks_are_reported(self):
        for family in ("mixtral", "llama4_text"):
            model = tiny.make(family)
            swapped, left = nibblas.torch.swap_linears(model)
            self.assertEqual(len([x for x in left if x.endswith(".experts")]), 2)
            self.assertRegex(left["model.layers.0." + (
                "mlp" if family == "mixtral" else "feed_forward") + ".experts"],
                r"gate_up_proj \[4, \d+, \d+\] is a stack of matrices")
            self.assertNotIn("lm_head", left)

    def test_experts(self):
        """The logits of experts with the same weights dequantised."""
        for family in ("mixtral", "gpt_oss", "llama4_text", "nemotron_h"):
            model = tiny.make(family)
            swapped, left = nt.swap_experts(model)
            self.assertGreater(len(swapped), 0, family)
            self.assertEqual(left, {})
            got, plain = logits(model, tokens()), tiny.make(family)
            for name in swapped:
                mine, other = model.get_submodule(name), plain.get_submodule(name)
                for one in mine.nibblas.both():
                    codes, scales, scale, *_ = (
                        getattr(mine, x) for x in one.names())
                    back = ops.dequantize(codes, scales, scale.reshape(-1)[0],
                                          torch.float32, "linear")
                    getattr(other, one.codes).data = (
                        back.transpose(1, 2) if one.transposed else back)
            self.assert_near(got, logits(plain, tokens()), 3e-6, family)
            self.assertEqual(nt.report(model).counts()["W4A16"], len(swapped))
            self.assertEqual(nt.swap_experts(model), ([], {}))

    def test_experts_that_stay(self):
        model = tiny.make("mixtral", intermediate_size=40)
        swapped, left = nt.swap_experts(model)
        self.assertEqual(swapped, [])
        self.assertIn("K is not a multiple of 16", left["model.layers.1.mlp.experts"])
        _, left = nibblas.torch.swap_linears(model, experts=True)
        self.assertIn("K is not a multiple of 16", left["model.layers.1.mlp.experts"])

    def test_saved(self):
        """Layers and experts that were swapped are saved as ModelOpt stores them."""
        for family in ("llama", "mixtral", "deepseek_v3", "gpt_oss", "llama4_text"):
            model, twice = tiny.make(family), tiny.make(family)
            swapped, left = nibblas.torch.swap_linears(
                model, keep=lambda name, _: name == "lm_head", experts=True)
            self.assertEqual(left, {"lm_head": "kept"})
            linears, _ = nibblas.torch.swap_linears(
                twice, keep=lambda name, _: name == "lm_head")
            self.assertEqual(swapped, linears + nt.swap_experts(twice)[0])
            self.assertTrue(torch.equal(logits(model, tokens()),
                                        logits(twice, tokens())))
            model.config.quantization_config = {
                "quant_method": "modelopt", "quant_algo": "W4A16_NVFP4",
                "ignore": ["lm_head"]}
            folder = os.path.join(self.folder, family)
            model.save_pretrained(folder)
            again = self.load(folder)
            self.assertEqual(nt.report(again).counts(), nt.report(model).counts())
            self.assertTrue(torch.equal(logits(again, tokens()),
                                        logits(model, tokens())), family)
            names = load_file(os.path.join(folder, "model.safetensors"))
            if family == "mixtral":
                self.assertIn("model.layers.0.block_sparse_moe.experts.3.w2.weight_"
                              "scale_2", names)


class Interface(ModelTest):
    def test_names_have_types_and_docstrings(self):
        for name in nt.__all__:
            one = getattr(nt, name)
            self.assertRegex(inspect.getdoc(one), r"^\S.{10}", name)
            if inspect.isfunction(one):
                hints = typing.get_type_hints(one)
                self.assertEqual(set(inspect.signature(one).parameters) - set(hints),
                                 set(), name)
                self.assertIn("return", hints)

    @newest
    def test_docs(self):
        """The Python of docs/transformers.md and the model of README.md run as the
        pages have them."""
        packed, plain = self.saved("llama")
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel(
            {"[UNK]": 0, "The": 3, "capital": 4, "of": 5, "France": 6, "is": 7},
            unk_token="[UNK]"))
        words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(
            packed)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        os.rename(packed, "model-NVFP4")
        os.rename(plain, "model")
        first, *_ = docs.blocks("README.md")
        names = {}
        exec(first, names)
        self.assertGreater(names["tokens"].shape[1], 2)
        load, *others = docs.blocks("docs", "transformers.md")
        names = {}
        exec(load, names)
        want = logits(names["model"], tokens())
        # The fourth is for two processes: test_transformers_parallel.py; the last but
        # one for adapters: test_transformers_peft.py.
        generate, register, _, quantise, write, _, calibrate = others
        exec(generate, names)
        self.assertGreater(names["tokens"].shape[1], 5)
        exec(register, names)
        self.assertTrue(torch.equal(logits(names["model"], tokens()), want))
        os.rename("model-NVFP4", "as-it-was")
        exec(quantise, names)
        counts = {"W4A16": 14, "float32": 1}
        self.assertEqual(nt.report(names["model"]).counts(), counts)
        self.assertEqual(nt.report(self.load("model-NVFP4")).counts(), counts)
        exec(write, names)
        self.assertEqual(nt.report(self.load("model-NVFP4")).counts(),
                         {"W4A16": 14, "float32": 1})
        exec(calibrate, names)
        # Also with a model whose configuration is no dictionary.
        names["model"] = self.load("model-NVFP4")
        exec(calibrate, names)
        model = names["again"]
        self.assertEqual(nt.report(model).counts(), {"W4A4": 14, "float32": 1})
        self.assertGreater(model.model.layers[0].mlp.up_proj.input_scale, 0)
        os.chdir(SOURCE)

    @newest
    def test_example(self):
        """examples/generate.py as a user runs it, on the smallest model."""
        for more in ((), ("--experts", "2", "--activations", "int8")):
            done = subprocess.run(
                [sys.executable, os.path.join(SOURCE, "examples", "generate.py"),
                 "--size", "tiny", "--prompt", "8", "--new", "8", "--rounds", "1",
                 *more], text=True, capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            kind = "10 layers W4A8" if more else "14 layers W4A16"
            self.assertIn(f"NVFP4: {kind}, 1 layers bfloat16", done.stdout)
            for name in ("bfloat16", "NVFP4"):
                self.assertRegex(done.stdout, rf"(?m)^{name} +\d+ MB   prompt of 8: +"
                                 r"[\d.]+ tokens/s   then +[\d.]+ tokens/s$")

    def test_older_transformers(self):
        # transformers may have put another object in its place.
        module = sys.modules["transformers"]
        with unittest.mock.patch.object(module, "__version__", "5.4.0"):
            with self.assertRaisesRegex(ImportError,
                                        "needs transformers 5.12 or later; "
                                        "5.4.0 is installed"):
                importlib.reload(nt)

    def test_report_of_another_model(self):
        model = tiny.make("llama")
        self.assertEqual(nt.report(model).counts(), {"float32": 15})
        nibblas.torch.swap_linears(model)
        self.assertEqual(nt.report(model).counts(), {"W4A16": 15})


if __name__ == "__main__":
    unittest.main(verbosity=2)
