# SPDX-License-Identifier: Apache-2.0
"""Patterns of quantisation configurations: random ones against Python's re, and those
for which it takes exponential time."""

import random
import re
import time
import unittest

from nibblas import FileError, _patterns

ATOMS = ("a", "b", "1", r"\.", ".", r"\w", r"\W", r"\d", r"\D", r"\s", "[ab]", "[^a]",
         "[a-b.]", r"[\w.]", r"[^\d]", "^", "$", r"\b", r"\B")
REPEATS = ("*", "+", "?", "*?", "+?", "{2}", "{1,2}", "{0,3}", "{2,}")
GROUPS = ("({}|{})", "(?:{}|{}|)", "(?={}){}", "(?!{}){}", "{}{}", "{}{}")
NAME = "model.layers.10.block_sparse_moe.experts.127.gate_proj"


class Patterns(unittest.TestCase):
    def setUp(self):
        self.random = random.Random(1)

    def word(self, letters, least, most):
        return "".join(self.random.choices(letters, k=self.random.randint(least, most)))

    def pattern(self, depth):
        kind = self.random.random()
        if depth == 0 or kind < 0.4:
            return self.random.choice(ATOMS)
        if kind < 0.55:
            return f"(?:{self.pattern(depth - 1)}){self.random.choice(REPEATS)}"
        if kind < 0.6:
            return self.random.choice(("(?<=a)", r"(?<!\.a)", "(?<=[ab]1)"))
        return self.random.choice(GROUPS).format(self.pattern(depth - 1),
                                                 self.pattern(depth - 1))

    def test_expressions(self):
        for _ in range(5000):
            pattern = "(?i)" * (self.random.random() < 0.1) + self.pattern(4)
            name = self.word("abA.1 ", 1, 8)
            self.assertEqual(_patterns.begins(name, pattern),
                             re.match(pattern, name) is not None, (pattern, name))

    def test_globs(self):
        """A glob fits a name, or one before a dot of it."""
        for _ in range(5000):
            name, glob = self.word("ab.", 0, 8), self.word("ab.**", 0, 6)
            whole = re.escape(glob).replace(r"\*", ".*") + r"(\.|$)"
            self.assertEqual(_patterns.matches(name, glob),
                             re.match(whole, name) is not None, (glob, name))

    def test_usual_rules(self):
        for rule, fits in ((NAME, True), ("model.layers.10", True),
                           ("model.layers.1", False),
                           ("*experts*", True), ("*.gate_proj", True),
                           ("lm_head", False),
                           (r"re:.*\.experts\.\d+\.(gate|up)_proj$", True),
                           ("re:^(?!.*experts).*_proj", False),
                           ("re:.*self_attn.*", False)):
            self.assertEqual(_patterns.matches(NAME, rule), fits, rule)

    def test_hostile_patterns(self):
        begin = time.monotonic()
        for rule in (r"re:(\w+\.?)+!", "*a*" * 14 + "!", "re:" + ".*" * 1000 + "!",
                     "re:(a|a|b|.)*(a|.)*(.|..)*!", "re:((((.*)*)*)*)*!",
                     r"re:(((.+\.?)+\.?)+\.?)+!", "re:(.{0,30}){0,30}!",
                     "re:(a?){1000000000}!", "re:((.?){1,9999}){1,9999}!"):
            self.assertFalse(_patterns.matches(NAME, rule), rule)
        self.assertLess(time.monotonic() - begin, 10)
        for rule, words in (
                ("re:" + "(" * 60 + "a" + ")" * 60,
                 "has groups in more than 50 others"),
                ("re:" + "(" * 2000 + "a" + ")" * 2000,
                 "simpler|no regular expression"),
                ("re:" + "a" * 5000, "has 5000 characters: must have 4096 at most"),
                ("*" * 5000, "has 5000 characters"),
                ("re:*a", "is no regular expression"),
                (r"re:(a)\1", "groupref is not supported"), ("re:(?s).", "no flag but"),
                ("re:(?i:a)", "subpattern is not supported")):
            with self.assertRaisesRegex(FileError, words):
                _patterns.check(rule)
        for rule in (r"re:(\w+\.?)+!", "re:" + ".*" * 7, "re:(ab|c)*",
                     "re:((a|b){9}){9}",
                     "re:(?=(a*)*)"):
            _patterns.check(rule)
            with self.assertRaisesRegex(FileError, "6 repeats without end at most"):
                _patterns.check(rule, by_re=True)
        _patterns.check(r"re:.*\.layers\.\d+\.(q|k|v)_proj(\.weight)?.*", by_re=True)
        steps = "re:" + "(.*(?=.*))*" * 300
        with self.assertRaisesRegex(FileError, "needs more than 50000 steps"):
            _patterns.matches(NAME, steps)


if __name__ == "__main__":
    unittest.main()
