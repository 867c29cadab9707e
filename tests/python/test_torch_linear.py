# SPDX-License-Identifier: Apache-2.0
"""nibblas.torch.Linear in models: the numbers, moves, copies, state dicts,
torch.compile; and packed weights, which give the bits of unpacked ones."""

import concurrent.futures
import copy
import ctypes
import gc
import io
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from unittest import mock

import nibblas
import numpy as np
from common import TorchTest, int8_values, save_safetensors

from nibblas import _packed


class PackedWeights(TorchTest):
    def test_same_bits(self):
        t = self.torch
        for m, n, k in ((1, 40, 64), (9, 130, 256), (40, 33, 1040)):
            for layout in ("tiled", "linear"):
                a, _, _ = self.operand(m, k, layout=layout)
                b, _, _ = self.operand(n, k, layout=layout)
                weights = self.package.pack(*b, layout)
                alpha = t.tensor([0.5])
                got = self.ops.gemm_packed(*a, weights.number, n, alpha,
                                           t.float32, layout)
                want = self.ops.gemm(*a, *b, alpha, t.float32, layout, layout)
                self.assertTrue(t.equal(got, want))
                arrays = [x.numpy() for x in (*a, *b)]
                mine = nibblas.pack(*arrays[2:], b_layout=layout)
                got = nibblas.gemm(*arrays[:2], mine, alpha=0.5,
                                   a_layout=layout)
                self.assertTrue(np.array_equal(got, want.numpy()))

    def test_opcheck(self):
        a, _, _ = self.operand(9, 64)
        b, _, _ = self.operand(33, 64)
        weights = self.package.pack(*b)
        self.torch.library.opcheck(self.ops.gemm_packed.default,
                                   (*a, weights.number, 33))

    def test_refusals(self):
        a, _, _ = self.operand(9, 32)
        b, _, _ = self.operand(33, 64)
        weights = self.package.pack(*b)
        self.refused("^b: .*K = 64: must be a's 32", self.ops.gemm_packed, *a,
                     weights.number, 33)
        self.refused("^n = 32: must be 33, the rows of b", self.ops.gemm_packed,
                     *b, weights.number, 32)
        number = weights.number
        del weights
        gc.collect()
        self.refused(f"^b = {number}: is the number of no packed weights",
                     self.ops.gemm_packed, *a, number, 33)
        self.refused("^b: .*K = 2 .* 12 = 24", self.package.pack, b[0][:, :12],
                     b[1])

    def test_memory_goes_with_them(self):
        a, _, _ = self.operand(9, 64)
        b, _, _ = self.operand(33, 64)
        gc.collect()
        before = len(_packed._alive)
        for _ in range(3):
            weights = self.package.pack(*b)
            self.ops.gemm_packed(*a, weights.number, 33)
            self.assertGreaterEqual(weights.bytes, 33 * 64 * 9 // 16)
        del weights
        gc.collect()
        self.assertEqual(len(_packed._alive), before)


def resident_bytes():
    """What this process has of the machine's memory, unused heap given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


class LinearTest(TorchTest):
    def setUp(self):
        self.torch.manual_seed(3)

    def model(self):
        nn = self.torch.nn
        return nn.Sequential(nn.Linear(64, 96), nn.GELU(),
                             nn.Linear(96, 48, bias=False), nn.Linear(48, 5))

    def swapped(self, activations=None):
        model = self.model()
        quantised = copy.deepcopy(model)
        names, left = self.package.swap_linears(quantised,
                                                activations=activations)
        self.assertEqual((names, left), (["0", "2", "3"], {}))
        return model, quantised

    def write(self, linear, state):
        """Writes into the tensors of a layer, in their place."""
        with self.torch.no_grad():
            for name, value in state.items():
                getattr(linear, {"weight": "codes"}.get(name, name)).copy_(value)


class Numbers(LinearTest):
    def weight(self, ours):
        return self.ops.dequantize(ours.codes, ours.weight_scale,
                                   ours.weight_scale_2, self.torch.float32,
                                   "linear")

    def test_takes_x_as_it_is(self):
        t = self.torch
        linear = t.nn.Linear(64, 40)
        ours = self.package.Linear.from_linear(linear)
        self.assertIsNone(ours.activations)
        w = self.weight(ours).double()
        for dtype, limit in ((t.float32, 1e-5), (t.float16, 1e-2),
                             (t.bfloat16, 1e-1)):
            x = t.randn(2, 7, 64).to(dtype)
            want = x.double() @ w.t() + linear.bias
            with t.inference_mode():
                got = ours(x)
            self.assertEqual(got.dtype, dtype)
            self.assertLess((got - want).abs().max(), limit)
            ours.activations = "dense"
            self.assertTrue(t.equal(ours(x), got))
            ours.activations = None

    def test_is_the_product_of_what_was_quantised(self):
        t = self.torch
        linear = t.nn.Linear(64, 40)
        ours = self.package.Linear.from_linear(linear, activations="nvfp4")
        x = t.randn(2, 7, 64)
        w = self.weight(ours)
        q = self.ops.quantize(x.reshape(-1, 64))
        y = self.ops.dequantize(*q, t.float32)
        want = (y.double() @ w.double().t() + linear.bias).reshape(2, 7, 40)
        with t.inference_mode():
            got = ours(x)
        self.assertLess((got - want).abs().max(), 1e-5)
        self.assertLess((got - linear(x)).norm() / got.norm(), 0.2)

    def test_rounds_x_to_8_bits(self):
        t = self.torch
        linear = t.nn.Linear(64, 40)
        ours = self.package.Linear.from_linear(linear, activations="int8")
        x = t.randn(2, 7, 64)
        rounded = t.from_numpy(int8_values(x.double().numpy()))
        want = rounded @ self.weight(ours).double().t() + linear.bias
        self.assertLess((ours(x) - want).abs().max(), 1e-5)
        exact = x @ self.weight(ours).t() + linear.bias
        self.assertGreater((ours(x) - exact).abs().max(), 1e-4)

    def test_activations_are_chosen(self):
        t = self.torch
        x, model, results = t.randn(5, 64), self.model(), []
        for kind in (None, "int8", "nvfp4"):
            ours = copy.deepcopy(model)
            self.package.swap_linears(ours, activations=kind)
            self.assertEqual([ours[i].activations for i in (0, 2, 3)], [kind] * 3)
            results.append(ours(x))
            self.assertIn(f"activations={kind!r}", repr(ours[0]))
            self.assertTrue(t.equal(copy.deepcopy(ours)(x), results[-1]))
        dense, int8, nvfp4 = ((y - results[0]).norm() / results[0].norm()
                              for y in results)
        self.assertEqual(dense, 0)
        self.assertTrue(0 < int8 < 0.02 < nvfp4 < 0.4, (int8, nvfp4))
        layer = self.package.Linear(64, 40, activations="int8")
        self.assertEqual(layer.activations, "int8")
        self.refused("^activations = 'fp8': must be", self.package.Linear, 64, 40,
                     activations="fp8")
        layer.activations = "fp8"
        self.refused("^activations = 'fp8': must be", layer, x)

    def test_a_gpu_that_takes_nvfp4_alone(self):
        """None is quantised there, and "dense" stays the library's refusal."""
        t = self.torch
        from nibblas.torch import _linear
        with mock.patch.object(_linear, "_must_quantize", lambda weight: True):
            ours = self.package.Linear.from_linear(t.nn.Linear(64, 40))
            moved = copy.deepcopy(ours).to(t.float16)
        nvfp4 = copy.deepcopy(ours)
        nvfp4.activations = "nvfp4"
        x = t.randn(5, 64)
        self.assertTrue(t.equal(ours(x), nvfp4(x)))
        self.assertTrue(moved._must_quantize)
        ours.activations = "dense"
        self.assertFalse(t.equal(ours(x), nvfp4(x)))
        self.assertFalse(_linear._must_quantize(ours.codes))

    def test_a_static_input_scale(self):
        t = self.torch
        linear = t.nn.Linear(64, 40)
        x = t.randn(7, 64)
        amax = x.abs().max().item()
        ours = self.package.Linear.from_linear(linear, input_scale=amax / 2688,
                                               activations="nvfp4")
        plain = self.package.Linear.from_linear(linear, activations="nvfp4")
        self.assertLess((ours(x) - plain(x)).abs().max(), 1e-3)
        # Rows do not depend on their neighbours then.
        self.assertTrue(t.equal(ours(x)[2:3], ours(x[2:3])))

    def test_types_of_activations(self):
        t = self.torch
        for bias in (True, False):
            ours = self.package.Linear.from_linear(t.nn.Linear(64, 40, bias),
                                                   activations="nvfp4")
            for dtype in (t.float16, t.bfloat16):
                x = t.randn(3, 64).to(dtype)
                self.assertTrue(t.equal(ours(x), ours(x.float()).to(dtype)))
        ours.activations = None
        self.refused("^x: .*float64: must be float32, float16 or bfloat16", ours,
                     x.double())

    def test_not_finite(self):
        _, ours = self.swapped("nvfp4")
        x = self.torch.zeros(2, 64)
        x[0] = float("nan")
        self.refused("row 0, col 0", ours, x)
        for kind in (None, "int8"):
            ours = self.swapped(kind)[1]
            self.assertEqual(ours(x).isnan().all(1).tolist(), [True, False])

    def test_gradient_of_activations(self):
        t = self.torch
        ours = self.package.Linear.from_linear(t.nn.Linear(64, 40))
        for kind in (None, "int8", "nvfp4"):
            ours.activations = kind
            for dtype in (t.float32, t.bfloat16):
                x = t.randn(2, 7, 64, dtype=dtype, requires_grad=True)
                up = t.randn(2, 7, 40, dtype=dtype)
                (ours(x) * up).sum().backward()
                w = self.weight(ours)
                self.assertTrue(t.equal(x.grad, up @ w.to(dtype)))
                self.assertTrue(t.equal(ours(x), ours(x.detach())))

    def test_compiles_with_a_gradient(self):
        t = self.torch
        ours = self.package.Linear.from_linear(t.nn.Linear(64, 40))
        x = t.randn(7, 64, requires_grad=True)
        ours(x).square().sum().backward()
        want, x.grad = x.grad, None
        compiled = t.compile(ours, backend="aot_eager", fullgraph=True)
        compiled(x).square().sum().backward()
        self.assertTrue(t.allclose(x.grad, want))

    def test_strides_of_activations(self):
        t = self.torch
        ours = self.package.Linear.from_linear(t.nn.Linear(64, 40))
        x = t.randn(5, 192)
        for view in (x[:, ::3], x[:, 64:128], x[:1, ::3], x.t()[:64].t(),
                     t.randn(64, 5).t(), t.randn(1, 64, 5).transpose(1, 2),
                     t.randn(2, 64, 5).transpose(1, 2), t.randn(64).expand(7, 64),
                     t.randn(1, 64).expand(3, 4, 64), t.randn(64),
                     t.randn(3, 1).expand(3, 64), t.randn(0, 64),
                     t.randn(5, 3, 64).transpose(0, 1)):
            want = ours(view.contiguous().clone())
            self.assertTrue(t.equal(ours(view), want), view.stride())
            grad = view.detach().requires_grad_()
            ours(grad).sum().backward()
            self.assertEqual(grad.grad.shape, view.shape)

    def test_encoders_fast_path(self):
        """In eval and without gradients torch's encoders read the weights."""
        t = self.torch
        layer = t.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True,
                                             dropout=0.0)
        model = t.nn.TransformerEncoder(layer, 2)
        x, mask = t.randn(3, 7, 64), t.zeros(3, 7, dtype=t.bool)
        mask[1, 5:] = True
        names, _ = self.package.swap_linears(model)
        self.assertEqual(len(names), 4)
        for more in ({}, {"src_key_padding_mask": mask}):
            want = model.train()(x, **more)
            with t.inference_mode():
                got = model.eval()(x, **more)
                one = model.layers[0](x, **more)
            self.assertLess((got - want).abs().max(), 0.2)
            self.assertEqual(one.shape, x.shape)

    def test_left(self):
        nn = self.torch.nn
        shared = nn.Linear(32, 32)
        model = nn.ModuleDict({"odd": nn.Linear(20, 4), "x": shared,
                               "y": shared, "head": nn.Linear(32, 4)})
        names, left = self.package.swap_linears(
            model, keep=lambda name, _: name == "head")
        self.assertEqual(names, ["x", "y"])
        self.assertIs(model["x"], model["y"])
        self.assertEqual(set(left), {"odd", "head"})
        self.assertIn("20", left["odd"])


