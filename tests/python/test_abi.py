# SPDX-License-Identifier: Apache-2.0
"""Compares nibblas/_abi.py with the headers: tools/python_abi.py writes the same file,
and every constant, offset and signature is that of a compiler that reads them."""

import ctypes as C
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from common import SOURCE

from nibblas import _abi as abi

INCLUDE = os.path.join(SOURCE, "include")
HEADERS = sorted(os.listdir(INCLUDE))
INCLUDES = "".join(f'#include "{name}"\n' for name in HEADERS)
STRUCTS = {name: value for name, value in vars(abi).items()
           if isinstance(value, type) and issubclass(value, C.Structure)}
CONSTANTS = {name: value for name, value in vars(abi).items()
             if name.startswith("NIB_")}


def compile_c(text, *flags):
    """What the compiler says of a program, and its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "check.c")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run(["gcc", "-std=c17", "-I" + INCLUDE,
                               "-fsyntax-only", *flags, path], text=True,
                              capture_output=True, cwd=folder, check=False)
        return done.returncode, done.stderr


def assertion(condition):
    return f'_Static_assert({condition}, "{condition}");'


def kind_of_c(text):
    """The kind of a C type, as the compiler writes it."""
    if "*" in text or "nib_parallel_for" in text:
        return "pointer"
    words = [w for w in text.split() if w not in ("const", "extern")]
    if words[0] == "enum":
        return "int"
    return {"long int": "int64_t", "long unsigned int": "size_t"}.get(
        " ".join(words), " ".join(words))


def kind_of_ctypes(kind):
    if kind is None:
        return "void"
    names = {C.c_int: "int", C.c_int64: "int64_t", C.c_float: "float",
             C.c_size_t: "size_t"}
    return names.get(kind, "pointer")


class Generated(unittest.TestCase):
    def test_is_what_the_tool_writes(self):
        done = subprocess.run(
            [sys.executable, os.path.join(SOURCE, "tools", "python_abi.py"),
             "-o", "-"], capture_output=True, text=True, check=True)
        path = os.path.join(SOURCE, "python", "nibblas", "_abi.py")
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), done.stdout,
                             "run tools/python_abi.py")

    def test_names_all_of_the_headers(self):
        text = ""
        for name in HEADERS:
            with open(os.path.join(INCLUDE, name), encoding="utf-8") as file:
                text += file.read()
        defined = set(re.findall(r"^struct (nib_\w+) \{", text, re.M))
        self.assertEqual(set(STRUCTS), defined)
        declared = set(re.findall(r"^NIB_API[^;]*?\b(nib_\w+)\(", text, re.M))
        self.assertEqual(set(abi.FUNCTIONS), declared)


@unittest.skipUnless(shutil.which("gcc"), "no gcc")
class Compiler(unittest.TestCase):
    def test_constants_and_layouts(self):
        lines = [INCLUDES]
        lines += [assertion(f"{name} == {value}")
                  for name, value in CONSTANTS.items()]
        for name, kind in STRUCTS.items():
            struct = "struct " + name
            lines.append(assertion(f"sizeof({struct}) == {C.sizeof(kind)}"))
            for field, _ in kind._fields_:
                at = getattr(kind, field)
                lines += [assertion(f"offsetof({struct}, {field}) == "
                                    f"{at.offset}"),
                          assertion(f"sizeof((({struct} *)0)->{field}) == "
                                    f"{at.size}")]
        self.assertGreater(len(lines), 200)
        code, said = compile_c("\n".join(lines))
        self.assertEqual(code, 0, said)

    def test_a_wrong_layout_is_found(self):
        code, _ = compile_c(INCLUDES + assertion(
            "offsetof(struct nib_fp4, scales) == 16"))
        self.assertNotEqual(code, 0)

    def test_short_enums_are_refused(self):
        code, said = compile_c(INCLUDES, "-fshort-enums")
        self.assertNotEqual(code, 0)
        self.assertIn("nib_enums_are_ints", said)

    def test_signatures(self):
        """gcc writes down every prototype that it has read."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "prototypes")
            code, said = compile_c(INCLUDES, "-aux-info", path)
            self.assertEqual(code, 0, said)
            with open(path, encoding="utf-8") as file:
                text = re.sub(r"/\*.*?\*/", "", file.read())
        found = re.findall(
            r"extern ([^;(]*?)\b(nib_\w+) \(([^;]*)\);", text)
        seen = {name: (result, args) for result, name, args in found}
        self.assertEqual(set(seen), set(abi.FUNCTIONS))
        for name, (result, kinds) in abi.FUNCTIONS.items():
            of_c = [] if seen[name][1] == "void" else seen[name][1].split(", ")
            self.assertEqual([kind_of_c(one) for one in of_c],
                             [kind_of_ctypes(one) for one in kinds], name)
            self.assertEqual(kind_of_c(seen[name][0]),
                             kind_of_ctypes(result), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
