# SPDX-License-Identifier: Apache-2.0
"""weight of nibblas.torch.Linear: models read it as floats, nobody can write to it, and
types that a layer cannot compute in are refused at once."""

import copy
import os
import re
import unittest

import nibblas
from common import TorchTest


class Weight(TorchTest):
    def setUp(self):
        t = self.torch
        t.manual_seed(0)
        self.linear = t.nn.Linear(64, 40, dtype=t.bfloat16)
        self.ours = self.package.Linear.from_linear(self.linear)
        codes, scales, scale = self.ops.quantize(
            self.linear.weight.detach(), None, "linear", "modelopt")
        self.want = self.ops.dequantize(codes, scales, scale, t.float32, "linear")
        self.x = t.randn(5, 64)

    def unsupported(self, pattern, function, *arguments):
        with self.assertRaisesRegex(nibblas.UnsupportedError, pattern):
            function(*arguments)

    def test_reads_as_floats(self):
        t, ours = self.torch, self.ours
        self.assertIsInstance(ours, t.nn.Linear)
        w = ours.weight
        self.assertIsInstance(w, t.Tensor)
        self.assertEqual((tuple(w.shape), w.dtype, w.device.type, w.requires_grad),
                         ((40, 64), t.bfloat16, "cpu", False))
        for linear in (ours, copy.deepcopy(ours).float()):
            w, want = linear.weight, self.want.to(linear.compute_dtype)
            x = self.x.to(w.dtype)
            for got, right in (
                    (w.detach(), want), (w.t(), want.t()), (w[3:7], want[3:7]),
                    (w.double(), want.double()), (w.clone(), want), (w + 1, want + 1),
                    (copy.deepcopy(w), want), (w.to(w.dtype), want),
                    (w.float(), want.float()), (w.contiguous(), want),
                    (t.cat([w, w]), t.cat([want, want])),
                    (w @ x[0], want @ x[0]),
                    (t.nn.functional.linear(x, w, linear.bias),
                     t.nn.functional.linear(x, want, linear.bias))):
                self.assertIs(type(got), t.Tensor)
                self.assertTrue(t.equal(got, right))
        self.assertTrue(ours.is_only_packed)
        self.assertEqual(repr(ours.weight), repr(self.want.bfloat16()))
        weight = copy.deepcopy(ours).float().weight
        self.assertTrue((self.want.numpy() == weight.numpy()).all())

    def test_types_follow_to(self):
        t = self.torch
        for change, kind in ((lambda x: x.float(), t.float32),
                             (lambda x: x.half(), t.float16),
                             (lambda x: x.to(t.bfloat16), t.bfloat16),
                             (lambda x: x.to("cpu"), t.bfloat16)):
            self.assertEqual(change(copy.deepcopy(self.ours)).weight.dtype, kind)
        self.unsupported("^dtype = torch.float64: layers of quantised weights compute "
                         "in float32",
                     copy.deepcopy(self.ours).double)
        self.refused("^dtype = torch.float64: must be float32", self.package.Linear,
                     64, 40,
                     dtype=t.float64)
        kept = copy.deepcopy(self.ours)
        self.unsupported("^dtype = torch.float64", kept.double)
        self.assertTrue(t.equal(kept(self.x.bfloat16()), self.ours(self.x.bfloat16())))

    def test_a_gradient_goes_through(self):
        t = self.torch
        ours = copy.deepcopy(self.ours).float()
        x = self.x.clone().requires_grad_()
        t.nn.functional.linear(x, ours.weight).square().sum().backward()
        y = self.x @ self.want.t()
        self.assertTrue(t.allclose(x.grad, 2 * y @ self.want))

    def test_compiles(self):
        """Reading the type alone dequantises nothing, also in a graph."""
        t, ours, graphs = self.torch, copy.deepcopy(self.ours).float(), []

        def backend(graph, _examples):
            graphs.append(graph)
            return graph
        by_type = t.compile(lambda x: ours(x.to(ours.weight.dtype)),
                            backend="aot_eager",
                            fullgraph=True)
        self.assertTrue(t.equal(by_type(self.x.double()), ours(self.x)))
        product = t.compile(lambda x: t.nn.functional.linear(x, ours.weight),
                            backend=backend, fullgraph=True)
        self.assertTrue(t.allclose(product(self.x), self.x @ self.want.t()))
        self.assertEqual(len(graphs), 1)

    def test_is_not_written(self):
        t, ours = self.torch, self.ours
        for write in (lambda w: w.zero_(), lambda w: w.data.copy_(self.want),
                      lambda w: t.nn.init.normal_(w), lambda w: w.add_(1),
                      lambda w: w.data.fill_(0),
                      lambda w: t.mul(self.want, 2, out=w)):
            self.unsupported("^weight: aten.* writes to it, but the layer keeps "
                             "quantised",
                         write, ours.weight)
        self.unsupported("^weight: has no address", ours.weight.data_ptr)
        self.assertTrue(t.equal(ours.weight.float(), self.want.bfloat16().float()))

    def test_is_scaled(self):
        """One number for all weights changes the global scale."""
        t, ours = self.torch, copy.deepcopy(self.ours).float()
        y = ours(self.x) - ours.bias
        ours.weight.div_(4).mul_(t.tensor(2.0))
        self.assertTrue(t.equal(ours.weight.clone(), self.want / 2))
        self.assertTrue(t.allclose(ours(self.x) - ours.bias, y / 2, atol=1e-6))
        self.assertTrue(ours.is_only_packed)
        self.unsupported("^weight: aten.mul_", ours.weight.mul_, t.ones(64))

    def test_becomes_dense(self):
        """What is merged into the weights makes a torch.nn.Linear, in its place."""
        t = self.torch
        delta, bias = t.randn(40, 64), self.linear.bias
        model = t.nn.Sequential(copy.deepcopy(self.ours).float())
        model[0].weight.data += delta
        self.assertIs(type(model[0]), t.nn.Linear)
        self.assertTrue(t.equal(model[0].weight, self.want + delta))
        self.assertEqual(set(model.state_dict()), {"0.weight", "0.bias"})
        self.assertTrue(t.equal(model(self.x), t.nn.functional.linear(
            self.x, self.want + delta, bias.float())))
        ours = copy.deepcopy(self.ours)
        with self.assertRaisesRegex(nibblas.ArgumentError,
                                    r"weight: \[3\]: must be \[40, 64\]"):
            ours.weight.data = t.zeros(3)
        one = self.ours.to_linear(t.float32)
        self.assertIs(type(one), t.nn.Linear)
        self.assertTrue(t.equal(one.weight, self.want))
        self.assertTrue(t.equal(one.bias, bias.float()))
        self.assertEqual(self.ours.to_linear().weight.dtype, t.bfloat16)


