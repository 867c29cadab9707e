# SPDX-License-Identifier: Apache-2.0
"""torch.ops.nibblas.moe: compares the library's layer of experts with its definition in
operators, bit by bit, and with float64.  Also activations, ids of experts on other
devices, types, fake kernels, refusals."""

import copy
import io
import os
import re
import subprocess
import sys
import unittest

import numpy as np
from common import SOURCE, TorchTest

EXPERTS, WIDTH, K, COLS = 6, 48, 64, 80
KINDS = ("w4a16", "w4a4", "quantized")
ACTIVATIONS = ("swiglu", "swiglu_clamped", "gelu", "relu2")


class MoeTest(TorchTest):
    def layer(self, activation="swiglu", kind="w4a16", dtype=None, tokens=17,
              top_k=3, offset=0):
        """Arguments of the operator by name, and the weights in float64."""
        t, rows = self.torch, WIDTH if activation == "relu2" else 2 * WIDTH
        (w13, s13), v13, _ = self.operand(EXPERTS, rows, K, layout="linear")
        (w2, s2), v2, _ = self.operand(EXPERTS, COLS, WIDTH, layout="linear")
        x = t.randn(tokens, K).to(dtype or t.bfloat16)
        alphas = [(t.rand(EXPERTS) + 1) * 2.0 ** -8 for _ in range(2)]
        ids = t.randint(offset - 2, offset + EXPERTS + 1, (tokens, top_k))
        args = {"x": x, "topk_ids": ids, "topk_weights": t.rand(tokens, top_k),
                "w13": w13, "w13_scales": s13, "w2": w2, "w2_scales": s2,
                "alpha13": alphas[0], "alpha2": alphas[1],
                "activation": activation, "expert_offset": offset}
        if kind != "w4a16":
            args["x_global"] = t.tensor(2.0 ** -9)
            args["h_global"] = t.tensor(2.0 ** -12)
        if kind == "quantized":
            args["x"], args["x_scales"], _ = self.ops.quantize(
                x, args.pop("x_global"), "linear")
        return args, v13, v2

    def composed(self, args, out_dtype, **options):
        from moe_operators import composed
        given = {"x_scales": None, "x_global": None, "h_global": None, "limit": 7.0,
                 "swiglu_alpha": 1.702, "up_bias": 1.0, "interleaved": False,
                 **args, **options}
        names = ("x", "x_scales", "topk_ids", "topk_weights", "w13", "w13_scales",
                 "w2", "w2_scales", "alpha13", "alpha2", "x_global", "h_global",
                 "activation", "limit", "swiglu_alpha", "up_bias", "interleaved",
                 "expert_offset")
        return composed(*(given[name] for name in names), out_dtype)


