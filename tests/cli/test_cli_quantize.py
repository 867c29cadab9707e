#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nib quantize on folders, and on experts that are stored as stacks."""

import array
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import time
import unittest

from cli_common import (NIB, NibTest, is_instrumented, load, matrix, nib, save,
                        save_sparse, tensor, without_override)
from cli_model import (INDEX, QUANTISED, ModelTest, put_json, save_folder, shard_name,
                       split)

EXPERTS, N, K = 3, 32, 48
FUSED = "m.layers.0.mlp.experts"


def stack(batch, rows, k, seed, dtype="F32"):
    dtype, _, data = matrix(batch * rows, k, seed, dtype)
    return dtype, [batch, rows, k], data


def cut(tensor, begin, end):
    """Rows of a stack as a matrix."""
    dtype, (_, _, k), data = tensor
    size = len(data) // (tensor[1][0] * tensor[1][1])
    return dtype, [end - begin, k], data[begin * size:end * size]


def turn(tensor):
    """A stack [E, a, b] as [E, b, a]."""
    dtype, (experts, a, b), data = tensor
    values = array.array({2: "H", 1: "B"}[len(data) // (experts * a * b)], data)
    out = b"".join(values[e * a * b + c:(e + 1) * a * b:b].tobytes()
                   for e in range(experts) for c in range(b))
    return dtype, [experts, b, a], out


class Experts(NibTest):
    def reasons(self, tensors, *args):
        save(self.path("in"), tensors)
        return {row["tensor"]: row["reason"] for row in
                self.rows("quantize", "in", "out", "--dry-run", *args)}

    def test_fused_experts_become_layers_of_each(self):
        gate_up = stack(EXPERTS, 2 * N, K, 1, "BF16")
        down = stack(EXPERTS, K, N, 2, "BF16")
        save(self.path("fused"), {FUSED + ".gate_up_proj": gate_up,
                                  FUSED + ".down_proj": down})
        tensors = {}
        for e in range(EXPERTS):
            at, name = 2 * N * e, f"{FUSED}.{e}."
            tensors[name + "gate_proj.weight"] = cut(gate_up, at, at + N)
            tensors[name + "up_proj.weight"] = cut(gate_up, at + N, at + 2 * N)
            tensors[name + "down_proj.weight"] = cut(down, K * e, K * (e + 1))
        save(self.path("each"), tensors)
        for args in ((), ("--format-out", "compressed-tensors"),
                     ("--no-share",)):
            rows = [sorted(self.rows("quantize", "--force", path, "out" + path,
                                     *args), key=lambda row: row["tensor"])
                    for path in ("fused", "each")]
            self.assertEqual(*rows)
            self.assertEqual(len(rows[0]), 3 * EXPERTS)
            self.assertTrue(all(row["to"] == "NVFP4" for row in rows[0]))
            self.assertEqual(*(load(self.path("out" + path))[0]
                               for path in ("fused", "each")))
        verified, want = (sorted(self.rows("verify", path, "outfused"),
                                 key=lambda row: row["name"])
                          for path in ("fused", "each"))
        self.assertEqual(verified, want)
        self.assertEqual({row["name"] for row in verified},
                         {row["tensor"] for row in rows[0]})
        self.assertTrue(all(row["ok"] for row in verified))
        row, = self.rows("verify", "fused", "outfused", "--layer",
                         FUSED + ".1.up_proj")
        self.assertIn(row, verified)
        # Tensors of the same name are compared whole.
        same = self.rows("verify", "fused", "fused")
        self.assertEqual([row["shape"] for row in same],
                         [[3, 64, 48], [3, 48, 32]])
        # Layers of each expert that are floats, as in "each".
        self.assertEqual(len(self.rows("verify", "fused", "each")), 9)
        text = self.nib("quantize", "--force", "fused", "out").stdout
        self.assertIn("9 of 9 tensors are NVFP4 now; 27.0 KiB -> ", text)

    def test_fused_experts_of_other_layouts_are_copied(self):
        names = [FUSED + ".gate_up_proj", FUSED + ".down_proj"]

        def reason(*shapes):
            tensors = {name: stack(*shape, 1)
                       for name, shape in zip(names, shapes)}
            found = set(self.reasons(tensors).values())
            self.assertEqual(len(found), 1)
            return found.pop()
        self.assertEqual("", reason((2, 2 * N, K), (2, K, N)))
        self.assertEqual("", reason((2, K, 2 * N), (2, N, K)))  # across
        # Sizes that do not fit, or are not multiples of 16, also across.
        for shapes in (((2, 2 * N, K), (3, K, N)), ((2, 48, 48), (2, 48, 24)),
                       ((2, 64, 40), (2, 40, 32)), ((2, 40, 64), (2, 32, 40)),
                       ((2, 48, 48), (2, 24, 48))):
            self.assertIn("not as [experts, n, k]", reason(*shapes))
        self.assertIn("without *.experts.down_proj", reason((2, 64, 48)))

    def check_across(self, gate_up, down):
        """Stacks [experts, n, k], which as [experts, k, n] become the same codes and
        scales, turned."""
        names = [FUSED + ".gate_up_proj", FUSED + ".down_proj"]
        save(self.path("in"), dict(zip(names, map(turn, (gate_up, down)))))
        save(self.path("whole"), {"m.moe.0.weight": gate_up, "m.moe.1.weight": down})
        rows = self.rows("quantize", "in", "out", "--force")
        want = self.rows("quantize", "whole", "want", "--force")
        got, wanted = (load(self.path(x))[0] for x in ("out", "want"))
        self.assertEqual(len(got), 6)
        for i, (name, row, right) in enumerate(zip(names, rows, want)):
            self.assertEqual(row["tensor"], name)
            self.assertEqual(row["shape"],
                             [*right["shape"][:1], *right["shape"][:0:-1]])
            for key in ("to", "global", "bytes_out", "max_error"):
                self.assertEqual(row[key], right[key])
            self.assertAlmostEqual(row["sqnr_db"], right["sqnr_db"], 6)
            for key, other in (("", ""), ("_weight_scale", "_scale"),
                               ("_weight_scale_2", "_scale_2")):
                stored = wanted[f"m.moe.{i}.weight{other}"]
                self.assertEqual(got[name + key], turn(stored) if stored[1] else stored)
        # nib verify reads them, as the original or as its copy.
        for verified in (self.rows("verify", "in", "out"),
                         self.rows("verify", "out", "in")):
            self.assertEqual([row["name"] for row in verified], names)
            for row, right in zip(verified, rows):
                self.assertEqual(row["shape"], right["shape"])
                self.assertEqual(row["max_error"], right["max_error"])
                self.assertEqual([row["row"], row["col"]],
                                 [right["max_error_row"], right["max_error_col"]])
        self.assertTrue(all(row["identical"]
                            for row in self.rows("verify", "out", "out")))
        return rows, want

    def test_fused_experts_across_stay_so(self):
        rows, want = self.check_across(stack(EXPERTS, 2 * N, K, 1, "BF16"),
                                       stack(EXPERTS, K, N, 2, "BF16"))
        for row, right in zip(rows, want):
            # Where the largest error is, in the stack as it is stored.
            e, n = divmod(right["max_error_row"], right["shape"][1])
            self.assertEqual(row["max_error_row"],
                             e * right["shape"][2] + right["max_error_col"])
            self.assertEqual(row["max_error_col"], n)
        found = [row for row in self.rows("inspect", "out") if row["kind"] == "finding"]
        self.assertEqual([(row["finding"], row["severity"]) for row in found],
                         2 * [("packed-across", "note")])
        # Wrong global scales show, and those that are none.
        tensors = load(self.path("out"))[0]
        name = FUSED + ".down_proj_weight_scale_2"
        scale = array.array("f", tensors[name][2])[0]
        for factors, code, remark in (((1, 1, 1), 0, ""), ((1, 1, 4), 1, ""),
                                      ((4, 4, 4), 1, "multiplied by 0.2"),
                                      ((1, 1, 0), 1, "B has none of this name")):
            save(self.path("other"), tensors | {name: tensor(
                "F32", (EXPERTS,), [scale * x for x in factors])})
            verified = self.rows("verify", "in", "other", code=code)
            self.assertTrue(verified[0]["ok"])
            self.assertIn(remark, verified[1]["text"])
            if factors == (1, 1, 4):
                self.assertGreaterEqual(verified[1]["row"], 2 * N)
        for row in self.rows("quantize", "in", "out", "--force", "--format-out",
                             "compressed-tensors"):
            self.assertEqual(row["to"], "BF16")
            self.assertIn("only ModelOpt's format", row["reason"])

    def test_fused_experts_across_in_pieces(self):
        """64 x 131072 values are two pieces of 16 MiB."""
        n, k = 131072, 64
        few = matrix(64, 61, 3, "BF16")[2]

        def long(*shape):
            size = 2 * math.prod(shape)
            return "BF16", list(shape), (few * (size // len(few) + 1))[:size]
        self.check_across(long(1, n, k), long(1, k, n // 2))

    def test_stacks(self):
        tensor = stack(3, 16, 32, 5)
        name = "m.block_sparse_moe.fc2.weight"
        flat = {name: (tensor[0], [48, 32], tensor[2])}
        for args in ((), ("--format-out", "compressed-tensors")):
            save(self.path("in"), {name: tensor})
            row, = self.rows("quantize", "in", "out", "--force", *args)
            self.assertEqual(row["shape"], [3, 16, 32])
            save(self.path("in"), flat)
            want, = self.rows("quantize", "in", "flat", "--force", *args)
            want["shape"] = row["shape"]
            self.assertEqual(row, want)
            got, want = (load(self.path(x))[0] for x in ("out", "flat"))
            self.assertEqual({name: t[2] for name, t in got.items()},
                             {name: t[2] for name, t in want.items()})
            layer, = self.rows("inspect", "out")
            self.assertEqual(layer["shape"], [3, 16, 32])

    def test_other_stacks_are_copied_unless_asked_for(self):
        tensors = {"a.conv.weight": stack(3, 16, 32, 5)}
        self.assertEqual(self.reasons(tensors), {
            "a.conv.weight":
            "3-D, and not named as experts: --include selects it"})
        self.assertEqual(self.reasons(tensors, "--all"),
                         self.reasons(tensors))
        self.assertEqual(self.reasons(tensors, "--include", "a.*"),
                         {"a.conv": ""})

    def test_what_engines_leave_is_left(self):
        for name in ("m.mlp.shared_expert_gate.weight", "m.mlp.gate.weight",
                     "visual.blocks.0.mlp.up_proj.weight",
                     "m.vision_tower.q_proj.weight"):
            self.assertRegex(self.reasons({name: matrix(16, 32, 1)})[name],
                             "default exclude")


class Folders(ModelTest):
    CONFIG = {"architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-06,
              "rope_theta": 10000.5, "hidden_size": 128}

    def setUp(self):
        super().setUp()
        save_folder(self.path("model"), split(self.source, 3), self.CONFIG)

    def load_json(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    def load_shards(self, folder):
        """All tensors, and the map that an index of them has."""
        tensors, weight_map = {}, {}
        for i in range(3):
            shard, metadata = load(self.path(f"{folder}/{shard_name(i, 3)}"))
            self.assertEqual(metadata["format"], "pt")
            tensors |= shard
            weight_map |= dict.fromkeys(shard, shard_name(i, 3))
        return tensors, weight_map

    def test_shards_hold_what_one_file_would(self):
        for args in ((), ("--format-out", "compressed-tensors"), ("--no-share",)):
            want = self.quantize("--force", *args)
            out = "nvfp4" + "".join(args)
            rows = self.rows("quantize", "model", out + "/", *args)
            self.assertEqual(*(sorted(x, key=lambda row: row["tensor"])
                               for x in (rows, want)))
            tensors, weight_map = self.load_shards(out)
            self.assertEqual(tensors, load(self.path("out"))[0])
            index = self.load_json(f"{out}/{INDEX}")
            self.assertEqual(index["weight_map"], weight_map)
            self.assertEqual(index["metadata"]["total_size"],
                             sum(len(data) for _, _, data in tensors.values()))
            # Layers stay in the shards of their weights.
            _, before = self.load_shards("model")
            for name in QUANTISED:
                self.assertEqual(weight_map[name + ".weight_scale"],
                                 before[name + ".weight"])
            self.assertEqual(*(sorted(self.rows("verify", *x),
                                      key=lambda row: row["name"])
                               for x in (("model", out), ("in", "out"))))
            self.assertFalse({row["finding"] for row in self.rows(
                "inspect", out, code=1)} - {None, "all-zero", "not-shared"})

    def test_what_engines_fuse_shares_a_global_scale(self):
        for siblings in (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"),
                         ("w1", "w3"), ("q_a_proj", "kv_a_proj_with_mqa"),
                         ("in_proj_qkv", "in_proj_z"), ("in_proj_b", "in_proj_a"),
                         ("query", "key", "value"), ("to_q", "to_k", "to_v"),
                         ("wq", "wk", "wv"), ("q", "k", "v"), ("gate", "up"),
                         ("q_lin", "k_lin", "v_lin"), ("wi_0", "wi_1"),
                         ("query_proj", "key_proj", "value_proj"),
                         ("add_q_proj", "add_k_proj", "add_v_proj"),
                         ("linear_q", "linear_k", "linear_v")):
            tensors = {f"m.{layer}.{name}.weight": matrix(16, 32, 7 * layer + i)
                       for layer in (0, 10) for i, name in enumerate(siblings)}
            for n in (1, len(tensors)):
                save_folder(self.path("m"), split(tensors, n), {})
                self.nib("quantize", "m", "shared", "--all")
                found = {}
                for name, layer in ((row["name"], row) for row in self.rows(
                        "inspect", "shared") if row["kind"] == "layer"):
                    found.setdefault(name.rpartition(".")[0], set()).add(
                        layer["global"])
                self.assertEqual([len(x) for x in found.values()], [1, 1], found)
                self.assertNotEqual(*found.values())
                for x in ("m", "shared"):
                    shutil.rmtree(self.path(x))

    def test_configuration(self):
        self.nib("quantize", "model", "a")
        self.nib("quantize", "model/" + INDEX, "b", "--format-out",
                 "compressed-tensors")
        left = ["lm_head", "model.embed_tokens", "model.layers.0.odd",
                "model.layers.0.stack"]
        weights = {"num_bits": 4, "type": "float", "group_size": 16,
                   "dynamic": False}
        configs = [self.load_json(x + "/config.json") for x in "ab"]
        a, b = (config.pop("quantization_config") for config in configs)
        self.assertEqual(configs, 2 * [self.CONFIG])
        self.assertEqual(sorted(a.pop("ignore")), left)
        self.assertEqual(a.pop("producer")["name"], "nibblas")
        self.assertEqual(a, {
            "quant_method": "modelopt", "quant_algo": "W4A16_NVFP4",
            "config_groups": {"group_0": {"targets": ["Linear"],
                                          "weights": weights}}})
        file = self.load_json("a/hf_quant_config.json")["quantization"]
        self.assertEqual(sorted(file.pop("exclude_modules")), left)
        self.assertEqual(file, {"quant_algo": "W4A16_NVFP4", "group_size": 16,
                                "kv_cache_quant_algo": None})
        self.assertEqual(sorted(b["ignore"]), left)
        self.assertEqual((b["quant_method"], b["format"]),
                         ("compressed-tensors", "nvfp4-pack-quantized"))
        group = b["config_groups"]["group_0"]
        self.assertIsNone(group["input_activations"])
        self.assertEqual(group["weights"], weights | {
            "symmetric": True, "strategy": "tensor_group"})
        self.assertNotIn("hf_quant_config.json", os.listdir(self.path("b")))
        self.assertIn("quantised by: modelopt, W4A16_NVFP4\n",
                      self.nib("inspect", "a", code=1).stdout)

    def test_the_text_of_the_configuration_stays(self):
        quant = r',\n  "quantization_config": \{\n    "config_groups": \{\n      "'
        for text, begin in (
                ('{\n  "eps": 1e-06,\n  "limit": [0.0, Infinity, -Infinity],\n'
                 '  "x": NaN, "s": "NaN \\" Infinity"\n}\n', None),
                ('{"a": {"b": 1}}', '{"a": {"b": 1}'), ("{ }", "{")):
            self.write("model/config.json", text.encode())
            self.nib("quantize", "model", "out", "--exclude", "*")
            self.assertEqual(self.read("out/config.json").decode(), text)
            shutil.rmtree(self.path("out"))
            self.nib("quantize", "model", "out")
            got = self.read("out/config.json").decode()
            begin = begin or text[:-3]
            self.assertTrue(got.startswith(begin), got)
            self.assertRegex(got[len(begin):], "^" + quant[begin == "{":])
            want, config = json.loads(text), json.loads(got)
            self.assertEqual(config.pop("quantization_config")["quant_algo"],
                             "W4A16_NVFP4")
            self.assertEqual(str(config), str(want))
            self.assertNotIn("left out", self.nib(
                "inspect", "out", code=1).stderr)
            shutil.rmtree(self.path("out"))

    def test_lm_head_and_experts_in_the_configuration(self):
        fused = "m.layers.1.experts"
        tensors = {"lm_head.weight": matrix(32, 64, 1),
                   fused + ".gate_up_proj": stack(2, 48, 64, 1),
                   fused + ".down_proj": stack(2, 48, 32, 1)}
        save_folder(self.path("m"), [tensors], {})
        for args, want in ((("--all",), [fused]), ((), ["lm_head", fused])):
            out = "out" + "".join(args)
            if not args:  # lm_head is left out: something else must be quantised
                tensors["q_proj.weight"] = matrix(32, 64, 1)
                save_folder(self.path("m"), [tensors], {})
            self.nib("quantize", "m", out, *args)
            config = self.load_json(out + "/config.json")
            self.assertEqual(config["quantization_config"]["ignore"], want)

    def test_vision_towers_in_the_configuration(self):
        names = ["q_proj", "visual.0.q_proj", "visual.1.k_proj", "m.vision.up_proj"]
        save_folder(self.path("m"), [{name + ".weight": matrix(32, 64, 1)
                                      for name in names}], {})
        for args, want in (
                ((), ["*vision*", "*visual*", "lm_head"]),
                (("--format-out", "compressed-tensors"),
                 ["lm_head", "re:.*vision.*", "re:.*visual.*"]),
                (("--include", "q*,visual.0*"),
                 ["*vision*", "lm_head", "visual.1.k_proj"])):
            self.nib("quantize", "m", "out", *args)
            config = self.load_json("out/config.json")["quantization_config"]
            self.assertEqual(sorted(config["ignore"]), want)
            self.assertEqual([row["kind"] for row in self.rows("inspect", "out")
                              if row["kind"] == "finding"], [])
            shutil.rmtree(self.path("out"))

    def test_other_files(self):
        for name in ("tokenizer.json", "merges.txt", "LICENSE", "empty.jinja",
                     "pytorch_model.bin", "pytorch_model.bin.index.json",
                     "other.safetensors", ".hidden"):
            self.write("model/" + name, name.encode() * (70000 % len(name) * 9000))
        os.mkdir(self.path("model/original"))
        os.mkdir(self.path("out"))
        self.nib("quantize", "model", "out")
        shards = {shard_name(i, 3) for i in range(3)}
        copied = {"tokenizer.json", "merges.txt", "LICENSE", "empty.jinja"}
        self.assertEqual(set(os.listdir(self.path("out"))), shards | copied | {
            INDEX, "config.json", "hf_quant_config.json"})
        for name in copied:
            self.assertEqual(self.read("out/" + name), self.read("model/" + name))
        self.assertEqual(set(os.listdir(self.folder)), {"in", "model", "out"})

    def test_one_file_in_a_folder(self):
        os.mkdir(self.path("m"))
        save(self.path("m/weights.safetensors"), self.source, {"format": "pt"})
        result = self.nib("quantize", "m", "nvfp4")
        self.assertIn("m has no config.json", result.stderr)
        self.quantize()
        self.assertEqual(self.read("nvfp4/model.safetensors"), self.read("out"))
        self.assertEqual(set(os.listdir(self.path("nvfp4"))),
                         {"model.safetensors", "hf_quant_config.json"})

    def test_nothing_to_quantise(self):
        result = self.nib("quantize", "model", "out", "--exclude", "*")
        self.assertIn("no tensor to quantise", result.stderr)
        self.assertEqual(self.load_json("out/config.json"), self.CONFIG)
        self.assertNotIn("hf_quant_config.json", os.listdir(self.path("out")))
        self.assertEqual(self.load_shards("out")[0], self.source)

    def test_gptq_names_its_command(self):
        self.refused("quantize", "in", "out", "--method", "gptq", "--calibration",
                     "text.jsonl", code=2, says="python3 -m nibblas.gptq in out "
                     "--calibration text.jsonl")

    def test_refusals(self):
        def refuse(*args, code, says):
            self.refused("quantize", *args, code=code, says=says)
            self.assertEqual(set(os.listdir(self.folder)),
                             {"in", "model", "out", "file"})
        os.mkdir(self.path("out"))
        self.write("out/precious", b"1")
        self.write("file", b"1")
        for force in ((), ("--force",)):
            refuse("model", "out", *force, code=2, says="out: .*not empty")
            refuse("model", "model", *force, code=2, says="not empty")
            refuse("model", "file", *force, code=2, says="file: a file; .*folder")
        refuse("model", "no/such/out", code=4, says="no/such/out.*No such file")
        put_json(self.path("model"), "config.json", self.CONFIG | {
            "quantization_config": {"quant_method": "fp8"}})
        refuse("model", "new", code=3, says=r"quantised already \(fp8\)")
        put_json(self.path("model"), "config.json", {"quantization_config": None})
        refuse("model", "new", code=3, says="model/config.json: .*no object")
        self.write("model/config.json", b"{")
        result = self.nib("quantize", "model", "new", code=3)
        self.assertRegex(result.stderr, "config.json: line 1: (?s:.*)cannot be read")
        put_json(self.path("model"), "config.json", self.CONFIG)
        os.remove(self.path("model/" + shard_name(1, 3)))
        refuse("model", "new", code=3, says="00002-of-00003.safetensors: "
               "cannot open: .*; the index says that it holds '")

    def test_dry_run_writes_nothing(self):
        rows = self.rows("quantize", "model", "out", "--dry-run")
        self.assertEqual({row["tensor"] for row in rows if row["to"] == "NVFP4"},
                         set(QUANTISED))
        self.assertEqual(set(os.listdir(self.folder)), {"in", "model"})

    @unittest.skipIf(is_instrumented([b"tsan"]),
                     "ThreadSanitizer maps a file longer than the limit")
    def test_full_disk_leaves_nothing(self):
        for limit in (8192, 200):  # a shard, and a file next to them
            def set_limit(size=limit):
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            result = nib("quantize", "model", "out", cwd=self.folder,
                         preexec_fn=set_limit)
            self.assertEqual(result.returncode, 4)
            self.assertRegex(result.stderr, "out.*(large|space)")
            self.assertEqual(set(os.listdir(self.folder)), {"in", "model"})

    def test_link_to_nothing(self):
        """Found before the work, also by --dry-run."""
        os.symlink("gone", self.path("model/tokenizer.json"))
        for more in ((), ("--dry-run",)):
            result = nib("quantize", "model", "out", *more, cwd=self.folder)
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn("model/tokenizer.json: No such file", result.stderr)
        os.remove(self.path("model/tokenizer.json"))
        os.remove(self.path("model/config.json"))
        os.symlink("gone", self.path("model/config.json"))
        result = nib("quantize", "model", "out", cwd=self.folder)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("config.json: No such file", result.stderr)
        self.assertEqual(set(os.listdir(self.folder)), {"in", "model"})

    def test_file_that_may_not_be_read(self):
        """Found before the work, also by --dry-run."""
        with open(self.path("model/tokenizer.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        os.chmod(self.path("model/tokenizer.json"), 0)
        for more in ((), ("--dry-run",)):
            result = nib("quantize", "model", "out", *more, cwd=self.folder,
                         preexec_fn=without_override)
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn("model/tokenizer.json: Permission denied", result.stderr)
            self.assertEqual(result.stdout, "")
        self.assertEqual(set(os.listdir(self.folder)), {"in", "model"})

    def test_places_that_cannot_be_replaced(self):
        """Found before the work; --dry-run does not look at them."""
        os.mkdir(self.path("empty"))
        os.symlink("empty", self.path("link"))
        os.symlink("gone", self.path("dangling"))
        self.assertTrue(os.path.ismount("/proc"))
        for out, why in (("link", "a link"), ("link/", "a link"),
                         ("dangling", "a link"), (".", "not . or .."),
                         ("empty/.", "not . or .."), ("empty/..//", "not . or .."),
                         ("/proc", "a file system is mounted there")):
            result = nib("quantize", "model", out, cwd=self.folder)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertEqual(result.stdout, "")
            self.assertIn(f"{out}: ", result.stderr)
            self.assertIn(why, result.stderr)
        self.assertEqual(set(os.listdir(self.folder)),
                         {"in", "model", "empty", "link", "dangling"})

    def test_interrupted(self):
        """While the only shard is written, which takes seconds."""
        os.mkdir(self.path("large"))
        save_sparse(self.path("large/model.safetensors"), 32768, 8192)
        with subprocess.Popen([NIB, "quantize", "large", "out"], cwd=self.folder,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True) as p:
            while p.poll() is None and not any(
                    x.startswith("out.nib-") for x in os.listdir(self.folder)):
                time.sleep(0.001)
            p.send_signal(signal.SIGTERM)
            error = p.stderr.read()
        self.assertEqual(p.returncode, 128 + signal.SIGTERM, error)
        self.assertIn("interrupted", error)
        self.assertEqual(set(os.listdir(self.folder)), {"in", "model", "large"})

    def begin(self, is_made, old, number=None, args=("large", "out")):
        """Runs nib quantize until it writes into something that it has made, and sends
        it a signal; returns the name, which is none of old."""
        process = subprocess.Popen([NIB, "quantize", *args], cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        made = None
        while process.poll() is None and not made:
            time.sleep(0.001)
            made = next((x for x in os.listdir(self.folder)
                         if x not in old and is_made(x)), None)
        self.assertIsNotNone(made)
        if number:
            process.send_signal(number)
            process.wait()
        return made

    def test_killed(self):
        """What killed runs leave is named, and in no later run's way; what another run
        is writing is neither."""
        os.mkdir(self.path("large"))
        save_sparse(self.path("large/model.safetensors"), 32768, 8192)

        def is_made(x):
            return x.startswith("out.nib-") and os.listdir(self.path(x))
        left = {self.begin(is_made, (), signal.SIGKILL)}
        left.add(self.begin(is_made, left, signal.SIGKILL))
        self.begin(is_made, left)  # goes on
        os.mkdir(self.path("out.nib-0"))  # nothing in it
        os.mkdir(self.path("out.nib-other"))
        self.write("out.nib-other/x", b"")
        os.symlink(min(left), self.path("out.nib-1"))
        error = self.nib("quantize", "model", "out/").stderr
        self.assertEqual({line.split(": ")[2] for line in error.splitlines()}, left)
        self.assertIn("left by a run that was killed; nothing uses it", error)
        self.assertEqual(*(os.stat(self.path(x)).st_mode for x in ("out", "out.nib-0")))
        name = {"model.embed_tokens.weight"}
        self.assertEqual(self.load_shards("out")[1].keys() & name, name)

    def test_killed_while_a_file_is_written(self):
        save_sparse(self.path("large"), 32768, 8192)

        def is_made(x):
            return x.startswith(".nib-") and os.stat(self.path(x)).st_size
        args = "large", "file"
        left = self.begin(is_made, (), signal.SIGKILL, args)
        self.begin(is_made, {left}, None, args)  # goes on
        self.write(".nib-0.tmp", b"")
        os.mkfifo(self.path(".nib-1.tmp"))
        error = self.nib("quantize", "in", "small").stderr
        self.assertEqual([line.split(": ")[2] for line in error.splitlines()], [left])
        self.assertEqual(self.nib("quantize", "in", "model/small").stderr, "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
