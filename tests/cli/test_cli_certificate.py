#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nib verify --certify, and nib inspect of what it writes."""

import copy
import json
import math
import os
import resource
import unittest
import zlib

from cli_common import decode_layer, floats, load, save
from cli_model import QUANTISED, ModelTest, put_json, save_folder, sources, split

FILE, NAME = "out.certificate.json", "nibblas_certificate.json"
GATE, DOWN = "model.layers.0.mlp.gate_proj", "model.layers.0.mlp.down_proj"
ZERO = "model.layers.0.zero"
PARTS = ".weight", ".weight_scale", ".weight_scale_2"


def relative(want, got):
    """In fp64, of sums that are exact."""
    noise = math.fsum((x - y) ** 2 for x, y in zip(want, got))
    return math.sqrt(noise / math.fsum(x * x for x in want)) if noise else 0.0


class Certificate(ModelTest):
    def setUp(self):
        super().setUp()
        self.quantize()
        self.tensors, self.metadata = load(self.path("out"))

    def certify(self, *args, code=0, **options):
        self.nib("verify", "in", "out", "--certify", *args, code=code, **options)
        return json.loads(self.read(FILE)) if code == 0 else None

    def change(self, name, data):
        dtype, shape, _ = self.tensors[name]
        save(self.path("out"), {**self.tensors, name: (dtype, shape, data)})

    def findings(self, code):
        rows = self.rows("inspect", "out", code=code)
        return {row["name"]: row["text"] for row in rows
                if row.get("finding") == "certificate"}

    def test_numbers(self):
        made = self.certify()
        self.assertEqual((made["format"], made["version"]),
                         ("nibblas certificate", 1))
        self.assertEqual(set(made["layers"]), set(QUANTISED))
        for name, entry in made["layers"].items():
            _, shape, _ = self.source[name + ".weight"]
            want = floats(self.source[name + ".weight"])
            got = decode_layer(self.tensors, name)
            each = [relative(want[i * shape[1]:(i + 1) * shape[1]], row)
                    for i, row in enumerate(got)]
            self.assertEqual(entry["shape"], shape)
            # Dequantised values are rounded to fp32, by 2^-24 of each.
            def near(x, y):
                self.assertLessEqual(abs(x - y), 2.0 ** -23)
            near(entry["relative_error"], relative(
                want, [x for row in got for x in row]))
            near(entry["worst_row_error"], max(each))
            near(each[entry["worst_row"]], max(each))

    def test_digest(self):
        for name, entry in self.certify()["layers"].items():
            stored = b"".join(self.tensors[name + x][2] for x in PARTS)
            self.assertEqual(entry["digest"],
                             f"crc32:{zlib.crc32(stored):08x}:{len(stored)}")

    def test_every_number_of_threads_gives_the_same_bytes(self):
        self.certify("--threads", "1")
        one = self.read(FILE)
        self.certify("--threads", "3")
        self.assertEqual(self.read(FILE), one)

    def test_folder(self):
        # nib repair refuses layers of zeros.
        del self.source[ZERO + ".weight"]
        save_folder(self.path("a"), split(self.source, 3))
        self.nib("quantize", "a", "b")
        self.nib("verify", "a", "b", "--certify")
        made = json.loads(self.read("b/" + NAME))
        save(self.path("in"), sources())
        whole = self.certify()["layers"]
        self.assertEqual(made["layers"], {x: whole[x] for x in whole if x != ZERO})
        # Copies would be of other weights.
        self.nib("repair", "b", "c")
        self.assertNotIn(NAME, os.listdir(self.path("c")))
        put_json(self.path("a"), NAME, made)
        self.nib("quantize", "a", "d")
        self.assertNotIn(NAME, os.listdir(self.path("d")))

    def test_inspect(self):
        self.assertIn("\nnot certified\n", self.nib("inspect", "out", code=1).stdout)
        made = self.certify()
        for entry, kind in zip(made["layers"].values(),
                               ("nvfp4", "nvfp4", "int8", "dense", None)):
            entry["activations"] = kind
        put_json(self.folder, FILE, made)
        rows = self.rows("inspect", "out", code=1)
        for row in rows:
            if row["kind"] == "layer":
                entry = made["layers"][row["name"]]
                self.assertEqual(row["certificate"], "current")
                for key in "relative_error", "worst_row_error":
                    self.assertAlmostEqual(row[key], entry[key], 14)
                self.assertEqual(row.get("activations"), entry["activations"])
        text, = (x["text"] for x in rows if x["kind"] == "certificate")
        self.assertEqual(text, "5 layers current, 0 stale, 0 not in it; chosen: "
                               "2 W4A4, 1 W4A8, 1 W4A16")
        said = self.nib("inspect", "out", code=1).stdout
        self.assertIn(f"\ncertificate {FILE}: {text}\n", said)
        worst = max(made["layers"], key=lambda x: made["layers"][x]["relative_error"])
        self.assertRegex(said, rf"largest error of weights: 0\.\d+ \({worst}\)")
        self.assertEqual(self.findings(1), {})

    def test_each_tensor_of_a_layer_makes_it_stale(self):
        self.certify()
        for part in PARTS:
            name = GATE + part
            data = self.tensors[name][2]
            self.change(name, bytes([data[0] ^ 1]) + data[1:])
            self.assertEqual(self.findings(1), {
                GATE: "its bytes are not those that were certified"})

    def test_a_layer_that_is_not_in_it(self):
        made = self.certify()
        del made["layers"][DOWN]
        put_json(self.folder, FILE, made)
        self.assertEqual(self.findings(1), {DOWN: "is not in the certificate"})

    def test_hostile_files(self):
        made = self.certify()

        def refused(text, says):
            self.write(FILE, text.encode())
            found = self.findings(1)
            self.assertEqual(list(found), [FILE])
            self.assertIn(says, found[FILE])

        def changed(says, value, *keys):
            other = copy.deepcopy(made)
            at = other
            for key in keys[:-1]:
                at = at[key]
            at[keys[-1]] = value
            refused(json.dumps(other), says)

        for text in ("", "{", "[" * 100000, '{"a": 1, "a": 2}', "\0", "nan"):
            refused(text, "line ")
        for text in ("[]", "1", "{}", "null"):
            refused(text if text[0] in "[{" else f'{{"format": {text}}}',
                    'format must be "nibblas certificate"')
        changed('format must be "nib', 7, "format")
        for value in (2, "1", None, 1.0, 10 ** 18):
            changed("version must be 1", value, "version")
        for value in ([], None, "x", 1):
            changed("layers must be an object", value, "layers")
            changed(f"layers: {GATE}: lacks a key", value, "layers", GATE)
        for key, values in (
                ("digest", (1, None)), ("relative_error", ("0", None, [])),
                ("worst_row_error", ("x", {})), ("worst_row", (0.5, "1")),
                ("activations", (4, "w4a4", []))):
            for value in values:
                changed(f"layers: {GATE}: lacks a key, or a value has another type",
                        value, "layers", GATE, key)
        refused(json.dumps(made).replace('"worst_row": 0', '"worst_row": 1' + "0" * 40),
                "too big")
        os.remove(self.path(FILE))
        os.mkfifo(self.path(FILE))
        self.assertEqual(self.findings(1), {FILE: "must be a regular file"})

    def test_what_is_not_certified(self):
        cases = [(("in", "out", "--certify", "--layer", GATE), 2,
                  "a certificate has all layers"),
                 (("out", "out", "--certify"), 3, "the original must be floats"),
                 (("in", "in", "--certify"), 3, "B has no NVFP4 layer")]
        for args, code, says in cases:
            self.assertIn(says, self.nib("verify", *args, code=code).stderr)
        said = self.nib("verify", "in", "out", "--certify", "--min-sqnr", "60", code=1)
        self.assertIn("no certificate: 4 layers are not within 60.0 dB", said.stdout)
        del self.source[DOWN + ".weight"]
        save(self.path("in"), self.source)
        said = self.nib("verify", "in", "out", "--certify", code=3).stderr
        self.assertIn(f"{DOWN}: A has none: every NVFP4 layer of B", said)
        self.assertFalse(os.path.exists(self.path(FILE)))

    def test_a_row_without_a_relative_error(self):
        name, data = GATE + ".weight", bytearray(self.source[GATE + ".weight"][2])
        data[3 * 512:4 * 512] = bytes(512)
        save(self.path("in"), {**self.source, name: ("F32", [128, 128], bytes(data))})
        said = self.nib("verify", "in", "out", "--certify", code=3).stderr
        self.assertIn(f"{GATE}: row 3 is zero in A and not in B", said)

    def test_a_full_disk_leaves_the_old_one(self):
        self.certify()
        old = self.read(FILE)
        self.nib("verify", "in", "out", "--certify", code=4,
                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE,
                                                       (500, 500)))
        self.assertEqual(self.read(FILE), old)
        self.assertEqual(sorted(os.listdir(self.folder)), ["in", "out", FILE])


if __name__ == "__main__":
    unittest.main()
