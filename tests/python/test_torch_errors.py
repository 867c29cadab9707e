# SPDX-License-Identifier: Apache-2.0
"""Bad arguments of torch.ops.nibblas: each is refused by the name of the argument,
and leaves outputs as they were; the same in torch.compile."""

import unittest

import nibblas
from common import TorchTest


class ErrorTest(TorchTest):
    def setUp(self):
        t = self.torch
        self.a = self.operand(9, 64)[0]
        self.b = self.operand(33, 64)[0]
        self.good = {"a": self.a[0], "a_scales": self.a[1], "b": self.b[0],
                     "b_scales": self.b[1]}
        self.floats = t.zeros(9, 32)

    def check(self, function, cases, good=None):
        good = good or self.good
        function(**good)
        for pattern, change in cases:
            self.refused(pattern, function, **{**good, **change})


class Products(ErrorTest):
    def test_gemm(self):
        t, (a, a_scales), (b, b_scales) = self.torch, self.a, self.b
        self.check(self.ops.gemm, (
            # types
            ("^a: .*float32: must be uint8 or float4_e2m1fn_x2",
             {"a": self.floats}),
            ("^a: .*int8: must be", {"a": a.to(t.int8)}),
            ("^a_scales: .*float32: must be uint8 or float8_e4m3fn",
             {"a_scales": a_scales.float()}),
            ("^b_scales: .*float8_e5m2", {"b_scales": b_scales.view(
                t.float8_e5m2)}),
            ("^out_dtype = 'int32': must be 'float32' or",
             {"out_dtype": t.int32}),
            ("^alpha: .*float64: must be float32",
             {"alpha": t.ones(1, dtype=t.float64)}),
            # shapes
            ("^a: .*must have 2 or 3 dimensions", {"a": a.flatten()}),
            ("^b: .*must have 2 or 3 dimensions", {"b": b[None, None]}),
            ("^a: .*K = 2 . 12 = 24: must be a multiple of 16",
             {"a": a[:, :12].contiguous()}),
            ("^b: .*K = 48: must be a's 64", {
                "b": self.operand(33, 48)[0][0],
                "b_scales": self.operand(33, 48)[0][1]}),
            ("^b: .*2 matrices: .*a is one matrix|^b: .*2 matrices: must be 1",
             {"b": b.expand(2, 33, 32).contiguous(),
              "b_scales": b_scales.expand(2, 128, 4).contiguous()}),
            ("^a_scales: .*must have 128 x 4 elements in layout 'tiled'",
             {"a_scales": a_scales[:64]}),
            ("^b_scales: .*the size of 'linear' ones",
             {"b_scales": t.zeros(33, 4, dtype=t.uint8)}),
            ("^a_scales: .*must have shape .9, 4. in layout 'linear'; .*tiled",
             {"a_layout": "linear"}),
            ("^alpha: .*must have 1 element", {"alpha": t.ones(2)}),
            # strides
            ("^a: .*strides .1, 9.: the last must be 1",
             {"a": a.t().contiguous().t()}),
            ("^b: .*strides .0, 1.: rows .* one after the other",
             {"b": b[:1].expand(33, 32)}),
            ("^a_scales: .*strides .*must be contiguous",
             {"a_scales": t.zeros(256, 4, dtype=t.uint8)[::2]}),
            # layouts
            ("^b_layout = 'swizzled': must be 'linear' or 'tiled'",
             {"b_layout": "swizzled"})))

    def test_rows_that_overlap(self):
        t = self.torch
        close = t.zeros(400, dtype=t.uint8).as_strided((9, 32), (16, 1))
        self.refused("^a.row_stride_bytes = 16", self.ops.gemm, close,
                     *list(self.good.values())[1:])

    def test_devices(self):
        meta = self.torch.zeros(9, 32, dtype=self.torch.uint8, device="meta")
        # The fake kernel: nothing is computed for it.
        out = self.ops.gemm(meta, meta, meta, meta)
        self.assertTrue(out.is_meta)
        # What the CUDA kernel asks of its first argument.
        from nibblas.torch._tensors import Cuda
        self.refused("^a: is on cpu; must be on a GPU", Cuda.device_of, self.a[0])

    def test_out(self):
        t = self.torch
        c = t.full((9, 33), 7.0)
        self.check(self.ops.gemm_out, (
            ("^c: .*must have shape .9, 33.", {"c": t.zeros(9, 32)}),
            ("^c: .*float64: must be float32, float16 or bfloat16",
             {"c": c.double()}),
            ("^c: .*last must be 1", {"c": t.zeros(33, 9).t()}),
            ("^c: .*one after the other", {"c": t.zeros(1, 33).expand(9, 33)}),
            ("^c: .*2 or 3 dimensions", {"c": t.zeros(297)}),
        ), {**self.good, "c": c})
        c.fill_(7)
        self.refused("^a_scales", self.ops.gemm_out, c, self.a[0],
                     self.a[1][:64], *self.b)
        self.assertTrue((c == 7).all())

    def test_out_over_an_input(self):
        t = self.torch
        memory = t.zeros(9 * 33 * 4, dtype=t.uint8)
        c = memory.view(t.float32).reshape(9, 33)
        a = memory[:9 * 32].reshape(9, 32)
        self.refused("^c.data .*overlaps a", self.ops.gemm_out, c, a,
                     self.a[1], *self.b)

    def test_gemv(self):
        vector = self.operand(1, 64)[0]
        self.check(self.ops.gemv, (
            ("^a: .*must be .K/2. or .batch, K/2.", {"a": self.a[0][None]}),
            ("^a: .*K = 2 . 12 = 24", {"a": vector[0][0][:12]}),
            ("^b: .*K = 64: must be a's 32", {
                "a": vector[0][0][:16], "a_scales": vector[1]}),
            ("^a_scales: .*as the codes are", {
                "a_scales": self.a[1][:1], "a_layout": "linear"}),
        ), {**self.good, "a": vector[0][0], "a_scales": vector[1]})

    def test_dual_gemm(self):
        second = self.operand(32, 64)[0]
        other = self.operand(33, 48)[0]
        good = {**self.good, "b2": self.b[0], "b2_scales": self.b[1]}
        self.check(self.ops.dual_gemm, (
            ("^b2: .*32 rows: must be b's 33", {
                "b2": second[0], "b2_scales": second[1]}),
            ("^b2: .*K = 48: must be a's 64", {
                "b2": other[0], "b2_scales": other[1]}),
            ("^b2_scales: ", {"b2_scales": self.b[1][:64]}),
            ("^alpha2: .*float16", {
                "alpha2": self.torch.ones(1).half()})), good)

    def test_groups(self):
        t = self.torch
        good = {key: [value, value] for key, value in self.good.items()}
        narrow = self.operand(9, 48)[0]
        self.check(self.ops.group_gemm, (
            ("^b: 1 tensors; must be as many as a has, 2",
             {"b": [self.b[0]]}),
            ("^a_scales: 3 tensors", {"a_scales": [self.a[1]] * 3}),
            (r"^b\[1\]: .*K = 48: must be a\[1\]'s 64", {
                "b": [self.b[0], narrow[0]],
                "b_scales": [self.b[1], narrow[1]]}),
            (r"^a_scales\[0\]: .*128 x 4 elements|^a\[0\]_scales",
             {"a_scales": [self.a[1][:64], self.a[1]]}),
            ("^alpha: .*must have 2 elements", {"alpha": t.ones(1)}),
        ), good)
        c = [t.zeros(9, 33), t.zeros(9, 32)]
        self.refused(r"^c\[1\]: .*must have shape", self.ops.group_gemm_out, c,
                     *good.values())
        same = t.zeros(9, 33)
        self.refused(r"^c\[\d\].* overlaps c", self.ops.group_gemm_out,
                     [same, same], *good.values())

    def test_experts(self):
        t = self.torch
        b = (self.b[0].expand(2, 33, 32).contiguous(),
             self.b[1].expand(2, 128, 4).contiguous())
        good = {**self.good, "b": b[0], "b_scales": b[1],
                "row_offsets": t.tensor([0, 3, 9]).int()}
        self.check(self.ops.moe_gemm, (
            ("^a: .*must be .rows, K/2.", {"a": self.a[0][None]}),
            ("^b: .*must be .experts, n, K/2.", {
                "b": self.b[0], "b_scales": self.b[1],
                "row_offsets": t.tensor([0, 9]).int()}),
            ("^row_offsets: .*int64: must be int32",
             {"row_offsets": t.tensor([0, 3, 9])}),
            ("^row_offsets: .*must have 3 elements",
             {"row_offsets": t.tensor([3, 9]).int()}),
            ("^scale_rows: .*must have 2 elements",
             {"scale_rows": t.tensor([0]).int()}),
            ("^alpha: .*must have 2 elements", {"alpha": t.ones(1)}),
            ("row_offsets", {"row_offsets": t.tensor([0, 9, 3]).int()}),
        ), good)


