#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nib quantize --budget: the choice of formats against all choices, FP8 against plain
Python, and the configurations of several formats."""

import itertools
import json
import math
import os
import re
import shutil
import struct
import unittest

from cli_common import NibTest, floats, load, matrix, save, tensor
from cli_model import put_json, save_folder, split

LAYER = "model.layers.0."
FUSED = LAYER + "mlp.experts"
# Rows and k of the layers of a small model, and the power to which values are taken.
SHAPES = {"self_attn.q_proj": (32, 64, 1), "self_attn.k_proj": (16, 64, 3),
          "self_attn.v_proj": (16, 64, 1), "self_attn.o_proj": (64, 32, 7),
          "mlp.gate_proj": (48, 64, 1), "mlp.up_proj": (48, 64, 3),
          "mlp.down_proj": (64, 48, 5), "mixer.in": (24, 32, 9),
          "mixer.out": (40, 16, 3)}
GROUPS = [("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
          ("self_attn.o_proj",), ("mlp.gate_proj", "mlp.up_proj"), ("mlp.down_proj",),
          ("mixer.in",), ("mixer.out",)]
E4M3 = [math.ldexp(8 + c % 8, (c >> 3) - 10) if c >> 3 else math.ldexp(c, -9)
        for c in range(127)]


def fp32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def model():
    """BF16 matrices, so that a copy has 16 bits a weight."""
    tensors = {"model.norm.weight": tensor("BF16", (64,), 64 * [1.0])}
    for i, (name, (rows, k, power)) in enumerate(SHAPES.items()):
        values = floats(matrix(rows, k, i))
        tensors[f"{LAYER}{name}.weight"] = tensor(
            "BF16", (rows, k), [x ** power for x in values])
    return tensors


def bits(name, to):
    rows, k, _ = SHAPES[name]
    return rows * k * {"NVFP4": 4.5, "FP8": 8, "BF16": 16}[to] + rows * 32 * (
        to == "FP8")


def error(row):
    return 0 if row["sqnr_db"] is None else 10 ** (-row["sqnr_db"] / 10)


class Choice(NibTest):
    def setUp(self):
        super().setUp()
        save(self.path("in"), model())

    def choose(self, budget):
        """{layer: (format, error)}"""
        rows = self.rows("quantize", "in", "out", "--force", "--budget", budget)
        found = {row["tensor"].removeprefix(LAYER).removesuffix(".weight"):
                 (row["to"], error(row)) for row in rows}
        self.assertEqual(found.pop("model.norm"), ("BF16", 0))
        return found

    def test_against_all_choices(self):
        errors = {"BF16": dict.fromkeys(SHAPES, 0)}
        for budget, to in ((4.5, "NVFP4"), (16, "BF16")):
            found = self.choose(budget)
            self.assertEqual({x for x, _ in found.values()}, {to})
            errors[to] = {name: e for name, (_, e) in found.items()}
        # Where all steps to FP8 fit and no step from it does.
        total = sum(rows * k for rows, k, _ in SHAPES.values())
        found = self.choose(sum(bits(x, "FP8") for x in SHAPES) / total + 1e-9)
        self.assertEqual({x for x, _ in found.values()}, {"FP8"})
        errors["FP8"] = {name: e for name, (_, e) in found.items()}

        def sums(choice):
            pairs = [(name, to) for group, to in zip(GROUPS, choice) for name in group]
            return (sum(bits(*x) for x in pairs) / total,
                    sum(errors[to][name] for name, to in pairs))
        every = [sums(x) for x in itertools.product(errors, repeat=len(GROUPS))]
        last = math.inf
        for budget in (4.5, 4.6, 4.75, 5, 5.5, 6, 7, 8, 9, 11, 13, 15.99, 16):
            found = self.choose(budget)
            for group in GROUPS:
                self.assertEqual(len({found[name][0] for name in group}), 1)
            mean, got = sums([found[group[0]][0] for group in GROUPS])
            self.assertLessEqual(mean, budget)
            self.assertAlmostEqual(got, sum(e for _, e in found.values()), 9)
            best = min(e for b, e in every if b <= budget)
            text = self.nib("quantize", "in", "out", "--force", "--budget",
                            budget).stdout
            said = re.search(r"budget: (\S+) of \S+ bits .*\n.*errors: (\S+); no "
                             r"choice has less than (\S+)\n", text)
            self.assertAlmostEqual(float(said[1]), mean, 4)
            self.assertAlmostEqual(float(said[2]), got, delta=1e-5 * got + 1e-12)
            self.assertLessEqual(float(said[3]), best * (1 + 1e-5) + 1e-12)
            # The greedy choice is at most one step from the relaxation's.
            self.assertLessEqual(best, got * (1 + 1e-9))
            self.assertLessEqual(got, last)
            last = got
        self.assertEqual(got, 0)

    def test_bytes_of_fp8(self):
        self.choose(9)
        tensors, _ = load(self.path("out"))
        names = [x for x, (dtype, _, _) in tensors.items() if dtype == "F8_E4M3" and
                 x + "_scale_2" not in tensors and not x.endswith("_scale")]
        self.assertGreater(len(names), 5)
        source, order = model(), sorted(range(127), key=lambda c: E4M3[c])
        self.assertEqual(order, list(range(127)))
        used = set()
        for name in names:
            dtype, shape, data = tensors[name + "_scale"]
            rows, k = source[name][1]
            self.assertEqual((dtype, shape), ("F32", [rows]))
            values, want = floats(source[name]), bytearray()
            for r in range(rows):
                row = values[r * k:(r + 1) * k]
                scale = fp32(max(map(abs, row)) / 448) or 1.0
                self.assertEqual(struct.unpack_from("<f", data, 4 * r)[0], scale)
                for x in row:
                    ratio = min(fp32(abs(x) / scale), 448)
                    code = min(range(127), key=lambda c: (abs(E4M3[c] - ratio),
                                                          c & 1))
                    want.append(code | 128 * (math.copysign(1, x) < 0))
            self.assertEqual(tensors[name][2], bytes(want))
            used |= set(want)
        self.assertTrue({0, 0x7E, 0xFE} < used)

    def test_refusals(self):
        for text in ("3", "4.4999", "0", "-5"):
            self.refused("quantize", "in", "o", "--budget", text, code=2,
                         says=f"--budget {text}: less than 4.5, the bits of a weight "
                         "if all layers are NVFP4")
        for text in ("16.01", "1e300"):
            self.refused("quantize", "in", "o", "--budget", text, code=2,
                         says=f"--budget {text}: more than 16, the bits")
        for text in ("nan", "inf", "-inf", "x", "5 bits", ""):
            self.refused("quantize", "in", "o", "--budget", text, code=2,
                         says=f"--budget {text}: not a number")
        self.assertFalse(os.path.exists(self.path("o")))
        save(self.path("bad"), {"a.weight": tensor("F32", (1, 16), 16 * [math.inf])})
        self.refused("quantize", "bad", "o", "--budget", "8", code=3, says="inf")
        self.nib("quantize", "bad", "o", "--budget", "10", "--saturate")

    def test_dry_run_chooses_and_writes_nothing(self):
        rows = self.rows("quantize", "in", "o", "--budget", "6", "--dry-run")
        found = self.choose(6)
        self.assertEqual([row["to"] for row in rows if row["tensor"].startswith(LAYER)],
                         [to for to, _ in found.values()])
        self.assertFalse(os.path.exists(self.path("o")))

    def test_rows_of_zeros_and_small_numbers(self):
        small = [math.ldexp(1 + i, -126) for i in range(64)]
        save(self.path("in"), {"a.weight": tensor("F32", (3, 64), 64 * [0.0] + small
                                                  + 64 * [-0.0])})
        self.nib("quantize", "in", "out", "--budget", "10")
        tensors, _ = load(self.path("out"))
        scales = struct.unpack("<3f", tensors["a.weight_scale"][2])
        self.assertEqual(scales, (1, 2 ** -126, 1))
        codes = tensors["a.weight"][2]
        self.assertEqual((codes[:64], codes[128:]), (bytes(64), bytes(64 * [0x80])))


class Folders(NibTest):
    def quantise(self, *args, tensors=None, config=None):
        save_folder(self.path("m"), split(tensors or model(), 2),
                    config or {"model_type": "mine"})
        rows = self.rows("quantize", "m", "out", *args)
        with open(self.path("out/config.json"), encoding="utf-8") as file:
            return ({row["tensor"]: row["to"] for row in rows},
                    json.load(file).get("quantization_config"))

    def check_reading(self):
        """The other commands read the folder."""
        self.assertIn("0 problems" if "note" in self.nib("inspect", "out").stdout
                      else "nothing looks wrong", self.nib("inspect", "out").stdout)
        self.assertIn("nothing to mend", self.nib("repair", "out", "mended").stdout)
        rows = self.rows("verify", "m", "out")
        self.assertTrue(all(row["ok"] for row in rows))
        return {row["name"]: row["b"] for row in rows}

    def test_modelopt(self):
        to, config = self.quantise("--budget", "6")
        fp8 = sorted(x for x, y in to.items() if y == "FP8")
        nvfp4 = sorted(x for x, y in to.items() if y == "NVFP4")
        self.assertTrue(fp8 and nvfp4)
        layers = {**dict.fromkeys(fp8, {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}),
                  **dict.fromkeys(nvfp4, {"quant_algo": "W4A16_NVFP4",
                                          "group_size": 16})}
        self.assertEqual(config["quant_algo"], "MIXED_PRECISION")
        self.assertEqual(config["quantized_layers"], layers)
        self.assertEqual([sorted(group["targets"]) for group in
                          config["config_groups"].values()], [nvfp4, fp8])
        with open(self.path("out/hf_quant_config.json"), encoding="utf-8") as file:
            older = json.load(file)["quantization"]
        self.assertEqual((older["quant_algo"], older["quantized_layers"]),
                         ("MIXED_PRECISION", layers))
        self.assertEqual(older["exclude_modules"], config["ignore"])
        formats = self.check_reading()
        for name in fp8:
            self.assertEqual(formats[name + ".weight"], "F8_E4M3")
        text = self.nib("inspect", "out").stdout
        self.assertIn(f"layers of FP8_PER_CHANNEL_PER_TOKEN: {len(fp8)}", text)

    def test_compressed_tensors(self):
        to, config = self.quantise("--budget", "6", "--format-out",
                                   "compressed-tensors")
        self.assertEqual(config["format"], "mixed-precision")
        groups = list(config["config_groups"].values())
        self.assertEqual([group["format"] for group in groups],
                         ["nvfp4-pack-quantized", "float-quantized"])
        # Names only: vLLM would take "Linear" for the layers that it has fused.
        self.assertEqual([sorted(group["targets"]) for group in groups], [sorted(
            x for x, y in to.items() if y == name) for name in ("NVFP4", "FP8")])
        self.assertEqual(groups[1]["weights"], {
            "num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel",
            "dynamic": False})
        self.assertIsNone(groups[1]["input_activations"])
        self.check_reading()
        name = groups[1]["targets"][0]
        tensors = {}
        for part in ("00001", "00002"):
            tensors |= load(self.path(f"out/model-{part}-of-00002.safetensors"))[0]
        rows = tensors[name + ".weight"][1][0]
        self.assertEqual(tensors[name + ".weight_scale"][:2], ("F32", [rows, 1]))

    def test_one_format(self):
        """Without FP8 layers the configuration is the usual one."""
        for form, key, value in (("modelopt", "quant_algo", "W4A16_NVFP4"),
                                 ("compressed-tensors", "format",
                                  "nvfp4-pack-quantized")):
            _, config = self.quantise("--budget", "4.5", "--format-out", form)
            os.rename(self.path("out"), self.path(form))
            self.assertEqual(config[key], value)
            self.assertEqual(len(config["config_groups"]), 1)
            self.assertNotIn("quantized_layers", config)
        to, config = self.quantise("--budget", "16")
        self.assertEqual((set(to.values()), config), ({"BF16"}, None))

    def test_experts(self):
        """They are NVFP4 or copied, all of a layer together, and fused ones whole."""
        def stack(batch, rows, k, seed):
            dtype, _, data = matrix(batch * rows, k, seed, "BF16")
            return dtype, [batch, rows, k], data
        fused = {FUSED + ".gate_up_proj": stack(2, 64, 48, 1),
                 FUSED + ".down_proj": stack(2, 48, 32, 2)}
        each = {f"model.layers.1.mlp.experts.{i}.{x}.weight": matrix(32, 32, i, "BF16")
                for i in range(3) for x in ("gate_proj", "up_proj", "down_proj")}
        other = {"model.layers.0.self_attn.o_proj.weight": matrix(48, 48, 7, "BF16")}
        seen = set()
        for budget in ("4.6", "8", "9", "12", "16"):
            to, config = self.quantise("--budget", budget,
                                       tensors=fused | each | other)
            kept = [x for x in fused if to.get(x) == "BF16"]
            self.assertIn(len(kept), (0, 2))
            self.assertEqual(len({to[x] for x in to if ".1.mlp" in x}), 1)
            self.assertNotIn("FP8", {y for x, y in to.items() if "experts" in x})
            if kept and config:
                self.assertIn(FUSED, config["ignore"])
                self.check_reading()
            files = {}
            for part in ("00001", "00002"):
                files |= load(self.path(f"out/model-{part}-of-00002.safetensors"))[0]
            for name in kept:
                self.assertEqual(files[name], fused[name])
            seen.add(len(kept))
            for folder in ("out", "mended"):
                shutil.rmtree(self.path(folder), ignore_errors=True)
        self.assertEqual(seen, {0, 2})

    def test_the_place_is_checked_first(self):
        self.quantise("--budget", "6")
        put_json(self.path("m"), "config.json", {"model_type": "mine"})
        self.refused("quantize", "m", "out", "--budget", "6", code=2,
                     says="out: a folder that is not empty")
        self.assertEqual(sorted(os.listdir(self.folder)), ["m", "out"])


class Reading(NibTest):
    def test_scales_of_fp8(self):
        """nib verify: one scale, one a row, one a block of 128 x 128, of each type."""
        rows, k = 130, 160
        codes = [c for c in range(256) if c & 127 != 127]
        data = bytes(codes[(7 * i + i // 251) % 254] for i in range(rows * k))
        values = [E4M3[c & 127] * (-1 if c > 127 else 1) for c in data]
        for shape, block in (((), (rows, k)), ((rows,), (1, k)), ((rows, 1), (1, k)),
                             ((2, 2), (128, 128)), ((2, 1, 2, 1), (128, 128))):
            dtype = ("F32", "BF16", "F16")[len(shape) % 3]
            count = math.prod(shape)
            scales = [math.ldexp(1 + i % 7 / 8, -i % 5) for i in range(count)]
            name = "weight_scale" + "_inv" * (len(shape) == 4)
            save(self.path("a"), {"m.weight": ("F8_E4M3", [rows, k], data),
                                  "m." + name: tensor(dtype, shape, scales)})
            width = -(-k // block[1])
            save(self.path("b"), {"m.weight": tensor("F32", (rows, k), [
                x * scales[i // k // block[0] * width + i % k // block[1]]
                for i, x in enumerate(values)])})
            for pair in (("a", "b"), ("b", "a"), ("a", "a")):
                row, = self.rows("verify", *pair)
                self.assertTrue(row["identical"], (shape, row))
        # Scales of another shape are no layer, and the bytes are compared.
        save(self.path("c"), {"m.weight": ("F8_E4M3", [rows, k], data),
                              "m.weight_scale": tensor("F32", (3,), [1, 2, 3])})
        self.rows("verify", "c", "b", code=1)


if __name__ == "__main__":
    unittest.main()
