# SPDX-License-Identifier: Apache-2.0
"""nibblas.transformers fills every tensor of a quantised layer from a file, or refuses:
scales follow the renamings of their weights, and input scales that a file lacks, or
that cannot be used, have a stand-in."""

import os
import tempfile
import unittest
import unittest.mock

import nibblas
import torch
from safetensors.torch import load_file

import nibblas.transformers as nt
import tiny_models as tiny
from model_test import FORMATS, ModelTest, logits, newest, tokens
from nibblas.transformers import _quantizer

INF, NAN = float("inf"), float("nan")


class Renamed(ModelTest):
    """DeepSeek-V4: transformers renames head.weight, and no scale of it."""

    def deepseek(self, form, **how):
        """Its folders, NVFP4 and dequantised, with the head in NVFP4 too."""
        folder = tempfile.mkdtemp(dir=self.folder)
        # A token at a position chooses one of few experts and columns of o_a_proj.
        model = tiny.make("deepseek_v4", **{
            **tiny.DEEPSEEK, "num_hidden_layers": 2, "o_lora_rank": 16, "o_groups": 2})
        packed, plain = tiny.save(model, folder, form, keep=(
            "head", "gate.weight", "wo_a", "o_a_proj", "compressor"), **how)
        parts, back = tiny._linear("head.weight", model.lm_head.weight.detach(), form,
                                   how.get("w4a4", False))

        def change(tensors):
            del tensors["head.weight"]
            tensors.update(parts)
        self.configure(self.edit(packed, change), ignore=[])
        self.edit(plain, lambda tensors: tensors.update({"head.weight": back}))
        return packed, plain

    def test_head(self):
        for form in FORMATS:
            packed, plain = self.deepseek(form)
            model = self.load(packed)
            stored = load_file(os.path.join(packed, "model.safetensors"))
            self.assertTrue(torch.equal(
                model.lm_head.weight_scale.view(torch.uint8),
                stored["head.weight_scale"].view(torch.uint8)))
            self.assertIn(("lm_head", "W4A16"), [x[:2] for x in nt.report(model).rows])
            self.assert_near(logits(model, tokens()),
                             logits(self.plain(plain), tokens()), 3e-6)

    def test_saved_again(self):
        """The names of the files come back, of scales that calibrate() adds too."""
        for form in FORMATS:
            packed, _ = self.deepseek(form, w4a4=True)
            model, again = self.load(packed), os.path.join(self.folder, "again")
            model.save_pretrained(again)
            self.assertEqual(self.tensors(packed), self.tensors(again))
        packed, _ = self.deepseek("modelopt")
        model = self.load(packed)
        nt.calibrate(model, [tokens()])
        model.save_pretrained(again)
        self.assertIn("head.input_scale", self.tensors(again))
        self.assertEqual(self.load(again).lm_head.input_scale,
                         model.lm_head.input_scale)

    @newest
    def test_left_out(self):
        """A tensor that no file filled is refused by its name in the file, whatever is
        in its memory."""
        packed, _ = self.deepseek("modelopt")
        with unittest.mock.patch.object(_quantizer, "following", return_value=[]):
            with self.assertRaisesRegex(nibblas.FileError, r"nvfp4/model.safetensors: "
                                        r"head\.weight_scale, head\.weight_scale_2: .*"
                                        "from no file"):
                self.load(packed)
        packed, _ = self.saved("mixtral", "compressed-tensors")
        with unittest.mock.patch.object(_quantizer, "add_converters",
                                        side_effect=lambda conversions,
                                        _used: conversions):
            with self.assertRaisesRegex(nibblas.FileError,
                                        r"experts\.0\.w1\.weight_\w+"):
                self.load(packed)


