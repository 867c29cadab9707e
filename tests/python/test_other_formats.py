# SPDX-License-Identifier: Apache-2.0
"""The conventions of ModelOpt, compressed-tensors and torchao, tested with these
packages: they quantise and dequantise a layer, and nibblas reads the same values from
their tensors and files, and quantises to the same bytes.

`make test-models` installs the packages; without them their tests are skipped."""

import os
import tempfile
import unittest
import warnings

import nibblas
import numpy as np
from common import TorchTest, save_safetensors

MISSING = "no {}: make test-models installs it ({})"


class FormatTest(TorchTest):
    def weight(self):
        t = self.torch
        w = t.randn(48, 160, generator=t.Generator().manual_seed(5))
        w *= t.logspace(-2, 1, 160)
        w[3, 16:32] = 0  # a block of zeros
        return w

    @classmethod
    def imported(cls, name, load):
        """What load() imports, or SkipTest."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return load()
            except ImportError as error:
                raise unittest.SkipTest(MISSING.format(name, error)) from None

    def read(self, tensors, name):
        """The layer, by way of a file."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            save_safetensors(path, tensors)
            with nibblas.Checkpoint(path) as file:
                self.assertEqual(file.problems, {})
                self.assertEqual(list(file), [name])
                layer = file[name]
            # The file is gone, the arrays are not.
        return layer

    def values(self, layer):
        return nibblas.dequantize(layer.codes, layer.scales,
                                  layer.global_scale, layout="linear")

    def assert_near(self, got, want, relative):
        """want was rounded more often than got."""
        want = np.asarray(want, np.float64)
        self.assertTrue((np.abs(got - want) <= relative * np.abs(want)).all())
        self.assertGreater(np.count_nonzero(want), want.size // 2)


class ModelOpt(FormatTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()

        def load():
            from modelopt.torch.quantization.qtensor.nvfp4_tensor import (
                NVFP4QTensor)
            return NVFP4QTensor
        cls.theirs = cls.imported("modelopt", load)

    def test_same_values_and_bytes(self):
        t, w = self.torch, self.weight()
        q, scale, scale_2 = self.theirs.quantize(w, 16)
        layer = self.read({"up_proj.weight": q._quantized_data,
                           "up_proj.weight_scale": scale,
                           "up_proj.weight_scale_2": scale_2,
                           "up_proj.input_scale": t.tensor(0.5)}, "up_proj")
        self.assertEqual(layer.format, "modelopt")
        self.assertEqual(layer.input_global_scale, 0.5)
        self.assertEqual(layer.global_scale, scale_2.item())
        want = q.dequantize(dtype=t.float32, scale=scale, double_scale=scale_2,
                            block_sizes={-1: 16})
        self.assert_near(self.values(layer), want, 2.0 ** -22)
        codes, scales, used = self.ops.quantize(w, None, "linear", "modelopt")
        self.assertEqual(used.item(), layer.global_scale)
        self.assertTrue(np.array_equal(codes, layer.codes))
        self.assertTrue(np.array_equal(scales.view(t.uint8), layer.scales))

    def test_linear_loads_it(self):
        t, w = self.torch, self.weight()
        q, scale, scale_2 = self.theirs.quantize(w, 16)
        linear = self.package.Linear(160, 48, bias=False)
        linear.load_state_dict({"weight": q._quantized_data,
                                "weight_scale": scale,
                                "weight_scale_2": scale_2})
        ours = t.nn.Linear(160, 48, bias=False)
        ours.weight.data.copy_(w)
        x = t.randn(7, 160)
        self.assertTrue(t.equal(linear(x), self.package.Linear.from_linear(
            ours)(x)))


class CompressedTensors(FormatTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()

        def load():
            from compressed_tensors.compressors.nvfp4 import (
                NVFP4PackedCompressor)
            from compressed_tensors.quantization import preset_name_to_scheme
            from compressed_tensors.quantization.utils import (
                calculate_qparams, generate_gparam)
            return (NVFP4PackedCompressor, preset_name_to_scheme,
                    calculate_qparams, generate_gparam)
        (cls.compressor, preset, cls.parameters,
         cls.global_parameter) = cls.imported("compressed-tensors", load)
        cls.scheme = preset("NVFP4A16", ["Linear"])

    def test_same_values_and_bytes(self):
        t, w = self.torch, self.weight()
        cls = type(self)
        reciprocal = cls.global_parameter(w.min(), w.max())
        blocks = w.reshape(48, -1, 16)
        scale, _ = cls.parameters(blocks.amin(-1), blocks.amax(-1),
                                  self.scheme.weights, global_scale=reciprocal)
        state = self.compressor.compress(
            {"weight": w, "weight_scale": scale,
             "weight_global_scale": reciprocal}, self.scheme)
        layer = self.read({"fc." + key: value for key, value in state.items()},
                          "fc")
        self.assertEqual(layer.format, "compressed-tensors")
        self.assertIsNone(layer.input_global_scale)
        self.assertEqual(layer.global_scale, (1 / reciprocal).item())
        # Its own values are bfloat16.
        want = self.compressor.decompress(dict(state), self.scheme)["weight"]
        self.assert_near(self.values(layer), want.float(), 2.0 ** -6)
        x = t.randn(7, 160)
        linear = self.package.Linear.from_layer(layer)
        self.assertLess((linear(x) - x @ want.float().t()).norm(),
                        0.2 * linear(x).norm())
        codes, scales, _ = self.ops.quantize(
            w, (1 / reciprocal).reshape(1), "linear", "compressed-tensors")
        self.assertTrue(np.array_equal(codes, layer.codes))
        self.assertTrue(np.array_equal(scales.view(t.uint8), layer.scales))


class Torchao(FormatTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()

        def load():
            from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor
            return NVFP4Tensor
        cls.theirs = cls.imported("torchao", load)

    def test_same_values_and_bytes(self):
        t, w = self.torch, self.weight()
        for swizzled in (False, True):
            layout = "tiled" if swizzled else "linear"
            theirs = self.theirs.to_nvfp4(
                w, per_tensor_scale=w.abs().max() / 2688,
                is_swizzled_scales=swizzled)
            values = self.ops.dequantize(theirs.qdata, theirs.scale,
                                         theirs.per_tensor_scale, t.float32,
                                         layout)
            self.assert_near(values.numpy(), theirs.dequantize(t.float32),
                             2.0 ** -22)
            codes, scales, _ = self.ops.quantize(
                w, theirs.per_tensor_scale, layout)
            self.assertTrue(t.equal(codes, theirs.qdata))
            # A block of zeros has another scale there.
            ours, others = (x.reshape(-1).view(t.uint8)
                            for x in (scales, theirs.scale))
            self.assertEqual((ours != others).sum(), 1)

    def test_products_of_its_tensors(self):
        t = self.torch
        w, x = self.weight(), t.randn(9, 160)
        a, b = (self.theirs.to_nvfp4(one, is_swizzled_scales=True)
                for one in (x, w))
        got = self.ops.gemm(a.qdata, a.scale, b.qdata, b.scale, None,
                            t.float32)
        want = a.dequantize(t.float64) @ b.dequantize(t.float64).t()
        self.assertLess((got - want).norm() / want.norm(), 1e-5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
