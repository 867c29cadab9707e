# SPDX-License-Identifier: Apache-2.0
"""nibblas.transformers refuses what it does not support: broken and unusual checkpoints
of tiny models, and the text of each message."""

import glob
import json
import os
import shutil
import types
import unittest
from unittest import mock

import nibblas
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.core_model_loading import WeightRenaming
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

import nibblas.transformers as nt
import tiny_models as tiny
from nibblas.transformers import _formats, _names, _quantizer
from model_test import FORMATS, ModelTest


class Refused(ModelTest):
    """What is not understood is refused with the file, the layer and the rule."""

    def refuse(self, path, *words):
        """self.load() raises an error of nibblas that has all words."""
        with self.assertRaises(nibblas.Error) as caught:
            self.load(path)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def changed(self, change, family="llama", **how):
        return self.edit(self.saved(family, **how)[0], change)

    def test_awq(self):
        """Applied to linear layers of ModelOpt in NVFP4; nowhere else."""
        name = "model.layers.0.mlp.down_proj.pre_quant_scale"
        for bad in (torch.ones(64), torch.ones(96, 1),
                    torch.ones(96, dtype=torch.int32)):
            self.refuse(self.changed(lambda x, y=bad: x.update({name: y})),
                        "model.safetensors", name, "must be [96] of F32")
        self.refuse(self.changed(lambda x: x.update(
            {name: torch.full((96,), float("inf"))})), name, "must be finite")
        rule = "AWQ's scales of x are applied only to NVFP4 linear layers"
        self.refuse(self.changed(lambda x: x.update({name: torch.ones(96)}),
                                 form="compressed-tensors"), name, rule)
        name = "model.layers.0.block_sparse_moe.experts.1.w2.pre_quant_scale"
        self.refuse(self.changed(lambda x: x.update({name: torch.ones(96)}), "mixtral"),
                    name, rule, "experts share their x")

    def test_comfy(self):
        """Nibbles and scales in ComfyUI's order, which a tensor or the header says."""
        from safetensors.torch import save_file
        layer = "model.layers.0.self_attn.q_proj"

        def to_tiles(x):
            scales = x[layer + ".weight_scale"]
            tiles = torch.zeros(-(-scales.shape[0] // 128) * 128,
                                -(-scales.shape[1] // 4) * 4, dtype=torch.uint8)
            x[layer + ".weight_scale"] = tiles.view(scales.dtype)
        mark = torch.tensor(list(b'{"format": "nvfp4"}'), dtype=torch.uint8)
        self.refuse(self.changed(lambda x: (x.update({layer + ".comfy_quant": mark}),
                                            to_tiles(x))), layer, "ComfyUI's order")
        path = self.changed(to_tiles)
        file = os.path.join(path, "model.safetensors")
        save_file(load_file(file), file, {"_quantization_metadata": json.dumps(
            {"layers": {layer: {"format": "nvfp4"}}})})
        self.refuse(path, layer, "ComfyUI's order")

    def test_offloaded(self):
        """What device_map puts on the disk: experts, and layers with
        offload_buffers."""
        plan = types.SimpleNamespace(stacks={"model.layers.1.mlp.experts": {}})
        for name in ("", "model", "model.layers.1", "model.layers.1.mlp.experts",
                     "model.layers.1.mlp.experts.down_proj"):
            with self.assertRaisesRegex(nibblas.UnsupportedError,
                                        f"^device_map: '{name}' is on the disk"):
                _quantizer._check_devices(plan, {"lm_head": "cpu", name: "disk"})
        _quantizer._check_devices(plan, {"model.layers.11": "disk", "model": "cpu"})
        model = self.load(self.saved("llama")[0])
        with self.assertRaisesRegex(nibblas.UnsupportedError,
                                    "q_proj.weight.*no device"):
            model.hf_quantizer._process_model_after_weight_loading(model.to("meta"))

    def test_svd(self):
        name = "model.layers.1.mlp.up_proj.weight_quantizer._svdquant_lora_a"
        self.refuse(self.changed(lambda x: x.update(
            {name.replace(".weight_quantizer", ""): torch.ones(4, 64)})),
            "model.layers.1.mlp.up_proj._svdquant_lora_a", "is not understood")
        packed, _ = self.saved("llama")
        self.refuse(self.configure(packed, quant_algo="NVFP4_SVD"),
                    "quant_algo = NVFP4_SVD", "nibblas runs NVFP4")

    def test_other_widths(self):
        key = "model.layers.0.self_attn.q_proj.weight"

        def narrow(x):
            x[key], x[key + "_scale"] = x[key][:, :24], x[key + "_scale"][:, :3]
        self.refuse(self.changed(narrow), key, "[64, 24]", "must be [64, 32]",
                    "in_features = 64")
        self.refuse(self.changed(lambda x: x.update(
            {key + "_scale": x[key + "_scale"][:, ::2]})), key + "_scale",
            "must be [64, 4]", "blocks have 16 values")
        self.refuse(self.changed(lambda x: x.update(
            {key + "_scale_2": torch.ones(3)})), key + "_scale_2",
            "must be one number")

    def test_missing_tensors(self):
        key = "model.layers.0.self_attn.q_proj.weight"
        self.refuse(self.changed(lambda x: x.pop(key + "_scale_2")), key,
                    "needs " + key + "_scale_2, which no file has")
        name = "model.layers.1.input_layernorm.weight"
        self.refuse(self.changed(lambda x: x.pop(name)), name,
                    "is in no file of the checkpoint")
        expert = "model.layers.0.block_sparse_moe.experts.2.w1.weight"

        def drop(x):
            for part in ("", "_scale", "_scale_2"):
                x.pop(expert + part)
        self.refuse(self.changed(drop, "mixtral"), "of 4 experts; the files have 3")

    def test_wrong_index(self):
        packed, _ = self.saved("llama", shards=3)
        path = os.path.join(packed, "model.safetensors.index.json")
        with open(path, encoding="utf-8") as file:
            index = json.load(file)
        name = sorted(index["weight_map"])[0]
        index["weight_map"][name] = "model-00002-of-00003.safetensors"
        for text, *words in (
                (json.dumps(index), name, "is not in model-00002-of-00003"),
                ('{"weight_map": 3}', path, "weight_map: must be an object"),
                ("[]", path, "weight_map: must be an object"),
                ("{", path)):
            with self.subTest(text=text[:20]):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                with self.assertRaises(nibblas.Error) as caught:
                    _formats.read(sorted(glob.glob(packed + "/*.safetensors")))
                for word in words:
                    self.assertIn(word, str(caught.exception))
                # transformers itself would say "Expecting property name", or less.
                self.refuse(packed, path)
        self.refuse(path, path, "must be a folder")

    def test_missing_shard(self):
        packed, _ = self.saved("llama", shards=3)
        file = os.path.join(packed, "model-00002-of-00003.safetensors")
        tensors = load_file(file)
        gone = sorted(tensors)[0]
        self.edit(packed, lambda x: x.pop(gone), os.path.basename(file))
        self.refuse(packed, gone, "is not in model-00002-of-00003.safetensors")
        os.remove(file)
        with self.assertRaisesRegex(OSError, "model-00002-of-00003.safetensors"):
            self.load(packed)

    def test_broken_file(self):
        packed, _ = self.saved("llama")
        file = os.path.join(packed, "model.safetensors")
        with open(file, "r+b") as stream:
            stream.truncate(1000)
        self.refuse(packed, "model.safetensors", "in a file of 1000 bytes")

    def test_unknown_quantised_tensors(self):
        name = "model.layers.0.mlp.up_proj.weight_blocks"
        self.refuse(self.changed(lambda x: x.update(
            {name: torch.zeros(96, 32, dtype=torch.uint8)})), name,
            "is not understood")

    def test_layer_that_the_model_lacks(self):
        def rename(x):
            for key in [k for k in x if "layers.1.mlp.up_proj" in k]:
                x[key.replace("up_proj", "upper_proj")] = x.pop(key)
        self.refuse(self.changed(rename), "model.layers.1.mlp.upper_proj.weight",
                    "LlamaForCausalLM of transformers has no")

    def test_fp8_scales(self):
        """Scales of no kind that is known, also as many as rows, and of other types."""
        name = "model.layers.0.mlp.up_proj.weight"
        for scales in (torch.ones(2, 2), torch.ones(1, 96), torch.ones(96, 2),
                       torch.ones(1, dtype=torch.uint8)):
            def change(x, scales=scales):
                for part in ("", "_scale", "_scale_2"):
                    x.pop(name + part)
                x[name] = torch.ones(96, 64).to(torch.float8_e4m3fn)
                x[name + "_scale"] = scales
            says = "must be of F32" if scales.dtype == torch.uint8 else (
                "must be one scale, [96] or [96, 1], one for each row, or [1, 1], one "
                "for each 128 x 128")
            self.refuse(self.changed(change), name + "_scale", says)

    def test_fp8_experts(self):
        def change(x):
            for key in [k for k in x if ".layers.0." in k and ".experts." in k
                        and k.endswith(".weight")]:
                x[key] = torch.ones(x[key].shape[0], 2 * x[key].shape[1]).to(
                    torch.float8_e4m3fn)
                x[key + "_scale"] = torch.ones(())
                del x[key + "_scale_2"]
        self.refuse(self.changed(change, "mixtral"), "model.layers.0.",
                    ".experts.", "which nibblas does not do to FP8")

    def test_tied_head(self):
        model = tiny.make("llama", tie_word_embeddings=True)
        packed, _ = tiny.save(model, self.folder)

        def change(x):
            x.update(tiny._linear("lm_head.weight", model.lm_head.weight.detach(),
                                  "modelopt", False)[0])
        self.refuse(self.edit(packed, change), "ties lm_head.weight",
                    "weights of its own")

    def test_experts_that_differ(self):
        key = "model.layers.0.block_sparse_moe.experts.1.w3.weight_scale_2"
        self.refuse(self.changed(lambda x: x.update({key: x[key].reshape(1)}),
                                 "mixtral"),
                    key, "must be [], as model.layers.0.block_sparse_moe.experts.0.w")

    def test_an_expert_missing_among_others(self):
        """As many as there should be: 0, 1, 2, 4."""
        def rename(tensors):
            for key in [x for x in tensors if "layers.0" in x and ".experts.3." in x]:
                tensors[key.replace(".experts.3.", ".experts.4.")] = tensors.pop(key)
        self.refuse(self.changed(rename, "mixtral"), "expert 3 of", "is missing")

    def test_transposed_width(self):
        key = "model.layers.0.mlp.experts.gate_up_proj"

        def change(x):
            x[key] = x[key][:, :, :48]
            x[key + "_weight_scale"] = x[key + "_weight_scale"].view(torch.uint8)[
                :, :, :48].contiguous().view(torch.float8_e4m3fn)
        self.refuse(self.changed(change, "gpt_oss"), key, "must be [4, 32, 64]")

    def test_not_quantised(self):
        packed, plain = self.saved("llama")
        self.refuse(plain, "it is not a quantised model")
        shutil.copy(os.path.join(plain, "model.safetensors"), packed)
        self.refuse(packed, "has no quantised layer")


    def test_other_quantisations(self):
        """A quantization_config of another library, whatever the tensors are."""
        packed, _ = self.saved("llama")
        self.refuse(self.configure(packed, quant_method="gptq"),
                    "quant_method = gptq", "must be modelopt")
        for form in FORMATS:
            for weights, rule in (({"type": "int"}, "weights of 4 bits, type int"),
                                  ({"num_bits": 6}, "weights of 6 bits, type float"),
                                  ({"group_size": 32}, "group_size = 32: NVFP4's")):
                packed, _ = self.saved("llama", form)
                groups = tiny.configuration(form, False)["config_groups"]
                groups["group_0"]["weights"].update(weights)
                self.refuse(self.configure(packed, config_groups=groups),
                            "config_groups: group_0", rule)
        packed, _ = self.saved("llama", "compressed-tensors")
        self.refuse(self.configure(packed, transform_config={
            "config_groups": {"R1": {"type": "hadamard"}}}),
            "transform_config", "does not rotate", "R1")
        packed, _ = self.saved("llama", "compressed-tensors")
        self.refuse(self.configure(packed, sparsity_config={
            "format": "sparse-24-bitmask"}), "sparsity_config", "sparse-24-bitmask")

    def test_other_activations(self):
        """NVFP4 weights with FP8 activations run if the user chooses how."""
        for form in FORMATS:
            packed, _ = self.saved("mixtral", form, w4a4=True)
            group = tiny.configuration(form, True)["config_groups"]
            group["group_0"]["input_activations"]["num_bits"] = 8
            self.refuse(self.configure(packed, config_groups=group, quant_algo=None),
                        "input_activations are of 8 bits", "layers.0.self_attn")
            model = self.load(packed, activations="int8")
            self.assertEqual(nt.report(model).counts()["W4A8"], 10)

    def test_scales_that_are_none(self):
        name = "model.layers.0.self_attn.q_proj.weight_scale_2"
        for value in (0.0, -1.0, float("nan"), float("inf")):
            self.refuse(self.changed(lambda x, y=value: x.update(
                {name: torch.tensor(y)})), name, "must be finite and > 0")
        name = "model.layers.0.block_sparse_moe.experts.1.w3.weight_global_scale"
        self.refuse(self.changed(lambda x: x.update({name: torch.zeros(1)}), "mixtral",
                                 form="compressed-tensors"),
                    name, "0.0: global scales must be finite and > 0")

    def test_block_scales_that_are_none(self):
        for family, name in (("llama", "model.layers.0.self_attn.q_proj.weight_scale"),
                             ("gpt_oss",
                              "model.layers.1.mlp.experts.down_proj_weight_scale"),
                             ("mixtral", "model.layers.1.block_sparse_moe.experts.2.w2."
                                         "weight_scale")):
            for byte in (0x7F, 0x80, 0xB8):
                def change(x, key=name, value=byte):
                    x[key].view(torch.uint8).view(-1)[5] = value
                self.refuse(self.changed(change, family), name,
                            f"the byte 0x{byte:02X}: scales of blocks must be numbers")

    def test_tensors_inside_a_layer(self):
        for name, rule in (
                ("mlp.down_proj.input_quantizer._pre_quant_scale", "AWQ"),
                ("mlp.down_proj.weight_quantizer.amax", "is not understood"),
                ("mlp.act_fn.scales", "is not understood"),
                ("self_attn.r3.hadamard", "is not understood")):
            name = "model.layers.0." + name
            self.refuse(self.changed(lambda x, y=name: x.update(
                {y: torch.ones(96)})), name, rule)

    def test_malformed_configurations(self):
        """Entries of another type than they have are refused by the file's name."""
        path = os.path.join(self.saved("llama", w4a4=True)[0], "config.json")
        with open(path, encoding="utf-8") as file:
            right = json.load(file)
        group = right["quantization_config"]["config_groups"]["group_0"]
        for values, *words in (
                ("x", "quantization_config: x: must be an object"),
                (0, "quantization_config: 0: must be an object"),
                ([1], "quantization_config: [1]: must be an object"),
                ({"config_groups": [group]}, "config_groups: [", "must be an object"),
                ({"config_groups": {"g": None}}, "config_groups: g: None: must be"),
                ({"config_groups": {"g": {**group, "weights": 4}}},
                 "config_groups: g: weights: 4: must be an object"),
                ({"config_groups": {"g": {**group, "targets": [4]}}},
                 "config_groups: g: targets[0]: 4: must be a string"),
                ({"config_groups": {"g": {"weights": {"num_bits": "4"}}}},
                 "weights: num_bits: 4: must be a number"),
                ({"ignore": "lm_head"}, "ignore: lm_head: must be a list"),
                ({"exclude_modules": [{}]}, "exclude_modules[0]: {}: must be a string"),
                ({"ignore": ["re:("]}, "ignore[0]", "'('", "is no regular expression"),
                ({"ignore": [r"re:(a)\1"]}, "ignore[0]", "groupref is not supported"),
                ({"quant_algo": []}, "quant_algo: []: must be a string"),
                ({"quant_algo": "W5A5"}, "quant_algo = W5A5: nibblas runs"),
                ({"quantized_layers": {"a": "FP8"}},
                 "quantized_layers: a: FP8: must be"),
                ({"quantization": 3}, "quantization: 3: must be an object"),
                ({"transform_config": {"config_groups": [3]}}, "transform_config"),
                ({"sparsity_config": "dense"}, "sparsity_config: dense: must be"),
                ({"quant_method": None, "activations": 1, "self": 2},
                 "quant_method = None")):
            changed = {**right["quantization_config"], **values} if isinstance(
                values, dict) else values
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**right, "quantization_config": changed}, file)
            self.refuse(os.path.dirname(path), "nvfp4/config.json: quantization_config",
                        *words)
        for text in ("[" * 40000, "[1]", "{", "\x00"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            self.refuse(os.path.dirname(path), "nvfp4/config.json: ")

    def test_malformed_when_registered(self):
        """transformers' own call, which reads config.json before nibblas does."""
        with mock.patch.dict(AUTO_QUANTIZATION_CONFIG_MAPPING):
            nt.register()
            for values, rule in (({"quant_algo": "W5A5"},
                                  "quant_algo = W5A5: nibblas runs"),
                                 ({"config_groups": {"g": []}},
                                  r"config_groups: g: \[\]")):
                packed = self.configure(self.saved("llama")[0], **values)
                with self.assertRaisesRegex(nibblas.FileError,
                                            "^config.json: quantization_config: "
                                            + rule):
                    AutoModelForCausalLM.from_pretrained(packed)

    def test_patterns_that_take_long(self):
        """Python's re would need years for these."""
        packed, _ = self.saved("llama", w4a4=True)
        group = tiny.configuration("modelopt", True)["config_groups"]["group_0"]
        for rule in (r"re:(\w+\.?)+!", "re:" + ".*" * 20 + "!", "*a" * 14 + "!"):
            self.configure(packed, ignore=[rule], config_groups={
                "a": {**group, "targets": [rule]}, "b": group})
            self.assertEqual(nt.report(self.load(packed)).counts()["W4A4"], 14)

    def test_a_fifo(self):
        for name in "config.json", "model.safetensors", "generation_config.json":
            packed, _ = self.saved("llama")
            path = os.path.join(packed, name)
            if os.path.exists(path):
                os.remove(path)
            os.mkfifo(path)
            self.refuse(packed, f"{path}: must be a regular file")

    def test_renamed_by_a_pattern(self):
        """A stem that cannot be told from transformers' name for the weight."""
        layer = types.SimpleNamespace(name="a", format=_formats.MODELOPT,
                                      codes=mock.Mock())
        renaming = WeightRenaming(r"^a\.weight$", "b.kernel")
        layer.codes.fail.side_effect = nibblas.FileError("cannot follow")
        with self.assertRaisesRegex(nibblas.FileError, "cannot follow"):
            _names.following([layer], [renaming])

    def test_a_folder_that_is_none(self):
        with self.assertRaisesRegex(OSError, "nowhere"):
            self.load(os.path.join(self.folder, "nowhere"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
