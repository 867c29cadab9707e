# SPDX-License-Identifier: Apache-2.0
"""nibblas.Checkpoint: both formats with the same meaning, stacks, broken layers, other
tensors, and the lifetime of its arrays.  `nib quantize` writes the files, so that
Python reads what another program wrote."""

import gc
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

import nibblas
import numpy as np
from common import random_scales, write_safetensors
from nibblas import _tuning

NIB = os.environ.get("NIB", "nib")
NAMES = {"float32": "F32", "float16": "F16", "uint8": "U8", "int64": "I64"}


def save(path, tensors):
    """tensors: name -> an array, or (type's name, array)."""
    pairs = {name: x if isinstance(x, tuple) else (NAMES[x.dtype.name], x)
             for name, x in tensors.items()}
    write_safetensors(path, {name: (kind, x.shape, x.tobytes())
                             for name, (kind, x) in pairs.items()})


class FilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="nib-files-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.rng = np.random.default_rng(6)

    def path(self, name):
        return os.path.join(self.folder, name)

    def save(self, tensors):
        save(self.path("m.safetensors"), tensors)
        return self.path("m.safetensors")


class Opened(FilesTest):
    def test_every_type(self):
        """All of safetensors 0.7; packed ones as their bytes."""
        data = np.arange(48, dtype=np.uint8)
        types = {"BOOL": (48, np.bool_), "C64": (6, np.complex64), "I64": (6, np.int64),
                 "BF16": (24, np.uint16), "F8_E4M3FNUZ": (48, np.uint8),
                 "F8_E5M2FNUZ": (48, np.uint8), "F8_E8M0": (48, np.uint8)}
        packed = {"F4": ((4, 24), (4, 12)), "F6_E2M3": ((4, 16), (4, 12)),
                  "F6_E3M2": ((2, 32), (2, 24))}
        odd = {"F4": (16, 6, 1), "F6_E3M2": (32, 2)}
        shapes = {name: (n,) for name, (n, _) in types.items()}
        shapes |= {name: shape for name, (shape, _) in packed.items()}
        path, text, at = self.path("m.safetensors"), {}, 0
        for name, shape in [*shapes.items(),
                            *((f"odd {k}", v) for k, v in odd.items())]:
            text[name] = {"dtype": name.removeprefix("odd "), "shape": shape,
                          "data_offsets": [at, at + 48]}
            at += 48
        header = json.dumps(text).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header
                       + data.tobytes() * len(text))
        with nibblas.Checkpoint(path) as file:
            for name in file.tensors():
                got = file.tensor(name)
                self.assertEqual(got.tobytes(), data.tobytes(), name)
                if name in types:
                    self.assertEqual((got.shape, got.dtype),
                                     (shapes[name], types[name][1]))
                else:
                    self.assertEqual(got.dtype, np.uint8)
                    self.assertEqual(got.shape,
                                     packed[name][1] if name in packed else (48,))

    def test_what_is_no_checkpoint(self):
        path = self.save({"x": np.zeros(3, np.float32)})
        for bad in (path + "\0.txt", os.fsencode(path) + b"\0"):
            with self.assertRaisesRegex(ValueError, "has a NUL byte"):
                nibblas.Checkpoint(bad)
        for data, says in ((b"GGUF\3\0\0\0", "GGUF file: run it by llama.cpp"),
                           (b"PK\3\4" + bytes(30), "a pickle of PyTorch")):
            with open(self.path("other.bin"), "wb") as file:
                file.write(data)
            with self.assertRaisesRegex(nibblas.FileError, says):
                nibblas.Checkpoint(self.path("other.bin"))


