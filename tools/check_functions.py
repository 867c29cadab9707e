#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_functions.py - refuses functions of more than 60 lines, in C, CUDA and Python.

A function of C or CUDA is what lies between a "{" and a "}" at the beginning of a line,
these lines not counted.  A function of Python is its body without decorators, signature
and docstring; functions inside are counted with it.  Prints each that is too long and
is not in EXCEPTIONS; silent when there is none."""

import ast
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
C_FOLDERS = ("include", "src", "cli", "bench", "emu", "tests", "examples", "ggml",
             "tools")
PYTHON_FOLDERS = ("python", "tools", "tests", "bench", "examples", "emu")
MOST = 60

# "path:function": why it is longer.
EXCEPTIONS = {
    "tests/api/test_reference.c:moe_equals_its_experts": "a problem and its twin",
    "tests/api/test_sum_slots.c:refusals": "a list of refused arguments",
    "tests/cuda/test_cuda_device.c:errors_of_the_driver": "a list of errors",
    "tests/file/test_file_writer.c:writes_tensors_in_pieces_of_any_size":
    "a file's life",
    "tests/file/test_file_writer.c:refuses_bad_layers": "a list of refused layers",
}

# The last name before a parameter list; of a macro that makes a function, its argument.
NAME = re.compile(r"(\w+)\s*\(")
NO_NAMES = {"__attribute__", "__launch_bounds__", "__cluster_dims__", "__maxnreg__",
            "NIB_KERNEL", "format", "defined", "if", "aligned"}


def files(folders, ends):
    for folder in folders:
        for where, names, found in os.walk(os.path.join(ROOT, folder)):
            names[:] = [x for x in names if x not in ("build", "__pycache__")]
            for name in found:
                if name.endswith(ends):
                    yield os.path.relpath(os.path.join(where, name), ROOT)


def c_functions(lines):
    """(name, first line, lines of the body)"""
    begin = None
    for number, line in enumerate(lines, 1):
        if line.rstrip() == "{":
            begin = number
        elif begin and line.startswith("}"):
            head = []
            for before in reversed(lines[max(0, begin - 12):begin - 1]):
                if not before.strip() or before[0] in "}#/" or before.startswith(" *"):
                    break
                head.insert(0, before)
            names = [x for x in NAME.findall(" ".join(head)) if x not in NO_NAMES]
            yield names[0] if names else "?", begin, number - begin - 1
            begin = None


def python_functions(text, path):
    for node in ast.walk(ast.parse(text, path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if body:
                yield node.name, node.lineno, node.end_lineno - body[0].lineno + 1


def main():
    unused, failed = set(EXCEPTIONS), False
    for path in sorted([*files(C_FOLDERS, (".c", ".h", ".cu", ".cuh")),
                        *files(PYTHON_FOLDERS, (".py",))]):
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            text = file.read()
        functions = (python_functions(text, path) if path.endswith(".py")
                     else c_functions(text.split("\n")))
        for name, line, count in functions:
            if count <= MOST:
                continue
            key = f"{path}:{name}"
            unused.discard(key)
            if key not in EXCEPTIONS:
                print(f"{path}:{line}: {name}: {count} lines, at most {MOST}")
                failed = True
    for key in sorted(unused):
        print(f"tools/check_functions.py: {key} is an exception, but not too long")
        failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
