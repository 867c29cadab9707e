# SPDX-License-Identifier: Apache-2.0
"""The keys of plans, how many are kept, and calls from many threads."""

import gc
import unittest
import weakref

import nibblas
from common import TorchTest, at_once, plans_made

from nibblas import _plans


class PlanTest(TorchTest):
    def setUp(self):
        _plans.cache.clear()
        limit = nibblas.plan_cache_limit()
        self.addCleanup(nibblas.plan_cache_limit, limit)


class Keys(PlanTest):
    def test_the_second_call_makes_none(self):
        t = self.torch
        a, _, _ = self.operand(9, 64)
        b, _, _ = self.operand(33, 64)
        v, _, _ = self.operand(1, 64)
        stack, offsets = (b[0][None], b[1][None]), t.tensor([0, 9]).int()
        weights = self.package.pack(*b)
        for call in (lambda: self.ops.gemm(*a, *b),
                     lambda: self.ops.gemv(v[0][0], v[1], *b),
                     lambda: self.ops.dual_gemm(*a, *b, *b),
                     lambda: self.ops.group_gemm(*([x] * 2 for x in
                                                   (*a, *b))),
                     lambda: self.ops.moe_gemm(*a, *stack, offsets),
                     lambda: self.ops.gemm_packed(*a, weights.number, 33)):
            self.assertEqual(plans_made(call), 1)
            self.assertEqual(plans_made(call), 0)

    def test_everything_that_matters_is_in_the_key(self):
        t = self.torch
        a, _, _ = self.operand(8, 64, layout="linear")
        b, _, _ = self.operand(32, 64, layout="linear")
        wide = t.zeros(8, 64, dtype=t.uint8)[:, :32]
        kw = {"a_layout": "linear", "b_layout": "linear"}
        alpha = t.ones(1)
        tiled = self.ops.to_blocked(a[1])
        calls = [
            lambda: self.ops.gemm(*a, *b, **kw),
            lambda: self.ops.gemm(*a, *b, alpha, **kw),
            lambda: self.ops.gemm(*a, *b, None, t.float16, **kw),
            lambda: self.ops.gemm(wide, a[1], *b, **kw),
            lambda: self.ops.gemm(a[0], tiled, *b, b_layout="linear"),
            lambda: self.ops.gemm(a[0][:4], a[1][:4], *b, **kw),
            lambda: self.ops.gemm(a[0][None], a[1][None], *b, **kw),
            lambda: self.ops.gemm(*a, b[0][:16], b[1][:16], **kw),
            lambda: self.ops.gemm_out(t.zeros(8, 32), *a, *b, **kw),
            lambda: self.ops.gemm_out(t.zeros(8, 40)[:, :32], *a, *b, **kw)]
        for call in calls:
            self.assertEqual(plans_made(call), 1)
        threads = t.get_num_threads()
        self.addCleanup(t.set_num_threads, threads)
        t.set_num_threads(threads + 1)
        self.assertEqual(plans_made(calls[0]), 1)

    def test_a_known_size_is_still_refused_for_other_scales(self):
        a, _, _ = self.operand(8, 64)
        b, _, _ = self.operand(32, 64)
        self.ops.gemm(*a, *b)
        self.refused("^a_scales", self.ops.gemm, a[0], a[1][:64], *b)
        self.refused("^alpha", self.ops.gemm, *a, *b, self.torch.ones(2))


class Bounds(PlanTest):
    def product(self, n):
        a, _, _ = self.operand(1, 16)
        b, _, _ = self.operand(n, 16)
        return lambda: self.ops.gemm(*a, *b)

    def test_the_least_recently_used_go(self):
        self.assertEqual(nibblas.plan_cache_limit(3), 3)
        calls = [self.product(n) for n in range(1, 5)]
        for call in calls[:3]:
            call()
        calls[0]()
        calls[3]()
        self.assertEqual(len(_plans.cache.plans), 3)
        self.assertEqual([plans_made(calls[i]) for i in (0, 3, 2)], [0, 0, 0])
        self.assertEqual(plans_made(calls[1]), 1)

    def test_plans_that_went_are_freed(self):
        nibblas.plan_cache_limit(1)
        self.product(1)()
        plan = weakref.ref(next(iter(_plans.cache.plans.values())))
        self.product(2)()
        gc.collect()
        self.assertIsNone(plan())

    def test_pinned_ones_stay(self):
        nibblas.plan_cache_limit(1)
        pinned = self.product(1)
        pinned()
        plan = next(iter(_plans.cache.plans.values()))
        plan.is_pinned = True
        self.addCleanup(setattr, plan, "is_pinned", False)
        for n in range(2, 6):
            self.product(n)()
        self.assertEqual(len(_plans.cache.plans), 2)
        self.assertEqual(plans_made(pinned), 0)

    def test_limit_of_nothing(self):
        with self.assertRaisesRegex(ValueError, "limit = 0"):
            nibblas.plan_cache_limit(0)