class Definition(MoeTest):
    def test_the_bits_of_the_operators(self):
        t = self.torch
        for kind in KINDS:
            for activation in ("swiglu", "relu2"):
                for offset, dtype in ((0, t.bfloat16), (5, t.float32),
                                      (3, t.float16)):
                    args, _, _ = self.layer(activation, kind, dtype, 17, 3, offset)
                    y = self.ops.moe(**args)
                    want = self.composed(args, y.dtype)
                    self.assertTrue(t.equal(y, want), (kind, activation, dtype))
                    args["topk_ids"] = args["topk_ids"].int()
                    self.assertTrue(t.equal(self.ops.moe(**args), want))

    def h(self, g, activation, limit=7.0, swiglu_alpha=1.702, up_bias=1.0):
        if activation == "relu2":
            return np.maximum(g, 0) ** 2
        gate, up = g[:WIDTH], g[WIDTH:]
        if activation == "gelu":
            inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate ** 3)
            return 0.5 * gate * (1 + np.tanh(inner)) * up
        if activation == "swiglu_clamped":
            gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
            return gate / (1 + np.exp(-swiglu_alpha * gate)) * (up + up_bias)
        return gate / (1 + np.exp(-gate)) * up

    def test_float64(self):
        """W4A16 in float32: every value of g errs by 2^-18 of the sum of the absolute
        products (numerics.md: k + 8 units, here 72), h and y by as much of theirs."""
        for activation in ACTIVATIONS:
            args, v13, v2 = self.layer(activation, dtype=self.torch.float32)
            y = self.ops.moe(**args).double().numpy()
            x = args["x"].double().numpy()
            a13, a2 = (args[n].double().numpy() for n in ("alpha13", "alpha2"))
            for token, ids in enumerate(args["topk_ids"].tolist()):
                want, size = np.zeros(COLS), np.zeros(COLS)
                for slot, e in enumerate(ids):
                    if not 0 <= e < EXPERTS:
                        continue
                    w = args["topk_weights"][token, slot].item()
                    h = self.h(v13[e] @ x[token] * a13[e], activation)
                    scale = np.abs(v13[e]) @ np.abs(x[token]) * a13[e]
                    want += w * a2[e] * (v2[e] @ h)
                    # |dh| of |dg| for all of these: at most (1 + |g|)^2 |dg|.
                    size += w * a2[e] * (np.abs(v2[e]) @ (
                        np.abs(h) + np.resize((1 + scale) ** 2, WIDTH).max()))
                error = np.abs(y[token] - want)
                self.assertTrue((error <= 2.0 ** -17 * size).all(),
                                (activation, token))
                # The bound means something: it is far below the values.
                if any(0 <= e < EXPERTS for e in ids):
                    self.assertLess(2.0 ** -17 * size.max(),
                                    0.1 * np.abs(want).max())

    def test_activations_as_operators(self):
        """The composition of operators, against the library's layer."""
        t = self.torch
        for activation in ACTIVATIONS:
            args, _, _ = self.layer(activation, dtype=t.float32)
            y, want = self.ops.moe(**args), self.composed(args, t.float32)
            self.assertLess((y - want).abs().max(), 2.0 ** -18 * want.abs().max())

    def test_rows_that_alternate(self):
        t = self.torch
        for activation in ("swiglu", "swiglu_clamped"):
            args, _, _ = self.layer(activation, dtype=t.float32)
            y = self.ops.moe(**args)
            for name in ("w13", "w13_scales"):
                halves = args[name].chunk(2, 1)
                args[name] = t.stack(halves, 2).flatten(1, 2)
            self.assertTrue(t.equal(self.ops.moe(**args, interleaved=True), y))
            other = self.composed(args, t.float32, interleaved=True)
            self.assertLess((other - y).abs().max(), 2.0 ** -18 * y.abs().max())

    def test_global_scales_of_gate_and_up(self):
        args, _, _ = self.layer(kind="w4a4")
        y = self.ops.moe(**args)
        args["alpha13"] = self.torch.stack([args["alpha13"]] * 2)
        self.assertTrue(self.torch.equal(self.ops.moe(**args), y))
        args["alpha13"][1] *= 2
        self.assertFalse(self.torch.equal(self.ops.moe(**args), y))

    def test_parts_of_the_experts_add_up(self):
        t = self.torch
        args, _, _ = self.layer(dtype=t.float32, top_k=1)
        whole, parts = self.ops.moe(**args), 0
        for first in range(0, EXPERTS, 2):
            one = {**args, "expert_offset": first}
            for name in ("w13", "w13_scales", "w2", "w2_scales", "alpha13",
                         "alpha2"):
                one[name] = args[name][first:first + 2]
            parts = parts + self.ops.moe(**one)
        self.assertTrue(t.equal(whole, parts))

    def test_nothing(self):
        for tokens, top_k in ((0, 2), (3, 0)):
            args, _, _ = self.layer(tokens=tokens, top_k=top_k)
            y = self.ops.moe(**args)
            self.assertEqual(tuple(y.shape), (tokens, COLS))
            self.assertFalse(y.any())
            self.assertTrue(self.torch.equal(self.composed(args, y.dtype), y))


