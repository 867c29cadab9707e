#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of the shell blocks of README.md, docs/checkpoints.md and the first
pages of readers (docs/start-*.md), one test each.  Those of nib run as the pages have
them, in one folder and in their order.  Those of make are dry runs.  A command that
needs a network or hours is skipped with the reason, and one that no rule knows fails.
tests/install/run.sh runs the C programs of README.md and docs/start-c.md,
tests/python/test_docs.py and test_transformers.py the Python."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

from cli_common import NIB, matrix, save
from cli_model import K, checkpoint

SOURCE = os.environ["NIB_SOURCE_DIR"]

# The first pattern that a command begins with: arguments to add, or why it is skipped.
RULES = [
    # Without measuring: the time of the plans.
    (r"nib selftest", ["--quick", "--quiet"]),
    (r"nib bench", ["--plan", "--min-time", "0", "--samples", "3", "--quiet"]),
    (r"nib ", []),
    (r"make\b", ["--dry-run"]),
    (r"vllm ", "needs vLLM; tests/python/test_vllm.py"),
    (r"(cmake|export PATH)", "writes outside the test's folder"),
    (r"nvcc|nibemu |NIBEMU_TRACE", "CTest emu_command runs nibemu"),
    (r"ctest ", "runs this test"),
    (r"pip ", "needs a network; tests/python/test_wheel.py builds the wheel"),
    (r"python examples/generate", "needs PyTorch; tests/python/test_transformers.py "
                                  "runs a smaller model"),
    (r"GGML_BACKEND_PATH=", "needs llama.cpp; tests/ggml/ and "
                            "tests/python/test_ggml.py load the plug-in"),
    (r"export PKG_CONFIG_PATH|cc layer.c", "tests/install/run.sh builds and runs it"),
]


def commands(page):
    """The commands of a page's shell blocks; a line that ends in \\ goes on."""
    with open(os.path.join(SOURCE, page), encoding="utf-8") as file:
        blocks = re.findall(r"^```sh\n(.*?)^```", file.read(), re.M | re.S)
    text = "".join(blocks).replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


class Page(unittest.TestCase):
    """Tests are added below."""
    folder = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="nib-test-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        model = os.path.join(cls.folder, "model-dir")
        os.mkdir(model)
        tensors = checkpoint()
        del tensors["model.layers.0.zero.weight"]  # nib inspect would report it
        save(os.path.join(model, "model.safetensors"), tensors, {"format": "pt"})
        with open(os.path.join(model, "config.json"), "w", encoding="utf-8") as file:
            file.write('{"model_type": "llama"}')
        save(os.path.join(cls.folder, "x.safetensors"), {"x": matrix(3, K, 9)})

    def run_command(self, command):
        for pattern, rule in RULES:
            if re.match(pattern, command):
                break
        else:
            self.fail(f"no rule for {command}: see RULES")
        if isinstance(rule, str):
            self.skipTest(rule)
        words = [os.path.expandvars(word) for word in shlex.split(command)] + rule
        is_nib = words[0] == "nib"
        if is_nib:
            words[0] = NIB
        if words[1] == "quantize":  # nib replaces no folder
            shutil.rmtree(os.path.join(self.folder, words[3]), ignore_errors=True)
        env = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
        done = subprocess.run(words, cwd=self.folder if is_nib else SOURCE, env=env,
                              stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=240,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Readme(Page):
    pass


class Checkpoints(Page):
    pass


class Start(Page):
    pass


def add_tests(test, page, prefix=""):
    def one(command):
        return lambda self: self.run_command(command)

    for i, command in enumerate(commands(page)):
        words = re.findall(r"[a-z]+", command)[:2]
        setattr(test, f"test_{prefix}{i:02}_{'_'.join(words)}", one(command))


add_tests(Readme, "README.md")
add_tests(Checkpoints, "docs/checkpoints.md")
for part in "run", "c", "kernels", "contribute":
    add_tests(Start, f"docs/start-{part}.md", f"{part}_")

if __name__ == "__main__":
    unittest.main(verbosity=2)
