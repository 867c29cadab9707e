# SPDX-License-Identifier: Apache-2.0
"""The functions for NumPy's arrays: products against float64 and the oracle, formats
there and back, objects of DLPack, copies, and errors that name the argument."""

import copy
import gc
import pickle
import unittest

import nibblas
import numpy as np
from common import (blocked, bound, decode, dense_bound, int8_values,
                    random_codes, random_scales, reference)

from nibblas import _abi as abi


class Foreign:
    """Another library's array: DLPack and nothing else."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **options):
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


class Elsewhere(Foreign):
    """An array that says that it is on a GPU."""

    def __dlpack__(self, stream=None):
        return self.x.__dlpack__()

    def __dlpack_device__(self):
        return 2, 0


class NumpyTest(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(2)

    def operand(self, *shape, layout="tiled"):
        codes = random_codes(self.rng, *shape[:-1], shape[-1] // 2)
        scales = random_scales(self.rng, *shape[:-1], shape[-1] // 16)
        laid = blocked(scales) if layout == "tiled" else scales
        return (codes, laid), decode(codes, scales), (codes, scales)

    def assert_within(self, got, want, limit):
        self.assertEqual(got.shape, want.shape)
        self.assertTrue((np.abs(got - want) <= limit).all())


class Products(NumpyTest):
    def test_gemm(self):
        for layout in ("tiled", "linear"):
            a, x, _ = self.operand(9, 96, layout=layout)
            b, y, _ = self.operand(33, 96, layout=layout)
            kw = {"a_layout": layout, "b_layout": layout}
            c = nibblas.gemm(*a, *b, **kw)
            self.assertEqual(c.dtype, np.float32)
            self.assert_within(c, x @ y.T, bound(x, y))
            half = nibblas.gemm(*a, *b, alpha=2.0 ** -8, out_dtype="float16",
                                **kw)
            self.assertTrue(np.array_equal(half, (c * 2.0 ** -8).astype(
                np.float16)))

    def test_is_the_oracle_bit_by_bit(self):
        a, _, left = self.operand(9, 96)
        b, _, right = self.operand(33, 96)
        for scales in (left[1], right[1], a[1], b[1]):
            scales[scales != 0x7F] = 56
        c = nibblas.gemm(*a, *b)
        self.assertTrue(np.array_equal(c, reference(abi.NIB_OP_GEMM, left,
                                                    right)))

    def test_batches_gemv_dual_group(self):
        a, x, _ = self.operand(3, 1, 64)
        b, y, _ = self.operand(3, 20, 64)
        want = np.einsum("lmk,lnk->lmn", x, y)
        self.assert_within(nibblas.gemm(*a, *b), want, bound(x, y))
        vectors = (a[0][:, 0], a[1])
        self.assert_within(nibblas.gemv(*vectors, *b), want[:, 0],
                           bound(x, y)[:, 0])
        scale = 2.0 ** -8
        got = nibblas.dual_gemm(*a, *b, *b, alpha=scale, alpha2=scale)
        g = want * scale
        self.assertTrue(np.allclose(got, g / (1 + np.exp(-g)) * g, 1e-4,
                                    1e-5))
        lists = [list(one) for one in (*a, *b)]
        out = nibblas.group_gemm(*lists, alpha=np.float32([1, 2, 4]))
        for i, c in enumerate(out):
            self.assert_within(c, 2 ** i * want[i],
                               2 ** i * bound(x[i], y[i]))
        self.assertEqual(nibblas.group_gemm([], [], [], []), [])

    def test_moe(self):
        a, x, _ = self.operand(12, 64, layout="linear")
        b, y, _ = self.operand(3, 20, 64)
        offsets = np.int32([0, 5, 5, 12])
        alpha = np.float32([1, 2, 4])
        kw = {"alpha": alpha, "a_layout": "linear"}
        c = nibblas.moe_gemm(*a, *b, offsets, **kw)
        for e, s in enumerate(alpha):
            rows = slice(offsets[e], offsets[e + 1])
            self.assert_within(c[rows], s * (x[rows] @ y[e].T),
                               s * bound(x[rows], y[e]))
        small = alpha * np.float32(2.0 ** -8)
        got = nibblas.moe_gemm(*a, *b, offsets, b2=b[0], b2_scales=b[1],
                               alpha=small, alpha2=small, a_layout="linear")
        want = nibblas.dual_gemm(a[0][5:], a[1][5:], b[0][2], b[1][2], b[0][2],
                                 b[1][2], alpha=small[2], alpha2=small[2],
                                 a_layout="linear")
        self.assertTrue(np.array_equal(got[5:], want))
        out = np.zeros((12, 20), np.float32)
        self.assertIs(nibblas.moe_gemm(*a, *b, offsets, out=out, **kw), out)
        self.assertTrue(np.array_equal(out, c))
        with self.assertRaisesRegex(ValueError, "^row_offsets: .*4 elements"):
            nibblas.moe_gemm(*a, *b, offsets[:3], **kw)

    def test_out(self):
        a, _, _ = self.operand(9, 64)
        b, _, _ = self.operand(33, 64)
        c = np.full((9, 40), 7, np.float16)
        view = c[:, 3:36]
        self.assertIs(nibblas.gemm(*a, *b, out=view), view)
        self.assertTrue(np.array_equal(view, nibblas.gemm(
            *a, *b, out_dtype="float16")))
        self.assertTrue((c[:, :3] == 7).all() and (c[:, 36:] == 7).all())

    def test_dlpack(self):
        a, _, _ = self.operand(9, 64, layout="linear")
        b, _, _ = self.operand(33, 64, layout="linear")
        kw = {"a_layout": "linear", "b_layout": "linear"}
        want = nibblas.gemm(*a, *b, **kw)
        c = np.zeros((9, 33), np.float32)
        foreign = [Foreign(x) for x in (*a, *b)]
        nibblas.gemm(*foreign, out=Foreign(c), **kw)
        self.assertTrue(np.array_equal(c, want))
        wide = np.zeros((9, 64), np.uint8)
        wide[:, ::2] = a[0]
        with self.assertRaisesRegex(ValueError, "^a: .*last must be 1"):
            nibblas.gemm(Foreign(wide[:, ::2]), *foreign[1:], **kw)

    def test_plans_are_kept(self):
        from nibblas._plans import cache
        a, _, _ = self.operand(9, 64)
        b, _, _ = self.operand(33, 64)
        nibblas.gemm(*a, *b)
        before = len(cache.plans)
        for _ in range(5):
            nibblas.gemm(*a, *b)
        self.assertEqual(len(cache.plans), before)


class FloatsAsA(NumpyTest):
    """A that is multiplied as it is, or rounded to 8 bits."""

    def floats(self, *shape, dtype=np.float32):
        x = self.rng.standard_normal(shape).astype(dtype)
        return x, x.astype(np.float64)

    def test_gemm(self):
        for dtype in (np.float32, np.float16):
            a, x = self.floats(9, 96, dtype=dtype)
            b, y, _ = self.operand(33, 96)
            c = nibblas.gemm(a, None, *b, out_dtype="float32")
            self.assert_within(c, x @ y.T, dense_bound(x, y))
            own = nibblas.gemm(a, None, *b)
            self.assertEqual(own.dtype, dtype)
            self.assertTrue(np.array_equal(own, c.astype(dtype)))
            self.assertTrue(np.array_equal(own, nibblas.gemm(
                a, None, nibblas.pack(*b))))
            out = np.zeros((9, 33), np.float32)
            self.assertIs(nibblas.gemm(Foreign(a), None, *b, out=out,
                                       activations="dense"), out)
            self.assertTrue(np.array_equal(out, c))

    def test_int8(self):
        a, x = self.floats(9, 96, dtype=np.float16)
        b, y, _ = self.operand(33, 96)
        rounded = int8_values(x)
        c = nibblas.gemm(a, None, *b, out_dtype="float32", activations="int8")
        self.assert_within(c, rounded @ y.T, bound(rounded, y))
        self.assertFalse(np.array_equal(c, nibblas.gemm(a, None, *b,
                                                        out_dtype="float32")))

    def test_gemv_dual_group(self):
        a, x = self.floats(3, 64)
        b, y, _ = self.operand(3, 20, 64)
        self.assert_within(nibblas.gemv(a, None, *b), np.einsum(
            "lk,lnk->ln", x, y), dense_bound(x[:, None], y)[:, 0])
        one = [part[0] for part in b]
        scale = 2.0 ** -8
        got = nibblas.dual_gemm(a, None, *one, *one, alpha=scale, alpha2=scale)
        g = x @ y[0].T * scale
        self.assertTrue(np.allclose(got, g / (1 + np.exp(-g)) * g, 1e-4, 1e-5))
        lists = [list(part) for part in b]
        out = nibblas.group_gemm([a] * 3, None, *lists,
                                 alpha=np.float32([1, 2, 4]))
        for i, c in enumerate(out):
            self.assert_within(c, 2 ** i * (x @ y[i].T),
                               2 ** i * dense_bound(x, y[i]))

    def test_moe(self):
        a, x = self.floats(12, 64)
        b, y, _ = self.operand(3, 20, 64)
        offsets, alpha = np.int32([0, 5, 5, 12]), np.float32([1, 2, 4])
        c = nibblas.moe_gemm(a, None, *b, offsets, alpha=alpha)
        for e, s in enumerate(alpha):
            rows = slice(offsets[e], offsets[e + 1])
            self.assert_within(c[rows], s * (x[rows] @ y[e].T),
                               s * dense_bound(x[rows], y[e]))

    def test_refusals(self):
        a, _ = self.floats(9, 64)
        b, _, _ = self.operand(33, 64)
        for pattern, args, kw in (
                ("^a: .*float64: must be float32", (a.astype(float), None), {}),
                ("^a_scales = None: must be the scales", (b[0], None), {}),
                ("^a: .*float32: must be uint8", (a, b[1]), {}),
                ("^activations = 'int8': a must be float32", b,
                 {"activations": "int8"}),
                ("^activations = 'half': must be", (a, None),
                 {"activations": "half"}),
                ("^out_dtype = 'bfloat16': NumPy has no", (a, None),
                 {"out_dtype": "bfloat16"})):
            with self.assertRaisesRegex(nibblas.ArgumentError, pattern):
                nibblas.gemm(*args, *b, **kw)


class Formats(NumpyTest):
    def test_quantize(self):
        x = self.rng.standard_normal((2, 37, 96))
        for dtype in (np.float32, np.float16):
            for layout in ("tiled", "linear"):
                q = nibblas.quantize(x.astype(dtype), layout=layout)
                amax = np.abs(x.astype(dtype)).max().astype(np.float32)
                self.assertEqual(np.float32(q.global_scale),
                                 amax / np.float32(2688))
                linear = q.scales if layout == "linear" else (
                    nibblas.from_blocked(q.scales, 37, 6))
                exact = decode(q.codes, linear) * q.global_scale
                y = nibblas.dequantize(*q, layout=layout)
                self.assertTrue(np.array_equal(y, exact.astype(np.float32)))
                error = np.linalg.norm(y - x) / np.linalg.norm(x)
                self.assertLess(error, 0.12)

    def test_given_scale_and_recipes(self):
        x = np.zeros((1, 32), np.float32)
        x[0, 0] = 3
        for zero_scale, byte in (("modelopt", 0x38), ("compressed-tensors", 0x20),
                             ("ggml", 0)):
            q = nibblas.quantize(x, 0.5, layout="linear", zero_scale=zero_scale)
            self.assertEqual(q.global_scale, 0.5)
            self.assertEqual(q.scales.tolist(), [[0x38, byte]])
            self.assertEqual(nibblas.dequantize(*q, layout="linear")[0, 0], 3)

    def test_blocked(self):
        for shape in ((200, 16), (3, 33, 5), (0, 4)):
            linear = random_scales(self.rng, *shape, low=0, high=127)
            tiled = nibblas.to_blocked(linear)
            self.assertTrue(np.array_equal(tiled, blocked(linear, padding=0)))
            back = nibblas.from_blocked(tiled, *shape[-2:])
            self.assertTrue(np.array_equal(back, linear))

    def test_not_finite(self):
        x = np.ones((2, 32), np.float32)
        x[1, 7] = np.nan
        with self.assertRaisesRegex(nibblas.DataError, "row 1, col 7"):
            nibblas.quantize(x)
        q = nibblas.quantize(x, saturate=True)
        self.assertEqual(nibblas.dequantize(*q)[1, 7], 0)


class Copies(NumpyTest):
    def test_packed(self):
        a, _, _ = self.operand(9, 64)
        b, _, _ = self.operand(33, 64)
        weights = nibblas.pack(*b)
        want = nibblas.gemm(*a, weights)
        for one in (copy.copy(weights), copy.deepcopy(weights)):
            self.assertIs(one, weights)
        del one
        gc.collect()
        self.assertTrue(np.array_equal(nibblas.gemm(*a, weights), want))
        with self.assertRaisesRegex(TypeError, "pack.. them again"):
            pickle.dumps(weights)

    def test_devices(self):
        one = nibblas.device("cpu", threads=1)
        for same in (copy.copy(one), copy.deepcopy(one),
                     pickle.loads(pickle.dumps(one))):
            self.assertIs(same, one)


class Refusals(NumpyTest):
    def refused(self, pattern, *args, **kwargs):
        """The message has the pattern, and begins with the error's argument."""
        with self.assertRaisesRegex(nibblas.ArgumentError, pattern) as caught:
            nibblas.gemm(*args, **kwargs)
        error = caught.exception
        self.assertEqual(error.status, abi.NIB_STATUS_BAD_ARGUMENT)
        self.assertRegex(error.argument, r"^\w+(\.\w+)*$")
        self.assertTrue(str(error).startswith(error.argument), error)

    def test_errors_carry_argument_and_status(self):
        x = np.ones((2, 32), np.float32)
        x[1, 7] = np.nan
        for function, kind, argument, status in (
                (lambda: nibblas.device("abacus"), nibblas.NoDeviceError, "name",
                 abi.NIB_STATUS_NO_DEVICE),
                (lambda: nibblas.quantize(x), nibblas.DataError, "x",
                 abi.NIB_STATUS_BAD_DATA),
                (lambda: nibblas.quantize(x, -1.0), nibblas.ArgumentError,
                 "global_scale", abi.NIB_STATUS_BAD_ARGUMENT),
                (lambda: nibblas.Checkpoint("/nowhere"), nibblas.SystemIOError,
                 "", abi.NIB_STATUS_IO)):
            with self.assertRaises(kind) as caught:
                function()
            for error in (caught.exception, pickle.loads(pickle.dumps(
                    caught.exception))):
                self.assertIs(type(error), kind)
                self.assertEqual(error.argument, argument)
                self.assertEqual(error.status, status)
                self.assertEqual(str(error), str(caught.exception))

    def test_arguments_are_named(self):
        a, _, _ = self.operand(9, 64)
        b, _, _ = self.operand(33, 64)
        good = (*a, *b)

        def but(index, x):
            return [x if i == index else one for i, one in enumerate(good)]
        self.refused("^a: list: must be a NumPy array", *but(0, [1]))
        self.refused("^a: .*float32: must be uint8", *but(0, np.zeros(
            (9, 32), np.float32)))
        self.refused("^a: .*K = 2 .* 12 = 24: must be a multiple of 16",
                     *but(0, np.zeros((9, 12), np.uint8)))
        self.refused("^a_scales: .*128 x 4 elements", *but(1, a[1][:64]))
        self.refused("^b_scales: .*this is the size of 'linear'", *but(
            3, np.zeros((33, 4), np.uint8)))
        self.refused("^b_layout = 'blocked': must be 'linear' or 'tiled'",
                     *good, b_layout="blocked")
        self.refused("^out_dtype = 'int8'", *good, out_dtype="int8")
        self.refused("^out: .*must have shape .9, 33.", *good,
                     out=np.zeros((9, 32), np.float32))
        frozen = np.zeros((9, 33), np.float32)
        frozen.flags.writeable = False
        self.refused("^out: is read-only", *good, out=frozen)
        self.refused("^alpha: .*must be float32", *good, alpha=np.zeros(1))
        self.refused("^a: .*must lie one after the other",
                     *but(0, a[0][::-1]))

    def test_bytes_of_other_machines(self):
        a, _, _ = self.operand(9, 64)
        b, _, _ = self.operand(33, 64)
        swapped = np.zeros((9, 33), np.dtype(np.float32).newbyteorder())
        self.refused("^out: .*in this machine's order: x.astype.'float32'",
                     *a, *b, out=swapped)
        for dtype in (np.float32, np.float16):
            x = np.ones((2, 32), dtype)
            with self.assertRaisesRegex(ValueError, "^x: .*machine's order"):
                nibblas.quantize(x.astype(x.dtype.newbyteorder()))

    def test_arrays_of_another_device(self):
        codes, scales = (np.zeros(shape, np.uint8) for shape in ((9, 32), (9, 4)))
        tiled = nibblas.to_blocked(scales)
        for pattern, call in (
                ("^scales: .*cuda:0; must be on codes's cpu",
                 lambda: nibblas.dequantize(codes, Elsewhere(scales),
                                            layout="linear")),
                ("^out: .*cuda:0; must be on codes's cpu",
                 lambda: nibblas.dequantize(
                     codes, scales, layout="linear",
                     out=Elsewhere(np.zeros((9, 64), np.float32)))),
                ("^out: .*cuda:0; must be on scales's cpu",
                 lambda: nibblas.to_blocked(scales, out=Elsewhere(tiled))),
                ("^out: .*cuda:0; must be on blocked's cpu",
                 lambda: nibblas.from_blocked(tiled, 9, 4,
                                              out=Elsewhere(scales))),
                ("^b: .*is on cuda:0; must be on the device, cpu",
                 lambda: nibblas.pack(Elsewhere(codes), Elsewhere(tiled),
                                      device=nibblas.device())),
                ("^b: packed on cpu; must be on a's cuda:0",
                 lambda: nibblas.gemm(
                     Elsewhere(codes), Elsewhere(tiled),
                     nibblas.pack(codes, tiled),
                     out=Elsewhere(np.zeros((9, 9), np.float32))))):
            with self.assertRaisesRegex(ValueError, pattern):
                call()

    def test_overlap_is_the_librarys_refusal(self):
        memory = np.zeros(9 * 33 * 4 + 9 * 32, np.uint8)
        a, _, _ = self.operand(9, 64)
        b, _, _ = self.operand(33, 64)
        c = memory[:9 * 33 * 4].view(np.float32).reshape(9, 33)
        self.refused("^out.data .* overlaps a", memory[64:64 + 9 * 32].reshape(
            9, 32), a[1], *b, out=c)

    def test_groups(self):
        a, _, _ = self.operand(9, 64)
        with self.assertRaisesRegex(ValueError, "^b: 1 arrays; .* a has, 2"):
            nibblas.group_gemm([a[0]] * 2, [a[1]] * 2, [a[0]], [a[1]] * 2)
        with self.assertRaisesRegex(ValueError, r"^b\[1\]: .*K = 32"):
            b, _, _ = self.operand(9, 32)
            nibblas.group_gemm([a[0]] * 2, [a[1]] * 2, [a[0], b[0]],
                               [a[1], b[1]])

    def test_devices(self):
        with self.assertRaisesRegex(nibblas.NoDeviceError, "abacus"):
            nibblas.device("abacus")
        names = [backend.name for backend in nibblas.backends()]
        self.assertIn("cpu-scalar", names)
        for backend in nibblas.backends():
            self.assertEqual(backend.is_open, backend.reason == "")
        self.assertIn("cpu", repr(nibblas.device()))


if __name__ == "__main__":
    unittest.main(verbosity=2)
