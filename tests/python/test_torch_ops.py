# SPDX-License-Identifier: Apache-2.0
"""Compares torch.ops.nibblas with float64 on decoded operands, within the bound of
docs/numerics.md, and with the exact oracle bit by bit; opcheck of each."""

import unittest

import nibblas
import numpy as np
from common import (TorchTest, blocked, blocked_index, bound, decode, random_codes,
                    random_scales, reference)

from nibblas import _abi as abi

SIZES = [(1, 1, 16), (3, 5, 48), (17, 130, 64), (129, 33, 256), (5, 64, 1040)]


class Products(TorchTest):
    def test_gemm_within_the_bound(self):
        for m, n, k in SIZES:
            for layout in ("tiled", "linear"):
                a, x, _ = self.operand(m, k, layout=layout)
                b, y, _ = self.operand(n, k, layout=layout)
                c = self.ops.gemm(*a, *b, None, self.torch.float32, layout,
                                  layout)
                self.assert_within(c, x @ y.T, bound(x, y))

    def test_layouts_may_differ(self):
        a, x, _ = self.operand(9, 96, layout="tiled")
        b, y, _ = self.operand(7, 96, layout="linear")
        c = self.ops.gemm(*a, *b, out_dtype=self.torch.float32,
                          b_layout="linear")
        self.assert_within(c, x @ y.T, bound(x, y))

    def test_output_types_round_once(self):
        a, _, left = self.operand(9, 128)
        b, _, right = self.operand(33, 128)
        alpha = self.torch.tensor([2.0 ** -9])
        whole = self.ops.gemm(*a, *b, alpha, self.torch.float32)
        for dtype in (self.torch.float16, self.torch.bfloat16):
            c = self.ops.gemm(*a, *b, alpha, dtype)
            self.assertTrue(self.torch.equal(c, whole.to(dtype)))
        self.assertEqual(self.ops.gemm(*a, *b).dtype, self.torch.bfloat16)

    def test_torch_types_of_codes_and_scales(self):
        a, _, _ = self.operand(9, 128)
        b, _, _ = self.operand(33, 128)
        want = self.ops.gemm(*a, *b)
        kinds = (self.torch.float4_e2m1fn_x2, self.torch.float8_e4m3fn)
        typed = [x.view(kind) for x, kind in zip((*a, *b), kinds * 2)]
        self.assertTrue(self.torch.equal(self.ops.gemm(*typed), want))

    def test_by_dlpack_too(self):
        t = self.torch
        a, _, _ = self.operand(9, 128)
        b, _, _ = self.operand(33, 128)
        want = self.ops.gemm(*a, *b)
        kinds = (t.float4_e2m1fn_x2, t.float8_e4m3fn) * 2
        for one in ((*a, *b), [x.view(k) for x, k in zip((*a, *b), kinds)]):
            out = t.zeros(9, 33, dtype=t.bfloat16)
            nibblas.gemm(*one, out=out)
            self.assertTrue(t.equal(out, want))
        q = nibblas.quantize(t.ones(4, 32, dtype=t.bfloat16))
        self.assertEqual(nibblas.dequantize(*q).tolist(), [[1.0] * 32] * 4)

    def test_batches_and_shared_weights(self):
        for layout in ("tiled", "linear"):
            a, x, _ = self.operand(3, 6, 64, layout=layout)
            b, y, _ = self.operand(3, 10, 64, layout=layout)
            args = (None, self.torch.float32, layout, layout)
            c = self.ops.gemm(*a, *b, *args)
            self.assert_within(c, np.einsum("lmk,lnk->lmn", x, y),
                               bound(x, y))
            one = (b[0][1], b[1][1])
            c = self.ops.gemm(*a, *one, *args)
            self.assert_within(c, x @ y[1].T, bound(x, y[1:2]))

    def test_views_with_strides(self):
        a, x, _ = self.operand(20, 256, layout="linear")
        b, y, _ = self.operand(10, 256, layout="linear")
        part = (a[0][::2, 32:96], a[1][::2, 4:12])
        c = self.ops.gemm(*part, b[0][:, 32:96], b[1][:, 4:12], None,
                          self.torch.float32, "linear", "linear")
        x, y = x[::2, 64:192], y[:, 64:192]
        self.assert_within(c, x @ y.T, bound(x, y))

    def test_gemv(self):
        for layout in ("tiled", "linear"):
            args = (None, self.torch.float32, layout, layout)
            a, x, _ = self.operand(4, 1, 128, layout=layout)
            b, y, _ = self.operand(4, 33, 128, layout=layout)
            vectors = (a[0][:, 0], a[1] if layout == "tiled" else a[1][:, 0])
            c = self.ops.gemv(*vectors, *b, *args)
            self.assert_within(c, np.einsum("lk,lnk->ln", x[:, 0], y),
                               bound(x, y)[:, 0])
            c = self.ops.gemv(vectors[0][2], vectors[1][2], b[0][2], b[1][2],
                              *args)
            self.assert_within(c, y[2] @ x[2, 0], bound(x, y)[2, 0])

    def test_dual_gemm(self):
        a, x, _ = self.operand(9, 128)
        b, y, _ = self.operand(33, 128)
        b2, z, _ = self.operand(33, 128)
        alphas = [self.torch.tensor([s]) for s in (2.0 ** -8, 2.0 ** -9)]
        c = self.ops.dual_gemm(*a, *b, *b2, *alphas, self.torch.float32)
        g, u = x @ y.T * 2.0 ** -8, x @ z.T * 2.0 ** -9
        dg, du = bound(x, y) * 2.0 ** -8, bound(x, z) * 2.0 ** -9
        want = g / (1 + np.exp(-g)) * u
        # |silu'| <= 1.1, and a few roundings of fp32.
        limit = 1.1 * dg * np.abs(u) + np.abs(g) * du + 1e-6 * np.abs(want)
        self.assert_within(c, want, limit + 1e-6)

    def test_group_gemm(self):
        shapes = [(4, 16, 64), (0, 8, 32), (130, 5, 128), (1, 33, 16)]
        a, x = zip(*[self.operand(m, k)[:2] for m, n, k in shapes])
        b, y = zip(*[self.operand(n, k)[:2] for m, n, k in shapes])
        alpha = self.torch.tensor([1.0, 2.0, 0.5, 4.0])
        lists = [list(one) for one in (*zip(*a), *zip(*b))]
        out = self.ops.group_gemm(*lists, alpha, self.torch.float32)
        self.assertEqual(len(out), len(shapes))
        for c, p, q, s in zip(out, x, y, alpha.tolist()):
            self.assert_within(c, s * (p @ q.T), s * bound(p, q))
        self.assertEqual(self.ops.group_gemm([], [], [], []), [])

    def experts(self, layout):
        """Tokens by expert: values, tensors, offsets and rows of scales."""
        counts = [3, 0, 130, 1]
        codes = random_codes(self.rng, sum(counts), 32)
        scales = random_scales(self.rng, sum(counts), 4)
        ends = np.cumsum(counts)
        starts = ends - counts
        if layout == "tiled":
            parts = [blocked(scales[s:e]) for s, e in zip(starts, ends)]
            laid = np.concatenate(parts)
            rows = np.cumsum([0] + [len(p) for p in parts[:-1]])
        else:
            laid, rows = scales, starts
        t = self.torch
        return (decode(codes, scales), t.from_numpy(codes), t.from_numpy(laid),
                t.tensor([0, *ends], dtype=t.int32),
                t.tensor(rows, dtype=t.int32), list(zip(starts, ends)))

    def test_moe_gemm(self):
        for layout in ("tiled", "linear"):
            x, a, a_scales, offsets, rows, spans = self.experts(layout)
            b, y, _ = self.operand(4, 40, 64, layout=layout)
            alpha = self.torch.tensor([1.0, 2.0, 0.5, 4.0])
            c = self.ops.moe_gemm(a, a_scales, *b, offsets, rows, alpha,
                                  self.torch.float32, layout, layout)
            for e, (start, end) in enumerate(spans):
                part, s = x[start:end], alpha[e].item()
                self.assert_within(c[start:end], s * (part @ y[e].T),
                                   s * bound(part, y[e]))

    def test_moe_dual_gemm(self):
        for layout in ("tiled", "linear"):
            x, a, a_scales, offsets, rows, spans = self.experts(layout)
            b, _, _ = self.operand(4, 40, 64, layout=layout)
            b2, _, _ = self.operand(4, 40, 64, layout=layout)
            alpha = self.torch.tensor([1.0, 2.0, 0.5, 4.0]) * 2.0 ** -7
            alpha2 = alpha / 2
            args = (self.torch.float32, layout, layout)
            c = self.ops.moe_dual_gemm(a, a_scales, *b, *b2, offsets, rows,
                                       alpha, alpha2, *args)
            # The same rows, expert by expert.
            codes, scales = a, a_scales
            for e, (start, end) in enumerate(spans):
                first = int(rows[e])
                last = first + (-(-(end - start) // 128) * 128
                                if layout == "tiled" else end - start)
                want = self.ops.dual_gemm(
                    codes[start:end], scales[first:last], b[0][e], b[1][e],
                    b2[0][e], b2[1][e], alpha[e], alpha2[e], *args)
                self.assertTrue(self.torch.equal(c[start:end], want))

    def test_empty(self):
        t = self.torch
        for m, n, k in ((0, 4, 32), (4, 0, 32), (4, 4, 0)):
            a, _, _ = self.operand(m, k)
            b, _, _ = self.operand(n, k)
            c = self.ops.gemm(*a, *b)
            self.assertTrue(t.equal(c, t.zeros(m, n, dtype=t.bfloat16)))
        a, _, _ = self.operand(0, 3, 32)
        b, _, _ = self.operand(0, 5, 32)
        self.assertEqual(tuple(self.ops.gemm(*a, *b).shape), (0, 3, 5))

    def test_written_in_place(self):
        t = self.torch
        a, _, _ = self.operand(2, 9, 64)
        b, _, _ = self.operand(2, 33, 64)
        want = self.ops.gemm(*a, *b, None, t.float16)
        c = t.full((9, 40, 2), 7.0, dtype=t.float16).permute(2, 0, 1)
        # cols are not contiguous in that one: heads of one tensor are.
        self.refused("^c: .*last must be 1", self.ops.gemm_out, c[:, :, :33],
                     *a, *b)
        c = t.full((9, 2, 40), 7.0, dtype=t.float16).permute(1, 0, 2)
        self.assertIsNone(self.ops.gemm_out(c[:, :, :33], *a, *b))
        self.assertTrue(t.equal(c[:, :, :33], want))
        self.assertTrue((c[:, :, 33:] == 7).all())

    def test_all_twins_write_the_same(self):
        t = self.torch
        a, _, _ = self.operand(9, 64)
        b, _, _ = self.operand(33, 64)
        b2, _, _ = self.operand(33, 64)
        c = t.zeros(9, 33, dtype=t.bfloat16)
        self.ops.dual_gemm_out(c, *a, *b, *b2)
        self.assertTrue(t.equal(c, self.ops.dual_gemm(*a, *b, *b2)))
        lists = [[one] * 2 for one in (*a, *b)]
        group = [t.zeros(9, 33), t.zeros(9, 33)]
        self.ops.group_gemm_out(group, *lists)
        self.assertTrue(t.equal(group[1], self.ops.gemm(*a, *b, None,
                                                        t.float32)))
        v, _, _ = self.operand(1, 64)
        vector = t.zeros(33)
        self.ops.gemv_out(vector, v[0][0], v[1], *b)
        self.assertTrue(t.equal(vector, self.ops.gemv(
            v[0][0], v[1], *b, None, t.float32)))
        offsets = t.tensor([0, 9], dtype=t.int32)
        stack = (b[0][None], b[1][None])
        mixed = t.zeros(9, 33)
        self.ops.moe_gemm_out(mixed, *a, *stack, offsets)
        self.assertTrue(t.equal(mixed, group[1]))


class Autograd(TorchTest):
    """What writes into c tells autograd so."""

    def setUp(self):
        t, (a, _, _), (b, _, _) = self.torch, *(
            self.operand(rows, 64) for rows in (9, 33))
        stack = [x[None] for x in b]
        offsets = t.tensor([0, 9]).int()
        vector = (a[0][0], self.operand(1, 64)[0][1])
        self.twins = [
            ((9, 33), lambda c, *more: self.ops.gemm_out(c, *a, *b, *more)),
            ((33,), lambda c, *more: self.ops.gemv_out(c, *vector, *b, *more)),
            ((9, 33), lambda c, *more: self.ops.dual_gemm_out(c, *a, *b, *b,
                                                             *more)),
            ((9, 33), lambda c, *more: self.ops.group_gemm_out(
                [c], *([x] for x in (*a, *b)), *more)),
            ((9, 33), lambda c, *more: self.ops.moe_gemm_out(
                c, *a, *stack, offsets, None, *more)),
            ((9, 33), lambda c, *more: self.ops.moe_dual_gemm_out(
                c, *a, *stack, *stack, offsets, None, *more))]

    def test_a_saved_tensor_that_is_overwritten(self):
        t = self.torch
        for shape, write in self.twins:
            c = t.ones(shape)
            view, before = c.view(-1), c._version
            y = t.ones(shape, requires_grad=True) * c
            write(c)
            self.assertEqual((c._version, view._version), (before + 1,) * 2)
            with self.assertRaisesRegex(RuntimeError, "inplace operation"):
                y.sum().backward()
            with t.inference_mode():
                write(c)
                write(t.ones(shape))
            self.assertEqual(c._version, before + 2)

    def test_what_needs_a_gradient(self):
        t = self.torch
        alpha = t.ones(1, requires_grad=True)
        for shape, write in self.twins:
            c = t.ones(shape, requires_grad=True)
            self.refused("^c: operators that write", write, c)
            self.refused("^c: operators that write", write, t.ones(shape), alpha)
            with t.no_grad():
                write(c, alpha)
            self.assertEqual(c._version, 1)
            with self.assertRaisesRegex(Exception, "operators that write"):
                t.compile(write, backend="aot_eager")(c)


class Oracle(TorchTest):
    def power_of_two(self, *shape):
        """Operands whose sums are exact in fp32, whatever their order."""
        return self.operand(*shape, low=56, high=57)

    def test_gemm_bit_by_bit(self):
        for m, n, k in SIZES:
            a, _, left = self.power_of_two(m, k)
            b, _, right = self.power_of_two(n, k)
            c = self.ops.gemm(*a, *b, None, self.torch.float32)
            self.assertTrue(np.array_equal(c.numpy(), reference(
                abi.NIB_OP_GEMM, left, right)))

    def test_batches_bit_by_bit(self):
        a, _, left = self.power_of_two(3, 9, 160)
        b, _, right = self.power_of_two(3, 20, 160)
        alpha = self.torch.tensor([0.25])
        c = self.ops.gemm(*a, *b, alpha, self.torch.float32)
        self.assertTrue(np.array_equal(c.numpy(), reference(
            abi.NIB_OP_GEMM, left, right, alpha=alpha.numpy())))

    def test_backends_agree_bit_by_bit(self):
        a, _, left = self.operand(9, 1040, low=1, high=127)
        b, _, right = self.operand(33, 1040, low=1, high=127)
        c = self.ops.gemm(*a, *b, None, self.torch.float32)
        exact = reference(abi.NIB_OP_GEMM, left, right)
        x, y = decode(*left), decode(*right)
        self.assertTrue((np.abs(exact - x @ y.T) <=
                         2.0 ** -24 * np.abs(x @ y.T)).all())
        self.assert_within(c, exact.astype(np.float64), bound(x, y))


class Formats(TorchTest):
    def test_blocked_there_and_back(self):
        for shape in ((1, 1), (200, 16), (130, 448), (2, 33, 5)):
            linear = random_scales(self.rng, *shape, low=0, high=127)
            x = self.torch.from_numpy(linear)
            for kind in (self.torch.uint8, self.torch.float8_e4m3fn):
                tiled = self.ops.to_blocked(x.view(kind))
                self.assertEqual(tiled.dtype, kind)
                self.assertTrue(np.array_equal(
                    tiled.view(self.torch.uint8).numpy(),
                    blocked(linear, padding=0)))
                back = self.ops.from_blocked(tiled, *shape[-2:])
                self.assertTrue(self.torch.equal(
                    back.view(self.torch.uint8), x))
        flat = tiled[0].reshape(-1)
        self.assertTrue(self.torch.equal(
            self.ops.from_blocked(flat, 33, 5).view(self.torch.uint8), x[0]))

    def test_golden_offsets(self):
        self.assertEqual(blocked_index(201, 16)[200, 9], 3209)
        self.assertEqual(blocked_index(131, 448)[130, 447], 114211)

    def test_quantize_is_near_and_decodes(self):
        t = self.torch
        for dtype in (t.float32, t.float16, t.bfloat16):
            x = t.randn(37, 96).to(dtype)
            for layout in ("tiled", "linear"):
                codes, scales, scale = self.ops.quantize(x, layout=layout)
                self.assertEqual(scale.item(), (x.abs().max().float()
                                                / 2688).item())
                linear = scales if layout == "linear" else (
                    self.ops.from_blocked(scales, 37, 6))
                want = decode(codes.numpy(), linear.view(t.uint8).numpy())
                y = self.ops.dequantize(codes, scales, scale, t.float32,
                                        layout)
                exact = t.from_numpy(want) * scale.double()
                self.assertTrue(t.equal(y, exact.float()))
                error = (y - x.float()).norm() / x.float().norm()
                self.assertLess(error, 0.12)

    def test_quantize_with_a_given_scale(self):
        t = self.torch
        x = t.randn(8, 64)
        given = t.tensor(0.01)
        codes, scales, used = self.ops.quantize(x, given)
        self.assertEqual(used.item(), given.item())
        self.assertNotEqual(used.data_ptr(), given.data_ptr())
        own = self.ops.quantize(x)
        again = self.ops.quantize(x, own[2])
        for one, other in zip(own, again):
            self.assertTrue(t.equal(one.float(), other.float()))

    def test_scales_are_those_of_numpy(self):
        t = self.torch
        x, seen = t.randn(9, 96).half(), set()
        for rule in ("amax", "four-six", "mse"):
            for layout in ("tiled", "linear"):
                got = self.ops.quantize(x, layout=layout, scales=rule)
                want = nibblas.quantize(x.numpy(), layout=layout, scales=rule)
                self.assertEqual(got[0].tolist(), want.codes.tolist())
                self.assertEqual(got[1].view(t.uint8).tolist(), want.scales.tolist())
                self.assertEqual(got[2].item(), want.global_scale)
            seen.add(bytes(want.codes))
        self.assertEqual(len(seen), 3)

    def test_weights_of_columns(self):
        t = self.torch
        x, weights = t.randn(9, 96).bfloat16(), t.rand(96) ** 8
        for rule in ("four-six", "mse"):
            plain = self.ops.quantize(x, scales=rule)
            got = self.ops.quantize(x, scales=rule, weights=weights)
            want = nibblas.quantize(x.float().numpy(), scales=rule,
                                    weights=weights.numpy())
            self.assertEqual(got[0].tolist(), want.codes.tolist())
            self.assertEqual(got[1].view(t.uint8).tolist(), want.scales.tolist())
            self.assertFalse(t.equal(got[1].view(t.uint8), plain[1].view(t.uint8)))
        for bad in (weights[1:], weights.half(), t.rand(192)[::2], -weights):
            self.refused("weights", self.ops.quantize, x, scales="mse", weights=bad)
        self.refused("column_weights", self.ops.quantize, x, weights=weights)

    def test_zero_blocks_by_recipe(self):
        t = self.torch
        x = t.zeros(1, 16)
        for zero_scale, value in (("modelopt", 1.0), ("compressed-tensors", 0.125),
                              ("ggml", 0.0)):
            _, scales, scale = self.ops.quantize(x, None, "linear", zero_scale)
            self.assertEqual(scales.float().item(), value)
            self.assertEqual(scale.item(), 1.0)

    def test_inf_and_nan(self):
        t = self.torch
        x = t.randn(4, 32)
        x[2, 5] = float("inf")
        self.refused("row 2, col 5. = inf", self.ops.quantize, x)
        codes, scales, scale = self.ops.quantize(x, saturate=True)
        y = self.ops.dequantize(codes, scales, scale, t.float32)
        self.assertTrue(y.isfinite().all())
        self.assertEqual(y[2, 5], y.max())


class Compile(TorchTest):
    def test_sizes_may_change(self):
        t = self.torch

        def f(x, w):
            a, a_scales, a_global = self.ops.quantize(x)
            b, b_scales, b_global = self.ops.quantize(w)
            c = self.ops.gemm(a, a_scales, b, b_scales, a_global * b_global)
            rows, groups = x.shape[0], x.shape[1] // 16
            linear = self.ops.from_blocked(a_scales, rows, groups)
            return c, self.ops.dequantize(a, linear, a_global, layout="linear")
        compiled = t.compile(f, backend="aot_eager", dynamic=True,
                             fullgraph=True)
        for m, n, k in ((3, 8, 32), (130, 8, 96), (7, 200, 64)):
            x, w = t.randn(m, k), t.randn(n, k)
            for one, other in zip(compiled(x, w), f(x, w)):
                self.assertTrue(t.equal(one, other))

    def test_writes_in_place(self):
        t = self.torch
        a, _, _ = self.operand(9, 64)
        b, _, _ = self.operand(33, 64)

        def f(c, *args):
            self.ops.gemm_out(c, *args)
            return c * 2
        compiled = t.compile(f, backend="aot_eager", fullgraph=True)
        c = t.zeros(9, 33)
        got = compiled(c, *a, *b)
        want = self.ops.gemm(*a, *b, None, t.float32)
        self.assertTrue(t.equal(c, want))
        self.assertTrue(t.equal(got, want * 2))


class Opcheck(TorchTest):
    def check(self, name, *args, **kwargs):
        # test_faketensor, test_schema, test_autograd_registration and
        # test_aot_dispatch_dynamic; each asserts.
        self.torch.library.opcheck(getattr(self.ops, name).default, args,
                                   kwargs)

    def test_products(self):
        t = self.torch
        a, _, _ = self.operand(9, 64)
        b, _, _ = self.operand(33, 64)
        alpha = t.tensor([0.5])
        self.check("gemm", *a, *b)
        self.check("gemm", *a, *b, alpha, t.float16)
        self.check("gemm_out", t.zeros(9, 33), *a, *b)
        self.check("dual_gemm", *a, *b, *b, alpha, alpha)
        self.check("dual_gemm_out", t.zeros(9, 33), *a, *b, *b)
        v, _, _ = self.operand(1, 64)
        self.check("gemv", v[0][0], v[1], *b)
        self.check("gemv_out", t.zeros(33), v[0][0], v[1], *b)
        lists = [[one, one.clone()] for one in (*a, *b)]
        self.check("group_gemm", *lists)
        self.check("group_gemm_out", [t.zeros(9, 33), t.zeros(9, 33)], *lists)
        stack = (b[0][None], b[1][None])
        offsets = t.tensor([0, 9], dtype=t.int32)
        self.check("moe_gemm", *a, *stack, offsets)
        self.check("moe_gemm_out", t.zeros(9, 33), *a, *stack, offsets)
        self.check("moe_dual_gemm", *a, *stack, *stack, offsets)
        self.check("moe_dual_gemm_out", t.zeros(9, 33), *a, *stack, *stack,
                   offsets)

    def test_formats(self):
        t = self.torch
        x = t.randn(9, 64)
        codes, scales, scale = self.ops.quantize(x)
        scales = scales.view(t.uint8)  # opcheck compares by allclose()
        self.check("quantize", x)
        self.check("quantize", x, scale, "linear", saturate=True)
        self.check("dequantize", codes, scales, scale)
        self.check("from_blocked", scales, 9, 4)
        self.check("to_blocked", t.zeros(9, 4, dtype=t.uint8))
        self.check("expert_rows", t.tensor([3, 3, 200], dtype=t.int32))

    def test_expert_rows(self):
        t = self.torch
        for counts in ([5], [0, 1, 128, 129, 0, 300], list(range(70))):
            ends = t.tensor(counts).cumsum(0, dtype=t.int32)
            rows, scales = self.ops.expert_rows(ends)
            padded = [-(-n // 128) * 128 for n in counts]
            self.assertEqual(rows.tolist(), [0, *ends.tolist()])
            self.assertEqual(scales.tolist(),
                             [sum(padded[:e]) for e in range(len(padded))])
            self.assertEqual((rows.dtype, scales.dtype), (t.int32, t.int32))

    def test_sum_slots(self):
        t = self.torch
        for dtype in (t.float32, t.bfloat16, t.float16):
            rows = t.randn(7, 40).to(dtype)
            places = t.randint(-1, 7, (9, 4), dtype=t.int32)
            weights = t.rand(9, 4)
            # Whatever the weight of a slot that is left out is.
            weights[places < 0] = t.inf
            want = t.zeros(9, 40)
            for j in range(4):
                product = rows[places[:, j].long()].float() * weights[:, j, None]
                want += t.where(places[:, j, None] < 0, 0, product)
            y = self.ops.sum_slots(rows, places, weights)
            self.assertTrue(t.equal(y, want.to(dtype)), dtype)
            self.check("sum_slots", rows, places, weights)
        self.assertEqual(self.ops.sum_slots(
            rows[:0], t.full((2, 3), -1, dtype=t.int32), t.ones(2, 3)).tolist(),
            [[0.0] * 40] * 2)
        for message, arguments in (
                (r"slot_rows\[1, 2\] = 7: must be below", (
                    rows, t.tensor([[0, 1, 2], [3, -1, 7]], dtype=t.int32),
                    t.ones(2, 3))),
                ("slot_rows", (rows, places.long(), weights)),
                ("weights", (rows, places, weights.double())),
                ("slot_rows", (rows, places[1:], weights)),
                ("rows", (rows[0], places, weights))):
            self.refused(message, self.ops.sum_slots, *arguments)


if __name__ == "__main__":
    unittest.main(verbosity=2)