class Written(FilesTest):
    def test_by_nib(self):
        weights = {f"layer.{i}.proj.weight": self.rng.standard_normal(
            (24 + i, 64)).astype(np.float32) for i in range(3)}
        weights["norm.weight"] = np.arange(5, dtype=np.float32)
        source = self.save(weights)
        for form in ("modelopt", "compressed-tensors"):
            out = self.path(form + ".safetensors")
            try:
                subprocess.run([NIB, "quantize", source, out, "--format-out",
                                form], check=True, capture_output=True)
            except FileNotFoundError:
                self.skipTest("no " + NIB)
            with nibblas.Checkpoint(out) as file:
                self.assertEqual(len(file), 3)
                self.assertEqual(file.problems, {})
                self.assertTrue(np.array_equal(file.tensor("norm.weight"),
                                               np.arange(5)))
                for name in file:
                    layer, w = file[name], weights[name + ".weight"]
                    self.assertEqual(layer.format, form)
                    q = nibblas.quantize(w, layer.global_scale,
                                         layout="linear", zero_scale=form,
                                         scales="four-six")
                    self.assertTrue(np.array_equal(q.scales, layer.scales))
                    self.assertTrue(np.array_equal(q.codes, layer.codes))


class Folder(FilesTest):
    """Two shards with an index, a layer in both."""

    INDEX = "model.safetensors.index.json"

    def setUp(self):
        super().setUp()
        self.codes = self.rng.integers(0, 256, (8, 16), dtype=np.uint8)
        self.scales = random_scales(self.rng, 8, 2)
        shards = {"a.safetensors": {"up.weight": self.codes,
                                    "norm": np.arange(3, dtype=np.float32)},
                  "b.safetensors": {"up.weight_scale": ("F8_E4M3", self.scales),
                                    "up.weight_scale_2": np.float32(0.5)}}
        for name, tensors in shards.items():
            save(self.path(name), tensors)
        self.write_index({tensor: name for name, tensors in shards.items()
                          for tensor in tensors})

    def write_index(self, weight_map):
        with open(self.path(self.INDEX), "w", encoding="utf-8") as file:
            json.dump({"weight_map": weight_map}, file)

    def test_is_one_checkpoint(self):
        for path in (self.folder, pathlib.Path(self.folder),
                     self.path(self.INDEX)):
            with nibblas.Checkpoint(path) as file:
                self.assertEqual(file.shards, ["a.safetensors", "b.safetensors"])
                self.assertEqual(list(file), ["up"])
                self.assertEqual(set(file.tensors()), {
                    "up.weight", "norm", "up.weight_scale", "up.weight_scale_2"})
                layer, norm = file["up"], file.tensor("norm")
            # The arrays outlive the file.
            self.assertTrue(np.array_equal(layer.codes, self.codes))
            self.assertTrue(np.array_equal(layer.scales, self.scales))
            self.assertEqual(layer.global_scale, 0.5)
            self.assertTrue(np.array_equal(norm, [0, 1, 2]))
        with nibblas.Checkpoint(self.path("a.safetensors")) as file:
            self.assertEqual((file.shards, len(file)), ([], 0))

    def test_refusals(self):
        self.write_index({"up.weight": "c.safetensors"})
        with self.assertRaisesRegex(nibblas.SystemIOError,
                                    "c.safetensors: .*holds 'up.weight'"):
            nibblas.Checkpoint(self.folder)
        for shard, says in (("../a.safetensors", "folder of the index"),
                            ("b.safetensors", "is not in b.safetensors")):
            self.write_index({"up.weight": shard})
            with self.assertRaisesRegex(nibblas.FileError, says):
                nibblas.Checkpoint(self.folder)
        os.remove(self.path(self.INDEX))
        with self.assertRaisesRegex(nibblas.FileError, "2 safetensors files"):
            nibblas.Checkpoint(self.folder)


