# SPDX-License-Identifier: Apache-2.0
"""_patterns.py - matches names of layers with the patterns of a quantisation
configuration in bounded time: globs, as ModelOpt writes them, and "re:" followed by a
regular expression, as compressed-tensors does.  Python's re tries one way through a
pattern after the other and needs years for `re:(\\w+\\.?)+!`.  Here a set of positions
in the name goes through the pattern once.  cli/regex.c does the same for the command,
for a smaller syntax, because it has no parser of Python's expressions."""

import functools
import re

from nibblas._library import FileError

try:
    from re import _constants as sre, _parser as parser
except ImportError:  # Python 3.10
    import sre_constants as sre
    import sre_parse as parser

MOST_CHARACTERS = 4096
# For one name; a pattern of 100 characters needs a few thousand at most.
MOST_STEPS = 50000
MOST_DEPTH = 50
# Python's re takes time that each repeat without end multiplies by the name's length.
MOST_REPEATS = 6
_FLAGS = re.UNICODE | re.IGNORECASE
_CATEGORIES = {
    sre.CATEGORY_DIGIT: str.isdecimal, sre.CATEGORY_SPACE: str.isspace,
    sre.CATEGORY_WORD: lambda c: c.isalnum() or c == "_"}
_NOT = {sre.CATEGORY_NOT_DIGIT: sre.CATEGORY_DIGIT,
        sre.CATEGORY_NOT_SPACE: sre.CATEGORY_SPACE,
        sre.CATEGORY_NOT_WORD: sre.CATEGORY_WORD}


def glob(name, pattern):
    """Whether a pattern of characters and `*` is all of a name."""
    at, star, after = 0, -1, 0
    p = 0
    while at < len(name):
        if p < len(pattern) and pattern[p] == "*":
            star, after, p = p, at, p + 1
        elif p < len(pattern) and pattern[p] == name[at]:
            at, p = at + 1, p + 1
        elif star < 0:
            return False
        else:
            # The last star takes one character more.
            after += 1
            at, p = after, star + 1
    return not pattern[p:].strip("*")


def _fail(pattern, rule):
    shown = pattern if len(pattern) <= 80 else pattern[:77] + "..."
    raise FileError(f"the pattern {shown!r}: {rule}", "pattern")


def _category(kind, c):
    if kind in _CATEGORIES:
        return _CATEGORIES[kind](c)
    return not _CATEGORIES[_NOT[kind]](c)


def _is_in(items, c):
    """Whether a character is in a set [...] of the parser's."""
    found = False
    for op, value in items:
        if op is sre.LITERAL:
            found |= ord(c) == value
        elif op is sre.RANGE:
            found |= value[0] <= ord(c) <= value[1]
        elif op is sre.CATEGORY:
            found |= _category(value, c)
    return found != (items[0][0] is sre.NEGATE)


_CHARACTERS = {
    sre.LITERAL: lambda value, c: ord(c) == value,
    sre.NOT_LITERAL: lambda value, c: ord(c) != value,
    sre.ANY: lambda _value, c: c != "\n", sre.IN: _is_in}


