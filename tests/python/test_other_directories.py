# SPDX-License-Identifier: Apache-2.0
"""Directories that ModelOpt and compressed-tensors write for tiny models.
nibblas.transformers loads them, and the results are compared with transformers on the
same weights dequantised.

`make test-models` installs the packages; without them the tests are skipped."""

import importlib.util
import json
import os
import shutil
import sys
import tempfile
import unittest
import warnings

NEEDED = ("torch", "transformers", "modelopt", "compressed_tensors")
MISSING = [name for name in NEEDED if not importlib.util.find_spec(name)]
if MISSING:
    print(f"skipped: no {', '.join(MISSING)}: make test-models installs them")
    sys.exit(77)

warnings.simplefilter("ignore")

import modelopt.torch.quantization as mtq
import nibblas
import torch
import transformers
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import (QuantizationConfig,
                                             apply_quantization_config,
                                             preset_name_to_scheme)
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from modelopt.torch.export import export_hf_checkpoint
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import nibblas.transformers as nt
import tiny_models as tiny

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
ops = torch.ops.nibblas
TOKENS = torch.randint(3, 90, (2, 12), generator=torch.Generator().manual_seed(1))


def logits(model):
    with torch.no_grad():
        return model(TOKENS).logits


def values(codes, scales, factor, is_transposed=False):
    """Weights in float32; is_transposed: K comes before the rows."""
    if is_transposed:
        codes, scales = (x.view(torch.uint8).transpose(1, 2).contiguous()
                         for x in (codes, scales))
    w = ops.dequantize(codes, scales.view(torch.float8_e4m3fn), factor.reshape(()),
                       torch.float32, "linear")
    return w.transpose(1, 2).contiguous() if is_transposed else w


def dequantised(tensors):
    """The tensors of a checkpoint with weights in float32, by their names."""
    out = {}
    for name, x in tensors.items():
        if name.endswith(".weight_packed"):
            stem = name.removesuffix("_packed")
            out[stem] = values(x, tensors[stem + "_scale"],
                               1 / tensors[stem + "_global_scale"])
        elif x.dtype == torch.uint8 and x.dim() == 3:
            out[name] = values(x, *(tensors[name + "_weight_scale" + end]
                                    for end in ("", "_2")), True)
        elif x.dtype == torch.uint8:
            out[name] = values(x, *(tensors[name + "_scale" + end]
                                    for end in ("", "_2")))
        elif x.dtype == torch.bfloat16:
            out[name] = x.float()
        elif "scale" not in name:
            out[name] = x
    return out


class Directories(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, *name):
        return os.path.join(self.folder, *name)

    def check(self, family, kind):
        """self.folder has a checkpoint: its logits, W4A16, are the dequantised's."""
        model = nt.from_pretrained(self.folder, dtype=torch.float32)
        self.assertEqual(set(nt.report(model).counts()), {kind, "float32"}, family)
        model = nt.from_pretrained(self.folder, dtype=torch.float32,
                                   activations="dense")
        os.makedirs(self.path("plain"))
        save_file(dequantised(load_file(self.path("model.safetensors"))),
                  self.path("plain", "model.safetensors"), {"format": "pt"})
        with open(self.path("config.json"), encoding="utf-8") as file:
            config = json.load(file)
        del config["quantization_config"]
        with open(self.path("plain", "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        want = logits(AutoModelForCausalLM.from_pretrained(
            self.path("plain"), dtype=torch.float32))
        self.assertLess((logits(model) - want).norm() / want.norm(), 3e-6, family)


class ModelOpt(Directories):
    def export(self, family, recipe):
        model = tiny.make(family).to(torch.bfloat16)
        model.config.architectures = [type(model).__name__]
        mtq.quantize(model, getattr(mtq, recipe), lambda one: one(TOKENS))
        export_hf_checkpoint(model, export_dir=self.folder)

    def test_families(self):
        for recipe, kind in (("NVFP4_DEFAULT_CFG", "W4A4"),
                             ("W4A16_NVFP4_CFG", "W4A16")):
            for family in ("llama", "qwen3_moe", "mixtral", "deepseek_v3", "gpt_oss",
                           "llama4_text", "nemotron_h"):
                self.export(family, recipe)
                self.check(family, kind)
                shutil.rmtree(self.path("plain"))

    def test_older_configuration(self):
        """Its hf_quant_config.json says the same as config.json."""
        self.export("llama", "NVFP4_DEFAULT_CFG")
        want = logits(nt.from_pretrained(self.folder))
        with open(self.path("config.json"), encoding="utf-8") as file:
            config = json.load(file)
        del config["quantization_config"]
        with open(self.path("config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        model = nt.from_pretrained(self.folder)
        self.assertEqual(nt.report(model).counts(), {"W4A4": 14, "bfloat16": 1})
        self.assertTrue(torch.equal(logits(model), want))

    def test_fp8_activations(self):
        self.export("llama", "W4A8_NVFP4_FP8_CFG")
        with self.assertRaisesRegex(nibblas.FileError, "W4A8_NVFP4_FP8"):
            nt.from_pretrained(self.folder)


class CompressedTensors(Directories):
    def export(self, preset):
        model = tiny.make("llama").to(torch.bfloat16)
        apply_quantization_config(model, QuantizationConfig(
            config_groups={"group_0": preset_name_to_scheme(preset, ["Linear"])},
            ignore=["lm_head"]))
        for module in model.modules():
            scheme = getattr(module, "quantization_scheme", None)
            if scheme is None:
                continue
            w, divisor = module.weight.data, None
            if hasattr(module, "weight_global_scale"):
                divisor = generate_gparam(w.amin(), w.amax())
                module.weight_global_scale.data.copy_(divisor)
            blocks = w.view(w.shape[0], -1, scheme.weights.group_size or w.shape[1])
            scale, _ = calculate_qparams(blocks.amin(-1), blocks.amax(-1),
                                         scheme.weights, global_scale=divisor)
            module.weight_scale.data = scale.to(module.weight_scale.dtype)
            if hasattr(module, "input_global_scale"):
                module.input_global_scale.data.fill_(2688 / 4)
        compressor = ModelCompressor.from_pretrained_model(model)
        compressor.compress_model(model)
        model.save_pretrained(self.folder)
        compressor.update_config(self.folder)

    def test_nvfp4(self):
        self.export("NVFP4")
        self.check("llama", "W4A4")

    def test_nvfp4_weights_alone(self):
        self.export("NVFP4A16")
        self.check("llama", "W4A16")

    def test_others_load_as_before(self):
        """FP8, by compressed-tensors' own quantiser, after register() too."""
        self.export("FP8_DYNAMIC")
        want = logits(AutoModelForCausalLM.from_pretrained(self.folder))
        nt.register()
        model = AutoModelForCausalLM.from_pretrained(self.folder)
        self.assertTrue(torch.equal(logits(model), want))
        self.assertNotIn("nibblas", type(model.hf_quantizer).__module__)
        with self.assertRaisesRegex(nibblas.ArgumentError, "nvfp4-pack-quantized"):
            nt.from_pretrained(self.folder)


if __name__ == "__main__":
    unittest.main(verbosity=2)
