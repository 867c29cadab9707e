# SPDX-License-Identifier: Apache-2.0
"""Uses of an NVFP4 model of transformers: models that read the weights of their linear
layers, quantisation while loading, saving, adapters, dequantisation."""

import copy
import json
import os
import tempfile
import unittest

import torch
import transformers
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

import nibblas
import nibblas.torch
import nibblas.transformers as nt
import tiny_models as tiny
from model_test import ModelTest, logits, tokens

T5 = {"vocab_size": 96, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2,
      "num_heads": 4, "feed_forward_proj": "gated-gelu", "pad_token_id": 0}
SPARSE = {**tiny.SIZES, "moe_intermediate_size": 32, "num_key_value_heads": 4,
          "n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 2,
          "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "kv_lora_rank": 32,
          "q_lora_rank": 48, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16,
          "qk_head_dim": 32, "v_head_dim": 16, "index_n_heads": 4, "index_head_dim": 32,
          "index_topk": 8, "mlp_layer_types": ["dense", "sparse"], "rope_parameters": {
              "rope_type": "default", "rope_theta": 10000.0,
              "partial_rotary_factor": 1.0}}
MAMBA = {"vocab_size": 96, "hidden_size": 64, "state_size": 16, "num_hidden_layers": 2,
         "time_step_rank": 16, "num_heads": 8, "head_dim": 16, "n_groups": 1,
         "chunk_size": 8}
