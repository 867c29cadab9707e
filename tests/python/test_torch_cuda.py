# SPDX-License-Identifier: Apache-2.0
"""The operators on a GPU of torch: results within the device's bound, the current
stream, CUDA graphs, torch.compile with graphs, two threads.  Skipped without a GPU, or
without kernels for it.

    pip install . && python tests/python/test_torch_cuda.py"""

import gc
import json
import os
import tempfile
import unittest

import nibblas
import numpy as np
from common import Floats, TorchTest, at_once, blocked

from nibblas import _abi as abi
from nibblas import _plans


class CudaTest(TorchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not cls.torch.cuda.is_available():
            raise unittest.SkipTest("torch has no GPU here")
        try:
            cls.gpu = nibblas.device("cuda")
        except nibblas.Error as error:
            raise unittest.SkipTest(str(error)) from None
        cls.arithmetic = cls.gpu.info()["arithmetic"]

    def operand(self, *shape, **kwargs):
        tensors, _, linear = super().operand(*shape, **kwargs)
        return tuple(x.cuda() for x in tensors), linear

    def assert_right(self, op, a, b, c, **kwargs):
        super().assert_right(op, a, b, c.cpu().numpy(), **kwargs)


class Products(CudaTest):
    def test_gemm(self):
        t = self.torch
        alpha = t.tensor([2.0 ** -6], device="cuda")
        for m, n, k in ((1, 40, 64), (17, 130, 256), (128, 512, 1040)):
            for layout in ("tiled", "linear"):
                a, left = self.operand(m, k, layout=layout)
                b, right = self.operand(n, k, layout=layout)
                for dtype in (t.float32, t.float16):
                    c = self.ops.gemm(*a, *b, alpha, dtype, layout, layout)
                    self.assert_right(abi.NIB_OP_GEMM, left, right, c,
                                      alpha=np.float32([2.0 ** -6]))

    def test_torch_types(self):
        t = self.torch
        a, _ = self.operand(17, 128)
        b, _ = self.operand(33, 128)
        kinds = (t.float4_e2m1fn_x2, t.float8_e4m3fn) * 2
        typed = [x.view(kind) for x, kind in zip((*a, *b), kinds)]
        self.assertTrue(t.equal(self.ops.gemm(*typed), self.ops.gemm(*a, *b)))

    def test_gemv_dual_group(self):
        t = self.torch
        a, left = self.operand(4, 1, 128)
        b, right = self.operand(4, 40, 128)
        c = self.ops.gemv(a[0][:, 0], a[1], *b, None, t.float32)
        self.assert_right(abi.NIB_OP_GEMV, left, right, c[:, None])
        a, left = self.operand(17, 128)
        b, right = self.operand(40, 128)
        alpha = t.tensor([2.0 ** -6], device="cuda")
        value = np.float32([2.0 ** -6])
        c = self.ops.dual_gemm(*a, *b, *b, alpha, alpha, t.float32)
        self.assert_right(abi.NIB_OP_DUAL_GEMM, left, right, c, b2=right,
                          alpha=value, alpha2=value)
        for c in self.ops.group_gemm(*([x] * 3 for x in (*a, *b)), None,
                                     t.float32):
            self.assert_right(abi.NIB_OP_GEMM, left, right, c)

    def test_floats_as_a(self):
        """As they are, if the GPU has kernels for them; it has none for float32 and
        8 bits."""
        t = self.torch
        from nibblas.torch._multiply import takes_floats
        b, right = self.operand(130, 256)
        for activations, name in ((None, "^a: float32 as it is: must be NVFP4"),
                                  ("int8", "^activations = 'int8': must be")):
            with self.assertRaisesRegex(nibblas.UnsupportedError, name):
                self.ops.gemm(t.zeros(5, 256, device="cuda"), None, *b,
                              activations=activations)
        if not takes_floats(0):
            self.skipTest("this GPU supports only NVFP4")
        alpha = t.tensor([2.0 ** -6], device="cuda")
        weights = self.package.pack(*b)
        for m in (1, 5, 130):
            for dtype, kind in ((t.float16, abi.NIB_DTYPE_FP16),
                                (t.bfloat16, abi.NIB_DTYPE_BF16)):
                a = t.randn(m, 256, device="cuda").to(dtype)
                left = Floats(a.view(t.int16).cpu().numpy(), kind,
                              abi.NIB_ACTIVATIONS_DENSE)
                for c in (self.ops.gemm(a, None, *b, alpha, t.float32),
                          self.ops.gemm_packed(a, None, weights.number, 130,
                                               alpha, t.float32)):
                    self.assert_right(abi.NIB_OP_GEMM, left, right, c,
                                      alpha=np.float32([2.0 ** -6]))
                self.assertEqual(self.ops.gemm(a, None, *b).dtype, dtype)

    def test_scaled_mm_and_grouped(self):
        t, f = self.torch, self.torch.nn.functional
        if not hasattr(f, "scaled_mm"):
            self.skipTest("torch.nn.functional has no scaled_mm")
        block, whole = f.ScalingType.BlockWise1x16, f.ScalingType.TensorWise
        tiled = f.SwizzleType.SWIZZLE_32_4_4
        a, left = self.operand(17, 128)
        b, right = self.operand(40, 128)
        one = t.ones(1, device="cuda")
        kinds = (t.float4_e2m1fn_x2, t.float8_e4m3fn) * 2
        a4, sa, b4, sb = [x.view(k) for x, k in zip((*a, *b), kinds)]
        recipe = [block, whole]
        c = self.package.scaled_mm(a4, b4.t(), [sa, one], recipe, [sb, one],
                                recipe, tiled, tiled,
                                output_dtype=t.float32)
        self.assert_right(abi.NIB_OP_GEMM, left, right, c)
        # Two experts with one weight: rows 0..4 and 5..16.
        parts = [blocked(left[1][:5]), blocked(left[1][5:])]
        sa = t.from_numpy(np.concatenate(parts)).cuda().view(kinds[1])
        offs = t.tensor([5, 17], dtype=t.int32, device="cuda")
        c = self.package.scaled_grouped_mm(
            a4, t.stack([b[0]] * 2).view(kinds[0]).transpose(1, 2), sa, block,
            t.stack([b[1]] * 2).view(kinds[1]), block, tiled, tiled, offs=offs,
            output_dtype=t.float32)
        self.assert_right(abi.NIB_OP_GEMM, left, right, c)

    def test_formats_are_the_cpus(self):
        t = self.torch
        x = t.randn(130, 256)
        for saturate in (False, True):
            for layout in ("tiled", "linear"):
                want = self.ops.quantize(x, None, layout, "modelopt", saturate)
                got = self.ops.quantize(x.cuda(), None, layout, "modelopt",
                                        saturate)
                for one, other in zip(got, want):
                    self.assertTrue(t.equal(one.cpu().float(), other.float()))
                for dtype in (t.float32, t.float16, t.bfloat16):
                    y = self.ops.dequantize(*got, dtype, layout)
                    self.assertTrue(t.equal(y.cpu(), self.ops.dequantize(
                        *want, dtype, layout)))
        scales = t.randint(0, 127, (130, 9), dtype=t.uint8)
        tiled = self.ops.to_blocked(scales.cuda())
        self.assertTrue(t.equal(tiled.cpu(), self.ops.to_blocked(scales)))
        self.assertTrue(t.equal(self.ops.from_blocked(tiled, 130, 9).cpu(),
                                scales))

    def test_inf_is_refused(self):
        x = self.torch.ones(4, 32, device="cuda")
        x[2, 5] = float("inf")
        self.refused("row 2, col 5", self.ops.quantize, x)

    def test_devices_do_not_mix(self):
        a, _ = self.operand(17, 128)
        b, _ = self.operand(40, 128)
        with self.assertRaisesRegex(ValueError, "b.*cpu|b.*host memory"):
            self.ops.gemm(*a, b[0].cpu(), b[1])
        with self.assertRaisesRegex(ValueError, "^a: is on cpu"):
            self.ops.gemm(a[0].cpu(), a[1], *b)
        # A size that is known: the library looks at the pointers.
        self.ops.gemm(*a, *b)
        with self.assertRaisesRegex(ValueError, "b.*cpu|b.*host memory"):
            self.ops.gemm(*a, b[0].cpu(), b[1])


class Dlpack(CudaTest):
    def check(self, convert):
        """convert: a tensor of torch on the GPU as the library's array."""
        t = self.torch
        a, left = self.operand(17, 128)
        b, right = self.operand(40, 128)
        c = t.zeros(17, 40, device="cuda")
        nibblas.gemm(*map(convert, (*a, *b)), out=convert(c),
                     stream=t.cuda.current_stream().cuda_stream or None)
        t.cuda.synchronize()
        self.assert_right(abi.NIB_OP_GEMM, left, right, c)

    def test_tensors(self):
        self.check(lambda x: x)

    def test_cupy(self):
        try:
            import cupy
        except ImportError as error:
            self.skipTest(str(error))
        self.check(cupy.from_dlpack)


class Order(CudaTest):
    def product(self, m=17, n=512, k=2048):
        a, left = self.operand(m, k)
        b, right = self.operand(n, k)
        return a, b, left, right

    def test_current_stream(self):
        t = self.torch
        a, b, left, right = self.product()
        stream = t.cuda.Stream()
        later = t.zeros_like(a[0])
        # The plan is made before: making one waits for the device.
        self.ops.gemm(later, a[1], *b, None, t.float32)
        t.cuda.synchronize()
        with t.cuda.stream(stream):
            # On another stream the product would not wait for this copy.
            t.cuda._sleep(50_000_000)
            later.copy_(a[0])
            c = self.ops.gemm(later, a[1], *b, None, t.float32)
        stream.synchronize()
        self.assert_right(abi.NIB_OP_GEMM, left, right, c)

    def test_graph(self):
        t = self.torch
        a, b, left, right = self.product()
        lists = [[x] * 2 for x in (*a, *b)]
        offsets = t.tensor([0, 5, 17], dtype=t.int32, device="cuda")
        experts = (t.stack([b[0]] * 2), t.stack([b[1]] * 2))
        x = t.randn(17, 2048, device="cuda")

        def work():
            one = self.ops.gemm(*a, *b, None, t.float32)
            two = self.ops.group_gemm(*lists, None, t.float32)[1]
            three = self.ops.moe_gemm(*a, *experts, offsets, None, None,
                                      t.float32)
            q = self.ops.quantize(x, None, "tiled", "modelopt", True)
            return (one, two, three, self.ops.dequantize(*q, t.float32),
                    self.ops.dequantize(*q, t.bfloat16))
        side = t.cuda.Stream()
        with t.cuda.stream(side):
            eager = work()
        side.synchronize()
        graph = t.cuda.CUDAGraph()
        with t.cuda.graph(graph):
            captured = work()
        for _ in range(3):
            for one in captured:
                one.fill_(float("nan"))
            graph.replay()
            t.cuda.synchronize()
            for one, other in zip(captured, eager):
                self.assertTrue(t.equal(one, other))
        # New inputs in the same places, and plans that the cache let go.
        _plans.cache.clear()
        codes = t.randint_like(a[0], 0, 256)
        a[0].copy_(codes)
        offsets.copy_(t.tensor([0, 17, 17]))
        graph.replay()
        t.cuda.synchronize()
        left = (codes.cpu().numpy(), left[1])
        for c in captured[:3]:
            self.assert_right(abi.NIB_OP_GEMM, left, right, c)

    def test_graph_of_the_functions_for_dlpack(self):
        """Its plan and workspace stay, though the cache lets the plan go and other
        products follow on the stream."""
        t = self.torch
        a, b, left, right = self.product()
        c, other = (t.zeros(17, 512, device="cuda") for _ in range(2))
        side = t.cuda.Stream()
        side.wait_stream(t.cuda.current_stream())

        def product(out):
            nibblas.gemm(*a, *b, out=out, stream=side.cuda_stream)
        with t.cuda.stream(side):
            product(c)
        side.synchronize()
        graph = t.cuda.CUDAGraph()
        with t.cuda.graph(graph, stream=side):
            product(c)
        _plans.cache.plans.clear()
        gc.collect()
        codes = t.randint_like(a[0], 0, 256)
        a[0].copy_(codes)
        c.fill_(float("nan"))
        t.cuda.synchronize()
        for _ in range(3):
            graph.replay()
            product(other)
        t.cuda.synchronize()
        left = (codes.cpu().numpy(), left[1])
        for one in (c, other):
            self.assert_right(abi.NIB_OP_GEMM, left, right, one)

    def test_a_saved_tensor_that_is_overwritten(self):
        t = self.torch
        a, b, _, _ = self.product()
        c = t.ones(17, 512, device="cuda")
        y = t.ones_like(c, requires_grad=True) * c
        self.ops.gemm_out(c, *a, *b)
        self.assertEqual(c._version, 1)
        with self.assertRaisesRegex(RuntimeError, "inplace operation"):
            y.sum().backward()

    def test_graph_of_an_unknown_size(self):
        t = self.torch
        a, b, _, _ = self.product(m=19)
        graph = t.cuda.CUDAGraph()
        with self.assertRaisesRegex(Exception, "run it once before"):
            with t.cuda.graph(graph):
                self.ops.gemm(*a, *b)

    def test_compile_with_graphs(self):
        t = self.torch
        for kind, dtype in ((None, t.bfloat16), ("nvfp4", t.float32)):
            model = t.nn.Sequential(t.nn.Linear(256, 512), t.nn.GELU(),
                                    t.nn.Linear(512, 64)).to("cuda", dtype)
            self.package.swap_linears(model, activations=kind)
            x = t.randn(24, 256, device="cuda", dtype=dtype)
            with t.inference_mode():
                want = model(x)
                compiled = t.compile(model, mode="reduce-overhead",
                                     fullgraph=True)
                for _ in range(5):
                    t.compiler.cudagraph_mark_step_begin()
                    got = compiled(x).clone()
            # GELU is compiled, so that values near a tie may round differently.
            self.assertLess((got - want).norm() / want.norm(), 0.05)

    def test_threads_with_streams(self):
        t = self.torch
        a, b, left, right = self.product()
        want = self.ops.gemm(*a, *b, None, t.float32)
        t.cuda.synchronize()

        def work():
            with t.cuda.stream(t.cuda.Stream()):
                for _ in range(50):
                    c = self.ops.gemm(*a, *b, None, t.float32)
                    self.assertTrue(t.equal(c, want))
        at_once([work] * 4)

    def test_linear_is_the_cpus(self):
        t = self.torch
        linear = t.nn.Linear(256, 130)
        ours = self.package.Linear.from_linear(linear, activations="nvfp4")
        x = t.randn(2, 9, 256)
        want = ours(x)
        got = ours.cuda()(x.cuda())
        self.assertLess((got.cpu() - want).abs().max(), 1e-3)
        ours = self.package.Linear.from_linear(linear)
        for dtype in (t.float16, t.bfloat16):
            x = x.to(dtype)
            want = ours.cpu()(x).float()
            got = ours.cuda()(x.cuda()).cpu().float()
            # The sums differ in the last bits, and the types round once.
            self.assertLess((got - want).norm() / want.norm(), 0.02)

    def test_the_contests_benchmarks(self):
        """By its protocol, cut short; every result is checked there."""
        from nibblas.gpumode import __main__ as command
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.json")
            for problem in ("gemm", "dual_gemm", "gemv", "group_gemm"):
                self.assertEqual(command.main([
                    "bench", problem, "--device", "cuda", "--only", "2",
                    "--inputs", "2", "--repeats", "3", "--json", path]), 0)
                with open(path, encoding="utf-8") as file:
                    row = json.load(file)["benchmarks"][0]
                self.assertGreater(row["mean_us"], row["machine_limit_us"])

    def test_bundles(self):
        """The files that `bundle` writes pass the contest's tests."""
        from nibblas.gpumode import __main__ as command
        with tempfile.TemporaryDirectory() as folder:
            for problem in ("gemm", "dual_gemm", "gemv", "group_gemm"):
                path = os.path.join(folder, problem + ".py")
                for flags in ([], ["--current-stream"]):
                    self.assertEqual(command.main(
                        ["bundle", problem, "-o", path, *flags]), 0)
                    self.assertEqual(command.main([
                        "check", problem, "--device", "cuda", "--submission",
                        path]), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
