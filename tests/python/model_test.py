# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of nibblas.transformers: folders with tiny checkpoints,
functions that change them, and comparisons."""

import json
import os
import shutil
import tempfile
import unittest

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import nibblas.transformers as nt
import tiny_models as tiny

os.environ["HF_HUB_OFFLINE"] = "1"
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
FORMATS = ("modelopt", "compressed-tensors")
IS_NEWEST = os.environ.get("NIBBLAS_TRANSFORMERS", "5.23.0") == "5.23.0"
newest = unittest.skipUnless(IS_NEWEST, "does not depend on the version")


def tokens(rows=2, length=12, seed=1):
    return torch.randint(3, 90, (rows, length),
                         generator=torch.Generator().manual_seed(seed))


def logits(model, x):
    with torch.no_grad():
        return model(x).logits


class ModelTest(unittest.TestCase):
    """self.folder is removed after each test."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def saved(self, family, form="modelopt", **how):
        """The folders of a family, NVFP4 and dequantised."""
        folder = tempfile.mkdtemp(dir=self.folder)
        return tiny.save(tiny.make(family), folder, form, **how)

    def load(self, path, **named):
        return nt.from_pretrained(path, **{"dtype": torch.float32, **named})

    def plain(self, path):
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)

    def assert_near(self, got, want, limit, what=""):
        """limit: of the norm of the error over that of want."""
        error = float((got - want).norm() / want.norm())
        self.assertLess(error, limit, what)

    def edit(self, path, change, name="model.safetensors"):
        """change(tensors) of a file; returns the folder."""
        file = os.path.join(path, name)
        tensors = load_file(file)
        change(tensors)
        save_file({k: v.contiguous() for k, v in tensors.items()}, file,
                  {"format": "pt"})
        return path

    def tensors(self, path):
        found = load_file(os.path.join(path, "model.safetensors"))
        return {name: (x.dtype, tuple(x.shape), x.reshape(-1).view(
            torch.uint8).numpy().tobytes()) for name, x in found.items()}

    def configure(self, path, **values):
        """Changes quantization_config; returns the folder."""
        file = os.path.join(path, "config.json")
        with open(file, encoding="utf-8") as stream:
            config = json.load(stream)
        config["quantization_config"].update(values)
        with open(file, "w", encoding="utf-8") as stream:
            json.dump(config, stream)
        return path