class _Match:
    """One name.  Positions in it are the bits of an int."""

    def __init__(self, pattern, tree, name):
        self.pattern, self.name, self.steps, self.kept = pattern, name, 0, {}
        self.ignores_case = tree.state.flags & re.IGNORECASE

    def ends(self, items, starts):
        """Where a sequence that begins at one of `starts` may end."""
        for op, value in items:
            if not starts:
                break
            self.steps += 1
            if self.steps > MOST_STEPS:
                _fail(self.pattern, f"needs more than {MOST_STEPS} steps for the name "
                      f"{self.name[:80]!r}: must be simpler")
            if op in _CHARACTERS:
                starts = (starts & self.where(op, value)) << 1
            else:
                starts = self.others[op](self, value, starts)
        return starts

    def where(self, op, value):
        """The positions of the characters that an item of one character takes."""
        key = op, value if isinstance(value, int) else id(value)
        if key not in self.kept:
            test = _CHARACTERS[op]
            is_negative = op is sre.NOT_LITERAL or (
                op is sre.IN and value[0][0] is sre.NEGATE)
            fits = all if is_negative else any
            self.kept[key] = sum(1 << i for i, c in enumerate(self.name) if fits(
                test(value, x) for x in self.forms(c)))
        return self.kept[key]

    def forms(self, c):
        """A character, and with (?i) its other cases."""
        return {c, c.lower()[0], c.upper()[0]} if self.ignores_case else {c}

    def repeat(self, value, starts):
        least, most, items = value
        for _ in range(least):
            before, starts = starts, self.ends(items, starts)
            if starts == before:
                break
        found, count = starts, least
        while starts and count < most:
            starts = self.ends(items, starts) & ~found
            found, count = found | starts, count + 1
        return found

    def branch(self, value, starts):
        found = 0
        for items in value[1]:
            found |= self.ends(items, starts)
        return found

    def at(self, value, starts):
        last = len(self.name)
        if value in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            return starts & 1
        if value in (sre.AT_END, sre.AT_END_STRING):
            return starts & 1 << last
        word = [_category(sre.CATEGORY_WORD, c) for c in self.name]
        word = [False, *word, False]
        edges = sum(1 << i for i in range(last + 1) if word[i] != word[i + 1])
        return starts & (edges if value is sre.AT_BOUNDARY else ~edges)

    def looking(self, value, starts):
        """The positions at which a group (?=...) or (?<=...) matches."""
        direction, items = value
        width = items.getwidth()[0] if direction < 0 else 0
        found = 0
        for i in range(width, len(self.name) + 1):
            if starts >> i & 1:
                ends = self.ends(items, 1 << i - width)
                found |= (bool(ends) if direction > 0 else ends >> i & 1) << i
        return found

    others = {
        sre.MAX_REPEAT: repeat, sre.MIN_REPEAT: repeat, sre.BRANCH: branch, sre.AT: at,
        sre.SUBPATTERN: lambda self, value, starts: self.ends(value[-1], starts),
        sre.ASSERT: looking,
        sre.ASSERT_NOT: (
            lambda self, value, starts: starts & ~self.looking(value, starts))}


def _parts(op, value):
    """The sequences in an item of the parser's."""
    if op in _CHARACTERS or op is sre.AT:
        return []
    return value[1] if op is sre.BRANCH else [value[-1]]


def _check_known(pattern, items, depth=0):
    """Refuses what _Match does not do."""
    if depth > MOST_DEPTH:
        _fail(pattern, f"has groups in more than {MOST_DEPTH} others: must be simpler")
    for op, value in items:
        if op in _CHARACTERS:
            continue
        if op not in _Match.others or (op is sre.SUBPATTERN and (value[1] or value[2])):
            _fail(pattern,
                  f"{str(op).lower()} is not supported; must have no references to "
                  "groups, atomic groups, possessive repeats or flags of groups")
        for part in _parts(op, value):
            _check_known(pattern, part, depth + 1)


@functools.lru_cache(maxsize=1024)
def _parsed(pattern):
    if len(pattern) > MOST_CHARACTERS:
        _fail(pattern,
              f"has {len(pattern)} characters: must have {MOST_CHARACTERS} at most")
    try:
        tree = parser.parse(pattern)
        if tree.state.flags & ~_FLAGS:
            _fail(pattern, "no flag but (?i) is supported")
        _check_known(pattern, tree)
    except (re.error, RecursionError, OverflowError) as error:
        _fail(pattern, f"is no regular expression: {error}")
    return tree


def begins(name, pattern):
    """Whether a regular expression matches a name from its first character on, as
    re.match() does.  Raises FileError for one that is none, or too complicated."""
    tree = _parsed(pattern)
    return bool(_Match(pattern, tree, name).ends(tree, 1))


def matches(name, rule):
    """Whether a name of a module, or of one that it is in, fits a rule: a name, a glob,
    or "re:" with a regular expression."""
    if rule.startswith("re:"):
        return begins(name, rule[3:])
    return glob(name, rule) or glob(name, rule + ".*")


def _repeats(items, inside=False):
    """How many unbounded repeats a sequence has; one with a repeat or alternatives in
    it counts as too many."""
    count = 0
    for op, value in items:
        is_repeat = op in (sre.MAX_REPEAT, sre.MIN_REPEAT) and value[1] > 1
        if inside and (is_repeat or op is sre.BRANCH):
            return MOST_REPEATS + 1
        count += is_repeat and value[1] is sre.MAXREPEAT
        count += sum(_repeats(part, inside or is_repeat) for part in _parts(op, value))
    return count


def check(rule, by_re=False):
    """Refuses a rule that matches() does not understand; by_re: also one for which
    Python's re may need exponential time, because another library matches it by
    that."""
    if rule.startswith("re:"):
        tree = _parsed(rule[3:])
        if by_re and _repeats(tree) > MOST_REPEATS:
            _fail(rule[3:],
                  f"must have {MOST_REPEATS} repeats without end at most, and no "
                  "repeats or alternatives in a repeat")
    elif len(rule) > MOST_CHARACTERS:
        _fail(rule, f"has {len(rule)} characters: must have {MOST_CHARACTERS} at most")
