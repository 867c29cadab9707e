# SPDX-License-Identifier: Apache-2.0
"""quantize(scales=...) against section 7 of docs/numerics.md: an oracle in fractions
and Python's floats tries the scales of a rule one by one."""

import unittest
from fractions import Fraction

import nibblas
import numpy as np

VALUES = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
RULES = ("amax", "four-six", "mse")


def e4m3(byte):
    exponent, fraction = byte >> 3, byte & 7
    return (8 + fraction) * 2.0 ** (exponent - 10) if exponent else fraction * 2.0 ** -9


SCALES = [e4m3(byte) for byte in range(127)]


def nearest(table, x):
    """The index of the entry nearest to x, in fractions; a tie goes to the even one."""
    return min(range(len(table)), key=lambda i: (abs(Fraction(table[i]) - x), i & 1))


def to_e4m3(x):
    """x is a quotient of fp32, perhaps infinite."""
    if np.isinf(x):
        return 126
    return max(1, nearest(SCALES, Fraction(float(x))))


def codes_of(block, d):
    return [nearest(VALUES, abs(Fraction(x)) / d) for x in block]


def errors_of(block, d):
    """The errors of the magnitudes, exact."""
    return [abs(Fraction(x)) - Fraction(VALUES[code]) * d
            for x, code in zip(block, codes_of(block, d))]


