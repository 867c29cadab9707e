#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nib quantize leaves tensors dense that transformers would not load in NVFP4: by the
type of the model in config.json, or by names if it has none."""

import json
import os
import unittest

from cli_common import NibTest, load, matrix, save
from cli_model import put_json, save_folder, split

ROWS, K = 32, 64


def stack(batch, rows, k):
    return "BF16", [batch, rows, k], matrix(batch * rows, k, 3, "BF16")[2]


class Models(NibTest):
    def quantise(self, config, names, *args, code=0):
        """{tensor or layer: reason} of a folder with tensors so named: matrices, or
        what a dictionary says."""
        if not isinstance(names, dict):
            names = {name: matrix(ROWS, K, i) for i, name in enumerate(names)}
        save_folder(self.path("m"), split(names, 2), config)
        rows = self.rows("quantize", "m", "out", "--dry-run", *args, code=code)
        return {row["tensor"]: row["reason"] for row in rows}

    def check(self, config, layers, copied, *args):
        """copied: {tensor: a word of its reason}."""
        got = self.quantise(config, [x + ".weight" for x in layers] + list(copied),
                            *args)
        self.assertEqual({x for x, reason in got.items() if not reason}, set(layers))
        for name, word in copied.items():
            self.assertIn(word, got[name])

    def test_tables_and_conv1d(self):
        linear = ["decoder.block.0.layer.0.SelfAttention.q",
                  "decoder.block.0.layer.2.DenseReluDense.wi_0"]
        for args in ((), ("--all",), ("--include", "*")):
            self.check({"model_type": "t5"}, linear, {
                "shared.weight": "e" if not args else "an embedding",
                "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight":
                    "exclude" if not args else "an embedding",
                "decoder.block.0.layer.2.DenseReluDense.wo.weight": "reads itself"},
                       *args)
        self.check({"model_type": "bart"}, ["model.encoder.layers.0.fc2"],
                   {"model.shared.weight": "an embedding",
                    "model.decoder.embed_positions.weight": "an embedding"}, "--all")
        # The parts of a model have types of their own.
        self.check({"model_type": "vision-encoder-decoder",
                    "encoder": {"model_type": "vit"},
                    "decoder": {"model_type": "gpt2"}},
                   ["encoder.layer.0.attention.q_proj"],
                   {"decoder.transformer.h.0.attn.c_attn.weight": "Conv1D"})

    def test_layers_that_are_read(self):
        self.check({"model_type": "deepseek_v32"},
                   ["model.layers.0.self_attn.indexer.wk"],
                   {"model.layers.0.self_attn.indexer.weights_proj.weight":
                    "reads itself"})
        self.check({"model_type": "mamba"}, ["backbone.layers.0.mixer.in_proj"],
                   {"backbone.layers.0.mixer.dt_proj.weight": "reads itself"})

    def test_stacks_that_are_not_loaded(self):
        names = {"model.layers.0.mlp.input_linear.weight": stack(2, 64, 32),
                 "model.layers.0.self_attention.experts.input_linear.weight":
                     stack(2, 64, 32),
                 "model.layers.0.mlp.moe.fc1.weight": stack(2, 32, 32),
                 "model.layers.0.self_attn.q_proj.weight": matrix(32, 64, 1)}
        got = self.quantise({"model_type": "jetmoe"}, names)
        self.assertEqual([name for name, reason in got.items() if not reason],
                         ["model.layers.0.self_attn.q_proj"])
        # Stacks of experts are layers in types that transformers does not have.
        got = self.quantise({"model_type": "mine"}, names)
        self.assertEqual([name for name, reason in got.items() if reason],
                         ["model.layers.0.mlp.input_linear.weight"])
        # transformers has no other stacks than those of gate_up_proj and down_proj.
        names = {"model.moe.w1.weight": stack(2, 32, 32), "q.weight": matrix(16, 16, 1)}
        self.assertIn("3-D", self.quantise({"model_type": "llama"}, names)[
            "model.moe.w1.weight"])

    def test_experts_of_granite(self):
        """Their stacks become layers of each expert, as those of gate_up_proj do."""
        stem, other = "m.layers.0.block_sparse_moe", "m.layers.0.mlp.experts"
        tensors = [stack(2, 64, 32), stack(2, 32, 32)]
        ends = (".input_linear.weight", ".output_linear.weight")
        save(self.path("a"), {stem + end: x for end, x in zip(ends, tensors)})
        save(self.path("b"), {other + end: x for end, x in zip(
            (".gate_up_proj", ".down_proj"), tensors)})
        rows = [sorted(self.rows("quantize", x, x + "4"), key=lambda row: row["tensor"])
                for x in "ab"]
        for row in rows[1]:
            row["tensor"] = row["tensor"].replace(other, stem + ".experts")
        self.assertEqual(*rows)
        self.assertEqual(len(rows[0]), 6)
        got, want = (load(self.path(x + "4"))[0] for x in "ab")
        self.assertEqual(got, {name.replace(other, stem + ".experts"): x
                               for name, x in want.items()})
        verified = self.rows("verify", "a", "a4")
        self.assertEqual({row["name"] for row in verified},
                         {row["tensor"] for row in rows[0]})
        self.assertTrue(all(row["ok"] for row in verified))
        names = dict(zip((stem + end for end in ends), tensors))
        got = self.quantise({"model_type": "granitemoe"}, names)
        self.assertFalse(any(got.values()))
        got = self.quantise({"model_type": "granitemoe"},
                            {**names, "m.q_proj.weight": matrix(32, 64, 1)},
                            "--exclude", "*output_linear*")
        self.assertIn("and output_linear.weight is copied",
                      got[stem + ".input_linear.weight"])
        # [experts, k, n], and one without the other.
        for bad, word in (([stack(2, 32, 64), tensors[1]], "not as [experts, n, k]"),
                          (tensors[:1], "without *.block_sparse_moe.output_linear")):
            save(self.path("a"), dict(zip(names, bad)))
            row = self.rows("quantize", "a", "out", "--dry-run")[0]
            self.assertIn(word, row["reason"])

    def test_experts_are_quantised_together(self):
        config = {"model_type": "qwen3_moe"}
        for bad, word in (("0.mlp.experts.1.down_proj", "k = 24"),
                          ("0.mlp.experts.0.up_proj", "--exclude")):
            names = {f"model.layers.{layer}.mlp.experts.{e}.{x}.weight":
                     matrix(32, 32, layer + e) for layer in (0, 10) for e in (0, 1)
                     for x in ("gate_proj", "up_proj", "down_proj")}
            bad = f"model.layers.{bad}.weight"
            if word.startswith("k"):
                names[bad] = matrix(32, 24, 1)
            args = () if word.startswith("k") else ("--exclude", bad)
            got = self.quantise(config, names, *args)
            for name, reason in got.items():
                if ".layers.10." in name:
                    self.assertEqual(reason, "")
                elif name == bad:
                    self.assertIn(word, reason)
                else:
                    self.assertIn("experts load together, and "
                                  + bad.partition(".experts.")[2], reason)
            # A model of another library may load them so.
            got = self.quantise({}, names, *args)
            self.assertEqual([x for x, reason in got.items() if reason], [bad])
        names = {"m.mlp.experts.gate_up_proj": stack(2, 64, 32),
                 "m.mlp.experts.down_proj": stack(2, 32, 32),
                 "q.weight": matrix(16, 16, 1)}
        got = self.quantise(config, names, "--exclude", "*down_proj")
        self.assertIn("down_proj is copied", got["m.mlp.experts.gate_up_proj"])

    def test_tied_heads(self):
        for ties in (True, False):
            got = self.quantise({"model_type": "llama", "tie_word_embeddings": ties},
                                ["lm_head.weight", "model.layers.0.mlp.up_proj.weight"],
                                "--all")
            self.assertEqual("ties it" in got.get("lm_head.weight", ""), ties)

    def test_heads_and_tables_by_name(self):
        names = ("lm_head", "model.lm_head", "head", "model.head", "unembed", "output",
                 "score", "classifier", "mtp_head", "shared", "encoder.shared",
                 "tok_emb",
                 "model.token_emb.emb", "embed_out", "codebook.0", "wte", "wpe",
                 "a.relative_attention_bias")
        save(self.path("in"),
             {f"{name}.weight": matrix(16, 32, 1) for name in names} | {
            "a.output.weight": matrix(16, 32, 1)})
        rows = self.rows("quantize", "in", "out", "--dry-run")
        self.assertEqual([row["tensor"] for row in rows if not row["reason"]],
                         ["a.output"])
        self.assertTrue(all("default exclude" in row["reason"] for row in rows
                            if row["reason"]))

    def test_a_model_without_layers_is_refused(self):
        names = [f"transformer.h.0.{x}.weight" for x in ("attn.c_attn", "mlp.c_fc")]
        tensors = {name: matrix(16, 32, 1)
                   for name in (*names, "transformer.wte.weight")}
        save_folder(self.path("m"), [tensors], {"model_type": "gpt2"})
        self.refused("quantize", "m", "out", code=3,
                     says="no layer that can be loaded in NVFP4; .*--dry-run")
        self.assertEqual(os.listdir(self.folder), ["m"])
        rows = self.rows("quantize", "m", "out", "--dry-run")
        self.assertEqual({row["reason"] for row in rows},
                         {"a Conv1D, [k, n]", "default exclude *wte*"})
        vision = {f"vision_model.encoder.layers.0.mlp.{x}.weight": matrix(16, 32, 1)
                  for x in ("fc1", "fc2")}
        save_folder(self.path("v"), [vision], {"model_type": "clip_vision_model"})
        self.refused("quantize", "v", "out", code=3,
                     says="in NVFP4, except those that --all takes; nothing was")
        self.nib("quantize", "v", "v4", "--all")
        # A copy, if everything is excluded.
        self.nib("quantize", "m", "out", "--exclude", "*")

    def test_what_becomes_of_the_model_is_said(self):
        tensors = {f"model.layers.{i}.{x}.weight": matrix(32, 64, i) for i in range(3)
                   for x in ("mlp.up_proj", "self_attn.indexer.weights_proj")}
        save_folder(self.path("m"), [tensors], {"model_type": "deepseek_v32"})
        text = self.nib("quantize", "m", "out").stdout
        self.assertIn("not quantised; transformers keeps their type: "
                      "model.layers.*.self_attn.indexer.weights_proj\n", text)
        self.assertNotIn("model_type", text)
        put_json(self.path("m"), "config.json", {"model_type": "mine"})
        self.assertIn("the model_type is not one of transformers ",
                      self.nib("quantize", "m", "out2").stdout)
        for x in ("out", "out2"):
            with open(self.path(x + "/config.json"), encoding="utf-8") as file:
                self.assertIn("quantization_config", json.load(file))


if __name__ == "__main__":
    unittest.main()