# {class: its configuration} of models that read linear.weight or its type.
READERS = {
    "T5EncoderModel": ("T5Config", T5), "UMT5EncoderModel": ("UMT5Config", T5),
    "LongT5EncoderModel": ("LongT5Config", {**T5, "local_radius": 4}),
    "MambaForCausalLM": ("MambaConfig", MAMBA),
    "Mamba2ForCausalLM": ("Mamba2Config", MAMBA),
    "FalconMambaForCausalLM": ("FalconMambaConfig", MAMBA),
    "DeepseekV32ForCausalLM": ("DeepseekV32Config", SPARSE),
    "GlmMoeDsaForCausalLM": ("GlmMoeDsaConfig", SPARSE),
    "RwkvForCausalLM": ("RwkvConfig", {
        "vocab_size": 96, "hidden_size": 64, "attention_hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 3, "rescale_every": 1}),
    "WavLMModel": ("WavLMConfig", {
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 96, "conv_dim": [16, 16], "conv_kernel": [3, 3],
        "conv_stride": [2, 2], "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4})}

# Families whose weights transformers saves under other names, or converted.
FAMILIES = {
    "granitemoe": tiny.EXPERTS, "inkling_text": tiny.EXPERTS, "hrm_text": {},
    "aria_text": {"moe_num_experts": 4, "moe_topk": 2, "moe_num_shared_experts": 1},
    "deepseek_v4": {**SPARSE, "mlp_layer_types": ["moe", "moe"]}}


def first(model, x):
    """The first output of a model, without gradients."""
    with torch.no_grad():
        return model(x)[0]


def plainly(model):
    """A copy of a model with torch.nn.Linear of the same, dequantised weights."""
    copied = copy.deepcopy(model)
    for name, one in list(copied.named_modules()):
        if hasattr(one, "to_linear"):
            parent, _, child = name.rpartition(".")
            setattr(copied.get_submodule(parent), child, one.to_linear())
    return copied


class Readers(ModelTest):
    def made(self, name):
        """(model, x), or None where this version of transformers has no such class."""
        config, sizes = READERS[name]
        if not hasattr(transformers, name):
            return None
        torch.manual_seed(0)
        config = getattr(transformers, config)(**sizes)
        model = getattr(transformers, name)(config).eval()
        x = torch.randn(1, 400) if name == "WavLMModel" else tokens()
        return model, x

    def test_models_that_read_weights(self):
        seen = 0
        for name in READERS:
            with self.subTest(name=name):
                made = self.made(name)
                if made is None:
                    continue
                model, x = made
                swapped, _ = nibblas.torch.swap_linears(model)
                # RWKV's first pass changes the weights.
                unused = copy.deepcopy(model)
                self.assertGreater(len(swapped), 4)
                y = first(model, x)
                self.assertTrue(torch.isfinite(y).all())
                self.assert_near(y, first(plainly(unused), x), 1e-5)
                half = first(model.to(torch.bfloat16), x.bfloat16()
                             if x.is_floating_point() else x)
                self.assertTrue(torch.isfinite(half).all())
                seen += 1
        self.assertGreaterEqual(seen, 6)

    def test_loaded(self):
        """T5 casts x to the type of wo.weight, which may be in NVFP4 or in FP8."""
        cls = transformers.T5EncoderModel
        for form in ("modelopt", "compressed-tensors", "FP8"):
            with self.subTest(form=form):
                model, _ = self.made(cls.__name__)
                path, plain = tiny.save(
                    model, tempfile.mkdtemp(dir=self.folder),
                    "modelopt" if form == "FP8" else form,
                    keep=("shared", "embed_tokens", *[".wo."] * (form == "FP8")))
                if form == "FP8":
                    self.quantise_to_fp8(path, plain, ".wo.weight")
                model = self.load(path, cls=cls)
                want = cls.from_pretrained(plain, dtype=torch.float32)
                self.assertEqual(nt.report(model).counts(), {
                    "W4A16": 12, "FP8": 2} if form == "FP8" else {"W4A16": 14})
                self.assert_near(first(model, tokens()), first(want, tokens()), 1e-5)

    def quantise_to_fp8(self, path, plain, end):
        """Stores the weights of a folder whose names end so as FP8 with a scale."""
        given = {}

        def change(tensors):
            for name in [x for x in tensors if x.endswith(end)]:
                scale = tensors[name].abs().max() / 448
                tensors[name] = (tensors[name] / scale).to(torch.float8_e4m3fn)
                tensors[name + "_scale"] = scale
                given[name] = tensors[name].float() * scale
        self.edit(path, change)
        self.edit(plain, lambda x: x.update(given))
        self.configure(path, quant_algo="MIXED_PRECISION")


class Quantised(ModelTest):
    """Swapped in memory or while loading, then saved and loaded."""

    def round_trip(self, model, **named):
        path = tempfile.mkdtemp(dir=self.folder)
        model.save_pretrained(path)
        with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
            config = json.load(file)["quantization_config"]
        again = self.load(path, **named)
        self.assertTrue(torch.equal(logits(again, tokens()), logits(model, tokens())))
        self.assertEqual(nt.report(again).counts(), nt.report(model).counts())
        return config

    def test_swapped_and_saved(self):
        model = tiny.make("llama")
        swapped, left = nibblas.torch.swap_linears(model, lambda name,
                                                   _: name == "lm_head")
        self.assertEqual((len(swapped), left), (14, {"lm_head": "kept"}))
        self.assertEqual(nt.report(model).rows[-1].note, "kept")
        config = self.round_trip(model)
        self.assertEqual((config["quant_method"], config["quant_algo"],
                          config["ignore"]),
                         ("modelopt", "W4A16_NVFP4", ["lm_head"]))
        model = tiny.make("llama")
        nibblas.torch.swap_linears(model, activations="nvfp4")
        config = self.round_trip(model)
        self.assertEqual((config["quant_algo"], config["ignore"]), ("NVFP4", []))
        group = config["config_groups"]["group_0"]
        self.assertEqual(group["input_activations"]["num_bits"], 4)

    def test_what_is_saved_loads(self):
        """Families whose tensors transformers renames or converts when it saves."""
        for family, sizes in FAMILIES.items():
            with self.subTest(family=family):
                if family not in CONFIG_MAPPING:
                    continue  # This version of transformers has no such class.
                model = tiny.make(family, **sizes)
                swapped, left = nibblas.torch.swap_linears(model, experts=True)
                self.assertGreater(len(swapped), 5)
                self.round_trip(model)
                if family == "deepseek_v4":
                    self.assertEqual(left["lm_head"],
                                     "transformers saves its weight as "
                                     "head.weight, without its scales")

    def test_experts_later(self):
        """The list of layers to leave alone follows a second call."""
        model = tiny.make("qwen3_moe")
        nibblas.torch.swap_linears(model, lambda name,
                                   _: "gate" in name or "head" in name)
        experts = [f"model.layers.{i}.mlp.experts" for i in (0, 1)]
        config = model.config.quantization_config.to_dict()
        self.assertEqual(config["ignore"], [*experts, "lm_head"])
        swapped, _ = nt.swap_experts(model)
        self.assertEqual(swapped, experts)
        self.assertEqual(self.round_trip(model)["ignore"], ["lm_head"])

    def test_calibrated(self):
        """The configuration says of each layer what it does to x."""
        model = tiny.make("llama")
        nibblas.torch.swap_linears(model, lambda name, _: name == "lm_head")
        nt.calibrate(model, [tokens()])
        self.assertEqual(self.round_trip(model)["quant_algo"], "NVFP4")
        model = tiny.make("mixtral")
        nibblas.torch.swap_linears(model, lambda name, _: name == "lm_head",
                                   experts=True)
        nt.calibrate(model, [tokens()])
        self.assertEqual(nt.report(model).counts(),
                         {"W4A4": 8, "W4A16": 2, "float32": 1})
        config = self.round_trip(model)
        self.assertEqual((config["quant_algo"], len(config["quantized_layers"])),
                         ("MIXED_PRECISION", 8))

    def test_tied(self):
        """lm_head that is the embedding stays as it is."""
        model = tiny.make("llama", tie_word_embeddings=True)
        swapped, left = nibblas.torch.swap_linears(model)
        self.assertEqual(left, {"lm_head": "shares its weight with model.embed_tokens"})
        self.assertEqual(len(swapped), 14)
        self.round_trip(model)
        self.assertIs(model.lm_head.weight, model.model.embed_tokens.weight)

    def saved_plain(self, family, **sizes):
        path = tempfile.mkdtemp(dir=self.folder)
        model = tiny.make(family, **sizes)
        model.save_pretrained(path)
        return path, model

    def test_while_loading(self):
        """By both calls the bits of swap_linears(), experts too."""
        for family, counts in (("llama", {"W4A16": 14, "float32": 1}),
                               ("qwen3_moe", {"W4A16": 10, "float32": 1}),
                               ("mixtral", {"W4A16": 10, "float32": 1})):
            with self.subTest(family=family):
                path, model = self.saved_plain(family)
                nibblas.torch.swap_linears(model, lambda name, _: name == "lm_head",
                                           experts=True)
                want = logits(model, tokens())
                one = self.load(path, quantize=True)
                other = AutoModelForCausalLM.from_pretrained(
                    path, dtype=torch.float32, quantization_config=nt.NVFP4Config())
                for got in (one, other):
                    self.assertTrue(torch.equal(logits(got, tokens()), want))
                    self.assertEqual(nt.report(got).counts(), counts)
                self.round_trip(other)

    def test_what_is_quantised(self):
        path, _ = self.saved_plain("qwen3_moe")
        model = self.load(path, quantize=nt.NVFP4Config(
            ignore=["*.q_proj", "re:.*down"], activations="nvfp4", experts=False))
        rows = {row.name: (row.kind, row.note) for row in nt.report(model).rows}
        self.assertEqual(rows["model.layers.0.self_attn.q_proj"], ("float32", "kept"))
        self.assertEqual(rows["lm_head"], ("W4A4", "swapped"))
        self.assertEqual(rows["model.layers.1.mlp.experts"][0], "float32")
        self.assertEqual(self.round_trip(model)["ignore"], [
            name for name, (kind, _) in rows.items() if kind == "float32"])
        path, _ = self.saved_plain("llama", tie_word_embeddings=True)
        self.assertEqual(nt.report(self.load(path, quantize=True)).rows[-1].note[:6],
                         "kept")

    def test_refused(self):
        """Each error says what to do."""
        path, _ = self.saved_plain("llama")
        packed, _ = self.saved("llama")
        for words, given in ((f"{path}: has no quantization_config.*quantize=True", {}),
                             ("quantize = 'yes': must be True or an NVFP4Config",
                              {"quantize": "yes"}),
                             ("ignore: leaves no layer of the model to quantise",
                              {"quantize": nt.NVFP4Config(ignore=["*"])}),
                             ("activations = 'int8': with an NVFP4Config",
                              {"quantize": nt.NVFP4Config(), "activations": "int8"})):
            with self.assertRaisesRegex(nibblas.Error, words):
                self.load(path, **given)
        with self.assertRaisesRegex(nibblas.Error,
                                    "is quantised already.*without quantize="):
            self.load(packed, quantize=True)
        # An older folder of ModelOpt says so in a file of its own.
        with open(os.path.join(path, "hf_quant_config.json"), "w",
                  encoding="utf-8") as file:
            json.dump({"quantization": {"quant_algo": "NVFP4"}}, file)
        with self.assertRaisesRegex(nibblas.Error,
                                    "already, by its hf_quant_config.json"):
            self.load(path, quantize=True)
        for words, given in (("ignore = 'lm_head': must be a list",
                              {"ignore": "lm_head"}),
                             ("ignore: 7: must be a string", {"ignore": ["a", 7]}),
                             (r"ignore: the pattern '\(': is no regular",
                              {"ignore": ["re:("]}),
                             ("zero_scale = .*must be", {"zero_scale": "x"}),
                             ("scales = .*must be", {"scales": "x"}),
                             ("activations = .*must be", {"activations": "x"})):
            with self.assertRaisesRegex(nibblas.ArgumentError, words):
                nt.NVFP4Config(**given)
        with self.assertRaisesRegex(TypeError, "'recipe' is called 'zero_scale'"):
            nt.NVFP4Config(recipe="ggml")


class Flushed(ModelTest):
    """A thread that counts subnormal numbers as 0 (torch.set_flush_denormal)."""

    def test_divisors_of_compressed_tensors(self):
        """1 / 1e38 is subnormal; so is no part of the result."""
        packed, _ = self.saved("llama", "compressed-tensors")
        name = "model.layers.0.mlp.up_proj"
        self.edit(packed, lambda x: x.update(
            {name + ".weight_global_scale": torch.tensor([1e38])}))
        x, read = 1e30 * torch.rand(3, 64), {}
        for flush in (False, True):
            torch.set_flush_denormal(flush)
            try:
                layer = self.load(packed).get_submodule(name)
                y = layer(x)
                with nibblas.Checkpoint(packed) as file:
                    self.assertEqual(file.problems, {})
                    scale = file[name].global_scale
            finally:
                torch.set_flush_denormal(False)
            read[flush] = (layer.weight_scale_2.view(torch.int32), y.abs().max(), y,
                           scale)
        for got, want in zip(read[True], read[False]):
            self.assertTrue(torch.equal(torch.as_tensor(got), torch.as_tensor(want)))
        self.assertEqual(read[True][0], (1 / torch.tensor(1e38)).view(torch.int32))
        self.assertGreater(read[True][1], 1e-8)
        self.assertAlmostEqual(read[True][3] * 1e38, 1, 6)


class Dense(ModelTest):
    """A quantised model as one of floats."""

    def check(self, model, want, counts=None):
        """model.dequantize() has the weights of `want`, and is saved as any model."""
        self.assertEqual(model.num_parameters(), want.num_parameters())
        self.assertEqual(model.num_parameters(exclude_embeddings=True),
                         want.num_parameters(exclude_embeddings=True))
        copied = copy.deepcopy(model)
        dense = model.dequantize()
        self.assertIs(dense, model)
        state, right = dense.state_dict(), want.state_dict()
        self.assertEqual(set(state), set(right))
        for name, x in right.items():
            self.assertTrue(torch.equal(state[name], x), name)
        self.assert_near(logits(dense, tokens()), logits(want, tokens()), 1e-6)
        self.assertEqual(copied.num_parameters(), dense.num_parameters())
        self.assertNotIn("quantization_config", dense.config.to_dict())
        self.assertEqual({row.note for row in nt.report(dense).rows} - {
            "a stack of matrices that is not quantised"}, {"not quantised"})
        dense.save_pretrained(os.path.join(self.folder, "dense"))
        again = self.plain(os.path.join(self.folder, "dense"))
        self.assertTrue(torch.equal(logits(again, tokens()), logits(dense, tokens())))
        self.assertEqual(dense.half().dtype, torch.float16)
        dense.float()(tokens(), labels=tokens()).loss.backward()
        self.assertTrue(dense.model.layers[0].self_attn.q_proj.weight.grad.any())

    def test_dequantised(self):
        for family, form in (("llama", "modelopt"), ("llama", "compressed-tensors"),
                             ("mixtral", "compressed-tensors"),
                             ("qwen3_moe", "modelopt"),
                             ("gpt_oss", "modelopt"), ("llama4_text", "modelopt")):
            with self.subTest(family=family, form=form):
                packed, plain = self.saved(family, form)
                self.check(self.load(packed), self.plain(plain))

    def test_swapped(self):
        model = tiny.make("qwen3_moe")
        nibblas.torch.swap_linears(model, experts=True)
        nibblas.torch.swap_linears(model)  # nothing is left to swap
        self.assertEqual(model.num_parameters(),
                         tiny.make("qwen3_moe").num_parameters())
        self.assertEqual(model.num_parameters(only_trainable=True), sum(
            x.numel() for x in model.parameters() if x.requires_grad))
        before = logits(model, tokens())
        dense = model.dequantize(torch.float32)
        self.assert_near(logits(dense, tokens()), before, 3e-6)
        self.assertEqual(len(nibblas.torch.swap_linears(dense, experts=True)[0]), 11)
        self.assert_near(logits(dense, tokens()), before, 0.2)

    def test_types(self):
        """What transformers' quantisers refuse is refused at once."""
        swapped = tiny.make("llama")
        nibblas.torch.swap_linears(swapped)
        for model in (self.load(self.saved("llama")[0]), swapped):
            for name in ("half", "float"):
                with self.assertRaisesRegex(ValueError,
                                            "not supported for quantized model"):
                    getattr(model, name)()
            with self.assertRaisesRegex(nibblas.UnsupportedError,
                                        "^dtype = torch.float64"):
                model.double()
            with self.assertRaisesRegex(nibblas.UnsupportedError,
                                        "^dtype = torch.float64"):
                model.to(torch.float64)


if __name__ == "__main__":
    unittest.main(verbosity=2)
