# SPDX-License-Identifier: Apache-2.0
"""torch.ops.nibblas with an A of floats.  W4A16 is compared with float64 within the
bound of docs/numerics.md, and with the oracle.  W4A8 (A rounded to 8 bits) is compared
with the rule of nibblas.h.  Also types, plans, fake kernels, refusals."""

import unittest
from unittest import mock

import nibblas
import numpy as np
from common import (Floats, TorchTest, bound, dense_bound, int8_values, plans_made,
                    reference)

from nibblas import _abi as abi
from nibblas import _plans

SIZES = [(1, 1, 16), (1, 130, 256), (3, 5, 48), (17, 130, 64), (129, 33, 256),
         (5, 64, 1040)]


class DenseTest(TorchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        t = cls.torch
        cls.arithmetic = nibblas.device().info()["arithmetic"]
        cls.types = (t.float32, t.float16, t.bfloat16)
        cls.kinds = {t.float32: abi.NIB_DTYPE_FP32, t.float16: abi.NIB_DTYPE_FP16,
                     t.bfloat16: abi.NIB_DTYPE_BF16}

    def floats(self, *shape, dtype=None):
        """(a tensor, its float64 values)."""
        x = self.torch.randn(shape).to(dtype or self.torch.bfloat16)
        return x, x.double().numpy()

    def of_oracle(self, x, activations=abi.NIB_ACTIVATIONS_DENSE):
        """A tensor as nib_reference() and nib_check() take it."""
        t = self.torch
        data = x.view(t.int16) if x.dtype is t.bfloat16 else x
        return Floats(data.numpy(), self.kinds[x.dtype], activations)


class Products(DenseTest):
    def test_gemm_within_the_bound(self):
        for m, n, k in SIZES:
            for dtype in self.types:
                for layout in ("tiled", "linear"):
                    a, x = self.floats(m, k, dtype=dtype)
                    b, y, _ = self.operand(n, k, layout=layout)
                    c = self.ops.gemm(a, None, *b, None, self.torch.float32,
                                      b_layout=layout)
                    self.assert_within(c, x @ y.T, dense_bound(x, y))

    def test_the_result_has_the_type_of_a(self):
        b, _, _ = self.operand(33, 64)
        alpha = self.torch.tensor([2.0 ** -9])
        for dtype in self.types:
            a, _ = self.floats(9, 64, dtype=dtype)
            c = self.ops.gemm(a, None, *b, alpha)
            self.assertEqual(c.dtype, dtype)
            whole = self.ops.gemm(a, None, *b, alpha, self.torch.float32)
            self.assertTrue(self.torch.equal(c, whole.to(dtype)))
            for other in self.types:
                c = self.ops.gemm(a, None, *b, alpha, other)
                self.assertTrue(self.torch.equal(c, whole.to(other)))

    def test_the_oracle_bit_by_bit(self):
        """Small integers, whose sums fp32 holds in any order."""
        t = self.torch
        b, _, right = self.operand(40, 96, low=56, high=57)
        for dtype in self.types:
            a = t.randint(-8, 9, (9, 96)).to(dtype)
            c = self.ops.gemm(a, None, *b, None, t.float32)
            self.assertTrue(np.array_equal(c.numpy(), reference(
                abi.NIB_OP_GEMM, self.of_oracle(a), right)))

    def test_nib_check(self):
        t = self.torch
        b, _, right = self.operand(40, 1040)
        alpha = np.float32([2.0 ** -6])
        for dtype in self.types:
            for out in (t.float32, t.float16):
                a, _ = self.floats(9, 1040, dtype=dtype)
                c = self.ops.gemm(a, None, *b, t.from_numpy(alpha), out)
                self.assert_right(abi.NIB_OP_GEMM, self.of_oracle(a), right,
                                  c.numpy(), alpha=alpha)

    def test_batches_and_shared_weights(self):
        a, x = self.floats(3, 6, 64)
        b, y, _ = self.operand(3, 10, 64)
        out = self.torch.float32
        c = self.ops.gemm(a, None, *b, None, out)
        self.assert_within(c, np.einsum("lmk,lnk->lmn", x, y), dense_bound(x, y))
        c = self.ops.gemm(a, None, b[0][1], b[1][1], None, out)
        self.assert_within(c, x @ y[1].T, dense_bound(x, y[1:2]))

    def test_gemv(self):
        out = self.torch.float32
        for dtype in self.types:
            a, x = self.floats(4, 128, dtype=dtype)
            b, y, _ = self.operand(4, 33, 128)
            c = self.ops.gemv(a, None, *b, None, out)
            self.assert_within(c, np.einsum("lk,lnk->ln", x, y),
                               dense_bound(x[:, None], y)[:, 0])
            c = self.ops.gemv(a[2], None, b[0][2], b[1][2], None, out)
            self.assert_within(c, y[2] @ x[2], dense_bound(x[2:3], y[2])[0])

    def test_views_with_strides(self):
        t = self.torch
        a, x = self.floats(20, 256)
        b, y, _ = self.operand(10, 64)
        c = self.ops.gemm(a[::2, 48:112], None, *b, None, t.float32)
        x = x[::2, 48:112]
        self.assert_within(c, x @ y.T, dense_bound(x, y))
        heads = t.randn(5, 3, 64).half().transpose(0, 1)
        c = self.ops.gemm(heads, None, *b)
        self.assertTrue(t.equal(c, self.ops.gemm(heads.contiguous(), None, *b)))

    def test_dual_gemm(self):
        t = self.torch
        for dtype in self.types:
            a, x = self.floats(9, 128, dtype=dtype)
            b, y, right = self.operand(33, 128)
            b2, _, right2 = self.operand(33, 128)
            alpha = np.float32([2.0 ** -5])
            factor = t.from_numpy(alpha)
            c = self.ops.dual_gemm(a, None, *b, *b2, factor, factor, t.float32)
            self.assert_right(
                abi.NIB_OP_DUAL_GEMM, self.of_oracle(a), right, c.numpy(), b2=right2,
                alpha=alpha, alpha2=alpha)
            self.assertEqual(self.ops.dual_gemm(a, None, *b, *b2).dtype, dtype)

    def test_group_gemm(self):
        t = self.torch
        sizes = [(3, 5, 48), (1, 33, 64), (40, 8, 256), (0, 7, 32)]
        left = [self.floats(m, k) for m, _, k in sizes]
        right = [self.operand(n, k) for _, n, k in sizes]
        alpha = t.tensor([1.0, 2.0, 0.5, 4.0])
        args = ([a for a, _ in left], None, [b[0][0] for b in right],
                [b[0][1] for b in right], alpha)
        out = self.ops.group_gemm(*args, t.float32)
        for (_, x), (_, y, _), c, s in zip(left, right, out, alpha.tolist()):
            self.assert_within(c, s * (x @ y.T), s * dense_bound(x, y))
        for c, whole in zip(self.ops.group_gemm(*args), out):
            self.assertTrue(t.equal(c, whole.bfloat16()))
        self.assertEqual(self.ops.group_gemm([], None, [], []), [])

    def test_moe_gemm(self):
        t = self.torch
        counts = [3, 0, 130, 1]
        ends = np.cumsum(counts)
        offsets = t.tensor([0, *ends], dtype=t.int32)
        a, x = self.floats(sum(counts) + 2, 64)
        b, y, _ = self.operand(4, 40, 64)
        b2, _, _ = self.operand(4, 40, 64)
        alpha = t.tensor([1.0, 2.0, 0.5, 4.0])
        c = self.ops.moe_gemm(a, None, *b, offsets, None, alpha, t.float32)
        small = alpha * 2.0 ** -6
        dual = self.ops.moe_dual_gemm(a, None, *b, *b2, offsets, None, small,
                                      small, t.float32)
        for e, (start, end) in enumerate(zip(ends - counts, ends)):
            part, s = x[start:end], alpha[e].item()
            self.assert_within(c[start:end], s * (part @ y[e].T),
                               s * dense_bound(part, y[e]))
            one = self.ops.dual_gemm(
                a[start:end], None, b[0][e], b[1][e], b2[0][e], b2[1][e],
                small[e], small[e], t.float32)
            self.assertTrue(t.allclose(dual[start:end], one, 1e-5, 1e-5))

    def test_packed_weights_give_the_same_bits(self):
        t = self.torch
        for m, n, k in ((1, 40, 64), (9, 130, 256), (40, 33, 1040)):
            for dtype in self.types:
                a, _ = self.floats(m, k, dtype=dtype)
                b, _, _ = self.operand(n, k)
                weights = self.package.pack(*b)
                got = self.ops.gemm_packed(a, None, weights.number, n)
                self.assertEqual(got.dtype, dtype)
                self.assertTrue(t.equal(got, self.ops.gemm(a, None, *b)))

    def test_twins_write_the_same(self):
        t = self.torch
        a, _ = self.floats(9, 64)
        b, _, _ = self.operand(33, 64)
        stack, offsets = [x[None] for x in b], t.tensor([0, 9]).int()
        want = self.ops.gemm(a, None, *b, None, t.float32)
        c = t.full((9, 40), 7.0)
        self.ops.gemm_out(c[:, :33], a, None, *b)
        self.assertTrue(t.equal(c[:, :33], want) and (c[:, 33:] == 7).all())
        dual = self.ops.dual_gemm(a, None, *b, *b)
        for name, want, args in (
                ("gemv", self.ops.gemv(a[0], None, *b), (a[0], None, *b)),
                ("dual_gemm", dual, (a, None, *b, *b)),
                ("moe_gemm", want.bfloat16(), (a, None, *stack, offsets)),
                ("moe_dual_gemm", dual, (a, None, *stack, *stack, offsets))):
            c = t.zeros(want.shape, dtype=t.bfloat16)
            getattr(self.ops, name + "_out")(c, *args)
            self.assertTrue(t.allclose(c.float(), want.float(), 1e-2), name)
        group = [t.zeros(9, 33), t.zeros(9, 33)]
        self.ops.group_gemm_out(group, [a, a], None, *([x] * 2 for x in b))
        self.assertTrue(t.equal(group[0], group[1]))
        self.assertTrue(t.allclose(group[1], self.ops.gemm(
            a, None, *b, None, t.float32), 1e-5, 1e-5))

    def test_empty(self):
        t = self.torch
        for m, n, k in ((0, 4, 32), (4, 0, 32), (4, 4, 0)):
            a, _ = self.floats(m, k)
            b, _, _ = self.operand(n, k)
            c = self.ops.gemm(a, None, *b)
            self.assertTrue(t.equal(c, t.zeros(m, n, dtype=t.bfloat16)))
        b, _, _ = self.operand(0, 5, 32)
        c = self.ops.gemm(t.zeros(0, 3, 32), None, *b)
        self.assertEqual(tuple(c.shape), (0, 3, 5))

    def test_not_finite(self):
        """As IEEE says, and only in one row."""
        t = self.torch
        inf, nan = float("inf"), float("nan")
        codes = t.full((3, 32), 0x22, dtype=t.uint8)      # 1
        codes[1] = 0
        scales = t.full((3, 4), 0x38, dtype=t.uint8)      # 1
        for dtype in self.types:
            a = t.zeros(3, 64, dtype=dtype)
            a[0, 3], a[1, 5] = -inf, nan
            c = self.ops.gemm(a, None, codes, scales, b_layout="linear")
            self.assertEqual(c[0].tolist()[::2], [-inf, -inf])
            self.assertTrue(c[0, 1].isnan() and c[1].isnan().all())
            self.assertEqual(c[2].tolist(), [0, 0, 0])


class Int8(DenseTest):
    def test_is_the_product_of_what_was_rounded(self):
        for m, n, k in SIZES:
            for dtype in self.types:
                a, x = self.floats(m, k, dtype=dtype)
                b, y, _ = self.operand(n, k)
                c = self.ops.gemm(a, None, *b, None, self.torch.float32,
                                  activations="int8")
                rounded = int8_values(x)
                self.assert_within(c, rounded @ y.T, bound(rounded, y))
                self.assertGreater(np.abs(rounded - x).max(), 0)

    def test_nib_check(self):
        a, _ = self.floats(9, 1040)
        b, _, right = self.operand(40, 1040)
        c = self.ops.gemm(a, None, *b, None, self.torch.float32,
                          activations="int8")
        self.assert_right(abi.NIB_OP_GEMM, self.of_oracle(
            a, abi.NIB_ACTIVATIONS_INT8), right, c.numpy())

    def test_is_near_and_keeps_the_type(self):
        t = self.torch
        a, x = self.floats(9, 1024, dtype=t.float16)
        b, y, _ = self.operand(40, 1024)
        c = self.ops.gemm(a, None, *b, activations="int8")
        self.assertEqual(c.dtype, t.float16)
        want = x @ y.T
        error = np.linalg.norm(c.double().numpy() - want) / np.linalg.norm(want)
        self.assertLess(error, 0.01)

    def test_every_operation(self):
        t = self.torch
        a, _ = self.floats(9, 64)
        b, _, _ = self.operand(33, 64)
        kw = {"activations": "int8"}
        stack, offsets = [x[None] for x in b], t.tensor([0, 9]).int()
        want = self.ops.gemm(a, None, *b, **kw)
        self.assertFalse(t.equal(want, self.ops.gemm(a, None, *b)))
        weights = self.package.pack(*b)
        for c in (self.ops.gemm_packed(a, None, weights.number, 33, **kw),
                  self.ops.moe_gemm(a, None, *stack, offsets, **kw),
                  self.ops.group_gemm([a], None, *([x] for x in b), **kw)[0]):
            self.assertTrue(t.equal(c, want))
        vector = self.ops.gemv(a[0], None, *b, **kw)
        self.assertTrue(t.allclose(vector.float(), want[0].float(), 1e-2))
        dual = self.ops.dual_gemm(a, None, *b, *b, **kw)
        self.assertTrue(t.equal(dual, self.ops.moe_dual_gemm(
            a, None, *stack, *stack, offsets, **kw)))

    def test_a_row_that_is_not_finite(self):
        t = self.torch
        b, _, _ = self.operand(5, 64)
        for value in (float("inf"), float("nan")):
            a = t.ones(3, 64)
            a[1, 7] = value
            c = self.ops.gemm(a, None, *b, activations="int8")
            self.assertEqual(c.isnan().all(1).tolist(), [False, True, False])
            self.assertTrue(c[0].isfinite().all() and c[2].isfinite().all())


class Refusals(DenseTest):
    def setUp(self):
        self.b = self.operand(33, 64)[0]
        self.good = {"a": self.torch.zeros(9, 64), "a_scales": None,
                     "b": self.b[0], "b_scales": self.b[1]}

    def check(self, function, cases, good=None):
        good = good or self.good
        for pattern, change in cases:
            self.refused(pattern, function, **{**good, **change})

    def test_gemm(self):
        t = self.torch
        codes, scales = self.operand(9, 64)[0]
        self.check(self.ops.gemm, (
            ("^a: .*float64: must be float32, float16 or bfloat16",
             {"a": t.zeros(9, 64).double()}),
            ("^a_scales = None: must be the scales of a, which is uint8",
             {"a": codes}),
            ("^a: .*float32: must be uint8 .* with a_scales = None",
             {"a_scales": scales}),
            ("^a: .*K = 24: must be a multiple of 16", {"a": t.zeros(9, 24)}),
            ("^b: .*K = 64: must be a's 32", {"a": t.zeros(9, 32)}),
            ("^a: .*must have 2 or 3 dimensions", {"a": t.zeros(64)}),
            ("^a: .*last must be 1", {"a": t.zeros(64, 9).t()}),
            ("^a: .*one after the other", {"a": t.zeros(1, 64).expand(9, 64)}),
            ("^a.row_stride_elems = 16", {
                "a": t.zeros(900).as_strided((9, 64), (16, 1))}),
            ("^activations = 'fp8': must be 'nvfp4' or 'dense' or 'int8'",
             {"activations": "fp8"}),
            ("^activations = 'nvfp4': a must be codes with a_scales: quantise",
             {"activations": "nvfp4"}),
            ("^activations = 'int8': a must be float32, float16 or bfloat16",
             {"a": codes, "a_scales": scales, "activations": "int8"}),
            ("^activations = 'dense': a must be",
             {"a": codes, "a_scales": scales, "activations": "dense"})))
        for kind in ("dense", None):
            self.ops.gemm(**self.good, activations=kind)
        self.ops.gemm(codes, scales, *self.b, activations="nvfp4")

    def test_others(self):
        t = self.torch
        self.check(self.ops.gemv, (
            (r"^a: .*must be \[K\] or \[batch, K\]", {"a": t.zeros(1, 9, 64)}),))
        stack = {"b": self.b[0][None], "b_scales": self.b[1][None],
                 "row_offsets": t.tensor([0, 9]).int()}
        self.check(self.ops.moe_gemm, (
            (r"^a: .*must be \[rows, K\]", {"a": t.zeros(1, 9, 64)}),
            ("^scale_rows: .*must be None: a has no scales",
             {"scale_rows": t.tensor([0]).int()}),
        ), {**self.good, **stack})
        groups = {"a": [t.zeros(9, 64)] * 2, "a_scales": None,
                  "b": [self.b[0]] * 2, "b_scales": [self.b[1]] * 2}
        self.check(self.ops.group_gemm, (
            (r"^a\[1\]: .*float64: must be float32", {
                "a": [t.zeros(9, 64), t.zeros(9, 64).double()]}),
            (r"^b\[1\]: .*K = 64: must be a\[1\]'s 48", {
                "a": [t.zeros(9, 64), t.zeros(9, 48)]}),
            (r"^a\[1\]: .*float16: must be float32, as a\[0\] is", {
                "a": [t.zeros(9, 64), t.zeros(9, 64).half()]}),
        ), groups)
        weights = self.package.pack(*self.b)
        self.refused("^b: .*K = 64: must be a's 32", self.ops.gemm_packed,
                     t.zeros(9, 32), None, weights.number, 33)

    def test_out_over_a(self):
        t = self.torch
        memory = t.zeros(9 * 64)
        c = memory[:9 * 33].reshape(9, 33)
        self.refused("^c.data .*overlaps a", self.ops.gemm_out, c,
                     memory.reshape(9, 64), None, *self.b)

    def test_what_a_device_does_not_take(self):
        """The library's refusal, by this package's names and with what to do."""
        refusal = ("activations = 1: A of fp32 that is dense: must be NVFP4, or "
                   "dense of fp16 or bf16, on a GPU")
        cases = (("a: float32 as it is: must be NVFP4, or dense of fp16 or bf16, "
                  "on a GPU: a.to(torch.bfloat16), or quantise it", "a",
                  None, refusal),
                 ("a: float32 as it is: must be NVFP4 on this GPU: quantise it",
                  "a", None, "activations = 1: A of fp32 that is dense: must be "
                  "NVFP4 on this GPU"),
                 ("activations = 'int8': must be NVFP4, or dense of fp16 or bf16, "
                  "on a GPU", "activations", "int8",
                  refusal.replace("= 1", "= 2")))
        for message, argument, kind, text in cases:
            _plans.cache.clear()
            with mock.patch.object(_plans, "call", side_effect=(
                    nibblas.UnsupportedError(text, "activations"))), \
                    self.assertRaises(nibblas.UnsupportedError) as caught:
                self.ops.gemm(**self.good, activations=kind)
            self.assertEqual(str(caught.exception), message)
            self.assertEqual(caught.exception.argument, argument)
        other = nibblas.UnsupportedError("isa: no", "isa")
        with mock.patch.object(_plans, "call", side_effect=other), \
                self.assertRaises(nibblas.UnsupportedError) as caught:
            self.ops.gemm(**self.good)
        self.assertIs(caught.exception, other)


class Traced(DenseTest):
    def test_keys_of_plans(self):
        t = self.torch
        a = t.randn(8, 64)
        b, _, _ = self.operand(32, 64)
        stack, offsets = [x[None] for x in b], t.tensor([0, 4]).int()
        weights = self.package.pack(*b)
        names = (("gemm", b), ("gemm_packed", (weights.number, 32)),
                 ("dual_gemm", (*b, *b)), ("moe_gemm", (*stack, offsets)))
        _plans.cache.clear()
        for name, more in names:
            operator = getattr(self.ops, name)
            for x in (a, a.half(), a.bfloat16(), a[:4], t.randn(8, 128)[:, :64]):
                for kind in (None, "int8"):
                    def call(x=x, kind=kind, operator=operator, more=more):
                        return operator(x, None, *more, activations=kind)
                    self.assertEqual(plans_made(call), 1, (name, x.dtype, kind))
                    self.assertEqual(plans_made(call), 0, (name, x.dtype, kind))
        for kind in (None, "int8"):
            def group(kind=kind):
                return self.ops.group_gemm([a], None, *([x] for x in b),
                                           activations=kind)
            self.assertEqual((plans_made(group), plans_made(group)), (1, 0))

    def test_a_known_plan_reads_the_tensors_of_the_call(self):
        t = self.torch
        b, _, _ = self.operand(32, 64)
        stack, offsets = [x[None] for x in b], t.tensor([0, 8]).int()
        weights = self.package.pack(*b)
        inputs = [t.randn(8, 64) for _ in range(3)]
        for call in (
                lambda x: self.ops.gemm(x, None, *b),
                lambda x: self.ops.gemv(x[0], None, *b),
                lambda x: self.ops.gemm_packed(x, None, weights.number, 32),
                lambda x: self.ops.dual_gemm(x, None, *b, *b),
                lambda x: self.ops.group_gemm([x], None, *([y] for y in b))[0],
                lambda x: self.ops.moe_gemm(x, None, *stack, offsets),
                lambda x: self.ops.moe_dual_gemm(x, None, *stack, *stack,
                                                 offsets),
                lambda x: t.from_numpy(nibblas.gemm(x.numpy(), None, *b)),
                lambda x: t.from_numpy(nibblas.moe_gemm(x.numpy(), None, *stack,
                                                        offsets))):
            got, want = [call(x) for x in inputs], []
            for x in inputs:
                _plans.cache.clear()
                weights.plans.clear()
                want.append(call(x))
            for one, other in zip(got, want):
                self.assertTrue(t.equal(one, other))
            self.assertFalse(t.equal(got[0], got[1]))

    def test_a_known_size_is_still_refused_for_codes(self):
        t = self.torch
        b, _, _ = self.operand(32, 64)
        codes, scales = self.operand(8, 64)[0]
        self.ops.gemm(codes, scales, *b)
        self.refused("^a_scales = None", self.ops.gemm, codes, None, *b)
        self.refused("^activations", self.ops.gemm, codes, scales, *b,
                     activations="int8")
        self.ops.gemm(t.zeros(8, 64), None, *b)
        self.refused("^a: ", self.ops.gemm, t.zeros(8, 64), scales, *b)

    def test_opcheck(self):
        t = self.torch
        a, _ = self.floats(9, 64)
        b, _, _ = self.operand(33, 64)
        alpha = t.tensor([0.5])
        stack, offsets = [x[None] for x in b], t.tensor([0, 9]).int()
        weights = self.package.pack(*b)
        lists = ([a, a.clone()], None, *([x, x.clone()] for x in b))
        c = t.zeros(9, 33)
        for name, args in (
                ("gemm", (a, None, *b)),
                ("gemm", (a.half(), None, *b, alpha, t.bfloat16)),
                ("gemm_out", (c, a, None, *b)),
                ("gemv", (a[0], None, *b)),
                ("dual_gemm", (a, None, *b, *b, alpha, alpha)),
                ("group_gemm", lists),
                ("group_gemm_out", ([c, c.clone()], *lists)),
                ("moe_gemm", (a, None, *stack, offsets)),
                ("moe_dual_gemm", (a, None, *stack, *stack, offsets)),
                ("gemm_packed", (a, None, weights.number, 33))):
            t.library.opcheck(getattr(self.ops, name).default, args)
        t.library.opcheck(self.ops.gemm.default, (a, None, *b),
                          {"activations": "int8"})

    def test_fake_kernels_know_the_type(self):
        t = self.torch
        codes = t.zeros(33, 32, dtype=t.uint8, device="meta")
        for dtype in self.types:
            a = t.zeros(9, 64, dtype=dtype, device="meta")
            for c in (self.ops.gemm(a, None, codes, codes),
                      self.ops.group_gemm([a], None, [codes], [codes])[0],
                      self.ops.moe_gemm(a, None, codes[None], codes[None],
                                        codes),
                      self.ops.gemm_packed(a, None, 1, 33)):
                self.assertEqual((c.dtype, tuple(c.shape)), (dtype, (9, 33)))

    def test_compiles_for_any_size(self):
        t = self.torch
        b, _, _ = self.operand(33, 64)
        alpha = t.tensor([0.5])

        def f(x, kind):
            return self.ops.gemm(x * 2, None, *b, alpha, activations=kind) + 1
        for kind in (None, "int8"):
            for dtype in self.types:
                t._dynamo.reset()
                compiled = t.compile(f, backend="aot_eager", dynamic=True,
                                     fullgraph=True)
                for m in (3, 40, 7):
                    x = t.randn(m, 64).to(dtype)
                    self.assertTrue(t.equal(compiled(x, kind), f(x, kind)))

    def test_what_needs_a_gradient(self):
        t = self.torch
        a = t.randn(9, 64, requires_grad=True)
        b, _, _ = self.operand(33, 64)
        c = t.zeros(9, 33)
        stack, offsets = [x[None] for x in b], t.tensor([0, 9]).int()
        for name, args in (
                ("gemm", (c, a, None, *b)), ("gemv", (c[0], a[0], None, *b)),
                ("dual_gemm", (c, a, None, *b, *b)),
                ("group_gemm", ([c], [a], None, *([x] for x in b))),
                ("moe_gemm", (c, a, None, *stack, offsets)),
                ("moe_dual_gemm", (c, a, None, *stack, *stack, offsets))):
            write = getattr(self.ops, name + "_out")
            self.refused("^c: operators that write", write, *args)
            with t.no_grad():
                write(*args)
            with self.assertRaisesRegex(Exception, "operators that write"):
                t.compile(lambda write=write, args=args: write(*args),
                          backend="aot_eager")()


if __name__ == "__main__":
    unittest.main(verbosity=2)
