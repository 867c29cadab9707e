# SPDX-License-Identifier: Apache-2.0
"""The public names of the package: each has a docstring, and all its parameters and
results have types; mypy --strict takes a user's program (user_program.py)."""

import importlib
import inspect
import os
import re
import subprocess
import sys
import tempfile
import typing
import unittest

from common import SOURCE, TorchTest

MODULES = ("nibblas", "nibblas.torch", "nibblas.gpumode")


def public():
    """(name, object) of every public function and class, and of their methods."""
    for module in MODULES:
        found = importlib.import_module(module)
        for name in found.__all__:
            one = getattr(found, name)
            if not callable(one):
                continue
            yield f"{module}.{name}", one
            for key, member in vars(one).items() if inspect.isclass(one) else ():
                member = getattr(member, "__func__", member)
                if inspect.isfunction(member) and (
                        key == "__init__" or not key.startswith("_")):
                    yield f"{module}.{name}.{key}", member


class Annotations(TorchTest):
    def test_every_parameter_has_a_type(self):
        count = 0
        for name, one in public():
            if not inspect.isfunction(one):
                continue
            hints = typing.get_type_hints(one)
            parameters = set(inspect.signature(one).parameters) - {"self", "cls"}
            self.assertEqual(parameters - set(hints), set(), name)
            self.assertIn("return", hints, name)
            count += 1
        self.assertGreater(count, 30)

    def test_every_name_has_a_docstring(self):
        for name, one in public():
            if name.endswith((".__init__", ".extra_repr")):
                continue
            doc = inspect.getdoc(one) or ""
            self.assertRegex(doc, r"^\S.{10}", name)
            if inspect.isfunction(one) and one.__module__ == "nibblas._numpy":
                words = set(re.findall(r"\w+", doc))
                for parameter in inspect.signature(one).parameters:
                    # What gemm() says is not said again.
                    self.assertTrue(parameter in words or "gemm()" in doc
                                    or parameter in ("out", "stream"),
                                    (name, parameter))

    def test_a_users_program(self):
        with tempfile.TemporaryDirectory() as folder, \
                tempfile.TemporaryDirectory() as elsewhere:
            got = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet",
                 "--no-compile", "--retries", "1", "--timeout", "15",
                 "--target", folder, "mypy"],
                text=True, capture_output=True, check=False)
            if got.returncode:
                self.skipTest("pip: cannot get mypy")
            program = os.path.join(SOURCE, "tests", "python", "user_program.py")
            done = subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--follow-imports",
                 "silent", "--cache-dir", os.path.join(folder, "cache"), program],
                text=True, capture_output=True, check=False, cwd=elsewhere,
                env={**os.environ, "PYTHONPATH": folder,
                     "MYPYPATH": os.path.join(SOURCE, "python")})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