class Formats(ErrorTest):
    def test_quantize(self):
        t = self.torch
        x = t.randn(9, 64)
        self.check(self.ops.quantize, (
            ("^x: .*float64: must be", {"x": x.double()}),
            ("^x: .*K = 24: must be a multiple of 16",
             {"x": x[:, :24].contiguous()}),
            ("^x: .*2 or 3 dimensions", {"x": x.flatten()}),
            ("^x: .*last must be 1", {"x": t.randn(64, 32).t()}),
            ("^layout = 'rows'", {"layout": "rows"}),
            ("^zero_scale = 'torch': must be 'modelopt' or", {"zero_scale": "torch"}),
            ("^scales = 'best': must be 'amax' or 'four-six' or 'mse'",
             {"scales": "best"}),
            ("^global_scale: .*must have 1 element",
             {"global_scale": t.ones(2)}),
            ("^global_scale = -1: must be positive", {"global_scale": -t.ones(1)}),
        ), {"x": x})

    def test_dequantize_and_blocked(self):
        t = self.torch
        self.check(self.ops.dequantize, (
            ("^codes: .*float32", {"codes": self.floats}),
            ("^scales: .*128 x 4", {"scales": self.a[1][:64]}),
            ("^out_dtype = 'uint8'", {"out_dtype": t.uint8}),
        ), {"codes": self.a[0], "scales": self.a[1]})
        scales = t.zeros(9, 4, dtype=t.uint8)
        self.check(self.ops.to_blocked, (
            ("^scales: .*float32", {"scales": self.floats}),
            ("^scales: .*2 or 3 dim", {"scales": scales.flatten()}),
        ), {"scales": scales})
        self.check(self.ops.from_blocked, (
            ("^blocked: .*must have 256 x 4", {"rows": 200}),
            ("^blocked: .*must have 128 x 8", {"groups": 5}),
        ), {"blocked": self.a[1], "rows": 9, "groups": 4})
        self.check(self.ops.expert_rows, (
            ("^ends: .*must be int32", {"ends": t.ones(3)}),
            ("^ends: .*at least one", {"ends": t.zeros(0, dtype=t.int32)}),
            ("^ends: .*must be .experts", {"ends": t.zeros(
                2, 2, dtype=t.int32)}),
            ("^ends: .*must be contiguous", {"ends": t.zeros(
                6, dtype=t.int32)[::2]}),
        ), {"ends": t.ones(3, dtype=t.int32)})