def rounded_error(block, d, amax, weights):
    """The error of a scale by the steps of the definition, in fp32."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        # A double holds these 30 bits, so NumPy rounds once.
        v = np.array([float(VALUES[code] * d) for code in codes_of(block, d)])
        exponent = max(int(np.frexp(amax)[1]) + 126, 0)
        unit = np.float32(2.0 ** (127 - min(exponent, 253)))
        e = (np.abs(np.array(block, np.float32)) - v.astype(np.float32)) * unit
        e = e * e
        if weights is not None:
            e = e * weights
        while len(e) > 1:
            e = e[:len(e) // 2] + e[len(e) // 2:]
    return e[0]


def candidates(amax, unit, rule):
    """In the order in which the first of equals wins."""
    with np.errstate(over="ignore"):
        six = to_e4m3(amax / (np.float32(6) * unit))
        four = to_e4m3(amax / (np.float32(4) * unit))
    if rule == "mse":
        return [s for s in range(six + 6, six - 3, -1) if 1 <= s <= 126]
    return [six, four] if rule == "four-six" else [six]


class Scales(unittest.TestCase):
    def check_block(self, block, q, at, rule, weights):
        """block as Python's floats; q.codes and q.scales as NumPy's, one row."""
        unit = np.float32(q.global_scale)
        amax = np.float32(max(map(abs, block)))
        got = int(q.scales[0, at])
        if amax == 0:
            self.assertEqual(got, 0x38)
            return
        tried = candidates(amax, unit, rule)
        d = [Fraction(SCALES[s]) * Fraction(float(unit)) for s in tried]
        sums = [rounded_error(block, one, amax, weights) for one in d]
        best = sums.index(min(sums))
        self.assertEqual(got, tried[best], (rule, block, float(unit)))
        # What is chosen is the best, or as good as it, without rounding too.
        if amax > 2.0 ** -100:
            by = [1] * 16 if weights is None else [
                Fraction(float(w)) for w in weights]
            exact = [sum(x * x * w for x, w in zip(errors_of(block, one), by))
                     for one in d]
            self.assertLessEqual(
                exact[best], min(exact) * (1 + Fraction(1, 2 ** 17)) +
                Fraction(float(amax)) ** 2 * max(by) / 2 ** 120)
        row = map(int, q.codes[0, 8 * at:8 * at + 8])
        codes = [byte >> shift & 15 for byte in row for shift in (0, 4)]
        signs = [int(np.signbit(x)) for x in block]
        self.assertEqual(codes, [code + 8 * sign for code, sign in zip(
            codes_of(block, d[best]), signs)])

    def check(self, x, unit=None, rules=RULES, weights=None):
        """x is one row, of a type of NumPy."""
        for rule in rules:
            q = nibblas.quantize(x[None], unit, layout="linear", scales=rule,
                                 weights=weights)
            largest = np.float32(2688 if rule == "amax" else 1536)
            amax = np.float32(np.abs(x.astype(np.float32)).max())
            if unit is None:
                want = max(amax / largest, np.float32(2.0 ** -149)) if amax else 1
                self.assertEqual(q.global_scale, want)
            for at in range(len(x) // 16):
                block = [float(v) for v in x[16 * at:16 * at + 16]]
                by = None if weights is None else weights[16 * at:16 * at + 16]
                self.check_block(block, q, at, rule, by)

    def test_bell_curves(self):
        rng = np.random.default_rng(3)
        for dtype in (np.float32, np.float16):
            self.check((rng.standard_normal(16 * 37) * 0.03).astype(dtype))

    def test_every_scale(self):
        rng = np.random.default_rng(4)
        sizes = np.repeat(2.0 ** rng.uniform(-11, 10, 61), 16)
        x = (rng.standard_normal(len(sizes)) * sizes).astype(np.float32)
        self.check(x, 0.37)
        self.check(x, 1.0)

    def test_values_of_the_format(self):
        """Errors of zero and exact ties: the rules for equals decide."""
        rng = np.random.default_rng(5)
        codes = rng.choice([0, 0.25, 0.5, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6], 16 * 60)
        sizes = np.repeat([1, 1.5, 0.75, 2.0 ** -9, 2.0 ** -8, 448], 160)
        signs = rng.choice([1, -1], len(codes))
        self.check((codes * sizes * signs).astype(np.float32), 1.0)
        self.check((codes * signs).astype(np.float16))
        # 4, 2, 1 and 0 are exact with either scale: 6 wins for "four-six".
        x = np.zeros(16, np.float32)
        for peak in (4, 6, 3, 2):
            x[:4] = peak, -peak / 2, peak / 4, 0
            self.check(x, 1.0)

    def test_order_of_the_sum(self):
        """6 and 4 have the same errors in other places, so that only the rounding of
        the sum decides: that of 2 + a is a and a - 1/4, that of 3/4 + a the reverse.
        Small values make sums inexact."""
        rng = np.random.default_rng(8)
        blocks, chosen = [], set()
        for _ in range(60):
            a = rng.integers(1, 2 ** 20, 5) * 2.0 ** -22
            small = rng.integers(2 ** 23, 2 ** 24, 5) * 2.0 ** -36
            block = np.concatenate(([6], 2 + a, 0.75 + a, small))
            rng.shuffle(block)
            blocks.append(block)
            pair = [errors_of(block, Fraction(d)) for d in (1, 1.5)]
            self.assertEqual(*(sum(x * x for x in one) for one in pair))
            sums = [rounded_error(block, Fraction(d), np.float32(6), None)
                    for d in (1, 1.5)]
            chosen.add(sums[1] < sums[0])
        self.assertEqual(len(chosen), 2)
        self.check(np.concatenate(blocks).astype(np.float32), 1.0)

    def test_weights(self):
        rng = np.random.default_rng(10)
        for spread in (0, 2, 40, 99):
            x = (rng.standard_normal(16 * 11) * 0.03).astype(np.float32)
            weights = (2.0 ** rng.uniform(-spread, spread, len(x))).astype(np.float32)
            weights[rng.integers(0, len(x), 30)] = 0
            self.check(x, None, RULES[1:], weights)
        x, ones = rng.standard_normal((3, 64)).astype(np.float32), np.ones(64, "f")
        for rule in RULES[1:]:
            plain, weighted = (nibblas.quantize(x, scales=rule, weights=by)
                               for by in (None, ones))
            self.assertEqual(plain.codes.tolist(), weighted.codes.tolist())
        # Each row has the same weights, and only one decides.
        ones[:16], ones[5] = 0, 2.0 ** 100
        x[:, :16], x[:, 3] = 1, 6
        x[1:, 5] = 4.5, 0.5
        q = nibblas.quantize(x, 1.0, layout="linear", scales="four-six", weights=ones)
        self.assertEqual(q.scales[:, 0].tolist(), [0x38, 0x3C, 0x38])
        for bad in (np.ones(63, "f"), np.ones(64), np.full(64, np.nan, "f")):
            with self.assertRaisesRegex(nibblas.ArgumentError, "weights"):
                nibblas.quantize(x, scales="mse", weights=bad)
        with self.assertRaisesRegex(nibblas.ArgumentError, "column_weights"):
            nibblas.quantize(x, weights=ones)

    def test_scale_of_four(self):
        """Its quotient near ties of e4m3: the divisor is 4 * global, exact."""
        rng = np.random.default_rng(9)
        block = np.full(16, 0.75, np.float32)
        for _ in range(40):
            unit = np.float32(rng.uniform(1, 2))
            tie = np.float32(rng.integers(8, 16) + 0.5)
            amax = np.float32(tie * (4 * unit))
            for ulps in (-1, 0, 1):
                x = block * np.float32(amax)
                x[3] = (amax.view(np.int32) + np.int32(ulps)).view(np.float32)
                self.check(x, unit, ("four-six",))

    def test_ends_of_the_range(self):
        rng = np.random.default_rng(6)
        huge = rng.uniform(-1, 1, 16 * 8) * np.repeat(2.0 ** np.arange(120, 128), 16)
        tiny = np.float32(2.0 ** -149) * rng.integers(0, 2 ** 12, 16 * 8)
        for unit in (None, 1.0, 2.0 ** -149, 2.0 ** -140, 2.0 ** 120):
            self.check(huge.astype(np.float32), unit)
            self.check(tiny.astype(np.float32), unit)
        self.check(np.zeros(32, np.float32))
        self.check(np.array([-0.0, 2.0 ** -149] * 8, np.float32))

    def test_four_helps_and_mse_is_never_worse(self):
        rng = np.random.default_rng(7)
        x = (rng.standard_normal((33, 16 * 65)) * 0.02).astype(np.float32)
        unit, errors = np.abs(x).max() / 1536, {}
        for rule in RULES:
            q = nibblas.quantize(x, unit, layout="linear", scales=rule)
            y = nibblas.dequantize(*q, layout="linear")
            blocks = (x.astype(np.float64) - y).reshape(-1, 16)
            errors[rule] = (blocks ** 2).sum(1)
        slack = 1 + 1e-12
        self.assertTrue((errors["four-six"] <= errors["amax"] * slack).all())
        self.assertTrue((errors["mse"] <= errors["four-six"] * slack).all())
        self.assertLess(errors["four-six"].sum(), 0.95 * errors["amax"].sum())
        self.assertLess(errors["mse"].sum(), 0.95 * errors["four-six"].sum())

    def test_not_finite(self):
        x = np.ones((1, 32), np.float32)
        x[0, 3], x[0, 17] = np.nan, -np.inf
        for rule in RULES:
            with self.assertRaisesRegex(nibblas.DataError, "row 0, col 3. = nan"):
                nibblas.quantize(x, 0.25, scales=rule)
            q = nibblas.quantize(x, 0.25, layout="linear", scales=rule, saturate=True)
            self.assertEqual(int(q.scales[0, 1]), 126)
            self.assertEqual(int(q.codes[0, 8]) >> 4, 15)
            x[0, 3] = 0
            clean = nibblas.quantize(x[:, :16], 0.25, layout="linear", scales=rule)
            self.assertEqual(clean.codes.tolist(), q.codes[:, :8].tolist())
            self.assertEqual(clean.scales[0, 0], q.scales[0, 0])
            x[0, 3] = np.nan

    def test_refused(self):
        with self.assertRaisesRegex(nibblas.ArgumentError,
                                    "^scales = 'best': must be 'amax'"):
            nibblas.quantize(np.ones((1, 16), np.float32), scales="best")


if __name__ == "__main__":
    unittest.main()
