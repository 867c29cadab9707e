# SPDX-License-Identifier: Apache-2.0
"""nibblas.certify and from_pretrained(activations="certified"): errors of products
against fp64, choices by a budget, the same bits on each run, and certificates that are
refused by name."""

import copy
import io
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

import torch
from safetensors.torch import load_file, save_file

import nibblas
import nibblas.transformers as nt
import tiny_models as tiny
from nibblas import _certificate as certificate, certify as command
from nibblas.certify import certify
from nibblas.gptq import _data
from nibblas.torch import Linear

NIB = os.environ.get("NIB", "nib")
WINDOWS, LENGTH = 3, 40
KINDS = certificate.KINDS


def nib(*arguments):
    subprocess.run([NIB, *arguments], check=True, capture_output=True, text=True)


def made(folder, family):
    """(dense, NVFP4) folders of a tiny model; the second has a certificate."""
    dense, nvfp4 = os.path.join(folder, "dense"), os.path.join(folder, "nvfp4")
    tiny.save_dense(dense, family)
    nib("quantize", dense, nvfp4)
    nib("verify", dense, nvfp4, "--certify")
    return dense, nvfp4


def run(dense, nvfp4, **named):
    named = {"calibration": os.path.join(dense, "text.jsonl"), "windows": WINDOWS,
             "length": LENGTH, "stream": io.StringIO(), **named}
    return certify(dense, nvfp4, **named)


def relative(want, got):
    return float(((want - got).norm() / want.norm()).detach())


class CertifyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.dense, cls.nvfp4 = made(cls.folder, "llama")
        cls.found = run(cls.dense, cls.nvfp4)

    def setUp(self):
        self.path = os.path.join(self.nvfp4, certificate.FILE)
        certificate.write(self.path, self.found)

    def inputs(self):
        """({layer: x in the dense model}, the model)"""
        model, tokenizer = _data.load_model(self.dense)
        tokens = _data.windows_of(_data.read_texts(
            os.path.join(self.dense, "text.jsonl")), tokenizer, WINDOWS, LENGTH, 0)
        seen = {}
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_pre_hook(
                    lambda _, args, name=name: seen.update({name: args[0].flatten(
                        0, 1)}))
        with torch.no_grad():
            model(tokens, use_cache=False)
        return seen, model

    def test_errors(self):
        seen, model = self.inputs()
        entries = self.found["layers"]
        self.assertEqual(len(entries), 14)
        with nibblas.Checkpoint(self.nvfp4) as file:
            for name, entry in entries.items():
                x, layer = seen[name], file[name]
                want = x.double() @ model.get_submodule(name).weight.double().t()
                w = torch.tensor(nibblas.dequantize(
                    layer.codes, layer.scales, layer.global_scale,
                    layout="linear")).double()
                four = nibblas.dequantize(*nibblas.quantize(x.numpy()))
                errors = entry["product_errors"]
                self.assertEqual(set(errors), set(KINDS))
                self.assertEqual(entry["tokens"], WINDOWS * LENGTH)
                for kind, product in (
                        ("W4A16", x.double() @ w.t()),
                        ("W4A4", torch.tensor(four).double() @ w.t())):
                    self.assertAlmostEqual(errors[kind] / relative(want, product), 1,
                                           4, (name, kind))
                # 8 bits add an error below that of 4 bits.
                self.assertLess(errors["W4A16"], errors["W4A4"])
                self.assertLess(abs(errors["W4A8"] / errors["W4A16"] - 1), 0.02)
        self.assertNotIn("lm_head", entries)

    def test_the_same_bits_on_each_run(self):
        with open(self.path, "rb") as file:
            before = file.read()
        run(self.dense, self.nvfp4)
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertEqual([x for x in os.listdir(self.nvfp4) if "part" in x], [])
        other = run(self.dense, self.nvfp4, seed=1)
        self.assertNotEqual(other["layers"], self.found["layers"])

    def test_choices(self):
        errors = {name: x["product_errors"] for name, x in self.found["layers"].items()}
        middle = sorted(x["W4A4"] for x in errors.values())[7]
        for budget in (1e-6, middle, 10):
            made = run(self.dense, self.nvfp4, calibration=None, budget=budget)
            want = {name: next((KINDS[kind] for kind in KINDS if x[kind] <= budget),
                               "dense") for name, x in errors.items()}
            self.assertEqual({name: x["activations"]
                              for name, x in made["layers"].items()}, want)
            model = nt.from_pretrained(self.nvfp4, activations="certified")
            self.assertEqual({name: x.activations for name, x in model.named_modules()
                              if isinstance(x, Linear)}, want)
            plain = nt.from_pretrained(self.nvfp4, activations="dense")
            for name, kind in want.items():
                plain.get_submodule(name).activations = kind
            x = torch.arange(20)[None] + 3
            with torch.no_grad():
                self.assertTrue(torch.equal(model(x).logits, plain(x).logits))

    def refused(self, says, load=True):
        with self.assertRaisesRegex(nibblas.FileError, says):
            if load:
                nt.from_pretrained(self.nvfp4, activations="certified")
            else:
                run(self.dense, self.nvfp4)

    def chosen(self):
        found = copy.deepcopy(self.found)
        certificate.choose(found, 0.1)
        return found

    def test_certificates_of_other_layers(self):
        name = "model.layers.1.mlp.up_proj"
        self.refused("q_proj: has no choice of activations|has no choice of")
        found = self.chosen()
        del found["layers"][name]
        certificate.write(self.path, found)
        self.refused(f"has no {name}: it is incomplete, or of another model")
        self.refused(f"has no {name}", load=False)
        found = self.chosen()
        found["layers"]["model.layers.2.mlp.up_proj"] = found["layers"][name]
        certificate.write(self.path, found)
        self.refused("layers.2.mlp.up_proj: the checkpoint has no such layer")
        found = self.chosen()
        found["layers"][name]["digest"] = "crc32:00000000:3460"
        certificate.write(self.path, found)
        self.refused(f"{name}: is stale")
        self.refused(f"{name}: is stale", load=False)
        os.remove(self.path)
        self.refused("nibblas_certificate.json: no such file.*--certify writes it")

    def test_other_weights(self):
        certificate.write(self.path, self.chosen())
        file = os.path.join(self.nvfp4, "model.safetensors")
        with open(file, "r+b") as stream:
            data = bytearray(stream.read())
            header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
            at = 8 + int.from_bytes(data[:8], "little") + header[
                "model.layers.0.mlp.up_proj.weight"]["data_offsets"][0]
            data[at] ^= 1
            stream.seek(0)
            stream.write(data)
        try:
            self.refused("model.layers.0.mlp.up_proj: is stale")
        finally:
            data[at] ^= 1
            with open(file, "wb") as stream:
                stream.write(data)

    def test_hostile_files(self):
        name = next(iter(self.found["layers"]))

        def refused(says, value, *keys):
            found = self.chosen()
            at = found
            for key in keys[:-1]:
                at = at[key]
            at[keys[-1]] = value
            with open(self.path, "w", encoding="utf-8") as file:
                json.dump(found, file)
            with self.assertRaisesRegex(nibblas.FileError, says):
                certificate.read(self.path)

        for text in (b"", b"{", b"[" * 100000, b"\xff", b'{"format": 1, "format": 1}'):
            with open(self.path, "wb") as file:
                file.write(text)
            self.refused("is no JSON")
        for text in ("[]", "null", "{}", '"x"'):
            with open(self.path, "w", encoding="utf-8") as file:
                file.write(text)
            self.refused("must be an object with the format")
        for value in ("1", 2, None, 1.0, True):
            refused("version = .*: must be 1", value, "version")
        for value in ([], None, 1):
            refused("layers: must be an object", value, "layers")
            refused(f"layers: {name}: must be an object", value, "layers", name)
        for key, values in {
                "shape": (None, [], [1], [1, -1], [1.5, 2], [2 ** 63, 1], "1"),
                "digest": (None, "", "crc32:0:1", "md5:00000000:1", 5),
                "relative_error": (None, -1, "0", float("nan"), float("inf"), True),
                "worst_row_error": (None, -1e-9, [], 10 ** 400),
                "worst_row": (None, -1, 0.5, 1 << 63),
                "product_errors": ([], {"W4A4": -1}, {"W8A8": 0}, {"W4A4": "0"}),
                "tokens": (-1, "3", 1.5), "activations": ("w4a4", 4, [])}.items():
            for value in values:
                refused(f"layers: {name}: {key} = ", value, "layers", name, key)
        os.remove(self.path)
        os.mkfifo(self.path)
        self.refused("must be a regular file")
        os.remove(self.path)

    def test_arguments(self):
        for says, named in (
                ("budget = nan", {"budget": float("nan")}),
                ("budget = 0: must be finite and more than 0", {"budget": 0}),
                ("calibration: must be given", {"calibration": None}),
                ("windows = 0", {"windows": 0}), ("length = 0", {"length": 0})):
            with self.assertRaisesRegex(nibblas.ArgumentError, says):
                run(self.dense, self.nvfp4, **named)
        found = copy.deepcopy(self.found)
        for entry in found["layers"].values():
            entry["product_errors"] = {}
        certificate.write(self.path, found)
        with self.assertRaisesRegex(nibblas.ArgumentError, "has no errors of products"):
            run(self.dense, self.nvfp4, calibration=None, budget=1.0)
        with self.assertRaisesRegex(nibblas.ArgumentError, "'certify'.*'certified'"):
            nt.from_pretrained(self.nvfp4, activations="certify")

    def test_another_original(self):
        other, path = os.path.join(self.folder, "other"), "model.safetensors"
        shutil.copytree(self.dense, other)
        tensors = load_file(os.path.join(other, path))
        name = "model.layers.1.self_attn.o_proj"
        tensors[name + ".weight"] *= 1.05
        save_file(tensors, os.path.join(other, path), {"format": "pt"})
        with self.assertRaisesRegex(nibblas.ArgumentError,
                                    f"the weights of {name} differ"):
            run(other, self.nvfp4)
        shutil.rmtree(other)
        tiny.make("llama", hidden_size=96).save_pretrained(other)
        for file in ("text.jsonl", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(os.path.join(self.dense, file), other)
        with self.assertRaisesRegex(nibblas.ArgumentError, "must be the original"):
            run(other, self.nvfp4)

    def test_command(self):
        out = io.StringIO()
        with mock.patch("sys.stdout", out):
            code = command.main([self.dense, self.nvfp4, "--budget", "10"])
        self.assertEqual(code, 0)
        self.assertRegex(out.getvalue(), r"W4A4   error .* chosen for 14\n")
        with mock.patch("sys.stderr", out):
            self.assertEqual(command.main([self.dense, self.folder, "--budget", "1"]),
                             1)
        self.assertIn("nibblas.certify: ", out.getvalue())


class ExpertsTest(unittest.TestCase):
    """Experts of one module get the same activations; nothing measures them."""

    def test_experts(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        dense, nvfp4 = made(folder, "mixtral")
        found = run(dense, nvfp4, budget=10.0)
        path = os.path.join(nvfp4, certificate.FILE)
        experts = [x for x in found["layers"] if ".experts." in x]
        self.assertEqual(len(experts), 24)
        for name, entry in found["layers"].items():
            self.assertEqual(entry["activations"],
                             "dense" if name in experts else "nvfp4")
        for change, want in (({}, "dense"), (dict.fromkeys(experts, "nvfp4"), "nvfp4"),
                             ({experts[0]: "int8"}, "int8")):
            for name, kind in change.items():
                found["layers"][name]["activations"] = kind
            certificate.write(path, found)
            model = nt.from_pretrained(nvfp4, activations="certified")
            kinds = [row.kind for row in nt.report(model).rows if "experts" in row.name]
            names = {"dense": "W4A16", "nvfp4": "W4A4", "int8": "W4A8"}
            self.assertEqual(kinds[0], names[want])


if __name__ == "__main__":
    unittest.main()
