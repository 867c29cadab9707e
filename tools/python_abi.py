#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python_abi.py [-o FILE] - writes python/nibblas/_abi.py: the constants, structs
and functions of the headers in include/ as ctypes.  It reads their own few forms of
declaration and refuses any other; tests/python/test_abi.py asks the compiler whether
it read them right, and whether the file is that of the headers."""

import argparse
import os
import re
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADERS = [os.path.join(ROOT, "include", name)
           for name in ("nibblas.h", "nibblas_tune.h")]
OUTPUT = os.path.join(ROOT, "python", "nibblas", "_abi.py")

SCALARS = {"int": "C.c_int", "int64_t": "C.c_int64", "uint64_t": "C.c_uint64",
           "int32_t": "C.c_int32", "size_t": "C.c_size_t",
           "float": "C.c_float", "double": "C.c_double", "char": "C.c_char"}
HEAD = '''# SPDX-License-Identifier: Apache-2.0
"""_abi.py - the headers in include/ as ctypes; written by tools/python_abi.py."""

import ctypes as C
'''


class Header:
    """The declarations of the headers, in their order."""

    def __init__(self, text):
        self.defines = dict(re.findall(
            r"^#define (NIB_[A-Z0-9_]+) (.+?)(?: */\*.*)?$", text, re.M))
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"^[ \t]*#.*$", "", text, flags=re.M)
        text = re.sub(r'extern "C" \{|^\}$', "", text, flags=re.M)
        self.enums, self.structs = {}, {}
        self.callbacks, self.functions = {}, {}
        self.enumerators = {}
        for item in split(text, ";"):
            self.read(" ".join(item.split()))

    def read(self, item):
        # Declared structs and assertions have nothing to bind.
        if not item or re.fullmatch(r"struct nib_\w+|typedef char nib_\w+\[.*\]", item):
            return
        if match := re.fullmatch(r"enum (nib_\w+) \{(.*)\}", item):
            self.read_enum(*match.groups())
        elif match := re.fullmatch(r"struct (nib_\w+) \{(.*)\}", item):
            self.structs[match[1]] = [
                field for line in split(match[2], ";") if line.strip()
                for field in declarators(line.strip())]
        elif match := re.fullmatch(
                r"typedef void \(\*(nib_\w+)\)\((.*)\)", item):
            self.callbacks[match[1]] = arguments(match[2])
        elif match := re.fullmatch(r"NIB_API (.*?)\b(nib_\w+)\((.*)\)", item):
            self.functions[match[2]] = (match[1].strip(), arguments(match[3]))
        else:
            sys.exit(f"python_abi.py: cannot read: {item}")

    def read_enum(self, name, body):
        value = 0
        self.enums[name] = []
        for part in filter(None, (p.strip() for p in body.split(","))):
            key, _, given = part.partition("=")
            value = int(given) if given else value
            self.enumerators[key.strip()] = value
            self.enums[name].append(key.strip())
            value += 1

    def constant(self, text):
        """An integer: a number, another constant, or INT64_C(1) << 20."""
        text = text.strip().strip("()")
        text = re.sub(r"INT64_C\((\d+)\)", r"\1", text)
        if match := re.fullmatch(r"(\d+) << (\d+)", text):
            return int(match[1]) << int(match[2])
        return int(text) if text.isdigit() else self.constant(
            self.defines[text])

    # ---- C types as ctypes

    def plain(self, base):
        if base.startswith("enum "):
            return "C.c_int"
        if base.startswith("struct "):
            return base.removeprefix("struct ")
        if base in self.callbacks:
            return base
        return SCALARS[base]

    def argument(self, text):
        """The ctype of a function's argument.  Structs that the header defines are
        typed pointers, so that ctypes checks them; all others are addresses."""
        base = text.replace("const ", "").rstrip("* ").strip()
        stars = text.count("*")
        if stars == 0:
            return self.plain(base)
        if stars == 1 and base == "char":
            return "C.c_char_p"
        if stars == 1 and base.removeprefix("struct ") in self.structs:
            return f"C.POINTER({self.plain(base)})"
        if stars == 1 and base in SCALARS and "const" not in text:
            return f"C.POINTER({SCALARS[base]})"
        if stars == 1:
            return "C.c_void_p"
        if base == "char":
            return "C.POINTER(C.c_char_p)"
        return "C.POINTER(C.c_void_p)"

    def field(self, base, stars, count):
        if not stars:
            text = self.plain(base)
        elif base == "char":
            text = "C.c_char_p"
        else:
            text = "C.c_void_p"
        return f"{text} * {self.constant(count)}" if count else text


def split(text, separator):
    """Splits at separators outside all brackets."""
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c in "({[") - (c in ")}]")
        if c == separator and depth == 0:
            yield text[start:i]
            start = i + 1
    if text[start:].strip():
        yield text[start:]


def declarators(line):
    """(name, base, stars, count) of each: "const float *a, *b", "int c[4]"."""
    match = re.match(r"((?:const )?(?:struct |enum )?\w+)\s*(.*)", line)
    base = match[1].replace("const ", "")
    for one in match[2].split(","):
        name = re.fullmatch(r"(\**)(\w+)(?:\[(\w+)\])?", one.strip())
        yield name[2], base, len(name[1]), name[3]


def arguments(text):
    """The types of arguments, without names."""
    if text.strip() == "void":
        return []
    return [re.sub(r"\w+(\[\])?$", "", one.strip()).strip()
            for one in split(text, ",")]


def render(header):
    out = [HEAD]
    for name in header.defines:
        if re.fullmatch(r"(INT64_C\()?\d+\)?|\(INT64_C.*\)",
                        header.defines[name]):
            out.append(f"{name} = {header.constant(header.defines[name])}")
    for name, keys in header.enums.items():
        out.append(f"\n# enum {name}")
        out += [f"{key} = {header.enumerators[key]}" for key in keys]
    for name, types in header.callbacks.items():
        text = ", ".join(
            "C.c_void_p" if "(" in one or "*" in one else header.argument(one)
            for one in types)
        out.append(f"\n{name} = C.CFUNCTYPE(None, {text})")
    for name, fields in header.structs.items():
        out.append(f"\n\nclass {name}(C.Structure):\n    _fields_ = [")
        out += [f'        ("{key}", {header.field(*rest)}),'
                for key, *rest in fields]
        out.append("    ]")
    out.append("\n\n# name: (result, arguments)\nFUNCTIONS = {")
    for name, (result, types) in header.functions.items():
        result = "None" if result == "void" else header.argument(result)
        text = ", ".join(header.argument(one) for one in types)
        out += textwrap.wrap(f'"{name}": ({result}, [{text}]),', 80,
                             initial_indent="    ",
                             subsequent_indent="        ")
    out.append("}")
    return "\n".join(out) + "\n"


def read_headers():
    """The text of the headers, one after the other."""
    text = ""
    for path in HEADERS:
        with open(path, encoding="utf-8") as file:
            text += file.read()
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", default=OUTPUT, metavar="FILE",
                        help="default: python/nibblas/_abi.py; - is stdout")
    args = parser.parse_args()
    text = render(Header(read_headers()))
    if args.o == "-":
        sys.stdout.write(text)
    else:
        with open(args.o, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