class InputScales(ModelTest):
    """Input scales that calibration has not reached: 0, inf, NaN, or missing."""

    def change(self, path, name, value):
        """Puts a value, as a factor, in the place of an input scale; None: removes
        it."""
        def change(tensors):
            for key in [x for x in tensors if x.startswith(name) and "input" in x]:
                if value is None:
                    del tensors[key]
                else:
                    factor = torch.tensor(value).expand(tensors[key].shape)
                    tensors[key] = 1 / factor if "global" in key else factor
        return self.edit(path, change)

    def note(self, model, name):
        return next(row.note for row in nt.report(model).rows if row.name == name)

    def test_one_expert(self):
        """The largest of the others stands in; dense reads none."""
        for form in FORMATS:
            packed, plain = self.saved("mixtral", form, w4a4=True)
            # Expert 2 has the largest scales.
            want, dense = logits(self.load(packed), tokens()), logits(
                self.plain(plain), tokens())
            part = "model.layers.1.block_sparse_moe.experts.1."
            for value in (0.0, INF, NAN, None):
                self.change(packed, part, value)
                model = self.load(packed)
                self.assertTrue(torch.equal(logits(model, tokens()), want), value)
                note = self.note(model, "model.layers.1.mlp.experts")
                self.assertRegex(note,
                                 f"2 input scales not usable, first {part}w1.input_.*"
                                       ": the largest of the others")
                self.assertEqual(self.note(model, "model.layers.0.mlp.experts"),
                                 "4 experts")
                again = os.path.join(packed, "again")
                model.save_pretrained(again)
                self.assertTrue(torch.equal(logits(self.load(again), tokens()), want))
                model = self.load(packed, activations="dense")
                self.assert_near(logits(model, tokens()), dense, 3e-6)

    def test_largest_is_not_usable(self):
        """The stand-in is the largest of those that are left, of gate and up."""
        packed, _ = self.saved("mixtral", w4a4=True)
        names = [f"model.layers.0.block_sparse_moe.experts.{e}." for e in range(4)]
        self.change(packed, names[2], None)
        # Gate and up share their x.
        self.change(packed, names[3] + "w1", 8 * tiny.INPUT_SCALE)
        want = logits(self.load(packed), tokens())
        self.change(packed, names[0] + "w3", 8 * tiny.INPUT_SCALE)
        self.change(packed, names[3] + "w1", INF)
        self.assertTrue(torch.equal(logits(self.load(packed), tokens()), want))
        self.change(packed, names[0] + "w3", 5 * tiny.INPUT_SCALE)
        self.assertFalse(torch.equal(logits(self.load(packed), tokens()), want))

    def test_no_expert(self):
        """x is quantised by its largest value, as if no file had input scales."""
        for form in FORMATS:
            packed, _ = self.saved("mixtral", form, w4a4=True)
            self.change(packed, "model.layers.1.block_sparse_moe.experts.", 0.0)
            model = self.load(packed)
            self.assertIn("x by its largest value",
                          self.note(model, "model.layers.1.mlp.experts"))
            self.change(packed, "model.layers.1.block_sparse_moe.experts.", None)
            self.assertTrue(torch.equal(logits(self.load(packed), tokens()),
                                        logits(model, tokens())))

    def test_a_stack(self):
        """One input scale for all experts of gpt-oss."""
        packed, plain = self.saved("gpt_oss", w4a4=True)
        part = "model.layers.0.mlp.experts.gate_up_proj"
        self.change(packed, part, INF)
        model = self.load(packed)
        self.assertRegex(self.note(model, "model.layers.0.mlp.experts"),
                         f"first {part}_input_scale: x by its largest value")
        other = self.load(packed, activations="dense")
        self.assert_near(logits(other, tokens()), logits(self.plain(plain), tokens()),
                         3e-6)
        self.change(packed, part, None)
        self.assertTrue(torch.equal(logits(self.load(packed), tokens()),
                                    logits(model, tokens())))

    def test_linear(self):
        """A linear layer quantises x by its largest value, as without an input
        scale."""
        name = "model.layers.0.mlp.up_proj"
        for form in FORMATS:
            packed, plain = self.saved("llama", form, w4a4=True)
            with_scale = logits(self.load(packed), tokens())
            for value in (0.0, INF, NAN):
                self.change(packed, name, value)
                model = self.load(packed)
                self.assertRegex(self.note(model, name),
                                 "input_.* not usable: x by its")
                dense = self.load(packed, activations="dense")
                self.assert_near(logits(dense, tokens()),
                                 logits(self.plain(plain), tokens()), 3e-6)
            self.change(packed, name, None)
            want = logits(self.load(packed), tokens())
            self.assertTrue(torch.equal(logits(model, tokens()), want))
            self.assertFalse(torch.equal(with_scale, want))

    def test_state_dict(self):
        """What load_state_dict() brings is checked as what a file has, under its
        name."""
        for form in FORMATS:
            model = self.load(self.saved("llama", form)[0])
            key, = [x for x in model.state_dict() if x.endswith((
                "1.mlp.up_proj.weight_scale_2", "1.mlp.up_proj.weight_global_scale"))]
            with self.assertRaisesRegex(nibblas.FileError, f"state_dict: {key} .* 0.0"):
                model.load_state_dict({key: torch.zeros_like(model.state_dict()[key])},
                                      strict=False)


class Initialised(ModelTest):
    def test_mamba(self):
        """Its class initialises linear layers of its blocks by their weights: nothing
        that a file has is changed."""
        sizes = {"state_size": 16, "time_step_rank": 16, "num_hidden_layers": 1}
        for form in FORMATS:
            folder = tempfile.mkdtemp(dir=self.folder)
            packed, plain = tiny.save(tiny.make("mamba", **sizes), folder, form)
            model, want = self.load(packed), self.plain(plain).state_dict()
            for name, value in model.state_dict().items():
                if value.dtype == torch.float32 and name in want:
                    self.assertTrue(torch.equal(value, want[name]), name)
            for leaf in "in_proj", "out_proj":
                name = f"backbone.layers.0.mixer.{leaf}"
                one = model.get_submodule(name)
                back = torch.ops.nibblas.dequantize(
                    one.codes, one.weight_scale, one.weight_scale_2, torch.float32,
                    "linear")
                self.assertTrue(torch.equal(back, want[name + ".weight"]))


class WeightOnly(ModelTest):
    """quant_algo NVFP4 whose configuration says that x stays as it is."""

    def test_no_input_activations(self):
        packed, plain = self.saved("llama", w4a4=True)
        want = logits(self.plain(plain), tokens())
        group = tiny.configuration("modelopt", False)["config_groups"]
        self.configure(packed, config_groups=group)
        self.assert_near(logits(self.load(packed), tokens()), want, 3e-6)
        both = tiny.configuration("modelopt", True)["config_groups"]
        self.configure(packed, config_groups=both)
        self.assertEqual(nt.report(self.load(packed)).counts()["W4A4"], 14)
        self.configure(packed, with_input_scale=False)
        self.assert_near(logits(self.load(packed), tokens()), want, 3e-6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