class Kinds(ErrorTest):
    def test_are_pythons_too(self):
        self.assertTrue(issubclass(nibblas.ArgumentError, ValueError))
        self.assertTrue(issubclass(nibblas.ArgumentError, RuntimeError))
        self.assertTrue(issubclass(nibblas.UnsupportedError,
                                   NotImplementedError))
        self.assertTrue(issubclass(nibblas.OutOfMemoryError, MemoryError))
        self.assertTrue(issubclass(nibblas.SystemIOError, OSError))

    def test_compiled_code_refuses_the_same(self):
        compiled = self.torch.compile(
            lambda a, s, b, r: self.ops.gemm(a, s, b, r), backend="aot_eager")
        with self.assertRaisesRegex(Exception, "a_scales: .*128 x 4"):
            compiled(self.a[0], self.a[1][:64], *self.b)


class Meta(TorchTest):
    """A tensor on the meta device has no values: among others it is refused, or the
    result would be memory that nobody wrote."""

    def value(self, kind):
        """An argument of a type of a schema; a list has two tensors."""
        if kind.startswith("Optional["):
            kind = kind[9:-1]
        if kind == "Tensor":
            return self.torch.zeros(16, 16, dtype=self.torch.uint8)
        if kind == "List[Tensor]":
            return [self.value("Tensor"), self.value("Tensor")]
        return {"int": 16, "str": "linear", "float": 1.0, "bool": False,
                "ScalarType": None, "List[int]": []}[kind]

    def test_every_operator(self):
        t, seen = self.torch, 0
        names = [name for name in t._C._dispatch_get_all_op_names()
                 if name.startswith("nibblas::")]
        for name in names:
            operator = getattr(self.ops, name[9:]).default
            good = {one.name: self.value(str(one.type))
                    for one in operator._schema.arguments
                    # torch does not look into these: the library refuses their NULL.
                    if str(one.type) != "Optional[List[Tensor]]"}
            if "group" in name:
                good["a_scales"] = None
            places = [(key, i) for key, x in good.items()
                      for i in (range(2) if isinstance(x, list) and x else [None])
                      if isinstance(x, (t.Tensor, list)) and x is not None and len(x)]
            for key, i in places if len(places) > 1 else ():
                with self.subTest(operator=name, argument=key, entry=i):
                    bad = {k: list(x) if isinstance(x, list) else x
                           for k, x in good.items()}
                    if i is None:
                        bad[key] = bad[key].to("meta")
                    else:
                        bad[key][i] = bad[key][i].to("meta")
                    end = "" if i is None else rf"\[{i}\]"
                    self.refused(f"^{key}{end}: is on meta, where tensors have no "
                                 "values; must be on cpu, as", operator, **bad)
                    seen += 1
        self.assertGreater(seen, 100)

    def test_other_functions(self):
        t = self.torch
        b, scales = self.operand(32, 64)[0]
        self.refused("^b: is on meta", self.package.pack, b.to("meta"), scales)
        self.refused("^b_scales: is on meta", self.package.pack, b, scales.to("meta"))
        linear = self.package.Linear.from_linear(t.nn.Linear(64, 32))
        x = t.zeros(3, 64)
        self.refused("^x: is on meta", linear, x.to("meta"))
        self.refused("^b: is on meta", linear.to("meta"), x)
        whole = self.ops.gemm(*(one.to("meta") for one in (b, scales, b, scales)))
        self.assertEqual((whole.device.type, whole.shape), ("meta", (32, 32)))
        self.refused("^a.scales = NULL: must point to", self.ops.group_gemm, [b],
                     [scales.to("meta")], [b], [scales])
        for one in range(4):
            given = [b.view(t.uint8), b.view(t.uint8).t(), scales, scales]
            given[one] = given[one].to("meta")
            with self.assertRaisesRegex(nibblas.ArgumentError, "is on meta"):
                self.package._scaled_mm(*given, out_dtype=t.float32)


if __name__ == "__main__":
    unittest.main(verbosity=2)
