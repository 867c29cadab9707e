#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that are folders: shards with an index and config.json, through nib
inspect, verify and run; and the layouts of layers that models come in."""

import math
import os
import random
import unittest

from cli_common import NibTest, decode_layer, load, matrix, save, tensor
from cli_model import INDEX, ModelTest, put_json, save_folder, shard_name, split

def layer(name, rows=16, k=32, seed=1):
    """An NVFP4 layer of ModelOpt's names."""
    codes = bytes((seed + i * 37) % 251 for i in range(rows * k // 2))
    return {name + ".weight": ("U8", [rows, k // 2], codes),
            name + ".weight_scale": ("F8_E4M3", [rows, k // 16],
                                     bytes(rows * k // 16 * [0x7E])),
            name + ".weight_scale_2": tensor("F32", (), [1e-4])}


class Sharded(ModelTest):
    def setUp(self):
        super().setUp()
        self.nib("quantize", "in", "one")
        self.tensors, _ = load(self.path("one"))
        save_folder(self.path("model"), split(self.tensors, 3))

    def test_inspect_is_that_of_one_file(self):
        def rows(path):
            found = self.rows("inspect", path, code=1)  # a layer of zeros
            for row in found:
                shard = row.pop("shard")
                self.assertEqual(shard is not None,
                                 path != "one" and row["kind"] == "tensor")
            return sorted(found, key=lambda row: row["name"])

        self.assertEqual(rows("model"), rows("one"))
        self.assertEqual(rows("model/" + INDEX), rows("one"))
        text = self.nib("inspect", "model", code=1).stdout
        self.assertRegex(text, r"model: .* in 3 files, \d+ tensors, 5 NVFP4")

    def test_verify(self):
        for args in (("in", "model"), ("model", "model/" + INDEX)):
            rows = self.rows("verify", *args)
            self.assertEqual(rows, self.rows("verify", args[0], "one"))
            self.assertTrue(all(row["ok"] for row in rows))

    def test_run(self):
        save(self.path("x"), {"x": matrix(3, 128, 9)})
        for weights, out in (("one", "y1"), ("model", "y2")):
            self.nib("run", "--weights", weights, "--tensor",
                     "model.layers.0.mlp.up_proj", "--input", "x",
                     "--output", out)
        self.assertEqual(self.read("y1"), self.read("y2"))

    def test_refusals(self):
        os.remove(self.path("model/" + shard_name(1, 3)))
        for args in (("inspect", "model"), ("verify", "model", "one")):
            self.refused(*args, code=3, says="00002-of-00003.safetensors: "
                         "cannot open: .*; the index says that it holds '")
        os.mkdir(self.path("empty"))
        self.refused("inspect", "empty", code=3,
                     says="empty: a folder without a safetensors file")
        put_json(self.path("model"), INDEX, {"weight_map": {"a": "../one"}})
        self.refused("inspect", "model", code=3, says="tensor 'a': the shard "
                     "'../one' must be the name of a file in the folder of the index")


class Layouts(NibTest):
    def inspect(self, tensors, config=None, code=0):
        """Findings and the other rows, by name, and the text for people."""
        save_folder(self.path("m"), split(tensors, 2), config)
        rows = self.rows("inspect", "m", code=code)
        found = {(row["finding"], row["name"]): row["text"] for row in rows
                 if row["kind"] == "finding"}
        rest = {row["name"]: row for row in rows if row["kind"] != "finding"}
        return found, rest, self.nib("inspect", "m", code=code).stdout

    def test_experts_are_in_the_order_of_their_numbers(self):
        tensors = {}
        for i in (0, 2, 10, 9):
            tensors |= layer(f"m.experts.{i}.up_proj", seed=i)
        _, rest, _ = self.inspect(tensors)
        self.assertEqual(list(rest),
                         [f"m.experts.{i}.up_proj" for i in (0, 2, 9, 10)])

    def test_fused_experts_of_compressed_tensors(self):
        codes = ("U8", [2, 16, 16], bytes(i % 251 for i in range(2 * 16 * 16)))
        name = "m.experts.gate_up_proj"
        others = {name + "_packed": codes,
                  name + "_global_scale": tensor("F32", (1,), [1e4]),
                  name + "_input_global_scale": tensor("F32", (1,), [100])}
        found, rest, _ = self.inspect(
            others | {name + "_scale": ("F8_E4M3", [2, 16, 2], bytes(64 * [0x7E]))})
        self.assertEqual((set(rest), found), ({name}, {}))
        self.assertEqual(rest[name]["shape"], [2, 16, 32])
        # The same bytes with k before n.
        found, _, _ = self.inspect(
            others | {name + "_scale": ("F8_E4M3", [2, 2, 16], bytes(64 * [0x7E]))})
        self.assertEqual(found, {("packed-across", name):
                                 "U8 [2, 16, 16]: 2 matrices of k = 32, n = 16"})

    def test_fused_experts(self):
        codes = bytes(i % 251 for i in range(2 * 16 * 16))
        scales = ("F8_E4M3", [2, 16, 2], bytes(64 * [0x7E]))
        name = "m.experts.gate_up_proj"
        found, rest, _ = self.inspect({
            name: ("U8", [2, 16, 16], codes), name + "_weight_scale": scales,
            name + "_weight_scale_2": tensor("F32", (), [1e-4])})
        self.assertEqual(set(rest), {name})
        self.assertEqual(rest[name]["shape"], [2, 16, 32])
        self.assertEqual(found, {})
        # The same bytes with k before n.
        found, _, text = self.inspect({
            name: ("U8", [2, 16, 16], codes),
            name + "_weight_scale": ("F8_E4M3", [2, 2, 16], scales[2]),
            name + "_weight_scale_2": tensor("F32", (), [1e-4])})
        self.assertEqual(found, {("packed-across", name):
                                 "U8 [2, 16, 16]: 2 matrices of k = 32, n = 16"})
        self.assertNotIn("nothing looks wrong", text)
        save(self.path("x"), {"x": matrix(3, 32, 9)})
        self.refused("run", "--weights", "m", "--tensor", name, "--input", "x",
                     "--output", "y", code=3, says="packed along the second last size")
        # Without their global scale they are half a layer.
        found, _, _ = self.inspect({
            name: ("U8", [2, 16, 16], codes),
            name + "_weight_scale": ("F8_E4M3", [2, 2, 16], scales[2])}, code=1)
        self.assertEqual(set(found), {("half-layer", name)})

    def test_svd_is_never_ignored(self):
        tensors = layer("m.a") | layer("m.b")
        tensors["m.b.svdquant_lora_a"] = tensor("F32", (32,), 32 * [1.0])
        found, _, _ = self.inspect(tensors, code=1)
        self.assertEqual(set(found), {("half-layer", "m.b")})
        self.assertIn("svdquant_lora_a", found["half-layer", "m.b"])
        save(self.path("x"), {"x": matrix(3, 32, 9)})
        self.refused("run", "--weights", "m", "--tensor", "m.b", "--input",
                     "x", "--output", "y", code=3, says="svdquant_lora_a")

    def test_awq(self):
        """x is multiplied by pre_quant_scale, and so are the weights to verify."""
        r = random.Random(4)
        s = [r.choice((0.25, 0.5, 1.0, 2.0, 4.0)) for _ in range(32)]
        x = [r.gauss(0, 1) for _ in range(3 * 32)]
        awq = layer("m.b") | {"m.b.pre_quant_scale": tensor("BF16", (32,), s)}
        plain, other = layer("m.a"), layer("m.d")
        found, rest, _ = self.inspect(plain | awq)
        self.assertEqual(found, {("awq", "m.b"): "pre_quant_scale is BF16 [32]"})
        self.assertNotIn("m.b.pre_quant_scale", rest)
        folder = dict(plain | awq | other)
        folder["m.d.pre_quant_scale"] = tensor("F32", (32,), 32 * [2.0])
        save(self.path("w"), folder)
        save(self.path("x"), {"x": tensor("F32", (3, 32), x)})
        save(self.path("xs"), {"x": tensor("F32", (3, 32), [
            v * s[i % 32] for i, v in enumerate(x)])})

        def run(name, given, *more):
            self.rows("run", "--weights", "w", "--tensor", name, "--input", given,
                      "--output", "y", "--force", *more)
            return load(self.path("y"))[0]["output"]
        for activations in ("nvfp4", "fp32", "bf16", "int8"):
            how = ("--activations", activations, "--out", "fp32")
            self.assertEqual(run("m.b", "x", *how), run("m.a", "xs", *how))
            self.assertNotEqual(run("m.b", "x", *how), run("m.a", "x", *how))
        save(self.path("xn"), {"x.weight": tensor("F32", (3, 32), x)})
        self.nib("quantize", "xn", "xq")
        self.refused("run", "--weights", "w", "--tensor", "m.b", "--input", "xq",
                     "--output", "z", code=3, says="'x' is NVFP4, but m.b has a "
                     "pre_quant_scale")
        self.refused("run", "--weights", "w", "--tensor", "m.b", "--tensor2", "m.d",
                     "--input", "x", "--output", "z", code=3,
                     says="m.b and m.d differ in pre_quant_scale")
        self.refused("run", "--weights", "w", "--tensor", "m.b", "--tensor2", "m.a",
                     "--input", "x", "--output", "z", code=3,
                     says="differ in pre_quant")
        # The float weights that the layer stands for.
        w = decode_layer(plain, "m.a")
        save(self.path("float"), {"m.b.weight": tensor("F32", (len(w), 32), [
            v * f for row in w for v, f in zip(row, s)])})
        row, = [row for row in self.rows("verify", "float", "w", code=0)
                if row["name"] == "m.b"]
        self.assertGreater(row["sqnr_db"] or 999, 100)

    def test_mixed_checkpoints(self):
        tensors = layer("m.up_proj")
        tensors |= {
            "m.q_proj.weight": ("F8_E4M3", [16, 16], bytes(256)),
            "m.q_proj.weight_scale": tensor("F32", (), [0.125]),
            "m.q_proj.input_scale": tensor("F32", (), [0.25]),
            "m.q_proj.bias": tensor("F32", (16,), 16 * [1.0]),
            "m.k_proj.k_scale": tensor("F32", (1,), [3.5])}
        config = {"architectures": ["LlamaForCausalLM"],
                  "tie_word_embeddings": True, "quantization_config": {
                      "quant_method": "modelopt", "ignore": ["lm_head"],
                      "quant_algo": "MIXED_PRECISION",
                      "quantized_layers": {
                          "m.up_proj": {"quant_algo": "NVFP4"},
                          "m.q_proj": {"quant_algo": "FP8"},
                          "m.o_proj": {"quant_algo": "FP8"}},
                      "kv_cache_scheme": {"num_bits": 8, "type": "float"}}}
        found, rest, text = self.inspect(tensors, config)
        self.assertEqual(found, {})
        self.assertEqual(rest["m.q_proj.weight"]["format"], "FP8 linear")
        self.assertEqual(rest["m.q_proj.weight_scale"]["value"], 0.125)
        self.assertEqual(rest["m.k_proj.k_scale"]["value"], 3.5)
        self.assertIsNone(rest["m.q_proj.bias"]["value"])
        for line in ("model: LlamaForCausalLM", "FP8 linears: 1",
                     "scales of the kv cache: 1", "tied: lm_head",
                     "layers of NVFP4: 1", "layers of FP8: 2",
                     "quantised by: modelopt, MIXED_PRECISION, kv cache FP8",
                     "left as they were: 1 (lm_head)"):
            self.assertIn(line, text)
        save(self.path("x"), {"x": matrix(3, 32, 9)})
        for name, says in (
                ("m.q_proj", r"m: 'm.q_proj.weight' is F8_E4M3: .* FP8 linears run in "
                 "nibblas.transformers"),
                ("m.q_proj.weight", "is F8_E4M3"),
                ("m.q_proj.bias", r"'m.q_proj.bias' is F32: .* \(nib inspect")):
            self.refused("run", "--weights", "m", "--tensor", name, "--input", "x",
                         "--output", "y", code=3, says=says)

    def test_unknown_layouts_are_never_fine(self):
        stack = {"m.experts.w1_blocks": ("U8", [2, 4, 16], bytes(128))}
        for scales in (("F8_E8M0", [2, 4, 2]), ("F8_E4M3", [2, 4, 2]),
                       ("U8", [2, 4, 2])):
            found, _, text = self.inspect(stack | {
                "m.experts.w1_scales": (*scales, bytes(16))}, code=1)
            self.assertEqual(set(found), {("unknown-layout",
                                           "m.experts.w1_blocks")})
            self.assertNotIn("nothing looks wrong", text)
        # A mask without scales is no quantised tensor; four-bit floats are.
        self.assertEqual(self.inspect(stack)[0], {})
        found, _, _ = self.inspect({"m.w": ("F4", [16, 32], bytes(256))}, code=1)
        self.assertEqual(set(found), {("unknown-layout", "m.w")})
        # A shard without the others; 8-bit floats that are no scales.
        scales = ("F8_E4M3", [16, 2], bytes(32))
        found, _, _ = self.inspect({"m.weight_scale": scales}, code=1)
        self.assertEqual(set(found), {("unknown-layout", "m.weight_scale")})
        self.assertEqual(self.inspect({"m.weight": scales})[0], {})
        # Integers under a weight's name: GPTQ, INT8, NF4.
        for name, dtype in (("m.qweight", "I32"), ("m.weight", "I8"),
                            ("m.weight", "U8")):
            found, _, text = self.inspect({name: (dtype, [4, 4], bytes(
                64 if dtype == "I32" else 16))}, code=1)
            self.assertEqual(set(found), {("unknown-layout", name)})
            self.assertNotIn("nothing looks wrong", text)

    def test_config_against_tensors(self):
        tensors = layer("m.up_proj")
        self.assertEqual(set(self.inspect(tensors, {}, code=1)[0]),
                         {("config", "config.json")})
        quant = {"quantization_config": {"quant_method": "modelopt",
                                         "quant_algo": "W4A16_NVFP4"}}
        self.assertEqual(self.inspect(tensors, quant)[0], {})
        for entry, found in (("m.up_proj", 1), ("*up*", 1), ("m.up", 0),
                             ("lm_head", 0), ("re:.*", 1)):
            left = {"quantization_config": dict(quant["quantization_config"],
                                                ignore=["x", entry])}
            self.assertEqual(list(self.inspect(tensors, left, code=found)[0]),
                             [("config", "m.up_proj")] * found)
        norm = {"norm": tensor("F32", (2,), [1, 2])}
        self.assertEqual(set(self.inspect(norm, quant, code=1)[0]),
                         {("config", "config.json")})
        # Older exports have only the other file.
        put_json(self.path("m"), "hf_quant_config.json", {
            "quantization": {"quant_algo": "W4A16_NVFP4", "exclude_modules": ["a"]}})
        found, _, text = self.inspect(tensors, {})
        self.assertEqual(found, {})
        self.assertIn("quantised by: modelopt, W4A16_NVFP4", text)
        with open(self.path("m/config.json"), "w", encoding="utf-8") as file:
            file.write("{")
        self.assertRegex(self.nib("inspect", "m").stderr,
                         "config.json: line 1: .* left out")

    def test_patterns_of_modules_left_out(self):
        """re.match() and fnmatch() of Python, in time that does not explode."""
        name = "model.layers.10.mlp.up_proj"
        tensors = layer(name) | layer("m." + 200 * "a")
        for entry in (r"re:.*up_proj$", r"re:model\.layers\.(1?\d)\.", "re:.*mlp",
                      r"re:^model.*\d{2}\.mlp\.(?:gate|up)_proj", r"re:[^.]+\.la",
                      r"re:.*[0-9]+\.\w+\.up", "re:(lm_head|model)", "re:",
                      "model.layers.1?.mlp.*", "*.1[0-2].*", "*[!a]"):
            self.check_left_out(tensors, entry, {("config", name)})
        for entry in (r"re:mlp", r"re:.*mlp$", r"re:model\.layers\.\d\.",
                      "re:.*up_proj.+", "re:Model", "re:m{2}", "mlp", "*mlp",
                      r"re:(\w+\.?)+!", "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b"):
            self.check_left_out(tensors, entry, set())
        for entry in (r"re:(?!x).*", r"re:(a)\1", "re:(?i)model", "re:a++", "re:(a",
                      "re:[a", r"re:\bm", "re:a{1000}", "re:\u00e9",
                      "re:" + 999 * "(a|"):
            self.check_left_out(tensors, entry, {("config-rule", "config.json")})

    def test_targets_of_groups(self):
        tensors = layer("m.mlp.up_proj") | layer("m.attn.q_proj")
        missing = {("no-target", "m.attn.q_proj")}
        for targets, want in (
                ([["re:.*mlp.*"]], missing),
                ([["re:.*mlp.*"], ["m.attn.q_proj"]], set()),
                ([["re:.*mlp.*"], [r"re:m\.(attn|x)\..*_proj$"]], set()),
                ([["Linear"]], set()), ([["re:.*mlp", "Linear"]], set()), ([[]], set()),
                ([["re:.*mlp"], None], set()), ([["m.mlp.up_proj"]], missing),
                ([["re:(?!x).*mlp"]], {("config-rule", "config.json")})):
            config = {"quantization_config": {
                "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
                "config_groups": {f"group_{i}": {"targets": names}
                                  for i, names in enumerate(targets)}}}
            self.assertEqual(set(self.inspect(tensors, config)[0]), want, targets)

    def check_left_out(self, tensors, entry, want):
        config = {"quantization_config": {
            "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
            "ignore": [entry]}}
        code = int(any(kind == "config" for kind, _ in want))
        save_folder(self.path("m"), split(tensors, 1), config)
        rows = self.rows("inspect", "m", code=code, timeout=60)
        found = {(row["finding"], row["name"]) for row in rows
                 if row["kind"] == "finding" and row["name"][:3] != "m.a"}
        self.assertEqual(found, want, entry)

    def test_experts_without_an_input_scale(self):
        """As the file has it, by the tensor's name, and what stands in."""
        stem, config = "m.experts.%d.up_proj", {"quantization_config": {
            "quant_method": "modelopt", "quant_algo": "NVFP4"}}
        tensors = layer("m.q_proj")  # W4A16 and W4A4: not reported
        for i, scale in enumerate((0.25, 0, math.inf, math.nan, None, 0.5)):
            tensors |= layer(stem % i)
            if scale is not None:
                tensors[stem % i + ".input_scale"] = tensor("F32", (), [scale])
        tensors |= layer("m.experts.0.down_proj") | layer("m.o_proj") | {
            "m.experts.0.down_proj.input_scale": tensor("F32", (), [9]),
            "m.o_proj.input_scale": tensor("F32", (), [0])}
        found, _, text = self.inspect(tensors, config)
        other = "; the largest of the other experts, 0.5, stands in"
        self.assertEqual(found, {
            ("no-input-scale", stem % 1 + ".input_scale"): "is 0" + other,
            ("no-input-scale", stem % 2 + ".input_scale"): "is inf" + other,
            ("no-input-scale", stem % 3 + ".input_scale"): "is nan" + other,
            ("no-input-scale", stem % 4): "has no input scale" + other,
            ("no-input-scale", "m.o_proj.input_scale"): "is 0"})
        self.assertIn("note: layers that were not calibrated", text)
        for name in (*tensors,):
            if name.endswith("input_scale"):
                tensors[name] = tensor("F32", (), [0])
        self.assertEqual(self.inspect(tensors, config)[0], {})

    def test_mixed_precision(self):
        """Groups of compressed-tensors with formats of their own, all named."""
        tensors = layer("m.up_proj") | {
            "m.o_proj.weight": ("F8_E4M3", [4, 16], bytes(64)),
            "m.o_proj.weight_scale": tensor("BF16", (4, 1), [1, 1, 1, 1])}
        config = {"quantization_config": {
            "quant_method": "compressed-tensors", "format": "mixed-precision",
            "config_groups": {"group_0": {"format": "float-quantized"},
                              "group_1": {"format": "nvfp4-pack-quantized"},
                              "group_2": {"format": "float-quantized"}}}}
        found, rows, text = self.inspect(tensors, config)
        self.assertEqual(found, {})
        self.assertIn("quantised by: compressed-tensors, float-quantized + "
                      "nvfp4-pack-quantized\n", text)
        self.assertEqual(rows["m.o_proj.weight"]["format"], "FP8 linear")
        self.assertEqual(rows["m.up_proj"]["format"], "NVFP4 modelopt")


if __name__ == "__main__":
    unittest.main(verbosity=2)
