# SPDX-License-Identifier: Apache-2.0
"""nibblas.gpumode: the contest's tuples, its data, its tests and its check, on the
CPU; and what is refused."""

import contextlib
import io
import unittest

import nibblas
from common import TorchTest

# Multiplications of a spec that this test leaves to a larger run.
LARGE = 1e9


def cost(spec):
    return sum(s.m * s.n * s.k * s.batch for s in spec)


class GpuMode(TorchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        from nibblas import gpumode
        from nibblas.gpumode import _contest, _data, _specs
        cls.gpumode, cls.contest = gpumode, _contest
        cls.data, cls.specs = _data, _specs

    def run_spec(self, problem, spec):
        data = self.data.generate(problem, spec)
        self.contest.wipe(problem, data)
        result = self.gpumode.custom_kernel(problem)(data)
        if problem == "group_gemm":
            self.assertEqual([id(c) for c in result],
                             [id(c) for _, _, c in data[0]])
        else:
            self.assertIs(result, data[-1])
        verdict = self.contest.check(problem, data)
        self.assertEqual(verdict.elements,
                         sum(s.m * s.n * s.batch for s in spec))
        self.assertEqual(verdict.wrong, 0, (problem, spec, verdict.first))
        return verdict

    def test_small(self):
        size = self.specs.Size
        for m, n, k, batch in ((1, 1, 16, 1), (40, 33, 80, 1), (129, 200, 272, 3),
                               (5, 130, 1024, 2)):
            for problem in ("gemm", "dual_gemm"):
                self.run_spec(problem, (size(m, n, k, batch),))
            self.run_spec("gemv", (size(m, 1, k, batch),))
        verdict = self.run_spec("group_gemm", (
            size(3, 40, 48), size(129, 7, 272), size(40, 200, 64)))
        # Sums of these data are exact: one rounding is all that may differ.
        self.assertEqual(verdict.rounded, verdict.elements)

    def test_contest(self):
        for problem, specs in self.specs.TESTS.items():
            self.assertEqual(len(specs), 10)
            for spec in specs:
                if cost(spec) > LARGE:
                    print(f"skipped: {problem} {tuple(spec[0])}: large for a "
                          "reference in float64")
                    continue
                with self.subTest(problem=problem, spec=spec):
                    self.run_spec(problem, spec)

    def test_other_strides(self):
        """c and a need not lie densely."""
        t = self.torch
        spec = (self.specs.Size(9, 20, 64, 2),)
        data = list(self.data.generate("gemm", spec))
        wide = t.zeros(2, 9, 48, dtype=t.uint8)
        wide[:, :, :32] = data[0].view(t.uint8).permute(2, 0, 1)
        data[0] = wide[:, :, :32].permute(1, 2, 0)
        wide = t.full((2, 9, 24), 7, dtype=t.float16)
        data[-1] = wide[:, :, :20].permute(1, 2, 0)
        self.gpumode.gemm(tuple(data))
        self.assertEqual(self.contest.check("gemm", data).wrong, 0)
        self.assertTrue((wide[:, :, 20:] == 7).all())

    def test_bytes_for_torchs_types(self):
        t = self.torch
        data = list(self.data.generate(
            "gemv", (self.specs.Size(130, 1, 128, 2),)))
        self.assertEqual(data[0].dtype, t.float4_e2m1fn_x2)
        for i in range(6):
            data[i] = data[i].view(t.uint8)
        self.gpumode.gemv(tuple(data))
        data[2:4] = [x.view(t.float8_e4m3fn) for x in data[2:4]]
        self.assertEqual(self.contest.check("gemv", data).wrong, 0)

    def test_data_are_the_contests(self):
        """Each problem's own codes and scales, of a seed's own."""
        t = self.torch
        signed = {n | s for n in (0, 1, 2, 3) for s in (0, 8)}
        rules = {"gemm": (set(range(16)), {0, 1, 2, 3}),
                 "gemv": ({0, 1, 2, 3}, {0, 1, 2}),
                 "dual_gemm": (signed, None), "group_gemm": (signed, {1, 2})}
        spec = (self.specs.Size(130, 140, 512),)
        for problem, (codes, scales) in rules.items():
            data, other = (self.data.generate(problem, spec, seed=seed)
                           for seed in (1111, 1153))
            if problem == "group_gemm":
                (a, b, c), (sa, _), (ta, _) = (x[0] for x in data[:3])
                self.assertEqual(data[3], [(130, 140, 512, 1)])
                other = other[0][0]
            else:
                a, b, c = data[0], data[1], data[-1]
                count = 3 if problem == "dual_gemm" else 2
                sa, ta = data[count], data[2 * count]
            a = a.view(t.uint8)
            self.assertEqual(set((a & 15).flatten().tolist()), codes)
            if scales is None:
                self.assertTrue(0 <= sa.float().min() and sa.float().max() <= 1)
            else:
                self.assertEqual(set(sa.float().flatten().tolist()), scales)
            self.assertEqual(tuple(ta.shape), (32, 4, 2, 4, 8, 1))
            for m, g in ((0, 0), (37, 5), (129, 31)):
                self.assertEqual(sa[m, g, 0].float(), ta[
                    m % 32, m % 128 // 32, m // 128, g % 4, g // 4, 0].float())
            self.assertEqual(c.dtype, t.float16)
            self.assertFalse((a == other[0].view(t.uint8)).all())
            rows = {"gemv": 128}.get(problem, 140)
            self.assertEqual(tuple(b.shape), (rows, 256, 1))

    def test_check_finds_errors(self):
        """An element that is off, one not written, one infinite."""
        for value in (1.01, float("nan"), float("inf")):
            data = self.data.generate("gemm", (self.specs.Size(9, 20, 64),))
            self.gpumode.gemm(data)
            data[-1][3, 4, 0] = data[-1][3, 4, 0] * value + value
            verdict = self.contest.check("gemm", data)
            self.assertEqual(verdict.wrong, 1)
            self.assertIn("row 3, col 4", verdict.first)

    def test_refusals(self):
        size = self.specs.Size
        data = self.data.generate("gemm", (size(9, 20, 64, 2),))

        def refused(pattern, i, x):
            self.refused(pattern, self.gpumode.gemm,
                         (*data[:i], x, *data[i + 1:]))

        self.refused("^problem = 'gem': must be 'group_gemm' or",
                     self.gpumode.custom_kernel, "gem")
        self.refused("^data: tuple of 6; must be the 7 parts",
                     self.gpumode.gemm, data[:6])
        refused(r"^a: .*must be \[rows, K/2, L\]", 0, data[0][:, :, 0])
        refused(r"^b: .*must have shape \(20, 32, 2\)", 1, data[1][:, :16])
        refused(r"^sfa_permuted: .*must have shape \(32, 4, 1, 4, 1, 2\)", 4,
                data[2])
        refused("^sfb_permuted: .*must be a view of .*permuted by", 5,
                data[5].contiguous())
        refused(r"^c: .*must have shape \(9, 20, 2\)", 6, data[6][:8])
        abc, plain, scales, sizes = self.data.generate(
            "group_gemm", (size(9, 20, 64), size(8, 24, 48)))
        self.refused("^data: 2 abc_tensors, 1 sfasfb_reordered",
                     self.gpumode.group_gemm, (abc, plain, scales[:1], sizes))
        self.gpumode.group_gemm((abc, plain, scales, sizes))
        self.refused(r"^a\[1\]: .*must have shape \(8, 32, 1\)",
                     self.gpumode.group_gemm,
                     (abc, plain, scales, [sizes[0], (8, 24, 64, 1)]))

    def test_refused_devices(self):
        """Also for shapes whose plan is known."""
        data = self.data.generate("gemm", (self.specs.Size(9, 20, 64, 2),))
        self.gpumode.gemm(data)
        self.refused(r"^data: a tensor of shape \(20, 32, 2\) is on meta; must "
                     "be on cpu", self.gpumode.gemm,
                     (data[0], data[1].to("meta"), *data[2:]))
        self.refused("^data: is on meta; must be on a CPU or a GPU",
                     self.gpumode.gemm, tuple(x.to("meta") for x in data))

    def test_refused_types(self):
        """By the names of the contest."""
        data = list(self.data.generate("gemv", (self.specs.Size(130, 1, 64),)))
        data[5] = data[5].view(self.torch.int8)
        self.refused("^sfb_permuted: .*int8", self.gpumode.gemv, tuple(data))

    def test_command(self):
        from nibblas.gpumode import __main__ as command
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            self.assertEqual(command.check("gemv", "cpu"), 0)
        lines = text.getvalue().splitlines()
        self.assertEqual(len(lines), 13)
        self.assertEqual(lines[-1], "10 of 10 tests passed")
        self.assertEqual(len({len(line) for line in lines[1:-1]}), 1)
        with contextlib.redirect_stdout(text):
            self.assertEqual(command.main(["check", "gemv", "--only", "2,0"]), 0)
        self.assertEqual(text.getvalue().splitlines()[-2].split()[:4],
                         ["m", "128", "k", "256"])
        self.assertTrue(text.getvalue().endswith("2 of 2 tests passed\n"))

    def test_plans_are_kept(self):
        data = self.data.generate("gemm", (self.specs.Size(9, 21, 64),))
        from nibblas import _plans
        self.gpumode.gemm(data)
        count = len(_plans.cache.plans)
        self.gpumode.gemm(data)
        self.assertEqual(len(_plans.cache.plans), count)


if __name__ == "__main__":
    print(nibblas.backends())
    unittest.main(verbosity=2)
