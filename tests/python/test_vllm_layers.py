# SPDX-License-Identifier: Apache-2.0
"""The layers of nibblas.vllm, which need no vLLM, against dequantised weights.
test_vllm.py runs models in vLLM."""

import unittest

from common import needs_torch

torch = needs_torch()

import nibblas  # noqa: E402
from nibblas.torch._moe import FixedLayer  # noqa: E402
from nibblas.torch._tensors import Cpu  # noqa: E402
from nibblas.vllm._layers import FusedLinear  # noqa: E402

WIDTHS, K = [48, 16, 32], 96


def weights(seed=1):
    """(codes, scales) with all codes, and scales of all magnitudes and 0."""
    gen = torch.Generator().manual_seed(seed)
    rows = sum(WIDTHS)
    scales = torch.randint(0, 0x7f, (rows, K // 16), dtype=torch.uint8, generator=gen)
    return (torch.randint(0, 256, (rows, K // 2), dtype=torch.uint8, generator=gen),
            scales.view(torch.float8_e4m3fn))


def values(codes, scales):
    return torch.ops.nibblas.dequantize(codes, scales, None, torch.float32, "linear")


def dense(codes, scales, factors):
    rows = torch.repeat_interleave(factors, torch.tensor(WIDTHS))
    return values(codes, scales) * rows[:, None]


def run(layer, x, bias=None):
    return torch.ops.nibblas._fused_linear(x, torch.tensor(layer.number), bias,
                                           layer.rows)


class Linear(unittest.TestCase):
    def setUp(self):
        self.codes, self.scales = weights()
        self.x = torch.randn(2, 5, K, generator=torch.Generator().manual_seed(2))

    def layer(self, factors, inputs=None):
        return FusedLinear(self.codes, self.scales, WIDTHS, torch.tensor(factors),
                           None if inputs is None else torch.tensor(inputs))

    def close(self, y, want, rate=1e-5):
        self.assertEqual(y.shape, want.shape)
        self.assertLess(float((y.double() - want.double()).norm()),
                        rate * float(want.double().norm()))

    def test_floats(self):
        """Projections with one scale are one product, others are several; the result
        is rounded to x's type; an x that is not contiguous; none and one row."""
        for factors in ([.25] * 3, [.25, .25, .125], [.5, .25, .125]):
            layer = self.layer(factors)
            self.assertEqual(len(layer.parts), len(set(factors)))
            w = dense(self.codes, self.scales, torch.tensor(factors))
            for dtype, rate in ((torch.float32, 1e-5), (torch.bfloat16, 4e-3)):
                x = self.x.to(dtype)
                with self.subTest(factors=factors, dtype=dtype):
                    y = run(layer, x)
                    self.assertEqual(y.dtype, dtype)
                    self.close(y, x.float() @ w.T, rate)
                    turned = x.transpose(0, 1)
                    self.assertTrue(torch.equal(run(layer, turned),
                                                y.transpose(0, 1)))
                    self.assertTrue(torch.equal(run(layer, x[0, :1]), y[0, :1]))
            self.assertEqual(run(layer, self.x[:0]).shape, (0, 5, sum(WIDTHS)))

    def test_bias(self):
        """Added in float32 and rounded once."""
        bias = torch.randn(sum(WIDTHS))
        for factors in ([.25] * 3, [.5, .25, .125]):
            layer, x = self.layer(factors), self.x.bfloat16()
            want = (x.float() @ dense(self.codes, self.scales,
                                      torch.tensor(factors)).T + bias)
            y = run(layer, x, bias)
            self.assertEqual(y.dtype, torch.bfloat16)
            self.close(y, want, 4e-3)
            exact = layer.multiply(x, torch.float32) + bias
            self.assertTrue(torch.equal(y, exact.bfloat16()))

    def test_quantised(self):
        """x is quantised once for each of its scales; inf becomes the largest value."""
        for factors, inputs in (([.25] * 3, [.002] * 3),
                                ([.25] * 3, [.002, .002, .003]),
                                ([.5, .25, .125], [.002] * 3)):
            layer = self.layer(factors, inputs)
            rows, end, want = self.x.view(-1, K), 0, []
            for factor, given, width in zip(factors, inputs, WIDTHS):
                given = torch.tensor(given)
                codes, scales, _ = torch.ops.nibblas.quantize(rows, given, "linear")
                w = values(self.codes, self.scales)[end:end + width] * factor
                want.append(values(codes, scales) * given @ w.T)
                end += width
            with self.subTest(factors=factors, inputs=inputs):
                want = torch.cat(want, 1).view(2, 5, -1)
                self.close(run(layer, self.x), want)
                self.assertTrue(torch.equal(run(layer, self.x[0]),
                                            run(layer, self.x)[0]))
        huge, large = self.x.clone(), self.x.clone()
        huge[0, 0, 0], large[0, 0, 0] = torch.inf, 1e9
        layer = self.layer([.25] * 3, [.002] * 3)
        self.assertTrue(torch.equal(run(layer, huge), run(layer, large)))

    def test_operator(self):
        """Its schema and its fake kernel; a compiled graph."""
        layer, bias = self.layer([.5, .25, .125]), torch.randn(sum(WIDTHS))
        number = torch.tensor(layer.number)
        for x in (self.x, self.x[0].bfloat16()):
            for b in (None, bias):
                torch.library.opcheck(
                    torch.ops.nibblas._fused_linear.default,
                    (x, number, b, layer.rows),
                    test_utils=("test_schema", "test_faketensor"))

        def twice(x):
            return torch.ops.nibblas._fused_linear(x, number, None, layer.rows) * 2
        compiled = torch.compile(twice, backend="aot_eager", dynamic=True)
        self.assertTrue(torch.equal(compiled(self.x), twice(self.x)))


class Experts(unittest.TestCase):
    """FixedLayer, which calls the library on a GPU, gives the operator's bits and
    refuses what the operator refuses."""

    def setUp(self):
        gen = torch.Generator().manual_seed(4)

        def stack(rows, cols):
            scales = torch.randint(0x20, 0x50, (4, rows, cols // 16), generator=gen,
                                   dtype=torch.uint8)
            return (torch.randint(0, 256, (4, rows, cols // 2), generator=gen,
                                  dtype=torch.uint8), scales.view(torch.float8_e4m3fn))
        self.weights = (*stack(64, 48), *stack(48, 32),
                        torch.rand(2, 4, generator=gen), torch.rand(4, generator=gen))
        self.x = torch.randn(5, 96, generator=gen)[:, :48]  # rows are apart
        self.ids = torch.randint(-1, 4, (5, 2), generator=gen)
        self.slots = torch.rand(5, 2, generator=gen)

    def given(self, w4a4, activation="swiglu"):
        scales = (torch.tensor(.002), torch.tensor(.1)) if w4a4 else (None, None)
        return (*self.weights, *scales, activation)

    def test_bits(self):
        for w4a4, activation in ((False, "swiglu"), (True, "swiglu"), (False, "gelu")):
            given = self.given(w4a4, activation)
            layers = [FixedLayer(Cpu, *given) for _ in range(2)]
            self.assertEqual(layers[0].kind, layers[1].kind)
            # Other weights, whose plans the first packed layer shares.
            others = [x.flip(0) for x in given[:4]]
            packed = [FixedLayer(Cpu, *x, *given[4:], pack=True)
                      for x in (others, given[:4])]
            self.assertEqual(packed[0].kind, packed[1].kind)
            self.assertNotEqual(packed[0].kind, layers[0].kind)
            self.assertEqual(set(packed[0].packed), {"gate", "up", "down"})
            for dtype in (torch.float32, torch.bfloat16):
                for count in (5, 1, 0):
                    x = self.x[:count].to(dtype)
                    ids, slots = self.ids[:count].int(), self.slots[:count]
                    want = torch.ops.nibblas.moe(x, ids, slots, *given,
                                                 out_dtype=dtype)
                    different = packed[0].run(x, ids, slots)
                    self.assertEqual(torch.equal(different, want), count == 0)
                    for layer in (*layers, packed[1]):
                        y = layer.run(x, ids, slots)
                        self.assertEqual(y.dtype, dtype)
                        self.assertTrue(torch.equal(y, want), (w4a4, dtype, count))
            y = layers[0].run(self.x, self.ids.T.contiguous().T, self.slots.bfloat16())
            want = torch.ops.nibblas.moe(self.x, self.ids, self.slots.bfloat16(),
                                         *given, out_dtype=torch.float32)
            self.assertTrue(torch.equal(y, want))
        self.assertNotEqual(FixedLayer(Cpu, *self.given(True)).kind, layers[0].kind)

    def test_refused(self):
        layer = FixedLayer(Cpu, *self.given(False))
        layer.run(self.x, self.ids, self.slots)
        for x, ids, slots, message in (
                (self.x[0], self.ids, self.slots, "x.*must have 2 dimensions"),
                (self.x, self.ids[:3], self.slots, "must have x's 5 rows"),
                (self.x, self.ids, self.slots[:, :1], "must have topk_ids' shape"),
                (self.x, self.ids.short(), self.slots, "must be int32 or int64"),
                (self.x[:, :32], self.ids, self.slots, "")):
            with self.subTest(message=message), self.assertRaisesRegex(
                    nibblas.ArgumentError, message):
                layer.run(x, ids, slots)


if __name__ == "__main__":
    unittest.main(verbosity=2)
