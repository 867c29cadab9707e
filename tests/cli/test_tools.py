#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the scripts of tools/ say: the last lines of `make test` as .ci/run reads them,
and which mutants this machine cannot run; what `make docs` gives Sphinx, without
Sphinx, and which links of its site are broken."""

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["NIB_SOURCE_DIR"]
AVX2_MACHINE = {"avx", "avx2", "fma", "f16c", "sse4_2"}


def tool(name):
    path = os.path.join(SOURCE, "tools", name + ".py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(function, *args):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        result = function(*args)
    return result, out.getvalue().splitlines()


class RunTests(unittest.TestCase):
    def test_one_line_for_each_reason(self):
        run_tests = tool("run_tests")
        skipped = [("a: one", "no GPU"), ("b: two", "no GPU"), ("c: all", "no zsh"),
                   ("d: x", "no GPU"), ("e: y", "")]
        _, lines = printed(run_tests.show_skipped, skipped)
        self.assertEqual(lines, [
            "skipped: 3: no GPU (a: one, b: two, ...)",
            "skipped: 1: no zsh (c: all)",
            "skipped: 1: no reason given (e: y)"])

    def test_last_line_is_what_ci_reads(self):
        """.ci/run takes the numbers out of it, with and without skips."""
        last_line = tool("run_tests").last_line
        self.assertEqual(last_line(12, 0, 0), "12 passed, 0 failed")
        self.assertEqual(last_line(12, 3, 7), "12 passed, 3 failed, 7 skipped")
        with open(os.path.join(SOURCE, ".ci", "run"), encoding="utf-8") as file:
            case = re.search(r"^case \$count in.*?^esac", file.read(), re.M | re.S)[0]
        for line, want in ((last_line(12, 0, 0), "12 0"),
                           (last_line(12, 3, 7), "12 3"), ("make: died", "0 1")):
            done = subprocess.run(
                ["sh", "-c", f"count=$1\n{case}\necho $passed $failed", "sh", line],
                capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout.strip(), want, line)


class Site(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="nib-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_every_declaration_has_its_comment(self):
        """stage.py fails if a declaration of the headers is missing."""
        stage = os.path.join(SOURCE, "docs", "site", "stage.py")
        subprocess.run([sys.executable, stage, self.folder], check=True)
        with open(os.path.join(self.folder, "c", "errors.rst"),
                  encoding="utf-8") as file:
            page = file.read()
        self.assertIn(".. c:struct:: nib_error\n", page)
        self.assertIn("   .. c:enumerator:: NIB_STATUS_BAD_ARGUMENT\n\n"
                      "      an argument breaks a rule\n", page)
        self.assertIn("   .. c:member:: char argument[64]\n\n"
                      "      The argument that the message is about", page)
        self.assertIn(".. c:function:: const char *nib_status_name(enum nib_status "
                      "status)\n\n   \"bad argument\" and so on, static; never NULL.",
                      page)

    def test_broken_links(self):
        pages = {"a.html": '<p id="x"><a href="b.html#y"></a><a href="#x"></a>',
                 "b.html": '<a href="a.html#z"></a>\n<img src="none.svg">'
                           '<a href="https://example.org/none"></a>'}
        for name, text in pages.items():
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        check = os.path.join(SOURCE, "tools", "check_site.py")
        done = subprocess.run([sys.executable, check, self.folder], check=False,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.splitlines(), [
            "a.html:1: link to b.html#y: the page has no such anchor",
            "b.html:1: link to a.html#z: the page has no such anchor",
            "b.html:2: link to none.svg: there is no such file",
            "2 pages, 5 links, 3 broken; 1 to other sites, not fetched"])


class Mutants(unittest.TestCase):
    def test_code_that_this_machine_cannot_run(self):
        mutants, cpu = tool("mutants"), "src/backend/cpu/"
        for path, lacks in (
                ("avx2/gemm_avx2.c", []), ("scalar/gemm_scalar.c", []),
                ("gemm.inc.h", []), ("avx2/quantize_avx2.h", []),
                ("vector256.inc.h", []),
                ("avxvnni/gemm_avxvnni.c", ["avx_vnni"]),
                ("avx512bw/gemm_avx512bw.c", ["avx512bw", "avx512dq", "avx512f",
                                              "avx512vl"]),
                ("neon/gemm_neondot.c", ["asimd", "asimddp"]),
                ("vector512.inc.h", ["avx512bw", "avx512dq", "avx512f", "avx512vl"]),
                ("avx512bf16/dense_avx512bf16.c", [
                    "avx512_bf16", "avx512_vnni", "avx512bw", "avx512dq", "avx512f",
                    "avx512vbmi", "avx512vl"])):
            self.assertEqual(mutants.missing_flags(cpu + path, AVX2_MACHINE), lacks,
                             path)
        # The flags that CMake gives the compiler, in other words.
        with open(os.path.join(SOURCE, "CMakeLists.txt"), encoding="utf-8") as file:
            text = file.read()
        flags = {}
        for isa, line in re.findall(r"^set\(flags_(\w+) (.*)\)", text, re.M):
            if isa.startswith("neon"):  # GCC names architectures of Arm, no flags
                continue
            flags[isa] = set()
            for word in line.split():
                flags[isa] |= (flags[word[8:-1]] if word[0] == "$" else
                               {word[2:].replace("vnni", "_vnni").replace(
                                   "512bf16", "512_bf16").replace("-", "_")})
            self.assertEqual(mutants.NEEDS[isa], flags[isa], isa)

    @unittest.skipUnless(os.path.exists(os.path.join(SOURCE, ".git")),
                         "the tool reads git's list of files")
    def test_every_equivalent_one_exists(self):
        """A line of tools/mutants_equivalent.txt whose code has changed is refused."""
        self.assertEqual(tool("mutants").stale_equivalents(), [])

    def test_they_are_listed_and_not_counted(self):
        mutants = tool("mutants")
        made = {"function": "f", "text": "a + b", "old": "+", "new": "-", "nth": 1}
        results = [dict(made, path="src/api/run.c", result="killed"),
                   dict(made, path="src/backend/cpu/avx512vnni/gemm_avx512vnni.c",
                        result=mutants.NOT_RUN)]
        mutants.processor_flags = lambda: AVX2_MACHINE
        status, lines = printed(mutants.show, results)
        self.assertEqual((status, lines[-1]), (0, "1 passed, 0 failed"))
        self.assertIn("not run on this machine: src/backend/cpu/avx512vnni/"
                      "gemm_avx512vnni.c:f: a + b [+ -> -]", lines)
        self.assertTrue(any(line.startswith("not counted: 1 not run on this machine, "
                                            "which lacks avx512_vnni")
                            for line in lines))


if __name__ == "__main__":
    unittest.main(verbosity=2)