class Read(FilesTest):
    def layer(self, rows=8, k=32):
        return {"up.weight": self.rng.integers(0, 256, (rows, k // 2),
                                               dtype=np.uint8),
                "up.weight_scale": ("F8_E4M3", random_scales(
                    self.rng, rows, k // 16)),
                "up.weight_scale_2": np.float32(0.25)}

    def test_arrays_outlive_the_file(self):
        tensors = self.layer()
        file = nibblas.Checkpoint(self.save(tensors))
        layer = file["up"]
        file.close()
        with self.assertRaisesRegex(ValueError, "is closed"):
            file["up"]
        del file
        gc.collect()
        os.unlink(self.path("m.safetensors"))
        self.assertTrue(np.array_equal(layer.codes, tensors["up.weight"]))
        self.assertFalse(layer.codes.flags.writeable)
        self.assertIsNone(layer.input_global_scale)
        self.assertEqual(layer.global_scale, 0.25)

    def test_scales_know_their_layout(self):
        """Tiled scales of 128 rows and K 64 have the same shape as linear ones."""
        with nibblas.Checkpoint(self.save(self.layer(128, 64))) as file:
            layer = file["up"]
        x = nibblas.quantize(np.float32(self.rng.standard_normal((3, 64))))
        wrong = "scales: are in layout 'linear', not 'tiled'"
        with self.assertRaisesRegex(nibblas.Error, "^b_" + wrong):
            nibblas.gemm(x.codes, x.scales, layer.codes, layer.scales)
        with self.assertRaisesRegex(nibblas.Error, "^b_" + wrong):
            nibblas.pack(layer.codes, layer.scales)
        with self.assertRaisesRegex(nibblas.Error, "^" + wrong):
            nibblas.dequantize(layer.codes, layer.scales)
        tiled = nibblas.to_blocked(layer.scales)
        self.assertTrue(np.array_equal(
            nibblas.dequantize(layer.codes, tiled),
            nibblas.dequantize(layer.codes, layer.scales, layout="linear")))

    def test_used_as_it_is(self):
        tensors = self.layer(24, 64)
        with nibblas.Checkpoint(self.save(tensors)) as file:
            layer = file["up"]
        x = nibblas.quantize(np.float32(self.rng.standard_normal(
            (3, 64))))
        y = nibblas.gemm(x.codes, x.scales, layer.codes, layer.scales,
                         alpha=x.global_scale * layer.global_scale,
                         b_layout="linear")
        w = nibblas.dequantize(layer.codes, layer.scales, layer.global_scale,
                               layout="linear")
        self.assertTrue(np.allclose(y, nibblas.dequantize(*x) @ w.T,
                                    rtol=1e-5, atol=1e-3))

    def test_stacks(self):
        codes = self.rng.integers(0, 256, (3, 8, 16), dtype=np.uint8)
        scales = random_scales(self.rng, 3, 8, 2)
        scale = np.float32([0.5, 1, 2])
        with nibblas.Checkpoint(self.save(
                {"up.weight": codes, "up.weight_scale": ("F8_E4M3", scales),
                 "up.weight_scale_2": scale})) as file:
            layer = file["up"]
        self.assertTrue(np.array_equal(layer.codes, codes))
        self.assertTrue(np.array_equal(layer.scales, scales))
        self.assertTrue(np.array_equal(layer.global_scale, scale))

    def test_awq(self):
        """pre_quant_scale of any type of float, as float32."""
        k = 16 * self.layer()["up.weight_scale"][1].shape[1]
        values = self.rng.integers(1, 9, k).astype(np.float32) / 4
        stored = {"F32": values, "F16": values.astype(np.float16),
                  "BF16": (values.view(np.uint32) >> 16).astype(np.uint16)}
        for kind, x in stored.items():
            with nibblas.Checkpoint(self.save(
                    self.layer() | {"up.pre_quant_scale": (kind, x)})) as file:
                got = file["up"].pre_quant_scale
            self.assertEqual(got.dtype, np.float32)
            self.assertTrue(np.array_equal(got, values), kind)
            self.assertFalse(got.flags.writeable)
        with nibblas.Checkpoint(self.save(self.layer())) as file:
            self.assertIsNone(file["up"].pre_quant_scale)

    def test_broken_layers_say_why(self):
        tensors = self.layer()
        del tensors["up.weight_scale_2"]
        with nibblas.Checkpoint(self.save(tensors)) as file:
            self.assertEqual(list(file), [])
            self.assertEqual(set(file.problems), {"up"})
            self.assertIn("weight_scale_2", file.problems["up"])
            self.assertEqual(set(file.tensors()), set(tensors))

    def test_a_damaged_tuning_file(self):
        """Changes nothing, however deep its lists are."""
        for text in ("[" * 4000, "[" * 5000, "[1]", "\x00"):
            with open(self.path("tune.json"), "w", encoding="utf-8") as file:
                file.write(text)
            self.assertEqual(_tuning._read(self.path("tune.json")), {})

    def test_types_of_tensors(self):
        given = {"a": np.arange(6, dtype=np.int64).reshape(2, 3),
                 "b": np.float16([1.5]), "c": ("BF16", np.uint16([0x3F80])),
                 "d": np.zeros((0, 4), np.float32)}
        with nibblas.Checkpoint(self.save(given)) as file:
            for name, x in given.items():
                x = x[1] if isinstance(x, tuple) else x
                got = file.tensor(name)
                self.assertEqual((got.dtype, got.shape), (x.dtype, x.shape))
                self.assertTrue(np.array_equal(got, x))

    def test_every_type_of_safetensors(self):
        """All names that tensors() has can be read."""
        bits = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8,
                "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
                "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
                "I32": 32,
                "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64}
        raw = {kind: self.rng.integers(0, 2 if kind == "BOOL" else 256, 24 * n // 8,
                                       dtype=np.uint8) for kind, n in bits.items()}
        save(self.path("all"), {kind: (kind, x) for kind, x in raw.items()})
        # save() wrote the shapes of bytes.
        with open(self.path("all"), "rb") as file:
            size, = struct.unpack("<Q", file.read(8))
            header, data = json.loads(file.read(size)), file.read()
        for one in header.values():
            one["shape"] = [3, 8]
        text = json.dumps(header).encode()
        with open(self.path("all"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)
        with nibblas.Checkpoint(self.path("all")) as file:
            self.assertEqual(set(file.tensors()), set(bits))
            for kind, x in raw.items():
                got = file.tensor(kind)
                self.assertEqual(got.shape, (3, min(bits[kind], 8)), kind)
                self.assertEqual(got.tobytes(), x.tobytes(), kind)
            self.assertEqual(file.tensor("C64").dtype, np.complex64)

    def test_a_nul_byte(self):
        """C would end the path there, and open another file."""
        path = self.save(self.layer())
        for bad in (path + "\0x", os.fsencode(path) + b"\0",
                    pathlib.Path(path + "\0/y")):
            with self.assertRaisesRegex(nibblas.ArgumentError,
                                        "^path = .*has a NUL byte"):
                nibblas.Checkpoint(bad)
        with self.assertRaisesRegex(nibblas.ArgumentError, "^name = .*has a NUL byte"):
            nibblas.device("cpu\0:1")
        with self.assertRaisesRegex(nibblas.ArgumentError, "^isa = .*has a NUL byte"):
            nibblas.device("cpu", isa="scalar\0x")

    def test_refusals(self):
        with open(self.path("bad"), "wb") as file:
            file.write(b"\xff" * 64)
        with self.assertRaises(nibblas.FileError):
            nibblas.Checkpoint(self.path("bad"))
        with self.assertRaisesRegex(OSError, "nowhere"):
            nibblas.Checkpoint(self.path("nowhere"))
        file = nibblas.Checkpoint(self.save(self.layer()))
        for read in (file.__getitem__, file.tensor):
            with self.assertRaises(KeyError):
                read("down")


if __name__ == "__main__":
    unittest.main(verbosity=2)