class Siblings(TorchTest):
    """Layers that engines fuse share a global scale; others have their own."""

    def block(self, *names):
        nn, t = self.torch.nn, self.torch
        block = nn.Module()
        for i, name in enumerate(names):
            one = nn.Linear(64, 32)
            one.weight.data = t.randn(32, 64) * (i + 1)
            setattr(block, name, one)
        return block

    def test_names_are_those_of_the_command(self):
        from nibblas.torch._siblings import SETS
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                            "..", "..", "cli", "tensor.c")
        with open(path, encoding="utf-8") as file:
            table = re.search(r"sets\[\]\[3\] = \{(.*?)\};", file.read(), re.S)[1]
        self.assertEqual(SETS, tuple(
            tuple(filter(None, re.findall(r'"(\w*)"', row)))
            for row in re.findall(r"\{(.*?)\}", table, re.S)))

    def test_share(self):
        t, model = self.torch, self.torch.nn.Module()
        from nibblas.torch._siblings import SETS
        for i, names in enumerate(SETS):
            setattr(model, f"block{i}", self.block(*names, "other"))
        model.zeros = self.block("q", "k")
        model.zeros.k.weight.data.zero_()
        plain = copy.deepcopy(model)
        self.package.swap_linears(model)
        self.check_share(model, plain, 2688)
        for rule in ("four-six", "mse"):
            model = copy.deepcopy(plain)
            self.package.swap_linears(model, scales=rule)
            self.check_share(model, plain, 1536, rule)

    def check_share(self, model, plain, largest, rule="amax"):
        from nibblas.torch._siblings import SETS
        t = self.torch
        for i, names in enumerate((*SETS, ("q", "k"))):
            where = f"block{i}" if i < len(SETS) else "zeros"
            block, dense = getattr(model, where), getattr(plain, where)
            amax = max(float(getattr(dense, name).weight.abs().max()) for name in names)
            want = t.tensor(amax) / largest
            for name in names:
                ours, w = getattr(block, name), getattr(dense, name).weight.detach()
                self.assertEqual(ours.weight_scale_2, want, (where, name))
                codes, scales, _ = self.ops.quantize(w, want, "linear",
                                                     scales=rule)
                self.assertTrue(t.equal(ours.codes, codes))
                self.assertTrue(t.equal(ours.weight_scale.view(t.uint8),
                                        scales.view(t.uint8)))
            if i < len(SETS):
                self.assertEqual(block.other.weight_scale_2,
                                 dense.other.weight.abs().max() / largest)

    def test_what_stays_has_no_say(self):
        model = self.block("q_proj", "k_proj", "v_proj")
        want = model.k_proj.weight.abs().max().detach() / 2688
        self.package.swap_linears(model, lambda name, _: name == "v_proj")
        for one in (model.q_proj, model.k_proj):
            self.assertEqual(one.weight_scale_2, want)


if __name__ == "__main__":
    unittest.main(verbosity=2)
