#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_imports.py - checks which module of python/nibblas imports which.

Layers, each of which may import its own modules and those above it in this table:

    nibblas                 _abi, _library, _views, ..., and the package itself
    nibblas.torch           needs torch
    nibblas.transformers    needs transformers
    nibblas.gptq            needs transformers
    nibblas.certify         needs transformers
    nibblas.vllm            needs vLLM
    nibblas.gpumode         needs torch; imported by nobody

No modules import each other in a circle.  Imports inside functions count as well.
Prints each import that breaks a rule; silent when there is none."""

import ast
import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                    "python")
LAYERS = ("nibblas", "nibblas.torch", "nibblas.transformers", "nibblas.gptq",
          "nibblas.certify", "nibblas.vllm", "nibblas.gpumode")
# What a layer may not import, though it is above it.
FORBIDDEN = {"nibblas.vllm": {"nibblas.transformers", "nibblas.gptq",
                              "nibblas.certify"},
             "nibblas.gpumode": {"nibblas.transformers", "nibblas.gptq",
                                 "nibblas.certify", "nibblas.vllm"}}


def module_files():
    """{module: path} of the package; a package is the module of its __init__.py."""
    files = {}
    for folder, _, names in os.walk(os.path.join(ROOT, "nibblas")):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                module = os.path.relpath(path, ROOT)[:-3].replace(os.sep, ".")
                files[module.removesuffix(".__init__")] = path
    return files


def layer_of(module):
    return max((x for x in LAYERS if (module + ".").startswith(x + ".")), key=len)


def imports_of(path, modules):
    """{imported module: line} of the package's own modules."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read(), path)
    lines = {}
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [x.name for x in node.names]
        elif isinstance(node, ast.ImportFrom):
            # "from package import name": a module of that name, or one of its
            # attributes.
            names = [f"{node.module}.{x.name}" if f"{node.module}.{x.name}" in modules
                     else node.module for x in node.names]
        for name in names:
            if name in modules:
                lines.setdefault(name, node.lineno)
    return lines


def circles(graph):
    """The sets of modules that reach each other."""
    reached = {}
    for start in graph:
        seen, todo = set(), list(graph[start])
        while todo:
            module = todo.pop()
            if module not in seen:
                seen.add(module)
                todo += graph[module]
        reached[start] = seen
    groups = {frozenset(y for y in reached[x] if x in reached[y]) | {x}
              for x in graph if x in reached[x]}
    return sorted(sorted(group) for group in groups)


def main():
    files = module_files()
    graph = {module: imports_of(path, files) for module, path in files.items()}
    failed = False
    for module, lines in sorted(graph.items()):
        layer = layer_of(module)
        for target, line in lines.items():
            other = layer_of(target)
            if (LAYERS.index(other) > LAYERS.index(layer)
                    or other in FORBIDDEN.get(layer, ())):
                path = os.path.relpath(files[module], os.path.dirname(ROOT))
                print(f"{path}:{line}: {layer} may not import {target}")
                failed = True
    for group in circles(graph):
        print("import each other: " + ", ".join(group))
        failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())
