# SPDX-License-Identifier: Apache-2.0
"""nib quantize either refuses a folder of transformers, or its output loads and runs:
tiny models of families whose tensors do not all have the names or the order of a linear
layer's."""

import json
import os
import re
import subprocess
import tempfile
import unittest

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import nibblas
import nibblas.transformers as nt
import tiny_models as tiny
from common import SOURCE
from model_test import ModelTest, newest, tokens

NIB = os.environ.get("NIB", "nib")
T5 = {"d_model": 64, "d_kv": 4, "d_ff": 96, "num_layers": 2, "num_heads": 16}
BART = {"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 96,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "decoder_ffn_dim": 96}
INDEXED = {**tiny.DEEPSEEK, "n_group": 1, "qk_head_dim": 32, "index_n_heads": 4,
           "index_head_dim": 32, "index_topk": 8,
           "mlp_layer_types": ["dense", "sparse"],
           "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                               "partial_rotary_factor": 1.0}}
# {type: (class, sizes, parts of names that stay among those of two dimensions)}
CAUSAL, SEQ2SEQ = AutoModelForCausalLM, AutoModelForSeq2SeqLM
RUN = {
    "t5": (SEQ2SEQ, T5, {"shared", "relative_attention_bias", "wo", "lm_head"}),
    "umt5": (SEQ2SEQ, {**T5, "feed_forward_proj": "gated-gelu"},
             {"shared", "relative_attention_bias", "wo", "lm_head"}),
    "bart": (SEQ2SEQ, BART, {"shared", "embed_positions", "lm_head"}),
    "granitemoe": (CAUSAL, tiny.EXPERTS, {"lm_head", "layer"}),
    "deepseek_v32": (CAUSAL, INDEXED, {"lm_head", "gate", "weights_proj"}),
    "mamba": (CAUSAL, {"state_size": 16, "time_step_rank": 16},
              {"embeddings", "lm_head", "dt_proj"}),
    "rwkv":
    (CAUSAL, {"attention_hidden_size": 64}, {"embeddings", "head", "output", "value"}),
    "llama": (CAUSAL, {}, {"lm_head"})}
if tuple(int(x) for x in transformers.__version__.split(".")[:2]) < (5, 17):
    del RUN["granitemoe"]  # its experts are no stack of the registry there
REFUSED = {"gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64},
           "falcon": {"ffn_hidden_size": 96}}


class Quantised(ModelTest):
    def make(self, family, cls, sizes):
        """A model, or None of a type that this version does not have."""
        torch.manual_seed(0)
        known = {**tiny.SIZES, **sizes}
        if family not in CONFIG_MAPPING:
            return None
        known = {k: v for k, v in known.items() if k != "head_dim" or family == "llama"
                 or "kv_lora_rank" in sizes}
        config = AutoConfig.for_model(family, **known)
        config.tie_word_embeddings = False
        return cls.from_config(config, dtype=torch.float32).eval()

    def quantise(self, model, *args):
        """(folder, the result of nib quantize); the folder + "-nvfp4" is what it
        wrote."""
        source = tempfile.mkdtemp(dir=self.folder)
        model.save_pretrained(source)
        return source, subprocess.run(
            [NIB, "quantize", source, source + "-nvfp4", "--format", "json", *args],
            capture_output=True, text=True, check=False)

    def compare(self, folder, cls):
        """Loads both folders and compares their logits; returns the one in NVFP4."""
        named = {"cls": cls, "dtype": torch.float32}
        loaded = nt.from_pretrained(folder + "-nvfp4", **named)
        self.assert_near(self.run_model(loaded), self.run_model(
            cls.from_pretrained(folder, dtype=torch.float32)), 0.4)
        return loaded

    def run_model(self, model):
        x = tokens()
        more = {"decoder_input_ids": x} if model.config.is_encoder_decoder else {}
        with torch.no_grad():
            return model(input_ids=x, **more).logits

    def test_families(self):
        for family, (cls, sizes, stay) in RUN.items():
            model = self.make(family, cls, sizes)
            for form in ("modelopt", "compressed-tensors") if model else ():
                with self.subTest(family=family, form=form):
                    folder, result = self.quantise(model, "--format-out", form)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    rows = json.loads(result.stdout)
                    self.assertEqual(stay, {
                        row["tensor"].split(".")[-2] for row in rows
                        if row["reason"] and len(row["shape"]) == 2
                        and row["tensor"].endswith(".weight")} - {"embed_tokens"})
                    loaded = self.compare(folder, cls)
                    self.assertEqual(bool(loaded.hf_quantizer.plan.stacks),
                                     family in ("granitemoe", "deepseek_v32"))

    def test_budget(self):
        """Layers in NVFP4, in FP8 and as they were: the logits are those of the
        dequantised model."""
        cls, sizes, _ = RUN["llama"]
        model = self.make("llama", cls, sizes)
        for form in ("modelopt", "compressed-tensors"):
            folder, result = self.quantise(model, "--format-out", form, "--budget", "6")
            self.assertEqual(result.returncode, 0, result.stderr)
            to = [row["to"] for row in json.loads(result.stdout)]
            loaded = self.compare(folder, cls)
            counts = nt.report(loaded).counts()
            self.assertGreater(min(to.count("FP8"), to.count("NVFP4")), 0)
            self.assertEqual((counts["FP8"], counts["W4A16"]),
                             (to.count("FP8"), to.count("NVFP4")))
            self.assert_near(self.run_model(loaded),
                             self.run_model(self.dequantised(folder, cls)), 3e-6)

    def dequantised(self, folder, cls):
        """A model of floats with the values of folder + "-nvfp4"."""
        stored = load_file(folder + "-nvfp4/model.safetensors")
        values = {name: x.float() for name, x in load_file(
            folder + "/model.safetensors").items()}
        with nibblas.Checkpoint(folder + "-nvfp4") as file:
            for name, layer in file.items():
                values[name + ".weight"] = torch.from_numpy(nibblas.dequantize(
                    layer.codes, layer.scales, layer.global_scale, layout="linear"))
        for name, x in stored.items():
            if x.dtype == torch.float8_e4m3fn and name.endswith(".weight"):
                values[name] = x.float() * stored[name + "_scale"].reshape(-1, 1)
        config = AutoConfig.from_pretrained(folder)
        made = cls.from_config(config, dtype=torch.float32).eval()
        made.load_state_dict(values)
        return made

    def test_all_that_can_be_loaded(self):
        """--all takes heads that are not tied, and nothing that would be refused."""
        for family, takes_head in (("t5", False), ("llama", True),
                                   ("deepseek_v32", True)):
            cls, sizes, _ = RUN[family]
            folder, result = self.quantise(self.make(family, cls, sizes), "--all")
            self.assertEqual(result.returncode, 0, result.stderr)
            loaded = self.compare(folder, cls)
            self.assertEqual("lm_head" in loaded.hf_quantizer.plan.linears, takes_head)

    @newest
    def test_the_table_is_of_this_version(self):
        """tools/model_table.py has written cli/model_table.c."""
        with open(os.path.join(SOURCE, "cli/model_table.c"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn(f'model_table_version[] = "{transformers.__version__}"', text)
        listed = text.partition("model_table_types[] = {")[2]
        self.assertEqual({x for line in re.findall(r'"(.*) "', listed)
                          for x in line.split()}, set(CONFIG_MAPPING))

    def test_nothing_to_load(self):
        for family, sizes in REFUSED.items():
            folder, result = self.quantise(self.make(family, CAUSAL, sizes))
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn("no layer that can be loaded in NVFP4", result.stderr)
            self.assertFalse(os.path.exists(folder + "-nvfp4"))


if __name__ == "__main__":
    unittest.main()
