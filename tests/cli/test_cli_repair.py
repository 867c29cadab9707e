#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nib repair: each fault planted in a sound checkpoint of both formats, what is left of
it, and the values of the copy against plain Python."""

import json
import math
import os
import random
import resource
import shutil
import signal
import struct
import unittest

from cli_common import (E2M1, NibTest, SCALES, decode_layer, floats, load, matrix,
                        save, tensor, tile)
from cli_model import INDEX, put_json, save_folder, split

ROWS, K = 128, 256
BLOCK = "model.layers.0."
GATE, UP, DOWN = (BLOCK + "mlp.%s_proj" % part for part in ("gate", "up", "down"))
Q, KEY, VALUE = (BLOCK + "self_attn.%s_proj" % part for part in "qkv")
FORMATS = ("modelopt", "compressed-tensors")
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
          "rms_norm_eps": 1e-05, "vocab_size": 32, "nothing": None}


def float_model():
    model = {GATE: matrix(ROWS, K, 1), UP: matrix(ROWS, K, 2), DOWN: matrix(48, 144, 3),
             Q: matrix(ROWS, K, 4), KEY: matrix(32, K, 5), VALUE: matrix(32, K, 6)}
    # Another largest value each, so that without sharing no two scales are equal.
    for i, name in enumerate(model):
        values = floats(model[name])
        values[7] = (1 + i / 7) * max(map(abs, values))
        model[name] = tensor("F32", model[name][1], values)
    tensors = {name + ".weight": t for name, t in model.items()}
    tensors["model.norm.weight"] = tensor("BF16", (K,), [1.0] * K)
    tensors["lm_head.weight"] = matrix(32, K, 8, "BF16")
    return tensors


class Names:
    """The tensors of a layer as one of the formats names and stores them."""

    def __init__(self, form):
        self.is_reciprocal = form == "compressed-tensors"
        self.codes = ".weight_packed" if self.is_reciprocal else ".weight"
        self.unit = ".weight_global_scale" if self.is_reciprocal else ".weight_scale_2"
        self.input = ".input_global_scale" if self.is_reciprocal else ".input_scale"

    def scale(self, value):
        """A tensor that means the scale value."""
        return tensor("F32", (1,) if self.is_reciprocal else (),
                      [1 / value if self.is_reciprocal else value])

    def value(self, stored):
        x = floats(stored)[0]
        return fp32(1 / x) if self.is_reciprocal else x


def fp32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def decode(tensors, layer, names):
    """All values, exactly: products of 30 bits at most."""
    unit = names.value(tensors[layer + names.unit])
    codes = tensors[layer + names.codes][2]
    scales = tensors[layer + ".weight_scale"][2]
    out = []
    for i, byte in enumerate(codes):
        scale = SCALES[scales[i // 8]] * unit
        for code in (byte & 15, byte >> 4):
            value = E2M1[code & 7] * scale
            out.append(-value if code & 8 else value)
    return out


def relative(want, got):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(want, got)) /
                     sum(a * a for a in want))


class Repair(NibTest):
    @classmethod
    def setUpClass(cls):
        cls.source = float_model()
        cls.made = {}

    def sound(self, form, *options):
        """Tensors of a sound checkpoint."""
        key = (form, *options)
        if key not in self.made:
            save(self.path("float"), self.source, {"format": "pt"})
            self.nib("quantize", "float", "sound", "--format-out", form, *options)
            self.made[key] = load(self.path("sound"))[0]
            os.remove(self.path("sound"))
        return dict(self.made[key])

    def plant(self, tensors, config=None):
        """Writes a file, or with a config a folder of two shards."""
        if config is None:
            save(self.path("bad"), tensors, {"format": "pt"})
        else:
            self.remove("bad")
            save_folder(self.path("bad"), split(tensors, 2), config)
        self.remove("out")

    def remove(self, name):
        if os.path.isdir(self.path(name)):
            shutil.rmtree(self.path(name))
        elif os.path.exists(self.path(name)):
            os.remove(self.path(name))

    def findings(self, path, code):
        return {(row["finding"], row["name"])
                for row in self.rows("inspect", path, "--brief", code=code)
                if row["finding"] not in ("small-scales", "weak-blocks")}

    def mend(self, *options, code=0):
        """{(finding, name): row} of what repair did; OUT has no findings left."""
        rows = self.rows("repair", "bad", "out", *options, code=code)
        if code == 0:
            self.assertEqual(self.findings("out", 0), set())
            for row in rows:
                self.assertEqual(row["action"], "mended")
        return {(row["finding"], row["name"]): row for row in rows}

    def refuses(self, key, says):
        rows = self.mend(code=1)
        self.assertEqual(rows[key]["action"], "REFUSED")
        self.assertRegex(rows[key]["text"], says)
        self.assertFalse(os.path.exists(self.path("out")))
        result = self.nib("repair", "bad", "out", code=1)
        self.assertIn("nothing was written", result.stdout)

    def copied(self, *but):
        """Every tensor but these is the same in OUT; returns OUT's tensors."""
        old, meta = load(self.path("bad"))
        new, new_meta = load(self.path("out"))
        self.assertEqual(meta, new_meta)
        self.assertEqual(set(old), set(new))
        for name in old:
            if name not in but:
                self.assertEqual(old[name], new[name], name)
            else:
                self.assertNotEqual(old[name], new[name], name)
        return new

    # ---- sound checkpoints --------------------------------------------------

    def test_sound_file_is_copied(self):
        for form in FORMATS:
            self.plant(self.sound(form))
            self.assertEqual(self.mend(), {})
            self.assertEqual(self.read("bad"), self.read("out"))
            text = self.nib("repair", "bad", "out", "--force").stdout
            self.assertIn("nothing to mend: a copy, byte for byte", text)

    def test_sound_folder_is_copied(self):
        for form in FORMATS:
            shutil.rmtree(self.path("in"), ignore_errors=True)
            save_folder(self.path("in"), split(self.source, 3), CONFIG)
            with open(self.path("in/tokenizer.json"), "w") as file:
                file.write("{}")
            self.nib("quantize", "in", "q" + form, "--format-out", form)
            self.assertEqual(self.rows("repair", "q" + form, "r" + form), [])
            self.same_folders("q" + form, "r" + form)
            self.rows("repair", "q" + form + "/" + INDEX, "i" + form)
            self.same_folders("q" + form, "i" + form)

    def same_folders(self, a, b):
        self.assertEqual(sorted(os.listdir(self.path(a))),
                         sorted(os.listdir(self.path(b))))
        for name in os.listdir(self.path(a)):
            self.assertEqual(self.read(a + "/" + name), self.read(b + "/" + name), name)

    # ---- one global scale ---------------------------------------------------

    def check_shared(self, form, group, rows, bad):
        """The copy of a group: one scale, and the error that was reported."""
        names = Names(form)
        out, _ = load(self.path("out"))
        self.assertEqual(len({out[layer + names.unit][2] for layer in group}), 1)
        for layer in group:
            # An engine that fuses the layers has the scale of one for all of them.
            out[layer + names.unit] = out[group[0] + names.unit]
            row = rows["not-shared", layer]
            want, got = decode(bad, layer, names), decode(out, layer, names)
            self.assertAlmostEqual(relative(want, got), row["error"], delta=1e-12)
            self.assertLessEqual(max(abs(a - b) for a, b in zip(want, got)),
                                 row["max_error"] * (1 + 1e-14))
        return out

    def test_fused_layers(self):
        for form in FORMATS:
            bad = self.sound(form, "--no-share")
            self.plant(bad)
            found = self.findings("bad", 0)
            self.assertIn("not-shared", {kind for kind, _ in found})
            rows = self.mend()
            self.assertEqual(set(rows), {("not-shared", layer) for layer in
                                         (Q, KEY, VALUE, GATE, UP)})
            for group in ((Q, KEY, VALUE), (GATE, UP)):
                self.check_shared(form, group, rows, bad)
                errors = [rows["not-shared", layer]["error"] for layer in group]
                # One layer keeps its values, but for scales below 2^-6.
                self.assertLess(min(errors), 1e-3)
                self.assertLess(max(errors), 0.05)
            self.copied(*(layer + end for layer in (Q, KEY, VALUE, GATE, UP) for end in
                          (Names(form).codes, ".weight_scale", Names(form).unit)
                          if self.differs(layer + end)))
            self.assertIn("mended", self.nib("repair", "bad", "out2").stdout)
            self.assertEqual(self.read("out"), self.read("out2"))
            os.remove(self.path("out2"))

    def differs(self, name):
        return load(self.path("bad"))[0][name] != load(self.path("out"))[0][name]

    def test_ratio_that_e4m3_has(self):
        """A power of two keeps every block, but those of the smallest scales."""
        for form in FORMATS:
            names = Names(form)
            for ratio in (4, 0.25):
                bad = self.sound(form)
                bad[UP + names.unit] = names.scale(
                    ratio * names.value(bad[UP + names.unit]))
                # Scales of 2 .. 28 stay numbers of three bits at a fourth.
                for layer in (UP, GATE):
                    scales = bad[layer + ".weight_scale"][2]
                    scales = bytes(0x40 + s % 31 for s in scales)
                    bad[layer + ".weight_scale"] = ("F8_E4M3", [ROWS, K // 16], scales)
                self.plant(bad)
                rows = self.mend()
                self.assertEqual(set(rows), {("not-shared", UP), ("not-shared", GATE)})
                out = self.check_shared(form, (GATE, UP), rows, bad)
                for layer in (GATE, UP):
                    self.assertEqual(rows["not-shared", layer]["error"], 0)
                    self.assertEqual(decode(bad, layer, names),
                                     decode(out, layer, names))
                    self.assertEqual(bad[layer + names.codes], out[layer + names.codes])

    def test_least_error(self):
        """No other scale and codes of a block have a smaller squared error."""
        names = Names("modelopt")
        bad = self.sound("modelopt", "--no-share")
        self.plant(bad)
        self.mend()
        out, _ = load(self.path("out"))
        changed = 0
        for layer in (KEY, VALUE):
            want, got = decode(bad, layer, names), decode(out, layer, names)
            unit = names.value(out[layer + names.unit])
            for at in range(0, 16 * 40, 16):
                block = want[at:at + 16]
                mine = sum((a - b) ** 2 for a, b in zip(block, got[at:at + 16]))
                best = min(sum(min((abs(v) - c * s * unit) ** 2 for c in E2M1)
                               for v in block) for s in SCALES)
                self.assertLessEqual(mine, best * (1 + 1e-9) + 1e-30)
                changed += mine > 0
        self.assertGreater(changed, 10)

    def test_max_error(self):
        """A group is rewritten as a whole or not at all."""
        bad = self.sound("modelopt", "--no-share")
        self.plant(bad)
        self.mend()
        errors = {name: row["error"] for (_, name), row in self.mend("--force").items()}
        limit = sorted(errors.values())[-2]
        groups = ({Q, KEY, VALUE}, {GATE, UP})
        refused = next(g for g in groups if max(errors, key=errors.get) in g)
        other = next(g for g in groups if g != refused)
        options = ("--max-error", (limit + max(errors.values())) / 2)
        self.plant(bad)
        rows = self.mend(*options, code=1)
        self.assertFalse(os.path.exists(self.path("out")))
        for (_, name), row in rows.items():
            self.assertEqual(row["action"], "REFUSED" if name in refused else "mended")
            self.assertEqual(row["error"], errors[name])
            if name in refused:
                self.assertIn("above --max-error" if row["error"] > options[1]
                              else "its group is refused", row["text"])
        self.mend(*options, "--partial", code=1)
        out, _ = load(self.path("out"))
        names = Names("modelopt")
        for layer in refused:
            for end in (names.codes, ".weight_scale", names.unit):
                self.assertEqual(out[layer + end], bad[layer + end])
        for layer in other:
            self.assertEqual(len({out[x + names.unit][2] for x in other}), 1)

    def test_fused_stacks(self):
        """Experts with a global scale each: every pair gets its own."""
        one = self.sound("modelopt", "--no-share")
        bad = {}
        for layer, part in ((GATE, "gate_proj"), (UP, "up_proj")):
            for end in (".weight", ".weight_scale"):
                dtype, shape, data = one[layer + end]
                bad["m.experts." + part + end] = (dtype, [2] + shape, 2 * data)
            unit = floats(one[layer + ".weight_scale_2"])[0]
            bad["m.experts." + part + ".weight_scale_2"] = tensor(
                "F32", (2,), [unit, unit * 3])
        self.plant(bad)
        self.assertEqual(self.findings("bad", 0), {("not-shared", "m.experts.up_proj")})
        self.mend()
        out, _ = load(self.path("out"))
        a, b = (floats(out["m.experts.%s_proj.weight_scale_2" % part])
                for part in ("gate", "up"))
        self.assertEqual(a, b)
        self.assertAlmostEqual(a[1] / a[0], 3, delta=1e-6)

    # ---- input scales -------------------------------------------------------

    def with_inputs(self, form, **values):
        tensors, names = self.sound(form), Names(form)
        for layer, value in values.items():
            tensors[BLOCK + layer.replace("__", ".") + names.input] = \
                names.scale(value)
        return tensors

    def test_inverted_input_scale_that_a_sibling_proves(self):
        for form in FORMATS:
            names = Names(form)
            bad = self.with_inputs(form, mlp__gate_proj=0.004,
                                   mlp__up_proj=1 / fp32(0.004))
            self.plant(bad)
            self.assertIn(("input-scale", UP), self.findings("bad", 0))
            rows = self.mend()
            self.assertIn("which is that of " + GATE, rows["input-scale", UP]["text"])
            out = self.copied(*(layer + names.input for layer in (GATE, UP)
                                if self.differs(layer + names.input)))
            self.assertAlmostEqual(names.value(out[UP + names.input]), 0.004,
                                   delta=1e-8)

    def test_inverted_input_scale_without_proof(self):
        for form in FORMATS:
            names = Names(form)
            self.plant(self.with_inputs(form, mlp__down_proj=300.0))
            self.refuses(("input-scale", DOWN), "suspect: .*--mend input-scale=inverse")
            self.mend("--mend", "input-scale=inverse")
            out = self.copied(DOWN + names.input)
            self.assertAlmostEqual(names.value(out[DOWN + names.input]), 1 / 300,
                                   delta=1e-8)

    def test_input_scales_of_fused_layers(self):
        for form in FORMATS:
            names = Names(form)
            self.plant(self.with_inputs(form, mlp__gate_proj=0.004, mlp__up_proj=0.006))
            rows = self.mend()
            self.assertEqual(set(rows), {("input-not-shared", GATE),
                                         ("input-not-shared", UP)})
            out = self.copied(GATE + names.input)
            self.assertEqual(out[GATE + names.input], out[UP + names.input])

    def test_input_scale_of_no_input(self):
        for form in FORMATS:
            names = Names(form)
            for stored in (0.0, math.inf, math.nan):
                bad = self.with_inputs(form, mlp__gate_proj=0.004)
                bad[UP + names.input] = tensor("F32", bad[GATE + names.input][1],
                                               [stored])
                self.plant(bad)
                rows = self.mend()
                self.assertIn("read the same input",
                              rows["no-input-scale", UP + names.input]["text"])
                out = self.copied(UP + names.input)
                self.assertEqual(out[UP + names.input], out[GATE + names.input])
            bad = self.with_inputs(form, mlp__gate_proj=0.004, mlp__up_proj=0.004)
            bad[DOWN + names.input] = tensor("F32", (), [0.0])
            self.plant(bad)
            self.refuses(("no-input-scale", DOWN + names.input), "calibrate again")

    # ---- scales -------------------------------------------------------------

    def test_tiles(self):
        for form in FORMATS:
            good = self.sound(form)
            bad = dict(good)
            for layer in (GATE, UP):
                name = layer + ".weight_scale"
                bad[name] = (*bad[name][:2], tile(ROWS, K // 16, bad[name][2]))
            self.plant(bad)
            self.assertLessEqual({("tiled-scales", GATE), ("tiled-scales", UP)},
                                 self.findings("bad", 1))
            self.mend()
            out = self.copied(GATE + ".weight_scale", UP + ".weight_scale")
            self.assertEqual(out, good)

    def test_tiles_without_proof(self):
        """Scales of which some are in no order: found, and not certain."""
        for form in FORMATS:
            good, name = self.sound(form), Q + ".weight_scale"
            data, r = bytearray(good[name][2]), random.Random(3)
            places = r.sample(range(len(data)), int(0.3 * len(data)))
            for at, value in zip(places, r.sample([data[at] for at in places],
                                                  len(places))):
                data[at] = value
            good[name] = (*good[name][:2], bytes(data))
            bad = dict(good)
            bad[name] = (*good[name][:2], tile(ROWS, K // 16, bytes(data)))
            self.plant(bad)
            self.refuses(("tiled-scales", Q), "likely and not proved")
            self.mend("--mend", "tiled-scales=untile")
            self.assertEqual(self.copied(name), good)

    def test_padding(self):
        """The sizes show that there is padding, its zeros how it is laid out."""
        for form in FORMATS:
            good = self.sound(form)
            name = DOWN + ".weight_scale"
            rows, groups = good[name][1]
            data = good[name][2]
            linear = bytearray(128 * 12)
            for r in range(rows):
                linear[r * 12:r * 12 + groups] = data[r * groups:(r + 1) * groups]
            for stored, says in ((linear, "rows"),
                                 (tile(128, 12, linear), "128x4 tiles")):
                bad = dict(good)
                bad[name] = ("F8_E4M3", [128, 12], bytes(stored))
                self.plant(bad)
                self.assertEqual(self.findings("bad", 1), {("half-layer", DOWN)})
                rows_ = self.mend()
                self.assertIn("only as " + says, rows_["half-layer", DOWN]["text"])
                self.assertEqual(self.copied(name), good)
            bad[name] = ("F8_E4M3", [128, 12], bytes([0x38] * (128 * 12)))
            self.plant(bad)
            self.refuses(("half-layer", DOWN), "does not show whether they are tiles")

    def test_signs_and_nan(self):
        for form in FORMATS:
            names, good = Names(form), self.sound(form)
            codes, scales = GATE + names.codes, GATE + ".weight_scale"
            for byte, finding, choice, becomes in (
                    (0xB8, "scale-sign", "scale-sign=clear", 0x38),
                    (0x7F, "scale-nan", "scale-nan=448", 0x7E)):
                bad = dict(good)
                # Block 5 has only zeros, so that its scale does not matter.
                bad[codes] = (*good[codes][:2], good[codes][2][:40] +
                              b"\x08\x80" * 4 + good[codes][2][48:])
                data = bytearray(good[scales][2])
                data[5] = byte
                bad[scales] = (*good[scales][:2], bytes(data))
                self.plant(bad)
                self.assertEqual(self.findings("bad", 1), {(finding, GATE)})
                self.mend()
                out = self.copied(scales)
                self.assertEqual(out[scales][2][5], 0x38)
                self.assertEqual(out[scales][2][6:], good[scales][2][6:])
                data[9] = byte
                bad[scales] = (*good[scales][:2], bytes(data))
                self.plant(bad)
                self.refuses((finding, GATE), "1 block .*export again")
                self.mend("--partial", code=1)
                self.assertEqual(self.read("bad"), self.read("out"))
                os.remove(self.path("out"))
                self.mend("--mend", choice)
                self.assertEqual(self.copied(scales)[scales][2][9], becomes)

    def test_reciprocal_global(self):
        for form in FORMATS:
            names, bad = Names(form), self.sound(form)
            good = dict(bad)
            bad[DOWN + names.unit] = names.scale(
                1 / names.value(good[DOWN + names.unit]))
            self.plant(bad)
            self.assertEqual(self.findings("bad", 1), {("reciprocal-global", DOWN)})
            self.mend()
            out = self.copied(DOWN + names.unit)
            self.assertAlmostEqual(names.value(out[DOWN + names.unit]) /
                                   names.value(good[DOWN + names.unit]), 1, delta=1e-6)

    def test_global_scales_that_are_none(self):
        for form in FORMATS:
            names = Names(form)
            for value in (0.0, -1.0, math.nan, math.inf):
                bad = self.sound(form)
                bad[DOWN + names.unit] = tensor("F32", (), [value])
                self.plant(bad)
                self.refuses(("half-layer", DOWN), "positive number: export again")

    def test_several_faults_in_one_layer(self):
        """Scales are put in rows before they are shared."""
        for form in FORMATS:
            names = Names(form)
            good = self.sound(form, "--no-share")
            self.plant(good)
            self.mend()
            want, _ = load(self.path("out"))
            bad = dict(good)
            name = UP + ".weight_scale"
            bad[name] = (*bad[name][:2], tile(ROWS, K // 16, bad[name][2]))
            bad[UP + names.unit] = tensor(
                "F32", bad[UP + names.unit][1], [1 / floats(bad[UP + names.unit])[0]])
            self.plant(bad)
            self.mend()
            out, _ = load(self.path("out"))
            for layer in (GATE, UP):
                self.assertLess(relative(decode(want, layer, names),
                                         decode(out, layer, names)), 1e-6)

    # ---- config.json --------------------------------------------------------

    def quantised_config(self, form):
        save_folder(self.path("in"), split(self.source, 1), CONFIG)
        self.nib("quantize", "in", "q", "--format-out", form)
        with open(self.path("q/config.json")) as file:
            config = json.load(file)
        shutil.rmtree(self.path("in"))
        shutil.rmtree(self.path("q"))
        return config

    def config_of(self, folder):
        with open(self.path(folder + "/config.json")) as file:
            return json.load(file)

    def test_ignore_lists(self):
        for form in FORMATS:
            config = self.quantised_config(form)
            good = self.sound(form)
            quant = config["quantization_config"]
            self.assertIn("lm_head", quant["ignore"])
            for ignore in (None, ["model.head"], ["lm_head", UP]):
                bad = dict(config, quantization_config=dict(quant, ignore=ignore))
                if ignore is None:
                    del bad["quantization_config"]["ignore"]
                self.plant(good, bad)
                rows = self.mend()
                left = self.config_of("out")["quantization_config"]["ignore"]
                self.assertIn("lm_head", left)
                self.assertNotIn(UP, left)
                self.assertEqual(set(rows), {("config", UP)} if ignore and UP in ignore
                                 else {("not-ignored", "config.json")})
                self.same_rest(bad)
            self.plant(good, dict(config, quantization_config=dict(
                quant, ignore=["lm_head", "re:.*up_proj" if form != "modelopt"
                               else "*up_proj"])))
            self.refuses(("config", UP), "the pattern .* leaves out this layer")

    def same_rest(self, bad):
        out = self.config_of("out")
        del out["quantization_config"]
        self.assertEqual(out, {k: v for k, v in bad.items()
                               if k != "quantization_config"})
        for i in range(2):
            name = "model-%05d-of-00002.safetensors" % (i + 1)
            self.assertEqual(self.read("bad/" + name), self.read("out/" + name))

    def test_missing_fields(self):
        for form in FORMATS:
            config = self.quantised_config(form)
            good = self.sound(form)
            for field in (["quant_method"], ["quant_algo"], ["format"],
                          ["config_groups"], ["quant_method", "quant_algo"]):
                quant = dict(config["quantization_config"])
                if not any(key in quant for key in field):
                    continue
                for key in field:
                    quant.pop(key, None)
                if field == ["format"]:
                    quant["config_groups"] = {"group_0": {"targets": ["Linear"]}}
                self.plant(good, dict(config, quantization_config=quant))
                if form == "modelopt" and field == ["config_groups"]:
                    self.assertEqual(self.mend(), {})
                    continue
                self.assertIn(("config-field", "config.json"), self.findings("bad", 1))
                self.mend()
                out = self.config_of("out")["quantization_config"]
                for key in field:
                    self.assertEqual(out.get(key),
                                     config["quantization_config"].get(key))
                self.same_rest(config)

    def test_no_quantisation_at_all(self):
        for form in FORMATS:
            config = self.quantised_config(form)
            self.plant(self.sound(form), CONFIG)
            rows = self.mend()
            self.assertEqual(set(rows), {("config", "config.json")})
            self.assertEqual(self.config_of("out"), config)
            # With an input scale each it is W4A4.
            bad = self.with_inputs(form, **{
                layer[len(BLOCK):].replace(".", "__"): 0.004
                for layer in (Q, KEY, VALUE, GATE, UP, DOWN)})
            self.plant(bad, CONFIG)
            self.mend()
            quant = self.config_of("out")["quantization_config"]
            self.assertTrue(quant["config_groups"]["group_0"]["input_activations"])
            self.assertEqual(quant.get("quant_algo", "NVFP4"), "NVFP4")
            del bad[DOWN + Names(form).input]
            self.plant(bad, CONFIG)
            self.refuses(("config", "config.json"), "and others none")

    def test_activations_without_scales(self):
        for form in FORMATS:
            config = self.quantised_config(form)
            quant = config["quantization_config"]
            if form == "modelopt":
                quant["quant_algo"] = "NVFP4"
            quant["config_groups"]["group_0"]["input_activations"] = {"num_bits": 4}
            self.plant(self.sound(form), config)
            self.assertEqual(self.findings("bad", 1), {("config-input", "config.json")})
            self.mend()
            quant = self.config_of("out")["quantization_config"]
            self.assertIsNone(quant["config_groups"]["group_0"]["input_activations"])
            self.assertEqual(quant.get("quant_algo", "W4A16_NVFP4"), "W4A16_NVFP4")

    def test_text_of_config_stays(self):
        text = ('{\n  "a": [1e-05, "}\\"{", {"quantization_config": 1}],\n  "n": NaN,'
                '\n  "quantization_config" : %s , "z": 1.10}\n')
        quant = self.quantised_config("modelopt")["quantization_config"]
        del quant["ignore"]
        self.plant(self.sound("modelopt"), {})
        with open(self.path("bad/config.json"), "w") as file:
            file.write(text % json.dumps(quant))
        self.mend()
        with open(self.path("out/config.json")) as file:
            got = file.read()
        begin, end = text.split("%s")
        self.assertTrue(got.startswith(begin))
        self.assertTrue(got.endswith(end))
        quant["ignore"] = ["lm_head"]
        self.assertEqual(json.loads(got[len(begin):-len(end)]), quant)

    def test_both_lists(self):
        quant = self.quantised_config("modelopt")["quantization_config"]
        quant["ignore"] = []
        self.plant(self.sound("modelopt"), dict(CONFIG, quantization_config=quant))
        older = {"quantization": {"quant_algo": "W4A16_NVFP4", "exclude_modules": []}}
        put_json(self.path("bad"), "hf_quant_config.json", older)
        self.mend()
        with open(self.path("out/hf_quant_config.json")) as file:
            self.assertEqual(json.load(file)["quantization"]["exclude_modules"],
                             ["lm_head"])

    # ---- the command --------------------------------------------------------

    def test_folder_with_one_changed_shard(self):
        bad = self.sound("modelopt")
        shards = split(bad, 2)
        self.plant(bad, {})
        name = DOWN + ".weight_scale_2"
        shard = next(i for i, part in enumerate(shards) if name in part)
        shards[shard][name] = tensor("F32", (), [1 / floats(bad[name])[0]])
        shutil.rmtree(self.path("bad"))
        save_folder(self.path("bad"), shards, None)
        self.mend()
        files = ["model-%05d-of-00002.safetensors" % (i + 1) for i in range(2)]
        self.assertEqual(self.read("bad/" + files[1 - shard]),
                         self.read("out/" + files[1 - shard]))
        self.assertNotEqual(self.read("bad/" + files[shard]),
                            self.read("out/" + files[shard]))

    def test_partial_and_dry_run(self):
        bad = self.with_inputs("modelopt", mlp__gate_proj=0.004, mlp__up_proj=0.006,
                               mlp__down_proj=300.0)
        self.plant(bad)
        rows = self.mend("--dry-run", code=1)
        self.assertEqual({row["action"] for row in rows.values()},
                         {"mended", "REFUSED"})
        self.assertFalse(os.path.exists(self.path("out")))
        self.mend("--partial", code=1)
        self.copied(GATE + ".input_scale")
        self.assertEqual(self.findings("out", 0), {("input-scale", DOWN)})

    def test_refused_problems(self):
        bad = self.sound("modelopt")
        bad["model.norm.weight"] = tensor("BF16", (K,), [math.nan] * K)
        del bad[DOWN + ".weight_scale_2"]
        self.plant(bad)
        self.refuses(("not-finite", "model.norm.weight"), "256 NaN")
        self.refuses(("half-layer", DOWN), "weight_scale_2 is missing: export again")

    def test_usage(self):
        self.plant(self.sound("modelopt"))
        self.refused("repair", "bad", "out", "--mend", "tiles", code=2,
                     says="--mend tiles: must be of input-scale=inverse")
        self.refused("repair", "bad", "bad", "--force", code=2, says="the same file")
        self.write("there", b"x")
        self.refused("repair", "bad", "there", code=2, says="--force replaces it")
        self.refused("repair", "absent", "out", code=3, says="No such file")
        self.plant(self.sound("modelopt"), {})
        self.refused("repair", "bad", "bad", code=2, says="not empty")

    def test_full_disk(self):
        """Neither a copy nor a file written anew is left in part."""
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

        for tensors in (self.sound("modelopt"), self.sound("modelopt", "--no-share")):
            self.plant(tensors)
            result = self.nib("repair", "bad", "out", code=4, preexec_fn=limit)
            self.assertIn("File too large", result.stderr)
            self.assertEqual(sorted(os.listdir(self.folder)),
                             sorted({"bad", "float"} & set(os.listdir(self.folder))))


if __name__ == "__main__":
    unittest.main(verbosity=2)