class Life(LinearTest):
    def test_copies_and_state(self):
        t = self.torch
        _, ours = self.swapped()
        x = t.randn(3, 64)
        want = ours(x)
        self.assertTrue(t.equal(copy.deepcopy(ours)(x), want))
        other = self.model()
        self.package.swap_linears(other)
        self.assertFalse(t.equal(other(x), want))
        other.load_state_dict(ours.state_dict())
        self.assertTrue(t.equal(other(x), want))
        file = io.BytesIO()
        t.save(ours, file)
        file.seek(0)
        loaded = t.load(file, weights_only=False)
        self.assertTrue(t.equal(loaded(x), want))

    def test_the_operator(self):
        """opcheck of a layer's one operator, packed and not, and what torch is asked
        for in addition: only results, with a scale of x that is given."""
        t = self.torch
        linear = t.nn.Linear(64, 40, dtype=t.bfloat16)
        x = t.randn(2, 3, 64).bfloat16()
        for bias in (None, linear.bias.detach()):
            ours = self.package.Linear.from_linear(linear, input_scale=0.01)
            number, alpha = ours._packed.number, ours.weight_scale_2
            for weights in ((None, None), (
                    # opcheck's arithmetic
                    ours.codes, ours.weight_scale.view(t.uint8))):
                if weights[0] is None:
                    ours.pack()
                for quantize, kind in ((False, None), (False, "int8"), (True, None)):
                    given = ours.input_scale if quantize else None
                    t.library.opcheck(self.ops._linear.default, (
                        x, *weights, number, 40, alpha, bias, given, quantize, kind))
            ours.pack()
            t.library.opcheck(self.ops._unpacked.default, (x, number, 40, 64),
                              test_utils="test_faketensor")
        ours.bias = None
        for kind, wanted in (("dense", ["aten::empty_strided", "nibblas::_linear"]),
                             ("nvfp4", [*3 * ["aten::empty_strided"], "aten::reshape",
                                        *2 * ["aten::view"], "nibblas::_linear"])):
            ours.activations = kind
            with t.inference_mode():
                ours(x)
                with t.autograd.profiler.profile() as profile:
                    ours(x)
            made = [one.name for one in profile.function_events]
            self.assertEqual(sorted(name for name in made if name.startswith(
                ("aten::", "nibblas::"))), wanted)

    def test_direct_calls(self):
        """Without the dispatcher a layer gives the operator's bits.  What watches or
        replaces operators still gets the operator."""
        t = self.torch
        from nibblas.torch import _linear
        from torch.fx.experimental.proxy_tensor import make_fx
        from torch.utils.flop_counter import FlopCounterMode

        def direct(x, layer):
            """Whether each call did without the operator."""
            found, inner = [], _linear.needs_no_dispatch
            with mock.patch.object(_linear, "needs_no_dispatch", lambda *given:
                                   found.append(inner(*given)) or found[-1]):
                layer(x)
            return found

        for bias, dtype, kind in ((True, t.float32, None), (False, t.bfloat16, "int8")):
            ours = self.package.Linear.from_linear(
                t.nn.Linear(64, 40, bias, dtype=dtype), activations=kind)
            x = t.randn(3, 64, dtype=dtype)
            self.assertEqual(direct(x, ours), [True])
            want = self.ops._linear(x, None, None, ours._packed.number, 40,
                                    ours.weight_scale_2, ours.bias, None, False, kind)
            self.assertTrue(t.equal(ours(x), want))
            self.assertEqual(ours(x).dtype, dtype)
            with t.inference_mode():
                self.assertEqual(direct(x.clone(), ours), [True])

        linear = t.nn.Linear(64, 40)
        ours, x = self.package.Linear.from_linear(linear), t.randn(3, 64)
        want = ours(x)
        for mode in (t.device("cpu"), FlopCounterMode(display=False),
                     t.autograd.profiler.profile()):
            with mode:
                self.assertEqual(direct(x, ours), [False])
        negative = t.complex(x, -x).conj().imag
        self.assertTrue(negative.is_neg())
        self.assertEqual(direct(negative, ours), [False])
        self.assertTrue(t.equal(ours(negative), want))
        self.assertTrue(t.allclose(t.vmap(ours)(x[:, None])[:, 0], want))
        for pre_dispatch in (False, True):
            graph = make_fx(ours, pre_dispatch=pre_dispatch)(x).graph
            self.assertIn(self.ops._linear.default, [one.target for one in graph.nodes])
        traced = t.jit.trace(ours, x)
        self.assertTrue(t.equal(traced(2 * x), ours(2 * x)))
        ours.bias.requires_grad_(True)
        self.assertTrue(t.equal(ours(x), want))
        with self.assertRaises(nibblas.Error):
            t.func.functional_call(ours, {"weight_scale_2": ours.weight_scale_2.to(
                "meta")}, (x,))

    def test_shapes_of_x(self):
        """Any number of dimensions and any strides give the bits of rows."""
        t = self.torch
        for bias in (True, False):
            ours = self.package.Linear.from_linear(t.nn.Linear(64, 40, bias))
            x = t.randn(2, 3, 4, 64)
            want = ours(x.reshape(-1, 64))
            for kind in ("packed", "tensors"):
                for got in (ours(x), ours(x.transpose(0, 2)).transpose(0, 2),
                            ours(t.cat([x, x], -1)[..., :64]),
                            t.stack([ours(one) for one in x.reshape(-1, 64)])):
                    self.assertTrue(t.equal(got.reshape(-1, 40), want))
                self.assertEqual(ours(x[:, :0]).shape, (2, 0, 4, 40))
                self.refused("K = 64: must be x's 128|K = 128", ours, t.cat([x, x], -1))
                ours.unpack()

    def test_a_scale_of_x_that_changes(self):
        """The product of both global scales is kept, and follows them."""
        t = self.torch
        ours = self.package.Linear.from_linear(t.nn.Linear(64, 40), input_scale=0.01,
                                               activations="nvfp4")
        x = t.randn(3, 64)
        ours(x)
        kept = ours._packed.scaled_alpha.product
        ours(x)
        self.assertIs(ours._packed.scaled_alpha.product, kept)
        other = copy.deepcopy(ours)
        for one in (ours, other):
            one.input_scale.fill_(0.02)
        self.assertTrue(t.equal(ours(x), other(x)))
        kept = ours._packed.scaled_alpha.product
        self.assertEqual(kept, ours.weight_scale_2 * 0.02)
        # Behind torch's back: pack() writes it into the same memory, which graphs read.
        ours.input_scale.data.fill_(0.03)
        ours.pack()
        self.assertIs(ours._packed.scaled_alpha.product, kept)
        self.assertEqual(kept, ours.weight_scale_2 * 0.03)

    def test_a_cpu_keeps_the_packed_form_alone(self):
        """Codes of blocks whose scale is 0 come back too, through everything that
        copies a layer."""
        t = self.torch
        ours = self.package.Linear(96, 37)
        state = ours.state_dict()
        t.manual_seed(1)
        state["weight"] = t.randint(0, 256, (37, 48), dtype=t.uint8)
        state["weight_scale"] = t.randint(0, 4, (37, 6), dtype=t.uint8).view(
            t.float8_e4m3fn)
        state["weight_scale_2"].fill_(0.5)
        ours.load_state_dict(state)
        x = t.randn(3, 96)
        want = ours(x)
        file = io.BytesIO()
        t.save(ours, file)
        file.seek(0)
        for one in (ours, copy.copy(ours), copy.deepcopy(ours),
                    pickle.loads(pickle.dumps(ours)), t.load(file, weights_only=False),
                    copy.deepcopy(ours).to(t.bfloat16).to(t.float32).eval()):
            self.assertTrue(t.equal(one(x), want))
            self.assertTrue(one.is_only_packed)
            self.assertEqual({name for name, _ in one.named_buffers()},
                             {"weight_scale_2", "input_scale"})
            got = one.state_dict()
            self.assertEqual(list(got), list(state))
            for name in ("weight", "weight_scale"):
                self.assertTrue(t.equal(got[name].view(t.uint8),
                                        state[name].view(t.uint8)))
                self.assertEqual(got[name].dtype, state[name].dtype)
            self.assertTrue(one.is_only_packed)
        # A tensor that was read may be written.
        codes = ours.codes
        self.assertTrue(t.equal(codes, state["weight"]))
        self.assertIs(ours.codes, codes)
        self.assertFalse(ours.is_only_packed)
        self.assertTrue(t.equal(ours(x), want))
        codes.zero_()
        self.assertTrue(t.equal(ours(x), ours.bias.expand(3, 37)))
        ours.pack()
        self.assertTrue(ours.is_only_packed)
        self.assertEqual(ours.codes.any(), 0)
        # One of the two is replaced, when the other one does not exist.
        ours.pack()
        ours.weight = state["weight"]
        self.assertTrue(t.equal(ours(x), want))

    def test_one_copy_of_the_weights_in_memory(self):
        t, values = self.torch, 4 * 2048 * 2048
        made = t.nn.Sequential(*(self.package.Linear(2048, 2048, False)
                                 for _ in range(4)))
        for one in made:
            one.codes.random_(0, 256)
            one.weight_scale.view(t.uint8).random_(1, 126)
        sizes = {}
        for kind in ("tensors", "packed", "tensors again"):
            if kind == "packed":
                for one in made:
                    one.pack()
            elif kind != "tensors":
                for one in made:
                    one.unpack()
                made(t.zeros(1, 2048))
            held = sum(x.nbytes for x in made.buffers())
            held += sum(one._packed.cached.packed.bytes for one in made
                        if one._packed.cached.packed)
            sizes[kind] = held / values, resident_bytes() / values
        self.assertAlmostEqual(sizes["tensors"][0], 0.5625, places=3)
        self.assertAlmostEqual(sizes["packed"][0], 0.5625, places=3)
        self.assertAlmostEqual(sizes["tensors again"][0], 1.125, places=3)
        # What the system says: packing adds nothing, but for pages that are not whole.
        self.assertLess(sizes["packed"][1] - sizes["tensors"][1], 0.25)
        self.assertGreater(sizes["tensors again"][1] - sizes["packed"][1], 0.3)

    def test_gradients_of_packed_weights(self):
        t = self.torch
        ours = self.package.Linear.from_linear(t.nn.Linear(64, 40))
        x, y, z = (t.ones(2, 3, 64, requires_grad=True) for _ in range(3))
        ours(x).sum().backward()
        self.assertTrue(ours.is_only_packed)
        gone = copy.deepcopy(ours)(y)
        gc.collect()
        gone.sum().backward()
        self.assertTrue(t.equal(x.grad, y.grad))
        y.grad = None
        t.compile(ours, backend="aot_eager", fullgraph=True)(z).sum().backward()
        ours.unpack()
        ours(y).sum().backward()
        self.assertTrue(t.equal(x.grad, y.grad))
        self.assertTrue(t.equal(z.grad, y.grad))

    def test_weights_that_change(self):
        """The packed form follows: written in place, replaced, filled after
        to_empty(), other weights for one call, set behind torch's back."""
        t = self.torch
        one, other = (self.package.Linear.from_linear(t.nn.Linear(64, 40))
                      for _ in range(2))
        x = t.randn(3, 64)
        first, second = one(x), other(x)
        for got in (t.func.functional_call(one, dict(other.state_dict()), (x,)),
                    t.compile(lambda x: t.func.functional_call(
                        one, dict(other.state_dict()), (x,)),
                        backend="aot_eager")(x)):
            self.assertTrue(t.equal(got, second))
        self.assertTrue(t.equal(one(x), first))
        self.write(one, other.state_dict())
        self.assertTrue(t.equal(one(x), second))
        empty = copy.deepcopy(one).to_empty(device="cpu")
        self.write(empty, other.state_dict())
        self.assertTrue(t.equal(empty(x), second))
        meta = self.package.Linear(64, 40, device="meta").to_empty(device="cpu")
        meta.load_state_dict(other.state_dict())
        self.assertTrue(t.equal(meta(x), second))
        hidden = self.package.Linear.from_linear(t.nn.Linear(64, 40, bias=False))
        hidden(x)
        hidden.codes.data.copy_(one.codes)
        hidden.weight_scale.data.copy_(one.weight_scale)
        hidden.weight_scale_2.copy_(one.weight_scale_2)
        hidden.pack()
        self.assertTrue(t.allclose(hidden(x) + one.bias, second))

    def test_other_weights_for_one_call(self):
        """One of the tensors, or both, in the place of packed ones: the layer is as it
        was after the call, and is saved as it is during the call."""
        t = self.torch
        one, other = (self.package.Linear.from_linear(t.nn.Linear(64, 40))
                      for _ in range(2))
        x, state = t.randn(3, 64), other.state_dict()
        want, got, both = one(x), {}, ("weight", "weight_scale")
        full = {name: one.state_dict()[name] for name in both}

        def look(module, _args):
            got.update(module.state_dict(), copied=copy.deepcopy(module),
                       read=module.weight_scale)
        for names in (both[:1], both[1:], both):
            swapped = {name: state[name] for name in names}
            mixed = copy.deepcopy(other)
            mixed.load_state_dict({**one.state_dict(), **swapped})
            for given in (x, x.clone().requires_grad_()):
                with self.subTest(names=names, has_gradient=given.requires_grad):
                    hook = one.register_forward_pre_hook(look)
                    y = t.func.functional_call(one, swapped, given)
                    hook.remove()
                    self.assertTrue(t.equal(y, mixed(x)))
                    self.assertTrue(t.equal(got["copied"](x), y))
                    for name, value in {**full, **swapped}.items():
                        self.assertTrue(t.equal(got[name].view(t.uint8),
                                                value.view(t.uint8)))
                    self.assertTrue(t.equal(got["read"].view(t.uint8),
                                            got["weight_scale"].view(t.uint8)))
                    self.assertTrue(one.is_only_packed)
                    self.assertIsNone(one._packed.cached.codes)
                    self.assertTrue(t.equal(one(x), want))

    def test_another_default_device(self):
        """torch.set_default_device() is for new tensors, not for those of a layer."""
        t = self.torch
        linear = self.package.Linear.from_linear(t.nn.Linear(64, 40))
        moe = self.package.MoE.from_weights(t.randn(3, 96, 64), t.randn(3, 32, 48))
        x = t.randn(3, 64)
        ids, weights = t.zeros(3, 1, dtype=t.int64), t.ones(3, 1)
        want, y = linear(x), moe(x, ids, weights)
        with t.device("meta"):
            for one in (linear, moe):
                state = one.state_dict()
                self.assertTrue(all(value.is_cpu for value in state.values()))
            copied = copy.deepcopy(linear)
            for one in (linear, copied, linear.float()):
                self.assertTrue(t.equal(one(x), want))
                self.assertTrue(one.is_only_packed)
            self.assertTrue(t.equal(moe(x, ids, weights), y))
        self.assertTrue(t.equal(moe(x, ids, weights), y))

    def test_saved_while_another_thread_multiplies(self):
        t = self.torch
        ours = self.package.Linear.from_linear(t.nn.Linear(64, 40))
        x, interval = t.randn(3, 64), sys.getswitchinterval()
        want, is_over = ours(x), threading.Event()

        def multiply():
            while not is_over.is_set():
                self.assertTrue(t.equal(ours(x), want))
        sys.setswitchinterval(1e-6)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            try:
                made = [pool.submit(multiply) for _ in range(2)]
                for _ in range(100):
                    self.assertIsNotNone(ours.state_dict()["weight"])
                    self.assertTrue(t.equal(copy.deepcopy(ours)(x), want))
            finally:
                is_over.set()
                sys.setswitchinterval(interval)
            for one in made:
                one.result()
        self.assertTrue(ours.is_only_packed)
        self.assertIsNone(ours._packed.cached.codes)

    def test_the_packed_form_is_used(self):
        from nibblas.torch import _multiply
        _, ours = self.swapped()
        x = self.torch.randn(3, 64)
        want, calls, inner = ours(x), [], _multiply.unbiased

        def watch(*args):
            calls.append(args)
            return inner(*args)
        with mock.patch.object(_multiply, "unbiased", watch):
            for model in (ours, self.torch.compile(ours, backend="aot_eager",
                                                   fullgraph=True)):
                calls.clear()
                self.assertTrue(self.torch.equal(model(x), want))
                self.assertEqual(len(calls), 3)

    def test_the_gradient_of_weights_for_one_call(self):
        t = self.torch
        one, other = (self.package.Linear.from_linear(t.nn.Linear(64, 40))
                      for _ in range(2))
        x, y = (t.ones(3, 64, requires_grad=True) for _ in range(2))
        t.func.functional_call(one, dict(other.state_dict()),
                               (x,)).sum().backward()
        other(y).sum().backward()
        self.assertTrue(t.equal(x.grad, y.grad))

    def test_many_threads(self):
        t = self.torch
        ours = self.package.Linear.from_linear(t.nn.Linear(64, 40))
        inputs = [t.randn(5, 64) for _ in range(8)]
        want = [ours(x) for x in inputs]
        ours._packed.forget()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for _ in range(20):
                for got, y in zip(pool.map(ours, inputs), want):
                    self.assertTrue(t.equal(got, y))

    def test_floats_of_the_format_stay_floats(self):
        t = self.torch
        _, ours = self.swapped()
        x = t.randn(3, 64)
        want = ours(x)
        ours.half()
        self.assertEqual(ours[0].weight_scale_2.dtype, t.float32)
        self.assertEqual(ours[0].weight_scale.dtype, t.float8_e4m3fn)
        self.assertEqual(ours[0].bias.dtype, t.float16)
        got = ours(x.half())
        self.assertLess((got.float() - want).norm() / want.norm(), 0.1)

    def test_compiles_whole(self):
        for backend, kind in (("aot_eager", None), ("eager", None),
                              ("aot_eager", "nvfp4"), ("aot_eager", "int8")):
            _, ours = self.swapped(kind)
            self.torch._dynamo.reset()
            compiled = self.torch.compile(ours, backend=backend,
                                          fullgraph=True)
            for rows in (1, 4, 9):
                x = self.torch.randn(rows, 64)
                with self.torch.inference_mode():
                    self.assertTrue(self.torch.equal(compiled(x), ours(x)))
        # The choice is looked at by every call.
        with self.torch.inference_mode():
            before = compiled(x)
            for one in (0, 2, 3):
                ours[one].activations = "nvfp4"
            self.assertFalse(self.torch.equal(compiled(x), before))
            self.assertTrue(self.torch.equal(compiled(x), ours(x)))

    @unittest.skipUnless(shutil.which("g++"), "no g++ for torch.compile")
    def test_compiles_by_inductor(self):
        _, ours = self.swapped()
        x = self.torch.randn(6, 64)
        with self.torch.inference_mode():
            got = self.torch.compile(ours, fullgraph=True)(x)
            want = ours(x)
        self.assertLess((got - want).norm() / want.norm(), 0.05)

    @unittest.skipUnless(shutil.which("g++"), "no g++ for torch.compile")
    def test_a_compiled_graph_of_another_process(self):
        """Numbers of packed weights are a process's own; the cache on disk is
        not."""
        program = textwrap.dedent("""
            import sys, torch, nibblas.torch
            torch.manual_seed(1)
            layer = nibblas.torch.Linear.from_linear(
                torch.nn.Linear(64, int(sys.argv[1])))
            q = torch.ops.nibblas.quantize(layer.bias.new_ones(32, 64))
            weights = nibblas.torch.pack(q[0][:int(sys.argv[1])], q[1])
            def both(x):
                one = torch.ops.nibblas.quantize(x)
                return layer(x) + torch.ops.nibblas.gemm_packed(
                    one[0], one[1], weights.number, int(sys.argv[1]))
            x = torch.randn(3, 64)
            with torch.inference_mode():
                got = torch.compile(both, fullgraph=True)(x)
                assert torch.allclose(got, both(x), rtol=0.1, atol=0.1)
            """)
        with tempfile.TemporaryDirectory() as folder:
            env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}
            for rows in ("32", "16"):
                done = subprocess.run([sys.executable, "-c", program, rows],
                                      env=env, text=True, capture_output=True,
                                      check=False)
                self.assertEqual(done.returncode, 0, done.stderr[-2000:])

    def test_exports(self):
        x = self.torch.randn(4, 64)
        for kind in (None, "nvfp4"):
            _, ours = self.swapped(kind)
            want = ours(x)
            # A program has tensors of its own, not this process's packed weights.
            with self.assertRaisesRegex(Exception, "unpack.. before torch.export"):
                self.torch.export.export(ours, (x,))
            for one in (0, 2, 3):
                ours[one].unpack()
            program = self.torch.export.export(ours, (x,))
            names = {str(node.target) for node in program.graph.nodes}
            self.assertIn("nibblas._linear.default", names)
            self.assertTrue(self.torch.equal(program.module()(x), want))
            file = io.BytesIO()
            self.torch.export.save(program, file)
            del ours, program
            gc.collect()
            file.seek(0)
            program = self.torch.export.load(file)
            self.assertTrue(self.torch.equal(program.module()(x), want))

    def test_modelopts_file(self):
        t = self.torch
        linear = t.nn.Linear(64, 40, bias=False)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.safetensors")
            ours = self.package.Linear.from_linear(linear)
            state = {"proj." + key: value for key, value in
                     ours.state_dict().items() if key != "input_scale"}
            save_safetensors(path, state)
            with nibblas.Checkpoint(path) as checkpoint:
                layer = checkpoint["proj"]
                self.assertTrue(np.array_equal(layer.codes,
                                               ours.codes.numpy()))
                self.assertEqual(layer.global_scale,
                                 ours.weight_scale_2.item())
                again = self.package.Linear.from_layer(layer, t.ones(40))
                eight = self.package.Linear.from_layer(layer, None, None, "int8")
        self.assertEqual((again.activations, eight.activations), (None, "int8"))
        x = t.randn(3, 64)
        self.assertTrue(t.equal(again(x), ours(x) + 1))
        stack = layer._replace(codes=layer.codes[None])
        awq = layer._replace(pre_quant_scale=np.ones(64, np.float32))
        self.refused("^layer proj: has a pre_quant_scale",
                     self.package.Linear.from_layer, awq)
        self.refused("^layer proj: a stack", self.package.Linear.from_layer,
                     stack)


if __name__ == "__main__":
    unittest.main(verbosity=2)