class Threads(PlanTest):
    def test_one_plan_in_many_threads(self):
        t = self.torch
        b, _, _ = self.operand(65, 256)
        inputs = [self.operand(5, 256)[0] for _ in range(8)]
        want = [self.ops.gemm(*a, *b, None, t.float32) for a in inputs]
        _plans.cache.clear()

        def worker(i):
            for _ in range(100):
                got = self.ops.gemm(*inputs[i], *b, None, t.float32)
                self.assertTrue(t.equal(got, want[i]))
        at_once([lambda i=i: worker(i) for i in range(8)])
        self.assertEqual(len(_plans.cache.plans), 1)

    def test_more_sizes_than_are_kept(self):
        t = self.torch
        nibblas.plan_cache_limit(4)
        b, _, _ = self.operand(17, 64)
        inputs = [self.operand(m, 64)[0] for m in range(1, 10)]
        want = [self.ops.gemm(*a, *b, None, t.float32) for a in inputs]

        def worker(first):
            for j in range(90):
                i = (first + j * 4) % 9
                got = self.ops.gemm(*inputs[i], *b, None, t.float32)
                self.assertTrue(t.equal(got, want[i]))
        at_once([lambda i=i: worker(i) for i in range(6)])
        self.assertLessEqual(len(_plans.cache.plans), 4)


class Conversions(PlanTest):
    def setUp(self):
        super().setUp()
        from nibblas.torch import _convert
        _convert.calls.clear()
        self.kind = _convert._Call

    def test_what_they_are_kept_by(self):
        t, ops = self.torch, self.ops
        x = t.randn(8, 128)
        codes, scales, found = ops.quantize(x)
        linear = ops.from_blocked(scales, 8, 8)
        ends = t.tensor([3, 8]).int()
        wide = t.zeros(8, 128, dtype=t.uint8)[:, :64]
        self.setUp()
        for call in (
                lambda: ops.quantize(x),
                lambda: ops.quantize(x.half()),
                lambda: ops.quantize(x, found),
                lambda: ops.quantize(x, saturate=True),
                lambda: ops.quantize(x, layout="linear"),
                lambda: ops.quantize(x[:, ::2].contiguous()),
                lambda: ops.quantize(x[::2]),
                lambda: ops.dequantize(codes, scales),
                lambda: ops.dequantize(codes, scales, found),
                lambda: ops.dequantize(codes, scales, found, t.float32),
                lambda: ops.dequantize(wide, scales),
                lambda: ops.dequantize(codes, linear, layout="linear"),
                lambda: ops.to_blocked(linear),
                lambda: ops.to_blocked(linear[:, :4]),
                lambda: ops.to_blocked(linear.view(t.uint8)),
                lambda: ops.from_blocked(scales, 8, 8),
                lambda: ops.from_blocked(scales, 7, 8),
                lambda: ops.expert_rows(ends),
                lambda: ops.expert_rows(ends[:1])):
            self.assertEqual(plans_made(call, self.kind), 1)
            self.assertEqual(plans_made(call, self.kind), 0)
        self.refused("^global_scale", ops.dequantize, codes, scales, t.ones(2))
        self.refused("^scales", ops.dequantize, codes, scales[:64])
        self.refused("^blocked", ops.from_blocked, scales, 8, 80)

    def test_one_call_in_many_threads(self):
        t, ops = self.torch, self.ops
        inputs = [t.randn(9, 64) for _ in range(8)]
        want = [ops.dequantize(*ops.quantize(x)) for x in inputs]

        def worker(i):
            for _ in range(100):
                got = ops.dequantize(*ops.quantize(inputs[i]))
                self.assertTrue(t.equal(got, want[i]))
        self.setUp()
        at_once([lambda i=i: worker(i) for i in range(8)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