class Module(MoeTest):
    def module(self, activation="swiglu"):
        """(a module, its arguments, what the operator makes of them)."""
        args, _, _ = self.layer(activation, "w4a4")
        made = self.package.MoE(
            (args["w13"], args["w13_scales"], args["alpha13"] / args["x_global"]),
            (args["w2"], args["w2_scales"], args["alpha2"] / args["h_global"]),
            args["x_global"], args["h_global"], activation)
        given = args["x"], args["topk_ids"], args["topk_weights"]
        return made, given, self.ops.moe(**args)

    def test_packed_weights_have_the_same_bits(self):
        for activation in ("swiglu", "relu2"):
            made, given, want = self.module(activation)
            for _ in range(2):
                self.assertTrue(made.is_only_packed)
                self.assertTrue(self.torch.equal(made(*given), want))
                made.unpack()
                self.assertTrue(self.torch.equal(made(*given), want))
                self.assertIsNotNone(made._packed[0].cached.codes)
                self.assertIsNotNone(made._packed[2].cached.codes)
                made.pack()

    def test_a_cpu_keeps_the_packed_form_alone(self):
        """0.5625 bytes a value, and the tensors' bits come back."""
        t = self.torch
        names = ("w13", "w13_scale", "w2", "w2_scale")
        for activation in ("swiglu", "relu2"):
            made, given, want = self.module(activation)
            state = made.state_dict()
            self.assertEqual(list(state)[:6], [
                "w13", "w13_scale", "w13_scale_2", "w2", "w2_scale", "w2_scale_2"])
            file = io.BytesIO()
            t.save(made, file)
            file.seek(0)
            loaded = copy.deepcopy(made)
            loaded.unpack()
            for name in names:
                loaded._buffers[name].view(t.uint8).zero_()
            loaded.load_state_dict(state)
            for one in (made, copy.deepcopy(made), t.load(file, weights_only=False),
                        loaded, copy.deepcopy(made).half()):
                self.assertTrue(one.is_only_packed)
                self.assertFalse([x for x in one.buffers() if x.dim() == 3])
                self.assertTrue(t.equal(one(*given), want))
                for name, x in one.state_dict().items():
                    self.assertTrue(t.equal(x.view(t.uint8) if x.dim() else x,
                                            state[name].view(t.uint8) if x.dim()
                                            else x))
            held = sum(layer.cached.packed.bytes for layer in made._layers())
            # Panels of 16 rows, 9 bytes for each of K, begin on lines of 64 bytes.
            first, down = (-(-9 * k // 64) * 64 for k in (K, WIDTH))
            rows = WIDTH if activation == "relu2" else 2 * WIDTH
            self.assertEqual(held, EXPERTS * (rows * first + COLS * down) // 16)
            compiled = t.compile(made, backend="aot_eager", fullgraph=True)
            self.assertTrue(t.equal(compiled(*given), want))
            kept = made.w13
            self.assertTrue(t.equal(kept, state["w13"]))
            self.assertFalse(made.is_only_packed)
            made.w2_scale.view(t.uint8).zero_()
            self.assertFalse(made(*given).any())

    def test_changes_are_seen(self):
        t = self.torch
        made, given, want = self.module()
        made(*given)
        made.w2.bitwise_xor_(0x88)      # the sign of every weight
        self.assertTrue(t.equal(made(*given), -want))
        made.w2 = made.w2 ^ 0x88        # another tensor, which is not packed
        self.assertTrue(t.equal(made(*given), want))
        self.assertTrue(t.equal(copy.deepcopy(made)(*given), want))
        made.to(t.device("cpu"))
        self.assertTrue(t.equal(made(*given), want))
        made.to(t.bfloat16).half()      # scales and global scales stay as they are
        self.assertTrue(t.equal(made(*given), want))

    def test_other_weights_for_one_call(self):
        t = self.torch
        made, given, want = self.module()
        y = t.func.functional_call(made, {"w2": made.state_dict()["w2"] ^ 0x88}, given)
        self.assertTrue(t.equal(y, -want))
        self.assertTrue(made.is_only_packed)
        self.assertTrue(t.equal(made(*given), want))

    def test_parts(self):
        t = self.torch
        made, (x, ids, weights), want = self.module()
        first, second = made.part(0, 2), made.part(2, EXPERTS)
        y = first(x, ids, weights, out_dtype=t.float32) + second(
            x, ids, weights, out_dtype=t.float32)
        self.assertLess((y - want).abs().max(), 2.0 ** -6 * want.abs().max())
        self.refused("first, end = 3, 3", made.part, 3, 3)

    def test_from_weights(self):
        t = self.torch
        w13, w2 = t.randn(4, 96, 64), t.randn(4, 32, 48)
        made = self.package.MoE.from_weights(w13, w2)
        x, ids = t.randn(5, 64), t.randint(0, 4, (5, 1))
        y = made(x, ids, t.ones(5, 1))
        for token, e in enumerate(ids[:, 0].tolist()):
            gate, up = (w13[e] @ x[token]).chunk(2)
            want = w2[e] @ (t.nn.functional.silu(gate) * up)
            self.assertLess((y[token] - want).norm(), 0.3 * want.norm())
        self.refused("hidden_scale", self.package.MoE.from_weights, w13, w2,
                     input_scale=1.0)
        made = self.package.MoE.from_weights(w13, w2, scales="four-six")
        self.assertTrue(t.equal(made.w13_scale_2, w13.abs().amax((1, 2)) / 1536))
        self.assertTrue(t.equal(made.w2_scale_2, w2.abs().amax((1, 2)) / 1536))
        self.refused("^scales = 'best'", self.package.MoE.from_weights, w13, w2,
                     scales="best")


class Operator(MoeTest):
    def test_opcheck(self):
        for kind in KINDS:
            args, _, _ = self.layer(kind=kind)
            if kind == "quantized":
                # opcheck compares arguments, which float8 cannot.
                args["x_scales"] = args["x_scales"].view(self.torch.uint8)
            names = ("x", "topk_ids", "topk_weights", "w13", "w13_scales", "w2",
                     "w2_scales")
            self.torch.library.opcheck(
                self.ops.moe.default, tuple(args.pop(n) for n in names), args,
                test_utils=("test_schema", "test_faketensor"))

    def test_types(self):
        t = self.torch
        for dtype in (t.float32, t.float16, t.bfloat16):
            args, _, _ = self.layer(dtype=dtype)
            self.assertEqual(self.ops.moe(**args).dtype, dtype)
            for other in (t.float32, t.float16, t.bfloat16):
                y = self.ops.moe(**args, out_dtype=other)
                self.assertEqual(y.dtype, other)
        args, _, _ = self.layer(kind="quantized")
        self.assertEqual(self.ops.moe(**args).dtype, t.bfloat16)

    def test_example(self):
        """examples/moe.py as a user runs it, on a small layer."""
        done = subprocess.run(
            [sys.executable, os.path.join(SOURCE, "examples", "moe.py"), "--hidden",
             "128",
             "--width", "64", "--tokens", "1", "9", "--rounds", "1"],
            text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        errors = [[float(x) for x in re.findall(r"error ([\d.]+)", line)]
                  for line in done.stdout.splitlines()[1:]]
        self.assertEqual([len(one) for one in errors], [2, 2])
        for w4a16, w4a4 in errors:
            self.assertLess(0.05, w4a16)
            self.assertLess(w4a16, w4a4)
            self.assertLess(w4a4, 0.5)

    def test_refusals(self):
        t = self.torch
        args, _, _ = self.layer(kind="w4a4")

        def refused(pattern, **changed):
            self.refused(pattern, self.ops.moe, **{**args, **changed})
        refused("activation = 'silu'", activation="silu")
        refused("topk_ids.*int32 or int64", topk_ids=args["topk_ids"].short())
        refused("topk_ids.*17 rows", topk_ids=args["topk_ids"][1:])
        refused("topk_weights.*topk_ids' shape",
                topk_weights=args["topk_weights"][:, 1:])
        refused("x.*2 dimensions", x=args["x"][None])
        refused("w13.*at least one", w13=args["w13"][:0])
        refused("w13: must be a tensor, or packed", w13=None)
        refused("number = 0: is the number of no layer", w13=None, w13_scales=None,
                w2=None, w2_scales=None, packed=[0, 0, 0], cols=COLS)
        refused("w13.*as of up", w13=args["w13"][:, 1:])
        refused("h_global.*must be given", h_global=None)
        refused("h_global.*only with them", x_global=None)
        refused("x_global.*x is quantised", x_scales=args["w13_scales"][0])
        refused("x_global.*positive", x_global=t.tensor(-1.0))
        refused("expert_offset = -1", expert_offset=-1)
        refused("alpha2", alpha2=args["alpha2"][1:])
        refused("alpha13.*12 elements", alpha13=t.ones(3, EXPERTS))
        refused("w2.k = 16: must be gate.rows = 48", w2=args["w2"][..., :8],
                w2_scales=args[
            "w2_scales"][..., :1])
        refused("limit", limit=0.0, activation="swiglu_clamped")

    def test_input_scales_of_the_plug_in(self):
        """vLLM's experts quantise x by the largest input scale that can be used."""
        t, inf, nan = self.torch, float("inf"), float("nan")
        from nibblas import FileError
        from nibblas.vllm._layers import largest
        scales = t.tensor([[0.5, 0.25], [inf, 0.0], [nan, -1.0], [0.75, 0.125]])
        self.assertEqual(largest("w13_input_scale", scales), 0.75)
        self.assertEqual(largest("w13_input_scale", 1 / scales[:3]), 4)
        with self.assertRaisesRegex(FileError,
                                    "w13_input_scale: .*one expert at least"):
            largest("w13_input_scale", scales[1:3])


if __name__ == "__main__":
    unittest.main()
