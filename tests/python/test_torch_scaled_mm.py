# SPDX-License-Identifier: Apache-2.0
"""nibblas.torch.scaled_mm and related functions with torch's arguments: the results are
compared with float64, and the signatures with torch's."""

import inspect
import unittest

import numpy as np
from common import (TorchTest, blocked, bound, decode, dense_bound, random_codes,
                    random_scales)


class ScaledTest(TorchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.F = cls.torch.nn.functional
        if not hasattr(cls.F, "scaled_mm"):
            raise unittest.SkipTest("torch.nn.functional has no scaled_mm")
        cls.block = cls.F.ScalingType.BlockWise1x16
        cls.whole = cls.F.ScalingType.TensorWise
        cls.swizzle = cls.F.SwizzleType.SWIZZLE_32_4_4
        cls.plain = cls.F.SwizzleType.NO_SWIZZLE

    def typed(self, *shape, layout="tiled"):
        (codes, scales), values, _ = self.operand(*shape, layout=layout)
        return (codes.view(self.torch.float4_e2m1fn_x2),
                scales.view(self.torch.float8_e4m3fn), values)


class Signatures(ScaledTest):
    def test_are_torchs(self):
        for name in ("scaled_mm", "scaled_grouped_mm"):
            ours = inspect.signature(getattr(self.package, name)).parameters
            torchs = inspect.signature(getattr(self.F, name)).parameters
            self.assertEqual([(p.name, p.default) for p in ours.values()],
                             [(p.name, p.default) for p in torchs.values()])
        schema = self.torch.ops.aten._scaled_mm.default._schema
        ours = list(inspect.signature(self.package._scaled_mm).parameters)
        self.assertEqual(ours[1:], [a.name for a in schema.arguments][1:])


class ScaledMm(ScaledTest):
    def test_one_level(self):
        for m, n, k in ((5, 16, 64), (130, 33, 256)):
            a, sa, x = self.typed(m, k)
            b, sb, y = self.typed(n, k)
            c = self.package.scaled_mm(a, b.t(), sa, self.block, sb, self.block,
                                    self.swizzle, self.swizzle,
                                    output_dtype=self.torch.float32)
            self.assert_within(c, x @ y.T, bound(x, y))
            flat = self.package.scaled_mm(
                a, b.t(), sa.flatten(), [self.block], [sb.flatten()],
                [self.block], [self.swizzle], [self.swizzle],
                contraction_dim=(-1, -2))
            self.assertEqual(flat.dtype, self.torch.bfloat16)
            self.assertTrue(self.torch.equal(flat, c.bfloat16()))
            old = self.package._scaled_mm(a, b.t(), sa, sb,
                                       out_dtype=self.torch.bfloat16)
            self.assertTrue(self.torch.equal(old, flat))

    def test_two_levels_and_no_swizzle(self):
        a, sa, x = self.typed(5, 64, layout="linear")
        b, sb, y = self.typed(16, 64, layout="linear")
        ga, gb = self.torch.tensor(0.5), self.torch.tensor([0.25])
        recipe = [self.block, self.whole]
        for swizzle in (None, self.plain, [self.plain, self.plain]):
            c = self.package.scaled_mm(a, b.t(), [sa, ga], recipe, [sb, gb],
                                    recipe, swizzle, swizzle,
                                    output_dtype=self.torch.float32)
            self.assert_within(c, x @ y.T / 8, bound(x, y) / 8)

    def test_bias_is_added_before_rounding(self):
        t = self.torch
        a, sa, _ = self.typed(5, 64)
        b, sb, _ = self.typed(16, 64)
        args = (a, b.t(), sa, self.block, sb, self.block, self.swizzle,
                self.swizzle)
        bias = t.randn(16).half()
        whole = self.package.scaled_mm(*args, output_dtype=t.float32)
        c = self.package.scaled_mm(*args, bias=bias, output_dtype=t.float16)
        self.assertTrue(t.equal(c, (whole + bias).half()))

    def test_empty_k_is_zero(self):
        t = self.torch
        a = t.zeros(3, 0, dtype=t.uint8).view(t.float4_e2m1fn_x2)
        s = t.zeros(0, dtype=t.float8_e4m3fn)
        c = self.package.scaled_mm(a, a.t(), s, self.block, s, self.block,
                                self.swizzle, self.swizzle)
        self.assertTrue(t.equal(c, t.zeros(3, 3, dtype=t.bfloat16)))

    def test_empty_without_swizzle(self):
        t = self.torch
        for m, half in ((0, 16), (3, 0), (0, 0)):
            a = t.zeros(m, half, dtype=t.uint8)
            b = t.zeros(5, half, dtype=t.uint8)
            c = self.package.scaled_mm(
                a, b.t(), t.zeros(m, half // 8, dtype=t.float8_e4m3fn),
                self.block, t.zeros(5, half // 8, dtype=t.float8_e4m3fn),
                self.block)
            self.assertTrue(t.equal(c, t.zeros(m, 5, dtype=t.bfloat16)))

    def test_a_known_call_is_still_checked(self):
        a, sa, _ = self.typed(5, 64)
        b, sb, _ = self.typed(16, 64)
        good = [a, b.t(), sa, self.block, sb, self.block, self.swizzle,
                self.swizzle]
        want = self.package.scaled_mm(*good)
        for i, other in ((1, b.t().contiguous()), (2, sa[:64]),
                         (4, sb.float()), (7, self.plain)):
            with self.assertRaises(ValueError):
                self.package.scaled_mm(*good[:i], other, *good[i + 1:])
        self.assertTrue(self.torch.equal(self.package.scaled_mm(*good), want))

    def test_other_recipes_are_torchs(self):
        t = self.torch
        a = t.ones(16, 32).to(t.float8_e4m3fn)
        one = t.ones(())
        args = (a, a.t(), one, self.whole, one, self.whole)
        ours, theirs = (self.outcome(f, *args) for f in
                        (self.package.scaled_mm, self.F.scaled_mm))
        self.assertEqual(ours, theirs)

    @staticmethod
    def outcome(function, *args):
        try:
            return function(*args).tolist()
        except (ValueError, RuntimeError) as error:
            return type(error), str(error)

    def test_compiles(self):
        a, sa, _ = self.typed(5, 64)
        b, sb, _ = self.typed(16, 64)
        ga = self.torch.tensor(0.5)
        recipe = [self.block, self.whole]
        both = [self.swizzle, self.plain]

        def f(a, b, sa, sb, ga):
            return self.package.scaled_mm(a, b.t(), [sa, ga], recipe, [sb, ga],
                                       recipe, both, both)
        compiled = self.torch.compile(f, backend="aot_eager", fullgraph=True)
        self.assertTrue(self.torch.equal(compiled(a, b, sa, sb, ga),
                                         f(a, b, sa, sb, ga)))

    def test_refusals(self):
        t = self.torch
        a, sa, _ = self.typed(5, 64)
        b, sb, _ = self.typed(16, 64)
        good = {"mat_a": a, "mat_b": b.t(), "scale_a": sa,
                "scale_recipe_a": self.block, "scale_b": sb,
                "scale_recipe_b": self.block, "swizzle_a": self.swizzle,
                "swizzle_b": self.swizzle}
        self.package.scaled_mm(**good)
        for pattern, change in (
                ("^mat_a must be 2D", {"mat_a": a[None]}),
                ("^mat_b must be float4", {"mat_b": t.zeros(32, 16)}),
                ("^mat_b must be column-major",
                 {"mat_b": b.t().contiguous()}),
                ("mat_a .*must match", {"mat_a": a[:, :24]}),
                ("divisible by 16", {"mat_a": a[:, :4], "mat_b": b.t()[:4]}),
                ("^For BlockWise1x16 scaling scale_a should have 512",
                 {"scale_a": sa[:64]}),
                ("^scale_b should|scale_b should have 64",
                 {"swizzle_b": self.plain}),
                ("^scale_a must be float8_e4m3fn", {"scale_a": sa.float()}),
                ("^scale_a must have 2 tensors",
                 {"scale_recipe_a": [self.block, self.whole]}),
                ("global scale of scale_b must have a value",
                 {"scale_recipe_a": [self.block, self.whole],
                  "scale_a": [sa, t.ones(1)]}),
                ("^use_fast_accum", {"use_fast_accum": True}),
                ("^bias must be torch.bfloat16 of shape .16",
                 {"bias": t.zeros(16)}),
                ("^output_dtype", {"output_dtype": t.int8}),
                ("^contraction_dim", {"contraction_dim": (0, 1)}),
                ("^swizzle_a = 7", {"swizzle_a": 7})):
            self.refused(pattern, self.package.scaled_mm, **{**good, **change})
        with self.assertRaisesRegex(NotImplementedError, "^scale_recipe_b"):
            self.package.scaled_mm(**{**good, "scale_recipe_b": self.whole})


class FloatsAsA(ScaledTest):
    """mat_a that has no scales."""

    def setUp(self):
        t = self.torch
        self.recipe = [self.block, self.whole]
        self.types = (t.float32, t.float16, t.bfloat16)

    def test_scaled_mm(self):
        t = self.torch
        g = t.tensor(0.25)
        bias = t.randn(33)
        for dtype in self.types:
            a = t.randn(5, 64).to(dtype)
            for layout, swizzle in (("tiled", self.swizzle), ("linear", None)):
                b, sb, y = self.typed(33, 64, layout=layout)

                def f(out, bias=None, b=b, sb=sb, swizzle=swizzle, a=a):
                    return self.package.scaled_mm(
                        a, b.t(), None, None, [sb, g], self.recipe, None, swizzle,
                        bias, out)
                x = a.double().numpy()
                c = f(t.float32)
                self.assert_within(c, x @ y.T / 4, dense_bound(x, y) / 4)
                self.assertTrue(t.equal(f(t.float32, bias), c + bias))
                self.assertTrue(t.equal(f(t.bfloat16), c.bfloat16()))
                self.assertTrue(t.equal(f(None), c.to(dtype)))
        plain = self.package.scaled_mm(a, b.t(), [], [], sb, self.block)
        self.assertEqual(plain.dtype, t.bfloat16)
        self.assertTrue(t.equal(plain, self.ops.gemm(a, None, b, sb,
                                                     b_layout="linear")))

    def test_scaled_grouped_mm(self):
        t = self.torch
        g = t.tensor([1., 2., .5])
        ends = [3, 3, 40]
        a = t.randn(40, 64).half()
        b, sb, y = self.typed(3, 24, 64)
        x = a.double().numpy()

        def f(a, scales, recipe, offs, out=t.float32):
            return self.package.scaled_grouped_mm(
                a, b.transpose(1, 2), None, None, scales, recipe, None,
                self.swizzle, offs=offs, output_dtype=out)
        offs = t.tensor(ends).int()
        c = f(a, [sb, g], self.recipe, offs)
        for e, (start, end) in enumerate(zip([0, *ends], ends)):
            s, part = g[e].item(), x[start:end]
            self.assert_within(c[start:end], s * (part @ y[e].T),
                               s * dense_bound(part, y[e]))
        self.assertEqual(f(a, sb, self.block, offs, None).dtype, t.float16)
        stack = a[:15].reshape(3, 5, 64)
        x = stack.double().numpy()
        for scales, recipe, s in (([sb, g], self.recipe, g.numpy()),
                                  (sb, self.block, np.ones(3))):
            c = f(stack, scales, recipe, None)
            s = s[:, None, None]
            self.assert_within(c, s * np.einsum("gmk,gnk->gmn", x, y),
                               s * dense_bound(x, y))

    def test_groups_of_k(self):
        t = self.torch
        a = t.randn(5, 96).bfloat16()
        b, sb, y = self.typed(9, 96, layout="linear")
        c = self.package.scaled_grouped_mm(
            a, b.t(), None, None, sb, self.block, offs=t.tensor([64, 96]).int(),
            output_dtype=t.float32)
        x = a.double().numpy()
        for one, k in zip(c, (slice(0, 64), slice(64, 96))):
            self.assert_within(one, x[:, k] @ y[:, k].T,
                               dense_bound(x[:, k], y[:, k]))

    def test_compiles(self):
        b, sb, _ = self.typed(16, 64)
        a = self.torch.randn(5, 64)

        def f(a, b, sb):
            return self.package.scaled_mm(a, b.t(), None, None, sb, self.block,
                                          None, self.swizzle)
        compiled = self.torch.compile(f, backend="aot_eager", fullgraph=True)
        self.assertTrue(self.torch.equal(compiled(a, b, sb), f(a, b, sb)))

    def test_refusals(self):
        t = self.torch
        b, sb, _ = self.typed(16, 64)
        good = {"mat_a": t.randn(5, 64), "mat_b": b.t(), "scale_a": None,
                "scale_recipe_a": None, "scale_b": sb,
                "scale_recipe_b": self.block, "swizzle_b": self.swizzle}
        self.package.scaled_mm(**good)
        for pattern, change in (
                ("^mat_a must be 2D", {"mat_a": t.randn(1, 5, 64)}),
                ("^mat_a .*must match, K and K/2", {"mat_a": t.randn(5, 32)}),
                ("^scale_a must be None without scale_recipe_a", {"scale_a": sb}),
                ("^mat_a must be float4", {"scale_recipe_a": self.block}),
                ("^scale_b must be float8_e4m3fn", {"scale_b": sb.float()})):
            self.refused(pattern, self.package.scaled_mm, **{**good, **change})


class ScaledGroupedMm(ScaledTest):
    def tokens(self, counts, k, layout):
        codes = random_codes(self.rng, sum(counts), k // 2)
        scales = random_scales(self.rng, sum(counts), k // 16)
        values = decode(codes, scales)
        if layout == "tiled":
            ends = np.cumsum(counts)
            scales = np.concatenate([blocked(scales[e - n:e])
                                     for n, e in zip(counts, ends)])
        t = self.torch
        return (t.from_numpy(codes).view(t.float4_e2m1fn_x2),
                t.from_numpy(scales).view(t.float8_e4m3fn), values,
                t.tensor(np.cumsum(counts), dtype=t.int32))

    def test_tokens_by_expert(self):
        counts = [3, 0, 130, 1]
        for layout, swizzle in (("tiled", self.swizzle), ("linear", None)):
            a, sa, x, offs = self.tokens(counts, 64, layout)
            b, sb, y = self.typed(4, 24, 64, layout=layout)
            ga, gb = self.torch.tensor([1., 2., .5, 4.]), self.torch.ones(1)
            recipe = [self.block, self.whole]
            c = self.package.scaled_grouped_mm(
                a, b.transpose(1, 2), [sa, ga], recipe,
                [sb.reshape(4, -1), gb], recipe, swizzle, swizzle, offs=offs,
                output_dtype=self.torch.float32)
            for scales, factor in (([sa, ga], ga), (sa, None)):
                by = recipe if factor is not None else self.block
                half = self.package.scaled_grouped_mm(
                    a, b.transpose(1, 2), scales, by, [
                        sb.reshape(4, -1), gb] if factor is not None else sb,
                    by, swizzle, swizzle, offs=offs)
                whole = c if factor is not None else (
                    c / ga.repeat_interleave(self.torch.tensor(counts))[:, None])
                self.assertTrue(self.torch.equal(half, whole.bfloat16()))
            start = 0
            for e, end in enumerate(offs.tolist()):
                s = ga[e].item()
                self.assert_within(c[start:end], s * (x[start:end] @ y[e].T),
                                   s * bound(x[start:end], y[e]))
                start = end

    def test_stacks(self):
        a, sa, x = self.typed(3, 5, 64)
        b, sb, y = self.typed(3, 24, 64)
        want = np.einsum("gmk,gnk->gmn", x, y)
        args = (self.swizzle, self.swizzle, None, None, self.torch.float32)
        c = self.package.scaled_grouped_mm(a, b.transpose(1, 2), sa, self.block,
                                        sb, self.block, *args)
        self.assert_within(c, want, bound(x, y))
        recipe = [self.block, self.whole]
        g = self.torch.tensor([1., 2., 4.])
        c = self.package.scaled_grouped_mm(a, b.transpose(1, 2), [sa, g], recipe,
                                        [sb, self.torch.ones(3)], recipe,
                                        *args)
        factor = g.numpy()[:, None, None]
        self.assert_within(c, factor * want, factor * bound(x, y))

    def k_groups(self, rows, sizes, layout):
        """[rows, K/2], its scales, and each group's float64 values."""
        codes = random_codes(self.rng, rows, sum(sizes) // 2)
        scales = random_scales(self.rng, rows, sum(sizes) // 16)
        ends = np.cumsum(sizes)
        pieces = [(codes[:, (e - n) // 2:e // 2], scales[:, (e - n) // 16:e // 16])
                  for n, e in zip(sizes, ends)]
        if layout == "tiled":
            scales = np.concatenate([blocked(s).ravel() for _, s in pieces])
            scales = scales.reshape(-(-rows // 128) * 128, -1)
        t = self.torch
        return (t.from_numpy(codes).view(t.float4_e2m1fn_x2),
                t.from_numpy(scales).view(t.float8_e4m3fn),
                [decode(*piece) for piece in pieces])

    def test_groups_of_k(self):
        t = self.torch
        recipe = [self.block, self.whole]
        for sizes in ([64, 32, 128], [96, 0, 32, 160], [48]):
            offs = t.tensor(np.cumsum(sizes), dtype=t.int32)
            ga = t.tensor([1., 2., .5, 4.][:len(sizes)])
            for layout, swizzle in (("tiled", self.swizzle), ("linear", None)):
                a, sa, x = self.k_groups(5, sizes, layout)
                b, sb, y = self.k_groups(130, sizes, layout)
                plain = self.package.scaled_grouped_mm(
                    a, b.t(), sa, self.block, sb, self.block, swizzle, swizzle,
                    offs=offs, output_dtype=t.float32)
                c = self.package.scaled_grouped_mm(
                    a, b.t(), [sa, ga], recipe, [sb, t.ones(1)], recipe,
                    swizzle, swizzle, offs=offs, output_dtype=t.float32)
                self.assertEqual(tuple(c.shape), (len(sizes), 5, 130))
                for i, factor in enumerate(ga.tolist()):
                    if sizes[i] == 0:
                        self.assertFalse(plain[i].any() or c[i].any())
                        continue
                    want, limit = x[i] @ y[i].T, bound(x[i], y[i])
                    self.assert_within(plain[i], want, limit)
                    self.assert_within(c[i], factor * want, factor * limit)

    def test_groups_of_k_refused(self):
        t = self.torch
        a, sa, _ = self.k_groups(5, [64, 32], "tiled")
        b, sb, _ = self.k_groups(9, [64, 32], "tiled")

        def ends(*values):
            return t.tensor(values, dtype=t.int32)
        good = {"mat_a": a, "mat_b": b.t(), "scale_a": sa,
                "scale_recipe_a": self.block, "scale_b": sb,
                "scale_recipe_b": self.block, "swizzle_a": self.swizzle,
                "swizzle_b": self.swizzle, "offs": ends(64, 96)}
        self.package.scaled_grouped_mm(**good)
        for pattern, change in (
                (r"^offs = \[64, 112\]: must be multiples of 16 .*at most K = 96",
                 {"offs": ends(64, 112)}),
                (r"^offs = \[64, 32\]", {"offs": ends(64, 32)}),
                (r"^offs = \[60, 96\]", {"offs": ends(60, 96)}),
                ("^scale_a must have 512 elements", {"offs": ends(64)}),
                ("^scale_b must have shape .9, 6.", {"swizzle_b": None}),
                ("contraction dimensions must match", {"mat_b": b[:, :32].t()})):
            self.refused(pattern, self.package.scaled_grouped_mm,
                         **{**good, **change})

    def test_compiles(self):
        a, sa, _, offs = self.tokens([3, 5], 64, "tiled")
        b, sb, _ = self.typed(2, 24, 64)

        def f(a, b, sa, sb, offs):
            return self.package.scaled_grouped_mm(
                a, b.transpose(1, 2), sa, self.block, sb, self.block,
                self.swizzle, self.swizzle, offs=offs)
        compiled = self.torch.compile(f, backend="aot_eager", fullgraph=True)
        self.assertTrue(self.torch.equal(compiled(a, b, sa, sb, offs),
                                         f(a, b, sa, sb, offs)))

    def test_refusals(self):
        t = self.torch
        a, sa, _, offs = self.tokens([3, 5], 64, "tiled")
        b, sb, _ = self.typed(2, 24, 64)
        good = {"mat_a": a, "mat_b": b.transpose(1, 2), "scale_a": sa,
                "scale_recipe_a": self.block, "scale_b": sb,
                "scale_recipe_b": self.block, "swizzle_a": self.swizzle,
                "swizzle_b": self.swizzle, "offs": offs}
        self.package.scaled_grouped_mm(**good)
        for pattern, change in (
                ("provide offsets", {"offs": None}),
                ("^offs must be 1D of int32", {"offs": offs.long()}),
                ("^offs must have an end for each of mat_b's 2",
                 {"offs": offs[:1]}),
                ("Bias not supported", {"bias": t.zeros(24)}),
                ("^mat_b must be column-major", {
                    "mat_b": b.transpose(1, 2).contiguous()}),
                ("scale_b should have 1024", {"scale_b": sb[:1]}),
                ("^scale_a must have whole tiles of 128 x 4",
                 {"scale_a": sa[:100]}),
                ("^scale_a must have shape .8, 4.", {"swizzle_a": None})):
            self.refused(pattern, self.package.scaled_grouped_mm,
                         **{**good, **change})
        with self.assertRaisesRegex(NotImplementedError, "^mat_a is 3D and"):
            self.package.scaled_grouped_mm(**{**good, "mat_a": a[None],
                                           "mat_b": b[0].t()})


if __name__ == "__main__":
    unittest.main(verbosity=2)
